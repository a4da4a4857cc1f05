"""An agent's processes are paused for 20 s while jobs run, which is no fault of their paths."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.fleet.failing import Fleet, await_true, status
from tests.fleet.test_failover_hostile import STALL_S, carried
from tests.fleet.test_reactor import daemon, ports

from syntony.controller.client import ask
from syntony.wire.failover import SwitchCommand
from syntony.wire.messages import FleetQuery
from syntony.wire.parts import PartState
from syntony.wire.probes import KeysQuery, RotateKeys

pytestmark = pytest.mark.lab

NAME = "t-pauses"
PAUSE_S = 20.0


@contextmanager
def paused(fleet: Fleet, kind: str, *hosts: str) -> Iterator[None]:
    """For `PAUSE_S`, or as long as the block if that is longer."""
    end_s = time.monotonic() + PAUSE_S
    faults = [fleet.lab.inject(kind, host) for host in hosts]
    try:
        yield
        time.sleep(max(0.0, end_s - time.monotonic()))
    finally:
        for fault in faults:
            fleet.lab.clear(fault.id)


def broken_parts(fleet: Fleet, host: str) -> set[str]:
    """Parts of the host's agent that do not run, by the controller's word."""
    (agent,) = [each for each in ask(fleet.target, FleetQuery()).agents if each.host == host]
    return {part.name for part in agent.parts if part.state is not PartState.RUNNING}


@pytest.mark.parametrize(
    ("kind", "hosts"),
    [
        ("reactor-stop", ["h0"]),
        ("reactor-stop", ["h0", "h2"]),
        ("agent-stop", ["h0", "h2"]),
        pytest.param("agent-stop", ["h2"], marks=pytest.mark.slow),
        pytest.param("telemetry-stop", ["h0", "h2"], marks=pytest.mark.slow),
    ],
)
def test_a_path_that_dies_during_a_pause_is_left_and_no_other(
    fleet: Fleet, kind: str, hosts: list[str]
) -> None:
    name = f"{kind}-{'-'.join(hosts)}"
    with fleet.job(name) as job:
        await_true(lambda: fleet.both(name), "a subflow over each rail")
        before = ports(fleet)
        daemons = [daemon(fleet, f"{half}-{host}") for half in ("agent", "reactor")
                   for host in ("h0", "h2")]  # fmt: skip
        with paused(fleet, kind, *hosts):
            fault = fleet.lab.inject("blackhole", "h0/rail0")
        await_true(lambda: not carried(fleet, "h0", "rail0"), "the dead NIC left")
        assert len(ports(fleet) & before) == 1, "the other path is as it was"
        await_true(lambda: fleet.only(name, "rail1"), "both ends say so")
        fleet.lab.clear(fault.id)
        await_true(lambda: fleet.both(name), "back on both rails")
        assert daemons == [daemon(fleet, f"{half}-{host}") for half in ("agent", "reactor")
                           for host in ("h0", "h2")], "nothing has ended"  # fmt: skip
        # Both rails died for one end only if it took its own pause for their fault.
        await_true(lambda: bool(rails_left(fleet, name)), "the log says what was left")
        assert rails_left(fleet, name) == {"rail0"}
        assert job.steps()["longest_s"] < STALL_S


def rails_left(fleet: Fleet, job: str) -> set[str]:
    """Local rails of the connections' subflows that agents ended, by the log so far."""
    return {
        row.old_path.partition(":")[0].partition("/")[2]
        for row in fleet.log(job)
        if row.action == "destroy" and row.cause not in {"join", "surplus"}
    }


@pytest.mark.parametrize("kind", ["reactor-stop", "agent-stop"])
def test_orders_keys_and_plans_of_a_pause_are_carried_out_after_it(fleet: Fleet, kind: str) -> None:
    name = f"orders-{kind}"
    with fleet.job(name) as job:
        await_true(lambda: fleet.both(name), "a subflow over each rail")
        before, keys = ports(fleet), ask(fleet.target, KeysQuery()).epochs
        with paused(fleet, kind, "h0"):
            if kind == "reactor-stop":
                await_true(lambda: "reactor" in broken_parts(fleet, "h0"), "its agent says so")
            ask(fleet.target, RotateKeys(by="test", why="during a pause"))
            ask(fleet.target, SwitchCommand(stopped=True, by="test", why="during a pause"))
            fleet.lab.clear(fleet.lab.inject("controller-kill", "").id)  # its next plan is another
        await_true(
            lambda: (
                {each.host for each in status(fleet).hosts if each.report.stopped}
                == {"h0", "h1", "h2", "h3"}
            ),
            "everyone has stopped",
        )
        await_true(lambda: rotated(fleet, keys), "everyone has the new keys only")
        ask(fleet.target, SwitchCommand(stopped=False, by="test", why="it is over"))
        await_true(
            lambda: not any(each.report.stopped for each in status(fleet).hosts), "and goes on"
        )
        await_true(lambda: not broken_parts(fleet, "h0"), "all of its parts run")
        await_true(lambda: fleet.both(name), "both rails, as everybody sees them")
        assert ports(fleet) == before
        assert fleet.causes(name) == set()
        assert job.steps()["longest_s"] < STALL_S


def rotated(fleet: Fleet, before: tuple[int, ...]) -> bool:
    """Whether nobody accepts any of these epochs of keys any more."""
    now = ask(fleet.target, KeysQuery())
    return now.phase == "steady" and not set(before) & set(now.epochs)
