"""Which plain connection a 4-tuple on the wire belongs to. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Expect
from syntony.traffic.plain_flow import PlainFlow


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
        """A connection has ended."""
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
