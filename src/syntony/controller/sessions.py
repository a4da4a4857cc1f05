"""One attached agent: its identity, and the messages that wait to be sent to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple

from syntony.controller.hello_check import RefusedError
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

SEND_INTERVAL_NS = 1_500 * MS
"""Timelines with hardly any news are not sent sooner: this is every other solve, as often as agents
report their clocks. A message costs the controller more than its contents."""
END_GRACE_S = 2.0
"""Time for an agent to receive the reason why its stream ends."""
ACK_WAIT_S = 2.5
"""Maximum wait for a decision that can include the number of stored batches: timelines are sent
more often."""
MANY_UNACKED = MAX_UNACKED // 4
"""This many batches are acknowledged at once: an agent with a backlog waits for that."""


class NewestMessages:
    """The newest message of each kind. An older plan, timeline or ack is useless, and so is an
    order that waited until the next one (no audit is ordered while another runs). The box is thus
    bounded by the number of kinds, however slowly an agent reads.

    Args:
        patient: the agent reads the number of stored batches in decisions.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._waiting: dict[type[ControllerMessage] | str, ControllerMessage] = {}
        self._changed = asyncio.Event()
        self._closed = False
        self._patient = patient
        self._stored: int | None = None
        """Number to be acknowledged; None: there is nothing to acknowledge."""
        self._acknowledged: int | None = None
        self._window = self._sent_window = 0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, message: ControllerMessage) -> None:
        """Replace the waiting message of this kind; for a sealed decision the kind of its
        content."""
        kind = kind_of(message.message) if isinstance(message, Decision) else type(message)
        self._waiting[kind] = message
        self._changed.set()

    def acknowledge(self, seq: int, window: int = 0) -> None:
        """Every batch up to this one is in the store. A patient agent gets this with the next
        decision, or separately after enough batches or time.

        Args:
            seq: its number.
            window: see `Ack.window`.
        """
        self._stored, self._window = seq, window
        known = self._acknowledged
        if not self._patient or known is None or seq - known >= MANY_UNACKED:
            self._changed.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACK_WAIT_S, self._changed.set)

    def close(self) -> None:
        """Waiting messages are still delivered, then iteration ends."""
        self._closed = True
        self._changed.set()

    def refuse(self, reason: str) -> None:
        """Send the reason, then end; nothing else is delivered any more."""
        self._waiting.clear()
        self._stored = None
        self.put(Refuse(reason=reason))
        self.close()

    async def __aiter__(self) -> AsyncIterator[tuple[ControllerMessage, int]]:
        """Messages, and with a decision the number of stored batches; 0: not included."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            waiting, self._waiting = self._waiting, {}
            for message in waiting.values():
                rides = (
                    self._patient
                    and self._window == self._sent_window
                    and isinstance(message, (*DECISIONS, Decision))
                )
                yield message, (self._take_stored() or 0) if rides else 0
            if (stored := self._take_stored()) is not None:
                self._sent_window = self._window
                yield Ack(seq=stored, window=self._window), 0
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
    """The presented certificate."""
    peer: str = ""
    hello: bytes = b""
    """As the agent sent it."""
    via: str = ""
    """The gateway that relays it; empty: none."""


class AgentSession:
    """One stream of one agent.

    Args:
        hello: the agent's.
        certificate: presented by it.
        opening: how the stream began.
    """

    source: RowStream
    """The stream of batches that it delivers, since it was attached."""

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
        """Tasks that serve the stream: first the receiver."""
        # The end of a backlog is waited for: the agent's next stream begins with it.
        self.outbox = NewestMessages(patient=hello.reads_stored and not hello.backlog)
        self._clocks: frozenset[str] = frozenset()
        """Clocks whose timelines were sent last."""
        self._sent_ns = 0

    def check_newest(self, hello: Hello) -> None:
        """Raises `RefusedError`: this connection was dialled before the current one, for example if
        a gateway still considers it alive. For agents that do not number their connections, and for
        other processes of an agent, the order is unknown."""
        life, attempt = self._connection
        if life and hello.life == life and hello.attempt < attempt:
            raise RefusedError(
                f"connection {hello.attempt} of {self.host!r}: "
                f"its later connection {attempt} is attached"
            )

    def acknowledge(self) -> None:
        """Tell the agent what is stored of its stream, and how much it may send."""
        self.outbox.acknowledge(self.source.stored, self.source.window)

    def send_timelines(self, solved: Solved, clocks: frozenset[str], now_ns: int) -> None:
        """Send the solve's result for these clocks, if it is urgent or some time has passed."""
        late = now_ns - self._sent_ns >= SEND_INTERVAL_NS or clocks != self._clocks
        if late or solved.is_urgent(clocks):
            timelines = solved.of(clocks)
            if timelines.timelines:
                self._clocks, self._sent_ns = clocks, now_ns
                self.outbox.put(timelines)

    def end(self, reason: str) -> None:
        """Stop reading from this agent, send it the reason, and close its stream, even if it does
        not read."""
        self.outbox.refuse(reason)
        for task in self.tasks[:1]:
            task.cancel()
        for task in self.tasks[1:]:
            asyncio.get_running_loop().call_later(END_GRACE_S, task.cancel)


def end_refused(sessions: Iterable[AgentSession], refusal: Callable[[Certificate], str]) -> None:
    """End the streams whose certificate is now refused.

    Args:
        refusal: returns why a certificate is refused; empty: it is accepted.
    """
    for session in sessions:
        if why := refusal(session.certificate):
            _log.warning("stream closed host=%s reason=%s", session.host, why)
            session.end(why)
