"""What a recorder writes of an irregular job: tables, with the holes of its kind."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from tests.workload.irregular import MS, F, Fault, Job, Pair, S, placed

from syntony.io.bundle_files import arrow_type, bundle_from_tables
from syntony.workload import Bundle
from syntony.workload.schema import FORMAT, TABLES, VERSION

TYPES = {table: {column.name: column.kind for column in each} for table, each in TABLES.items()}
WRAP = 2.0**32


class Recorder:
    """What was recorded of a job: its tables."""

    def __init__(self, job: Job) -> None:
        self.job, self.rng = job, random.Random(f"recorder {job.begin}")
        self.fault = job.fault or Fault("", "")
        ends = [row["enqueue_ns"] for row in job.rows["collectives"]]
        self.end_ns = max(ends) + (20 * S if self.fault.name == F.HANG else 1 * MS)
        self.windows = int((self.end_ns - job.begin) // job.window_ns) + 1
        self.base_ns = self.rng.uniform(500, 1500)
        self.noise = self.rng.uniform(0.01, 0.06)
        self.times = self.rng.uniform(12, 40)

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """All of them, as columns."""
        rows = {
            "collectives": self.job.rows["collectives"], "steps": self.job.rows["steps"],
            "flows": self._flows(), "probes": self._probes(), "links": self._links(),
            "hosts": self._hosts(),
        }  # fmt: skip
        if self.job.kind == "unknown-clock":
            self._clock(rows)
        if self.job.kind == "counters":
            self._counters(rows)
        return {name: _columns(name, found) for name, found in rows.items() if found}

    def _at(self, window: int) -> int:
        return self.job.begin + window * self.job.window_ns

    def _on(self, window: int) -> bool:
        return bool(self.fault.name) and self._at(window) >= self.job.onset_ns > 0

    def _slow(self, pair: Pair, window: int) -> bool:
        return self._on(window) and pair in self.fault.slow

    def _flows(self) -> list[dict[str, Any]]:
        found, job, rng = [], self.job, self.rng
        for (pair, window), (size, busy) in sorted(job.sent.items()):
            flow = job.flow(pair)
            delay = self.base_ns * len(flow.hops) * rng.lognormvariate(0, self.noise)
            delay *= 1 + 0.3 * rng.random() * (job.kind == "experts")
            slow, gap, lost = self._slow(pair, window), 1e5, float(rng.random() < 0.01)
            waits = slow and self.fault.name != F.BAD_LINK
            if waits:
                delay *= self.times * rng.uniform(0.8, 1.2)
            if slow and not waits:
                lost = float(rng.randrange(20, 200))
            ends = {job.host(flow.src), job.host(flow.dst)}
            if self._on(window) and self.fault.name == F.HOST_JITTER and self.fault.subject in ends:
                gap *= rng.uniform(20, 60)
            found.append({
                "flow": flow.name, "at_ns": self._at(window), "window_ns": job.window_ns,
                "src": job.nic(flow.src), "dst": job.nic(flow.dst), "bytes": size,
                "rate_bps": size * 8 * S / busy, "owd_p50_ns": delay,
                "owd_p99_ns": delay * rng.uniform(1.1, 2), "hops": flow.hops, "rank": flow.src,
                "peer_rank": flow.dst, "channel": pair[2], "proto": "rc", "retransmits": lost,
                "rail": f"rail{flow.src % job.gpus}", "cqe_errors": 0.0,
                "credit_blocked_ns": rng.uniform(0, 0.01) * job.window_ns,
                "poll_gap_ns": gap * rng.lognormvariate(0, 0.3), "clk_err_ns": 50.0,
            })  # fmt: skip
        return found

    def _probes(self) -> list[dict[str, Any]]:
        found, rng, job = [], self.rng, self.job
        ends = {(job.nic(flow.src), job.nic(flow.dst)): (pair, flow)
                for pair, flow in job.flows.items()}  # fmt: skip
        for window in range(self.windows):
            for (src, dst), (pair, flow) in ends.items():
                delay = self.base_ns * len(flow.hops) * rng.lognormvariate(0, self.noise)
                slow = self._slow(pair, window) and self.fault.name != F.SLOW_FLOW
                waits = slow and self.fault.name != F.BAD_LINK
                found.append({
                    "at_ns": self._at(window), "src": src, "dst": dst, "sent": 20,
                    "lost": float(slow and not waits and rng.randrange(3)),
                    "owd_p50_ns": delay * (self.times if waits else 1.0),
                    "owd_p99_ns": delay * 1.5 * (self.times if waits else 1.0),
                    "hops": flow.hops, "clk_err_ns": 50.0,
                })  # fmt: skip
        return found

    def _links(self) -> list[dict[str, Any]]:
        found, rng, job = [], self.rng, self.job
        use = {hop: rng.uniform(0.05, 0.5) for flow in job.flows.values() for hop in flow.hops}
        nics = sorted({job.nic(rank) for rank in range(job.ranks)})
        for window in range(self.windows):
            stamp = {"at_ns": self._at(window), "window_ns": job.window_ns, "up": True}
            for link, usual in use.items():
                full = self._on(window) and self.fault.name in {F.CONTENTION, F.INCAST} and (
                    link.endswith(self.fault.subject))  # fmt: skip
                found.append(stamp | {
                    "link": link, "downs": 0.0, "pause_ns": 0.0,
                    "utilisation": 0.97 if full else min(0.7, usual * rng.uniform(0.7, 1.3)),
                    "symbol_errors": float(rng.random() < 0.02),
                })  # fmt: skip
            for nic in nics:
                down = self._flaps(window, nic)
                found.append(stamp | {
                    "link": nic, "downs": float(down), "speed_bps": job.line_bps,
                    "nominal_bps": job.line_bps, "symbol_errors": float(rng.random() < 0.02),
                })  # fmt: skip
        return found

    def _flaps(self, window: int, nic: str) -> bool:
        since = window - (int(self.job.onset_ns) - self.job.begin) // self.job.window_ns
        flaps = self._on(window) and self.fault.name == F.FLAPPING and nic == self.fault.subject
        return flaps and since % 3 == 1

    def _hosts(self) -> list[dict[str, Any]]:
        found, rng, job = [], self.rng, self.job
        for window in range(self.windows):
            stamp = {"at_ns": self._at(window), "window_ns": job.window_ns}
            for number in range(job.hosts):
                starved = self._on(window) and f"n{number}" == self.fault.subject
                waits = rng.uniform(0.2, 0.5) if starved else rng.uniform(0.001, 0.01)
                found.append(stamp | {"host": f"n{number}", "runq_ns": waits * job.window_ns,
                                      "clk_state": "SYNCHRONIZED", "clk_err_ns": 50.0})  # fmt: skip
            for rank in range(job.ranks):
                hot = self._on(window) and f"GPU-{rank}" == self.fault.subject
                found.append(stamp | {
                    "host": job.host(rank), "gpu": f"GPU-{rank}", "ecc_errors": 0.0,
                    "sm_clock_mhz": (1200 if hot else 1750) * rng.uniform(0.98, 1.0),
                    "throttle": "hw_thermal_slowdown" if hot else "",
                })  # fmt: skip
        return found

    def _clock(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        """Instants of one host are off, by a step or more and more, and its clock says so."""
        rng = self.rng
        host = f"n{rng.randrange(self.job.hosts)}"
        step_ns = rng.choice((-1, 1)) * rng.choice((5, 50, 500)) * MS * rng.uniform(0.5, 1)
        drift = rng.choice((0.0, 2e-4, -1e-3))

        def off(at_ns: float) -> float:
            return step_ns + drift * (at_ns - self.job.begin)

        for table in ("collectives", "steps"):
            for number, row in enumerate(rows[table]):
                if row["host"] == host:
                    names = [each for each in row if each.endswith("_ns") and each not in
                             {"data_ns", "checkpoint_ns"} and row[each] is not None]  # fmt: skip
                    rows[table][number] = row | {each: row[each] + off(row[each]) for each in names}
        for table in ("flows", "probes"):
            for row in rows[table]:
                sign = row["dst"].startswith(host + "/") - row["src"].startswith(host + "/")
                for name in ("owd_p50_ns", "owd_p99_ns"):
                    row[name] += sign * off(row["at_ns"])
        for row in rows["hosts"]:
            if row["host"] == host and "gpu" not in row:
                row |= {"clk_state": "UNKNOWN", "clk_err_ns": None}

    def _counters(self, rows: dict[str, list[dict[str, Any]]]) -> None:
        """One NIC has no counters, others' wrap, some columns nobody has."""
        rng, job = self.rng, self.job
        names = {
            "flows": ["retransmits", "cqe_errors", "credit_blocked_ns", "poll_gap_ns", "bytes"],
            "links": ["symbol_errors", "downs", "utilisation", "pause_ns"],
        }
        mute, wrapping = rng.sample(range(job.ranks), 2)
        needed = {F.BAD_LINK: "retransmits", F.FLAPPING: "downs", F.HOST_JITTER: "poll_gap_ns",
                  F.CONTENTION: "utilisation", F.INCAST: "utilisation"}  # fmt: skip
        for table, columns in names.items():
            absent = {each for each in columns if rng.random() < 0.3}
            absent.discard(needed.get(self.fault.name, ""))  # type: ignore[call-overload]
            for row in rows[table]:
                named = self.fault.subject in {*row.values(), *row.get("hops", ())} - {""}
                whole = not named and job.nic(mute) in row.values()
                for each in ({*columns} if whole else absent) & row.keys():
                    row[each] = None
                if job.nic(wrapping) in row.values() and rng.random() < 0.04:
                    for each in {"retransmits", "symbol_errors", "bytes"} & row.keys():
                        if row[each] is not None:
                            row[each] -= WRAP


def _columns(table: str, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = {name: None for row in rows for name in row}
    whole = {"enqueue_ns", "done_ns", "begin_ns", "end_ns"}
    found = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name in whole:
            values = [None if each is None else round(each) for each in values]
        if any(each is not None for each in values):
            found[name] = values
    return found


def job_and_fault(kind: str, fault: str, seed: int) -> tuple[Bundle, Fault]:
    """A recording, and what is wrong in it; `NoPlace` if the job cannot have the fault."""
    job = Job(kind, seed)
    job.runs()
    if fault:
        job = Job(kind, seed, placed(job, fault, random.Random(f"{kind} {fault} {seed}")))
        job.runs()
    recorder = Recorder(job)
    manifest = {
        "format": FORMAT, "version": VERSION, "job": "night", "timeline": "fleet",
        "begin_ns": job.begin, "end_ns": round(recorder.end_ns),
    }  # fmt: skip
    arrow = {
        table: pa.table({name: pa.array(values, arrow_type(TYPES[table][name]))
                         for name, values in columns.items()})
        for table, columns in recorder.tables().items()
    }  # fmt: skip
    return bundle_from_tables(arrow, manifest), job.fault or Fault("", "")
