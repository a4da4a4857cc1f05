"""The third generator's engine: packets of collectives as events in FIFO queues.

Servers (the DMA engine of a NIC, a directed link) serve chunks in the order in which they come; a
server whose queue is full stops the one before it (lossless fabrics) or drops (lossy ones). A flow
may have so many chunks in flight; one comes back when the receiver has consumed it, which it does
only once its ranks have enqueued the operation. Time is ns of the simulation, which is a part of
the recorded job: one chunk stands for many like it.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

Event = Callable[..., None]


class Server:
    """One FIFO queue."""

    __slots__ = ("arrived", "background", "bps", "burst", "busy", "closed", "free", "latency",
                 "loss", "name", "paused", "seen", "taken_until", "xoff")  # fmt: skip

    def __init__(self, name: str, bps: float, latency: float, xoff: float) -> None:
        self.name, self.bps, self.latency, self.xoff = name, bps, latency, xoff
        self.free = self.seen = self.background = self.loss = 0.0
        self.taken_until = 0.0
        self.burst = 1500.0
        self.closed: Callable[[float], float] | None = None
        """When it opens again, asked with an instant; None: it is never closed."""
        self.busy: dict[int, float] = defaultdict(float)
        self.paused: dict[int, float] = defaultdict(float)
        self.arrived: dict[int, int] = defaultdict(int)


class Flow:
    """Chunks from one NIC to another."""

    __slots__ = ("consuming", "dst", "dst_node", "extra", "inflight", "moved", "name", "next_at",
                 "pace", "path", "peer", "queue", "rail", "rank", "src", "src_node", "stats",
                 "waits_since", "window", "working_since")  # fmt: skip

    def __init__(self, name: str, src: str, dst: str, path: list[Server], *, rank: int, peer: int,
                 rail: str, nodes: tuple[int, int], window: int) -> None:  # fmt: skip
        self.name, self.src, self.dst, self.path = name, src, dst, path
        self.rank, self.peer, self.rail = rank, peer, rail
        self.src_node, self.dst_node = nodes
        self.window, self.inflight = window, 0
        self.queue: deque[tuple[Any, ...]] = deque()
        self.consuming = 0.0
        self.waits_since = self.working_since = -1.0
        self.extra = self.next_at = self.moved = 0.0
        self.pace = 0.0
        """Least ns between chunks: a limiter on the queue pair."""
        self.stats: dict[int, dict[str, Any]] = {}


class Engine:
    """Runs events; windows are of the simulation's time."""

    def __init__(self, rng: random.Random, window: float, chunk_bits: float, lossless: bool):
        self.rng, self.width, self.bits, self.lossless = rng, window, chunk_bits, lossless
        self.heap: list[tuple[float, int, Event, tuple[Any, ...]]] = []
        self.count = 0
        self.now = 0.0
        self.consume_ns: Callable[[Flow, float], float] = lambda _flow, _at: 0.0
        self.host_delay: Callable[[str, float], float] = lambda _nic, _at: 0.0
        self.class_delay: Callable[[str, str, float], float] = lambda _host, _s, _at: 0.0
        self.delivered: Callable[[Flow, tuple[Any, ...], float], None] = lambda _f, _c, _at: None
        self.ready: Callable[[Flow, tuple[Any, ...]], bool] = lambda _f, _c: True
        self.held: dict[Any, list[tuple[Flow, tuple[Any, ...]]]] = defaultdict(list)

    def at(self, when: float, event: Event, *values: Any) -> None:
        """Queue an event."""
        self.count += 1
        heapq.heappush(self.heap, (when, self.count, event, values))

    def run(self, until: float) -> None:
        """Events up to an instant."""
        heap = self.heap
        while heap and heap[0][0] <= until:
            self.now, _, event, values = heapq.heappop(heap)
            event(*values)

    def stat(self, flow: Flow, when: float) -> dict[str, Any]:
        """What is counted of a flow in the window of an instant."""
        window = int(when // self.width)
        found = flow.stats.get(window)
        if found is None:
            found = flow.stats[window] = {"owd": [], "bits": 0.0, "busy": 0.0, "retransmits": 0,
                                          "errors": 0, "credit": 0.0, "net": 0.0}  # fmt: skip
        return found

    def push(self, flow: Flow, chunk: tuple[Any, ...]) -> None:
        """A chunk that is ready to be sent."""
        flow.queue.append(chunk)
        self.pump(flow)

    def pump(self, flow: Flow) -> None:
        """Sends what the receiver has given credit for."""
        now = self.now
        if flow.working_since < 0 and flow.queue:
            flow.working_since = now
        while flow.queue and flow.inflight < flow.window:
            chunk = flow.queue.popleft()
            flow.inflight += 1
            start = max(now + self.host_delay(flow.src, now), flow.next_at)
            flow.next_at = start + flow.pace
            self.at(start, self.hop, flow, chunk, 0, start, start)
        flow.waits_since = now if flow.queue else -1.0

    def serve(self, server: Server, bits: float) -> float:
        """When the server begins with something that comes now."""
        now = self.now
        if server.background > 0:
            self._others(server, now)
        start = max(now, server.free)
        if server.closed is not None:
            start = server.closed(start)
        took = bits / server.bps * 1e9
        server.free = start + took
        window = int(now // self.width)
        server.busy[window] += took
        server.arrived[window] += bits > 0
        return start

    def _others(self, server: Server, now: float) -> None:
        """Work that others brought since it was last looked at, in bursts with a heavy tail."""
        share, burst = min(server.background, 0.97), server.burst
        if now - server.seen > 20 * burst:  # long ago: a queue as it stands at any time
            if self.rng.random() < share:
                wait = self.rng.expovariate((1 - share) / burst)
                server.free = max(server.free, now + min(wait, server.xoff))
        else:
            gone = now - server.seen
            brought = 0.0
            while gone > 0:
                gone -= self.rng.expovariate(share / burst)
                if gone > 0:
                    brought += min(burst * 0.4 * self.rng.paretovariate(1.7), 6 * burst)
            server.free = max(server.free, min(max(server.free, server.seen) + brought,
                                               now + server.xoff))  # fmt: skip
        server.seen = now

    def hop(self, flow: Flow, chunk: tuple[Any, ...], index: int, sent: float, left: float) -> None:
        """A chunk comes to a server of its path."""
        now = self.now
        server = flow.path[index]
        backlog = server.free - now
        if server.loss and self.rng.random() < server.loss:
            self._lost(flow, chunk)
            return
        if index > 1 and backlog > server.xoff:
            if not self.lossless:
                self._lost(flow, chunk)
                return
            before = flow.path[index - 1]
            until = server.free - server.xoff
            if until > before.free:
                since = max(before.taken_until, now)
                before.paused[int(now // self.width)] += max(0.0, until - since)
                before.taken_until = max(before.taken_until, until)
                before.free = until
        start = self.serve(server, self.bits)
        if index == 1:
            left = start  # sampled as it leaves the NIC
        arrive = start + server.latency + self.class_delay(flow.src.split("/")[0], server.name, now)
        if index + 1 < len(flow.path):
            self.at(arrive, self.hop, flow, chunk, index + 1, sent, left)
        else:
            arrive += self.bits / server.bps * 1e9 + flow.extra
            self.at(arrive, self._came, flow, chunk, sent, left)

    def _lost(self, flow: Flow, chunk: tuple[Any, ...]) -> None:
        stat = self.stat(flow, self.now)
        stat["retransmits"] += 1
        again = self.now + self.rng.uniform(8_000, 30_000)
        self.at(again, self.hop, flow, chunk, 0, again, again)

    def _came(self, flow: Flow, chunk: tuple[Any, ...], sent: float, left: float) -> None:
        now = self.now
        stat = self.stat(flow, now)
        stat["owd"].append(now - left - self.bits / flow.path[-1].bps * 1e9)
        stat["bits"] += self.bits
        stat["net"] += now - sent
        self.take(flow, chunk)

    def take(self, flow: Flow, chunk: tuple[Any, ...]) -> None:
        """The receiver consumes a chunk, if it is there to do so."""
        if not self.ready(flow, chunk):
            self.held[chunk[0], flow.dst_node].append((flow, chunk))
            return
        begin = max(self.now + self.host_delay(flow.dst, self.now), flow.consuming)
        flow.consuming = begin + self.consume_ns(flow, self.now)
        self.at(flow.consuming, self._consumed, flow, chunk, self.now)

    def _consumed(self, flow: Flow, chunk: tuple[Any, ...], came: float) -> None:
        now = self.now
        flow.inflight -= 1
        if flow.waits_since >= 0 and flow.queue:
            self.stat(flow, now)["credit"] += max(0.0, now - max(flow.waits_since, came))
        if flow.working_since >= 0:  # time with data to send, not waited for the receiver
            self.stat(flow, now)["busy"] += max(0.0, now - flow.working_since)
            flow.working_since = now if flow.queue or flow.inflight else -1.0
        self.pump(flow)
        self.delivered(flow, chunk, now)

    def probe(self, path: list[Server], index: int, sent: float, reported: list[float],
              host: str) -> None:  # fmt: skip
        """A packet of no size that waits where others wait; `host` sends it in the job's class, if
        it is named."""
        server = path[index]
        if server.loss and self.rng.random() < server.loss:
            reported.append(-1.0)
            return
        wait = max(0.0, self.serve(server, 0.0) - self.now)
        arrive = self.now + wait + server.latency
        if host:
            arrive += self.class_delay(host, server.name, self.now)
        if index + 1 < len(path):
            self.at(arrive, self.probe, path, index + 1, sent, reported, host)
        else:
            reported.append(arrive - sent)
