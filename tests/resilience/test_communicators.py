"""NCCL's communicators: what counts as done, how a generation ends. Without a GPU, by stand-ins."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip(
    "torch", reason="needs PyTorch (pip install '.[torch]'): NCCL's communicators are NOT tested"
)

import torch.distributed as dist  # noqa: E402

from syntony.torch import communicators, gpu, job, operations  # noqa: E402
from syntony.torch.communicators import AbortedError, NcclGroup  # noqa: E402

HOUR = timedelta(hours=1)


class Work:
    """A collective that is done after some looks."""

    def __init__(self, looks: int = 3, failure: Exception | None = None) -> None:
        self.looks, self.failure = looks, failure
        self.waited = False

    def is_completed(self) -> bool:
        self.looks -= 1
        return self.looks <= 0

    def exception(self) -> Exception | None:
        return self.failure

    def wait(self) -> None:
        self.waited = True


class Made:
    """In the place of PyTorch's group; notes what was done with it."""

    notes: ClassVar[list[str]] = []

    class Options:
        _timeout = HOUR

    def __init__(self, *place: Any) -> None:
        self.place = place
        self.work: Any = Work()

    def allreduce(self, *_: Any) -> Any:
        return self.work

    def abort(self) -> None:
        self.notes.append("abort")

    def _group_start(self) -> None:
        self.notes.append("start")

    def _group_end(self) -> None:
        self.notes.append("end")


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> type[Made]:
    for name in communicators.SETTINGS:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(dist, "ProcessGroupNCCL", Made, raising=False)
    monkeypatch.setattr(Made, "notes", [])
    return Made


def group() -> NcclGroup:
    return NcclGroup("store", 1, 4, HOUR)


def test_pytorchs_watchdog_is_told_to_leave_failures_to_us() -> None:
    assert group().made.place[:3] == ("store", 1, 4)
    assert {name: os.environ[name] for name in communicators.SETTINGS} == communicators.SETTINGS
    assert communicators.SETTINGS["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"


def test_a_collective_is_done_when_the_gpu_is() -> None:
    one = group()
    one.call("allreduce", ())
    assert one.made.work.looks == 0
    assert one.made.work.waited, "the stream is in order again"


def test_one_that_fails_raises() -> None:
    one = group()
    one.made.work = Work(failure=RuntimeError("unhandled system error"))
    with pytest.raises(RuntimeError, match="unhandled system error"):
        one.call("allreduce", ())


def test_an_abort_ends_one_that_never_would() -> None:
    one = group()
    one.made.work = Work(looks=1 << 60)
    ended: list[str] = []

    def run() -> None:
        with pytest.raises(AbortedError):
            one.call("allreduce", ())
        ended.append("aborted")

    thread = threading.Thread(target=run)
    thread.start()
    communicators.abort([one])
    thread.join(300)
    assert ended == ["aborted"]


def test_an_aborted_one_does_not_count_though_it_looks_completed() -> None:
    one = group()

    class Races(Work):
        def is_completed(self) -> bool:
            communicators.abort([one])
            return True

    one.made.work = Races()
    with pytest.raises(AbortedError):
        one.call("allreduce", ())
    with pytest.raises(AbortedError):
        one.call("allreduce", ())


def test_all_are_aborted_together_and_once() -> None:
    groups = [group(), group()]
    communicators.abort(groups)
    communicators.abort(groups)
    assert Made.notes == ["start", "abort", "abort", "end"]


def test_none_is_forgotten_for_one_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(_: Any) -> None:
        Made.notes.append("abort")
        raise RuntimeError("was never connected")

    monkeypatch.setattr(Made, "abort", abort)
    communicators.abort([group(), group()])
    assert Made.notes == ["start", "abort", "abort", "end"]


def test_older_names_of_the_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Made, "abort")
    assert communicators.unusable() == "PyTorch cannot abort NCCL's communicators"
    monkeypatch.setattr(Made, "_shutdown", lambda _: Made.notes.append("shutdown"), raising=False)
    assert communicators.unusable() == ""
    communicators.abort([group()])
    assert Made.notes == ["start", "shutdown", "end"]


def test_a_pytorch_without_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dist, "ProcessGroupNCCL")
    assert communicators.unusable() == "PyTorch without NCCL"


