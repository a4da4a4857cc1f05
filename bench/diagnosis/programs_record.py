"""What a recorder writes of a program of the fifth generator."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from bench.diagnosis.case import Columns, Rows
from bench.diagnosis.programs import S
from bench.diagnosis.programs_ends import deaths

if TYPE_CHECKING:
    from bench.diagnosis.programs import Program

WAITS_S, READING_NS = 12.0, 2 * int(S)
"""A job that hangs is recorded for so long; and the interval of readings of processes."""


def _end_ns(job: Program) -> float:
    ends = deaths(job)
    if len(ends) == job.size:
        return max(each.at for each in ends.values())
    return max(job.now) + WAITS_S * S if job.stuck else min(max(job.now), job.end)


def manifest_of(job: Program, begin_ns: int) -> dict[str, Any]:
    """The bundle's manifest."""
    return {
        "format": "syntony-bundle", "version": 1, "job": "llm", "timeline": "fleet",
        "begin_ns": begin_ns, "end_ns": begin_ns + round(_end_ns(job)),
    }  # fmt: skip


def tables_of(job: Program, begin_ns: int) -> dict[str, Columns]:
    """The tables. Some recorders do not know links' use, steps, or probes."""
    rng = random.Random(f"record {job.salt}")
    made = {
        "collectives": _collectives(job, begin_ns), "flows": _flows(job, begin_ns, rng),
        "hosts": _hosts(job, begin_ns, rng), "links": _links(job, begin_ns, rng),
        "processes": _processes(job, begin_ns),
    }  # fmt: skip
    if rng.random() < 0.8 or job.fault.name in {"bad-link", "clock-fault"}:
        made["probes"] = _probes(job, begin_ns, rng)
    if job.steps:
        made["steps"] = _steps(job, begin_ns)
    return {name: rows.columns for name, rows in made.items() if rows.count}


def _shift(job: Program, rank: int, at: float) -> float:
    """How far a host's clock is off."""
    wrong = job.broken("clock-fault", at=at) and job.nic(rank) == job.fault.subject
    return job.fault.size if wrong else 0.0


def _collectives(job: Program, begin_ns: int) -> Rows:
    rows = Rows()
    for each in job.operations:
        off = _shift(job, each.rank, each.enqueue)
        rows.add(
            comm=each.comm, seq=each.seq, op=each.op, rank=each.rank, bytes=each.size,
            host=job.nic(each.rank).partition("/")[0], nranks=each.ranks, gpu=f"GPU-{each.rank}",
            enqueue_ns=begin_ns + round(each.enqueue + off),
            done_ns=None if each.done is None else begin_ns + round(each.done + off),
            clk_err_ns=60.0,
        )  # fmt: skip
    return rows


