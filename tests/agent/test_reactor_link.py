"""The two halves of an agent: what each says, and how each goes on without the other. A reactor
behind a socket, in this process; no NIC is there."""

from __future__ import annotations

import os
import random
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from tests.agent.halves import config, reacting
from tests.live import eventually

from syntony.agent.reactor import link, messages, saved_orders
from syntony.agent.reactor.link import ReactorLink
from syntony.agent.reactor.process import Reactor
from syntony.agent.steering.path_log import MAX_ROWS, ROWS_AT_ONCE, PathLog
from syntony.agent.steering.rows import PathRow
from syntony.errors import MissingError, SyntonyError, WireError
from syntony.io import job_socket
from syntony.io.channel import MAX_BYTES, Channel
from syntony.io.run_directory import REACTOR_SOCKET
from syntony.model import MS, S
from syntony.traffic.moving import Outcome
from syntony.traffic.policy import FailoverMode
from syntony.wire.failover import Switch
from syntony.wire.probes import KeysHeld, PairKeys, Plan, ProbeKeys
from syntony.wire.traffic import Move, Moves

KEYS = ProbeKeys(epochs=(3,), sending=3, pairs=(PairKeys(host="h1", nics=(9,), keys=(bytes(16),)),))


def plan(generation: int = 1) -> Plan:
    return Plan(
        generation=generation, nic_ids={"va": 7, "vb": 8}, nic_names={}, clocks={}, flows=()
    )


@contextmanager
def running(place: Path) -> Iterator[Reactor]:
    with reacting(config(place, FailoverMode.OFF)) as reactor:
        yield reactor


