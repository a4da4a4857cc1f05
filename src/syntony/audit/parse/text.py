"""Small forms that several programs share: versions, key-value lines, JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from syntony.audit.facts import UnreadableError

_PARTS = re.compile(r"\d+|[A-Za-z]+")


def version_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Orders versions as people do: ``535.129.3`` before ``535.129.10``, ``1.2-rc`` after ``1.2``.

    Numbers compare as numbers, words as words, and a number comes after a word.
    """
    parts = _PARTS.findall(text[:200])
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part.lower()) for part in parts)


def fields(text: str, separator: str = ":") -> dict[str, str]:
    """``name : value`` lines; the first of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, cut, value = line.partition(separator)
        if cut and name.strip():
            found.setdefault(name.strip(), value.strip())
    return found


def whole(text: str) -> int | None:
    """A count; None for what is none (``N/A``, ``-1``, an empty file, 30 digits)."""
    stripped = text.strip()
    return int(stripped) if stripped.isascii() and re.fullmatch(r"\d{1,20}", stripped) else None


def number_of(host_text: str, what: str) -> int:
    """A count that must be one. Raises `UnreadableError` naming `what`."""
    value = whole(host_text)
    if value is None:
        raise UnreadableError(f"{what} holds {host_text.strip()[:40]!r}, not a number")
    return value


def json_of(text: str, what: str) -> Any:
    """A JSON document; what programs print before its first bracket is left out. Raises
    `UnreadableError`: it is none."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    try:
        return json.loads(text[min(starts) :]) if starts else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{what} printed no JSON ({str(error)[:80]})") from error
