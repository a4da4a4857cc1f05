"""Bad link or optics: flows lose packets at one link that is not full."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection

import numpy as np

from syntony.model import S
from syntony.model.names import host_of
from syntony.workload.bundle import Floats, Gap
from syntony.workload.classes._weigh import weigh
from syntony.workload.common_hop import Common, common_hops
from syntony.workload.device_tables import LinkTable
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import LATE_RATIO, Flows, more_than_chance
from syntony.workload.full_links import FULL
from syntony.workload.grid import Flags, episodes, median
from syntony.workload.probe_streams import ProbeStreams
from syntony.workload.verdict import (
    ECHO,
    MOST_ALONE,
    Alternative,
    Evidence,
    FaultClass,
    RuleFinding,
    confidence,
)

MIN_ERRORS = 5.0
"""Symbol errors in a window from which a link counts as corrupting; also above four times the
links' median."""
MIN_WINDOWS = 3
"""Windows in which a flow loses no more than others while they do, from which its links count as
healthy; and in which flows across a link lose more, if it does not count errors: a link stays bad,
a queue overflows now and then."""
ELSEWHERE = 0.1
"""Maximum share of lost probes that did not cross a link that explains them."""
QUEUED = 0.25
"""Ratio of the slowest probes' delay to the waiting time of the flows' packets, from which there is
a queue."""
MIN_PROBED = 2
"""Windows since flows began to lose packets of which probes must be there, if any are recorded:
they come later than what flows report, and tell whether there is a queue."""
MIN_FULL = 3
"""Minimum number of other full links at which nothing is lost, at which neither does one."""
AS_LONG = 0.8
"""Minimum ratio of the waiting time of flows elsewhere that lose nothing to that of lossy ones, at
which a queue does not explain the losses."""
TOGETHER = 0.8
"""Minimum share of the windows with losses of the links to and from a NIC in which both lose, if it
lost its carrier."""
BY_CHANCE = 20
"""… and the minimum number of ways to choose these windows: losses of two cables coincide by chance
once in so many times."""
RECOVERS_NS = 3 * S
"""Time after a loss of carrier in which TCP still sends again what it lost."""
ACTION = "clean and reseat both ends, then replace the cable or module; drain the link until then"


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Links at which flows lose packets."""
    flows = facts.flows
    if flows is None:
        return []
    dirty = _dirty(facts.links) if facts.links is not None else {}
    found = []
    commons = _commons(facts, flows, dirty.keys())
    named = {link for common in commons for link in common.links}
    commons += [common for link in sorted(dirty.keys() - named)
                if (common := _pooled(flows, link)) is not None]  # fmt: skip
    for common in commons:
        finding = _judge(facts, flows, common, dirty)
        if finding is not None:
            found.append(finding)
    found = _without_flaps(facts, flows, found)
    uncounted = [each for each in found if not _counts(each)]
    # A queue that overflows is likelier than several faulty cables at once.
    return found if len(uncounted) <= MOST_ALONE else [each for each in found if _counts(each)]


def _without_flaps(facts: BundleFacts, flows: Flows, found: list[RuleFinding]) -> list[RuleFinding]:
    """Without links to and from one NIC that lose in the same few windows, if carriers are not
    recorded: it may have lost its carrier, for example for a planned change."""
    if facts.links is not None and "downs" in facts.links.table:
        return found
    flaps = [(one, two) for one, two in itertools.permutations(found, 2)
             if {flows.dst[each] for each in one.flows} == {flows.src[each] for each in two.flows}
             and _lose_together(flows, one, two)]  # fmt: skip
    for one, _ in flaps:
        nic = flows.dst[min(one.flows)]
        reason = f"to and from {nic} packets are lost at the same times only"
        facts.gaps.append(Gap("links", reason, "whether it lost its carrier or has a bad cable"))
    gone = {id(each) for pair in flaps for each in pair}
    return [each for each in found if id(each) not in gone or _counts(each)]


def _lose_together(flows: Flows, one: RuleFinding, two: RuleFinding) -> bool:
    """Whether the flows of both lose in the same windows, at most half of those from the first to
    the last of these, and hardly by chance."""
    lost = [{*np.flatnonzero(np.nansum(flows.retransmits[sorted(each.flows)], axis=0)).tolist()}
            for each in (one, two)]  # fmt: skip
    same, either = lost[0] & lost[1], lost[0] | lost[1]
    windows = max(either) - min(either) + 1
    return (
        len(same) >= TOGETHER * len(either) and 2 * len(same) <= windows
        and math.comb(windows, len(same)) >= BY_CHANCE
    )  # fmt: skip


def _counts(finding: RuleFinding) -> bool:
    return any(each.signal == "symbol_errors" for each in finding.evidence)


def _planned(facts: BundleFacts, flows: Flows) -> set[int]:
    """Flows of ports that a planned change took down, which explains their losses."""
    links = facts.links
    if links is None:
        return set()
    downs = np.where(links.planned, np.nan_to_num(links.column("downs", "sum")), 0.0)
    down = {links.names[row] for row in np.flatnonzero(downs.sum(axis=1))}
    return {flow for flow, ends in enumerate(zip(flows.src, flows.dst, strict=True))
            if not down.isdisjoint(ends)}  # fmt: skip


def _commons(facts: BundleFacts, flows: Flows, dirty: Collection[str]) -> list[Common]:
    """Links that lossy flows share. One lossy flow is enough if a link counts errors, or if probes
    between the same NICs are lost as well."""
    lossy = flows.lossy.keys() - _planned(facts, flows) - _answers(flows)
    if not lossy:
        return []
    first = min(flows.lossy[each].first for each in lossy)
    last = max(flows.lossy[each].last for each in lossy)
    known = np.isfinite(flows.retransmits[:, first : last + 1]).sum(axis=1)
    healthy = {int(each) for each in np.flatnonzero(known >= MIN_WINDOWS)} - flows.lossy.keys()
    worst = _worst(flows, lossy)
    commons = common_hops(flows.hops, worst, healthy | (lossy - worst))
    covered = {flow for common in commons for flow in common.flows}
    commons += common_hops(flows.hops, lossy - covered, healthy)
    covered |= {flow for common in commons for flow in common.flows}
    span = flows.grid.instant(first), flows.grid.instant(last + 1)
    probed = _lossy_pairs(facts, *span)
    alone = common_hops(flows.hops, lossy - covered, healthy, at_least=1)
    if facts.probes is not None:
        commons, alone = ([_by_probes(facts.probes, flows, each, span) for each in some]
                          for some in (commons, alone))  # fmt: skip
    counts = {each for each in (*commons, *alone) if not set(each.links).isdisjoint(dirty)}
    return [each for each in commons if each in counts or _confirmed(facts, flows, each, span)] + [
        each for each in alone
        if each in counts
        or all((flows.src[flow], flows.dst[flow]) in probed for flow in each.flows)
    ]  # fmt: skip


def _by_probes(probes: ProbeStreams, flows: Flows, common: Common, span: tuple[int, int]) -> Common:
    """With those of its links that may lose the probes between the NICs of its flows. If none may,
    because some flows took a detour over unknown links, with those of the probes that may."""
    streams = _streams(probes, flows, common)
    most = ELSEWHERE * probes.counts(streams, *span)[0]

    def explains(link: str) -> bool:
        return probes.counts(streams - probes.across[link], *span)[0] <= most

    crossed = sorted({link for each in streams for link in probes.hops[each]})
    if most == 0 or not crossed:
        return common
    even = [link for link in common.links if not _loses_unevenly(probes, link, span)]
    may = even or [link for link in crossed if not _loses_unevenly(probes, link, span)]
    links = [link for link in may if explains(link)] or even
    return common._replace(links=tuple(links)) if links else common


def _streams(probes: ProbeStreams, flows: Flows, common: Common) -> set[int]:
    """Streams of probes between the NICs of flows."""
    pairs = {(flows.src[each], flows.dst[each]) for each in common.flows}
    return {each for pair in pairs for each in probes.streams.get(pair, ())}


def _loses_unevenly(probes: ProbeStreams, link: str, span: tuple[int, int]) -> bool:
    """Whether probes across a link that avoid some other link are lost far less often than all
    across it: a link loses of all packets alike."""
    across = probes.across.get(link, set())
    lost, sent = probes.counts(across, *span)
    if not lost or not sent:  # how many were sent may not be recorded
        return False
    for other in {each for stream in across for each in probes.hops[stream]}:
        own, count = probes.counts(across - probes.across[other], *span)
        if more_than_chance(lost / sent * count, own):
            return True
    return False


def _worst(flows: Flows, lossy: Collection[int]) -> set[int]:
    """Flows that send again, while they lose, at least `ECHO` times as much as the second worst.
    Compared with these the others are healthy: a link loses of each flow, not hundreds of one and a
    few of another."""
    sent = {each: float(np.nanmean(flows.retransmits[each, stretch.first : stretch.last + 1]))
            for each, stretch in flows.lossy.items() if each in lossy}  # fmt: skip
    level = sorted(sent.values())[-min(2, len(sent))]
    return {each for each, count in sent.items() if count >= ECHO * level}


def _answers(flows: Flows) -> set[int]:
    """Flows with few retransmissions whose acknowledgements share the path of a flow with far more
    retransmissions: their acknowledgements are lost, not their packets."""
    sent = np.nansum(flows.retransmits, axis=1)
    worst: dict[tuple[str, str], float] = {}
    for flow in flows.lossy:
        pair = flows.src[flow], flows.dst[flow]
        worst[pair] = max(worst.get(pair, 0.0), float(sent[flow]))
    return {flow for flow in flows.lossy
            if sent[flow] < ECHO * worst.get((flows.dst[flow], flows.src[flow]), 0.0)}  # fmt: skip


def _confirmed(facts: BundleFacts, flows: Flows, common: Common, span: tuple[int, int]) -> bool:
    """Whether retransmissions of these flows may be due to a link. TCP loses packets in every queue
    that it fills, so more probes between the same NICs must be lost as well than between most, if
    they are recorded."""
    proto = flows.table.codes("proto")
    if facts.probes is None or "lost" not in facts.probes.table:
        return True
    if any(proto.at(flows.last_row[each]) != "tcp" for each in common.flows):
        return True
    lost = facts.probes.losses(*span)
    pairs = {(flows.src[each], flows.dst[each]) for each in common.flows} & lost.keys()
    return more_than_chance(sum(lost[each] for each in pairs), len(pairs) * _usual(lost))


def _usual(lost: dict[tuple[str, str], float]) -> float:
    """Lost probes of most pairs of NICs."""
    return float(np.quantile([*lost.values()], 0.25, method="lower")) if lost else 0.0


def _lossy_pairs(facts: BundleFacts, begin_ns: int, last_ns: int) -> set[tuple[str, str]]:
    """Pairs of NICs with more lost probes than most pairs, sender first."""
    lost = {} if facts.probes is None else facts.probes.losses(begin_ns, last_ns)
    usual = _usual(lost)
    return {pair for pair, count in lost.items() if more_than_chance(count, usual)}


def _probes_wait(
    facts: BundleFacts, flows: Flows, common: Common, span: tuple[int, int]
) -> bool | None:
    """Whether the slowest probes between the NICs of flows wait about as long as these: some of
    their ports take the same links, all of those compared if paths are known. None: unknown, or
    packets are no slower than before."""
    if facts.probes is None:
        return None
    rows, grid, common_links = sorted(common.flows), flows.grid, set(common.links)
    part = slice(*((each - grid.begin_ns) // grid.width_ns for each in span))
    excess = float(median(median(flows.excess[rows, part], axis=1)))
    streams = sorted(_streams(facts.probes, flows, common))
    across = [each for each in streams if not common_links.isdisjoint(facts.probes.hops[each])]
    longest = facts.probes.longest(across or streams, *span)
    if not longest or not excess > (LATE_RATIO - 1) * float(median(flows.reference[rows])):
        return None
    return longest >= QUEUED * excess


def _too_few_probes(
    facts: BundleFacts, flows: Flows, common: Common, span: tuple[int, int]
) -> bool:
    """Whether probes between the NICs of flows are recorded, but hardly any since then."""
    if facts.probes is None:
        return False
    streams = _streams(facts.probes, flows, common)
    return bool(streams) and facts.probes.windows(streams, *span) < MIN_PROBED


def _others_wait(flows: Flows, common: Common, span: tuple[int, int]) -> bool:
    """Whether most flows elsewhere wait as long and lose nothing: then it is not the queue that
    loses the packets of these."""
    part = flows.during(*span)
    others = [each for each in range(len(flows))
              if each not in common.flows and each not in flows.lossy]  # fmt: skip
    rows = sorted(common.flows)
    own, usual = (median(median(flows.excess[each][:, part], axis=1)) for each in (rows, others))
    return bool(usual >= AS_LONG * own > 0)


def _others_full(facts: BundleFacts, flows: Flows, span: tuple[int, int]) -> bool:
    """Whether other links are full as well, and no flow across them loses packets."""
    clean = [link for link, across in flows.across.items() if across.isdisjoint(flows.lossy)]
    return sum((facts.use(link, *span) or 0.0) >= FULL for link in clean) >= MIN_FULL


def _pooled(flows: Flows, link: str) -> Common | None:
    """A link that counts errors, if the flows across it together lose more than by chance."""
    across = [index for index, hops in enumerate(flows.hops) if link in hops]
    if not across:
        return None
    lost = np.nansum(flows.retransmits, axis=1)
    elsewhere = np.delete(lost, across)
    usual = float(elsewhere.mean()) if len(elsewhere) else 0.0
    if not more_than_chance(float(lost[across].sum()), usual * len(across)):
        return None
    return Common((link,), frozenset(across), 0)


def _bursts(facts: BundleFacts, flows: Flows, common: Common) -> int:
    """Windows in which one of these flows loses more packets than usual, and no port of the links
    has just lost its carrier: that loses packets as well."""
    sent = np.nan_to_num(flows.retransmits[sorted(common.flows & flows.lossy.keys())])
    more: Flags = np.any(sent > flows.usual_losses, axis=0)
    for row in _downs(facts, common.links):
        for window in np.flatnonzero(np.nan_to_num(row)).tolist():
            assert facts.links is not None  # noqa: S101 - its rows
            at_ns = facts.links.grid.instant(window)
            more[flows.during(at_ns - flows.grid.width_ns, at_ns + RECOVERS_NS)] = False
    return int(more.sum())


def _downs(facts: BundleFacts, links: tuple[str, ...]) -> list[Floats]:
    """Losses of carrier in each window of the ports of these links, and of NICs at their ends,
    where they are recorded."""
    known = facts.links
    if known is None or "downs" not in known.table:
        return []
    downs = known.column("downs", "sum")
    ports = {name for link in links for name in (link, *facts.nic_ends(link))}
    return [row for port in sorted(ports) if (row := known.row(downs, port)) is not None]


def _dirty(links: LinkTable) -> dict[str, float]:
    """Links that count errors, with their median per window."""
    usual = np.nan_to_num(median(links.errors, axis=0))
    with np.errstate(invalid="ignore"):
        bad = links.errors > MIN_ERRORS + 4 * usual
    return {links.names[row]: float(median(links.errors[row, each.first : each.last + 1]))
            for row, each in episodes(bad, np.isfinite(links.errors)).items()}  # fmt: skip


def _span(facts: BundleFacts, link: str) -> tuple[int, int]:
    """Begin and end of the time in which a link counts errors."""
    links = facts.links
    assert links is not None  # noqa: S101 - a link that counts errors
    shown = np.flatnonzero(np.nan_to_num(links.errors[links.index[link]]) > MIN_ERRORS)
    return links.grid.instant(int(shown[0])), links.grid.instant(int(shown[-1]) + 1)


def _judge(
    facts: BundleFacts, flows: Flows, common: Common, dirty: dict[str, float]
) -> RuleFinding | None:
    lossy = common.flows & flows.lossy.keys()
    if (
        lossy
        and dirty.keys().isdisjoint(common.links)
        and _bursts(facts, flows, common) < MIN_WINDOWS
    ):
        return None
    begin_ns, last_ns, share = (facts.joint(lossy, flows.lossy) if lossy
                                else (*_span(facts, common.links[0]), 0.9))  # fmt: skip
    counted = tuple(link for link in common.links if link in dirty)
    links = counted or common.links
    use = facts.use(links[0], begin_ns, last_ns)
    waiting = common.flows & flows.late.keys()
    queued = _probes_wait(facts, flows, common, (begin_ns, last_ns))
    if queued and _others_wait(flows, common, (begin_ns, last_ns)):
        queued = False
    if not counted and _too_few_probes(facts, flows, common, (begin_ns, last_ns)):
        return None
    most_wait = len(waiting) > len(common.flows) / 2
    full = most_wait if queued is None else queued
    if use is not None:
        full = most_wait and use >= FULL
    if queued is None and most_wait and _counts_none(facts, links):
        full = True  # links that lose packets of which none is corrupt
    if full and not counted:
        return None  # a queue that overflows: packets wait before they are lost
    lost = float(np.nansum(flows.retransmits[sorted(common.flows)]))
    usual = float(flows.usual_losses.sum()) * len(common.flows)
    evidence = [Evidence(
        "retransmits", f"{len(common.flows)} flow{'s' * (len(common.flows) > 1)} across it sent"
        f" {lost:.0f} packets again, as many other flows {usual:.0f}", lost, usual)]  # fmt: skip
    if counted:
        evidence.append(Evidence(
            "symbol_errors", f"it counts {dirty[counted[0]]:.0f} symbol errors a window",
            dirty[counted[0]], 0.0))  # fmt: skip
    if use is not None:
        evidence.append(Evidence("utilisation", f"used to {use:.0%}", use, FULL))
    low = None if queued is None else not queued
    if use is not None:
        low = use < FULL or _others_full(facts, flows, (begin_ns, last_ns))
    waits = bool(waiting) and queued is not False
    delays = bool(np.isfinite(flows.delay[sorted(common.flows)]).any())
    # What counts no errors does not corrupt packets; it may lose them, if they do not wait.
    shown = True if counted else False if _counts_none(facts, links) and not delays else None
    return RuleFinding(
        fault=FaultClass.BAD_LINK, subjects=links, onset_ns=begin_ns, last_ns=last_ns,
        confidence=confidence(share, shown, low, len(links) == 1 or None),
        evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.CONTENTION, not waits if delays else None,
                  f"{len(waiting)} of its flows wait as well"
                  if waits else "probes between the same NICs do not wait" if waiting else
                  "packets do not wait: the median delay is as before", "owd_p50_ns"),
            _carrier(facts, links),
        ),
        action=ACTION, flows=common.flows,
        hosts=frozenset(host_of(flows.src[each]) for each in common.flows),
    )  # fmt: skip


def _counts_none(facts: BundleFacts, names: tuple[str, ...]) -> bool:
    """Whether the errors of all these links are recorded."""
    links = facts.links
    if links is None:
        return False
    rows = [links.row(links.errors, each) for each in names]
    return all(row is not None and bool(np.isfinite(row).any()) for row in rows)


def _carrier(facts: BundleFacts, links: tuple[str, ...]) -> Alternative:
    """Whether its port, or that of a NIC at its end, loses carrier."""
    if facts.links is None or "downs" not in facts.links.table:
        return weigh(FaultClass.FLAPPING, None, "", "downs")
    most = max((float(np.nansum(row)) for row in _downs(facts, links)), default=0.0)
    return weigh(FaultClass.FLAPPING, not most, "its carrier was not lost" if not most
                 else f"its carrier was lost {most:.0f} times")  # fmt: skip
