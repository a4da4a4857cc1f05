"""Contention or incast at the link that stands out by a change, where no rule finds a cause
(docs/decisions/0439)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from syntony.model import format_ns
from syntony.model.names import host_of
from syntony.workload.changed_links import ChangedLink, changed_link, known_mean, relative
from syntony.workload.classes import contention, incast
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import LATE_RATIO, LIKE, SLOW_RATIO
from syntony.workload.full_links import FULL
from syntony.workload.verdict import (
    MOST_ALONE,
    Evidence,
    FaultClass,
    RuleFinding,
    confidence,
)

OF_ONE = frozenset({FaultClass.STRAGGLER, FaultClass.GPU_THROTTLE, FaultClass.SLOW_FLOW})
"""Causes that delay when a rank begins to send, or packets of one flow, not those of others."""


def beside(causes: Iterable[RuleFinding]) -> bool:
    """Whether a link may be at fault as well: these causes delay no packets of others."""
    return all(each.fault in OF_ONE for each in causes)


def replaces(changed: RuleFinding, cause: RuleFinding) -> bool:
    """Whether a slow flow waits with all others across a changed link, and not twice as long: it
    was found alone because it scatters less than they do."""
    return (
        cause.fault is FaultClass.SLOW_FLOW and not cause.direct and cause.flows <= changed.flows
        and cause.excess_ns < LATE_RATIO * changed.excess_ns
    )  # fmt: skip


def find(facts: BundleFacts, causes: Collection[RuleFinding] = ()) -> list[RuleFinding]:
    """The link across which flows wait longer from some time on, unlike all others: for jobs in
    which nothing else is found. If it leads to a NIC, it is an incast.

    Late senders change who waits for whom: beside one, flows must wait longer than before, not only
    compared with others, and most of them at other hosts, unless the sender's flows over other
    links do not wait longer. Slow flows count as such for the rank that waits for them, and their
    own delays show nothing of a link.
    """
    flows = facts.flows
    if flows is None:
        return []
    late = [inside for common in facts.late_hops
            if (inside := contention.suspects(facts, common)[0])]  # fmt: skip
    few = {link for links in late for link in links} if len(late) <= MOST_ALONE else set()
    slow = {flow for cause in causes if cause.fault is FaultClass.SLOW_FLOW for flow in cause.flows}
    each = changed_link(flows, facts.crossings, few, slow)
    if each is None:
        return []
    if causes and not (each.longer and _apart(facts, each, causes)):
        return []
    part = flows.during(each.begin_ns, each.last_ns)
    in_hosts = sum(flows.waits_in_hosts(flow, part) for flow in each.flows)
    if not each.streams and 2 * in_hosts > len(each.flows):
        return []
    into_nics = facts.last_hops()
    links = facts.fullest(each.links, each.begin_ns, each.last_ns)
    inside = tuple(link for link in links if link not in into_nics)
    nics = tuple(into_nics[link] for link in links if link in into_nics)
    if not inside and len({flows.src[flow] for flow in each.flows}) < 2:
        return []
    use = facts.use(links[0], each.begin_ns, each.last_ns)
    kind = "streams of probes" if each.streams else "flows"
    evidence = [
        Evidence("probes" if each.streams else "owd_p50_ns",
                 f"{each.streams or len(each.flows)} {kind} across it wait {each.ratio:.1f} times"
                 f" as long as before, compared with {each.elsewhere} others:"
                 f" {format_ns(each.delay_ns)} against {format_ns(each.usual_ns)}",
                 each.delay_ns, each.usual_ns),
    ]  # fmt: skip
    if use is not None:
        evidence.append(Evidence("utilisation", f"used to {use:.0%}", use, FULL))
    full = None if use is None else use >= FULL
    slower = contention.slower(flows, dict.fromkeys(each.flows, part.start))
    fault, action = (
        (FaultClass.CONTENTION, contention.ACTION) if inside
        else (FaultClass.INCAST, incast.ACTION)
    )  # fmt: skip
    return [RuleFinding(
        fault=fault, subjects=inside + nics, onset_ns=each.begin_ns, last_ns=each.last_ns,
        confidence=confidence(
            each.share, full, len(inside + nics) == 1 or None, each.ratio >= SLOW_RATIO or slower,
            full or not contention.more_send(flows, each.flows),
        ),
        evidence=tuple(evidence), alternatives=contention.alternatives(facts, each.flows),
        action=action, flows=each.flows,
        hosts=frozenset(host_of(flows.src[flow]) for flow in each.flows),
    )]  # fmt: skip


def _apart(facts: BundleFacts, changed: ChangedLink, causes: Iterable[RuleFinding]) -> bool:
    """Whether a link's flows wait longer for another reason than these causes."""
    flows = facts.flows
    assert flows is not None  # noqa: S101 - a changed link
    hosts = {host for cause in causes for host in cause.hosts}
    touching = {
        flow for flow, ends in enumerate(zip(flows.src, flows.dst, strict=True))
        if not hosts.isdisjoint(map(host_of, ends))
    }  # fmt: skip
    if 2 * len(touching & changed.flows) <= len(changed.flows):
        return True
    others = sorted(touching - changed.flows)
    level = relative(facts.crossings[0])[others]
    part = flows.during(changed.begin_ns, changed.last_ns)
    rise = known_mean(level[:, part], 1) - known_mean(np.delete(level, part, axis=1), 1)
    known = rise[np.isfinite(rise)]
    return len(known) >= 2 and bool(np.median(known) < np.log(LIKE))
