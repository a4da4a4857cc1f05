"""A run on disk: one JSON line of head, then one for each host as it answered.

A run that was interrupted is a shorter file, and can be resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from syntony.audit.result import HostReport
from syntony.errors import InputError

FORMAT = "syntony-audit-1"


class Head(msgspec.Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    taken_ns: int
    """When it began, UTC."""
    checks: tuple[str, ...] = ()
    """What was asked for; empty for all."""
    spec: dict[str, Any] = {}
    """The specification as it was then."""
    golden: str = ""
    """Name of the golden host."""


_encode = msgspec.json.Encoder().encode
_head: msgspec.json.Decoder[Head] = msgspec.json.Decoder(Head)
_report: msgspec.json.Decoder[HostReport] = msgspec.json.Decoder(HostReport)


def line(record: Head | HostReport) -> bytes:
    return _encode(record) + b"\n"


def parse_head(text: bytes, name: str) -> Head:
    """The first line. Raises `InputError`."""
    try:
        head = _head.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError("not-a-run", f"{name} is not a run of `syntony audit run`") from error
    if head.format != FORMAT:
        raise InputError("not-a-run", f"{name} is of another version ({head.format[:40]})")
    return head


def parse_report(text: bytes, name: str) -> HostReport:
    """One of the other lines. Raises `InputError`."""
    try:
        return _report.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(
            "not-a-report", f"{name}: a line is not a host's report: {error}"
        ) from error


def reports(lines: Iterable[bytes], name: str) -> Iterator[HostReport]:
    """Every whole line; a last one without its end is of an interrupted run and left out."""
    for text in lines:
        if text.endswith(b"\n") and text.strip():
            yield parse_report(text, name)
