"""Ring all-reduce, all-to-all and gather over any function that exchanges bytes between ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Exchange(Protocol):
    """Lock-step exchange with peers; see `Mesh.exchange`."""

    def __call__(self, out: Mapping[int, memoryview], into: Mapping[int, memoryview]) -> None: ...


def ring_all_reduce(exchange: Exchange, data: NDArray[np.uint32], rank: int, ranks: int) -> None:
    """Sums `data` over all ranks, in place.

    Reduce-scatter and all-gather around a ring: each rank sends 2 (N - 1) / N of the data to its
    right and receives as much from its left (Patarasuk and Yuan 2009, the scheme of NCCL's ring).
    """
    chunks = np.array_split(data, ranks)
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    inbox = np.empty(max(len(chunk) for chunk in chunks), dtype=data.dtype)
    for turn in range(ranks - 1):
        ours, theirs = chunks[(rank - turn) % ranks], chunks[(rank - turn - 1) % ranks]
        arrived = inbox[: len(theirs)]
        exchange({right: _bytes(ours)}, {left: _bytes(arrived)})
        np.add(theirs, arrived, out=theirs)
    for turn in range(ranks - 1):
        ours, theirs = chunks[(rank - turn + 1) % ranks], chunks[(rank - turn) % ranks]
        exchange({right: _bytes(ours)}, {left: _bytes(theirs)})


def all_to_all(
    exchange: Exchange,
    out: Sequence[NDArray[np.uint32]],
    into: Sequence[NDArray[np.uint32]],
    rank: int,
) -> None:
    """``out[d]`` goes to rank d, ``into[s]`` comes from rank s; the own share is copied."""
    others = [peer for peer in range(len(out)) if peer != rank]
    exchange(
        {peer: _bytes(out[peer]) for peer in others}, {peer: _bytes(into[peer]) for peer in others}
    )
    into[rank][:] = out[rank]


def gather(
    exchange: Exchange,
    out: NDArray[np.uint32],
    into: Sequence[NDArray[np.uint32]],
    vote: NDArray[np.uint32],
    rank: int,
    *,
    senders: int,
) -> None:
    """Incast: the `out` of ranks 1 to `senders` goes to rank 0 at the same time, which then sends
    its `vote` to all.

    Args:
        exchange: as above.
        out: of this rank; rank 0 sends none.
        into: at rank 0, from each sender.
        vote: of rank 0; filled at all others.
        rank: of this process.
        senders: the same at all ranks.
    """
    if rank:
        exchange({0: _bytes(out)} if rank <= senders else {}, {})
        exchange({}, {0: _bytes(vote)})
        return
    exchange({}, {peer: _bytes(into[peer]) for peer in range(1, senders + 1)})
    exchange({peer: _bytes(vote) for peer in range(1, len(into))}, {})


def _bytes(array: NDArray[np.uint32]) -> memoryview:
    return array.data.cast("B")
