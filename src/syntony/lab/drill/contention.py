"""Contention drill: jobs share a fabric, first with ECMP alone, then with Syntony switched on."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

import msgspec

from syntony.errors import RemoteError, UsageError
from syntony.io.user_name import user_name
from syntony.lab.client import Lab
from syntony.lab.drill import verbs
from syntony.lab.drill.fleet import machine_load
from syntony.lab.drill.modes import MANAGED
from syntony.lab.drill.place import NIC, lab_for
from syntony.lab.jobs.nccl_mesh import PLUGIN
from syntony.lab.jobs.programs import PORT, JobSpec
from syntony.lab.jobs.records import Record
from syntony.lab.jobs.runner import START_TIMEOUT_S, LabJob
from syntony.lab.plan import FabricSpec
from syntony.model import MS, S
from syntony.traffic.classes import JobClass
from syntony.wire.traffic import (
    MovesQuery,
    MoveView,
    PlacementCommand,
    Traffic,
    TrafficQuery,
)

JOBS = ("red", "blue")
SPEC = FabricSpec(hosts=4, rails=2, leaves=2, spines=2, rate_bps=40_000_000, latency_ns=50 * MS)
"""Full bisection: without collisions every NIC goes at its line rate. Slow, so that two cores carry
it; and queues deeper than what two jobs have under way (`ELEMENTS`), so that no packet is lost."""
ELEMENTS = 32_768
"""64 KiB a rank and exchange of two: 7 ms on the two rails together."""
VERBS_SPEC = FabricSpec(hosts=verbs.HOSTS, leaves=verbs.HOSTS, rate_bps=2_000_000, latency_ns=1 * S)
"""Two emulated machines. The rate is low, so that the links and not the processors are the
bottleneck."""
VERBS_RAILS = (("rail0",), ("rail0", "rail1"))
"""Ports of the two jobs: one uses one port, as if `NCCL_IB_HCA` named one; the other uses both."""
VERBS_ELEMENTS = 16_384
"""64 KiB per rank and step: a quarter of a second on one rail, and two of them fit into its
queue."""
SAMPLE_NS = 500 * MS
LATE_NS = 12 * S
"""A second's delays are reported within 3.5 s; on a busy machine, later."""
MAP_TIMEOUT_S = 180.0
"""Until every flow has an alternative path: 32 source ports per pair at 50 probes per second and
host take ten seconds; on two cores at a load of 50 it took more than 90 s."""
END_S = 30.0
_WARM_STEPS, _VERBS_WARM_STEPS = 20, 5


class ContentionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure ECMP alone, and Syntony after it is switched on."""

    alone_ns: int = 4 * S
    """The first job alone on the fabric: the throughput that it can reach."""
    before_ns: int = 8 * S
    after_ns: int = 16 * S


class ContentionOptions(msgspec.Struct, frozen=True, kw_only=True):
    framework: str = "builtin"
    kind: str = "all-reduce"
    python: str = sys.executable
    elements: int = ELEMENTS
    spec: FabricSpec = SPEC
    times: ContentionTimes = ContentionTimes()
    jobs: tuple[str, ...] = JOBS
    """Their names; the first one is also measured alone."""
    verbs: bool = False
    """Over RDMA, between two virtual machines that both jobs share."""


VERBS_OPTIONS = ContentionOptions(
    elements=VERBS_ELEMENTS,
    spec=VERBS_SPEC,
    times=ContentionTimes(alone_ns=10 * S, before_ns=20 * S, after_ns=60 * S),
    verbs=True,
)
"""Over verbs, where everything takes longer."""


class ControllerSample(msgspec.Struct, frozen=True, kw_only=True):
    """Flows and links as the controller reported them at one instant (CLOCK_MONOTONIC)."""

    at_ns: int
    traffic: Traffic


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    kind: str
    ranks: int
    elements: int
    finished: bool
    records: tuple[Record, ...]
    hosts: tuple[str, ...] = ()
    """Of its ranks."""


class ContentionTrial(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one run; instants are CLOCK_MONOTONIC."""

    spec: FabricSpec
    alone_ns: tuple[int, int]
    """Start and end of the time in which the first job was warm and alone."""
    began_ns: int
    """Measuring starts: all jobs are warm, and the paths of every flow are known."""
    acted_ns: int
    """When Syntony was set to act."""
    ended_ns: int
    """When the jobs were asked to end."""
    fleet_ahead_ns: int
    """Fleet time minus CLOCK_MONOTONIC."""
    jobs: tuple[JobRun, ...]
    samples: tuple[ControllerSample, ...]
    moves: tuple[MoveView, ...]
    verbs: bool = False
    """Over RDMA."""


