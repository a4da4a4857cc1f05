"""Fleet time over restarts of a real controller, terminated and killed."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest
from tests.agent_link.test_uplink import attached
from tests.link import ControllerProcess
from tests.live import eventually

from syntony.controller.client import ask
from syntony.model import ClockState, Edge, S, Timeline
from syntony.wire.clocks import ClockQuery, Clocks, Timelines

REF_NS = 1_700_000_000 * S


def edge(b: str, theta_ns: float) -> Edge:
    return Edge(
        a="p1",
        b=b,
        ref_ns=REF_NS,
        theta_ns=theta_ns,
        drift_ppb=1.0,
        sigma_ns=5.0,
        drift_sigma_ppb=1.0,
        rtt_floor_ns=20_000.0,
        probes=400,
    )


def solved(controller: ControllerProcess, edges: list[Edge]) -> dict[str, Timeline]:
    """What a controller makes of one agent's edges."""
    found: dict[str, Timeline] = {}

    def send() -> bool:
        one.uplink.send_edges(edges)
        clocks = ask(f"unix:{controller.socket}", ClockQuery())
        assert isinstance(clocks, Clocks)
        found.update({line.node: line for line in clocks.timelines})
        return len(found) == len(edges) + 1

    with contextlib.ExitStack() as others, attached(controller.agent_config("p1")) as one:
        for edge in edges:  # only clocks of the fleet are solved
            others.enter_context(attached(controller.agent_config(edge.b)))
        eventually(send)
        eventually(lambda: one.of(Timelines) != [])
    return found


def test_fleet_time_goes_on_after_a_restart(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    controller.start()
    try:
        before = solved(controller, [edge("p2", 100.0)])
        controller.end(signal.SIGTERM)
        controller.start()
        # One clock more, a second away: the mean of the three would be a third of that.
        after = solved(controller, [edge("p2", 100.0), edge("p3", 1e9)])
    finally:
        controller.end(signal.SIGKILL)
    for node in ("p1", "p2"):
        assert abs(after[node].offset_ns - before[node].offset_ns) < 1
        assert after[node].state is ClockState.SYNCHRONIZED


@pytest.mark.slow
def test_fleet_time_survives_kills_at_any_moment(tmp_path: Path) -> None:
    """Within moments of the first timelines that an agent was told. The mean of the clocks that are
    back, where fleet time would start again, is far away each time."""
    controller = ControllerProcess(tmp_path)
    theta_ns = {"p2": 100.0, "p3": 3e9, "p4": -80e9}
    reported: dict[str, Timeline] = {}
    try:
        for peers in (["p2", "p3"], ["p2"], ["p3", "p4"], ["p4"], ["p2", "p3", "p4"]):
            controller.start()
            after = solved(controller, [edge(peer, theta_ns[peer]) for peer in peers])
            controller.end(signal.SIGKILL)
            for node, line in after.items():
                if node in reported:
                    assert abs(line.offset_ns - reported[node].offset_ns) < 1_000, (node, peers)
            reported |= after
    finally:
        controller.end(signal.SIGKILL)
