"""One-way delays of queue pairs: the k-th message posted at one end is the k-th received at the
other, since the queue pair last became ready. Pure.

Holds for reliable connections (``rc``): they deliver each message once, in order. Which generations
belong together follows from addresses, queue pair numbers, first packet numbers and order in time.
Every pair of stamps is checked: both ends must report the same length, and no message may arrive
before it was posted, within the error of the two hosts' clocks. Otherwise the two generations are
never paired again, and the mismatch is counted.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from syntony.model import S
from syntony.traffic.queue_pair_page import STAMP_RECORD
from syntony.wire.queue_pairs import MAX_STAMPS, OneWay, QueuePairFigures, QueuePairsReport

KEEP_NS = 10 * S
"""Stamps wait so long for the other end's; generations that are reported no longer are kept so."""
FRESH_NS = 5 * S
"""An older delay is not reported."""
SENDS_INEXACT, RECEIVES_INEXACT, NO_LENGTHS = 1, 2, 8
"""Of ``enum syn_qp_flag``."""

Direction = tuple[str, int, str, int, int]
"""Address and number of the queue pair that sends and of the one that receives, and the first
packet number between them."""
EndKey = tuple[str, str]
"""Host, and its key of the generation."""


class Stamp(NamedTuple):
    """The stamp of one message at one end."""

    at_ns: int
    bytes: int
    bound_ns: int
    """How far `at_ns` may be from fleet time."""


class MessageDelay(NamedTuple):
    number: int
    sent_ns: int
    received_ns: int
    bytes: int

    @property
    def delay_ns(self) -> int:
        """From before the post until the receive completion was polled."""
        return self.received_ns - self.sent_ns


