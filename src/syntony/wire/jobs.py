"""Requests and answers about jobs; part of `syntony.wire.messages`."""

from __future__ import annotations

from typing import Any

import msgspec

from syntony.wire.query import Query


class JobsQuery(Query["Jobs"], frozen=True, kw_only=True, tag="jobs"):
    """Jobs with a process in the window, newest first."""

    window_ns: int


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as reported by its processes."""

    job: str
    began_ns: int
    """Start of its oldest process, fleet time."""
    seen_ns: int
    """Last report of one of its processes, fleet time."""
    hosts: tuple[str, ...]
    processes: int
    running: int
    """Number of processes that had not ended."""
    ranks: int
    """As its processes report; 0: they report none."""
    programs: tuple[str, ...]
    """At most eight names."""
    generation: int | None = None
    """Generation of connections of a protected job; None: it is not protected, or that is not
    reported."""
    spares: int | None = None
    """Number of waiting spares at the last report; None as for `generation`."""
    replaced: int = 0
    """Number of lost ranks that were replaced, without drained ones."""


class Jobs(msgspec.Struct, frozen=True, kw_only=True, tag="jobs"):
    now_ns: int
    """Fleet time."""
    jobs: tuple[JobView, ...]


class RecordingQuery(Query["Recording"], frozen=True, kw_only=True, tag="recording"):
    """The recording of one job, as the tables of a bundle."""

    job: str
    window_ns: int
    end_ns: int = 0
    """Of the window, fleet time; 0: now."""
    processes: bool = False
    """Whether to send the table `processes`: older readers fail on tables that they do not know."""


class RecordedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive rows of one table."""

    table: str
    """A table of docs/reference/bundle.md."""
    arrow: bytes
    """An Arrow IPC stream with the table's columns."""


class Recording(msgspec.Struct, frozen=True, kw_only=True, tag="recording"):
    manifest: bytes
    """`manifest.json` of the bundle."""
    notes: tuple[str, ...]
    """What is missing, and why."""
    rows: tuple[RecordedRows, ...]


class JobReportQuery(Query["JobReport"], frozen=True, kw_only=True, tag="job-report"):
    """Why a job is slow, its flows and its history, evaluated by the controller."""

    job: str
    window_ns: int = 120_000_000_000
    end_ns: int = 0
    """Of the window, fleet time; 0: now."""


class FlowDelays(msgspec.Struct, frozen=True, kw_only=True):
    """One flow's median delays by window, of the job's own packets and of probes; ns, None: not
    measured."""

    flow: str
    in_band_ns: tuple[float | None, ...]
    out_of_band_ns: tuple[float | None, ...]


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of one lost rank; see the table ``job_takeovers``."""

    ts_ns: int
    what: str
    rank: int
    at: str
    step: int
    generation: int
    reason: str
    worker: str
    stall_ns: int
    """From the loss until all ranks were connected again; the loss was at `ts_ns` minus this."""


class JobReport(msgspec.Struct, frozen=True, kw_only=True, tag="job-report"):
    """Report on one job; durations in ns, instants in fleet time."""

    job: str
    begin_ns: int
    end_ns: int
    sentences: tuple[str, ...]
    """Cause, evidence and remedy."""
    verdicts: tuple[dict[str, Any], ...]
    """As `syntony why --json` prints them."""
    flows: tuple[dict[str, Any], ...]
    """As `syntony job flows --json` prints them, worst first."""
    flows_left_out: int
    notes: tuple[str, ...]
    """Data that was not recorded, and the consequences."""
    at_ns: tuple[int, ...]
    """Begin of each window of `rate_bps` and `delays`."""
    rate_bps: tuple[float | None, ...]
    """Sum over all flows."""
    delays: tuple[FlowDelays, ...]
    """Delays of the flows with the longest delays."""
    steps_at_ns: tuple[int, ...]
    """End of each step of the slowest rank."""
    steps_ns: tuple[float, ...]
    """Duration of each step of the slowest rank."""
    resent: tuple[float | None, ...] = ()
    """Retransmitted segments in each window, of all flows."""
    takeovers: tuple[Takeover, ...] = ()
    """The newest of the window, oldest first."""
