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
from tests.live import eventually

from syntony.io.tcp_flows import TcpFlows
from syntony.model import MS
from syntony.traffic.connection import Subflow, SubflowState
from syntony.traffic.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

HERE, THERE, PORT = "10.9.0.1", "10.9.0.2", 7000
STEP_S = 0.01
LATE_NS = 100 * MS
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
    """Sends all that goes, and is watched meanwhile as agents watch."""

    def __init__(self) -> None:
        self.socket = socket.create_connection((THERE, PORT))
        threading.Thread(target=self._send, daemon=True).start()
        self.flows = TcpFlows()
        self.rows = self.flows.find([HERE])
        assert len(self.rows) == 1
        (sample,) = self.flows.samples(self.rows, time.monotonic_ns())
        self.judge = Subflow(sample.flow, "v0", SubflowState.UP, sample.at_ns)
        self.seen_ns = sample.at_ns

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.socket.sendall(bytes(1 << 16))

    @property
    def acked(self) -> int:
        return int(self.rows["bytes_acked"][0])

    def stalled(self) -> bool:
        """Whether it is, as of now; a look that comes late proves nothing."""
        self.flows.sample(self.rows)
        now_ns = time.monotonic_ns()
        if now_ns - self.seen_ns > LATE_NS:
            self.judge.excuse(now_ns)
        self.seen_ns = now_ns
        (sample,) = self.flows.samples(self.rows, now_ns)
        self.judge.take(sample, Policy())
        return self.judge.stalled is not None

    def ever_stalled(self, seconds: float) -> bool:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            if self.stalled():
                return True
            time.sleep(STEP_S)
        return False


# --- run in a namespace of their own --------------------------------------------------------------


def a_stopped_reader_is_no_dead_path() -> None:
    """Its kernel takes what fits, then closes the window; probes of it are answered."""
    peer = Peer(0)
    sender = Sender()
    os.kill(peer.reader.pid, signal.SIGSTOP)
    assert not sender.ever_stalled(2.0)
    os.kill(peer.reader.pid, signal.SIGCONT)
    before = sender.acked
    eventually(lambda: not sender.stalled() and sender.acked > before, "it goes on")


def a_slow_reader_is_no_dead_path() -> None:
    """A few kilobytes now and then: mostly its window is closed."""
    Peer(0.02)
    sender = Sender()
    assert not sender.ever_stalled(2.0)
    assert sender.acked > 0


def a_black_hole_is_one_and_ends() -> None:
    peer = Peer(0)
    sender = Sender()
    eventually(lambda: not sender.stalled() and sender.acked > 0, "data")
    peer.run("nft add table ip t")
    peer.run("nft add chain ip t in { type filter hook input priority 0 ; }")
    peer.run("nft add rule ip t in drop")
    eventually(sender.stalled, "stalled")
    peer.run("nft delete table ip t")
    eventually(lambda: not sender.stalled(), "well again")


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
