"""Counts verdicts by section, and computes exit codes."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from syntony.audit.check import Section
from syntony.audit.registry import every_check
from syntony.audit.result import Result, Status
from syntony.model.names import host_of


class ExitStyle(enum.StrEnum):
    """The program that reads the exit code."""

    NAGIOS = "nagios"
    """0 ok, 1 warning, 2 critical, 3 unknown."""
    NPD = "npd"
    """Kubernetes' node-problem-detector: 0 ok, 1 not ok, 2 unknown."""
    SLURM = "slurm"
    """Prolog, Epilog, HealthCheckProgram: 1 drains the node, for failures only; 3 unknown."""


def exit_code(statuses: Iterable[Status], style: ExitStyle = ExitStyle.NAGIOS) -> int:
    """The exit code for the worst verdict. A failure is worse than an unknown, an unknown worse
    than a warning. A value without anything to compare with does not count. If nothing was judged,
    the result is unknown.
    """
    seen = set(statuses)
    judged = seen - {Status.SKIP, Status.NOT_COMPARED}
    unknown = Status.UNKNOWN in seen or not judged
    if style is ExitStyle.SLURM:
        return 1 if Status.FAIL in seen else 3 if unknown else 0
    if style is ExitStyle.NPD:
        return 1 if Status.FAIL in seen else 2 if unknown else 0
    if Status.FAIL in seen:
        return 2
    return 3 if unknown else 1 if Status.WARN in seen else 0


class Node(NamedTuple):
    """One twig of the tree of checks and what hangs on it."""

    section: Section
    results: tuple[Result, ...]

    @property
    def counts(self) -> Counter[Status]:
        return Counter(result.status for result in self.results)


def tree(results: Iterable[Result]) -> tuple[Node, ...]:
    """Results by section, in the tree's order; sections without any are left out."""
    sections = {check.id: check.section for check in every_check()}
    found: dict[Section, list[Result]] = {}
    for result in results:
        found.setdefault(sections.get(result.check, Section.NODE), []).append(result)
    return tuple(Node(section, tuple(found[section])) for section in Section if section in found)


ORDER = (
    Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.NOT_COMPARED, Status.SKIP
)  # fmt: skip
"""Worst first."""


def worst_first(results: Iterable[Result]) -> list[Result]:
    """Sort for people: what needs action comes first."""
    return sorted(results, key=lambda each: (ORDER.index(each.status), each.subject, each.check))


def subject_host(result: Result) -> str:
    """The host that a verdict is about."""
    return host_of(result.subject)
