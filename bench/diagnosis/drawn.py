"""The first generator: what a fault looks like, drawn at random on a job's tables.

Every quantity is a level times noise; a fault multiplies those that the taxonomy says it does. It
shares nothing with `bench.diagnosis.foreign` but the schema.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any

import numpy as np
from bench.diagnosis.case import Case, Columns, Truth, Unfit
from numpy.typing import NDArray

S, MS = 1_000_000_000, 1_000_000
OTHER = 10**9
"""To the seed of another job, if this one cannot have the fault."""
Floats = NDArray[np.float64]


class Draft:
    """A healthy job as arrays, which a fault then changes. Flows, ranks, links by windows."""

    def __init__(self, seed: int, fault: str) -> None:
        rng = self.rng = np.random.default_rng([seed, zlib.crc32(fault.encode())])
        self.windows = int(rng.integers(30, 70))
        self.width = int(rng.choice([100, 200, 500])) * MS
        self.begin = 1_700_000_000 * S + int(rng.integers(0, 10**16))
        self.hosts = int(rng.integers(4, 11))
        self.rails = (
            int(rng.integers(2, 5))
            if fault in {"rail-imbalance", "reduced-capacity"}
            else int(rng.integers(1, 5))
        )
        self.channels = int(rng.integers(2, 5))
        self.pods = int(rng.integers(2, 4))
        self.spines = int(rng.integers(2, 5))
        self.both_ways = bool(rng.random() < 0.5) or fault == "incast"
        self.sigma = float(rng.uniform(0.01, 0.12))
        self.host_names = [f"h{index}" for index in range(self.hosts)]
        self.ranks = self.hosts * self.rails
        self.on = 0 if rng.random() < 0.2 else int(rng.integers(8, self.windows // 2))
        self.off = (
            self.windows
            if rng.random() < 0.7
            else min(self.windows, self.on + int(rng.integers(12, 30)))
        )
        self._flows()
        self._links()
        self._ranks(fault)
        self.manifest: dict[str, Any] = {
            "format": "syntony-bundle",
            "version": 1,
            "job": f"train-{seed}",
            "timeline": "fleet",
            "begin_ns": self.begin,
            "end_ns": self.begin + self.windows * self.width,
        }
        self.roce: dict[str, Any] = {"tc": 106.0, "gid_index": 3.0, "roce_version": 2.0}
        self.probe_roce = dict(self.roce)
        self.flow_roce = {name: np.full(self.count, value) for name, value in self.roce.items()}
        self.matched_slow: set[int] = set()
        self.offset = np.zeros((self.hosts, self.rails, self.windows))
        """Error of each NIC's clock in ns."""

    @property
    def time(self) -> slice:
        """Windows in which the fault is there."""
        return slice(self.on, self.off)

    def _flows(self) -> None:
        rng, flows = self.rng, []
        strides = (1, -1) if self.both_ways else (1,)
        if rng.random() < 0.3 or (self.both_ways and self.hosts > 6 and rng.random() < 0.5):
            strides = (*strides, 2)
        for host in range(self.hosts):
            for rail in range(self.rails):
                for stride in dict.fromkeys(s % self.hosts for s in strides):
                    peer = (host + stride) % self.hosts
                    flows += [(host, peer, rail, channel) for channel in range(self.channels)]
        self.flow = np.array(flows)
        self.count = len(flows)
        self.paths = [
            self.path(a, b, rail, int(rng.integers(self.spines))) for a, b, rail, _ in flows
        ]
        self.length = np.array([len(path) for path in self.paths])
        near, hop = rng.uniform(1500, 3000), rng.uniform(300, 900)
        self.base = near + hop * self.length + rng.uniform(0, 150, self.count)
        shape = self.count, self.windows
        self.p50 = self.base[:, None] * rng.lognormal(0.02, self.sigma, shape)
        self.tail = rng.uniform(1.3, 3.0, shape)
        self.line = float(rng.choice([100e9, 200e9, 400e9]))
        self.rate = self.line / self.channels * 0.7 * rng.lognormal(0, self.sigma, shape)
        self.sent = self.rate * self.width / 8e9 * rng.uniform(0.2, 0.4)
        self.again = rng.poisson(rng.uniform(0, 0.05), shape).astype(float)
        self.credit = rng.uniform(0, 0.02, shape)
        self.gap = rng.uniform(2000, 8000, shape)
        self.cqe = np.zeros(shape)

    def nic(self, host: int, rail: int) -> str:
        """HOST/NIC."""
        return f"h{host}/rail{rail}"

    def path(self, source: int, target: int, rail: int, spine: int) -> list[str]:
        """Links from NIC to NIC."""
        leaf, far = (f"leaf{rail}-{host % self.pods}" for host in (source, target))
        walk = [self.nic(source, rail), leaf]
        walk += [f"spine{spine}", far] if leaf != far else []
        walk.append(self.nic(target, rail))
        return [f"{a}->{b}" for a, b in pairwise(walk)]

    def _links(self) -> None:
        nics = [self.nic(host, rail) for host in range(self.hosts) for rail in range(self.rails)]
        back = [
            hop
            for host in range(self.hosts)
            for rail in range(self.rails)
            for hop in (
                f"{self.nic(host, rail)}->leaf{rail}-{host % self.pods}",
                f"leaf{rail}-{host % self.pods}->{self.nic(host, rail)}",
            )
        ]
        self.link = sorted({hop for path in self.paths for hop in path} | set(back) | set(nics))
        self.at = {name: index for index, name in enumerate(self.link)}
        shape = len(self.link), self.windows
        self.use = self.rng.uniform(0.15, 0.6, (len(self.link), 1)) * self.rng.lognormal(
            0, 0.05, shape
        )
        self.errors = self.rng.poisson(0.02, shape).astype(float)
        self.pause = self.rng.uniform(0, 0.004, shape) * (self.rng.random() < 0.5)
        self.downs, self.up = np.zeros(shape), np.ones(shape)
        self.speed, self.planned = np.ones(shape), np.zeros(shape)
        self.lanes = np.full(shape, 16.0)

    def _ranks(self, fault: str) -> None:
        rng = self.rng
        self.per_step = int(rng.integers(1, 4))
        self.period = float(rng.uniform(0.4, 1.5)) * self.width
        self.steps = max(int(self.windows * self.width / self.period), 12)
        if fault == "hang":
            self.steps = max(12, self.steps // 2)
        self.period = self.windows * self.width / self.steps
        shape = self.ranks, self.steps
        self.compute = self.period * 0.55 * rng.lognormal(0, self.sigma * 0.3, shape)
        self.data = self.period * 0.01 * rng.lognormal(0, 0.3, shape)
        self.save = np.zeros(shape)
        self.work = np.full(shape, 8192.0)
        self.comm = self.period * 0.4 * rng.lognormal(0, 0.03, self.steps)
        self.waits = {
            name: rng.lognormal(0, 0.25, shape) * self.period * share
            for name, share in (
                ("gpu_wait_ns", 0.03),
                ("credit_wait_ns", 0.01),
                ("net_wait_ns", 0.1),
                ("recv_wait_ns", 0.1),
                ("flush_wait_ns", 0.01),
                ("consume_wait_ns", 0.02),
            )
        }
        hosts, gpus = (self.hosts, self.windows), (self.ranks, self.windows)
        self.runq = rng.lognormal(-6, 0.5, hosts)
        self.mhz = 1755 * rng.uniform(0.98, 1.0, gpus)
        self.reason = np.full(gpus, "", dtype=object)
        self.xid, self.ecc = np.zeros(gpus), np.zeros(gpus)
        self.hang: tuple[str, int] | None = None

    def step_of(self, window: int) -> int:
        """The step that runs when a window begins."""
        return min(int(window * self.width / self.period), self.steps - 1)

    @property
    def during(self) -> slice:
        """Steps in which the fault is there."""
        return slice(self.step_of(self.on), self.step_of(self.off) + 1)

    def across(self, link: str) -> NDArray[np.int64]:
        """Flows that cross a link."""
        return np.array([index for index, path in enumerate(self.paths) if link in path])

    def slower(self, factor: float) -> None:
        """All ranks wait for the slowest flow."""
        self.comm[self.during] *= factor


def make_case(fault: str, seed: int) -> Case:
    """One case; an empty fault is a job in which nothing is wrong."""
    from bench.diagnosis.drawn_faults import FAULTS, QUIET

    draft = Draft(seed, fault)
    quiet = QUIET[int(draft.rng.integers(len(QUIET)))]
    try:
        subject = FAULTS[fault](draft) if fault else quiet(draft)
    except Unfit:
        return make_case(fault, seed + OTHER)
    onset_ns = draft.begin + draft.on * draft.width
    tables = {
        "flows": _flow_table(draft),
        "probes": _probe_table(draft),
        "links": _link_table(draft),
        "hosts": _host_table(draft),
        **_rank_tables(draft),
    }
    variant = f"h{draft.hosts}r{draft.rails}c{draft.channels}s{draft.sigma:.2f}"
    variant += "" if fault else f"/{quiet.__name__}"
    return Case(tables, draft.manifest, Truth(fault, subject, onset_ns if fault else 0, variant))


def _long(draft: Draft, count: int) -> Columns:
    at = draft.begin + np.arange(draft.windows) * draft.width
    return {
        "at_ns": np.tile(at, count).tolist(),
        "window_ns": [draft.width] * (count * draft.windows),
    }


def _each(values: Any, draft: Draft) -> list[Any]:
    return np.repeat(np.asarray(values), draft.windows).tolist()


def _thin(draft: Draft, table: Columns, share: float) -> Columns:
    """Lose some rows, as recorders do."""
    count = len(table["at_ns"])
    keep = np.flatnonzero(draft.rng.random(count) >= share)
    return {name: [column[index] for index in keep] for name, column in table.items()}


def _flow_table(draft: Draft) -> Columns:
    a, b, rail, channel = draft.flow.T
    skew = draft.offset[b, rail] - draft.offset[a, rail]
    table = _long(draft, draft.count)
    names = [f"qp{index * 7 + 100}" for index in range(draft.count)]
    table |= {
        "flow": _each(names, draft),
        "src": _each([draft.nic(*each) for each in zip(a, rail, strict=True)], draft),
        "dst": _each([draft.nic(*each) for each in zip(b, rail, strict=True)], draft),
        "hops": [path for path in draft.paths for _ in range(draft.windows)],
        "rail": _each([f"rail{each}" for each in rail], draft),
        "channel": _each(channel.astype(float), draft),
        "rank": _each((a * draft.rails + rail).astype(float), draft),
        "peer_rank": _each((b * draft.rails + rail).astype(float), draft),
        "bytes": draft.sent.ravel().tolist(),
        "rate_bps": draft.rate.ravel().tolist(),
        "owd_p50_ns": (draft.p50 + skew).ravel().tolist(),
        "owd_p99_ns": (draft.p50 * draft.tail + skew).ravel().tolist(),
        "retransmits": draft.again.ravel().tolist(),
        "cqe_errors": draft.cqe.ravel().tolist(),
        "credit_blocked_ns": (draft.credit * draft.width).ravel().tolist(),
        "poll_gap_ns": draft.gap.ravel().tolist(),
        "clk_err_ns": [80.0] * (draft.count * draft.windows),
    }
    table |= {name: _each(values, draft) for name, values in draft.flow_roce.items()}
    moved = getattr(draft, "moved", None)
    if moved:
        for index, (path, src, dst, where) in moved.items():
            for window in range(draft.on, draft.windows):
                row = index * draft.windows + window
                table["hops"][row], table["src"][row], table["dst"][row] = path, src, dst
                table["rail"][row] = where
    return _thin(draft, table, float(draft.rng.choice([0.0, 0.03])))


def _probe_table(draft: Draft) -> Columns:
    rng = draft.rng
    pairs = sorted({(min(a, b), max(a, b), rail) for a, b, rail, _ in draft.flow.tolist()})
    streams = [
        (a, b, rail, kind)
        for x, y, rail in pairs
        for a, b in ((x, y), (y, x))
        for kind in range(1 + bool(draft.matched_slow))
    ]
    table = _long(draft, len(streams))
    delay, hops = [], []
    for a, b, rail, kind in streams:
        path = draft.path(a, b, rail, int(rng.integers(draft.spines)))
        base = float(draft.base.min()) + 400.0 * len(path)
        row = base * rng.lognormal(0, draft.sigma, draft.windows)
        skew = draft.offset[b, rail] - draft.offset[a, rail]
        waits = getattr(draft, "waiting", {})
        row[draft.time] += sum(waits.get(hop, 0.0) for hop in path)
        if kind and a in draft.matched_slow:
            row[draft.time] += draft.slow_ns  # type: ignore[attr-defined]
        delay.append(row + skew)
        hops.append(path)
    table |= {
        "src": _each([draft.nic(a, rail) for a, _, rail, _ in streams], draft),
        "dst": _each([draft.nic(b, rail) for _, b, rail, _ in streams], draft),
        "owd_p50_ns": np.concatenate(delay).tolist(),
        "sent": [50.0] * (len(streams) * draft.windows),
        "lost": [0.0] * (len(streams) * draft.windows),
        "hops": [path for path in hops for _ in range(draft.windows)],
        "clk_err_ns": [80.0] * (len(streams) * draft.windows),
    }
    del table["window_ns"]
    wrong = getattr(draft, "wrong", {})
    for name, value in draft.probe_roce.items():
        table[name] = _each(
            [wrong.get(name, value) if kind else value for *_, kind in streams], draft
        )
    return _thin(draft, table, 0.02)


def _link_table(draft: Draft) -> Columns:
    table = _long(draft, len(draft.link))
    nic = np.array(["->" not in name for name in draft.link])
    flat = {
        "utilisation": np.minimum(draft.use, 1.0),
        "symbol_errors": draft.errors,
        "pause_ns": draft.pause * draft.width,
        "downs": draft.downs,
        "speed_bps": draft.speed * draft.line,
    }
    table |= {name: values.ravel().tolist() for name, values in flat.items()}
    size = len(draft.link) * draft.windows
    lanes = np.where(nic[:, None], draft.lanes, np.nan).ravel()
    table |= {
        "link": _each(draft.link, draft),
        "nominal_bps": [draft.line] * size,
        "up": (draft.up.ravel() > 0).tolist(),
        "planned": (draft.planned.ravel() > 0).tolist(),
        "pcie_width": [None if np.isnan(each) else each for each in lanes],
        "pcie_gts": _each([32.0 if each else None for each in nic], draft),
    }
    if draft.rng.random() < 0.5:
        table["pcie_max_width"] = _each([16.0 if each else None for each in nic], draft)
        table["pcie_max_gts"] = _each([32.0 if each else None for each in nic], draft)
    return table


def _host_table(draft: Draft) -> Columns:
    hosts = _long(draft, draft.hosts)
    size = draft.hosts * draft.windows
    hosts |= {
        "host": _each(draft.host_names, draft),
        "gpu": [None] * size,
        "runq_ns": (draft.runq * draft.width).ravel().tolist(),
        "sm_clock_mhz": [None] * size,
        "throttle": [None] * size,
        "xid": [None] * size,
        "ecc_errors": [None] * size,
    }
    gpus = _long(draft, draft.ranks)
    gpus |= {
        "host": _each([f"h{rank // draft.rails}" for rank in range(draft.ranks)], draft),
        "gpu": _each([f"GPU-{rank:04d}" for rank in range(draft.ranks)], draft),
        "runq_ns": [None] * (draft.ranks * draft.windows),
        "sm_clock_mhz": draft.mhz.ravel().tolist(),
        "throttle": draft.reason.ravel().tolist(),
        "xid": [each or None for each in draft.xid.ravel().tolist()],
        "ecc_errors": draft.ecc.ravel().tolist(),
    }
    return {name: hosts[name] + gpus[name] for name in hosts}


def _rank_tables(draft: Draft) -> dict[str, Columns]:
    """Collectives and steps: everybody waits for the last at each."""
    rows: Columns = {
        name: []
        for name in (
            "comm",
            "seq",
            "op",
            "rank",
            "host",
            "gpu",
            "enqueue_ns",
            "done_ns",
            "bytes",
            "nranks",
            "step",
            *draft.waits,
        )
    }
    steps: Columns = {
        name: []
        for name in (
            "step",
            "rank",
            "begin_ns",
            "end_ns",
            "work",
            "data_ns",
            "compute_ns",
            "comm_ns",
            "checkpoint_ns",
        )
    }
    ready: Floats = np.full(draft.ranks, float(draft.begin))
    everyone = np.arange(draft.ranks)
    for step in range(draft.steps):
        begun, own = ready.copy(), draft.compute[:, step] / draft.per_step
        waited = np.zeros(draft.ranks)
        for part in range(draft.per_step):
            enqueue = ready + own + (draft.data[:, step] + draft.save[:, step]) * (part == 0)
            stuck = draft.hang is not None and step >= draft.step_of(draft.on)
            done = (
                enqueue.max()
                + draft.comm[step] / draft.per_step
                + draft.rng.uniform(0, 2000, draft.ranks)
            )
            missing = draft.hang[1] if stuck and draft.hang and draft.hang[0] == "hang" else -1
            odd = draft.hang[1] if stuck and draft.hang and draft.hang[0] == "desync" else -1
            here = everyone[everyone != missing]
            seq = step * draft.per_step + part
            rows["comm"] += ["world"] * len(here)
            rows["seq"] += [seq] * len(here)
            rows["op"] += ["all_gather" if rank == odd else "reduce_scatter" for rank in here]
            rows["rank"] += here.tolist()
            rows["host"] += [f"h{rank // draft.rails}" for rank in here]
            rows["gpu"] += [f"GPU-{rank:04d}" for rank in here]
            rows["enqueue_ns"] += enqueue[here].astype(np.int64).tolist()
            rows["done_ns"] += [None] * len(here) if stuck else done[here].astype(np.int64).tolist()
            rows["bytes"] += [float(1 << 26)] * len(here)
            rows["nranks"] += [float(draft.ranks)] * len(here)
            rows["step"] += [float(step)] * len(here)
            for name, values in draft.waits.items():
                extra = enqueue.max() - enqueue if name == "recv_wait_ns" else 0 * enqueue
                rows[name] += (values[:, step] + extra)[here].tolist()
            if stuck:
                return {"collectives": rows, "steps": steps}
            waited += done - enqueue
            ready = np.asarray(done, dtype=np.float64)
        for name, each in (
            ("step", np.full(draft.ranks, step)),
            ("rank", everyone),
            ("begin_ns", begun.astype(np.int64)),
            ("end_ns", ready.astype(np.int64)),
            ("work", draft.work[:, step]),
            ("data_ns", draft.data[:, step]),
            ("compute_ns", draft.compute[:, step]),
            ("comm_ns", waited),
            ("checkpoint_ns", draft.save[:, step]),
        ):
            steps[name] += each.tolist()
    return {"collectives": rows, "steps": steps}
