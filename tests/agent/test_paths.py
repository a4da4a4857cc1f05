"""The paths' thread with a wire that answers every question at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from tests.live import eventually

from syntony.agent import paths
from syntony.agent.paths import PathTracer
from syntony.fabric import learn
from syntony.fabric.learn import HopQuery
from syntony.io.traceroute import HopReply
from syntony.mesh.stats import Columns
from syntony.model import S
from syntony.wire.probes import ProbeFlow

PEER = "h1/rail0"
PORTS = (61_000, 61_001)


class Wire:
    """Eight switches in a row answer for every flow."""

    def __init__(self, _addresses: dict[str, str]) -> None:
        self._answers: list[HopReply] = []

    def send(self, ask: HopQuery, _now_ns: int) -> None:
        self._answers.append(HopReply(ask, f"10.9.0.{ask.ttl}"))

    def receive(self, _now_ns: int) -> list[HopReply]:
        answers, self._answers = self._answers, []
        return answers

    def close(self) -> None:
        pass


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> Iterator[PathTracer]:
    monkeypatch.setattr(paths, "Traceroute", Wire)
    monkeypatch.setattr(learn, "AGAIN_NS", 1_000 * S)
    monkeypatch.setattr(learn, "RETRACE_NS", 0)
    monkeypatch.setattr(paths, "CONFIRMED_NS", 0)
    monkeypatch.setattr(paths, "BURST", 1)
    made = PathTracer("h0")
    made.start({"rail0": "10.0.0.1"})
    yield made
    made.close()


def flow(number: int) -> ProbeFlow:
    return ProbeFlow(
        flow_id=number, src="rail0", dst=PEER, dst_nic_id=7, dst_addr="10.0.0.2", dst_port=8620,
        src_port=PORTS[number], interval_ns=S,
    )  # fmt: skip


def learnt(tracer: PathTracer, count: int) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []

    def enough() -> bool:
        rows = tracer.rows(1, 0)
        if rows is not None:
            ports = np.asarray(rows["sport"]).tolist()
            found.extend(zip(rows["src"], rows["dst"], ports, strict=True))
        return len(found) >= count

    eventually(enough, f"{count} paths")
    return sorted(found)


def seen(lost: tuple[int, int], unresolved: tuple[int, int]) -> Columns:
    """Requests and replies of both flows."""
    there, back = ["h0/rail0"] * 2, [PEER] * 2
    return {
        "src": there + back,
        "dst": back + there,
        "sport": np.array(PORTS * 2, dtype=np.uint16),
        "lost": np.array((*lost, 1, 1), dtype=np.uint32),
        "unresolved": np.array((*unresolved, 0, 0), dtype=np.uint32),
    }


@pytest.mark.parametrize(("lost", "unresolved"), [((0, 1), (0, 0)), ((0, 0), (0, 3))])
def test_a_flow_that_lost_probes_on_the_way_out_is_traced_again(
    tracer: PathTracer, lost: tuple[int, int], unresolved: tuple[int, int]
) -> None:
    """… and no other: what its replies lost is its peer's to trace."""
    tracer.plan([flow(number) for number in range(2)], 8620)
    assert len(learnt(tracer, 4)) == 4
    tracer.retrace(seen(lost, unresolved), time.monotonic_ns())
    assert learnt(tracer, 1) == [("h0/rail0", PEER, PORTS[1])]


def test_what_is_as_it_was_is_told_of_now_and_then(
    tracer: PathTracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer.plan([flow(0)], 8620)
    assert len(learnt(tracer, 2)) == 2
    monkeypatch.setattr(paths, "CONFIRMED_NS", 5 * S)
    tracer.retrace(seen((1, 0), (0, 0)), time.monotonic_ns())
    eventually(lambda: tracer.rows(10 * S, 0) is not None, "the path once more")
    tracer.retrace(seen((1, 0), (0, 0)), time.monotonic_ns())
    assert tracer.rows(15 * S - 1, 0) is None
    eventually(lambda: tracer.rows(15 * S, 0) is not None, "the path a third time")


@pytest.mark.parametrize("mute", [0, 3])
def test_a_thread_that_comes_late_takes_the_answers_that_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, mute: int
) -> None:
    """As on a host short of CPU; what was left out would be reported as silent."""

    class Mute(Wire):
        def send(self, ask: HopQuery, now_ns: int) -> None:
            if ask.ttl != mute:
                super().send(ask, now_ns)

    monkeypatch.setattr(paths, "Traceroute", Mute)
    monkeypatch.setattr(threading.Thread, "start", lambda _thread: None)
    monkeypatch.setattr(threading.Thread, "join", lambda _thread: None)
    tracer = PathTracer("h0")
    tracer.start({"rail0": "10.0.0.1"})
    tracer.plan([flow(0)], 8620)
    for turn in range(40):
        tracer._turn(100 * S + turn * 3 * learn.ANSWER_NS)
    rows = tracer.rows(1, 0)
    assert rows is not None
    heard = ["*" if ttl == mute else f"10.9.0.{ttl}" for ttl in range(1, learn.MAX_TTL + 1)]
    assert set(rows["hops"]) == {" ".join(heard)}
    assert list(rows["sport"]) == [PORTS[0], 8620]
