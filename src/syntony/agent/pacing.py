"""Rate limits on this host: the controller's rates, while they are valid."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from syntony.agent.reactor.messages import ProcessPace, ProcessPaces
from syntony.errors import MissingError
from syntony.io.pacing import Paced
from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.meter import HEADERS
from syntony.traffic.policy import FailoverMode, Policy, is_named
from syntony.traffic.process_rates import PacedPath
from syntony.wire.traffic import Paces

_log = logging.getLogger(__name__)

LONGEST_NS = 10 * S
"""Maximum validity of an order."""
RETRY_NS = 30 * S
"""Pause after the kernel refused."""
PROCESS_RENEW_NS, PROCESS_HOLD_NS = 1 * S, 4 * S
"""Interval at which orders to processes are repeated, and their validity."""
LINGER_NS = 30 * S
"""Empty queues are kept for this long after the last limited flow."""


_K = TypeVar("_K")


class PaceActuator(Protocol[_K]):
    """A mechanism of rate limits, with its own names of flows: the kernel's for sockets
    (`syntony.io.pacing.KernelPacing`), orders for processes that have queue pairs."""

    def set(self, rates: Mapping[_K, int]) -> None:
        """Set all limits, in bits per second of frames; others end. Raises `MissingError`: no limit
        is in force."""
        ...

    def close(self) -> None: ...


def socket_key(flow: ReportedFlow) -> Paced | None:
    """The kernel's key for pacing it; None: it is not a socket's, or its packets have other
    ports."""
    return None if flow.process or flow.redrawn else (flow.nic, flow.flow)


def process_key(flow: ReportedFlow) -> PacedPath | None:
    """The process's key for pacing it; None: it is a socket's."""
    return (flow.process, flow.flow.local, flow.flow.remote) if flow.process else None


class PaceKeeper(Generic[_K]):
    """Applies the controller's rate limits on this host while they are valid.

    One per agent and mechanism. Instants are CLOCK_MONOTONIC unless stated otherwise.

    Args:
        policy: which jobs may be limited.
        actuator: the mechanism.
        key: the mechanism's name of a flow; None: it has none.
        renew_ns: interval at which rates are repeated, if the mechanism forgets them; otherwise
            infinite.
    """

    def __init__(
        self,
        policy: Policy,
        actuator: PaceActuator[_K],
        key: Callable[[ReportedFlow], _K | None],
        renew_ns: float = math.inf,
    ) -> None:
        self._policy = policy
        self._actuator = actuator
        self._key = key
        self._renew_ns, self._renewal_ns = renew_ns, math.inf
        self._reported: dict[tuple[int, FourTuple], int] = {}
        """By process and flow."""
        self._until_ns = 0
        self._rest_ns = 0
        self._used_ns = 0
        self._waits = False
        """The kernel has queues of ours."""
        self.in_force: Mapping[_K, int] = {}

    def may(self, flow: ReportedFlow, *, stopped: bool) -> bool:
        """Whether this flow could be limited."""
        allowed = self._policy.mode is FailoverMode.ACT and not stopped
        return allowed and is_named(flow.job, self._policy.pace)

    def rate(self, flow: ReportedFlow) -> int:
        """Its current limit; 0: none."""
        key = self._key(flow)
        return 0 if key is None else self.in_force.get(key, 0)

    def take(self, message: Paces, fleet_now_ns: int | None, now_ns: int) -> None:
        """Take orders of the controller; without fleet time their age is unknown."""
        if fleet_now_ns is None:
            return
        left_ns = min(message.expires_ns - fleet_now_ns, LONGEST_NS)
        if left_ns > 0:
            self._reported = {
                (each.process, FourTuple.of(each)): each.bps
                for each in message.paces
                if each.bps > 0
            }
            self._until_ns = now_ns + left_ns

    def tick(self, flows: Iterable[ReportedFlow], now_ns: int, *, stopped: bool) -> None:
        """Apply the limits; called periodically, with or without new orders."""
        if now_ns >= self._until_ns:
            self._reported = {}
        rates = {
            key: self._reported[each.process, each.flow]
            for each in flows
            if (key := self._key(each)) is not None
            and (each.process, each.flow) in self._reported
            and self.may(each, stopped=stopped)
        }
        if rates or self.in_force:
            self._used_ns = now_ns
        elif self._waits:
            self._let_go(now_ns)
        same = rates == self.in_force and now_ns < self._renewal_ns
        if same or (rates and now_ns < self._rest_ns):
            return
        try:
            self._actuator.set(rates)
        except MissingError as error:
            _log.warning("pacing not available reason=%s", error)
            self._rest_ns = now_ns + RETRY_NS
            rates, self._waits = {}, False
        else:
            self._waits = True
        self._renewal_ns = now_ns + self._renew_ns if rates else math.inf
        if bool(rates) != bool(self.in_force):
            _log.info("pacing flows=%d", len(rates))
        self.in_force = rates

    def _let_go(self, now_ns: int) -> None:
        """Remove queues once they are empty, after a short delay."""
        if now_ns - self._used_ns >= LINGER_NS:
            self._actuator.close()
            self._waits = False

    def close(self) -> None:
        """Remove all limits."""
        self._actuator.close()
        self.in_force = {}


class ProcessPacing:
    """Orders processes to keep a rate, through the reactor, which has their pages.

    Args:
        obey: forwards orders to the reactor; returns why it does not obey, or an empty string.
    """

    def __init__(self, obey: Callable[[ProcessPaces], str]) -> None:
        self._obey = obey
        self._ordered = False

    def set(self, rates: Mapping[PacedPath, int]) -> None:
        if not rates and not self._ordered:
            return
        self._ordered = bool(rates)
        fault = self._send(rates)
        if fault:
            raise MissingError(fault)

    def close(self) -> None:
        """As `PaceActuator.close`. If the reactor does not answer, the orders expire."""
        if self._ordered:
            self._ordered = False
            self._send({})

    def _send(self, rates: Mapping[PacedPath, int]) -> str:
        paces = [
            ProcessPace(path, max(1, round(bps / HEADERS))) for path, bps in sorted(rates.items())
        ]
        expires_ns = time.monotonic_ns() + PROCESS_HOLD_NS
        return self._obey(ProcessPaces(paces=tuple(paces), expires_ns=expires_ns))
