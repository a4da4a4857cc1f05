"""Which components became slower, from one window's delays; see `syntony.fabric.delay_search`.
Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from syntony.fabric.crossed import PathCrossings
from syntony.fabric.delay_search import LATE_SIGMAS, MIN_PATHS, MIN_SIGMA_NS, DelayFinding
from syntony.fabric.delay_suspects import DelaySuspects
from syntony.fabric.tally import Floats

STRICTNESS = 6.0
"""As in `syntony.fabric.loss_search`; higher, because medians have heavier tails than counts."""
UNEVEN = 0.1, 0.3
"""Relative spread of a delay between paths across one slow component: a queue, and a busy host that
adds to it, differ from path to path. The second value is used if the first explains too little, or
needs too many components."""
FEW = 3
"""This many delays at once are normal."""


def find_delays(
    crossed: PathCrossings,
    change_ns: Floats,
    sigma_ns: Floats,
    penalty: Floats,
    *,
    threshold: float = STRICTNESS,
) -> list[DelayFinding]:
    """Find the components that explain the changes, most certain first.

    Args:
        crossed: what each path crosses; a clock once on paths towards it, -1 times on paths from
            it.
        change_ns: median delay minus the path's own baseline; NaN where not measured. (paths,)
        sigma_ns: 1-sigma of each change by measurement alone (clock error), (paths,).
        penalty: as `syntony.fabric.loss.LossSearch`; (candidates,).
        threshold: as there.
    """
    if not is_any_late(crossed, change_ns, sigma_ns):
        return []
    return _simplest(partial(DelaySuspects, crossed, change_ns, sigma_ns, penalty + threshold))


def _simplest(begin: Callable[[float], DelaySuspects]) -> list[DelayFinding]:
    """The result with the first value of `UNEVEN`, or with the second where that needs fewer
    components. Most windows do not need the second search."""
    even = begin(UNEVEN[0])
    even.search()
    even.doubt()
    if even.found <= FEW and not even.left_over():
        return even.findings()
    uneven = begin(UNEVEN[1])
    uneven.search(even.found)
    uneven.doubt()
    if not 0 < uneven.found < even.found or uneven.left_over():
        even.search_from_others()
    return (uneven if 0 < uneven.found < even.found else even).findings()


def is_any_late(crossed: PathCrossings, change_ns: Floats, sigma_ns: Floats) -> bool:
    """Whether enough paths of any component are late (or early); arguments as `find_delays`."""
    # Most of a fleet's paths are unchanged: those are not examined further.
    moved = np.flatnonzero(np.abs(change_ns) > LATE_SIGMAS * MIN_SIGMA_NS)
    clear = np.abs(change_ns[moved]) / np.maximum(sigma_ns[moved], MIN_SIGMA_NS) > LATE_SIGMAS
    moved = moved[clear & np.isfinite(change_ns[moved])]
    _, candidate, _ = crossed.entries_of(moved)
    return bool(len(candidate)) and bool(np.bincount(candidate).max() >= MIN_PATHS)
