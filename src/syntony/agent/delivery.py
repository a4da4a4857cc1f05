"""What one connection delivers from the spool: batches of one stream, in order, acknowledged.

The newest stream has no end. A stream that an earlier process left is delivered to its end first;
then the agent reconnects for the next. So is the part of the newest stream that an earlier
connection sent and that is not acknowledged, if it is more than a controller looks up by itself.
Acknowledgements may be repeated, come late, and name numbers that this host no longer has.
"""

from __future__ import annotations

import time

from syntony.agent.spool import Spool
from syntony.model import MS
from syntony.wire.messages import MAX_UNACKED, MAX_WINDOW, UNCHECKED_NS, Batch

ON_THE_WAY_NS = 500 * MS
"""A batch takes at most this long to its controller, or comes after a silence, and is looked up."""


class Delivery:
    """Delivers the spool's oldest stream. Used by one sending and one receiving thread.

    Args:
        before: the delivery before it, of this process.
    """

    def __init__(self, spool: Spool, before: Delivery | None = None) -> None:
        self._spool = spool
        self._newest_sent_ns = 0
        self.stream, self._last_seq = spool.oldest_stream()
        self._held_until_ns = 0 if before is None else before.unchecked_until_ns(self.stream)
        """Nothing is sent before, CLOCK_MONOTONIC."""
        self._sent_before = 0 if before is None else before.newest_sent(self.stream)
        """The newest number that an earlier connection of this process sent of this stream."""
        if self._last_seq is None and self._sent_before - spool.acknowledged > MAX_UNACKED:
            self._last_seq = self._sent_before
        self._window = MAX_UNACKED
        self._sent = 0
        """Number up to which the spool was searched."""
        self._last_seq_sent = 0
        """The newest number that was sent."""
        self._ended = False
        """Nothing of an earlier stream is left to be sent."""
        self._unread = -1
        """The newest batch at a time when one could not be read for lack of descriptors: tried
        again when there is another."""

    @property
    def backlog(self) -> bool:
        """Whether the store may have any batch of what is delivered: an earlier process left this
        stream, or an earlier connection sent more than `MAX_UNACKED`."""
        return self._last_seq is not None

    @property
    def over(self) -> bool:
        """Whether another stream must be delivered now, on another connection."""
        if self._last_seq is None:
            return self.stream != self._spool.stream
        acknowledged = self._spool.acknowledged
        return acknowledged >= (self._last_seq_sent if self._ended else self._last_seq)

    @property
    def window_full(self) -> bool:
        """Whether an acknowledgement is needed before anything more may be sent."""
        return self._sent - self._spool.acknowledged >= self._window

    def allow(self, window: int) -> None:
        """The controller allows so many unacknowledged batches; 0: `MAX_UNACKED`."""
        self._window = max(MAX_UNACKED, min(window, MAX_WINDOW))

    def newest_sent(self, stream: str) -> int:
        """The newest number of a stream that this process has sent; 0: it has sent none."""
        return max(self._sent_before, self._last_seq_sent) if stream == self.stream else 0

    @property
    def held_ns(self) -> int:
        """For how long nothing is sent yet."""
        return max(0, self._held_until_ns - time.monotonic_ns())

    def unchecked_until_ns(self, stream: str) -> int:
        """Until when the controller may store what it got of the stream that is delivered now and
        did not acknowledge, without looking whether another one has; CLOCK_MONOTONIC. In the past:
        it acknowledged everything."""
        if stream != self.stream or self._last_seq_sent <= self._spool.acknowledged:
            return self._held_until_ns
        return self._newest_sent_ns + UNCHECKED_NS + ON_THE_WAY_NS

    @property
    def ready(self) -> bool:
        """Whether a batch can be sent."""
        spool, sent = self._spool, self._sent
        last = spool.last_seq if self._last_seq is None else self._last_seq
        acknowledged = spool.acknowledged
        if max(sent, acknowledged, self._unread) >= last or self._ended:
            return False
        return sent - acknowledged < self._window and not (self._held_until_ns and self.held_ns)

    def next_batch(self) -> Batch | None:
        """The next batch to send; None if there is none, or too many are in flight."""
        if not self.ready:
            return None
        self._sent, frame = self._spool.read_after(self._sent, self.stream)
        if frame is None:
            self._ended = self.backlog  # the rest is unreadable, or was dropped
            self._unread = self._spool.last_seq
            return None
        self._last_seq_sent, self._newest_sent_ns = frame.seq, time.monotonic_ns()
        return Batch(
            seq=frame.seq,
            table=frame.table,
            rows=frame.rows,
            dropped=self._spool.dropped_rows,
            arrow=frame.payload,
        )

    def acknowledge(self, seq: int) -> None:
        """Everything of this stream up to `seq` is in the store."""
        if self._last_seq is not None:
            self._spool.acknowledge(min(seq, self._last_seq))
        elif seq <= self._spool.last_seq:
            self._spool.acknowledge(seq)
        elif self.stream == self._spool.stream:
            self._spool.restart_stream()
