"""Changes of the fabric: rows for the store, and the map of the fabric, which survives restarts."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from syntony.controller.batches import BatchPiece
from syntony.controller.own_rows import OwnRows
from syntony.errors import StateError
from syntony.fabric.aliases import joined
from syntony.fabric.book import PathBook, Way
from syntony.fabric.changes import FabricMap, MapState, without_unlisted
from syntony.fabric.extra_probes import suspected
from syntony.fabric.names import OR, cable_name, link_ends, silent_at
from syntony.fabric.outages import losing
from syntony.fabric.silent import SilentPart
from syntony.model.findings import Finding
from syntony.state import ControlState
from syntony.state.document import Document
from syntony.wire.tables import FABRIC_CHANGE

_log = logging.getLogger(__name__)
FABRIC_MAP = "map of the fabric"
"""Name of the document of control state that contains a `MapState`."""


class Misplaced(NamedTuple):
    """A NIC that is not at its expected switch."""

    nic: str
    at: str
    expected: str
    planned: bool
    """Whether the topology says so; if not, the NIC was there before."""

    @property
    def why(self) -> str:
        """Why this switch is expected, as text."""
        return "as the topology says" if self.planned else "where it was before"


class FabricStatus(NamedTuple):
    """Current state of the fabric; replaced as a whole."""

    cables: int
    lost: Mapping[str, int]
    """Cable between switches → when it was lost, fleet time."""
    misplaced: tuple[Misplaced, ...]
    twins: Mapping[str, tuple[str, ...]]
    """Lost cable → cables that disappeared with it and may be the cause."""
    gone: Mapping[str, int]
    """Switch that no path takes any more, alone or with the cables that may be the cause instead →
    how many of its cables are lost now."""
    back: Mapping[str, int] = {}
    """What was named in `gone` and no longer is → since when, fleet time, in this process."""
    proven: frozenset[str] = frozenset()
    """Of the lost cables those whose switches have answered other paths since."""


class FabricChangeService:
    """`take`, `forget` and `settle` on one thread; `status` and `counts` for any.

    Args:
        book: the learnt paths.
        state: where the map is stored; None: each start begins with a first discovery, which
            reports nothing.

    Raises:
        StateError: the stored map cannot be read.
    """

    def __init__(self, book: PathBook, state: ControlState | None) -> None:
        self._book = book
        self._document = None if state is None else Document(state, FABRIC_MAP, MapState)
        known = None if self._document is None else self._document.load()
        if known is not None and book.topology is not None:
            known = without_unlisted(known, book.topology)
        self._map = FabricMap(known, book.traced_ns, book.named)
        self._written: tuple[object, ...] = ()
        """The map as last stored."""
        self._back_ns: dict[str, int] = {}
        self._own_rows = OwnRows(FABRIC_CHANGE)
        self.counts: Counter[tuple[str, str]] = Counter()
        """(change, what) → how often it was reported since this began."""
        self.homes: Mapping[str, str] = {}
        """NIC → the switch that it was reported at; replaced as a whole."""
        self.answered_ns: Mapping[str, int] = {}
        """Switch → fleet time at which the newest trace that it answered began; replaced as a
        whole."""
        self.status: FabricStatus | None = self._status() if self._map.cables else None
        """None: unknown yet."""

    def take(self, way: Way, now_ns: int, learnt_ns: int) -> None:
        """A path that is new to the book."""
        self._map.take(way, self._book.devices_on(way), now_ns, learnt_ns)

    def confirm(self, way: Way, hops: Sequence[str], now_ns: int, learnt_ns: int) -> None:
        """A path that is unchanged, or shorter than known. One that the map dropped because it was
        no longer traced counts again once all of its known devices answer."""
        devices = (way.src, *map(self._book.device, hops))
        if way not in self._map and devices == self._book.devices_on(way):
            self._map.take(way, devices, now_ns, learnt_ns)
            return
        self._map.confirm(devices, learnt_ns)
        self._map.miss(way, devices, learnt_ns)
        self._map.silent.confirm(way, devices, learnt_ns)

    def take_findings(self, findings: Iterable[Finding], at_ns: int) -> None:
        """The newest findings of localisation, as of this instant, fleet time."""
        for found, window_ns in losing(findings):
            self._map.lose(suspected(found), at_ns - window_ns, at_ns)

    def forget(self, ways: Iterable[Way], at_ns: int) -> None:
        """Paths that the book has dropped."""
        for way in ways:
            self._map.take(way, (), at_ns)

    def settle(self, now_ns: int) -> BatchPiece | None:
        """Changes that have lasted long enough to be reported, as rows. The map is stored first: a
        crash in between loses rows of the history, but reports nothing twice."""
        changes = self._map.settle(now_ns)
        self.answered_ns = dict(self._map.answered_ns)
        self._name_silent()
        holds = (
            len(self._map.cables),
            tuple(self._map.lost),
            tuple(self._map.moved),
            *self._map.down.items(),
            *self._map.silent.down.values(),
            self._map.abandoned,
        )
        if not changes and holds == self._written:
            return None
        down = self._map.down or self._map.silent.down
        if self._map.looking and not down and self.status is None:
            return None
        self._written = holds
        self._keep()
        before, now = self.status, self._status()
        gone = _names(before.gone if before is not None else ())
        self._back_ns |= dict.fromkeys(gone - _names(now.gone), now_ns)
        self.status = now._replace(back=dict(self._back_ns))
        for change in changes:
            self.counts[change.change, change.what] += 1
            _log.warning(
                "fabric %s %s=%s %s", change.change, change.what, change.name, change.detail
            )
        return self._own_rows.piece(
            [msgspec.to_builtins(change) | {"ts_ns": now_ns} for change in changes]
        )

    # --- internal ---

    def _status(self) -> FabricStatus:
        found = []
        homes = self._map.homes()
        for nic, at in homes.items():
            planned, moved = self._book.cabled_to(nic), self._map.moved.get(nic)
            if planned:
                if planned != at:
                    found.append(Misplaced(nic, at, planned, planned=True))
            elif moved is not None and moved.after == at:
                found.append(Misplaced(nic, at, moved.before, planned=False))
        lost = dict(self._map.lost)
        self.homes = homes
        twins = {
            cable: tuple(each for each in those if each not in self._map.cables)
            for cable, those in self._map.twins.items()
        }
        return FabricStatus(
            len(self._map.cables), lost, tuple(found), twins, self._gone(lost),
            proven=self._map.abandoned,
        )  # fmt: skip

    def _gone(self, lost: Iterable[str]) -> dict[str, int]:
        """Switches known to be down from the paths that left them, and those that have lost all of
        their cables. If these are two cables, all paths took both, and either may be the cause."""
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
        for part in self._map.silent.down.values():
            name, *instead = part.names or self._names_of(part)
            gone[name] = tuple(instead)
        return {
            OR.join(names): sum(len(of.get(name, ())) for name in names) for names in joined(gone)
        }

    def _name_silent(self) -> None:
        """Name silent parts once: what has answered so far is not known after a restart."""
        down = self._map.silent.down
        for devices, part in down.items():
            if not part.names:
                names = tuple(self._names_of(part))
                down[devices] = msgspec.structs.replace(part, names=names)

    def _names_of(self, part: SilentPart) -> list[str]:
        """A silent part that is down: the one switch that the topology has there and no trace has
        found, and those of its cables that may be the cause instead, else its surroundings."""
        topology, devices = self._book.topology, part.devices
        near = {} if topology is None else topology.neighbours
        shared = [name for name, others in near.items() if {*devices} <= {*others}]
        unseen = [name for name in shared if name not in self._map.answered_ns]
        if len(unseen) != 1:
            return [silent_at(devices)]
        return [unseen[0], *(cable_name(device, unseen[0]) for device in part.cables_of)]

    def _keep(self) -> None:
        if self._document is None:
            return
        try:
            self._document.save(self._map.state())
        except StateError as error:
            _log.error("fabric map not saved reason=%s", error)


def _names(gone: Iterable[str]) -> set[str]:
    return {name for subject in gone for name in subject.split(OR)}
