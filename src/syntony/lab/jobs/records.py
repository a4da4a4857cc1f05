"""The records that a job's ranks print on standard output: one JSON line per event. Pure.

Instants are CLOCK_MONOTONIC of the machine, which all hosts of a lab share: the synthetic clocks
are the agents', not the jobs'. Hosts that are virtual machines have clocks of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class RankReady(msgspec.Struct, frozen=True, kw_only=True, tag="ready", tag_field="event"):
    rank: int
    at_ns: int


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="event"):
    """One rank's part of one collective step."""

    rank: int
    step: int
    start_ns: int
    end_ns: int
    wrong: int
    """Elements of the result that are not what they must be."""


class RankDone(msgspec.Struct, frozen=True, kw_only=True, tag="done", tag_field="event"):
    """A rank ended because the job was asked to."""

    rank: int
    at_ns: int
    steps: int


class RankFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed", tag_field="event"):
    rank: int
    at_ns: int
    step: int
    error: str
    connection_lost: bool
    """A connection was reset, timed out or closed by the peer; else something else went wrong."""


Record = RankReady | StepRecord | RankDone | RankFailed
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def parse_line(line: bytes) -> Record | None:
    """Parse a record; None for anything else that a job's libraries print."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def wrong_results(records: Iterable[Record]) -> int:
    """Results of one rank and step that were not what they must be."""
    return sum(isinstance(each, StepRecord) and each.wrong > 0 for each in records)


def lost_connections(records: Iterable[Record]) -> int:
    """Ranks whose job saw a connection lost."""
    return sum(isinstance(each, RankFailed) and each.connection_lost for each in records)


def on_arrival_clock(said: Sequence[tuple[int, Record]]) -> list[Record]:
    """Convert a rank's records to the reader's clock, for a rank whose own clock is unrelated.

    The clocks differ by a constant: the shortest transit of a record counts as zero.

    Args:
        said: when each record was read, and the record.
    """
    ahead_ns = min((read_ns - _written_ns(record) for read_ns, record in said), default=0)
    return [_shifted(record, ahead_ns) for _, record in said]


def _written_ns(record: Record) -> int:
    return record.end_ns if isinstance(record, StepRecord) else record.at_ns


def _shifted(record: Record, by_ns: int) -> Record:
    if isinstance(record, StepRecord):
        return msgspec.structs.replace(
            record, start_ns=record.start_ns + by_ns, end_ns=record.end_ns + by_ns
        )
    return msgspec.structs.replace(record, at_ns=record.at_ns + by_ns)


def to_line(record: Record) -> str:
    """The line of a record; ends with a newline."""
    return msgspec.json.encode(record).decode() + "\n"
