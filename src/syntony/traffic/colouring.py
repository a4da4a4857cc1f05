"""Placement of very many like flows on two tiers, as an edge colouring that flows join and leave.

Pure. Leaves are nodes, flows edges, ways up (spines) colours: no two flows of one node have one
colour. A bipartite graph in which no node has more than S edges has a colouring with S colours
(Kőnig 1916), found by swapping two colours along an alternating chain where a new edge has no free
colour in common. A leaf with more flows than ways up is several nodes: then each of its links has
as many flows as it has nodes, at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

NONE = -1
PAIRS = 16
"""Pairs of colours tried for one flow. The first works unless its chain is too long."""
FAR = 2**31 - 1
LONGEST = (8, 32, 128, 512, FAR)
"""Successive limits of the number of other flows that a chain moves."""
Numbers = NDArray[np.int32]


class Colouring(Protocol):
    """`ChainColouring`, or the native one of `syntony.io.fluid`."""

    def add(self, flow: Numbers, up: Numbers, down: Numbers, reach: int = ...) -> int:
        """Add flows from leaf to leaf; returns how many others were moved to make room, at most
        `reach` for each. Flows without room get no colour."""

    def remove(self, flow: Numbers) -> None:
        """Flows have ended."""

    def colours(self) -> Numbers:
        """Colours of all flows, (flows,); `NONE` for flows without one."""


MakeColouring = Callable[[int, int, int], Colouring]
"""From leaves, colours and the number of flows."""


class _Node:
    """Up to as many edges as there are colours."""

    __slots__ = ("degree", "flows")

    def __init__(self, colours: int) -> None:
        self.flows = [NONE] * colours
        self.degree = 0

    def free(self, colour: int) -> bool:
        return self.flows[colour] == NONE


class ChainColouring:
    """The reference: what native/place/colour.c does, choice by choice.

    Args:
        leaves: how many.
        colours: ways up, and down, of each.
        flows: they are called 0 to flows - 1.
    """

    def __init__(self, leaves: int, colours: int, flows: int) -> None:
        self._colours = colours
        self._leaves: tuple[list[list[_Node]], ...] = tuple(
            [[] for _ in range(leaves)] for _ in (0, 1)
        )
        self._ends: list[tuple[_Node, _Node] | None] = [None] * flows
        self._colour = np.full(flows, NONE, dtype=np.int32)

    def add(self, flow: Numbers, up: Numbers, down: Numbers, reach: int = FAR) -> int:
        """See `Colouring.add`. Raises `ValueError`: a flow that is there already, or a number out
        of range."""
        moved = 0
        for number, *leaves in zip(flow.tolist(), up.tolist(), down.tolist(), strict=True):
            known = 0 <= number < len(self._ends) and self._ends[number] is None
            if not known or not all(0 <= leaf < len(self._leaves[0]) for leaf in leaves):
                raise ValueError(f"flow {number} from {leaves[0]} to {leaves[1]}")
            a, b = (self._open_node(side, leaf) for side, leaf in enumerate(leaves))
            self._ends[number] = (a, b)
            a.degree += 1
            b.degree += 1
            moved += self._colour_one(number, a, b, reach)
        return moved

    def remove(self, flow: Numbers) -> None:
        """See `Colouring.remove`. Raises `ValueError`: a flow that is not there."""
        for number in flow.tolist():
            ends = self._ends[number] if 0 <= number < len(self._ends) else None
            if ends is None:
                raise ValueError(f"no flow {number}")
            self._strip(number)
            for node in ends:
                node.degree -= 1
            self._ends[number] = None

    def colours(self) -> Numbers:
        return self._colour

    def _open_node(self, side: int, leaf: int) -> _Node:
        nodes = self._leaves[side][leaf]
        for node in reversed(nodes):
            if node.degree < self._colours:
                return node
        nodes.append(_Node(self._colours))
        return nodes[-1]

    def _colour_one(self, flow: int, a: _Node, b: _Node, reach: int) -> int:
        for colour in range(self._colours):
            if a.free(colour) and b.free(colour):
                self._paint(flow, colour)
                return 0
        moved = 0
        for longest in LONGEST:
            moved = self._by_chain(flow, a, b, min(longest, reach))
            if moved or longest >= reach:
                break
        return moved

    def _by_chain(self, flow: int, a: _Node, b: _Node, longest: int) -> int:
        """Colour a flow by a chain of at most so many others; how many, or none."""
        every = range(self._colours)
        pairs = [(x, y) for x in every if a.free(x) for y in every if b.free(y)]
        for x, y in pairs[:PAIRS]:
            # x becomes free at b, or y at a.
            for side, node, has, lacks in ((1, b, x, y), (0, a, y, x)):
                chain = self._walk(side, node, has, lacks, longest)
                if chain:
                    self._swap(chain, x, y)
                    self._paint(flow, has)
                    return len(chain)
        return 0

    def _walk(self, side: int, node: _Node, has: int, lacks: int, longest: int) -> list[int]:
        """Flows that alternate from a node on between a colour that it has and one that it lacks;
        none if they are too many."""
        chain: list[int] = []
        colour = has
        while node.flows[colour] != NONE:
            if len(chain) == longest:
                return []
            chain.append(node.flows[colour])
            side = 1 - side
            ends = self._ends[chain[-1]]
            if ends is not None:
                node = ends[side]
            colour = lacks if colour == has else has
        return chain

    def _swap(self, chain: list[int], x: int, y: int) -> None:
        new = [y if self._colour[flow] == x else x for flow in chain]
        for flow in chain:
            self._strip(flow)
        for flow, colour in zip(chain, new, strict=True):
            self._paint(flow, colour)

    def _paint(self, flow: int, colour: int) -> None:
        self._colour[flow] = colour
        for node in self._ends[flow] or ():
            node.flows[colour] = flow

    def _strip(self, flow: int) -> None:
        colour = int(self._colour[flow])
        self._colour[flow] = NONE
        for node in self._ends[flow] or () if colour != NONE else ():
            node.flows[colour] = NONE
