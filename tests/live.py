"""For tests and benchmarks: a lab in a `with` block, packets through it, its state as text."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from syntony.errors import RemoteError
from syntony.lab import state
from syntony.lab.client import Lab
from syntony.lab.plan import ROUTER
from syntony.model.names import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SYNTONY = (sys.executable, "-m", "syntony")
_ECHO = (sys.executable, str(Path(__file__).with_name("udp_echo.py")))
_PATIENCE_S = 240.0
_COMMAND_TIMEOUT_S = 240.0
"""Only a hang lasts so long."""
_LOOK = (
    "ip -br link; ip -br address; ip rule; ip -6 rule; ip route show table all; "
    "ip -6 route show table all | grep -v -e multicast -e fe80; tc qdisc; tc filter; "
    "nft list ruleset"
)


class Pings(NamedTuple):
    """What came back of UDP packets sent one after the other; `rtt_min_ns` is 0 if nothing did."""

    got: int
    rtt_min_ns: int


def syntony(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs one command line of Syntony to its end, whatever its exit code."""
    return subprocess.run(
        [*SYNTONY, *words],
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )


def eventually(
    true: Callable[[], bool], what: str = "the condition", *, within_s: float = _PATIENCE_S
) -> None:
    """Waits for something that must come to pass, long enough for a slow machine.

    Raises:
        TimeoutError: it did not; names `what`.
    """
    end_s, pause_s = time.monotonic() + within_s, 0.01
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError(f"never: {what}")
        time.sleep(pause_s)  # asking takes time from what is waited for, on a busy machine most
        pause_s = min(1.2 * pause_s, 0.2)


class LiveLab(Lab):
    """A running lab, with packets."""

    def serve_echo(self, node: str) -> None:
        """Starts a UDP echo on every address of `node`; it ends with the lab."""
        self.run(node, *_ECHO, "serve")

    def pings(
        self, src: str, dst: str, family: int = 4, *, count: int = 5, sport: int = 0
    ) -> Pings:
        """UDP from NIC to NIC (``h0/rail0``) and back; `sport` 0 is any."""
        addresses = self.addresses(family)
        words = [addresses[src], addresses[dst], str(count), str(sport)]
        return Pings(**json.loads(self.run(host_of(src), *_ECHO, "ask", *words)))

    def fabric_state(self) -> str:
        """Links, addresses, routes, rules, shapers and filters of every namespace."""
        status = self.status()
        nodes = (*status.hosts, *status.leaves, *status.spines, ROUTER)
        return "\n".join(self._node_state(node) for node in nodes)

    def _node_state(self, node: str) -> str:
        lines = self.run(node, "sh", "-c", _LOOK).splitlines()
        return "\n".join([f"--- {node}", *sorted(lines)])


@contextmanager
def live(name: str, *options: str, agents: bool = False) -> Iterator[LiveLab]:
    """A lab, without agents unless told otherwise, gone afterwards.

    Raises:
        RemoteError: it did not come up; with what the command said.
    """
    daemons = () if agents else ("--no-agents",)
    done = syntony("lab", "up", "--name", name, "--detach", *daemons, *options)
    if done.returncode != 0:
        raise RemoteError(done.stderr.strip())
    try:
        yield LiveLab(state.find(name))
    finally:
        syntony("lab", "down", "--name", name)
