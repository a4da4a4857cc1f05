"""Renews this controller's lease of control state; without it, the controller must not act."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from syntony.errors import StateError
from syntony.model import S
from syntony.state import ControlState, LeaseLostError

_log = logging.getLogger(__name__)
CHECK_NS = 1 * S
"""Interval of checks, which also renew the lease: the time for which a replaced controller
continues."""
MAX_UNCHECKED_NS = 15 * S
"""A controller that could not check for this long stops: a restarting database answers sooner, and
a database that others can reach may have given the lease to another controller."""


class LeaseWatch:
    """Renews the lease of control state, and stops the controller without it.

    One per controller; on its event loop.

    Args:
        end: stops the controller with an error.
    """

    def __init__(self, state: ControlState, end: Callable[[StateError], None]) -> None:
        self._state = state
        self._end = end
        self._held_ns = time.monotonic_ns()

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
