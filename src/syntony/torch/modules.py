"""State of modules that neither an optimizer nor `DistributedDataParallel` shares among ranks.

These are buffers of every module, and parameters without an optimizer: of averages, teachers,
frozen parts. Each rank has its own. What changes goes into the rank's record of a boundary. What
does not change must be the same after a replacement's prologue as after its predecessor's, which is
checked by SHA-256.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable
from typing import Any

import torch

from syntony.torch.sharding import local
from syntony.torch.track import track

MAX_BYTES = 16 << 20
"""Maximum size of what goes into each record."""


class Modules:
    """Tracks every module that the program makes, in order of creation."""

    def __init__(self) -> None:
        self._modules: list[weakref.ref[Any]] = []
        self._versions: list[int] = []
        """Versions of the other parameters when training began."""
        self._digests: list[bytes] = []
        track(torch.nn.Module, lambda made: self._modules.append(weakref.ref(made)))

    def _tensors(self, kind: str) -> list[Any]:
        found = {
            id(each): each
            for module in (ref() for ref in self._modules)
            if module is not None
            for each in vars(module).get(kind, {}).values()
            if each is not None
        }
        return list(found.values())

    def buffers(self) -> list[Any]:
        return self._tensors("_buffers")

    def _others(self, known: Iterable[Any]) -> list[Any]:
        """Parameters that ranks do not share."""
        shared = {id(each) for each in known}
        return [each for each in self._tensors("_parameters") if id(each) not in shared]

    def begin(self, known: Iterable[Any]) -> None:
        """Called at the first boundary: changes are detected from here on."""
        self._modules = [each for each in self._modules if each() is not None]
        others = self._others(known)
        self._versions = [local(each)._version for each in others]
        self._digests = [_digest(each) for each in others]

    def record(self, known: Iterable[Any]) -> dict[str, Any]:
        """For the record of a boundary: values of what has changed, digests of the rest. Raises
        `OverflowError`: it is too much for a record."""
        others = self._others(known)
        changed = {
            number
            for number, each in enumerate(others)
            if number >= len(self._versions) or local(each)._version != self._versions[number]
        }
        buffers = self.buffers()
        kept = [*buffers, *(others[number] for number in changed)]
        size = sum(bytes_in(each) for each in kept)
        if size > MAX_BYTES:
            raise OverflowError(
                f"buffers, and changing parameters that no optimizer has, of {size >> 20} MiB: "
                f"at most {MAX_BYTES >> 20}"
            )
        return {
            "buffers": [bytes_of(each) for each in buffers],
            "others": [
                bytes_of(each) if number in changed else None for number, each in enumerate(others)
            ],
            "digests": self._digests,
        }

    def restore(self, kept: dict[str, Any], known: Iterable[Any]) -> None:
        """Restore a replacement's modules. Raises `ValueError`: its modules, or their values,
        differ."""
        others = self._others(known)
        with torch.no_grad():
            for buffer, data in zip(self.buffers(), kept["buffers"], strict=True):
                _fill(buffer, data)
            for number, (each, data) in enumerate(zip(others, kept["others"], strict=True)):
                if data is not None:
                    _fill(each, data)
                elif _digest(each) != kept["digests"][number]:
                    raise ValueError(
                        "parameters that no optimizer has came out different from the program's "
                        f"beginning: number {number}, {tuple(each.shape)}"
                    )
        self._digests = kept["digests"]
        self._versions = [
            local(each)._version if data is None else -1
            for each, data in zip(others, kept["others"], strict=True)
        ]


def memory_of(tensor: Any) -> Any:
    """The bytes of a tensor, or of this rank's part of it, as a NumPy array."""
    return local(tensor).detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()


def bytes_in(tensor: Any) -> int:
    """Of a tensor, or of this rank's part of it."""
    part = local(tensor)
    return int(part.numel() * part.element_size())


def bytes_of(tensor: Any) -> bytes:
    """A copy."""
    return bytes(memory_of(tensor).tobytes())


def _digest(tensor: Any) -> bytes:
    return hashlib.sha256(memory_of(tensor)).digest()


def _fill(tensor: Any, data: bytes) -> None:
    kept = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(tensor.dtype)
    part = local(tensor)
    part.copy_(kept.view(part.shape))
