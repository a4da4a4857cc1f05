"""Queries a drill makes to Syntony: is the fleet ready, and when did it detect a fault."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.model import ClockState
from syntony.wire.clocks import ClockQuery
from syntony.wire.messages import FleetQuery

READY_TIMEOUT_S = 120.0
"""Twice the demo's limit for clocks: a drill that never starts measures nothing."""
_LOOK_S = 0.2
_ROWS_TIMEOUT_S = 10.0
"""From an event in an agent to its row in the store: a batch a second, and the insert."""
_ASK_TIMEOUT_S = 20.0
_UNPROVOKED = frozenset({"join", "return", "start", "stop"})
"""Causes of events that are not responses to a failure."""


class PathEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The fields used here of one line of `syntony failover log --json`."""

    ts_ns: int
    """Fleet time when it was done."""
    act_ns: int
    """From when the agent knew until it was done."""
    cause: str


def wait_ready(lab: Lab, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Wait until every agent probes and has a clock: before that, missing probes mean nothing.
    Raises `RemoteError`: not in that time."""
    hosts = set(lab.status().hosts)
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        try:
            fleet = lab.ask(FleetQuery())
            clocks = lab.ask(ClockQuery())
        except RemoteError:  # the controller is still starting
            time.sleep(_LOOK_S)
            continue
        probing = {agent.host for agent in fleet.agents if agent.connected and agent.rows}
        on_time = {c.node for c in clocks.timelines if c.state is ClockState.SYNCHRONIZED}
        if hosts <= probing and hosts <= on_time:
            return
        time.sleep(_LOOK_S)
    raise RemoteError(
        f"the agents of lab {lab.name!r} were not ready within {timeout_s:.0f} s; {machine_load()}"
    )


def machine_load() -> str:
    """The machine's load for an error message: the usual reason why a lab is too slow."""
    return f"load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"


def verdict_ns(lab: Lab, job: str, fault_ns: tuple[int, int]) -> int | None:
    """The first instant at which an agent detected a fault, from the agents' failover log, which is
    read with the command that users have.

    Args:
        lab: still running, with agents.
        job: as the agents know it.
        fault_ns: start and end, CLOCK_MONOTONIC.

    Returns:
        CLOCK_MONOTONIC; None if no agent has logged anything, or there is no log.
    """
    end_s = time.monotonic() + _ROWS_TIMEOUT_S
    while time.monotonic() < end_s:
        events, ahead_ns = _failover_log(lab, job), fleet_ahead_ns(lab)
        if events is None:
            return None
        if ahead_ns is not None:
            began_ns, ended_ns = (at_ns + ahead_ns for at_ns in fault_ns)
            known_ns = first_verdict_ns(events, began_ns, ended_ns)
            if known_ns is not None:
                return known_ns - ahead_ns
        time.sleep(_LOOK_S)
    return None


def first_verdict_ns(events: Sequence[PathEvent], from_ns: int, to_ns: int) -> int | None:
    """Fleet time at which an agent first detected a failure in that interval. Pure."""
    known = [event.ts_ns - event.act_ns for event in events if event.cause not in _UNPROVOKED]
    return min((at_ns for at_ns in known if from_ns <= at_ns <= to_ns), default=None)


def _failover_log(lab: Lab, job: str) -> list[PathEvent] | None:
    """None: this installation keeps no such log."""
    words = ("failover", "log", "--lab", lab.name, "--job", job, "--json")
    done = subprocess.run(
        [sys.executable, "-m", "syntony", *words],
        capture_output=True,
        timeout=_ASK_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        return None
    return msgspec.json.decode(done.stdout, type=list[PathEvent])


def fleet_ahead_ns(lab: Lab) -> int | None:
    """Fleet time minus CLOCK_MONOTONIC now, by the first host's clock and timeline."""
    truth = lab.truth()[0]
    ahead_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
    lines = lab.ask(ClockQuery()).timelines
    for line in lines:
        if line.node == truth.host:
            return line.to_fleet_ns(truth.at_ns + truth.offset_ns) - truth.at_ns + ahead_ns
    return None
