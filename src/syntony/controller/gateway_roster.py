"""The fleet's gateways in control state, so that a new leader also reports the absence of a gateway
that it has never seen."""

from __future__ import annotations

import msgspec

from syntony.state import ControlState
from syntony.state.document import Document


class _StoredRoster(msgspec.Struct):
    names: tuple[str, ...] = ()


class GatewayRoster:
    """Remembers the fleet's gateways, so that an absent one is reported after a takeover.

    One per controller. `keep` runs on a separate thread, all else on the event loop.

    Args:
        state: control state. Raises `StateError`: it cannot be read.
    """

    def __init__(self, state: ControlState) -> None:
        self._document = Document(state, "gateways", _StoredRoster)
        known = self._document.load()
        self.names = frozenset(() if known is None else known.names)
        """Names of expected gateways: connected once, and not stopped on purpose since."""
        self._stored = self.names

    def add(self, name: str) -> None:
        """Add a connected gateway: from now on its absence is reported."""
        self.names |= {name}

    def discard(self, name: str) -> None:
        """Remove a gateway that was stopped on purpose, or no longer belongs to the fleet."""
        self.names -= {name}

    @property
    def changed(self) -> bool:
        """Whether there is something to store."""
        return self.names != self._stored

    def keep(self) -> None:
        """Store changes. Raises `StateError`: retried at the next call."""
        names = self.names
        self._document.save(_StoredRoster(tuple(sorted(names))))
        self._stored = names
