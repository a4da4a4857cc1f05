"""What an agent says of clocks, checked where it enters. Pure.

One absurd number in one edge once stopped the solve for the whole fleet; forty invented clocks from
one certificate moved an honest host.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from syntony.model import Edge, UtcReading
from syntony.wire.clocks import Edges

MAX_INSTANT_NS = 1 << 62
"""Instants and distances between clocks: 146 years."""
MAX_EDGES = 16_384
"""Of one message: 128 NICs with 128 peers each."""
MAX_DRIFT_PPB = 10e6
"""One per cent: a hundred times what a crystal does."""
MIN_SIGMA, MAX_SIGMA = 1e-6, 1e18
"""Nothing is known to a femtosecond: a smaller sigma would outvote the fleet, or divide by zero."""


def credible(host: str, said: Edges, is_clock: Callable[[str], bool]) -> tuple[Edges, int]:
    """What of an agent's message may be solved with, and how many parts were left out.

    Kept are edges from a clock of the host to another clock of the fleet, with numbers that a
    measurement can have. Several pairs of NICs measure the same two clocks: they share one vote in
    the solve.

    Args:
        host: the agent's, from its certificate.
        said: its message.
        is_clock: whether a clock of that name is in the fleet.
    """
    edges = tuple(
        edge
        for edge in said.edges[:MAX_EDGES]
        if _is_of(host, edge.a) and edge.a != edge.b and is_clock(edge.a) and is_clock(edge.b)
        if _possible(edge)
    )
    utc = {
        reading.node: reading
        for reading in said.utc
        if _is_of(host, reading.node) and is_clock(reading.node) and _possible_reading(reading)
    }
    epochs = {
        node: epoch
        for node, epoch in said.epochs.items()
        if _is_of(host, node) and is_clock(node) and 0 < epoch <= MAX_INSTANT_NS
    }
    left_out = len(said.edges) - len(edges) + len(said.utc) - len(utc)
    left_out += len(said.epochs) - len(epochs)
    if not left_out:
        return said, 0
    kept = msgspec.structs.replace(said, edges=edges, utc=tuple(utc.values()), epochs=epochs)
    return kept, left_out


def _possible(edge: Edge) -> bool:
    return (
        abs(edge.ref_ns) <= MAX_INSTANT_NS
        and abs(edge.theta_ns) <= MAX_INSTANT_NS
        and abs(edge.drift_ppb) <= MAX_DRIFT_PPB
        and MIN_SIGMA <= edge.sigma_ns <= MAX_SIGMA
        and MIN_SIGMA <= edge.drift_sigma_ppb <= MAX_SIGMA
        and abs(edge.rtt_floor_ns) <= MAX_INSTANT_NS
        and 0 <= edge.probes <= MAX_INSTANT_NS
        and _all_finite(edge)
    )


def _possible_reading(reading: UtcReading) -> bool:
    instants = (reading.local_ns, reading.utc_minus_ns)
    return (
        all(abs(instant) <= MAX_INSTANT_NS for instant in instants)
        and 0 <= reading.bound_ns <= MAX_SIGMA
    )


def _all_finite(edge: Edge) -> bool:
    """Fields that other versions add included."""
    numbers = (getattr(edge, name) for name in edge.__struct_fields__)
    return all(math.isfinite(number) for number in numbers if isinstance(number, float))


def _is_of(host: str, node: str) -> bool:
    return node == host or node.startswith(f"{host}/")
