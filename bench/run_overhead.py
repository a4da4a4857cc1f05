"""What running under `syntony run` costs: short connections, and bulk throughput.

    .venv/bin/python -m bench.run_overhead [--rounds 7] [--connections 300] [--seconds 1] [--json]

Four ways to run the same client, taken in turn within each round: `tcp` as it is; `mptcp`, asking
the kernel for MPTCP itself; `run`, with what `syntony run` sets; `off`, with SYNTONY_TCP=off too.
Three places: `host`, to the host's own address (where `run` stays plain TCP); `wire`, to another
host over the lab's 200 Mb/s links; `fast`, over links of 10 Gb/s, where the processor is the limit.
A short connection is socket, connect, one byte there, one back, close. Every figure is the median
of the rounds; ratios are medians of the ratios within a round, against `tcp` and against `mptcp`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.live import LiveLab, live

from syntony.io.interposer import tcp_library

IPPROTO_MPTCP = 262
CHUNK = bytes(1 << 18)
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "tcp": {},
    "mptcp": {},
    "run": {"LD_PRELOAD": str(tcp_library()), "SYNTONY_JOB": "bench"},
    "off": {"LD_PRELOAD": str(tcp_library()), "SYNTONY_TCP": "off"},
}
PLACES = {"host": ("h0", "200mbit"), "wire": ("h1", "200mbit"), "fast": ("h1", "10gbit")}


def serve(address: str) -> None:
    """Accepts both kinds; sends back the first byte, reads to the end, sends one more."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    listener.bind((address, 0))
    listener.listen(1024)
    print(listener.getsockname()[1], flush=True)
    while True:
        stream, _ = listener.accept()
        with stream:
            stream.sendall(stream.recv(1))
            while stream.recv(1 << 18):
                pass
            stream.sendall(b".")


def connected(address: str, port: int, protocol: int) -> socket.socket:
    """After the first byte has come back."""
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    stream.connect((address, port))
    stream.sendall(b"x")
    stream.recv(1)
    return stream


def ask(address: str, port: int, protocol: int, count: int, seconds: float) -> dict[str, float]:
    """Median short connection in µs; bulk throughput in Mb/s."""
    took_ns = []
    for _ in range(count):
        began = time.perf_counter_ns()
        connected(address, port, protocol).close()
        took_ns.append(time.perf_counter_ns() - began)
    with connected(address, port, protocol) as stream:
        stream.settimeout(60)
        sent, began_s = 0, time.perf_counter()
        while time.perf_counter() < began_s + seconds:
            stream.sendall(CHUNK)
            sent += len(CHUNK)
        stream.shutdown(socket.SHUT_WR)
        stream.recv(1)
        took_s = time.perf_counter() - began_s
    return {"short_us": statistics.median(took_ns) / 1e3, "bulk_mbps": sent * 8 / took_s / 1e6}


@contextmanager
def serving(lab: LiveLab, host: str, address: str) -> Iterator[int]:
    """A server's port while it runs."""
    words = [sys.executable, "-m", "bench.run_overhead", "--serve", address]
    server = subprocess.Popen(
        lab.enter_argv(host, words), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        if server.stdout is None:
            raise RuntimeError("the server was started without a pipe")
        yield int(server.stdout.readline())
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def measure(place: str, rounds: int, count: int, seconds: float) -> dict[str, Any]:
    """All four ways at one place."""
    host, rate = PLACES[place]
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ENVIRONMENTS}
    name = f"bench-run-{place}-{os.getpid()}"
    with live(name, "--hosts", "2", "--leaves", "1", "--rate", rate) as lab:
        address = lab.addresses(4)[f"{host}/rail0"]
        with serving(lab, host, address) as port:
            for _ in range(rounds):
                for way, environ in ENVIRONMENTS.items():
                    protocol = IPPROTO_MPTCP if way == "mptcp" else 0
                    words = [address, port, protocol, count, seconds]
                    variables = [f"{name}={value}" for name, value in environ.items()]
                    client = [sys.executable, "-m", "bench.run_overhead", "--ask"]
                    said = lab.run("h0", "env", *variables, *client, *map(str, words))
                    found[way].append(json.loads(said))
    return {"place": place, **{way: summary(found, way) for way in found}}


def summary(found: dict[str, list[dict[str, float]]], way: str) -> dict[str, float]:
    """Medians, and medians of the ratios to `tcp` and `mptcp` round by round."""
    row: dict[str, float] = {}
    for key in ("short_us", "bulk_mbps"):
        row[key] = round(statistics.median(one[key] for one in found[way]), 1)
        for base in ("tcp", "mptcp"):
            ratios = [
                one[key] / other[key] for one, other in zip(found[way], found[base], strict=True)
            ]
            row[f"{key}_to_{base}"] = round(statistics.median(ratios), 3)
    return row


def main() -> int:
    """Three places, four ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1.0, help="of bulk transfer each")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--ask", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
    if given.ask:
        address, port, protocol, count, seconds = given.ask
        print(json.dumps(ask(address, int(port), int(protocol), int(count), float(seconds))))
        return 0
    results = [measure(place, given.rounds, given.connections, given.seconds) for place in PLACES]
    if given.json:
        print(json.dumps(results, indent=1))
        return 0
    print(
        f"{'':11}{'short µs':>9}{'/tcp':>7}{'/mptcp':>8}{'bulk Mb/s':>11}{'/tcp':>7}{'/mptcp':>8}"
    )
    for result in results:
        for way in ENVIRONMENTS:
            row = result[way]
            print(
                f"{result['place']:5}{way:6}{row['short_us']:9.1f}{row['short_us_to_tcp']:7.2f}"
                f"{row['short_us_to_mptcp']:8.2f}{row['bulk_mbps']:11.1f}"
                f"{row['bulk_mbps_to_tcp']:7.3f}{row['bulk_mbps_to_mptcp']:8.3f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
