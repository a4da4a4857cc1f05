"""Hang or desync: a communicator stands still, for one of its ranks did not come, or came with
another operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from syntony.model import S, format_ns
from syntony.workload.bundle import NULL
from syntony.workload.classes._weigh import weigh
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

if TYPE_CHECKING:
    from syntony.workload.facts import BundleFacts
    from syntony.workload.ranks import Comm, Ranks

MIN_SILENCE_NS = 5 * S
"""Without progress for at least so long (taxonomy)."""
LONGER = 10.0
"""… and so many times the longest usual time between operations, the 99.9th percentile."""
ACTION = (
    "look at that rank's process and host (py-spy, flight recorder, kernel log); restart the job"
    " from its checkpoint without it if it is dead"
)


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Communicators that stand still, and whom they wait for."""
    ranks = facts.ranks
    if ranks is None:
        return []
    stuck = [(comm, seq) for comm in ranks.comms if (seq := _stuck(comm, facts.end_ns)) is not None]
    waiting = {
        int(rank)
        for comm, seq in stuck
        for rank in comm.ranks[comm.present[:, seq] & (comm.done[:, seq] == NULL)]
    }
    found = []
    for comm, seq in stuck:
        finding = _desync(facts, ranks, comm, seq) or _missing(facts, comm, seq, waiting)
        if finding is not None:
            found.append(finding)
    return found


def _stuck(comm: Comm, end_ns: int) -> int | None:
    """The first operation that was begun, never ended, and nothing came after; else None."""
    open_here = comm.present & (comm.done == NULL)
    absent = ~comm.present[:, -1]
    if not (comm.done != NULL).any() and not absent.any():
        return None  # ends were not recorded, and nobody is behind
    if not open_here.any() and not absent.any():
        return None
    known = np.concatenate((comm.enqueue[comm.present], comm.done[comm.done != NULL]))
    progress = np.sort(known)
    apart = np.diff(np.unique(np.max(comm.enqueue, axis=0)))
    usual = float(np.quantile(apart, 0.999)) if len(apart) else 0.0
    if end_ns - int(progress[-1]) <= max(MIN_SILENCE_NS, LONGER * usual):
        return None
    columns = np.flatnonzero(open_here.any(axis=0) | ~comm.present.all(axis=0))
    last_whole = np.flatnonzero((comm.done != NULL).all(axis=0) & comm.present.all(axis=0))
    after = columns[columns > (last_whole[-1] if len(last_whole) else -1)]
    return int(after[0]) if len(after) else None


def _desync(facts: BundleFacts, ranks: Ranks, comm: Comm, seq: int) -> RuleFinding | None:
    """Ranks that enqueued something else than most under the same number."""
    table, rows = ranks.table, comm.row[:, seq]
    here = np.flatnonzero(rows >= 0)
    sizes = np.nan_to_num(table.numbers("bytes"), nan=-1)
    reported = [(_both_ends(str(table.codes("op").at(rows[each]))), float(sizes[rows[each]]))
            for each in here]  # fmt: skip
    kinds = sorted(set(reported), key=reported.count, reverse=True)
    if len(kinds) < 2:
        return None
    tied = len(kinds) > 1 and reported.count(kinds[0]) == reported.count(kinds[1])
    odd = [int(comm.ranks[each]) for each, kind in zip(here, reported, strict=True)
           if tied or kind != kinds[0]]  # fmt: skip
    text = f"operation {comm.seqs[seq]} of {comm.name} is {_name(kinds[1])} there and"
    return _finding(
        facts, comm, seq, odd,
        evidence=Evidence("op", f"{text} {_name(kinds[0])} elsewhere"),
        sure=not tied, other="all ranks came")  # fmt: skip


def _both_ends(op: str) -> str:
    """A send and its receive are one operation."""
    parts = op.lower().replace(":", " ").split()
    return "send or recv" if {"send", "recv", "isend", "irecv"} & set(parts) else op


def _name(kind: tuple[str, float]) -> str:
    return kind[0] if kind[1] < 0 else f"{kind[0]} of {kind[1]:.0f} bytes"


def _missing(facts: BundleFacts, comm: Comm, seq: int, waiting: set[int]) -> RuleFinding | None:
    """Ranks that never enqueued it and do not wait elsewhere themselves."""
    absent = [int(rank) for rank in comm.ranks[~comm.present[:, seq]]]
    roots = [rank for rank in absent if rank not in waiting]
    if absent and not roots:
        return None  # they wait in another communicator, which is named instead
    text = f"operation {comm.seqs[seq]} of {comm.name}: {len(comm.ranks) - len(absent)} of"
    if roots:
        text += f" {len(comm.ranks)} ranks wait since it was enqueued"
        return _finding(
            facts, comm, seq, roots, evidence=Evidence("seq", text), sure=len(roots) == 1,
            other="the others have the same operation")  # fmt: skip
    text += f" {len(comm.ranks)} ranks enqueued the same and none ended it"
    return _finding(facts, comm, seq, [], evidence=Evidence("done_ns", text), sure=False,
                    other="all ranks have the same operation")  # fmt: skip


def _finding(
    facts: BundleFacts,
    comm: Comm,
    seq: int,
    odd: list[int],
    *,
    evidence: Evidence,
    sure: bool,
    other: str,
) -> RuleFinding:
    begun = comm.enqueue[comm.present[:, seq], seq]
    onset_ns = int(np.median(begun)) if len(begun) else facts.begin_ns
    stands = f"no progress for {format_ns(facts.end_ns - onset_ns)} until the recording ends"
    ranks = facts.ranks
    assert ranks is not None  # noqa: S101 - a communicator
    return RuleFinding(
        fault=FaultClass.HANG,
        subjects=tuple(f"rank {rank}" for rank in odd) or (f"communicator {comm.name}",),
        onset_ns=onset_ns, last_ns=facts.end_ns,
        confidence=confidence(0.98, True if sure else None, bool(odd)),
        evidence=(evidence, Evidence("enqueue_ns", stands)),
        alternatives=(
            weigh(FaultClass.STRAGGLER, True, "it does not come at all"),
            weigh(FaultClass.HANG, True, other),
        ),
        action=ACTION, ranks=frozenset(odd),
        hosts=frozenset(ranks.host.get(rank, "") for rank in odd),
    )  # fmt: skip
