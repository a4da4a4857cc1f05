"""The second generator: a job's mechanism, window by window and step by step, and one part broken.

Rates follow from capacities by water-filling, delays from utilisation and standing queues, waits
of ranks from who was late at a barrier. Written from the taxonomy's text before any rule was; the
rules and the first generator (`bench.diagnosis.drawn`) share nothing with it but the schema.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import numpy as np
from bench.diagnosis import foreign_tables as device_tables
from bench.diagnosis.case import Case, Rows, Truth, Unfit
from bench.diagnosis.foreign_faults import FAULTS, QUIET
from bench.diagnosis.foreign_world import Fabric, Flow, Place, mesh, ring, share

S, MS, US = 1_000_000_000, 1_000_000, 1_000


class State:
    """The mechanism's parameters in one window."""

    def __init__(self) -> None:
        self.background: dict[str, float] = defaultdict(float)
        """Share of a link's capacity that others take."""
        self.cut: dict[str, float] = defaultdict(lambda: 1.0)
        """What is left of a link's capacity."""
        self.pause: dict[str, float] = defaultdict(float)
        self.loss: dict[str, float] = defaultdict(float)
        self.errors: dict[str, float] = defaultdict(float)
        self.downs: dict[str, int] = defaultdict(int)
        self.speed: dict[str, float] = defaultdict(lambda: 1.0)
        self.dead: set[str] = set()
        self.wish: dict[str, float] = defaultdict(lambda: 1.0)
        """Per flow, times what it would send."""
        self.amount: dict[str, float] = defaultdict(lambda: 1.0)
        """Per flow, times the bytes of its part."""
        self.limit: dict[str, float] = defaultdict(lambda: 1.0)
        self.extra_ns: dict[str, float] = defaultdict(float)
        self.moved: dict[str, Flow] = {}
        self.slow_consumer: dict[int, float] = defaultdict(lambda: 1.0)
        self.compute: dict[int, float] = defaultdict(lambda: 1.0)
        self.work: dict[int, float] = defaultdict(lambda: 1.0)
        self.launch_ns: dict[int, float] = defaultdict(float)
        """Time by which a rank's host is late to enqueue."""
        self.data_ns = 0.0
        self.checkpoint_ns = 0.0
        self.poll_ns: dict[str, float] = defaultdict(float)
        self.runq: dict[str, float] = defaultdict(float)
        self.clock_ns: dict[str, float] = defaultdict(float)
        self.sm: dict[int, float] = defaultdict(lambda: 1.0)
        self.throttle: dict[int, str] = {}
        self.xid: dict[int, int] = {}
        self.ecc: dict[int, int] = defaultdict(int)
        self.width: dict[str, int] = defaultdict(lambda: 16)
        self.flush: dict[str, float] = defaultdict(lambda: 1.0)
        self.planned: set[str] = set()
        self.hang: Any = None
        """(kind, rank) once collectives stop."""


class Network(NamedTuple):
    """Flows as routed, and what follows for each flow and link."""

    flows: list[Flow]
    rate: Any
    """bit/s, before losses."""
    queue: dict[str, float]
    """Waiting per link in ns."""
    demand: dict[str, float]
    """Over capacity, per link."""
    wait: Any
    """Sum over the flow's links in ns."""
    loss: Any
    dead: Any
    base_ns: list[float]


