"""Why a job is slow, its flows and their history, from the store, for a screen."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from syntony.controller.job_diagnosis import MAX_ROWS
from syntony.controller.recorded_paths import ProbePaths
from syntony.controller.recordings import read_job
from syntony.io.bundle_files import arrow_tables, bundle_from_tables
from syntony.store import Store
from syntony.wire.jobs import FlowDelays, JobReport, JobReportQuery
from syntony.workload import diagnose
from syntony.workload.bundle import Floats
from syntony.workload.facts import BundleFacts
from syntony.workload.flow_lines import FlowLine, flow_lines
from syntony.workload.flows import Flows
from syntony.workload.sentences import sentences

MAX_FLOWS = 1_000
"""Maximum in one answer: those with the longest delays."""
MAX_DRAWN = 24
"""Maximum flows with a history."""


def job_report(store: Store, paths: ProbePaths, query: JobReportQuery, now_ns: int) -> JobReport:
    """The answers of `syntony why` and `syntony job flows` for one job; `now_ns` is fleet time.
    `paths`: of probes.

    Raises:
        UsageError: there is no data about the job for that time, or too much.
        InputError: no table can be used.
    """
    found = read_job(
        store, query.job, query.window_ns, query.end_ns, now_ns, paths=paths, most=MAX_ROWS
    )
    bundle = bundle_from_tables(arrow_tables(found.tables), found.manifest)
    diagnosis = diagnose(bundle)
    facts = BundleFacts(bundle)
    lines = flow_lines(bundle)
    begin_ns, end_ns = found.manifest["begin_ns"], found.manifest["end_ns"]
    gaps = (f"{gap.table}: {gap.reason}; {gap.limits}".rstrip("; ") for gap in diagnosis.gaps)
    steps = _steps(facts)
    return JobReport(
        job=query.job,
        begin_ns=begin_ns,
        end_ns=end_ns,
        sentences=sentences(query.job, diagnosis, end_ns - begin_ns),
        verdicts=tuple(
            msgspec.to_builtins(each) for each in (*diagnosis.verdicts, *diagnosis.waits)
        ),
        flows=tuple(msgspec.to_builtins(each) for each in lines[:MAX_FLOWS]),
        flows_left_out=max(0, len(lines) - MAX_FLOWS),
        notes=(*found.notes, *gaps),
        at_ns=_instants(facts.flows),
        rate_bps=_total(facts.flows),
        delays=tuple(_course(facts, each) for each in lines[:MAX_DRAWN]),
        steps_at_ns=tuple(end for end, _ in steps),
        steps_ns=tuple(took for _, took in steps),
        resent=_resent(facts.flows),
        takeovers=store.jobs.takeovers_of(query.job, begin_ns, end_ns),
    )


def _instants(flows: Flows | None) -> tuple[int, ...]:
    return () if flows is None else tuple(map(flows.grid.instant, range(flows.grid.windows)))


def _total(flows: Flows | None) -> tuple[float | None, ...]:
    """Bits sent in each window, per second; if bytes were not recorded, rates while sending."""
    if flows is None:
        return ()
    sent = flows.column("bytes", "sum") * 8e9 / flows.grid.width_ns
    rates = sent if np.isfinite(sent).any() else flows.rate
    known = np.isfinite(rates).any(axis=0)
    return _numbers(np.where(known, np.nansum(rates, axis=0), np.nan))


def _resent(flows: Flows | None) -> tuple[float | None, ...]:
    """Retransmitted segments in each window; None if no flow was recorded."""
    if flows is None:
        return ()
    counts = flows.retransmits
    known = np.isfinite(counts).any(axis=0)
    return _numbers(np.where(known, np.nansum(counts, axis=0), np.nan))


def _course(facts: BundleFacts, line: FlowLine) -> FlowDelays:
    """One flow's delay by window, in band and of probes between the same NICs."""
    flows = facts.flows
    assert flows is not None  # noqa: S101 - it has lines
    place = flows.names.index(line.flow)
    in_band = flows.column("one_way_p50_ns")[place]
    if not np.isfinite(in_band).any():
        trips = flows.column("rtt_p50_ns")[place] / 2
        in_band = trips if np.isfinite(trips).any() else flows.raw_delay[place]
    probed = np.full(flows.grid.windows, np.nan)
    streams = [] if facts.probes is None else facts.probes.streams.get((line.src, line.dst), [])
    if facts.probes is not None and streams:
        for window in range(flows.grid.windows):
            begin_ns = flows.grid.instant(window)
            level = facts.probes.level(streams, begin_ns, begin_ns + flows.grid.width_ns)
            probed[window] = np.nan if level is None else level
    return FlowDelays(flow=line.flow, in_band_ns=_numbers(in_band), out_of_band_ns=_numbers(probed))


def _steps(facts: BundleFacts) -> list[tuple[int, float]]:
    """End and length of each step, of the slowest rank."""
    table: Any = facts.steps
    if not table.rows:
        return []
    numbers, begins, ends = (table.ints(name) for name in ("step", "begin_ns", "end_ns"))
    found: dict[int, tuple[int, float]] = {}
    for step, begin, end in zip(numbers.tolist(), begins.tolist(), ends.tolist(), strict=True):
        before = found.get(step, (0, 0.0))
        if end > begin:
            found[step] = (max(end, before[0]), max(float(end - begin), before[1]))
    return sorted(found.values())


def _numbers(values: Floats) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in values)
