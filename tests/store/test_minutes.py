"""Rows by the minute against the seconds they are made of."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.rows import T0, fill, heard, probed, silent

from syntony.model import HOUR_NS, S
from syntony.store import Store
from syntony.store.migrations import VERSIONS
from syntony.store.minutes import (
    GRANULE_ROWS,
    MINUTE_SETTLE_NS,
    RECOUNT_NS,
    SETTLE_NS,
    spans,
    summing,
)
from syntony.store.queries import HOURS, MARKS, MINUTE_NS, MINUTES, WindowPart

A, B, C = "a/n", "b/n", "c/n"
HOUR = T0 // HOUR_NS + 1
BEGIN_S = (HOUR * HOUR_NS - T0) // S
"""First second of that hour, counted from `T0`."""
LATER_NS = (HOUR + 3) * HOUR_NS
DAY = (HOUR * HOUR_NS - HOUR_NS, LATER_NS)


def drawn(seed: int, hours: int = 2) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Probes both ways over two paths, some lost in either direction, and what was heard."""
    chance = random.Random(seed)
    probes, hearings = [], []
    for second in sorted(chance.sample(range(hours * 3600), 150)):
        at = BEGIN_S + second
        for src, dst in ((A, B), (B, A), (A, C)):
            for sport in (61000, 61001):
                points = sorted(chance.randrange(1_000, 1_000_000) for _ in range(5))
                delays = dict(zip(
                    ("owd_min_ns", "owd_p50_ns", "owd_p90_ns", "owd_p99_ns", "owd_max_ns"), points,
                    strict=True,
                ))  # fmt: skip
                row = probed(src, dst, at, sport=sport, **delays)
                if chance.random() < 0.1:
                    row = silent(src, dst, at, sport=sport)
                elif chance.random() < 0.2:
                    lost, broken = chance.randrange(5), chance.randrange(5)
                    row |= {"lost": lost, "unresolved": broken, "count": 40 - lost - broken}
                back = probed(dst, src, at, sport=sport, prober=src, count=row["count"],
                              sent=row["count"] + row.get("unresolved", 0) // 2,
                              unresolved=row.get("unresolved", 0) // 2, **delays)  # fmt: skip
                probes += [row, back]
            if chance.random() < 0.9:
                hearings.append(heard(src, dst, at, chance.randrange(60, 81)))
    return probes, hearings


@pytest.mark.parametrize("seed", [1, 2])
def test_minutes_say_what_their_seconds_say(store: Store, seed: int) -> None:
    probes, hearings = drawn(seed)
    fill(store, probes, hearings)
    window = (HOUR * HOUR_NS + 17 * S, (HOUR + 2) * HOUR_NS - 23 * S)
    before = {way: store.series(*window, *way, 60) for way in ((A, B), (B, A), (A, ""), ("", ""))}
    assert store.minutes.hours() == set()
    assert store.minutes.sum_up(LATER_NS) == 2
    assert store.minutes.hours() == {HOUR, HOUR + 1}
    for way, points in before.items():
        assert points
        assert any(each.lost for each in points)
        assert store.series(*window, *way, 60) == points


@pytest.mark.parametrize("step_minutes", [5, 60])
def test_longer_steps_lie_between_their_minutes(store: Store, step_minutes: int) -> None:
    probes, hearings = drawn(3)
    fill(store, probes, hearings)
    of_seconds = store.series(*DAY, A, B, 60 * step_minutes)
    store.minutes.sum_up(LATER_NS)
    of_minutes = defaultdict(list)
    for point in store.series(*DAY, A, B, 60):
        of_minutes[point.ts_ns // (step_minutes * MINUTE_NS)].append(point)
    longer = store.series(*DAY, A, B, 60 * step_minutes)
    assert len(longer) == len(of_minutes)
    for point, told in zip(longer, of_seconds, strict=True):
        assert (point.sent, point.lost, point.owd_min_ns) == (told.sent, told.lost, told.owd_min_ns)
        parts = of_minutes[point.ts_ns // (step_minutes * MINUTE_NS)]
        known = [each for each in parts if each.owd_p50_ns is not None]
        for name in ("owd_p50_ns", "owd_p99_ns"):
            values = [getattr(each, name) for each in known]
            if values:
                assert min(values) <= getattr(point, name) <= max(values), name


def test_late_rows_are_seen_at_once_and_summed_up_again(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S)])
    assert store.minutes.sum_up(LATER_NS) == 1
    assert store.minutes.sum_up(LATER_NS) == 0
    fill(store, [probed(A, B, BEGIN_S + 1, sport=61001)])
    assert store.minutes.hours() == set()
    assert [p.sent for p in store.series(*DAY, A, B, 60)] == [80]
    assert store.minutes.sum_up(LATER_NS) == 1
    assert store.minutes.hours() == {HOUR}
    assert [p.sent for p in store.series(*DAY, A, B, 60)] == [80]


def test_another_controllers_rows_are_noticed(store: Store) -> None:
    """Its process knows what it summed up itself only; the store says how many rows there are."""
    fill(store, [probed(A, B, BEGIN_S)])
    store.minutes.sum_up(LATER_NS)
    other = Store(store._engine)
    fill(other, [probed(A, B, BEGIN_S + 1)])
    assert store.minutes.sum_up(LATER_NS) == 1
    assert [p.sent for p in store.series(*DAY, A, B, 60)] == [80]
    fresh = Store(store._engine)
    assert fresh.minutes.hours() == {HOUR}
    assert fresh.minutes.sum_up(LATER_NS) == 0
    fill(store, [probed(A, B, BEGIN_S + 2)])
    assert Store(store._engine).minutes.hours() == set()


def test_a_store_from_before_knows_which_hours_are_summed_up(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S), probed(A, B, BEGIN_S + 7200)])
    assert store.minutes.sum_up(LATER_NS + 2 * HOUR_NS) == 2
    fill(store, [probed(A, B, BEGIN_S + 7201)])
    engine = store._engine
    engine.execute(f"DROP TABLE {HOURS}")
    engine.execute(f"DROP TABLE {VERSIONS}")
    assert Store(engine).minutes.hours() == {HOUR}


