"""Virtual time: one event loop for every process of the world, and what a process can suffer.

Each task belongs to a process (`Node`) by its context. What a dead process would still run is
dropped; what a paused one would run waits until it goes on. Functions that production code hands to
threads run on the loop, whole, after a delay that is drawn, and take the virtual time that what
they touched says (`Loop.spend`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import traceback
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import partial
from random import Random
from typing import Any

from syntony.controller.main import THREADS
from syntony.model import S

T0_NS = 1_700_000_000 * S
"""True time at which a world begins."""


class Node:
    """One life of one process.

    Args:
        name: of the process; a later life has the same.
        clock: of its host.
    """

    def __init__(self, name: str, clock: HostClock) -> None:
        self.name = name
        self.clock = clock
        self.alive = True
        self.paused = False
        self.boot_ns = 0
        """What its monotonic clock is ahead of the world's."""
        self.deferred: list[_Call] = []
        self.threads = 0
        """That run a function now."""
        self.queue: deque[partial[Any]] = deque()
        """Functions that wait for a thread."""


class HostClock:
    """What a host calls the time: true time with an offset, a drift, and jumps.

    Args:
        offset_ns: at true time `T0_NS`.
        drift_ppb: constant.
    """

    def __init__(self, offset_ns: int, drift_ppb: float) -> None:
        self.offset_ns = offset_ns
        self.drift_ppb = drift_ppb
        self.epoch = 1
        """Names the time between two jumps."""

    def read_ns(self, true_ns: int) -> int:
        return true_ns + self.offset_ns + round((true_ns - T0_NS) * self.drift_ppb * 1e-9)

    def jump(self, by_ns: int) -> None:
        self.offset_ns += by_ns
        self.epoch += 1


NODE: ContextVar[Node | None] = ContextVar("node", default=None)
"""Whose code runs."""


class _Task(asyncio.Task[Any]):
    """A task whose place in a set follows from the seed: by default that is its address in memory,
    and a group ends its tasks in the order of a set."""

    def __init__(self, number: int, *args: Any, **options: Any) -> None:
        self._place = number
        super().__init__(*args, **options)

    def __hash__(self) -> int:
        return self._place


class DiesNowError(BaseException):
    """The process dies at this statement."""


class WaitsError(BaseException):
    """What a thread's function asks for answers at a later instant: it is called again then.

    Args:
        until_ns: since the world began.
    """

    def __init__(self, until_ns: int) -> None:
        self.until_ns = until_ns


class _Call(list[Any]):
    """A callback, its arguments and its context: what `asyncio.Handle` is, but cheaper to make. A
    world makes a dozen for each message."""

    __slots__ = ()

    def cancel(self) -> None:
        self[:] = None, None, self[2]

    def cancelled(self) -> bool:
        return self[0] is None


class _Timer(float):
    """A call at an instant, which it is compared by: see `asyncio.TimerHandle`."""

    __slots__ = ("call",)
    call: _Call

    def when(self) -> float:
        return float(self)

    def cancel(self) -> None:
        """It stays where it is until it is due."""
        self.call.cancel()

    def cancelled(self) -> bool:
        return self.call.cancelled()


