"""Silences: no pages for some rules or subjects for a time, for example a maintenance window."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable

import msgspec

from syntony.errors import UsageError
from syntony.model.names import did_you_mean


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """No pages for matching incidents in ``[first_ns, last_ns)`` of fleet time. They are opened,
    listed and stored as usual; those that are still live at the end page then."""

    number: int = 0
    rule: str = "*"
    """Shell pattern over rule names."""
    subject: str = "*"
    """Shell pattern over subjects and their parts (`Containment.parts`); ``h3`` also matches every
    part of host h3."""
    first_ns: int = 0
    last_ns: int
    who: str
    comment: str = ""

    def matches(self, rule: str, names: Iterable[str]) -> bool:
        """Whether it applies to an incident: to its subject or to any of its parts."""
        return fnmatch.fnmatchcase(rule, self.rule) and any(map(self.covers, names))

    def covers(self, subject: str) -> bool:
        """Whether it applies to a subject, for some rule."""
        whole = fnmatch.fnmatchcase(subject, self.subject)
        return whole or fnmatch.fnmatchcase(subject, f"{self.subject}/*")


def check_rule(silence: Silence, rules: Collection[str]) -> None:
    """Raises `UsageError`: it matches no rule."""
    if not any(fnmatch.fnmatchcase(rule, silence.rule) for rule in rules):
        raise UsageError(
            f"no rule {silence.rule!r}{did_you_mean(silence.rule, rules)}; "
            "`syntony incidents rules` lists them"
        )


def warn_of_subject(silence: Silence, known: Collection[str]) -> str:
    """A warning if a silence covers none of the known names, which is allowed: the subject may
    appear later. Empty: it covers some."""
    if silence.subject == "*" or any(map(silence.covers, known)):
        return ""
    hint = did_you_mean(silence.subject, known) or "."
    return (
        f"nothing is called {silence.subject!r} now{hint} The silence is in force, for what comes "
        "by that name; `syntony incidents silence --end NUMBER` ends it"
    )
