"""What a path slower than its sibling costs a job, with subflows put on standby and without.

    python -m bench.slow_path --rounds 1            # about six minutes
    python -m bench.slow_path --delays 0 50 --rounds 3

One MPTCP connection over two rails of a lab of its own (50 Mb/s each), one of which is delayed.
Messages are sent one after the other, each answered; or the job streams. A pair is two runs one
after the other: path control stopped by its switch once both rails are joined, and acting. Medians
over the rounds; every run is measured for `SECONDS` after `SETTLE_S`.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.live import LiveLab, eventually, live

from syntony.controller.client import ask
from syntony.wire.failover import (
    ConnectionsQuery,
    FailoverStatusQuery,
    SwitchCommand,
)

NAME, HOSTS, RATE, MPTCP = "bench-slow-path", 2, "50mbit", 262
DELAYS_MS = (0, 5, 20, 50, 200)
MESSAGES = (200_000, 1_000_000, 0)
"""Bytes; 0: a stream."""
SETTLE_S, SECONDS = 8.0, 4.0
ANSWER = b"k" * 64


def serve(address: str, port: int, size: int) -> None:
    """Answers every message of `size` bytes; takes a stream."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1)
        peer, _ = listener.accept()
    with peer:
        while len(peer.recv(size or 1 << 16, socket.MSG_WAITALL if size else 0)):
            if size:
                peer.sendall(ANSWER)


def connect(local: str, address: str, port: int) -> socket.socket:
    """The other end may not listen yet."""
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
        sock.bind((local, 0))
        if sock.connect_ex((address, port)) == 0:
            return sock
        sock.close()
        time.sleep(0.1)


def send(local: str, address: str, port: int, size: int) -> None:
    """Sends until killed; prints every tenth of a second the bytes sent so far, and how long the
    longest message took since it last did."""
    with connect(local, address, port) as sock:
        data, sent, due_s, longest_s = b"x" * (size or 1 << 16), 0, 0.0, 0.0
        now_s = time.monotonic()
        while True:
            sock.sendall(data)
            if size:
                sock.recv(len(ANSWER), socket.MSG_WAITALL)
            sent += len(data)
            began_s, now_s = now_s, time.monotonic()
            longest_s = max(longest_s, now_s - began_s)
            if now_s >= due_s:
                print(json.dumps([now_s, sent, longest_s]), flush=True)
                due_s, longest_s = now_s + 0.1, 0.0


@contextmanager
def job(lab: LiveLab, port: int, size: int) -> Iterator[subprocess.Popen[str]]:
    """The sending end, on h0; the other is on h1."""
    addresses = lab.addresses(4)
    ends = addresses["h0/rail0"], addresses["h1/rail0"]
    commands = (("h1", ["serve", ends[1]]), ("h0", ["send", *ends]))
    started = []
    for host, words in commands:
        argv = ["env", "SYNTONY_JOB=slow", sys.executable, "-m", "bench.slow_path", *words,
                str(port), str(size)]  # fmt: skip
        started.append(
            subprocess.Popen(lab.enter_argv(host, argv), stdout=subprocess.PIPE, text=True)
        )
        time.sleep(0.5)
    try:
        yield started[1]
    finally:
        for process in started:  # what runs inside ends with its pipe, or its peer
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def measure(lab: LiveLab, port: int, size: int, delay_ms: int, *, act: bool) -> float:
    """Mb/s of one run."""

    def switch(*, stopped: bool) -> None:
        command = SwitchCommand(stopped=stopped, by="bench")
        ask(f"unix:{lab.controller_socket}", command)

    with job(lab, port, size) as sender:
        assert sender.stdout is not None  # noqa: S101 - a pipe was asked for
        await_joins(lab)
        switch(stopped=not act)
        fault = None
        if delay_ms:
            options = {"add": f"{delay_ms}ms", "direction": "from"}
            fault = lab.inject("delay", "h0/rail1", options)
        began_s = time.monotonic()
        first: list[float] = []
        try:
            for line in sender.stdout:
                now_s, sent, _ = json.loads(line)
                if now_s >= began_s + SETTLE_S and not first:
                    first = [now_s, sent]
                if first and now_s >= first[0] + SECONDS:
                    return float((sent - first[1]) * 8 / (now_s - first[0]) / 1e6)
        finally:
            switch(stopped=False)
            if fault is not None:
                lab.clear(fault.id)
    raise RuntimeError("the sender ended early")


def await_joins(lab: LiveLab) -> None:
    """Until the job has a subflow over each rail."""

    def joined() -> bool:
        query = ConnectionsQuery(job="slow", host="h0")
        found = ask(f"unix:{lab.controller_socket}", query)
        conns = [conn for each in found.hosts for conn in each.report.connections]
        return any(sum(s.state == "up" for s in conn.subflows) == 2 for conn in conns)

    eventually(joined, "both rails are joined", within_s=60)


def acting(lab: LiveLab) -> int:
    """Hosts whose agents manage paths: a connection that is older than its agent is not managed."""
    if not lab.controller_socket.exists():
        return 0
    status = ask(f"unix:{lab.controller_socket}", FailoverStatusQuery())
    return sum(each.report.mode == "act" for each in status.hosts)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["send"]:
        with suppress(BrokenPipeError):  # measured enough
            send(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delays", type=int, nargs="+", default=DELAYS_MS, help="ms")
    parser.add_argument("--messages", type=int, nargs="+", default=MESSAGES, help="bytes")
    requested = parser.parse_args()
    print("| Message | Delay added | Without, Mb/s | With standby, Mb/s |\n" + "| --- " * 4 + "|")
    port = 5200
    options = ("--hosts", str(HOSTS), "--leaves", "1", "--spines", "1", "--rate", RATE)
    with live(NAME, *options, agents=True) as lab:
        eventually(lambda: acting(lab) == HOSTS, "all agents manage paths", within_s=60)
        for size in requested.messages:
            for delay_ms in requested.delays:
                found: dict[bool, list[float]] = {False: [], True: []}
                for _ in range(requested.rounds):
                    for act in (False, True):
                        port += 1
                        found[act].append(measure(lab, port, size, delay_ms, act=act))
                without, with_ = (statistics.median(found[act]) for act in (False, True))
                what = f"{size // 1000} kB" if size else "stream"
                print(f"| {what} | {delay_ms} ms | {without:.1f} | {with_:.1f} |", flush=True)


if __name__ == "__main__":
    main()
