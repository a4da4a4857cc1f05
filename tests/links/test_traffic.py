"""Rates of ports from their byte counters."""

from __future__ import annotations

import pytest

from syntony.links.traffic import PortBytes, PortPeaks, TrafficMeter, has_changed, is_busy
from syntony.model import MS, S


def meter(*counts: tuple[int, int, int]) -> TrafficMeter:
    """Of one port, from instants in ms, and bytes sent and received until then."""
    found = TrafficMeter()
    for at_ms, sent, received in counts:
        found.update(at_ms * MS, {"eth0": PortBytes(sent, received)})
    return found


def test_a_rate_needs_two_readings() -> None:
    assert meter().peaks("eth0") == PortPeaks(0.0, 0.0)
    assert meter((0, 1 << 50, 1 << 50)).peaks("eth0") == PortPeaks(0.0, 0.0)
    assert meter((0, 1000, 500), (1000, 3000, 500)).peaks("eth0") == PortPeaks(16_000.0, 0.0)


def test_the_peak_of_each_direction_lasts_for_ten_seconds() -> None:
    counts = [(0, 0, 0), (1_000, 1_000, 10), (2_000, 1_500, 2_010)]
    assert meter(*counts).peaks("eth0") == PortPeaks(8_000.0, 16_000.0)
    assert meter(*counts, (10_999, 1_500, 2_010)).peaks("eth0") == PortPeaks(8_000.0, 16_000.0)
    assert meter(*counts, (11_000, 1_500, 2_010)).peaks("eth0") == PortPeaks(4_000.0, 16_000.0)
    assert meter(*counts, (12_000, 1_500, 2_010)).peaks("eth0") == PortPeaks(0.0, 0.0)


def test_a_late_reading_is_a_mean() -> None:
    """The agent was paused."""
    assert meter((0, 0, 0), (4_000, 1_000, 2_000)).peaks("eth0") == PortPeaks(2_000.0, 4_000.0)


@pytest.mark.parametrize("reset", [(0, 9_000), (9_000, 0)])
def test_counters_that_were_reset_say_nothing(reset: tuple[int, int]) -> None:
    found = meter((0, 5_000, 5_000), (1_000, *reset))
    assert found.peaks("eth0") == PortPeaks(0.0, 0.0)
    found.update(2 * S, {"eth0": PortBytes(reset[0] + 10, reset[1] + 20)})
    assert found.peaks("eth0") == PortPeaks(80.0, 160.0)


def test_a_port_that_is_gone_is_forgotten() -> None:
    found = meter((0, 0, 0), (1_000, 1_000, 1_000))
    found.update(2 * S, {"eth1": PortBytes(7, 7)})
    assert found.peaks("eth0") == PortPeaks(0.0, 0.0)
    found.update(3 * S, {"eth0": PortBytes(1 << 40, 0), "eth1": PortBytes(7, 7)})
    assert found.peaks("eth0") == PortPeaks(0.0, 0.0), "another port of that name"


@pytest.mark.parametrize(
    ("bps", "gbps", "busy"),
    [
        (2e9, 400.0, True), (1.9e9, 400.0, False), (50e6, 10.0, True), (49e6, 10.0, False),
        (50e6, None, True), (49e6, None, False), (50e6, 0.0, True), (0.0, None, False),
    ],
)  # fmt: skip
def test_busy_ports(bps: float, gbps: float | None, busy: bool) -> None:
    assert is_busy(bps, gbps) is busy


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ((0, 0), (0, 0), False),
        ((0, 0), (1e9, 0), False),  # a quarter of a percent
        ((0, 0), (2e9, 0), True),
        ((0, 0), (0, 2e9), True),
        ((2e9, 0), (0, 0), True),
        ((0, 200e9), (0, 0), True),
        ((100e9, 100e9), (199e9, 51e9), False),
        ((100e9, 100e9), (201e9, 100e9), True),
        ((100e9, 100e9), (100e9, 49e9), True),
    ],
)
def test_rows_are_written_when_traffic_changes(
    before: tuple[float, float], now: tuple[float, float], changed: bool
) -> None:
    assert has_changed(PortPeaks(*before), PortPeaks(*now), 400.0) is changed
