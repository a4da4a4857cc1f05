"""What ranks with a GPU need in addition: order between streams, its random state, its model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.cuda import Event, Stream


class Streams:
    """Orders the program's stream before the stream on which the executor runs collectives.

    The program's thread records an event on its stream when it calls a collective; the executor's
    stream waits for that event. In the other direction no event is needed: the host waits until the
    result is complete.
    """

    def __init__(self) -> None:
        self._streams: dict[int, Stream] = {}

    @staticmethod
    def mark(device: Any) -> Event | None:
        """Record an event on the calling thread's stream; None if the device is no GPU."""
        if device is None or device.type != "cuda":
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        return event

    @contextmanager
    def after(self, mark: Event | None, device: Any) -> Iterator[None]:
        """Run the block on the executor's stream of the device, after the event `mark`."""
        if mark is None:
            yield
            return
        with torch.cuda.device(device):
            stream = self._streams.setdefault(device.index, torch.cuda.Stream(device))
            with torch.cuda.stream(stream):
                stream.wait_event(mark)
                yield


def settle() -> None:
    """Wait until the GPU has completed all work."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def captured(device: Any) -> bool:
    """Whether calls are now recorded in a CUDA graph instead of run."""
    return device is not None and device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def random_state() -> bytes | None:
    """State of the GPU's generator; None if no GPU is in use."""
    if not torch.cuda.is_initialized():
        return None
    return bytes(torch.cuda.get_rng_state().numpy().tobytes())


def set_random_state(state: bytes | None) -> None:
    """Set the state that `random_state` returned."""
    if state is not None:
        torch.cuda.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8).clone())


def model_of(tensors: list[Any]) -> str:
    """Name and memory of the GPU that holds the tensors; empty if they are on a CPU."""
    device = next((each.device for each in tensors if each.device.type == "cuda"), None)
    if device is None:
        return ""
    found = torch.cuda.get_device_properties(device)
    return f"{found.name}, {found.total_memory >> 20} MiB"