def drill(
    options: ContentionOptions,
    say: Callable[[str], None],
    *,
    lab: Lab | None = None,
    classes: tuple[JobClass, ...] = (),
) -> ContentionTrial:
    """Runs all jobs once, in a lab of their own unless one is given.

    Args:
        lab: one with agents; None starts one for this drill.
        classes: of jobs, if a lab is started.

    Raises:
        UsageError: the lab given has no agents, or too few hosts.
        MissingError: this machine or installation lacks something.
        RemoteError: the jobs did not start, or their paths were not learnt in time.
    """
    with agent_lab(options.spec, classes, lab, say if options.verbs else None) as place:
        specs = verbs_specs(place, options) if options.verbs else job_specs(place, options)
        set_mode(place, "observe")
        try:
            return _run(place, options, specs, say)
        finally:
            with suppress(RemoteError):  # the lab may be gone
                set_mode(place, "observe")


def job_specs(lab: Lab, options: ContentionOptions) -> tuple[JobSpec, ...]:
    """Assign the hosts of both leaves to the jobs in turn; the ranks of a job alternate between the
    leaves, so that a ring crosses the spines at every hop. Raises `UsageError`: too few hosts."""
    hosts, addresses = lab.status().hosts, lab.addresses(4)
    if len(hosts) < 2 * len(options.jobs):
        raise UsageError(
            f"lab {lab.name!r} has {len(hosts)} hosts; needed: {2 * len(options.jobs)}"
        )
    half = len(hosts) // 2
    rounds = [(hosts[k], hosts[half + k]) for k in range(half)]
    return tuple(
        JobSpec(
            kind=options.kind,
            framework=options.framework,
            python=options.python,
            elements=options.elements,
            hosts=ranks,
            addresses=tuple(addresses[f"{host}/{NIC}"] for host in ranks),
            nic=NIC,
        )
        for number in range(len(options.jobs))
        for ranks in (tuple(host for pair in rounds[number :: len(options.jobs)] for host in pair),)
    )


def verbs_specs(lab: Lab, options: ContentionOptions) -> tuple[JobSpec, ...]:
    """All jobs between the same two hosts. Raises `UsageError`: the lab has no RDMA."""
    verbs.check_lab(lab)
    hosts, addresses = lab.status().hosts[: verbs.HOSTS], lab.addresses(4)
    return tuple(
        JobSpec(
            kind=options.kind,
            elements=options.elements,
            hosts=hosts,
            addresses=tuple(addresses[f"{host}/{verbs.SOCKETS}"] for host in hosts),
            nic=verbs.SOCKETS,
            port=PORT + number,
            net=PLUGIN,
            nice=verbs.NICER,
        )
        for number in range(len(options.jobs))
    )


def agent_lab(
    spec: FabricSpec,
    classes: tuple[JobClass, ...],
    given: Lab | None,
    machines: Callable[[str], None] | None = None,
) -> AbstractContextManager[Lab]:
    """The lab given, or a new one, with agents that are ready. Raises as `drill` does.

    Args:
        machines: if given, the hosts are virtual machines; called with progress while they start.
    """
    if machines and given is None:
        return verbs.verbs_lab(machines, spec, agents=True, classes=classes)
    return lab_for(spec, given, classes=classes)


