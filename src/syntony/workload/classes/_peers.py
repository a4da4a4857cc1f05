"""Who takes part in a communicator, also where only some have come, and who waits for whom."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from syntony.workload.bundle import NULL, BundleTable
from syntony.workload.classes._operations import P2P, both_ends
from syntony.workload.grid import Flags
from syntony.workload.ranks import SYMMETRIC, Comm, Ranks
from syntony.workload.stages import is_from_any, pair_of

MEETING = "rendezvous "
"""Begin of the name of the communicator in which ranks find each other; then comes where."""
_SPACED = re.compile(r"\.(\d{1,7})-(\d{1,7}):(\d{1,7})(?:#\d+)?")
"""End of a communicator's name: its ranks (docs/reference/local-socket.md)."""


def sole(ranks: Ranks, comm: Comm) -> bool:
    """Whether an operation of the communicator may end for one rank without the others, so that a
    rank that has not come matters only if another waits."""
    op = str(ranks.table.codes("op").at(int(comm.row.max())))
    return comm.name.startswith(MEETING) or both_ends(op) in {P2P, "new_group"}


def prepared(ranks: Ranks, comm: Comm) -> Comm:
    """The communicator without operations as open that a rank has only begun ahead; and with those
    of its ranks of which no operation is recorded, as far as its name tells them, unless nobody
    waits in it, or an operation has ended without which they must have come: then they are not
    recorded."""
    # Nobody waits for what was only begun: gloo says only then that it has ended.
    open_here = comm.present & (comm.done == NULL)
    begun = open_here & ~waits(ranks, comm)
    comm = comm._replace(done=np.where(begun, comm.enqueue, comm.done))
    members = _members(comm.name, int(np.nan_to_num(ranks.table.numbers("nranks"))[comm.row.max()]))
    fresh = sorted(members - set(comm.ranks.tolist()))
    ended = comm.done != NULL
    if not fresh or not waits(ranks, comm).any():
        return comm
    ops = ranks.table.codes("op")
    proofs = [number for number, op in enumerate(ops.values)
              if op in SYMMETRIC or op in {"recv", "irecv", "init_process_group"}]  # fmt: skip
    if (np.isin(ops.codes[comm.row], proofs) & ended).any():
        return comm
    parts = comm.enqueue, comm.done, comm.row
    order = np.argsort([*comm.ranks, *fresh])
    fill = (
        np.full((len(fresh), len(comm.seqs)), each, dtype=np.int64) for each in (NULL, NULL, -1)
    )
    enqueue, done, row = (
        np.concatenate((known, more))[order] for known, more in zip(parts, fill, strict=True)
    )
    named = np.array([*comm.ranks, *fresh])[order]
    return comm._replace(ranks=named, enqueue=enqueue, done=done, row=row)


def _members(name: str, nranks: int) -> set[int]:
    """Empty: the name does not tell."""
    if name.startswith(MEETING):
        return set(range(min(nranks, 1 << 16)))
    if pair := pair_of(name):
        return {*pair}
    if spaced := _SPACED.search(name):
        first, last, apart = map(int, spaced.groups())
        found = range(first, last + 1, max(1, apart))
        return set(found) if len(found) == nranks else set()
    return set()


def cycle(waits: Iterable[tuple[Collection[int], Collection[int]]]) -> set[int]:
    """Ranks that wait for each other, in a ring.

    Args:
        waits: some ranks that wait, and those that they wait for.
    """
    following: defaultdict[int, set[int]] = defaultdict(set)
    for some, others in waits:
        for rank in some:
            following[rank] |= set(others)
    return {rank for rank in following if rank in _reached(following, rank)}


def _reached(following: Mapping[int, set[int]], rank: int) -> set[int]:
    found, left = set[int](), set(following.get(rank, ()))
    while left:
        each = left.pop()
        found.add(each)
        left |= following.get(each, set()) - found
    return found


def departs(ranks: Ranks, steps: BundleTable, rank: int) -> tuple[str, str] | None:
    """Whether the rank's operations since its last step are others than those with which its two
    steps before both began: what it called, and what was due; None: they are not, or steps are not
    recorded."""
    table = ranks.table
    ends = np.sort(steps.ints("end_ns")[steps.ints("rank") == rank])[-3:]
    mine = np.flatnonzero(table.ints("rank") == rank)
    mine = mine[np.lexsort((mine, table.ints("enqueue_ns")[mine]))]
    if len(ends) < 3:
        return None
    comms, ops = table.codes("comm"), table.codes("op")
    step = np.searchsorted(ends, table.ints("enqueue_ns")[mine])
    one, two, now = (
        [(str(comms.at(row)), both_ends(str(ops.at(row)))) for row in mine[step == number]]
        for number in (1, 2, 3)
    )
    if one != two:
        return None
    at = next((at for at, (was, due) in enumerate(zip(now, one, strict=False)) if was != due), None)
    return None if at is None else (_words(now[at]), _words(one[at]))


def _words(operation: tuple[str, str]) -> str:
    comm, op = operation
    pair = pair_of(comm)
    return f"{op} of {comm}" if pair is None else f"a transfer from rank {pair[0]} to {pair[1]}"


def waits(ranks: Ranks, comm: Comm) -> Flags:
    """Where a rank waits in an operation, (ranks, operations): it has not ended, and the rank has
    not only begun it ahead."""
    ops = ranks.table.codes("op")
    ahead = [number for number, op in enumerate(ops.values) if op in {"isend", "irecv"}]
    found: Flags = comm.present & (comm.done == NULL) & ~np.isin(ops.codes[comm.row], ahead)
    return found


def waiting_ranks(ranks: Ranks, comm: Comm, seq: int) -> set[int]:
    """Ranks that wait in an operation."""
    return set(comm.ranks[waits(ranks, comm)[:, seq]].tolist())


def waiting_for_any(ranks: Ranks) -> set[int]:
    """Ranks that wait for whichever other one sends."""
    return set[int]().union(*(each.ranks[waits(ranks, each).any(axis=1)].tolist()
                              for each in ranks.comms if is_from_any(each.name)))  # fmt: skip
