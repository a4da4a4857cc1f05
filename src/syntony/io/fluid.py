"""`syntony.traffic.fair.max_min` and `syntony.traffic.colouring.ChainColouring` in native code."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.io._library import ffi, library, pointer_to
from syntony.traffic.colouring import FAR

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


def max_min(
    links: Ints,
    capacity: Floats,
    weight: Floats | None = None,
    demand: Floats | None = None,
) -> Floats:
    """See `syntony.traffic.fair.max_min`, whose results it equals up to rounding.

    Raises:
        ValueError: a link out of range, or a weight that is not positive.
        MemoryError: no room for a few words per hop.
    """
    flows, hops = links.shape
    rate = np.zeros(flows)
    rows = np.ascontiguousarray(links, dtype=np.int32)
    arrays = [
        None if each is None else np.ascontiguousarray(each, dtype=np.float64)
        for each in (capacity, weight, demand)
    ]
    pointers = [ffi.NULL if each is None else pointer_to(each, "double") for each in arrays]
    error = library().syn_max_min(
        pointer_to(rows, "int32_t"), flows, hops, pointers[0], len(capacity), pointers[1],
        pointers[2], pointer_to(rate, "double"),
    )  # fmt: skip
    _check(error, f"{flows} flows on {len(capacity)} links")
    return rate


class NativeColouring:
    """See `syntony.traffic.colouring.ChainColouring`, whose results it equals exactly."""

    def __init__(self, leaves: int, colours: int, flows: int) -> None:
        self._flows = flows
        made = library().syn_colouring_new(leaves, colours, flows)
        if made == ffi.NULL:
            raise ValueError(f"cannot colour {flows} flows of {leaves} leaves with {colours}")
        self._handle: Any = ffi.gc(made, library().syn_colouring_free)

    def add(self, flow: Ints, up: Ints, down: Ints, reach: int = FAR) -> int:
        """See `Colouring.add`. Raises `ValueError`: a flow that is there already, or a number out
        of range."""
        if not len(flow) == len(up) == len(down):
            raise ValueError("flows, and leaves at both ends, must be as many")
        arrays = [np.ascontiguousarray(each, dtype=np.int32) for each in (flow, up, down)]
        pointers = [pointer_to(each, "int32_t") for each in arrays]
        moved = int(library().syn_colouring_add(self._handle, *pointers, len(flow), reach))
        _check(max(0, -moved), f"{len(flow)} flows")
        return moved

    def remove(self, flow: Ints) -> None:
        """See `Colouring.remove`. Raises `ValueError`: a flow that is not there."""
        numbers = np.ascontiguousarray(flow, dtype=np.int32)
        pointer = pointer_to(numbers, "int32_t")
        _check(library().syn_colouring_remove(self._handle, pointer, len(flow)), "remove")

    def colours(self) -> Ints:
        found = library().syn_colouring_colours(self._handle)
        return np.frombuffer(ffi.buffer(found, 4 * self._flows), dtype=np.int32).copy()


def _check(error: int, what: str) -> None:
    if error:
        message = f"{what}: {os.strerror(error)}"
        raise MemoryError(message) if error == 12 else ValueError(message)
