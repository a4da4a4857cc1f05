"""What is asked and said about jobs; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.wire.query import Query


class JobsQuery(Query["Jobs"], frozen=True, kw_only=True, tag="jobs"):
    """Jobs that had a process lately, newest first."""

    window_ns: int


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as the processes that belong to it tell."""

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


class Jobs(msgspec.Struct, frozen=True, kw_only=True, tag="jobs"):
    now_ns: int
    """Fleet time."""
    jobs: tuple[JobView, ...]


class RecordingQuery(Query["Recording"], frozen=True, kw_only=True, tag="recording"):
    """What was recorded of one job, as the tables of a bundle."""

    job: str
    window_ns: int
    end_ns: int = 0
    """Of the window, fleet time; 0: now."""


class RecordedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of one table, in the order of the whole."""

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
