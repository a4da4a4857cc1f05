"""Interface of policies: paths for flows that start, and moves when telemetry arrives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from syntony.sim.fluid.field import Field, Telemetry
from syntony.sim.fluid.net import Numbers
from syntony.traffic.colouring import ChainColouring, MakeColouring
from syntony.traffic.fair import Floats, Ints, Sharer, max_min
from syntony.traffic.place import Placer, solve


class PolicyMoves(NamedTuple):
    """Flows and the paths they take from now on, (moves,) each."""

    flows: Numbers
    pick: Numbers


NO_MOVES = PolicyMoves(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class Tools(NamedTuple):
    """Implementations of heavy work: the reference in Python, or native code."""

    share: Sharer = max_min
    place: Placer = solve
    colouring: MakeColouring = ChainColouring
    known: bool = True
    """Whether a controller knows the flows of a job when they start (from the job's earlier
    iterations), or only gradually, from telemetry."""


class PlacingPolicy(ABC):
    """Chooses paths in one run.

    Args:
        epoch_ns: how often `step` is called.
    """

    name: ClassVar[str]
    sprays: ClassVar[bool] = False
    """Packets take all paths: picks are ignored."""
    moves: ClassVar[bool] = False
    """Whether `step` ever does anything."""

    def __init__(
        self, field: Field, rng: np.random.Generator, epoch_ns: float, tools: Tools
    ) -> None:
        self.field, self.rng, self.epoch_ns, self.tools = field, rng, epoch_ns, tools
        self.made_room = 0
        """Flows under way that were moved when others started."""

    @abstractmethod
    def start(self, flows: Numbers) -> Numbers:
        """Picks for flows that start now, (flows,). They are not yet under way."""

    def ended(self, flows: Numbers) -> None:  # noqa: B027 - most do not care
        """Flows have ended."""

    def step(self, telemetry: Telemetry, now_ns: float) -> PolicyMoves:  # noqa: ARG002 - for those that move
        """Moves, once an epoch. `telemetry` may be some epochs old."""
        return NO_MOVES


def draw(field: Field, flows: Numbers, rng: np.random.Generator) -> Numbers:
    """A living path of each flow, all equally likely: what a hash does."""
    if not len(flows):
        return np.zeros(0, dtype=np.int64)
    counts = field.net.choices(field.traffic.src[flows], field.traffic.dst[flows])
    pick = (rng.random(len(flows)) * counts).astype(np.int64)
    if not field.net.healthy:
        dead = np.flatnonzero(~field.net.alive(field.path(flows, pick)))
        if len(dead):
            living = field.candidates(flows[dead])
            sizes = np.diff(living.first)
            pick[dead] = living.pick[
                living.first[:-1] + (rng.random(len(dead)) * sizes).astype(np.int64)
            ]
    return pick


def spread(values: Floats, links: Ints) -> Floats:
    """Values of links along paths, 0 where a path has none, (paths, hops)."""
    return np.asarray(np.append(values, 0.0)[links])