def _run(
    lab: Lab, options: ContentionOptions, specs: tuple[JobSpec, ...], say: Callable[[str], None]
) -> ContentionTrial:  # fmt: skip
    wraps = (
        [verbs.managed(*each) for each in zip(options.jobs, VERBS_RAILS, strict=True)]
        if options.verbs
        else None
    )
    with start_jobs(lab, options.jobs, specs, options.times, say, wraps) as (jobs, alone_ns):
        return _all(lab, options, jobs, alone_ns, say)


@contextmanager
def start_jobs(  # noqa: PLR0917 - two of them go together
    lab: Lab,
    names: Sequence[str],
    specs: Sequence[JobSpec],
    times: ContentionTimes,
    say: Callable[[str], None],
    wraps: Sequence[tuple[str, ...]] | None = None,
) -> Iterator[tuple[list[LabJob], tuple[int, int]]]:
    """Start all jobs and yield them once they are warm, with the interval in which the first was
    alone. Raises as `drill` does.

    Args:
        wraps: prefix of each job's rank commands, if they run in virtual machines.
    """
    patience_s = verbs.START_BESIDE_AGENTS_S if wraps else START_TIMEOUT_S
    wraps = wraps or [(*MANAGED, name, "--") for name in names]
    with ExitStack() as stack:
        jobs: list[LabJob] = []
        alone_ns = 0
        for spec, wrap in zip(specs, wraps, strict=True):
            jobs.append(stack.enter_context(LabJob(lab, spec, wrap=wrap)))
            jobs[-1].wait_steps(_VERBS_WARM_STEPS if spec.net else _WARM_STEPS, patience_s)
            if len(jobs) == 1:
                alone_ns = time.monotonic_ns()
                say(f"one job runs alone: {spec.name}")
                time.sleep(times.alone_ns / S)
        yield jobs, (alone_ns, alone_ns + times.alone_ns)


def end_jobs(jobs: Sequence[LabJob]) -> None:
    """Ask all jobs to end, and wait until they have."""
    for job in jobs:
        job.request_end()
    for job in jobs:
        job.wait_end(END_S)


def _all(
    lab: Lab,
    options: ContentionOptions,
    jobs: Sequence[LabJob],
    alone_ns: tuple[int, int],
    say: Callable[[str], None],
) -> ContentionTrial:
    specs = [job.spec for job in jobs]
    say(f"{len(jobs)} jobs run: {specs[0].name}, {len(specs[0].hosts)} ranks each")
    if options.verbs:
        wait_delays(lab, options.jobs)
    else:
        wait_map(lab, len(jobs))
    return measure_jobs(
        lab, dict(zip(options.jobs, jobs, strict=True)), options.times, alone_ns, say
    )


def measure_jobs(
    lab: Lab,
    jobs: Mapping[str, LabJob],
    times: ContentionTimes,
    alone_ns: tuple[int, int],
    say: Callable[[str], None],
    *,
    what: str = "placement",
) -> ContentionTrial:
    """Measure running jobs (by name) while `what` observes, then while it acts, and end them."""
    samples: list[ControllerSample] = []
    began_ns = time.monotonic_ns()
    sample(lab, samples, began_ns + times.before_ns)
    acted_ns = time.monotonic_ns()
    set_mode(lab, "act", what)
    say("Syntony paces" if what == "pacing" else "Syntony acts")
    sample(lab, samples, acted_ns + times.after_ns)
    ended_ns = time.monotonic_ns()
    moves = fetch_moves(lab) if what == "placement" else ()
    sample_late_delays(lab, samples, ended_ns)
    end_jobs([*jobs.values()])
    return ContentionTrial(
        spec=lab.file().spec,
        alone_ns=alone_ns,
        began_ns=began_ns,
        acted_ns=acted_ns,
        ended_ns=ended_ns,
        fleet_ahead_ns=samples[-1].traffic.now_ns - samples[-1].at_ns,
        jobs=tuple(job_run(name, job) for name, job in jobs.items()),
        samples=tuple(samples),
        moves=moves,
        verbs=any(job.spec.net for job in jobs.values()),
    )


