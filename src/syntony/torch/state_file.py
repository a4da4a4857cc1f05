"""The `state` file of a checkpoint: tensors in the order in which a rank sends them to another."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from syntony.torch.modules import memory_of

if TYPE_CHECKING:
    from syntony.torch.replica import Replica

_SIZE = struct.Struct(">Q")


def write(path: Path, give: Callable[[Callable[[Any], None]], int]) -> tuple[int, str]:
    """Write what `give` sends; returns bytes and SHA-256. Raises `OSError`: it was not written."""
    digest, total = hashlib.sha256(), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:

        def send(tensor: Any) -> None:
            nonlocal total
            data = memory_of(tensor).tobytes()
            for each in (_SIZE.pack(len(data)), data):
                digest.update(each)
                file.write(each)
                total += len(each)

        with torch.no_grad():
            give(send)
        file.flush()
        os.fsync(file.fileno())
    return total, digest.hexdigest()


def read(path: Path, replica: Replica, *, undo: bool) -> None:
    """Give a rank its part of what was written.

    Raises:
        RuntimeError: parameters have other shapes.
        ValueError: the file is truncated.
    """
    with path.open("rb") as file:

        def receive(tensor: Any) -> None:
            (size,) = _SIZE.unpack(file.read(_SIZE.size))
            data = bytearray(file.read(size))
            if size != tensor.numel() * tensor.element_size() or len(data) != size:
                raise ValueError(f"{path}: a tensor of {size} bytes where {tensor.shape} belongs")
            if size:
                kept = torch.frombuffer(data, dtype=torch.uint8).view(tensor.dtype)
                tensor.copy_(kept.view(tensor.shape))

        replica.take(receive, undo=undo)
