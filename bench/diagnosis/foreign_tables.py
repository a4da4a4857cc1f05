"""What the second generator's recorders write: devices' and flows' tables by window."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bench.diagnosis.case import Rows

if TYPE_CHECKING:
    from bench.diagnosis.foreign import Job


def flows(job: Job) -> Rows:
    """The table `flows`."""
    rows = Rows()
    jitter = job.noisy * (4 if job.starved else 1)
    for window in range(job.windows):
        state = job.state(window)
        if state.hang:
            break
        net = job.network(window)
        flows = net.flows
        draws = job.noise.lognormal(0, jitter, (len(flows), 4)).tolist()
        tails = job.noise.exponential(1.0, (len(flows), 2)).tolist()
        bursts = job.noise.random(len(flows)).tolist()
        for index, flow in enumerate(flows):
            loss, base = float(net.loss[index]), net.base_ns[index]
            rate_bps = 0.0 if net.dead[index] else float(net.rate[index]) / (1 + 2500 * loss)
            wait = float(net.wait[index]) + state.extra_ns[flow.name]
            receiver, sender = flow.dst.split("/")[0], flow.src.split("/")[0]
            late = state.poll_ns[receiver]
            skew = state.clock_ns[flow.dst] - state.clock_ns[flow.src]
            p50 = (base + wait) * draws[index][0] + late * 0.5 * draws[index][1]
            if job.starved and bursts[index] < 0.04:
                p50 *= 1 + 6 * tails[index][0]
            p99 = p50 * (1.5 + 0.4 * tails[index][1]) + late * 3
            if loss:
                p99 += job.window_ns * 0.002 * (1 + tails[index][0])
            sent = int(
                job.volume
                * job.window_ns
                / 1e9
                * 0.4
                * rate_bps
                / 8
                * draws[index][2]
                * state.amount[flow.name]
            )
            packets = sent / 4096
            row: dict[str, Any] = {
                "job": "j",
                "flow": flow.name,
                "at_ns": job.begin_ns + window * job.window_ns,
                "window_ns": job.window_ns,
                "src": flow.src,
                "dst": flow.dst,
                "bytes": sent,
                "channel": flow.channel,
                "rank": flow.rank,
                "peer_rank": flow.peer,
                "hops": list(flow.hops),
                "rail": f"r{flow.rail}",
                "rate_bps": rate_bps * draws[index][3],
                "owd_p50_ns": p50 + skew,
                "owd_p99_ns": p99 + skew,
                "retransmits": int(job.noise.poisson(min(packets * loss, 1e6)))
                + int(bursts[index] > 0.998),
                "poll_gap_ns": (3000 + max(state.poll_ns[sender], late)) * draws[index][1],
                "clk_err_ns": 150.0,
                "proto": "rc" if job.nccl else "tcp",
                "cqe_errors": int(rate_bps == 0.0) if job.nccl else None,
            }
            slow = state.slow_consumer[flow.peer]
            row["credit_blocked_ns"] = (
                job.window_ns * job.volume * (0.03 * draws[index][2] + 0.7 * (1 - 1 / slow))
            )
            if job.nccl:
                row |= job.flow_class.get(flow.src, job.job_class)
            rows.add(**row)
    return rows


def probes(job: Job) -> Rows:
    """The table `probes`."""
    rows = Rows()
    pairs = sorted({(flow.src, flow.dst) for flow in job.flows})
    kinds = [job.probe_class]
    if job.matched_probes and (job.differs or job.flow_class):
        kinds.append(job.job_class)
    rail = {flow.src: flow.rail for flow in job.flows}
    host = {name: index for index, name in enumerate(job.fabric.hosts)}
    for window in range(0, job.windows, 2):
        state = job.state(window)
        queue = job.network(window).queue
        for src, dst in pairs:
            ends = (host[src.split("/")[0]], rail[src]), (host[dst.split("/")[0]], rail[dst])
            hops = job.fabric.route(*ends, salt=f"probe{window % 4}{src}{dst}")
            for kind in kinds:
                wait = sum(queue.get(hop, 0.0) for hop in hops)
                matched = kind == job.flow_class.get(src, job.job_class)
                wait += state.extra_ns[f"class {src}"] if matched else 0.0
                lost = int(
                    job.noise.binomial(20, 1 - math.prod(1 - state.loss[hop] for hop in hops))
                )
                lost = 20 if any(hop in state.dead for hop in hops) else lost
                p50 = (
                    job.base_ns(job.flows[0])
                    - job.hop_ns * (len(job.flows[0].hops) - len(hops))
                    + wait
                ) * float(job.noise.lognormal(0, job.noisy))
                skew = state.clock_ns[dst] - state.clock_ns[src]
                rows.add(
                    at_ns=job.begin_ns + window * job.window_ns,
                    src=src,
                    dst=dst,
                    sent=20,
                    lost=lost,
                    owd_p50_ns=p50 + skew if lost < 20 else None,
                    owd_p99_ns=p50 * 1.6 + skew if lost < 20 else None,
                    hops=list(hops),
                    clk_err_ns=150.0,
                    **(kind if job.nccl else {}),
                )
    return rows


def links(job: Job) -> Rows:
    """The table `links`."""
    rows = Rows()
    nics = sorted({place.nic for place in job.places})
    for window in range(0, job.windows, 2):
        state = job.state(window)
        demand = job.network(window).demand
        names = sorted(set(job.capacity) | set(demand))
        for name in [*names, *nics]:
            capacity = job.capacity.get(name, job.fabric.line_bps)
            busy = state.background[name] + (1 - state.background[name]) * min(
                demand.get(name, 0.0), 1.0
            )
            packets = job.window_ns / 1e9 * job.volume * capacity / 8 / 4096
            pcie = "/" in name and ">" not in name
            rows.add(
                at_ns=job.begin_ns + window * job.window_ns,
                window_ns=2 * job.window_ns,
                link=name,
                up=name not in state.dead,
                downs=state.downs[name],
                speed_bps=capacity * state.speed[name],
                nominal_bps=capacity,
                utilisation=min(1.0, busy * float(job.noise.lognormal(0, 0.03))),
                symbol_errors=int(job.noise.poisson(min(packets * state.errors[name], 1e7)))
                + int(job.rng.random() < 0.004),
                pause_ns=2 * job.window_ns * state.pause[name],
                pcie_width=state.width[name] if pcie else None,
                pcie_max_width=16 if pcie else None,
                planned=name in state.planned,
            )
    return rows


def hosts(job: Job) -> Rows:
    """The table `hosts`."""
    rows = Rows()
    for window in range(0, job.windows, 2):
        state, at_ns = job.state(window), job.begin_ns + window * job.window_ns
        for name in job.fabric.hosts:
            busy = 0.25 if job.starved else 0.004
            rows.add(
                at_ns=at_ns,
                host=name,
                window_ns=2 * job.window_ns,
                clk_err_ns=150.0,
                runq_ns=2
                * job.window_ns
                * (busy * float(job.noise.lognormal(0, 0.5)) + state.runq[name]),
                irq_ns=job.window_ns * 0.01 * float(job.noise.lognormal(0, 0.2)),
            )
        if not job.nccl:
            continue
        for rank, place in enumerate(job.places):
            rows.add(
                at_ns=at_ns,
                host=place.host,
                gpu=place.gpu,
                window_ns=2 * job.window_ns,
                sm_clock_mhz=1980 * state.sm[rank] * float(job.noise.uniform(0.985, 1)),
                throttle=state.throttle.get(rank, ""),
                xid=state.xid.get(rank),
                ecc_errors=state.ecc[rank],
            )
    return rows
