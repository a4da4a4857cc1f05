"""Cost of a fleet's failures: assumptions and answer; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.model import MS, S
from syntony.wire.query import Query

HOUR_NS = 3600 * S
YEAR_NS = 8760 * HOUR_NS


class CostQuery(Query["CostReport"], frozen=True, kw_only=True, tag="cost"):
    """A job on so many GPUs and what is assumed of its failures.

    Defaults cite their sources in docs/reference/cost.md. Every duration is in ns.
    """

    gpus: int = 1024
    restarts_low: float = 100.0
    """Failures that stop a job, a year and 1,000 GPUs: at the best …"""
    restarts_high: float = 250.0
    """… and at the worst."""
    links: int = 0
    """Links between NICs and leaves; 0: one for each GPU."""
    link_mtbf_ns: int = 5 * YEAR_NS
    checkpoint_ns: int = 2 * HOUR_NS
    """Time between checkpoints."""
    lost_share: float = 1.0
    """Part of that which a failure loses: 1 as published, 0.5 on average."""
    recovery_ns: int = HOUR_NS // 2
    """From the failure to the first new step."""
    engineer_hours_low: float = 8.0
    engineer_hours_high: float = 24.0
    """People's time for one failure."""
    price: float = 0.0
    """Of a GPU-hour, in any currency; 0: not known."""
    network_share: float = 42 / 419
    """Part of the failures that is a NIC, cable or switch."""
    rank_share: float = 246 / 419
    """Part of the failures that is a GPU, and costs a rank."""
    nics_per_host: int = 8
    failover_ns: int = 83 * MS
    """For how long a job stands still when a NIC or path is left; 0: it is not left."""
    repair_ns: int = 4 * HOUR_NS
    """Until a failed NIC or cable works again; the job runs with one NIC less."""
    network_time_share: float = 0.3
    """Part of a step that waits for the network."""
    takeover_ns: int = 0
    """For how long a job stands still when a spare takes a rank's place; 0: none does."""
    history_ns: int = 0
    """Count the fleet's own incidents of so long, too; 0: do not."""


class Interval(msgspec.Struct, frozen=True):
    """From the best to the worst case."""

    low: float
    high: float


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Loss of a job's time by failures."""

    gpu_hours_per_month: Interval
    share: Interval
    """Of all its GPU time; 1: it makes no progress."""
    price_per_month: Interval | None
    """None: the price of a GPU-hour is not known."""


class ObservedFailures(msgspec.Struct, frozen=True, kw_only=True):
    """Critical incidents of a fleet that are not symptoms of others."""

    period_ns: int
    """Over which they were counted."""
    network: int
    hosts: int
    other: int
    per_year: float
    """Of the first two kinds together."""


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
