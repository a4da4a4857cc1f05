"""Checks the clock measurements that an agent reports. Pure.

Without these checks one absurd number in one edge stops the solve of the whole fleet, and forty
invented clocks from one certificate move an honest host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter

from msgspec import structs

from syntony.model import Edge, UtcReading
from syntony.wire.clocks import Edges

MAX_INSTANT_NS = 1 << 62
"""Instants and distances between clocks: 146 years."""
MAX_EDGES = 16_384
"""Of one message: 128 NICs with 128 peers each."""
MAX_DRIFT_PPB = 10e6
"""One per cent: a hundred times the error of a crystal."""
MIN_SIGMA, MAX_SIGMA = 1e-6, 1e18
"""No measurement is exact to a femtosecond: a smaller sigma would outvote the fleet, or divide by
zero."""

_NUMBERS = attrgetter(*(each.name for each in structs.fields(Edge) if each.type is float))
"""All fields that may be NaN, including those added later."""


def check_edges(host: str, message: Edges, is_clock: Callable[[str], bool]) -> tuple[Edges, int]:
    """The usable part of an agent's message, and how many parts were left out.

    Kept are edges from a clock of the host to another clock of the fleet, with possible values.
    Several pairs of NICs measure the same two clocks: they share one vote in the solve.

    Args:
        host: the agent's, from its certificate.
        message: of the agent.
        is_clock: whether a clock of that name is in the fleet.
    """
    edges_sent = message.edges[:MAX_EDGES]
    own = {
        node for node in {edge.a for edge in edges_sent} if _is_of(host, node) and is_clock(node)
    }
    others = set(filter(is_clock, {edge.b for edge in edges_sent}))
    edges = tuple(
        [
            edge
            for edge in edges_sent
            if edge.a in own and edge.b in others and edge.a != edge.b and _possible(edge)
        ]
    )
    utc = {
        reading.node: reading
        for reading in message.utc
        if _is_of(host, reading.node) and is_clock(reading.node) and _possible_reading(reading)
    }
    epochs = {
        node: epoch
        for node, epoch in message.epochs.items()
        if _is_of(host, node) and is_clock(node) and 0 < epoch <= MAX_INSTANT_NS
    }
    left_out = len(message.edges) - len(edges) + len(message.utc) - len(utc)
    left_out += len(message.epochs) - len(epochs)
    if not left_out:
        return message, 0
    usable = structs.replace(message, edges=edges, utc=tuple(utc.values()), epochs=epochs)
    return usable, left_out


def _possible(edge: Edge) -> bool:
    return (
        math.isfinite(sum(_NUMBERS(edge)))
        and abs(edge.ref_ns) <= MAX_INSTANT_NS
        and abs(edge.theta_ns) <= MAX_INSTANT_NS
        and abs(edge.drift_ppb) <= MAX_DRIFT_PPB
        and MIN_SIGMA <= edge.sigma_ns <= MAX_SIGMA
        and MIN_SIGMA <= edge.drift_sigma_ppb <= MAX_SIGMA
        and abs(edge.rtt_floor_ns) <= MAX_INSTANT_NS
        and 0 <= edge.probes <= MAX_INSTANT_NS
    )


def _possible_reading(reading: UtcReading) -> bool:
    instants = (reading.local_ns, reading.utc_minus_ns)
    return (
        all(abs(instant) <= MAX_INSTANT_NS for instant in instants)
        and 0 <= reading.bound_ns <= MAX_SIGMA
    )


def _is_of(host: str, node: str) -> bool:
    return node == host or node.startswith(f"{host}/")
