"""Slow-job drill: one flow of a job is made slow, and must be named while the job runs, by the
rules of `why`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from syntony.errors import InputError, RemoteError, UsageError
from syntony.io.bundle_files import bundle_from_tables, joined
from syntony.lab.client import Lab
from syntony.lab.drill import modes
from syntony.lab.drill.flows import SS_ARGV, parse_ss
from syntony.lab.drill.place import NIC, job_spec, lab_for
from syntony.lab.drill.trial import WARM_STEPS, Outage
from syntony.lab.jobs.programs import JobSpec
from syntony.lab.jobs.records import Record
from syntony.lab.jobs.runner import LabJob
from syntony.lab.plan import FabricSpec
from syntony.model import MS, S
from syntony.wire.jobs import RecordingQuery
from syntony.workload import diagnose
from syntony.workload.bundle import Bundle
from syntony.workload.diagnose import Diagnosis
from syntony.workload.flows import Flows
from syntony.workload.grid import median
from syntony.workload.verdict import FaultClass

if TYPE_CHECKING:
    import pyarrow as pa

HOSTS = 4
SPEC = FabricSpec(hosts=HOSTS, rails=1)
ELEMENTS = 8_192
"""8 KiB from each rank to each other in a step, 2.8 Mb/s of each flow: no queue anywhere."""
PAUSE_NS = 20 * MS
"""Pause before each step: two cores run four ranks and the diagnosis."""
MAX_BPS = 2_500_000
"""A rate above what a flow sends slows nothing."""
WINDOW_NS = 90 * S
"""Length of the recording that is judged."""
LOOK_NS = S // 2
STANDS_OUT = 3
"""A flow stands out if its delay in the newest window is this many times the median flow's."""
RECORD_TIMEOUT_S = 120.0
RECORDED_S = 8
"""Seconds of every flow before the quiet phase begins."""
ANSWER_NS = 30 * S
AFTER_NS = 5 * S
"""How long the job continues after the flow is named."""
_END_S = 30.0


class SlowJobTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Length of the phase without a fault, and the limit for naming the flow."""

    quiet_ns: int = 20 * S
    limit_ns: int = 60 * S


class SlowJobOptions(msgspec.Struct, frozen=True, kw_only=True):
    framework: str
    kind: str
    python: str
    to: str = "2mbit"
    """What the slow flow can send."""
    times: SlowJobTimes = SlowJobTimes()


class NamedFlow(msgspec.Struct, frozen=True, kw_only=True):
    fault: str
    subjects: tuple[str, ...]
    confidence: float
    text: str
    """Its first piece of evidence."""


class JudgedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The diagnosis of one recording, finished at `at_ns` (CLOCK_MONOTONIC)."""

    at_ns: int
    verdicts: tuple[NamedFlow, ...]
    worst: str
    """The flow of the longest delay in the newest window, if it stands out."""
    gaps: tuple[str, ...] = ()
    """What could not be judged, and why."""


class FlowSeries(msgspec.Struct, frozen=True, kw_only=True):
    flow: str
    at_ns: tuple[int, ...]
    """CLOCK_MONOTONIC."""
    delay_ns: tuple[float | None, ...]


