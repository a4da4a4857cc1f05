"""Moves of flows between paths, and the policy that limits them. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from syntony.model import US, S
from syntony.model.config_values import Natural, Positive, Share


class MoveCause(enum.StrEnum):
    """Why a flow is to move."""

    CROWDED = "crowded"
    """The flow is queued or below its ideal rate, and a better path is known."""
    ROOM = "room"
    """The flow itself is fine: it makes room for one on a congested link."""
    DEAD = "dead"
    """A link of its path is dead."""
    UNPLACED = "unplaced"
    """The flow has no path yet, or one that is not among its candidates."""
    UNDO = "undo"
    """It was moved and that did not help."""


@dataclass(frozen=True, slots=True)
class FlowMove:
    """A move of one flow to another path. The actuator makes the new path before it ends the
    old."""

    flow_id: str
    job: str
    old: str
    """Its present path; empty if unknown."""
    new: str
    cause: MoveCause
    evidence: str
    """For a person: what was seen."""
    at_ns: int


class MovePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[placement.policy]``: when flows are moved, and how a move is judged.

    The times suit telemetry in windows of half a second.
    """

    queue_ns: Natural = 50 * US
    """Queueing delay from which a path counts as congested: above what bursts leave behind on a
    path with room, below the delay of a standing queue in any switch with more than 625 kB of
    buffer at 100 Gb/s."""
    short: Share = 0.9
    """A flow is short if its rate is below this share of its ideal rate."""
    full: Share = 0.95
    """A link is busy from this part of its capacity on: counters and clocks disagree by a few per
    cent, and headers are not counted everywhere."""
    gain: Share = 0.05
    """A move has helped if the worst-off of those it touches (or all together) get this much
    more."""
    stale_ns: Natural = 10 * S
    """Measurements older than this are not used."""
    settle_ns: Natural = 1 * S
    """After a move measurements must be younger by this to judge it: two windows."""
    act_ns: Natural = 5 * S
    """A move that the actuator has not confirmed within this time has failed."""
    retry_ns: Natural = 2 * S
    """A move that was not carried out is considered again after this time."""
    judge_ns: Natural = 20 * S
    """A move that no measurement could evaluate within this time is kept."""
    max_moves: Natural = 1_000
    """Maximum moves in one step: limits the harm of a wrong decision. In a controller,
    `max_moves` of ``[placement]`` is used in its place."""
    max_moves_per_s: Natural = 2_000
    """Maximum moves in a second. In a controller, that of ``[placement]`` is used in its place."""
    hold_down_ns: Natural = 30 * S
    """How long a flow is not moved again after its first move, and a path that did not help it is
    not used; doubles each time."""
    hold_down_max_ns: Natural = 600 * S
    """Upper limit of `hold_down_ns`."""
    decay_ns: Positive = 600 * S
    """This long without a move halves the hold-down."""
    background_floor: Share = 0.05
    """Background traffic below this share of a link counts as noise."""
    background_weight: Share = 0.3
    """Weight of the newest measurement of background traffic: a burst is no reason to move."""
