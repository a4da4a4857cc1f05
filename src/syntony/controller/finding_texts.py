"""Texts of a finding for the engineer on call. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syntony.fabric.names import ANY, GROUP, link_ends
from syntony.model.findings import Finding

NO_OTHER = ": no other part explains nearly as much"
NOWHERE = (
    "in a part that no path lists by name, most likely a switch that answers no path learner: "
    "look at the counters of such switches, or list their addresses in the topology"
)
"""Text for an unknown component anywhere (``*..*``)."""
MAX_SUSPECTS = 4
"""Maximum suspects with their probabilities; beyond these, only those that name the incident."""
_SUFFERS = {
    "blackhole": ("loses all or nearly all", "lose all or nearly all"),
    "loss": ("loses packets", "lose packets"),
    "delay": ("became slower", "became slower"),
}


def effect_text(found: Finding) -> str:
    """The probes' result, and the length of its window."""
    one, many = _SUFFERS[found.fault]
    paths = f"1 path {one}" if found.paths == 1 else f"{found.paths} paths {many}"
    share = f", {found.flows:.0%} of those across it" if found.flows < 1 else ""
    return f"{paths}{share}, over {found.window}"


def suspects_text(found: Finding) -> str:
    """Suspects with their probabilities, most likely first."""
    odds = found.odds()
    most = max(MAX_SUSPECTS, 1 + found.twins)
    left = len(odds) - most
    more = f" and {left} more" if left > 0 else ""
    return ", ".join(odds[:most]) + more + ("" if found.alternatives else NO_OTHER)


def component_text(found: Finding, names: Iterable[str]) -> Iterator[str]:
    """Explanation of names that are not one component: one of parallel cables; for groups, the
    narrowest."""
    ends = link_ends(found.component)
    if found.one_of > 1 and ends:
        where = f"one of {found.one_of} parallel cables between {ends[0]} and {ends[1]}"
        yield f"{where}: no path tells which, compare their ports' counters"
    groups = sorted((name.count(ANY), name) for name in names if GROUP in name)
    for _, name in groups[:1]:
        near, _, far = name.partition(GROUP)
        known = [end for end in (near, far) if end != ANY]
        if not known:
            yield NOWHERE
            return
        where = f"between {near} and {far}" if len(known) > 1 else f"next to {known[0]}"
        both = ", in both directions" if found.both_ways else ""
        yield f"somewhere {where}{both}: paths there are not learnt part by part"
