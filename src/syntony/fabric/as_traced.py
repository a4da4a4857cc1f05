"""Delays by the paths as they were traced last, where some paths are doubtful. Pure.

A doubtful path counts as one of a group, so that losses are not blamed on a part that it has left
(`syntony.fabric.doubts`). A delay shows itself which paths have left: if all paths that were traced
across a part are late, and those that are known to cross the silent switch are not, none has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.candidates import Candidates, Listing
from syntony.fabric.delay_search import MIN_PATHS
from syntony.fabric.effort import SECOND_STEPS, Effort
from syntony.fabric.locate import Located, WindowCounts, search
from syntony.fabric.names import GROUP, replies_name
from syntony.fabric.numbering import make_candidates
from syntony.fabric.tally import Floats
from syntony.model.findings import Finding

LATE_SHARE = 0.1
"""Of the paths that are known to cross the silent switch, so many may be late for other reasons."""


def listed(book: PathBook, flows: Iterable[Way], *, doubting: bool = True) -> Candidates:
    """Candidates of all observations of these flows, as `syntony.fabric.fault_locator` orders
    them; `doubting` as `PathBook.components`."""
    flows = tuple(flows)
    there, back = (
        [book.components(way, doubting=doubting) for way in ways]
        for ways in (flows, map(reply, flows))
    )
    both = [a + b for a, b in zip(there, back, strict=True)]
    answered = [(replies_name(way.dst),) for way in flows]
    listing = Listing.of([*there, *back, *both, *answered])
    return make_candidates(listing, book.kind_of, book.parallel)


class AsTraced:
    """Replaces delays that doubtful paths leave unclear."""

    def __init__(self, book: PathBook) -> None:
        self._book = book
        self._candidates: Candidates | None = None
        """None: not needed since paths changed last."""
        self._doubtful: defaultdict[str, list[int]] = defaultdict(list)
        """Group → numbers of the paths that may be in it, …"""
        self._known: defaultdict[str, list[int]] = defaultdict(list)
        """… and of those that are."""

    def forget(self) -> None:
        """Paths changed."""
        self._candidates = None

    def settled(
        self,
        located: Located,
        slow: Sequence[WindowCounts],
        candidates: Candidates,
        flows: Collection[Way],
    ) -> Located:
        """What was located; with the delays that paths as traced last show, if these explain more
        than doubtful ones do, and paths that are known to cross the silent switch are in time.

        Args:
            located: with doubtful paths.
            slow: the windows of delays.
            candidates: with doubtful paths.
            flows: all, by number.
        """
        if not self._book.doubts.possible or not any(each.delay_ns for each in located.findings):
            return located
        if self._candidates is None:
            self._candidates = listed(self._book, flows, doubting=False)
            self._sort(flows)
        # Both alone: what evidence is worth depends on the number of windows.
        doubting, other = (
            search(each, slow, Effort(SECOND_STEPS)) for each in (candidates, self._candidates)
        )
        if other.late_nats <= doubting.late_nats:
            return located
        changes = {each.name: each.change_ns for each in slow}
        if not all(self._none_left(each, changes[each.window]) for each in other.findings):
            return located
        losses = (each for each in located.findings if not each.delay_ns)
        return located._replace(findings=(*losses, *other.findings))

    def _sort(self, flows: Collection[Way]) -> None:
        """Paths by the groups that they may be in."""
        self._doubtful.clear()
        self._known.clear()
        for number, way in enumerate((*flows, *map(reply, flows))):
            now = self._book.components(way)
            known = now == self._book.components(way, doubting=False)
            for group in (name for name in now if GROUP in name):
                (self._known if known else self._doubtful)[group].append(number)

    def _none_left(self, found: Finding, change_ns: Floats | None) -> bool:
        """Whether paths that are known to be in a group are in time, for every group that late
        paths may be in."""
        if change_ns is None:
            return False
        late = change_ns > found.delay_ns / 2
        for group, doubtful in self._doubtful.items():
            known = [n for n in self._known[group] if np.isfinite(change_ns[n])]
            few = len(known) < MIN_PATHS or late[known].sum() > LATE_SHARE * len(known)
            if late[doubtful].any() and few:
                return False
        return True
