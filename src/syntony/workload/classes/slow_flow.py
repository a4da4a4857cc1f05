"""Slow flow: one flow delayed or slow while its siblings are not (94 µs among 4 µs)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from syntony.model import format_bps, format_ns
from syntony.model.names import host_of
from syntony.workload.bundle import Gap
from syntony.workload.classes._weigh import weigh
from syntony.workload.classes.contention import suspects
from syntony.workload.classes.slow_receiver import BLOCKED, TIMES
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import (
    ALWAYS_SENDS,
    LATE_RATIO,
    LIKE,
    MIN_LIKE,
    MUCH_ALWAYS,
    SLOW_RATE,
    SLOW_RATIO,
    Flows,
    low_delay,
    more_than_chance,
)
from syntony.workload.grid import (
    MAD_SIGMA,
    Episode,
    Flags,
    N,
    episode,
    median,
    median_of,
    significant_episodes,
)
from syntony.workload.verdict import (
    ALIKE,
    ECHO,
    MOST_ALONE,
    Alternative,
    Evidence,
    FaultClass,
    RuleFinding,
    confidence,
)

SIGMAS = 3.0
"""Minimum distance of a slow flow's rate, in units of the scatter of similar flows' rates."""
MOST_LATE = 0.34
"""Maximum share of its siblings that may be delayed as well."""
LITTLE = 0.1
"""… by more than this share of its own delay."""
STAYS = 0.1
"""Quantile of its delays that must be beyond the limit."""
STEADY = 0.4
"""… and the minimum ratio of that to their median: a queue of bursts drains between them."""
LONGEST = 0.99
"""Quantile of its siblings' delays that counts as their longest."""
MUCH = 5.0
"""Ratio of its delay to its siblings' that is a fault even if the flow has their rate, as far as
known. A job's own bursts cause less (94 µs among 4 µs is 23 times)."""
MIN_BEFORE = 3
"""Windows from which a flow's earlier rate is known."""
ACTION = (
    "move the flow to another path or source port; if it stays slow there, look at its queue pair"
    " and at rate limits on it"
)


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Flows that are slow while similar flows are not."""
    if facts.flows is None:
        return []
    # What waits in bursts of its own job at its NIC has no other name.
    shared = {flow for common in facts.late_hops if any(suspects(facts, common))
              for flow in common.flows}  # fmt: skip
    shared |= {flow for each in facts.full_links if each.strangers
               for flow in each.flows - facts.beyond_queues.keys()}  # fmt: skip
    slow = _slow_rates(facts.flows)
    found = []
    for flow in sorted((facts.flows.late.keys() | slow.keys()) - shared):
        own = flow in facts.beyond_queues
        if _waits_for_answers(facts.flows, flow) or (
            not own and _waits_in_company(facts.flows, flow, shared)
        ):
            continue
        if _is_held_back(facts.flows, flow) or _others_fell_silent(facts.flows, flow):
            continue
        if flow not in facts.flows.late and (company := _slow_in_company(facts.flows, flow, slow)):
            facts.gaps.append(_gap(facts.flows, flow, company))
            continue
        finding = _judge(facts, facts.flows, flow, slow)
        if finding is not None and _probes_wait(facts, facts.flows, flow, finding):
            name = facts.flows.names[flow]
            facts.gaps.append(Gap("flows", f"{name} is slow, and probes on its path wait as well",
                                  "which link they wait at"))  # fmt: skip
        elif finding is not None:
            found.append(finding)
    worst = max((each.excess_ns for each in found), default=0.0)
    alone = [each for each in found if each.excess_ns >= ECHO * worst]
    alike = _alike(facts, facts.flows, found, slow, shared)
    return found if len(alone) <= MOST_ALONE and alike <= MOST_ALONE else []


def _waits_in_company(flows: Flows, flow: int, shared: Collection[int] = ()) -> bool:
    """Whether a late flow shares a link with one that waits about as long when both send.

    Then there is a queue for both, even if the other one is less certain, or was seen later. Flows
    in `shared` do not count: they wait at a link that this one does not cross.
    """
    if flow not in flows.late:
        return False
    stretch = flows.late[flow]
    part = slice(stretch.first, stretch.last + 1)
    if np.isfinite(flows.delay[flow, : stretch.first]).sum() < MIN_BEFORE:
        return _always_in_company(flows, flow, part, shared)
    least = ALIKE * flows.mean_over(flows.excess, flow, stretch)
    sent = part.start + np.flatnonzero(np.isfinite(flows.delay[flow, part]))
    waits = 2 * flows.waiting[:, sent].sum(axis=1) >= np.isfinite(flows.delay[:, sent]).sum(axis=1)
    with np.errstate(invalid="ignore"):
        as_long = median(flows.excess[:, sent], axis=1) >= least
    own = set(flows.hops[flow])
    return any(each != flow and int(each) not in shared and not own.isdisjoint(flows.hops[each])
               for each in np.flatnonzero(waits & as_long))  # fmt: skip


def _is_held_back(flows: Flows, flow: int) -> bool:
    """Whether a late flow waits in a host, and its receiver holds back what is sent to it: too
    little yet to be named a slow receiver."""
    if flow not in flows.late:
        return False
    part = flows.late[flow].part
    into = [each for each, dst in enumerate(flows.dst) if dst == flows.dst[flow]]
    held = bool((np.nan_to_num(flows.blocked[into, part]) > BLOCKED).any())
    return held and flows.waits_in_hosts(flow, part)


def _others_fell_silent(flows: Flows, flow: int) -> bool:
    """Whether of the other flows across a link of a late one, which were recorded before (beside
    it, if it was), nothing is in most of its windows now: they may wait there as well. Earlier
    connections between its NICs, which ended before it began, do not count."""
    if flow not in flows.late:
        return False
    part, known = flows.late[flow].part, np.isfinite(flows.delay)
    now, before = known[flow, part], known[flow, : part.start]
    if not before.any():
        before = np.ones_like(before)
    began = int(np.argmax(known[flow]))
    own = {each for each in np.flatnonzero(~known[:, began:].any(axis=1)).tolist()
           if (flows.src[each], flows.dst[each]) == (flows.src[flow], flows.dst[flow])}  # fmt: skip
    for link in flows.hops[flow]:
        others: Flags = np.any(known[sorted(flows.across[link] - {flow} - own)], axis=0)
        if (
            2 * (others[: part.start] & before).sum() > before.sum()
            and 2 * (others[part] & now).sum() < now.sum()
        ):
            return True
    return False


def _always_in_company(flows: Flows, flow: int, part: slice, shared: Collection[int]) -> bool:
    """As `_waits_in_company`, of a flow that has always waited: others may have as well, so that
    they do not exceed what is usual for them. Delays are compared with the shortest for a link."""
    links = np.array([max(1, len(hops)) for hops in flows.hops])
    shortest = np.nanmin(low_delay(flows.delay) / links)
    sent = part.start + np.flatnonzero(np.isfinite(flows.delay[flow, part]))
    waits = median(flows.delay[:, sent], axis=1) - shortest * links
    own = set(flows.hops[flow])
    return any(
        each != flow and each not in shared and not own.isdisjoint(flows.hops[each])
        and waits[each] >= ALIKE * waits[flow] for each in range(len(flows))
    )  # fmt: skip


def _slow_in_company(flows: Flows, flow: int, slow: dict[int, Episode]) -> list[int]:
    """Flows that cross a link or NIC of one that only sends slower, and do as well at the same
    time: it is not that flow alone, even if nothing tells what it is."""

    def parts(each: int) -> set[str]:
        return {flows.src[each], flows.dst[each], *flows.hops[each]}

    stretch, own = slow[flow], parts(flow)
    return [each for each, other in slow.items()
            if each != flow and each not in flows.late and not own.isdisjoint(parts(each))
            and other.first <= stretch.last and stretch.first <= other.last]  # fmt: skip


def _gap(flows: Flows, flow: int, company: list[int]) -> Gap:
    others = ", ".join(flows.names[each] for each in company[:3])
    reason = f"{flows.names[flow]} sends slower, as does {others}, which has a link or NIC of it"
    return Gap("flows", reason, "what they wait for")


def _waits_for_answers(flows: Flows, flow: int) -> bool:
    """Whether only round trips are known of a late flow, and the other direction of its connection
    waits with others about as long: round trips include that.

    A direction that waits much longer than the flows it shares a link with is slow by itself.
    """
    back = flows.way_back.get(flow)
    if back is None or flow not in flows.late or flows.measured(flow, flows.late[flow]):
        return False
    return _waits_in_company(flows, back)


def _alike(
    facts: BundleFacts,
    flows: Flows,
    found: list[RuleFinding],
    slow: dict[int, Episode],
    shared: set[int],
) -> int:
    """Flows that wait at least half as long as the worst of these, or, if none of these waits,
    whose rate lags at least half as far behind, whatever else applies to them. Flows that have
    always done so are left out if the worst began to do so."""
    size, stretches = _lag(flows, slow), slow
    if any(each.excess_ns > 0 for each in found):
        stretches = {each: flows.late[each] for each in flows.late.keys() - shared}
        size = {each: flows.mean_over(flows.excess, each, stretch)
                for each, stretch in stretches.items()}  # fmt: skip
    sizes = [(size.get(flow, 0.0), each.onset_ns) for each in found for flow in each.flows]
    worst, onset_ns = max(sizes, default=(0.0, 0))
    return sum(
        size[each] >= ALIKE * worst
        and (onset_ns <= facts.early_ns or flows.grid.instant(stretch.first) > facts.early_ns)
        for each, stretch in stretches.items()
    )


def _lag(flows: Flows, slow: dict[int, Episode]) -> dict[int, float]:
    """Logarithmic lag of flows behind their siblings' rates."""
    lag = {}
    for flow in slow:
        own, usual = median_of(flows.rate[flow]), median_of(flows.typical(flows.rate, flow))
        lag[flow] = float(np.log(max(usual, 1.0) / max(own, 1.0)))
    return lag


