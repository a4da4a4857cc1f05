"""The queries as SQL, in the subset common to ClickHouse 18.16 and current versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from syntony.model import ClockState, S
from syntony.store.layout import Layout
from syntony.store.schema import BUCKET_NS, batch_column, partition_ns, quote
from syntony.wire.tables import CLOCK, HEARD, PATH_EVENTS, PROBE, Table

MAX_POINTS = 100_000
"""Maximum number of points in one answer, limited by the size of messages and by time."""
# A row summarises its second by five order statistics; each stands for this share (of 1000) of the
# row's probes, so that within one row the median, p90 and p99 come out as they went in.
PERCENTILE_SHARES = (
    ("owd_min_ns", 250),
    ("owd_p50_ns", 450),
    ("owd_p90_ns", 245),
    ("owd_p99_ns", 46),
    ("owd_max_ns", 9),
)
POINTS = ", ".join(name for name, _ in PERCENTILE_SHARES)
WEIGHTS = ", ".join(f"count * {share}" for _, share in PERCENTILE_SHARES)
_QUANTILES = f"quantilesExactWeightedArray(0.5, 0.99)([{POINTS}], [{WEIGHTS}])"
# Replies whose requests may never have arrived: counted as sent by a prober that cannot know.
DOUBTFUL = "sumIf(unresolved, prober = dst)"
STATES = (
    ClockState.SYNCHRONIZED,
    ClockState.HOLDOVER,
    ClockState.DISRUPTED,
    ClockState.UNKNOWN,
)
"""From best to worst."""
SECOND = f"intDiv(ts_ns, {S})"
MINUTE_NS = 60 * S
MINUTES, HOURS, MARKS = "probe_1m", "probe_1m_hours", "probe_1m_marks"
"""Tables of `syntony.store.minutes`."""


class WindowPart(NamedTuple):
    """Part of a window, half-open, fleet time."""

    first_ns: int
    last_ns: int
    minutes: bool = False
    """Whether it is read from minutes; otherwise from seconds."""


def window(first_ns: int, last_ns: int) -> str:
    """The condition for ``[first_ns, last_ns)``, also in terms of the sort key's first part."""
    return (
        f"ts_ns >= {first_ns} AND ts_ns < {last_ns} "
        f"AND intDiv(ts_ns, {BUCKET_NS}) >= {first_ns // BUCKET_NS} "
        f"AND intDiv(ts_ns, {BUCKET_NS}) <= {last_ns // BUCKET_NS}"
    )


def pair(src: str, dst: str) -> str:
    """The condition for one direction, or for one of its ends; empty for all."""
    wanted = (("src", src), ("dst", dst))
    return "".join(f" AND {column} = {quote(name)}" for column, name in wanted if name)


def either_direction(src: str, dst: str) -> str:
    """The condition for both directions of a pair, or for all with one end; empty for all."""
    if not (src or dst):
        return ""
    there, back = (pair(*ends).removeprefix(" AND ") for ends in ((src, dst), (dst, src)))
    return f" AND (({there}) OR ({back}))"


def oldest(table: Table, first_ns: int, last_ns: int, node: str = "") -> str:
    """The smallest instant, of one clock's rows if it is named; 0 for no rows."""
    which = f" AND node = {quote(node)}" if node else ""
    return f"SELECT min(ts_ns) FROM {table.name} WHERE {window(max(0, first_ns), last_ns)}{which}"


def rows(table: Table, columns: Sequence[str], first_ns: int, last_ns: int) -> str:
    """These columns of all rows, oldest first."""
    return (
        f"SELECT {', '.join(columns)} FROM {table.name} WHERE {window(first_ns, last_ns)} "
        "ORDER BY ts_ns"
    )


def directions(first_ns: int, last_ns: int, probes: Table = PROBE) -> str:
    """Per direction: src, dst, paths, sent, doubtful, lost, count, min, [p50, p99], clk_err,
    stalled.
    """
    return (
        f"SELECT src, dst, uniqExact(sport, flow_label), sum(sent), "
        f"{DOUBTFUL}, sum(lost), sum(count), "
        f"minIf(owd_min_ns, count > 0), {_QUANTILES}, maxIf(clk_err_ns, count > 0), sum(stalled) "
        f"FROM {probes.name} WHERE {window(first_ns, last_ns)} GROUP BY src, dst"
    )


