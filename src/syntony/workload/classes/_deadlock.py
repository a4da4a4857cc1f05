"""Hangs of ranks that do not find each other, or that wait for each other."""

from __future__ import annotations

from syntony.workload.bundle import NULL
from syntony.workload.classes._excuses import runs
from syntony.workload.classes._peers import MEETING, cycle, departs, waiting_ranks
from syntony.workload.classes._progress import Stuck, hang_finding
from syntony.workload.classes._waits import waits_for
from syntony.workload.facts import BundleFacts
from syntony.workload.ranks import Ranks
from syntony.workload.verdict import Evidence, RuleFinding

ACTION_PLACE = (
    "compare MASTER_ADDR and MASTER_PORT of all ranks, and look whether that port of that host can"
    " be reached from theirs (firewall, the interface that the name resolves to)"
)
ACTION_ORDER = (
    "compare the order of sends and receives of these ranks (py-spy, flight recorder): one of them"
    " left one out, or both receive first"
)


def no_meeting(facts: BundleFacts, ranks: Ranks, stuck: list[Stuck]) -> list[RuleFinding]:
    """A finding if ranks look for each other at different places, or if some do not reach the
    place at which others are."""
    those = [(comm, seq) for comm, _, seq, _ in stuck if comm.name.startswith(MEETING)]
    if not those:
        return []
    came = [{*each.ranks[each.present.any(axis=1)].tolist()} for each, _ in those]
    counts = [len(each) for each in came]
    comm, seq = those[counts.index(max(counts))]
    place = comm.name.removeprefix(MEETING)
    if len(those) > 1:
        others = [each for each in those if each[0] is not comm]
        odd = sorted(set().union(*came) - came[counts.index(max(counts))])
        there = ", ".join(each.name.removeprefix(MEETING) for each, _ in others)
        text = f"it looks for the others at {there}, and {max(counts)} of them at {place}"
        sure = None if counts.count(max(counts)) == 1 else False
        return [hang_finding(facts, comm, seq, odd, evidence=(Evidence("comm", text),), sure=sure,
                         action=ACTION_PLACE)]  # fmt: skip
    column = comm.row[:, seq]
    if not comm.present[:, seq].all() or _op(ranks, column.max()) != MEETING.strip():
        return []
    # Rank 0 may serve the store, and waits there until all have come.
    met = comm.ranks[comm.done[:, seq] != NULL]
    odd = sorted(waiting_ranks(ranks, comm, seq) - {0})
    if not len(met) or not odd:
        text = f"no rank gets an answer at {place}"
        return [hang_finding(facts, comm, seq, [], evidence=(Evidence("done_ns", text),),
                         sure=False, action=ACTION_PLACE)]  # fmt: skip
    text = f"it gets no answer at {place}, where {len(met)} of {len(comm.ranks)} ranks have come"
    return [hang_finding(facts, comm, seq, odd, evidence=(Evidence("done_ns", text),),
                     action=ACTION_PLACE)]  # fmt: skip


def deadlock(facts: BundleFacts, ranks: Ranks, stuck: list[Stuck]) -> list[RuleFinding]:
    """A finding of ranks that wait for each other: of those that called something else than in
    their steps before, if it is one, or else of all."""
    waits = [(waiting_ranks(ranks, comm, seq), comm.ranks[~comm.present[:, seq]].tolist())
             for comm, _, seq, _ in stuck]  # fmt: skip
    ring = cycle(waits)
    if not ring:
        return []
    comm, seq = next(
        (comm, seq) for comm, _, seq, _ in stuck if ring & waiting_ranks(ranks, comm, seq)
    )
    if one := runs(facts, comm, seq, ring):
        facts.waits.append(waits_for(facts, comm, seq, [one[0]], one[1]))
        return []
    who = ", ".join(map(str, sorted(ring)))
    texts = [f"ranks {who} wait for each other, in transfers that they did not begin alike"]
    other = {rank: why for rank in sorted(ring) if (why := departs(ranks, facts.steps, rank))}
    odd = list(other)
    if len(other) == 1:
        called, due = other[odd[0]]
        texts.insert(0, f"it called {called} where {due} came in its steps before")
    else:
        odd = sorted(ring)
    evidence = tuple(Evidence("op", text) for text in texts)
    return [hang_finding(facts, comm, seq, odd, evidence=evidence, sure=len(other) == 1,
                     other="these wait for each other", action=ACTION_ORDER)]  # fmt: skip


def _op(ranks: Ranks, row: int) -> str:
    return str(ranks.table.codes("op").at(int(row)))
