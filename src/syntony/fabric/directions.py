"""Decide between one direction of a cable and both if only some of the paths across it suffer.
Pure.

The name of a link may stand for several parallel cables of which one is faulty. Then some paths
suffer as they would at a single component and the others do not, and a search counts each of these
as evidence against the component. It is left with the direction of which by chance the larger share
suffers, and the suffering paths of the other direction stay unexplained. Whether these are more
than elsewhere decides between the direction and the cable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from syntony.fabric.tally import Crossings, Floats, Index

MIN_PATHS = 2
"""With fewer affected paths it is unknown whether all would be affected."""


class CableDirections(NamedTuple):
    """A cable between switches, seen from one of its directions; candidate numbers."""

    other: int
    """The other direction."""
    whole: int


class AffectedPaths(NamedTuple):
    """The affected paths of one window, and the number of those that are not."""

    crossings: Crossings
    """What each affected path crosses, (n, width), -1 for none."""
    paths: int
    """Number of paths that were measured, affected or not."""
    well: Callable[[Index], Floats]
    """Candidates, (n,) → number of unaffected paths across each, (n,)."""
    plain: bool
    """Whether a path across the fault could hardly be unaffected."""


def odds_of_both(
    amiss: AffectedPaths, link: int, cable: CableDirections, found: Collection[int]
) -> float:
    """Log-odds that a fault is in both directions of a cable rather than in one.

    For a fault in one direction, its own paths suffer at one rate and those of the other direction
    as often as anywhere without a fault. For a fault in both, the same share of either suffers.
    Paths that cross both are ignored, as are those that something else explains. If no path of the
    other direction suffers, one of parallel cables is considered only if paths across the link are
    clearly unaffected, or a single one suffers.

    Args:
        amiss: paths affected by one kind of fault.
        link: the direction that was found.
        cable: its other direction, and both together.
        found: all findings of this window.
    """
    across, back = ((amiss.crossings == each).any(axis=1) for each in (link, cable.other))
    explained = np.isin(amiss.crossings, [each for each in found if each != link]).any(axis=1)
    well, well_back, well_both = amiss.well(np.array([link, cable.other, cable.whole])).tolist()
    one = float(np.count_nonzero(across & ~back))
    two = float(np.count_nonzero(back & ~across & ~explained))
    well_one, well_two = well_both - well_back, well_both - well
    # The share elsewhere, plus half a path: none observed does not mean impossible.
    elsewhere = np.count_nonzero(~across & ~back & ~explained) + 0.5
    usual = elsewhere / (amiss.paths + 1)
    if not two and not (amiss.plain and (well_one > 0 or one < MIN_PATHS)):
        return -np.inf
    together = _best(one + two, well_one + well_two)
    back_alone = two * np.log(usual) + well_two * np.log1p(-usual)
    return together - _best(one, well_one) - float(back_alone)


def _best(amiss: float, well: float) -> float:
    """Log-likelihood of these counts, in one order, at the share that fits best."""
    every = amiss + well
    return sum(each * float(np.log(each / every)) for each in (amiss, well) if each > 0)
