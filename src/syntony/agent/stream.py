"""One stream to a controller. Pure: bytes in, bytes and messages out.

`agent.uplink` transports the bytes over gRPC; the simulated world (tests/world) transports them
itself.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator

import msgspec

from syntony.agent.delivery import Delivery
from syntony.agent.fence import Fence
from syntony.agent.spool import Spool
from syntony.wire.coding import encode
from syntony.wire.fragments import Assembler, Fragment
from syntony.wire.messages import (
    BUNDLE_BYTES,
    Ack,
    ControllerMessage,
    Decision,
    Hello,
    Refuse,
    Unknown,
    bundles,
    decode_controller,
)
from syntony.wire.probes import Plan

_log = logging.getLogger(__name__)


class ConnectionNumbers:
    """Numbers the connections of one process of an agent."""

    def __init__(self) -> None:
        self._life = secrets.token_hex(8)
        self._last = 0

    def number(self, hello: Hello) -> Hello:
        """The number for a connection that is dialled now."""
        self._last += 1
        return msgspec.structs.replace(hello, life=self._life, attempt=self._last)


class Stream:
    """Messages in both directions on one stream. Used by one sending and one receiving thread.

    Args:
        before: the stream before it, of this process.
    """

    def __init__(self, spool: Spool, fence: Fence, before: Stream | None = None) -> None:
        self.delivery: Delivery = Delivery(spool, before.delivery if before is not None else None)
        self._fence = fence
        self.over = False
        self.renewed = False
        """Ended by this side, for a new one."""
        self.established = False
        """Whether the controller has answered."""
        self._generation = 0
        """Of the newest plan."""
        self._assembler = Assembler()

    def opening(self, hello: Hello) -> bytes:
        return encode(
            msgspec.structs.replace(hello, epoch=self._fence.highest, backlog=self.delivery.backlog)
        )

    def outgoing(self, reports: Iterable[msgspec.Struct]) -> Iterator[bytes]:
        """Reports, and as many batches as may be sent with them."""
        waiting = [encode(report) for report in reports]
        size = 0
        while size < BUNDLE_BYTES and (batch := self.delivery.next_batch()) is not None:
            waiting.append(encode(batch))
            size += len(waiting[-1])
        return bundles(waiting)

    def take(self, data: bytes) -> ControllerMessage | Unknown | None:
        """The received message; None: not complete yet, or a plan older than the one in force.
        Acknowledgements have been carried out. Raises `WireError`: not a message, or a decision
        that must not be obeyed."""
        message = decode_controller(data)
        if isinstance(message, Fragment):
            whole = self._assembler.take(message)
            if whole is None:
                return None
            message = decode_controller(whole)
        stored = message.stored if isinstance(message, Decision) else 0
        message = self._fence.admit(message)
        self.established |= not isinstance(message, Refuse)
        if isinstance(message, Ack):
            stored = message.seq
            self.delivery.allow(message.window)
        if stored > 0:
            self.delivery.acknowledge(stored)
        if isinstance(message, Plan) and not self._is_newest(message):
            return None
        return message

    def _is_newest(self, plan: Plan) -> bool:
        """Whether no newer one has arrived. Each connection starts again: a controller without
        state counts from one after its start."""
        if plan.generation < self._generation:
            _log.error(
                "plan refused, keeping the current one generation=%d reason=already have "
                "generation %d", plan.generation, self._generation,
            )  # fmt: skip
            return False
        self._generation = plan.generation
        return True
