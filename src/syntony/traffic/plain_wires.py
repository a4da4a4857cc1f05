"""The 4-tuples that a plain TCP connection's packets may carry on the wire. Pure.

A *wire* is such a 4-tuple: the connection's own; the same pair of NICs with another port, which the
fabric hashes onto another path; or addresses of other NICs of the two hosts. Both ends derive the
same list from the connection alone, so they need not agree on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from syntony.model.paths import FourTuple

REDRAWS = 3
"""Other ports on a connection's own pair of NICs: with two equal-cost paths, one of eight
connections finds none of them on the other path, and takes another NIC."""


def other_wires(
    flow: FourTuple, near: Mapping[str, int], far: Mapping[str, int], ports: range
) -> tuple[FourTuple, ...]:
    """Every wire but the connection's own, in the order in which they are tried.

    Args:
        flow: the 4-tuple of the socket, local end first.
        near: addresses of this host's NICs of its family, to their rails.
        far: the same for the peer.
        ports: range of the other ports.

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
    """The same NICs with another port at the end that has the larger port. That is usually the
    initiator's end, so the port of a listener stays."""
    ends = sorted([(flow.local_port, flow.local), (flow.remote_port, flow.remote)])
    text = f"{draw} {ends}".encode()
    found = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())
    port = ports[found % len(ports)]
    if (flow.local_port, flow.local) == ends[1]:
        return flow._replace(local_port=port)
    return flow._replace(remote_port=port)