def _slow_rates(flows: Flows) -> dict[int, Episode]:
    """Flows slower than their siblings, and when."""
    low = np.zeros(flows.rate.shape, dtype=bool)
    with np.errstate(invalid="ignore", divide="ignore"):
        for group in np.unique(flows.like):
            members = flows.like == group
            if members.sum() >= MIN_LIKE:
                part = np.log(flows.rate[members] / median(flows.rate[members], axis=0))
                own = median(part, axis=1)[:, None]
                noise = float(median(np.abs(part - own))) * MAD_SIGMA
                low[members] = part < min(np.log(SLOW_RATE), -SIGMAS * noise)
    return significant_episodes(low, np.isfinite(flows.rate))


def _judge(
    facts: BundleFacts, flows: Flows, flow: int, slow: dict[int, Episode]
) -> RuleFinding | None:
    own = facts.beyond_queues.get(flow)
    stretch = own or (_worst_part(flows, flow) if flow in flows.late else slow[flow])
    part = slice(stretch.first, stretch.last + 1)
    delay, usual = (
        median_of(flows.delay[flow, part]),
        median_of(flows.typical(flows.delay, flow)[part]),
    )
    rate, usual_rate = (
        median_of(flows.rate[flow, part]),
        median_of(flows.typical(flows.rate, flow)[part]),
    )
    known = flows.delay[flow, part][np.isfinite(flows.delay[flow, part])]
    # In most of its windows: a queue comes and goes, but a cause that slows one flow alone stays.
    least = float(np.quantile(known, STAYS)) if len(known) else 0.0
    waits, normal, longest = delay, max(usual, float(flows.reference[flow])), 0.0
    if not least > SLOW_RATIO * normal:
        waits, (normal, longest) = least, _extremes(flows, flow, part)
    delayed = own is not None or (
        bool(len(known)) and least > max(SLOW_RATIO * normal, longest, STEADY * delay)
    )
    alone = (
        flow in slow and _became_slow(facts, flows, flow, stretch)
        and not _has_less_to_send(flows, flow, stretch) and not _was_brief(flows, flow, stretch)
        and not _alternates(flows, flow, part)
    )  # fmt: skip
    slowed = rate < SLOW_RATE * usual_rate and (delayed or alone)
    before = np.isfinite(flows.delay[flow, : stretch.first]).sum() >= MIN_BEFORE
    much = waits >= (MUCH if before else MUCH_ALWAYS) * normal
    far = own is not None and least >= MUCH * abs(float(flows.reference[flow]))
    if not (slowed or (delayed and (much or far))):
        return None
    apart = delayed and (own is not None or least > SLOW_RATIO * _extremes(flows, flow, part)[1])
    if not _siblings_alike(flows, flow, part, rates=not delayed, apart=apart):
        return None
    evidence = []
    if delayed:
        evidence.append(Evidence(
            "owd_p50_ns", f"{flows.delay_name(flow, stretch)} {format_ns(delay)}, its siblings"
            f" {format_ns(usual)}", delay, usual))  # fmt: skip
        evidence += _probe_delay_ns(facts, flows, flow, stretch)
    if np.isfinite(rate) and np.isfinite(usual_rate):
        evidence.append(Evidence(
            "rate_bps", f"{format_bps(rate)}, its siblings {format_bps(usual_rate)}", rate,
            usual_rate))  # fmt: skip
    begin_ns, last_ns = facts.span(stretch)
    ends = flows.leaving(host_of(flows.src[flow])) | flows.entering(
        host_of(flows.dst[flow]))  # fmt: skip
    others = sum(int(each) in flows.late for each in np.flatnonzero(ends) if each != flow)
    both = True if delayed and slowed else None
    return RuleFinding(
        fault=FaultClass.SLOW_FLOW, subjects=(flows.names[flow],), onset_ns=begin_ns,
        last_ns=last_ns, confidence=confidence(stretch.share, both), evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.CONTENTION, True, "no link of its path delays another flow"
                  if own is None else "no queue on its path is as long: flows that cross it wait"
                  " less than half as long"),
            _losses(flows, flow),
            _receiver(flows, flow, part),
            weigh(FaultClass.HOST_JITTER, not others, "other flows of both hosts are not delayed"
                  if not others else f"{others} other flows of its hosts are delayed as well"),
        ),
        action=ACTION, flows=frozenset({flow}),
        hosts=frozenset({host_of(flows.src[flow]), host_of(flows.dst[flow])}),
        direct=own is not None,
    )  # fmt: skip


