"""MPTCP of one network namespace: the kernel's events, its path manager, listeners for joins."""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Collection
from functools import partial

from syntony.agent.steering.actuators import MptcpActuator, PathActuator
from syntony.agent.steering.path_log import PathCounters
from syntony.errors import MissingError, WireError
from syntony.io.join_listener import JoinListeners, refuse, supported
from syntony.io.mptcp_pm import PathManagerEvents, UserspaceManagement
from syntony.traffic.failover import Event
from syntony.traffic.instructions import Announce, Steer
from syntony.traffic.policy import FailoverMode, Policy

_log = logging.getLogger(__name__)


def kernel_events() -> PathManagerEvents:
    """The kernel's events of connections. Raises `MissingError`: it has no MPTCP."""
    supported()
    return PathManagerEvents()


class Mptcp:
    """Used by the thread that reacts; listens in its selector.

    Args:
        events: from `kernel_events`; closed here.
        policy: whether paths are managed, and at which port joins arrive.
        selector: calls back the objects that are registered here.
        counters: where lost events are counted.

    Raises:
        MissingError: this process may not manage paths.
    """

    def __init__(
        self,
        events: PathManagerEvents,
        policy: Policy,
        selector: selectors.BaseSelector,
        counters: PathCounters,
    ) -> None:
        self._events = events
        self._selector = selector
        self._counters = counters
        self._acts = policy.mode is FailoverMode.ACT
        self._listeners = JoinListeners(policy.port)
        try:
            self._managed = UserspaceManagement() if self._acts else None
            self._actuator: PathActuator[Steer] = MptcpActuator()
        except MissingError:
            events.close()
            raise
        selector.register(self._events, selectors.EVENT_READ, self._read)

    def close(self) -> None:
        """Subflows stay as they are; nothing of ours stays in the kernel."""
        if self._managed is not None:
            self._managed.release()
        self._listeners.close()
        self._actuator.close()
        self._events.close()

    @property
    def listen_fault(self) -> MissingError | None:
        """Why peers cannot join connections at all of our addresses."""
        return self._listeners.fault

    def do(self, instruction: Steer) -> None:
        """Carry it out before returning. Raises `OSError`: refused."""
        if isinstance(instruction, Announce) and instruction.listen_port:
            listener = self._listeners.also(instruction.address, instruction.listen_port)
            if listener is not None:
                self._register(listener)
        self._actuator.do(instruction)

    def listen(self, addresses: set[str], ports: Collection[int]) -> None:
        """Listen for joins at our NICs' addresses; only while paths are managed."""
        if not self._acts:
            return
        fresh, closed = self._listeners.keep(addresses, set(ports))
        for listener in closed:
            self._selector.unregister(listener)
        for listener in fresh:
            self._register(listener)

    def _register(self, listener: socket.socket) -> None:
        self._selector.register(listener, selectors.EVENT_READ, partial(_refuse, listener))

    def _read(self) -> list[Event]:
        lost = self._events.lost
        try:
            events = self._events.read(time.monotonic_ns)
        except WireError as error:
            _log.warning("MPTCP event not understood reason=%s", error)
            return []
        self._counters.events_lost += self._events.lost - lost
        return list(events)


def _refuse(listener: socket.socket) -> list[Event]:
    """Close a connection that is not a join: joins are never accepted here."""
    refuse(listener)
    return []
