"""Moves of flows between paths: what is decided, and the rules by which. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from syntony.model import MS, US, S


class MoveCause(enum.StrEnum):
    """Why a flow is to move."""

    CROWDED = "crowded"
    """It waits in a queue, or gets less than it could, and a better place is known."""
    ROOM = "room"
    """Nothing is wrong with it: it makes room for one that is crowded."""
    DEAD = "dead"
    """A link of its path is dead."""
    UNPLACED = "unplaced"
    """It has no path yet, or one that is not among its candidates."""
    UNDO = "undo"
    """It was moved and that did not help."""


@dataclass(frozen=True, slots=True)
class FlowMove:
    """One flow to another path. Make before break is the actuator's matter."""

    flow_id: str
    job: str
    old: str
    """Path it is on; empty where that is not known."""
    new: str
    cause: MoveCause
    evidence: str
    """For a person: what was seen."""
    at_ns: int


class MovePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the mover may do. Times are for telemetry in windows of half a second."""

    queue_ns: int = 50 * US
    """Queueing delay from which a path counts as crowded: above what bursts leave behind on a path
    with room, below what a standing queue is in any switch with more than 625 kB of buffer at
    100 Gb/s."""
    short: float = 0.9
    """A flow gets less than it could if its rate is below this part of it."""
    full: float = 0.95
    """A link is busy from this part of its capacity on: counters and clocks disagree by a few per
    cent, and headers are not counted everywhere."""
    gain: float = 0.05
    """A move has helped if the worst-off of those it touches (or all together) get this much
    more."""
    stale_ns: int = 10 * S
    """Older measurements decide nothing."""
    settle_ns: int = 1 * S
    """After a move measurements must be younger by this to judge it: two windows."""
    act_ns: int = 5 * S
    """An actuator that has not answered for so long has failed."""
    retry_ns: int = 2 * S
    """A move that was not even tried is thought of again after so long."""
    judge_ns: int = 20 * S
    """A move that no measurement could judge for so long stays, unjudged."""
    max_moves: int = 1_000
    """In one step: the most harm that a wrong decision can do."""
    max_moves_per_s: int = 2_000
    hold_down_ns: int = 30 * S
    """How long a flow rests after its first move, and a path that did not help it is left alone;
    doubles each time."""
    hold_down_max_ns: int = 600 * S
    decay_ns: int = 600 * S
    """A quiet time this long halves it."""
    background_floor: float = 0.05
    """Traffic of others below this part of a link is taken for noise."""
    background_weight: float = 0.3
    """Of the newest measurement of others' traffic against those before: a burst is no reason."""
    slack_ns: int = 50 * MS
    """Measurements this far apart count as of the same time."""