def _alternates(flows: Flows, flow: int, part: slice) -> bool:
    """Whether a flow is so much faster between its slow windows that on average it is not slow."""
    own, usual = flows.rate[flow, part], flows.typical(flows.rate, flow)[part]
    both = np.isfinite(own) & np.isfinite(usual)
    return bool(own[both].sum() >= SLOW_RATE * usual[both].sum())


def _losses(flows: Flows, flow: int) -> Alternative:
    """Whether its losses may explain its slowness."""
    lost = flows.retransmits[flow]
    if not np.isfinite(lost).any():
        return weigh(FaultClass.BAD_LINK, None, "", "retransmits")
    total, usual = float(np.nansum(lost)), float(flows.usual_losses.sum())
    if flow in flows.lossy or more_than_chance(total, usual):
        return weigh(FaultClass.BAD_LINK, False, f"it sends {total:.0f} packets again")
    return weigh(FaultClass.BAD_LINK, True, "it loses no more packets than others" if total
                 else "it loses no packets")  # fmt: skip


def _receiver(flows: Flows, flow: int, part: slice) -> Alternative:
    """Whether its receiver may be slow: one flow that waits for the receiver does not prove it."""
    own, usual = (
        median_of(flows.blocked[flow, part]),
        median_of(flows.typical(flows.blocked, flow)[part]),
    )
    if not np.isfinite(own):
        return weigh(FaultClass.SLOW_RECEIVER, None, "", "credit_blocked_ns")
    waits = own > max(BLOCKED, TIMES * np.nan_to_num(usual))
    return weigh(FaultClass.SLOW_RECEIVER, not waits,
                 f"its sender waits for its credit or window {own:.0%} of the time, as others do"
                 if not waits else f"its sender waits {own:.0%} of the time for the receiver's"
                 f" credit or window, others {np.nan_to_num(usual):.0%}")  # fmt: skip


