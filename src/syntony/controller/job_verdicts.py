"""Verdicts on running jobs as observations for the rules: one for each cause, of all affected jobs.
Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from syntony.alerts.observations import Observation
from syntony.fabric.names import BOTH_WAYS, OR
from syntony.model import S, format_ns
from syntony.wire.job_diagnosis import JobFlow, JobResult, JobVerdict
from syntony.workload.common_hop import common_hops
from syntony.workload.verdict import FaultClass

NETWORK, RANK, DATA, HANG = "job_network", "job_rank", "job_data", "job_hang"
METRICS = frozenset({NETWORK, RANK, DATA, HANG})
METRIC_OF = {
    FaultClass.SLOW_FLOW: NETWORK,
    FaultClass.CONTENTION: NETWORK,
    FaultClass.INCAST: NETWORK,
    FaultClass.BAD_LINK: NETWORK,
    FaultClass.FLAPPING: NETWORK,
    FaultClass.CLASS_MISMATCH: NETWORK,
    FaultClass.PFC_STORM: NETWORK,
    FaultClass.RAIL_IMBALANCE: NETWORK,
    FaultClass.REDUCED_CAPACITY: NETWORK,
    FaultClass.STRAGGLER: RANK,
    FaultClass.GPU_THROTTLE: RANK,
    FaultClass.HOST_JITTER: RANK,
    FaultClass.PCIE: RANK,
    FaultClass.SLOW_RECEIVER: RANK,
    FaultClass.DATA_STALL: DATA,
    FaultClass.HANG: HANG,
}
"""Not incidents here: clock faults have their own rules, and undetermined is not a cause."""
MAX_NAMES = 4
"""Maximum twins that a subject names; with more, the subject is the job."""
TOGETHER_NS = 15 * S
"""Jobs that begin to wait for data within this time have a common cause."""


class _Cause(NamedTuple):
    metric: str
    subject: str
    job: str
    verdict: JobVerdict
    known: bool


def observations(results: Iterable[JobResult]) -> list[Observation]:
    """One for each metric and subject; the value is the highest confidence of a verdict, None if no
    job that showed it last could be evaluated.

    Slow flows of several jobs that cross one link, which few other flows of these jobs cross, count
    for that link. Jobs that began to wait for data together are one cause, under the name of the
    first.
    """
    jobs = tuple(results)
    shared, stalled = _shared(jobs), _stalled(jobs)
    by_subject: defaultdict[tuple[str, str], list[_Cause]] = defaultdict(list)
    for cause in _causes(jobs, shared, stalled):
        by_subject[cause.metric, cause.subject].append(cause)
    return [
        Observation(
            metric,
            subject,
            max((each.verdict.confidence for each in some if each.known), default=None),
            (
                *_together(metric, some),
                *dict.fromkeys(line for each in some for line in _evidence(each)),
            ),
            jobs=tuple(sorted({each.job for each in some})),
        )
        for (metric, subject), some in sorted(by_subject.items())
    ]


def _causes(
    jobs: Iterable[JobResult], shared: dict[tuple[str, str], str], stalled: dict[str, str]
) -> Iterator[_Cause]:
    for job in jobs:
        for verdict in job.verdicts:
            metric = METRIC_OF.get(FaultClass(verdict.fault))
            if metric is None:
                continue
            for subject in _subjects(job, verdict, shared, stalled):
                yield _Cause(metric, subject, job.job, verdict, not job.error)


def _subjects(
    job: JobResult,
    verdict: JobVerdict,
    shared: dict[tuple[str, str], str],
    stalled: dict[str, str],
) -> tuple[str, ...]:
    fault = FaultClass(verdict.fault)
    if fault is FaultClass.SLOW_FLOW:
        ends = {each.flow: connection(each) for each in job.flows}
        return tuple(
            dict.fromkeys(
                shared.get((job.job, flow)) or ends.get(flow, flow) for flow in verdict.subjects
            )
        )
    whole = f"job {job.job}"
    match METRIC_OF[fault]:
        case "job_rank":
            return verdict.hosts or (whole,)
        case "job_hang":
            return verdict.hosts if len(verdict.hosts) == 1 else (whole,)
        case "job_data":
            return (f"job {stalled[job.job]}",)
    return (OR.join(sorted(verdict.subjects)),) if len(verdict.subjects) <= MAX_NAMES else (whole,)


def connection(flow: JobFlow) -> str:
    """Its two NICs, for either slow direction: the direction may be unknown at first."""
    return BOTH_WAYS.join(sorted((flow.src, flow.dst)))


def _shared(jobs: Iterable[JobResult]) -> dict[tuple[str, str], str]:
    """(job, flow) → the link that it has in common with slow flows of other jobs."""
    flows = [(job.job, each) for job in jobs for each in job.flows]
    named = {
        (job.job, subject)
        for job in jobs
        for verdict in job.verdicts
        if verdict.fault == FaultClass.SLOW_FLOW
        for subject in verdict.subjects
    }
    late = [place for place, (job, each) in enumerate(flows) if (job, each.flow) in named]
    well = [place for place, (job, each) in enumerate(flows) if (job, each.flow) not in named]
    found = {}
    for common in common_hops([each.hops for _, each in flows], late, well):
        members = common.flows & set(late)
        several = len({flows[place][0] for place in members}) > 1
        apart = len({connection(flows[place][1]) for place in members}) > 1
        if several and apart and len(common.links) <= MAX_NAMES:
            for place in members:
                job, each = flows[place]
                found[job, each.flow] = OR.join(sorted(common.links))
    return found


def _stalled(jobs: Iterable[JobResult]) -> dict[str, str]:
    """Each job that waits for data → the first of those that began to wait together with it."""
    onsets = sorted(
        (verdict.onset_ns, job.job)
        for job in jobs
        for verdict in job.verdicts
        if verdict.fault == FaultClass.DATA_STALL
    )
    found: dict[str, str] = {}
    first_ns, first = 0, ""
    for onset_ns, job in onsets:
        if not first or onset_ns - first_ns > TOGETHER_NS:
            first_ns, first = onset_ns, job
        found.setdefault(job, first)
    return found


def _together(metric: str, causes: list[_Cause]) -> tuple[str, ...]:
    """Text about several jobs that wait for data together."""
    jobs = {each.job for each in causes}
    if metric != DATA or len(jobs) < 2:
        return ()
    onsets = [each.verdict.onset_ns for each in causes]
    within = format_ns(max(onsets) - min(onsets))
    text = f"{len(jobs)} jobs began to wait for data within {within}: look at what they share"
    return (text,)


def _evidence(cause: _Cause) -> tuple[str, str]:
    verdict = cause.verdict
    subjects = OR.join(verdict.subjects[:MAX_NAMES])
    return f"{cause.job}: {verdict.fault} {subjects}: {verdict.text}", f"to do: {verdict.action}"
