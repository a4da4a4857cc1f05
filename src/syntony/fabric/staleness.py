"""Whether losses may be attributed to the wrong component because the map is stale. Pure.

Switches reroute flows at once; the map shows it some seconds later. Losses of flows on their new
paths are meanwhile counted on the previous paths. Two signs of this:

- Paths change: if some have changed, others have that are not traced yet.
- Losses single out flows. A link that loses a share of its packets loses about that share of every
  flow. If some flows lose and the others lose nothing, either a switch drops single flows, or those
  that lose are no longer there.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import lgamma, log, log1p
from typing import NamedTuple

import numpy as np

from syntony.fabric.locate import OVER_NATS
from syntony.fabric.names import directions, link_ends
from syntony.fabric.tally import Ints
from syntony.model.findings import Finding

HOLD_S = 6
"""Agents trace lossy paths at once; silent hops, answers and rows take up to this long."""
AGAIN_S = 60
"""A link that lost before, at most this long ago, and does again cannot be explained by a stale
map: a link that loses in bursts is reported at the second burst. This does not hold for a switch:
with a stale map any of its lossy links makes it look lossy, again and again."""
TURNING_S = 3
"""Maximum time between two reports of paths that changed for one reason: agents report once a
second."""
TURNING_SHARE = 0.01
MIN_TURNING = 3
"""Minimum share of paths that changed within a second; fewer are no change of routes."""


class LossSpell(NamedTuple):
    """Since when a component has been found to lose packets, in seconds of the watch."""

    first: int
    """With pauses of up to `AGAIN_S`."""
    since: int
    """With short pauses only."""
    last: int
    began: int
    """As `since`, whether it was reported or not."""

    def extended(self, second: int) -> LossSpell:
        """The state updated for this second, in which it was found again."""
        if second - self.last > AGAIN_S:
            return LossSpell(second, second, second, second)
        if second - self.last > TURNING_S:
            return LossSpell(self.first, second, second, second)
        return self._replace(last=second)

    def settled(self) -> LossSpell:
        """The state once reported. It is not held back again while it lasts, unless a change of
        paths is found later that may have happened when it began."""
        return self._replace(first=self.last - HOLD_S, since=self.last - HOLD_S)


def is_turning(turned: int, paths: int) -> bool:
    """Whether routes are changing.

    Args:
        turned: number of paths traced elsewhere within a second.
        paths: number of all probed paths.
    """
    return turned >= max(MIN_TURNING, TURNING_SHARE * paths)


def singles_out(sent: Ints, lost: Ints) -> bool:
    """Whether some flows lose and the others do not, rather than all of them alike.

    Compares one rate of loss for all flows with one rate for those that lost anything and none for
    the others. The latter is penalised for the choice of the flows.

    Args:
        sent: probes of each flow that crosses the component, (flows,).
        lost: number of these that were lost.
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


def other_holes(found: Finding, findings: Iterable[Finding]) -> list[Finding]:
    """For a link that loses all of what some flows send: the other links out of its switch that do,
    at which these flows may be since routes changed."""
    if found.fault != "blackhole":
        return []
    ways = _ways_out(found)
    return [
        each
        for each in findings
        if each is not found and each.fault == "blackhole" and ways & _ways_out(each)
    ]


def _ways_out(found: Finding) -> set[str]:
    """The devices that a link, or either direction of a cable, leads out of."""
    ends = map(link_ends, directions(found.component))
    return {each[0] for each in ends if each is not None}


def _log_likelihood(sent: Ints, lost: Ints) -> float:
    """Log-likelihood of the losses at the single rate that fits them best."""
    total, gone = int(sent.sum()), int(lost.sum())
    if gone == total:
        return 0.0
    return gone * log(gone / total) + (total - gone) * log1p(-gone / total)
