"""Words that the console and the wire share, compared without a browser."""

from __future__ import annotations

import re
from pathlib import Path

from syntony.agent.links import PORTS_NS
from syntony.links.ports import PortState
from syntony.model import ClockState

STATUS = (Path(__file__).parents[2] / "web/src/status.ts").read_text()


def keys(name: str) -> set[str]:
    """Of an object literal in ``status.ts``."""
    found = re.search(rf"{name}: Record<string, Tone> = {{(.*?)}};", STATUS, re.DOTALL)
    assert found is not None, name
    return set(re.findall(r'"?([\w-]+)"?: "', found[1]))


def test_every_state_of_a_port_has_a_tone() -> None:
    assert keys("PORT_TONES") == set(PortState) - {PortState.UNKNOWN}


def test_every_state_of_a_clock_has_a_tone() -> None:
    assert set(ClockState) <= keys("TONES")


def test_a_port_is_stale_only_after_its_agent_should_have_told_of_it_twice() -> None:
    found = re.search(r"PORT_STALE_NS = (\w+);", STATUS)
    assert found is not None
    assert 2 * PORTS_NS < float(found[1]) < 3 * PORTS_NS
