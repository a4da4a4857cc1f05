"""Flapping NIC or port: repeated loss of carrier, or reduced speed, without a planned change."""

from __future__ import annotations

import numpy as np

from syntony.model import HOUR_NS, S
from syntony.model.names import host_of
from syntony.workload.bundle import Floats
from syntony.workload.classes._weigh import weigh
from syntony.workload.device_tables import LinkTable
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import Flags, episodes
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

SOON_NS, SOON = 60 * S, 2
"""This many losses of carrier within a minute (taxonomy)."""
LONG_NS, OFTEN = HOUR_NS, 8
"""… or this many within an hour (taxonomy)."""
SLOWER = 0.95
"""Share of its nominal speed below which a port has lost lanes."""
ACTION = "drain the port; clean and reseat the cable, then replace it, then the far port"


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Ports that flap or have trained below their speed."""
    links = facts.links
    if links is None:
        return []
    downs = np.where(links.planned, 0.0, np.nan_to_num(links.column("downs", "sum")))
    flaps = {int(row): times for row in np.flatnonzero(downs.sum(axis=1) >= SOON)
             if (times := _flaps(links, downs[row])) is not None}  # fmt: skip
    found = [_finding(facts, links, group, flaps) for group in _ports(facts, links, [*flaps])]
    slow = _slower(links)
    rest = _ports(facts, links, [row for row in slow if row not in flaps])
    return found + [_finding(facts, links, group, slow, slower=True) for group in rest]


def _flaps(links: LinkTable, downs: Floats) -> tuple[int, int, float] | None:
    """Begin, end and number of losses of carrier, if they are too many."""
    at = np.flatnonzero(downs)
    instants = links.grid.begin_ns + at * links.grid.width_ns
    counted = np.cumsum(downs[at])
    for within_ns, limit in ((SOON_NS, SOON), (LONG_NS, OFTEN)):
        before = np.searchsorted(instants, instants - within_ns)
        if (counted - np.where(before > 0, counted[before - 1], 0) >= limit).any():
            return int(instants[0]), int(instants[-1]) + links.grid.width_ns, float(counted[-1])
    return None


def _slower(links: LinkTable) -> dict[int, tuple[int, int, float]]:
    speed, nominal = links.column("speed_bps"), links.column("nominal_bps")
    with np.errstate(invalid="ignore", divide="ignore"):
        bad: Flags = (speed < SLOWER * nominal) & ~links.planned
        share = np.where(nominal > 0, speed / nominal, np.nan)
    return {
        row: (links.grid.instant(each.first), links.grid.instant(each.last + 1),
              float(np.nanmedian(share[row, each.first :])))
        for row, each in episodes(bad, np.isfinite(speed) & np.isfinite(nominal)).items()
    }  # fmt: skip


def _ports(facts: BundleFacts, links: LinkTable, rows: list[int]) -> list[list[str]]:
    """A NIC and its links in both directions count as one port."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        name = links.names[row]
        ends = [nic for nic in facts.nics if name == nic] or facts.nic_ends(name)
        groups.setdefault(ends[0] if len(ends) == 1 else name, []).append(name)
    return [[owner, *sorted(set(names) - {owner})] if owner in facts.nics else names
            for owner, names in sorted(groups.items())]  # fmt: skip


def _finding(
    facts: BundleFacts,
    links: LinkTable,
    group: list[str],
    reported: dict[int, tuple[int, int, float]],
    slower: bool = False,
) -> RuleFinding:
    rows = [links.index[name] for name in group if links.index.get(name) in reported]
    begin_ns = min(reported[row][0] for row in rows)
    last_ns = max(reported[row][1] for row in rows)
    amount = max(reported[row][2] for row in rows)
    touched, errors = _touched(facts, group, begin_ns, last_ns)
    text = (
        f"trained at {amount:.0%} of its speed" if slower
        else f"carrier lost {amount:.0f} times in {(last_ns - begin_ns) / S:.0f} s"
    )  # fmt: skip
    evidence = [Evidence("speed_bps" if slower else "downs", text, amount, 1.0 if slower else 0.0)]
    if errors:
        evidence.append(Evidence("cqe_errors", f"{errors:.0f} completions with errors on its flows",
                                 errors, 0.0))  # fmt: skip
    return RuleFinding(
        fault=FaultClass.FLAPPING, subjects=(group[0],), onset_ns=begin_ns, last_ns=last_ns,
        confidence=confidence(0.98, bool(touched) or None), evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.REDUCED_CAPACITY, True, "the port itself comes and goes"
                  if not slower else "the port itself lost speed"),
            weigh(FaultClass.BAD_LINK, True, "carrier or speed is lost, not single packets"),
        ),
        action=ACTION, flows=frozenset(touched), hosts=frozenset(
            {host_of(group[0])} if "/" in group[0] else ()),
    )  # fmt: skip


def _touched(
    facts: BundleFacts, group: list[str], begin_ns: int, last_ns: int
) -> tuple[set[int], float]:
    """Flows across the port, and their failed completions in that time."""
    flows = facts.flows
    if flows is None:
        return set(), 0.0
    parts = set(group)
    touched = {index for index, hops in enumerate(flows.hops)
               if parts & {*hops, flows.src[index], flows.dst[index]}}  # fmt: skip
    at_ns = flows.table.ints("at_ns")
    during = np.isin(flows.of_row, list(touched)) & (at_ns >= begin_ns) & (at_ns <= last_ns)
    return touched, float(np.nansum(flows.table.numbers("cqe_errors")[during]))
