"""Votes on UTC: who may speak, how wide each is, and what a majority has in common."""

from __future__ import annotations

import random

import pytest

from syntony.clock.anchors import (
    Anchor,
    AnchorReading,
    Vote,
    agreement,
    left_out,
    votes,
)
from syntony.model import ClockState, S, Timeline, UtcReading

T0 = 1_700_000_000 * S
READING_LIFETIME_NS = 10 * S


def line(node: str, offset_ns: float = -1_000.0, **more: object) -> Timeline:
    values = {"ref_ns": T0 + 1_000, "offset_ns": offset_ns, "drift_ppb": 0.0, "sigma_ns": 10.0,
              "state": ClockState.SYNCHRONIZED} | more  # fmt: skip
    return Timeline(node=node, **values)  # type: ignore[arg-type]


def reading(local_ns: int, utc_minus_ns: int, bound_ns: float = 300.0) -> UtcReading:
    return UtcReading(node="h0", local_ns=local_ns, utc_minus_ns=utc_minus_ns, bound_ns=bound_ns)


def test_an_anchors_clock_is_utc_to_within_its_word_and_its_place_in_the_fleet() -> None:
    (vote,), silent = votes([Anchor("h0", 500.0)], {"h0": line("h0")}, {}, T0)
    assert silent == {}
    assert vote.offset_ns == 1_000.0, "it is ahead of fleet time by so much"
    assert vote.half_ns == pytest.approx(540.0, abs=1)
    assert (vote.low_ns, vote.high_ns) == (1_000 - vote.half_ns, 1_000 + vote.half_ns)


def test_who_is_not_synchronized_or_not_there_says_nothing() -> None:
    lines = {"h0": line("h0", state=ClockState.HOLDOVER)}
    said, silent = votes([Anchor("h0", 1.0), Anchor("h1", 1.0)], lines, {}, T0)
    assert said == []
    assert silent == {"h0": "not synchronized", "h1": "not heard of"}


@pytest.mark.parametrize(
    ("age_ns", "speaks"),
    [(READING_LIFETIME_NS, True), (READING_LIFETIME_NS + 1, False), (-READING_LIFETIME_NS, True)],
)
def test_a_reported_reading_counts_while_it_is_fresh(age_ns: int, speaks: bool) -> None:
    local_ns = T0 + 1_000
    heard = {"h0": AnchorReading(reading(local_ns - age_ns, 77), 1e-6)}
    said, silent = votes([Anchor("h0", 500.0, True)], {"h0": line("h0")}, heard, T0)
    assert bool(said) is speaks
    assert silent == ({} if speaks else {"h0": "reports no UTC"})
    if said:
        assert said[0].offset_ns == pytest.approx(1_000 + 77 + 1e-6 * age_ns)
        assert said[0].half_ns == pytest.approx(500 + 40 + 300, abs=1)


def test_a_reported_anchor_without_a_reading_is_silent_and_its_clock_is_not_taken() -> None:
    said, silent = votes([Anchor("h0", 1.0, True)], {"h0": line("h0")}, {}, T0)
    assert (said, silent) == ([], {"h0": "reports no UTC"})


def test_a_rate_is_between_two_readings_and_needs_a_clock_that_goes_on() -> None:
    heard = AnchorReading.after(reading(T0, 100), reading(T0 + 2 * S, 500))
    assert heard is not None
    assert heard.rate == pytest.approx(200e-9)
    assert heard.utc_minus_ns(T0 + 3 * S) == pytest.approx(700)
    assert AnchorReading.after(reading(T0, 100), reading(T0, 500)) is None
    assert AnchorReading.after(reading(T0, 100), reading(T0 - 1, 500)) is None


def covered(said: list[Vote], at: float) -> int:
    return sum(vote.low_ns <= at <= vote.high_ns for vote in said)


@pytest.mark.parametrize("seed", range(40))
def test_an_agreement_is_where_all_but_a_minority_are(seed: int) -> None:
    draw = random.Random(f"votes {seed}")
    said = [
        Vote(f"h{k}", draw.uniform(-100, 100), draw.uniform(5, 80))
        for k in range(draw.randint(1, 7))
    ]
    needed = len(said) - (len(said) - 1) // 2
    points = [at for vote in said for at in (vote.low_ns, vote.high_ns)]
    good = [at for at in points if covered(said, at) >= needed]
    found = agreement(said)
    if not good:
        assert found is None
        return
    assert found is not None
    assert (found.low_ns, found.high_ns) == (min(good), max(good))
    assert found.low_ns <= found.centre_ns <= found.high_ns
    favour = {vote.node for vote in said if vote.low_ns <= max(good) and vote.high_ns >= min(good)}
    assert set(found.nodes) == favour


def test_intervals_that_touch_agree_and_one_that_is_outvoted_is_named() -> None:
    touching = [Vote("h0", 0.0, 10.0), Vote("h1", 20.0, 10.0)]
    found = agreement(touching)
    assert found is not None
    assert (found.low_ns, found.high_ns, found.centre_ns) == (10.0, 10.0, 10.0)
    assert agreement([touching[0], Vote("h1", 20.1, 10.0)]) is None
    assert agreement([]) is None
    three = [*touching, Vote("h2", 5_000.0, 10.0)]
    found = agreement(three)
    assert found is not None
    assert left_out(three, found) == "h2 outvoted: off by 4.99 µs"
    assert left_out(touching, found) == ""
