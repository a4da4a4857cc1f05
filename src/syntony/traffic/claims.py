"""Which plain connection is meant by a name on the wire. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Expect
from syntony.traffic.plain_flow import PlainFlow


class NameClaims:
    """Who could mean what by a name: connections by themselves, and by all their ways. What two
    could mean is used by neither, at either end."""

    def __init__(self) -> None:
        self._claims: dict[FourTuple, list[PlainFlow]] = defaultdict(list)

    def owner(self, name: FourTuple) -> PlainFlow | None:
        """Whose a name is, if it is one connection's only."""
        claims = self._claims.get(name, ())
        return claims[0] if len(claims) == 1 else None

    def claim(self, known: PlainFlow, ways: tuple[FourTuple, ...]) -> list[Expect]:
        """A connection has these ways; anyone who has one of them as well loses it."""
        if ways == known.claimed and known in self._claims.get(known.flow, ()):
            return []
        touched = self._unclaim(known)
        known.claimed = ways
        for name in (known.flow, *ways):
            self._claims[name].append(known)
            touched += self._claims[name]
        return self._allot(touched)

    def drop(self, known: PlainFlow) -> list[Expect]:
        """It is over."""
        out = self._allot(self._unclaim(known))
        if known.ways:
            out.append(Expect(flow=known.flow, wires=()))
        return out

    def _unclaim(self, known: PlainFlow) -> list[PlainFlow]:
        """Who may have more ways now."""
        touched = []
        for name in (known.flow, *known.claimed):
            claims = self._claims.get(name, [])
            if known in claims:
                claims.remove(known)
            touched += claims
            if not claims:
                self._claims.pop(name, None)
        return touched

    def _allot(self, flows: Iterable[PlainFlow]) -> list[Expect]:
        out = []
        for flow in dict.fromkeys(flows):
            ways = tuple(way for way in flow.claimed if self.owner(way) is not None)
            if ways != flow.ways:
                flow.ways = ways
                out.append(Expect(flow=flow.flow, wires=ways))
        return out
