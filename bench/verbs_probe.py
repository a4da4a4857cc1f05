"""How fast the probe engine is over verbs, and how far its stamps are off, beside UDP's.

    .venv/bin/python bench/verbs_probe.py [--seconds 10] [--rate 20000] [--json]

Two engines of one process probe each other, over queue pairs of the native tests' fake provider
and over UDP on loopback: what is measured is the engine, not a NIC. A *probe* is one packet whose
one-way delay is measured: requests and replies count alike. Processor time is that of the two
engines' threads, without the fake provider's own.

Over verbs it is done twice: completions are stamped by the engine, then by devices, whose clocks
have an offset, a frequency of their own and 40 bits, all known. Both hosts have one clock, so that
an honest estimate of the offset between both ends is 0, once devices' stamps are put on the host's
clock by the truth: its median error and 99th percentile are printed, and how far both ends' clocks
are off in the fleet's timeline that follows from the probes (and from readings of the devices'
clocks beside the host's), against the truth.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from tests.nccl import provider
from tests.ports import free_udp_port

from syntony.clock.cross import CrossStamps
from syntony.clock.network import NetworkSolver
from syntony.clock.windows import PairKey, PairWindows
from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import RECORD, PeerKeys, ProbeNic, VerbsRoute
from syntony.model import Edge, S, Timeline
from syntony.model.probes import DeviceClockReading, ProbeFlag
from syntony.wire.probes import Plane, ProbeFlow

PORTS = 8
FLOWS = 64
DRIFT_PPB = (31_000, -12_000)
KEYS = {number: PeerKeys((1, b"sixteen byte key")) for number in (1, 2)}


def engines(plane: Plane) -> list[ProbeEngine]:
    made = []
    for at in range(2):
        address = f"10.0.0.{at + 1}" if plane is Plane.VERBS else "127.0.0.1"
        nic = ProbeNic(name="lo", nic_id=at + 1, address=address, port=free_udp_port())
        engine = ProbeEngine(
            [nic], KernelClock(f"h{at}"), plane=plane, ring_records=1 << 17, min_gap_ns=0
        )
        engine.set_peers(KEYS)
        engine.port = nic.port  # type: ignore[attr-defined]
        made.append(engine)
    return made


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
        here.set_routes([VerbsRoute("lo", to, label + 1, 0, 0) for label in range(PORTS)])


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


class Devices:
    """The fake's, and what is read of their clocks."""

    def __init__(self, fake: ctypes.CDLL, *, stamp: bool) -> None:
        self._ticks_at = fake.fake_ticks_at
        self._ticks_at.restype = ctypes.c_int64
        for at, drift_ppb in enumerate(DRIFT_PPB):
            machine = provider.Machine(
                stamps=stamp, drift_ppb=drift_ppb, bits=40, offset=(1 << 40) - 156_250_000 * at
            )
            fake.fake_set_machine(at, ctypes.byref(machine))
        self.readings: tuple[list[DeviceClockReading], list[DeviceClockReading]] = ([], [])
        self.crossings = [CrossStamps(f"h{at}", f"h{at}/lo:verbs") for at in range(2)]

    def read(self, made: list[ProbeEngine]) -> None:
        """Once a second, as an agent does."""
        for at, engine in enumerate(made):
            reading = engine.read_clock("lo")
            if reading is not None:
                self.readings[at].append(reading)
                self.crossings[at].add(*reading[1:])

    def ticks_ns(self, at: int, real_ns: int) -> float:
        """The truth: how long a device's counter says it has run."""
        return float(self._ticks_at(at, ctypes.c_int64(real_ns)) * 6.4)

    def clock_ns(self, at: int, real_ns: int) -> int:
        """What a device's clock says then: its counter, and where that began."""
        began_ns = [each.device_ns - self.ticks_ns(at, each.host_ns) for each in self.readings[at]]
        return round(np.median(began_ns) + self.ticks_ns(at, real_ns))

    def on_host(self, at: int, stamps_ns: np.ndarray, real_ns: int) -> np.ndarray:
        """Stamps of a device on the host's clock."""
        since_ns = stamps_ns - self.clock_ns(at, real_ns)
        return real_ns + np.rint(since_ns / (1 + DRIFT_PPB[at] * 1e-9)).astype(np.int64)


