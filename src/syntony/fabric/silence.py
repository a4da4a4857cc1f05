"""Which devices answered which senders, and what answers were lost: what else a silent hop may be
than a switch that never answers. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Container, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from syntony.fabric.book import Way
from syntony.model import S

ROUNDS_NS = 50 * S
"""Traces of one path that are this far apart are of two rounds of tracing (`learn.AGAIN_NS`)."""
TWICE_NS = 9 * S
"""… and these are two traces at least, not one that was repeated at once (`learn.RETRACE_NS`)."""
MEMORY_NS = 130 * S
"""What was not traced for this long, two rounds, is no longer known."""
RECENT_NS = 20 * S
"""A device that was not seen for this long before is new: it may be the silent one."""

Pair = tuple[str, str]
"""Devices before and behind a hop, sorted."""


class Span(NamedTuple):
    """Traces with the same result, fleet time at which they began."""

    first_ns: int
    last_ns: int


def span(known: Span | None, at_ns: int, gap_ns: int = MEMORY_NS) -> Span:
    """The span with one more trace in it; after a gap a new one."""
    if known is None or at_ns - known.last_ns > gap_ns:
        return Span(at_ns, at_ns)
    return Span(known.first_ns, max(known.last_ns, at_ns))


class _Tally(NamedTuple):
    """Traces of known hops, by the device before them, from one `drop` to the next."""

    since_ns: int
    lost: Counter[str]
    """Not answered, by a hop whose path is known again by now."""
    answered: Counter[str]


class Answers:
    """Takes all traces. Not thread-safe."""

    def __init__(self) -> None:
        self._seen: dict[str, Span] = {}
        """By device; a span ends after `RECENT_NS`."""
        self._sender: dict[tuple[str, bool, str], Span] = {}
        """By sender, direction and device."""
        self._between: defaultdict[Pair, dict[tuple[str, str], Span]] = defaultdict(dict)
        """By the pair around a device: the one before it, and itself."""
        self._missed: dict[Way, tuple[str, int]] = {}
        """Path → the device before a known hop that does not answer it now, and in how many
        traces."""
        self._tallies: deque[_Tally] = deque([_Tally(0, Counter(), Counter())])
        """Of the last two rounds."""

    def changed(self, way: Way, hops: Sequence[str | None]) -> None:
        """A path goes elsewhere, or is no longer traced. If all of its hops answer now, answers may
        have been lost before, as `traced` counts."""
        if not hops or None in hops:
            self._missed.pop(way, None)

    def traced(self, way: Way, hops: Sequence[str | None], at_ns: int, *, missed: bool) -> None:
        """A trace.

        Args:
            missed: whether exactly one known hop gave no answer, and the hops before and
                behind it did.
        """
        for answering in filter(None, hops[1:]):
            self._seen[answering] = span(self._seen.get(answering), at_ns, RECENT_NS)
            key = *_sender(way), answering
            self._sender[key] = span(self._sender.get(key), at_ns)
        lost = 0
        if not missed and len(hops) > 3 and None not in hops:
            lost = self._missed.pop(way, ("", 0))[1]
        for before, device, behind in zip(hops[1:], hops[2:], hops[3:], strict=False):
            if before is None or behind is None:
                continue
            if device is None:
                if missed:
                    self._missed[way] = before, self._missed.get(way, ("", 0))[1] + 1
                continue
            self._tallies[-1].lost[before] += lost
            self._tallies[-1].answered[before] += 1
            between = self._between[min(before, behind), max(before, behind)]
            between[before, device] = span(between.get((before, device)), at_ns)

    def drop(self, now_ns: int) -> None:
        """Forget lost answers after two rounds, and later, what did not answer since."""
        old_ns = now_ns - 2 * MEMORY_NS
        self._sender = {key: it for key, it in self._sender.items() if it.last_ns >= old_ns}
        for pair, known in list(self._between.items()):
            self._between[pair] = {k: it for k, it in known.items() if it.last_ns >= old_ns}
            if not self._between[pair]:
                del self._between[pair]
        while self._tallies and self._tallies[0].since_ns < now_ns - MEMORY_NS:
            self._tallies.popleft()
        self._tallies.append(_Tally(now_ns, Counter(), Counter()))

    def lost(self, before: Collection[str]) -> int:
        """Answers lost behind these devices in the last two rounds."""
        return sum(tally.lost[device] for tally in self._tallies for device in before)

    def answered(self, before: Collection[str], until_ns: int) -> int:
        """Answers that came from behind these devices in the last two rounds, until this instant
        at the latest."""
        ended = [a for a, b in pairwise(self._tallies) if b.since_ns <= until_ns]
        return sum(tally.answered[device] for tally in ended for device in before)

    def missed(self, before: Container[str]) -> int:
        """Paths whose known hop behind these devices does not answer now: it may be another."""
        return sum(device in before for device, _ in self._missed.values())

    def regular(self, way: Way, device: str, at_ns: int) -> bool:
        """Whether a device had answered the sender of a path in the same direction of flows, and
        others all the time, for two traces of it."""
        known = self._seen.get(device), self._sender.get((*_sender(way), device))
        return all(each is not None and each.first_ns <= at_ns - TWICE_NS for each in known)

    def devices(self, pairs: Iterable[Pair]) -> frozenset[str]:
        """All that answered between these."""
        return frozenset(device for pair in pairs for _, device in self._between.get(pair, ()))

    def all_since(self, devices: Iterable[str], since_ns: int) -> bool:
        """Whether all of them answered anybody since: one that did not may be what is down."""
        return all(self._seen[device].last_ns >= since_ns for device in devices)

    def hidden_from(self, sides: Iterable[str], pairs: Iterable[Pair], at_ns: int) -> bool:
        """Whether a device answers senders at the far sides of these pairs, and did not those at
        one of `sides` for so long before: to them it is a silent hop."""
        answers, others = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for a, b in pairs:
            for (before, device), it in self._between.get((a, b), {}).items():
                others[b if before == a else a].add(device)
                if it.first_ns <= at_ns - TWICE_NS:
                    answers[before].add(device)
        return any(others[side] - answers[side] for side in sides)


def _sender(way: Way) -> tuple[str, bool]:
    """Whose answers a filter may treat alike: those to one NIC, as client or as server."""
    return way.src, way.sport < way.dport