def test_an_hour_that_was_left_half_summed_up_is_summed_up_again(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S)])
    store._engine.execute(summing(HOUR * HOUR_NS, HOUR * HOUR_NS + MINUTE_NS))
    fresh = Store(store._engine)
    assert fresh.minutes.hours() == set()
    assert fresh.minutes.sum_up(LATER_NS) == 1
    assert [p.sent for p in fresh.series(*DAY, A, B, 60)] == [40]


def test_hours_under_way_are_read_from_seconds(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S), probed(A, B, BEGIN_S + 3600)])
    assert store.minutes.sum_up((HOUR + 1) * HOUR_NS + SETTLE_NS) == 1
    assert store.minutes.hours() == {HOUR}
    assert [p.sent for p in store.series(*DAY, A, B, 60)] == [40, 40]
    assert store.count_rows() == 2


def test_only_so_many_hours_at_once_and_the_newest_first(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S + hour * 3600) for hour in range(3)])
    now_ns = (HOUR + 9) * HOUR_NS
    assert store.minutes.sum_up(now_ns, limit=2) == 2
    assert store.minutes.hours() == {HOUR + 1, HOUR + 2}
    assert store.minutes.sum_up(now_ns, limit=2) == 1


def test_what_was_heard_alone_is_no_point_of_its_own(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S)], [heard(C, A, BEGIN_S)])
    store.minutes.sum_up(LATER_NS)
    assert [(p.src, p.dst) for p in store.series(*DAY, step=60)] == [(A, B)]


def test_minutes_outlive_their_seconds_and_then_go(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S)])
    store.minutes.sum_up(LATER_NS)
    assert store.expire(LATER_NS + 8 * 24 * HOUR_NS) == 1
    assert [p.sent for p in store.series(*DAY, A, B, 60)] == [40]
    assert [p.sent for p in Store(store._engine).series(*DAY, A, B, 60)] == [40]
    fill(store, [probed(A, B, BEGIN_S + 9 * 24 * 3600)])
    assert [p.sent for p in Store(store._engine).series(*DAY, A, B, 60)] == [40]
    assert store.expire(LATER_NS + 92 * 24 * HOUR_NS) == 2
    assert store.series(*DAY, A, B, 60) == ()


