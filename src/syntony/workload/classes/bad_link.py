"""Bad link or optics: flows lose packets at one link that is not full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from syntony.workload.classes._weigh import weigh
from syntony.workload.classes.contention import FULL
from syntony.workload.common_hop import Common, common_hops
from syntony.workload.flows import Flows, more_than_chance
from syntony.workload.grid import episodes, median
from syntony.workload.verdict import (
    MOST_ALONE,
    Alternative,
    Evidence,
    FaultClass,
    RuleFinding,
    confidence,
)

if TYPE_CHECKING:
    from syntony.workload.facts import BundleFacts
    from syntony.workload.ports import Links

MIN_ERRORS = 5.0
"""Symbol errors in a window, above four times the links' median, from which a link corrupts."""
ACTION = "clean and reseat both ends, then replace the cable or module; drain the link until then"


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Links at which flows lose packets."""
    flows = facts.flows
    if flows is None:
        return []
    seen = np.flatnonzero(np.isfinite(flows.retransmits).sum(axis=1) >= 3)
    healthy = {int(each) for each in seen} - flows.lossy.keys()
    dirty = _dirty(facts.links) if facts.links is not None else {}
    found = []
    commons = _commons(flows, flows.lossy.keys() - _planned(facts, flows), healthy, dirty.keys())
    named = {link for common in commons for link in common.links}
    commons += [common for link in sorted(dirty.keys() - named)
                if (common := _pooled(flows, link)) is not None]  # fmt: skip
    for common in commons:
        finding = _judge(facts, flows, common, dirty)
        if finding is not None:
            found.append(finding)
    uncounted = [each for each in found if not _counts(each)]
    # Buffers overflow before many links alike; so many cables do not break.
    return found if len(uncounted) <= MOST_ALONE else [each for each in found if _counts(each)]


def _counts(finding: RuleFinding) -> bool:
    return any(each.signal == "symbol_errors" for each in finding.evidence)


def _planned(facts: BundleFacts, flows: Flows) -> set[int]:
    """Flows of ports that a planned change took down: they lose packets by it."""
    links = facts.links
    if links is None:
        return set()
    downs = np.where(links.planned, np.nan_to_num(links.column("downs", "sum")), 0.0)
    down = {links.names[row] for row in np.flatnonzero(downs.sum(axis=1))}
    return {flow for flow, ends in enumerate(zip(flows.src, flows.dst, strict=True))
            if not down.isdisjoint(ends)}  # fmt: skip


def _commons(flows: Flows, lossy: set[int], healthy: set[int], dirty: object) -> list[Common]:
    """Links that lossy flows share; one lossy flow is enough where a link counts errors."""
    commons = common_hops(flows.hops, lossy, healthy)
    covered = {flow for common in commons for flow in common.flows}
    alone = common_hops(flows.hops, lossy - covered, healthy, at_least=1)
    return commons + [each for each in alone
                      if any(link in dirty for link in each.links)]  # type: ignore[operator] # fmt: skip


def _pooled(flows: Flows, link: str) -> Common | None:
    """A link that counts errors, if the flows across it together lose more than chance."""
    across = [index for index, hops in enumerate(flows.hops) if link in hops]
    if not across:
        return None
    lost = np.nansum(flows.retransmits, axis=1)
    elsewhere = np.delete(lost, across)
    usual = float(elsewhere.mean()) if len(elsewhere) else 0.0
    if not more_than_chance(float(lost[across].sum()), usual * len(across)):
        return None
    return Common((link,), frozenset(across), 0)


def _dirty(links: Links) -> dict[str, float]:
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
    begin_ns, last_ns, share = (facts.joint(lossy, flows.lossy) if lossy
                                else (*_span(facts, common.links[0]), 0.9))  # fmt: skip
    counted = tuple(link for link in common.links if link in dirty)
    links = counted or common.links
    use = facts.use(links[0], begin_ns, last_ns)
    waiting = common.flows & flows.late.keys()
    full = use is None or use >= FULL
    if full and len(waiting) > len(common.flows) / 2 and not counted:
        return None  # a queue that overflows: packets wait before they are lost
    lost = float(np.nansum(flows.retransmits[sorted(common.flows)]))
    usual = float(flows.usual_losses.sum()) * len(common.flows)
    evidence = [Evidence(
        "retransmits", f"{len(common.flows)} flows across it sent {lost:.0f} packets again, as many"
        f" others {usual:.0f}", lost, usual)]  # fmt: skip
    if counted:
        evidence.append(Evidence(
            "symbol_errors", f"it counts {dirty[counted[0]]:.0f} symbol errors a window",
            dirty[counted[0]], 0.0))  # fmt: skip
    if use is not None:
        evidence.append(Evidence("utilisation", f"used to {use:.0%}", use, FULL))
    low = None if use is None else use < FULL
    return RuleFinding(
        fault=FaultClass.BAD_LINK, subjects=links, onset_ns=begin_ns, last_ns=last_ns,
        confidence=confidence(share, True if counted else None, low, len(links) == 1 or None),
        evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.CONTENTION, not waiting, "packets do not wait: the median delay is as"
                  " before" if not waiting else f"{len(waiting)} of its flows wait as well"),
            _carrier(facts, links),
        ),
        action=ACTION, flows=common.flows,
        hosts=frozenset(flows.src[each].split("/")[0] for each in common.flows),
    )  # fmt: skip


def _carrier(facts: BundleFacts, links: tuple[str, ...]) -> Alternative:
    """Whether its port, or that of a NIC at its end, comes and goes."""
    known = facts.links
    if known is None or "downs" not in known.table:
        return weigh(FaultClass.FLAPPING, None, "", "downs")
    downs = known.column("downs", "sum")
    ports = {name for link in links for name in (link, *facts.nic_ends(link))}
    rows = [row for name in ports if (row := known.row(downs, name)) is not None]
    most = max((float(np.nansum(row)) for row in rows), default=0.0)
    return weigh(FaultClass.FLAPPING, not most, "its carrier was not lost" if not most
                 else f"its carrier was lost {most:.0f} times")  # fmt: skip
