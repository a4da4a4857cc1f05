"""What the controller and the process that judges jobs for it say to each other."""

from __future__ import annotations

from typing import Any

import msgspec


class JobRows(msgspec.Struct, frozen=True, kw_only=True):
    """What the store has of one job. Instants are fleet time."""

    job: str
    first_ns: int
    last_ns: int
    now_ns: int
    rows: dict[str, dict[str, list[Any]]]
    """Table to column to values."""


class JobVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One cause that lasts until the end of the recording."""

    fault: str
    """Class of the taxonomy."""
    subjects: tuple[str, ...]
    hosts: tuple[str, ...]
    """Where it is, or the ends of the flows that it touches."""
    confidence: float
    onset_ns: int
    text: str
    """The first piece of evidence."""
    action: str


class JobFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One flow of the job."""

    flow: str
    src: str
    dst: str
    hops: tuple[str, ...]


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules say of one job."""

    job: str
    verdicts: tuple[JobVerdict, ...]
    flows: tuple[JobFlow, ...]
    """Of jobs of which a flow is slow: it, and the others, which are not."""
    error: str = ""
    """Why it could not be judged; empty: it was."""
