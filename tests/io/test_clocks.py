"""Synthetic clocks: the same bits everywhere, invertible, with the statistics the spec asks for."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import UsageError
from syntony.io.clocks import ClockSource, KernelClock, SyntheticClock
from syntony.model import HOUR_NS, MS, S, SyntheticClockSpec

BASE_NS = 1_700_000_000 * S

specs = st.builds(
    SyntheticClockSpec,
    base_ns=st.just(BASE_NS),
    offset_ns=st.integers(-50 * MS, 50 * MS),
    drift_ppb=st.floats(-40_000, 40_000),
    wander_ppb=st.floats(0, 100),
    seed=st.integers(0, 2**63 - 1),
    swing_ppb=st.floats(0, 2_000),
    swing_period_ns=st.integers(S, 1000 * S),
)
instants = st.integers(BASE_NS - HOUR_NS, BASE_NS + 4 * HOUR_NS)
WILD = SyntheticClockSpec(
    base_ns=BASE_NS, offset_ns=12_345_678, drift_ppb=-31_234.5, wander_ppb=7, seed=99,
    swing_ppb=300, steps=((BASE_NS + 5 * S, 1000), (BASE_NS + 9 * S, -70_000)),
)  # fmt: skip


@given(specs, instants)
def test_the_inverse_undoes_the_mapping(spec: SyntheticClockSpec, real_ns: int) -> None:
    clock = SyntheticClock("h", spec)
    assert abs(clock.unmap_ns(clock.map_ns(real_ns)) - real_ns) <= 1


@given(specs, instants, st.integers(1, S))
def test_without_steps_it_runs_forwards(
    spec: SyntheticClockSpec, real_ns: int, later_ns: int
) -> None:
    clock = SyntheticClock("h", spec)
    assert clock.map_ns(real_ns + later_ns) >= clock.map_ns(real_ns)


@given(specs)
def test_it_reads_base_plus_offset_at_base(spec: SyntheticClockSpec) -> None:
    assert SyntheticClock("h", spec).map_ns(BASE_NS) == BASE_NS + spec.offset_ns


def test_two_processes_agree_to_the_bit() -> None:
    code = """
import sys, msgspec
from syntony.io.clocks import SyntheticClock
from syntony.model import SyntheticClockSpec
spec, instants = msgspec.json.decode(sys.stdin.read(), type=tuple[SyntheticClockSpec, list[int]])
clock = SyntheticClock("other", spec)
print([clock.map_ns(instant) for instant in instants])
"""
    instants = [BASE_NS + 977 * MS * k * k for k in range(100, 0, -1)]
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=msgspec.json.encode((WILD, instants)).decode(),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    clock = SyntheticClock("here", WILD)
    assert result.stdout.strip() == str(
        [clock.map_ns(instant) for instant in sorted(instants)][::-1]
    )


def test_arrays_and_single_readings_agree() -> None:
    clock = SyntheticClock("h", WILD)
    real_ns = BASE_NS + np.arange(-5, 20).reshape(5, 5) * 1_234_567_891
    mapped = clock.map_array(real_ns)
    assert mapped.shape == real_ns.shape
    assert [clock.map_ns(int(instant)) for instant in real_ns.flat] == mapped.ravel().tolist()


@pytest.mark.parametrize("seed", range(3))
def test_wander_is_a_random_walk_of_the_asked_size(seed: int) -> None:
    """Frequency steps over 10 s have sigma = wander·√10; the estimate of 4000 is good to 1.1 %."""
    spec = SyntheticClockSpec(base_ns=BASE_NS, wander_ppb=20, seed=seed)
    clock = SyntheticClock("h", spec)
    rates = np.array([clock.rate_ppb(BASE_NS + k * 10 * S) for k in range(4001)])
    steps = np.diff(rates)
    assert np.std(steps) / (20 * np.sqrt(10)) == pytest.approx(1, abs=0.06)
    assert abs(np.mean(steps)) < 5 * 20 * np.sqrt(10) / np.sqrt(4000)
    assert abs(np.corrcoef(steps[1:], steps[:-1])[0, 1]) < 0.08


def test_swing_returns_after_its_period() -> None:
    spec = SyntheticClockSpec(base_ns=BASE_NS, swing_ppb=500, swing_period_ns=100 * S)
    clock = SyntheticClock("h", spec)
    assert abs(clock.map_ns(BASE_NS + 100 * S) - BASE_NS - 100 * S) <= 1
    assert clock.rate_ppb(BASE_NS + 25 * S) == pytest.approx(500, rel=0.01)
    assert clock.rate_ppb(BASE_NS + 75 * S) == pytest.approx(-500, rel=0.01)


def test_a_month_later_is_no_horizon() -> None:
    clock = SyntheticClock("h", WILD)
    later_ns = BASE_NS + 30 * 24 * HOUR_NS
    assert abs(clock.unmap_ns(clock.map_ns(later_ns)) - later_ns) <= 1


def test_now_is_the_mapping_of_the_kernel_clock() -> None:
    spec = SyntheticClockSpec(base_ns=time.clock_gettime_ns(time.CLOCK_REALTIME), offset_ns=-7 * S)
    source: ClockSource = SyntheticClock("h", spec)
    kernel: ClockSource = KernelClock("h")
    before, reading, after = kernel.now_ns(), source.now_ns(), kernel.now_ns()
    assert before - 7 * S <= reading <= after - 7 * S


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": ((BASE_NS + 2, 1), (BASE_NS + 1, 1))},
        {"drift_ppb": 2e7},
        {"drift_ppb": float("nan")},
        {"wander_ppb": -1.0},
        {"swing_period_ns": 0},
    ],
)
def test_impossible_clocks_are_refused(fields: dict[str, object]) -> None:
    spec = msgspec.convert({"base_ns": BASE_NS, **fields}, SyntheticClockSpec)
    with pytest.raises(UsageError, match="synthetic clock of h3"):
        SyntheticClock("h3", spec)
