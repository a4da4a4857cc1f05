"""Fleet time over restarts: the file itself, and a real controller killed and started again."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest
from tests.agent_link.test_uplink import attached
from tests.link import ControllerProcess, wait_until

from syntony.clock.anchored import FleetMemory
from syntony.controller.client import ask
from syntony.controller.timeline_file import NAME, TimelineFile
from syntony.errors import ConfigError
from syntony.model import ClockState, Edge, S, Timeline
from syntony.wire.clocks import ClockQuery, Clocks, Timelines

REF_NS = 1_700_000_000 * S
MEMORY = FleetMemory(
    lines=(
        Timeline(
            node="p1",
            ref_ns=REF_NS,
            offset_ns=12.5,
            drift_ppb=3.0,
            sigma_ns=5.0,
            state=ClockState.SYNCHRONIZED,
            component="p1",
        ),
    )
)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    kept = TimelineFile(tmp_path / "state")
    assert kept.load() is None
    kept.save(MEMORY)
    assert TimelineFile(tmp_path / "state").load() == MEMORY


@pytest.mark.parametrize("content", [b"", b"{", b'{"lines": [{"node": 3}]}', b"\xff\x00"])
def test_a_broken_file_is_set_aside_with_a_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_bytes(content)
    kept = TimelineFile(tmp_path)
    assert kept.load() is None
    assert "starts anew" in caplog.text
    assert (tmp_path / NAME).with_suffix(".bad").read_bytes() == content
    kept.save(MEMORY)
    assert kept.load() == MEMORY


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"state_dir .*file"):
        TimelineFile(tmp_path / "file")


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
        wait_until(send)
        wait_until(lambda: one.of(Timelines) != [])
    return found


def test_fleet_time_goes_on_after_a_restart(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    controller.start()
    try:
        before = solved(controller, [edge("p2", 100.0)])
        controller.end(signal.SIGTERM)
        assert (tmp_path / "state" / NAME).exists()
        controller.start()
        # One clock more, a second away: the mean of the three would be a third of that.
        after = solved(controller, [edge("p2", 100.0), edge("p3", 1e9)])
    finally:
        controller.end(signal.SIGKILL)
    for node in ("p1", "p2"):
        assert abs(after[node].offset_ns - before[node].offset_ns) < 1
        assert after[node].state is ClockState.SYNCHRONIZED


def test_fleet_time_survives_kills_at_any_moment(tmp_path: Path) -> None:
    """Within moments of the first timelines that an agent was told. The mean of the clocks that are
    back, where fleet time would begin anew, is far away each time."""
    controller = ControllerProcess(tmp_path)
    theta_ns = {"p2": 100.0, "p3": 3e9, "p4": -80e9}
    told: dict[str, Timeline] = {}
    try:
        for peers in (["p2", "p3"], ["p2"], ["p3", "p4"], ["p4"], ["p2", "p3", "p4"]):
            controller.start()
            after = solved(controller, [edge(peer, theta_ns[peer]) for peer in peers])
            controller.end(signal.SIGKILL)
            for node, line in after.items():
                if node in told:
                    assert abs(line.offset_ns - told[node].offset_ns) < 1_000, (node, peers)
            told |= after
    finally:
        controller.end(signal.SIGKILL)
