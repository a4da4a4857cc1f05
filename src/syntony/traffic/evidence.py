"""What one connection's own numbers say of its path: idle, progressing or stalled. Pure.

The kernel knows of a dead path long before it acts on it: its acknowledgements stop at once, its
retransmission timer waits 200 ms and more. What looks alike and is no dead path:

* a receiver that reads slowly or not at all: its kernel acknowledges, then closes its window, and
  nothing is left unacknowledged;
* a lone segment: the receiver may keep its acknowledgement back for up to 200 ms (RFC 1122,
  4.2.3.2; TCP_DELACK_MAX), unless it sees the segment twice;
* a queue that fills: acknowledgements come later, by as much as they have come before;
* this host not being scheduled: what was silent meanwhile is not counted.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from syntony.model import MS, S
from syntony.model.paths import StallEvent

if TYPE_CHECKING:
    from syntony.model.paths import FlowSample

MIN_SILENCE_NS = 20 * MS
"""Of a path that has shown no longer one: beyond the 12 ms that a busy peer's scheduler takes, and
the kernel counts acknowledgements' age in ticks of up to 10 ms."""
RTTS = 2
"""Or so many of the connection's smoothed round trips."""
DELAYED_ACK_NS = 200 * MS
"""Longest that a receiver keeps back the acknowledgement of few segments (TCP_DELACK_MAX)."""
FEW_SEGMENTS = 4
"""Of fewer the acknowledgement may be kept back: it comes with every second full segment, and
segments may be short or merged on the way."""
LEARN_LIMIT_NS = 200 * MS
"""Longer silences that end are failures that were repaired, not the path's habit (TCP_RTO_MIN)."""
HALF_LIFE_NS = 30 * S
"""In which a silence that ended well is half forgotten."""
STALL_NS = 5 * MS
"""Later than this after it was to wake, a watcher has not been scheduled."""


class Progress(enum.Enum):
    """Of one connection or subflow."""

    IDLE = "idle"
    PROGRESSING = "progressing"
    STALLED = "stalled"


class FlowEvidence:
    """One connection or subflow, from samples some 10 ms apart, in order."""

    __slots__ = (
        "_acked", "_excused_ns", "_habit_at_ns", "_habit_ns", "_quiet_ns", "_retransmits",
        "progress", "silent_ns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.progress = Progress.IDLE
        self.silent_ns = 0
        """How long the path has said nothing, at the last sample; own stalls not counted."""
        self._acked = -1
        self._quiet_ns = 0
        """Since when what is under way now is known to be under way."""
        self._excused_ns = 0
        self._retransmits = 0
        self._habit_ns = 0
        self._habit_at_ns = 0

    def observe(self, sample: FlowSample) -> Progress:
        """What the newest sample means after those before it."""
        fresh = self.progress is Progress.IDLE or sample.unacked == 0
        if fresh or sample.bytes_acked != self._acked:
            if sample.bytes_acked != self._acked:
                self._learn(sample.at_ns)
            self._begin(sample)
            self.progress = Progress.PROGRESSING if sample.unacked else Progress.IDLE
            return self.progress
        quiet_ns = sample.at_ns - self._quiet_ns - self._excused_ns
        self.silent_ns = max(0, min(sample.last_ack_ns - self._excused_ns, quiet_ns))
        if self.silent_ns >= self.patience_ns(sample):
            self.progress = Progress.STALLED
        elif sample.last_ack_ns < MIN_SILENCE_NS:  # answered, if not with progress
            self.progress = Progress.PROGRESSING
        return self.progress

    def excuse(self, stall: StallEvent) -> None:
        """This host was not watching, and perhaps not acknowledging or sending either."""
        self._excused_ns += min(stall.lasted_ns, max(0, stall.at_ns - self._quiet_ns))

    def patience_ns(self, sample: FlowSample) -> int:
        """The silence after which this sample's connection is stalled."""
        usual_ns = max(
            MIN_SILENCE_NS,
            RTTS * sample.rtt_ns,
            self._habit_now_ns(sample.at_ns) * 3 // 2,
        )
        repeated = sample.backoff > 0 or sample.retransmits > self._retransmits
        if sample.unacked >= FEW_SEGMENTS or repeated:
            return usual_ns
        return usual_ns + DELAYED_ACK_NS

    def _begin(self, sample: FlowSample) -> None:
        self._acked = sample.bytes_acked
        self._retransmits = sample.retransmits
        self._quiet_ns = sample.at_ns
        self._excused_ns = 0
        self.silent_ns = 0

    def _learn(self, now_ns: int) -> None:
        if not self._habit_now_ns(now_ns) < self.silent_ns <= LEARN_LIMIT_NS:
            return
        self._habit_ns = self.silent_ns
        self._habit_at_ns = now_ns

    def _habit_now_ns(self, now_ns: int) -> int:
        return self._habit_ns >> min(60, (now_ns - self._habit_at_ns) // HALF_LIFE_NS)


class Punctuality:
    """Tells a watcher when it was not scheduled: told of each wake-up and when that was due."""

    def __init__(self, stall_ns: int = STALL_NS) -> None:
        self._stall_ns = stall_ns

    def woke(self, now_ns: int, due_ns: int) -> StallEvent | None:
        """`due_ns` is when the watcher would have woken by itself at the latest."""
        late_ns = now_ns - due_ns
        if late_ns < self._stall_ns:
            return None
        return StallEvent(at_ns=now_ns, lasted_ns=late_ns)
