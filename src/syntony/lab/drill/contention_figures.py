"""Computes the figures of a contention trial. Pure.

A job's throughput is what its ranks send in payload, from its steps: every rank sends the same, and
a step counts when its last rank has it. The optimum is what the fabric could carry: every NIC at
its line rate, or less where the spines are too few.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.lab.drill.contention import ContentionTrial, ControllerSample, JobRun
from syntony.lab.drill.figures import completions_ns, throughput
from syntony.lab.jobs.records import lost_connections, wrong_results
from syntony.lab.plan import FabricSpec
from syntony.model import MS, S

PAYLOAD = 1428 / 1514
"""Of a full Ethernet frame: less 14 bytes of its own header, 40 of IP and TCP, 12 of time stamps
and 20 of MPTCP's data sequence mapping."""
ROCE_PAYLOAD = 1024 / 1082
"""Of a full RoCE v2 frame at a path MTU of 1,024: less 14 bytes of Ethernet's header, 28 of IPv4
and UDP, 12 of IB and 4 of its checksum."""
_DONE = {"moved", "helped", "kept", "no gain", "undone"}
BIN_NS = 500 * MS
SETTLED_NS = 5 * S
"""After this long with Syntony, throughput counts as settled."""
RESOLVED = 0.95
"""Of that throughput: contention counts as resolved when a bin, and the next, reach it."""


class ContentionPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of time. Rates in payload Mb/s, delays in ms."""

    name: str
    mbps: dict[str, float]
    """By job."""
    total_mbps: float
    of_optimum: float
    shared_links: float
    """Links in the fabric that two flows or more filled, on average; over RDMA of hosts' NICs."""
    owd_p50_ms: float | None
    owd_p99_ms: float | None
    """Over all seconds and all flows that send much."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a contention drill prints."""

    optimum_mbps: float
    alone_mbps: float
    """Throughput of all jobs together if each reached what the first reached alone. A program that
    waits for its peers at every step does not reach the line rate, even without contention."""
    before: ContentionPhase
    after: ContentionPhase
    gain: float
    """Total after over total before."""
    resolved_s: float | None
    """From the command to act to the first bin from which throughput stayed high; None: it did not,
    or ECMP alone was as good."""
    moves: int
    moves_per_flow: float
    flows: int
    undone: int
    refused: int
    wrong: int
    lost: int
    """Ranks that lost a connection."""
    finished: bool
    held_up: str = ""
    """Why the controller could not decide for a while, or agents did not carry out what it ordered:
    on a machine that is too busy, reports and orders come too late."""


