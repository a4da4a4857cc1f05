"""A process group over gloo or NCCL whose collectives survive the loss of a rank.

One thread runs all collectives of this process in the order in which they were called, and keeps a
copy of the input of each until every rank has passed the step. When a generation ends, the
survivors connect again and repeat every collective since the replacement's boundary, with the kept
inputs. The replacement takes part with inputs that it computes itself, and gets the same results.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from syntony.torch import communicators, state_file
from syntony.torch.connections import Connections
from syntony.torch.gpu import Streams, captured, settle
from syntony.torch.operations import (
    CPU,
    IN_PLACE,
    NEWER,
    TWO_SIDED,
    Operation,
    Pool,
    copy_into,
    device_of,
    each_of,
)
from syntony.torch.recovery import START
from syntony.torch.session import CoordinatorSession, LostError, NewerError
from syntony.torch.shadow import Shadows
from syntony.torch.stragglers import StepWaits

if TYPE_CHECKING:
    from syntony.torch.replica import Replica

_work: Any = torch._C._distributed_c10d._create_work_from_future
BACKEND = "syntony"
VERDICT_S = 60.0
"""Time after a failure of unknown cause in which the coordinator may order a new generation."""
PRESERVED_S = 3600.0
"""Limit for the end of a job whose state is kept."""
MAX_TRIES = 2
"""Attempts of an operation that fails while no rank is lost; then the process ends."""
MAX_PROLOGUE_BYTES = 1 << 18
"""Maximum size of each result that is kept of collectives before the first boundary."""

POINT_TO_POINT = ("send", "recv", "recv_anysource")
UNREPEATABLE = (*POINT_TO_POINT, "monitored_barrier")


class RankGroup(dist.ProcessGroup):
    """The program's process group, in all generations."""

    def __init__(self, executor: Executor, key: str, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._executor = executor
        self._place = rank, size
        self.key = key
        """The same on all members and in all generations; empty: all ranks."""
        self.inner: Any = None
        """gloo's group of the current generation."""
        self.nccl: Any = None
        """The `NcclGroup` of the current generation, if the job uses NCCL."""
        self.calls = 0
        self._name = ""

    def over_nccl(self, device: Any) -> bool:
        """Whether tensors of a device go over NCCL."""
        return self.nccl is not None and device is not None and device.type == communicators.DEVICE

    def unprotected(self, name: str, args: Any, kwargs: Any) -> Any:
        """Call the backend of the current generation directly."""
        carrier = self.nccl.made if self.over_nccl(device_of(args)) else self.inner
        return getattr(carrier, name)(*args, **kwargs)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch calls it so
        return BACKEND

    def _set_group_name(self, name: str) -> None:
        """PyTorch asks a custom backend for the group's name, and we have none."""
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name

    def size(self) -> int:
        return self._place[1]

    def rank(self) -> int:
        return self._place[0]


def _method(name: str) -> Any:
    def method(self: RankGroup, *args: Any, opts: Any = None) -> Any:
        if opts is not None:
            args = *args, opts
        return self._executor.submit(Operation(self, name, args, self._executor.boundary))

    method.__name__ = name
    return method


def _unrepeatable(name: str) -> Any:
    def method(self: RankGroup, *args: Any, **kwargs: Any) -> Any:
        return self._executor.unrepeatable(self, name, args, kwargs)

    method.__name__ = name
    return method


for _name in (*IN_PLACE, *TWO_SIDED, "barrier"):
    setattr(RankGroup, _name, _method(_name))
for _name, _older in NEWER.items():
    setattr(RankGroup, _name, _method(_older))
for _name in UNREPEATABLE:
    setattr(RankGroup, _name, _unrepeatable(_name))


class Executor:
    """Runs collectives, and takes this process from one generation to the next."""

    def __init__(self, session: CoordinatorSession, replica: Replica) -> None:
        self._session = session
        self._replica = replica
        self._queue: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._log: list[Operation] = []
        self._pool = Pool()
        self._groups: list[RankGroup] = []
        self._connections = Connections(session)
        self._streams = Streams()
        self._pending = 0
        self._idle = threading.Condition()
        self.solo = False
        """True for a replacement in its prologue: collectives return the kept results, or none."""
        self.results: dict[tuple[str, int], Any] = {}
        """Results of the prologue's collectives, by group and number."""
        self._running: tuple[Operation, int] | None = None
        """The running operation and when it began, CLOCK_MONOTONIC."""
        self._called_ns = 0
        """When the program last called a collective."""
        self._waits = StepWaits()
        self.shadows = Shadows(replica, lambda: not session.reason)
        replica.before_step = self.shadows.wait_copied
        session.on_freeze = self._freeze
        session.progress = self.progress

    @property
    def boundary(self) -> int:
        return self._replica.boundary

    def use_nccl(self) -> None:
        """Before the first generation: the program's GPUs talk by NCCL."""
        self._connections.uses_nccl = True

    def start(self) -> None:
        threading.Thread(target=self._loop, name="syntony-collectives", daemon=True).start()

    def new_group(self, key: str, rank: int, size: int) -> RankGroup:
        """One of the program's groups, of which this rank is a member."""
        group = RankGroup(self, key, rank, size)
        self._groups.append(group)
        if self.boundary > START:
            self._session.unprotect("a process group was made after training began")
        if not self.solo and self._connections.exist:
            self._connections.add(group)
        return group

    # --- running ---

    def submit(self, operation: Operation) -> Any:
        if captured(operation.device):
            self._session.unprotect("collectives in a CUDA graph")
            self.drain()
            return operation.group.unprotected(operation.name, operation.args, {})
        operation.number = operation.group.calls
        operation.group.calls += 1
        if self.solo:
            self._pretend(operation)
        else:
            with self._idle:
                self._pending += 1
            self._called_ns = time.monotonic_ns()
            self._queue.put(operation)
        return _work(operation.future)

    def mirror(self, neighbours: tuple[int, int]) -> None:
        """At a boundary: send this rank's state to a neighbour, and store another rank's."""
        group = self._groups[0]
        self.submit(self.shadows.operation(group, neighbours, self.boundary))

    @property
    def calls(self) -> dict[str, int]:
        """Group → number of operations called in it; part of the record of a boundary."""
        return {each.key: each.calls for each in self._groups}

    def restore_calls(self, kept: dict[str, int]) -> None:
        """For a replacement: continue to count from its predecessor's numbers."""
        for each in self._groups:
            each.calls = kept.get(each.key, each.calls)

    def unrepeatable(self, group: RankGroup, name: str, args: Any, kwargs: Any) -> Any:
        is_message = name in POINT_TO_POINT and not group.over_nccl(device_of(args))
        if self._session.fixed and is_message:
            return self._message(group, name, args, kwargs)
        self._session.unprotect(f"{name} is not repeated for a replacement")
        self.drain()
        return group.unprotected(name, args, kwargs)

    def _message(self, group: RankGroup, name: str, args: Any, kwargs: Any) -> Any:
        """A message between stages of a pipeline. A separate thread waits for its end, because it
        never ends if the job ends with its state kept."""
        self._session.wait_ack(self.boundary)
        self.drain()
        generation, future = self._session.generation, torch.futures.Future()
        work = getattr(group.inner, name)(*args, **kwargs)

        def follow() -> None:
            try:
                work.wait()
            except RuntimeError as error:
                if not self._is_wanted_after(generation):
                    self._end(name, error)
            else:
                future.set_result([])

        threading.Thread(target=follow, name="syntony-message", daemon=True).start()
        return _work(future)

    def _is_wanted_after(self, generation: int) -> bool:
        try:
            return self._session.wait_newer(generation, VERDICT_S)
        except LostError:
            return False

    def drain(self) -> None:
        """Wait until every collective that was called has its result."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending == 0)

    def _pretend(self, operation: Operation) -> None:
        kept = self.results.get((operation.group.key, operation.number))
        with torch.no_grad():
            if kept is not None:
                copy_into(operation.args[0], kept)
        outputs = operation.args[0] if operation.args else None
        operation.future.set_result(outputs if isinstance(outputs, list) else [])

    def _loop(self) -> None:
        with torch.no_grad():
            while True:
                operation = self._queue.get()
                if self._session.wanted > self._session.generation >= 0 and not self.solo:
                    self._guarded(self._recover, operation)
                if operation is not None:
                    self._guarded(partial(self._run, operation), operation)
                    with self._idle:
                        self._pending -= 1
                        self._idle.notify_all()

    def _guarded(self, action: Callable[[], None], operation: Operation | None) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever it is, the program must not go on
            if operation is not None and not operation.future.done():
                self._end(operation.name, error)
            elif operation is None:
                self._session.event("failed", why=repr(error)[:300])

    @staticmethod
    def _end(name: str, error: Exception) -> None:
        """End the process because an operation failed: PyTorch does not raise the exception of a
        future in `Work.wait`, so the program would continue with whatever its tensors contain."""
        print(f"syntony: {name} failed: {error}", file=sys.stderr, flush=True)
        os._exit(1)

    def _run(self, operation: Operation) -> None:
        with self._streams.after(operation.mark, operation.device):
            self._complete(operation)

    def _complete(self, operation: Operation) -> None:
        self._forget()
        operation.keep(self._pool)
        self._session.wait_ack(operation.boundary)
        tries = 0
        while True:
            self._running = operation, time.monotonic_ns()  # restarted: waiting is no hang
            try:
                operation.run()
                break
            except RuntimeError as error:
                tries = tries + 1 if self._recovered_from(operation.name, error) else 0
                if tries > MAX_TRIES:
                    raise
                operation.rewind()
        now_ns, began_ns = time.monotonic_ns(), self._running[1]
        self._running = None
        # Operations are queued: the program has called them instead of waiting for this one.
        waited_ns = now_ns - max(began_ns, self._called_ns) if self._pending == 1 else 0
        split = self._replica.part.parts > 1
        self._waits.add(operation.boundary, waited_ns, now_ns, split=split)
        if operation.boundary == START:
            self._keep_result(operation)
        operation.done()
        self._log.append(operation)

    def progress(self) -> dict[str, Any]:
        """The operation in which this rank waits, and the program's progress. Any thread may call
        it."""
        running, now_ns = self._running, time.monotonic_ns()
        report: dict[str, Any] = {"called": self.calls, "pace": self._waits.pace}
        if running is not None:
            operation, since_ns = running
            place = operation.group.key, operation.number, operation.name
            report["waiting"] = [*place, now_ns - since_ns]
        return report

    def _recovered_from(self, name: str, error: RuntimeError) -> bool:
        """Find out the cause from the coordinator; return when the operation can be tried again.

        True: no rank was lost, so the operation itself may be at fault.
        """
        if self._session.reason and self._session.wanted <= self._session.generation:
            raise error
        why = f"{name} failed: {error}"[:200]
        self._session.send("failed", generation=self._session.generation, why=why)
        if not self._session.wait_newer(self._session.generation, VERDICT_S):
            raise error
        self._recover()
        plan = self._session.plan
        return plan is not None and not plan["joiners"]

    def _forget(self) -> None:
        floor = self._session.floor
        if self._log and self._log[0].boundary < floor:
            for each in self._log:
                if each.boundary < floor:
                    each.drop(self._pool)
            self._log = [each for each in self._log if each.boundary >= floor]

    def _keep_result(self, operation: Operation) -> None:
        if operation.name in IN_PLACE or operation.name in TWO_SIDED:
            sizes: list[int] = []
            each_of(operation.args[0], lambda t: sizes.append(t.numel() * t.element_size()))
            if sum(sizes) <= MAX_PROLOGUE_BYTES:
                result = each_of(operation.args[0], lambda t: t.detach().to(CPU, copy=True))
                self.results[operation.group.key, operation.number] = result

    # --- generations ---

    def _freeze(self) -> None:
        """Called as soon as a new generation is wanted: cancel waits for peers of the old one."""
        self._connections.cut()
        self._queue.put(None)

    def _recover(self) -> None:
        """Work until this survivor takes part in the wanted generation."""
        session = self._session
        while session.wanted > session.generation:
            generation = session.wanted
            report = self._replica.freeze()
            self._connections.cut()
            settle()
            self._connections.retire(self._groups)
            session.send(
                "frozen", generation=generation, boundary=report.boundary,
                stepped=report.stepped, gives=report.gives, shadows=self.shadows.held(),
            )  # fmt: skip
            try:
                plan = session.wait_plan_of(generation)
            except NewerError:  # the new generation needs a new report
                continue
            if "preserve" in plan:
                self._preserve(plan)
                continue
            if not self.enter(plan):
                continue
            self._replica.thaw()
            try:
                for each in self._log:
                    if each.boundary >= plan["boundary"]:
                        each.again()
            except RuntimeError as error:
                session.send("failed", generation=generation, why=str(error)[:200])
                if not session.wait_newer(generation, VERDICT_S):
                    raise

    def _preserve(self, plan: dict[str, Any]) -> None:
        """No spare is left: write the files that the plan names, and wait for the end, or another
        plan."""
        written, failure = {}, ""
        try:
            for name, of, undo in plan["files"]:
                give = partial(self._replica.give, undo=undo)
                if of != self._session.rank:
                    give = partial(self.shadows.give, plan["boundary"])
                written[name] = state_file.write(Path(plan["preserve"]) / name, give)
        except OSError as error:
            failure = str(error)
        generation = plan["generation"]
        self._session.send("preserved", generation=generation, files=written, failure=failure)
        self._session.wait_newer(generation, PRESERVED_S)

    def enter(self, plan: dict[str, Any]) -> bool:
        """Connect as planned and transfer state; False if a newer generation is wanted."""
        session, generation = self._session, plan["generation"]
        assert session.rank is not None
        session.send("arrived", generation=generation)
        try:
            self._connections.open(plan, self._groups)
            if plan["boundary"] > START:
                self._hand_over(plan)
                settle()
        except NewerError:
            return False
        except RuntimeError as error:  # a peer was lost meanwhile
            session.send("failed", generation=generation, why=str(error)[:200])
            if not session.wait_newer(generation, VERDICT_S):
                raise
            return False
        session.generation = generation
        session.send("formed", generation=generation)
        return bool(session.wanted == generation)

    def _hand_over(self, plan: dict[str, Any]) -> None:
        for joiner, source, undo in plan["sources"]:
            if self._session.rank == source:
                send = partial(self._connections.send, joiner)
                if self.shadows.has(joiner, plan["boundary"]):
                    size = self.shadows.give(plan["boundary"], send)
                else:
                    size = self._replica.give(send, undo=undo)
                self._session.event("state-sent", to=joiner, bytes=size)
            elif self._session.rank == joiner:
                self._replica.take(partial(self._connections.receive, source), undo=undo)

    def prologue(self) -> bytes:
        """Results that a replacement of this rank will need before its first boundary."""
        kept, self.results = self.results, {}
        return pickle.dumps(kept)

    def restore_prologue(self, data: bytes) -> None:
        self.results = pickle.loads(data) if data else {}
        self.solo = True
