"""Which jobs a fault affects, and whether the jobs' own traffic may be its cause. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from syntony.alerts.observations import Observation
from syntony.controller.containment import NameContainment
from syntony.controller.observe import (
    DELAY,
    LOSSES,
    OVERFLOWS,
    QUEUE_METRICS,
    is_congested,
    subject_of,
)
from syntony.fabric.names import ARROW, crosses
from syntony.fabric.overflow import MAX_OVERFLOW, Overflow
from syntony.model.findings import Finding, Queue
from syntony.model.names import host_of

MAX_ADJACENT = 0.005
"""Largest loss at a part, in addition to a queue, that overflowing senders explain."""
HURTS = 1e-3
"""Share of the packets of all pairs of NICs; a part that loses less and that no known job uses
sends no page."""
HURTS_JOBS = 1e-5
"""Share of a job's packets lost at the part; less is normal for healthy links."""


def with_jobs(
    found: Iterable[Observation],
    jobs: Mapping[str, frozenset[tuple[str, str]]],
    crossing: Mapping[str, frozenset[str]],
) -> list[Observation]:
    """The observations, each with the jobs that use its subject.

    Args:
        found: few observations of faults.
        jobs: job → the pairs of NICs between which it has connections.
        crossing: ``a->b`` → components that the learnt paths between them cross.
    """
    return [
        each._replace(
            jobs=tuple(
                sorted(
                    job
                    for job, pairs in jobs.items()
                    if any(_uses(pair, each.subject, crossing) for pair in pairs)
                )
            )
        )
        for each in found
    ]


def with_jobs_at(
    found: Iterable[Observation], jobs: Mapping[str, frozenset[tuple[str, str]]]
) -> list[Observation]:
    """The same for ports and hosts, of which there may be many: each with the jobs whose
    connections end there.

    Args:
        found: observations of NICs and hosts.
        jobs: job → the pairs of NICs between which it has connections.
    """
    at: dict[str, set[str]] = {}
    for job, pairs in jobs.items():
        for nic in {end for pair in pairs for end in pair}:
            at.setdefault(nic, set()).add(job)
            at.setdefault(host_of(nic), set()).add(job)
    return [
        each._replace(jobs=tuple(sorted(jobs_of))) if jobs_of else each
        for each in found
        for jobs_of in [set().union(*(at.get(name, ()) for name in (each.subject, *each.members)))]
    ]


def with_impact(
    found: Iterable[Observation],
    pairs: Mapping[str, Sequence[str]],
    pairs_of_all: int,
    *,
    jobs_known: bool,
) -> list[Observation]:
    """The losses, each with its impact, and whether that is small.

    Args:
        found: few observations of loss, with the jobs that use their subjects.
        pairs: subject of a loss → the pairs of NICs, ``a->b``, whose learnt paths cross it.
        pairs_of_all: how many pairs have learnt paths.
        jobs_known: whether any job reports its connections.
    """
    return [
        _with_impact(each, pairs.get(each.subject, ()), pairs_of_all, jobs_known) for each in found
    ]


def _with_impact(
    each: Observation, pairs: Sequence[str], pairs_of_all: int, jobs_known: bool
) -> Observation:
    if each.metric not in LOSSES or each.value is None or not pairs:
        return each
    hosts = {host_of(nic) for pair in pairs for nic in pair.split(ARROW)}
    share = f"{len(pairs)} of {pairs_of_all} pairs of NICs ({len(pairs) / pairs_of_all:.0%})"
    reported = f"crossed by {share}, of {len(hosts)} hosts"
    idle = ("no job that tells of its connections uses it",) if jobs_known and not each.jobs else ()
    hurt = each.value if each.jobs else each.value * len(pairs) / pairs_of_all
    mild = hurt < (HURTS_JOBS if each.jobs else HURTS)
    return each._replace(evidence=(*each.evidence, reported, *idle), mild=mild)


def _uses(pair: tuple[str, str], subject: str, crossing: Mapping[str, frozenset[str]]) -> bool:
    at_end = any(end == subject or end.startswith(f"{subject}/") for end in pair)
    return at_end or crosses(subject, crossing.get("->".join(pair), ()))


def under_load(
    found: Iterable[Observation],
    findings: Sequence[Finding],
    queues: Iterable[Queue],
    *,
    known: Iterable[str] = (),
    crowded: Iterable[str] = (),
    long: Container[str] = (),
    unknown: Mapping[str, tuple[str, ...]] = {},
) -> list[Observation]:
    """The observations, with those pending that jobs' traffic may explain, and without delays that
    traffic of no known job may explain: those are congestion if they last (`observe.of_queues`). A
    queue that overflows loses packets, and is congestion once it has lasted long enough. Flows that
    wait for it also wait at other places. A loss that is equally high without a queue does not come
    from a queue, no matter which flows wait.

    Args:
        found: observations of findings, with the jobs that use their subjects.
        findings: of localisation; a growing queue is a delay first.
        queues: links at which packets wait.
        known: delays and queues of live incidents: those come and go within the windows over which
            losses are counted.
        crowded: jobs named by live incidents of congestion.
        long: subjects of losses that have waited long enough for their queue to be known.
        unknown: subject → evidence that traffic of no known job may cross it.
    """
    queues = tuple(queues)
    late = {*known, *(each.component for each in findings if each.fault == "delay")}
    late |= {queue.component for queue in queues}
    waiting = {
        flow.job for queue in queues if is_congested(queue, queue.pairs) for flow in queue.flows
    }
    waiting |= set(crowded)
    overflow = {subject_of(each): Overflow(each.overflow) for each in findings if each.loss}
    return [
        _under_load(
            each._replace(evidence=(*each.evidence, *unknown.get(each.subject, ()))),
            overflow.get(each.subject, Overflow.UNKNOWN),
            late,
            waiting,
            long,
            loaded=bool(each.jobs or unknown.get(each.subject)),
        )
        for each in found
        if each.jobs or each.metric not in DELAY or not unknown.get(each.subject)
    ]


def _under_load(
    each: Observation,
    overflow: Overflow,
    late: Iterable[str],
    waiting: set[str],
    long: Container[str],
    *,
    loaded: bool,
) -> Observation:
    """`loaded`: whether jobs or others send across it."""
    waits, loss = not waiting.isdisjoint(each.jobs), each.value
    if each.metric in DELAY:
        return each._replace(pending=each.pending or waits)
    if each.metric not in LOSSES or loss is None or not loaded:
        return each
    if overflow is Overflow.NONE:
        return each._replace(apart_from=QUEUE_METRICS)
    if overflow is Overflow.UNKNOWN:
        here = any(NameContainment.same(name, each.subject) for name in late)
        most = MAX_OVERFLOW if here else MAX_ADJACENT if waits else 0.0
    else:
        reported = f"packets wait there: {OVERFLOWS[overflow]}"
        each = each._replace(evidence=(*each.evidence, reported))
        most = 0.0 if each.subject in long else MAX_OVERFLOW
    return each._replace(pending=each.pending or overflow is Overflow.ALL or loss <= most)
