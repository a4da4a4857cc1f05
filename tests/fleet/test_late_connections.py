"""Connections that an agent learns of late get a path on every rail: real agents, a real kernel."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fleet.failing import PAIR, Fleet, await_true

pytestmark = pytest.mark.lab

NAME = "t-late"
AWAY_S = 3
"""Longer than an initiator waits for an announcement."""
SERVER = Path(__file__).with_name("late_server.py")


@contextmanager
def job(fleet: Fleet, name: str, accept_s: float, family: int = 4) -> Iterator[None]:
    addresses = fleet.lab.addresses(family)
    client, server = addresses["h0/rail0"], addresses["h2/rail0"]
    port = str(5200 + sum(map(ord, name)) % 400)
    commands = (
        ("h2", [str(SERVER), server, port, str(accept_s)]),
        ("h0", [str(PAIR), "client", client, server, port]),
    )
    ends = [
        subprocess.Popen(
            fleet.lab.enter_argv(host, ["env", f"SYNTONY_JOB={name}", sys.executable, *words]),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        for host, words in commands
    ]
    try:
        yield
    finally:
        for process in ends:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("family", [4, 6])
def test_a_server_that_accepts_late(fleet: Fleet, family: int) -> None:
    name = f"late-{family}"
    with job(fleet, name, 4, family):
        await_true(lambda: fleet.both(name), "a subflow over each rail")


@pytest.mark.parametrize(
    ("host", "kind", "accept_s"),
    [
        ("h2", "agent-stop", 0),
        pytest.param("h0", "agent-stop", 0, marks=pytest.mark.slow),
        pytest.param("h0", "agent-stop", 4, marks=pytest.mark.slow),
        pytest.param("h2", "agent-kill", 0, marks=pytest.mark.slow),
    ],
)
def test_an_agent_that_is_away_while_it_begins(
    fleet: Fleet, host: str, kind: str, accept_s: float
) -> None:
    name = f"{kind}-{host}-{accept_s}"
    fault = fleet.lab.inject(kind, host)
    with job(fleet, name, accept_s):
        time.sleep(AWAY_S)
        fleet.lab.clear(fault.id)
        await_true(lambda: fleet.both(name), "a subflow over each rail")
