"""One subject's latency against what was promised, what is usual, and what its like have."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from syntony.model import format_ns
from syntony.model.sla import Latency, SlaRow, SlaStatus
from syntony.sla.terms import Objective, Terms

ENOUGH = 20
"""Delays of a window that say something of its 99th percentile: fewer, and it is their maximum."""
ENOUGH_LOST = 3
"""One lost probe may be anything."""
ENOUGH_PEERS = 4
CLOCK_SIGMAS = 4.0
"""As `Timeline.bound_ns`: what clocks may feign is nobody's breach."""


def class_of(switches: int | None) -> str:
    """The class of a path by how many switches it crosses; empty where that is not known."""
    if not switches:
        return ""
    return "leaf" if switches == 1 else "spine" if switches <= 3 else "core"


def judge(
    subject: str,
    path_class: str,
    now: Latency,
    terms: Terms,
    *,
    usual: Latency | None = None,
    peers: Latency | None = None,
) -> SlaRow:
    """The verdict on one subject.

    Args:
        path_class: of its paths; empty where mixed or not known.
        now: the window in question.
        terms: what is promised.
        usual: its own past, if it has enough of one.
        peers: medians of its like.
    """
    objective = terms.of(path_class)
    broken = [*_lossy(now, objective), *_slow(now, objective)]
    worse = [*_worse_than_usual(now, usual, terms), *_worse_than_peers(now, peers, terms)]
    unsure = _unsure(now, objective)
    if broken:
        status, reasons = SlaStatus.BREACH, [*broken, *worse]
    elif unsure:
        status, reasons = SlaStatus.UNKNOWN, unsure
    elif worse:
        status, reasons = SlaStatus.WARNING, worse
    else:
        status, reasons = SlaStatus.OK, []
    return SlaRow(
        subject=subject, path_class=path_class, now=now, usual=usual, peers=peers, status=status,
        reasons=tuple(reasons),
    )  # fmt: skip


def _clock_ns(now: Latency) -> float:
    return CLOCK_SIGMAS * (now.clk_err_ns or 0)


def _limits(now: Latency, objective: Objective) -> Iterable[tuple[str, int, int]]:
    """(name, value, limit) of every percentile that is promised and was measured."""
    pairs = (("p50", now.p50_ns, objective.p50_ns), ("p99", now.p99_ns, objective.p99_ns))
    for name, value, limit in pairs:
        if value is not None and limit is not None and now.measured >= ENOUGH:
            yield name, value, limit


def _slow(now: Latency, objective: Objective) -> list[str]:
    return [
        f"{name} {format_ns(value)}, promised {format_ns(limit)}"
        for name, value, limit in _limits(now, objective)
        if value - _clock_ns(now) > limit
    ]


def _lossy(now: Latency, objective: Objective) -> list[str]:
    if objective.loss is None or now.lost < ENOUGH_LOST or now.lost <= objective.loss * now.sent:
        return []
    share = now.lost / max(1, now.sent)
    return [f"{share:.2%} of {now.sent} probes lost, promised {objective.loss:.2%}"]


def _unsure(now: Latency, objective: Objective) -> list[str]:
    if not now.sent:
        return ["nothing was probed"]
    if now.measured < ENOUGH:
        return [f"{now.measured} delays measured of {now.sent} probes; {ENOUGH} are needed"]
    if now.clk_err_ns is None:
        return ["the clocks' error is not known"]
    return [
        f"{name} {format_ns(value)} of {format_ns(limit)} promised: the clocks are known to "
        f"{format_ns(_clock_ns(now))} only"
        for name, value, limit in _limits(now, objective)
        if value > limit >= value - _clock_ns(now)
    ]


def _worse_than_usual(now: Latency, usual: Latency | None, terms: Terms) -> list[str]:
    if usual is None or usual.p99_ns is None or now.p99_ns is None or usual.measured < ENOUGH:
        return []
    worse_ns = now.p99_ns - usual.p99_ns - _clock_ns(now)
    limits = terms.history
    if worse_ns <= limits.margin_ns or now.p99_ns <= limits.times * usual.p99_ns:
        return []
    return [f"p99 {format_ns(now.p99_ns)}, usually {format_ns(usual.p99_ns)}"]


def _worse_than_peers(now: Latency, peers: Latency | None, terms: Terms) -> list[str]:
    if peers is None or peers.p50_ns is None or now.p50_ns is None:
        return []
    worse_ns = now.p50_ns - peers.p50_ns - _clock_ns(now)
    limits = terms.peers
    if worse_ns <= limits.margin_ns or now.p50_ns <= limits.times * peers.p50_ns:
        return []
    return [f"p50 {format_ns(now.p50_ns)}, its like have {format_ns(peers.p50_ns)}"]


def peers_by_class(
    latencies: Mapping[str, Latency], classes: Mapping[str, str]
) -> dict[str, Latency]:
    """Class → medians over the subjects of that class; classes with too few are left out."""
    groups: dict[str, list[Latency]] = {}
    for subject, latency in latencies.items():
        if latency.measured >= ENOUGH and classes.get(subject):
            groups.setdefault(classes[subject], []).append(latency)
    return {name: _medians(group) for name, group in groups.items() if len(group) >= ENOUGH_PEERS}


def _medians(group: Sequence[Latency]) -> Latency:
    def median(values: Iterable[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return round(statistics.median(known)) if known else None

    return Latency(
        sent=sum(each.sent for each in group),
        lost=sum(each.lost for each in group),
        measured=sum(each.measured for each in group),
        p50_ns=median(each.p50_ns for each in group),
        p90_ns=median(each.p90_ns for each in group),
        p99_ns=median(each.p99_ns for each in group),
        clk_err_ns=median(each.clk_err_ns for each in group),
    )
