"""A real lab with a job and its console, for tests in a browser and for pictures of the docs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from tests.live import LiveLab, eventually, live, syntony

from syntony.client import Client
from syntony.errors import RemoteError
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.runner import LabJob
from syntony.model import MS, ClockState, S
from syntony.wire.clocks import ClockQuery
from syntony.wire.jobs import JobsQuery
from syntony.wire.messages import FleetQuery

JOB = "train-7"
BAD = "h3/rail1"
"""The NIC at which faults are planted."""
HOSTS = 4
SIZE = ("--hosts", str(HOSTS), "--rails", "2", "--leaves", "2", "--spines", "2")
PATIENCE_S = 240
_ELEMENTS, _PAUSE_NS = 20_000, 300 * MS
"""Of a step: little enough for two cores to carry it beside everything else."""
_TRIES = 5
"""Of a command: a controller that starts on a busy machine may not answer in time."""


class LabFleet:
    """A running lab, its console and its job."""

    def __init__(self, lab: LiveLab, url: str, job: LabJob) -> None:
        self.lab, self.url, self.job = lab, url, job

    def token(self, role: str, name: str) -> str:
        """A new access token for a day."""
        words = ("enrol", "api", "token", role, name, "--valid", "1d", "--lab", self.lab.name)
        for _ in range(_TRIES):
            done = syntony(*words)
            if done.returncode == 0:
                return done.stdout.strip()
        raise RemoteError(done.stderr.strip())

    def client(self) -> Client:
        """To ask what the console should show."""
        return Client(self.url, token=self._own_token, timeout_ns=60 * S)

    @cached_property
    def _own_token(self) -> str:
        """One, so that the log of what changed shows the fleet and not its test."""
        return self.token("viewer", "test")


@contextmanager
def lab_fleet(name: str, *options: str) -> Iterator[LabFleet]:
    """Up with every agent connected, clocks synchronized and its job under way."""
    with live(name, *SIZE, *options, agents=True) as lab:
        eventually(
            lambda: syntony("lab", "console", "--lab", name).returncode == 0,
            "the console answers",
            within_s=PATIENCE_S,
        )
        url = syntony("lab", "console", "--lab", name).stdout.partition("/#")[0]
        hosts = tuple(f"h{number}" for number in range(HOSTS))
        addresses = lab.addresses(4)
        spec = JobSpec(
            kind="all-reduce", hosts=hosts, elements=_ELEMENTS, pause_ns=_PAUSE_NS,
            addresses=tuple(addresses[f"{host}/rail0"] for host in hosts),
        )  # fmt: skip
        wrap = (sys.executable, "-m", "syntony", "run", "--job", JOB, "--")
        with LabJob(lab, spec, wrap=wrap) as job:
            job.wait_steps(1, PATIENCE_S)
            fleet = LabFleet(lab, url, job)
            with fleet.client() as client:
                eventually(lambda: _well(client), "all is there and well", within_s=PATIENCE_S)
            yield fleet


def _well(client: Client) -> bool:
    try:
        agents = client.ask(FleetQuery()).agents
        lines = client.ask(ClockQuery()).timelines
        jobs = client.ask(JobsQuery(window_ns=60 * S)).jobs
    except RemoteError:  # a busy machine
        return False
    return (
        sum(each.connected for each in agents) == HOSTS
        and sum(each.state is ClockState.SYNCHRONIZED for each in lines) == HOSTS
        and any(each.job == JOB for each in jobs)
    )
