"""What this host holds back: the controller's rates, for as long as they are good."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from syntony.errors import MissingError
from syntony.io.pacing import Paced
from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.traffic.flows import JobFlow
from syntony.traffic.policy import Mode, Policy, is_named
from syntony.wire.traffic import Paces

_log = logging.getLogger(__name__)

LONGEST_NS = 10 * S
"""No order is good for longer, whatever it says."""
RETRY_NS = 30 * S
"""After the kernel refused, it is not asked again for so long."""
LINGER_NS = 30 * S
"""Queues in which nothing waits stay for so long after the last flow that was held back."""


class PaceActuator(Protocol):
    """`syntony.io.pacing.KernelPacing`."""

    def set(self, rates: Mapping[Paced, int]) -> None:
        """All that is held back from now on. Raises `MissingError`: nothing is."""
        ...

    def close(self) -> None: ...


class PaceKeeper:
    """One per agent. Instants are CLOCK_MONOTONIC unless they say otherwise.

    Args:
        policy: which jobs may be held back.
        actuator: how.
    """

    def __init__(self, policy: Policy, actuator: PaceActuator) -> None:
        self._policy = policy
        self._actuator = actuator
        self._told: dict[FourTuple, int] = {}
        self._until_ns = 0
        self._rest_ns = 0
        self._used_ns = 0
        self._waits = False
        """The kernel has queues of ours."""
        self.in_force: Mapping[Paced, int] = {}

    def may(self, flow: JobFlow, *, stopped: bool) -> bool:
        """Whether this flow would be held back."""
        allowed = self._policy.mode is Mode.ACT and not stopped
        return allowed and is_named(flow.job, self._policy.pace)

    def take(self, message: Paces, fleet_now_ns: int | None, now_ns: int) -> None:
        """Orders of the controller; without fleet time nobody can say how old they are."""
        if fleet_now_ns is None:
            return
        left_ns = min(message.expires_ns - fleet_now_ns, LONGEST_NS)
        if left_ns > 0:
            self._told = {FourTuple.of(each): each.bps for each in message.paces if each.bps > 0}
            self._until_ns = now_ns + left_ns

    def tick(self, flows: Iterable[JobFlow], now_ns: int, *, stopped: bool) -> None:
        """Make it so; called again and again, told anew or not."""
        if now_ns >= self._until_ns:
            self._told = {}
        wanted = {
            (each.nic, each.flow): self._told[each.flow]
            for each in flows
            if each.flow in self._told and self.may(each, stopped=stopped)
        }
        if wanted or self.in_force:
            self._used_ns = now_ns
        elif self._waits:
            self._let_go(now_ns)
        if wanted == self.in_force or (wanted and now_ns < self._rest_ns):
            return
        try:
            self._actuator.set(wanted)
        except MissingError as error:
            _log.warning("flows are not paced here reason=%s", error)
            self._rest_ns = now_ns + RETRY_NS
            wanted, self._waits = {}, False
        else:
            self._waits = True
        if bool(wanted) != bool(self.in_force):
            _log.info("pacing flows=%d", len(wanted))
        self.in_force = wanted

    def _let_go(self, now_ns: int) -> None:
        """Queues are taken away once they are empty, and not for a short while."""
        if now_ns - self._used_ns >= LINGER_NS:
            self._actuator.close()
            self._waits = False

    def close(self) -> None:
        """Nothing is held back."""
        self._actuator.close()
        self.in_force = {}
