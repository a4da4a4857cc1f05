"""The stop switch and the agents' reports, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import msgspec
import pytest

from syntony.controller import traffic
from syntony.controller.traffic import FORGET_NS, STALE_NS, USED_NS, TrafficService
from syntony.errors import StateError
from syntony.model import S
from syntony.state import ControlState, LeaseLostError
from syntony.wire.control import Issuer
from syntony.wire.failover import (
    ConnectionsQuery,
    ConnectionView,
    PathsReport,
    ProcessView,
    SubflowView,
    SwitchCommand,
)


def report(*jobs: str, host: str = "h0") -> PathsReport:
    far = "h0" if host == "h1" else "h1"
    way = SubflowView(path=f"{host}/rail0:1 > {far}/rail0:2", state="up", rate_bps=5)
    connections = tuple(
        ConnectionView(job=job, connection="00000001", subflows=(way,)) for job in jobs
    )
    return PathsReport(mode="act", stopped=False, connections=connections)


ANN = Issuer("ops ann", "ipv4:10.0.0.1:5000")


@pytest.fixture
def service() -> Iterator[TrafficService]:
    with ControlState(None) as state:
        yield TrafficService(state)


def test_the_switch_never_goes_back_in_time(service: TrafficService) -> None:
    stop, row, _ = service.throw(SwitchCommand(stopped=True, by="", why="test"), ANN, 1_000)
    start, _, _ = service.throw(SwitchCommand(stopped=False, by=""), ANN, 900)
    assert (stop.stopped, start.stopped) == (True, False)
    assert start.at_ns > stop.at_ns
    values = row.rows.to_pylist()[0]
    assert (values["host"], values["action"], values["evidence"]) == (
        "controller", "stop", "ops ann: test",
    )  # fmt: skip


def test_a_stop_is_carried_out_even_if_it_cannot_be_recorded(
    service: TrafficService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emergency does not wait for a full disk; a start does."""

    def full(*_: object) -> None:
        raise StateError("disk full")

    monkeypatch.setattr(ControlState, "set_switch", full)
    stop, _, unrecorded = service.throw(SwitchCommand(stopped=True, by=""), ANN, 1)
    assert service.switch == stop
    assert unrecorded is not None
    with pytest.raises(StateError, match="disk full"):
        service.throw(SwitchCommand(stopped=False, by=""), ANN, 2)
    assert service.switch == stop


