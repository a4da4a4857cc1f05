"""What a recorder of the third generator's jobs writes: tables, with the columns that it knows."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

from bench.diagnosis.case import Columns, Rows

if TYPE_CHECKING:
    from bench.diagnosis.queued import World

BEGIN_NS = 1_790_000_000_000_000_000
REQUIRED = {
    "collectives": "comm seq op rank host enqueue_ns",
    "flows": "flow at_ns window_ns src dst",
    "probes": "at_ns src dst",
    "links": "at_ns window_ns link",
    "hosts": "at_ns window_ns host",
    "steps": "step rank begin_ns end_ns",
}
NEEDS: dict[str, dict[str, str]] = {
    "slow-flow": {"flows": "owd_p50_ns rate_bps hops"},
    "contention": {"flows": "owd_p50_ns hops", "links": ""},
    "incast": {"flows": "owd_p50_ns hops", "links": ""},
    "bad-link": {"flows": "retransmits hops", "links": "symbol_errors"},
    "flapping": {"links": "downs", "flows": ""},
    "class-mismatch": {"flows": "owd_p50_ns tc sl dscp gid_index roce_version",
                       "probes": "owd_p50_ns tc sl dscp gid_index roce_version"},
    "pfc-storm": {"flows": "owd_p50_ns hops", "links": "pause_ns"},
    "straggler": {"collectives": "done_ns"},
    "gpu-throttle": {"collectives": "done_ns gpu",
                     "hosts": "gpu sm_clock_mhz throttle xid ecc_errors"},
    "host-jitter": {"flows": "poll_gap_ns", "hosts": "runq_ns"},
    "pcie": {"flows": "rate_bps", "links": "pcie_gts pcie_width pcie_max_gts pcie_max_width"},
    "slow-receiver": {"flows": "credit_blocked_ns peer_rank",
                      "collectives": "consume_wait_ns done_ns"},
    "rail-imbalance": {"flows": "rail bytes"},
    "clock-fault": {"probes": "owd_p50_ns clk_err_ns", "flows": "owd_p50_ns clk_err_ns"},
    "data-stall": {"steps": "data_ns checkpoint_ns"},
    "hang": {"collectives": "done_ns", "flows": ""},
    "reduced-capacity": {"flows": "rate_bps hops", "links": "up"},
}  # fmt: skip
"""Columns without which the class cannot be told (docs/reference/bundle.md, "Needs")."""
KEEP = (1.0, 0.75, 0.4, 0.0)
"""Of the other columns, how many a recorder knows."""


def record(world: World, probes: list[dict[str, Any]]) -> tuple[dict[str, Columns], Any, int]:
    """Tables, manifest, and the instant at which the simulation begins, in ns."""
    rng = world.rng
    begin_ns = BEGIN_NS + rng.randrange(10**15)
    rows = {"collectives": _collectives(world, begin_ns), "flows": _flows(world, begin_ns),
            "probes": _probes(world, begin_ns, probes), "links": _links(world, begin_ns),
            "hosts": _hosts(world, begin_ns), "steps": _steps(world, begin_ns)}  # fmt: skip
    faults = {world.fault} if world.fault else {rng.choice(list(NEEDS))}
    faults |= world.kept
    tables = {}
    keep = rng.choice(KEEP)
    lost = rng.choice((0.0, 0.0, 0.05))
    for name, made in rows.items():
        needed = set(REQUIRED[name].split())
        used = [NEEDS[fault][name].split() for fault in faults if name in NEEDS[fault]]
        if (not used and rng.random() > max(keep, 0.5)) or not made.count:
            continue
        columns = made.columns
        needed |= {each for names in used for each in names}
        if world.keep_work and name == "steps":
            needed.add("work")
        if world.planned and name == "links":
            needed.add("planned")
        kept = {each: values for each, values in columns.items()
                if each in needed or rng.random() < keep}  # fmt: skip
        tables[name] = _thin(kept, lost, rng) if name in {"flows", "probes"} else kept
    end_ns = begin_ns + round(world.length * world.dilation)
    if world.hangs:
        quiet = [row["enqueue"] for row in world.job.rows]
        end_ns = max(end_ns, begin_ns + round(max(quiet) * world.dilation)
                     + round(max(8e9, 15 * world.compute * 3 * world.dilation)))  # fmt: skip
    manifest = {"format": "syntony-bundle", "version": 1, "job": world.name,
                "begin_ns": begin_ns, "end_ns": end_ns}  # fmt: skip
    return tables, manifest, begin_ns


def _thin(columns: Columns, lost: float, rng: random.Random) -> Columns:
    count = len(next(iter(columns.values())))
    if not lost:
        return columns
    kept = [row for row in range(count) if rng.random() >= lost]
    return {name: [values[row] for row in kept] for name, values in columns.items()}


def _collectives(world: World, begin_ns: int) -> Rows:
    rows, rng, k = Rows(), world.rng, world.dilation
    size = rng.uniform(1e6, 1e9)
    for row in world.job.rows:
        rank, done = row["rank"], row["done"]
        took = (done - row["enqueue"]) if done is not None else 0.0
        consume = world.service * rng.uniform(0.8, 1.2) * (
            8 if rank == world.consumes_late and world.active(row["enqueue"]) else 1)  # fmt: skip
        nic = world.fabric.nic(rank // world.job.gpus, rank % world.fabric.rails)
        narrow = nic in world.slot and world.active(row["enqueue"])
        rows.add(
            comm=row["comm"], seq=row["seq"], op=row["op"], rank=rank,
            host=world.fabric.host(rank // world.job.gpus),
            enqueue_ns=begin_ns + round(row["enqueue"] * k), job=world.name,
            done_ns=None if done is None else begin_ns + round(done * k),
            bytes=round(size), nranks=next(len(each.ranks) for each in world.job.comms
                                           if each.name == row["comm"]),
            gpu=world.gpu(rank), step=row["step"],
            gpu_wait_ns=k * (world.compute * 0.03 * rng.lognormvariate(0, 0.3)
                             + row["late"] * 0.6),
            credit_wait_ns=k * row.get("credit", 0.0), net_wait_ns=k * row.get("net", 0.0) * 0.2,
            recv_wait_ns=k * took * rng.uniform(0.3, 0.5), consume_wait_ns=k * consume,
            flush_wait_ns=k * world.service * 0.05 * rng.lognormvariate(0, 0.2)
            * (5 if narrow else 1),
        )  # fmt: skip
    return rows


def _class(world: World, host: str, default: bool) -> dict[str, float]:
    usual = {"tc": 0.0, "sl": 0.0, "dscp": 0.0, "gid_index": 3.0, "roce_version": 2.0}
    if default:
        return usual
    odd = world.odd_class
    own = {"tc": 104.0, "sl": 3.0, "dscp": 26.0, "gid_index": 3.0, "roce_version": 2.0}
    if odd is None or (odd and odd != host):
        return own
    return {"tc": 32.0, "sl": 1.0, "dscp": 8.0, "gid_index": 1.0, "roce_version": 1.0}


def _offset(world: World, src: str, dst: str, at: float) -> float:
    """What wrong clocks add to a delay from one NIC to another, in ns."""
    if not world.active(at):
        return 0.0
    return world.clock.get(dst, 0.0) - world.clock.get(src, 0.0)


def _gap(world: World, nic: str, at: float, usual: float) -> float:
    host = nic.split("/", maxsplit=1)[0]
    gap = usual * world.rng.lognormvariate(0, 0.4)
    if world.starved_all and world.rng.random() < 0.25:
        gap *= 1 + 8 * world.rng.paretovariate(1.3)
    if host in world.starved and world.active(at):
        gap *= 15 * world.rng.lognormvariate(0, 0.4)
    return gap


def _flows(world: World, begin_ns: int) -> Rows:
    rows, rng, k = Rows(), world.rng, world.dilation
    width = round(world.engine.width * k)
    usual_gap = rng.uniform(20e3, 200e3)
    packets = rng.randrange(2, 20)  # that were lost with each chunk
    clocks = {nic: rng.gauss(0, 60) for nic in world.nics}
    for flow in world.job.flows:
        first = [server.name for server in flow.path[1:-1]]
        for window, stat in sorted(flow.stats.items()):
            at = (window + 0.5) * world.engine.width
            if window >= world.windows:
                continue
            src, dst, hops = flow.src, flow.dst, first
            if flow.moved and at < flow.moved:
                rail = int(flow.rail[4:])
                src = world.fabric.nic(flow.src_node, rail)
                dst = world.fabric.nic(flow.dst_node, rail)
                hops = [each.name for each in world.fabric.path(
                    flow.src_node, flow.dst_node, rail, 0)[1:-1]]  # fmt: skip
            owd = sorted(stat["owd"])
            off = _offset(world, src, dst, at) + clocks[dst] - clocks[src]
            busy, bits = stat["busy"], stat["bits"]
            errors = sum(window == int(time // world.engine.width) for nic in {src, dst}
                         for time in world.downs.get(nic, ()))  # fmt: skip
            gap = max(_gap(world, src, at, usual_gap), _gap(world, dst, at, usual_gap))
            rows.add(
                flow=flow.name, at_ns=begin_ns + window * width, window_ns=width, src=src, dst=dst,
                job=world.name, bytes=bits / 8 * k,
                rate_bps=bits / busy * 1e9 if busy > 0 and bits else None,
                owd_p50_ns=owd[len(owd) // 2] + off if owd else None,
                owd_p99_ns=owd[min(len(owd) - 1, int(len(owd) * 0.99))] + off if owd else None,
                hops=hops, rank=flow.rank, peer_rank=flow.peer, rail=flow.rail,
                proto="rc", retransmits=stat["retransmits"] * packets + 2 * errors,
                cqe_errors=errors, credit_blocked_ns=min(stat["credit"] * k, width),
                poll_gap_ns=gap, clk_err_ns=60.0,
                **_class(world, src.split("/")[0], default=False),
            )  # fmt: skip
    return rows


def _probes(world: World, begin_ns: int, probes: list[dict[str, Any]]) -> Rows:
    rows, k = Rows(), world.dilation
    for row in probes:
        came = sorted(each for each in row["told"] if each >= 0)
        off = _offset(world, row["src"], row["dst"], row["at"] + world.engine.width / 2)
        rows.add(
            at_ns=begin_ns + round(row["at"] * k), src=row["src"], dst=row["dst"],
            sent=len(row["told"]), lost=len(row["told"]) - len(came),
            owd_p50_ns=came[len(came) // 2] + off if came else None,
            owd_p99_ns=came[-1] + off if came else None,
            hops=[each.name for each in row["path"]], clk_err_ns=60.0,
            **_class(world, row["src"].split("/")[0], default=row["default"]),
        )  # fmt: skip
    return rows


def _links(world: World, begin_ns: int) -> Rows:
    rows, rng, k = Rows(), world.rng, world.dilation
    every = rng.choice((1, 1, 2, 4))
    width = world.engine.width * every
    lanes, gts = rng.choice((16.0, 8.0)), rng.choice((16.0, 32.0))
    both = rng.random() < 0.5
    for window in range(math.ceil(world.windows / every)):
        at = (window + 0.5) * width
        stamp = {"at_ns": begin_ns + round(window * width * k), "window_ns": round(width * k)}
        inside = range(window * every, (window + 1) * every)
        for server in world.fabric.servers.values():
            if " memory of " in server.name:
                continue
            busy = sum(server.busy.get(each, 0.0) for each in inside) / width
            loaded = world.loads.get(server.name, 0.0) if world.active(at) else 0.0
            loaded = loaded or min(server.background, 0.4)
            pause = sum(server.paused.get(each, 0.0) for each in inside)
            if server.name in world.storm and world.active(at):
                pause = world.storm[server.name] * width * rng.uniform(0.9, 1.1)
            errors = world.errors.get(server.name, 0.0)
            quiet = server.name != world.expected_loss
            active = world.active(at) or quiet
            rows.add(
                **stamp, link=server.name, up=True, downs=0.0,
                speed_bps=server.bps, nominal_bps=server.bps,
                utilisation=min(1.0, busy + loaded * rng.uniform(0.97, 1.03)),
                symbol_errors=float(round(errors * rng.lognormvariate(0, 0.4))) if active else 0.0,
                pause_ns=min(pause, width) * k, planned=False,
            )  # fmt: skip
        for nic in world.nics:
            downs = sum(window == int(time // width) for time in world.downs.get(nic, ()))
            part = world.slot.get(nic, 1.0) if world.active(at) else 1.0
            rows.add(
                **stamp, link=nic, up=not (nic in world.gone and at >= world.gone[nic]),
                downs=float(downs), speed_bps=world.fabric.bps, nominal_bps=world.fabric.bps,
                pcie_gts=gts * (1 if both else part), pcie_max_gts=gts,
                pcie_width=lanes * (part if both else 1), pcie_max_width=lanes,
                planned=world.planned and bool(world.downs.get(nic)),
            )  # fmt: skip
    return rows


def _hosts(world: World, begin_ns: int) -> Rows:
    rows, rng, k = Rows(), world.rng, world.dilation
    every = rng.choice((1, 2, 5))
    width = world.engine.width * every
    for window in range(math.ceil(world.windows / every)):
        at = (window + 0.5) * width
        stamp = {"at_ns": begin_ns + round(window * width * k), "window_ns": round(width * k)}
        for number in range(world.fabric.hosts):
            host, ranks = world.fabric.host(number), world.job.gpus
            waits = rng.uniform(0.002, 0.01) + (rng.uniform(0, 0.3) if world.starved_all else 0)
            if host in world.starved and world.active(at):
                waits = world.starved[host] * rng.uniform(0.7, 1.3)
            rows.add(**stamp, host=host, gpu=None, runq_ns=waits * width * k, clk_err_ns=60.0,
                     irq_ns=0.01 * width * k, clk_state="SYNCHRONIZED")  # fmt: skip
            for rank in range(number * ranks, (number + 1) * ranks):
                kind = world.gpu_told.get(rank, "") if world.active(at) else ""
                low = 0.7 if kind in {"clock", "both"} else 1.0
                reason = {"reason": "hw_thermal_slowdown", "both": "sw_thermal_slowdown",
                          "benign": "sw_power_cap"}.get(kind, "")  # fmt: skip
                rows.add(**stamp, host=host, gpu=world.gpu(rank), throttle=reason,
                         sm_clock_mhz=1750 * low * rng.uniform(0.98, 1.0),
                         xid=94.0 if kind == "xid" else None,
                         ecc_errors=rng.randrange(1, 9) if kind == "ecc" else 0)  # fmt: skip
    return rows


def _steps(world: World, begin_ns: int) -> Rows:
    rows, k = Rows(), world.dilation
    for row in world.job.steps:
        rows.add(
            step=row["step"], rank=row["rank"], begin_ns=begin_ns + round(row["begin"] * k),
            end_ns=begin_ns + round(row["end"] * k), job=world.name,
            host=world.fabric.host(row["rank"] // world.job.gpus), work=row["work"] * 4096,
            data_ns=row["data"] * k, compute_ns=row["compute"] * k, comm_ns=row["comm"] * k,
            checkpoint_ns=row["checkpoint"] * k,
        )  # fmt: skip
    return rows
