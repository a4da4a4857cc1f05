"""Incast: flows of several senders wait at the last link before one receiver."""

from __future__ import annotations

import msgspec

from syntony.model import format_ns
from syntony.model.names import host_of
from syntony.workload.classes import contention
from syntony.workload.classes._weigh import weigh
from syntony.workload.common_hop import Common
from syntony.workload.facts import BundleFacts
from syntony.workload.full_links import FULL
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

ACTION = "pace the senders, or spread what they send to this receiver over more time or NICs"


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Receivers whose last link delays flows of at least two senders."""
    if facts.flows is None:
        return []
    into = facts.last_hops()
    found = []
    for full in facts.full_links:
        nics = tuple(into[link] for link in full.links if link in into)
        senders = {facts.flows.src[each] for each in full.flows}
        if nics and (full.strangers or len(senders) >= 2):
            when = full.begin_ns, full.last_ns, confidence(full.share, full.strangers)
            filled = _made(facts, full.flows, nics[0], when, contention.full_evidence(full))
            found.append(msgspec.structs.replace(filled, direct=True))
    for common in facts.late_hops:
        inside, last = contention.suspects(facts, common)
        senders = {facts.flows.src[each] for each in common.flows}
        if last and not inside and len(senders) >= 2:
            found.append(_finding(facts, common, last[0], into[last[0]], len(senders)))
    return contention.distinct(found)


def _finding(facts: BundleFacts, common: Common, link: str, nic: str, senders: int) -> RuleFinding:
    flows = facts.flows
    assert flows is not None  # noqa: S101 - late flows
    begin_ns, last_ns, share, placed = contention.since(facts, common)
    delay, usual = facts.usual_late_ns(common.flows)
    use = facts.use(link, begin_ns, last_ns)
    evidence = [
        Evidence("owd_p50_ns", f"{len(common.flows)} flows of {senders} senders wait before"
                 f" {nic}: {format_ns(delay)} against {format_ns(usual)}", delay, usual),
    ]  # fmt: skip
    if use is not None:
        evidence.append(Evidence("utilisation", f"{link} is used to {use:.0%}", use))
    full = None if use is None else use >= FULL
    when = begin_ns, last_ns, confidence(share, full, full or not placed)
    return _made(facts, common.flows, nic, when, tuple(evidence))


def _made(
    facts: BundleFacts,
    members: frozenset[int],
    nic: str,
    when: tuple[int, int, float],
    evidence: tuple[Evidence, ...],
) -> RuleFinding:
    """The finding, from begin, end and confidence."""
    flows = facts.flows
    assert flows is not None  # noqa: S101 - flows to it
    return RuleFinding(
        fault=FaultClass.INCAST, subjects=(nic,), onset_ns=when[0], last_ns=when[1],
        confidence=when[2], evidence=evidence,
        alternatives=(
            weigh(FaultClass.SLOW_RECEIVER, True if "credit_blocked_ns" in flows.table else None,
                  "the senders do not wait for credit", "credit_blocked_ns"),
            *contention.alternatives(facts, members),
        ),
        action=ACTION, flows=members, hosts=frozenset({host_of(nic)}),
    )  # fmt: skip
