"""`ib_write_bw --report_gbits` of perftest."""

from __future__ import annotations

import re

from syntony.audit.facts import UnreadableError

_HEAD = re.compile(r"#bytes\s+#iterations\s+BW peak\[Gb/sec\]\s+BW average\[Gb/sec\]")
_ROW = re.compile(r"\s*(\d{1,12})\s+(\d{1,12})\s+[\d.]{1,12}\s+(\d{1,6}(?:\.\d{1,6})?)(?:\s.*)?")
_TELLING = re.compile(
    r"Couldn't|Failed|failed|Unable|error|Error|syndrom|No route|not found|No such|not installed"
)


def parse_write_bw(text: str) -> float:
    """Gb/s, average, of the largest message. Raises `UnreadableError`: no result; with the line
    that says why."""
    head = _HEAD.search(text)
    rows = [match for line in text[head.end() :].splitlines()
            if (match := _ROW.fullmatch(line))] if head else []  # fmt: skip
    if rows:
        return float(max(rows, key=lambda row: int(row[1]))[3])
    raise UnreadableError(error_line(text) or "ib_write_bw printed no bandwidth")


def error_line(text: str) -> str:
    """The line of a failed program that says most; empty if it said nothing."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -*\t")]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or [""])[0 if telling else -1][:160]
