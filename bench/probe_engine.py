"""How fast and how frugal the probe engine is, on eight hosts behind leaves and spines.

    .venv/bin/python bench/probe_engine.py [--rate 60000] [--seconds 5] [--json]

A *probe* is one packet whose one-way delay is measured: requests and replies count alike. The
fabric is 8 hosts x 2 rails, 2 leaves per rail, 2 spines, links shaped to 200 Mb/s, in network
namespaces of a private world (no root needed): a probe between pods crosses four veth links, one
inside a pod two.
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

from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine, ProbeNic
from syntony.model.probes import LOST, MISSING, STALLED
from syntony.wire.messages import ProbeFlow

HOSTS, RAILS, PER_POD, SPINES = 8, 2, 4, 2
PODS = HOSTS // PER_POD
PORT = 8620
KEY = (1, b"bench-probe-key!")
FLOW_PORTS = 2
WARM_UP_S = 1.0
WORLD = 'mount -t tmpfs none /run && mkdir -p /run/netns && mount -t sysfs none /sys && exec "$@"'
UNSHARE = ["unshare", "-Urnmpf", "--kill-child", "--mount-proc", "--propagation", "private"]


def address(host: int, rail: int) -> str:
    """Host NICs live on /31s of 10.(10+rail).pod.0/24."""
    pod, slot = divmod(host, PER_POD)
    return f"10.{10 + rail}.{pod}.{2 * slot + 1}"


def gateway(host: int, rail: int) -> str:
    """The leaf's end of the same /31."""
    pod, slot = divmod(host, PER_POD)
    return f"10.{10 + rail}.{pod}.{2 * slot}"


def nic_id(host: int, rail: int) -> int:
    """Number on the wire."""
    return host * RAILS + rail + 1


def _ip(batch: list[str], namespace: str = "") -> None:
    where = ["-n", namespace] if namespace else []
    subprocess.run(["ip", *where, "-batch", "-"], input="\n".join(batch), text=True, check=True)


def _tc(namespace: str, interfaces: list[str]) -> None:
    shape = [
        f"qdisc add dev {name} root tbf rate 200mbit burst 32k latency 20ms" for name in interfaces
    ]
    command = ["tc", "-n", namespace, "-batch", "-"]
    subprocess.run(command, input="\n".join(shape), text=True, check=True)


def build_fabric() -> None:
    """Namespaces, links, addresses, ECMP routes and shapers."""
    leaves = [f"l{rail}p{pod}" for rail in range(RAILS) for pod in range(PODS)]
    nodes = [f"h{host}" for host in range(HOSTS)] + leaves + [f"s{k}" for k in range(SPINES)]
    _ip([f"netns add {node}" for node in nodes])
    plan: dict[str, list[str]] = {node: ["link set lo up"] for node in nodes}
    ports: dict[str, list[str]] = {node: [] for node in nodes}
    veths: list[str] = []
    for a, port_a, address_a, b, port_b, address_b in _links():
        veths.append(f"link add name {port_a} netns {a} type veth peer name {port_b} netns {b}")
        for node, port, mine in ((a, port_a, address_a), (b, port_b, address_b)):
            plan[node] += [f"addr add {mine}/31 dev {port}", f"link set {port} up"]
            ports[node].append(port)
    _ip(veths)
    for node in nodes:
        command = [
            "ip",
            "netns",
            "exec",
            node,
            "sysctl",
            "-qw",
            "net.ipv4.ip_forward=1",
            "net.ipv4.fib_multipath_hash_policy=3",
            "net.ipv4.fib_multipath_hash_fields=55",
            "net.ipv4.conf.all.rp_filter=0",
        ]
        subprocess.run(command, check=True)
        _ip(plan[node] + _routes(node), node)
        _tc(node, ports[node])


def _links() -> list[tuple[str, str, str, str, str, str]]:
    links = [
        (f"h{h}", f"rail{r}", address(h, r), f"l{r}p{h // PER_POD}", f"h{h}", gateway(h, r))
        for h in range(HOSTS)
        for r in range(RAILS)
    ]
    links += [
        (
            f"l{r}p{p}",
            f"up{k}",
            f"10.{100 + k}.{r * 64 + p}.1",
            f"s{k}",
            f"l{r}p{p}",
            f"10.{100 + k}.{r * 64 + p}.0",
        )
        for r in range(RAILS)
        for p in range(PODS)
        for k in range(SPINES)
    ]
    return links


