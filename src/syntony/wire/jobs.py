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
    """When its oldest process began, fleet time."""
    seen_ns: int
    """When a process of it was last seen."""
    hosts: tuple[str, ...]
    processes: int
    running: int
    """Of them, those that had not ended."""
    ranks: int
    """By their own word; 0: they do not say."""
    programs: tuple[str, ...]
    """Names, eight at most."""
    generation: int | None = None
    """Of connections, where the job's ranks are replaced when they are lost; None: they are not, or
    nobody tells."""
    spares: int | None = None
    """That waited when it was told last; None as for `generation`."""
    replaced: int = 0
    """Ranks that were lost and replaced since it began, drained ones left out."""


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


class RecordedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive rows of one table."""

    table: str
    """As docs/reference/bundle.md has it."""
    arrow: bytes
    """An Arrow IPC stream with the table's columns."""


class Recording(msgspec.Struct, frozen=True, kw_only=True, tag="recording"):
    manifest: bytes
    """`manifest.json` of the bundle."""
    notes: tuple[str, ...]
    """What was left out, and why."""
    rows: tuple[RecordedRows, ...]


class JobReportQuery(Query["JobReport"], frozen=True, kw_only=True, tag="job-report"):
    """Why a job is slow, its flows and its history, evaluated by the controller."""

    job: str
    window_ns: int = 120_000_000_000
    end_ns: int = 0
    """Of the window, fleet time; 0: now."""


class FlowDelays(msgspec.Struct, frozen=True, kw_only=True):
    """One flow's median delay by window, the job's own packets beside probes; ns, None: not
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
    """What, by which evidence, what to do."""
    verdicts: tuple[dict[str, Any], ...]
    """As `syntony why --json` prints them."""
    flows: tuple[dict[str, Any], ...]
    """As `syntony job flows --json` prints them, worst first."""
    flows_left_out: int
    notes: tuple[str, ...]
    """What was not recorded, and what cannot be concluded without it."""
    at_ns: tuple[int, ...]
    """Begin of each window of `rate_bps` and `delays`."""
    rate_bps: tuple[float | None, ...]
    """All flows together."""
    delays: tuple[FlowDelays, ...]
    """Of the flows with the longest delays."""
    steps_at_ns: tuple[int, ...]
    """End of each step, of the rank that was last."""
    steps_ns: tuple[float, ...]
    """How long it took, the slowest rank."""
    resent: tuple[float | None, ...] = ()
    """Segments that were sent again in each window, all flows together."""
    takeovers: tuple[Takeover, ...] = ()
    """The newest of the window, oldest first."""
