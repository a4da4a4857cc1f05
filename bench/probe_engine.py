"""How fast and how frugal the probe engine is, on eight hosts behind leaves and spines.

    .venv/bin/python bench/probe_engine.py [--rate 60000] [--seconds 5] [--json]

A *probe* is one packet whose one-way delay is measured: requests and replies count alike. The
fabric is the default lab without its agents: a probe between leaves crosses four veth links, one
inside a leaf two.
Processor time is that of the engines' processes (user and system, read by getrusage), in which the
kernel also forwards their packets hop by hop.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.live import live

from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import PeerKeys, ProbeNic
from syntony.lab.client import Lab
from syntony.lab.plan import FabricSpec, make_plan
from syntony.mesh.plan import FIRST_SOURCE_PORT
from syntony.model.probes import LOST, MISSING, STALLED
from syntony.wire.probes import ProbeFlow

PORT = 8620
KEY = (1, b"bench-probe-key!")
FLOW_PORTS = 2
WARM_UP_S = 1.0
PLAN = make_plan(FabricSpec())


def address(host: str, rail: int) -> str:
    """The lab's own address of a NIC."""
    return PLAN.link(f"{host}/rail{rail}").a.ipv4


def nic_id(host: str, rail: int) -> int:
    """Number on the wire."""
    return PLAN.hosts.index(host) * PLAN.spec.rails + rail + 1


def flows_of(host: str, rate: float) -> list[ProbeFlow]:
    """Every other host on the same rail, `FLOW_PORTS` ports each; `rate` probes/s fleet-wide."""
    paths = [
        (rail, peer, port)
        for rail in range(PLAN.spec.rails)
        for peer in PLAN.hosts
        if peer != host
        for port in range(FLOW_PORTS)
    ]
    pairs_per_flow = rate / 4 / (len(paths) * len(PLAN.hosts))
    return [
        ProbeFlow(
            flow_id=number,
            src=f"rail{rail}",
            dst=f"{peer}/rail{rail}",
            dst_nic_id=nic_id(peer, rail),
            dst_addr=address(peer, rail),
            dst_port=PORT,
            src_port=FIRST_SOURCE_PORT + port,
            interval_ns=round(1e9 / pairs_per_flow),
        )
        for number, (rail, peer, port) in enumerate(paths)
    ]


def run_host(host: str, rate: float, seconds: float) -> dict[str, Any]:
    """One host's engine, as its agent would run it: drained twenty times a second."""
    nics = [
        ProbeNic(
            name=f"rail{rail}", nic_id=nic_id(host, rail), address=address(host, rail), port=PORT
        )
        for rail in range(PLAN.spec.rails)
    ]
    with ProbeEngine(nics, KernelClock(host)) as engine:
        engine.set_peers(dict.fromkeys(range(1, 4096), PeerKeys(KEY)))
        engine.start()
        time.sleep(WARM_UP_S)
        engine.set_flows(flows_of(host, rate))
        time.sleep(WARM_UP_S)
        engine.drain()
        before, cpu, began = engine.counters(), time.process_time(), time.monotonic()
        records = []
        while time.monotonic() < began + seconds:
            time.sleep(0.05)
            records.append(engine.drain())
        wall, used, after = time.monotonic() - began, time.process_time() - cpu, engine.counters()
        engine.set_flows([])
        time.sleep(WARM_UP_S)
    rows = np.concatenate(records)
    lost = (rows["flags"] & int(LOST)) != 0
    stalled = (rows["flags"] & int(STALLED)) != 0
    complete = (rows["flags"] & int(MISSING)) == 0
    owd = np.concatenate(
        [(rows["t2_ns"] - rows["t1_ns"])[complete], (rows["t4_ns"] - rows["t3_ns"])[complete]]
    )
    probes = after.sent + after.replies - before.sent - before.replies
    return {
        "probes": probes,
        "wall_s": wall,
        "cpu_s": used,
        "lost": int((lost & ~stalled).sum()),
        "lost_stalled": int((lost & stalled).sum()),
        "records": len(rows),
        "skipped": after.skipped - before.skipped,
        "stalls": after.stalls - before.stalls,
        "send_errors": after.send_errors,
        "rx_overflow": after.rx_overflow,
        "ring_dropped": after.ring_dropped,
        "tx_stamp_missing": after.tx_stamp_missing - before.tx_stamp_missing,
        "incomplete": int((~lost & ~complete).sum()),
        "owd_p50_us": float(np.percentile(owd, 50)) / 1e3 if len(owd) else None,
        "owd_p99_us": float(np.percentile(owd, 99)) / 1e3 if len(owd) else None,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _softirq_s() -> float:
    ticks = int(Path("/proc/stat").read_text().splitlines()[0].split()[7])
    return ticks / os.sysconf("SC_CLK_TCK")


def run_fleet(lab: Lab, rate: float, seconds: float) -> dict[str, Any]:
    """All hosts at once; sums, worst cases, and the processor time per probe."""
    command = [sys.executable, __file__, "--rate", str(rate), "--seconds", str(seconds)]
    softirq = _softirq_s()
    workers = [
        subprocess.Popen(lab.enter_argv(host, [*command, "--host", host]), stdout=subprocess.PIPE)
        for host in PLAN.hosts
    ]
    results = [json.loads(worker.communicate()[0]) for worker in workers]
    total = {
        key: sum(result[key] for result in results)
        for key in (
            "probes",
            "cpu_s",
            "lost",
            "lost_stalled",
            "records",
            "skipped",
            "stalls",
            "send_errors",
            "rx_overflow",
            "ring_dropped",
            "tx_stamp_missing",
            "incomplete",
        )
    }
    wall = max(result["wall_s"] for result in results)
    return {
        "asked_probes_per_s": rate,
        "probes_per_s": round(total["probes"] / wall),
        "cpu_us_per_probe": round(total["cpu_s"] / total["probes"] * 1e6, 2),
        "cores": round(total["cpu_s"] / wall, 2),
        "machine_softirq_s": round(_softirq_s() - softirq, 2),
        **total,
        "owd_p50_us": round(max(result["owd_p50_us"] or 0 for result in results), 1),
        "owd_p99_us": round(max(result["owd_p99_us"] or 0 for result in results), 1),
        "rss_mb": round(max(result["rss_mb"] for result in results), 1),
    }


def main() -> int:
    """Full rate, then half."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rate", type=float, default=60_000, help="probes/s, all hosts together")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--host", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.host:
        print(json.dumps(run_host(arguments.host, arguments.rate, arguments.seconds)))
        return 0
    with live(f"bench-{os.getpid()}") as lab:
        rates = (arguments.rate, arguments.rate / 2)
        results = [run_fleet(lab, rate, arguments.seconds) for rate in rates]
    if arguments.json:
        print(json.dumps(results, indent=1))
        return 0
    for key in results[0]:
        print(f"{key:20}", *(f"{result[key]!s:>14}" for result in results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