@pytest.mark.parametrize(
    ("backend", "gpus", "nccl", "name"),
    [
        (None, False, False, "gloo"), ("gloo", True, False, "gloo"), ("nccl", True, True, "nccl"),
        (None, True, True, "gloo"), ("cpu:gloo,cuda:nccl", True, True, "nccl"),
    ],
)  # fmt: skip
def test_which_backends_use_it(
    monkeypatch: pytest.MonkeyPatch, backend: str | None, gpus: bool, nccl: bool, name: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    used: list[bool] = []
    process: Any = SimpleNamespace(
        executor=SimpleNamespace(use_nccl=lambda: used.append(True)),
        replica=SimpleNamespace(on_gpu=False),
    )
    assert job.RankProcess._choose(process, backend) == ""
    assert (bool(used), process.replica.on_gpu, process._backend) == (nccl, nccl, name)
    assert "only gloo and nccl" in job.RankProcess._choose(process, "mpi")
    monkeypatch.delattr(dist, "ProcessGroupNCCL")
    used.clear()
    reason = job.RankProcess._choose(process, backend)
    assert reason == ("PyTorch without NCCL" if name == "nccl" else "")
    assert used == []


class Carrier:
    """A group of both kinds; what is called is noted."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.nccl = SimpleNamespace(call=lambda name, _: self.called.append(f"nccl {name}"))
        self.inner = SimpleNamespace(
            allreduce=lambda *_: self.called.append("gloo allreduce"),
            barrier=lambda *_: self.called.append("gloo barrier"),
        )

    def over_nccl(self, device: Any) -> bool:
        return device is not None and device.type == "meta"  # in the place of a GPU's

    def rank(self) -> int:
        return 0


def test_tensors_on_gpus_go_over_nccl_and_others_over_gloo() -> None:
    carrier: Any = Carrier()
    there, here = torch.zeros(3, device="meta"), torch.zeros(3)
    for args in ([[there]], [[here]]):
        operations.Operation(carrier, "allreduce", tuple(args), 0).run()
    operations.Operation(carrier, "barrier", (), 0).run()
    assert carrier.called == ["nccl allreduce", "gloo allreduce", "gloo barrier"]


def test_a_failed_gather_into_the_memory_of_its_input_has_its_input_again() -> None:
    output = torch.arange(8.0)
    mine = output.narrow(0, 2, 2)
    carrier: Any = Carrier()
    one = operations.Operation(carrier, "_allgather_base", (output, mine), 0)
    one.keep(operations.Pool())
    output.fill_(1e30)  # an aborted kernel leaves anything there
    one.rewind()
    assert mine.tolist() == [2.0, 3.0]


def test_buffers_stay_on_their_device() -> None:
    pool = operations.Pool()
    there = pool.copy(torch.zeros(4, device="meta"))
    pool.give_back(there)
    assert pool.take(4, torch.float32).device.type == "cpu"
    assert pool.take(4, torch.float32, torch.device("meta")).device.type == "meta"


def test_our_stream_starts_after_what_the_program_did(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Event:
        def record(self, stream: str) -> None:
            order.append(f"mark {stream}")

    class Stream:
        def __init__(self, device: Any) -> None:
            order.append(f"new stream on {device}")

        def wait_event(self, event: Event) -> None:
            order.append("ours waits")

    class Entered:
        def __init__(self, what: Any) -> None:
            self.what = what

        def __enter__(self) -> None:
            order.append(f"in {type(self.what).__name__}")

        def __exit__(self, *_: object) -> None:
            order.append(f"out {type(self.what).__name__}")

    cuda = {
        "Event": Event, "Stream": Stream, "current_stream": "the program's {}".format,
        "device": Entered, "stream": Entered,
    }  # fmt: skip
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    streams, device = gpu.Streams(), torch.device("cuda:1")
    mark = streams.mark(device)
    with streams.after(mark, device):
        order.append("collective")
    assert order == [
        "mark the program's cuda:1", "in device", "new stream on cuda:1", "in Stream",
        "ours waits", "collective", "out Stream", "out device",
    ]  # fmt: skip
    order.clear()
    with streams.after(streams.mark(device), device):
        pass
    assert "new stream on cuda:1" not in order[:2]
    assert streams.mark(torch.device("cpu")) is None
    order.clear()
    with streams.after(None, torch.device("cpu")):
        order.append("at once")
    assert order == ["at once"]


def test_the_gpus_random_state_is_part_of_a_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    from syntony.torch.random_state import random_state, set_random_state

    assert random_state()[3] is None
    kept = [torch.arange(16, dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda: kept[0])
    monkeypatch.setattr(torch.cuda, "set_rng_state", kept.append)
    set_random_state(random_state())
    assert kept[1].tolist() == list(range(16))
