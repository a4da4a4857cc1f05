"""What becomes of an operator who is sent where findings say: the outcome of a drawn case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from syntony.fabric.candidates import Listing
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.numbering import make_candidates
from syntony.model.findings import Finding
from syntony.model.names import host_of

if TYPE_CHECKING:
    from tests.fabric.varied import Drawn

SURE = 0.7
"""Confidence beyond which a finding's name is acted upon without a look at its alternatives."""
OUTCOMES = ("right", "twin", "vague", "missed", "astray", "wrong")
"""Best first. ``twin``: the fault is among the suspects, none of them sure; ``vague``: a group with
the fault in it; ``astray``: the fault is not among the suspects, none of them sure; ``wrong``: a
healthy part is named as sure."""


def located(case: Drawn, *, delays: bool = False) -> tuple[Finding, ...]:
    """What is found in its one window."""
    candidates = make_candidates(
        Listing.of([way.listed for way in case.ways]), parallel=case.parallel
    )
    change_ns = case.change_ns if delays else np.full(len(case.ways), np.nan)
    sigma_ns = np.full(len(case.ways), 100.0)
    return locate(candidates, [WindowCounts("now", case.sent, case.lost, change_ns, sigma_ns)])


def outcome(case: Drawn, findings: Sequence[Finding]) -> str:
    """One of `OUTCOMES`: the worst of all findings and, of every fault, the best."""
    every = [_judged(case, found) for found in findings]
    best: dict[str, str] = {}
    for truth in case.truths:
        mine = [how for judged in every for each, how in judged.items() if each == truth]
        best[truth] = min([*mine, "missed"], key=OUTCOMES.index)
    bad = [judged[""] for judged in every if "" in judged]
    return max([*bad, *best.values(), "right"], key=OUTCOMES.index)


def _judged(case: Drawn, found: Finding) -> dict[str, str]:
    """Of one finding: fault → outcome, or "" → `astray` or `wrong`."""
    suspects = (found.component, *found.alternatives)
    named = {
        truth: how
        for truth in (*case.truths, *case.excused)
        if (how := _of_truth(case, truth, found, suspects))
    }
    return named or {"": "wrong" if found.confidence > SURE else "astray"}


def _of_truth(case: Drawn, truth: str, found: Finding, suspects: Sequence[str]) -> str:
    if place(found.component) == place(truth):
        return "right"
    if ".." in found.component and _holds(case, found.component, truth):
        return "vague"
    told = suspects if found.confidence <= SURE else suspects[: 1 + found.twins]
    if any(place(each) == place(truth) for each in told):
        return "twin"
    groups = (each for each in suspects if ".." in each)
    if found.confidence <= SURE and any(_holds(case, each, truth) for each in groups):
        return "twin"
    return ""


def _holds(case: Drawn, group: str, truth: str) -> bool:
    """Whether a way that lists something unknown within these ends crosses the fault."""
    a, _, b = group.partition("..")
    return any(
        truth in way.true and truth not in way.listed
        for way in case.ways
        for name in way.listed
        if ".." in name and _fits(a, b, *name.split(".."))
    )


def _fits(a: str, b: str, near: str, far: str) -> bool:
    return (a in {"*", near} and b in {"*", far}) or (a in {"*", far} and b in {"*", near})


def cable_between(a: str, b: str) -> str:
    return "--".join(sorted((a, b)))


def mark(name: str) -> str:
    return next((mark for mark in ("->", "--", "..") if mark in name), "")


def cable_of(name: str) -> str:
    return cable_between(*name.split(mark(name))) if mark(name) else name


def place(name: str) -> str:
    """Where a repair begins: a host for all of its NICs and their cables, a cable for a link."""
    name = name.removeprefix("replies of ").removeprefix("clock of ")
    ends = name.split(mark(name)) if mark(name) else [name]
    nic = next((end for end in ends if "/" in end), "")
    return host_of(nic) or cable_of(name)
