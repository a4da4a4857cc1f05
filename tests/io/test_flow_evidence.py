"""Real connections between two namespaces, and what their numbers say: slow and stopped readers are
no dead paths, a black hole is one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.io.namespace import ip, run_alone

from syntony.io.tcp_flows import TcpFlows
from syntony.lab.testing import eventually
from syntony.model import MS
from syntony.traffic.evidence import FlowEvidence, Progress, Punctuality

if TYPE_CHECKING:
    from collections.abc import Callable

HERE, THERE, PORT = "10.9.0.1", "10.9.0.2", 7000
STEP_NS = 10 * MS
READER = """
import socket, sys, time
pause = float(sys.argv[1])
listener = socket.create_server(("10.9.0.2", 7000))
print("ready", flush=True)
taken, _ = listener.accept()
while taken.recv(4096):
    time.sleep(pause)
"""


class Peer:
    """A namespace beyond a veth, and a reader in it."""

    def __init__(self, pause_s: float) -> None:
        holder = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo in; exec sleep 1000"],
                                  stdout=subprocess.PIPE)  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"in\n"
        self._enter = ["nsenter", "-n", "-t", str(holder.pid)]
        ip(f"link add v0 type veth peer name v1 netns {holder.pid}")
        ip(f"address add {HERE}/24 dev v0")
        ip("link set v0 up")
        self.run(f"ip address add {THERE}/24 dev v1")
        self.run("ip link set v1 up")
        self.run("ip link set lo up")
        self.reader = subprocess.Popen(
            [*self._enter, sys.executable, "-c", READER, str(pause_s)], stdout=subprocess.PIPE
        )
        assert self.reader.stdout is not None
        assert self.reader.stdout.readline() == b"ready\n"

    def run(self, words: str) -> None:
        subprocess.run([*self._enter, *words.split()], check=True)


class Sender:
    """Sends all that goes, and is watched meanwhile."""

    def __init__(self) -> None:
        self.socket = socket.create_connection((THERE, PORT))
        threading.Thread(target=self._send, daemon=True).start()
        self.flows = TcpFlows()
        self.rows = self.flows.find([HERE])
        assert len(self.rows) == 1
        self.evidence = FlowEvidence()

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.socket.sendall(bytes(1 << 16))

    def look(self) -> Progress:
        self.flows.sample(self.rows)
        now_ns = time.monotonic_ns()
        (sample,) = self.flows.samples(self.rows, now_ns)
        return self.evidence.observe(sample)

    def watch(self, seconds: float) -> set[Progress]:
        """Everything said for a while."""
        punctuality, seen = Punctuality(), set()
        end_ns = time.monotonic_ns() + int(seconds * 1e9)
        due_ns = time.monotonic_ns()
        while due_ns < end_ns:
            stall = punctuality.woke(time.monotonic_ns(), due_ns)
            if stall is not None:
                self.evidence.excuse(stall)
            seen.add(self.look())
            due_ns = time.monotonic_ns() + STEP_NS
            time.sleep(STEP_NS / 1e9)
        return seen

    def until(self, progress: Progress) -> None:
        eventually(lambda: self.look() is progress, progress.value)


# --- run in a namespace of their own --------------------------------------------------------------


def a_stopped_reader_is_no_dead_path() -> None:
    """Its kernel takes what fits, then closes the window; probes of it are answered."""
    peer = Peer(0)
    sender = Sender()
    os.kill(peer.reader.pid, signal.SIGSTOP)
    sender.until(Progress.IDLE)
    assert sender.watch(2.0) == {Progress.IDLE}
    os.kill(peer.reader.pid, signal.SIGCONT)
    before = int(sender.rows["bytes_acked"][0])
    eventually(lambda: sender.look() is not None and _acked(sender) > before, "it goes on")


def a_slow_reader_is_no_dead_path() -> None:
    """A few kilobytes now and then: mostly its window is closed."""
    Peer(0.02)
    sender = Sender()
    sender.until(Progress.IDLE)
    assert Progress.STALLED not in sender.watch(2.0)


def a_black_hole_is_one_and_ends() -> None:
    peer = Peer(0)
    sender = Sender()
    sender.until(Progress.PROGRESSING)
    peer.run("nft add table ip t")
    peer.run("nft add chain ip t in { type filter hook input priority 0 ; }")
    peer.run("nft add rule ip t in drop")
    sender.until(Progress.STALLED)
    peer.run("nft delete table ip t")
    sender.until(Progress.PROGRESSING)


def _acked(sender: Sender) -> int:
    return int(sender.rows["bytes_acked"][0])


@pytest.mark.lab
@pytest.mark.parametrize(
    "scenario",
    [
        a_stopped_reader_is_no_dead_path,
        a_slow_reader_is_no_dead_path,
        a_black_hole_is_one_and_ends,
    ],
)
def test_in_a_namespace(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
