"""The three-run experiment: no failure, failure as things are today, failure with Syntony."""

from __future__ import annotations

import importlib.util
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from syntony.errors import MissingError, UsageError
from syntony.lab.client import Lab
from syntony.lab.drill import modes, scenarios
from syntony.lab.drill.fleet import wait_ready
from syntony.lab.drill.trial import Times, Trial, run_trial
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.plan import FabricSpec
from syntony.lab.world import World, new_lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from syntony.lab.drill.modes import Mode
    from syntony.lab.drill.scenarios import Scenario
    from syntony.lab.jobs.runner import Job

HOSTS = 4
"""Two below each leaf: steps cross both leaf and spine, and two cores carry four ranks."""
NIC = "rail0"


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of one drill."""

    framework: str
    kind: str
    python: str
    fault: str = "link-down"
    outage_ns: int = scenarios.OUTAGE_NS
    hosts: int = HOSTS
    times: Times = Times()


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three runs."""

    name: str
    mode: Mode
    faulty: bool


RUNS = (
    Act(name="no failure", mode=modes.PLAIN, faulty=False),
    Act(name="today", mode=modes.PLAIN, faulty=True),
    Act(name="Syntony", mode=modes.SYNTONY, faulty=True),
)


def drill(
    wish: Wish,
    say: Callable[[str], None],
    *,
    lab: Lab | None = None,
    runs: tuple[Act, ...] = RUNS,
) -> list[Trial]:
    """Runs the job once per act, each in a lab of its own unless one is given.

    Raises:
        UsageError: there is no such fault, or the lab given is too small or has no agents.
        MissingError: this machine or installation lacks something.
        RemoteError: the job did not start.
    """
    scenarios.meaning(wish.fault)
    for act in runs:
        check_mode(act.mode, wish.framework)
    trials: list[Trial] = []
    for act in runs:
        say(f"run {len(trials) + 1} of {len(runs)}: {act.name}")
        with lab_for(act.mode, wish.hosts, lab) as place:
            trials.append(one(place, wish, act, say))
    return trials


def one(lab: Lab, wish: Wish, act: Act, say: Callable[[str], None]) -> Trial:
    """One run in a lab that is up."""
    spec = job_spec(lab, wish)

    def plan(_job: Job) -> Scenario:
        link = _busy_link(lab) if wish.fault == "spine-blackhole" else ""
        faulty = scenarios.make(wish.fault, outage_ns=wish.outage_ns, spine_link=link)
        return faulty if act.faulty else scenarios.calm(faulty.span_ns)

    return run_trial(lab, spec, act.mode, plan, name=act.name, times=wish.times, say=say)


def job_spec(lab: Lab, wish: Wish) -> JobSpec:
    """The job: one rank a host, on both sides of the spines."""
    status = lab.status()
    if len(status.hosts) < wish.hosts:
        raise UsageError(f"lab {lab.name!r} has {len(status.hosts)} hosts; needed: {wish.hosts}")
    hosts = spread(status.hosts, wish.hosts)
    addresses = lab.addresses(4)
    return JobSpec(
        kind=wish.kind,
        framework=wish.framework,
        python=wish.python,
        hosts=hosts,
        addresses=tuple(addresses[f"{host}/{NIC}"] for host in hosts),
        nic=NIC,
    )


def spread(hosts: tuple[str, ...], count: int) -> tuple[str, ...]:
    """`count` hosts, half of them from each half: the lab fills its leaves in that order."""
    near, half = count - count // 2, (len(hosts) + 1) // 2
    return hosts[:near] + hosts[half : half + count // 2]


def check_mode(mode: Mode, framework: str) -> None:
    """Raises `MissingError`: this installation cannot run jobs that way."""
    alone = mode.own_mptcp and framework == "builtin"
    if mode.wrap and not alone and importlib.util.find_spec("syntony.cli.run") is None:
        raise MissingError(f"{mode.title} needs `syntony run`, which this installation lacks")


@contextmanager
def lab_for(mode: Mode, hosts: int, given: Lab | None = None) -> Iterator[Lab]:
    """The lab given, or one for a run, with agents that are ready where `mode` has them.

    Raises:
        UsageError: the lab given has no agents.
        MissingError: this machine lacks something a lab needs.
        RemoteError: agents were not ready in time.
    """
    if given is not None:
        if mode.agents and not given.file().agents:
            raise UsageError(
                f"lab {given.name!r} runs without agents; start it without --no-agents"
            )
        yield given
        return
    spec = FabricSpec(hosts=hosts)
    with World(new_lab(f"drill-{os.getpid()}", spec, agents=mode.agents), detach=False) as world:
        world.wait_ready()
        lab = Lab(world.directory)
        if mode.agents:
            wait_ready(lab)
        yield lab


def _busy_link(lab: Lab) -> str:
    """The uplink of the victim's leaf that a connection of the job crosses.

    Raises:
        UsageError: no connection of the victim leaves its leaf.
    """
    addresses = lab.addresses(4)
    names = {address: name for name, address in addresses.items()}
    for line in lab.run(scenarios.VICTIM, "ss", "-tnH", "state", "established").splitlines():
        local, peer = (end.rsplit(":", 1) for end in line.split()[2:4])
        src, dst = names.get(local[0].strip("[]")), names.get(peer[0].strip("[]"))
        if src != scenarios.NIC or dst is None or not dst.endswith(NIC):
            continue
        way = lab.paths(src, dst, [int(local[1])], int(peer[1]), proto="tcp")[0]
        if way.spine is not None:
            return f"{way.hops[1]}/{way.spine}"
    raise UsageError(f"no connection of {scenarios.NIC} crosses a spine: nothing to black-hole")
