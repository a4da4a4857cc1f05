"""Messages between the controller and its process that evaluates jobs."""

from __future__ import annotations

from typing import Any

import msgspec


class JobRows(msgspec.Struct, frozen=True, kw_only=True):
    """The store's rows of one job. Instants are fleet time."""

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
    """Hosts of the fault, or of the ends of affected flows."""
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
    """Verdicts of the rules on one job."""

    job: str
    verdicts: tuple[JobVerdict, ...]
    flows: tuple[JobFlow, ...]
    """Flows of the job, if one of them is slow; otherwise empty."""
    error: str = ""
    """The reason why it could not be evaluated; empty: it was."""
