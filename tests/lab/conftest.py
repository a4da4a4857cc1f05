"""Real labs for tests, and packets through them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from syntony.errors import MissingError
from syntony.lab import state
from syntony.lab.client import Lab
from syntony.lab.world import unshare_argv

SYNTONY = [sys.executable, "-m", "syntony"]
ECHO = Path(__file__).with_name("udp_echo.py")
PATIENCE_S = 20.0


def syntony(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs one command line to its end."""
    done = subprocess.run(
        [*SYNTONY, *words], capture_output=True, text=True, timeout=60, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: exit {done.returncode}: {done.stderr}")
    return done


def eventually(true: Callable[[], bool], what: str) -> None:
    """Waits for something that must come to pass; machines under test may be slow."""
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.05)


class Pings(NamedTuple):
    """What came back of UDP packets sent one after the other."""

    got: int
    rtt_min_ns: int


class LiveLab(Lab):
    """A running lab, with packets."""

    def run(self, node: str, *argv: str) -> str:
        """Output of a command inside `node`, which must succeed."""
        done = subprocess.run(
            self.enter_argv(node, argv), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (node, argv, done.stderr)
        return done.stdout

    @contextmanager
    def echo(self, node: str) -> Iterator[None]:
        """A UDP echo on every address of `node`, both families."""
        argv = self.enter_argv(node, [sys.executable, str(ECHO), "serve"])
        server = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"ready\n"
            yield
        finally:
            server.terminate()
            self.run(node, "pkill", "-f", "udp_echo.py serve")
            server.wait()
            server.stdout.close()

    def pings(self, src: str, dst: str, family: int = 4, count: int = 5, sport: int = 0) -> Pings:
        """UDP from NIC to NIC (``h0/rail0``) and back."""
        addresses = self.addresses
        argv = [sys.executable, str(ECHO), "ask", addresses[src][family], addresses[dst][family]]
        said = self.run(src.partition("/")[0], *argv, str(count), str(sport))
        return Pings(**json.loads(said))

    @property
    def addresses(self) -> dict[str, dict[int, str]]:
        from syntony.lab.plan import make_plan

        links = make_plan(self.file().spec).links
        return {link.name: {4: link.a.ipv4, 6: link.a.ipv6} for link in links}

    def fabric_state(self) -> str:
        """Everything that a fault may change, of every namespace, comparable as text."""
        status = self.status()
        look = (
            "ip -br link; ip -br address; ip rule; ip -6 rule; ip route show table all; "
            "ip -6 route show table all | grep -v -e multicast -e fe80; tc qdisc; "
            "tc filter; nft list ruleset"
        )
        parts = []
        for node in (*status.hosts, *status.leaves, *status.spines, "fe0"):
            lines = self.run(node, "sh", "-c", look).splitlines()
            parts.append(f"{node}\n" + "\n".join(sorted(lines)))
        return "\n".join(parts)


@pytest.fixture(scope="session")
def able() -> None:
    """Skips, visibly, where this machine cannot make a private world."""
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}")


@contextmanager
def live(name: str, *options: str) -> Iterator[LiveLab]:
    """A lab without agents, gone afterwards."""
    syntony("lab", "up", "--name", name, "--detach", "--no-agents", *options)
    try:
        yield LiveLab(state.find(name))
    finally:
        syntony("lab", "down", "--name", name, check=False)
