"""The fabric's changes as the controller keeps them: told to the store, remembered on disk."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from syntony.controller.batches import Piece
from syntony.controller.solve import ORIGIN_HOST
from syntony.controller.whole_files import write_atomically
from syntony.errors import ConfigError
from syntony.fabric.book import PathBook, Way
from syntony.fabric.changes import FabricMap, MapState
from syntony.fabric.graph import Change
from syntony.wire.arrow import arrow_schema
from syntony.wire.tables import FABRIC_CHANGE

_log = logging.getLogger(__name__)
NAME = "fabric.json"


class Misplaced(NamedTuple):
    """A NIC that is not where it belongs."""

    nic: str
    at: str
    expected: str
    why: str
    """Who says so."""


class Standing(NamedTuple):
    """How the fabric stands; replaced whole."""

    cables: int
    lost: Mapping[str, int]
    """Cable between switches to when it was lost, fleet time."""
    misplaced: tuple[Misplaced, ...]


class ChangeDesk:
    """`take`, `forget` and `settle` on one thread; `standing` and `counts` for any.

    Args:
        book: the learnt paths.
        state_dir: where the map is remembered; None: the first look of every start is no news.

    Raises:
        ConfigError: the remembered map cannot be read.
    """

    def __init__(self, book: PathBook, state_dir: Path | None) -> None:
        self._book = book
        self._path = None if state_dir is None else state_dir / NAME
        self._map = FabricMap(_read(self._path) if self._path else None)
        self._written: tuple[object, ...] = ()
        """What the map held when it was last written down."""
        self._stream = secrets.token_hex(16)
        self._seq = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        """(change, what) to how often it was told since this began."""
        self.standing: Standing | None = self._stand() if self._map.cables else None
        """None: not known yet."""

    def take(self, way: Way, at_ns: int) -> None:
        """A way is news to the book."""
        self._map.take(way, self._book.heard(way), at_ns)

    def forget(self, ways: Iterable[Way], at_ns: int) -> None:
        """Ways that the book has let go of."""
        for way in ways:
            self._map.take(way, (), at_ns)

    def settle(self, now_ns: int) -> Piece | None:
        """What has stood for long enough to be told, as rows. The map is written down first: a
        crash in between loses rows of the history, and tells nothing twice.
        """
        changes = self._map.settle(now_ns)
        holds = (len(self._map.cables), tuple(self._map.lost), tuple(self._map.moved))
        if self._map.looking or (not changes and holds == self._written):
            return None
        self._written = holds
        self._keep()
        self.standing = self._stand()
        for change in changes:
            self.counts[change.change, change.what] += 1
            _log.warning(
                "fabric %s %s=%s %s", change.change, change.what, change.name, change.detail
            )
        return self._rows(changes, now_ns) if changes else None

    # --- within ---

    def _stand(self) -> Standing:
        found = []
        for nic, at in self._map.homes().items():
            planned, moved = self._book.cabled_to(nic), self._map.moved.get(nic)
            if planned:
                if planned != at:
                    found.append(Misplaced(nic, at, planned, "as the topology says"))
            elif moved is not None and moved.after == at:
                found.append(Misplaced(nic, at, moved.before, "where it was before"))
        return Standing(len(self._map.cables), dict(self._map.lost), tuple(found))

    def _keep(self) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self._path, msgspec.json.encode(self._map.state()))
        except OSError as error:
            _log.error("the fabric's map is not kept reason=%s", error)

    def _rows(self, changes: Iterable[Change], now_ns: int) -> Piece:
        import pyarrow as pa

        self._seq += 1
        records = [msgspec.to_builtins(change) | {"ts_ns": now_ns} for change in changes]
        rows = pa.Table.from_pylist(records, schema=arrow_schema(FABRIC_CHANGE))
        return Piece(
            FABRIC_CHANGE, ORIGIN_HOST, self._stream, self._seq, rows, now_ns, now_ns, check=False
        )


def _read(path: Path) -> MapState | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=MapState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}; move it away to learn the fabric anew"
        ) from error
