"""Faults that are over: their losses must not count as evidence any more. Pure.

A window that began during a fault still holds some of its losses after the fault has ended. The
fewer they become, the weaker is the fault that would explain them, and the less do a few newer
seconds contradict it. A fault that ended 9 s ago would thus be named once more by the window of 10
s, at 29 s by that of 30 s, and so on. The newest seconds are therefore compared with the fault as
it was at its clearest. Once they contradict it, the earlier counts of all pairs that crossed it are
discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.fabric.candidates import Candidates, Key
from syntony.fabric.locate import OVER_NATS, SAME_SHARE
from syntony.fabric.loss import LossSearch
from syntony.fabric.tally import Ints
from syntony.model.findings import Finding

Mask = NDArray[np.bool_]


MAX_SHARE = 0.99
"""Loss of a black hole, allowing for packets that take another path."""


class Ending(NamedTuple):
    """One fault that is over."""

    paths: Mask
    """Which paths crossed it, (paths,)."""
    seconds: int
    """The newest seconds that are free of it."""


BURSTS = 2
"""This many bursts of losses in one place within `AGAIN_S` count as separate and over; one more is
an intermittent fault."""
AGAIN_S = 600


def ended(sent: Ints, lost: Ints) -> int | None:
    """How many seconds are free of a fault that is over; None: it may continue.

    From its first loss to its last it lost at some rate. It is over when so many probes have passed
    since that it no longer loses at that rate. If the same losses were spread over a window that
    began earlier, they would look like a weaker fault, which takes longer to exclude.

    Args:
        sent: probes that crossed it in each second, the newest last, (seconds,).
        lost: number of these that were lost.
    """
    lossy = np.flatnonzero(lost)
    if not len(lossy):
        return None
    during = slice(lossy[0], lossy[-1] + 1)
    share = min(float(lost[during].sum() / max(1, sent[during].sum())), MAX_SHARE)
    since = len(lost) - 1 - int(lossy[-1])
    nats = -float(sent[len(sent) - since :].sum()) * np.log1p(-share)
    return since if nats > OVER_NATS else None


class _Reported(NamedTuple):
    loss: float
    nats: float


class Endings:
    """Remembers findings until the fault is over. Not thread-safe."""

    def __init__(self) -> None:
        self._reported: dict[Key, _Reported] = {}
        self._bursts: dict[tuple[str, str], list[int]] = {}
        """Second of the count at which each burst of losses was over."""

    def take(
        self,
        candidates: Candidates,
        findings: Sequence[Finding],
        searches: Sequence[LossSearch],
        seconds: Sequence[int],
        of_some: Callable[[Mask, Mask], Ending | None],
    ) -> list[Ending]:
        """Faults that have ended by now.

        Args:
            candidates: possible causes.
            findings: current ones.
            searches: of the windows that end now, shortest first.
            seconds: length of each of these windows.
            of_some: from the paths that may cross a group, of which an unknown share does, and
                those that cross other findings: the ending of the group's fault; None: it lasts.
        """
        if not findings and not self._reported:
            return []
        numbers = candidates.numbers
        for found in findings:
            number = candidates.number_of(found)
            if number is not None:
                self._note(candidates, number, searches)
        known = {key: reported for key, reported in self._reported.items() if key in numbers}
        over = {
            key: _over(candidates, numbers[key], reported.loss, searches, seconds)
            if candidates.across(numbers[key]).any()
            else of_some(
                candidates.paths_of(numbers[key]), _across_others(candidates, key, findings)
            )
            for key, reported in known.items()
        }
        self._reported = {key: reported for key, reported in known.items() if over[key] is None}
        return [ending for ending in over.values() if ending is not None]

    def burst(self, found: Finding, second: int) -> bool:
        """Record that a burst of losses ended in this second. Returns whether that may be the whole
        fault."""
        key = (found.component, found.kind)
        known = [each for each in self._bursts.get(key, ()) if second - each < AGAIN_S]
        self._bursts = {k: own for k, own in self._bursts.items() if second - own[-1] < AGAIN_S}
        if len(known) >= BURSTS:
            return False
        self._bursts[key] = [*known, second]
        return True

    def _note(self, candidates: Candidates, number: int, searches: Sequence[LossSearch]) -> None:
        """Remember the clearest evidence; for a named cable, that of the direction that was
        found."""
        for each in (found for search in searches for found in search.findings):
            cable = candidates.cable_of(each.candidate)
            if each.candidate != number and (cable is None or cable.whole != number):
                continue
            key = candidates.key(each.candidate)
            reported = _Reported(each.loss, each.nats)
            before = self._reported.get(key, reported)
            self._reported[key] = max(before, reported, key=lambda it: it.nats)


def _over(
    candidates: Candidates,
    number: int,
    loss: float,
    searches: Sequence[LossSearch],
    seconds: Sequence[int],
) -> Ending | None:
    """None while it lasts, or while a finding that shares its paths replaces it."""
    paths = candidates.across(number)
    for search, length in zip(searches, seconds, strict=True):
        for found in search.findings:
            other = candidates.across(found.candidate)
            shared, least = (paths & other).sum(), SAME_SHARE * min(paths.sum(), other.sum())
            if not other.any():
                # On which of its paths a group loses is unknown. With the counts of some discarded,
                # it would seem to lose more on these than on the others.
                shared, least = (paths & candidates.paths_of(found.candidate)).sum(), 1
            if shared >= least:
                return None
        if search.gain_at(number, loss) < -OVER_NATS:
            return Ending(paths, length)
    return None


def _across_others(candidates: Candidates, key: Key, findings: Sequence[Finding]) -> Mask:
    """Paths that certainly cross a finding other than this one."""
    across = np.zeros(len(candidates.crossed.crossings), dtype=np.bool_)
    for found in findings:
        number = candidates.number_of(found)
        if number is not None and number != candidates.numbers[key]:
            across |= candidates.across(number)
    return across