class Loop(asyncio.BaseEventLoop):
    """Runs until nothing is left to do by its end."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._now_s = 0.0
        self.now_ns = 0
        """Since the world began."""
        self.true_ns = T0_NS
        self.spent_ns = 0
        """By the call that runs in a thread, so far."""
        self._tasks = itertools.count()
        self._due: list[_Timer] = []
        self._next: deque[_Call] = deque()
        self.kill: Callable[[Node], None] = lambda _: None
        self.failed: Callable[[str], None] = lambda _: None
        """Called with what ended a task that should not have ended so."""
        self.broken: BaseException | None = None
        self.set_exception_handler(lambda *_: None)
        # Both are called for each future.
        self.create_future = partial(asyncio.Future, loop=self)  # type: ignore[method-assign]
        self.get_debug = bool  # type: ignore[method-assign]

    def time(self) -> float:
        return self._now_s

    def spend(self, ns: int) -> None:
        """The call that runs in a thread takes so much longer."""
        self.spent_ns += ns

    @property
    def call_ns(self) -> int:
        """When the call that runs in a thread has got so far."""
        return self.now_ns + self.spent_ns

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Call:
        call = _Call((callback, args, copy_context() if context is None else context))
        self._next.append(call)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]
    """There are no threads; a future of a pool says so when it is done."""

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> _Timer:  # fmt: skip
        timer = _Timer(when)
        timer.call = _Call((callback, args, copy_context() if context is None else context))
        heapq.heappush(self._due, timer)
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> _Timer:  # fmt: skip
        timer = _Timer(self._now_s + delay)
        timer.call = _Call((callback, args, copy_context() if context is None else context))
        heapq.heappush(self._due, timer)
        return timer

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        return _Task(next(self._tasks), coro, loop=self, name=name, context=context)

    def spawn(self, node: Node | None, work: Any) -> asyncio.Task[Any]:
        """Start a task of a process."""
        context = copy_context()
        context.run(NODE.set, node)
        task = self.create_task(work, context=context)
        task.add_done_callback(self._check)
        return task

    def _check(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.failed("".join(traceback.format_exception(error)))

    def resume(self, node: Node) -> None:
        """A paused process goes on with what has waited."""
        node.paused = False
        waiting, node.deferred = node.deferred, []
        self._next.extend(waiting)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """As if in a thread: see the module."""
        future = self.create_future()
        draw = self._random.random()
        delay_s = 0.0002 + 0.002 * draw if draw < 0.97 else draw * 0.3
        node = NODE.get() if executor is None else None
        if node is not None:
            if node.threads >= THREADS:
                context = copy_context()
                work = partial(self._execute, node, future, func, args)
                node.queue.append(partial(self.call_soon, work, context=context))
                return future
            node.threads += 1
        self.call_later(delay_s, self._execute, node, future, func, args)
        return future

    def _execute(
        self, node: Node | None, future: asyncio.Future[Any], func: Any, args: tuple[Any, ...]
    ) -> None:
        self.spent_ns = 0
        try:
            result, error = func(*args), None
        except DiesNowError:
            dead = NODE.get()
            assert dead is not None
            self.spent_ns = 0
            self.kill(dead)
            return
        except WaitsError as waits:
            self.spent_ns = 0
            self.call_at(waits.until_ns / S, self._execute, node, future, func, args)
            return
        except Exception as raised:  # noqa: BLE001 — handed on to whoever awaits
            result, error = None, raised
        spent_ns, self.spent_ns = self.spent_ns, 0
        self.call_later(spent_ns / S, _complete, node, future, result, error)

    def _run_once(self) -> None:
        """All rounds until it is stopped."""
        while not self._stopping:  # type: ignore[attr-defined]
            self._advance()
            self._run_ready()
            if self.broken is not None:
                self.stop()

    def _advance(self) -> None:
        """What is due is next; if nothing is, time goes on until something is."""
        ready, due = self._next, self._due
        now_s = self._now_s
        if not ready:
            while due and due[0].call[0] is None:
                heapq.heappop(due)
            if not due:
                raise RuntimeError("the world has nothing left to do")
            if due[0] > now_s:
                now_s = self._set_time(float(due[0]))
        while due and due[0] <= now_s:
            ready.append(heapq.heappop(due).call)

    def _run_ready(self) -> None:
        """One round. What belongs to a dead process is dropped, to a paused one waits."""
        ready = self._next
        for _ in range(len(ready)):
            call = ready.popleft()
            callback, args, context = call
            if callback is None:
                continue
            node = context.get(NODE)
            if node is not None and (node.paused or not node.alive):
                if node.alive:
                    node.deferred.append(call)
                continue
            try:
                context.run(callback, *args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:  # noqa: BLE001, S110 — as asyncio's loop does
                pass

    def _set_time(self, now_s: float) -> float:
        self._now_s = now_s
        self.now_ns = now_ns = round(now_s * S)
        self.true_ns = T0_NS + now_ns
        return now_s

    def clear(self) -> None:
        """Nothing of what was to be done is done."""
        self._due.clear()
        self._next.clear()

    def _write_to_self(self) -> None:
        """There is no selector to wake."""


def _complete(
    node: Node | None, future: asyncio.Future[Any], result: Any, error: Exception | None
) -> None:
    if node is not None:
        if node.queue:
            node.queue.popleft()()
        else:
            node.threads -= 1
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
