"""How fast the probe engine is over verbs, and how far its stamps are off, beside UDP's.

    .venv/bin/python bench/verbs_probe.py [--seconds 3] [--rate 20000] [--json]

Two engines of one process probe each other, over queue pairs of the native tests' fake provider
and over UDP on loopback: what is measured is the engine, not a NIC. A *probe* is one packet whose
one-way delay is measured: requests and replies count alike. Processor time is that of the two
engines' threads, without the fake provider's own. Both ends have one clock, so that an honest
estimate of the offset between them is 0: its median error and 99th percentile are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from tests.nccl import provider

from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import RECORD, PeerKeys, ProbeNic, Route
from syntony.model import S
from syntony.wire.probes import Plane, ProbeFlow

PORTS = 8
FLOWS = 64
KEYS = {number: PeerKeys((1, b"sixteen byte key")) for number in (1, 2)}


def engines(plane: Plane) -> list[ProbeEngine]:
    made = []
    for at in range(2):
        address = f"10.0.0.{at + 1}" if plane is Plane.VERBS else "127.0.0.1"
        nic = ProbeNic(name="lo", nic_id=at + 1, address=address, port=_free_port())
        engine = ProbeEngine(
            [nic], KernelClock(f"h{at}"), plane=plane, ring_records=1 << 17, min_gap_ns=0
        )
        engine.set_peers(KEYS)
        engine.port = nic.port  # type: ignore[attr-defined]
        made.append(engine)
    return made


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def flows(to: ProbeEngine, rate: int) -> list[ProbeFlow]:
    """Of the first engine: `rate` probes a second, replies counted."""
    interval_ns = FLOWS * 4 * S // rate
    return [
        ProbeFlow(
            flow_id=number, src="lo", dst="h1/lo", dst_nic_id=2, dst_addr="127.0.0.1",
            dst_port=to.port,  # type: ignore[attr-defined]
            src_port=61000 + number % PORTS, flow_label=number % PORTS + 1, interval_ns=interval_ns,
        )
        for number in range(FLOWS)
    ]  # fmt: skip


def meet(a: ProbeEngine, b: ProbeEngine) -> None:
    for here, there in ((a, b), (b, a)):
        to = there.endpoints()["lo"]
        here.set_routes([Route("lo", to, label + 1, 0, 0) for label in range(PORTS)])


def engine_cpu_s() -> float:
    """Of all engines' threads."""
    ticks = 0
    for task in Path("/proc/self/task").iterdir():
        text = (task / "stat").read_text()
        name, _, rest = text.partition("(")[2].rpartition(")")
        if name == "syn-probe":
            fields = rest.split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(plane: Plane, rate: int, seconds: float) -> dict[str, float]:
    a, b = engines(plane)
    try:
        for engine in (a, b):
            engine.start()
        if plane is Plane.VERBS:
            meet(a, b)
        a.set_flows(flows(b, rate))
        time.sleep(1.0)
        parts: list[np.ndarray] = []
        a.drain()
        before, began = engine_cpu_s(), time.monotonic()
        while time.monotonic() - began < seconds:
            time.sleep(0.1)
            parts.append(a.drain())
        took, cpu = time.monotonic() - began, engine_cpu_s() - before
        records = np.concatenate([np.empty(0, RECORD), *parts])
    finally:
        a.close()
        b.close()
    t1, t2, t3, t4 = (records[f"t{number}_ns"] for number in (1, 2, 3, 4))
    whole = (t1 != 0) & (t2 != 0) & (t3 != 0) & (t4 != 0)
    offset = ((t2 - t1) + (t3 - t4))[whole] / 2
    return {
        "probes_per_s": 2 * float((t4 != 0).sum()) / took,
        "cores": cpu / took,
        "answered": float((t4 != 0).mean()) if len(records) else 0.0,
        "clock_error_p50_ns": float(np.median(np.abs(offset))),
        "clock_error_p99_ns": float(np.quantile(np.abs(offset), 0.99)),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print both planes."""
    options = argparse.ArgumentParser()
    options.add_argument("--rate", type=int, default=20_000, help="probes a second")
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--json", action="store_true")
    requested = options.parse_args()
    threading.stack_size(256 << 10)
    with tempfile.TemporaryDirectory() as directory:
        # Named before anything loads another.
        os.environ["SYNTONY_IBVERBS"] = str(provider.build(Path(directory)))
        found = {str(plane): measure(plane, requested.rate, requested.seconds) for plane in Plane}
    if requested.json:
        json.dump(found, sys.stdout)
        return
    for plane, row in found.items():
        print(
            f"{plane:5}  {row['probes_per_s']:8.0f} probes/s"
            f"  {row['cores']:.2f} cores, both engines"
            f"  {row['answered']:.1%} answered"
            f"  offset off by {row['clock_error_p50_ns'] / 1e3:.1f} µs median,"
            f" {row['clock_error_p99_ns'] / 1e3:.1f} µs p99  load {row['load']:.0f}"
        )


if __name__ == "__main__":
    main()
