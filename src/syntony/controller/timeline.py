"""Keeps the fleet timeline over restarts and takeovers of controllers."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from syntony.clock.anchored import FleetMemory
from syntony.controller.solve import SolveLoop
from syntony.errors import StateError
from syntony.state import ControlState
from syntony.state.document import Document

_log = logging.getLogger(__name__)
TIMELINE = "fleet timeline"
"""Name of the document of control state."""


class StoredTimeline(msgspec.Struct, frozen=True):
    """State from which fleet time continues after a restart."""

    memory: FleetMemory
    fleet_ns: int = 0
    """Fleet time when this was written; 0 if it was unknown."""


class TimelineKeeper:
    """Keeps the fleet timeline over restarts and takeovers of controllers.

    One per controller, on its event loop.
    """

    def __init__(self, state: ControlState, solving: SolveLoop) -> None:
        self._document = Document(state, TIMELINE, StoredTimeline)
        self._solving = solving
        self.clocks = 0
        """Number of clocks with timelines when these were last stored."""

    async def load(self) -> int:
        """Continue from a predecessor's timelines; returns the fleet time when it stored them, or
        0."""
        stored = await asyncio.to_thread(self._document.load)
        if stored is None:
            return 0
        self._solving.inherit(stored.memory)
        _log.info("fleet timeline restored clocks=%d", len(stored.memory.lines))
        return stored.fleet_ns

    async def keep(self, fleet_ns: int) -> None:
        """Store the present timelines; a failure is logged."""
        memory = self._solving.memory()
        if memory is None:
            return
        self.clocks = len(self._solving.timelines)
        try:
            await asyncio.to_thread(self._document.save, StoredTimeline(memory, fleet_ns))
        except StateError as error:
            _log.error("fleet timeline not saved reason=%s", error)
