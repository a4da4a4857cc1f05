"""Slow receiver: senders wait for its credit, and its GPU consumes late."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from syntony.model import format_ns
from syntony.model.names import host_of
from syntony.workload.bundle import Floats
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import Flows
from syntony.workload.grid import Episode, episodes, median
from syntony.workload.verdict import MOST_ALONE, Evidence, FaultClass, RuleFinding, confidence

BLOCKED = 0.02
"""Share of a window for which a flow waits for credit, from which it counts as held back: the same
share of a step makes a straggler."""
TIMES = 3.0
"""… and the ratio of that to the usual value for flows at the same time."""
MOST, MOST_CONFIRMED = 0.75, 0.5
"""Minimum share of the flows to a receiver that wait. The second applies if its GPU is known to
consume late: flows of another communicator may have too little to send to be held back."""
STANDS_OUT, MOST_OTHERS = 2.0, 0.9
"""Ratio of mean waits for its credit to those of other receivers, and the share of these, below
which nothing stands out unless its GPU is known to consume late: steps and windows make some wait
more than others."""
CONSUMES_LATE = 2.0
"""Ratio of its wait for its GPU to its peers'."""
ACTION = "look at what that rank does besides: its GPU, its copies, its host's memory bandwidth"


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Ranks whose senders wait for credit, or whose GPU consumes late what came."""
    held = [] if facts.flows is None else _of_senders(facts, facts.flows)
    named = {rank for each in held for rank in each.ranks}
    late = [each for each in _of_gpus(facts) if not each.ranks & named]
    return held + (late if len(late) <= MOST_ALONE else [])


def _of_gpus(facts: BundleFacts) -> list[RuleFinding]:
    """Ranks for whose GPUs operations wait. Senders with fewer packets in flight than their credit
    allows do not wait for more of it."""
    ranks, flows = facts.ranks, facts.flows
    if ranks is None:
        return []
    found = []
    for rank, each in ranks.long_waits("consume_wait_ns", TIMES).items():
        if rank in ranks.late:
            continue
        into = [] if flows is None else np.flatnonzero(flows.peer == rank).tolist()
        found.append(RuleFinding(
            fault=FaultClass.SLOW_RECEIVER, subjects=(f"rank {rank}",), onset_ns=each.begin_ns,
            last_ns=each.last_ns, confidence=confidence(each.share, True, None),
            evidence=(
                Evidence("consume_wait_ns", f"what it receives waits {format_ns(each.wait_ns)} for"
                         f" its GPU, that of others {format_ns(each.usual_ns)}", each.wait_ns,
                         each.usual_ns),
                Evidence("done_ns", f"operations take {each.longer:.1f} times as long as at other"
                         " times", each.longer, 1.0),
            ),
            alternatives=(weigh(FaultClass.STRAGGLER, True, "it comes no later than its peers"),),
            action=ACTION, flows=frozenset(into), ranks=frozenset({rank}),
            hosts=frozenset({ranks.host.get(rank, "")}),
        ))  # fmt: skip
    return found


def _of_senders(facts: BundleFacts, flows: Flows) -> list[RuleFinding]:
    """Ranks whose senders wait for credit."""
    blocked = flows.blocked
    low = float(np.nanquantile(blocked, 0.25)) if np.isfinite(blocked).any() else 0.0
    usual = np.nan_to_num(median(blocked, axis=0))
    with np.errstate(invalid="ignore"):
        bad = blocked > np.maximum(BLOCKED, TIMES * np.minimum(usual, 2 * low))
    held = episodes(bad, np.isfinite(blocked))
    into: dict[int, list[int]] = defaultdict(list)
    for flow, peer in enumerate(flows.peer):
        if np.isfinite(peer):
            into[int(peer)].append(flow)
    found = []
    for rank, flows_to in sorted(into.items()):
        shown = [flow for flow in flows_to if flow in held]
        members = _sending(blocked, flows_to, [held[flow] for flow in shown])
        if shown and len(shown) >= MOST_CONFIRMED * len(members):
            most = len(shown) >= MOST * len(members)
            finding = _judge(facts, flows, rank, {each: held[each] for each in shown}, most=most,
                             blocked=blocked, usual=usual)  # fmt: skip
            if finding is not None:
                found.append(finding)
    sure = [each for each in found if any(it.signal == "consume_wait_ns" for it in each.evidence)]
    # If all come late, as on hosts short of CPU, each waits for credit now and then.
    if len(found) - len(sure) > MOST_ALONE:
        return sure
    named = {rank for each in found for rank in each.ranks}
    return [each for each in found if each in sure or _stands_out(flows, each, named, blocked)]


def _sending(blocked: Floats, flows: list[int], held: list[Episode]) -> list[int]:
    """Flows that are recorded within these episodes: connections that ended before prove
    nothing."""
    part = slice(min((each.first for each in held), default=0),
                 max((each.last for each in held), default=-1) + 1)  # fmt: skip
    return [flow for flow in flows if np.isfinite(blocked[flow, part]).any()]


def _stands_out(flows: Flows, finding: RuleFinding, named: set[int], blocked: Floats) -> bool:
    """Whether senders wait for this rank's credit far longer than for that of most ranks that are
    not `named`."""
    grid, (rank,) = flows.grid, finding.ranks
    first, end = ((each - grid.begin_ns) // grid.width_ns
                  for each in (finding.onset_ns, finding.last_ns))  # fmt: skip
    during = blocked[:, first:end]
    own = float(np.nanmean(during[flows.peer == rank]))
    others = [
        float(np.nanmean(during[flows.peer == each]))
        for each in set(flows.peer[np.isfinite(flows.peer)]) - named
        if np.isfinite(during[flows.peer == each]).any()
    ]
    return not others or own >= STANDS_OUT * float(np.quantile(others, MOST_OTHERS))


def _judge(
    facts: BundleFacts,
    flows: Flows,
    rank: int,
    held: dict[int, Episode],
    *,
    most: bool,
    blocked: Floats,
    usual: Floats,
) -> RuleFinding | None:
    members = [*held]
    begin_ns, last_ns, share = facts.joint(members, held)
    consume = None
    if facts.ranks is not None:
        consume = facts.ranks.ratio_of_wait("consume_wait_ns", rank, begin_ns, last_ns)
    late = None if consume is None else consume > CONSUMES_LATE
    behind = facts.ranks is not None and rank in facts.ranks.slow
    if late is False or (late is None and (behind or not most or len(members) < 2)):
        return None  # the receiver is idle, or late itself; one flow alone proves little
    waiting = set(members) & flows.late.keys()
    slots = facts.links is not None and "pcie_width" in facts.links.table
    part = slice(held[members[0]].first, held[members[0]].last + 1)
    level, usually = float(median(blocked[members][:, part])), float(median(usual[part]))
    text = f"{len(members)} flows to it wait for its credit {level:.0%} of the time, others"
    evidence = [Evidence("credit_blocked_ns", f"{text} {usually:.1%}", level, usually)]
    if late and consume is not None:
        text = f"its GPU consumes {consume:.1f} times as late as others"
        evidence.append(Evidence("consume_wait_ns", text, consume, 1.0))
    return RuleFinding(
        fault=FaultClass.SLOW_RECEIVER, subjects=(f"rank {rank}",), onset_ns=begin_ns,
        last_ns=last_ns, confidence=confidence(share, late), evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.INCAST, not waiting, "packets on their way do not wait" if not waiting
                  else f"{len(waiting)} of these flows are delayed on their way as well"),
            weigh(FaultClass.PCIE, True if slots else None, "its NIC's slot has all its lanes",
                  "pcie_width"),
        ),
        action=ACTION, flows=frozenset(members), ranks=frozenset({rank}),
        hosts=frozenset({host_of(flows.dst[members[0]])}),
    )  # fmt: skip
