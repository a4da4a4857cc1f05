"""Cases made by `tests.workload.schedules`, with ends of ranks as programs end.

A rank is killed, crashes, runs out of memory or raises an error, alone; its host dies; somebody
ends the job; it ends by itself. What others do then follows from it: their connections close and
they fail one after the other, their launcher ends them, or they wait. Written without regard to
the rules that read it.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, NamedTuple

from bench.diagnosis.case import Case, Rows, Truth, until
from tests.workload.schedules import FAULTS, KINDS, MS, F, Fault, NoPlace, S, Schedule, _placed

from syntony.workload.schema import FORMAT, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

CLASSES = (*FAULTS, F.HANG)
READING_NS = 2 * S
FAILURES = {
    "killed": (-9, False), "lack of memory": (-9, True), "segfault": (-11, False),
    "error": (1, False), "abort": (-6, False), "host": (None, False),
}  # fmt: skip
"""What befalls one rank → its status and whether memory lacked; None: its host is gone."""
QUIET = ("operator", "scheduler", "clean", "runs", "runs")
"""How jobs end in which nothing is wrong."""


class Death(NamedTuple):
    """The end of a rank, ns on the job's timeline."""

    at: float
    status: int | None
    """None: its host is gone, and nobody reports it."""
    oom: bool = False


def make_case(fault: str, seed: int, way: str = "") -> Case:
    """One case of a class of `CLASSES`; an empty fault is a job in which nothing is wrong.

    Args:
        fault: the class.
        seed: of everything that is drawn.
        way: of `FAILURES` if the fault is a hang, of `QUIET` if it is empty; empty: drawn.
    """
    for attempt in range(100):
        rng = random.Random(f"schedules {fault} {seed} {attempt}")
        kind, links = rng.choice(KINDS), rng.random() < 0.5
        try:
            placed = _placed(kind, seed, fault) if fault in FAULTS else Fault()
        except NoPlace:
            continue
        job = Schedule(kind, seed, placed)
        if fault == F.HANG:
            return _failed(job, rng, links, way or rng.choice([*FAILURES]))
        job.runs()
        if fault:
            truth = Truth(fault, placed.subject, job.onset, kind)
            return _case(job, links, round(max(job.free)), truth)
        return _ended(job, rng, links, way or rng.choice(QUIET))
    raise AssertionError(fault)


def _case(job: Schedule, links: bool, end_ns: int, truth: Truth) -> Case:
    manifest = {
        "format": FORMAT, "version": VERSION, "job": "night", "timeline": "fleet",
        "begin_ns": job.begin, "end_ns": end_ns,
    }  # fmt: skip
    return Case(job.tables(links=links), manifest, truth)


def _failed(job: Schedule, rng: random.Random, links: bool, way: str) -> Case:
    """One rank ends, or its host, anywhere in a step; some windows later the recording ends."""
    rank, at = rng.randrange(job.hosts), job.onset + rng.uniform(0, 2 * job.compute_ns)
    if job.kind == "shrink":
        at = min(at, job.change)
    if job.kind in {"shrink", "grow"}:
        rank %= 2 * job.hosts // 3  # the others take no part before, or after
    job.death = rank, at
    job.runs()
    status, oom = FAILURES[way]
    deaths = {rank: Death(at, status, oom)}
    reaction = rng.choice(("errors", "errors", "launcher", "launcher", "waits"))
    if reaction == "errors":
        deaths |= _chain(job, rng, rank, at)
    elif reaction == "launcher":
        deaths |= _ordered(rng, set(range(job.hosts)) - {rank}, at + rng.uniform(0.01, 5) * S)
    last = max(each.at for each in deaths.values())
    wait_ns = rng.uniform(12, 30) * S if reaction == "waits" else rng.uniform(0.5, 20) * S
    truth = Truth(F.HANG, f"rank {rank}", round(at), f"{job.kind}/{way}/{reaction}")
    return _with_ends(_case(job, links, round(last + wait_ns), truth), job, rng, deaths)


