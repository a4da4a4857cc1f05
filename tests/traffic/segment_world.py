"""A TCP stream between two NICs, packet by packet, for what samples and matches its bytes.

Written without the code it grades: offloads cut and put together at random, packets are lost,
duplicated, reordered and sent again (also needlessly), taps miss some of it, clocks are off
within their bounds. Every instant is random to the nanosecond, so that a wrong pair shows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from syntony.model import MS, US, S
from syntony.traffic.segment_delays import STAMP
from syntony.wire.segments import SegmentFlow, SegmentsReport

T0 = 1_700_000_000 * S
NUMBERS = 1 << 32


class Segment(NamedTuple):
    """As a tap sees it."""

    at_ns: int
    first: int
    """Place in the stream."""
    end: int


class Copy(NamedTuple):
    """One packet on the wire."""

    arrival_ns: int
    sent_ns: int
    first: int
    end: int


class World:
    """One direction of one connection for `seconds`.

    Args:
        slowest_ns: what is late is so late at most, beside what others need.

    Attributes:
        sent: what the sender's tap could see.
        received: what the receiver's could.
        true_delays: of every byte's copies that arrived, by instants of the taps: place to delays.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        seconds: int,
        bps: float,
        slowest_ns: float = 3 * S,
        **odds: float,
    ) -> None:
        self.rng, self.odds = rng, odds
        self.seconds = seconds
        self.finest = min(22, max(10, int(math.log2(bps / 8)) - 8))
        """No tap samples closer bytes than 2 to this power."""
        self.isn = rng.choice([rng.randrange(NUMBERS), NUMBERS - rng.randrange(1, 1 << 20)])
        # TCP has at most 2^30 bytes under way: what is late or lost holds a fast stream back.
        self.most_ns = int(min(slowest_ns, (1 << 30) * 8 * S / bps / 3))
        self.base_ns = rng.randrange(2 * US, min(30 * MS, self.most_ns // 4))
        self.jitter_ns = rng.choice([500, 50 * US, min(5 * MS, self.most_ns // 30)])
        self.sent: list[Segment] = []
        copies: list[Copy] = []
        size = max(2_000, int(bps / 8 * seconds / 3_000))
        at_ns, place, end_ns = T0, 0, T0 + seconds * S
        again: list[tuple[int, int, int]] = []
        while at_ns < end_ns:
            at_ns += max(1, int(rng.expovariate(1) * size * 8 * S / bps))
            while again and again[0][0] < at_ns:
                when, first, last = again.pop(0)
                self._send(when, first, last, copies, again)
            length = rng.randrange(1, 2 * size)
            self._send(at_ns, place, place + length, copies, again)
            place += length
        self.sent.sort()
        self.received, self.true_delays = self._put_together(copies)

    def _odd(self, name: str) -> bool:
        return self.rng.random() < self.odds.get(name, 0.0)

    def _send(
        self,
        at_ns: int,
        first: int,
        end: int,
        copies: list[Copy],
        again: list[tuple[int, int, int]],
    ) -> None:
        rng = self.rng
        self.sent.append(Segment(at_ns, first, end))
        cuts = sorted({first, end, *(rng.randrange(first, end) for _ in range(rng.randrange(3)))})
        for left, right in itertools.pairwise(cuts):
            delay_ns = self.base_ns + int(min(7.0, rng.expovariate(1)) * self.jitter_ns)
            if self._odd("late"):
                delay_ns += rng.randrange(self.most_ns)
            lost = self._odd("loss")
            if not lost:
                copies.append(Copy(at_ns + delay_ns, at_ns, left, right))
            if self._odd("duplicate"):
                behind_ns = rng.randrange(min(20 * MS, self.most_ns))
                copies.append(Copy(at_ns + delay_ns + behind_ns, at_ns, left, right))
            if lost or self._odd("needless"):
                # Cut otherwise than at first.
                begin = max(0, left - rng.randrange(500))
                wait_ns = rng.randrange(self.most_ns // 4, self.most_ns // 2)
                again.append((at_ns + wait_ns, begin, right))
                again.sort()

    def _put_together(self, copies: list[Copy]) -> tuple[list[Segment], dict[int, set[int]]]:
        received: list[Segment] = []
        members: list[list[Copy]] = []
        for copy in sorted(copies):
            newest = received[-1] if received else None
            if (
                newest is not None
                and copy.first == newest.end
                and copy.arrival_ns - newest.at_ns < 50 * US
                and self.rng.random() < 0.7
            ):
                received[-1] = Segment(copy.arrival_ns, newest.first, copy.end)
                members[-1].append(copy)
            else:
                received.append(Segment(copy.arrival_ns, copy.first, copy.end))
                members.append([copy])
        true: dict[int, set[int]] = {}
        for segment, parts in zip(received, members, strict=True):
            for copy in parts:
                for place in self.places(copy.first, copy.end, self.finest):
                    true.setdefault(place, set()).add(segment.at_ns - copy.sent_ns)
        return received, true

    def places(self, first: int, end: int, shift: int) -> Iterator[int]:
        """Places in the stream whose numbers are multiples of 2^shift."""
        step = 1 << shift
        at = first + (-(first + self.isn)) % step
        while at < end:
            yield at
            at += step

    def number(self, place: int) -> int:
        """Sequence number of a byte."""
        return (place + self.isn) % NUMBERS


class Tap:
    """An end: samples, and reports in intervals of its own.

    Args:
        shift: power of two that it begins with.
        error_ns: how far its clock is off, constant.
    """

    def __init__(self, world: World, *, sends: bool, shift: int, error_ns: int) -> None:
        self._world, self._sends, self._shift, self._error_ns = world, sends, shift, error_ns

    def reports(self, bound_ns: int) -> Iterator[tuple[int, SegmentsReport]]:
        """(when it is there, report)."""
        world, rng = self._world, self._world.rng
        segments = world.sent if self._sends else world.received
        at_ns, shift, before, place = T0 - 3 * S, self._shift, self._shift, 0
        while at_ns < T0 + (world.seconds + 3) * S:
            from_ns, at_ns = at_ns, at_ns + rng.randrange(700 * MS, 1_300 * MS)
            stamps: list[tuple[int, int]] = []
            while place < len(segments) and segments[place].at_ns < at_ns:
                segment = segments[place]
                place += 1
                stamps += [
                    (segment.at_ns + self._error_ns, world.number(each))
                    for each in world.places(segment.first, segment.end, shift)
                ]
            raw = np.array(stamps, STAMP).tobytes()
            flow = SegmentFlow(
                job="night",
                nic="rail0",
                local="10.0.0.1" if self._sends else "10.0.0.2",
                local_port=40_000 if self._sends else 5_000,
                remote="10.0.0.2" if self._sends else "10.0.0.1",
                remote_port=5_000 if self._sends else 40_000,
                sent=raw if self._sends else b"",
                received=b"" if self._sends else raw,
                shift=max(shift, before),
                sampled=len(stamps) if self._sends else 0,
            )
            lost = rng.random() < world.odds.get("unread", 0.0)
            report = SegmentsReport(
                from_ns=from_ns + self._error_ns,
                at_ns=at_ns + self._error_ns,
                bound_ns=bound_ns,
                sigma_ns=10.0,
                step=1,
                flows=() if lost else (flow,),
            )
            before = shift
            if rng.random() < world.odds.get("adapt", 0.0):
                shift = min(28, max(world.finest, shift + rng.choice([-2, -1, 1, 2])))
            if rng.random() >= world.odds.get("unsent", 0.0):
                yield at_ns + rng.randrange(300 * MS), report
