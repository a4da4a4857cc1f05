"""Cost of a fleet's failures: assumptions and answer; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.model import HOUR_NS, MS
from syntony.wire.query import Query

YEAR_NS = 8760 * HOUR_NS


class CostQuery(Query["CostReport"], frozen=True, kw_only=True, tag="cost"):
    """A job on a number of GPUs, and assumptions about its failures.

    Defaults cite their sources in docs/reference/cost.md. Every duration is in ns.
    """

    gpus: int = 1024
    restarts_low: float = 100.0
    """Failures that stop a job, per year and 1,000 GPUs: best case …"""
    restarts_high: float = 250.0
    """… and worst case."""
    links: int = 0
    """Links between NICs and leaves; 0: one for each GPU."""
    link_mtbf_ns: int = 5 * YEAR_NS
    checkpoint_ns: int = 2 * HOUR_NS
    """Time between checkpoints."""
    lost_share: float = 1.0
    """Share of this time lost by a failure: 1 as published, 0.5 on average."""
    recovery_ns: int = HOUR_NS // 2
    """From the failure to the first new step."""
    engineer_hours_low: float = 8.0
    engineer_hours_high: float = 24.0
    """Working time for one failure."""
    price: float = 0.0
    """Price of a GPU-hour, in any currency; 0: unknown."""
    network_share: float = 42 / 419
    """Share of failures of NICs, cables or switches."""
    rank_share: float = 246 / 419
    """Share of failures of GPUs, which cost a rank."""
    nics_per_host: int = 8
    failover_ns: int = 83 * MS
    """Time without progress during a failover of a NIC or path; 0: there is no failover."""
    repair_ns: int = 4 * HOUR_NS
    """Until a failed NIC or cable works again; the job runs with one NIC less."""
    network_time_share: float = 0.3
    """Share of a step spent waiting for the network."""
    takeover_ns: int = 0
    """Time without progress while a spare replaces a rank; 0: there are no spares."""
    history_ns: int = 0
    """Length of the period of the fleet's own incidents to count; 0: none."""


class Interval(msgspec.Struct, frozen=True):
    """From the best to the worst case."""

    low: float
    high: float


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Loss of a job's time by failures."""

    gpu_hours_per_month: Interval
    share: Interval
    """Share of all its GPU time; 1: it makes no progress."""
    price_per_month: Interval | None
    """None: the price of a GPU-hour is not known."""


class ObservedFailures(msgspec.Struct, frozen=True, kw_only=True):
    """Critical incidents of a fleet that are not symptoms of others."""

    period_ns: int
    """Period in which they were counted."""
    network: int
    hosts: int
    other: int
    per_year: float
    """Rate of the first two kinds together."""


class CostReport(msgspec.Struct, frozen=True, kw_only=True, tag="cost"):
    """Cost of failures for a job."""

    assumed: CostQuery
    restarts_per_year: Interval
    mttf_ns: Interval
    """Mean time to failure; low is the worst case."""
    first_link_failure_ns: float
    """Mean time until the first of all links fails."""
    gpu_hours_per_failure: float
    engineer_hours_per_month: Interval
    today: Loss
    with_syntony: Loss
    observed: ObservedFailures | None
    """None: not requested."""
