"""Collects reports from many hosts at once, each under its own deadline."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from syntony.audit.reported import unreachable
from syntony.audit.result import HostReport
from syntony.model import S

AT_ONCE = 64
"""Hosts asked at a time: each costs a process here and a connection."""
HOST_DEADLINE_NS = 60 * S


def ask_hosts(
    hosts: Sequence[str],
    ask: Callable[[str], HostReport],
    now_ns: Callable[[], int],
    *,
    deadline_ns: int = HOST_DEADLINE_NS,
    at_once: int = AT_ONCE,
) -> Iterator[HostReport]:
    """A report of every host, as they come.

    A host that has not answered when its time is over is reported as unreachable; its thread is
    left behind and another takes the next host, so that dead hosts cost their deadline once, not
    one after the other.

    Args:
        ask: runs on a thread of its own; an exception is the host's, with its text.
        now_ns: UTC.
    """
    answers: queue.SimpleQueue[tuple[str, HostReport]] = queue.SimpleQueue()
    waiting = list(reversed(hosts))
    requested: dict[str, int] = {}
    while waiting or requested:
        while waiting and len(requested) < at_once:
            host = waiting.pop()
            requested[host] = time.monotonic_ns() + deadline_ns
            threading.Thread(
                target=lambda name=host: answers.put((name, _one(name, ask, now_ns))),
                name=f"audit {host}",
                daemon=True,
            ).start()
        left_ns = max(0, min(requested.values()) - time.monotonic_ns())
        try:
            host, report = answers.get(timeout=left_ns / S)
        except queue.Empty:
            for late in [name for name, end in requested.items() if end <= time.monotonic_ns()]:
                del requested[late]
                yield unreachable(late, f"no answer in {deadline_ns / S:g} s", now_ns())
            continue
        if requested.pop(host, None) is not None:
            yield report


def _one(host: str, ask: Callable[[str], HostReport], now_ns: Callable[[], int]) -> HostReport:
    try:
        return ask(host)
    except Exception as error:  # noqa: BLE001 - supervisor: one host's fault is its report
        return unreachable(host, str(error) or type(error).__name__, now_ns())
