"""What production code takes from its surroundings, replaced while a world runs: clocks, chance,
threads. Its logic is not touched.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import logging
import random
import secrets
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tests.world.loop import NODE, Loop

from syntony.controller import dispatch, enrolment_service, notify, server
from syntony.io import descriptors
from syntony.model import S

_BOOTED_NS = 1_000 * S
"""What every monotonic clock has counted when a world begins."""


class _InlineThread:
    """Runs when it is started, to its end."""

    def __init__(self, target: Callable[[], None], **_: object) -> None:
        self._target = target

    def start(self) -> None:
        self._target()

    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float | None = None) -> None:
        pass


class _InlinePool:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *values: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(work(*values))
        except Exception as error:  # noqa: BLE001 — handed on to whoever asks
            future.set_exception(error)
        return future

    def shutdown(self, **_: object) -> None:
        pass


class Log(logging.Handler):
    """The newest lines, with virtual time and process."""

    def __init__(self, loop: Loop, *, echo: bool) -> None:
        super().__init__(logging.INFO if echo else logging.WARNING)
        self._loop = loop
        self._echo = echo
        self.lines: deque[str] = deque(maxlen=400)
        self.digest = hashlib.sha256()
        """Of all lines that were kept, without process numbers and places of files."""
        self.failed: Callable[[str], None] = lambda _: None
        """Called with what must never be logged."""

    def emit(self, record: logging.LogRecord) -> None:
        node = NODE.get()
        who = node.name if node is not None else "world"
        self.say(who, record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            self.say(who, repr(record.exc_info[1]))
            if "loop failed" in record.msg:
                trace = "".join(traceback.format_exception(record.exc_info[1]))
                self.failed(f"{who}: {record.getMessage()}: {trace}")

    def say(self, who: str, text: str) -> None:
        line = f"{self._loop.time():9.3f} {who:<12} {text}"
        self.lines.append(line)
        self.digest.update(without_places(line).encode())
        if self._echo:
            print(line)


def without_places(line: str) -> str:
    """A line of the log without what differs from run to run: process numbers, places of files."""
    return line.partition(" pid ")[0].partition("file=")[0].partition("dir=")[0]


@contextlib.contextmanager
def surroundings(
    loop: Loop, chance: random.Random, log: Log, post: Callable[..., Any]
) -> Iterator[None]:
    """Everything replaced, and back afterwards."""
    real_clock_ns, real_sleep = time.clock_gettime_ns, asyncio.sleep

    def monotonic_ns() -> int:
        node = NODE.get()
        since_ns = loop.now_ns + loop.spent_ns + _BOOTED_NS
        return since_ns if node is None else since_ns + node.boot_ns

    def clock_gettime_ns(which: int) -> int:
        node = NODE.get()
        if which != time.CLOCK_REALTIME or node is None:
            return real_clock_ns(which)
        return node.clock.read_ns(loop.true_ns)

    def civil_now() -> int:
        return loop.true_ns

    async def sleep(delay: float) -> None:
        """As asyncio's, whose timer costs another call, and is cancelled when it is over."""
        if delay <= 0:
            return await real_sleep(0)
        future = loop.create_future()
        timer = loop.call_later(delay, future.set_result, None)
        try:
            await future
        except asyncio.CancelledError:
            timer.cancel()
            raise
        return None

    replaced = (
        (random, "uniform", chance.uniform),
        (time, "monotonic_ns", monotonic_ns),
        (time, "monotonic", lambda: monotonic_ns() / S),
        (time, "clock_gettime_ns", clock_gettime_ns),
        (time, "sleep", lambda s: loop.spend(round(s * S))),
        (asyncio, "sleep", sleep),
        (secrets, "token_bytes", chance.randbytes),
        (secrets, "token_hex", lambda size: chance.randbytes(size).hex()),
        (secrets, "randbelow", chance.randrange),
        (enrolment_service, "civil_now", civil_now),
        (server, "civil_now", civil_now),
        (dispatch, "ThreadPoolExecutor", _InlinePool),
        # Descriptors of this process are those of all: reading their list costs a percent.
        (descriptors.DescriptorWatch.__init__, "__defaults__", (int,)),
        (notify, "post_json", post),
        (notify, "threading", SimpleNamespace(Thread=_InlineThread, Timer=threading.Timer)),
    )
    root = logging.getLogger("syntony")
    level = root.level
    with contextlib.ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(mock.patch.object(owner, name, value))
        root.addHandler(log)
        root.setLevel(log.level)
        root.propagate = False
        try:
            yield
        finally:
            root.removeHandler(log)
            root.setLevel(level)
            root.propagate = True
