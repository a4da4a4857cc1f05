"""Paths, findings and changes of the fabric; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.model import DAY_NS
from syntony.model.findings import Finding
from syntony.wire.query import Query

MAX_CHANGES = 5_000


class FabricChangesQuery(Query["FabricChanges"], frozen=True, kw_only=True, tag="fabric-changes"):
    """Changes of the fabric over the last `window_ns`, as seen in traced paths."""

    window_ns: int = DAY_NS


class FabricChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change."""

    ts_ns: int
    """Fleet time of the report, some time after the change."""
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
    """The present findings."""


class PathsQuery(Query["LearntPaths"], frozen=True, kw_only=True, tag="paths"):
    """The traced paths, as names of components."""


class Losing(msgspec.Struct, frozen=True, kw_only=True):
    """Probes that were lost within two seconds, before a component is named for it."""

    lost: int
    paths: int
    nics: tuple[str, ...]
    """NICs with many of them, most first: at one end of their paths, not at fault because of it."""


class Findings(msgspec.Struct, frozen=True, kw_only=True, tag="findings"):
    ts_ns: int
    """End of the newest evaluated window, fleet time; 0: none yet."""
    findings: tuple[Finding, ...]
    unexplained: float = 0.0
    """Lost probes of `unexplained_window` for which no cause was found because the search reached
    the limit of its work."""
    unexplained_window: str = ""
    losing: Losing | None = None
    """Losses of the seconds that are not evaluated yet; None where a component is named for loss.
    """
    unexplained_late: int = 0
    """Paths with a delay for which no cause was found for the same reason."""


class LearntPath(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of one flow."""

    path_id: str
    src: str
    dst: str
    sport: int
    dport: int
    components: tuple[str, ...]
    """In order; ``a..b``: an unknown part."""


class LearntPaths(msgspec.Struct, frozen=True, kw_only=True, tag="paths"):
    paths: tuple[LearntPath, ...]


class TopologyQuery(Query["FabricMap"], frozen=True, kw_only=True, tag="topology"):
    """Devices and the cables between them, as configured or as seen in traced paths."""


class MapDevice(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """``nic``, ``leaf``, ``spine``, ``core``, ``agg``, ``switch`` or ``component``."""


class FabricMap(msgspec.Struct, frozen=True, kw_only=True, tag="topology"):
    configured: bool
    """From a topology file; else only parts on traced paths are known."""
    devices: tuple[MapDevice, ...]
    cables: tuple[tuple[str, str], ...]
    """Names of both ends, sorted."""
