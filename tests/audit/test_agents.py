"""Audits through agents: who is obeyed, and a lab of real ones."""

from __future__ import annotations

import json
import subprocess
import tomllib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.live import eventually, live, syntony

from syntony.agent.audit import MAX_LIFE_NS, AuditService
from syntony.agent.config import AuditMode
from syntony.audit.spec import parse_spec
from syntony.cli import audit_agents, run
from syntony.cli.audit_sources import Sources
from syntony.controller.audits import (
    EXPIRE_NS,
    GRACE_NS,
    MAX_ANSWER_BYTES,
    MAX_REPORT_BYTES,
    MAX_RUNS,
    AuditRuns,
)
from syntony.controller.client import ask
from syntony.errors import RemoteError, UsageError
from syntony.io.installation import REPLACED
from syntony.model import S
from syntony.model.names import host_of
from syntony.state import ControlState
from syntony.wire.audit import (
    AuditCommand,
    AuditOrder,
    AuditReport,
    AuditReportsQuery,
    AuditStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
from pathlib import Path

from syntony.wire.control import Issuer

NOW_NS = 1_000 * S
CLI = Issuer("cli", "local")


def order(**changes: Any) -> AuditOrder:
    reported: dict[str, Any] = {
        "order": "o1", "host": "h0", "checks": ("sw.os",), "limits": {}, "active": False,
        "deadline_ns": 300 * S, "expires_ns": NOW_NS + 60 * S, "by": "me",
    }  # fmt: skip
    return AuditOrder(**(reported | changes))


class Agent:
    """A service and what it sent."""

    def __init__(self, mode: AuditMode = AuditMode.PASSIVE) -> None:
        self.sent: list[AuditReport] = []
        self.service = AuditService("h0", mode, "/run/syntony", self.sent.append)


@pytest.mark.parametrize(
    ("changes", "mode", "why"),
    [
        ({"host": "h1"}, AuditMode.PASSIVE, "is for 'h1'"),
        ({"expires_ns": NOW_NS - 1}, AuditMode.PASSIVE, "expired"),
        ({"expires_ns": NOW_NS + MAX_LIFE_NS + 1}, AuditMode.PASSIVE, "too long"),
        ({}, AuditMode.OFF, "forbids"),
    ],
)
def test_orders_that_are_not_obeyed(changes: dict[str, Any], mode: AuditMode, why: str) -> None:
    agent = Agent(mode)
    agent.service.take(order(**changes), NOW_NS)
    (report,) = agent.sent
    assert why in report.refused
    assert not report.report


def test_an_order_is_obeyed_once() -> None:
    agent = Agent()
    agent.service.take(order(), NOW_NS)
    agent.service.take(order(), NOW_NS)
    agent.service.take(order(order="o2"), NOW_NS)
    refused = {report.order: report.refused for report in agent.sent if report.refused}
    assert "before" in refused["o1"]
    assert "another audit" in refused["o2"]
    eventually(lambda: len(agent.sent) == 3, "a report")
    (report,) = [each for each in agent.sent if each.report]
    assert json.loads(report.report)["host"] == "h0"


@pytest.mark.parametrize(
    "changes",
    [
        {"checks": ("--help",)},
        {"checks": ("sw.os; touch /tmp/evil",)},
        {"checks": ("nonsense",)},
        {"limits": {"nonsense": {}}},
        {"limits": {"fe.mesh": {"peers": ["-evil"]}}},
    ],
)
def test_an_order_names_checks_and_nothing_else(changes: dict[str, Any]) -> None:
    agent = Agent()
    agent.service.take(order(**changes), NOW_NS)
    eventually(lambda: bool(agent.sent), "an answer")
    assert agent.sent[0].refused
    assert not agent.sent[0].report


@pytest.mark.parametrize("replaced", [False, True])
def test_an_agent_under_which_the_package_was_replaced_says_so(
    replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that audits is of the new version, and may not read what this one writes."""

    def audited(words: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(words, 2, b"", b"error: unknown key\n")

    monkeypatch.setattr(subprocess, "run", audited)
    agent = Agent()
    monkeypatch.setattr(agent.service._installation, "is_replaced", lambda: replaced)
    agent.service.take(order(), NOW_NS)
    eventually(lambda: bool(agent.sent), "an answer")
    refused = agent.sent[0].refused
    assert refused == (f"{REPLACED}; " if replaced else "") + "error: unknown key"


def test_an_agent_that_writes_another_format_is_to_be_restarted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec"
    spec.write_text('{"checks": {}}')  # as agents sent it before
    words = ["audit", "run", "--local", f"--spec={spec}", "--check=sw.os"]
    assert run([*words, "--report"]) != 0
    assert "the agent runs another version: restart it" in capsys.readouterr().err
    assert run(words) != 0
    assert "the agent" not in capsys.readouterr().err


@pytest.mark.parametrize("backend", [(), ("mlx5_[0-7]", "ens1f0")])
def test_the_spec_says_which_ports_carry_the_job(
    backend: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, desk: AuditRuns
) -> None:
    """From the command over the order to the process that audits; other hosts are as found."""
    reported: list[bytes] = []

    def audited(words: list[str], **given: Any) -> subprocess.CompletedProcess[bytes]:
        reported.append(given["input"])
        return subprocess.CompletedProcess(words, 0, b"{}", b"")

    monkeypatch.setattr(subprocess, "run", audited)
    limits = {"node.gpu-health": {"hot_c": 70}}
    command = AuditCommand(by="", limits=limits, backend={"h0": backend, "h1": ("mlx5_9",)})
    _, orders = desk.start(command, CLI, {"h0", "h1", "h2"}, NOW_NS)
    assert {each.host: each.backend for each in orders} == {
        "h0": backend, "h1": ("mlx5_9",), "h2": (),
    }  # fmt: skip
    agent = Agent()
    agent.service.take(orders[0], NOW_NS)
    eventually(lambda: bool(agent.sent), "a report")
    spec = parse_spec(tomllib.loads(reported[0].decode()), "the order")
    assert spec.backend("h0") == backend
    assert spec.checks == limits


def test_a_command_says_of_each_host_what_its_role_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roles = {"gpu": {"hosts": ["g*"], "backend": ["mlx5_[0-7]"]}, "rest": {}}
    spec = parse_spec({"roles": roles}, "s")
    sources = cast(Sources, SimpleNamespace(
        spec=spec, checks=(), active=False, deadline_ns=S, lab=None, controller="c", tls=(),
    ))  # fmt: skip
    requested: list[Any] = []

    def ask(target: object, query: Any) -> Any:
        requested.append(query)
        return AuditStarted(order="o", hosts=(), absent=())

    monkeypatch.setattr(audit_agents, "fleet_target", lambda *_: None)
    monkeypatch.setattr(audit_agents, "_hosts", lambda _: ("g0", "g1", "web"))
    monkeypatch.setattr(audit_agents, "ask", ask)
    assert list(audit_agents.ask_agents(sources, done=frozenset({"g1"}))) == []
    (command,) = requested
    assert command.hosts == ("g0", "web")
    assert command.backend == {"g0": ("mlx5_[0-7]",)}


@pytest.fixture
def state() -> Iterator[ControlState]:
    with ControlState(None) as opened:
        yield opened


@pytest.fixture
def desk(state: ControlState) -> AuditRuns:
    return AuditRuns(state)


def test_the_desk_keeps_what_comes_until_it_is_fetched(desk: AuditRuns) -> None:
    command = AuditCommand(hosts=("h0", "h1", "h9"), by="me")
    started, orders = desk.start(command, CLI, {"h0", "h1"}, NOW_NS)
    assert (started.hosts, started.absent) == (("h0", "h1"), ("h9",))
    assert [(each.host, each.by) for each in orders] == [("h0", "cli"), ("h1", "cli")]
    assert len({each.order for each in orders}) == 1
    desk.take("h0", AuditReport(order=started.order, report=b"{}"))
    desk.take("h0", AuditReport(order=started.order, report=b"again"))
    desk.take("h7", AuditReport(order=started.order, report=b"of a stranger"))
    desk.take("h1", AuditReport(order="never given", report=b"{}"))
    first = desk.reports(AuditReportsQuery(order=started.order))
    assert [each.host for each in first.reports] == ["h0"]
    assert first.waiting == ("h1",)
    desk.take("h1", AuditReport(order=started.order, report=bytes(MAX_REPORT_BYTES + 1)))
    rest = desk.reports(AuditReportsQuery(order=started.order, after=first.after))
    assert "too long" in rest.reports[0].refused
    assert rest.waiting == ()


def test_reports_survive_the_controller(tmp_path: Path) -> None:
    """Killed between two reports: what has come in is fetched, the rest is still awaited."""
    hosts = {"h0", "h1", "h2"}
    with ControlState(tmp_path) as state:
        started, _ = AuditRuns(state).start(AuditCommand(by=""), CLI, hosts, NOW_NS)
        AuditRuns(state).take("h1", AuditReport(order=started.order, report=b"{}"))
    with ControlState(tmp_path) as state:
        desk = AuditRuns(state)
        first = desk.reports(AuditReportsQuery(order=started.order))
        assert [each.host for each in first.reports] == ["h1"]
        assert first.waiting == ("h0", "h2")
        desk.take("h1", AuditReport(order=started.order, report=b"again"))
        desk.take("h2", AuditReport(order=started.order, refused="no"))
        rest = desk.reports(AuditReportsQuery(order=started.order, after=first.after))
        assert [(each.host, each.refused) for each in rest.reports] == [("h2", "no")]
        with pytest.raises(UsageError, match="by cli is under way"):
            desk.start(AuditCommand(by=""), CLI, hosts, NOW_NS)
        assert [each.what for each in state.changes(0, 9)] == [f"audit {started.order}"]


def test_a_report_whose_commit_was_not_answered_is_stored_once(
    desk: AuditRuns, state: ControlState
) -> None:
    started, _ = desk.start(AuditCommand(by=""), CLI, {"h0"}, NOW_NS)
    AuditRuns(state).take("h0", AuditReport(order=started.order, report=b"{}"))
    desk.take("h0", AuditReport(order=started.order, report=b"{}"))
    (found,), waiting = desk.all_reports(started.order)
    assert (found.report, waiting) == (b"{}", ())


def test_the_oldest_run_goes_with_its_reports(desk: AuditRuns, state: ControlState) -> None:
    orders = []
    for number in range(MAX_RUNS + 2):
        started, _ = desk.start(AuditCommand(by=""), CLI, {f"h{number}"}, NOW_NS)
        orders.append(started.order)
        desk.take(f"h{number}", AuditReport(order=started.order, report=b"{}"))
    assert {run for (run,) in state.read("SELECT run FROM audit_report")} == set(orders[2:])
    with pytest.raises(UsageError, match="run it again"):
        desk.reports(AuditReportsQuery(order=orders[1]))
    assert desk.reports(AuditReportsQuery(order=orders[2])).waiting == ()


def test_reports_are_fetched_in_answers_of_bounded_size(desk: AuditRuns) -> None:
    hosts = [f"h{number}" for number in range(9)]
    started, _ = desk.start(AuditCommand(by=""), CLI, hosts, NOW_NS)
    for host in hosts:
        desk.take(host, AuditReport(order=started.order, report=bytes(MAX_REPORT_BYTES)))
    seen, after, answers = [], 0, 0
    while True:
        answer = desk.reports(AuditReportsQuery(order=started.order, after=after))
        assert sum(len(each.report) for each in answer.reports) <= MAX_ANSWER_BYTES
        seen += [each.host for each in answer.reports]
        after, answers = answer.after, answers + 1
        if not answer.waiting:
            break
    assert (seen, answers) == (hosts, 3)


def test_a_second_audit_waits_for_the_first(desk: AuditRuns) -> None:
    """The outbox keeps one order of an agent: a second one is refused, never put over the first."""
    started, _ = desk.start(
        AuditCommand(hosts=("h0", "h1"), by=""), Issuer("ann", "local"), {"h0", "h1"}, NOW_NS
    )
    again = AuditCommand(hosts=("h1", "h2"), by="bob")
    with pytest.raises(UsageError, match=r"by ann is under way on 1 of these hosts \(h1\)"):
        desk.start(again, CLI, {"h1", "h2"}, NOW_NS + S)
    others, _ = desk.start(AuditCommand(hosts=("h2",), by="bob"), CLI, {"h2"}, NOW_NS)
    assert others.hosts == ("h2",)
    for host in ("h0", "h1"):
        desk.take(host, AuditReport(order=started.order, report=b"{}"))
    desk.take("h2", AuditReport(order=others.order, report=b"{}"))
    third, _ = desk.start(again, CLI, {"h1", "h2"}, NOW_NS + 2 * S)
    assert third.hosts == ("h1", "h2")
    # Agents that never answer hold nobody up for ever.
    late_ns = NOW_NS + 2 * S + EXPIRE_NS + again.deadline_ns + GRACE_NS
    assert desk.start(again, CLI, {"h1"}, late_ns)[0].hosts == ("h1",)


def test_orders_are_logged_with_who_gave_them(
    desk: AuditRuns, caplog: pytest.LogCaptureFixture
) -> None:
    desk.start(AuditCommand(hosts=("h0",), by=""), Issuer("ops ann", "local"), {"h0"}, NOW_NS)
    agent = Agent()
    agent.service.take(order(host="h1"), NOW_NS)
    agent.service.take(order(order="o7"), NOW_NS)
    said = [record.getMessage() for record in caplog.records]
    assert "hosts=1 by=ops ann" in said[0]
    assert said[1].startswith("audit refused order=o1 by=me reason=the order is for 'h1'")
    assert said[2] == "audit ordered order=o7 by=me"
    eventually(lambda: len(agent.sent) == 2, "a report")


@pytest.mark.parametrize(
    "command",
    [
        AuditCommand(by="me", checks=("--evil",)),
        AuditCommand(by="me", deadline_ns=0),
        AuditCommand(by="me", deadline_ns=10**15),
    ],
)
def test_commands_that_are_refused(desk: AuditRuns, command: AuditCommand) -> None:
    with pytest.raises(UsageError):
        desk.start(command, CLI, {"h0"}, NOW_NS)
    with pytest.raises(UsageError):
        desk.reports(AuditReportsQuery(order="unknown"))


@pytest.mark.lab
def test_a_lab_is_audited_by_its_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with live("audit", "--hosts", "4", agents=True) as lab:
        words = ("audit", "run", "--lab", "audit", "--check", "fe.iface", "--json")
        done = syntony(*words)
        results = json.loads(done.stdout)
        assert {host_of(each["subject"]) for each in results} == {"h0", "h1", "h2", "h3"}
        assert {each["status"] for each in results} == {"pass"}, results
        assert done.returncode == 0
        lab.run("h2", "ip", "link", "set", results[0]["subject"].partition("/")[2], "mtu", "1280")
        done = syntony(*words)
        bad = [each for each in json.loads(done.stdout) if each["status"] != "pass"]
        assert [(host_of(each["subject"]), each["got"], each["expected"])
                for each in bad] == [("h2", "1280", "1500")]  # fmt: skip
        assert done.returncode == 2
        assert syntony("audit", "diff").returncode == 1
        where = f"unix:{lab.controller_socket}"
        command = AuditCommand(checks=("sw.os",), by="ann")
        assert len(ask(where, command).hosts) == 4
        with pytest.raises(RemoteError, match="an audit by ann is under way on 4"):
            ask(where, command)
