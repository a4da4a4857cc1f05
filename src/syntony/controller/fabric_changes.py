"""Changes of the fabric: rows for the store, and the map of the fabric, kept over restarts."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from syntony.controller.batches import BatchPiece
from syntony.controller.own_rows import OwnRows
from syntony.errors import StateError
from syntony.fabric.book import PathBook, Way
from syntony.fabric.changes import FabricMap, MapState
from syntony.fabric.names import OR, link_ends
from syntony.state import ControlState
from syntony.state.document import Document
from syntony.wire.tables import FABRIC_CHANGE

_log = logging.getLogger(__name__)
FABRIC_MAP = "map of the fabric"
"""Name of the document of control state that holds a `MapState`."""


class Misplaced(NamedTuple):
    """A NIC that is not at its expected switch."""

    nic: str
    at: str
    expected: str
    why: str
    """Why this switch is expected, as text."""


class Standing(NamedTuple):
    """Current state of the fabric; replaced as a whole."""

    cables: int
    lost: Mapping[str, int]
    """Cable between switches to when it was lost, fleet time."""
    misplaced: tuple[Misplaced, ...]
    twins: Mapping[str, tuple[str, ...]]
    """Lost cable to those that are gone with it and may be why."""
    gone: Mapping[str, int]
    """Switch that no path takes any more, or it and the cables that it may be instead, to how many
    of its cables were lost by now."""


class FabricChangeService:
    """`take`, `forget` and `settle` on one thread; `standing` and `counts` for any.

    Args:
        book: the learnt paths.
        state: where the map is remembered; None: the first look of every start is no news.

    Raises:
        StateError: the remembered map cannot be read.
    """

    def __init__(self, book: PathBook, state: ControlState | None) -> None:
        self._book = book
        self._kept = None if state is None else Document(state, FABRIC_MAP, MapState)
        self._map = FabricMap(None if self._kept is None else self._kept.load())
        self._written: tuple[object, ...] = ()
        """What the map held when it was last written down."""
        self._own_rows = OwnRows(FABRIC_CHANGE)
        self.counts: Counter[tuple[str, str]] = Counter()
        """(change, what) to how often it was reported since this began."""
        self.homes: Mapping[str, str] = {}
        """NIC to the switch that it was reported at; replaced whole."""
        self.standing: Standing | None = self._stand() if self._map.cables else None
        """None: not known yet."""

    def take(self, way: Way, now_ns: int, learnt_ns: int) -> None:
        """A way is news to the book."""
        self._map.take(way, self._book.heard(way), now_ns, learnt_ns)

    def confirm(self, way: Way, hops: Sequence[str], learnt_ns: int) -> None:
        """A way is no news: as it was, or less of it."""
        self._map.confirm((way.src, *map(self._book.device, hops)), learnt_ns)

    def forget(self, ways: Iterable[Way], at_ns: int) -> None:
        """Ways that the book has let go of."""
        for way in ways:
            self._map.take(way, (), at_ns)

    def settle(self, now_ns: int) -> BatchPiece | None:
        """What has stood for long enough to be reported, as rows. The map is written down first: a
        crash in between loses rows of the history, and tells nothing twice.
        """
        changes = self._map.settle(now_ns)
        holds = (
            len(self._map.cables),
            tuple(self._map.lost),
            tuple(self._map.moved),
            *self._map.down.items(),
        )
        if not changes and holds == self._written:
            return None
        if self._map.looking and not self._map.down and self.standing is None:
            return None
        self._written = holds
        self._keep()
        self.standing = self._stand()
        for change in changes:
            self.counts[change.change, change.what] += 1
            _log.warning(
                "fabric %s %s=%s %s", change.change, change.what, change.name, change.detail
            )
        return self._own_rows.piece(
            [msgspec.to_builtins(change) | {"ts_ns": now_ns} for change in changes]
        )

    # --- within ---

    def _stand(self) -> Standing:
        found = []
        homes = self._map.homes()
        for nic, at in homes.items():
            planned, moved = self._book.cabled_to(nic), self._map.moved.get(nic)
            if planned:
                if planned != at:
                    found.append(Misplaced(nic, at, planned, "as the topology says"))
            elif moved is not None and moved.after == at:
                found.append(Misplaced(nic, at, moved.before, "where it was before"))
        lost = dict(self._map.lost)
        self.homes = homes
        twins = {
            cable: tuple(each for each in those if each not in self._map.cables)
            for cable, those in self._map.twins.items()
        }
        return Standing(len(self._map.cables), lost, tuple(found), twins, self._gone(lost))

    def _gone(self, lost: Iterable[str]) -> dict[str, int]:
        """Switches known to be down by the ways that left them, and those that have lost all of
        their cables; where that is two, all of its ways took both, and it may be either of them."""
        there = {end for cable in self._map.cables for end in link_ends(cable) or ()}
        of: dict[str, list[str]] = defaultdict(list)
        for cable in lost:
            for end in link_ends(cable) or ():
                of[end].append(cable)
        gone = {
            end: tuple(cables) if len(cables) == 2 else ()
            for end, cables in of.items()
            if end not in there and len(cables) > 1
        }
        gone |= self._map.down
        return {
            OR.join(sorted((end, *instead))): len(of.get(end, ())) for end, instead in gone.items()
        }

    def _keep(self) -> None:
        if self._kept is None:
            return
        try:
            self._kept.save(self._map.state())
        except StateError as error:
            _log.error("fabric map not saved reason=%s", error)
