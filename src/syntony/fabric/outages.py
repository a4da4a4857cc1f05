"""Whether a switch is down that lost packets and has answered nobody since. Pure.

If the paths of a dead switch move to others that never answer, traces show the same as if it had
only ceased to answer. Losses tell the difference: a filter on its answers loses no probes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from syntony.fabric.book import Way
from syntony.fabric.departures import ENOUGH, RECENT_NS
from syntony.fabric.names import link_ends
from syntony.model import S, parse_duration_ns
from syntony.model.findings import Finding

LOST_SHARE = 0.1
"""What loses less of its packets in a window is not dying, but has a fault that lasts."""
MAX_WINDOW_NS = 10 * S
"""The same for what is found in longer windows only."""
KEPT_NS = 60 * S
"""Losses count for so long: paths that lose packets are traced at once."""


class _Outage:
    """Losses of one switch."""

    def __init__(self, since_ns: int) -> None:
        self.since_ns = self.until_ns = since_ns
        self.cables: tuple[str, ...] = ()
        """Those that may be the cause instead."""
        self.missed_ns: dict[Way, int] = {}
        """Paths across it → when the newest trace began that it did not answer."""


class Outages:
    """Takes findings and traces. Not thread-safe."""

    def __init__(self) -> None:
        self._outages: dict[str, _Outage] = {}

    def found(self, suspects: Collection[str], since_ns: int, until_ns: int) -> None:
        """One of these loses packets.

        Args:
            suspects: names of components; those that are no switches do no harm.
            since_ns: the first instant at which it may have lost any, fleet time.
            until_ns: the last.
        """
        for switch in suspects:
            outage = self._outages.setdefault(switch, _Outage(since_ns))
            outage.until_ns = until_ns
            outage.cables = tuple(
                sorted(name for name in suspects if switch in (link_ends(name) or ()))
            )

    def traced(
        self, way: Way, known: Sequence[str | None], now: Sequence[str | None], at_ns: int
    ) -> None:
        """A trace that was answered behind the place of a switch, but not by this switch.

        Args:
            way: direction of a flow.
            known: its sender and the devices that it crossed.
            now: the same as traced, None for a silent hop.
            at_ns: when the trace began, fleet time.
        """
        for place, switch in enumerate(known[2:-1], 2):
            outage = self._outages.get(switch or "")
            if outage is not None and switch not in now and any(now[place + 1 :]):
                outage.missed_ns[way] = at_ns

    def down(self, answered_ns: Mapping[str, int], now_ns: int) -> dict[str, tuple[str, ...]]:
        """Switches that are down → cables that may be the cause instead.

        Args:
            answered_ns: device → when the newest trace began that it answered, fleet time.
            now_ns: fleet time.
        """
        self._outages = {
            switch: outage
            for switch, outage in self._outages.items()
            if now_ns - outage.until_ns < KEPT_NS
        }
        return {
            switch: outage.cables
            for switch, outage in self._outages.items()
            if switch in answered_ns
            and outage.since_ns - RECENT_NS <= answered_ns[switch] <= outage.until_ns
            and _are_enough(outage, max(answered_ns[switch], outage.since_ns))
        }


def losing(findings: Iterable[Finding]) -> Iterable[tuple[Finding, int]]:
    """Findings that may be the death of a switch, and their windows."""
    for found in findings:
        window_ns = parse_duration_ns(found.window)
        if found.loss >= LOST_SHARE and window_ns <= MAX_WINDOW_NS:
            yield found, window_ns


def _are_enough(outage: _Outage, since_ns: int) -> bool:
    ways = [way for way, at_ns in outage.missed_ns.items() if at_ns > since_ns]
    return len(ways) >= ENOUGH and len({way.src for way in ways}) > 1
