"""Paths, who is to blame, and how the fabric changed; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.model.findings import Finding
from syntony.wire.query import Query

MAX_CHANGES = 5_000


class FabricChangesQuery(Query["FabricChanges"], frozen=True, kw_only=True, tag="fabric-changes"):
    """What became of the fabric over the last `window_ns`, as learnt paths showed it."""

    window_ns: int = 86_400_000_000_000


class FabricChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    ts_ns: int
    """Fleet time at which it was reported: it had stood for a while."""
    change: str
    """``added``, ``removed``, ``moved``, ``rerouted`` or ``unseen``."""
    what: str
    """``device``, ``cable`` or ``paths``."""
    name: str
    detail: str


class FabricChanges(msgspec.Struct, frozen=True, kw_only=True, tag="fabric-changes"):
    changes: tuple[FabricChange, ...]
    """Oldest first, the newest `MAX_CHANGES`."""


class FindingsQuery(Query["Findings"], frozen=True, kw_only=True, tag="findings"):
    """What is to blame now."""


class PathsQuery(Query["LearntPaths"], frozen=True, kw_only=True, tag="paths"):
    """The learnt paths, as names of components."""


class Findings(msgspec.Struct, frozen=True, kw_only=True, tag="findings"):
    ts_ns: int
    """End of the newest window that was looked at, fleet time; 0 if none was yet."""
    findings: tuple[Finding, ...]


class LearntPath(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of one flow."""

    path_id: str
    src: str
    dst: str
    sport: int
    dport: int
    components: tuple[str, ...]
    """In order; ``a..b`` stands for what is not known."""


class LearntPaths(msgspec.Struct, frozen=True, kw_only=True, tag="paths"):
    paths: tuple[LearntPath, ...]


class TopologyQuery(Query["FabricMap"], frozen=True, kw_only=True, tag="topology"):
    """Devices and the cables between them, as configured or as learnt paths show them."""


class MapDevice(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """``nic``, ``leaf``, ``spine``, ``core``, ``agg``, ``switch`` or ``component``."""


class FabricMap(msgspec.Struct, frozen=True, kw_only=True, tag="topology"):
    configured: bool
    """By a topology file; else only what learnt paths cross is known."""
    devices: tuple[MapDevice, ...]
    cables: tuple[tuple[str, str], ...]
    """Names of both ends, sorted."""
