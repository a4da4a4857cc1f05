"""What the rest of the system may ask of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from syntony.model import Timeline
from syntony.model.findings import Finding
from syntony.wire.messages import MatrixCell, PathEventRow, SeriesPoint, Switch
from syntony.wire.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from syntony.store.links import LinkRows


MAX_POINTS = 100_000
"""Of one answer: what fits a message, and a person's patience."""


class Recorded(NamedTuple):
    """A part of a batch that is in the store: its rows within one partition, all of them."""

    host: str
    stream: str
    seq: int
    partition: int


class ClockPoint(NamedTuple):
    """One clock's solution at one instant of fleet time."""

    ts_ns: int
    timeline: Timeline


class FlowSecond(NamedTuple):
    """One flow's requests (`prober` is `src`) or replies in one second."""

    src: str
    dst: str
    prober: str
    sport: int
    second: int
    sent: int
    lost: int
    unresolved: int
    measured: int
    """Delays measured; 0 makes `owd_p50_ns` void."""
    owd_p50_ns: int
    clk_err_ns: float


class PathRow(NamedTuple):
    """One path as it was learnt."""

    ts_ns: int
    src: str
    dst: str
    sport: int
    dport: int
    hops: str
    """By spaces, ``*`` for a silent one."""


class Store(Protocol):
    """Rows in, answers out. Thread-safe. Every method raises `StoreError` when the engine does.

    Windows are half-open intervals ``[first_ns, last_ns)`` of fleet time.
    """

    @property
    def links(self) -> LinkRows:
        """Ports, flaps, counters."""

    def insert(self, table: Table, rows: pa.Table) -> None:
        """Add rows: the table's columns and, in front of them, `schema.ORIGIN`'s.

        Rows of one call that fall into one partition appear together or not at all.
        """

    def recorded(self, table: Table, first_ns: int, last_ns: int) -> frozenset[Recorded]:
        """Which batches have rows in the window."""

    def matrix(self, first_ns: int, last_ns: int) -> tuple[MatrixCell, ...]:
        """Every direction of every probed NIC pair, sorted."""

    def series(
        self, first_ns: int, last_ns: int, src: str = "", dst: str = ""
    ) -> tuple[SeriesPoint, ...]:
        """Second by second; one direction, or every one where `src` or `dst` is empty.

        Raises:
            UsageError: more than `MAX_POINTS` of them.
        """

    def flow_seconds(self, first_ns: int, last_ns: int) -> tuple[FlowSecond, ...]:
        """Every row of probing in the window, by flow, direction and second; in no order."""

    def heard(self, first_ns: int, last_ns: int) -> dict[tuple[str, str, int], int]:
        """Requests heard: (prober, target, second) to their number."""

    def learnt_paths(self, first_ns: int, last_ns: int) -> tuple[PathRow, ...]:
        """Paths learnt in the window, oldest first."""

    def findings(self, first_ns: int, last_ns: int) -> tuple[tuple[int, Finding], ...]:
        """(fleet time, what was to blame then), oldest first."""

    def clock_history(self, first_ns: int, last_ns: int, node: str = "") -> tuple[ClockPoint, ...]:
        """Past solutions of one clock, or of all."""

    def path_events(
        self, first_ns: int, last_ns: int, *, job: str = "", host: str = "", limit: int = 1_000
    ) -> tuple[PathEventRow, ...]:
        """What was done to paths, the newest `limit` of them, in order of time."""

    def last_switch(self) -> Switch | None:
        """The newest position of the stop switch; None if it was never thrown."""

    def latest_ns(self) -> int:
        """Fleet time of the newest probe row, 0 in an empty store."""

    def count_rows(self) -> int:
        """Rows kept, all tables together."""

    def expire(self, now_ns: int) -> int:
        """Drop partitions wholly older than their table's retention; returns how many."""

    def close(self) -> None:
        """Let go of the engine."""
