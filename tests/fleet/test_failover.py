"""Failover in the lab: real agents, real MPTCP connections, real faults."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.fleet.failing import (
    DEAD,
    PAIR,
    Fleet,
    await_true,
    away_from,
    on_its_own_nics,
    status,
)
from tests.live import syntony

from syntony.controller.client import ask
from syntony.wire.failover import (
    ConnectionsQuery,
    FailoverLogQuery,
    PathEventRow,
    SwitchCommand,
)

pytestmark = pytest.mark.lab

NAME = "t-failover"


@pytest.mark.parametrize(
    ("kind", "target", "options"),
    [
        ("link-down", "h0/rail0", {}),
        ("blackhole", "h0/rail0", {}),
        pytest.param("link-down", "h2/rail0", {"side": "leaf"}, marks=pytest.mark.slow),
        pytest.param("blackhole", "h2/rail0", {"direction": "to"}, marks=pytest.mark.slow),
        pytest.param("blackhole", "h0/rail0", {"direction": "from"}, marks=pytest.mark.slow),
    ],
)
def test_a_job_goes_on_over_the_other_nic_and_returns(
    fleet: Fleet, kind: str, target: str, options: dict[str, str]
) -> None:
    name = f"{kind}-{target.replace('/', '-')}-{'-'.join(options.values())}"
    with fleet.job(name) as job:
        await_true(lambda: fleet.both(name), "a subflow over each rail, at both ends")
        fault = fleet.lab.inject(kind, target, options)
        await_true(lambda: fleet.only(name, "rail1"), "nothing over the dead NIC, at both ends")
        fleet.lab.clear(fault.id)
        await_true(lambda: fleet.both(name), "back on both rails")
        account = job.steps()
    assert account["steps"] > 10
    await_true(lambda: fleet.came_back(name), "the return in the log")
    await_true(lambda: bool(fleet.causes(name) & DEAD), "why it was left, in the log")


def test_a_plain_connection_goes_on_over_the_other_nic_and_returns(fleet: Fleet) -> None:
    with fleet.job("plain", plain=True) as job:
        await_true(lambda: on_its_own_nics(fleet, "plain"), "known at both ends")
        fault = fleet.lab.inject("link-down", "h2/rail0")
        await_true(lambda: away_from(fleet, "plain", "h2/rail0"), "the detour at both ends")
        fleet.lab.clear(fault.id)
        await_true(lambda: on_its_own_nics(fleet, "plain"), "back on its own way")
        job.steps()
    reported = {"detour", "return"}
    await_true(lambda: reported <= {row.action for row in fleet.log("plain")}, "both in the log")


@pytest.mark.slow
def test_ipv6_alone(fleet: Fleet) -> None:
    with fleet.job("six", family=6) as job:
        await_true(lambda: fleet.both("six"), "a subflow over each rail, over IPv6")
        fault = fleet.lab.inject("blackhole", "h0/rail0")
        await_true(lambda: fleet.only("six", "rail1"), "nothing over the dead NIC")
        fleet.lab.clear(fault.id)
        await_true(lambda: fleet.both("six"), "back on both rails")
        job.steps()


def test_the_stop_switch_is_obeyed_and_logged(fleet: Fleet) -> None:
    def throw(*, stopped: bool) -> None:
        ask(fleet.target, SwitchCommand(stopped=stopped, by="tester", why="test"))  # fmt: skip

    def would_leave() -> list[int]:
        return [row.ts_ns for row in fleet.log("switch") if row.action == "would-leave"]

    with fleet.job("switch") as job:
        await_true(lambda: fleet.both("switch"), "a subflow over each rail")
        throw(stopped=True)
        try:
            obeyed = lambda: all(each.report.stopped for each in status(fleet).hosts)  # noqa: E731
            await_true(obeyed, "all agents stopped")
            fault = fleet.lab.inject("link-down", "h0/rail0")
            await_true(lambda: bool(would_leave()), "what would have been done, in the log")
            assert not fleet.causes("switch", min(would_leave()))
            fleet.lab.clear(fault.id)
        finally:
            throw(stopped=False)
        job.steps()

    def rows() -> tuple[PathEventRow, ...]:
        return ask(fleet.target, FailoverLogQuery(host="controller")).events

    await_true(lambda: [row.action for row in rows()][-2:] == ["stop", "start"], "both in the log")
    assert all("tester" in row.evidence for row in rows())


@pytest.mark.parametrize("kind", ["agent-kill", pytest.param("agent-stop", marks=pytest.mark.slow)])
def test_an_agent_killed_or_hung_leaves_the_job_running_and_takes_over_again(
    fleet: Fleet, kind: str
) -> None:
    with fleet.job(kind) as job:
        await_true(lambda: fleet.both(kind), "a subflow over each rail")
        gone = fleet.lab.inject(kind, "h0")
        # The peer's agent alone has to leave the dead path now; ours comes back to the rest.
        fault = fleet.lab.inject("blackhole", "h0/rail0")
        await_true(lambda: fleet.rails(kind, "h2") == {"rail1"}, "the peer has left the path")
        fleet.lab.clear(gone.id)
        fleet.lab.clear(fault.id)
        await_true(lambda: fleet.both(kind), "both rails again, with the agent back")
        job.steps()


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 1_000])
def test_a_crowd_of_connections_leaves_and_returns_together(fleet: Fleet, count: int) -> None:
    name = f"crowd{count}"
    addresses = fleet.lab.addresses(4)
    words = [str(count), addresses["h0/rail0"], addresses["h2/rail0"], str(6000 + count)]
    ends = [
        subprocess.Popen(
            fleet.lab.enter_argv(host, ["env", f"SYNTONY_JOB={name}", sys.executable,
                                        str(PAIR.with_name("crowd.py")), role, *words]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for host, role in (("h2", "server"), ("h0", "client"))
    ]  # fmt: skip

    def over(rails: int) -> bool:
        answer = ask(fleet.target, ConnectionsQuery(job=name, host="h0"))
        found = [conn for each in answer.hosts for conn in each.report.connections]
        return len(found) == count and all(
            sum(each.state == "up" for each in conn.subflows) == rails for conn in found
        )

    client = ends[1]
    assert client.stdin is not None
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == "ready\n"
        await_true(lambda: over(2), "all connections over both rails")
        fault = fleet.lab.inject("link-down", "h0/rail0")
        await_true(lambda: over(1), "all connections over the rail that is left")
        fleet.lab.clear(fault.id)
        await_true(lambda: over(2), "all connections over both rails again")
        client.stdin.close()
        assert client.stdout.readline() == f"{count}\n"
    finally:
        for process in ends:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None and not pipe.closed:
                    pipe.close()


def test_what_the_command_line_shows(fleet: Fleet) -> None:
    with fleet.job("shown"):
        await_true(lambda: fleet.both("shown"), "a subflow over each rail")
        paths = syntony("paths", "--lab", NAME, "--job", "shown", "--json")
        assert paths.returncode == 0, paths.stderr
        hosts = {each["host"] for each in json.loads(paths.stdout)["hosts"]
                 if each["report"]["connections"]}  # fmt: skip
        assert hosts == {"h0", "h2"}
        await_true(lambda: "create" in {row.action for row in fleet.log("shown")}, "the join told")
        log = syntony("failover", "log", "--lab", NAME, "--job", "shown")
        assert "create" in log.stdout
    state = syntony("failover", "status", "--lab", NAME, "--json")
    assert state.returncode == 0
    assert {each["report"]["mode"] for each in json.loads(state.stdout)["hosts"]} == {"act"}
