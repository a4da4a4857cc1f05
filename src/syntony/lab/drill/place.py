"""The lab of a drill, and the placement of the job's ranks on its hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from syntony.errors import UsageError
from syntony.io.interposer import tcp_library
from syntony.lab.client import Lab
from syntony.lab.drill.fleet import wait_ready
from syntony.lab.drill.modes import JobMode
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.plan import FabricSpec
from syntony.lab.world import World, new_lab
from syntony.traffic.classes import JobClass

HOSTS = 4
"""Two below each leaf: steps cross both leaf and spine, and two cores carry four ranks."""
SPEC = FabricSpec(hosts=HOSTS)
NIC = "rail0"
"""The NIC that ranks are configured to use, as a program without Syntony would be."""


@contextmanager
def lab_for(
    spec: FabricSpec,
    given: Lab | None = None,
    *,
    agents: bool = True,
    classes: tuple[JobClass, ...] = (),
) -> Iterator[Lab]:
    """The lab given, or a new one; with agents that are ready, unless none are needed.

    Raises:
        UsageError: the lab given has no agents.
        MissingError: this machine lacks something a lab needs.
        RemoteError: agents were not ready in time.
    """
    if given is not None:
        if agents and not given.file().agents:
            raise UsageError(
                f"lab {given.name!r} runs without agents; start it without --no-agents"
            )
        yield given
        return
    file = new_lab(f"drill-{os.getpid()}", spec, agents=agents, classes=classes)
    with World(file, detach=False) as world:
        world.wait_ready()
        lab = Lab(world.directory)
        if agents:
            wait_ready(lab)
        yield lab


def job_spec(lab: Lab, *, framework: str, kind: str, python: str, ranks: int = HOSTS) -> JobSpec:
    """The job: one rank a host, on both sides of the spines. Raises `UsageError`: too few hosts."""
    status = lab.status()
    if len(status.hosts) < ranks:
        raise UsageError(f"lab {lab.name!r} has {len(status.hosts)} hosts; needed: {ranks}")
    hosts = spread(status.hosts, ranks)
    addresses = lab.addresses(4)
    return JobSpec(
        kind=kind,
        framework=framework,
        python=python,
        hosts=hosts,
        addresses=tuple(addresses[f"{host}/{NIC}"] for host in hosts),
        nic=NIC,
    )


def spread(hosts: tuple[str, ...], count: int) -> tuple[str, ...]:
    """`count` hosts, half of them from each half: the lab fills its leaves in that order."""
    near, half = count - count // 2, (len(hosts) + 1) // 2
    return hosts[:near] + hosts[half : half + count // 2]


def check_mode(mode: JobMode) -> None:
    """Raises `MissingError`: this installation cannot run jobs that way."""
    if mode.wrap:
        tcp_library()