def _routes(node: str) -> list[str]:
    if node.startswith("h"):
        host = int(node[1:])
        return [
            route
            for rail in range(RAILS)
            for route in (
                f"route add default via {gateway(host, rail)} dev rail{rail} table {100 + rail}",
                f"rule add from {address(host, rail)} table {100 + rail}",
                f"route add 10.{10 + rail}.0.0/16 via {gateway(host, rail)} dev rail{rail}",
            )
        ]
    places = [(rail, pod) for rail in range(RAILS) for pod in range(PODS)]
    if node.startswith("s"):
        k = int(node[1:])
        return [
            f"route add 10.{10 + r}.{p}.0/24 via 10.{100 + k}.{r * 64 + p}.1 dev l{r}p{p}"
            for r, p in places
        ]
    own = (int(node[1]), int(node[3:]))
    hops = " ".join(
        f"nexthop via 10.{100 + k}.{own[0] * 64 + own[1]}.0 dev up{k}" for k in range(SPINES)
    )
    return [f"route add 10.{10 + r}.{p}.0/24 {hops}" for r, p in places if (r, p) != own]


def flows_of(host: int, rate: float) -> list[ProbeFlow]:
    """Every other host on the same rail, `FLOW_PORTS` ports each; `rate` probes/s fleet-wide."""
    pairs_per_flow = rate / 4 / (HOSTS * RAILS * (HOSTS - 1) * FLOW_PORTS)
    flows: list[ProbeFlow] = []
    for rail in range(RAILS):
        for peer in (other for other in range(HOSTS) if other != host):
            for port in range(FLOW_PORTS):
                flow_id = ((host * RAILS + rail) * HOSTS + peer) * FLOW_PORTS + port
                flows.append(
                    ProbeFlow(
                        flow_id=flow_id,
                        src=f"rail{rail}",
                        dst=f"h{peer}/rail{rail}",
                        dst_nic_id=nic_id(peer, rail),
                        dst_addr=address(peer, rail),
                        dst_port=PORT,
                        src_port=30000 + port,
                        interval_ns=round(1e9 / pairs_per_flow),
                    )
                )
    return flows


def run_host(host: int, rate: float, seconds: float) -> dict[str, Any]:
    """One host's engine, as its agent would run it: drained twenty times a second."""
    nics = [
        ProbeNic(
            name=f"rail{rail}", nic_id=nic_id(host, rail), address=address(host, rail), port=PORT
        )
        for rail in range(RAILS)
    ]
    with ProbeEngine(nics, KernelClock(f"h{host}")) as engine:
        engine.set_keys(KEY)
        engine.start()
        time.sleep(WARM_UP_S)
        engine.set_flows(flows_of(host, rate))
        time.sleep(WARM_UP_S)
        engine.drain()
        before, cpu, began = engine.counters(), _cpu_s(), time.monotonic()
        records = []
        while time.monotonic() < began + seconds:
            time.sleep(0.05)
            records.append(engine.drain())
        wall, used, after = time.monotonic() - began, _cpu_s() - cpu, engine.counters()
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


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _softirq_s() -> float:
    ticks = int(Path("/proc/stat").read_text().splitlines()[0].split()[7])
    return ticks / os.sysconf("SC_CLK_TCK")


def run_fleet(rate: float, seconds: float) -> dict[str, Any]:
    """All hosts at once; sums, worst cases, and the processor time per probe."""
    command = [sys.executable, __file__, "--rate", str(rate), "--seconds", str(seconds)]
    softirq = _softirq_s()
    workers = [
        subprocess.Popen(
            ["ip", "netns", "exec", f"h{host}", *command, "--host", str(host)],
            stdout=subprocess.PIPE,
        )
        for host in range(HOSTS)
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
    parser.add_argument("--host", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.host >= 0:
        print(json.dumps(run_host(arguments.host, arguments.rate, arguments.seconds)))
        return 0
    if not arguments.inside:
        again = [*UNSHARE, "sh", "-c", WORLD, "sh", sys.executable, *sys.argv, "--inside"]
        return subprocess.run(again, check=False).returncode
    build_fabric()
    results = [run_fleet(rate, arguments.seconds) for rate in (arguments.rate, arguments.rate / 2)]
    if arguments.json:
        print(json.dumps(results, indent=1))
        return 0
    for key in results[0]:
        print(f"{key:20}", *(f"{result[key]!s:>14}" for result in results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
