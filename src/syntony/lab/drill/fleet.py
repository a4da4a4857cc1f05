"""What a drill asks Syntony itself: is the fleet ready, and when did it notice."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from syntony.errors import RemoteError
from syntony.model import ClockState

if TYPE_CHECKING:
    from syntony.lab.client import Lab

READY_TIMEOUT_S = 120.0
"""Twice as long as the demo gives the clocks: a drill that never starts measures nothing."""
_LOOK_S = 0.2


def wait_ready(lab: Lab) -> None:
    """Until every agent probes and has a clock: before that, silence on a path means nothing.

    Raises:
        RemoteError: not within two minutes.
    """
    from syntony.controller.client import ask_for
    from syntony.wire.messages import ClockQuery, Clocks, Fleet, FleetQuery

    target = f"unix:{lab.controller_socket}"
    hosts = set(lab.status().hosts)
    end_s = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < end_s:
        try:
            fleet = ask_for(target, FleetQuery(), Fleet)
            clocks = ask_for(target, ClockQuery(), Clocks)
        except RemoteError:  # the controller is still starting
            time.sleep(_LOOK_S)
            continue
        probing = {agent.host for agent in fleet.agents if agent.connected and agent.rows}
        on_time = {c.node for c in clocks.timelines if c.state is ClockState.SYNCHRONIZED}
        if hosts <= probing and hosts <= on_time:
            return
        time.sleep(_LOOK_S)
    raise RemoteError(f"the agents of lab {lab.name!r} were not ready within two minutes")
