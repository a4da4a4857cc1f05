"""What a rank's GPU needs that a CPU does not: order between streams, random state, a name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.cuda import Event, Stream


class Streams:
    """Collectives run in a thread of ours, on a stream of ours, after what the program did before.

    The program's thread marks its stream when it calls a collective; ours lets its stream wait for
    that mark. The result is complete before the program goes on, so the way back needs none.
    """

    def __init__(self) -> None:
        self._streams: dict[int, Stream] = {}

    @staticmethod
    def mark(device: Any) -> Event | None:
        """By the caller's thread; None for anything but a GPU."""
        if device is None or device.type != "cuda":
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        return event

    @contextmanager
    def after(self, mark: Event | None, device: Any) -> Iterator[None]:
        """Run on our stream of the device, after the mark."""
        if mark is None:
            yield
            return
        with torch.cuda.device(device):
            stream = self._streams.setdefault(device.index, torch.cuda.Stream(device))
            with torch.cuda.stream(stream):
                stream.wait_event(mark)
                yield


def settle() -> None:
    """Until the GPU has done all that it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def captured(device: Any) -> bool:
    """Whether what is called now goes into a CUDA graph instead of running."""
    return device is not None and device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def random_state() -> bytes | None:
    """Of the GPU's generator; None without a GPU in use."""
    if not torch.cuda.is_initialized():
        return None
    return bytes(torch.cuda.get_rng_state().numpy().tobytes())


def set_random_state(state: bytes | None) -> None:
    """What `random_state` returned."""
    if state is not None:
        torch.cuda.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8).clone())


def model_of(tensors: list[Any]) -> str:
    """Name and memory of the GPU that tensors are on; empty on a CPU."""
    device = next((each.device for each in tensors if each.device.type == "cuda"), None)
    if device is None:
        return ""
    found = torch.cuda.get_device_properties(device)
    return f"{found.name}, {found.total_memory >> 20} MiB"