@given(
    st.integers(0, 5 * 3600), st.integers(0, 5 * 3600),
    st.sets(st.integers(HOUR - 1, HOUR + 6), max_size=6),
)  # fmt: skip
def test_spans_are_the_window_cut_at_minutes_of_summed_hours(
    first: int, length: int, hours: set[int]
) -> None:
    first_ns = HOUR * HOUR_NS + first * S
    last_ns = first_ns + length * S
    parts = spans(first_ns, last_ns, hours)
    if not length:
        assert parts == ()
        return
    assert (parts[0].first_ns, parts[-1].last_ns) == (first_ns, last_ns)
    for before, after in pairwise(parts):
        assert before.last_ns == after.first_ns
        assert before.minutes != after.minutes
    for part in parts:
        assert part.first_ns < part.last_ns
        inside = set(range(part.first_ns // HOUR_NS, -(-part.last_ns // HOUR_NS)))
        if part.minutes:
            assert inside <= hours
            assert part.first_ns % MINUTE_NS == part.last_ns % MINUTE_NS == 0
        elif inside & hours:
            # Less than a minute at an edge of the window.
            for hour in inside & hours:
                share = min(part.last_ns, (hour + 1) * HOUR_NS) - max(part.first_ns, hour * HOUR_NS)
                assert share < 2 * MINUTE_NS
    assert spans(first_ns, last_ns, ()) == (WindowPart(first_ns, last_ns),)


NOW_NS = HOUR * HOUR_NS + 30 * MINUTE_NS + 11 * S
"""In the hour under way."""
SINCE = (HOUR * HOUR_NS - HOUR_NS, NOW_NS)


def of_seconds(parts: tuple[WindowPart, ...]) -> int:
    """How much of a window is read from seconds, ns."""
    return sum(part.last_ns - part.first_ns for part in parts if not part.minutes)


@pytest.mark.parametrize("seed", [4, 5])
def test_minutes_of_the_hour_under_way_say_what_their_seconds_say(store: Store, seed: int) -> None:
    probes, hearings = drawn(seed, 1)
    every = [probed(A, B, BEGIN_S + second) for second in range(0, 3600, 30)]
    fill(store, probes + every, hearings)
    now_ns = NOW_NS + 29 * MINUTE_NS
    window = (HOUR * HOUR_NS + 17 * S, now_ns)
    before = {way: store.series(*window, *way, 60) for way in ((A, B), (B, A), ("", ""))}
    assert store.minutes.sum_up_recent(now_ns) == 58
    assert of_seconds(store.minutes.spans(*window)) < 3 * MINUTE_NS
    for way, points in before.items():
        assert any(each.lost for each in points)
        assert store.series(*window, *way, 60) == points
    assert store.minutes.sum_up_recent(now_ns) == 0
    assert store.minutes.sum_up_recent(now_ns + MINUTE_NS) == 1
    assert store.count_rows() == len(probes) + len(every) + len(hearings)


def test_an_hour_of_known_minutes_is_not_summed_up_again(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S + second) for second in range(0, 3600, 60)])
    engine, told = store._engine, []
    store.minutes.sum_up_recent((HOUR + 1) * HOUR_NS + SETTLE_NS)
    execute = engine.execute
    engine.execute = lambda sql: (told.append(sql), execute(sql))  # type: ignore[method-assign,assignment,func-returns-value]
    assert store.minutes.sum_up((HOUR + 1) * HOUR_NS + SETTLE_NS) == 1
    engine.execute = execute  # type: ignore[method-assign]
    assert [sql.partition(" VALUES")[0] for sql in told] == [f"INSERT INTO {HOURS}"]
    assert store.minutes.hours() == {HOUR}
    assert len(store.series(*DAY, A, B, 60)) == 60
    fill(store, [probed(A, B, BEGIN_S + 1)])
    assert sum(p.sent for p in store.series(*DAY, A, B, 60)) == 61 * 40


def test_late_rows_of_the_hour_under_way_are_seen_at_once(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S), probed(A, B, BEGIN_S + 60)])
    assert store.minutes.sum_up_recent(NOW_NS) == 2
    fill(store, [probed(A, B, BEGIN_S + 1, sport=61001)])
    assert [p.sent for p in store.series(*SINCE, A, B, 60)] == [80, 40]
    assert store.minutes.sum_up_recent(NOW_NS) == 1
    assert [p.sent for p in store.series(*SINCE, A, B, 60)] == [80, 40]
    assert of_seconds(store.minutes.spans(HOUR * HOUR_NS, HOUR * HOUR_NS + 2 * MINUTE_NS)) == 0


