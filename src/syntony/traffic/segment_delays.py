"""One-way delays of jobs' own TCP segments: the same byte of a stream as it left one NIC and as it
came to the other. Pure.

Both ends stamp the segments that carry certain bytes, chosen by sequence number alone. A byte is
used only if it passed the sender exactly once and everything that the sender might have sent of it
is known: within `MAX_DELAY_NS` before its arrival nothing was left unsampled. So a retransmission
is never taken for the original, unless one was under way for longer than that and its leaving was
not sampled. Sequence numbers wrap: TCP lets no more than 2^30 bytes be under
way, so that of several bytes with one number the newest that was sent is the one that arrived, and
if the sender has gone further since than that, it is none.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.wire.segments import SegmentFlow, SegmentsReport

STAMP = np.dtype([("at_ns", "<i8"), ("number", "<u4")])
"""Stamp of one sampled byte, as in `SegmentFlow`."""
MAX_DELAY_NS = 1 * S
"""A byte that takes longer is not measured."""
KEEP_NS = 10 * S
"""Stamps are kept this long: longer than a sender waits between two retransmissions, except for
streams without progress for as long."""
LATE_NS = 3 * S
"""A second is closed at the latest this long after it began; earlier if both ends have reported
later data."""
MAX_DIRECTIONS = 1_024
"""Maximum directions of one fleet; further ones are counted."""
EXPECTED = 4
"""If fewer bytes were sampled in a second, it is normal that none was matched."""
NO_RECEIVER = "the other end does not report the connection"
"""Its host has no agent, or does not take it for a job's; or addresses are translated."""
_NUMBERS = 1 << 32
_MAX_UNDER_WAY = (1 << 30) + (1 << 28)
"""The largest window (RFC 7323, section 2.2), and the distance of two samples."""


class Delays(NamedTuple):
    """Delays of one direction of one connection in one second."""

    second_ns: int
    flow: FourTuple
    """4-tuple at its sender."""
    host: str
    """The host that sends."""
    nic: str
    job: str
    delays_ns: tuple[int, ...]
    """In no order; may be below 0 by no more than the bound."""
    bound_ns: int
    """Maximum error of each because of the clocks of both ends."""
    sigma_ns: float
    discarded: int
    """Bytes seen at both ends that could not be used: sent more than once, or perhaps."""
    unmatched: int
    """Bytes that arrived and that the sender did not report."""
    why: str
    """Why there is no delay; empty if there is one, or nothing was sent."""


class _Byte:
    """A sampled byte that was sent."""

    __slots__ = ("at_ns", "usable")

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns
        """When it was last sent."""
        self.usable = True
        """It was sent once, and its arrival is not matched yet."""


