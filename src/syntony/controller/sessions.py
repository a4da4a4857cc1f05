"""One attached agent: its identity, and the messages that wait to be sent to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from syntony.controller.greeting import RefusedError
from syntony.controller.ingest import RowStream
from syntony.controller.solve import Solved
from syntony.model import MS
from syntony.wire.messages import (
    DECISIONS,
    MAX_UNACKED,
    Ack,
    ControllerMessage,
    Decision,
    Hello,
    Refuse,
    kind_of,
)
from syntony.wire.x509 import Certificate

_log = logging.getLogger(__name__)

TELL_NS = 1_500 * MS
"""Timelines that say hardly anything new are sent no sooner: that is with every other solve, as
often as agents report their clocks. A message costs the controller more than what is in it."""
END_GRACE_S = 2.0
"""For an agent to take the reason why its stream ends."""
ACK_WAIT_S = 2.5
"""For a decision to say how far a stream is stored: timelines are sent more often."""
MANY_UNACKED = MAX_UNACKED // 4
"""So many batches are acknowledged at once: an agent with a backlog waits for that."""


class NewestMessages:
    """The newest message of each kind. An older plan, timeline or ack is of no use to anyone, nor
    is an order that waited until the next one (audits are not ordered while one is under way), so
    the box is bounded by the number of kinds however slowly an agent reads.

    Args:
        patient: the agent reads in decisions how far its stream is stored.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._waiting: dict[type[ControllerMessage] | str, ControllerMessage] = {}
        self._changed = asyncio.Event()
        self._closed = False
        self._patient = patient
        self._stored: int | None = None
        """What is to be acknowledged; None: all that can be is."""
        self._acknowledged: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def put(self, message: ControllerMessage) -> None:
        """Replace what waits of this kind; of a sealed decision that is the kind of its content."""
        kind = kind_of(message.message) if isinstance(message, Decision) else type(message)
        self._waiting[kind] = message
        self._changed.set()

    def acknowledge(self, seq: int) -> None:
        """Every batch up to this one is in the store. A patient agent is told beside the next
        decision, or when much or long enough has waited."""
        self._stored = seq
        known = self._acknowledged
        if not self._patient or known is None or seq - known >= MANY_UNACKED:
            self._changed.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACK_WAIT_S, self._changed.set)

    def close(self) -> None:
        """What waits is still delivered, then iteration ends."""
        self._closed = True
        self._changed.set()

    def refuse(self, reason: str) -> None:
        """Say why, then end; nothing else is delivered any more."""
        self._waiting.clear()
        self._stored = None
        self.put(Refuse(reason=reason))
        self.close()

    async def __aiter__(self) -> AsyncIterator[tuple[ControllerMessage, int]]:
        """Messages, and with a decision how far the stream is stored; 0: it does not say."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            waiting, self._waiting = self._waiting, {}
            for message in waiting.values():
                rides = self._patient and isinstance(message, (*DECISIONS, Decision))
                yield message, (self._take_stored() or 0) if rides else 0
            if (stored := self._take_stored()) is not None:
                yield Ack(seq=stored), 0
            if self._closed and not self._waiting:
                return

    def _take_stored(self) -> int | None:
        stored, self._stored = self._stored, None
        if stored is not None:
            self._acknowledged = stored
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return stored


class Opening(NamedTuple):
    """The start of a stream, for a gateway that relays it."""

    pem: bytes = b""
    """The certificate that was shown."""
    peer: str = ""
    hello: bytes = b""
    """As the agent sent it."""
    via: str = ""
    """The gateway that relays it; empty: none."""


class AgentSession:
    """One stream of one agent.

    Args:
        hello: the agent's.
        certificate: that it showed.
        opening: how the stream began.
    """

    source: RowStream
    """What it delivers, since it was attached."""

    def __init__(
        self,
        hello: Hello,
        certificate: Certificate,
        opening: Opening = Opening(),  # noqa: B008
    ) -> None:
        self.host = hello.host
        self._connection = hello.life, hello.attempt
        self.certificate = certificate
        self.opening = opening
        self.unknown = ""
        """The first kind of its messages that was skipped."""
        self.tasks: tuple[asyncio.Task[object], ...] = ()
        """What serves the stream: first what receives."""
        # The end of a backlog is waited for: the agent's next stream begins with it.
        self.outbox = NewestMessages(patient=hello.reads_stored and not hello.backlog)
        self._clocks: frozenset[str] = frozenset()
        """Whose timelines were sent last, as far as there were any."""
        self._told_ns = 0

    def check_newest(self, hello: Hello) -> None:
        """Raises `RefusedError`: another connection opens that the agent dialled before this one,
        for example one that a gateway still takes for alive. Of agents that do not number their
        connections, and of other processes of an agent, nothing is known."""
        life, attempt = self._connection
        if life and hello.life == life and hello.attempt < attempt:
            raise RefusedError(
                f"connection {hello.attempt} of {self.host!r}: "
                f"its later connection {attempt} is attached"
            )

    def tell(self, solved: Solved, clocks: frozenset[str], now_ns: int) -> None:
        """Send what a solve says of these clocks, where it is urgent or some time has passed."""
        late = now_ns - self._told_ns >= TELL_NS or clocks != self._clocks
        if late or solved.is_urgent(clocks):
            timelines = solved.of(clocks)
            if timelines.timelines:
                self._clocks, self._told_ns = clocks, now_ns
                self.outbox.put(timelines)

    def end(self, reason: str) -> None:
        """Take nothing more from this agent, tell it why, and close its stream: also where it does
        not read what it is reported."""
        self.outbox.refuse(reason)
        for task in self.tasks[:1]:
            task.cancel()
        for task in self.tasks[1:]:
            asyncio.get_running_loop().call_later(END_GRACE_S, task.cancel)


def end_refused(sessions: Iterable[AgentSession], refusal: Callable[[Certificate], str]) -> None:
    """End the streams whose certificate is not accepted any more.

    Args:
        refusal: why one is not; empty: it is.
    """
    for session in sessions:
        if why := refusal(session.certificate):
            _log.warning("stream closed host=%s reason=%s", session.host, why)
            session.end(why)