def job_run(name: str, job: LabJob, title: str = "") -> JobRun:
    """The result of a job that has ended. `title` replaces the name of its spec in reports."""
    spec = job.spec
    return JobRun(
        name=name,
        title=title or spec.name,
        kind=spec.kind,
        ranks=len(spec.hosts),
        elements=spec.elements,
        finished=job.finished(),
        records=tuple(job.records()),
        hosts=spec.hosts,
    )


def wait_map(lab: Lab, jobs: int) -> None:
    """Wait until every busy flow has an alternative path. Raises `RemoteError`: not in time."""
    end_s = time.monotonic() + MAP_TIMEOUT_S
    while True:
        traffic = fetch_traffic(lab)
        busy = [flow for flow in traffic.flows if flow.paths]
        known = len({flow.job for flow in busy}) >= jobs and all(f.paths > 1 for f in busy)
        if traffic.deciding and known:
            return
        if time.monotonic() > end_s:
            break
        time.sleep(SAMPLE_NS / S)
    known_paths = ", ".join(f"{f.job} {f.src}: {f.paths}" for f in traffic.flows) or "no flow"
    raise RemoteError(
        f"the paths of the jobs' flows were not learnt within {MAP_TIMEOUT_S:.0f} s: "
        f"{known_paths}; {traffic.why or 'deciding'}; {machine_load()}"
    )


def wait_delays(lab: Lab, names: Sequence[str], senders: int = 1) -> None:
    """Wait until the controller may decide and knows `senders` flows of each job, with delays.
    Raises `RemoteError`: not in time."""
    end_s = time.monotonic() + MAP_TIMEOUT_S
    while time.monotonic() < end_s:
        traffic = fetch_traffic(lab)
        flows = [flow for flow in traffic.flows if flow.job in names and flow.paths]
        reported = [flow for flow in flows if flow.owd_p50_ns is not None]
        count = Counter(flow.job for flow in flows)
        enough = all(count[name] >= senders for name in names)
        if traffic.deciding and enough and len(reported) == len(flows):
            return
        time.sleep(SAMPLE_NS / S)
    raise RemoteError(
        f"not all of the jobs' flows were reported within {MAP_TIMEOUT_S:.0f} s: {len(flows)}, of "
        f"{senders} or more a job, delays of {len(reported)}; {traffic.why or 'deciding'}; "
        f"{machine_load()}"
    )


def sample(lab: Lab, samples: list[ControllerSample], until_ns: int) -> None:
    """Sample the controller's view of flows every `SAMPLE_NS`, until then (CLOCK_MONOTONIC)."""
    while (now_ns := time.monotonic_ns()) < until_ns:
        samples.append(ControllerSample(at_ns=now_ns, traffic=fetch_traffic(lab)))
        rest_ns = min(now_ns + SAMPLE_NS, until_ns) - time.monotonic_ns()
        time.sleep(max(0, rest_ns) / S)


def sample_late_delays(lab: Lab, samples: list[ControllerSample], ended_ns: int) -> None:
    """Sample until the delays of the last second are known, at most for `LATE_NS`."""
    while (now_ns := time.monotonic_ns()) < ended_ns + LATE_NS:
        samples.append(ControllerSample(at_ns=now_ns, traffic=fetch_traffic(lab)))
        ahead_ns = samples[-1].traffic.now_ns - now_ns
        newest_ns = max((f.owd_at_ns for f in samples[-1].traffic.flows), default=0)
        if newest_ns - ahead_ns >= ended_ns - S:
            return
        time.sleep(SAMPLE_NS / S)


def fetch_traffic(lab: Lab) -> Traffic:
    """Fetch the controller's view of flows. Raises `RemoteError`."""
    return lab.ask(TrafficQuery())


def fetch_moves(lab: Lab) -> tuple[MoveView, ...]:
    """Fetch the controller's log of moves. Raises `RemoteError`."""
    return lab.ask(MovesQuery()).moves


def set_mode(lab: Lab, mode: str, what: str = "placement") -> None:
    """Set placement or pacing to observe or act. Raises `RemoteError`."""
    lab.ask(PlacementCommand(what=what, mode=mode, by=user_name(), why="drill"))