def _chain(job: Schedule, rng: random.Random, rank: int, at: float) -> dict[int, Death]:
    """Its ring neighbours lose their connection to it, theirs to them, and so on; no two programs
    handle that at the same speed."""
    status = rng.choice((1, 1, -6))
    slow_s = rng.choice((0.02, 0.3, 1.0))
    found: dict[int, Death] = {}
    when = {1: at, -1: at}
    for distance in range(1, job.hosts // 2 + 1):
        for side in (1, -1):
            when[side] += (0.01 + rng.expovariate(1 / slow_s)) * S
            found.setdefault((rank + side * distance) % job.hosts, Death(when[side], status))
    return found


def _ordered(rng: random.Random, ranks: Iterable[int], at: float) -> dict[int, Death]:
    """A launcher's SIGTERM, and for those that are stuck in a driver SIGKILL after its grace."""
    stuck = rng.choice((0.0, 0.0, 0.2))
    grace = rng.choice((5, 10, 30)) * S
    return {rank: Death(at + grace, -9) if rng.random() < stuck else
            Death(at + rng.expovariate(1 / (30 * MS)), -15) for rank in ranks}  # fmt: skip


def _ended(job: Schedule, rng: random.Random, links: bool, way: str) -> Case:
    """Of jobs in which nothing is wrong: somebody ends it, or it has done its work, or it runs."""
    end, deaths, at, saves = max(job.free), dict[int, Death](), 0.0, False
    if way == "clean":
        deaths = {rank: Death(end + rng.uniform(0.05, 3) * S, 0)
                  for rank in range(job.hosts)}  # fmt: skip
    elif way != "runs":
        at = job.until - rng.uniform(0.02, 0.3) * (job.until - job.begin)
        saves = way == "scheduler" and rng.random() < 0.5
        for rank in range(job.hosts):
            deaths[rank] = Death(at + rng.expovariate(1 / (30 * MS)), -15)
            if saves:
                deaths[rank] = Death(at + rng.uniform(1, 12) * S, 0)
        if way == "scheduler" and not saves:
            deaths |= _ordered(rng, range(job.hosts), at)
    last = max((each.at for each in deaths.values()), default=end)
    end_ns = round(last + (rng.uniform(0.5, 20) * S if deaths else 0))
    case = _case(job, links, end_ns, Truth("", "", 0, f"{job.kind}/{way}"))
    if way in {"operator", "scheduler"}:
        case = _stopped(case, at, deaths, whole=saves)
    return _with_ends(case, job, rng, deaths)


def _stopped(case: Case, at: float, deaths: dict[int, Death], *, whole: bool) -> Case:
    """What ranks had begun when they were asked to end: an operation in which one is missing never
    ends and holds the others; `whole`: they end the operation first, and begin no other."""
    table = case.tables["collectives"]
    lasts = {row for row, done in enumerate(table["done_ns"]) if done >= at}
    held: dict[int, float] = {}
    for row in lasts:
        rank = table["rank"][row]
        held[rank] = min(held.get(rank, math.inf), table["enqueue_ns"][row])
    kept = [
        row
        for row, (rank, begun) in enumerate(zip(table["rank"], table["enqueue_ns"], strict=True))
        if row not in lasts or (not whole and begun == held[rank] < deaths[rank].at)
    ]
    found = {name: [values[row] for row in kept] for name, values in table.items()}
    found["done_ns"] = [None if row in lasts else table["done_ns"][row] for row in kept]
    return case._replace(tables={**until(case, round(at)).tables, "collectives": found})


def _with_ends(case: Case, job: Schedule, rng: random.Random, deaths: dict[int, Death]) -> Case:
    """With the table of processes, and without what a rank would have begun after its end."""
    tables = dict(case.tables)
    if deaths:
        table = tables["collectives"]
        kept = [
            row
            for row, (rank, begun) in enumerate(
                zip(table["rank"], table["enqueue_ns"], strict=True)
            )
            if rank not in deaths or begun < deaths[rank].at
        ]
        tables["collectives"] = {
            name: [values[row] for row in kept] for name, values in table.items()
        }
    tables["processes"] = _readings(job, rng, deaths, case.manifest["end_ns"]).columns
    return case._replace(tables=tables)


def _readings(job: Schedule, rng: random.Random, deaths: dict[int, Death], end_ns: int) -> Rows:
    """Of each host every two seconds. In some fleets neither instants nor statuses are visible."""
    rows, exact, visible = Rows(), rng.random() < 0.8, rng.random() < 0.8
    for rank in range(job.hosts):
        death, at_ns = deaths.get(rank), job.begin - rng.randrange(READING_NS)
        while at_ns < end_ns:
            gone = death is not None and death.at < at_ns + READING_NS
            if gone and death is not None and death.status is None:
                break
            told = death if gone and visible else None
            rows.add(
                at_ns=at_ns, window_ns=READING_NS, rank=rank, pid=4_000 + rank, host=f"h{rank}",
                state=None if gone else "S", ended=gone,
                lived_ns=max(0.0, death.at - at_ns) if gone and death and exact else None,
                exit_status=told and float(told.status or 0), oom_killed=told and told.oom,
            )  # fmt: skip
            if gone:
                break
            at_ns += READING_NS
    return rows
