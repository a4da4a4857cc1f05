"""Decides where a lost rank resumes, and which rank sends it parameters. Pure.

A *boundary* is the start of a loop iteration that follows an optimizer step; boundaries are
numbered from 0 on every rank. -1 is the start of the program. A rank's *record* of a boundary is
the state that only that rank has (random number generators, position in its loops, buffers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

START = -1
"""The boundary before the first: the program's start, from which any process can begin."""
VERIFY_AFTER = (2, 16, 128, 1024)
"""Boundaries after a replacement at which all ranks compare their parameters: the first detects
immediate differences, the others those that take effect later, such as a learning rate."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """A surviving rank's report once its state is frozen."""

    boundary: int
    """The last boundary that it passed."""
    stepped: bool
    """Whether its optimizer has stepped since; the parameters from before are in its undo copy."""
    gives: bool = True
    """False: it is still catching up and has no complete state to send."""
    shadows: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Ranks of which it holds a copy of their state (`shadow`), and at which boundaries."""


class StateSource(NamedTuple):
    """The rank that sends a replacement its parameters and optimizer state."""

    rank: int
    undo: bool
    """Whether it is past the boundary's step: it also sends the parameters from before it."""


class PartSource(NamedTuple):
    """The rank that has a part of the parameters and optimizer state."""

    rank: int
    of: int
    """The rank whose state it is: itself, or one that it has a copy of."""
    undo: bool
    """As in `StateSource`."""


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """How a generation begins."""

    boundary: int
    """Where replacements resume; survivors repeat every collective since."""
    provider: int
    """The rank that hosts the store through which all connect; unless `sources` says otherwise it
    also sends parameters and optimizer state."""
    undo: bool
    """Whether the provider is past the boundary's step: it also sends the parameters from before
    it."""
    sources: Mapping[int, StateSource] = field(default_factory=dict)
    """Sources for lost ranks whose parameters differ from other ranks'."""

    def source(self, rank: int) -> StateSource:
        """Source of a replacement's state."""
        return self.sources.get(rank, StateSource(self.provider, self.undo))


@dataclass(frozen=True, slots=True)
class RecoveryRefusal:
    """Why no plan gives the same result as an undisturbed run."""

    reason: str


def make_plan(
    survivors: Mapping[int, RankReport],
    lost: Mapping[int, int],
    shards: Mapping[int, str] | None = None,
) -> RecoveryPlan | RecoveryRefusal:
    """Choose the boundary and the sources of state.

    Args:
        survivors: by rank; at least one.
        lost: the last boundary with a record, by rank; may be empty (only connections were lost).
        shards: if ranks differ in their parameters, the part of each; ranks of one part have the
            same.
    """
    if not survivors:
        return RecoveryRefusal("no rank is left that has the parameters")
    boundary = min([report.boundary for report in survivors.values()] + list(lost.values()))
    if boundary > START and shards:
        return _sharded(survivors, lost, shards, boundary)
    return _planned(survivors, lost, boundary)


def _planned(
    survivors: Mapping[int, RankReport], lost: Mapping[int, int], boundary: int
) -> RecoveryPlan | RecoveryRefusal:
    if boundary == START:
        return _from_the_start(survivors)
    ahead = {r: each for r, each in survivors.items() if each.boundary > boundary + 1}
    if ahead:
        rank, report = next(iter(ahead.items()))
        return RecoveryRefusal(
            f"rank {rank} is at step {report.boundary}, others at {boundary}: "
            "a step had no collective that all ranks take part in"
        )
    return (
        _provided(survivors, boundary)
        if lost
        else RecoveryPlan(boundary, min(survivors), undo=False)
    )


def _peers(
    survivors: Mapping[int, RankReport], shards: Mapping[int, str], rank: int
) -> dict[int, RankReport]:
    """Ranks with the same part of the parameters as a lost one."""
    return {
        other: each for other, each in survivors.items() if shards.get(other) == shards.get(rank)
    }


