"""What a job's ranks say on standard output: one JSON line per event. Pure.

Instants are CLOCK_MONOTONIC of the machine, which all hosts of a lab share: the synthetic clocks
are the agents', not the jobs'.
"""

from __future__ import annotations

import msgspec


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready", tag_field="event"):
    """A rank has all its connections."""

    rank: int
    at_ns: int


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="event"):
    """One rank's part of one collective step."""

    rank: int
    step: int
    start_ns: int
    end_ns: int
    wrong: int
    """Elements of the result that are not what they must be."""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done", tag_field="event"):
    """A rank ended because the job was reported to."""

    rank: int
    at_ns: int
    steps: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", tag_field="event"):
    """A rank gave up."""

    rank: int
    at_ns: int
    step: int
    error: str
    connection_lost: bool
    """A connection was reset, timed out or closed by the peer; else something else went wrong."""


Record = Ready | Step | Done | Failed
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def parse_line(line: bytes) -> Record | None:
    """A record, or None for anything else that a job's libraries print."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def to_line(record: Record) -> str:
    """As it is written; ends with a newline."""
    return msgspec.json.encode(record).decode() + "\n"