def figures(trial: ContentionTrial) -> Figures:
    optimum = optimum_bps(trial.spec, trial.jobs, trial.verbs) / 1e6
    alone = "TCP" if trial.jobs[0].kind == "gather" else "ECMP"
    alone = "RDMA" if trial.verbs else alone
    before = _phase(alone, trial, trial.began_ns, trial.acted_ns, optimum)
    settled_ns = min(trial.acted_ns + SETTLED_NS, (trial.acted_ns + trial.ended_ns) // 2)
    after = _phase("Syntony", trial, settled_ns, trial.ended_ns, optimum)
    done = [m for m in trial.moves if m.result in _DONE]
    flows = {flow.flow for sample in trial.samples for flow in sample.traffic.flows if flow.paths}
    records = [record for job in trial.jobs for record in job.records]
    return Figures(
        optimum_mbps=optimum,
        alone_mbps=rate_mbps(trial.jobs[0], *trial.alone_ns) * len(trial.jobs),
        before=before,
        after=after,
        gain=after.total_mbps / before.total_mbps if before.total_mbps else 0.0,
        resolved_s=_resolved_s(trial, before.total_mbps, after.total_mbps),
        moves=len(done),
        moves_per_flow=len(done) / max(1, len(flows)),
        flows=len(flows),
        undone=sum(move.result == "undone" for move in done),
        refused=len(_refused(trial)),
        wrong=wrong_results(records),
        lost=lost_connections(records),
        finished=all(job.finished for job in trial.jobs),
        held_up=_delay_reasons(trial),
    )  # fmt: skip


def _delay_reasons(trial: ContentionTrial) -> str:
    looks = [s.traffic for s in trial.samples if trial.acted_ns <= s.at_ns <= trial.ended_ns]
    silent = [each.why for each in looks if not each.deciding]
    parts = [f"no decisions in {len(silent)} of {len(looks)} looks: {silent[-1]}"] if silent else []
    if refused := _refused(trial):
        parts.append(f"{len(refused)} orders not carried out: {refused[-1]}")
    return "; ".join(parts)


def _refused(trial: ContentionTrial) -> list[str]:
    return [m.result for m in trial.moves if m.result not in _DONE | {"would move", "ordered"}]


def bytes_per_step(job: JobRun) -> float:
    """Bytes that one rank sends; for a gather the average, since rank 0 sends nothing."""
    whole = job.elements * 4
    share = (job.ranks - 1) / job.ranks
    return whole * share * (2 if job.kind == "all-reduce" else 1)


def optimum_bps(spec: FabricSpec, jobs: Sequence[JobRun], verbs: bool = False) -> float:
    """Payload rate of all ranks together if no flows contended."""
    line = spec.rails * spec.rate_bps * (ROCE_PAYLOAD if verbs else PAYLOAD)
    if all(job.kind == "gather" for job in jobs):
        return line  # what their receiver's NICs take
    if verbs:  # all jobs are on the same hosts
        return jobs[0].ranks * line * _fits(spec, jobs[0])
    return sum(job.ranks * line * _fits(spec, job) for job in jobs)


def _fits(spec: FabricSpec, job: JobRun) -> float:
    """Share of the line rate that the spines allow: uplinks of a leaf per host, for the traffic
    that crosses the spines."""
    peers = job.ranks - 1
    across = job.ranks // 2 / peers if job.kind == "all-to-all" else 1.0
    per_leaf = spec.hosts / spec.leaves
    return min(1.0, spec.spines / (per_leaf * across))


def rate_mbps(job: JobRun, from_ns: int, to_ns: int) -> float:
    """Payload of all its ranks together."""
    edges = completions_ns(job.records, job.ranks)
    return throughput(edges, from_ns, to_ns) * job.ranks * bytes_per_step(job) * 8 / 1e6


def bins_mbps(trial: ContentionTrial) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Middles of bins in s since Syntony acted, and each job's rate in them."""
    starts = np.arange(trial.began_ns, trial.ended_ns - BIN_NS + 1, BIN_NS)
    at_s = (starts + BIN_NS // 2 - trial.acted_ns) / S
    rates = {
        job.name: np.array([rate_mbps(job, int(t), int(t) + BIN_NS) for t in starts])
        for job in trial.jobs
    }
    return at_s, rates


def delays_ms(trial: ContentionTrial) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Middles of seconds, in s since Syntony acted, and the worst p99 of all flows in each."""
    worst: dict[int, int] = {}
    for at_ns, _, p99_ns in measured(trial):
        if not trial.began_ns <= at_ns <= trial.ended_ns:
            continue
        worst[at_ns] = max(worst.get(at_ns, 0), p99_ns)
    at_s = [(at_ns - S // 2 - trial.acted_ns) / S for at_ns in sorted(worst)]
    return np.array(at_s), np.array([worst[at_ns] / MS for at_ns in sorted(worst)])


def measured(trial: ContentionTrial) -> set[tuple[int, int, int]]:
    """(end of the second, p50, p99) of every flow and second; the end on CLOCK_MONOTONIC."""
    return {
        (flow.owd_at_ns - trial.fleet_ahead_ns, flow.owd_p50_ns, flow.owd_p99_ns)
        for sample in trial.samples
        for flow in sample.traffic.flows
        if flow.owd_p50_ns is not None and flow.owd_p99_ns is not None
    }


def delay_percentiles_ms(
    trial: ContentionTrial, from_ns: int, to_ns: int
) -> tuple[float | None, float | None]:
    """Median of the medians, and 99th percentile of the 99th percentiles, over all flows and whole
    seconds of a phase, also those reported later."""
    delays = [each[1:] for each in measured(trial) if from_ns + S <= each[0] <= to_ns]
    if not delays:
        return None, None
    p50_ns, p99_ns = zip(*delays, strict=True)
    return float(np.median(p50_ns)) / MS, float(np.quantile(p99_ns, 0.99)) / MS


def _phase(
    name: str, trial: ContentionTrial, from_ns: int, to_ns: int, optimum: float
) -> ContentionPhase:
    mbps = {job.name: rate_mbps(job, from_ns, to_ns) for job in trial.jobs}
    samples = [s for s in trial.samples if from_ns <= s.at_ns <= to_ns]
    p50_ms, p99_ms = delay_percentiles_ms(trial, from_ns, to_ns)
    total = sum(mbps.values())
    return ContentionPhase(
        name=name,
        mbps=mbps,
        total_mbps=total,
        of_optimum=total / optimum if optimum else 0.0,
        shared_links=float(np.mean([shared_links(s, trial.verbs) for s in samples] or [0])),
        owd_p50_ms=p50_ms,
        owd_p99_ms=p99_ms,
    )


def shared_links(sample: ControllerSample, nics: bool = False) -> int:
    """Directions of cables between switches (or of hosts' NICs) that two flows or more send
    over."""
    return sum(link.flows > 1 and ("/" in link.link) is nics for link in sample.traffic.links)


def _resolved_s(trial: ContentionTrial, before: float, after: float) -> float | None:
    if after * RESOLVED <= before:
        return None
    at_s, rates = bins_mbps(trial)
    total = np.sum(list(rates.values()), axis=0)
    good = (total >= RESOLVED * after) & (at_s > 0)
    both = np.flatnonzero(good[:-1] & good[1:])
    return max(0.0, float(at_s[both[0]]) - BIN_NS / 2 / S) if len(both) else None
