"""What the rest of the system may ask of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from syntony.wire.clocks import ClockSample
from syntony.wire.failover import PathEventRow
from syntony.wire.probes import MatrixCell, Plane, SeriesPoint
from syntony.wire.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from syntony.store.fabric import FabricRows
    from syntony.store.incidents import IncidentRows
    from syntony.store.jobs import JobRows
    from syntony.store.latency import LatencyRows
    from syntony.store.links import LinkRows


MAX_POINTS = 100_000
"""Of one answer: what fits a message, and a person's patience."""


class Recorded(NamedTuple):
    """A part of a batch that is in the store: its rows within one partition, all of them."""

    host: str
    stream: str
    seq: int
    partition: int


class Store(Protocol):
    """Rows in, answers out. Thread-safe. Every method raises `StoreError` when the engine does.

    Windows are half-open intervals ``[first_ns, last_ns)`` of fleet time.
    """

    @property
    def links(self) -> LinkRows:
        """Ports, flaps, counters."""

    @property
    def fabric(self) -> FabricRows:
        """Learnt paths, what was to blame, what changed."""

    @property
    def latency(self) -> LatencyRows:
        """Percentiles of one-way delay over groups of NIC pairs."""

    @property
    def incidents(self) -> IncidentRows:
        """What became of incidents."""

    @property
    def jobs(self) -> JobRows:
        """Processes, collectives, steps and flows of jobs."""

    def insert(self, table: Table, rows: pa.Table) -> None:
        """Add rows: the table's columns and, in front of them, `schema.ORIGIN`'s.

        Rows of one call that fall into one partition appear together or not at all.
        """

    def recorded(self, table: Table, first_ns: int, last_ns: int) -> frozenset[Recorded]:
        """Which batches have rows in the window."""

    def matrix(
        self, first_ns: int, last_ns: int, over: Plane = Plane.UDP
    ) -> tuple[MatrixCell, ...]:
        """Every direction of every probed NIC pair, sorted."""

    def series(
        self, first_ns: int, last_ns: int, src: str = "", dst: str = "", step: int = 1
    ) -> tuple[SeriesPoint, ...]:
        """A point each `step` seconds; one direction, or every one where `src` or `dst` is empty.

        Raises:
            UsageError: more than `MAX_POINTS` of them.
        """

    def clock_history(
        self, first_ns: int, last_ns: int, node: str = "", step_ns: int = 1
    ) -> tuple[ClockSample, ...]:
        """Past solutions of one clock, or of all, at most one per clock and `step_ns`."""

    def path_events(
        self, first_ns: int, last_ns: int, *, job: str = "", host: str = "", limit: int = 1_000
    ) -> tuple[PathEventRow, ...]:
        """What was done to paths, the newest `limit` of them, in order of time."""

    def latest_ns(self) -> int:
        """Fleet time of the newest probe row, 0 in an empty store."""

    def count_rows(self) -> int:
        """Rows kept, all tables together."""

    def expire(self, now_ns: int) -> int:
        """Drop partitions wholly older than their table's retention; returns how many."""

    def close(self) -> None:
        """Let go of the engine."""
