"""Supervises the parts of an agent: each has a state and a reason, and is restarted until it runs.

A part that cannot start, or that fails, does not affect the others. Pure: time is an argument.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from syntony.errors import ConfigError, MissingError
from syntony.model import S
from syntony.wire.parts import PartState, PartStatus

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

MIN_BACKOFF_NS, MAX_BACKOFF_NS = 1 * S, 30 * S
"""Pause between two attempts to start a part: it doubles after each failed one."""
MAX_REASON = 300


class _PartState:
    def __init__(
        self, name: str, start: Callable[[], None], now_ns: int, max_backoff_ns: int
    ) -> None:
        self.max_backoff_ns = max_backoff_ns
        self.name = name
        self.start = start
        self.state = PartState.WAITING
        self.reason = "not started yet"
        self.since_ns = now_ns
        self.due_ns = now_ns
        self.backoff_ns = 0


class Parts:
    """Not thread-safe: used by the agent's loop."""

    def __init__(self) -> None:
        self._parts: dict[str, _PartState] = {}

    def add(
        self,
        name: str,
        start: Callable[[], None],
        now_ns: int,
        max_backoff_ns: int = MAX_BACKOFF_NS,
    ) -> None:
        """Start a part, now and whenever it has failed.

        Args:
            name: of the part, unique.
            start: starts it, also after it ran before; raises if it cannot.
            now_ns: CLOCK_MONOTONIC.
            max_backoff_ns: maximum pause between two attempts.

        Raises:
            ConfigError: from `start`: no retry would help.
        """
        self._parts[name] = _PartState(name, start, now_ns, max_backoff_ns)
        self.retry(now_ns)

    def retry(self, now_ns: int) -> None:
        """Start parts that are due. Raises `ConfigError`, as `add` does."""
        for part in list(self._parts.values()):
            if part.state is not PartState.RUNNING and now_ns >= part.due_ns:
                self._start(part, now_ns)

    def restart(self, name: str, now_ns: int) -> None:
        """Restart a part, if it exists: something that it depends on has changed."""
        part = self._parts.get(name)
        if part is not None:
            self._start(part, now_ns)

    def fail(self, name: str, error: Exception, now_ns: int) -> None:
        """A running part has failed, or was found failed."""
        part = self._parts[name]
        if part.state is PartState.RUNNING and now_ns - part.since_ns >= MAX_BACKOFF_NS:
            part.backoff_ns = 0
        self._put_off(part, error, now_ns)

    def check(self, faults: Mapping[str, Exception | None], now_ns: int) -> None:
        """Once a second: fail running parts that have a fault, retry those that are due."""
        for name, fault in faults.items():
            if fault is not None and self.is_running(name):
                self.fail(name, fault, now_ns)
        self.retry(now_ns)

    def run(
        self, name: str, step: Callable[[], _T], now_ns: int, *, always: bool = False
    ) -> _T | None:
        """Run one step of a part; None if it fails in this step, or does not run (unless
        `always`)."""
        if not (always or self.is_running(name)):
            return None
        try:
            return step()
        except Exception as error:  # noqa: BLE001 — supervisor: a part's fault is its own
            self._log_traceback(name, error)
            self.fail(name, error, now_ns)
            return None

    def has(self, name: str) -> bool:
        return name in self._parts

    def is_running(self, name: str) -> bool:
        """Whether the part has started and not failed since."""
        part = self._parts.get(name)
        return part is not None and part.state is PartState.RUNNING

    def statuses(self, now_ns: int) -> tuple[PartStatus, ...]:
        """Every part, in the order in which they were added."""
        return tuple(
            PartStatus(
                name=part.name,
                state=part.state,
                reason=part.reason,
                age_ns=max(0, now_ns - part.since_ns),
            )
            for part in list(self._parts.values())
        )

    def _start(self, part: _PartState, now_ns: int) -> None:
        try:
            part.start()
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 — supervisor: a part's fault is its own
            self._log_traceback(part.name, error)
            self._put_off(part, error, now_ns)
        else:
            self._change(part, PartState.RUNNING, "", now_ns)

    def _put_off(self, part: _PartState, error: Exception, now_ns: int) -> None:
        part.backoff_ns = min(max(2 * part.backoff_ns, MIN_BACKOFF_NS), part.max_backoff_ns)
        part.due_ns = now_ns + part.backoff_ns
        state = PartState.WAITING if isinstance(error, MissingError) else PartState.FAILED
        self._change(part, state, _reason(error), now_ns)

    def _change(self, part: _PartState, state: PartState, reason: str, now_ns: int) -> None:
        if (part.state, part.reason) == (state, reason):
            return
        if state is not PartState.RUNNING:
            _log.warning("part=%s state=%s reason=%s", part.name, state, reason)
        elif part.backoff_ns:
            _log.info("part=%s state=%s", part.name, state)
        if state is not part.state:
            part.since_ns = now_ns
        part.state, part.reason = state, reason

    @staticmethod
    def _log_traceback(name: str, error: Exception) -> None:
        """For unexpected errors."""
        if not isinstance(error, MissingError | OSError):
            _log.error("part=%s broke", name, exc_info=error)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, MissingError | OSError):
        text = f"{type(error).__name__}: {text}"
    return text[:MAX_REASON]