class Job:
    """One job on one fabric, with everything drawn from one seed."""

    def __init__(self, seed: int, fault: str, attempt: int = 0) -> None:
        rng = self.rng = random.Random(f"foreign {fault} {seed} {attempt}")
        self.noise = np.random.default_rng(rng.getrandbits(64))
        self.nccl = fault in {"class-mismatch", "gpu-throttle", "pcie", "pfc-storm"} or (
            rng.random() < 0.75
        )
        kind = rng.choice(("rail", "tor", "three"))
        nics = 1 if fault not in {"rail-imbalance", "reduced-capacity"} else 2
        nics = max(nics, rng.choice((1, 2, 4)))
        hosts = rng.choice((4, 6, 8, 9)) if nics < 4 else rng.choice((4, 6))
        self.fabric = Fabric(rng, kind, hosts, nics)
        gpus = nics * (rng.choice((1, 2)) if hosts * nics <= 16 else 1)
        self.places = [
            Place(
                self.fabric.hosts[index // gpus],
                f"GPU-{rng.getrandbits(48):012x}",
                self.fabric.nic(index // gpus, index % gpus % nics),
                index % gpus % nics,
            )
            for index in range(hosts * gpus)
        ]
        shape = (
            mesh
            if fault == "incast" or (hosts * hosts * gpus <= 96 and rng.random() < 0.3)
            else ring
        )
        self.shape = shape.__name__
        self.flows = shape(
            self.fabric,
            self.places,
            rng.choice((2, 4)) if shape is ring and len(self.places) <= 16 else 2,
        )
        self.out = Counter(flow.rank for flow in self.flows)
        self.peers = defaultdict(set)
        for flow in self.flows:
            self.peers[flow.rank].add(flow.peer)
        self.window_ns = rng.choice((100 * MS, 250 * MS, 1000 * MS))
        self.windows = rng.randrange(30, 48)
        self.begin_ns = 1_790_000_000 * S + rng.randrange(10**15)
        self.compute_ns = rng.uniform(0.15, 0.6) * self.window_ns
        self.volume = rng.uniform(0.08, 0.35)
        """Seconds of line rate that a step sends, in windows."""
        self.noisy = rng.uniform(0.02, 0.09)
        self.hop_ns = rng.uniform(350, 900)
        self.buffer_bytes = rng.uniform(0.6e6, 2e6)
        self.capacity = self._capacities()
        self.onset = 0 if rng.random() < 0.2 else rng.randrange(10, self.windows // 2)
        self.end = self.windows
        self.change: Any = None
        self.plan: dict[str, float] = {}
        self.starved = False
        self.differs = rng.random() < 0.3
        self.job_class = {"tc": rng.choice((0, 96, 106)), "roce_version": 2, "gid_index": 3}
        self.probe_class = dict(self.job_class)
        if self.differs:
            self.probe_class["tc"] = 8
        self.flow_class: dict[str, dict[str, int]] = {}
        self.matched_probes = True
        self.states: dict[int, State] = {}
        self.results: dict[tuple[Any, ...], Network] = {}
        self.variant = f"{kind}/{shape.__name__}/{'nccl' if self.nccl else 'gloo'}/h{hosts}n{nics}"

    def _capacities(self) -> dict[str, float]:
        """Between switches there is headroom: a healthy job is limited by its NICs alone."""
        line = self.fabric.line_bps
        alone = dict.fromkeys((hop for flow in self.flows for hop in flow.hops), 1e18)
        wish = self.wishes(State())
        _, demand = share(self.flows, wish, alone)
        return {hop: line if "/" in hop else max(line, demand[hop] * 1e18 / 0.6) for hop in alone}

    def wishes(self, state: State) -> np.ndarray[Any, Any]:
        """What each flow would send if nothing but its NIC was in the way."""
        per_nic: dict[str, int] = defaultdict(int)
        for flow in self.flows:
            per_nic[flow.src] += 1
        line = self.fabric.line_bps * 0.8
        return np.array(
            [
                line
                / per_nic[flow.src]
                * state.wish[flow.name]
                * state.limit[flow.name]
                / state.slow_consumer[flow.peer]
                for flow in self.flows
            ]
        )

    def state(self, window: int) -> State:
        """Parameters in a window, the fault applied."""
        if window not in self.states:
            state = State()
            if self.change is not None and self.onset <= window < self.end:
                self.change(state, window)
            self.states[window] = state
        return self.states[window]

    def network(self, window: int) -> Network:
        """What the mechanism makes of a window's parameters."""
        state = self.state(window)
        key: tuple[Any, ...] = (tuple(sorted(state.dead)), tuple(sorted(state.moved)))
        key += tuple(
            tuple(sorted(each.items()))
            for each in (
                state.background,
                state.cut,
                state.loss,
                state.pause,
                state.limit,
                state.wish,
                state.slow_consumer,
                state.speed,
            )
        )
        if key not in self.results:
            flows = [state.moved.get(flow.name, flow) for flow in self.flows]
            room = {
                hop: capacity
                * state.cut[hop]
                * state.speed[hop]
                * (1 - state.background[hop])
                * (1 - state.pause[hop])
                * (1e-9 if hop in state.dead else 1)
                for hop, capacity in self.capacity.items()
            }
            for flow in flows:
                for hop in flow.hops:
                    room.setdefault(hop, self.fabric.line_bps)
            rate, demand = share(flows, self.wishes(state), room)
            queue = {}
            for hop, load in demand.items():
                busy = state.background[hop] + (1 - state.background[hop]) * min(load, 1.0)
                base = 4096 * 8 / room[hop] * 1e9 if room[hop] > 1e6 else 0.0
                queue[hop] = base * busy / max(1 - busy, 0.15)
                if load > 1.0:
                    queue[hop] += self.buffer_bytes * 8 / max(room[hop], 1e9) * 1e9
                queue[hop] += state.pause[hop] * self.buffer_bytes * 16 / self.fabric.line_bps * 1e9
            wait = [sum(queue[hop] for hop in flow.hops) for flow in flows]
            loss = [1 - math.prod(1 - state.loss[hop] for hop in flow.hops) for flow in flows]
            dead = [any(hop in state.dead for hop in flow.hops) for flow in flows]
            alone = [self.base_ns(flow) for flow in flows]
            self.results[key] = Network(
                flows, rate, queue, demand, np.array(wait), np.array(loss), np.array(dead), alone
            )
        return self.results[key]

    def base_ns(self, flow: Flow) -> float:
        """Delay of the flow's path when nothing waits."""
        return 1200 + self.hop_ns * len(flow.hops) + 4096 * 8 / self.fabric.line_bps * 1e9


def make_case(fault: str, seed: int) -> Case:
    """One case; an empty fault is a job in which nothing is wrong."""
    for attempt in range(100):
        job = Job(seed, fault, attempt)
        try:
            subject = FAULTS[fault](job) if fault else job.rng.choice(QUIET)(job)
            break
        except Unfit:
            continue
    found = {
        name: rows.columns
        for name, rows in (
            ("flows", device_tables.flows(job)),
            ("probes", device_tables.probes(job)),
            ("links", device_tables.links(job)),
            ("hosts", device_tables.hosts(job)),
            *_collectives(job).items(),
        )
        if rows.count
    }
    onset_ns = job.begin_ns + job.onset * job.window_ns
    manifest = {
        "format": "syntony-bundle",
        "version": 1,
        "job": "j",
        "timeline": "fleet",
        "begin_ns": job.begin_ns,
        "end_ns": job.begin_ns + job.windows * job.window_ns,
        "rail_shares": job.plan,
    }
    truth = Truth(fault, subject, onset_ns if fault else 0, job.variant)
    return Case(found, manifest, truth)


def _collectives(job: Job) -> dict[str, Rows]:
    """Every communicator runs by itself: barriers are all that binds its ranks."""
    rows, steps = Rows(), Rows()
    groups = defaultdict(list)
    split = job.rng.random() < 0.4
    gpus = len(job.places) // len(job.fabric.hosts)
    for rank in range(len(job.places)):
        groups[rank % gpus if split else 0].append(rank)
    for group, ranks in groups.items():
        _run(job, f"c{group}", ranks, rows, steps)
    return {"collectives": rows, "steps": steps}


def _run(job: Job, comm: str, ranks: list[int], rows: Rows, steps: Rows) -> None:
    end_ns = job.begin_ns + job.windows * job.window_ns
    ready = dict.fromkeys(ranks, float(job.begin_ns))
    sequence, step, operations = 0, 0, job.rng.choice((1, 2, 3))
    while min(ready.values()) < end_ns:
        window = min(int((min(ready.values()) - job.begin_ns) // job.window_ns), job.windows - 1)
        state = job.state(window)
        net = job.network(window)
        draws = job.noise.lognormal(0, job.noisy * 0.3, (len(ranks), operations))
        begun, data, computed, waited = dict(ready), {}, {}, dict.fromkeys(ranks, 0.0)
        checkpoint = state.checkpoint_ns if step % 5 == 0 else 0.0
        stall = float(job.noise.exponential(0.02 * job.compute_ns)) if job.starved else 0.0
        for index, rank in enumerate(ranks):
            data[rank] = (0.02 * job.compute_ns + state.data_ns) * float(draws[index][0])
            computed[rank] = job.compute_ns * state.compute[rank] * state.work[rank] * float(
                np.mean(draws[index])
            ) + stall * float(job.noise.uniform(0.5, 1))
        for part in range(operations):
            enqueued = {
                rank: ready[rank]
                + (data[rank] + checkpoint if part == 0 else 0.0)
                + computed[rank] / operations
                + state.launch_ns[rank] * float(job.noise.uniform())
                for rank in ranks
            }
            kind = state.hang
            missing = kind[1] if kind and kind[0] == "hang" and kind[1] in ranks else None
            other = kind[1] if kind and kind[0] == "desync" and kind[1] in ranks else None
            start = max(enqueued.values())
            size = job.volume * job.window_ns / 1e9 / operations
            duration = _spent(job, state, ranks, net, size)
            stuck = missing is not None or other is not None
            for rank in ranks:
                if rank == missing:
                    continue
                waits = _waits(job, state, rank, duration, start - enqueued[rank])
                done = start + duration + float(job.noise.uniform(0, 3000))
                rows.add(
                    job="j",
                    comm=comm,
                    seq=sequence,
                    op="broadcast" if rank == other else "all_reduce",
                    bytes=int(size * job.fabric.line_bps / 8),
                    nranks=len(ranks),
                    rank=rank,
                    host=job.places[rank].host,
                    gpu=job.places[rank].gpu if job.nccl else None,
                    step=step,
                    enqueue_ns=int(enqueued[rank]),
                    done_ns=None if stuck else int(done),
                    **waits,
                )
                waited[rank] += done - enqueued[rank]
                ready[rank] = done
            if stuck:
                return
            sequence += 1
        for rank in ranks:
            steps.add(
                job="j",
                step=step,
                rank=rank,
                host=job.places[rank].host,
                begin_ns=int(begun[rank]),
                end_ns=int(ready[rank]),
                work=state.work[rank] * 4096,
                data_ns=data[rank],
                compute_ns=computed[rank],
                comm_ns=waited[rank],
                checkpoint_ns=checkpoint,
            )
        step += 1


def _spent(job: Job, state: State, ranks: list[int], net: Network, size: float) -> float:
    """How long the slowest flow of the communicator takes for its part, in ns."""
    members = set(ranks)
    place = [index for index, flow in enumerate(net.flows) if flow.rank in members]
    if not place:
        return job.compute_ns * 0.1
    flows = [net.flows[index] for index in place]
    share = np.array(
        [state.wish[flow.name] * state.amount[flow.name] / job.out[flow.rank] for flow in flows]
    )
    speed = np.maximum(net.rate[place], job.fabric.line_bps / 200) / (1 + 2500 * net.loss[place])
    wait = net.wait[place] + [
        state.extra_ns[flow.name] + state.poll_ns[flow.dst.split("/")[0]] for flow in flows
    ]
    spent = size * job.fabric.line_bps * 0.4 * share / speed * 1e9 + 30 * wait
    return float((spent * job.noise.lognormal(0, 0.02, len(place))).max())


def _waits(job: Job, state: State, rank: int, duration: float, early: float) -> dict[str, float]:
    """NCCL's wait split of one rank's proxy in one collective."""
    if not job.nccl:
        return {}
    credit = 1 - 1 / max((state.slow_consumer[peer] for peer in job.peers[rank]), default=1.0)
    lazy = state.compute[rank] * state.work[rank]
    noise = job.noise.lognormal(0, 0.15, 6)
    nic = job.places[rank].nic
    return {
        "gpu_wait_ns": duration * (0.05 + 0.3 * max(lazy - 1, 0)) * noise[0],
        "credit_wait_ns": duration * (0.03 + 0.6 * credit) * noise[1],
        "net_wait_ns": duration * 0.4 * noise[2],
        "recv_wait_ns": (early + duration * 0.4) * noise[3],
        "flush_wait_ns": duration * 0.02 * state.flush[nic] * noise[4],
        "consume_wait_ns": duration * (0.02 + 0.6 * (1 - 1 / state.slow_consumer[rank])) * noise[5],
    }
