"""The third generator's jobs: ranks that run a program of compute and collectives over the engine.

Schedules: DDP (buckets), FSDP (all-gather, reduce-scatter), mixture of experts (all-to-all in
groups), pipelines (send and receive between stages, then all-reduce within), tensor and data
parallel. Rings and trees are chunk by chunk: what a node has not received it cannot pass on.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from typing import Any

from bench.diagnosis.queued_engine import Engine, Flow
from bench.diagnosis.queued_fabric import Fabric

Chunk = tuple[Any, ...]


class Comm:
    """A communicator: ranks, the hosts they are on, flows by (from, to, channel)."""

    def __init__(self, name: str, ranks: list[int], nodes: list[int], pattern: str) -> None:
        self.name, self.ranks, self.nodes, self.pattern = name, ranks, nodes, pattern
        self.flows: dict[tuple[int, int, int], Flow] = {}
        self.seq: dict[int, int] = defaultdict(int)
        self.operations: dict[int, Operation] = {}


class Operation:
    """One collective under way."""

    def __init__(self, comm: Comm, seq: int) -> None:
        self.comm, self.seq = comm, seq
        self.chunks: dict[str, int] = {}
        """By rail: what its ranks agreed on when the first came."""
        self.enqueued: dict[int, float] = {}
        self.rows: dict[int, dict[str, Any]] = {}
        self.ready: set[int] = set()
        self.left: dict[int, int] = {}
        self.children: dict[int, int] = {}
        self.finished: set[int] = set()


class Job:
    """Ranks, communicators and programs, on one engine. Faults set the callables and factors."""

    def __init__(self, rng: random.Random, fabric: Fabric, engine: Engine, *, schedule: str,
                 gpus: int, compute: float, chunks: int) -> None:  # fmt: skip
        self.rng, self.fabric, self.engine, self.schedule = rng, fabric, engine, schedule
        self.gpus, self.compute, self.chunks = gpus, compute, chunks
        self.size = fabric.hosts * gpus
        self.flows: list[Flow] = []
        self.comms: list[Comm] = []
        self.by_rank: dict[int, list[Flow]] = defaultdict(list)
        self.rows: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.noise = rng.choice((0.002, 0.005, 0.01, 0.03))
        self.tail = rng.choice((0.0, 0.003, 0.02))
        self.rounds = 2 if fabric.hosts <= 24 else 1
        self.slow: Callable[[int, float], float] = lambda _rank, _at: 1.0
        self.work: Callable[[int, int], float] = lambda _rank, _step: 1.0
        self.data: Callable[[int, int, float], tuple[float, float]] = lambda _r, _s, _t: (0.0, 0.0)
        self.stops: Callable[[int, Comm, float], str] = lambda _rank, _comm, _at: ""
        self.share: Callable[[str, float], float] = lambda _rail, _at: 1.0
        self.channels = max(1, min(gpus, 400 // max(1, fabric.hosts)))
        self.running: dict[int, Iterator[Any]] = {}
        engine.ready = lambda flow, chunk: flow.dst_node in chunk[0].ready
        engine.delivered = self._delivered
        getattr(self, f"_comms_{schedule}")()
        for comm in self.comms:
            self._connect(comm)

    # Communicators

    def _host(self, rank: int) -> int:
        return rank // self.gpus

    def _comm(self, name: str, ranks: list[int], pattern: str) -> Comm:
        nodes = sorted({self._host(rank) for rank in ranks})
        self.comms.append(Comm(name, ranks, nodes, pattern))
        return self.comms[-1]

    def _comms_ddp(self) -> None:
        pattern = self.rng.choice(("ring", "ring", "tree"))
        self.world = self._comm("world", list(range(self.size)), pattern)

    def _comms_fsdp(self) -> None:
        self.world = self._comm("fsdp", list(range(self.size)), "ring")

    def _comms_moe(self) -> None:
        self.world = self._comm("dp", list(range(self.size)), "ring")
        wide = min(self.fabric.hosts, 6)
        self.group: dict[int, Comm] = {}
        for first in range(0, self.fabric.hosts, wide):
            ranks = [rank for rank in range(self.size) if first <= self._host(rank) < first + wide]
            comm = self._comm(f"ep{first // wide}", ranks, "all")
            self.group |= dict.fromkeys(ranks, comm)

    def _comms_pipeline(self) -> None:
        stages = 2 if self.fabric.hosts < 8 else 4
        wide = max(1, self.fabric.hosts // stages)
        self.stage = {rank: min(self._host(rank) // wide, stages - 1) for rank in range(self.size)}
        self.next: dict[int, Comm] = {}
        self.previous: dict[int, Comm] = {}
        for rank in range(self.size):
            peer = rank + wide * self.gpus
            if self.stage[rank] < stages - 1 and peer < self.size:
                comm = self._comm(f"pp{rank}-{peer}", [rank, peer], "send")
                self.next[rank], self.previous[peer] = comm, comm
        self.group = {}
        for stage in range(stages):
            ranks = [rank for rank in range(self.size) if self.stage[rank] == stage]
            self.group |= dict.fromkeys(ranks, self._comm(f"dp{stage}", ranks, "ring"))

    def _comms_tensor(self) -> None:
        self.group = {}
        self.across: dict[int, Comm] = {}
        for host in range(self.fabric.hosts):
            ranks = list(range(host * self.gpus, (host + 1) * self.gpus))
            self.group |= dict.fromkeys(ranks, self._comm(f"tp{host}", ranks, "ring"))
        for local in range(self.gpus):
            ranks = list(range(local, self.size, self.gpus))
            self.across |= dict.fromkeys(ranks, self._comm(f"dp{local}", ranks, "ring"))

    def _connect(self, comm: Comm) -> None:
        edges: list[tuple[int, int]] = []
        order = comm.nodes
        if len(order) < 2:
            return
        if comm.pattern == "ring":
            edges = [(one, order[(place + 1) % len(order)]) for place, one in enumerate(order)]
        elif comm.pattern == "all":
            edges = [(one, other) for one in order for other in order if one != other]
        elif comm.pattern == "tree":
            for place in range(1, len(order)):
                parent = order[(place - 1) // 3]
                edges += [(order[place], parent), (parent, order[place])]
        else:
            edges = [(order[0], order[1])]
        for one, other in edges:
            for channel in range(self.channels if comm.pattern in {"ring", "tree"} else 1):
                self._flow(comm, one, other, channel)

    def _flow(self, comm: Comm, one: int, other: int, channel: int) -> None:
        mine = [rank for rank in comm.ranks if self._host(rank) == one]
        theirs = [rank for rank in comm.ranks if self._host(rank) == other]
        lane = channel if comm.pattern in {"ring", "tree"} else len(comm.flows)
        rank, peer = mine[lane % len(mine)], theirs[lane % len(theirs)]
        if len(mine) == 1 and comm.pattern != "all":
            lane = rank % self.gpus
        rail = lane % self.fabric.rails
        flow = self.fabric.flow(one, other, rail, rank, peer)
        comm.flows[one, other, channel] = flow
        self.flows.append(flow)
        self.by_rank[rank].append(flow)

    # Programs

    def start(self) -> None:
        """Every rank begins."""
        for rank in range(self.size):
            self.running[rank] = getattr(self, f"_run_{self.schedule}")(rank)
            self.engine.at(self.rng.uniform(0, 2000), self._advance, rank)

    def _advance(self, rank: int) -> None:
        wanted = next(self.running[rank])
        if wanted is None:
            return  # it waits for the end of an operation
        self.engine.at(self.engine.now + wanted, self._advance, rank)

    def _steps(self, rank: int) -> Iterator[dict[str, Any]]:
        number = 0
        while True:
            row = {"rank": rank, "step": number, "begin": self.engine.now, "data": 0.0,
                   "compute": 0.0, "comm": 0.0, "checkpoint": 0.0,
                   "work": self.work(rank, number)}  # fmt: skip
            yield row
            row["end"] = self.engine.now
            self.steps.append(row)
            number += 1

    def _wait(self, row: dict[str, Any], name: str, took: float) -> float:
        row[name] += took
        return took

    def _think(self, rank: int, row: dict[str, Any], part: float) -> float:
        """One stretch of compute, in ns."""
        took = self.compute * part * row["work"] * self.rng.lognormvariate(0, self.noise)
        if self.rng.random() < self.tail:
            took += self.compute * 0.05 * self.rng.paretovariate(1.5)
        slow = self.slow(rank, self.engine.now)
        row["late"] = took * (slow - 1)
        nic = self.fabric.nic(self._host(rank), rank % self.fabric.rails)
        pause = self.engine.host_delay(nic, self.engine.now)
        return self._wait(row, "compute", took * slow + pause)

    def _load(self, rank: int, row: dict[str, Any]) -> float:
        data, checkpoint = self.data(rank, row["step"], self.engine.now)
        return self._wait(row, "data", data) + self._wait(row, "checkpoint", checkpoint)

    def _do(self, rank: int, row: dict[str, Any], comm: Comm, op: str
            ) -> Generator[None, None, None]:  # fmt: skip
        begin = self.engine.now
        if self._enqueue(rank, row, comm, op):
            yield None
        row["comm"] += self.engine.now - begin

    def _run_ddp(self, rank: int) -> Generator[float | None, None, None]:
        buckets = self.rng_of("buckets", (1, 2))
        for row in self._steps(rank):
            yield self._load(rank, row)
            for _ in range(buckets):
                yield self._think(rank, row, 1 / buckets)
                yield from self._do(rank, row, self.world, "all_reduce")

    def _run_fsdp(self, rank: int) -> Generator[float | None, None, None]:
        for row in self._steps(rank):
            yield self._load(rank, row)
            yield from self._do(rank, row, self.world, "all_gather")
            yield self._think(rank, row, 1)
            yield from self._do(rank, row, self.world, "reduce_scatter")

    def _run_moe(self, rank: int) -> Generator[float | None, None, None]:
        for row in self._steps(rank):
            yield self._load(rank, row)
            for part in (0.4, 0.3):
                yield self._think(rank, row, part)
                yield from self._do(rank, row, self.group[rank], "all_to_all")
            yield self._think(rank, row, 0.3)
            yield from self._do(rank, row, self.world, "all_reduce")

    def _run_pipeline(self, rank: int) -> Generator[float | None, None, None]:
        for row in self._steps(rank):
            yield self._load(rank, row)
            for _ in range(2):
                if rank in self.previous:
                    yield from self._do(rank, row, self.previous[rank], "recv")
                yield self._think(rank, row, 0.5)
                if rank in self.next:
                    yield from self._do(rank, row, self.next[rank], "send")
            yield from self._do(rank, row, self.group[rank], "all_reduce")

    def _run_tensor(self, rank: int) -> Generator[float | None, None, None]:
        for row in self._steps(rank):
            yield self._load(rank, row)
            for _ in range(2):
                yield self._think(rank, row, 0.4)
                yield from self._do(rank, row, self.group[rank], "all_reduce")
            yield self._think(rank, row, 0.2)
            yield from self._do(rank, row, self.across[rank], "all_reduce")

    def rng_of(self, name: str, among: tuple[int, ...]) -> int:
        """One draw for the whole job."""
        if not hasattr(self, "_drawn"):
            self._drawn: dict[str, int] = {}
        return self._drawn.setdefault(name, self.rng.choice(among))

    # Operations

    def _enqueue(self, rank: int, row: dict[str, Any], comm: Comm, op: str) -> bool:
        """The rank comes to an operation; whether it has to wait for its end."""
        now = self.engine.now
        stop = self.stops(rank, comm, now)
        if stop == "dies":
            return True
        seq = comm.seq[rank]
        comm.seq[rank] += 1
        operation = comm.operations.setdefault(seq, Operation(comm, seq))
        operation.enqueued[rank] = now
        mine = self.by_rank[rank]
        late = row.pop("late", 0.0)
        reported = {"comm": comm.name, "seq": seq, "op": stop or op, "rank": rank, "enqueue": now,
                "step": row["step"], "late": late, "done": None,
                "before": [sum(stat[name] for flow in mine for stat in flow.stats.values())
                           for name in ("credit", "net")]}  # fmt: skip
        operation.rows[rank] = reported
        self.rows.append(reported)
        if stop:
            return True  # another operation than its peers': nobody ends
        node = self._host(rank)
        if all(each in operation.enqueued for each in comm.ranks if self._host(each) == node):
            self.engine.at(now, self._node_ready, operation, node)
        return True

    def _node_ready(self, operation: Operation, node: int) -> None:
        comm = operation.comm
        operation.ready.add(node)
        if len(comm.nodes) == 1:
            self.engine.at(self.engine.now + 8_000, self._node_done, operation, node)
            return
        sends = [flow for (one, _, _), flow in comm.flows.items() if one == node]
        takes = [flow for (_, other, _), flow in comm.flows.items() if other == node]
        rounds = self.rounds if comm.pattern == "ring" else 1
        operation.left.setdefault(node, 0)
        operation.left[node] += sum(
            self._chunks(operation, flow) * rounds for flow in (*sends, *takes)
        )
        if comm.pattern == "tree":
            place = comm.nodes.index(node)
            children = [each for each in range(3 * place + 1, 3 * place + 4)
                        if each < len(comm.nodes)]  # fmt: skip
            operation.children[node] = sum(
                self._chunks(operation, comm.flows[comm.nodes[child], node, channel])
                for child in children for channel in range(self.channels))  # fmt: skip
            if not children:
                self._up(operation, node)
        else:
            for flow in sends:
                for number in range(self._chunks(operation, flow)):
                    self.engine.push(flow, (operation, 0, number))
        for flow, chunk in self.engine.held.pop((operation, node), ()):
            self.engine.take(flow, chunk)
        self._done(operation, comm.nodes if len(operation.ready) == len(comm.nodes) else [node])

    def _done(self, operation: Operation, nodes: list[int]) -> None:
        """Ends it at nodes that have all; a ring is a barrier, however few rounds are simulated."""
        comm = operation.comm
        if comm.pattern == "ring" and len(operation.ready) < len(comm.nodes):
            return
        for node in nodes:
            if node in operation.ready and operation.left[node] == 0:
                self._node_done(operation, node)

    def _chunks(self, operation: Operation, flow: Flow) -> int:
        if flow.rail not in operation.chunks:
            share = self.share(flow.rail, self.engine.now)
            operation.chunks[flow.rail] = max(1, round(self.chunks * share))
        return operation.chunks[flow.rail]

    def _up(self, operation: Operation, node: int) -> None:
        """A node of a tree has all of its children's parts."""
        comm = operation.comm
        place = comm.nodes.index(node)
        if place == 0:
            self._down(operation, node)
            return
        parent = comm.nodes[(place - 1) // 3]
        for channel in range(self.channels):
            flow = comm.flows[node, parent, channel]
            for number in range(self._chunks(operation, flow)):
                self.engine.push(flow, (operation, 0, number))

    def _down(self, operation: Operation, node: int, channel: int | None = None,
              number: int | None = None) -> None:  # fmt: skip
        comm = operation.comm
        place = comm.nodes.index(node)
        for child in range(3 * place + 1, min(3 * place + 4, len(comm.nodes))):
            for each in range(self.channels) if channel is None else (channel,):
                flow = comm.flows[node, comm.nodes[child], each]
                for chunk in range(self._chunks(operation, flow)) if number is None else (number,):
                    self.engine.push(flow, (operation, 1, chunk))

    def _delivered(self, flow: Flow, chunk: Chunk, _now: float) -> None:
        operation, number, part = chunk
        comm, node = operation.comm, flow.dst_node
        if comm.pattern == "ring" and number + 1 < self.rounds:
            onward = comm.nodes[(comm.nodes.index(node) + 1) % len(comm.nodes)]
            channel = next(each for each in range(self.channels)
                           if comm.flows.get((flow.src_node, node, each)) is flow)  # fmt: skip
            self.engine.push(comm.flows[node, onward, channel], (operation, number + 1, part))
        elif comm.pattern == "tree":
            if number == 0:
                operation.children[node] -= 1
                if operation.children[node] == 0:
                    self._up(operation, node)
            else:
                channel = next(each for each in range(self.channels)
                               if comm.flows.get((flow.src_node, node, each)) is flow)  # fmt: skip
                self._down(operation, node, channel, part)
        for end in (flow.src_node, node):
            operation.left[end] = operation.left.get(end, 0) - 1
        self._done(operation, [flow.src_node, node])

    def _node_done(self, operation: Operation, node: int) -> None:
        if node in operation.finished:
            return
        operation.finished.add(node)
        now = self.engine.now
        if all(each in operation.finished for each in operation.comm.nodes):
            operation.comm.operations.pop(operation.seq, None)
        for rank in operation.comm.ranks:
            if self._host(rank) == node:
                row = operation.rows[rank]
                row["done"] = now
                stats = [stat for flow in self.by_rank[rank] for stat in flow.stats.values()]
                after = [sum(stat[name] for stat in stats) for name in ("credit", "net")]
                row["credit"], row["net"] = (
                    max(0.0, b - a) for a, b in zip(row.pop("before"), after, strict=True)
                )
                self.engine.at(now + self.rng.uniform(0, 500), self._advance, rank)
