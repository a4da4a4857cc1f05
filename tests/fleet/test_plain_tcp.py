"""Plain TCP under failure in the lab: real agents, one ordinary connection, real faults.

Slow, all of it: the commonest case is in test_failover.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.fleet.failing import Fleet, await_true, away_from, on_its_own_nics, status, way_of

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "t-plain"
STALL_S = 10.0
"""A job that had to wait for the fault's end, or for TCP's own timers, stood still for longer."""


@pytest.mark.parametrize(
    ("kind", "target", "options", "family"),
    [
        ("link-down", "h0/rail0", {}, 4),
        ("link-down", "h2/rail0", {"side": "leaf"}, 4),
        ("blackhole", "h0/rail0", {}, 4),
        ("blackhole", "h2/rail0", {"direction": "from"}, 4),
        ("link-down", "h2/rail0", {"side": "leaf"}, 6),
        ("blackhole", "h0/rail0", {}, 6),
    ],
)
def test_a_plain_connection_goes_on_over_the_other_nic_and_returns(
    fleet: Fleet, kind: str, target: str, options: dict[str, str], family: int
) -> None:
    name = f"plain{family}-{kind}-{target.replace('/', '-')}-{'-'.join(options.values())}"
    with fleet.job(name, family, plain=True) as job:
        await_true(lambda: on_its_own_nics(fleet, name), "known at both ends")
        fault = fleet.lab.inject(kind, target, options)
        await_true(lambda: away_from(fleet, name, target), "the detour at both ends")
        fleet.lab.clear(fault.id)
        await_true(lambda: on_its_own_nics(fleet, name), "back on its own way")
        account = job.steps()
    assert account["longest_s"] < STALL_S
    reported = {"detour", "return"}
    await_true(lambda: reported <= {row.action for row in fleet.log(name)}, "both ways in the log")


def spine_of(fleet: Fleet, job: str) -> str:
    """Of what h0 sends on the job's connection."""
    conn = fleet.connections(job)["h0"]
    near, far = (int(end.rpartition(":")[2]) for end in conn.subflows[0].path.split(" > "))
    (way,) = fleet.lab.paths("h0/rail0", "h2/rail0", [near], far, proto="tcp")
    assert way.spine is not None
    return way.spine


def test_a_spine_that_swallows_is_passed_by(fleet: Fleet) -> None:
    with fleet.job("plain-spine", plain=True) as job:
        await_true(lambda: on_its_own_nics(fleet, "plain-spine"), "known at both ends")
        fault = fleet.lab.inject("blackhole", f"leaf0-0/{spine_of(fleet, 'plain-spine')}")
        await_true(lambda: way_of(fleet, "plain-spine", "h0")[0] != "plain", "another way")
        await_true(lambda: progress(fleet), "answers on the other way")
        fleet.lab.clear(fault.id)
        account = job.steps()
    assert account["longest_s"] < STALL_S
    # Where all probed ports cross that spine, too, the whole pair of NICs is what is left.
    why = {"fabric", "path", "local-nic", "remote-nic"}
    await_true(
        lambda: any(
            row.action == "detour" and row.cause in why for row in fleet.log("plain-spine")
        ),
        "why, in the log",
        instead=lambda: fleet.log("plain-spine"),
    )


def progress(fleet: Fleet) -> bool:
    """Whether h0's plain connection is answered within a moment, by the kernel's own count."""

    address = fleet.lab.addresses(4)["h2/rail0"]

    def acked() -> int:
        lines = fleet.lab.run("h0", "ss", "-tniH", "state", "established", "dst", address)
        return sum(map(int, re.findall(r"bytes_acked:(\d+)", lines)))

    before = acked()
    return acked() > before > 0


def test_what_a_hung_agent_has_changed_is_undone_by_the_kernel(fleet: Fleet) -> None:
    with fleet.job("plain-hung", plain=True) as job:
        await_true(lambda: on_its_own_nics(fleet, "plain-hung"), "known at both ends")
        fault = fleet.lab.inject("link-down", "h0/rail0", {"side": "leaf"})
        await_true(lambda: away_from(fleet, "plain-hung", "h0/rail0"), "the detour at both ends")
        hung = fleet.lab.inject("agent-stop", "h0")
        fleet.lab.clear(fault.id)
        await_true(lambda: not switched(fleet), "the dead man's switches open")
        await_true(lambda: progress(fleet), "the job on its own way")
        fleet.lab.clear(hung.id)
        await_true(lambda: switched(fleet), "the agent has taken over again")
        await_true(lambda: on_its_own_nics(fleet, "plain-hung"), "back on its own way")
        account = job.steps()
    assert account["longest_s"] < STALL_S


def switched(fleet: Fleet) -> bool:
    """Whether anything that h0's agent changed is in force."""
    alive = fleet.lab.run("h0", "nft", "list", "set", "inet", "syntony_detours", "alive")
    return "tcp" in alive or "lookup 8621" in fleet.lab.run("h0", "ip", "rule")


@pytest.mark.parametrize("plain", [True, False])
def test_no_rail_alive_at_both_ends(fleet: Fleet, *, plain: bool) -> None:
    name = f"across-{plain}"

    def normal() -> bool:
        return on_its_own_nics(fleet, name) if plain else fleet.both(name)

    def across() -> bool:
        ways = [each.path for conn in fleet.connections(name).values() for each in conn.subflows]
        return len(ways) == 2 and all("h0/rail1:" in w and "h2/rail0:" in w for w in ways)

    with fleet.job(name, plain=plain) as job:
        await_true(normal, "known at both ends")
        fleet.lab.inject("link-down", "h0/rail0", {"side": "leaf"})
        fleet.lab.inject("blackhole", "h2/rail1")
        await_true(across, "from one rail to the other")
        fleet.lab.clear()
        await_true(normal, "as before")
        account = job.steps()
    assert account["longest_s"] < STALL_S


def test_hosts_without_mptcp(fleet: Fleet) -> None:
    def modes() -> set[str]:
        return {h.report.mode for h in status(fleet).hosts if h.host in {"h0", "h2"}}

    with without_mptcp(fleet, "h0"), without_mptcp(fleet, "h2"):
        await_true(lambda: all("plain TCP only" in each for each in modes()), "said so")
        with fleet.job("no-mptcp", plain=True) as job:
            await_true(lambda: on_its_own_nics(fleet, "no-mptcp"), "known at both ends")
            fault = fleet.lab.inject("link-down", "h0/rail0")
            await_true(lambda: away_from(fleet, "no-mptcp", "h0/rail0"), "the detour at both ends")
            fleet.lab.clear(fault.id)
            account = job.steps()
    assert account["longest_s"] < STALL_S
    await_true(lambda: modes() == {"act"}, "MPTCP again")


@contextmanager
def without_mptcp(fleet: Fleet, host: str) -> Iterator[None]:
    set_mptcp(fleet, host, 0)
    try:
        yield
    finally:
        set_mptcp(fleet, host, 1)


def set_mptcp(fleet: Fleet, host: str, enabled: int) -> None:
    """With an agent that finds it so when it starts."""
    kill = fleet.lab.inject("agent-kill", host)
    fleet.lab.run(host, "sysctl", "-q", "-w", f"net.mptcp.enabled={enabled}")
    fleet.lab.clear(kill.id)
