"""Which components became slower, from one window's delays; see `syntony.fabric.delay_search`.
Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from syntony.fabric.crossed import PathCrossings
from syntony.fabric.delay_search import LATE_SIGMAS, MIN_PATHS, MIN_SIGMA_NS, DelayFinding
from syntony.fabric.delay_suspects import DelaySuspects
from syntony.fabric.effort import CUT, Effort
from syntony.fabric.tally import Floats

STRICTNESS = 6.0
"""As in `syntony.fabric.loss_search`; higher, because medians have heavier tails than counts."""
UNEVEN = 0.1, 0.3
"""Relative spread of a delay between paths across one slow component: a queue, and a busy host that
adds to it, differ from path to path. The second value is used if the first explains too little, or
needs too many components."""
FEW = 3
"""This many delays at once are normal."""


class SlowParts(NamedTuple):
    """What explains the delays of one window."""

    findings: list[DelayFinding]
    """Most certain first."""
    unexplained: int = 0
    """Late paths for which no cause was found because the work is limited."""


def find_delays(
    crossed: PathCrossings,
    change_ns: Floats,
    sigma_ns: Floats,
    penalty: Floats,
    *,
    threshold: float = STRICTNESS,
    effort: Effort | None = None,
) -> SlowParts:
    """Find the components that explain the changes.

    Args:
        crossed: what each path crosses; a clock once on paths towards it, -1 times on paths from
            it.
        change_ns: median delay minus the path's own baseline; NaN where not measured. (paths,)
        sigma_ns: 1-sigma of each change by measurement alone (clock error), (paths,).
        penalty: as `syntony.fabric.loss.LossSearch`; (candidates,).
        threshold: as there.
        effort: limit on the work; None: none.
    """
    if not is_any_late(crossed, change_ns, sigma_ns):
        return SlowParts([])
    price = penalty + threshold
    return _simplest(
        lambda uneven: DelaySuspects(crossed, change_ns, sigma_ns, price, uneven, effort=effort)
    )


def _simplest(begin: Callable[[float], DelaySuspects]) -> SlowParts:
    """The result with the first value of `UNEVEN`, or with the second where that needs fewer
    components, unless only its search was cut. Most windows do not need the second search."""
    even = begin(UNEVEN[0])
    even.search()
    even.doubt()
    if (even.found <= FEW and not even.left_over()) or not even.may_search():
        return _of(even)
    uneven = begin(UNEVEN[1])
    uneven.search(even.found)
    uneven.doubt()
    may_replace = even.is_cut or not uneven.is_cut
    if not 0 < uneven.found < even.found or uneven.left_over():
        even.search_from_others()
    chosen = uneven if may_replace and 0 < uneven.found < even.found else even
    chosen.is_cut = even.is_cut or uneven.is_cut
    return _of(chosen)


def _of(search: DelaySuspects) -> SlowParts:
    findings = search.findings()
    if not search.is_cut:
        return SlowParts(findings)
    return SlowParts([_less_sure(each) for each in findings], search.unexplained)


def _less_sure(found: DelayFinding) -> DelayFinding:
    return found._replace(
        confidence=CUT * found.confidence,
        probabilities=tuple(CUT * each for each in found.probabilities),
    )


def is_any_late(crossed: PathCrossings, change_ns: Floats, sigma_ns: Floats) -> bool:
    """Whether enough paths of any component are late (or early); arguments as `find_delays`."""
    # Most of a fleet's paths are unchanged: those are not examined further.
    moved = np.flatnonzero(np.abs(change_ns) > LATE_SIGMAS * MIN_SIGMA_NS)
    clear = np.abs(change_ns[moved]) / np.maximum(sigma_ns[moved], MIN_SIGMA_NS) > LATE_SIGMAS
    moved = moved[clear & np.isfinite(change_ns[moved])]
    _, candidate, _ = crossed.entries_of(moved)
    return bool(len(candidate)) and bool(np.bincount(candidate).max() >= MIN_PATHS)
