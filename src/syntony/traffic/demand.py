"""Input of placement: flows, their candidate paths, and the capacities of links. Pure.

This is all that placement (`place`) and steering (`mover`) know of the world. Anyone who calls them
makes these records: the controller from the agents' connections and the learnt path map, the
simulator from its topology, a file from an operator.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

Capacities = Mapping[str, int | None]
"""Link to bits per second; 0: dead; None or absent: unknown.

A link whose capacity is unknown is taken for one like the others: of the median capacity of those
that are known, so that flows are spread over it as over them."""


class Priority(enum.IntEnum):
    """Class of a job. A class is placed as if those below it did not exist."""

    GUARANTEED = 0
    STANDARD = 1
    SCAVENGER = 2


@dataclass(frozen=True, slots=True)
class CandidatePath:
    """A path from sender to receiver that a flow may take."""

    path_id: str
    """Unique within a flow; what the actuator understands (an entropy, a pair of NICs)."""
    links: tuple[str, ...]
    """Directional, in order, called as in `fabric.names` (``leaf0->spine1``), the NICs' included.
    Only links that are shared matter; the same link must have the same name in every flow."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One connection, subflow or queue pair that has one path at a time."""

    flow_id: str
    job: str
    paths: tuple[CandidatePath, ...]
    """Candidates; one that a flow cannot be moved to is not among them."""
    path_id: str = ""
    """Its present path; empty: not placed yet."""
    priority: Priority = Priority.STANDARD
    weight: float = 1.0
    """Share among flows of one class on one link, relative to the others'."""
    demand_bps: int | None = None
    """What it would send without any limit; None: all it can get."""

    striped: bool = False
    """One of several over which its sender spreads what it sends as it likes: to get less than a
    link carries is no sign that it suffers, only packets that wait are."""

    @property
    def current(self) -> CandidatePath | None:
        """The path it is on; None where it is not placed, or on a path that is not listed."""
        return next((path for path in self.paths if path.path_id == self.path_id), None)