def _shadowed(
    survivors: Mapping[int, RankReport], lost: Mapping[int, int], shards: Mapping[int, str]
) -> dict[int, int] | RecoveryRefusal:
    """For lost ranks without a surviving peer, the newest boundary with a copy."""
    found = {}
    for rank, last in lost.items():
        if _peers(survivors, shards, rank):
            continue
        kept = [n for each in survivors.values() for n in each.shadows.get(rank, ()) if n <= last]
        if not kept:
            return RecoveryRefusal(
                f"rank {rank} was lost, and no remaining rank has a copy of its parameters"
            )
        found[rank] = max(kept)
    return found


def _sharded(
    survivors: Mapping[int, RankReport], lost: Mapping[int, int], shards: Mapping[int, str],
    boundary: int,
) -> RecoveryPlan | RecoveryRefusal:  # fmt: skip
    copies = _shadowed(survivors, lost, shards)
    if isinstance(copies, RecoveryRefusal):
        return copies
    boundary = min([boundary, *copies.values()])
    plan = _planned(survivors, {}, boundary)
    if isinstance(plan, RecoveryRefusal):
        return plan
    sources = {}
    for rank in lost:
        peers = _peers(survivors, shards, rank)
        if peers:
            found = _provided(peers, boundary)
            if isinstance(found, RecoveryRefusal):
                return found
            sources[rank] = StateSource(found.provider, found.undo)
            continue
        holder = _copy_holder(survivors, rank, boundary)
        if holder is None:
            return RecoveryRefusal(
                f"no rank has a copy of rank {rank}'s parameters of step {boundary}"
            )
        sources[rank] = StateSource(holder, undo=False)
    return replace(plan, sources=sources)


def _copy_holder(survivors: Mapping[int, RankReport], rank: int, boundary: int) -> int | None:
    return min(
        (r for r, each in survivors.items() if boundary in each.shadows.get(rank, ())), default=None
    )


def part_sources(
    survivors: Mapping[int, RankReport], shards: Mapping[int, str], boundary: int
) -> dict[str, PartSource] | RecoveryRefusal:
    """The rank that has each part of the job's parameters at a boundary.

    Args:
        survivors: by rank.
        shards: the part of each rank of the job; empty: all have the same.
        boundary: of a plan for them.
    """
    found = {}
    for part in sorted(set(shards.values())) or [""]:
        owners = [r for r, each in shards.items() if each == part] if shards else list(survivors)
        plan = _provided({r: survivors[r] for r in owners if r in survivors}, boundary)
        if isinstance(plan, RecoveryPlan):
            found[part] = PartSource(plan.provider, plan.provider, plan.undo)
            continue
        copies = ((_copy_holder(survivors, of, boundary), of) for of in owners)
        holder, of = next((each for each in copies if each[0] is not None), (None, -1))
        if holder is None:
            return plan
        found[part] = PartSource(holder, of, undo=False)
    return found


def _provided(survivors: Mapping[int, RankReport], boundary: int) -> RecoveryPlan | RecoveryRefusal:
    live = _first(survivors, lambda each: each.boundary == boundary and not each.stepped)
    if live is not None:
        return RecoveryPlan(boundary, live, undo=False)
    past = _first(survivors, lambda each: (each.boundary == boundary) == each.stepped)
    if past is not None:
        return RecoveryPlan(boundary, past, undo=True)
    return RecoveryRefusal(f"no rank has the parameters of step {boundary} any more")


def _from_the_start(survivors: Mapping[int, RankReport]) -> RecoveryPlan | RecoveryRefusal:
    late = [rank for rank, each in survivors.items() if each.boundary > START + 1 or each.stepped]
    if late:
        return RecoveryRefusal(f"rank {late[0]} is past its first step, another has not begun")
    return RecoveryPlan(START, min(survivors), undo=False)


def _first(survivors: Mapping[int, RankReport], fits: Callable[[RankReport], bool]) -> int | None:
    return min(
        (rank for rank, each in survivors.items() if each.gives and fits(each)), default=None
    )
