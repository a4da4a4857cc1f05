"""Answers made for screens: a job's report, an audit's tree and ports, the map of the fabric."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.controller.asking import NOBODY, answer, services_with
from tests.controller.test_job_diagnosis import NOW, Jobs, Store, rows_with

from syntony.audit.checks.network import RailConnectivity
from syntony.audit.registry import every_check
from syntony.audit.result import ComparedValue, HostReport, Result, Status
from syntony.controller.answers import MAX_REPORT_NS
from syntony.controller.audits import AuditRuns
from syntony.controller.locating import LocateLoop
from syntony.controller.recorded_paths import RecordedPaths
from syntony.errors import UsageError
from syntony.fabric.book import Way
from syntony.model import MS, S
from syntony.model.sla import Latency
from syntony.state import ControlState
from syntony.store.jobs import JobHost
from syntony.wire.audit import AuditCommand, AuditReport, AuditView, AuditViewQuery
from syntony.wire.clocks import ClockHistoryQuery
from syntony.wire.control import Issuer
from syntony.wire.fabric import TopologyQuery
from syntony.wire.jobs import JobReport, JobReportQuery
from syntony.wire.probes import Matrix, MatrixQuery, Plane, PlanesQuery
from syntony.workload import Bundle, Diagnosis, diagnose
from syntony.workload.recorded import SETTLE_NS

ACTIVE = "be.act.state"
LATE = "; it has not ended, but its agents are late; age of their newest rows"


def job_report(
    rows: Any, known: tuple[str, ...] = (), hosts: tuple[JobHost, ...] = (), **fields: Any
) -> JobReport:
    jobs = Jobs({"night": rows})
    jobs.names, jobs.known_hosts = known, hosts
    paths = RecordedPaths(dict, lambda _way: ())
    services = services_with(store=Store(jobs), paths=paths)
    query = JobReportQuery(job="night", **({"window_ns": 30 * S} | fields))
    return answer(services, query, NOBODY, fleet_ns=NOW)


def test_a_job_s_report_says_what_its_recording_says() -> None:
    found = job_report(rows_with({2: 30 * MS}))
    assert found.sentences[0].startswith("night is slow because of straggler")
    assert [each["class"] for each in found.verdicts] == ["straggler"]
    assert (found.end_ns, found.begin_ns) == (NOW - SETTLE_NS, NOW - 30 * S)
    assert found.notes
    assert len(found.at_ns) == len(found.rate_bps)
    (lost,) = found.takeovers
    assert (lost.ts_ns, lost.worker, lost.stall_ns) == (
        found.begin_ns, "night", found.end_ns - found.begin_ns
    )  # fmt: skip
    assert len(found.resent) == len(found.at_ns)
    assert job_report(rows_with({})).verdicts == ()


def test_a_job_s_report_has_waits_without_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(bundle: Bundle) -> Diagnosis:
        return Diagnosis((), (), waits=diagnose(bundle).verdicts)

    monkeypatch.setattr("syntony.controller.job_report.diagnose", waits)
    found = job_report(rows_with({2: 30 * MS}))
    assert [each["class"] for each in found.verdicts] == ["straggler"]


def test_a_job_s_report_is_json_without_infinities() -> None:
    document = msgspec.json.decode(msgspec.json.encode(job_report(rows_with({2: 30 * MS}))))

    def numbers(value: Any) -> Iterator[float]:
        for each in value.values() if isinstance(value, dict) else value:
            if isinstance(each, (dict, list)):
                yield from numbers(each)
            elif isinstance(each, float):
                yield each

    assert all(map(math.isfinite, numbers(document)))


def test_a_job_s_report_is_of_a_bounded_window() -> None:
    with pytest.raises(UsageError, match="a window of"):
        job_report(rows_with({}), window_ns=MAX_REPORT_NS + 1)


def age(host: str, seconds: int, running: int = 1) -> JobHost:
    return JobHost(host, NOW - seconds * S, running)


@pytest.mark.parametrize(
    ("known", "hosts", "end_ns", "hint"),
    [
        ((), (), 0, ""),
        (("nigth",), (), 0, "; did you mean 'nigth'?"),
        ((), (age("h0", 50, 0), age("h1", 42, 0)), 0, "; it ended 42 s ago"),
        (
            (),
            (age("h0", 90, 0), age("h1", 60), age("h2", 42)),
            0,
            f"{LATE}: h1 60 s, h2 42 s",
        ),
        (
            (),
            tuple(age(f"h{number}", 60 - number) for number in range(7)),
            0,
            f"{LATE}: h0 60 s, h1 59 s, h2 58 s, h3 57 s, h4 56 s and 2 more",
        ),
        # It began after the window.
        ((), (age("h0", 2),), NOW - 100 * S, "; its newest rows are 2 s old"),
    ],
)
def test_a_job_without_rows_in_the_window(
    known: tuple[str, ...], hosts: tuple[JobHost, ...], end_ns: int, hint: str
) -> None:
    empty: dict[str, dict[str, list[Any]]] = {
        name: {column: [] for column in rows} for name, rows in rows_with({}).items()
    }
    reason = re.escape(f"no record of job 'night' in that time{hint}; `syntony jobs list`")
    with pytest.raises(UsageError, match=reason):
        job_report(empty, known, hosts, end_ns=end_ns)


@pytest.fixture
def audits() -> Iterator[AuditRuns]:
    with ControlState(None) as state:
        yield AuditRuns(state)


def state_of(host: str, status: Status) -> Result:
    bad = status is Status.FAIL
    return Result(
        check=ACTIVE, status=status, subject=f"{host}/mlx5_0:1", got="DOWN" if bad else "ACTIVE",
        meaning="carries nothing" if bad else "",
    )  # fmt: skip


def run(audits: AuditRuns, reports: dict[str, Status], silent: tuple[str, ...] = ()) -> str:
    """One audit; hosts that are silent have not answered."""
    hosts = {*reports, *silent}
    started, _ = audits.start(AuditCommand(by="me"), Issuer("me", "local"), hosts, NOW)
    for host, status in reports.items():
        readings = [
            ComparedValue(check=key.check, key=key.name, subject=host, value=f"1.{host == 'h2'}")
            for key in _keys("sw.kernel")
        ]
        report = HostReport(
            host=host, taken_ns=NOW, results=(state_of(host, status),), readings=tuple(readings)
        )
        data = msgspec.json.encode(report)
        audits.take(host, AuditReport(order=started.order, report=data))
    return started.order


class _Key(msgspec.Struct):
    check: str
    name: str


def _keys(check: str) -> list[_Key]:
    return [_Key(each.id, key.name) for each in every_check() if each.id == check
            for key in each.keys][:1]  # fmt: skip


def view(audits: AuditRuns, **fields: Any) -> AuditView:
    services = services_with(audits=audits)
    return answer(services, AuditViewQuery(**fields), NOBODY, fleet_ns=NOW)


def test_no_audit_is_an_empty_view(audits: AuditRuns) -> None:
    found = view(audits)
    assert (found.order, found.runs, found.sections, found.ports) == ("", (), (), ())


def test_an_audit_s_tree_ports_and_what_is_wrong(audits: AuditRuns) -> None:
    order = run(audits, {"h0": Status.PASS, "h1": Status.FAIL, "h2": Status.PASS})
    found = view(audits)
    assert (found.order, found.against, found.waiting) == (order, "", ())
    (active,) = (each for each in found.sections if each.section == "Active connections")
    assert (active.branch, active.counts) == ("Back-end network", {"pass": 2, "fail": 1})
    assert [(port.host, port.active, port.initialized) for port in found.ports] == [
        ("h0", "pass", ""), ("h1", "fail", ""), ("h2", "pass", ""),
    ]  # fmt: skip
    first = found.verdicts[0]
    assert (first.status, first.subject, first.branch) == (
        "fail", "h1/mlx5_0:1", "Back-end network",
    )  # fmt: skip
    assert {each.status for each in found.verdicts} <= {"fail", "warn", "unknown"}
    assert "pass" in {each.status for each in view(audits, everything=True).verdicts}


def test_an_audit_under_way_says_who_is_awaited_and_compares_nothing_yet(
    audits: AuditRuns,
) -> None:
    run(audits, {"h0": Status.PASS, "h1": Status.PASS})
    second = run(audits, {"h0": Status.FAIL}, silent=("h1",))
    found = view(audits)
    assert (found.order, found.waiting, found.changes) == (second, ("h1",), ())
    assert [(each.hosts, each.waiting) for each in found.runs] == [(2, 0), (2, 1)]
    audits.take("h1", AuditReport(order=second, refused="another audit runs"))
    found = view(audits)
    assert found.waiting == ()
    assert ("worse", ACTIVE, "h0/mlx5_0:1") in {
        (each.change, each.check, each.subject) for each in found.changes
    }
    assert any("another audit runs" in each.evidence + each.got for each in found.verdicts)


def test_an_older_audit_and_one_to_compare_with_can_be_chosen(audits: AuditRuns) -> None:
    orders = [run(audits, {"h0": status}) for status in (Status.PASS, Status.FAIL, Status.FAIL)]
    assert view(audits).changes == ()
    found = view(audits, order=orders[2], against=orders[0])
    assert [each.change for each in found.changes] == ["worse"]
    assert view(audits, order=orders[0]).against == ""
    with pytest.raises(UsageError, match="no audit"):
        view(audits, order="never")


def test_the_map_of_what_paths_have_shown() -> None:
    no_store: Any = None
    locating = LocateLoop(no_store, "")
    book = locating._book
    book.learn(Way("h0/rail0", "h1/rail0", 1, 2), ["leaf0", "spine1", "leaf1"])
    book.learn(Way("h1/rail0", "h0/rail0", 2, 1), ["leaf1", "*", "leaf0"])
    found = answer(services_with(locating=locating), TopologyQuery(), NOBODY, fleet_ns=NOW)
    assert not found.configured
    assert {device.name: device.kind for device in found.devices} == {
        "h0/rail0": "nic", "h1/rail0": "nic", "leaf0": "leaf", "leaf1": "leaf", "spine1": "spine",
    }  # fmt: skip
    assert set(found.cables) == {
        ("h0/rail0", "leaf0"), ("leaf0", "spine1"), ("leaf1", "spine1"), ("h1/rail0", "leaf1"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("end_ns", "window"),
    [
        (0, (NOW - 10 * S, NOW + S)),
        (NOW - 60 * S, (NOW - 70 * S, NOW - 60 * S)),
        (NOW + 60 * S, (NOW - 10 * S, NOW + S)),
    ],
)
def test_the_matrix_and_clocks_of_the_past(end_ns: int, window: tuple[int, int]) -> None:
    asked = []

    class Remembering:
        def matrix(self, *given: Any) -> tuple[()]:
            asked.append(given[:2])
            return ()

        clock_history = matrix

    services = services_with(store=Remembering(), solving=SimpleNamespace(timelines=()))
    found = answer(services, MatrixQuery(end_ns=end_ns), NOBODY, fleet_ns=NOW)
    assert found == Matrix(cells=())
    query = ClockHistoryQuery(window_ns=10 * S, end_ns=end_ns)
    assert answer(services, query, NOBODY, fleet_ns=NOW).samples == ()
    assert asked == [window, window]


@pytest.mark.parametrize(
    ("newest_ns", "end_ns", "lag_ns"),
    [
        (NOW - 7 * S, NOW - 6 * S, 6 * S),
        (NOW, NOW + S, 0),
        (NOW + 60 * S, NOW + S, 0),
        (0, NOW + S, 0),
    ],
)
def test_the_newest_matrix_ends_where_the_store_does(
    newest_ns: int, end_ns: int, lag_ns: int
) -> None:
    """No later than now: the clock of a host may be ahead."""
    asked = []

    class Late:
        def latest_ns(self, over: Plane) -> int:
            assert over is Plane.VERBS
            return newest_ns

        def matrix(self, *given: Any) -> tuple[()]:
            asked.append(given)
            return ()

    query = MatrixQuery(window_ns=5 * S, over=Plane.VERBS, newest=True)
    found = answer(services_with(store=Late()), query, NOBODY, fleet_ns=NOW)
    assert found.lag_ns == lag_ns
    first_ns = end_ns - 5 * S if lag_ns else NOW - 5 * S
    assert asked == [(first_ns, end_ns, Plane.VERBS)]


@pytest.mark.parametrize(
    ("newest", "stored", "end_ns"),
    [
        (True, {Plane.UDP: NOW - 7 * S, Plane.VERBS: NOW - 9 * S}, NOW - 8 * S),
        (True, {Plane.UDP: NOW - 9 * S, Plane.VERBS: NOW - 7 * S}, NOW - 8 * S),
        (True, {Plane.UDP: NOW - 7 * S, Plane.VERBS: 0}, NOW - 6 * S),
        (True, {Plane.UDP: 0, Plane.VERBS: 0}, NOW + S),
        (False, {Plane.UDP: NOW - 7 * S, Plane.VERBS: NOW - 9 * S}, NOW + S),
    ],
)
def test_planes_are_compared_until_the_newest_second_of_both(
    newest: bool, stored: dict[Plane, int], end_ns: int
) -> None:
    asked = []

    class Classes:
        def classes(self, over: Plane, *window: int) -> dict[Any, Any]:
            asked.append(window[1])
            return {("h0/rail0", "h1/rail0", 0): Latency(sent=9, lost=0, measured=9)}

    class Stored:
        latest_ns = staticmethod(stored.__getitem__)
        latency = Classes()

    query = PlanesQuery(window_ns=5 * S, newest=newest)
    found = answer(services_with(store=Stored()), query, NOBODY, fleet_ns=NOW)
    assert (found.end_ns, found.compared, asked) == (end_ns, 1, [end_ns, end_ns])


def test_connectivity_is_a_column() -> None:
    """The table's column stands for a check that there is."""
    assert RailConnectivity.id in {check.id for check in every_check()}
