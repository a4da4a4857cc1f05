"""The 4-tuples that a plain TCP connection's packets may carry on the wire. Pure.

A *wire* is such a 4-tuple: the connection's own; the same pair of NICs with another port, which the
fabric hashes onto another path; or addresses of other NICs of the two hosts. Both ends derive the
same list from the connection alone, so they need not agree on it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Expect
from syntony.traffic.plain_flow import PlainFlow

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


class WireClaims:
    """The connections that may use each 4-tuple: as their own, or as a detour. A detour that two
    connections may use is used by neither, at either end."""

    def __init__(self) -> None:
        self._claims: dict[FourTuple, list[PlainFlow]] = defaultdict(list)

    def owner(self, name: FourTuple) -> PlainFlow | None:
        """The only connection that may use a 4-tuple; None if there are several or none."""
        claims = self._claims.get(name, ())
        return claims[0] if len(claims) == 1 else None

    def claim(self, conn: PlainFlow, wires: tuple[FourTuple, ...]) -> list[Expect]:
        """A connection may use these detours; any other connection that shares one loses it."""
        if wires == conn.claimed and conn in self._claims.get(conn.flow, ()):
            return []
        touched = self._unclaim(conn)
        conn.claimed = wires
        for name in (conn.flow, *wires):
            self._claims[name].append(conn)
            touched += self._claims[name]
        return self._allot(touched)

    def drop(self, conn: PlainFlow) -> list[Expect]:
        out = self._allot(self._unclaim(conn))
        if conn.wires:
            out.append(Expect(flow=conn.flow, wires=()))
        return out

    def _unclaim(self, conn: PlainFlow) -> list[PlainFlow]:
        """Connections that may use more detours now."""
        touched = []
        for name in (conn.flow, *conn.claimed):
            claims = self._claims.get(name, [])
            if conn in claims:
                claims.remove(conn)
            touched += claims
            if not claims:
                self._claims.pop(name, None)
        return touched

    def _allot(self, flows: Iterable[PlainFlow]) -> list[Expect]:
        out = []
        for flow in dict.fromkeys(flows):
            wires = tuple(wire for wire in flow.claimed if self.owner(wire) is not None)
            if wires != flow.wires:
                flow.wires = wires
                out.append(Expect(flow=flow.flow, wires=wires))
        return out
