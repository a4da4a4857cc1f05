"""Delays by the paths as they were traced last, where some paths are doubtful. Pure.

A doubtful path counts as one of a group, so that losses are not blamed on a part that it has left
(`syntony.fabric.doubts`). A delay shows itself which paths have left: if all paths that were traced
across a part are late, and those that are known to cross the silent switch are not, none has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.candidates import Candidates, Listing
from syntony.fabric.effort import SECOND_STEPS, Effort
from syntony.fabric.locate import OVER_NATS, Located, WindowCounts, search
from syntony.fabric.names import replies_name
from syntony.fabric.numbering import make_candidates


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

    def forget(self) -> None:
        """Paths changed."""
        self._candidates = None

    def settled(
        self,
        located: Located,
        slow: Sequence[WindowCounts],
        candidates: Candidates,
        flows: Iterable[Way],
    ) -> Located:
        """What was located; with the delays that paths as traced last show, if these explain far
        more than doubtful ones do.

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
        # Both alone: what evidence is worth depends on the number of windows.
        doubting, other = (
            search(each, slow, Effort(SECOND_STEPS)) for each in (candidates, self._candidates)
        )
        if other.late_nats < doubting.late_nats + OVER_NATS:
            return located
        losses = (each for each in located.findings if not each.delay_ns)
        return located._replace(findings=(*losses, *other.findings))
