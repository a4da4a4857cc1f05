"""Batches that another controller may still store wait before the next one gets them."""

from __future__ import annotations

import queue
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.link import hello, open_spool, probe_rows

from syntony.agent import delivery
from syntony.agent.config import AgentConfig
from syntony.agent.delivery import ON_THE_WAY_NS
from syntony.agent.fence import Fence
from syntony.agent.stream import Stream
from syntony.agent.uplink import Uplink
from syntony.model import MS, S
from syntony.model.tls_files import TlsFiles
from syntony.wire.clocks import Edges
from syntony.wire.coding import encode
from syntony.wire.messages import MAX_UNACKED, UNCHECKED_NS, Ack, Batch, decode_bundle

HELD_NS = UNCHECKED_NS + ON_THE_WAY_NS


class Now:
    """CLOCK_MONOTONIC, as it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 1_000 * S
        monkeypatch.setattr("syntony.agent.delivery.time.monotonic_ns", lambda: self.ns)


def test_what_was_sent_and_not_acknowledged_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Now(monkeypatch)
    spool, fence = open_spool(tmp_path, 1 << 20), Fence(tmp_path)
    for number in range(3):
        spool.append("probe_1s", 1, bytes([number]))
    first = Stream(spool, fence)
    assert [first.delivery.next_batch() is not None for _ in range(4)] == [True] * 3 + [False]
    now.ns += 700 * MS
    first.delivery.acknowledge(2)
    second = Stream(spool, fence, first)
    assert second.delivery.held_ns == HELD_NS - 700 * MS
    assert (second.delivery.ready, second.delivery.next_batch()) == (False, None)
    # The stream after it waits for as long, though this one sent nothing.
    third = Stream(spool, fence, second)
    assert third.delivery.held_ns == second.delivery.held_ns
    now.ns += HELD_NS - 700 * MS - 1
    assert not third.delivery.ready
    now.ns += 1
    batch = third.delivery.next_batch()
    assert batch is not None
    assert batch.seq == 3
    spool.close()


def test_more_than_a_controller_looks_up_by_itself_is_delivered_again_as_a_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To its end, also over several connections; then the stream goes on."""
    now = Now(monkeypatch)
    spool, fence = open_spool(tmp_path, 1 << 20), Fence(tmp_path)
    for number in range(5 * MAX_UNACKED):
        spool.append("probe_1s", 1, bytes([number % 256]))
    first = Stream(spool, fence)
    assert isinstance(first.take(encode(Ack(seq=0, window=2 * MAX_UNACKED))), Ack)
    assert _send_all(first) == 2 * MAX_UNACKED
    for _ in range(2):
        now.ns += HELD_NS
        second = Stream(spool, fence, first)
        assert second.delivery.backlog
        assert _send_all(second) == MAX_UNACKED
        first = second
    second.take(encode(Ack(seq=MAX_UNACKED)))
    assert not second.delivery.over
    now.ns += HELD_NS
    third = Stream(spool, fence, second)
    assert not third.delivery.backlog  # so many are looked up
    assert _send_all(third) == MAX_UNACKED
    third.take(encode(Ack(seq=MAX_UNACKED, window=1 << 30)))
    assert _send_all(third) == 3 * MAX_UNACKED
    spool.close()


def _send_all(stream: Stream) -> int:
    """How many batches go now."""
    found = 0
    while stream.delivery.next_batch() is not None:
        found += 1
    return found


def test_nothing_is_held_once_all_that_was_sent_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Now(monkeypatch)
    spool, fence = open_spool(tmp_path, 1 << 20), Fence(tmp_path)
    spool.append("probe_1s", 1, b"1")
    first = Stream(spool, fence)
    assert first.delivery.next_batch() is not None
    first.delivery.acknowledge(1)
    spool.append("probe_1s", 1, b"2")
    assert Stream(spool, fence, first).delivery.ready
    spool.close()


def test_the_end_of_an_earlier_process_stream_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers are not those of the stream that follows."""
    Now(monkeypatch)
    left = open_spool(tmp_path, 1 << 20)
    for number in range(5):
        left.append("probe_1s", 1, bytes([number]))
    left.close()
    spool, fence = open_spool(tmp_path, 1 << 20), Fence(tmp_path)
    spool.append("probe_1s", 1, b"new")
    backlog = Stream(spool, fence)
    assert backlog.delivery.backlog
    while backlog.delivery.next_batch() is not None:
        pass
    backlog.delivery.acknowledge(5)
    following = Stream(spool, fence, backlog)
    assert not following.delivery.backlog
    assert following.delivery.ready
    spool.close()


def test_reports_go_while_batches_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "UNCHECKED_NS", 300 * MS)
    monkeypatch.setattr(delivery, "ON_THE_WAY_NS", 0)
    config = AgentConfig(
        host="t1", controller="127.0.0.1:1", tls=TlsFiles(ca="ca", cert="cert", key="key"),
        nics=(), spool_dir=str(tmp_path),
    )  # fmt: skip
    spool, fence = open_spool(tmp_path, 1 << 20), Fence(tmp_path)
    uplink = Uplink(config, lambda stream: hello("t1", stream), print, spool)
    uplink.submit("probe_1s", *probe_rows("t1", 0))
    first = Stream(spool, fence)
    assert first.delivery.next_batch() is not None
    leaving = uplink._messages(cast(Any, SimpleNamespace(stream=Stream(spool, fence, first))))
    next(leaving)  # the hello
    sent = queue.SimpleQueue[bytes]()
    sender = threading.Thread(target=lambda: deque(map(sent.put, leaving)), daemon=True)
    sender.start()
    uplink.send_edges(())
    kinds = [type(message) for _ in range(2) for message in decode_bundle(sent.get(timeout=600))]
    assert kinds == [Edges, Batch], "and nothing wakes the sender but the end of the time"
    uplink.close()
    sender.join(300)
    spool.close()
