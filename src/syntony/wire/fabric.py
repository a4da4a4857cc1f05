"""Questions on how the fabric changed, and their answers."""

from __future__ import annotations

import msgspec


class FabricChangesQuery(msgspec.Struct, frozen=True, kw_only=True, tag="fabric-changes"):
    """What became of the fabric over the last `window_ns`, as learnt paths showed it."""

    window_ns: int = 86_400_000_000_000


class FabricChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    ts_ns: int
    """Fleet time at which it was told: it had stood for a while."""
    change: str
    """``added``, ``removed``, ``moved``, ``rerouted`` or ``unseen``."""
    what: str
    """``device``, ``cable`` or ``paths``."""
    name: str
    detail: str


class FabricChanges(msgspec.Struct, frozen=True, kw_only=True, tag="fabric-changes"):
    changes: tuple[FabricChange, ...]
    """Oldest first, the newest `MAX_CHANGES`."""


MAX_CHANGES = 5_000
