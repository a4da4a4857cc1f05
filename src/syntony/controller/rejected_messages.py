"""Messages that a receiver did not take: when each is tried again, and when it is given up.
Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from syntony.model import HOUR_NS, S
from syntony.state.outbox import QueuedMessage

BACKOFF_MIN_NS, BACKOFF_MAX_NS = 1 * S, 60 * S
GIVE_UP_NS = HOUR_NS
"""A message is dropped if it was rejected for this long …"""
GIVE_UP_TIMES = 5
"""… and this often, each time after the receiver had accepted others: then neither an outage nor
its address or credentials are the reason."""


@dataclass
class _Rejection:
    number: int
    """Of the message."""
    at_ns: int
    """When it was last sent, CLOCK_MONOTONIC."""
    backoff_ns: int = BACKOFF_MIN_NS
    times: int = 1
    alone: int = 0
    """How often it was rejected although others had been accepted since it was last sent, …"""
    alone_since_ns: int = 0
    """… and since when."""


class RejectedMessages:
    """Keeps the messages that one receiver rejected, until they are sent or given up.

    The order of messages matters within one incident only, so a rejected
    message delays the later ones about its incident and no others.
    """

    def __init__(self) -> None:
        self._by_incident: dict[int, _Rejection] = {}
        self._accepted_ns = -1

    def due(
        self, messages: Iterable[QueuedMessage], now_ns: int, stuck: Container[int]
    ) -> list[QueuedMessage]:
        """Messages to send now, in order, those about the least rejected incidents first; none
        about the incidents in `stuck`."""
        waiting = []
        for each in messages:
            known = self._by_incident.get(each.incident)
            if each.incident in stuck:
                continue
            if known is None or now_ns - known.at_ns >= known.backoff_ns:
                waiting.append((0 if known is None else known.times, each))
        return [each for _, each in sorted(waiting)]

    def accept(self, message: QueuedMessage, now_ns: int) -> None:
        """The receiver has taken a message."""
        self._accepted_ns = now_ns
        self.forget(message)

    def forget(self, message: QueuedMessage) -> None:
        self._by_incident.pop(message.incident, None)

    def reject(self, message: QueuedMessage, now_ns: int) -> bool:
        """The receiver has not taken a message. Returns whether to drop it."""
        known = self._by_incident.get(message.incident)
        if known is None or known.number != message.number:
            self._by_incident[message.incident] = _Rejection(message.number, now_ns)
            return False
        if self._accepted_ns >= known.at_ns:
            known.alone_since_ns = known.alone_since_ns if known.alone else now_ns
            known.alone += 1
        known.times += 1
        known.backoff_ns = min(BACKOFF_MAX_NS, 2 * known.backoff_ns)
        known.at_ns = now_ns
        return known.alone >= GIVE_UP_TIMES and now_ns - known.alone_since_ns >= GIVE_UP_NS
