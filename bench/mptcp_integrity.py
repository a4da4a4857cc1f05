"""Does MPTCP put every byte where it belongs while subflows that lost data are removed?

    sudo .venv/bin/python -m bench.mptcp_integrity [--seconds 600] [--pairs 2] [--hogs N] [--json]

Nothing of Syntony runs but its netlink calls. `--pairs` connections of each kind, side by side: as
the kernel has it, with MPTCP's checksum, and over devices without scatter-gather, whose packets are
copied when they are sent. Each has two network namespaces, two veth pairs at 1 Gb/s, and carries
words of which each tells its place, in steps of 200 kB that are answered.
Again and again one of the two links is taken down at its far end for some tens of milliseconds, its
subflow destroyed at both ends, and made anew. The fault it looks for shows on busy machines: give
`--hogs` where nothing else runs (docs/decisions/0069).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from syntony.io import ethtool
from syntony.io.mptcp_pm import PathManager, PathManagerEvents
from syntony.model.paths import FourTuple
from syntony.traffic.events import ConnectionUp, SubflowDown, SubflowUp

MPTCP, CLONE_NEWNET, PORT = 262, 0x40000000, 5300
STEP_WORDS = 25_000
PAUSE_S = 0.004
RATE = "1gbit"
KINDS = ("plain", "checksum", "copied")
SET_TSO, SET_GSO, SET_SG = 0x1F, 0x24, 0x19


# --- the two ends of the connection ---------------------------------------------------------------


def receive(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            break
        data += part
    return bytes(data)


def words(step: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.arange(step * STEP_WORDS, (step + 1) * STEP_WORDS, dtype=np.uint64)


def serve() -> None:
    """Checks every word; prints one line for each run of wrong ones, and at the end the steps."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    listener.bind(("0.0.0.0", PORT))  # noqa: S104 - in a namespace of its own; joins come in on both
    listener.listen(1)
    print(json.dumps({"ready": True}), flush=True)
    peer, _ = listener.accept()
    step = 0
    while len(data := receive(peer, STEP_WORDS * 8)) == STEP_WORDS * 8:
        got, want = np.frombuffer(data, np.uint64), words(step)
        bad = np.flatnonzero(got != want)
        if len(bad):
            first = int(bad[0])
            off = int(got[first]) - int(want[first])
            reported = {"step": step, "words": len(bad), "first": first, "words_off": off}
            print(json.dumps(reported), flush=True)
        peer.sendall(step.to_bytes(8, "little"))
        step += 1
    print(json.dumps({"steps": step}), flush=True)


def ask(seconds: float) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
    sock.bind(("10.77.0.1", 0))
    sock.connect(("10.77.0.2", PORT))
    end_s, step = time.monotonic() + seconds, 0
    while time.monotonic() < end_s:
        sock.sendall(words(step).tobytes())
        if len(receive(sock, 8)) < 8:
            break
        step += 1
        time.sleep(PAUSE_S)
    sock.close()


def copy_when_sent(nic: str) -> None:
    """Switches scatter-gather and segmentation off."""
    for command in (SET_TSO, SET_GSO, SET_SG):
        ethtool.ask(nic, struct.pack("=II", command, 0))


def play(role: str, seconds: float) -> None:
    if role == "server":
        serve()
    elif role == "client":
        ask(seconds)
    else:
        copy_when_sent(role.removeprefix("copy:"))


# --- what happens to its paths --------------------------------------------------------------------


def run(*argv: str) -> None:
    subprocess.run(argv, check=True)


