"""How ranks of recorded jobs ended, which the generators of bundles but *programs* do not make."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from bench.diagnosis.case import Rows, until

if TYPE_CHECKING:
    from bench.diagnosis.case import Case, Columns

S, MS = 10**9, 10**6
READING_NS = 2 * S


class End(NamedTuple):
    """When and how a rank's process ended."""

    at_ns: int
    status: int
    oom: bool = False


Ends = dict[int, End]
_TERM, _KILL, _ABORT = -signal.SIGTERM, -signal.SIGKILL, -signal.SIGABRT
OWN: tuple[tuple[int, bool], ...] = (
    (_KILL, True), (-signal.SIGSEGV, False), (-signal.SIGBUS, False), (_KILL, False), (1, False),
)  # fmt: skip
"""Status of a rank that fails, and whether memory lacked."""


def with_ends(case: Case, seed: int) -> Case:
    """In two of three cases processes are recorded. A rank that does not come to an operation has
    failed, and the others end because of it, or wait; of jobs in which nothing is wrong somebody
    ends half within the last fifth of the recording."""
    draw = random.Random(f"ends {seed} {case.truth.variant}")
    table = case.tables.get("collectives")
    begin_ns, end_ns = (case.manifest.get(name) for name in ("begin_ns", "end_ns"))
    if table is None or not begin_ns or not end_ns or draw.random() < 1 / 3:
        return case
    ends: Ends = {}
    if case.truth.fault == "hang":
        ends = _failed(case, table, draw)
        if not ends:
            return case
    elif not case.truth.fault and draw.random() < 0.5:
        at_ns = end_ns - round(draw.uniform(0, 0.2) * (end_ns - begin_ns))
        ends = _ended_by_somebody(sorted({*table["rank"]}), at_ns, draw)
        case = until(case, at_ns)
    hosts = dict(zip(table["rank"], table["host"], strict=True))
    if len(ends) == len(hosts):
        end_ns = max(each.at_ns for each in ends.values())
        case = until(case, end_ns)
    rows = _readings(hosts, ends, (begin_ns, end_ns), draw)
    return case._replace(
        tables={**case.tables, "processes": rows.columns},
        manifest=case.manifest | {"end_ns": end_ns},
    )


def _failed(case: Case, table: Columns, draw: random.Random) -> Ends:
    """Of a rank that others wait for, if it did not begin the operation."""
    kind, _, number = case.truth.subject.partition(" ")
    rank = int(number) if kind == "rank" else -1
    rows = list(zip(table["rank"], table["enqueue_ns"], table["done_ns"], strict=True))
    mine = [(begun, done) for one, begun, done in rows if one == rank]
    waiting = [begun for _, begun, done in rows if done is None]
    if not mine or not waiting or any(done is None for _, done in mine):
        return {}
    died_ns = max(done for _, done in mine) + round(draw.uniform(0.1, 1) * MS)
    status, oom = draw.choice(OWN)
    ends = {rank: End(died_ns, status, oom)}
    if draw.random() < 0.3:
        return ends  # the others wait
    noticed_ns = max(died_ns, *waiting)
    by_launcher = draw.random() < 0.6 or status == 1
    waits_ns = draw.uniform(0.2, 4) * S
    for other in sorted({*table["rank"]} - {rank}):
        after_ns = waits_ns + draw.expovariate(1 / (20 * MS))
        how = _TERM if by_launcher else draw.choice((1, _ABORT))
        if not by_launcher:
            after_ns += draw.uniform(0, 3) * S
        ends[other] = End(noticed_ns + round(after_ns), how)
    return ends


def _ended_by_somebody(ranks: list[int], at_ns: int, draw: random.Random) -> Ends:
    """By one order to all: those that do not handle it end at once; some write a checkpoint first,
    or are killed at the end of the grace time."""
    asked = draw.choice((_TERM, _TERM, _TERM, -signal.SIGINT))
    way: Callable[[], tuple[float, int]] = draw.choice((
        lambda: (draw.expovariate(1 / 0.05), asked),
        lambda: (draw.uniform(0.5, 20), 0),
        lambda: (30 + draw.uniform(0, 0.2), _KILL) if draw.random() < 0.5
        else (draw.expovariate(1 / 0.05), asked),
    ))  # fmt: skip
    found = {}
    for rank in ranks:
        after_s, how = way()
        found[rank] = End(at_ns + round(after_s * S), how)
    return found


def _readings(
    hosts: dict[int, str], ends: Ends, span: tuple[int, int], draw: random.Random
) -> Rows:
    """Of each host every two seconds, at its own instants."""
    rows, begin_ns, end_ns = Rows(), *span
    exact = draw.random() < 0.8
    for rank, host in sorted(hosts.items()):
        end = ends.get(rank)
        at_ns = begin_ns - draw.randrange(READING_NS)
        while at_ns < end_ns:
            gone = end is not None and end.at_ns < at_ns + READING_NS
            rows.add(at_ns=max(0, at_ns), window_ns=READING_NS, rank=rank, pid=100 + rank,
                     host=host, ended=gone, state=None if gone else "S",
                     lived_ns=end.at_ns - at_ns if gone and end and exact else None,
                     exit_status=end.status if gone and end else None,
                     oom_killed=end.oom if gone and end else None)  # fmt: skip
            if gone:
                break
            at_ns += READING_NS
    return rows
