"""A copy of each rank's state on another rank: of jobs in which no two ranks have the same.

At each boundary every rank sends its part of parameters and optimizer state to a neighbour, before
the step's own collectives and in the same thread: what any rank is told of a step implies that the
copies from its begin have arrived. The copies of two boundaries are kept, for ranks are at most one
apart. A lost rank begins again at the newest boundary of which its neighbour has the copy.
"""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING, Any

import torch

from syntony.torch.modules import memory_of
from syntony.torch.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from syntony.torch.collectives import Group
    from syntony.torch.operations import Pool
    from syntony.torch.replica import Replica

SIZE_TAG, DATA_TAG = 2, 3
KEPT = 2
"""Boundaries of which copies are kept."""
_HEAD = 8
"""Bytes of the number that says how long the description is."""


def neighbours(rank: int, world: int, per_host: int) -> tuple[int, int]:
    """To whom a rank sends its state, and whose it gets: of another host where there is one.

    Args:
        rank: this one.
        world: ranks of the job.
        per_host: ranks of each host; 0: not known.
    """
    apart = per_host if 0 < per_host < world and world % per_host == 0 else 1
    return (rank + apart) % world, (rank - apart) % world


class Shadows:
    """What this rank has of its neighbour, and what it sends of itself."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._kept: dict[int, Any] = {}
        """Boundary to the neighbour's state."""
        self._of = -1
        self._cv = threading.Condition()
        self._copied = True

    def operation(self, group: Group, neighbours: tuple[int, int], boundary: int) -> Mirror:
        """Sends this rank's state at the boundary it is at, and keeps the neighbour's."""
        self._of = neighbours[1]
        self._copied = False
        return Mirror(group, self, neighbours, boundary)

    def copy(self) -> Any:
        """This rank's state, in one tensor of bytes."""
        skeleton, tensors = self._replica.shared(undo=False)
        data = pickle.dumps(skeleton)
        parts = [len(data).to_bytes(_HEAD), data, *(memory_of(each).data for each in tensors)]
        copied = torch.frombuffer(bytearray().join(parts), dtype=torch.uint8)
        with self._cv:
            self._copied = True
            self._cv.notify_all()
        return copied

    def wait_copied(self) -> None:
        """Until what a step is about to change is no more needed."""
        with self._cv:
            self._cv.wait_for(lambda: self._copied)

    def store(self, boundary: int, state: Any) -> None:
        self._kept[boundary] = state
        for each in sorted(self._kept)[:-KEPT]:
            del self._kept[each]

    def held(self) -> dict[int, list[int]]:
        """Of whom, and of which boundaries, there are copies here."""
        return {self._of: sorted(self._kept)} if self._kept else {}

    def has(self, rank: int, boundary: int) -> bool:
        return rank == self._of and boundary in self._kept

    def give(self, boundary: int, send: Callable[[Any], None]) -> int:
        """Send the neighbour's state as `Replica.give` would have there; how many bytes."""
        state = self._kept[boundary]
        size = int.from_bytes(state[:_HEAD].numpy().tobytes())
        skeleton = state[_HEAD : _HEAD + size]
        send(torch.tensor([size]))
        send(skeleton.clone())
        at = _HEAD + size
        for each in pickle.loads(skeleton.numpy().tobytes())["bytes"]:
            send(state[at : at + each].clone())
            at += each
        return int(state.numel()) - _HEAD - size


class Mirror(Operation):
    """The exchange of a boundary: a collective of all ranks, and repeated like one."""

    def __init__(
        self, group: Group, shadows: Shadows, neighbours: tuple[int, int], boundary: int
    ) -> None:
        super().__init__(group, "shadow", (), boundary)
        self._shadows = shadows
        self._to, self._of = neighbours
        self._received: Any = None

    def keep(self, pool: Pool) -> None:  # noqa: ARG002 - its size is another each time
        self._kept = self._shadows.copy()

    def run(self) -> None:
        self._received = self._exchange()

    def rewind(self) -> None:
        """Nothing is overwritten."""

    def done(self) -> None:
        self._shadows.store(self.boundary, self._received)
        self._received = None
        self.future.set_result([])

    def again(self) -> None:
        self._exchange()

    def drop(self, pool: Pool) -> None:  # noqa: ARG002
        self._kept = None

    def _exchange(self) -> Any:
        inner, size = self.group.inner, torch.zeros(1, dtype=torch.int64)
        self._both(inner, torch.tensor([self._kept.numel()]), size, SIZE_TAG)
        received = torch.empty(int(size.item()), dtype=torch.uint8)
        self._both(inner, self._kept, received, DATA_TAG)
        return received

    def _both(self, inner: Any, sent: Any, received: Any, tag: int) -> None:
        under_way = [inner.send([sent], self._to, tag), inner.recv([received], self._of, tag)]
        for each in under_way:
            each.wait()
