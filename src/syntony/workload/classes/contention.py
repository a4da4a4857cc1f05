"""Contention on a link: flows wait that have only this link in common, others do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from syntony.model import format_ns
from syntony.model.names import host_of
from syntony.workload.changed_links import known_mean
from syntony.workload.classes._weigh import weigh
from syntony.workload.common_hop import Common
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import (
    ALWAYS_SENDS,
    LATE_RATIO,
    LIKE,
    MUCH_ALWAYS,
    SLOW_RATIO,
    Flows,
)
from syntony.workload.full_links import FULL, FullLink
from syntony.workload.grid import K, median
from syntony.workload.verdict import (
    ALIKE,
    Alternative,
    Evidence,
    FaultClass,
    RuleFinding,
    confidence,
)

LESS = 0.95
"""Ratio of the share of the time for which a flow sends to that before from which it has less to
send: such means scatter by one or two percent."""
ACTION = "move one of the flows to another path, or pace the jobs that share the link"


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Links inside the fabric at which flows wait."""
    if facts.flows is None:
        return []
    into_nics = facts.last_hops()
    found = [
        _full(facts, each) for each in facts.full_links if into_nics.keys().isdisjoint(each.links)
    ]
    for common in facts.late_hops:
        inside, last = suspects(facts, common)
        if inside:
            found.append(_finding(facts, common, inside, last))
    return distinct(found)


def distinct(found: list[RuleFinding]) -> list[RuleFinding]:
    """Without findings whose subject a direct one, one with more confidence, or an earlier one has
    as well."""
    kept: list[RuleFinding] = []
    for each in sorted(found, key=lambda one: (not one.direct, -one.confidence)):
        if not any({*each.subjects} & {*other.subjects} for other in kept):
            kept.append(each)
    return [each for each in found if any(each is one for one in kept)]


def _full(facts: BundleFacts, full: FullLink) -> RuleFinding:
    """A link that others fill."""
    flows = facts.flows
    assert flows is not None  # noqa: S101 - flows across it
    return RuleFinding(
        fault=FaultClass.CONTENTION, subjects=full.links, onset_ns=full.begin_ns,
        last_ns=full.last_ns,
        confidence=confidence(full.share, full.strangers, len(full.links) == 1 or None),
        evidence=full_evidence(full), alternatives=alternatives(facts, full.flows), action=ACTION,
        flows=full.flows,
        hosts=frozenset(host_of(flows.src[each]) for each in full.flows), direct=True,
    )  # fmt: skip


def full_evidence(full: FullLink) -> tuple[Evidence, ...]:
    """What a link that fills up shows."""
    evidence = [
        Evidence("owd_p50_ns", f"{len(full.flows)} flows across it wait: {format_ns(full.delay_ns)}"
                 f" while it is full, {format_ns(full.usual_ns)} at other times", full.delay_ns,
                 full.usual_ns),
        Evidence("utilisation", f"used to {full.use:.0%}, at other times {full.before:.0%}"
                 f"{', by bytes that are not of these flows' * bool(full.strangers)}", full.use,
                 full.before),
        Evidence("hops", f"{full.elsewhere} flows that cross no full link wait no longer"),
    ]  # fmt: skip
    if full.probes_ns is not None:
        probes_ns, usual_ns = full.probes_ns
        evidence.append(Evidence("probes", f"probes across it {format_ns(probes_ns)}, at other"
                                 f" times {format_ns(usual_ns)}", probes_ns, usual_ns))  # fmt: skip
    return tuple(evidence)


def suspects(facts: BundleFacts, common: Common) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Links at which these flows may wait: inside the fabric, and the last before a NIC. Both if
    the same flows cross them and utilisation does not say which of them is full."""
    flows, into_nics = facts.flows, facts.last_hops()
    assert flows is not None  # noqa: S101 - late flows
    links = tuple(each for each in common.links if not _own_bursts(facts, common, each))
    links = facts.fullest(links, *facts.joint(common.flows, flows.late)[:2])
    inside = tuple(each for each in links if each not in into_nics)
    return inside, tuple(each for each in links if each in into_nics)


def _own_bursts(facts: BundleFacts, common: Common, link: str) -> bool:
    """Whether it is the link out of one NIC, where only one job's flows wait for each other."""
    flows = facts.flows
    assert flows is not None  # noqa: S101 - late flows
    if any(flows.hops[each][0] != link for each in common.flows):
        return False
    use = facts.use(link, *facts.joint(common.flows, flows.late)[:2])
    one_job = len({flows.jobs[each] for each in common.flows}) == 1
    return one_job and (use is None or use < FULL)


def since(facts: BundleFacts, common: Common) -> tuple[int, int, float, bool]:
    """As `Facts.joint`, but from the begin of the recording if the flows have waited since then;
    and whether they wait for each other: they have waited since then, and no longer than a job's
    flows do because of their placement, or than as many flows that do not cross the link, or while
    they fill the link themselves; or when more of them send."""
    flows = facts.flows
    assert flows is not None  # noqa: S101 - late flows
    begin_ns, last_ns, share = facts.joint(common.flows, flows.late, flows.waiting)
    always = facts.always_late(common.flows & flows.late.keys())
    delay, usual = facts.usual_late_ns(common.flows)
    excess = {each: flows.mean_over(flows.excess, each, part) for each, part in flows.late.items()}
    own = common.flows & flows.late.keys()
    least = ALIKE * float(np.median([excess[each] for each in own]))
    alike = sum(wait >= least for each, wait in excess.items() if each not in common.flows)
    return (
        min(begin_ns, facts.begin_ns) if always else begin_ns, last_ns, share,
        (always and (delay < MUCH_ALWAYS * usual or alike >= len(own) or fill(flows, own)))
        or more_send(flows, common.flows),
    )  # fmt: skip


