"""One line for each job: its state, its slowest rank, its worst flow, its verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from syntony.workload.bundle import Bundle
from syntony.workload.diagnose import Diagnosis
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import Flows
from syntony.workload.grid import median
from syntony.workload.ranks import Ranks


class JobLine(msgspec.Struct, frozen=True, kw_only=True):
    """One job over its recording; None, or an empty name: not recorded."""

    job: str
    ranks: int | None
    """Number of ranks that took part in collectives."""
    step_ns: float | None
    """Median of its steps; without steps, of the time between operations."""
    slowest_rank: int | None
    late_ns: float | None
    """Median time that this rank takes by itself before an operation, beyond the median rank."""
    worst_flow: str
    worst_ns: float | None
    """Its in-band delay, median…"""
    usual_ns: float | None
    """… and that of the median flow."""
    verdict: str
    """Class with the highest confidence, `undetermined` if the job only waits; empty: none."""
    subject: str
    confidence: float
    others: int
    """Number of further verdicts."""
    error: str = ""
    """Why no data is available."""


def job_line(job: str, bundle: Bundle, result: Diagnosis) -> JobLine:
    """A job's line."""
    facts = BundleFacts(bundle)
    rank, late_ns = (None, None) if facts.ranks is None else _slowest(facts.ranks)
    flow, worst_ns, usual_ns = ("", None, None) if facts.flows is None else _worst(facts.flows)
    shown = result.verdicts or result.waits
    first = shown[0] if shown else None
    return JobLine(
        job=job,
        ranks=None if facts.ranks is None else len(facts.ranks.host),
        step_ns=facts.step_ns or None,
        slowest_rank=rank,
        late_ns=late_ns,
        worst_flow=flow,
        worst_ns=worst_ns,
        usual_ns=usual_ns,
        verdict="" if first is None else first.fault.value,
        subject="" if first is None else " or ".join(first.subjects),
        confidence=0.0 if first is None else first.confidence,
        others=max(0, len(shown) - 1),
    )


def unknown(job: str, error: str) -> JobLine:
    """The line of a job without a recording."""
    return JobLine(
        job=job, ranks=None, step_ns=None, slowest_rank=None, late_ns=None, worst_flow="",
        worst_ns=None, usual_ns=None, verdict="", subject="", confidence=0.0, others=0, error=error,
    )  # fmt: skip


def worst_first(lines: Iterable[JobLine]) -> list[JobLine]:
    """Jobs with verdicts first, by confidence; then by the share of a step that their slowest rank
    takes; jobs without data last."""

    def weight(line: JobLine) -> tuple[bool, float, float, str]:
        part = (line.late_ns or 0.0) / line.step_ns if line.step_ns else 0.0
        return bool(line.error), -line.confidence, -part, line.job

    return sorted(lines, key=weight)


def _slowest(ranks: Ranks) -> tuple[int | None, float | None]:
    found: dict[int, list[float]] = {}
    for comm in ranks.comms:
        own = ranks.own_time(comm)
        excess = own - median(own, axis=0)
        for rank, value in zip(comm.ranks.tolist(), median(excess, axis=1).tolist(), strict=True):
            if np.isfinite(value):
                found.setdefault(rank, []).append(value)
    late = {rank: max(values) for rank, values in found.items()}
    if not late:
        return None, None
    rank = max(late, key=lambda each: late[each])
    return rank, late[rank]


def _worst(flows: Flows) -> tuple[str, float | None, float | None]:
    delays = median(flows.raw_delay, axis=1)
    if not np.isfinite(delays).any():
        return "", None, None
    worst = int(np.nanargmax(delays))
    return flows.names[worst], float(delays[worst]), float(median(delays))
