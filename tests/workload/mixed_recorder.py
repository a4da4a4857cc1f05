"""What a recorder writes of the jobs of a mixed fleet (`mixed_jobs`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from tests.workload.mixed_jobs import MS, US, Broken, Flow, MixedJob, S

from syntony.io.bundle_files import arrow_type, bundle_from_tables
from syntony.workload import Bundle
from syntony.workload import FaultClass as F
from syntony.workload.schema import FORMAT, TABLES, VERSION


class RecordedJob(MixedJob):
    """A job and its tables."""

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        skew = self.has(F.CLOCK_FAULT, self.until)
        self._record_flows(skew)
        used = sorted({link for flow, _ in self.sent for link in self.path(flow)})
        for window, link in itertools.product(range(self.windows), used):
            self._record_link(link, self.begin + window * self.width, window)
        for window, host in itertools.product(range(self.windows), range(self.hosts)):
            self._record_host(host, self.begin + window * self.width)
        for each in self.rows["collectives"]:
            if skew and each["enqueue_ns"] >= self.onset and each["host"] == skew.subject:
                each["enqueue_ns"] += self._skew(skew, each["enqueue_ns"])
                each["done_ns"] = each["done_ns"] and each["done_ns"] + self._skew(
                    skew, each["done_ns"])  # fmt: skip
        return self.rows

    def _skew(self, skew: Broken, at: float) -> float:
        """It runs away."""
        return 5 * US * skew.size * (1 + (at - self.onset) / S)

    def _record_flows(self, skew: Broken | None) -> None:
        rng = self.rng
        probes = sorted({pair for flow, _ in self.sent for pair in (flow[:2], flow[1::-1])})
        for (flow, window), parts in sorted(self.sent.items()):
            at = self.begin + window * self.width
            size, busy = sum(each[0] for each in parts), sum(each[1] for each in parts)
            waits = sorted(each[2] for each in parts)
            lossy = (each := self.has(F.BAD_LINK, at)) and each.subject in self.path(flow)
            starved = (each := self.has(F.HOST_JITTER, at)) and self.host(each.rank) in {
                self.host(rank) for rank in flow[:2]}  # fmt: skip
            held = self.has(F.SLOW_RECEIVER, at, flow[1])
            self.rows["flows"].append({
                "flow": self.name(flow), "at_ns": at, "window_ns": self.width, "bytes": size,
                "src": self.nic(flow[0]), "dst": self.nic(flow[1]), "rate_bps": size * 8e9 / busy,
                "owd_p50_ns": waits[len(waits) // 2] + self._offset(flow, at, skew),
                "owd_p99_ns": waits[-1] + self._offset(flow, at, skew), "hops": self.path(flow),
                "rank": flow[0], "peer_rank": flow[1], "proto": "rc", "channel": flow[2],
                "rail": f"bond{flow[0] % self.gpus}", "clk_err_ns": 60.0,
                "retransmits": float(rng.randrange(5, 60) if lossy else rng.random() < 0.02),
                "credit_blocked_ns": self.width * (0.3 if held else 0.002) * rng.uniform(0.7, 1.3),
                "poll_gap_ns": 50 * US * rng.lognormvariate(0, 0.4) * (40 if starved else 1),
            })  # fmt: skip
        for window, pair in itertools.product(range(self.windows), probes):
            flow = (*pair, 0)
            at = self.begin + window * self.width
            full = [self.marks * 8e9 / self.link_bps(link) * rng.uniform(0.6, 1.4)
                    for link in self.path(flow) if self.foreign(link, at)]  # fmt: skip
            delay = self.hop_ns * len(self.path(flow)) + sum(full)
            lossy = (each := self.has(F.BAD_LINK, at)) and each.subject in self.path(flow)
            delay += self._offset(flow, at, skew)
            self.rows["probes"].append({
                "at_ns": at, "src": self.nic(pair[0]), "dst": self.nic(pair[1]), "sent": 100.0,
                "lost": float(sum(rng.random() < 0.01 for _ in range(100)) if lossy else 0),
                "owd_p50_ns": delay * rng.lognormvariate(0, 0.01),
                "owd_p99_ns": delay * rng.uniform(1.2, 2), "hops": self.path(flow),
            })  # fmt: skip

    def _offset(self, flow: Flow, at: float, skew: Broken | None) -> float:
        if skew is None or at < self.onset:
            return 0.0
        own = [self.host(rank) == self.host(skew.rank) for rank in flow[:2]]
        return self._skew(skew, at) * (own[1] - own[0])

    def _record_link(self, link: str, at: int, window: int) -> None:
        bps, nics = self.link_bps(link), [end for end in link.split(">") if "/" in end]
        used = self.load[link, window] * 8e9 / (bps * self.width)
        if self.foreign(link, at):
            used = self.rng.uniform(0.93, 1)
        broken = (each := self.has(F.BAD_LINK, at)) and each.subject == link
        self.rows["links"].append({
            "at_ns": at, "window_ns": self.width, "link": link, "up": True, "downs": 0.0,
            "speed_bps": bps, "nominal_bps": bps, "utilisation": min(1.0, used), "pause_ns": 0.0,
            "symbol_errors": float(self.rng.randrange(10, 200) if broken else 0),
        })  # fmt: skip
        if nics and link.startswith(nics[0]):
            slot = (each := self.has(F.PCIE, at)) and each.subject == nics[0]
            self.rows["links"].append({
                "at_ns": at, "window_ns": self.width, "link": nics[0], "up": True, "downs": 0.0,
                "speed_bps": bps, "nominal_bps": bps, "pcie_width": 4.0 if slot else 16.0,
                "pcie_max_width": 16.0,
            })  # fmt: skip

    def _record_host(self, host: int, at: int) -> None:
        rng, starved = self.rng, self.has(F.HOST_JITTER, at)
        wait = 0.4 if starved and self.host(starved.rank) == host else 0.01
        self.rows["hosts"].append({
            "at_ns": at, "window_ns": self.width, "host": f"n{host}", "clk_state": "SYNCHRONIZED",
            "runq_ns": self.width * wait * rng.uniform(0.7, 1.3), "cpu_ns": self.width * 0.6,
        })  # fmt: skip
        cold = 1 - self.warm * min(1.0, (at - self.begin) / (0.5 * (self.until - self.begin)))
        for rank in range(host * self.gpus, (host + 1) * self.gpus):
            hot = self.has(F.GPU_THROTTLE, at, rank)
            self.rows["hosts"].append({
                "at_ns": at, "window_ns": self.width, "host": f"n{host}", "gpu": f"GPU-{rank}",
                "sm_clock_mhz": 1900 * cold / self.speed[rank] / (hot.size if hot else 1),
                "throttle": "hw_thermal_slowdown" if hot else "sw_power_cap" * (cold < 1),
                "xid": None, "ecc_errors": 0.0,
            })  # fmt: skip


def mixed(
    seed: int, faults: Sequence[F] = (), *, kind: str = "", without: Iterable[str] = (),
    unknown: bool = False, until: int | None = None,
) -> tuple[MixedJob, Bundle]:  # fmt: skip
    """A job and its bundle.

    Args:
        seed: of the job.
        faults: what breaks.
        kind: of `KINDS`; empty: drawn.
        without: tables that are missing.
        unknown: the clock of one host is UNKNOWN, and wrong by milliseconds.
        until: the recording ends so many windows after the onset.
    """
    job = RecordedJob(seed, faults, kind)
    job.runs()
    rows = job.tables()
    if unknown:
        _unknown(job, rows)
    end = job.until if until is None else min(job.until, job.onset + until * job.width)
    tables = {}
    for name, some in rows.items():
        if name in without:
            continue
        begins = {"steps": "end_ns", "collectives": "enqueue_ns"}.get(name, "at_ns")
        kept = [each for each in some if each[begins] < end]
        for each in kept:
            if name == "collectives" and each["done_ns"] and each["done_ns"] >= end:
                each["done_ns"] = None
        kinds = {column.name: column.kind for column in TABLES[name]}
        tables[name] = pa.table({
            column: pa.array([_typed(kinds[column], each.get(column)) for each in kept],
                             arrow_type(kinds[column]))
            for column in {key: None for each in kept for key in each}
        })  # fmt: skip
    manifest = {"format": FORMAT, "version": VERSION, "job": "mixed", "timeline": "fleet",
                "begin_ns": job.begin, "end_ns": end}  # fmt: skip
    return job, bundle_from_tables(tables, manifest)


def _typed(kind: str, value: Any) -> Any:
    if value is None:
        return None
    kinds: dict[str, Any] = {"instant": round, "whole": round, "number": float, "names": list}
    return kinds[kind](value) if kind in kinds else value


def _unknown(job: MixedJob, rows: Mapping[str, list[dict[str, Any]]]) -> None:
    host, offset = f"n{job.rng.randrange(job.hosts)}", job.rng.uniform(-5, 5) * MS
    for each in rows["hosts"]:
        if each["host"] == host and "clk_state" in each:
            each["clk_state"] = "UNKNOWN"
    for each in (*rows["flows"], *rows["probes"]):
        sign = (each["dst"].startswith(f"{host}/")) - (each["src"].startswith(f"{host}/"))
        for name in ("owd_p50_ns", "owd_p99_ns"):
            each[name] += sign * offset
    for each in rows["collectives"]:
        if each["host"] == host:
            each["enqueue_ns"] += offset
            each["done_ns"] = each["done_ns"] and each["done_ns"] + offset