class _End:
    """One direction of one generation at one of its ends."""

    def __init__(self, figures: QueuePairFigures) -> None:
        self.figures = figures
        self.began_ns = self.first_sent_ns = self.bound_ns = 0
        """As first reported (the sooner an instant is converted to fleet time, the more accurate),
        and their error bound."""
        self.reported_ns = 0
        """When it was last reported."""
        self.stamps: dict[int, Stamp] = {}
        """By number, for `KEEP_NS`."""
        self.condemned: set[EndKey] = set()
        self.samples: deque[MessageDelay] = deque(maxlen=4 * MAX_STAMPS)
        """Of the sending end."""
        self.paired = 0
        self.peer = ""
        """Host of the end that it is paired with."""
        self.why = ""
        """Why nothing was paired recently."""

    def take(self, figures: QueuePairFigures, stamps: bytes, at_ns: int, bound_ns: int) -> None:
        self.figures, self.reported_ns = figures, at_ns
        if not self.began_ns or (figures.first_sent_ns and not self.first_sent_ns):
            self.bound_ns = max(self.bound_ns, bound_ns)
        self.began_ns = self.began_ns or figures.began_ns
        self.first_sent_ns = self.first_sent_ns or figures.first_sent_ns
        reported = np.frombuffer(stamps, STAMP_RECORD)
        for instant_ns, number, value in reported.tolist():
            self.stamps[number] = Stamp(instant_ns, value, bound_ns)
        while len(self.stamps) > MAX_STAMPS * (KEEP_NS // S):
            del self.stamps[next(iter(self.stamps))]


class QueuePairDelays:
    """Computes one-way delays of all queue pairs of a fleet."""

    def __init__(self) -> None:
        self._sending: defaultdict[Direction, dict[EndKey, _End]] = defaultdict(dict)
        self._receiving: defaultdict[Direction, dict[EndKey, _End]] = defaultdict(dict)
        self._heard: dict[str, int] = {}
        """Host to fleet time of its newest report."""
        self.mismatches = 0
        """Pairs of generations that turned out not to belong together."""

    def take(self, host: str, report: QueuePairsReport) -> None:
        self._heard[host] = report.at_ns
        for each in report.queue_pairs:
            if each.type != "rc" or not each.local or not each.remote:
                continue
            here, there = (each.local, each.number), (each.remote, each.peer_number)
            for ends, direction, stamps in (
                (self._sending, (*here, *there, each.send_psn), each.sent_stamps),
                (self._receiving, (*there, *here, each.receive_psn), each.received_stamps),
            ):
                end = ends[direction].setdefault((host, each.key), _End(each))
                end.take(each, stamps, report.at_ns, report.bound_ns)

    def step(
        self, now_ns: int
    ) -> list[tuple[Direction, tuple[str, QueuePairFigures], str, list[MessageDelay]]]:
        """Pair what can be.

        Returns:
            Direction, sending host with its figures, receiving host and the new samples of each
            that has any.
        """
        self._forget(now_ns)
        found = []
        for direction, senders in self._sending.items():
            receivers = self._receiving.get(direction, {})
            chosen = {key: self._receiver(end, receivers) for key, end in senders.items()}
            for key, end in senders.items():
                partner = chosen[key]
                if isinstance(partner, str):
                    end.why = partner
                elif list(chosen.values()).count(partner) > 1:
                    end.why = "several queue pairs say that they are this one"
                else:
                    samples = self._pair(end, partner, receivers[partner])
                    if samples:
                        found.append((direction, (key[0], end.figures), partner[0], samples))
        return found

    def delay(self, host: str, figures: QueuePairFigures, now_ns: int) -> tuple[OneWay | str, str]:
        """One-way delay of what a queue pair sends, or why it is unknown; and the host of the other
        end, empty if unknown."""
        if figures.type != "rc":
            return "only reliable connections are paired", ""
        if not figures.local or not figures.remote:
            return "it has no global route", ""
        direction = (
            figures.local, figures.number, figures.remote, figures.peer_number, figures.send_psn,
        )  # fmt: skip
        end = self._sending.get(direction, {}).get((host, figures.key))
        if end is None:
            return "not reported yet", ""
        second = [each for each in end.samples if each.received_ns > now_ns - FRESH_NS]
        if not second:
            return end.why or "nothing was paired recently", end.peer
        newest_ns = max(each.received_ns for each in second)
        delays = [each.delay_ns for each in second if each.received_ns > newest_ns - S]
        return summary(delays, newest_ns, end.paired), end.peer

    def _receiver(self, end: _End, receivers: dict[EndKey, _End]) -> EndKey | str:
        """The generation that receives what this one sends, or why it is not known: of several the
        newest that was ready before its first message."""
        if not end.first_sent_ns:
            return "it sent nothing that takes a receive"
        if end.figures.flags & SENDS_INEXACT:
            return "several threads post to it at once"
        ready = [
            (other.began_ns, key)
            for key, other in receivers.items()
            if len(receivers) == 1
            or other.began_ns <= end.first_sent_ns + end.bound_ns + other.bound_ns
        ]
        if not ready:
            return "nothing is known of the other end"
        _, key = max(ready)
        return self._unfit(end, key, receivers[key]) or key

    def _unfit(self, end: _End, key: EndKey, other: _End) -> str:
        """Why a generation must not be paired with that one; empty: it may."""
        if self._heard[key[0]] < end.first_sent_ns:
            return "its peer has not reported since"
        if other.figures.flags & RECEIVES_INEXACT:
            return "several threads poll its peer's completion queue at once"
        return "its messages do not match its peer's" if key in end.condemned else ""

    def _pair(self, end: _End, partner: EndKey, other: _End) -> list[MessageDelay]:
        samples = []
        lengths = not other.figures.flags & NO_LENGTHS
        for number in sorted(end.stamps.keys() & other.stamps.keys()):
            sent, received = end.stamps.pop(number), other.stamps.pop(number)
            early_ns = sent.at_ns - received.at_ns
            impossible = early_ns > sent.bound_ns + received.bound_ns
            if impossible or (lengths and received.bytes != sent.bytes):
                self.mismatches += 1
                end.condemned.add(partner)
                end.samples.clear()
                end.why = "its messages do not match its peer's"
                return []
            samples.append(MessageDelay(number, sent.at_ns, received.at_ns, sent.bytes))
        end.samples.extend(samples)
        end.paired += len(samples)
        end.peer, end.why = partner[0], ""
        return samples

    def _forget(self, now_ns: int) -> None:
        for ends in (self._sending, self._receiving):
            for _, by_key, key, end in list(_each(ends)):
                if end.reported_ns < now_ns - KEEP_NS:
                    del by_key[key]
                    continue
                old = [n for n, each in end.stamps.items() if each.at_ns < now_ns - KEEP_NS]
                for number in old:
                    del end.stamps[number]
            for direction in [direction for direction, by_key in ends.items() if not by_key]:
                del ends[direction]


def summary(delays: list[int], at_ns: int, paired: int) -> OneWay:
    """Of one second; `delays` is not empty."""
    ordered = sorted(delays)
    return OneWay(
        count=len(ordered),
        at_ns=at_ns,
        min_ns=ordered[0],
        p50_ns=ordered[len(ordered) // 2],
        max_ns=ordered[-1],
        paired=paired,
    )


def _each(
    ends: dict[Direction, dict[EndKey, _End]],
) -> Iterator[tuple[Direction, dict[EndKey, _End], EndKey, _End]]:
    for direction, by_key in ends.items():
        for key, end in by_key.items():
            yield direction, by_key, key, end