class End:
    """One namespace and the kernel's path manager in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.token = 0
        self.flows: dict[int, FourTuple] = {}
        """Rail to its subflow."""
        thread = threading.Thread(target=self._enter)
        thread.start()
        thread.join()

    def _enter(self) -> None:
        """A thread's namespace is its own; sockets stay in the one they were made in."""
        with Path(f"/run/netns/{self.name}").open("rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        self.kernel, self.events = PathManager(), PathManagerEvents()

    def listen(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while select.select([self.events], [], [], max(0.0, end_s - time.monotonic()))[0]:
            for event in self.events.read(time.monotonic_ns):
                if isinstance(event, ConnectionUp):
                    self.token = event.token
                    self.flows[0] = event.flow
                elif isinstance(event, SubflowUp):
                    self.flows[int(event.flow.local.split(".")[2])] = event.flow
                elif isinstance(event, SubflowDown):
                    self.flows = {rail: f for rail, f in self.flows.items() if f != event.flow}


class Pair:
    """Two namespaces, one connection, one of whose links fails at a time."""

    def __init__(self, number: int, kind: str, seconds: float) -> None:
        self._names = (f"mi{number}a", f"mi{number}b")
        self._make(kind)
        self._near, self._far = (End(name) for name in self._names)
        self._rng = random.Random(number)
        self._number = 0
        self.removals = 0
        self._kind = kind
        inside = [sys.executable, "-m", "bench.mptcp_integrity"]
        self._server = subprocess.Popen(
            ["ip", "netns", "exec", self._names[1], *inside, "--role", "server"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self._server.stdout is not None:
            self._server.stdout.readline()
        self._client = subprocess.Popen(
            ["ip", "netns", "exec", self._names[0], *inside, "--role", "client",
             "--seconds", str(seconds)]
        )  # fmt: skip

    def _make(self, kind: str) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
            run("ip", "netns", "add", name)
        near, far = self._names
        for rail in (0, 1):
            run("ip", "link", "add", f"r{rail}", "netns", near, "type", "veth",
                "peer", "name", f"r{rail}", "netns", far)  # fmt: skip
            for name, host in ((near, 1), (far, 2)):
                run(
                    "ip", "-n", name, "address", "add", f"10.77.{rail}.{host}/24", "dev", f"r{rail}"
                )
                run("ip", "-n", name, "link", "set", f"r{rail}", "up")
                if kind == "copied":
                    run("ip", "netns", "exec", name, sys.executable, "-m",
                        "bench.mptcp_integrity", "--role", f"copy:r{rail}")  # fmt: skip
                run("tc", "-n", name, "qdisc", "add", "dev", f"r{rail}", "root", "tbf",
                    "rate", RATE, "burst", "32k", "latency", "30ms")  # fmt: skip
        for name in self._names:
            run("ip", "netns", "exec", name, "sysctl", "-qw", "net.mptcp.pm_type=1",
                f"net.mptcp.checksum_enabled={int(kind == 'checksum')}")  # fmt: skip

    def work(self) -> None:
        """Until the client has ended."""
        while self._client.poll() is None:
            self._near.listen(0.05)
            self._far.listen(0.0)
            if self._near.token and self._far.token:
                self._turn()

    def _turn(self) -> None:
        missing = {0, 1} - self._near.flows.keys()
        for rail in missing:
            self._create(rail)
        if not missing:
            self._remove(self._rng.randrange(2))

    def _create(self, rail: int) -> None:
        self._number = self._number % 200 + 1
        port = self._rng.randrange(20_000, 60_000)
        flow = FourTuple(f"10.77.{rail}.1", port, f"10.77.{rail}.2", PORT)
        with contextlib.suppress(OSError):  # a port in use, or the connection is ending
            self._near.kernel.create(self._near.token, flow, self._number)

    def _remove(self, rail: int) -> None:
        flow, far = self._near.flows.pop(rail), self._names[1]
        back = FourTuple(flow.remote, flow.remote_port, flow.local, flow.local_port)
        run("ip", "-n", far, "link", "set", f"r{rail}", "down")
        time.sleep(self._rng.uniform(0, 0.03))
        ends = [(self._near, flow), (self._far, back)]
        self._rng.shuffle(ends)
        for end, known in ends:
            with contextlib.suppress(OSError):  # it has ended by itself
                end.kernel.destroy(end.token, known)
        self.removals += 1
        time.sleep(self._rng.uniform(0, 0.08))
        run("ip", "-n", far, "link", "set", f"r{rail}", "up")
        time.sleep(0.02)

    def account(self) -> dict[str, Any]:
        reported, _ = self._server.communicate(timeout=30)
        lines = [json.loads(line) for line in reported.splitlines()]
        for name in self._names:
            run("ip", "netns", "del", name)
        wrong = [line for line in lines if "words" in line]
        steps = sum(line.get("steps", 0) for line in lines)
        return {
            "kind": self._kind,
            "removals": self.removals,
            "steps": steps,
            "wrong": wrong,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--hogs", type=int, default=0, help="busy loops beside")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        play(args.role, args.seconds)
        return 0
    if os.geteuid() != 0:
        print("left out: namespaces by name have to be made; run it as root", file=sys.stderr)
        return 0
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(args.hogs)]
    kinds = KINDS * args.pairs
    pairs = [Pair(number, kind, args.seconds) for number, kind in enumerate(kinds)]
    threads = [threading.Thread(target=pair.work) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for hog in hogs:
        hog.kill()
    rows = [pair.account() for pair in pairs]
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    print("| | removals | steps of 200 kB | wrong runs of bytes |\n|---|---|---|---|")
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        removals, steps = (sum(row[key] for row in mine) for key in ("removals", "steps"))
        wrong = sum(len(row["wrong"]) for row in mine)
        print(f"| {kind} | {removals} | {steps} | {wrong} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
