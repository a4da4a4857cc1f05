"""Clocks that are not on the fleet timeline, as observations for the rules: each of them, and the
share of the fleet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from syntony.alerts.observations import Observation
from syntony.controller.containment import FLEET
from syntony.model import ClockState, S, Timeline, format_ns
from syntony.model.names import host_of

CLOCK_METRICS = frozenset({"clock_unsynchronized"})
FLEET_METRICS = frozenset({"unsynchronized_clocks_ratio"})
METRICS = CLOCK_METRICS | FLEET_METRICS
NEW_NS = 30 * S
"""Time that an expected clock may take to get its first timeline."""
WORTH_BLAMING = 3
"""With fewer clocks no common cause is assumed, even if most of them are affected."""
NAMED = 5


class ClockWatch:
    """Which clocks are expected, and since when each has had no timeline. One per controller."""

    def __init__(self) -> None:
        self._missing_since: dict[str, int] = {}

    def observe(
        self,
        timelines: Iterable[Timeline],
        expected: Collection[str],
        silent: Collection[str],
        fleet_ns: int,
        explained: Collection[str] = (),
    ) -> list[Observation]:
        """One observation for each clock, and one for the fleet.

        Args:
            timelines: of all solved clocks.
            expected: clocks of NICs that probe or are probed. One without a timeline is not
                synchronized either, after `NEW_NS`.
            silent: hosts whose agents send no reports: the state of their clocks is unknown.
            fleet_ns: now.
            explained: clocks whose state is the effect of another incident, as a dead port; they
                say nothing about the fleet.
        """
        reasons = {
            line.node: ""
            if line.state is ClockState.SYNCHRONIZED
            else f"{line.state}: {line.reason or format_ns(line.sigma_ns)}"
            for line in timelines
        }
        unknown = set()
        before, self._missing_since = self._missing_since, {}
        for node in sorted({*expected} - reasons.keys()):
            since_ns = min(before.get(node, fleet_ns), fleet_ns)
            self._missing_since[node] = since_ns
            reasons[node] = f"{ClockState.UNKNOWN}: no probe has measured it"
            if fleet_ns - since_ns <= NEW_NS:
                unknown.add(node)
        unknown |= {node for node in reasons if host_of(node) in silent}
        known = {node: reason for node, reason in reasons.items() if node not in unknown}
        return [
            *(Observation("clock_unsynchronized", node, None) for node in sorted(unknown)),
            *(
                Observation(
                    "clock_unsynchronized", node, float(bool(reason)), (reason,) if reason else ()
                )
                for node, reason in known.items()
            ),
            _of_fleet(known, explained),
        ]


def _of_fleet(known: dict[str, str], explained: Collection[str]) -> Observation:
    """If most clocks are affected at once, the cause is the measurement, not each clock."""
    metric = "unsynchronized_clocks_ratio"
    if len(known) < WORTH_BLAMING:
        return Observation(metric, FLEET, None)
    reasons = {node: why for node, why in known.items() if node not in explained}
    if len(reasons) < WORTH_BLAMING:
        return Observation(metric, FLEET, 0.0)
    bad = sorted(node for node, reason in reasons.items() if reason)
    names = ", ".join(bad[:NAMED]) + (" …" if len(bad) > NAMED else "")
    evidence = (f"{len(bad)} of {len(reasons)} clocks: {names}", reasons[bad[0]]) if bad else ()
    return Observation(metric, FLEET, len(bad) / len(reasons), evidence)
