"""Lines through slow quantities, and what a module's own limits make of them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.links.ledger import LinkNote
from syntony.links.modules import (
    BRIGHTER_DB,
    COOLER_C,
    FORESIGHT_H,
    LEAST,
    MAX_SAMPLES,
    REPEAT_NS,
    SPACING_NS,
    ModuleWatch,
    Slope,
    Trend,
    theil_sen,
)
from syntony.links.optics import Lane, Module, ModuleIdentity
from syntony.model import DAY_NS, HOUR_NS


@given(
    st.floats(-5, 5).filter(lambda slope: abs(slope) > 1e-3),
    st.floats(-100, 100),
    st.integers(8, 60),
    st.integers(0, 2**62),
)
def test_a_line_is_found_as_it_was_drawn(
    per_hour: float, start: float, count: int, begin_ns: int
) -> None:
    samples = [(begin_ns + at * HOUR_NS // 2, start + per_hour * at / 2) for at in range(count)]
    slope = theil_sen(samples)
    assert slope.per_hour == pytest.approx(per_hour, rel=1e-6)
    assert slope.now == pytest.approx(samples[-1][1], rel=1e-6, abs=1e-6)
    assert slope.hours == pytest.approx((count - 1) / 2)
    assert slope.scatter == pytest.approx(0, abs=1e-6)


def test_scatter_is_the_sigma_of_the_noise_and_a_third_of_wild_samples_moves_nothing() -> None:
    rng = random.Random(3)
    scatters = []
    for _ in range(20):
        samples = [
            (at * HOUR_NS, 7 - 0.5 * at + rng.gauss(0, 2) + (200 if rng.random() < 0.1 else 0))
            for at in range(60)
        ]
        slope = theil_sen(samples)
        assert slope.per_hour == pytest.approx(-0.5, abs=0.08)
        assert slope.now == pytest.approx(7 - 0.5 * 59, abs=3)
        scatters.append(slope.scatter)
    assert sum(scatters) / len(scatters) == pytest.approx(2.2, rel=0.25)


def test_two_samples_of_one_instant_are_no_slope() -> None:
    assert theil_sen([(0, 1.0), (0, 3.0), (HOUR_NS, 4.0), (2 * HOUR_NS, 6.0)]).per_hour > 0


@pytest.mark.parametrize(("seed", "noise"), [(1, 0.2), (2, 5.0)])
def test_noise_alone_is_a_trend_of_no_quantity_and_three_sigmas_are(
    seed: int, noise: float
) -> None:
    """Of quantities that stand still hardly one may be called moving; of those that move by six
    sigmas hardly one may not."""
    rng = random.Random(seed)

    def found(change: float) -> int:
        return sum(
            theil_sen(
                [(at * SPACING_NS, change * at / 63 + rng.gauss(0, noise)) for at in range(64)]
            ).significant
            for _ in range(20)
        )

    assert found(0.0) == 0
    assert found(-1.5 * noise) <= 2
    assert found(6 * noise) >= 18


@pytest.mark.parametrize(
    ("slope", "significant"),
    [
        (Slope(1.0, 0.0, 1.0, 2.9), False),
        (Slope(-1.0, 0.0, 1.0, 3.1), True),
        (Slope(1.0, 0.0, 0.0, 0.1), True),
        (Slope(0.0, 0.0, 0.0, 9.0), False),
    ],
)
def test_a_change_beyond_three_sigmas_is_significant(slope: Slope, significant: bool) -> None:
    assert slope.significant == significant


@pytest.mark.parametrize(("limit", "hours"), [(20.0, 5.0), (10.0, None), (9.0, None), (12.0, 1.0)])
def test_hours_to_a_limit_are_told_only_on_the_way_there(limit: float, hours: float | None) -> None:
    assert Slope(2.0, 10.0, 0.1, 5.0).hours_to(limit) == hours
    assert Slope(-2.0, -10.0, 0.1, 5.0).hours_to(-limit) == hours
    assert Slope(2.0, 10.0, 9.0, 5.0).hours_to(20.0) is None, "not significant"


def test_samples_are_spaced_counted_and_forgotten() -> None:
    trend = Trend(spacing_ns=10)
    for at in range(10 * LEAST):
        trend.add(at, 1000.0 - at)
        assert (trend.slope() is None) == (at < 10 * (LEAST - 1))
    assert LEAST == 8, "two hours at one in 15 minutes"
    rising_then_falling = Trend()
    for at in range(2 * MAX_SAMPLES):
        value = float(at if at <= MAX_SAMPLES else 2 * MAX_SAMPLES - at)
        rising_then_falling.add(at * SPACING_NS, value)
    slope = rising_then_falling.slope()
    assert slope is not None
    assert slope.per_hour == pytest.approx(-4.0)
    assert slope.hours == pytest.approx(15.75), "16 hours are kept"


# --- a module against its own limits ---


def module(
    temperature_c: float | None = 40.0, rx_dbm: float | None = -2.0, **other: object
) -> Module:
    limits = {"temperature_alarm_c": 75.0, "rx_alarm_dbm": -10.0, "serial": "S1"} | other
    identity = ModuleIdentity("OSFP", "ACME", "DR8", str(limits.pop("serial")))
    lanes = (Lane(-1.0, 80.0), Lane(rx_dbm, 80.0))
    return Module(identity, temperature_c, lanes, **limits)  # type: ignore[arg-type]


def reported(notes: list[LinkNote]) -> list[str]:
    return [note.after for note in notes]


@pytest.mark.parametrize(
    ("readings", "after"),
    [
        ([75.0], ["beyond limit"]),
        ([74.9], ["well"]),
        ([76.0, 75.0 - COOLER_C], ["beyond limit"]),
        ([76.0, 75.0 - COOLER_C - 0.1], ["beyond limit", "well"]),
        ([76.0, 60.0, 76.0], ["beyond limit", "well", "beyond limit"]),
    ],
)
def test_a_module_is_too_hot_at_its_limit_and_well_some_degrees_below(
    readings: list[float], after: list[str]
) -> None:
    watch = ModuleWatch()
    notes = [n for at, t in enumerate(readings) for n in watch.take(at, "eth0", module(t))]
    assert reported(notes) == after
    assert all(note.losses == 0 and note.kind == "module" for note in notes)


@pytest.mark.parametrize(
    ("readings", "after"),
    [
        ([-10.0], ["beyond limit"]),
        ([-9.9], ["well"]),
        ([-12.0, -10.0 + BRIGHTER_DB], ["beyond limit"]),
        ([-12.0, -10.0 + BRIGHTER_DB + 0.1], ["beyond limit", "well"]),
        ([-40.0, -40.0, -2.0], ["beyond limit", "well"]),
    ],
)
def test_a_lane_is_too_dark_at_its_limit_and_well_a_decibel_above(
    readings: list[float], after: list[str]
) -> None:
    watch = ModuleWatch()
    notes = [n for at, p in enumerate(readings) for n in watch.take(at, "eth0", module(rx_dbm=p))]
    assert reported(notes) == after
    assert all("lane 1 " in note.detail for note in notes if note.before)


def test_a_limit_that_cannot_be_read_any_more_neither_clears_nor_accuses() -> None:
    """The threshold page may be missing from one reading: that is not cooling down."""
    watch = ModuleWatch()
    assert reported(watch.take(0, "eth0", module(80.0))) == ["beyond limit"]
    unknown = module(80.0, temperature_alarm_c=None, rx_alarm_dbm=None)
    assert watch.take(1, "eth0", unknown) == []
    assert watch.take(2, "eth0", module(None)) == []
    assert watch.take(3, "eth0", module(80.0)) == []
    assert reported(watch.take(4, "eth0", module(40.0))) == ["well"]
    assert reported(ModuleWatch().take(0, "eth0", unknown)) == []
    partly = module(40.0, rx_alarm_dbm=None)
    assert reported(ModuleWatch().take(0, "eth0", partly)) == [], "it may be dark"


def rising(
    watch: ModuleWatch, first_ns: int, hours: int, start: float, per_day: float
) -> list[LinkNote]:
    rng = random.Random(5)
    notes = []
    for at in range(hours * 4):
        value = start + per_day * at / 96 + rng.uniform(-0.01, 0.01)
        notes += watch.take(first_ns + at * SPACING_NS, "eth0", module(value))
    return notes


def test_a_limit_within_a_week_is_foreseen_and_one_beyond_is_not() -> None:
    assert FORESIGHT_H == 168
    days = 15.75 / 24
    near = rising(ModuleWatch(), 0, 16, 75 - (6 + days) * 2, 2.0)
    assert reported(near)[:2] == ["well", "degrading"]
    assert near[1].detail.endswith("days")
    assert "+2.0 a day" in rising(ModuleWatch(), 0, 16, 75 - (6.5 + days) * 2, 2.0)[-1].detail
    assert reported(rising(ModuleWatch(), 0, 16, 75 - (7.5 + days) * 2, 2.0)) == ["well"]


def test_a_trend_is_told_once_a_day_and_not_of_what_is_beyond_its_limit_already() -> None:
    watch = ModuleWatch()
    notes = rising(watch, 0, 28, 60.0, 5.0)
    assert reported(notes) == ["well", "degrading", "degrading"]
    gaps = [late.at_ns - early.at_ns for early, late in pairwise(notes[1:])]
    assert all(gap == REPEAT_NS for gap in gaps)
    hot = rising(ModuleWatch(), 0, 12, 74.9, 5.0)
    assert reported(hot) == ["well", "beyond limit"]


def test_another_module_has_no_past() -> None:
    """Its trend, its limit crossed and the day's notice were its predecessor's."""
    watch = ModuleWatch()
    assert reported(rising(watch, 0, 16, 60.0, 5.0)) == ["well", "degrading"]
    notes = watch.take(17 * HOUR_NS, "eth0", module(70.0, serial="S2"))
    assert reported(notes) == ["OSFP ACME DR8 S2", "well"]
    assert (notes[0].before, notes[0].detail) == ("OSFP ACME DR8 S1", "another module")
    # It cools down where the old one heated: its own past decides.
    later = 17 * HOUR_NS + SPACING_NS
    for at in range(LEAST):
        assert watch.take(later + at * SPACING_NS, "eth0", module(70.0 - at, serial="S2")) == []
    assert reported(watch.take(18 * DAY_NS, "eth0", module(80.0, serial="S2"))) == ["beyond limit"]
    third = watch.take(18 * DAY_NS + 1, "eth0", module(80.0, serial="S3"))
    assert reported(third) == ["OSFP ACME DR8 S3", "beyond limit"]


def test_ports_are_apart() -> None:
    watch = ModuleWatch()
    assert reported(watch.take(0, "eth0", module(80.0))) == ["beyond limit"]
    assert reported(watch.take(0, "eth1", module(80.0, serial="S9"))) == ["beyond limit"]
    assert reported(watch.take(1, "eth1", module(40.0, serial="S10"))) == [
        "OSFP ACME DR8 S10",
        "well",
    ]
    assert watch.take(2, "eth0", module(80.0)) == []