def test_a_controller_that_was_replaced_stops_nothing(
    service: TrafficService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once did, until agents heard of its successor, and said that it would be recorded."""

    def lost(*_: object) -> None:
        raise LeaseLostError("taken over by another controller")

    start, _, _ = service.throw(SwitchCommand(stopped=False, by=""), ANN, 1)
    monkeypatch.setattr(ControlState, "set_switch", lost)
    with pytest.raises(LeaseLostError):
        service.throw(SwitchCommand(stopped=True, by=""), ANN, 2)
    assert service.switch == start
    assert not service.is_unrecorded


def test_reports_are_found_by_host_and_job(service: TrafficService) -> None:
    service.take("h0", report("a", "b"), 10)
    service.take("h1", report("b", host="h1"), 20)
    found = service.paths(ConnectionsQuery(job="b"), 30).hosts
    assert [(each.host, each.age_ns, len(each.report.connections)) for each in found] == [
        ("h0", 20, 1),
        ("h1", 10, 1),
    ]
    assert [each.host for each in service.paths(ConnectionsQuery(host="h1"), 30).hosts] == ["h1"]
    assert [each.report.left_out for each in service.status(30).hosts] == [2, 1]


def test_processes_are_found_by_job(service: TrafficService) -> None:
    processes = tuple(
        ProcessView(job=job, program="p", pid=1, uid=0, age_ns=0, flows=()) for job in ("a", "b")
    )
    reported = msgspec.structs.replace(report("a"), processes=processes, refused={"no-job": 2})
    service.take("h0", reported, 10)
    (found,) = service.paths(ConnectionsQuery(job="b"), 30).hosts
    assert [each.job for each in found.report.processes] == ["b"]
    assert found.report.refused == {"no-job": 2}
    (found,) = service.paths(ConnectionsQuery(), 30).hosts
    assert found.report.processes == processes
    assert not service.status(30).hosts[0].report.processes


def test_jobs_are_known_by_the_nics_their_connections_join(service: TrafficService) -> None:
    subflows = tuple(
        SubflowView(path=path, state="up", rate_bps=5)
        for path in ("h0/rail0:40000 > h1/rail0:5000", "nonsense", "h0/rail1:1 > h1/rail1:2")
    )
    view = ConnectionView(job="a", connection="1", subflows=subflows)
    service.take("h0", PathsReport(mode="act", stopped=False, connections=(view,)), 0)
    ends = {("h0/rail0", "h1/rail0"), ("h0/rail1", "h1/rail1")}
    assert service.pairs(5) == {"a": frozenset(ends | {pair[::-1] for pair in ends})}
    assert [(flow.pair, flow.rate_bps) for flow in service.flows(5)] == [
        ("h0/rail0->h1/rail0", 5),
        ("h0/rail1->h1/rail1", 5),
    ]


def test_a_path_that_was_left_is_the_jobs_for_a_while(service: TrafficService) -> None:
    """Failover has left a dead NIC before its incident opens."""
    service.take("h0", report("a"), 0)
    service.take("h0", report(), 5)
    both = frozenset({("h0/rail0", "h1/rail0"), ("h1/rail0", "h0/rail0")})
    assert service.pairs(5) == {}
    assert service.used(USED_NS - 1) == {"a": both}
    assert service.used(USED_NS) == {}


def test_a_host_that_reports_no_more_is_shown_with_its_age_then_forgotten(
    service: TrafficService,
) -> None:
    service.take("h0", report("a"), 0)
    assert set(service.pairs(STALE_NS - 1)) == {"a"}
    assert service.flows(STALE_NS - 1)
    assert service.pairs(STALE_NS) == {}
    assert service.flows(STALE_NS) == []
    service.take("h1", report("b", host="h1"), FORGET_NS - 1)
    ages = {each.host: each.age_ns for each in service.status(FORGET_NS - 1).hosts}
    assert ages == {"h0": FORGET_NS - 1, "h1": 0}
    service.take("h1", report("b", host="h1"), FORGET_NS)
    assert [each.host for each in service.status(FORGET_NS).hosts] == ["h1"]
    assert [each.host for each in service.paths(ConnectionsQuery(), FORGET_NS).hosts] == ["h1"]


def test_a_report_is_not_a_reason_to_look_at_those_of_all_hosts(service: TrafficService) -> None:
    """It once was: with 12,500 hosts that was most of what a report cost."""
    with mock.patch.object(service, "_forget", wraps=service._forget) as forget:
        for second in range(10 * FORGET_NS // S, 20 * FORGET_NS // S, 600):
            for host in ("h0", "h1", "h2"):
                service.take(host, report("a", host=host), second * S)
        assert forget.call_count <= 13  # of 180 reports
    assert len(service.status(20 * FORGET_NS).hosts) == 3


def test_a_stop_is_recorded_once_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database restarts just then; the controller dies later."""
    with ControlState(None) as state:
        service = TrafficService(state)
        service.throw(SwitchCommand(stopped=False, by="", why="before"), ANN, 1)
        with monkeypatch.context() as patched:
            patched.setattr(ControlState, "set_switch", _full)
            stop, _, unrecorded = service.throw(
                SwitchCommand(stopped=True, by="", why="it burns"), ANN, 5
            )
            assert unrecorded is not None
            with pytest.raises(StateError):
                service.record()
        assert (found := TrafficService(state).switch) is not None
        assert not found.stopped
        service.record()
        assert TrafficService(state).switch == stop
        newest = state.changes(0, 10)[-1]
        assert (newest.before, newest.after, newest.who, newest.comment) == (
            "running", "stopped", "ops ann", "it burns",
        )  # fmt: skip
        service.record()
        assert len(state.changes(0, 10)) == 2, "recorded once"


def test_a_stop_that_was_taken_back_is_not_recorded_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ControlState(None) as state:
        service = TrafficService(state)
        with monkeypatch.context() as patched:
            patched.setattr(ControlState, "set_switch", _full)
            service.throw(SwitchCommand(stopped=True, by=""), ANN, 5)
        start, _, _ = service.throw(SwitchCommand(stopped=False, by=""), ANN, 6)
        service.record()
        assert TrafficService(state).switch == start


def _full(*_: object) -> None:
    raise StateError("disk full")


def _of(path: str, job: str = "j1") -> PathsReport:
    way = SubflowView(path=path, state="up", rate_bps=5)
    connection = ConnectionView(job=job, connection="00000001", subflows=(way,))
    return PathsReport(mode="act", stopped=False, connections=(connection,))


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("h0/rail0:1 > h1/rail0:2", True),
        ("10.0.0.1:1 > h1/rail0:2", True),
        ("[fd00::1]:1 > 10.0.0.2:2", True),
        ("h1/rail0:1 > h0/rail0:2", False),
        ("h01/rail0:1 > h1/rail0:2", False),
    ],
)
def test_a_host_speaks_for_its_own_ends(service: TrafficService, path: str, taken: bool) -> None:
    """What jobs use decides what pages: a host says nothing of two others."""
    service.take("h0", _of(path), 1)
    assert bool(service.paths(ConnectionsQuery(), 1).hosts) is taken
    assert bool(service.used(1)) is taken


def test_what_was_used_is_remembered_within_bounds(
    service: TrafficService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that names other jobs in every report fills no memory."""
    monkeypatch.setattr(traffic, "MAX_USED", 100)
    for number in range(400):
        service.take("h0", _of("h0/rail0:1 > h1/rail0:2", f"j{number}"), number)
    used = service.used(400)
    assert "j399" in used
    assert 20 < len(used) <= 50
