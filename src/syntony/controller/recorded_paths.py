"""The links that recorded probes crossed, as far as their paths are known now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syntony.fabric.book import Way
from syntony.wire.tables import PROBE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from syntony.store.jobs import Columns

HOPS = "hops"
"""The added column: directed links by blanks, as in rows of a job's flows; empty: not known."""


class RecordedPaths:
    """Adds links to rows of probes.

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
        """Rows by table, those of probes with their links."""
        if PROBE.name not in rows:
            return dict(rows)
        probes, ports = rows[PROBE.name], self._ports()
        known: dict[tuple[str, str, str, int], str] = {}
        hops = []
        columns = probes["src"], probes["dst"], probes["prober"], probes["sport"]
        for flow in zip(*columns, strict=True):
            if flow not in known:
                src, dst, prober, sport = flow
                way = _way(src, dst, prober, sport, ports)
                known[flow] = "" if way is None else " ".join(self._links(way))
            hops.append(known[flow])
        return {**rows, PROBE.name: {**probes, HOPS: hops}}


def _way(
    src: str, dst: str, prober: str, sport: int, ports: Mapping[tuple[str, str], int]
) -> Way | None:
    """The way of requests, or of replies where the sender is not the prober; None: not planned."""
    if prober == src:
        port = ports.get((src, dst))
        return None if port is None else Way(src, dst, sport, port)
    port = ports.get((dst, src))
    return None if port is None else Way(src, dst, port, sport)
