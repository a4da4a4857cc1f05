"""One direction of a cable or both, where only some of the paths across them suffer. Pure.

The name of a link may stand for several parallel cables of which one is faulty. Some paths suffer
as they would at a part of their own, the others not at all, and to a search each of these speaks
against the part. It is left with the direction of which by chance the larger share suffers, and
what suffers in the other direction stays unexplained. Whether that is more than elsewhere decides
between the direction and the cable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from syntony.fabric.tally import Crossings, Floats, Index

MIN_PATHS = 2
"""With fewer affected paths it is unknown whether all would be."""


class Cable(NamedTuple):
    """A cable between switches, seen from one of its directions; candidates."""

    other: int
    """The other direction."""
    whole: int


class Amiss(NamedTuple):
    """The paths of one window that suffer, and how many do not."""

    crossings: Crossings
    """What each path that suffers crosses, (n, width), -1 for nothing."""
    paths: int
    """That were measured, whether they suffer or not."""
    well: Callable[[Index], Floats]
    """Candidates, (n,) → how many paths across each do not suffer, (n,)."""
    plain: bool
    """Whether a path across what is faulty could hardly be well."""


def odds_of_both(amiss: Amiss, link: int, cable: Cable, found: Collection[int]) -> float:
    """Log-odds that a fault is one of both directions of a cable, rather than of one.

    Of one direction its own paths suffer at one rate, and of the other as many as anywhere without
    a fault; of both, the same share of either. Paths that cross both say nothing, as do those that
    something else explains. Where nothing suffers in the other direction, one of parallel cables
    may be faulty only if paths across the link are plainly well, or a single one suffers.

    Args:
        amiss: one kind of suffering.
        link: the direction that was found.
        cable: its other direction, and both together.
        found: all that was found in this window.
    """
    across, back = ((amiss.crossings == each).any(axis=1) for each in (link, cable.other))
    explained = np.isin(amiss.crossings, [each for each in found if each != link]).any(axis=1)
    well, well_back, well_both = amiss.well(np.array([link, cable.other, cable.whole])).tolist()
    one = float(np.count_nonzero(across & ~back))
    two = float(np.count_nonzero(back & ~across & ~explained))
    well_one, well_two = well_both - well_back, well_both - well
    # As many as elsewhere, and half a path: none is no proof that there never is one.
    elsewhere = np.count_nonzero(~across & ~back & ~explained) + 0.5
    usual = elsewhere / (amiss.paths + 1)
    if not two and not (amiss.plain and (well_one > 0 or one < MIN_PATHS)):
        return -np.inf
    together = _best(one + two, well_one + well_two)
    back_alone = two * np.log(usual) + well_two * np.log1p(-usual)
    return together - _best(one, well_one) - float(back_alone)


def _best(amiss: float, well: float) -> float:
    """Log-likelihood of so many paths, in one order, at the one share that fits best."""
    every = amiss + well
    return sum(each * float(np.log(each / every)) for each in (amiss, well) if each > 0)
