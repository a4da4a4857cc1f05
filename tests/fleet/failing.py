"""For the live tests of failover: a lab of agents, and checked jobs between its hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import waiting
from tests.live import LiveLab, live

from syntony.controller.client import ask
from syntony.errors import MissingError
from syntony.lab.world import unshare_argv
from syntony.wire.failover import (
    ConnectionsQuery,
    ConnectionView,
    FailoverLogQuery,
    FailoverStatus,
    FailoverStatusQuery,
    PathEventRow,
)

PATIENCE_S = 300.0
DEAD = {"local-carrier", "local-nic", "remote-nic", "path", "peer", "fabric"}
"""Causes of leaving a path that failed: which of them is told first depends on who looks first."""
PAIR = Path(__file__).with_name("pair.py")

await_true = partial(waiting.await_true, patience_s=PATIENCE_S, pause_s=0.1)


class Fleet:
    def __init__(self, lab: LiveLab) -> None:
        self.lab = lab

    @property
    def target(self) -> str:
        """Of the controller that took charge last."""
        return f"unix:{self.lab.controller_socket}"

    def connections(self, job: str) -> dict[str, ConnectionView]:
        """By host."""
        answer = ask(self.target, ConnectionsQuery(job=job))
        return {each.host: conn for each in answer.hosts for conn in each.report.connections}

    def rails(self, job: str, host: str) -> set[str]:
        """NICs over which the job's connection goes, as its agent reports."""
        conn = self.connections(job).get(host)
        if conn is None:
            return set()
        return {
            each.path.partition(":")[0].partition("/")[2]
            for each in conn.subflows
            if each.state == "up"
        }

    def both(self, job: str) -> bool:
        return all(self.rails(job, host) == {"rail0", "rail1"} for host in ("h0", "h2"))

    def only(self, job: str, rail: str) -> bool:
        return all(self.rails(job, host) == {rail} for host in ("h0", "h2"))

    def log(self, job: str) -> tuple[PathEventRow, ...]:
        return ask(self.target, FailoverLogQuery(job=job)).events

    def came_back(self, job: str) -> bool:
        """Whether the log has a path made again where one was left."""
        return any(row.action == "create" and row.cause == "return" for row in self.log(job))

    def causes(self, job: str, since_ns: int = 0) -> set[str]:
        """Why paths that carried data were left, from an instant of fleet time on. A join that was
        not answered in time is none of them: a busy machine has such without any fault."""
        return {
            row.cause
            for row in self.log(job)
            if row.action == "destroy" and row.cause != "join" and row.ts_ns >= since_ns
        }

    @contextmanager
    def job(self, name: str, family: int = 4, *, plain: bool = False) -> Iterator[Job]:
        """A checked stream from h0 to h2 over rail 0, as any MPTCP (or plain) program makes it."""
        addresses = self.lab.addresses(family)
        ends = addresses["h0/rail0"], addresses["h2/rail0"]
        job = Job(self.lab, name, *ends, *(["plain"] if plain else []))
        try:
            yield job
        finally:
            job.end()


class Job:
    """Two processes, one connection; they check every byte."""

    def __init__(self, lab: LiveLab, name: str, client: str, server: str, *options: str) -> None:
        port = str(5200 + sum(map(ord, name)) % 400)
        self._ends = [
            subprocess.Popen(
                lab.enter_argv(host, ["env", f"SYNTONY_JOB={name}", sys.executable, str(PAIR),
                                      role, client, server, port, *options]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for host, role in (("h2", "server"), ("h0", "client"))
        ]  # fmt: skip

    def account(self) -> dict[str, Any]:
        """Ends the job; its account: steps, the longest step in s, wrong answers and which."""
        client = self._ends[1]
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.close()
        return dict(json.loads(client.stdout.readline()))

    def steps(self) -> dict[str, Any]:
        """As `account`.

        The kernel can give a wrong answer by itself, rarely (docs/decisions/0069): it is told as an
        expected failure, with what was seen.
        """
        account = self.account()
        if account["wrong"]:
            pytest.xfail(f"data at the wrong place, as in decision 0069: {account}")
        return account

    def end(self) -> None:
        for process in self._ends:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None and not pipe.closed:
                    pipe.close()


def status(fleet: Fleet) -> FailoverStatus:
    return ask(fleet.target, FailoverStatusQuery())


def way_of(fleet: Fleet, job: str, host: str) -> tuple[str, str]:
    """State and local NIC of a plain connection's way, as the host's agent reports them."""
    conn = fleet.connections(job).get(host)
    if conn is None:
        return "", ""
    (way,) = conn.subflows
    return way.state, way.path.partition(":")[0].partition("/")[2]


def on_its_own_nics(fleet: Fleet, job: str, nic: str = "rail0") -> bool:
    """Whether both ends send over the connection's own NICs, from whatever port."""
    found = {way_of(fleet, job, host) for host in ("h0", "h2")}
    return found <= {("plain", nic), ("redrawn", nic)}


def away_from(fleet: Fleet, job: str, nic: str) -> bool:
    """Whether both ends send around a NIC (``h0/rail0``)."""
    conns = fleet.connections(job)
    ways = [conns[host].subflows[0] for host in ("h0", "h2") if host in conns]
    return len(ways) == 2 and all(w.state == "detour" and f"{nic}:" not in w.path for w in ways)


def four_hosts(name: str, *options: str) -> Iterator[Fleet]:
    """A lab of four hosts whose agents have all reported; for a module's fixture."""
    try:
        unshare_argv()
    except MissingError as error:
        pytest.skip(f"no lab here: {error}: failures of a live fleet are NOT tested")
    with live(name, "--hosts", "4", *options, agents=True) as lab:
        fleet = Fleet(lab)
        await_true(lambda: len(status(fleet).hosts) == 4, "reports of all agents")
        yield fleet
