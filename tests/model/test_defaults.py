"""What is left out is nothing, with few exceptions."""

from __future__ import annotations

from tests.defaults import meaningful

from syntony.model import ClockState


def test_what_is_left_out_is_nothing() -> None:
    """An edge without a doubt has none, a synthetic clock of which nothing is told is exact."""
    assert meaningful("model") == {
        "FlowSample.dscp": -1,  # not known; 0 is a class
        "Finding.one_of": 1,  # of one cable
        "Finding.flows": 1.0,  # every flow of the part suffers, unless it was found otherwise
        "FlowSample.window_limited_ns": -1,  # not known; 0 is never
        "SyntheticClockSpec.swing_period_ns": 600_000_000_000,
        "Timeline.state": ClockState.UNKNOWN,
        "Utc.state": ClockState.UNKNOWN,
    }
