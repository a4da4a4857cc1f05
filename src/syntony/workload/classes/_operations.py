"""Kinds of a communicator's operations: which are equal, where ranks differ, which one is due."""

from __future__ import annotations

import numpy as np

from syntony.workload.bundle import Ints
from syntony.workload.ranks import Comm, Ranks

P2P = "send or recv"
"""Operations between two ranks, which need no others."""
OFTEN = 10
"""After this many operations that were each followed by the same kind, the next one can be
predicted."""


def kinds_of(ranks: Ranks, comm: Comm) -> Ints:
    """A number that is equal for the same operation and size, (ranks, operations); -1: none."""
    ops = ranks.table.codes("op")
    names = [both_ends(str(op)) for op in ops.values]
    sizes = np.nan_to_num(ranks.table.numbers("bytes"), nan=-1)
    kinds: dict[tuple[str, float], int] = {}
    rows = np.unique(comm.row[comm.row >= 0])
    number = np.full(ranks.table.rows, -1, dtype=np.int64)
    number[rows] = [
        kinds.setdefault((names[code], size), len(kinds))
        for code, size in zip(ops.codes[rows].tolist(), sizes[rows].tolist(), strict=True)
    ]
    found: Ints = np.where(comm.row >= 0, number[comm.row], -1)
    return found


def differ(kinds: Ints) -> bool:
    """Whether ranks differ in their last operation and never before."""
    known = kinds >= 0
    same = (~known | (kinds == kinds.max(axis=0))).all(axis=0)
    return len(same) > OFTEN and bool(same[:-1].all()) and not same[-1]


def due_kind(kinds: Ints, seq: int) -> int | None:
    """The kind that has always followed the previous operation; None: unknown, or several kinds."""
    before = kinds[:, :seq]
    whole = (before >= 0).all(axis=0) & (before == before[0]).all(axis=0)
    if not seq or not whole[-1]:
        return None
    pairs = np.flatnonzero(whole[:-1] & whole[1:] & (before[0, :-1] == before[0, -1]))
    found = before[0, pairs + 1]
    return int(found[0]) if len(found) >= OFTEN and (found == found[0]).all() else None


def both_ends(op: str) -> str:
    """A send and its receive count as one operation."""
    parts = op.lower().replace(":", " ").split()
    return P2P if {"send", "recv", "isend", "irecv"} & set(parts) else op


def name_of(ranks: Ranks, row: int) -> str:
    op, size = str(ranks.table.codes("op").at(row)), float(ranks.table.numbers("bytes")[row])
    return op if np.isnan(size) else f"{op} of {size:.0f} bytes"
