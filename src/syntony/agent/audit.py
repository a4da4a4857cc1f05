"""Runs audits that the controller orders: checked, then run in a separate process.

The separate process keeps the agent small, and a check that hangs does not stop the agent.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable

from syntony.agent.config import AuditMode
from syntony.config import to_toml
from syntony.io.installation import REPLACED, Installation
from syntony.model import S
from syntony.wire.audit import AuditOrder, AuditReport

_log = logging.getLogger(__name__)
REMEMBERED = 1024
"""Number of obeyed orders that are remembered: no order is obeyed twice."""
MAX_LIFE_NS = 600 * S
"""An order with a longer validity is not from our controller."""
GRACE_S = 10.0
"""Time beyond the deadline, for the process to start and to end."""


class AuditService:
    """Runs the audits that the controller orders.

    One per agent. `take` returns at once; reports come from a thread.

    Args:
        clock_dir: where fleet time is served, for the check of time.
    """

    def __init__(
        self, host: str, mode: AuditMode, clock_dir: str, send: Callable[[AuditReport], None]
    ) -> None:
        self._host = host
        self._mode = mode
        self._environment = {**os.environ, "SYNTONY_CLOCK_DIR": clock_dir}
        self._send = send
        self._seen: deque[str] = deque(maxlen=REMEMBERED)
        self._busy = threading.Lock()
        self._installation = Installation()

    def take(self, order: AuditOrder, now_ns: int) -> None:
        """Obey an order, or report why not.

        Args:
            now_ns: fleet time, or this host's time if that is unknown.
        """
        why = self._wrong(order, now_ns)
        if not why and not self._busy.acquire(blocking=False):
            why = "another audit is running on this host"
        if why:
            _log.warning("audit refused order=%s by=%s reason=%s", order.order, order.by, why)
            self._send(AuditReport(order=order.order, refused=why))
            return
        self._seen.append(order.order)
        _log.warning("audit ordered order=%s by=%s", order.order, order.by)
        threading.Thread(target=self._run, args=(order,), name="audit", daemon=True).start()

    def _wrong(self, order: AuditOrder, now_ns: int) -> str:
        if self._mode is AuditMode.OFF:
            return "this agent's configuration forbids audits ([audit] mode)"
        if order.host != self._host:
            return f"the order is for {order.host!r}, this is {self._host!r}"
        if order.order in self._seen:
            return "the order has been carried out before"
        if not now_ns <= order.expires_ns <= now_ns + MAX_LIFE_NS:
            return "the order has expired, or claims to live too long"
        return ""

    def _run(self, order: AuditOrder) -> None:
        try:
            self._send(self._report(order))
        finally:
            self._busy.release()

    def _report(self, order: AuditOrder) -> AuditReport:
        # What `syntony.audit.spec` reads, with one role: this host's.
        spec = {"checks": order.limits, "roles": {"here": {"backend": order.backend}}}
        try:
            done = subprocess.run(
                self._command(order),
                input=to_toml(spec).encode(),
                capture_output=True,
                env=self._environment,
                timeout=order.deadline_ns / S + GRACE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return AuditReport(order=order.order, refused="the audit did not end in time")
        except (OSError, ValueError, TypeError) as error:
            return AuditReport(order=order.order, refused=f"the audit did not start: {error}")
        if done.returncode != 0:
            line = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            why = line[-200:] or "the audit failed"
            if self._installation.is_replaced():
                why = f"{REPLACED}; {why}"
            return AuditReport(order=order.order, refused=why)
        return AuditReport(order=order.order, report=done.stdout.strip())

    def _command(self, order: AuditOrder) -> list[str]:
        # Every value is one word after an `=`: nothing in the order can become an option.
        words = [sys.executable, "-m", "syntony", "audit", "run", "--local", "--report",
                 "--spec=/dev/stdin", f"--name={self._host}",
                 f"--deadline={max(1, order.deadline_ns // S)}s"]  # fmt: skip
        words += [f"--check={check}" for check in order.checks]
        if self._mode is AuditMode.PASSIVE:
            words.append("--passive")
        elif order.active:
            words.append("--active")
        return words