def seconds(first_ns: int, last_ns: int, src: str, dst: str, step: int = 1) -> str:
    """Per direction and `step` seconds: src, dst, first second, sent, doubtful, lost, count, min,
    [p50, p99]."""
    return (
        f"SELECT src, dst, intDiv(ts_ns, {step * S}) * {step} AS second, sum(sent), "
        f"{DOUBTFUL}, sum(lost), sum(count), "
        f"minIf(owd_min_ns, count > 0), {_QUANTILES} "
        f"FROM {PROBE.name} WHERE {window(first_ns, last_ns)}{pair(src, dst)} "
        f"GROUP BY src, dst, second LIMIT {MAX_POINTS + 1}"
    )


def minutes(spans: Sequence[WindowPart], src: str, dst: str) -> str:
    """Stored rows by the minute, in both directions: the columns of `seconds`, and ``reports`` (0:
    only received probes are known), ``there`` and ``back``. Of the reverse direction, only what
    counts broken round trips."""
    where = " OR ".join(f"({_of(span)})" for span in spans)
    one_way = pair(src, dst)
    either = ""
    if one_way:
        both = either_direction(src, dst)
        either = f" AND (({one_way.removeprefix(' AND ')}) OR (there + back > 0{both}))"
    return (
        f"SELECT src, dst, {SECOND} AS second, sent, doubtful, lost, count, owd_min_ns, "
        f"[owd_p50_ns, owd_p99_ns], reports, there, back FROM {MINUTES} FINAL "
        f"WHERE ({where}) AND (reports > 0 OR there + back > 0){either} LIMIT {2 * MAX_POINTS + 1}"
    )


def steps(spans: Iterable[WindowPart], src: str, dst: str, step: int) -> str:
    """As `seconds`, for a window in spans, with the number of failed round trips; both directions.
    `step` is of whole minutes."""
    return (
        f"SELECT src, dst, intDiv(at, {step * S}) * {step} AS second, sum(s), sum(d), sum(l), "
        f"sum(n), minIf(owd_min_ns, n > 0), {_QUANTILES.replace('count *', 'n *')}, sum(u) "
        f"FROM ({' UNION ALL '.join(_rows(span, src, dst) for span in spans)}) "
        f"GROUP BY src, dst, second HAVING sum(r) > 0 LIMIT {2 * MAX_POINTS + 1}"
    )


def _rows(span: WindowPart, src: str, dst: str) -> str:
    delays = ", ".join(f"toInt64({name}) AS {name}" for name, _ in PERCENTILE_SHARES)
    sums = "toInt64(lost) AS l, toUInt64(count) AS n"
    if span.minutes:
        return (
            f"SELECT ts_ns AS at, src, dst, reports AS r, sent AS s, doubtful AS d, {sums}, "
            f"there + back AS u, {delays} FROM {MINUTES} FINAL "
            f"WHERE {_of(span)}{either_direction(src, dst)}"
        )
    return (
        "SELECT ts_ns AS at, src, dst, toInt64(1) AS r, toInt64(sent) AS s, "
        f"toInt64(if(prober = dst, unresolved, 0)) AS d, {sums}, toInt64(unresolved) AS u, "
        f"{delays} FROM {PROBE.name} WHERE {window(*span[:2])}{either_direction(src, dst)}"
    )


def _of(span: WindowPart) -> str:
    return f"ts_ns >= {span.first_ns} AND ts_ns < {span.last_ns}"


def unresolved(
    spans: Sequence[WindowPart], src: str, dst: str, tables: tuple[Table, Table] = (PROBE, HEARD)
) -> str:
    """Per prober, target and second (or minute, under its first second) with broken round trips:
    src, dst, second, sent, known lost, unresolved, and the number of requests that the target
    reports as received from the prober in that time. For both directions: losses on a probe's way
    back are known from the other end's probes.
    """
    parts = [_by_minute(span, src, dst) for span in spans if span.minutes]
    rest = [_trips(span, src, dst, tables) for span in spans if not span.minutes]
    if rest:
        # A union, not a join: joins are what the dialects of old and new servers agree on least.
        parts.append(
            "SELECT src, dst, second, sum(probed) AS p, sum(known) AS k, sum(broken) AS b, "
            f"sum(arrived) AS a FROM ({' UNION ALL '.join(rest)}) "
            "GROUP BY src, dst, second HAVING sum(broken) > 0"
        )
    return parts[0] if len(parts) == 1 else f"SELECT * FROM ({' UNION ALL '.join(parts)})"


