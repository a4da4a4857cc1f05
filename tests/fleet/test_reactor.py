"""An agent's two halves in the lab: each dies or hangs while the other keeps a job's paths or tells
what became of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.fleet.failing import Fleet, await_true
from tests.fleet.test_failover_hostile import STALL_S, carried, flows

pytestmark = pytest.mark.lab

NAME = "t-reactor"


def ports(fleet: Fleet) -> set[tuple[str, str]]:
    """Both ends of every subflow from h0, by the kernel's word: one that was torn and made again
    has another port."""
    lines = "\n".join(flows(fleet, "h0", nic) for nic in ("rail0", "rail1"))
    return set(re.findall(r"^\d+ +\d+ +(\S+) +(\S+)", lines, re.MULTILINE))


def daemon(fleet: Fleet, name: str) -> tuple[int | None, int]:
    """Process id and restarts."""
    (found,) = [each for each in fleet.lab.status().daemons if each.name == name]
    return found.pid, found.restarts


@contextmanager
def without(fleet: Fleet, kind: str, *hosts: str) -> Iterator[None]:
    """A fault of processes, for as long as the block."""
    faults = [fleet.lab.inject(kind, host) for host in hosts]
    try:
        yield
    finally:
        for fault in faults:
            fleet.lab.clear(fault.id)


@pytest.mark.parametrize("kind", ["telemetry-kill", "telemetry-stop"])
def test_a_rail_is_left_and_used_again_without_any_telemetry(fleet: Fleet, kind: str) -> None:
    """At both ends: nothing but the reactors runs there."""
    with fleet.job(kind) as job:
        await_true(lambda: fleet.both(kind), "a subflow over each rail")
        reactors = [daemon(fleet, f"reactor-{host}") for host in ("h0", "h2")]
        with without(fleet, kind, "h0", "h2"):
            fault = fleet.lab.inject("blackhole", "h0/rail0")
            await_true(lambda: not carried(fleet, "h0", "rail0"), "the dead NIC left")
            fleet.lab.clear(fault.id)
            await_true(lambda: carried(fleet, "h0", "rail0"), "and used again")
        account = job.steps()
        assert account["longest_s"] < STALL_S
        assert [daemon(fleet, f"reactor-{host}") for host in ("h0", "h2")] == reactors
        # What was done meanwhile is reported when there is someone to tell it.
        await_true(
            lambda: fleet.came_back(kind), "the whole story", instead=lambda: fleet.log(kind)
        )


@pytest.mark.parametrize("kind", ["reactor-kill", "reactor-stop"])
def test_a_reactor_that_is_back_tears_nothing_and_handles_the_next_fault(
    fleet: Fleet, kind: str
) -> None:
    with fleet.job(kind) as job:
        await_true(lambda: fleet.both(kind), "a subflow over each rail")
        before, reported = ports(fleet), daemon(fleet, "agent-h0")
        assert len(before) == 2
        with without(fleet, kind, "h0"):
            await_true(lambda: not fleet.connections(kind).get("h0"), "its telemetry says so")
        await_true(lambda: fleet.both(kind), "both rails, as it sees them again")
        assert ports(fleet) == before
        assert fleet.causes(kind) == set()
        assert daemon(fleet, "agent-h0") == reported, "the other half went on"
        fault = fleet.lab.inject("blackhole", "h0/rail0")
        await_true(lambda: fleet.only(kind, "rail1"), "nothing over the dead NIC, at both ends")
        fleet.lab.clear(fault.id)
        await_true(lambda: fleet.both(kind), "back on both rails")
        assert job.steps()["longest_s"] < STALL_S


def test_a_reactor_begins_again_without_the_telemetry_process(fleet: Fleet) -> None:
    """It has plan, keys and switch from the one before: nobody else could tell it."""
    with fleet.job("alone-again") as job:
        await_true(lambda: fleet.both("alone-again"), "a subflow over each rail")
        with without(fleet, "telemetry-stop", "h0"):
            pid, _ = daemon(fleet, "reactor-h0")
            with without(fleet, "reactor-kill", "h0"):
                await_true(lambda: daemon(fleet, "reactor-h0")[0] is None, "it is dead")
            await_true(lambda: daemon(fleet, "reactor-h0")[0] not in {None, pid}, "another one")
            await_true(lambda: probes(fleet) > 0, "it probes")
            fault = fleet.lab.inject("blackhole", "h0/rail0")
            await_true(lambda: not carried(fleet, "h0", "rail0"), "the dead NIC left")
            fleet.lab.clear(fault.id)
            await_true(lambda: carried(fleet, "h0", "rail0"), "and used again")
        assert job.steps()["longest_s"] < STALL_S


def probes(fleet: Fleet) -> int:
    """UDP sockets of h0 that send probes: one for each source port of the plan."""
    lines = fleet.lab.run("h0", "ss", "-unaH", "sport", ">=", ":61000")
    return len(re.findall(r":6\d{4} ", lines))
