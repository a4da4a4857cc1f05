"""Jobs of a mixed fleet: hosts of two generations, uneven experts, bursts, checkpoints, shared file
servers, warm-up, several jobs on one link, tables that are missing.

Queues are those that ECN keeps: a switch marks from some tens of kB, so a full link delays by that
many bytes at its own rate, whoever fills it. Shares nothing with the other generators but the
schema. A recording with a fault names what broke; one without has nothing that broke.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from syntony.workload import FaultClass as F

US, MS, S = 1_000, 1_000_000, 1_000_000_000
KINDS = ("moe", "pipeline", "sharded", "serving", "replicas")
FAULTS = (
    F.SLOW_FLOW, F.CONTENTION, F.INCAST, F.BAD_LINK, F.STRAGGLER, F.GPU_THROTTLE, F.HOST_JITTER,
    F.PCIE, F.SLOW_RECEIVER, F.CLOCK_FAULT, F.DATA_STALL, F.HANG,
)  # fmt: skip
Flow = tuple[int, int, int]
"""Sending and receiving rank, channel."""


class Broken(NamedTuple):
    """A fault: class, what is to be named, and where it acts."""

    fault: F
    subject: str
    rank: int = -1
    flow: Flow = (-1, -1, -1)
    size: float = 0.0


class MixedJob:
    """One job. `rows` has its operations and steps, `sent` what its flows sent."""

    def __init__(self, seed: int, faults: Sequence[F] = (), kind: str = "") -> None:
        self.rng = rng = random.Random(f"mixed {seed} {' '.join(faults)} {kind}")
        self.kind = kind or rng.choice(KINDS)
        self.gpus = rng.choice((1, 1, 2, 4))
        most = 12 if self.kind == "moe" else 32
        self.ranks = self.gpus * rng.choice([n for n in (2, 3, 4, 6, 8) if n * self.gpus <= most])
        self.channels = rng.choice((1, 1, 2, 4)) if self.ranks <= 12 else 1
        self.old = {host for host in range(self.hosts) if rng.random() < 0.4}
        self.old = self.old if rng.random() < 0.3 else set()
        """Hosts of an older generation, whose last rail has a slower NIC."""
        self.gbps = rng.choice((100, 200, 400))
        self.per_leaf, self.spines = rng.choice((2, 4)), rng.choice((1, 2, 3))
        self.marks = rng.uniform(30, 150) * 1e3
        """Bytes at which switches mark."""
        self.hop_ns = rng.uniform(400, 1200)
        self.compute_ns = rng.uniform(200, 900) * MS
        self.share = rng.uniform(0.1, 0.5)
        """Of a step, for communication."""
        self.scatter = rng.uniform(0.003, 0.03)
        self.speed = [rng.lognormvariate(0, 0.006) for _ in range(self.ranks)]
        self.warm = rng.choice((0.0, 0.0, 0.08))
        """GPUs get so much slower while they warm up."""
        self.every = rng.choice((0, 0, 15, 40))
        """Steps between checkpoints."""
        self.begin = 1_800_000_000 * S + rng.randrange(10**15)
        self.width = rng.choice((500 * MS, S))
        self.windows = rng.randrange(36, 60)
        self.until = self.begin + self.windows * self.width
        self.onset = self.begin + round(rng.uniform(0.35, 0.6) * self.windows) * self.width
        self.mix = [rng.uniform(0.5, 1.5) for _ in range(self.ranks)]
        """Share of the tokens that each rank's experts get."""
        self.salt = rng.randrange(1 << 30)
        self.paths: dict[Flow, tuple[str, ...]] = {}
        self.free = [float(self.begin + rng.uniform(0, 20 * MS)) for _ in range(self.ranks)]
        self.rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.seq: defaultdict[str, int] = defaultdict(int)
        self.sent: defaultdict[tuple[Flow, int], list[tuple[float, float, float]]]
        self.sent = defaultdict(list)
        """(flow, window) → bytes, ns, delay."""
        self.load: defaultdict[tuple[str, int], float] = defaultdict(float)
        self.step, self.stuck = 0, False
        self.faults: list[Broken] = []
        self.faults = [self._broken(each) for each in faults]

    # Places

    @property
    def hosts(self) -> int:
        return self.ranks // self.gpus

    def host(self, rank: int) -> int:
        return rank // self.gpus

    def nic(self, rank: int) -> str:
        return f"n{self.host(rank)}/bond{rank % self.gpus}"

    def bps(self, rank: int) -> float:
        slow = self.host(rank) in self.old and rank % self.gpus == self.gpus - 1
        return self.gbps * 1e9 / (2 if slow else 1)

    def path(self, flow: Flow) -> tuple[str, ...]:
        if flow in self.paths:
            return self.paths[flow]
        src, dst, _ = flow
        near, far = (self.host(rank) // self.per_leaf for rank in (src, dst))
        spine = random.Random(f"{flow} {self.salt}").randrange(self.spines)
        inside = [f"t{near}"] if near == far else [f"t{near}", f"c{spine}", f"t{far}"]
        places = [self.nic(src), *inside, self.nic(dst)]
        self.paths[flow] = tuple(f"{a}>{b}" for a, b in itertools.pairwise(places))
        return self.paths[flow]

    def name(self, flow: Flow) -> str:
        return "qp{}-{}.{}".format(*flow)

    def ring(self, ranks: Sequence[int]) -> list[tuple[int, int]]:
        """Neighbours on each rail."""
        found = []
        for rail in range(self.gpus):
            mine = [rank for rank in ranks if rank % self.gpus == rail]
            found += list(zip(mine, (*mine[1:], mine[0]), strict=True)) if len(mine) > 1 else []
        return found

    # Faults

    def _broken(self, fault: F) -> Broken:
        rng = self.rng
        rank = rng.randrange(self.ranks)
        pairs = self.ring(range(self.ranks)) if self.kind != "pipeline" else self._stages()
        src, dst = rng.choice(pairs)
        flow = src, dst, rng.randrange(self.channels)
        inside = [link for link in self.path(flow) if "/" not in link]
        if fault is F.CONTENTION and not inside:
            fault = F.INCAST
        if fault is F.DATA_STALL and self.kind == "serving":  # has no steps
            fault = F.STRAGGLER
        subject, at, worst = {
            F.SLOW_FLOW: (self.name(flow), -1, 6.0),
            F.CONTENTION: ((inside or [""])[rng.randrange(max(1, len(inside)))], -1, 4.0),
            F.BAD_LINK: (rng.choice(self.path(flow)), -1, 4.0),
            F.INCAST: (self.nic(dst), dst, 4.0),
            F.PCIE: (self.nic(src), src, 5.0),
            F.GPU_THROTTLE: (f"GPU-{rank}", rank, 1.8),
            F.HOST_JITTER: (f"n{self.host(rank)}", rank, 3.0),
            F.CLOCK_FAULT: (f"n{self.host(rank)}", rank, 3.0),
            F.DATA_STALL: ("mixed", -1, 0.9),
        }.get(fault, (f"rank {dst}", dst, 2.0))
        return Broken(fault, subject, at, flow, worst * rng.uniform(0.7, 1))

    def has(self, fault: F, at: float, rank: int = -2) -> Broken | None:
        """A fault that is there, of this rank if one is given."""
        return next((each for each in self.faults if each.fault is fault and at >= self.onset
                     and rank in {-2, each.rank}), None)  # fmt: skip

    # Time

    def computes(self, rank: int, share: float) -> None:
        at = self.free[rank]
        took = self.compute_ns * share * self.speed[rank] * self.rng.lognormvariate(0, self.scatter)
        took *= 1 + self.warm * min(1.0, (at - self.begin) / (0.5 * (self.until - self.begin)))
        for fault in (F.STRAGGLER, F.GPU_THROTTLE):
            if each := self.has(fault, at, rank):
                took *= each.size
        each = self.has(F.HOST_JITTER, at)
        if each and self.host(each.rank) == self.host(rank):
            took += self.compute_ns * share * self.rng.choice((0, 0.2, 0.6)) * each.size
        self.free[rank] += took

    def sends(
        self, comm: str, op: str, ranks: Sequence[int], parts: Mapping[tuple[int, int], float]
    ) -> None:
        """All come, then all parts (bytes between two ranks) are sent at once."""
        start = max(self.free[rank] for rank in ranks)
        gone = [each.rank for each in self.faults if each.fault is F.HANG and start >= self.onset
                and each.rank in ranks]  # fmt: skip
        done = None if gone else start + self._sent(start, parts)
        size = max(parts.values(), default=0.0)
        for rank in ranks:
            if rank in gone:
                continue
            self.rows["collectives"].append({
                "comm": comm, "seq": self.seq[comm], "op": op, "rank": rank, "bytes": size,
                "host": f"n{self.host(rank)}", "enqueue_ns": self.free[rank], "done_ns": done,
                "nranks": len(ranks), "gpu": f"GPU-{rank}", **self._waits(rank, start),
            })  # fmt: skip
            self.free[rank] = (
                self.until + S if done is None else done + self.rng.uniform(2, 20) * US
            )
        self.seq[comm] += 1
        self.stuck |= bool(gone)

    def _waits(self, rank: int, at: float) -> dict[str, float]:
        usual = 0.01 * self.compute_ns
        held, slot = self.has(F.SLOW_RECEIVER, at, rank), self.has(F.PCIE, at, rank)
        return {
            "consume_wait_ns": usual * self.rng.lognormvariate(0, 0.2) * (6 if held else 1),
            "flush_wait_ns": usual * self.rng.lognormvariate(0, 0.2) * (6 if slot else 1),
        }

    def _sent(self, start: float, parts: Mapping[tuple[int, int], float]) -> float:
        flows = {
            (*pair, channel): size / self.channels
            for pair, size in parts.items()
            for channel in range(self.channels)
            if self.host(pair[0]) != self.host(pair[1])
        }
        paths = {flow: self.path(flow) for flow in flows}
        through: defaultdict[str, float] = defaultdict(float)
        inputs: defaultdict[str, set[str]] = defaultdict(set)
        for flow, size in flows.items():
            for place, link in enumerate(paths[flow]):
                through[link] += size
                inputs[link].add(paths[flow][place - 1] if place else "")
        longest = 20.0 * US
        for flow, size in flows.items():
            took, delay = 1.0, 0.0
            for link in paths[flow]:
                bps = self.link_bps(link)
                each = self.foreign(link, start)
                left = 1 / each.size if each else 1.0
                took = max(took, through[link] * 8e9 / bps / left)
                delay += self.hop_ns
                if len(inputs[link]) > 1 or each:
                    full = 1.0 if each else 0.3
                    delay += self.marks * 8e9 / bps * full * self.rng.uniform(0.6, 1.4)
                delay += self.rng.expovariate(1 / (0.1 * self.hop_ns))
            took, delay = self._own(flow, start, took, delay)
            took *= self.rng.lognormvariate(0, 0.02)
            longest = max(longest, took)
            self._note(flow, start, size, took, delay)
        return longest

    def link_bps(self, link: str) -> float:
        for end in link.split(">"):
            if "/" in end:
                host, rail = end[1:].split("/bond")
                return self.bps(int(host) * self.gpus + int(rail))
        return self.gbps * 1e9 * 2

    def foreign(self, link: str, at: float) -> Broken | None:
        """What fills a link from outside."""
        each = self.has(F.CONTENTION, at)
        if each and each.subject == link:
            return each
        each = self.has(F.INCAST, at)
        return each if each and link.endswith(f">{each.subject}") else None

    def _own(self, flow: Flow, at: float, took: float, delay: float) -> tuple[float, float]:
        if (each := self.has(F.SLOW_FLOW, at)) and each.flow == flow:
            took, delay = took * each.size, delay + 20 * self.hop_ns * each.size
        if (each := self.has(F.BAD_LINK, at)) and each.subject in self.path(flow):
            took *= each.size / 2
        if (each := self.has(F.PCIE, at)) and each.rank in flow[:2]:
            took *= each.size
        if each := self.has(F.SLOW_RECEIVER, at, flow[1]):
            took *= each.size
        return took, delay

    def _note(self, flow: Flow, start: float, size: float, took: float, delay: float) -> None:
        at = start
        while at < min(start + took, self.until):
            window = int((at - self.begin) // self.width)
            end = min(self.begin + (window + 1) * self.width, start + took)
            part = (end - at) / took
            self.sent[flow, window].append((size * part, end - at, delay))
            for link in self.path(flow):
                self.load[link, window] += size * part
            at = end

    # Programs

    def runs(self) -> None:
        step = {"moe": self._experts, "pipeline": self._pipeline, "sharded": self._sharded,
                "serving": self._serves}.get(self.kind, self._replicas)  # fmt: skip
        while max(self.free) < self.until and not self.stuck:
            began, waited = list(self.free), self._loads()
            step()
            saved = self._saves() if self.every and self.step % self.every == self.every - 1 else 0
            if self.kind != "serving":
                self._ends(began, waited, saved)
            self.step += 1

    def _ends(self, began: Sequence[float], waited: float, saved: float) -> None:
        for rank in range(self.ranks) if not self.stuck else ():
            self.rows["steps"].append({
                "step": self.step, "rank": rank, "begin_ns": began[rank],
                "end_ns": self.free[rank], "host": f"n{self.host(rank)}", "data_ns": waited,
                "checkpoint_ns": saved,
                "work": self.mix[rank] * 1000 if self.kind == "moe" else 1000.0,
            })  # fmt: skip

    def _loads(self) -> float:
        """A file server that all wait for now and then."""
        waited = 0.005 * self.compute_ns
        if self.rng.random() < 0.02:
            waited = self.compute_ns * self.rng.uniform(0.3, 1)
        if each := self.has(F.DATA_STALL, max(self.free)):
            waited = self.compute_ns * each.size
        self.free = [at + waited for at in self.free]
        return waited

    def _saves(self) -> float:
        took = self.compute_ns * self.rng.uniform(0.4, 0.6) if self.every > 20 else 0.0
        self.free = [at + took for at in self.free]
        return took

    def _bytes(self, share: float = 1.0) -> float:
        return share * self.share * self.compute_ns * self.gbps / 8

    def _replicas(self) -> None:
        """Buckets of gradients, reduced while the backward pass goes on."""
        every = list(range(self.ranks))
        for bucket in range(3):
            for rank in every:
                self.computes(rank, 0.6 if not bucket else 0.2)
            self.sends(
                "dp",
                "all_reduce",
                every,
                dict.fromkeys(self.ring(every), self._bytes((0.5, 0.3, 0.2)[bucket])),
            )

    def _sharded(self) -> None:
        """Each layer's parameters are gathered before the layer before has ended."""
        every = list(range(self.ranks))
        for layer in range(4):
            self.sends(
                "fsdp", "all_gather", every, dict.fromkeys(self.ring(every), self._bytes(0.15))
            )
            for rank in every:
                self.computes(rank, 0.1 if layer % 2 else 0.25)
        self.sends("fsdp", "reduce_scatter", every,
                   dict.fromkeys(self.ring(every), self._bytes(0.4)))  # fmt: skip

    def _experts(self) -> None:
        every = list(range(self.ranks))
        if self.step % 12 == 0:  # tokens drift to other experts
            self.mix = [min(2.0, max(0.4, each * self.rng.lognormvariate(0, 0.15)))
                        for each in self.mix]  # fmt: skip
        for way in range(2):
            for rank in every:
                self.computes(rank, 0.3 + 0.2 * (self.mix[rank] if way else 1.0))
            total = self._bytes(0.5) / sum(self.mix)
            parts = {
                (a, b): total * self.mix[a if way else b]
                for a in every
                for b in every
                if a != b and a % self.gpus == b % self.gpus
            }
            self.sends("ep", "all_to_all", every, parts)

    def _stages(self) -> list[tuple[int, int]]:
        return [(rank, rank + self.gpus) for rank in range(self.ranks - self.gpus)] + [
            (rank + self.gpus, rank) for rank in range(self.ranks - self.gpus)]  # fmt: skip

    def _pipeline(self) -> None:
        """One forward, one backward, between hosts; the first and last stages have more to do."""
        stages, micro = self.hosts, 3
        for forward, _ in itertools.product((True, False), range(micro)):
            for stage in range(stages) if forward else range(stages - 1, -1, -1):
                mine = range(stage * self.gpus, (stage + 1) * self.gpus)
                for rank in mine:
                    self.computes(rank, (1.3 if stage in {0, stages - 1} else 1.0) / micro / 2)
                after = stage + (1 if forward else -1)
                for rank in mine if 0 <= after < stages else ():
                    peer = rank + (self.gpus if forward else -self.gpus)
                    self.sends(f"pp.p2p {rank}>{peer}", "send", [rank, peer],
                               {(rank, peer): self._bytes(0.1)})  # fmt: skip
        self.sends("world", "all_reduce", range(self.ranks), {})  # the norm of the gradients

    def _serves(self) -> None:
        """Bursts of requests; the first rank of all also talks to clients."""
        every = list(range(self.ranks))
        if self.rng.random() < 0.1:
            pause = self.compute_ns * self.rng.uniform(2, 12)
            self.free = [at + pause for at in self.free]
        batch = self.rng.choice((0.2, 0.5, 1.0))
        for layer in range(3):
            for rank in every:
                self.computes(rank, batch / 3)
            if not layer:
                self.free[0] += 0.01 * self.compute_ns
            self.sends("tp", "all_reduce", every,
                       dict.fromkeys(self.ring(every), self._bytes(batch / 3)))  # fmt: skip
