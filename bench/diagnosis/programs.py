"""The fifth generator: other programs than training in step, over links that share their rate.

Inference by groups of tensor-parallel ranks, a parameter server, a mixture of experts whose load
drifts, checkpoints by rank 0, restarts in a smaller group, evaluation between training, and a
learner with rollouts of uneven length. What a program does to itself (an incast at its server, a
wait for the longest rollout) is no fault. An operation's parts share links in proportion to their
bytes, and packets wait where several of them meet; nothing here draws a symptom of a rule. Shares
nothing with the rules, with the other generators or with `tests.workload.schedules`.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from bench.diagnosis.case import Case, Truth, Unfit, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

US, MS, S = 1e3, 1e6, 1e9
Pair = tuple[int, int]
"""Sending and receiving rank."""
QUEUE_LIMIT = 2.0
"""Packets wait at most so many times as long as the queue that senders keep."""


class Fault(NamedTuple):
    """What is broken in a world, from its onset on."""

    name: str = ""
    subject: str = ""
    rank: int = -1
    pair: Pair = (-1, -1)
    link: str = ""
    size: float = 0.0
    """How bad it is; each kind has its own meaning."""


class Operation(NamedTuple):
    """One rank's part in an operation."""

    comm: str
    seq: int
    op: str
    rank: int
    enqueue: float
    done: float | None
    size: float
    ranks: int


class Sent(NamedTuple):
    """What a flow sent in a window."""

    size: float
    busy: float
    """ns for which it sent."""
    waited: float
    """Delay of a packet above that of the empty path, ns."""


