"""Why a rank for which others wait need not be stuck (docs/decisions/0690, 0729)."""

from __future__ import annotations

import numpy as np

from syntony.model import S
from syntony.workload.bundle import NULL
from syntony.workload.classes._operations import OFTEN, P2P, both_ends, kinds_of
from syntony.workload.classes._peers import waiting_ranks
from syntony.workload.classes._progress import MIN_SILENCE_NS
from syntony.workload.facts import BundleFacts
from syntony.workload.ranks import Comm, Ranks
from syntony.workload.stages import pair_of

BUSY = 0.2
"""A process that computes has a core for at least this share of the time in which it does not queue
for one …"""
LEAST = 0.05
"""… which counts as this share of all time at least: a process that sleeps may queue, too …"""
BUSIER = 3.0
"""… and has so many times as much CPU time as one that waits: with NCCL these compute as well."""
LIMIT_NS = 600 * S
"""Who computes for longer than NCCL waits by default is stuck in a loop."""
LAST = 0.9
"""Share of earlier operations of a kind to which the rank that gives orders comes last."""
ONE_WAY = frozenset({"broadcast", "scatter", P2P})
"""Operations that one rank begins when it has something for the others."""


def excuse(facts: BundleFacts, ranks: Ranks, comm: Comm, seq: int, absent: list[int]) -> str:
    """Why these ranks need not be stuck, which did not come to an operation; empty: unknown."""
    if facts.processes is not None and facts.processes.held.keys() & {*absent}:
        return ""
    waiting = waiting_ranks(ranks, comm, seq)
    found = [
        _computes(facts, comm, seq, rank, waiting)
        or _goes_on(facts, ranks, comm, seq, rank)
        or _gives_orders(facts, ranks, comm, seq, rank)
        or _unread(facts, comm, seq, rank)
        for rank in absent
    ]
    return found[0] if waiting and all(found) else ""


def runs(facts: BundleFacts, comm: Comm, seq: int, come: set[int]) -> tuple[int, str] | None:
    """Of ranks that came to an operation one that need not be stuck in it, and why; None: none."""
    found = ((rank, _computes(facts, comm, seq, rank, come - {rank})
              or _unread(facts, comm, seq, rank)) for rank in sorted(come))  # fmt: skip
    return next((each for each in found if each[1]), None)


def _since_ns(comm: Comm, seq: int) -> int:
    return int(np.median(comm.enqueue[comm.present[:, seq], seq]))


def _computes(facts: BundleFacts, comm: Comm, seq: int, rank: int, waiting: set[int]) -> str:
    """It evaluates, writes a checkpoint, or compiles; or it has hardly had a core for what it
    does."""
    processes, begin_ns = facts.processes, _since_ns(comm, seq)
    if processes is None or facts.end_ns - begin_ns > LIMIT_NS:
        return ""
    used = processes.computed(rank, begin_ns)
    if used is None:
        return ""
    if used.runnable and used.cpu < BUSY:
        return f"its process waits for a core (it had {used.cpu:.0%} of one)"
    others = [each.cpu for one in waiting if (each := processes.computed(one, begin_ns))]
    if not others and not any(processes.unread(one, begin_ns) for one in waiting):
        return ""
    if used.cpu < BUSIER * float(np.median(others or [0.0])):
        return ""
    text = f"its process computes ({used.cpu:.0%} of a core)"
    return text if used.cpu >= BUSY * max(LEAST, 1 - used.queued) else ""


def _unread(facts: BundleFacts, comm: Comm, seq: int, rank: int) -> str:
    """Whether it computes is not known yet."""
    unread = facts.processes is not None and facts.processes.unread(rank, _since_ns(comm, seq))
    return "its process has hardly been read since" if unread else ""


def _goes_on(facts: BundleFacts, ranks: Ranks, comm: Comm, seq: int, rank: int) -> str:
    """It does something else that the others need not wait for."""
    table = ranks.table
    if _op(ranks, comm, seq) not in ONE_WAY:
        return ""
    mine, done = table.ints("rank") == rank, table.ints("done_ns")
    steps = facts.steps.ints("end_ns")[facts.steps.ints("rank") == rank]
    last_ns = max([0, *table.ints("enqueue_ns")[mine], *done[mine & (done != NULL)], *steps])
    return "it goes on elsewhere" if facts.end_ns - last_ns < MIN_SILENCE_NS else ""


def _gives_orders(facts: BundleFacts, ranks: Ranks, comm: Comm, seq: int, rank: int) -> str:
    """Ranks that have no steps of their own wait for its next order: it always came last, and has
    taken all that they sent to it."""
    waiting = waiting_ranks(ranks, comm, seq)
    if _op(ranks, comm, seq) not in ONE_WAY or {*facts.steps.ints("rank").tolist()} & waiting:
        return ""
    if any(_is_owed(each, one, rank) for each in ranks.comms for one in waiting):
        return ""
    kinds, begun = kinds_of(ranks, comm), comm.enqueue
    alike = (kinds[:, :seq] == kinds[:, seq].max()).all(axis=0) & comm.present[:, :seq].all(axis=0)
    own = begun[comm.ranks == rank, :seq][:, alike].ravel()  # none of a rank of another one
    last = own == begun[:, :seq][:, alike].max(axis=0)[: len(own)]
    if len(last) < OFTEN or last.mean() < LAST:
        return ""
    return "it gives the orders that the others wait for, and may have none"


def _is_owed(comm: Comm, one: int, rank: int) -> bool:
    """Whether a rank has sent something to another which has not begun to receive it."""
    if pair_of(comm.name) != (one, rank) or one not in comm.ranks:
        return False
    begun = [comm.present[comm.ranks == each].sum() for each in (one, rank)]
    return bool(begun[0] > begun[1])


def _op(ranks: Ranks, comm: Comm, seq: int) -> str:
    return both_ends(str(ranks.table.codes("op").at(int(comm.row[:, seq].max()))))
