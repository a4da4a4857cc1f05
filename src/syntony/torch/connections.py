"""The connections of one generation: made by the coordinator's plan, cut when it ends.

State goes from rank to rank over gloo, also in jobs whose collectives use NCCL.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from syntony.torch import communicators

if TYPE_CHECKING:
    from syntony.torch.collectives import RankGroup
    from syntony.torch.session import CoordinatorSession

CONNECT_S = 20
"""Connecting takes milliseconds; a peer that dies meanwhile is not waited for longer than this."""
OPERATION_S = 30 * 60
"""gloo's own default."""


def open_sockets() -> dict[str, str]:
    """Sockets of this process, by the kernel's identification of each → file descriptor.

    Descriptors alone are not enough: they are reused, and one that was something else a moment ago
    may be a connection now.
    """
    found: dict[str, str] = {}
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            name = str(each.readlink())
            if name.startswith("socket:"):
                found[name] = each.name
    return found


class Connections:
    """Connections of this process to the other ranks."""

    def __init__(self, session: CoordinatorSession) -> None:
        self._session = session
        self._store: Any = None
        self._world: Any = None
        self._retired: list[Any] = []
        self.uses_nccl = False
        """Whether groups have an NCCL communicator, too."""
        self._communicators: list[communicators.NcclGroup] = []
        """Of the current generation."""
        self._before: set[str] | None = None
        """Sockets from before this generation connected."""
        self._ours: set[str] | None = None
        """Those of this generation, once it is connected."""

    @property
    def exist(self) -> bool:
        """Whether this process has taken part in a generation."""
        return self._store is not None

    def open(self, plan: dict[str, Any], groups: Sequence[RankGroup]) -> None:
        """Connect all groups as planned.

        Raises:
            NewerError: another generation is wanted.
            RuntimeError: a peer was lost meanwhile.
        """
        session, generation = self._session, plan["generation"]
        self._before, self._ours = set(open_sockets()), None
        self._communicators = []
        if plan["provider"] == session.rank:
            session.wait_host(generation)
            address = session.local_address
            self._store = dist.TCPStore(
                address, 0, is_master=True, wait_for_workers=False,
                timeout=timedelta(seconds=CONNECT_S),
            )  # fmt: skip
            session.send("hosted", generation=generation, address=f"{address}:{self._store.port}")
        address, _, port = session.wait_address(generation).rpartition(":")
        if plan["provider"] != session.rank:
            self._store = dist.TCPStore(
                address, int(port), is_master=False, timeout=timedelta(seconds=CONNECT_S)
            )
        self._world = self._gloo(generation, "all", session.rank or 0, plan["world"])
        for group in groups:
            self._connect(group, generation)
        self._ours = set(open_sockets()) - self._before

    def add(self, group: RankGroup) -> None:
        """Connect a group that the program makes in this generation."""
        before = set(open_sockets())
        self._connect(group, self._session.generation)
        self._ours = (self._ours or set()) | (set(open_sockets()) - before)

    def _connect(self, group: RankGroup, generation: int) -> None:
        if not group.key:
            group.inner = self._world
        else:
            group.inner = self._gloo(generation, group.key, group.rank(), group.size())
        if self.uses_nccl:
            store = dist.PrefixStore(f"{generation}/{group.key or 'all'}/nccl", self._store)
            group.nccl = communicators.NcclGroup(
                store, group.rank(), group.size(), timedelta(seconds=OPERATION_S)
            )
            self._communicators.append(group.nccl)

    def _gloo(self, generation: int, name: str, rank: int, size: int) -> Any:
        store = dist.PrefixStore(f"{generation}/{name}", self._store)
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=CONNECT_S)
        device = dist.ProcessGroupGloo.create_device(hostname=self._session.local_address)
        options._devices = [device]
        made = dist.ProcessGroupGloo(store, rank, size, options)
        made.set_timeout(timedelta(seconds=OPERATION_S))
        return made

    def cut(self) -> None:
        """Cancel waits for this generation's peers. Any thread may call it."""
        communicators.abort(self._communicators)
        before = self._before
        if before is None:
            return
        own = self._session.socket_name()
        for name, number in open_sockets().items():
            if name == own or (name in before if self._ours is None else name not in self._ours):
                continue
            with contextlib.suppress(OSError, ValueError):
                copy = socket.socket(fileno=os.dup(int(number)))
                with copy:
                    if copy.family in {socket.AF_INET, socket.AF_INET6} and copy.getpeername():
                        copy.shutdown(socket.SHUT_RDWR)

    def retire(self, groups: Sequence[RankGroup]) -> None:
        """Release the generation before the one that ends, not the latter.

        The threads of gloo's groups may be releasing tensors, for which they need the interpreter's
        lock. Destroying a group joins its threads while holding that lock.
        """
        old = [each.inner for each in groups] + [each.nccl for each in groups]
        self._retired = [self._store, self._world, *old]
        for each in groups:
            each.inner = each.nccl = None

    def send(self, to: int, tensor: Any) -> None:
        if tensor.numel():
            self._world.send([tensor.cpu()], to, 1).wait()

    def receive(self, source: int, tensor: Any) -> None:
        if tensor.numel():
            here = tensor if tensor.device.type == "cpu" else torch.empty_like(tensor, device="cpu")
            self._world.recv([here], source, 1).wait()
            if here is not tensor:
                tensor.copy_(here)