class SlowTrial(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of one run; instants are CLOCK_MONOTONIC."""

    job: str
    ranks: int
    names: tuple[str, str]
    """The slow connection's two directions, as the controller calls them."""
    began_ns: int
    """Enough is recorded: the phase without a fault begins."""
    outage: Outage
    ended_ns: int
    looks: tuple[JudgedAnswer, ...]
    flows: tuple[FlowSeries, ...]
    finished: bool
    records: tuple[Record, ...]


class Recorder(NamedTuple):
    """Reads the fleet's recording of the job, without earlier jobs of the same name."""

    lab: Lab
    began_ns: int
    """Of the job, CLOCK_MONOTONIC."""

    def bundle(self) -> Bundle | None:
        """The recording up to now; None: nothing yet, or no answer."""
        try:
            return bundle_from_tables(*self.tables())
        except (InputError, RemoteError):
            return None

    def tables(self) -> tuple[dict[str, pa.Table], dict[str, Any]]:
        """The recording's tables and its manifest. Raises `RemoteError`."""
        window_ns = min(WINDOW_NS, time.monotonic_ns() - self.began_ns)
        query = RecordingQuery(job=modes.JOB, window_ns=window_ns, processes=True)
        answer = self.lab.ask(query, timeout_ns=ANSWER_NS)
        return joined(answer.rows), msgspec.json.decode(answer.manifest)


def drill(
    options: SlowJobOptions, say: Callable[[str], None], *, lab: Lab | None = None
) -> SlowTrial:
    """Runs the job once, in a lab of its own unless one is given.

    Raises:
        UsageError: the lab given has no agents, or too few hosts; a rate that is none.
        MissingError: this machine or installation lacks something.
        RemoteError: the job did not start, or nothing of it was recorded.
    """
    with lab_for(SPEC, lab) as place:
        spec = msgspec.structs.replace(
            job_spec(
                place,
                framework=options.framework,
                kind=options.kind,
                python=options.python,
                ranks=HOSTS,
            ),
            elements=ELEMENTS,
            pause_ns=PAUSE_NS,
        )
        recorder = Recorder(place, time.monotonic_ns())
        with LabJob(place, spec, wrap=modes.SYNTONY_TCP.wrap) as job:
            job.wait_steps(WARM_STEPS)
            say(f"{spec.name}, {HOSTS} ranks, runs; waiting for what is recorded of it")
            _wait_recorded(recorder)
            return _run(recorder, options, spec, job, say)


def _run(
    recorder: Recorder,
    options: SlowJobOptions,
    spec: JobSpec,
    job: LabJob,
    say: Callable[[str], None],
) -> SlowTrial:
    lab = recorder.lab
    looks: list[JudgedAnswer] = []
    began_ns = time.monotonic_ns()
    say(f"quiet for {options.times.quiet_ns / S:.0f} s: nothing is to be named")
    judge_until(recorder, looks, began_ns + options.times.quiet_ns, lambda _look: False)
    ports, names = busiest_connection(lab, spec)
    fault_options = {"to": options.to, "sport": str(ports[0]), "dport": str(ports[1])}
    fault = lab.inject("flow-rate", f"{spec.hosts[0]}/{NIC}", fault_options)
    try:
        say(f"{names[0]} sends no faster than {options.to}")
        named = judge_until(
            recorder,
            looks,
            fault.since_ns + options.times.limit_ns,
            lambda look: is_named(look, names),
        )
        say("named" if named else "not named in time")
        judge_until(recorder, looks, time.monotonic_ns() + AFTER_NS, lambda _look: False)
        series = _series(recorder)
    finally:
        lab.clear(fault.id)
    ended_ns = time.monotonic_ns()
    job.request_end()
    job.wait_end(_END_S)
    return SlowTrial(
        job=spec.name,
        ranks=len(spec.hosts),
        names=names,
        began_ns=began_ns,
        outage=Outage(
            kind=fault.kind,
            target=fault.target,
            requested_ns=fault.requested_ns,
            began_ns=fault.since_ns,
            ended_ns=ended_ns,
        ),
        ended_ns=ended_ns,
        looks=tuple(looks),
        flows=series,
        finished=job.finished(),
        records=tuple(job.records()),
    )


def is_named(look: JudgedAnswer, names: tuple[str, ...]) -> bool:
    """Whether a verdict says that one of these flows is slow, and blames no other flow."""
    blamed = [
        subject
        for each in look.verdicts
        if each.fault == FaultClass.SLOW_FLOW
        for subject in each.subjects
    ]
    return bool(blamed) and set(blamed) <= set(names)


def busiest_connection(lab: Lab, spec: JobSpec) -> tuple[tuple[int, int], tuple[str, str]]:
    """Ports of the busiest connection from the first rank to the last, and what its directions are
    called. Raises `RemoteError`: there is none."""
    far = spec.addresses[-1]
    there = [each for each in parse_ss(lab.run(spec.hosts[0], *SS_ARGV)) if each.peer == far]
    if not there:
        raise RemoteError(f"no connection of the job from {spec.hosts[0]} to {spec.hosts[-1]}")
    found = max(there, key=lambda each: each.sent_bytes)
    one, other = (
        f"{host}/{NIC}:{port}"
        for host, port in (
            (spec.hosts[0], found.local_port),
            (spec.hosts[-1], found.peer_port),
        )
    )
    return (found.local_port, found.peer_port), (f"{one}>{other}", f"{other}>{one}")


def judge_until(
    recorder: Recorder,
    looks: list[JudgedAnswer],
    until_ns: int,
    enough: Callable[[JudgedAnswer], bool],
) -> bool:
    """Judge the recording again and again until then, or until one answer is `enough`; return
    whether one was."""
    while (begun_ns := time.monotonic_ns()) < until_ns:
        bundle = recorder.bundle()
        if bundle is not None:
            found = judged(bundle, diagnose(bundle))
            looks.append(msgspec.structs.replace(found, at_ns=time.monotonic_ns()))
            if enough(looks[-1]):
                return True
        time.sleep(max(0, begun_ns + LOOK_NS - time.monotonic_ns()) / S)
    return False


def judged(bundle: Bundle, result: Diagnosis) -> JudgedAnswer:
    """Turn one diagnosis into a `JudgedAnswer`. Pure; the instant is not set."""
    verdicts = tuple(
        NamedFlow(
            fault=each.fault,
            subjects=each.subjects,
            confidence=each.confidence,
            text=each.evidence[0].text,
        )
        for each in result.verdicts
    )
    gaps = tuple(each.reason for each in result.gaps)
    return JudgedAnswer(at_ns=0, verdicts=verdicts, worst=_worst(bundle), gaps=gaps)


def _worst(bundle: Bundle) -> str:
    table = bundle.tables.get("flows")
    if table is None:
        return ""
    flows = Flows(table)
    newest = flows.raw_delay[:, -1]
    if not np.isfinite(newest).any():
        return ""
    first = int(np.nanargmax(newest))
    return flows.names[first] if newest[first] > STANDS_OUT * float(median(newest)) else ""


def _wait_recorded(recorder: Recorder) -> None:
    """Wait until each flow has been recorded for a few seconds. Raises `RemoteError`: it was
    not."""
    wanted = HOSTS * (HOSTS - 1)
    end_s = time.monotonic() + RECORD_TIMEOUT_S
    while time.monotonic() < end_s:
        bundle = recorder.bundle()
        if bundle is not None and "flows" in bundle.tables:
            delays = Flows(bundle.tables["flows"]).raw_delay
            if len(delays) >= wanted and (np.isfinite(delays).sum(axis=1) >= RECORDED_S).all():
                return
        time.sleep(LOOK_NS / S)
    raise RemoteError(f"of the job's {wanted} flows not all were recorded within two minutes")


def _series(recorder: Recorder) -> tuple[FlowSeries, ...]:
    """Delays of all flows as recorded, on this host's clock."""
    from syntony.lab.drill.fleet import fleet_ahead_ns

    bundle, ahead_ns = recorder.bundle(), fleet_ahead_ns(recorder.lab)
    if bundle is None or ahead_ns is None or "flows" not in bundle.tables:
        raise RemoteError("the job's recording was not there at the end")
    flows = Flows(bundle.tables["flows"])
    grid = flows.grid
    at_ns = tuple(grid.instant(window) - ahead_ns for window in range(grid.windows))
    return tuple(
        FlowSeries(
            flow=name,
            at_ns=at_ns,
            delay_ns=tuple(float(each) if np.isfinite(each) else None for each in delays),
        )
        for name, delays in zip(flows.names, flows.raw_delay, strict=True)
    )


def check_rate(text: str) -> None:
    """Raises `UsageError`: it is no rate, or one that slows nothing."""
    from syntony.lab.rates import parse_rate_bps

    if parse_rate_bps(text) > MAX_BPS:
        raise UsageError(
            f"--to {text}: each flow of the job sends less than 2.5mbit; give a lower rate"
        )
