"""Aggregates probe rows by minute, for queries over long windows: each hour after its end, and the
current hour minute by minute.

A minute's row has the sums of its seconds and five order statistics of their delays, like a
second's row. An hour with late rows is aggregated again: a row of more rows replaces the earlier
one, so that repeating it, or doing it at two controllers, is harmless.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator

from syntony.model import DAY_NS, HOUR_NS, S
from syntony.store.engine import Engine, integer
from syntony.store.layout import Layout
from syntony.store.queries import (
    HOURS,
    MARKS,
    MINUTE_NS,
    PERCENTILE_SHARES,
    WindowPart,
    unresolved,
    window,
)
from syntony.store.queries import MINUTES as NAME
from syntony.wire.tables import HEARD, PROBE

SETTLE_NS = 120 * S
"""Time after an hour's end until most of its rows have arrived."""
MINUTE_SETTLE_NS = 60 * S
"""The same for a minute."""
RETENTION_DAYS = 90
SLICE_NS = 600 * S
"""Interval aggregated by one statement: other statements of the embedded store wait for it."""
RECOUNT_NS = 600 * S
HOUR_MINUTES = HOUR_NS // MINUTE_NS
GRANULE_ROWS = 2_048
"""Granule of the table of minutes: a query of one pair reads a granule of every part, about twenty
parts a day. The engine's default of 8,192 takes 2.5 times as long; 512 is not faster than this."""
HOURS_AT_ONCE = 24
"""Maximum hours per call: an old store without minutes needs several calls."""

COLUMNS = (
    "ts_ns Int64, src String, dst String, rows UInt64, "
    "reports Int64, sent Int64, doubtful Int64, lost Int64, count UInt64, owd_min_ns Int64, "
    "owd_p50_ns Int64, owd_p90_ns Int64, owd_p99_ns Int64, owd_max_ns Int64, there Int64, "
    "back Int64"
)
"""``rows``: number of aggregated rows of both tables. ``there``, ``back``: failed round trips of
src, lost on the way to dst and on the way back."""
HOUR_COLUMNS = "ts_ns Int64, rows UInt64"
"""Aggregated hours with their number of rows; an hour that was aggregated again has several rows.
The same for minutes of other hours."""
FILL_HOURS = (
    f"INSERT INTO {HOURS} SELECT intDiv(ts_ns, {HOUR_NS}) * {HOUR_NS} AS begin, sum(rows) "
    f"FROM {NAME} FINAL GROUP BY begin"
)
"""Fills `HOURS` in a store of an earlier version."""
_COLUMNS = (
    "ts_ns, src, dst, rows, reports, sent, doubtful, lost, count, owd_min_ns, owd_p50_ns, "
    "owd_p90_ns, owd_p99_ns, owd_max_ns, there, back"
)


def create(layout: Layout) -> list[str]:
    """Statements that create missing tables. Rows that replace each other are of one pair, and so
    on one shard."""
    order = (
        f"PARTITION BY intDiv(ts_ns, {DAY_NS}) ORDER BY (src, dst, ts_ns) "
        f"SETTINGS index_granularity = {GRANULE_ROWS}"
    )
    hours = f"PARTITION BY intDiv(ts_ns, {DAY_NS}) ORDER BY ts_ns"
    return [
        *layout.create(NAME, COLUMNS, "ReplacingMergeTree(rows)", order, "cityHash64(src, dst)"),
        *layout.create(HOURS, HOUR_COLUMNS, "MergeTree", hours, "cityHash64(ts_ns)"),
        *layout.create(MARKS, HOUR_COLUMNS, "MergeTree", hours, "cityHash64(ts_ns)"),
    ]


