"""The economics of failure: restarts, mean time to failure, GPU-hours lost. Pure.

A job is synchronous: one failure anywhere stops all of its GPUs, loses the work since the last
checkpoint and costs the time to recover. Failures come at a constant rate for each GPU (or link).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syntony.errors import UsageError
from syntony.model import HOUR_NS
from syntony.wire.cost import YEAR_NS, CostQuery, CostReport, Interval, Loss, ObservedFailures

NETWORK = frozenset({
    "port-down", "link-flapping", "switch-down", "switch-loss", "switch-or-hosts", "link-loss",
    "ambiguous-loss", "nic-loss", "cable-lost",
})  # fmt: skip
"""Rules whose critical incidents are failures of NICs, cables or switches."""
HOSTS = frozenset({"host-silent", "silent-together"})


def observed(
    incidents: Iterable[Mapping[str, Any]], period_ns: int, now_ns: int
) -> ObservedFailures:
    """Count the critical incidents that began in a period and are nobody else's symptom.

    Args:
        incidents: as docs/reference/incidents.md describes them.
        period_ns: until now.
        now_ns: on the clock of their instants.
    """
    network = hosts = other = 0
    for each in incidents:
        began = now_ns - period_ns <= each["opened_ns"] <= now_ns
        if each["severity"] != "critical" or each["cause"] or not began:
            continue
        if each["rule"] in NETWORK:
            network += 1
        elif each["rule"] in HOSTS:
            hosts += 1
        else:
            other += 1
    return ObservedFailures(
        period_ns=period_ns, network=network, hosts=hosts, other=other,
        per_year=(network + hosts) * YEAR_NS / period_ns,
    )  # fmt: skip


HOURS_PER_MONTH = 8760 / 12
_MOST_NS = 100 * YEAR_NS
_LIMITS: tuple[tuple[str, float, float], ...] = (
    ("gpus", 1, 1e9),
    ("links", 0, 1e9),
    ("nics_per_host", 1, 1000),
    ("restarts_low", 1e-6, 1e9),
    ("restarts_high", 1e-6, 1e9),
    ("engineer_hours_low", 0, 1e6),
    ("engineer_hours_high", 0, 1e6),
    ("price", 0, 1e9),
    *((name, 0, 1) for name in ("lost_share", "network_share", "rank_share", "network_time_share")),
    ("link_mtbf_ns", 1, _MOST_NS * 100),
    *((f"{name}_ns", 0, _MOST_NS)
      for name in ("checkpoint", "recovery", "failover", "repair", "takeover", "history")),
)  # fmt: skip
"""What an assumption may be, ends included: beyond these it is a mistake."""
_INTERVALS = (
    ("restarts_low", "restarts_high"),
    ("engineer_hours_low", "engineer_hours_high"),
)


def check(assumed: CostQuery) -> None:
    """Raises `UsageError`: an assumption that cannot be, by name."""
    for name, low, high in _LIMITS:
        value = getattr(assumed, name)
        if not low <= value <= high:
            raise UsageError(f"{name}: {value:g} is not between {low:g} and {high:g}")
    for low_name, high_name in _INTERVALS:
        if getattr(assumed, low_name) > getattr(assumed, high_name):
            raise UsageError(f"{high_name}: less than {low_name}")
    if assumed.network_share + assumed.rank_share > 1:
        raise UsageError("network_share and rank_share: together more than all failures")


def cost(assumed: CostQuery, observed: ObservedFailures | None = None) -> CostReport:
    """What failures take of a job, today and where NICs, paths and ranks are survived. Raises
    `UsageError`: an assumption that cannot be."""
    check(assumed)
    per_year = _scaled(assumed.gpus / 1000, assumed.restarts_low, assumed.restarts_high)
    stopped_ns = assumed.lost_share * assumed.checkpoint_ns + assumed.recovery_ns
    return CostReport(
        assumed=assumed,
        restarts_per_year=per_year,
        mttf_ns=Interval(YEAR_NS / per_year.high, YEAR_NS / per_year.low),
        first_link_failure_ns=assumed.link_mtbf_ns / (assumed.links or assumed.gpus),
        gpu_hours_per_failure=assumed.gpus * stopped_ns / HOUR_NS,
        engineer_hours_per_month=Interval(
            per_year.low / 12 * assumed.engineer_hours_low,
            per_year.high / 12 * assumed.engineer_hours_high,
        ),
        today=_loss(assumed, per_year, stopped_ns),
        with_syntony=_loss(assumed, per_year, _survived_ns(assumed, stopped_ns)),
        observed=observed,
    )


def slowdown(assumed: CostQuery) -> float:
    """By how much steps take longer while one NIC of a host is missing: the rest of its NICs carry
    what it carried, and every other host waits for it."""
    return assumed.network_time_share / (assumed.nics_per_host - 1)


def _survived_ns(assumed: CostQuery, stopped_ns: float) -> float:
    """Mean time that one failure costs where some are survived.

    What cannot be survived costs what it does today: a host's only NIC, a rank without a spare.
    """
    network_ns = rank_ns = stopped_ns
    if assumed.failover_ns and assumed.nics_per_host > 1:
        degraded_ns = assumed.repair_ns * slowdown(assumed)
        network_ns = min(stopped_ns, assumed.failover_ns + degraded_ns)
    if assumed.takeover_ns:
        rank_ns = min(stopped_ns, float(assumed.takeover_ns))
    rest = 1 - assumed.network_share - assumed.rank_share
    return (
        assumed.network_share * network_ns
        + assumed.rank_share * rank_ns
        + max(0.0, rest) * stopped_ns
    )


def _loss(assumed: CostQuery, per_year: Interval, each_ns: float) -> Loss:
    """At most all of the job's time: beyond that it makes no progress."""
    low, high = (min(1.0, count * each_ns / YEAR_NS) for count in (per_year.low, per_year.high))
    gpu_hours = _scaled(assumed.gpus * HOURS_PER_MONTH, low, high)
    price = _scaled(assumed.price, gpu_hours.low, gpu_hours.high) if assumed.price else None
    return Loss(gpu_hours_per_month=gpu_hours, share=Interval(low, high), price_per_month=price)


def _scaled(by: float, low: float, high: float) -> Interval:
    return Interval(by * low, by * high)
