"""What the kernel says of its own clock, against timedatectl's source: adjtimex(2)."""

from __future__ import annotations

import time

import pytest

from syntony.io import kernel_utc
from syntony.io.clocks import KernelClock, SyntheticClock
from syntony.io.kernel_utc import KernelDiscipline, kernel_discipline, read_kernel_utc
from syntony.model import MS, S, SyntheticClockSpec


def test_the_kernel_answers_unprivileged() -> None:
    found = kernel_discipline()
    assert found.max_error_ns >= 0
    # NTP_PHASE_LIMIT of the kernel: 16 s, at which it calls itself unsynchronized.
    assert found.max_error_ns <= 16 * S + 1 * MS


def test_nothing_is_said_while_nobody_disciplines_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_utc, "kernel_discipline", lambda: KernelDiscipline(False, 16 * S))
    assert read_kernel_utc(KernelClock("h0")) is None


def test_a_synthetic_clock_learns_how_far_it_is_from_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_utc, "kernel_discipline", lambda: KernelDiscipline(True, 5_000))
    base_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    clock = SyntheticClock("h0", SyntheticClockSpec(base_ns=base_ns, offset_ns=7 * MS))
    reading = read_kernel_utc(clock)
    assert reading is not None
    assert reading.node == "h0"
    width_ns = reading.bound_ns - 5_000
    assert width_ns >= 0
    assert abs(reading.utc_minus_ns + 7 * MS) <= width_ns + 1
