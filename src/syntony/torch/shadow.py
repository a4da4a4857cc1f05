"""Keeps a copy of each rank's state on another rank, for jobs in which no two ranks have the same.

At each boundary every rank sends its part of parameters and optimizer state to a neighbour, before
the step's own collectives and in the same thread. If a rank has reached a step, the copies from the
step's start have therefore arrived. The copies of two boundaries are kept, because ranks are at
most one apart. A lost rank resumes at the newest boundary of which its neighbour has the copy.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from syntony.torch.gpu import settle
from syntony.torch.modules import memory_of
from syntony.torch.operations import Operation, Pool

if TYPE_CHECKING:
    from syntony.torch.collectives import RankGroup
    from syntony.torch.replica import Replica

SIZE_TAG, DATA_TAG = 2, 3
KEPT = 2
"""Number of boundaries of which copies are kept."""


def neighbours(rank: int, world: int, per_host: int) -> tuple[int, int]:
    """The rank that receives this rank's state, and the one whose state it stores: on another host
    if there is one.

    Args:
        world: number of ranks of the job.
        per_host: ranks of each host; 0: unknown.
    """
    apart = per_host if 0 < per_host < world and world % per_host == 0 else 1
    return (rank + apart) % world, (rank - apart) % world


class Copy(NamedTuple):
    """A rank's part of parameters and optimizer state."""

    description: Any
    """Bytes: the pickled description of the tensors from `Replica.shared`."""
    data: Any
    """Bytes of all tensors, concatenated."""


class Shadows:
    """The neighbour's copies that this rank has, and the sending of its own."""

    def __init__(self, replica: Replica, protected: Callable[[], bool] = lambda: True) -> None:
        """`protected`: returns whether the copies could still be used."""
        self._replica = replica
        self._protected = protected
        self._kept: dict[int, Copy] = {}
        """Boundary → the neighbour's state."""
        self._of = -1
        self._cv = threading.Condition()
        self._copied = True
        self._stopped = False

    def operation(self, group: RankGroup, neighbours: tuple[int, int], boundary: int) -> Mirror:
        """Sends this rank's state at its current boundary, and stores the neighbour's."""
        self._of = neighbours[1]
        self._copied = False
        return Mirror(group, self, neighbours, boundary)

    def copy(self, pool: Pool) -> Copy | None:
        """This rank's state; None: the job is no longer protected."""
        made = None
        if self._protected() and not self._stopped:
            settle()
            skeleton, tensors = self._replica.shared(undo=False)
            data = pool.take(sum(skeleton["bytes"]), torch.uint8)
            parts = data.split(skeleton["bytes"])
            for part, each in zip(parts, tensors, strict=True):
                part.copy_(torch.from_numpy(memory_of(each)))
            description = torch.frombuffer(bytearray(pickle.dumps(skeleton)), dtype=torch.uint8)
            made = Copy(description, data)
        with self._cv:
            self._copied = True
            self._cv.notify_all()
        return made

    def wait_copied(self) -> None:
        """Wait until the values that a step is about to change are no longer needed."""
        with self._cv:
            self._cv.wait_for(lambda: self._copied)

    def store(self, boundary: int, state: Copy | None, pool: Pool) -> None:
        """None: the neighbour reports that the job is not protected, which holds for this rank,
        too."""
        if state is not None:
            self._kept[boundary] = state
        self._stopped = self._stopped or state is None
        for each in sorted(self._kept)[: None if self._stopped else -KEPT]:
            pool.give_back(self._kept.pop(each).data)

    def held(self) -> dict[int, list[int]]:
        """Of which rank, and at which boundaries, there are copies here."""
        return {self._of: sorted(self._kept)} if self._kept else {}

    def has(self, rank: int, boundary: int) -> bool:
        return rank == self._of and boundary in self._kept

    def give(self, boundary: int, send: Callable[[Any], None]) -> int:
        """Send the neighbour's state as its `Replica.give` would have; returns the number of
        bytes."""
        description, data = self._kept[boundary]
        send(torch.tensor([description.numel()]))
        send(description)
        for each in data.split(pickle.loads(description.numpy().tobytes())["bytes"]):
            send(each.clone())
        return int(data.numel())


class Mirror(Operation):
    """The exchange at a boundary: a collective of all ranks, repeated like one."""

    def __init__(
        self, group: RankGroup, shadows: Shadows, neighbours: tuple[int, int], boundary: int
    ) -> None:
        super().__init__(group, "shadow", (), boundary)
        self._shadows = shadows
        self._to, self._of = neighbours
        self._pool: Any = None
        self._received: Copy | None = None

    def keep(self, pool: Pool) -> None:
        self._pool = pool
        self._kept = self._shadows.copy(pool)

    def run(self) -> None:
        self._received = self._exchange()

    def rewind(self) -> None:
        """Nothing is overwritten."""

    def done(self) -> None:
        self._shadows.store(self.boundary, self._received, self._pool)
        self._received = None
        self.future.set_result([])

    def again(self) -> None:
        received = self._exchange()
        if received is not None:
            self._pool.give_back(received.data)

    def drop(self, pool: Pool) -> None:
        if self._kept is not None:
            pool.give_back(self._kept.data)
        self._kept = None

    def _exchange(self) -> Copy | None:
        """Exchange sizes, and those of both copies that are not empty."""
        own = [] if self._kept is None else list(self._kept)
        sizes, theirs = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
        for at, each in enumerate(own):
            sizes[at] = each.numel()
        self._both([sizes], [theirs], SIZE_TAG)
        described, size = theirs.tolist()
        if not described:
            self._both(own, [], DATA_TAG)
            return None
        received = Copy(
            torch.empty(described, dtype=torch.uint8), self._pool.take(size, torch.uint8)
        )
        self._both(own, list(received), DATA_TAG)
        return received

    def _both(self, sent: list[Any], received: list[Any], tag: int) -> None:
        inner = self.group.inner
        under_way = [
            inner.send([each], self._to, tag + at) for at, each in enumerate(sent) if each.numel()
        ]
        under_way += [
            inner.recv([each], self._of, tag + at)
            for at, each in enumerate(received)
            if each.numel()
        ]
        for each in under_way:
            each.wait()
