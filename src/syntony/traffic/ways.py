"""Which ways a plain TCP connection could take, the same list at both of its ends. Pure.

A way is what its packets say of themselves while they travel: addresses of any NICs of the two
hosts, and on its own pair of NICs another port, which the fabric hashes onto another path. Both
ends derive the same ways from the connection alone, so neither has to ask the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from syntony.model.paths import FourTuple

REDRAWS = 3
"""Other ports on a connection's own pair of NICs: with two equal-cost paths, one of eight
connections finds none of them on the other path, and takes another NIC."""


def ways_of(
    flow: FourTuple, near: Mapping[str, int], far: Mapping[str, int], ports: range
) -> tuple[FourTuple, ...]:
    """Every other way, in the order in which they are tried.

    Args:
        flow: the connection as its socket knows it, local end first.
        near: addresses of this host's NICs of its family, to their rails.
        far: the peer's.
        ports: from which other ports are drawn.

    Returns:
        First its own pair with other ports, then other NICs rail to rail, then across rails.
    """
    pairs = sorted(
        (abs(near[local] - far[remote]), abs(near[local] - near.get(flow.local, 0)), local, remote)
        for local in near
        for remote in far
        if (local, remote) != (flow.local, flow.remote)
    )
    others = [
        flow._replace(local=local, remote=remote)
        for *_, local, remote in pairs
    ]  # fmt: skip
    return (*(redraw(flow, draw, ports) for draw in range(REDRAWS)), *others)


def redraw(flow: FourTuple, draw: int, ports: range) -> FourTuple:
    """The same NICs with another port: of the end whose port is the larger one, which is the
    initiator's as a rule, so that no listener's port is ever another."""
    ends = sorted([(flow.local_port, flow.local), (flow.remote_port, flow.remote)])
    text = f"{draw} {ends}".encode()
    found = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
    port = ports[found % len(ports)]
    if (flow.local_port, flow.local) == ends[1]:
        return flow._replace(local_port=port)
    return flow._replace(remote_port=port)
