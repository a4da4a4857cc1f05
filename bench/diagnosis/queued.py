"""The third generator: a job over queues, and a recorder that writes what it happens to know.

It was written from the physics (`queued_engine`), after the rules and without them in mind: nothing
here draws a symptom. Recorders differ: which tables and columns they write, windows of 50 ms to
seconds (other for devices than for flows), rows that are missing, how hosts, NICs and links are
called, clocks with bounds. One case in six has a second fault in another part of the job.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from bench.diagnosis.case import Case, Truth, Unfit
from bench.diagnosis.queued_engine import Engine
from bench.diagnosis.queued_fabric import Fabric
from bench.diagnosis.queued_faults import FAULTS, ODDITIES
from bench.diagnosis.queued_job import Job
from bench.diagnosis.queued_record import record

SCHEDULES = ("ddp", "fsdp", "moe", "pipeline", "tensor")
SECOND = ("slow-flow", "contention", "straggler", "bad-link", "pcie", "host-jitter",
          "gpu-throttle", "clock-fault", "flapping")  # fmt: skip
"""Classes that leave the rest of a job as it is, and may so be a second fault."""
MAX_EVENTS = 800_000
"""About a step's packets times their hops, times steps: seconds to simulate."""


class World:
    """One job with its fabric, and what faults leave for the recorder to see."""

    def __init__(self, seed: int, fault: str, attempt: int) -> None:  # noqa: PLR0915 - a draw a line
        self.seed, self.fault = seed, fault
        self.rng = rng = random.Random(f"queued {seed} {fault} {attempt}")
        hosts = max(1, round(2 ** rng.uniform(0.5, 6)))
        gpus = rng.choice((1, 2, 4, 8))
        while hosts * gpus > 512:
            gpus //= 2
        hosts = max(hosts, 2)
        rails = rng.choice([each for each in (1, 2, 4, 8) if each <= gpus])
        lossless = rng.random() < 0.6 or fault == "pfc-storm"
        self.fabric = Fabric(rng, hosts, rails, 60_000.0)
        self.base = self.fabric.latency * (3 if self.fabric.kind == "one" else 5)
        """Delay of a longer path when nothing waits, in ns."""
        self.service = self.base * rng.uniform(0.3, 0.7)
        """ns that a chunk takes on a NIC's link."""
        bits = self.service * self.fabric.bps / 1e9
        chunks = rng.choice((5, 8, 10))
        schedule = rng.choice(SCHEDULES)
        if (schedule == "tensor" and gpus == 1) or (
            schedule == "pipeline" and hosts % (2 if hosts < 8 else 4)):  # fmt: skip
            schedule = "ddp"
        self.engine = Engine(rng, 1.0, bits, lossless)
        rounds = 4 * chunks * (self.service + self.base)
        self.compute = rounds * rng.uniform(0.5, 2.0)
        """ns that a rank computes in a step."""
        self.job = Job(rng, self.fabric, self.engine, schedule=schedule, gpus=gpus,
                       compute=self.compute, chunks=chunks)  # fmt: skip
        steps = 25 if hosts * gpus > 128 else rng.choice((30, 60, 100))
        events = len(self.job.flows) * chunks * self.job.rounds * 7
        steps = max(16, min(steps, MAX_EVENTS // events))
        self.length = steps * (self.compute + rounds * 0.6)
        self.windows = rng.randrange(24, 80)
        self.engine.width = self.length / self.windows
        self.dilation = rng.choice((50e6, 100e6, 200e6, 1e9)) / self.engine.width
        """ns of the recording for one of the simulation: windows are round numbers."""
        self.on = self.length * rng.uniform(0.2, 0.5)
        self.off = self.length * (1.5 if rng.random() < 0.8 else rng.uniform(0.85, 0.95))
        self.name = rng.choice(("train-7", "llm-70b-pretrain", "slurm-88123"))
        self.nics = sorted({nic for flow in self.job.flows for nic in (flow.src, flow.dst)})
        self.engine.consume_ns = lambda _flow, _at: self.service * rng.uniform(0.3, 0.6)
        usual = self.compute * rng.choice((0.0, 0.02, 0.05))
        self.job.data = lambda _rank, _step, _at: (usual * rng.uniform(0.5, 1.5), 0.0)
        self.errors: dict[str, float] = {}
        self.downs: dict[str, list[float]] = {}
        self.storm: dict[str, float] = {}
        self.loads: dict[str, float] = {}
        self.gpu_told: dict[int, str] = {}
        self.starved: dict[str, float] = {}
        self.slot: dict[str, float] = {}
        self.clock: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self.odd_class: str | None = None
        self.kept: set[str] = set()
        """Classes of further faults, whose columns are recorded too."""
        self.consumes_late = -1
        self.expected_loss = ""
        self.starved_all = self.keep_work = self.planned = self.hangs = False

    def active(self, at: float) -> bool:
        """Whether the fault is there."""
        return self.on <= at < self.off

    def gpu(self, rank: int) -> str:
        """UUID of a rank's GPU."""
        return f"GPU-{np.random.default_rng(rank).integers(1 << 32):08x}-{rank}"


def _begin_probes(world: World) -> list[dict[str, Any]]:
    """A few pairs of NICs, each probed in two classes."""
    pairs = sorted({(flow.src, flow.dst): flow for flow in world.job.flows}.items())
    back = {(flow.dst, flow.src): flow for flow in world.job.flows}
    wanted = {}
    for key, flow in pairs[:: max(1, len(pairs) // 120)]:
        wanted[key] = (flow.src_node, flow.dst_node, flow)
        if key not in back:
            wanted[key[1], key[0]] = (flow.dst_node, flow.src_node, flow)
    every = world.engine.width * world.rng.choice((1, 1, 2))
    rows = []
    for (src, dst), (one, other, flow) in wanted.items():
        path = world.fabric.path(one, other, int(flow.rail[4:]), world.rng.randrange(1 << 16))[1:-1]
        own = flow.path[1:-1] if (src, dst) == (flow.src, flow.dst) else path
        at = 0.0
        while at < world.length:
            for default in (True, False):
                row: dict[str, Any] = {"at": at, "src": src, "dst": dst, "default": default,
                                       "told": [], "path": own}  # fmt: skip
                rows.append(row)
                host = "" if default else src.split("/")[0]
                for _ in range(3):
                    when = at + every * world.rng.random()
                    world.engine.at(when, world.engine.probe, own, 0, when, row["told"], host)
            at += every
    return rows


def make_case(fault: str, seed: int, second: bool | None = None) -> Case:
    """One case; an empty fault is a job in which nothing is wrong."""
    for attempt in range(60):
        world = World(seed, fault, attempt)
        try:
            truths = _break(world, fault, second)
        except Unfit:
            continue
        probes = _begin_probes(world)
        world.job.start()
        world.engine.run(world.length)
        tables, manifest, begin_ns = record(world, probes)
        onset_ns = begin_ns + round(world.on * world.dilation)
        variant = (f"{world.job.schedule} {world.job.size} ranks {world.fabric.kind}"
                   f" {'lossless' if world.engine.lossless else 'lossy'}"
                   f" {truths[0][1]}")  # fmt: skip
        reported = [Truth(name, subject, onset_ns, variant) for name, subject in
                (truths if fault else [("", "")])]  # fmt: skip
        return Case(tables, manifest, reported[0], tuple(reported[1:]))
    raise AssertionError(f"no job fits {fault} seed {seed}")


def _break(world: World, fault: str, second: bool | None) -> list[tuple[str, str]]:
    """Does it; classes and subjects. Without a fault: what is odd."""
    rng = world.rng
    if not fault:
        oddity = rng.choice(list(ODDITIES))
        ODDITIES[oddity](world)
        return [("", oddity)]
    if rng.random() < 0.1 and fault != "straggler":
        ODDITIES["bursty"](world)
    truths = [(fault, FAULTS[fault](world))]
    if second is None:
        second = rng.random() < 1 / 6
    if second and fault in SECOND:
        other = rng.choice([each for each in SECOND if each != fault])
        truths.append((other, FAULTS[other](world)))
        world.kept.add(other)
    return truths