def fill(flows: Flows, waiting: Collection[int]) -> bool:
    """Whether flows that wait at one link reach together, in most of the windows in which all wait,
    the rate of the fastest flow: what another job sends would be missing. False if rates are not
    recorded."""
    rows = sorted(waiting)
    together = flows.waiting[rows].all(axis=0)
    joint = median(flows.rate[rows][:, together].sum(axis=0))
    return bool(joint >= np.nanmax(median(flows.rate, axis=1), initial=0.0) / LIKE > 0)


def more_send(flows: Flows, across: Collection[int]) -> bool:
    """Whether twice as many flows send across a link in the windows in which most of these wait as
    in those in which they do not: what another job adds does not depend on how many of this one's
    send."""
    rows = sorted(across)
    many = np.isfinite(flows.delay[rows]).sum(axis=0)
    wait = 2 * flows.waiting[rows].sum(axis=0) >= many
    with_some, without = many[wait & (many > 0)], many[~wait]
    if min(len(with_some), len(without)) < K:
        return False
    return bool(with_some.mean() >= LATE_RATIO * without.mean())


def slower(flows: Flows, since_windows: Mapping[int, int]) -> bool | None:
    """Whether flows send less than before they waited, by the window in which each began to; None
    if unknown. Packets wait a little at a well-used link, which is not a fault. A flow of lower
    rate that sends for less of the time than before has less to send."""
    ratios = []
    for flow, first in since_windows.items():
        parts = slice(first), slice(first, None)
        before, after = (median(flows.rate[flow, part]) for part in parts)
        usual, share = (float(known_mean(flows.sending[flow, part], 0)) for part in parts)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = float(after / before)
        ratios.append(max(1.0, ratio) if share < min(LESS * usual, ALWAYS_SENDS) else ratio)
    known = [each for each in ratios if np.isfinite(each)]
    return float(np.median(known)) < 1 / LIKE if known else None


def _finding(
    facts: BundleFacts, common: Common, links: tuple[str, ...], last: tuple[str, ...]
) -> RuleFinding:
    flows = facts.flows
    assert flows is not None  # noqa: S101 - late flows
    begin_ns, last_ns, share, placed = since(facts, common)
    nics = tuple(facts.last_hops()[each] for each in last)
    delay, usual = facts.usual_late_ns(common.flows)
    evidence = [
        Evidence("owd_p50_ns", f"{len(common.flows)} flows across it wait: {format_ns(delay)}"
                 f" against {format_ns(usual)} before or of similar flows", delay, usual),
        Evidence("hops", f"{common.healthy} other flows across it and"
                 f" {len(facts.healthy) - common.healthy} elsewhere do not"),
    ]  # fmt: skip
    use = facts.use(links[0], begin_ns, last_ns)
    if use is not None:
        evidence.append(Evidence("utilisation", f"used to {use:.0%}", use, FULL))
    full = None if use is None else use >= FULL
    since_windows = {each: flows.late[each].first for each in common.flows & flows.late.keys()}
    harm = delay >= SLOW_RATIO * usual or slower(flows, since_windows)
    alone = len(links + nics) == 1 or None
    return RuleFinding(
        fault=FaultClass.CONTENTION, subjects=links + nics, onset_ns=begin_ns, last_ns=last_ns,
        confidence=confidence(share, full, alone, harm, full or not placed),
        evidence=tuple(evidence),
        alternatives=(
            *(weigh(FaultClass.INCAST, False, f"no other flow crosses {links[0]}, or goes to {nic}")
              for nic in nics),
            *alternatives(facts, common.flows),
        ), action=ACTION, flows=common.flows,
        ranks=frozenset(), hosts=frozenset(host_of(flows.src[each]) for each in common.flows),
    )  # fmt: skip


def alternatives(facts: BundleFacts, waiting: frozenset[int]) -> tuple[Alternative, ...]:
    """Alternative causes if packets of several flows wait."""
    flows = facts.flows
    assert flows is not None  # noqa: S101 - late flows
    lossy = waiting & flows.lossy.keys()
    counted = "retransmits" in flows.table
    gaps = "poll_gap_ns" in flows.table
    return (
        weigh(FaultClass.BAD_LINK, not lossy if counted else None,
              "its flows lose no more packets than others" if not lossy else
              f"{len(lossy)} of its flows lose packets", "retransmits"),
        weigh(FaultClass.PFC_STORM, None if facts.links is None or
              "pause_ns" not in facts.links.table else True, "no tree of paused links",
              "pause_ns"),
        weigh(FaultClass.HOST_JITTER, True if gaps else None,
              "pollers at the ends are not away for longer than others", "poll_gap_ns"),
    )  # fmt: skip
