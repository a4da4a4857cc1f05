"""Estimates one-way delays of jobs' flows from probes on the same links. Pure.

A TCP flow and a UDP probe with the same ports hash differently. But a probe between the same two
NICs whose traced path has the same links waits in the same queues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from syntony.controller.flow_table import FlowEntry
from syntony.model import S
from syntony.traffic.measurements import PathDelay
from syntony.traffic.pacing import LinkQueue

BASE_NS = 120 * S
"""Window over which the minimum delay of a path is taken."""
FRESH_NS = 5 * S
"""A second is reported 1.2 s after its end (`syntony.mesh.stats.HOLD_NS`), the next one a second
later, and later by a busy host."""
FORGET_NS = 600 * S
"""A path without probes for this long is dropped."""
TOGETHER_NS = 1 * S
"""Delays of one link's paths are compared if they were reported within this time."""
Links = tuple[str, ...]
Key = tuple[str, str, Links]


class DelaySecond(NamedTuple):
    at_ns: int
    """The second's end, fleet time."""
    p50_ns: int
    p99_ns: int


class ProbeSecond(NamedTuple):
    src: str
    dst: str
    links: Links
    delay: DelaySecond
    least_ns: int


class PathDelays:
    """The newest second of every path, and its recent minimum delay."""

    def __init__(self) -> None:
        self._now: dict[Key, DelaySecond] = {}
        self._base: dict[Key, tuple[int, int]] = {}
        """(least delay, when)."""
        self._between: defaultdict[tuple[str, str], set[Links]] = defaultdict(set)
        """Paths between two NICs, of `_now`."""
        self._there: set[tuple[str, str]] = set()
        """(flow, link it crosses)."""
        self._changed: dict[str, int] = {}
        """Link → when a flow last joined or left it."""
        self._forgot_ns = 0

    def __len__(self) -> int:
        """Number of known paths and links."""
        return len(self._now) + len(self._base) + len(self._changed)

    def add(self, seconds: Iterable[ProbeSecond]) -> None:
        """Add probes of one path in one second: the median of the medians, the maximum of the
        tails."""
        by_path: dict[tuple[Key, int], list[ProbeSecond]] = defaultdict(list)
        for each in seconds:
            by_path[(each.src, each.dst, each.links), each.delay.at_ns].append(each)
        for (key, at_ns), some in sorted(by_path.items(), key=lambda item: item[0][1]):
            known = self._now.get(key)
            if known is not None and known.at_ns > at_ns:
                continue
            p50 = sorted(each.delay.p50_ns for each in some)[len(some) // 2]
            self._now[key] = DelaySecond(at_ns, p50, max(each.delay.p99_ns for each in some))
            self._between[key[:2]].add(key[2])
            least_ns = min(each.least_ns for each in some)
            base, when_ns = self._base.get(key, (least_ns, at_ns))
            if least_ns <= base or at_ns - when_ns > BASE_NS:
                self._base[key] = (least_ns, at_ns)

    def now(self, src: str, dst: str, links: Links) -> DelaySecond | None:
        """The newest second of one path."""
        return self._now.get((src, dst, links))

    def worst(self, row: FlowEntry) -> DelaySecond | None:
        """The larger delay of the directions in which a flow sends. Of queue pairs only the ends of
        their path are known: the largest of all paths between these."""
        ways = _ways(row, row.flow.path_id if row.flow else "")
        if row.view.process:
            pair = (row.src, row.dst)
            ways = [(*pair, links) for links in self._between.get(pair, ())]
        found = [delay for way in ways if (delay := self.now(*way)) is not None]
        return max(found, key=lambda delay: delay.p50_ns, default=None)

    def queues(self, now_ns: int) -> dict[str, LinkQueue]:
        """Queueing delay on every link that a recently probed path crosses. A packet that waits on
        a link does so on every path across it, so the minimum over the paths is used; because a
        second of a path has few probes, it is the lower quartile."""
        waits: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for key, delay in self._now.items():
            base = self._base.get(key)
            if base is None or now_ns - delay.at_ns > FRESH_NS:
                continue
            queue_ns = max(0, delay.p50_ns - base[0])
            for link in key[2]:
                waits[link].append((delay.at_ns, queue_ns))
        found = {}
        for link, some in waits.items():
            newest_ns = max(at_ns for at_ns, _ in some)
            now = sorted(queue for at_ns, queue in some if newest_ns - at_ns < TOGETHER_NS)
            found[link] = LinkQueue(newest_ns, now[len(now) // 4])
        return found

    def of(self, rows: Sequence[FlowEntry], now_ns: int) -> Mapping[tuple[str, str], PathDelay]:
        """By (flow, path), for all candidates whose directions were all probed recently, and since
        flows last joined or left these links; the larger direction counts."""
        self._note_changes(rows, now_ns)
        self._forget(now_ns)
        queues = self.queues(now_ns) if any(row.view.process for row in rows) else {}
        found = {}
        for row in rows:
            for path in row.flow.paths if row.flow is not None else ():
                from_ns = max((self._changed.get(link, 0) for link in path.links), default=0) + S
                if row.view.process:
                    delay = _slowest(path.links, queues)
                else:
                    delay = self._worst(_ways(row, path.path_id))
                if delay is not None and delay.at_ns >= max(from_ns, now_ns - FRESH_NS):
                    found[row.flow_id, path.path_id] = delay
        return found

    def _forget(self, now_ns: int) -> None:
        if now_ns - self._forgot_ns < FORGET_NS:
            return
        self._forgot_ns = now_ns
        oldest_ns = now_ns - FORGET_NS
        self._now = {key: each for key, each in self._now.items() if each.at_ns >= oldest_ns}
        self._base = {key: each for key, each in self._base.items() if key in self._now}
        self._between.clear()
        for src, dst, links in self._now:
            self._between[src, dst].add(links)
        self._changed = {link: at for link, at in self._changed.items() if at >= oldest_ns}

    def _worst(self, ways: Collection[Key]) -> PathDelay | None:
        delays = [(self._now.get(way), self._base.get(way)) for way in ways]
        reported = [(now, base) for now, base in delays if now is not None and base is not None]
        if not reported or len(reported) < len(delays):
            return None
        now, base = max(reported, key=lambda each: each[0].p50_ns - each[1][0])
        return PathDelay(now.at_ns, now.p50_ns, base[0])

    def _note_changes(self, rows: Sequence[FlowEntry], now_ns: int) -> None:
        """Record links that flows have joined or left: earlier measurements are outdated."""
        there = {
            (row.flow_id, link)
            for row in rows
            if row.flow is not None and (path := row.flow.current) is not None
            for link in path.links
        }
        for _, link in there ^ self._there:
            self._changed[link] = now_ns
        self._there = there


def _slowest(links: Links, queues: Mapping[str, LinkQueue]) -> PathDelay | None:
    """For queue pairs only the links at both ends are known: all probed paths between them
    count."""
    known = [queues[link] for link in links if link in queues]
    if not known or len(known) < len(links):
        return None
    worst = max(known, key=lambda each: each.queue_ns)
    return PathDelay(worst.at_ns, worst.queue_ns, 0)


def _ways(row: FlowEntry, path_id: str) -> Collection[Key]:
    """Sender, receiver and links of each direction in which the flow sends much."""
    path = next((p for p in row.flow.paths if p.path_id == path_id), None) if row.flow else None
    if path is None:
        return ()
    # A path lists one direction's links after the other's; each begins at its sender.
    there: list[str] = []
    back: list[str] = []
    part = there if path.links[0].startswith(f"{row.src}-") else back
    for link in path.links:
        if link.startswith(f"{row.dst}->"):
            part = back
        part.append(link)
    ways = ((row.src, row.dst, tuple(there)), (row.dst, row.src, tuple(back)))
    return [way for way in ways if way[2]]
