"""Whether a communicator makes progress, and in which operation it stopped."""

from __future__ import annotations

import numpy as np

from syntony.model import S, format_ns
from syntony.workload.bundle import NULL, Gap, Ints
from syntony.workload.classes._operations import differ
from syntony.workload.classes._peers import MEETING, sole, waits
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import Flags
from syntony.workload.ranks import SYMMETRIC, Comm, Ranks
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

MIN_SILENCE_NS = 5 * S
"""Minimum time without progress (taxonomy)."""
LONGER = 10.0
"""… and so many times the longest usual time between operations, the 99.9th percentile."""
COMING_NS = 30 * S
"""… if ranks are waited for that never came: hosts do not start a job at the same time."""
MISSED = 2
"""Operations that others ended after a rank's last from which its newest rows are missing."""

ACTION = (
    "look at that rank's process and host (py-spy, flight recorder, kernel log); restart the job"
    " from its checkpoint without it if it is dead"
)
ACTION_ALL = (
    "look at the processes of all its ranks: one stopped within the operation (`ps`: state T or D,"
    " py-spy), or the network lost it (`syntony incidents list`)"
)
Stuck = tuple[Comm, Ints, int, Flags]
"""A communicator that makes no progress, the kinds of its operations, the first that is open, and
the ranks whose newest operations are missing."""


def is_left(ranks: Ranks, comm: Comm, seq: int) -> bool:
    """Whether the ranks of an operation that never ended gave the communicator up: all of them have
    since ended operations that they began in others, `MIN_SILENCE_NS` later and more."""
    table, begun = ranks.table, comm.enqueue[:, seq]
    waits = comm.present[:, seq]
    if not waits.any():
        return False
    here = table.codes("comm").codes == table.codes("comm").codes[comm.row.max()]
    after = table.ints("enqueue_ns") > int(np.median(begun[waits])) + MIN_SILENCE_NS
    same_job = table.codes("job").codes == table.codes("job").codes[comm.row.max()]
    went_on = after & ~here & same_job & (table.ints("done_ns") != NULL)
    return bool(np.isin(comm.ranks[waits], table.ints("rank")[went_on]).all())


def least_silence_ns(kinds: Ints) -> int:
    """Minimum time without progress before a communicator counts as hanging. If its ranks differ,
    it hangs: such jobs often end within a few seconds."""
    return 0 if differ(kinds) else MIN_SILENCE_NS


def hangs(ranks: Ranks, comm: Comm, end_ns: int, least_ns: int) -> bool:
    """Whether an operation was begun, never ended, and nothing came after for `least_ns` and for
    `LONGER` than usual."""
    open_here = comm.present & (comm.done == NULL)
    absent = ~comm.present[:, -1]
    alone, meeting = sole(ranks, comm), comm.name.startswith(MEETING)
    if not (comm.done != NULL).any() and not absent.any() and not meeting:
        return False  # ends were not recorded, and nobody is behind
    if not (waits(ranks, comm) if alone else open_here | absent[:, None]).any():
        return False
    if meeting or not comm.present.any(axis=1).all():
        least_ns = max(least_ns, COMING_NS)
    known = np.concatenate((comm.enqueue[comm.present], comm.done[comm.done != NULL]))
    apart = np.diff(np.unique(np.max(comm.enqueue, axis=0)))
    usual = float(np.quantile(apart, 0.999)) if len(apart) else 0.0
    return end_ns - int(known.max()) > max(least_ns, LONGER * usual)


def lost_ranks(ranks: Ranks, comm: Comm) -> Flags:
    """Ranks whose newest operations are not in the recording, (ranks,): others have ended several
    for which all must have come. One alone may have ended by an error."""
    ops = ranks.table.codes("op")
    code = ops.codes[comm.row.max(axis=0)]
    for_all = np.isin(code, [number for number, op in enumerate(ops.values) if op in SYMMETRIC])
    ended = np.flatnonzero(for_all & (comm.done != NULL).any(axis=0))
    places = np.arange(len(comm.seqs))
    newest = np.where(comm.present, places, -1).max(axis=1)
    lost: Flags = (ended[None, :] > newest[:, None]).sum(axis=1) >= MISSED
    return lost


def lost_gap(comm: Comm, lost: Flags) -> Gap:
    names = ", ".join(map(str, comm.ranks[lost][:5].tolist()))
    return Gap(
        "collectives",
        f"the newest operations of ranks {names} of {comm.name} are missing: others ended them",
        "hang",
    )


def first_open(comm: Comm, lost: Flags) -> int | None:
    """The first operation that a rank did not end or never enqueued, of those whose rows are
    there."""
    open_here = comm.present & (comm.done == NULL)
    columns = np.flatnonzero(((open_here | ~comm.present) & ~lost[:, None]).any(axis=0))
    last_whole = np.flatnonzero((comm.done != NULL).all(axis=0) & comm.present.all(axis=0))
    after = columns[columns > (last_whole[-1] if len(last_whole) else -1)]
    return int(after[0]) if len(after) else None


def hang_finding(
    facts: BundleFacts,
    comm: Comm,
    seq: int,
    odd: list[int],
    *,
    evidence: tuple[Evidence, ...],
    sure: bool | None = None,
    other: str = "the others have the same operation",
    action: str = "",
) -> RuleFinding:
    """A hang in an operation, of the odd ranks, or of the communicator if there are none.

    Args:
        facts: of the bundle.
        comm: the communicator.
        seq: the operation.
        odd: ranks at fault.
        evidence: the first says why.
        sure: whether it can be no others; None: if it is one rank.
        other: why no other rank left an operation out.
        action: what to do; empty: what is usual.
    """
    is_sure = len(odd) == 1 if sure is None else sure
    enqueued = comm.enqueue[comm.present[:, seq], seq]
    onset_ns = int(np.median(enqueued)) if len(enqueued) else facts.begin_ns
    silence = format_ns(max(0, facts.end_ns - onset_ns))
    no_progress = f"no progress for {silence} until the recording ends"
    ranks = facts.ranks
    assert ranks is not None  # noqa: S101 - a communicator
    those = odd or [int(rank) for rank in comm.ranks]
    return RuleFinding(
        fault=FaultClass.HANG,
        subjects=tuple(f"rank {rank}" for rank in odd) or (f"communicator {comm.name}",),
        onset_ns=onset_ns, last_ns=max(onset_ns, facts.end_ns),
        confidence=confidence(0.98, *(True if each else None for each in (is_sure, odd))),
        evidence=(*evidence, Evidence("enqueue_ns", no_progress)),
        alternatives=(
            weigh(FaultClass.STRAGGLER, True, "it does not come at all"),
            weigh(FaultClass.HANG, True, other),
        ),
        action=action or (ACTION if odd else ACTION_ALL), ranks=frozenset(those),
        hosts=frozenset(ranks.host.get(rank, "") for rank in those),
    )  # fmt: skip
