"""One run of a job under one scenario in one mode, with all its records."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from syntony.lab.client import Lab
from syntony.lab.drill.fleet import verdict_ns
from syntony.lab.drill.modes import JOB, JobMode
from syntony.lab.drill.scenarios import Scenario
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.records import Record
from syntony.lab.jobs.runner import START_TIMEOUT_S, LabJob
from syntony.model import S

WARM_STEPS = 5
"""Windows of new connections open, caches fill; not measured."""
_STEP_TIMEOUT_S = 1.0


class NicFlapTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long a run measures before and after its scenario, and waits for a hanging job."""

    before_ns: int = 4 * S
    after_ns: int = 6 * S
    limit_ns: int = 60 * S
    """From the request to end until a job counts as hung."""
    start_s: float = START_TIMEOUT_S
    """Until every rank has taken its first steps."""


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: requested at `requested_ns`, in force at `began_ns`; the lab was asked to end it
    at `ended_ns`.

    Starting a tool in a namespace takes 30 to 300 ms while a job uses all processors, and a fault
    cannot be detected before it is in force. The time the lab needs to end a fault counts towards
    the recovery.
    """

    kind: str
    target: str
    requested_ns: int
    began_ns: int
    ended_ns: int


class NicFlapTrial(msgspec.Struct, frozen=True, kw_only=True):
    """All data of one run from which figures are made; instants are CLOCK_MONOTONIC."""

    name: str
    mode: str
    job: str
    ranks: int
    elements: int
    scenario: str
    began_ns: int
    """All ranks were warm: measuring starts."""
    fault_ns: tuple[int, int]
    """First fault's start to last fault's end; without a fault, the same interval."""
    outages: tuple[Outage, ...]
    wished_end_ns: int
    ended_ns: int
    """The last rank was gone, or was killed."""
    hung: tuple[int, ...]
    """Ranks that had to be killed."""
    finished: bool
    records: tuple[Record, ...]
    detect_ns: int | None = None
    """From the first fault to Syntony's first verdict on a path; None: not known."""


def run_trial(
    lab: Lab,
    spec: JobSpec,
    mode: JobMode,
    scenario: Callable[[], Scenario],
    *,
    name: str,
    times: NicFlapTimes,
    say: Callable[[str], None],
) -> NicFlapTrial:
    """Runs the job once.

    Args:
        scenario: called once the job runs, so that it can hit the links that the job uses.

    Raises:
        RemoteError: the job did not start.
        SyntonyError: a fault could not be injected.
    """
    with LabJob(lab, spec, wrap=mode.wrap) as job:
        job.wait_steps(WARM_STEPS, times.start_s)
        began_ns = time.monotonic_ns()
        say(f"{mode.title}: {spec.name}, {len(spec.hosts)} ranks, runs")
        chosen = scenario()
        _until(began_ns + times.before_ns)
        first_ns = time.monotonic_ns()
        outages = _inject_faults(lab, chosen, first_ns, say)
        fault_ns = (
            (outages[0].began_ns, outages[-1].ended_ns)
            if outages
            else (first_ns, time.monotonic_ns())
        )
        _until(fault_ns[1] + times.after_ns)
        wished_ns = time.monotonic_ns()
        job.request_end()
        if not job.wait_end(_STEP_TIMEOUT_S):
            say(f"{mode.title}: still in a step; waiting up to {times.limit_ns / S:.0f} s more")
            job.wait_end(times.limit_ns / S)
        hung, ended_ns = job.alive(), time.monotonic_ns()
        if hung:
            # Read before the kill: errors that other ranks report because of it must not count.
            records = job.records()
            job.kill()
            say(f"{mode.title}: hangs; ranks {', '.join(map(str, hung))} killed")
        else:
            job.kill()
            records = job.records()
        return NicFlapTrial(
            name=name,
            mode=mode.name,
            job=spec.name,
            ranks=len(spec.hosts),
            elements=spec.elements,
            scenario=chosen.name,
            began_ns=began_ns,
            fault_ns=fault_ns,
            outages=outages,
            wished_end_ns=wished_ns,
            ended_ns=ended_ns,
            hung=hung,
            finished=not hung and job.finished(),
            records=tuple(records),
            detect_ns=_detected_ns(lab, outages) if mode.agents and outages else None,
        )


def _detected_ns(lab: Lab, outages: tuple[Outage, ...]) -> int | None:
    """From the first fault to the first verdict. The kernel may report a fault before the tool
    that injected it has ended: 0."""
    known_ns = verdict_ns(lab, JOB, (outages[0].requested_ns, outages[-1].ended_ns))
    return None if known_ns is None else max(0, known_ns - outages[0].began_ns)


def _inject_faults(
    lab: Lab, scenario: Scenario, first_ns: int, say: Callable[[str], None]
) -> tuple[Outage, ...]:
    """Carry out the scenario; return when it is over."""
    outages = []
    for planned in scenario.faults:
        _until(first_ns + planned.after_ns)
        if not planned.kind:
            _until(first_ns + planned.after_ns + planned.for_ns)
            continue
        say(f"{planned.kind} {planned.target}")
        fault = lab.inject(planned.kind, planned.target, planned.options)
        try:
            _until(fault.since_ns + planned.for_ns)
        finally:
            ended_ns = time.monotonic_ns()
            lab.clear(fault.id)
        say(f"{planned.kind} {planned.target}: over after {(ended_ns - fault.since_ns) / S:.1f} s")
        outages.append(
            Outage(
                kind=planned.kind,
                target=planned.target,
                requested_ns=fault.requested_ns,
                began_ns=fault.since_ns,
                ended_ns=ended_ns,
            )
        )
    return tuple(outages)


def _until(at_ns: int) -> None:
    time.sleep(max(0, at_ns - time.monotonic_ns()) / S)
