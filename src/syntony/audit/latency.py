"""Checks cabling by delay, which grows equally with the number of hops for all pairs. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from syntony.audit.pairs import MIN_CLASS

MADS = 3.0
"""A pair is off the line beyond so many median absolute deviations."""
MIN_SHARE = 0.05
"""And beyond this share of the fitted delay: identical delays have no deviation to speak of."""
MIN_PAIRS = 8
"""Fewer do not fix a line."""


class HopFit(NamedTuple):
    """Linear fit of latency: delay = base + hops × per hop."""

    base_ns: float
    per_hop_ns: float
    spread_ns: float
    """Median absolute deviation from it."""


class MiscabledNic(NamedTuple):
    """A NIC most of whose pairs do not fit the line."""

    nic: str
    hops: float
    """Extra hops (fewer, if negative) that its delays correspond to."""
    pairs: int
    """Number of pairs whose delays deviate."""
    tested: int


def fit(hops: Mapping[tuple[str, str], int], floor_ns: Mapping[tuple[str, str], float]) -> HopFit:
    """The line through the median floor of each number of hops, weighted by its pairs.

    Args:
        hops: pair to how many there should be.
        floor_ns: pair to its smallest delay.

    Raises:
        ValueError: fewer than `MIN_PAIRS`, or one number of hops only.
    """
    import numpy as np

    by_hops: dict[int, list[float]] = defaultdict(list)
    for pair, ns in floor_ns.items():
        by_hops[hops[pair]].append(ns)
    classes = {count: each for count, each in by_hops.items() if len(each) >= MIN_CLASS}
    if len(classes) < 2 or len(floor_ns) < MIN_PAIRS:
        raise ValueError("two classes of hops with three pairs each are needed")
    counts = np.array(sorted(classes), dtype=float)
    medians = np.array([statistics.median(classes[int(count)]) for count in counts])
    weights = np.sqrt([len(classes[int(count)]) for count in counts])
    slope, base = np.polyfit(counts, medians, 1, w=weights)
    off = [abs(ns - base - slope * hops[pair]) for pair, ns in floor_ns.items()]
    return HopFit(float(base), float(slope), statistics.median(off))


def misplaced_nics(
    hops: Mapping[tuple[str, str], int], floor_ns: Mapping[tuple[str, str], float]
) -> list[MiscabledNic]:
    """NICs that are not where they should be, by the delays of most of their pairs.

    A swapped cable makes pairs with near NICs too long and with far ones too short; a detour or an
    extra hop makes all too long. Raises `ValueError` as `fit`.
    """
    line = fit(hops, floor_ns)
    wrong: dict[str, list[float]] = defaultdict(list)
    tested: dict[str, int] = defaultdict(int)
    for pair, ns in floor_ns.items():
        expected_ns = line.base_ns + line.per_hop_ns * hops[pair]
        residual_ns = ns - expected_ns
        limit_ns = max(MADS * line.spread_ns, MIN_SHARE * expected_ns)
        for nic in pair:
            tested[nic] += 1
            if abs(residual_ns) > limit_ns:
                wrong[nic].append(residual_ns)
    found = []
    for nic, residuals in wrong.items():
        if 2 * len(residuals) > tested[nic]:
            extra = statistics.median(residuals) / line.per_hop_ns if line.per_hop_ns else 0.0
            found.append(MiscabledNic(nic, round(extra, 1), len(residuals), tested[nic]))
    return sorted(found, key=lambda off: (-off.pairs / off.tested, off.nic))
