"""Fabric down-rate after failover: flows were moved off a dead part and share the remaining
capacity."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from syntony.model import format_bps
from syntony.model.names import host_of
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import Flows
from syntony.workload.grid import MAD_SIGMA, median
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

LESS = 0.9
"""Ratio of rate after to before, below which capacity is lower."""
SIGMAS = 3.0
"""… and the multiple of the scatter of both medians that the drop must exceed: rates of few windows
differ."""
ACTION = (
    "nothing is broken but the part that was left: repair it, and expect the lower rate until then"
)


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Parts that flows left for good, since when less capacity is available."""
    flows = facts.flows
    if flows is None:
        return []
    moved = _moves(flows)
    groups: dict[str, list[int]] = defaultdict(list)
    left = {flow: _left(flows, flow) for flow in moved}
    votes = Counter(part for parts in left.values() for part in parts)
    dead = _down(facts)
    for flow, parts in left.items():
        if parts:
            best = max(sorted(parts), key=lambda part: (part in dead, votes[part], "/" in part
                                                        and ">" not in part))  # fmt: skip
            groups[best].append(flow)
    findings = [
        _judge(facts, flows, part, members, moved=moved, dead=part in dead)
        for part, members in sorted(groups.items())
    ]
    return [each for each in findings if each is not None]


def _moves(flows: Flows) -> dict[int, int]:
    """Flows that end on another path than they began, with the window of their last move."""
    table = flows.table
    route = np.stack([table.codes(name).codes for name in ("src", "dst", "hops")])
    changed = (route[:, flows.first_row] != route[:, flows.last_row]).any(axis=0)
    found = {}
    for flow in np.flatnonzero(changed):
        rows = np.flatnonzero(flows.of_row == flow)
        rows = rows[np.argsort(table.ints("at_ns")[rows], kind="stable")]
        steps = np.flatnonzero((route[:, rows[1:]] != route[:, rows[:-1]]).any(axis=0))
        found[int(flow)] = int(flows.grid.column[rows[steps[-1] + 1]])
    return found


def _left(flows: Flows, flow: int) -> set[str]:
    """NICs and links that it used before and no longer uses."""
    table = flows.table
    before, after = flows.first_row[flow], flows.last_row[flow]

    def parts(row: int) -> set[str]:
        names = {str(table.codes("src").at(row)), str(table.codes("dst").at(row))}
        return names | set(table.codes("hops").at(row) or ())

    return parts(before) - parts(after)


def _down(facts: BundleFacts) -> set[str]:
    """Links and NICs without carrier at the end, or far below their speed."""
    links = facts.links
    if links is None:
        return set()
    up = links.column("up")
    names = set()
    for row, name in enumerate(links.names):
        known = up[row][np.isfinite(up[row])]
        if len(known) and known[-1] == 0:
            names.add(name)
    return names


def _judge(
    facts: BundleFacts,
    flows: Flows,
    part: str,
    members: list[int],
    *,
    moved: dict[int, int],
    dead: bool,
) -> RuleFinding | None:
    at = int(np.median([moved[flow] for flow in members]))
    places = {str(flows.table.codes(name).at(flows.last_row[flow]))
              for flow in members for name in ("src", "dst")}  # fmt: skip
    sharing = {index for index in range(len(flows))
               if places & {flows.src[index], flows.dst[index]}} | set(members)  # fmt: skip
    before = float(median(flows.rate[members, : max(at, 1)]))
    after = float(median(flows.rate[members, at:]))
    lower = after < LESS * before and (dead or _beyond_scatter(flows, members, at))
    if not lower and not (dead and np.isnan(before)):
        return None
    evidence = [
        Evidence("src, dst, hops", f"{len(members)} flows left {part} and did not return"),
        Evidence("rate_bps", f"they reach {format_bps(after)}, {format_bps(before)} before",
                 after, before),
    ]  # fmt: skip
    if dead:
        evidence.append(Evidence("up", f"{part} has no carrier", 0.0, 1.0))
    return RuleFinding(
        fault=FaultClass.REDUCED_CAPACITY, subjects=(part,), onset_ns=flows.grid.instant(at),
        last_ns=facts.end_ns, confidence=confidence(0.97, dead or None), evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.FLAPPING, True if facts.links else None, "carrier was not lost again"
                  " and again", "links"),
            weigh(FaultClass.CONTENTION, True, "they wait for each other since they were moved"),
        ),
        action=ACTION, flows=frozenset(sharing),
        hosts=frozenset({host_of(part)} if "/" in part else ()),
    )  # fmt: skip


def _beyond_scatter(flows: Flows, members: list[int], at: int) -> bool:
    """Whether the members' rates dropped by more than the scatter of the medians before and
    after."""
    with np.errstate(invalid="ignore", divide="ignore"):
        own = np.log(flows.rate[members] / median(flows.rate[members], axis=1)[:, None])
    level = median(own, axis=0)
    parts = [each[np.isfinite(each)] for each in (level[: max(at, 1)], level[at:])]
    if not all(len(each) for each in parts):
        return False
    middles = [float(np.median(each)) for each in parts]
    scatter = MAD_SIGMA * float(np.median(np.concatenate(
        [np.abs(each - middle) for each, middle in zip(parts, middles, strict=True)])))  # fmt: skip
    # The variance of a median is pi / 2 times that of a mean.
    error = scatter * float(np.sqrt(np.pi / 2 * sum(1 / len(each) for each in parts)))
    return middles[0] - middles[1] > SIGMAS * error
