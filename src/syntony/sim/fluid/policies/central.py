"""Central placement: a controller knows all flows, and places them again whenever one starts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from syntony.sim.fluid.clos import LeafSpine
from syntony.sim.fluid.field import Field
from syntony.sim.fluid.net import Numbers
from syntony.sim.fluid.policies.base import PlacingPolicy, Tools
from syntony.traffic.fair import Ints
from syntony.traffic.problem import DEAD, PlacementProblem


class Central(PlacingPolicy):
    """Flow lists are known when flows start. On two tiers of equal links the flows of one size
    are an edge colouring that they join and leave, and flows under way are moved to make room; on
    other fabrics chains of moves (`traffic.place`) place those that start."""

    name: ClassVar[str] = "central"

    def __init__(
        self, field: Field, rng: np.random.Generator, epoch_ns: float, tools: Tools
    ) -> None:
        super().__init__(field, rng, epoch_ns, tools)
        self._coloured = Coloured(self) if Coloured.fits(field) else None

    def start(self, flows: Numbers) -> Numbers:
        if self._coloured is None:
            return place_new(self, flows)
        return self._coloured.start(flows)

    def ended(self, flows: Numbers) -> None:
        if self._coloured is not None:
            self._coloured.ended(flows)


class Coloured:
    """Flows as an edge colouring, for a policy that places them."""

    def __init__(self, policy: PlacingPolicy) -> None:
        field = policy.field
        if not isinstance(field.net, LeafSpine):
            raise TypeError("only leaves and spines are coloured; see `fits`")
        self._policy = policy
        self._leaf = field.net.leaf.astype(np.int32)
        self._colouring = policy.tools.colouring(
            field.net.leaves, field.net.spines, field.traffic.flows
        )

    @staticmethod
    def fits(field: Field) -> bool:
        """Two tiers of one plane, equal living links, and flows of one kind."""
        net, traffic = field.net, field.traffic
        if not isinstance(net, LeafSpine) or net.planes > 1 or not net.healthy:
            return False
        alike = traffic.weight is None and traffic.priority is None
        return alike and float(np.ptp(net.capacity[2 * net.nics :])) == 0

    def start(self, flows: Numbers) -> Numbers:
        """Picks of flows that start; those that must make room are moved."""
        field = self._policy.field
        up, down = self._leaf[field.traffic.src[flows]], self._leaf[field.traffic.dst[flows]]
        far = up != down
        self._colouring.add(flows[far].astype(np.int32), up[far], down[far])
        colours = self._colouring.colours()
        running = field.running
        moved = running[(colours[running] >= 0) & (colours[running] != field.pick[running])]
        if len(moved):
            field.move(moved, colours[moved].astype(np.int64))
            self._policy.made_room += len(moved)
        return np.where(far, np.maximum(colours[flows], 0), 0).astype(np.int64)

    def ended(self, flows: Numbers) -> None:
        """Flows leave."""
        gone = flows[self._colouring.colours()[flows] >= 0]
        self._colouring.remove(gone.astype(np.int32))


def place_new(policy: PlacingPolicy, flows: Numbers) -> Numbers:
    """Picks for flows that start, while those under way stay on their paths."""
    field = policy.field
    everybody = np.concatenate((field.running, flows))
    candidates = field.candidates(everybody)
    new = np.arange(len(everybody)) >= len(everybody) - len(flows)
    owner = np.repeat(np.arange(len(everybody)), np.diff(candidates.first))
    # Flows under way have one candidate: where they are.
    keep = new[owner] | (candidates.pick == field.pick[everybody][owner])
    owner, pick, ways = owner[keep], candidates.pick[keep], candidates.ways[keep]
    first = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(everybody)))))
    priority = field.traffic.priority
    problem = PlacementProblem(
        first=first,
        ways=inner(ways, first, owner),
        capacity=field.net.capacity,
        ideal_bps=field.ideal_rates(everybody),
        priority=np.ones(len(everybody), dtype=np.int8)
        if priority is None
        else priority[everybody],
    )
    start = np.full(len(everybody), DEAD, dtype=np.int64)
    start[~new] = first[:-1][~new]
    chosen = policy.tools.place(problem, start)
    return np.asarray(pick[chosen[new]])


def inner(ways: Ints, first: Numbers, owner: Numbers) -> Ints:
    """The links that placement chooses: all but the NICs' links if a NIC has one port."""
    ends = ways[:, [0, -1]]
    same = (ends == ends[first[owner]]).all()
    return np.ascontiguousarray(ways[:, 1:-1] if same and ways.shape[1] > 2 else ways)