def timeline_error(records: np.ndarray, devices: Devices | None, real_ns: int) -> dict[str, float]:
    """How far the ends' clocks are from each other in fleet time at one instant, and the bound that
    the timeline claims. The truth is 0."""
    nodes = ["h0", "h1"] if devices is None else ["h0/lo:verbs", "h1/lo:verbs"]
    now_ns = [real_ns if devices is None else devices.clock_ns(at, real_ns) for at in range(2)]
    windows = PairWindows()
    windows.plan({number: PairKey("h0/lo", "h1/lo", *nodes) for number in range(FLOWS)})
    edges: list[Edge] = []
    for until_ns in range(real_ns - 8 * S, real_ns + 1, 2 * S):  # as often as an agent estimates
        sent_ns = records["sent_ns"]
        windows.add(records[(sent_ns <= until_ns) & (sent_ns > until_ns - 2 * S)])
        edges = list(windows.edges(until_ns))
    for crossing in devices.crossings if devices is not None else ():
        edges += filter(None, [crossing.edge()])
    solver = NetworkSolver()
    solver.update(edges, 0)
    lines: dict[str, Timeline] = {line.node: line for line in solver.solve(0)}
    fleet_ns = [lines[node].to_fleet_ns(at_ns) for node, at_ns in zip(nodes, now_ns, strict=True)]
    bounds_ns = [lines[node].bound_ns(at_ns) for node, at_ns in zip(nodes, now_ns, strict=True)]
    return {
        "timeline_error_ns": abs(fleet_ns[1] - fleet_ns[0]),
        "timeline_bound_ns": sum(bounds_ns),
    }


def measure(plane: Plane, rate: int, seconds: float, devices: Devices | None) -> dict[str, float]:
    a, b = made = engines(plane)
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
            if devices is not None:
                devices.read(made)
            for _ in range(10):
                time.sleep(0.1)
                parts.append(a.drain())
        real_ns = KernelClock("h0").now_ns()
        took, cpu = time.monotonic() - began, engine_cpu_s() - before
        records = np.concatenate([np.empty(0, RECORD), *parts])
    finally:
        a.close()
        b.close()
    t1, t2, t3, t4 = (records[f"t{number}_ns"] for number in (1, 2, 3, 4))
    whole = (t1 != 0) & (t2 != 0) & (t3 != 0) & (t4 != 0)
    stamped = bool((records["flags"][whole] & int(ProbeFlag.HW_LOCAL)).all())
    timeline: dict[str, float] = {}
    if stamped and devices is not None:
        timeline = timeline_error(records, devices, real_ns)
        t1, t4 = (devices.on_host(0, stamps, real_ns) for stamps in (t1, t4))
        t2, t3 = (devices.on_host(1, stamps, real_ns) for stamps in (t2, t3))
    elif plane is Plane.UDP:
        timeline = timeline_error(records, None, real_ns)
    offset = ((t2 - t1) + (t3 - t4))[whole] / 2
    return {
        "probes_per_s": 2 * float((t4 != 0).sum()) / took,
        "cores": cpu / took,
        "answered": float((t4 != 0).mean()) if len(records) else 0.0,
        "clock_error_p50_ns": float(np.median(np.abs(offset))),
        "clock_error_p99_ns": float(np.quantile(np.abs(offset), 0.99)),
        "load": os.getloadavg()[0],
    } | timeline


def main() -> None:
    """Print both planes."""
    options = argparse.ArgumentParser()
    options.add_argument("--rate", type=int, default=20_000, help="probes a second")
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--json", action="store_true")
    requested = options.parse_args()
    threading.stack_size(256 << 10)
    with tempfile.TemporaryDirectory() as directory:
        # Named before anything loads another.
        os.environ["SYNTONY_IBVERBS"] = path = str(provider.build(Path(directory)))
        rate, seconds = requested.rate, requested.seconds
        found = {"udp": measure(Plane.UDP, rate, seconds, None)}
        for name, stamp in (("verbs, engine's stamps", False), ("verbs, devices' stamps", True)):
            devices = Devices(ctypes.CDLL(path), stamp=stamp)
            found[name] = measure(Plane.VERBS, rate, seconds, devices)
    if requested.json:
        json.dump(found, sys.stdout)
        return
    for plane, row in found.items():
        timeline = ""
        if "timeline_error_ns" in row:
            timeline = f"  clocks off by {row['timeline_error_ns']:.0f} ns"
            timeline += f" of {row['timeline_bound_ns']:.0f}"
        print(
            f"{plane:22}  {row['probes_per_s']:8.0f} probes/s"
            f"  {row['cores']:.2f} cores, both engines"
            f"  {row['answered']:.1%} answered"
            f"  offset off by {row['clock_error_p50_ns'] / 1e3:.1f} µs median,"
            f" {row['clock_error_p99_ns'] / 1e3:.1f} µs p99{timeline}"
            f"  load {row['load']:.0f}"
        )


if __name__ == "__main__":
    main()