@pytest.fixture
def place() -> Iterator[Path]:
    """Of a short name: a socket's path has at most 107 characters."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def telemetry(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReactorLink]:
    """Not connected yet. It waits for a reactor on a busy machine."""
    monkeypatch.setattr(link, "TIMEOUT_NS", 600 * S)
    telemetry = ReactorLink(place / "run")
    yield telemetry
    telemetry.close()


def held(telemetry: ReactorLink) -> KeysHeld | None:
    return telemetry.held


def test_what_stands_is_told_to_a_reactor_that_begins_anew(
    place: Path, telemetry: ReactorLink
) -> None:
    with pytest.raises(MissingError, match="does the reactor run"):
        telemetry.start()
    switch = Switch(stopped=True, at_ns=5, by="tester")
    for said in (KEYS, plan(), switch):
        assert telemetry.obey(said, None) == "the reactor does not run"
    assert held(telemetry) is None
    with running(place) as reactor:
        telemetry.start()
        assert held(telemetry) == KeysHeld(epochs=(3,), sending=3)
        assert reactor._saved == saved_orders.SavedOrders(plan=plan(), keys=KEYS)
        assert reactor.steering.stopped
        assert telemetry.up
        assert telemetry.state is not None
        assert telemetry.state.report.stopped
        assert {part.name for part in telemetry.state.parts} >= {"nic:va", "probing"}
        eventually(lambda: telemetry.look(flows=False).probing > 0, "the plan is in force")
        probing = telemetry.probing()
        assert probing is not None
        assert probing.plan == plan()
        assert telemetry.obey(plan(), None) == ""
        assert reactor._coming is None, "the same plan again changes nothing"
    assert telemetry.look(flows=True) == link.NO_UPDATE
    assert "reactor" in str(telemetry.fault)
    assert telemetry.counters.sent == 0
    assert not telemetry.rows()


def test_a_reactor_alone_goes_on_with_plan_keys_and_switch(
    place: Path, telemetry: ReactorLink
) -> None:
    with running(place):
        telemetry.start()
        for said in (KEYS, plan(), Switch(stopped=True, at_ns=5, by="tester")):
            assert telemetry.obey(said, None) == ""
    telemetry.close()
    assert (place / "run" / saved_orders.FILE).stat().st_mode & 0o077 == 0, "it holds keys"
    with running(place) as reactor:  # and nobody speaks with it
        assert reactor.steering.stopped
        assert reactor._keyring.epochs == (3,)
        eventually(lambda: reactor._plan == plan(), "the plan is in force")


def test_devices_may_stamp_as_the_newest_plan_says(place: Path, telemetry: ReactorLink) -> None:
    """Also the one that was kept, at once; without any, and by one of before, they may not."""
    with running(place) as reactor:
        assert not reactor.verbs.device_stamps
        telemetry.start()
        for number, allowed in enumerate((True, False, True)):
            said = msgspec.structs.replace(plan(number + 1), device_stamps=allowed)
            assert telemetry.obey(said, None) == ""
            assert reactor.verbs.device_stamps is allowed
    telemetry.close()
    with running(place) as reactor:
        assert reactor.verbs.device_stamps
    file = place / "run" / saved_orders.FILE
    before = msgspec.msgpack.decode(file.read_bytes())
    del before["plan"]["device_stamps"]
    file.write_bytes(msgspec.msgpack.encode(before))
    with running(place) as reactor:
        assert reactor._saved.plan == plan(3)
        assert not reactor.verbs.device_stamps


@pytest.mark.parametrize("data", [b"", b"\xff\xff", msgspec.msgpack.encode({"plan": 3})])
def test_what_was_kept_and_cannot_be_read_is_left_out(
    place: Path, telemetry: ReactorLink, data: bytes
) -> None:
    (place / "run").mkdir()
    (place / "run" / saved_orders.FILE).write_bytes(data)
    with running(place) as reactor:
        assert reactor._saved == saved_orders.SavedOrders()
        telemetry.start()
        assert telemetry.obey(plan(), None) == ""


def test_a_word_that_cannot_be_one_is_refused_and_the_one_before_stays(
    place: Path, telemetry: ReactorLink
) -> None:
    with running(place) as reactor:
        telemetry.start()
        assert telemetry.obey(KEYS, None) == ""
        assert telemetry.obey(plan(), None) == ""
        broken = msgspec.structs.replace(plan(2), nic_ids={"va": 0})
        assert "cannot be one" in telemetry.obey(broken, None)
        assert "cannot be such" in telemetry.obey(msgspec.structs.replace(KEYS, sending=9), None)
        assert telemetry.up
        assert telemetry.held == KeysHeld(epochs=(3,), sending=3)
        assert reactor._saved == saved_orders.SavedOrders(plan=plan(), keys=KEYS)


def test_an_order_needs_fleet_time_and_is_good_until_it_expires(
    place: Path, telemetry: ReactorLink
) -> None:
    move = Move(
        move_id="m1", connection="0a", local="10.0.0.1", local_port=1, remote="10.0.0.2",
        remote_port=2, port=61_000, evidence="", expires_ns=100 * S,
    )  # fmt: skip
    results = []

    class Control:
        view = SimpleNamespace(
            outcomes=(Outcome(move_id="m0", result="moved", at_ns=0, tried=True),),
            job_flows=(),
            rails=lambda rails: rails,
        )

        def confirm(self, _: object) -> None: ...
        def move(self, order: object) -> None:
            results.append(order)

    with running(place) as reactor:
        telemetry.start()
        assert telemetry.obey(Moves(moves=(move,)), 90 * S - time.monotonic_ns()) == ""
        reactor.steering._control = Control()  # type: ignore[assignment]
        try:
            for fleet_ns in (None, 101 * S, 90 * S):
                offset_ns = None if fleet_ns is None else fleet_ns - time.monotonic_ns()
                assert telemetry.obey(Moves(moves=(move,)), offset_ns) == ""
                assert telemetry.look(flows=False).outcome == "m1", "reported at once"
        finally:
            reactor.steering._control = None
        refused = [each.result for each in reactor.steering._refused]
    assert refused[0] == "paths are not managed here: off"
    assert "no fleet time" in refused[1]
    assert "expired 1" in refused[2]
    assert len(refused) == 3
    assert len(results) == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x00",
        struct.pack("=I", MAX_BYTES + 1),
        struct.pack("=I", 0),
        struct.pack("=I", 5) + b"\xc1\xc1\xc1\xc1\xc1",
        struct.pack("=I", 1 << 20) + b"short",
        struct.pack("=I", 18) + msgspec.msgpack.encode({"type": "no-such-request"}),
    ],
)
def test_garbage_from_one_connection_harms_nobody(
    place: Path, telemetry: ReactorLink, sent: bytes
) -> None:
    with running(place) as reactor:
        with socket.socket(socket.AF_UNIX) as hostile:
            hostile.connect(str(place / "run" / REACTOR_SOCKET))
            hostile.sendall(sent)
            time.sleep(0.05)
            telemetry.start()
            assert telemetry.obey(plan(), None) == ""
        assert reactor._saved.plan == plan()


def test_whoever_speaks_another_protocol_is_told_so(place: Path) -> None:
    with running(place):
        channel = Channel.connect(place / "run" / REACTOR_SOCKET, S)
        begin = messages.Begin(protocol=messages.PROTOCOL + 1, version="9.9")
        channel.send(msgspec.msgpack.encode(begin))
        answer = msgspec.msgpack.decode(channel.receive(), type=messages.Answer)
        assert isinstance(answer, messages.Failed)
        assert "restart both" in answer.reason
        channel.close()


def test_a_telemetry_process_that_hangs_is_let_go_and_costs_the_loop_little(
    place: Path, telemetry: ReactorLink
) -> None:
    """It asked, and does not read the answer: larger than what the socket holds."""
    with running(place) as reactor:
        many = tuple(map(_row, range(20_000)))
        reactor.steering.rows = lambda _: (0, many)  # type: ignore[method-assign, assignment]
        hanging = Channel.connect(place / "run" / REACTOR_SOCKET, S)
        hanging.send(msgspec.msgpack.encode(messages.StateQuery(rows=0)))
        time.sleep(0.1)
        del reactor.steering.rows
        telemetry.start()
        assert telemetry.state is not None
        with pytest.raises(MissingError):
            hanging.receive()


def test_one_that_is_stopped_is_called_that(tmp_path: Path) -> None:
    listener = job_socket.listen(tmp_path / "socket", socket.SOCK_STREAM)
    channel = Channel.connect(tmp_path / "socket", 10 * MS)
    with pytest.raises(MissingError, match="no answer in time: stopped or hung"):
        channel.receive()
    listener.close()


def _row(number: int) -> PathRow:
    return PathRow(
        at_ns=number, job="j", connection="0a", cause="path", evidence="x" * 50, action="destroy",
        old_path="", new_path="", detect_ns=0, act_ns=0,
    )  # fmt: skip


def test_rows_are_kept_until_they_have_been_taken() -> None:
    """Against a reader that dies and asks again at random."""
    seed = random.randrange(1 << 32)
    rng, path_log = random.Random(seed), PathLog("h0", lambda _: None)
    written, taken, cursor = 0, [], 0
    for _ in range(400):
        for _ in range(rng.randrange(40)):
            path_log._rows.append(_row(written))
            written += 1
        if rng.random() < 0.2:
            cursor = 0  # a new reader: it gets again what its predecessor did not confirm
        first, rows = path_log.rows(cursor)
        assert len(rows) <= ROWS_AT_ONCE
        assert [row.at_ns for row in rows] == list(range(first, first + len(rows))), f"seed {seed}"
        fresh = rows[max(0, cursor - first) :]
        taken += [row.at_ns for row in fresh]
        cursor = first + len(rows)
    while path_log.rows(cursor)[1]:
        first, rows = path_log.rows(cursor)
        taken += [row.at_ns for row in rows[max(0, cursor - first) :]]
        cursor = first + len(rows)
    assert set(taken) == set(range(written)), f"seed {seed}"
    assert not path_log._rows
    assert MAX_ROWS >= ROWS_AT_ONCE


def test_another_user_is_not_let_in(
    place: Path, telemetry: ReactorLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(place) as reactor:
        monkeypatch.setattr("syntony.io.channel.os.geteuid", lambda: 12_345)
        if os.getuid() == 0:
            from syntony.io import channel
            from syntony.io.job_socket import PeerCredentials

            monkeypatch.setattr(channel, "credentials", lambda _: PeerCredentials(1, 54_321))
        with pytest.raises(MissingError):
            telemetry.start()
        assert reactor._server.connections == 0


def test_rows_are_told_once_by_one_telemetry_process(place: Path, telemetry: ReactorLink) -> None:
    seed = random.randrange(1 << 32)
    rng, path_log = random.Random(seed), PathLog("h0", lambda _: None)
    written, reported = 0, list[int]()
    with running(place) as reactor:
        reactor.steering.rows = path_log.rows  # type: ignore[method-assign]
        telemetry.start()
        for _ in range(30):
            for _ in range(rng.randrange(5)):
                path_log._rows.append(_row(written))
                written += 1
            for _ in range(rng.randrange(3)):
                telemetry.refresh()
            for _ in range(rng.randrange(3)):
                reported += [row.at_ns for row in telemetry.rows()]
        telemetry.refresh()
        reported += [row.at_ns for row in telemetry.rows()]
    assert reported == list(range(written)), f"seed {seed}"


def test_a_request_of_another_version_is_answered(place: Path) -> None:
    with running(place):
        channel = Channel.connect(place / "run" / REACTOR_SOCKET, S)
        for request in ({"type": "no-such-request"}, {"type": "obey", "said": {"type": "plan"}}):
            channel.send(msgspec.msgpack.encode(request))
            answer = msgspec.msgpack.decode(channel.receive(), type=messages.Answer)
            assert isinstance(answer, messages.Failed)
            assert "of another version" in answer.reason
        channel.close()


@pytest.mark.parametrize(
    ("length", "error"), [(MAX_BYTES + 1, WireError), (MAX_BYTES, MissingError)]
)
def test_a_message_beyond_all_bounds_is_not_waited_for(
    length: int, error: type[SyntonyError]
) -> None:
    """One within them is, as long as patience lasts."""
    near, far = socket.socketpair()
    channel = Channel(near, S // 20)
    with far:
        far.sendall(struct.pack("=I", length))
        with pytest.raises(error):
            channel.receive()
