"""Bad link or optics: flows lose packets at one link that is not full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from syntony.workload.classes._weigh import weigh
from syntony.workload.classes.contention import FULL
from syntony.workload.common_hop import Common, common_hops
from syntony.workload.grid import episodes, median
from syntony.workload.verdict import Evidence, FaultClass, Finding, confidence

if TYPE_CHECKING:
    from syntony.workload.facts import Facts
    from syntony.workload.flows import Flows
    from syntony.workload.ports import Links

MIN_ERRORS = 5.0
"""Symbol errors in a window, above four times the links' median, from which a link corrupts."""
ACTION = "clean and reseat both ends, then replace the cable or module; drain the link until then"


def find(facts: Facts) -> list[Finding]:
    """Links at which flows lose packets."""
    flows = facts.flows
    if flows is None or not flows.lossy:
        return []
    seen = np.flatnonzero(np.isfinite(flows.retransmits).sum(axis=1) >= 3)
    healthy = {int(each) for each in seen} - flows.lossy.keys()
    dirty = _dirty(facts.links) if facts.links is not None else {}
    found = []
    for common in _commons(flows, healthy, dirty.keys()):
        finding = _judge(facts, flows, common, dirty)
        if finding is not None:
            found.append(finding)
    return found


def _commons(flows: Flows, healthy: set[int], dirty: object) -> list[Common]:
    """Links that lossy flows share; one lossy flow is enough where a link counts errors."""
    commons = common_hops(flows.hops, flows.lossy.keys(), healthy)
    covered = {flow for common in commons for flow in common.flows}
    alone = common_hops(flows.hops, flows.lossy.keys() - covered, healthy, at_least=1)
    return commons + [each for each in alone
                      if any(link in dirty for link in each.links)]  # type: ignore[operator] # fmt: skip


def _dirty(links: Links) -> dict[str, float]:
    """Links that count errors, with their median per window."""
    usual = np.nan_to_num(median(links.errors, axis=0))
    with np.errstate(invalid="ignore"):
        bad = links.errors > MIN_ERRORS + 4 * usual
    return {links.names[row]: float(median(links.errors[row, each.first : each.last + 1]))
            for row, each in episodes(bad, np.isfinite(links.errors)).items()}  # fmt: skip


def _judge(facts: Facts, flows: Flows, common: Common, dirty: dict[str, float]) -> Finding | None:
    begin_ns, last_ns, share = facts.joint(common.flows, flows.lossy)
    counted = tuple(link for link in common.links if link in dirty)
    links = counted or common.links
    use = facts.use(links[0], begin_ns, last_ns)
    waiting = common.flows & flows.late.keys()
    if use is not None and use >= FULL and len(waiting) > len(common.flows) / 2 and not counted:
        return None
    lost = float(np.median([flows.mean_over(flows.retransmits, each, flows.lossy[each])
                            for each in common.flows]))  # fmt: skip
    evidence = [Evidence(
        "retransmits", f"{len(common.flows)} flows across it send {lost:.0f} packets a window again,"
        " others do not", lost, float(median(flows.retransmits)))]  # fmt: skip
    if counted:
        evidence.append(Evidence(
            "symbol_errors", f"it counts {dirty[counted[0]]:.0f} symbol errors a window",
            dirty[counted[0]], 0.0))  # fmt: skip
    if use is not None:
        evidence.append(Evidence("utilisation", f"used to {use:.0%}", use, FULL))
    low = None if use is None else use < FULL
    return Finding(
        fault=FaultClass.BAD_LINK, subjects=links, onset_ns=begin_ns, last_ns=last_ns,
        confidence=confidence(share, True if counted else None, low, len(links) == 1 or None),
        evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.CONTENTION, not waiting, "packets do not wait: the median delay is as"
                  " before" if not waiting else f"{len(waiting)} of its flows wait as well"),
            weigh(FaultClass.FLAPPING, None if facts.links is None or "downs" not in
                  facts.links.table else True, "its carrier was not lost", "downs"),
        ),
        action=ACTION, flows=common.flows,
        hosts=frozenset(flows.src[each].split("/")[0] for each in common.flows),
    )  # fmt: skip
