"""Rows by the minute, for questions about long times: each hour of probes is summed up once it is
over, and the minutes of the hour under way soon after theirs.

A minute's row has the sums of its seconds and five order statistics of their delays, the same
summary that a second's row has: of one minute, every number is what the seconds themselves give.
An hour is summed up again when rows of it came late: a row with more rows behind it replaces the
one before, so that doing it twice, or at two controllers, does no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator

from syntony.model import S
from syntony.store.engine import Engine, integer
from syntony.store.layout import Layout
from syntony.store.queries import (
    HOURS,
    MARKS,
    MINUTE_NS,
    PERCENTILE_SHARES,
    Span,
    unresolved,
    window,
)
from syntony.store.queries import MINUTES as NAME
from syntony.store.schema import DAY_NS, HOUR_NS
from syntony.wire.tables import HEARD, PROBE

SETTLE_NS = 120 * S
"""How long after an hour's end its rows have mostly arrived."""
MINUTE_SETTLE_NS = 60 * S
"""The same of a minute."""
RETENTION_DAYS = 90
SLICE_NS = 600 * S
"""Summed up by one statement: other statements of the embedded store wait for it."""
RECOUNT_NS = 600 * S
HOUR_MINUTES = HOUR_NS // MINUTE_NS
GRANULE_ROWS = 2_048
"""Of the table of minutes: a question of one pair reads a granule of every part, and there are some
twenty parts a day however few rows it wants of each. The engine's own 8,192 cost 2.5 times as much;
512 cost no less than this."""
HOURS_AT_ONCE = 24
"""Of one call: a store from before minutes is caught up with in a few."""

COLUMNS = (
    "ts_ns Int64, src String, dst String, rows UInt64, "
    "reports Int64, sent Int64, doubtful Int64, lost Int64, count UInt64, owd_min_ns Int64, "
    "owd_p50_ns Int64, owd_p90_ns Int64, owd_p99_ns Int64, owd_max_ns Int64, there Int64, "
    "back Int64"
)
"""``rows``: of how many rows of the two tables. ``there``, ``back``: of the round trips that src
began and that broke, those that were lost on the way to dst, and those on the way back."""
HOUR_COLUMNS = "ts_ns Int64, rows UInt64"
"""Which hours are summed up, of how many rows; an hour that was summed up again is there again. The
same for minutes of hours that are not."""
RECALL = (
    f"INSERT INTO {HOURS} SELECT intDiv(ts_ns, {HOUR_NS}) * {HOUR_NS} AS begin, sum(rows) "
    f"FROM {NAME} FINAL GROUP BY begin"
)
"""Of a store from before `HOURS`."""
_COLUMNS = (
    "ts_ns, src, dst, rows, reports, sent, doubtful, lost, count, owd_min_ns, owd_p50_ns, "
    "owd_p90_ns, owd_p99_ns, owd_max_ns, there, back"
)


