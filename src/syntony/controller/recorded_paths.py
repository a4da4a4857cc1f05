"""The links that recorded probes crossed, as far as their paths are known now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from syntony.errors import SyntonyError
from syntony.fabric.book import Way
from syntony.store.jobs import Columns
from syntony.wire.gateways import ProbeLinks, ProbeLinksRequest
from syntony.wire.tables import PROBE

_log = logging.getLogger(__name__)

Probe = tuple[str, str, str, int]
"""Source and destination of the direction, prober, and source port of the request."""
HOPS = "hops"
"""The added column: directed links by blanks, as in rows of a job's flows; empty: not known."""
MAX_ASKED = 10_000
"""Maximum flows of probes in one request to a leader: a job of 256 NICs has 2,000 to 8,000."""


class ProbePaths(Protocol):
    """Adds links to rows of probes."""

    def added(self, rows: Mapping[str, Columns]) -> dict[str, Columns]:
        """Rows by table, those of probes with their links, if any are known. From any thread."""


class RecordedPaths:
    """A leader's `ProbePaths`.

    Args:
        ports: (prober, target) → the target's port, of the plan in force.
        links: the links of a path; empty unless all are known. Called from any thread.
    """

    def __init__(
        self,
        ports: Callable[[], Mapping[tuple[str, str], int]],
        links: Callable[[Way], tuple[str, ...]],
    ) -> None:
        self._ports, self._links = ports, links

    def added(self, rows: Mapping[str, Columns]) -> dict[str, Columns]:
        """Rows by table, those of probes with their links. From any thread."""
        return _with_links(rows, self.links)

    def links(self, probes: Sequence[Probe]) -> list[str]:
        """Links of each probe, separated by blanks; empty: not known. From any thread."""
        ports = self._ports()
        ways = (_way(*probe, ports) for probe in probes)
        return ["" if way is None else " ".join(self._links(way)) for way in ways]


class LeaderPaths:
    """A gateway's `ProbePaths`: it asks its leader.

    Args:
        ask: called from any thread; raises `SyntonyError`: there is no answer.
    """

    def __init__(self, ask: Callable[[ProbeLinksRequest], ProbeLinks]) -> None:
        self._ask = ask

    def added(self, rows: Mapping[str, Columns]) -> dict[str, Columns]:
        """Rows by table, those of probes with their links; without any if there is no answer."""
        try:
            return _with_links(rows, self._links)
        except SyntonyError as error:
            _log.warning("paths of probes not recorded reason=%s", error)
            return dict(rows)

    def _links(self, probes: Sequence[Probe]) -> Sequence[str]:
        """Raises `SyntonyError`."""
        known = self._ask(ProbeLinksRequest(probes=tuple(probes[:MAX_ASKED]))).links
        return [*known, *[""] * (len(probes) - len(known))]


def _with_links(
    rows: Mapping[str, Columns], links: Callable[[Sequence[Probe]], Sequence[str]]
) -> dict[str, Columns]:
    if PROBE.name not in rows:
        return dict(rows)
    probes = rows[PROBE.name]
    columns = probes["src"], probes["dst"], probes["prober"], probes["sport"]
    flows: list[Probe] = list(zip(*columns, strict=True))
    asked = list(dict.fromkeys(flows))
    known = dict(zip(asked, links(asked), strict=True))
    return {**rows, PROBE.name: {**probes, HOPS: [known[flow] for flow in flows]}}


def _way(
    src: str, dst: str, prober: str, sport: int, ports: Mapping[tuple[str, str], int]
) -> Way | None:
    """The way of requests, or of replies where the sender is not the prober; None: not planned."""
    if prober == src:
        port = ports.get((src, dst))
        return None if port is None else Way(src, dst, sport, port)
    port = ports.get((dst, src))
    return None if port is None else Way(src, dst, port, sport)