def _worst_part(flows: Flows, flow: int) -> Episode:
    """The part of its episode in which a late flow waits about as long as it ever does, if that is
    most of it: before, it may have waited a little in bursts of the job's own."""
    stretch, excess = flows.late[flow], flows.excess[flow]
    part = slice(stretch.first, stretch.last + 1)
    known = np.isfinite(excess)
    level = ECHO * float(np.quantile(excess[part][known[part]], 1 - STAYS))
    worst = episode(known & (excess > level) & flows.waiting[flow], known)
    if worst is None or 2 * (worst.last - worst.first) < stretch.last - stretch.first:
        return stretch
    return worst


def _extremes(flows: Flows, flow: int, part: slice) -> tuple[float, float]:
    """The shortest and the longest delays of a flow's siblings, in ns. In a job whose flows always
    wait for each other, a cause of its own adds to all delays of one: even its shortest exceed the
    longest of the others, and by far their shortest."""
    others = flows.delay[_peers(flows, flow), part]
    others = others[np.isfinite(others)]
    if not len(others):
        return float("inf"), float("inf")
    low, high = (float(each) for each in np.quantile(others, (STAYS, LONGEST)))
    return max(low, float(flows.reference[flow])), high


def _probe_delay_ns(
    facts: BundleFacts, flows: Flows, flow: int, stretch: Episode
) -> list[Evidence]:
    """Delay of probes between the same NICs in the same direction at the same time."""
    if facts.probes is None:
        return []
    streams = facts.probes.streams.get((flows.src[flow], flows.dst[flow]), [])
    probed = facts.probes.level(streams, *facts.span(stretch))
    if probed is None:
        return []
    return [Evidence("probes", f"probes between the same NICs {format_ns(probed)}", probed)]