def create(layout: Layout) -> list[str]:
    """Statements that make the tables if they are not there. A row that replaces another one is on
    its shard: they are of one pair."""
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
) -> tuple[Span, ...]:
    """A window in parts that are read from minutes and parts that are read from seconds.

    Args:
        hours: numbers of those that are summed up.
        minutes: the same, of other hours.
    """
    found: list[Span] = []

    def add(begin_ns: int, end_ns: int, *, minutes: bool) -> None:
        if begin_ns >= end_ns:
            return
        if found and found[-1].minutes == minutes:
            begin_ns = found.pop().first_ns
        found.append(Span(begin_ns, end_ns, minutes))

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
    """Which hours are summed up, and doing it. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._summed: dict[int, int] = {}
        """Hour → rows of it that were there before it was summed up."""
        self._late: set[int] = set()
        """Hours with rows that came while they were being summed up, or since."""
        self._minutes: dict[int, int] = {}
        """As `_summed`, minute by minute, of hours that are not in it."""
        self._late_minutes: set[int] = set()
        self._counted_ns = 0
        """When all minutes of open hours were counted, fleet time."""
        self._read = False

    def hours(self) -> frozenset[int]:
        """Numbers of the hours whose minutes say all that is known."""
        if not self._read:
            self._recall(self._present())
        with self._lock:
            return frozenset(self._summed)

    def spans(self, first_ns: int, last_ns: int) -> tuple[Span, ...]:
        """A window in parts, by what is summed up now."""
        hours = self.hours()
        with self._lock:
            minutes = frozenset(self._minutes)
        return spans(first_ns, last_ns, hours, minutes)

    def came(self, first_ns: int, last_ns: int) -> None:
        """Rows of seconds between these instants are in the store now; to be called after."""
        with self._lock:
            late = set(range(first_ns // HOUR_NS, last_ns // HOUR_NS + 1))
            self._late |= late
            for hour in self._summed.keys() & late:
                del self._summed[hour]
            minutes = set(range(first_ns // MINUTE_NS, last_ns // MINUTE_NS + 1))
            self._late_minutes |= minutes
            for minute in self._minutes.keys() & minutes:
                del self._minutes[minute]

    def follow(self, now_ns: int) -> int:
        """Sum up minutes of the past two hours that are over and were not yet; returns how many.

        Args:
            now_ns: fleet time.
        """
        present = self._learn_minutes(now_ns)
        over = (now_ns - MINUTE_SETTLE_NS) // MINUTE_NS
        due = sorted(minute for minute in present if minute < over)
        for run in _runs(due, SLICE_NS // MINUTE_NS):
            self._sum_up_minutes({minute: present[minute] for minute in run})
        return len(due)

    def learn(self, now_ns: int) -> None:
        """What somebody else has summed up: for who sums up nothing, once in a while.

        Args:
            now_ns: fleet time.
        """
        with self._lock:
            self._late.clear()
        self._recall(self._present())
        self._learn_minutes(now_ns)

    def _learn_minutes(self, now_ns: int) -> dict[int, int]:
        """Forget minutes that rows came of, learn of marks; rows of each minute that is not known.
        Those that are known are counted again every `RECOUNT_NS`: somebody else stores, too."""
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
        """Of the minutes of the past two hours."""
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
        """Minutes that follow each other, of so many rows each."""
        first, last = min(rows), max(rows) + 1
        self._engine.execute(summing(first * MINUTE_NS, last * MINUTE_NS))
        marks = ", ".join(f"({minute * MINUTE_NS}, {count})" for minute, count in rows.items())
        self._engine.execute(f"INSERT INTO {MARKS} VALUES {marks}")
        with self._lock:
            self._minutes |= {
                minute: count for minute, count in rows.items() if minute not in self._late_minutes
            }

    def sum_up(self, now_ns: int, most: int = HOURS_AT_ONCE) -> int:
        """Sum up hours that are over and were not yet, newest first; returns how many.

        Args:
            now_ns: fleet time.
            most: of one call.
        """
        present = self._present()
        if not self._read:
            self._recall(present)
        over = (now_ns - SETTLE_NS) // HOUR_NS
        with self._lock:
            # Another controller may have written to the same store.
            for hour in [h for h, n in self._summed.items() if present.get(h, 0) > n]:
                del self._summed[hour]
            due = sorted((h for h in present if h < over and h not in self._summed), reverse=True)
        for hour in due[:most]:
            self._sum_up(hour, present[hour])
        return min(len(due), most)

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
        """Rows of seconds in each hour."""
        return self._partitions((PROBE.name, HEARD.name))

    def _recall(self, present: dict[int, int]) -> None:
        """What was summed up before this process began."""
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
    """Those that follow each other, together; newest first."""
    run: list[int] = []
    for minute in reversed(minutes):
        if run and (run[-1] != minute + 1 or len(run) == longest):
            yield run
            run = []
        run.append(minute)
    if run:
        yield run


def summing(first_ns: int, last_ns: int) -> str:
    """The statement that adds the minutes of a window to the table."""
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
        f"FROM ({unresolved((Span(first_ns, last_ns),), '', '')})"
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
