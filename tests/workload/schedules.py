"""Jobs whose own load makes their delays: other schedules, with and without one fault.

Delays of `irregular` jobs do not depend on what is sent. Here each operation puts its bytes on
links, lasts as long as the fullest of them needs, and all that cross a link wait for its queue. So
a job that changes what it sends also changes where packets wait, and nothing of that is a fault.
Shares nothing with the generators of `bench.diagnosis` but the schema.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter, defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from tests.workload.irregular_recorder import TYPES, _columns

from syntony.io.bundle_files import arrow_type, bundle_from_tables
from syntony.workload import FaultClass
from syntony.workload.schema import FORMAT, VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from syntony.workload import Bundle

US, MS, S = 1_000, 1_000_000, 1_000_000_000
F = FaultClass
KINDS = (
    "bubbles", "hot-expert", "moving-expert", "upload", "growing-batch", "evaluation", "shrink",
    "grow", "alternating",
)  # fmt: skip
FAULTS = (F.STRAGGLER, F.CONTENTION, F.INCAST, F.SLOW_FLOW, F.BAD_LINK, F.DATA_STALL,
          F.HOST_JITTER)  # fmt: skip
STAGES = 4
"""Of the pipeline."""
MIN_ALIKE = 3
"""Ranks of a stage, of which one can be told to be late."""
Pair = tuple[int, int]
"""Sending and receiving host."""


class NoPlace(Exception):  # noqa: N818 - not an error: this job cannot have the fault
    """No part of the job can have this fault."""


class Fault(NamedTuple):
    """What is broken from some time on, and what a verdict has to name."""

    name: str = ""
    subject: str = ""
    pair: Pair = (-1, -1)
    """A flow at fault, or one of a host at fault."""


class Schedule:
    """One job of one rank a host: `rows` are its tables."""

    def __init__(self, kind: str, seed: int, fault: Fault | None = None) -> None:
        self.kind, self.fault = kind, fault or Fault()
        self.rng = rng = random.Random(f"schedule {kind} {seed}")
        self.hosts = rng.choice((8, 12, 16))
        self.leaf_of, self.spines = rng.choice((2, 3, 4)), rng.choice((2, 3))
        self.compute_ns = rng.uniform(250, 700) * MS
        self.base_ns = rng.uniform(600, 1500)
        """Delay of a link without a queue."""
        self.scatter = rng.uniform(0.005, 0.03)
        self.link_gbps = rng.choice((100, 200, 400))
        self.part = rng.uniform(0.1, 0.3) * self.compute_ns * self.link_gbps / 8
        """Bytes that a rank sends in a step."""
        self.queue_ns = rng.uniform(4, 20) * US
        """Queue of a link for which twice as much comes as it carries."""
        self.window_ns = rng.choice((500 * MS, S))
        self.begin = 1_790_000_000 * S + rng.randrange(10**15)
        self.until = self.begin + rng.randrange(40, 60) * self.window_ns
        self.onset = self.begin + round((self.until - self.begin) * rng.uniform(0.35, 0.55))
        self.change = self.begin + round((self.until - self.begin) * rng.uniform(0.3, 0.6))
        self.stray = self.base_ns * rng.uniform(15, 40)
        self.free = [self.begin + rng.uniform(0, 20) * MS for _ in range(self.hosts)]
        self.rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.seq: Counter[str] = Counter()
        self.sent: defaultdict[tuple[Pair, int], list[tuple[float, float, float]]] = defaultdict(
            list)  # fmt: skip
        self.load: defaultdict[tuple[str, int], float] = defaultdict(float)
        self.step = 0
        self.data = 0.0
        """ns for which ranks wait for data in this step."""
        self.death: tuple[int, float] = -1, math.inf
        """A rank, and when it ends: later it begins nothing, and what it takes part in stays
        open."""
        self.paths: dict[Pair, tuple[str, ...]] = {}

    # Places

    def path(self, pair: Pair) -> tuple[str, ...]:
        if pair not in self.paths:
            self.paths[pair] = self._path(*pair)
        return self.paths[pair]

    def _path(self, src: int, dst: int) -> tuple[str, ...]:
        near, far = src // self.leaf_of, dst // self.leaf_of
        spine = random.Random(f"{src} {dst} {self.begin}").randrange(self.spines)
        inside = [f"leaf{near}"] if near == far else [f"leaf{near}", f"spine{spine}", f"leaf{far}"]
        return tuple(f"{a}->{b}" for a, b in
                     itertools.pairwise([f"h{src}/eth0", *inside, f"h{dst}/eth0"]))  # fmt: skip

    def has(self, *faults: str) -> bool:
        return self.fault.name in faults and max(self.free) >= self.onset

    def is_foreign(self, link: str) -> bool:
        """Whether strangers fill this link now."""
        return self.has(F.CONTENTION, F.INCAST) and link.endswith(self.fault.subject)

    # Time

    def computes(self, rank: int, share: float) -> None:
        took = self.compute_ns * share * self.rng.lognormvariate(0, self.scatter)
        if self.has(F.STRAGGLER) and rank == self.fault.pair[0]:
            took *= 1.6
        if self.has(F.HOST_JITTER) and rank == self.fault.pair[0]:
            took += self.compute_ns * share * self.rng.choice((0.0, 0.3, 0.8))
        self.free[rank] += took

    def sends(self, comm: str, op: str, ranks: Sequence[int], parts: dict[Pair, float]) -> None:
        """An operation: all ranks come, then all parts are sent at once."""
        dead, died = self.death
        if dead in ranks and self.free[dead] > died:
            self.free[dead] = math.inf
        usual = self.part * max(parts.values(), default=0.0)
        start = max(self.free[rank] for rank in ranks)
        if math.isinf(start):
            self._records(comm, op, ranks, usual, math.inf)
            return
        on: defaultdict[str, float] = defaultdict(float)
        for pair, part in parts.items():
            for link in self.path(pair):
                on[link] += part * self.part
        speed = self.link_gbps / 8  # bytes in a ns
        window = int((start - self.begin) // self.window_ns)
        took = 30_000.0
        for pair, part in parts.items():
            size, waits, slowest = part * self.part, 0.0, 1.0
            for link in self.path(pair):
                over = max(0.0, on[link] / max(usual, 1.0) - 1)
                waits += self.base_ns + self.queue_ns * min(over, 4.0) ** 0.5 * (
                    self.rng.lognormvariate(0, 0.3))  # fmt: skip
                slowest = max(slowest, on[link] / max(size, 1.0))
                if self.is_foreign(link):
                    waits += self.stray * self.rng.lognormvariate(0, 0.3)
                    slowest *= 1.5
            if self.has(F.SLOW_FLOW) and pair == self.fault.pair:
                waits, slowest = waits + self.stray, slowest * 3
            rate = speed / slowest * self.rng.lognormvariate(0, 0.03)
            own = size / rate
            took = max(took, own)
            self.sent[pair, window].append((size, own, waits))
        for link, size in on.items():
            self.load[link, window] += size
        done = start + took
        self._records(comm, op, ranks, usual, math.inf if dead in ranks and done > died else done)

    def _records(self, comm: str, op: str, ranks: Sequence[int], size: float, done: float) -> None:
        """Of ranks that come; what is never done holds them for ever."""
        for rank in ranks:
            if math.isfinite(self.free[rank]):
                self.rows["collectives"].append({
                    "comm": comm, "seq": self.seq[comm], "op": op, "rank": rank,
                    "host": f"h{rank}", "enqueue_ns": self.free[rank],
                    "done_ns": done if math.isfinite(done) else None, "nranks": len(ranks),
                    "bytes": size, "gpu": f"GPU-{rank}",
                })  # fmt: skip
            self.free[rank] = done + self.rng.uniform(5, 40) * US
        self.seq[comm] += 1

    def loads(self, ranks: Sequence[int]) -> dict[int, float]:
        """Ranks begin a step: when, with data loaded."""
        began = {rank: self.free[rank] for rank in ranks}
        stall = self.compute_ns * self.rng.uniform(0.6, 1.2) if self.has(F.DATA_STALL) else 0.0
        for rank in ranks:
            self.data = stall or self.compute_ns * 0.01
            self.free[rank] += self.data
        return began

    def ends(self, began: dict[int, float], saved: float = 0.0) -> None:
        for rank, begin in began.items():
            if math.isinf(self.free[rank]):
                continue
            self.rows["steps"].append({
                "step": self.step, "rank": rank, "begin_ns": begin, "end_ns": self.free[rank],
                "host": f"h{rank}", "data_ns": self.data, "checkpoint_ns": saved,
            })  # fmt: skip
        self.step += 1

    def runs(self) -> None:
        """All of it."""
        ranks = list(range(self.hosts))
        kinds = {
            "bubbles": self._bubbles, "hot-expert": self._experts, "moving-expert": self._experts,
            "alternating": self._alternating,
        }  # fmt: skip
        step = kinds.get(self.kind, self._plain)
        some = ranks[: 2 * len(ranks) // 3]
        every = self.rng.randrange(8, 25)
        while max(self.free) < self.until:
            changed = max(self.free) >= self.change
            inside = ranks
            if self.kind in {"shrink", "grow"}:
                inside = some if changed == (self.kind == "shrink") else ranks
                if len(inside) == len(ranks):
                    self.free = [max(self.free)] * len(ranks)
            step(inside, f"world.{len(inside)}")
            if self.kind == "upload" and self.step % every == 0:
                self._uploads(ranks)
            if self.kind == "evaluation" and self.step % every == 0:
                self._evaluates(ranks)

    # Schedules

    def _ring(self, ranks: Sequence[int]) -> list[Pair]:
        return [(one, ranks[(place + 1) % len(ranks)]) for place, one in enumerate(ranks)]

    def _plain(self, ranks: Sequence[int], comm: str) -> None:
        began = self.loads(ranks)
        times = 1
        if self.kind == "growing-batch" and max(self.free) >= self.change:
            times = 3  # more micro-batches before each exchange
        for rank in ranks:
            for _ in range(times):
                self.computes(rank, 1.0)
        self.sends(comm, "all_reduce", ranks, dict.fromkeys(self._ring(ranks), 1.0))
        self.ends(began)

    def _alternating(self, ranks: Sequence[int], comm: str) -> None:
        """A discriminator and a generator by turns: rings in both directions, of other sizes."""
        began = self.loads(ranks)
        one = self.step // 10 % 2 == 0
        order = list(ranks) if one else [*ranks[::2], *ranks[1::2]]
        for rank in ranks:
            self.computes(rank, 1.0 if one else 0.5)
        self.sends(comm, "all_reduce", ranks,
                   dict.fromkeys(self._ring(order), 1.0 if one else 0.5))  # fmt: skip
        self.ends(began)

    def _bubbles(self, ranks: Sequence[int], _comm: str) -> None:
        """One forward, one backward: a stage waits until its neighbour has sent."""
        began = self.loads(ranks)
        stages, micro = STAGES, 4
        width = len(ranks) // stages
        cost = [1.15, 1.0, 1.0, 1.3]
        for forward in (True, False):
            order = range(stages) if forward else range(stages - 1, -1, -1)
            ahead = 1 if forward else -1
            for _, stage in itertools.product(range(micro), order):
                mine = ranks[stage * width : (stage + 1) * width]
                for rank in mine:
                    self.computes(rank, cost[stage] / micro / 2)
                if 0 <= stage + ahead < stages:
                    for rank in mine:
                        peer = rank + ahead * width
                        self.sends(f"pp{min(rank, peer)}", "send_recv", [rank, peer],
                                   {(rank, peer): 0.2})  # fmt: skip
        for stage in range(stages):
            mine = ranks[stage * width : (stage + 1) * width]
            self.sends(f"dp{stage}", "all_reduce", mine, dict.fromkeys(self._ring(mine), 1.0))
        self.ends(began)

    def _experts(self, ranks: Sequence[int], comm: str) -> None:
        """All-to-all; one expert has three times the tokens, another one after a while."""
        began = self.loads(ranks)
        moved = self.kind == "moving-expert" and max(self.free) >= self.change
        hot = ranks[len(ranks) // 2 if moved else 1]
        for rank in ranks:
            self.computes(rank, 0.5)
        parts = {(a, b): (3.0 if b == hot else 1.0) / len(ranks)
                 for a in ranks for b in ranks if a != b}  # fmt: skip
        self.sends("ep", "all_to_all", ranks, parts)
        for rank in ranks:
            self.computes(rank, 0.5)
        self.sends("ep", "all_to_all", ranks, {(b, a): part for (a, b), part in parts.items()})
        self.sends(comm, "all_reduce", ranks, dict.fromkeys(self._ring(ranks), 0.5))
        self.ends(began)

    def _uploads(self, ranks: Sequence[int]) -> None:
        """A checkpoint goes to the last two hosts, which keep it."""
        began = self.loads(ranks)
        keepers = ranks[-2:]
        self.sends("save", "gather", ranks,
                   {(rank, keepers[rank % 2]): 2.0 for rank in ranks[:-2]})  # fmt: skip
        self.ends(began, saved=self.compute_ns)

    def _evaluates(self, ranks: Sequence[int]) -> None:
        """Batches without exchange, results to the first rank, which writes for a while."""
        for rank in ranks:
            for _ in range(6 - rank % 2):
                self.computes(rank, 0.3)
        self.sends("eval", "gather", ranks, {(rank, 0): 0.3 for rank in ranks[1:]})
        self.computes(0, self.rng.uniform(1, 4))
        self.sends("eval", "barrier", ranks, {})

    # Records

    def tables(self, *, links: bool) -> dict[str, dict[str, list[Any]]]:
        """What a recorder writes of it."""
        rows: dict[str, list[dict[str, Any]]] = dict(self.rows)
        windows = 1 + max(window for _, window in self.sent)
        rng = self.rng
        rows["flows"] = []
        for (pair, window), parts in sorted(self.sent.items()):
            at = self.begin + window * self.window_ns
            size, busy = sum(each[0] for each in parts), sum(each[1] for each in parts)
            waits = sorted(each[2] for each in parts)
            on = at >= self.onset
            lossy = on and self.fault.name == F.BAD_LINK and self.fault.subject in self.path(pair)
            starved = on and self.fault.name == F.HOST_JITTER and self.fault.pair[0] in pair
            rows["flows"].append({
                "flow": f"qp{pair[0]}.{pair[1]}", "at_ns": at, "window_ns": self.window_ns,
                "src": f"h{pair[0]}/eth0", "dst": f"h{pair[1]}/eth0", "bytes": size,
                "rate_bps": size * 8 * S / busy, "owd_p50_ns": waits[len(waits) // 2],
                "owd_p99_ns": waits[-1], "hops": self.path(pair), "rank": pair[0],
                "peer_rank": pair[1], "proto": "rc", "rail": "rail0", "clk_err_ns": 50.0,
                "retransmits": float(rng.randrange(20, 200) if lossy else rng.random() < 0.01),
                "poll_gap_ns": 1e5 * rng.lognormvariate(0, 0.3) * (30 if starved else 1),
            })  # fmt: skip
        use = {link for pair, _ in self.sent for link in self.path(pair)}
        carried = self.window_ns * self.link_gbps / 8
        for window, link in itertools.product(range(windows if links else 0), sorted(use)):
            at = self.begin + window * self.window_ns
            full = at >= self.onset and self.fault.name in {F.CONTENTION, F.INCAST} and (
                link.endswith(self.fault.subject))  # fmt: skip
            rows.setdefault("links", []).append({
                "link": link, "at_ns": at, "window_ns": self.window_ns, "up": True,
                "speed_bps": self.link_gbps * 1e9, "symbol_errors": 0.0,
                "utilisation": min(0.99, self.load[link, window] / carried + 0.9 * full),
            })  # fmt: skip
        for window, host in itertools.product(range(windows), range(self.hosts)):
            at = self.begin + window * self.window_ns
            starved = self.fault.name == F.HOST_JITTER and self.fault.pair[0] == host
            wait = rng.uniform(0.2, 0.5) if starved and at >= self.onset else 0.005
            rows.setdefault("hosts", []).append({
                "host": f"h{host}", "at_ns": at, "window_ns": self.window_ns,
                "runq_ns": wait * self.window_ns, "clk_state": "SYNCHRONIZED",
            })  # fmt: skip
        return {name: _columns(name, found) for name, found in rows.items() if found}


def _placed(kind: str, seed: int, name: str) -> Fault:
    """A fault of a part that the job uses to its end."""
    healthy = Schedule(kind, seed)
    healthy.runs()
    last = max(window for _, window in healthy.sent)
    used = sorted({pair for pair, window in healthy.sent if window > 0.9 * last})
    rng = random.Random(f"{kind} {name} {seed}")
    pair = rng.choice(used)
    subjects = {F.STRAGGLER: f"rank {pair[0]}", F.HOST_JITTER: f"h{pair[0]}",
                F.DATA_STALL: "night", F.SLOW_FLOW: f"qp{pair[0]}.{pair[1]}"}  # fmt: skip
    if name == F.STRAGGLER and kind == "bubbles" and healthy.hosts < MIN_ALIKE * STAGES:
        raise NoPlace
    if name in subjects:
        return Fault(name, subjects[F(name)], pair)
    across: defaultdict[str, set[Pair]] = defaultdict(set)
    for each in used:
        for link in healthy.path(each):
            across[link].add(each)
    links = {link for link, pairs in across.items() if 2 <= len(pairs) <= 0.5 * len(used)}
    into = {link for link in links if link.endswith("/eth0")}
    fit = sorted(into if name == F.INCAST else {each for each in links if "/" not in each})
    if name == F.INCAST:
        fit = [each for each in fit if len({src for src, _ in across[each]}) >= 2]
    if not fit:
        raise NoPlace
    link = rng.choice(fit)
    return Fault(name, link.split("->")[1] if name == F.INCAST else link, min(across[link]))


@lru_cache(maxsize=1)
def _job(kind: str, fault: str, seed: int) -> Schedule:
    job = Schedule(kind, seed, _placed(kind, seed, fault) if fault else None)
    job.runs()
    return job


def job_and_fault(kind: str, fault: str, seed: int, *, links: bool) -> tuple[Bundle, Fault]:
    """A recording, and what is wrong in it; `NoPlace` if the job cannot have the fault."""
    job = _job(kind, fault, seed)
    manifest = {
        "format": FORMAT, "version": VERSION, "job": "night", "timeline": "fleet",
        "begin_ns": job.begin, "end_ns": round(max(job.free)),
    }  # fmt: skip
    arrow = {
        table: pa.table({name: pa.array(values, arrow_type(TYPES[table][name]))
                         for name, values in columns.items()})
        for table, columns in job.tables(links=links).items()
    }  # fmt: skip
    return bundle_from_tables(arrow, manifest), job.fault
