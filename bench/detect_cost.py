"""What watching costs: processor time per second of carriers, flows and watched paths.

    .venv/bin/python -m bench.detect_cost [--seconds 5] [--json]

In a network namespace of its own: eight taps, whose counters are read every 10 ms, and flaps of
1 ms on one of them; 100 TCP connections over loopback, found twice a second and sampled every 20 ms
with their evidence; 16 paths watched over loopback, the reflector in another process. Processor
time is the process's own (getrusage).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from syntony.io.carrier import CarrierWatch
from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import PeerKeys, ProbeNic
from syntony.io.tcp_flows import TcpFlows
from syntony.model import MS, S
from syntony.traffic.connection import Subflow, SubflowState
from syntony.traffic.policy import Policy
from syntony.wire.probes import ProbeFlow

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = (1, b"bench-detect-key")
TUNSETIFF, TUNSETCARRIER, TAP_NO_PI = 0x400454CA, 0x400454E2, 0x1002
TAPS, CONNECTIONS, PATHS, PORT = 8, 100, 16, 8620
WORLD = ("unshare", "-Urnm", "sh", "-c", 'mount -t sysfs n /sys && ip link set lo up && exec "$@"')


def percent_of_core(turn: Callable[[], Any], period_ns: int, seconds: float) -> float:
    """Of calling `turn` every `period_ns`."""
    turn()
    before, began = time.process_time(), time.monotonic()
    while time.monotonic() < began + seconds:
        turn()
        time.sleep(period_ns / S)
    return round(100 * (time.process_time() - before) / (time.monotonic() - began), 2)


def open_tap(name: str) -> int:
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP_NO_PI))
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return tap


def carriers(seconds: float) -> dict[str, Any]:
    taps = [open_tap(f"tap{n}") for n in range(TAPS)]
    watch = CarrierWatch([f"tap{n}" for n in range(TAPS)])
    time.sleep(1)
    share = percent_of_core(lambda: watch.poll(time.monotonic_ns()), 10 * MS, seconds)
    known = {event.nic: event for event in watch.poll(time.monotonic_ns())}
    flaps, noticed, counted = 50, [], 0
    before = _count("tap0")
    for _ in range(flaps):
        time.sleep(random.uniform(0, 0.02))
        began = time.monotonic_ns()
        for on in (0, 1):
            fcntl.ioctl(taps[0], TUNSETCARRIER, struct.pack("i", on))
            time.sleep(0 if on else 0.001)
        while not (events := watch.poll(time.monotonic_ns())):
            due_ns = watch.deadline_ns or 0
            time.sleep(max(0, due_ns - time.monotonic_ns()) / S)
        noticed.append((time.monotonic_ns() - began) / MS)
        known |= {event.nic: event for event in events}
    time.sleep(0.05)
    known |= {event.nic: event for event in watch.poll(time.monotonic_ns())}
    counted = known["tap0"].carrier_down_count - before
    return {
        "8 carriers, % of a core": share,
        "1 ms flaps counted": f"{counted}/{flaps}",
        "noticed p50 ms": round(float(np.median(noticed)), 1),
        "noticed p99 ms": round(float(np.quantile(noticed, 0.99)), 1),
    }


def _count(name: str) -> int:
    with open(f"/sys/class/net/{name}/carrier_down_count", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read())


def flows(seconds: float) -> dict[str, Any]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
    clients = [socket.create_connection(listener.getsockname()) for _ in range(CONNECTIONS)]
    servers = [listener.accept()[0] for _ in clients]
    port = listener.getsockname()[1]
    with TcpFlows() as reader:
        found = reader.find()
        rows = found[found["remote_port"] == port].copy()
        policy = Policy()
        judges = {
            sample.flow: Subflow(sample.flow, None, SubflowState.UP, 0)
            for sample in reader.samples(rows, 0)
        }

        def look() -> None:
            reader.sample(rows)
            for sample in reader.samples(rows, time.monotonic_ns()):
                judges[sample.flow].take(sample, policy)

        result = {
            f"{CONNECTIONS} flows each 20 ms, %": percent_of_core(
                lambda: reader.sample(rows), 20 * MS, seconds
            ),
            "the same and judged, %": percent_of_core(look, 20 * MS, seconds),
            "found twice a second, %": percent_of_core(reader.find, 500 * MS, seconds),
        }
    for one in (*clients, *servers, listener):
        one.close()
    return result


def engine(number: int, address: str) -> ProbeEngine:
    nic = ProbeNic(name="lo", nic_id=number, address=address, port=PORT)
    made = ProbeEngine([nic], KernelClock("h"))
    made.set_peers(dict.fromkeys(range(1, 200), PeerKeys(KEY)))
    made.start()
    return made


def paths(seconds: float) -> dict[str, Any]:
    reflector = subprocess.Popen(
        [sys.executable, "-m", "bench.detect_cost", "--reflect"], stdin=subprocess.PIPE
    )
    time.sleep(1)
    result = {}
    with engine(1, "127.0.0.1") as made:
        for interval_ms in (10, 5, 2):
            made.watch([_path(n, interval_ms * MS) for n in range(PATHS)])
            share = percent_of_core(made.liveness, 200 * MS, seconds)
            result[f"{PATHS} paths each {interval_ms} ms, %"] = share
        result["alive"] = sum(status.alive is True for status in made.watched())
    reflector.kill()
    reflector.wait()
    return result


def _path(number: int, interval_ns: int) -> ProbeFlow:
    return ProbeFlow(
        flow_id=number, src="lo", dst="b/lo", dst_nic_id=2, dst_addr="127.0.0.2", dst_port=PORT,
        src_port=41000 + number % 4, interval_ns=interval_ns,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=5, help="watched per figure")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--reflect", action="store_true", help=argparse.SUPPRESS)
    requested = parser.parse_args()
    if requested.reflect:
        with engine(2, "127.0.0.2"):
            sys.stdin.read()
        return 0
    if not requested.inside:
        own = [sys.executable, "-m", "bench.detect_cost", "--inside", *sys.argv[1:]]
        return subprocess.run([*WORLD, "sh", *own], check=False).returncode
    result = carriers(requested.seconds) | flows(requested.seconds) | paths(requested.seconds)
    if requested.json:
        print(json.dumps(result, indent=1))
        return 0
    for name, value in result.items():
        print(f"{name:32}{value!s:>10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
