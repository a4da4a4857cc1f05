"""Questions about latency objectives and queues; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.model.findings import Queue
from syntony.model.sla import SlaItem, SlaRow, SlaStatus
from syntony.wire.query import Query


class SlaReportQuery(Query["SlaReport"], frozen=True, kw_only=True, tag="sla-report"):
    """Latency compared with its objectives."""

    by: str = "pair"
    """``pair``, ``host``, ``rail`` or ``job``."""
    window_ns: int = 60_000_000_000


class SlaCheckQuery(Query["SlaChecked"], frozen=True, kw_only=True, tag="sla-check"):
    """Check whether a replaced host is cabled as in the topology, and as fast as usual there."""

    host: str
    window_ns: int = 60_000_000_000


class QueuesQuery(Query["Queues"], frozen=True, kw_only=True, tag="queues"):
    """Links at which packets wait now."""


class SlaReport(msgspec.Struct, frozen=True, kw_only=True, tag="sla-report"):
    """Worst first."""

    by: str
    window_ns: int
    rows: tuple[SlaRow, ...]


class SlaChecked(msgspec.Struct, frozen=True, kw_only=True, tag="sla-check"):
    host: str
    status: SlaStatus
    items: tuple[SlaItem, ...]


class Queues(msgspec.Struct, frozen=True, kw_only=True, tag="queues"):
    queues: tuple[Queue, ...]
    looked: bool
    """False while too little was measured to say that there are none."""
