"""PFC storm: a port pauses its sender, pauses spread up the tree, and flows suffer that do not go
to that port."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np

from syntony.model.names import host_of
from syntony.workload.classes._weigh import weigh
from syntony.workload.device_tables import LinkTable
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import Flows
from syntony.workload.grid import Episode, episodes, median
from syntony.workload.verdict import ECHO, MOST_ALONE, Evidence, FaultClass, RuleFinding, confidence

PAUSED = 0.05
"""Share of a window for which a link is paused from which it is held back, if others are paused
five times less."""
ACTION = (
    "shut the port that the pauses come from, or turn on the PFC watchdog; then look at that NIC"
    " and host: it does not take its packets"
)


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Ports at which trees of paused links end."""
    links, flows = facts.links, facts.flows
    if links is None or flows is None:
        return []
    usual = np.nan_to_num(median(links.pause, axis=0))
    with np.errstate(invalid="ignore"):
        bad = links.pause > np.maximum(PAUSED, np.minimum(5 * usual, 0.9))
    stretches = episodes(bad, np.isfinite(links.pause))
    paused = {links.names[row]: each for row, each in stretches.items()}
    before, after = _neighbours(flows)
    above = {name: {each for each in _inputs(name, before, after)
                    if _mean(links, each, stretch) > PAUSED}
             for name, stretch in paused.items()}  # fmt: skip
    fed = {name for names in above.values() for name in names}
    roots = [name for name in sorted(paused) if above[name] and name not in fed]
    roots = [name for name in roots if not _is_crowded(links, after[name])]
    trees = {root: _tree(root, above) for root in roots}
    rest = paused.keys() - trees.keys() - {link for tree in trees.values() for link in tree}
    held = {root: _held(links, root, paused[root]) for root in roots}
    # Every lossless fabric pauses now and then; a port that accepts nothing stands out.
    roots = [root for root in roots if held[root] >= ECHO * max(held.values())]
    if len(roots) > MOST_ALONE:
        return []
    return [_finding(facts, links, root, paused, trees[root] | rest) for root in roots]


def _is_crowded(links: LinkTable, outputs: set[str]) -> bool:
    """Whether the switch behind a root pauses because it has more to send than these outputs take:
    pauses of all of them are recorded, and they are not paused themselves (or it were no root). A
    NIC has no outputs."""
    return bool(outputs) and all(
        name in links.index and np.isfinite(links.pause[links.index[name]]).any()
        for name in outputs
    )


def _held(links: LinkTable, root: str, stretch: Episode) -> float:
    """Share of the time for which a link is paused, over an episode."""
    return float(median(links.pause[links.index[root], stretch.first : stretch.last + 1]))


def _mean(links: LinkTable, name: str, stretch: Episode) -> float:
    """Share of the time for which a link is paused, by the windows of another one's episode: it may
    be paused in bursts. 0 if unknown."""
    row = links.index.get(name)
    if row is None:
        return 0.0
    pause = links.pause[row, stretch.first : stretch.last + 1]
    known = pause[np.isfinite(pause)]
    return float(known.mean()) if len(known) else 0.0


def _neighbours(flows: Flows) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Links immediately before and after each link, on any path."""
    before: dict[str, set[str]] = defaultdict(set)
    after: dict[str, set[str]] = defaultdict(set)
    for hops in set(flows.hops):
        for one, next_one in pairwise(hops):
            before[next_one].add(one)
            after[one].add(next_one)
    return before, after


def _inputs(link: str, before: dict[str, set[str]], after: dict[str, set[str]]) -> set[str]:
    """Links into the switch that a link leaves: those that feed it or another of its outputs.

    A link that feeds any of them passes through the same switch.
    """
    outputs = {other for one in before[link] for other in after[one]}
    return {one for other in outputs for one in before[other]} - {link}


def _tree(root: str, above: dict[str, set[str]]) -> set[str]:
    """All paused links that lead to the root."""
    tree: set[str] = set()
    edge = {root}
    while edge:
        edge = {one for link in edge for one in above.get(link, ())} - tree - {root}
        tree |= edge
    return tree


def _finding(
    facts: BundleFacts, links: LinkTable, root: str, paused: dict[str, Episode], above: set[str]
) -> RuleFinding:
    flows, stretch = facts.flows, paused[root]
    assert flows is not None  # noqa: S101 - asked before
    tree = {root, *above}
    across = frozenset(index for index, hops in enumerate(flows.hops) if tree & set(hops))
    victims = {each for each in across if root not in flows.hops[each]}
    suffering = victims & flows.late.keys()
    share = _held(links, root, stretch)
    return RuleFinding(
        fault=FaultClass.PFC_STORM, subjects=(root,), onset_ns=links.grid.instant(stretch.first),
        last_ns=links.grid.instant(stretch.last + 1),
        confidence=confidence(stretch.share, bool(suffering) or None),
        evidence=(
            Evidence("pause_ns", f"its sender is paused for {share:.0%} of the time", share, 0.0),
            Evidence("pause_ns", f"{len(above)} links before it are paused as well:"
                     f" {', '.join(sorted(above)[:4])}", float(len(above)), 0.0),
            Evidence("owd_p50_ns", f"{len(suffering)} flows wait that do not cross it"),
        ),
        alternatives=(
            weigh(FaultClass.CONTENTION, True, "senders are paused, up the tree"),
            weigh(FaultClass.BAD_LINK, not across & flows.lossy.keys(), "no packets are lost"
                  if not across & flows.lossy.keys() else "packets are lost as well"),
        ),
        action=ACTION, flows=across,
        hosts=frozenset(host_of(nic) for nic in facts.nic_ends(root)),
    )  # fmt: skip