def _probes_wait(facts: BundleFacts, flows: Flows, flow: int, finding: RuleFinding) -> bool:
    """Whether probes on the path of a slow flow began to wait as well, half as long as it: in a
    queue of their path, across which no other flow shows it."""
    probes, begin_ns = facts.probes, finding.onset_ns
    if probes is None:
        return False
    on_path = [each for each in probes.streams.get((flows.src[flow], flows.dst[flow]), [])
               if probes.hops[each] == flows.hops[flow]]  # fmt: skip
    before, now = (probes.level(on_path, *span) for span in (
        (facts.begin_ns, begin_ns), (begin_ns, finding.last_ns)))  # fmt: skip
    if before is None or now is None or begin_ns <= facts.early_ns:
        return False
    return now >= LATE_RATIO * before and now - before >= ALIKE * finding.excess_ns


def _became_slow(facts: BundleFacts, flows: Flows, flow: int, stretch: Episode) -> bool:
    """Whether a low rate is particular to the flow: it was higher before, or channels between the
    same hosts have more. Elsewhere in a ring or pipeline rates differ.

    An episode of a channel that lagged as much before is scatter: all of the recording counts. It
    may have slower ports, unless one between the same NICs has more, or ports have one speed."""
    first, after = stretch.first, slice(stretch.first, None)
    before = flows.rate[flow, :first]
    known = np.isfinite(before).sum() >= MIN_BEFORE
    siblings = flows.siblings == flows.siblings[flow]
    if siblings.sum() < MIN_LIKE:
        return bool(known and median_of(flows.rate[flow, after]) < SLOW_RATE * median_of(before))
    with np.errstate(invalid="ignore", divide="ignore"):
        lag = flows.rate[flow] / flows.typical(flows.rate, flow)
    if known and median_of(lag[first : stretch.last + 1]) * LIKE < median_of(lag[:first]):
        return True
    siblings[flow] = False
    own = flows.src[flow], flows.dst[flow]
    between = [each for each in np.flatnonzero(siblings)
               if (flows.src[each], flows.dst[each]) == own]  # fmt: skip
    with np.errstate(invalid="ignore", divide="ignore"):
        lag = lag if not between else flows.rate[flow] / median(flows.rate[between], axis=0)
    alike = between or _ports_alike(facts, flow, np.flatnonzero(siblings).tolist())
    return bool(alike and (not known or median_of(lag) < SLOW_RATE))


