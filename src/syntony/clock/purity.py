"""Coded probes: two sent back to back that arrive as far apart as they left met the same queue.

Huygens (NSDI'18, section 3.2) keeps only such pairs. From 80 % load on hardly any are left, so here
purity does not decide: it sorts probes into classes, and the estimator learns from the window how
often each class is at the floor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Instants = NDArray[np.int64]

CLASS_EDGES_NS = np.array([16, 64, 256, 1_024, 4_096], dtype=np.int64)
"""Change of a pair's spacing that separates the classes: from hardware noise to kernel noise."""
UNPAIRED = len(CLASS_EDGES_NS) + 1
"""Class of a probe whose partner is missing."""
CLASSES = UNPAIRED + 1


def purity_classes(tx: Instants, rx: Instants, pair: Instants | None) -> NDArray[np.intp]:
    """Class of every probe of one direction, shape (n,): 0 is purest.

    Args:
        tx: stamps of leaving, (n,).
        rx: stamps of arriving, (n,), on another clock; drift over a pair's spacing is negligible.
        pair: number of each probe's pair, (n,); a number held by other than two probes is no pair.
    """
    classes = np.full(len(tx), UNPAIRED, dtype=np.intp)
    if pair is None or len(pair) < 2:
        return classes
    order = np.argsort(pair, kind="stable")
    same = np.zeros(len(pair) + 1, dtype=np.bool_)  # as the one before
    same[1:-1] = pair[order[1:]] == pair[order[:-1]]
    first = np.flatnonzero(same[1:-1] & ~same[:-2] & ~same[2:])
    one, two = order[first], order[first + 1]
    change = np.abs((rx[two] - rx[one]) - (tx[two] - tx[one]))
    found = np.searchsorted(CLASS_EDGES_NS, change, side="right")
    classes[one] = found
    classes[two] = found
    return classes