def spans(
    first_ns: int, last_ns: int, hours: Collection[int], minutes: Collection[int] = ()
) -> tuple[WindowPart, ...]:
    """Split a window into parts that are read from minutes and parts that are read from seconds.

    Args:
        hours: numbers of aggregated hours.
        minutes: numbers of aggregated minutes of other hours.
    """
    found: list[WindowPart] = []

    def add(begin_ns: int, end_ns: int, *, minutes: bool) -> None:
        if begin_ns >= end_ns:
            return
        if found and found[-1].minutes == minutes:
            begin_ns = found.pop().first_ns
        found.append(WindowPart(begin_ns, end_ns, minutes))

    for hour in range(first_ns // HOUR_NS, -(-last_ns // HOUR_NS)):
        begin_ns, end_ns = max(first_ns, hour * HOUR_NS), min(last_ns, (hour + 1) * HOUR_NS)
        whole_ns = -(-begin_ns // MINUTE_NS) * MINUTE_NS
        until_ns = max(whole_ns, end_ns // MINUTE_NS * MINUTE_NS)
        if whole_ns >= end_ns:
            add(begin_ns, end_ns, minutes=False)
            continue
        add(begin_ns, whole_ns, minutes=False)
        if hour in hours:
            add(whole_ns, until_ns, minutes=True)
        else:
            for each_ns in range(whole_ns, until_ns, MINUTE_NS):
                known = each_ns // MINUTE_NS in minutes
                add(each_ns, each_ns + MINUTE_NS, minutes=known)
        add(until_ns, end_ns, minutes=False)
    return tuple(found)


class MinuteRows:
    """Aggregates rows by minute, and tracks which hours are done. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._summed: dict[int, int] = {}
        """Aggregated hour → number of its rows at that time."""
        self._late: set[int] = set()
        """Hours with rows that arrived during or after their aggregation."""
        self._minutes: dict[int, int] = {}
        """As `_summed`, by minute, for hours that are not in it."""
        self._late_minutes: set[int] = set()
        self._counted_ns = 0
        """Fleet time of the last count of all minutes of open hours."""
        self._read = False

    def hours(self) -> frozenset[int]:
        """Numbers of hours whose minutes are complete."""
        if not self._read:
            self._read_hours(self._present())
        with self._lock:
            return frozenset(self._summed)

    def spans(self, first_ns: int, last_ns: int) -> tuple[WindowPart, ...]:
        """Split a window into parts, by what is aggregated now."""
        hours = self.hours()
        with self._lock:
            minutes = frozenset(self._minutes)
        return spans(first_ns, last_ns, hours, minutes)

    def rows_stored(self, first_ns: int, last_ns: int) -> None:
        """Rows between these instants have been stored; call it after storing them."""
        with self._lock:
            late = set(range(first_ns // HOUR_NS, last_ns // HOUR_NS + 1))
            self._late |= late
            for hour in self._summed.keys() & late:
                del self._summed[hour]
            minutes = set(range(first_ns // MINUTE_NS, last_ns // MINUTE_NS + 1))
            self._late_minutes |= minutes
            for minute in self._minutes.keys() & minutes:
                del self._minutes[minute]

    def sum_up_recent(self, now_ns: int) -> int:
        """Aggregate completed minutes of the past two hours; returns how many.

        Args:
            now_ns: fleet time.
        """
        present = self._update_minutes(now_ns)
        over = (now_ns - MINUTE_SETTLE_NS) // MINUTE_NS
        due = sorted(minute for minute in present if minute < over)
        for run in _runs(due, SLICE_NS // MINUTE_NS):
            self._sum_up_minutes({minute: present[minute] for minute in run})
        return len(due)

    def read_summed(self, now_ns: int) -> None:
        """Read what another process has aggregated; for one that aggregates nothing itself.

        Args:
            now_ns: fleet time.
        """
        with self._lock:
            self._late.clear()
        self._read_hours(self._present())
        self._update_minutes(now_ns)

    def _update_minutes(self, now_ns: int) -> dict[int, int]:
        """Update the aggregated minutes; returns the number of rows of the others. All are counted
        again every `RECOUNT_NS`, because other processes store rows too."""
        last = now_ns // MINUTE_NS
        hours = self.hours()
        with self._lock:
            self._late_minutes.clear()
            known = self._minutes
        if now_ns - self._counted_ns >= RECOUNT_NS:
            self._counted_ns, known = now_ns, {}
        marks = self._marks(last)
        opened = [
            minute
            for minute in range(max(0, last // HOUR_MINUTES - 1) * HOUR_MINUTES, last + 1)
            if minute // HOUR_MINUTES not in hours
        ]
        first = next((minute for minute in opened if minute not in known), last)
        present = self._counted(first * MINUTE_NS, (last + 1) * MINUTE_NS)
        with self._lock:
            self._minutes = {
                minute: marks[minute]
                for minute in opened
                if minute in marks
                and minute not in self._late_minutes
                and (minute < first or marks[minute] >= present.get(minute, 1))
            }
            return {each: n for each, n in present.items() if each not in self._minutes}

    def _marks(self, last: int) -> dict[int, int]:
        """Marks of aggregated minutes of the past two hours."""
        first_ns = (last // HOUR_MINUTES - 1) * HOUR_NS
        rows = self._engine.select(
            f"SELECT intDiv(ts_ns, {MINUTE_NS}) AS minute, max(rows) FROM {MARKS} "
            f"WHERE ts_ns >= {first_ns} GROUP BY minute"
        )
        return {integer(minute): integer(count) for minute, count in rows}

    def _counted(self, first_ns: int, last_ns: int) -> dict[int, int]:
        of_each = " UNION ALL ".join(
            f"SELECT intDiv(ts_ns, {MINUTE_NS}) AS minute FROM {table.name} "
            f"WHERE {window(first_ns, last_ns)}"
            for table in (PROBE, HEARD)
        )
        rows = self._engine.select(f"SELECT minute, count() FROM ({of_each}) GROUP BY minute")
        return {integer(minute): integer(count) for minute, count in rows}

    def _sum_up_minutes(self, rows: dict[int, int]) -> None:
        """Aggregate consecutive minutes; `rows`: minute → number of its rows."""
        first, last = min(rows), max(rows) + 1
        self._engine.execute(summing(first * MINUTE_NS, last * MINUTE_NS))
        marks = ", ".join(f"({minute * MINUTE_NS}, {count})" for minute, count in rows.items())
        self._engine.execute(f"INSERT INTO {MARKS} VALUES {marks}")
        with self._lock:
            self._minutes |= {
                minute: count for minute, count in rows.items() if minute not in self._late_minutes
            }

    def sum_up(self, now_ns: int, limit: int = HOURS_AT_ONCE) -> int:
        """Aggregate completed hours, newest first; returns how many.

        Args:
            now_ns: fleet time.
            limit: maximum hours per call.
        """
        present = self._present()
        if not self._read:
            self._read_hours(present)
        over = (now_ns - SETTLE_NS) // HOUR_NS
        with self._lock:
            # Another controller may have written to the same store.
            for hour in [h for h, n in self._summed.items() if present.get(h, 0) > n]:
                del self._summed[hour]
            due = sorted((h for h in present if h < over and h not in self._summed), reverse=True)
        for hour in due[:limit]:
            self._sum_up(hour, present[hour])
        return min(len(due), limit)

    def expire(self, now_ns: int) -> int:
        """Drop days that are too old; returns how many."""
        keep = now_ns // DAY_NS - RETENTION_DAYS
        old = {
            table: [day for day in self._partitions((table,)) if day < keep]
            for table in (HOURS, MARKS, NAME)
        }
        for table, days in old.items():
            for day in days:
                for each in self._engine.layout.drop_partition(table, day):
                    self._engine.execute(each)
        return len(old[NAME])

    def _sum_up(self, hour: int, rows: int) -> None:
        of_hour = range(hour * HOUR_NS // MINUTE_NS, (hour + 1) * HOUR_NS // MINUTE_NS)
        with self._lock:
            self._late.discard(hour)
            known = sum(self._minutes.get(minute, 0) for minute in of_hour)
        if known < rows:
            for first_ns in range(hour * HOUR_NS, (hour + 1) * HOUR_NS, SLICE_NS):
                self._engine.execute(summing(first_ns, first_ns + SLICE_NS))
        self._engine.execute(f"INSERT INTO {HOURS} VALUES ({hour * HOUR_NS}, {rows})")
        with self._lock:
            if hour not in self._late:
                self._summed[hour] = rows
                for minute in of_hour:
                    self._minutes.pop(minute, None)

    def _present(self) -> dict[int, int]:
        """Number of rows of seconds in each hour."""
        return self._partitions((PROBE.name, HEARD.name))

    def _read_hours(self, present: dict[int, int]) -> None:
        """Read what was aggregated before this process started."""
        rows = self._engine.select(
            f"SELECT intDiv(ts_ns, {HOUR_NS}) AS hour, max(rows) FROM {HOURS} GROUP BY hour"
        )
        found = {integer(hour): integer(count) for hour, count in rows}
        with self._lock:
            self._summed |= {
                hour: count
                for hour, count in found.items()
                if hour not in self._late and count >= present.get(hour, 0)
            }
        self._read = True

    def _partitions(self, tables: Iterable[str]) -> dict[int, int]:
        names = ", ".join(f"'{name}'" for name in tables)
        rows = self._engine.select(
            f"SELECT toInt64(partition) AS part, sum(rows) FROM {self._engine.layout.parts} "
            f"AND table IN ({names}) GROUP BY part"
        )
        return {integer(part): integer(count) for part, count in rows}


def _runs(minutes: list[int], longest: int) -> Iterator[list[int]]:
    """Group consecutive minutes, newest first."""
    run: list[int] = []
    for minute in reversed(minutes):
        if run and (run[-1] != minute + 1 or len(run) == longest):
            yield run
            run = []
        run.append(minute)
    if run:
        yield run


def summing(first_ns: int, last_ns: int) -> str:
    """The statement that aggregates a window and adds its minutes to the table."""
    points = ", ".join(f"d_{name}" for name, _ in PERCENTILE_SHARES)
    weights = ", ".join(f"n * {share}" for _, share in PERCENTILE_SHARES)
    delays = ", ".join(f"{name} AS d_{name}" for name, _ in PERCENTILE_SHARES)
    nothing = ", ".join(f"toInt64(0) AS d_{name}" for name, _ in PERCENTILE_SHARES)
    none = f"toInt64(0) AS s, toInt64(0) AS d, toInt64(0) AS l, toUInt64(0) AS n, {nothing}"
    where = window(first_ns, last_ns)
    probed = (
        "SELECT ts_ns AS at, src, dst, toUInt64(1) AS c, toInt64(1) AS r, toInt64(sent) AS s, "
        "toInt64(if(prober = dst, unresolved, 0)) AS d, toInt64(lost) AS l, toUInt64(count) AS n, "
        f"{delays}, toInt64(0) AS t, toInt64(0) AS u FROM {PROBE.name} WHERE {where}"
    )
    heard = (
        f"SELECT ts_ns AS at, src, dst, toUInt64(1) AS c, toInt64(0) AS r, {none}, "
        f"toInt64(0) AS t, toInt64(0) AS u FROM {HEARD.name} WHERE {where}"
    )
    # As `syntony.store.loss.attribute` does, second by second.
    missing = "least(b, greatest(p - k - a, toInt64(0)))"
    broken = (
        f"SELECT toInt64(second * {S}) AS at, src, dst, toUInt64(0) AS c, toInt64(0) AS r, {none}, "
        f"toInt64({missing}) AS t, toInt64(b - {missing}) AS u "
        f"FROM ({unresolved((WindowPart(first_ns, last_ns),), '', '')})"
    )
    return (
        f"INSERT INTO {NAME} ({_COLUMNS}) SELECT minute, src, dst, sc, sr, ss, sd, sl, sn, low, "
        "arrayElement(q, 1), arrayElement(q, 2), arrayElement(q, 3), high, st, su "
        f"FROM (SELECT intDiv(at, {MINUTE_NS}) * {MINUTE_NS} AS minute, src, dst, sum(c) AS sc, "
        "sum(r) AS sr, sum(s) AS ss, sum(d) AS sd, sum(l) AS sl, sum(n) AS sn, "
        "minIf(d_owd_min_ns, n > 0) AS low, "
        f"quantilesExactWeightedArray(0.5, 0.9, 0.99)([{points}], [{weights}]) AS q, "
        "maxIf(d_owd_max_ns, n > 0) AS high, sum(t) AS st, sum(u) AS su "
        f"FROM ({probed} UNION ALL {heard} UNION ALL {broken}) GROUP BY minute, src, dst)"
    )
