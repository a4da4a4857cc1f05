"""Whether losses may be put in the wrong place because the map is stale. Pure.

Switches send flows elsewhere at once; the map says so some seconds later. What flows lose meanwhile
on their new paths is counted on the paths before. Two signs of that:

- Paths turn: where some have, others have that are not learnt yet.
- Losses single out flows. A link that loses a share of its packets loses about that share of every
  flow. Where some flows lose and the others lose nothing, either a switch drops single flows, or
  those that lose are not there any more.
"""

from __future__ import annotations

from math import lgamma, log, log1p
from typing import NamedTuple

import numpy as np

from syntony.fabric.locate import OVER_NATS
from syntony.fabric.tally import Ints

HOLD_S = 6
"""Agents trace at once what loses packets; silent hops, answers and rows take up to this long."""
AGAIN_S = 60
"""A link that lost before, within so long, and does again has outlived a stale map: one that loses
in bursts is reported at the second one. A switch is not: with a stale map any of its links that
loses makes it look so, again and again."""
TURNING_S = 3
"""Between two reports of paths that turned for one reason: agents report once a second."""
TURNING_SHARE = 0.01
MIN_TURNING = 3
"""Of all paths, those that turned within a second; fewer are no change of routes."""


class Losing(NamedTuple):
    """Since when a part has been found to lose packets, in seconds of the watch."""

    first: int
    """With pauses of up to `AGAIN_S`."""
    since: int
    """Without any but short ones."""
    last: int
    begun: int
    """As `since`, whether it was reported or not."""

    def seen(self, second: int) -> Losing:
        """The same, found in this second as well."""
        if second - self.last > AGAIN_S:
            return Losing(second, second, second, second)
        if second - self.last > TURNING_S:
            return Losing(self.first, second, second, second)
        return self._replace(last=second)

    def settled(self) -> Losing:
        """Reported: it is not held back again while it lasts, unless paths are found to turn since
        it began: they may have turned then, and be reported now."""
        return self._replace(first=self.last - HOLD_S, since=self.last - HOLD_S)


def is_turning(turned: int, paths: int) -> bool:
    """Whether routes change.

    Args:
        turned: paths that were learnt to go elsewhere, within a second.
        paths: all that are probed.
    """
    return turned >= max(MIN_TURNING, TURNING_SHARE * paths)


def singles_out(sent: Ints, lost: Ints) -> bool:
    """Whether some flows lose and the others do not, rather than all of them alike.

    Compares one rate of loss for all flows with one for those that lost anything and none for the
    others; which flows these are counts against the latter.

    Args:
        sent: probes of each flow that crosses the part, (flows,).
        lost: of these.
    """
    probed = sent > 0
    sent, lost = sent[probed], np.minimum(lost, sent)[probed]
    lossy = lost > 0
    every, some = len(sent), int(np.count_nonzero(lossy))
    if not 0 < some < every:
        return False
    choices = lgamma(every + 1) - lgamma(some + 1) - lgamma(every - some + 1)
    gain = _log_likelihood(sent[lossy], lost[lossy]) - _log_likelihood(sent, lost)
    return gain - choices > OVER_NATS


def _log_likelihood(sent: Ints, lost: Ints) -> float:
    """Of the losses at the one rate that fits them best."""
    total, gone = int(sent.sum()), int(lost.sum())
    if gone == total:
        return 0.0
    return gone * log(gone / total) + (total - gone) * log1p(-gone / total)
