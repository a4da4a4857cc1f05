"""The outcome of an incast drill: figures, the raw trial, one chart."""

from __future__ import annotations

import msgspec
import numpy as np

from syntony.lab.drill.contention_figures import (
    PAYLOAD,
    ROCE_PAYLOAD,
    bins_mbps,
    delay_percentiles_ms,
    delays_ms,
    rate_mbps,
)
from syntony.lab.drill.contention_report import DELAY
from syntony.lab.drill.figures import completions_ns, stalled_ns
from syntony.lab.drill.incast import IncastTrial, settled
from syntony.lab.drill.report import DrillReport
from syntony.lab.jobs.records import lost_connections, wrong_results
from syntony.lab.rates import format_rate
from syntony.model import MS, S
from syntony.model.names import host_of
from syntony.view import drill_charts


class IncastPhase(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    mbps: float
    """Payload that arrives."""
    of_line: float
    """… as a part of what the receiver's links carry."""
    owd_p50_ms: float | None
    """One-way delay of probes from the senders to the receiver over the links of the flows: the
    median of all seconds and flows…"""
    owd_p99_ms: float | None
    """… and the 99th percentile of their 99th percentiles."""
    step_p50_ms: float
    step_p99_ms: float
    longest_step_ms: float
    stalled_s: float
    """Total length of stalls, without a median step each (as in `nic-flap`)."""
    retransmits_per_s: float
    """Segments, of all senders; over RDMA how often the receiver made a sender send again."""
    drops_per_s: float
    """Packets, by the queues to the receiver."""
    fairness: float
    """Jain's fairness index of the flows' rates on the links to the receiver (1: all equal); with
    one sender of its own flows."""


class IncastReport(DrillReport, frozen=True, kw_only=True):
    """What the drill prints as JSON."""

    drill: str = "incast"
    senders: int
    fabric: str
    congestion: str
    """TCP's; empty over RDMA."""
    line_mbps: float
    alone: IncastPhase
    """One sender."""
    before: IncastPhase
    """All senders, unpaced."""
    after: IncastPhase
    """All senders, paced by Syntony."""
    kept: float
    """Throughput after over before."""
    paced_flows: int
    """Most at any time."""
    paced_after_s: float | None
    """From the command until the first flow was held back; None: none was."""
    wrong: int
    lost: int
    finished: bool


def make_report(ran: IncastTrial) -> IncastReport:
    trial = ran.trial
    spec, job = trial.spec, trial.jobs[0]
    line = ran.rails * spec.rate_bps * (ROCE_PAYLOAD if trial.verbs else PAYLOAD) / 1e6
    settled_ns = settled(trial.acted_ns, trial.ended_ns)
    transport = "RDMA" if trial.verbs else "TCP"
    alone = _phase(ran, f"{transport}, one sender", trial.alone_ns, (0, 1), line)
    alone_mbps = alone.mbps / (job.ranks - 1)  # of one sender: all would have sent that many more
    alone = msgspec.structs.replace(alone, mbps=alone_mbps, of_line=alone_mbps / line)
    before = _phase(ran, transport, (trial.began_ns, trial.acted_ns), (2, 3), line)
    after = _phase(ran, "Syntony", (settled_ns, trial.ended_ns), (4, 5), line)
    held = [
        (sample.at_ns, sum(f.tx_pace_bps > 0 or f.rx_pace_bps > 0 for f in sample.traffic.flows))
        for sample in trial.samples
        if sample.at_ns >= trial.acted_ns
    ]
    first = next((at_ns for at_ns, flows in held if flows), None)
    return IncastReport(
        senders=job.ranks - 1,
        fabric=f"{spec.hosts} hosts × {spec.rails} rails ({ran.rails} used), "
        f"{format_rate(spec.rate_bps)}, "
        f"queues of {spec.latency_ns / MS:.0f} ms",
        congestion=ran.congestion,
        line_mbps=line,
        alone=alone,
        before=before,
        after=after,
        kept=after.mbps / before.mbps if before.mbps else 0.0,
        paced_flows=max((flows for _, flows in held), default=0),
        paced_after_s=None if first is None else (first - trial.acted_ns) / S,
        wrong=wrong_results(job.records),
        lost=lost_connections(job.records),
        finished=job.finished,
    )


def _phase(
    ran: IncastTrial, name: str, span: tuple[int, int], counts: tuple[int, int], line: float
) -> IncastPhase:
    trial, (from_ns, to_ns) = ran.trial, span
    job = trial.jobs[0]
    p50_ms, p99_ms = delay_percentiles_ms(trial, from_ns, to_ns)
    ends = [e for e in completions_ns(job.records, job.ranks) if from_ns <= e <= to_ns]
    steps = np.diff(np.array(ends, dtype=np.float64)) / MS if len(ends) > 2 else np.zeros(1)
    first, last = (ran.losses[number] for number in counts)
    counted_s = max(1, last.at_ns - first.at_ns) / S
    mbps = rate_mbps(job, from_ns, to_ns)
    return IncastPhase(
        name=name,
        mbps=mbps,
        of_line=mbps / line,
        owd_p50_ms=p50_ms,
        owd_p99_ms=p99_ms,
        step_p50_ms=float(np.median(steps)),
        step_p99_ms=float(np.quantile(steps, 0.99)),
        longest_step_ms=float(steps.max()),
        stalled_s=stalled_ns(steps * MS, float(np.median(steps)) * MS) / S,
        retransmits_per_s=(last.sent_again - first.sent_again) / counted_s,
        drops_per_s=(last.dropped - first.dropped) / counted_s,
        fairness=_fairness(ran, span),
    )


def _fairness(ran: IncastTrial, span: tuple[int, int]) -> float:
    rates: dict[str, list[int]] = {}
    for sample in ran.trial.samples:
        if not span[0] <= sample.at_ns <= span[1]:
            continue
        for flow in sample.traffic.flows:
            if not flow.paths or ran.receiver not in {
                host_of(flow.src),
                host_of(flow.dst),
            }:
                continue
            receives = flow.src.startswith(f"{ran.receiver}/")
            bps = flow.rx_bps if receives else flow.tx_bps
            rates.setdefault(flow.flow, []).append(bps)
    means = np.array([np.mean(some) for some in rates.values()])
    square = float((means**2).sum())
    return float(means.sum() ** 2 / (len(means) * square)) if square else 0.0


def transport(report: IncastReport) -> str:
    """What carries the job, for a person."""
    return f"TCP {report.congestion}" if report.congestion else "RDMA"


def make_chart(ran: IncastTrial, report: IncastReport) -> drill_charts.ContentionChart:
    at_s, rates = bins_mbps(ran.trial)
    when_s, delays = delays_ms(ran.trial)
    return drill_charts.ContentionChart(
        title=f"Incast: {report.senders} senders, one receiver",
        subtitle=f"{report.fabric}, {transport(report)}; every result checked; "
        f"{report.before.mbps:.0f} → {report.after.mbps:.0f} Mb/s, retransmits "
        f"{report.before.retransmits_per_s:.0f} → {report.after.retransmits_per_s:.0f} a second",
        jobs=tuple(
            drill_charts.ContentionCurve.of("at the receiver", at_s, values)
            for values in rates.values()
        ),
        optimum=report.line_mbps,
        optimum_label="line rate",
        delay=drill_charts.ContentionCurve.of(DELAY, when_s, delays),
    )
