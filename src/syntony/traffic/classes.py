"""The class of a job, from an operator's configuration of job names. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from syntony.errors import ConfigError
from syntony.traffic.demand import Priority
from syntony.traffic.policy import is_named

_NAMES = {priority.name.lower(): priority for priority in Priority}


class JobClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[placement.classes]]``: jobs and their priority (docs/how-to/contention.md)."""

    jobs: tuple[str, ...]
    """Shell patterns over ``SYNTONY_JOB``."""
    priority: str = "standard"
    """``guaranteed``, ``standard`` or ``scavenger``: flows are placed as if lower classes did not
    exist."""
    weight: float = 1.0
    """Share of a link among flows of one class, relative to the others'."""


class Classes:
    """The first class that names a job counts; one that none names is standard, of weight 1. Raises
    `ConfigError`: an unknown priority, a weight that is none, or a class of no jobs."""

    def __init__(self, classes: Sequence[JobClass] = ()) -> None:
        for each in classes:
            if each.priority not in _NAMES:
                raise ConfigError(f"priority {each.priority!r}: use {', '.join(_NAMES)}")
            if not 0 < each.weight < math.inf:
                raise ConfigError(f"weight {each.weight} of {each.priority} jobs: give a number")
            if not each.jobs:
                raise ConfigError(f"a class of {each.priority} jobs names no job: set `jobs`")
        self._classes = tuple(classes)

    def of(self, job: str) -> tuple[Priority, float]:
        for each in self._classes:
            if is_named(job, each.jobs):
                return _NAMES[each.priority], each.weight
        return Priority.STANDARD, 1.0