def _ports_alike(facts: BundleFacts, flow: int, others: list[int]) -> bool:
    """Whether the ports of a flow are known to be no slower than those of most others."""
    own, *rest = (facts.port_bps(each) for each in (flow, *others))
    return own * LIKE >= median_of(np.array(rest))


def _has_less_to_send(flows: Flows, flow: int, stretch: Episode) -> bool:
    """Whether a flow of low rate sends for no longer than its siblings, nor, compared with them,
    than before. What slows a flow does not change what it has to send, so it sends for longer; a
    flow that always sends cannot. False if bytes are not recorded."""
    share = flows.sending[flow]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = share / flows.typical(flows.sending, flow)
    now = median_of(ratio[stretch.part])
    longer = now >= LIKE or now >= LIKE * median_of(ratio[: stretch.first])
    return bool(median_of(share[stretch.part]) < ALWAYS_SENDS and np.isfinite(now) and not longer)


def _was_brief(flows: Flows, flow: int, stretch: Episode) -> bool:
    """Whether a flow had a low rate in fewer than `N` windows and is as fast as others again:
    channels share their NIC by turns."""
    known = np.isfinite(flows.rate[flow])
    return bool(known[stretch.part].sum() < N and known[stretch.last + 1 :].sum() >= N)


def _peers(flows: Flows, flow: int) -> Flags:
    """Its siblings, or the flows over as many hops if it has too few."""
    peers: Flags = flows.siblings == flows.siblings[flow]
    if peers.sum() < MIN_LIKE:
        peers = flows.like == flows.like[flow]
    peers[flow] = False
    return peers


def _siblings_alike(flows: Flows, flow: int, part: slice, *, rates: bool, apart: bool) -> bool:
    """Whether most similar flows are not delayed (or, for a flow that is slow by its rate, have one
    rate); otherwise this flow does not stand out, unless it waits far longer than all (`apart`)."""
    others = list(np.flatnonzero(_peers(flows, flow)))
    if len(others) < 3:
        return False
    excess = median(flows.excess[:, part], axis=1)
    little = LITTLE * excess[flow]
    late = sum(int(row) in flows.late and not excess[row] < little for row in others)
    if late > MOST_LATE * len(others) and not apart:
        return False
    rate = np.array([median_of(flows.rate[row, part]) for row in others])
    rate = rate[np.isfinite(rate)]
    if not rates or not len(rate):
        return True
    off = np.abs(np.log(np.maximum(rate, 1) / max(float(np.median(rate)), 1)))
    return bool(np.mean(off < np.log(LIKE)) > 0.5)
