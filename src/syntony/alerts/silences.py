"""Silences: who does not want to hear of what, for how long. A maintenance window is one, too."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import msgspec


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """No pages for matching incidents in ``[first_ns, last_ns)`` of fleet time. They open, are
    listed and are stored all the same; if still there at the end, they page then."""

    number: int = 0
    rule: str = "*"
    """Shell pattern over rule names."""
    subject: str = "*"
    """Shell pattern over subjects; ``h3`` also matches every part of host h3."""
    first_ns: int = 0
    last_ns: int
    who: str
    comment: str = ""

    def matches(self, rule: str, subject: str) -> bool:
        """Whether it is about an incident."""
        whole = fnmatch.fnmatchcase(subject, self.subject)
        part = fnmatch.fnmatchcase(subject, f"{self.subject}/*")
        return fnmatch.fnmatchcase(rule, self.rule) and (whole or part)


def silenced(silences: Iterable[Silence], rule: str, subject: str, now_ns: int) -> bool:
    """Whether nobody wants to hear of it now."""
    return any(
        silence.first_ns <= now_ns < silence.last_ns and silence.matches(rule, subject)
        for silence in silences
    )
