"""Acknowledged rows: are they in the store, once each? Read from disk while the controller is dead.

An agent's batches are numbered without a gap, and an acknowledgement covers all numbers up to it: a
number up to there that the store does not have is a lost batch. How many rows a batch has is known
of those that lie in a spool while the controller is dead, which are those in danger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from syntony.store.embedded import EmbeddedEngine
from syntony.wire.spoolfile import SLOT_BYTES, index_segment, read_state
from syntony.wire.tables import TABLES

BatchKey = tuple[str, int]
"""Host, number."""
_ROWS = (
    "SELECT host, toInt64(seq), toInt64(sum(times)), toInt64(min(times)) FROM ("
    "SELECT host, stream, seq, cityHash64(*) AS row, count() AS times FROM {table} "
    "GROUP BY host, stream, seq, row) GROUP BY host, stream, seq"
)


class InStore(NamedTuple):
    """Rows of one batch; how often the rarest of them is there."""

    rows: int
    least: int
    """2 or more: the batch is there so often. A batch may have some rows twice by itself."""


StoredBatch = tuple[BatchKey, InStore]


class Account(NamedTuple):
    """What became of batches."""

    batches: int
    rows: int
    acknowledged: int
    """Batches that agents were told are safe."""
    sized: int
    """Of these, batches of known size."""
    lost_batches: int
    lost_rows: int
    """Of batches that are there but not whole."""
    doubled_rows: int


def waiting(spools: Path) -> dict[BatchKey, int]:
    """Batches that wait on disk, a directory for each host, to their number of rows."""
    found: dict[BatchKey, int] = {}
    for path in spools.glob("*/*.spool"):
        try:
            entries = list(index_segment(path.read_bytes(), int(path.stem)))
        except FileNotFoundError:
            continue  # its last batch was acknowledged just now
        found |= {(path.parent.name, each.seq): each.rows for each in entries if each.intact}
    return found


def acknowledged(spools: Path) -> dict[str, int]:
    """Host to the number up to which it was informed that batches are safe."""
    found = {}
    for path in spools.glob("*/state"):
        state = read_state(path.read_bytes()[: 2 * SLOT_BYTES])
        found[path.parent.name] = 0 if state is None else state.acknowledged
    return found


def embedded(store: Path) -> list[StoredBatch]:
    """Every batch of an embedded store. Raises `StoreError`: a controller uses it."""
    engine = EmbeddedEngine(store)
    try:
        return stored(engine.select)
    finally:
        engine.close()


def stored(select: Callable[[str], Iterable[Sequence[object]]]) -> list[StoredBatch]:
    """Every batch of the store that answers these statements."""
    tables = [table.name for table in TABLES.values() if table.owner]
    rows = [row for table in tables for row in select(_ROWS.format(table=table))]
    return [
        ((str(host), int(str(seq))), InStore(int(str(count)), int(str(least))))
        for host, seq, count, least in rows
    ]


def account(
    sizes: Mapping[BatchKey, int],
    safe: Mapping[str, int],
    found: Iterable[StoredBatch],
) -> Account:
    """Hold the three against each other; what the controller itself has written is left out. Pure.

    Args:
        sizes: rows of batches, as far as they are known.
        safe: host to the number up to which it was informed that batches are safe.
        found: batches of the store, one that is in several parts several times.
    """
    batches: dict[BatchKey, InStore] = {}
    for key, part in found:
        if key[0] not in safe:
            continue
        before = batches.get(key, InStore(0, 0))
        # The same number in another stream or table is the same batch again.
        batches[key] = InStore(before.rows + part.rows, before.least + part.least)
    reported = [(host, seq) for host, last in safe.items() for seq in range(1, last + 1)]
    return Account(
        batches=len(batches),
        rows=sum(each.rows for each in batches.values()),
        acknowledged=len(reported),
        sized=sum(key in sizes for key in reported),
        lost_batches=sum(key not in batches for key in reported),
        lost_rows=sum(
            max(0, sizes[key] - batches[key].rows)
            for key in reported
            if key in sizes and key in batches
        ),
        doubled_rows=sum(
            max(0, each.rows - sizes.get(key, each.rows // each.least))
            for key, each in batches.items()
        ),
    )