class _Sender:
    """The sampled bytes that one end sent."""

    def __init__(self, host: str, flow: SegmentFlow) -> None:
        self.host, self.flow = host, flow
        self.report: SegmentsReport | None = None
        """None: its host has no fleet time."""
        self._began_ns = 0
        """Bytes sent before this may be missing."""
        self._at_ns: list[int] = []
        self._furthest: list[int] = []
        """At each of these instants, of the whole stream."""
        self._bytes: dict[int, _Byte] = {}
        """By their place in the stream."""
        self._places: defaultdict[int, list[int]] = defaultdict(list)
        """Sequence number to the places that had it."""
        self._shifts: deque[tuple[int, int]] = deque()
        """(until when, power of two) of intervals."""

    def take(self, report: SegmentsReport, flow: SegmentFlow) -> None:
        """Take the report of the next interval, which must follow the previous one."""
        if self.report is None:
            self._began_ns = report.from_ns
        self.report, self.flow = report, flow
        self._shifts.append((report.at_ns, flow.shift))
        for at_ns, number in np.frombuffer(flow.sent, STAMP).tolist():
            furthest = self._furthest[-1] if self._furthest else number
            place = furthest + (number - furthest + _NUMBERS // 2) % _NUMBERS - _NUMBERS // 2
            self._at_ns.append(at_ns)
            self._furthest.append(max(furthest, place))
            known = self._bytes.get(place)
            if known is None:
                self._bytes[place] = _Byte(at_ns)
                self._places[number].append(place)
            else:
                known.at_ns, known.usable = at_ns, False
        self._forget(report.at_ns - KEEP_NS)

    def follows(self, host: str, report: SegmentsReport) -> bool:
        """Whether a report follows the previous one without a gap."""
        before = self.report
        return (
            before is not None
            and self.host == host
            and before.step == report.step
            and before.at_ns == report.from_ns
        )

    def sent_ns(self, number: int, at_ns: int, slack_ns: int) -> int | None:
        """When the byte that arrived was sent; None: it was not, as far as is known; -1: that is
        not certain. Each byte is asked for once.

        Args:
            number: its sequence number.
            at_ns: its arrival.
            slack_ns: how far clocks may be off.
        """
        before = bisect_right(self._at_ns, at_ns + slack_ns)
        if not before:
            return None
        furthest = self._furthest[before - 1]
        for place in reversed(self._places.get(number, ())):
            byte = self._bytes[place]
            if place > furthest or (byte.usable and byte.at_ns > at_ns + slack_ns):
                continue
            if furthest - place > _MAX_UNDER_WAY or byte.at_ns < at_ns - MAX_DELAY_NS:
                return None
            usable, byte.usable = byte.usable, False
            return byte.at_ns if usable and self._is_whole(number, at_ns) else -1
        return None

    def _is_whole(self, number: int, at_ns: int) -> bool:
        """Whether all transmissions of a byte before an instant are known."""
        from_ns = at_ns - MAX_DELAY_NS
        if self._began_ns > from_ns:
            return False
        coarsest = max((shift for until_ns, shift in self._shifts if until_ns > from_ns), default=0)
        return number % (1 << coarsest) == 0

    def _forget(self, before_ns: int) -> None:
        while self._shifts and self._shifts[0][0] < before_ns:
            self._shifts.popleft()
        old = bisect_right(self._at_ns, before_ns)
        if not old:
            return
        del self._at_ns[:old], self._furthest[:old]
        # The first of them were sent first; one that was sent again holds the next up for a while.
        while self._bytes:
            place, byte = next(iter(self._bytes.items()))
            if byte.at_ns > before_ns:
                break
            del self._bytes[place]
            number = place % _NUMBERS
            self._places[number].remove(place)
            if not self._places[number]:
                del self._places[number]


class _Second:
    def __init__(self) -> None:
        self.delays_ns: list[int] = []
        self.sampled = self.discarded = self.unmatched = self.bound_ns = 0
        self.sigma_ns = 0.0


class _Direction:
    def __init__(self) -> None:
        self.sender: _Sender | None = None
        self.receiver: SegmentsReport | None = None
        """None: no end is known that receives, or it has no fleet time."""
        self.receiving_host = ""
        self.heard_ns = 0
        """Last report of either end."""
        self._arrived: deque[tuple[int, int]] = deque()
        """Instants and numbers of arrived bytes that wait for the sender's report."""
        self._seconds: dict[int, _Second] = {}
        self._closed_ns = 0

    def take_sent(self, host: str, report: SegmentsReport, flow: SegmentFlow, now_ns: int) -> None:
        if self.sender is None or not self.sender.follows(host, report):
            self.sender = _Sender(host, flow)
        if not report.clock:
            self.sender.take(report, flow)
            for at_ns in np.frombuffer(flow.sent, STAMP)["at_ns"].tolist():
                self._second(at_ns).sampled += 1
        elif flow.sampled:
            self._second(now_ns).sampled += flow.sampled

    def take_received(self, host: str, report: SegmentsReport, flow: SegmentFlow) -> None:
        before = self.receiver
        if self.receiving_host != host or before is None or before.step != report.step:
            self._arrived.clear()
        self.receiver, self.receiving_host = None if report.clock else report, host
        self._arrived.extend(np.frombuffer(flow.received, STAMP).tolist())
        while self._arrived and self._arrived[0][0] < report.at_ns - KEEP_NS:
            self._arrived.popleft()

    def match(self) -> None:
        """Match arrivals that the sender's reports cover."""
        sent = None if self.sender is None else self.sender.report
        if self.sender is None or sent is None or self.receiver is None:
            return
        if sent.step != self.receiver.step:
            return
        bound_ns = sent.bound_ns + self.receiver.bound_ns
        while self._arrived and self._arrived[0][0] + bound_ns <= sent.at_ns:
            at_ns, number = self._arrived.popleft()
            second = self._second(at_ns)
            sent_ns = self.sender.sent_ns(number, at_ns, bound_ns)
            if sent_ns is None:
                second.unmatched += 1
            elif sent_ns < 0:
                second.discarded += 1
            else:
                second.delays_ns.append(at_ns - sent_ns)
                second.bound_ns = max(second.bound_ns, bound_ns)
                second.sigma_ns = math.hypot(sent.sigma_ns, self.receiver.sigma_ns)

    def close(self, last_ns: int) -> Iterator[tuple[int, _Second]]:
        """Seconds that began by then, or of which both ends have reported all."""
        last_ns = max(last_ns, self._whole_ns() - S)
        for second_ns in sorted(each for each in self._seconds if each <= last_ns):
            self._closed_ns = second_ns + S
            yield second_ns, self._seconds.pop(second_ns)

    def _whole_ns(self) -> int:
        """Until when all arrivals are reported, and matched; 0: not known."""
        sent = None if self.sender is None else self.sender.report
        if sent is None or self.receiver is None or sent.step != self.receiver.step:
            return 0
        return min(sent.at_ns - sent.bound_ns - self.receiver.bound_ns, self.receiver.at_ns)

    def _second(self, at_ns: int) -> _Second:
        second_ns = max(at_ns // S * S, self._closed_ns)
        return self._seconds.setdefault(second_ns, _Second())


class SegmentDelays:
    """Segment delays of a fleet; used by one thread."""

    def __init__(self) -> None:
        self._directions: dict[FourTuple, _Direction] = {}
        self._clockless: dict[str, tuple[int, str]] = {}
        """Host → when, and why, it last had no fleet time."""
        self.left_out = 0
        """Number of reports dropped because of `MAX_DIRECTIONS`."""

    def take(self, host: str, report: SegmentsReport, now_ns: int) -> None:
        """Take a host's newest report; `now_ns` is fleet time."""
        self._clockless.pop(host, None)
        if report.clock:
            self._clockless[host] = now_ns, report.clock
        for flow in report.flows:
            here = FourTuple.of(flow)
            for key in (here, here.reverse):
                direction = self._directions.get(key)
                if direction is None:
                    if len(self._directions) >= MAX_DIRECTIONS:
                        self.left_out += 1
                        continue
                    direction = self._directions[key] = _Direction()
                direction.heard_ns = now_ns
                if key is here:
                    direction.take_sent(host, report, flow, now_ns)
                else:
                    direction.take_received(host, report, flow)

    def step(self, now_ns: int) -> list[Delays]:
        """Match bytes, and return the seconds that are over; `now_ns` is fleet time."""
        found: list[Delays] = []
        for key, direction in list(self._directions.items()):
            direction.match()
            for second_ns, second in direction.close(now_ns - LATE_NS):
                why = "" if second.delays_ns else self._why(direction, second, now_ns)
                if direction.sender is not None and (second.delays_ns or why):
                    found.append(_delays(key, direction.sender, second_ns, second, why))
            if direction.heard_ns < now_ns - KEEP_NS:
                del self._directions[key]
        return found

    def _why(self, direction: _Direction, second: _Second, now_ns: int) -> str:
        """Why there is no delay; empty: too little was sent to expect one."""
        if second.sampled < EXPECTED:
            return ""
        sender = "" if direction.sender is None else direction.sender.host
        for host in (sender, direction.receiving_host):
            at_ns, why = self._clockless.get(host, (0, ""))
            if why and at_ns > now_ns - KEEP_NS:
                return f"no fleet time on {host}: {why}"
        if direction.receiver is None:
            return NO_RECEIVER
        if second.discarded:
            return "what was sampled was sent more than once, or may have been"
        if second.unmatched:
            return "both ends sample different bytes: sequence numbers are rewritten on the way"
        return "nothing that was sampled where it was sent was seen where it is received"


def _delays(flow: FourTuple, sender: _Sender, second_ns: int, second: _Second, why: str) -> Delays:
    return Delays(
        second_ns=second_ns,
        flow=flow,
        host=sender.host,
        nic=sender.flow.nic,
        job=sender.flow.job,
        delays_ns=tuple(second.delays_ns),
        bound_ns=second.bound_ns,
        sigma_ns=second.sigma_ns,
        discarded=second.discarded,
        unmatched=second.unmatched,
        why=why,
    )
