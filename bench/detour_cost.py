"""What the table of detours costs connections that are on none: a host that protects others.

    .venv/bin/python -m bench.detour_cost [--rounds 7] [--expected 1000] [--json]

Two network namespaces and a veth without a rate limit. A short connection is socket, connect, one
byte there, one back, close; bulk is one stream for a second. Both with no table of ours and with
one at both ends that expects `--expected` other connections on three ways each, in turns within
each round; and the time that it takes to tell the kernel of them, and to send all another way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

from bench.run_overhead import ask

from syntony.io.detours import DetourTable
from syntony.model.paths import FourTuple
from syntony.traffic.plain_wires import REDRAWS, other_wires

NEAR, FAR = "10.0.0.1", "10.0.0.2"
PORTS = range(61_000, 65_536)
UNSHARE = ("unshare", "-Urnmpf", "--kill-child", "--mount-proc", "--propagation", "private")
WORLD = """
mount -t tmpfs none /run; mount -t sysfs none /sys; ip link set lo up; ip netns add far
ip link add near0 type veth peer name far0 netns far
ip addr add 10.0.0.1/24 dev near0; ip link set near0 up
ip -n far addr add 10.0.0.2/24 dev far0; ip -n far link set far0 up
exec "$@"
"""
IN_FAR = ("ip", "netns", "exec", "far", sys.executable, "-m")


def flows(count: int, *, mirrored: bool = False) -> list[FourTuple]:
    """Connections of others, between NICs that need not be there."""
    found = [FourTuple("10.0.9.1", 20_000 + n, "10.0.9.2", 5_000) for n in range(count)]
    if not mirrored:
        return found
    return [FourTuple(f.remote, f.remote_port, f.local, f.local_port) for f in found]


def filled(count: int, *, mirrored: bool = False) -> tuple[DetourTable, float, float]:
    """A table, and what it took to tell it of its connections and to send them elsewhere, ms."""
    own = flows(count, mirrored=mirrored)
    near, far = own[0].local, own[0].remote
    rails = ({near: 0, near.replace(".9.", ".8."): 1}, {far: 0, far.replace(".9.", ".8."): 1})
    # Other ports collide where a thousand are between two hosts; decisions leave those out.
    ways = [(flow, other_wires(flow, *rails, PORTS)[REDRAWS:]) for flow in own]
    table = DetourTable()
    table.beat()
    began_s = time.perf_counter()
    table.change(expected=ways)
    told_s = time.perf_counter()
    table.change(sent=[(flow, some[0]) for flow, some in ways])
    sent_s = time.perf_counter()
    return table, 1e3 * (told_s - began_s), 1e3 * (sent_s - told_s)


def far_end(count: int) -> None:
    """Holds a table in the far namespace until its stdin ends."""
    table, *_ = filled(count, mirrored=True)
    print(flush=True)
    sys.stdin.read()
    table.close()


def with_table(port: int, given: argparse.Namespace) -> dict[str, float]:
    words = [*IN_FAR, "bench.detour_cost", "--far", "--expected", str(given.expected)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None  # noqa: S101 - asked for
        other.stdout.readline()
        table, told_ms, sent_ms = filled(given.expected)
        found = ask(FAR, port, 0, given.connections, given.seconds)
        table.close()
        assert other.stdin is not None  # noqa: S101 - asked for
        other.stdin.close()
    return {**found, "told_ms": told_ms, "sent_ms": sent_ms}


def measure(given: argparse.Namespace) -> dict[str, float]:
    words = [*IN_FAR, "bench.run_overhead", "--serve", FAR]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None  # noqa: S101 - asked for
        port = int(server.stdout.readline())
        try:
            rounds = [
                (ask(FAR, port, 0, given.connections, given.seconds), with_table(port, given))
                for _ in range(given.rounds)
            ]
        finally:
            server.kill()
    row: dict[str, float] = {}
    for key in ("short_us", "bulk_mbps"):
        row[f"{key}_without"] = statistics.median(a[key] for a, _ in rounds)
        row[f"{key}_with"] = statistics.median(b[key] for _, b in rounds)
        row[f"{key}_ratio"] = statistics.median(b[key] / a[key] for a, b in rounds)
    for key in ("told_ms", "sent_ms"):
        row[key] = statistics.median(b[key] for _, b in rounds)
    return {name: round(value, 3) for name, value in row.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--expected", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--quick", action="store_true", help="three short rounds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--far", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.seconds = 3, 0.5
    if given.far:
        far_end(given.expected)
        return 0
    if not given.inside:
        argv = [sys.executable, "-m", "bench.detour_cost", "--inside", *sys.argv[1:]]
        return subprocess.run([*UNSHARE, "sh", "-c", WORLD, "sh", *argv], check=False).returncode
    row = measure(given)
    if given.json:
        print(json.dumps(row, indent=1))
        return 0
    print(f"{given.expected} connections expected on three ways each; {given.rounds} rounds")
    for key, unit in (("short_us", "µs a short connection"), ("bulk_mbps", "Mb/s of one stream")):
        print(f"{unit}: {row[key + '_without']} without, {row[key + '_with']} with a table; "
              f"ratio {row[key + '_ratio']}")  # fmt: skip
    print(f"told of all in {row['told_ms']} ms, all sent another way in {row['sent_ms']} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
