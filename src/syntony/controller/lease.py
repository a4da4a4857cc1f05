"""Renews this controller's lease of control state; without it, the controller must not act."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from syntony.errors import StateError
from syntony.model import MS, S
from syntony.state import ControlState, LeaseLostError

_log = logging.getLogger(__name__)
CHECK_NS = 1 * S
"""Interval of checks, which also renew the lease: the time for which a replaced controller
continues."""
MAX_UNCHECKED_NS = 15 * S
"""A controller that could not check for this long stops: a restarting database answers sooner, and
a database that others can reach may have given the lease to another controller."""
DOUBT_CHECK_NS = 250 * MS
DOUBT_NS = 3_500 * MS
"""After this long without an answer another controller may lead: a standby takes over 3 to 3.5 s
after the last one. Agents then look for it, and again each time so much later."""
PAUSE_NS = 1 * S
"""A longer time between two looks was a pause of this controller, and says nothing of its control
state: agents notice by themselves that it was silent, and the next check tells who leads."""


class LeaseWatch:
    """Renews the lease of control state, and stops the controller without it.

    One per controller; on its event loop.

    Args:
        end: stops the controller with an error.
        release: lets agents and gateways look for another controller.
    """

    def __init__(
        self, state: ControlState, end: Callable[[StateError], None], release: Callable[[], None]
    ) -> None:
        self._state = state
        self._end = end
        self._release = release
        self._held_ns = time.monotonic_ns()
        self._looked_ns = self._doubted_ns = 0

    async def doubt_lease(self) -> None:
        """Release agents while it is unknown whether this controller leads: a check may wait for
        its answer."""
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns > PAUSE_NS:
            self._doubted_ns = now_ns
        self._looked_ns = now_ns
        if now_ns - max(self._state.database.held_ns, self._doubted_ns) > DOUBT_NS:
            self._doubted_ns = now_ns
            _log.warning("control state does not answer, agents look for another controller")
            self._release()

    async def check_lease(self) -> None:
        """Check once; if the session has broken, once more with a new one, which shows the
        reason."""
        try:
            try:
                await asyncio.to_thread(self._state.database.check)
            except LeaseLostError:
                raise
            except StateError:
                await asyncio.to_thread(self._state.database.check)
        except LeaseLostError as error:
            self._end(error)
        except StateError as error:
            _log.error("control state does not answer reason=%s", error)
            if time.monotonic_ns() - self._held_ns > MAX_UNCHECKED_NS:
                self._end(error)
        else:
            self._held_ns = time.monotonic_ns()
