"""Results of comparing latency with objectives."""

from __future__ import annotations

import enum

import msgspec


class SlaStatus(enum.StrEnum):
    """Latency of one subject, or of one thing that was checked, against its objective."""

    OK = "ok"
    WARNING = "warning"
    """Worse than its own past, or than its like; nothing that was promised is broken."""
    BREACH = "breach"
    """An objective is exceeded, or the subject is not where it is expected."""
    UNKNOWN = "unknown"
    """It could not be measured: neither well nor ill."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Probes of one subject over a window; delays are one way, None where none was measured."""

    sent: int
    lost: int
    measured: int
    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None
    clk_err_ns: int | None = None
    """1-sigma of the clocks in them; None: not known."""


class SlaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One subject and its verdict."""

    subject: str
    """``h0/rail0->h1/rail0``, ``h0->h1``, ``rail0`` or the job."""
    path_class: str
    """``leaf``, ``spine``, ``core``: how far the paths go; empty where not known or mixed."""
    now: Latency
    usual: Latency | None
    """The same subject in the past; None where there is not enough of it."""
    peers: Latency | None
    """Medians of the other subjects of its class; None where there are too few."""
    status: SlaStatus
    reasons: tuple[str, ...]


class SlaItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the check of a host looked at."""

    check: str
    subject: str
    status: SlaStatus
    detail: str
