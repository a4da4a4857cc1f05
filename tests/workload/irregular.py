"""Jobs whose steps are not all alike: nothing of it is a fault.

Each job is simulated operation by operation: a rank computes, enqueues, and an operation ends once
all its ranks have come and the slowest of its flows has sent its part. A fault changes one part of
that from half of the recording on. Shares nothing with the generators of `bench.diagnosis` but the
schema, nor with the rules.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any, NamedTuple

from syntony.workload import FaultClass

MS, S = 1_000_000, 1_000_000_000
F = FaultClass
KINDS = (
    "elastic", "accumulation", "evaluation", "pipeline", "checkpoint", "experts", "late-start",
    "unknown-clock", "counters",
)  # fmt: skip
FAULTS = (
    F.STRAGGLER, F.GPU_THROTTLE, F.HANG, F.SLOW_FLOW, F.CONTENTION, F.INCAST, F.BAD_LINK,
    F.FLAPPING, F.DATA_STALL, F.HOST_JITTER,
)  # fmt: skip
PACE = {"accumulation": 2.0, "pipeline": 0.5}
MIN_ALIKE = 3
"""Ranks that do the same, of which one can be told to be late."""
SIBLINGS = 5
"""Flows of one length, of which one can be told to be slow."""
Pair = tuple[int, int, int]
"""Sending and receiving rank, channel."""


class NoPlace(Exception):  # noqa: N818 - not an error: this job cannot have the fault
    """No part of the job can have this fault."""


class Flow(NamedTuple):
    """One queue pair between two ranks."""

    name: str
    src: int
    dst: int
    hops: tuple[str, ...]


class Fault(NamedTuple):
    """What is broken from half of the job on."""

    name: str
    subject: str
    """What a verdict has to name."""
    rank: int = -1
    slow: frozenset[Pair] = frozenset()
    """Flows that send slower."""


class Job:
    """One job: `rows` are its tables."""

    def __init__(self, kind: str, seed: int, fault: Fault | None = None) -> None:
        self.kind, self.fault = kind, fault
        self.rng = rng = random.Random(f"irregular {kind} {seed}")
        self.hosts = rng.choice((4, 6, 8))
        self.gpus = rng.choice((1, 2)) if self.hosts < 8 else 1
        self.ranks = self.hosts * self.gpus
        self.channels = rng.choice((1, 2, 3))
        self.compute_ns = rng.uniform(120, 300) * MS
        self.send_ns = rng.uniform(0.08, 0.3) * self.compute_ns
        self.scatter = rng.uniform(0.005, 0.04)
        self.steps = round(rng.randrange(120, 220) * PACE.get(kind, 1.0))
        self.onset_step = round(self.steps * rng.uniform(0.4, 0.5))
        self.begin = 1_790_000_000 * S + rng.randrange(10**15)
        self.free = [self.begin + rng.uniform(0, 50) * MS for _ in range(self.ranks)]
        self.pace = [rng.gauss(1, self.scatter / 3) for _ in range(self.ranks)]
        self.rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.seq: defaultdict[str, int] = defaultdict(int)
        self.flows: dict[Pair, Flow] = {}
        self.sent: defaultdict[tuple[Pair, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.line_bps = rng.choice((25e9, 100e9, 200e9))
        self.window_ns = rng.choice((500 * MS, S))
        self.step = 0
        self.onset_ns: float = 0.0
        self._stuck = False
        self.alike = self.ranks
        self.fault_rank = fault.rank if fault else -1
        self.work: dict[int, float] = {}

    # Places

    def host(self, rank: int) -> str:
        return f"n{rank // self.gpus}"

    def nic(self, rank: int) -> str:
        return f"{self.host(rank)}/eth{rank % self.gpus}"

    def flow(self, pair: Pair) -> Flow:
        """The flow of a channel of two ranks on different hosts."""
        if pair not in self.flows:
            src, dst, _ = pair
            near, far = (f"leaf{rank // self.gpus // 2}.{rank % self.gpus}" for rank in (src, dst))
            spine = random.Random(f"{pair} {self.begin}").randrange(2)
            switches = [near] if near == far else [near, f"spine{spine}", far]
            nodes = [self.nic(src), *switches, self.nic(dst)]
            hops = tuple(f"{a}->{b}" for a, b in itertools.pairwise(nodes))
            self.flows[pair] = Flow(f"qp{len(self.flows)}", src, dst, hops)
        return self.flows[pair]

    def ring(self, ranks: list[int]) -> list[Pair]:
        """Channels of neighbours on different hosts."""
        return self._channels(list(zip(ranks, [*ranks[1:], ranks[0]], strict=True)))

    def mesh(self, ranks: list[int]) -> list[Pair]:
        return self._channels([(a, b) for a in ranks for b in ranks])

    def _channels(self, pairs: list[tuple[int, int]]) -> list[Pair]:
        return [(a, b, channel) for a, b in pairs if self.host(a) != self.host(b)
                for channel in range(self.channels)]  # fmt: skip

    # Time

    @property
    def now(self) -> float:
        return max(self.free)

    def has(self, *faults: str) -> bool:
        """Whether one of these faults is there now."""
        return self.fault is not None and self.fault.name in faults and (
            self.step >= self.onset_step)  # fmt: skip

    def is_stuck(self) -> bool:
        """Whether an operation will never end."""
        return self._stuck

    def computes(self, rank: int, share: float = 1.0) -> None:
        """The rank is busy for a share of the usual time of a step."""
        took = self.compute_ns * share * self.pace[rank] * self.rng.lognormvariate(0, self.scatter)
        if self.has(F.STRAGGLER, F.GPU_THROTTLE) and rank == self.fault_rank:
            took *= 1.6
        if self.has(F.HOST_JITTER) and self.host(rank) == self.host(self.fault_rank):
            took += self.compute_ns * share * self.rng.choice((0.0, 0.3, 0.8))
        if self.rng.random() < 0.002:  # a tick of something else on the host
            took += self.rng.uniform(1, 20) * MS
        self.free[rank] += took

    def operation(
        self, comm: str, op: str, ranks: list[int], pairs: list[Pair],
        share: float = 1.0, *, loads: dict[Pair, float] | None = None,
    ) -> None:  # fmt: skip
        """All its ranks enqueue it and end it together."""
        seq = self.seq[comm]
        self.seq[comm] += 1
        if self.step >= self.onset_step and not self.onset_ns:
            self.onset_ns = self.now
        missing = self.fault_rank if self.has(F.HANG) else -1
        enqueued = {rank: self.free[rank] for rank in ranks}
        start = max(enqueued.values())
        took = 20_000.0
        for pair in pairs:
            part = share * (loads or {}).get(pair, 1.0)
            own = self.send_ns * part * self.rng.lognormvariate(0, 0.03)
            if self.fault and pair in self.fault.slow and self.has(self.fault.name):
                own *= 2.5
            took = max(took, own)
            size = part * self.send_ns / S * self.line_bps / 8 / max(1, len(pairs) / len(ranks))
            into = self.sent[pair, int((start - self.begin) // self.window_ns)]
            into[0] += size
            into[1] += own * max(1, len(pairs) / len(ranks))
            self.flow(pair)
        done = start + took
        stuck = missing in ranks
        for rank in ranks:
            if rank == missing:
                continue
            self.rows["collectives"].append({
                "comm": comm, "seq": seq, "op": op, "rank": rank, "host": self.host(rank),
                "enqueue_ns": enqueued[rank], "done_ns": None if stuck else done,
                "bytes": round(share * 2**26), "nranks": len(ranks), "gpu": f"GPU-{rank}",
            })  # fmt: skip
            if not stuck:
                self.free[rank] = done + self.rng.uniform(5, 60) * 1000
        self._stuck |= stuck

    def ends_step(self, began: dict[int, float], data: float = 0.0, saved: float = 0.0) -> None:
        for rank, begin in began.items():
            if self.free[rank] > begin:
                self.rows["steps"].append({
                    "step": self.step, "rank": rank, "begin_ns": begin, "end_ns": self.free[rank],
                    "host": self.host(rank), "data_ns": data, "checkpoint_ns": saved,
                    "work": self.work.get(rank),
                })  # fmt: skip
        self.step += 1

    def loads_data(self, ranks: list[int]) -> float:
        waited = self.compute_ns * self.rng.uniform(0.002, 0.02)
        if self.has(F.DATA_STALL):
            waited = self.compute_ns * self.rng.uniform(0.6, 1.2)
        for rank in ranks:
            self.free[rank] += waited
        return waited

    # Jobs

    def runs(self) -> None:
        """Simulate it to its end."""
        run = getattr(self, "_" + self.kind.replace("-", "_"), self._plain)
        run(list(range(self.ranks)))

    def _step(self, ranks: list[int], comm: str = "world", share: float = 1.0) -> None:
        """Forward and backward with two buckets of gradients."""
        began = {rank: self.free[rank] for rank in ranks}
        data = self.loads_data(ranks)
        for rank in ranks:
            self.computes(rank, 0.6 * share)
        self.operation(comm, "all_reduce", ranks, self.ring(ranks), 0.5)
        if self.is_stuck():
            return
        for rank in ranks:
            self.computes(rank, 0.4 * share)
        self.operation(comm, "all_reduce", ranks, self.ring(ranks), 0.5)
        self.ends_step(began, data)

    def _plain(self, ranks: list[int]) -> None:
        while self.step < self.steps and not self.is_stuck():
            self._step(ranks)

    def _elastic(self, ranks: list[int]) -> None:
        """A host leaves, in the middle of an operation that nobody ends; another comes, or not."""
        away = self.rng.randrange(self.hosts)
        first = self.rng.randrange(20, 40)
        back = first + self.rng.choice((25, 1000))
        left = [rank for rank in ranks if self.host(rank) != f"n{away}"]
        while self.step < self.steps and not self.is_stuck():
            inside = left if first <= self.step < back else ranks
            if self.step in {first, back}:
                if self.step == first:
                    self._is_aborted(ranks, left)
                again = self.now + self.rng.uniform(3, 12) * S
                for rank in ranks:
                    self.free[rank] = again + self.rng.uniform(0, 200) * MS
            generation = (self.step >= first) + (self.step >= back)
            self._step(inside, f"world.{generation}")

    def _is_aborted(self, ranks: list[int], left: list[int]) -> None:
        seq = self.seq["world.0"]
        for rank in self.rng.sample(left, self.rng.randrange(1, len(left) + 1)):
            self.computes(rank)
            self.rows["collectives"].append({
                "comm": "world.0", "seq": seq, "op": "all_reduce", "rank": rank,
                "host": self.host(rank), "enqueue_ns": self.free[rank], "done_ns": None,
                "bytes": 2**25, "nranks": len(ranks), "gpu": f"GPU-{rank}",
            })  # fmt: skip

    def _accumulation(self, ranks: list[int]) -> None:
        """Several short steps without an operation, then one that sends all."""
        micro = self.rng.choice((3, 4, 8))
        while self.step < self.steps and not self.is_stuck():
            if self.step % micro < micro - 1:
                began = {rank: self.free[rank] for rank in ranks}
                data = self.loads_data(ranks)
                for rank in ranks:
                    self.computes(rank, 0.5)
                self.ends_step(began, data)
            else:
                self._sharded(ranks)

    def _sharded(self, ranks: list[int]) -> None:
        began = {rank: self.free[rank] for rank in ranks}
        data = self.loads_data(ranks)
        for rank in ranks:
            self.computes(rank, 0.5)
        self.operation("world", "reduce_scatter", ranks, self.ring(ranks), 1.0)
        if not self.is_stuck():
            self.operation("world", "all_gather", ranks, self.ring(ranks), 1.0)
            self.ends_step(began, data)

    def _evaluation(self, ranks: list[int]) -> None:
        """Every so many steps batches without a backward pass, of which some ranks have fewer;
        then the first rank writes a report for which all wait."""
        every, batches = self.rng.randrange(12, 40), self.rng.randrange(4, 12)
        few = self.rng.sample(ranks, len(ranks) // 2)
        while self.step < self.steps and not self.is_stuck():
            self._step(ranks)
            if self.step % every == 0 and not self.is_stuck():
                for rank in ranks:
                    for _ in range(batches - (rank in few)):
                        self.computes(rank, 0.3)
                self.operation("world", "all_gather", ranks, self.ring(ranks), 0.02)
                if not self.is_stuck():
                    self.computes(0, self.rng.uniform(0.5, 3))
                    self.operation("world", "barrier", ranks, [], 0.0)

    def _pipeline(self, ranks: list[int]) -> None:
        """Stages send activations and gradients; replicas of a stage reduce theirs."""
        stages = self.rng.choice((2, self.hosts // 2)) if self.hosts > 4 else 2
        each = len(ranks) // stages
        self.alike = each
        stage = [ranks[number * each : (number + 1) * each] for number in range(stages)]
        cost = [1.0] * (stages - 1) + [self.rng.uniform(1.05, 1.5)]  # the head is the last
        micro = self.rng.choice((2, 4))
        while self.step < self.steps and not self.is_stuck():
            began = {rank: self.free[rank] for ranks in stage for rank in ranks}
            data = self.loads_data(stage[0])
            for _ in range(micro):
                self._passes(stage, cost, 0.3 / micro, forward=True)
            for _ in range(micro):
                self._passes(stage, cost, 0.6 / micro, forward=False)
            if self.is_stuck():
                return
            for number, members in enumerate(stage):
                if len(members) > 1 and not self.is_stuck():
                    self.operation(f"dp{number}", "all_reduce", members, self.ring(members))
            if not self.is_stuck():
                self.ends_step(began, data)

    def _passes(
        self, stage: list[list[int]], cost: list[float], share: float, forward: bool
    ) -> None:
        order = list(range(len(stage)))
        if not forward:
            order.reverse()
        for place, number in enumerate(order):
            for column, rank in enumerate(stage[number]):
                self.computes(rank, share * cost[number])
                if place + 1 < len(order) and not self.is_stuck():
                    peer = stage[order[place + 1]][column]
                    name = f"pp{min(number, order[place + 1])}.{column}"
                    op = "send_recv" if forward else "send_recv_back"
                    self.operation(name, op, [rank, peer], self._channels([(rank, peer)]), 0.1)

    def _checkpoint(self, ranks: list[int]) -> None:
        """All wait every so many steps, or once, until the first rank or all have written."""
        every = self.rng.choice((self.steps // 2 + 7, self.rng.randrange(15, 60)))
        alone, reports = self.rng.random() < 0.5, self.rng.random() < 0.5
        took = self.rng.uniform(1, 5) * self.compute_ns
        while self.step < self.steps and not self.is_stuck():
            if self.step % every != every - 1:
                self._step(ranks)
                continue
            began = {rank: self.free[rank] for rank in ranks}
            for rank in ranks:
                self.computes(rank)
                if rank == 0 or not alone:
                    self.free[rank] += took * self.rng.uniform(0.9, 1.1)
            self.operation("world", "barrier", ranks, [], 0.0)
            if not self.is_stuck():
                self.ends_step(began, saved=took if reports else 0.0)

    def _experts(self, ranks: list[int]) -> None:
        """All-to-all of tokens, of which some experts have more, others from step to step."""
        skew = self.rng.uniform(0.2, 0.6)
        while self.step < self.steps and not self.is_stuck():
            hot = {rank: self.rng.lognormvariate(0, skew) for rank in ranks}
            began = {rank: self.free[rank] for rank in ranks}
            data = self.loads_data(ranks)
            loads = {pair: hot[pair[1]] for pair in self.mesh(ranks)}
            back = {(b, a, channel): load for (a, b, channel), load in loads.items()}
            for rank in ranks:
                self.computes(rank, 0.3)
            self.operation("ep", "all_to_all", ranks, [*loads], 0.2, loads=loads)
            if self.is_stuck():
                return
            for rank in ranks:
                self.work[rank] = 4096 * hot[rank]
                self.computes(rank, 0.4 * hot[rank] + 0.1)
            self.operation("ep", "all_to_all", ranks, [*back], 0.2, loads=back)
            for rank in ranks:
                self.computes(rank, 0.2)
            self.operation("world", "all_reduce", ranks, self.ring(ranks), 0.3)
            if not self.is_stuck():
                self.ends_step(began, data)

    def _late_start(self, ranks: list[int]) -> None:
        """The ranks of one host begin a minute after the others."""
        late = f"n{self.rng.randrange(self.hosts)}"
        for rank in ranks:
            if self.host(rank) == late:
                self.free[rank] += self.rng.uniform(55, 65) * S
        self.operation("world", "barrier", ranks, [], 0.0)
        self._plain(ranks)


def placed(healthy: Job, name: str, rng: random.Random) -> Fault:
    """A fault of a part that the job uses at the end of its recording."""
    last = max(window for _, window in healthy.sent)
    used = sorted({pair for pair, window in healthy.sent if window > 0.9 * last})
    pair = rng.choice(used)
    rank, flow = pair[0], healthy.flow(pair)
    alike = [each for each in used if len(healthy.flow(each).hops) == len(flow.hops)]
    if (name in {F.STRAGGLER, F.GPU_THROTTLE} and healthy.alike < MIN_ALIKE) or (
        name == F.SLOW_FLOW and len(alike) < SIBLINGS
    ):
        raise NoPlace
    if name in {F.BAD_LINK, F.CONTENTION, F.INCAST}:
        return _of_link(healthy, name, used, rng)
    subjects = {
        F.STRAGGLER: f"rank {rank}", F.HANG: f"rank {rank}", F.GPU_THROTTLE: f"GPU-{rank}",
        F.HOST_JITTER: healthy.host(rank), F.FLAPPING: healthy.nic(rank), F.SLOW_FLOW: flow.name,
        F.DATA_STALL: "night",
    }  # fmt: skip
    slow = frozenset({pair} if name == F.SLOW_FLOW else ())
    return Fault(name, subjects[F(name)], rank, slow)


def _of_link(healthy: Job, name: str, used: list[Pair], rng: random.Random) -> Fault:
    """One of a link that several flows cross: for incast, before a NIC, from three hosts or more;
    for contention, inside the fabric."""
    by_link: defaultdict[str, set[Pair]] = defaultdict(set)
    for pair in used:
        for hop in healthy.flow(pair).hops:
            by_link[hop].add(pair)
    found = sorted(link for link, pairs in by_link.items() if len(pairs) >= 2)
    if name == F.CONTENTION:
        found = [link for link in found if "/" not in link]
    if name == F.INCAST:
        found = [link for link in found if "/" in link.split("->")[1]
                 and len({pair[0] // healthy.gpus for pair in by_link[link]}) >= 3]  # fmt: skip
    if not found:
        raise NoPlace
    link = rng.choice(found)
    subject = link.split("->")[1] if name == F.INCAST else link
    return Fault(name, subject, slow=frozenset(by_link[link]))
