"""Jobs that wait, of which it is undetermined whether they hang: since when, for which rank, what
that does, and how to find out more (docs/decisions/0710)."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from syntony.model import format_ns
from syntony.workload.classes._excuses import LIMIT_NS
from syntony.workload.classes._peers import prepared, waiting_for_any, waiting_ranks
from syntony.workload.classes._progress import (
    LONGER,
    MIN_SILENCE_NS,
    first_open,
    is_left,
    lost_ranks,
)
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import Flags
from syntony.workload.ranks import Comm
from syntony.workload.stages import is_from_any
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

MOST_PLACES = 4
"""Maximum places in programs that are listed, those of most ranks."""


def waits_for(facts: BundleFacts, comm: Comm, seq: int, roots: list[int], why: str) -> RuleFinding:
    """Ranks wait in an operation for others, which need not be stuck.

    Args:
        facts: of the bundle.
        comm: the communicator.
        seq: the operation in which they wait.
        roots: those that they wait for.
        why: these need not be stuck.
    """
    begun = comm.present[:, seq]
    text = (
        f"operation {comm.seqs[seq]} of {comm.name}: {begun.sum()} of {len(comm.ranks)} ranks wait"
        f" for rank {', '.join(map(str, roots))}: {why}"
    )
    since_ns = int(np.median(comm.enqueue[begun, seq]))
    return _finding(facts, tuple(roots), since_ns, Evidence("seq", text))


def without_steps(facts: BundleFacts) -> RuleFinding | None:
    """For a long time no rank has completed a step or begun an operation. The job may wait in an
    operation that is not recorded, as in a backward pass of `DistributedDataParallel`, or do
    something else."""
    if not facts.steps.rows:
        return None
    table = facts.bundle.table("collectives")
    last = [each for each in (facts.steps.ints("end_ns"), table.ints("enqueue_ns")) if len(each)]
    took_ns = facts.steps.ints("end_ns") - facts.steps.ints("begin_ns")
    since_ns = max(int(each.max()) for each in last)
    silence_ns = facts.end_ns - since_ns
    if silence_ns <= max(MIN_SILENCE_NS, LONGER * float(np.quantile(took_ns, 0.999))):
        return None
    if late := _late(facts):
        return late
    text = f"no rank has ended a step for {format_ns(silence_ns)}, and steps take"
    what = Evidence("end_ns", f"{text} {format_ns(round(facts.step_ns))}: the job may wait in an"
                    " operation that is not recorded")  # fmt: skip
    return _finding(facts, _apart(facts), since_ns, what)


def _late(facts: BundleFacts) -> RuleFinding | None:
    """An operation in which ranks wait, though not yet for as long as makes it a hang."""
    ranks = facts.ranks
    if ranks is None:
        return None
    opened, waiting = list[tuple[Comm, int, Flags]](), waiting_for_any(ranks)
    for comm in (prepared(ranks, each) for each in ranks.comms if not is_from_any(each.name)):
        lost = lost_ranks(ranks, comm)
        seq = first_open(comm, lost)
        if seq is not None and not is_left(ranks, comm, seq):
            here = waiting_ranks(ranks, comm, seq)
            waiting |= here
            if here:
                opened.append((comm, seq, lost))
    for comm, seq, lost in opened:
        roots = sorted(set(comm.ranks[~comm.present[:, seq] & ~lost].tolist()) - waiting)
        if roots:
            return waits_for(facts, comm, seq, roots, "not yet long enough to be called a hang")
    return None


def _apart(facts: BundleFacts) -> tuple[int, ...]:
    """Ranks that are elsewhere in the program than most; none: it is not known, or there are
    none."""
    places = _places(facts)
    known = sum(map(len, places.values()))
    if not places or 2 * len(next(iter(places.values()))) <= known:
        return ()
    return tuple(sorted(rank for some in list(places.values())[1:] for rank in some))


def _places(facts: BundleFacts) -> dict[str, list[int]]:
    """Place in the program → ranks that are there; those of most ranks first."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    if facts.processes is not None:
        for rank, at in sorted(facts.processes.frames.items()):
            found[at].append(rank)
    return dict(sorted(found.items(), key=lambda each: -len(each[1])))


def places_of(facts: BundleFacts, ranks: list[int]) -> list[Evidence]:
    """Where the Python of these ranks is, as far as it is known."""
    frames = {} if facts.processes is None else facts.processes.frames
    return [_place([rank], frames[rank]) for rank in ranks[:MOST_PLACES] if rank in frames]


def _place(ranks: list[int], at: str) -> Evidence:
    return Evidence("frame", f"Python of rank {', '.join(map(str, ranks))} is at {at}")


def _finding(
    facts: BundleFacts, roots: tuple[int, ...], since_ns: int, what: Evidence
) -> RuleFinding:
    places = _places(facts)
    own = [at for at, some in places.items() if {*some} & {*roots}]
    listed = list(dict.fromkeys((*own, *places)))[:MOST_PLACES]
    silence = format_ns(max(0, facts.end_ns - since_ns))
    named = tuple(f"rank {rank}" for rank in roots)
    hosts = facts.ranks.host if facts.ranks else {}
    ranks = set(roots) or set(hosts)
    return RuleFinding(
        fault=FaultClass.UNDETERMINED,
        subjects=named or (f"job {facts.bundle.manifest.job}".rstrip(),),
        onset_ns=since_ns, last_ns=max(since_ns, facts.end_ns),
        confidence=confidence(0.98, False),
        evidence=(
            what, Evidence("enqueue_ns", f"no progress for {silence} until the recording ends"),
            *(_place(places[at], at) for at in listed),
        ),
        alternatives=(
            weigh(FaultClass.HANG, False, "it may be in a loop, or wait for something that is not"
                  f" recorded; a rank that computes is named after {format_ns(LIMIT_NS)}"),
        ),
        action=_action(facts, roots), ranks=frozenset(ranks),
        hosts=frozenset(hosts.get(rank, "") for rank in ranks),
    )  # fmt: skip


def _action(facts: BundleFacts, roots: tuple[int, ...]) -> str:
    processes = facts.processes
    known = [rank for rank in roots if processes is not None and processes.pid(rank)]
    if processes is None or not known:
        return "if it should not take that long, look at the ranks' processes (`py-spy dump`)"
    where = f"`py-spy dump --pid {processes.pid(known[0])}` on {processes.host(known[0])}"
    return f"if it should not take that long, look at what it does: {where}"