def _flows(job: Program, begin_ns: int, rng: random.Random) -> Rows:
    rows, fault = Rows(), job.fault
    use_hops = rng.random() < 0.95 or fault.name in {"contention", "incast", "bad-link"}
    downs = _downs(job)
    for (name, window), parts in sorted(job.sent.items()):
        (src, dst), links = job.flows[name]
        at = window * job.window
        if at + job.window > job.end:
            continue
        size, busy = sum(each.size for each in parts), sum(each.busy for each in parts)
        waits = sorted(each.waited for each in parts)
        empty = job.base * len(links)
        off = _shift(job, dst, at) - _shift(job, src, at)
        again = float(rng.random() < 0.005)
        if job.broken("bad-link", at=at) and fault.link in links:
            again += sum(rng.random() < fault.size for _ in range(400))
        down = window in downs and fault.subject in (job.nic(src), job.nic(dst))
        blocked = 0.0
        if job.broken("slow-receiver", at=at) and dst == fault.rank:
            blocked = busy * rng.uniform(0.3, 0.6)
        starved = job.broken("host-jitter", at=at) and job.host(fault.rank) in (
            job.host(src), job.host(dst))  # fmt: skip
        rows.add(
            flow=name, at_ns=begin_ns + round(at), window_ns=round(job.window), src=job.nic(src),
            dst=job.nic(dst), bytes=size * (0.3 if down else 1.0),
            rate_bps=size * 8 * S / busy * (0.3 if down else 1.0),
            owd_p50_ns=empty + waits[len(waits) // 2] + off, owd_p99_ns=empty + waits[-1] * 2 + off,
            hops=links if use_hops else None, rank=src, peer_rank=dst,
            rail=job.nic(src).partition("/")[2], proto="rc", clk_err_ns=60.0,
            retransmits=again + 40 * down, credit_blocked_ns=blocked,
            poll_gap_ns=2e5 * rng.lognormvariate(0, 0.3) * (25 if starved else 1),
        )  # fmt: skip
    return rows


def _downs(job: Program) -> set[int]:
    """Windows in which the NIC of a flapping port lost its carrier."""
    if job.fault.name != "flapping":
        return set()
    every = max(3, int(abs(job.fault.size) // job.base) % 7)
    return set(range(int(job.onset // job.window) + 1, int(job.end // job.window), every))


def _probes(job: Program, begin_ns: int, rng: random.Random) -> Rows:
    """Between the NICs of some flows, in both directions, by the flow's own links."""
    rows, windows = Rows(), int(job.end // job.window)
    share = 1.0 if job.fault.name in {"bad-link", "clock-fault"} else 0.6
    pairs = dict(job.flows.values())
    back = {(dst, src): tuple("->".join(reversed(each.split("->"))) for each in reversed(links))
            for (src, dst), links in pairs.items()}  # fmt: skip
    for (src, dst), links in sorted((back | pairs).items()):
        probed = random.Random(f"{job.salt} {sorted((src, dst))}").random() < share
        for window in range(windows if probed else 0):
            at = window * job.window
            here = job.fault.link in links
            lost, waited = 0, rng.expovariate(1 / (0.1 * job.base))
            if here and job.broken("bad-link", at=at):
                lost = sum(rng.random() < job.fault.size for _ in range(40))
            if here and job.broken("contention", "incast", at=at):
                waited += job.queue * rng.uniform(2, 4)
            off = _shift(job, dst, at) - _shift(job, src, at)
            rows.add(
                at_ns=begin_ns + round(at), src=job.nic(src), dst=job.nic(dst), sent=40, lost=lost,
                owd_p50_ns=job.base * len(links) + waited + off, hops=links, clk_err_ns=60.0,
            )  # fmt: skip
    return rows


def _hosts(job: Program, begin_ns: int, rng: random.Random) -> Rows:
    rows, fault = Rows(), job.fault
    for window in range(int(job.end // job.window)):
        at = window * job.window
        common = {"at_ns": begin_ns + round(at), "window_ns": round(job.window)}
        for host in range(job.hosts):
            starved = job.broken("host-jitter", at=at) and host == job.host(fault.rank)
            waits = rng.uniform(0.3, 0.8) if starved else rng.uniform(0.001, 0.01)
            name = job.nic(host * job.gpus).partition("/")[0]
            rows.add(**common, host=name, runq_ns=waits * job.window, clk_state="SYNCHRONIZED",
                     cpu_ns=job.window * rng.uniform(0.3, 0.5))  # fmt: skip
            for rank in range(host * job.gpus, (host + 1) * job.gpus):
                hot = job.broken("gpu-throttle", at=at) and rank == fault.rank
                clock = 1_980 / (fault.size if hot else 1) * rng.uniform(0.99, 1.0)
                rows.add(**common, host=name, gpu=f"GPU-{rank}", sm_clock_mhz=clock,
                         throttle="hw_thermal_slowdown" if hot else "",
                         temperature_c=88.0 if hot else rng.uniform(50, 65))  # fmt: skip
    return rows


def _links(job: Program, begin_ns: int, rng: random.Random) -> Rows:
    rows, fault, downs = Rows(), job.fault, _downs(job)
    known = rng.random() < 0.7
    use = {link for _, links in job.flows.values() for link in links} if known else set()
    for window in range(int(job.end // job.window)):
        at = window * job.window
        common = {
            "at_ns": begin_ns + round(at),
            "window_ns": round(job.window),
            "speed_bps": job.bps,
        }
        for rank in range(job.size):
            down = window in downs and job.nic(rank) == fault.subject
            rows.add(**common, link=job.nic(rank), up=True, downs=float(down), nominal_bps=job.bps)
        for link in sorted(use):
            own = job.carried[link, window] / (job.window * job.bps / 8 / S)
            strange = link == fault.link and job.broken("contention", "incast", at=at)
            lossy = link == fault.link and job.broken("bad-link", at=at)
            rows.add(**common, link=link, up=True, downs=0.0,
                     utilisation=min(0.99, own + strange * (fault.size + 0.2)),
                     symbol_errors=float(rng.randrange(5, 200)) if lossy else 0.0)  # fmt: skip
    return rows


def _processes(job: Program, begin_ns: int) -> Rows:
    """Readings every two seconds, also of ranks that hang, are stopped, or have ended. In some
    fleets how they ended is not visible."""
    rows, end, fault = Rows(), _end_ns(job), job.fault
    stuck, ends = max(job.now) if job.stuck else end, deaths(job)
    visible = random.Random(f"visible {job.salt}").random() < 0.8
    for rank in range(job.size):
        death = ends.get(rank)
        for at in range(0, round(end), READING_NS):
            held = job.stuck and rank == fault.rank and at + READING_NS > stuck
            gone = death is not None and at + READING_NS > death.at
            pid = 1_000 + rank + 500 * sum(each < at for each in job.restarts)
            told = death if gone and visible else None
            rows.add(
                at_ns=begin_ns + at, window_ns=READING_NS, rank=rank, pid=pid,
                host=job.nic(rank).partition("/")[0], state=None if gone else "T" if held else "S",
                ended=gone, lived_ns=max(0.0, death.at - at) if gone and death else None,
                exit_status=told and float(told.status), oom_killed=told and told.oom,
            )  # fmt: skip
            if gone:
                break
    return rows


def _steps(job: Program, begin_ns: int) -> Rows:
    rows = Rows()
    for step, rank, begin, end, waited, saved in job.steps:
        rows.add(
            step=step, rank=rank, begin_ns=begin_ns + round(begin), end_ns=begin_ns + round(end),
            host=job.nic(rank).partition("/")[0], data_ns=waited,
            checkpoint_ns=saved,
        )  # fmt: skip
    return rows