def test_a_minute_that_has_just_ended_is_read_from_seconds(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S)])
    ended_ns = HOUR * HOUR_NS + MINUTE_NS
    assert store.minutes.sum_up_recent(ended_ns + MINUTE_SETTLE_NS - 1) == 0
    assert store.minutes.sum_up_recent(ended_ns + MINUTE_SETTLE_NS) == 1


def test_what_gateways_store_late_is_counted_in_time(store: Store) -> None:
    """A gateway learns what a leader has summed up, a leader of rows that a gateway has stored."""
    fill(store, [probed(A, B, BEGIN_S + second) for second in range(0, 600, 60)])
    gateway = Store(store._engine)
    gateway.minutes.read_summed(NOW_NS)
    assert of_seconds(gateway.minutes.spans(*SINCE)) == SINCE[1] - SINCE[0]
    store.minutes.sum_up_recent(NOW_NS)
    gateway.minutes.read_summed(NOW_NS)
    assert gateway.minutes.spans(*SINCE) == store.minutes.spans(*SINCE)
    fill(gateway, [probed(A, B, BEGIN_S + 301)])
    assert [p.sent for p in gateway.series(*SINCE, A, B, 60)].count(80) == 1
    gateway.minutes.read_summed(NOW_NS)
    assert [p.sent for p in gateway.series(*SINCE, A, B, 60)].count(80) == 1
    assert store.minutes.sum_up_recent(NOW_NS + RECOUNT_NS) == 1
    assert [p.sent for p in store.series(*SINCE, A, B, 60)].count(80) == 1
    gateway.minutes.read_summed(NOW_NS + RECOUNT_NS)
    assert gateway.minutes.spans(*SINCE) == store.minutes.spans(*SINCE)
    store.minutes.sum_up(LATER_NS)
    gateway.minutes.read_summed(LATER_NS)
    assert gateway.minutes.hours() == {HOUR}
    assert [p.sent for p in gateway.series(*DAY, A, B, 60)].count(80) == 1
    # Minutes are known after a restart, too.
    fill(store, [probed(A, B, BEGIN_S + 3600)])
    store.minutes.sum_up_recent(NOW_NS + HOUR_NS)
    fresh = Store(store._engine)
    assert fresh.minutes.sum_up_recent(NOW_NS + HOUR_NS) == 0
    assert of_seconds(fresh.minutes.spans((HOUR + 1) * HOUR_NS, (HOUR + 1) * HOUR_NS + 60 * S)) == 0


@given(st.sets(st.integers(0, 119)), st.sets(st.integers(HOUR, HOUR + 1)))
def test_minutes_of_open_hours_are_spans_of_their_own(minutes: set[int], hours: set[int]) -> None:
    first, last = HOUR * HOUR_NS, (HOUR + 2) * HOUR_NS
    known = {first // MINUTE_NS + minute for minute in minutes}
    parts = spans(first, last, hours, known)
    assert (parts[0].first_ns, parts[-1].last_ns) == (first, last)
    for before, after in pairwise(parts):
        assert before.last_ns == after.first_ns
        assert before.minutes != after.minutes
    for part in parts:
        for minute in range(part.first_ns // MINUTE_NS, part.last_ns // MINUTE_NS):
            told = minute in known or minute * MINUTE_NS // HOUR_NS in hours
            assert part.minutes is told


def test_marks_go_with_their_minutes(store: Store) -> None:
    fill(store, [probed(A, B, BEGIN_S)])
    store.minutes.sum_up_recent(NOW_NS)
    fill(store, [probed(A, B, BEGIN_S + 92 * 24 * 3600)])
    store.expire(LATER_NS + 92 * 24 * HOUR_NS)
    assert store._engine.select(f"SELECT count() FROM {MARKS}") == [[0]]  # noqa: S608


def test_a_part_of_a_day_is_read_in_small_granules(store: Store) -> None:
    """A question of one pair reads one of each part, and a day has some twenty."""
    tables = store._engine.select("SELECT name, create_table_query FROM system.tables")
    made = [str(query) for name, query in tables if name == MINUTES and "MergeTree" in str(query)]
    assert made
    assert all(f"index_granularity = {GRANULE_ROWS}" in query for query in made)