def _by_minute(span: WindowPart, src: str, dst: str) -> str:
    """Failed round trips from stored minutes: requests that were lost are missing at the target."""
    return (
        f"SELECT src, dst, {SECOND} AS second, there AS p, toInt64(0) AS k, there + back AS b, "
        f"toInt64(0) AS a FROM {MINUTES} FINAL "
        f"WHERE {_of(span)}{either_direction(src, dst)} AND there + back > 0"
    )


def _trips(span: WindowPart, src: str, dst: str, tables: tuple[Table, Table]) -> str:
    where = f"{window(*span[:2])}{either_direction(src, dst)}"
    probes, hearing = tables
    probed = (
        f"SELECT src, dst, {SECOND} AS second, toInt64(sent) AS probed, toInt64(lost) AS known, "
        "toInt64(unresolved) AS broken, toInt64(0) AS arrived "
        f"FROM {probes.name} WHERE {where} AND prober = src"
    )
    heard = (
        f"SELECT src, dst, {SECOND} AS second, toInt64(0) AS probed, toInt64(0) AS known, "
        f"toInt64(0) AS broken, toInt64(received) AS arrived FROM {hearing.name} WHERE {where}"
    )
    return f"{probed} UNION ALL {heard}"


def recorded(table: Table, first_ns: int, last_ns: int) -> str:
    """Which parts of which batches have rows in the window."""
    seq = batch_column(table)
    return (
        f"SELECT host, stream, {seq}, intDiv(ts_ns, {partition_ns(table)}) AS part "
        f"FROM {table.name} WHERE {window(first_ns, last_ns)} GROUP BY host, stream, {seq}, part"
    )


def clock_history(first_ns: int, last_ns: int, node: str, step_ns: int) -> str:
    """Per clock and step, in that order: node, newest instant, that solution's ref, offset and
    drift, and of all solutions of the step the largest sigma, drift sigma and bound, the rank of
    the worst state in `STATES`, and its reason.
    """
    which = f" AND node = {quote(node)}" if node else ""
    ranks = ", ".join(f"state = {quote(state)}, {rank}" for rank, state in enumerate(STATES[:-1]))
    rank = f"multiIf({ranks}, {len(STATES) - 1})"
    newest = ", ".join(f"argMax({name}, ts_ns)" for name in ("ref_ns", "offset_ns", "drift_ppb"))
    worst = ", ".join(f"max({name})" for name in ("sigma_ns", "drift_sigma_ppb", "bound_ns"))
    return (
        f"SELECT node, max(ts_ns), {newest}, {worst}, max({rank}), argMax(reason, {rank}) "
        f"FROM {CLOCK.name} WHERE {window(first_ns, last_ns)}{which} "
        f"GROUP BY node, intDiv(ts_ns, {step_ns}) AS step ORDER BY node, step "
        f"LIMIT {MAX_POINTS + 1}"
    )


def columns(layout: Layout) -> str:
    """Tables that hold rows, and the names of their columns; one row a column."""
    return f"SELECT table, name FROM system.columns WHERE database = {layout.of_rows}"


def path_events(first_ns: int, last_ns: int, job: str, host: str, limit: int) -> str:
    """Every column of `path_events`, newest first."""
    names = ", ".join(column.name for column in PATH_EVENTS.columns)
    wanted = (("job", job), ("host", host))
    which = "".join(f" AND {column} = {quote(name)}" for column, name in wanted if name)
    return (
        f"SELECT {names} FROM {PATH_EVENTS.name} WHERE {window(first_ns, last_ns)}{which} "
        f"ORDER BY ts_ns DESC LIMIT {limit}"
    )


def partitions(table: Table, layout: Layout) -> str:
    """Numbers of the partitions that have rows."""
    return (
        f"SELECT toInt64(partition) AS part FROM {layout.parts} AND table = {quote(table.name)} "
        "GROUP BY part ORDER BY part"
    )


def newest(table: Table, partition: int) -> str:
    width = partition_ns(table)
    return f"SELECT max(ts_ns) FROM {table.name} WHERE intDiv(ts_ns, {width}) = {partition}"


def count_rows(layout: Layout) -> str:
    """Number of telemetry rows in this database."""
    return (
        f"SELECT sum(rows) FROM {layout.parts} "
        f"AND table NOT IN ('schema_version', '{MINUTES}', '{HOURS}', '{MARKS}')"
    )
