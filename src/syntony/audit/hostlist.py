"""Host lists as Slurm and pdsh write them: ``gpu[001-128,130],login1``."""

from __future__ import annotations

import re

from syntony.errors import UsageError
from syntony.model.names import is_name

MAX_HOSTS = 100_000
MAX_PART = 1000
"""Characters of one part: each pair of brackets in it is a level of recursion."""
_PART = re.compile(r"(?:[^,\s\[]|\[[^\[\]]*\]|\[)+")
_BRACKET = re.compile(r"\[([0-9,-]*)\]")


def parse_hosts(text: str) -> tuple[str, ...]:
    """Every name once, in order; ``user@`` may stand before it. Raises `UsageError`: a part that is
    no name, or a range that is none or far too long."""
    found: dict[str, None] = {}
    for part in _PART.findall(text):  # at commas and white space outside brackets
        for name in _expand(part):
            if not is_name(name.rpartition("@")[2]) or name.startswith("-"):
                raise UsageError(f"{name[:60]!r} is not a host name")
            found[name] = None
            if len(found) > MAX_HOSTS:
                raise UsageError(f"more than {MAX_HOSTS} hosts in {text[:60]!r}")
    if not found:
        raise UsageError(f"no host in {text[:60]!r}")
    return tuple(found)


def _expand(part: str) -> list[str]:
    if len(part) > MAX_PART:
        raise UsageError(f"{part[:60]!r} …: longer than {MAX_PART} characters")
    match = _BRACKET.search(part)
    if match is None:
        return [part]
    head, tail = part[: match.start()], part[match.end() :]
    numbers = [number for piece in match[1].split(",") for number in _numbers(piece, part)]
    rest = _expand(tail)
    if len(numbers) * len(rest) > MAX_HOSTS:
        raise UsageError(f"more than {MAX_HOSTS} hosts in {part[:60]!r}")
    return [f"{head}{number}{end}" for number in numbers for end in rest]


def _numbers(piece: str, part: str) -> list[str]:
    first, dash, last = piece.partition("-")
    last = last if dash else first
    if not first.isdigit() or not last.isdigit() or max(len(first), len(last)) > 9:
        raise UsageError(
            f"{part[:60]!r}: {piece[:60]!r} is not a range; write for example gpu[001-128]"
        )
    low, high = int(first), int(last)
    if high < low or high - low >= MAX_HOSTS:
        raise UsageError(f"{part[:60]!r}: the range {piece!r} is empty or too long")
    return [f"{number:0{len(first)}d}" for number in range(low, high + 1)]