class Program:
    """One job of one rank for each host and GPU; `run` fills `operations`, `sent` and `steps`."""

    def __init__(self, kind: str, rng: random.Random) -> None:
        self.kind, self.rng, self.fault = kind, rng, Fault()
        self.hosts, self.gpus = rng.choice((6, 8, 12)), rng.choice((1, 1, 2))
        self.size = self.hosts * self.gpus
        self.per_leaf, self.spines = rng.choice((2, 3, 4)), rng.choice((2, 3, 4))
        self.bps = rng.choice((100e9, 200e9, 400e9))
        self.base = rng.uniform(500, 1_500)
        """Delay of an empty link, ns."""
        self.queue = self.base * rng.uniform(3, 12)
        """Delay that senders keep at a link that they fill, ns."""
        self.window = rng.choice((0.2, 0.5, 1.0)) * S
        self.end = rng.randrange(50, 90) * self.window
        self.onset = self.end * rng.uniform(0.35, 0.55)
        self.work = self.window * rng.uniform(0.15, 0.6)
        """ns that a rank computes in a step."""
        self.part = self.work * rng.uniform(0.1, 0.4) * self.bps / 8 / S
        """Bytes that a rank sends in a step."""
        self.scatter = rng.uniform(0.005, 0.04)
        self.now = [rng.uniform(0, 5) * MS for _ in range(self.size)]
        self.operations: list[Operation] = []
        self.steps: list[tuple[int, int, float, float, float, float]] = []
        """Step, rank, begin, end, waited for data, wrote a checkpoint."""
        self.sent: defaultdict[tuple[str, int], list[Sent]] = defaultdict(list)
        """(flow, window)."""
        self.carried: defaultdict[tuple[str, int], float] = defaultdict(float)
        """Bytes of the job by link and window."""
        self.flows: dict[str, tuple[Pair, tuple[str, ...]]] = {}
        self.seqs: defaultdict[str, int] = defaultdict(int)
        self.generation = 0
        """Connections and communicators are made again after each restart."""
        self.restarts: list[float] = []
        self.step = 0
        self.stuck = False
        self.salt = rng.randrange(1 << 30)

    # --- places ---

    def host(self, rank: int) -> int:
        """The host of a rank."""
        return rank // self.gpus

    def nic(self, rank: int) -> str:
        """The NIC of a rank."""
        return f"node{self.host(rank):02}/mlx5_{rank % self.gpus}"

    def flow(self, pair: Pair) -> str:
        """The connection of two ranks, with its path."""
        name = f"{pair[0]}-{pair[1]}.{self.generation}"
        if name not in self.flows:
            self.flows[name] = pair, self._path(*pair)
        return name

    def _path(self, src: int, dst: int) -> tuple[str, ...]:
        near, far = (self.host(each) // self.per_leaf for each in (src, dst))
        spine = random.Random(f"{src} {dst} {self.salt} {self.generation}").randrange(self.spines)
        inside = [f"tor{near}"] if near == far else [f"tor{near}", f"agg{spine}", f"tor{far}"]
        nodes = [self.nic(src), *inside, self.nic(dst)]
        return tuple(f"{a}->{b}" for a, b in itertools.pairwise(nodes))

    def broken(self, *names: str, at: float | None = None) -> bool:
        """Whether one of these faults is there."""
        return self.fault.name in names and (max(self.now) if at is None else at) >= self.onset

    # --- time ---

    def compute(self, rank: int, took: float) -> None:
        """A rank works for about so many ns."""
        took *= self.rng.lognormvariate(0, self.scatter)
        if self.broken("straggler", "gpu-throttle", at=self.now[rank]) and rank == self.fault.rank:
            took *= self.fault.size
        if self.broken("host-jitter", at=self.now[rank]) and (
            self.host(rank) == self.host(self.fault.rank)):  # fmt: skip
            took += self.work * self.rng.choice((0.0, 0.2, 0.5, 0.8))
        self.now[rank] += took

    def exchange(
        self, comm: str, op: str, ranks: Sequence[int], parts: Mapping[Pair, float],
        *, alone: bool = False,
    ) -> None:  # fmt: skip
        """All ranks come, then parts, in bytes, are sent together. All end together; with `alone`
        each as soon as its own parts are through."""
        name, start = f"{comm}.{self.generation}", max(self.now[rank] for rank in ranks)
        seq, self.seqs[name] = self.seqs[name], self.seqs[name] + 1
        sure = {pair: size for pair, size in parts.items()
                if self.host(pair[0]) != self.host(pair[1])}  # fmt: skip
        took = self._send(start, sure)
        last = max(took.values(), default=30 * US)
        hangs = self.broken("hang", at=start) and self.fault.rank in ranks
        for rank in ranks:
            own = [each for pair, each in took.items() if rank in pair]
            done = start + (max(own, default=30 * US) if alone else last)
            if hangs and rank == self.fault.rank and self.fault.size:
                continue  # it does not come
            self.operations.append(Operation(
                name, seq, op, rank, self.now[rank], None if hangs else done,
                max(parts.values(), default=0.0), len(ranks)))  # fmt: skip
            self.now[rank] = done + self.rng.uniform(2, 30) * US
        self.stuck |= hangs

    def _send(self, start: float, parts: Mapping[Pair, float]) -> dict[Pair, float]:
        """ns that each part takes."""
        bytes_of, inputs = defaultdict[str, float](float), defaultdict[str, set[str]](set)
        paths = {pair: self.flows[self.flow(pair)][1] for pair in parts}
        for pair, size in parts.items():
            for place, link in enumerate(paths[pair]):
                bytes_of[link] += size
                inputs[link].add(paths[pair][place - 1] if place else "")
        per_ns = self.bps / 8 / S
        through = {link: size / (per_ns * self._left(link, start))
                   for link, size in bytes_of.items()}  # fmt: skip
        took = {}
        for pair, size in parts.items():
            slowest = max(paths[pair], key=lambda link: through[link])
            waited = sum(
                self._wait(link, len(inputs[link]), through[link] / through[slowest], start)
                for link in paths[pair]
            )
            length = through[slowest] * self.rng.lognormvariate(0, 0.02)
            if self.broken("slow-flow", at=start) and pair == self.fault.pair:
                length, waited = length * self.fault.size, waited + self.queue * self.fault.size
            if self.broken("bad-link", at=start) and self.fault.link in paths[pair]:
                length *= 1 + self.fault.size * 10
            if self.broken("slow-receiver", at=start) and pair[1] == self.fault.rank:
                length *= self.fault.size
            took[pair] = length
            self._note(pair, start, size, length, waited)
        return took

    def _left(self, link: str, at: float) -> float:
        """The share of a link's rate that is the job's."""
        if self.broken("contention", "incast", at=at) and link == self.fault.link:
            return 1 - self.fault.size
        return 1.0

    def _wait(self, link: str, inputs: int, fullness: float, at: float) -> float:
        """ns that a packet waits before a link that is so full while parts are sent."""
        waited = self.rng.expovariate(1 / (0.05 * self.base))
        if inputs > 1:
            waited += self.queue * min(QUEUE_LIMIT, 0.5 * inputs**0.5) * fullness**6
        if self._left(link, at) < 1:
            waited += self.queue * self.rng.uniform(2, 4)
        return waited

    def _note(self, pair: Pair, start: float, size: float, length: float, waited: float) -> None:
        """Spread what a part sent over the windows in which it did."""
        name, at = self.flow(pair), start
        links = self.flows[name][1]
        while at < start + length:
            window = int(at // self.window)
            until = min((window + 1) * self.window, start + length)
            share = (until - at) / length
            scattered = waited * self.rng.lognormvariate(0, 0.15)
            self.sent[name, window].append(Sent(size * share, until - at, scattered))
            for link in links:
                self.carried[link, window] += size * share
            at = until

    def begins(self, ranks: Iterable[int], share: float = 0.02) -> dict[int, tuple[float, float]]:
        """Ranks load data for a step → when, and for how long."""
        found = {}
        for rank in ranks:
            waited = self.work * share * self.rng.uniform(0.5, 1.5)
            if self.broken("data-stall"):
                waited += self.work * self.fault.size
            found[rank] = self.now[rank], waited
            self.now[rank] += waited
        return found

    def ends(self, began: Mapping[int, tuple[float, float]], saved: float = 0.0) -> None:
        """A step of these ranks is over."""
        for rank, (begin, waited) in began.items():
            if not self.stuck:
                self.steps.append((self.step, rank, begin, self.now[rank], waited, saved))
        self.step += 1

    def ring(self, ranks: Sequence[int], size: float) -> dict[Pair, float]:
        """One ring by each rail: each rank sends to the next host's of the same rail."""
        found: dict[Pair, float] = {}
        for rail in range(self.gpus):
            mine = [rank for rank in ranks if rank % self.gpus == rail]
            found |= dict.fromkeys(zip(mine, (*mine[1:], mine[0]), strict=True), size)
        return found

    def run(self) -> None:
        """All of it, until the end or until it hangs."""
        step = PROGRAMS[self.kind](self)
        while max(self.now) < self.end and not self.stuck:
            step()


def _inference(job: Program) -> Callable[[], None]:
    """Groups of ranks over two or three hosts serve requests, each at its own pace; batches differ,
    and there are pauses without any."""
    wide = job.rng.choice((2, 3)) * job.gpus
    groups = [list(range(first, first + wide)) for first in range(0, job.size - wide + 1, wide)]

    def serve() -> None:
        behind = min(job.now[group[0]] for group in groups)
        for number, group in enumerate(groups):
            if job.now[group[0]] > behind + job.work:
                continue
            idle = job.rng.expovariate(1 / (0.3 * job.work))
            batch = job.rng.lognormvariate(0, 0.5)
            for rank in group:
                job.now[rank] += idle
            for _ in range(3):
                for rank in group:
                    job.compute(rank, 0.2 * job.work * batch)
                job.exchange(f"tp{number}", "all_reduce", group,
                             job.ring(group, 0.3 * job.part * batch))  # fmt: skip

    return serve


def _server(job: Program) -> Callable[[], None]:
    """Workers push gradients to the first rank of each of some hosts and pull weights."""
    many = job.rng.choice((1, 2))
    servers, workers = list(range(many)), list(range(many, job.size))
    ranks = servers + workers

    def step() -> None:
        began = job.begins(workers)
        for rank in workers:
            job.compute(rank, job.work)
        size = job.part / len(workers) * 2
        push = {(each, server): size for each in workers for server in servers}
        job.exchange("ps", "reduce", ranks, push)
        for server in servers:
            job.compute(server, 0.1 * job.work)
        job.exchange("ps", "broadcast", ranks, {(b, a): each for (a, b), each in push.items()})
        job.ends(began)

    return step


def _experts(job: Program) -> Callable[[], None]:
    """All-to-all; each expert's share of the tokens drifts."""
    ranks = list(range(job.size))
    load = [job.rng.lognormvariate(0, 0.5) for _ in ranks]

    def step() -> None:
        began = job.begins(ranks)
        for place, each in enumerate(load):
            load[place] = min(4.0, max(0.25, each * job.rng.lognormvariate(0, 0.05)))
        total = sum(load)
        parts = {(a, b): job.part * load[b] / total for a in ranks for b in ranks if a != b}
        for rank in ranks:
            job.compute(rank, 0.5 * job.work)
        job.exchange("ep", "all_to_all", ranks, parts)
        for rank in ranks:
            job.compute(rank, 0.3 * job.work)
        job.exchange("ep", "all_to_all", ranks, {(b, a): size for (a, b), size in parts.items()})
        job.exchange("world", "all_reduce", ranks, job.ring(ranks, 0.5 * job.part))
        job.ends(began)

    return step


def _plain_step(job: Program, ranks: Sequence[int]) -> dict[int, tuple[float, float]]:
    began = job.begins(ranks)
    for rank in ranks:
        job.compute(rank, job.work)
    job.exchange("world", "all_reduce", ranks, job.ring(ranks, job.part))
    return began


def _saver(job: Program) -> Callable[[], None]:
    """Every some steps rank 0 collects all shards and writes them, for a tenth of the time at most;
    the others wait for it."""
    ranks, every = list(range(job.size)), job.rng.randrange(8, 20)
    took = job.work * every * job.rng.uniform(0.02, 0.1)

    def step() -> None:
        began = _plain_step(job, ranks)
        saved = 0.0
        if job.step % every == every - 1:
            job.exchange(
                "world", "gather", ranks, {(rank, 0): 0.3 * job.part for rank in ranks[1:]}
            )
            saved = took * job.rng.lognormvariate(0, 0.1)
            job.now[0] += saved
            job.exchange("world", "barrier", ranks, {})
        job.ends(began, saved)

    return step


def _elastic(job: Program) -> Callable[[], None]:
    """A host leaves, and comes back later: new processes, connections and communicators."""
    at = sorted(job.end * job.rng.uniform(0.1, 0.3) + shift * job.end for shift in (0.0, 0.45))
    whole, some = list(range(job.size)), list(range(job.size - job.gpus))

    def step() -> None:
        if job.generation < len(at) and max(job.now) >= at[job.generation]:
            job.generation += 1
            again = max(job.now) + job.window * job.rng.uniform(3, 8)
            job.restarts.append(again)
            job.now = [again + job.rng.uniform(0, 50) * MS for _ in job.now]
        ranks = some if job.generation == 1 else whole
        began = _plain_step(job, ranks)
        for rank in set(whole) - set(ranks):
            job.now[rank] = max(job.now)
        job.ends(began)

    return step


def _evaluation(job: Program) -> Callable[[], None]:
    """Every some steps all ranks evaluate, for uneven times, and rank 0 collects the results."""
    ranks, every = list(range(job.size)), job.rng.randrange(10, 25)

    def step() -> None:
        began = _plain_step(job, ranks)
        job.ends(began)
        if job.step % every == 0:
            for rank in ranks:
                job.compute(rank, job.work * job.rng.uniform(2, 4))
            job.exchange(
                "eval", "gather", ranks, {(rank, 0): 0.05 * job.part for rank in ranks[1:]}
            )

    return step


def _rollouts(job: Program) -> Callable[[], None]:
    """Actors generate for as long as their longest answer; then all train, and the first rank
    sends the new weights to each other host."""
    ranks = list(range(job.size))

    def step() -> None:
        began = job.begins(ranks)
        for rank in ranks:
            job.compute(rank, job.work * job.rng.lognormvariate(0, 0.35))
        job.exchange("world", "all_gather", ranks, job.ring(ranks, 0.1 * job.part))
        for rank in ranks:
            job.compute(rank, 0.4 * job.work)
        job.exchange("world", "all_reduce", ranks, job.ring(ranks, job.part))
        weights = {(0, rank): 0.2 * job.part for rank in ranks[job.gpus :: job.gpus]}
        job.exchange("weights", "broadcast", ranks, weights)
        job.ends(began)

    return step


PROGRAMS: dict[str, Callable[[Program], Callable[[], None]]] = {
    "inference": _inference, "server": _server, "experts": _experts, "saver": _saver,
    "elastic": _elastic, "evaluation": _evaluation, "rollouts": _rollouts,
}  # fmt: skip


def make_case(fault: str, seed: int, kind: str = "") -> Case:
    """One case, of this program or any; an empty fault is a job in which nothing is wrong."""
    from bench.diagnosis.programs_ends import deaths
    from bench.diagnosis.programs_faults import placed
    from bench.diagnosis.programs_record import manifest_of, tables_of

    for attempt in range(20):
        rng = random.Random(f"programs {seed} {fault} {kind} {attempt}")
        chosen = kind or rng.choice([*PROGRAMS])
        healthy = rng.getstate()
        job = Program(chosen, rng)
        if fault:
            job.run()
            try:
                broken = placed(job, fault, random.Random(f"{seed} {fault} {attempt}"))
            except Unfit:
                continue
            rng.setstate(healthy)
            job = Program(chosen, rng)
            job.fault = broken
        job.run()
        begin_ns = 1_800_000_000 * int(S) + seed % 10**6 * int(S)
        onset_ns = begin_ns + round(job.onset)
        truth = Truth(fault, job.fault.subject, onset_ns, f"{chosen} {job.size} ranks")
        # A connection that is made again after a restart has the same fault.
        also = tuple(truth._replace(subject=name) for name, (pair, _) in job.flows.items()
                     if pair == job.fault.pair and name != truth.subject)  # fmt: skip
        case = Case(tables_of(job, begin_ns), manifest_of(job, begin_ns), truth, also)
        ends = deaths(job)
        if ends and not fault:  # the first ends stop all
            work = until(case, begin_ns + round(min(each.at for each in ends.values())))
            kept = {**work.tables, "processes": case.tables["processes"]}
            case = case._replace(tables=kept)
        return case
    raise AssertionError(f"no program fits {fault} seed {seed}")
