"""Requests additional probes if suspects cannot be distinguished, limited in time and number.

Localisation uses their results like those of all other probes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from syntony.fabric.extra_probes import ExtraProbe, Pair, SuspectNote, suspected
from syntony.fabric.names import GROUP, HOSTS_AT
from syntony.model import S
from syntony.model.findings import Finding

_log = logging.getLogger(__name__)

PAIRS = 4
"""Maximum additional pairs for one set of suspects."""
MAX_SETS = 3
"""Maximum sets of suspects at a time; further ones get no extra probes."""
DURATION_NS = 60 * S
ANSWER_NS = 12 * S
"""Time that a page waits for the result: a new plan is made within a second, its paths are traced
within a few, and a few more seconds of losses decide."""
AGAIN_NS = 600 * S
"""Interval after which the same suspects may get extra probes again."""
Separating = Callable[[Collection[str], Collection[Pair], int], ExtraProbe]
"""Suspects, planned pairs, maximum pairs → `syntony.fabric.extra_probes.separating`."""


class _ProbeRequest(NamedTuple):
    began_ns: int
    found: ExtraProbe


class ExtraProbeService:
    """Requests extra probes to distinguish suspects.

    One per controller; `step` on one thread at a time, `notes` on any. Instants are monotonic.

    Args:
        separating: finds the pairs.
    """

    def __init__(self, separating: Separating) -> None:
        self._separating = separating
        self._requested: Mapping[frozenset[str], _ProbeRequest] = {}
        """Replaced as a whole: another thread than that of `step` may read it in `notes`."""

    def step(
        self, findings: Iterable[Finding], planned: Collection[Pair], now_ns: int
    ) -> frozenset[Pair]:
        """The pairs to probe now in addition to the plan's.

        Args:
            findings: of localisation.
            planned: probed pairs, including those requested here.
        """
        self._requested = {
            names: requested
            for names, requested in self._requested.items()
            if now_ns - requested.began_ns < AGAIN_NS
        }
        for found in findings:
            names = frozenset(suspected(found))
            if len(names) > 1 and names not in self._requested and self._may_probe(names, now_ns):
                self._begin(names, planned, now_ns)
        return frozenset(
            pair for requested in self._running(now_ns) for pair in requested.found.pairs
        )

    def notes(self, now_ns: int) -> dict[frozenset[str], SuspectNote]:
        """By suspects: the current or past attempts to distinguish them."""
        return {names: _note(requested, now_ns) for names, requested in self._requested.items()}

    def _running(self, now_ns: int) -> list[_ProbeRequest]:
        return [
            requested
            for requested in self._requested.values()
            if requested.found.pairs and now_ns - requested.began_ns < DURATION_NS
        ]

    def _may_probe(self, names: frozenset[str], now_ns: int) -> bool:
        """False for groups, whose paths are unknown, and for hosts that send nothing, which answer
        nothing."""
        known = not any(GROUP in name or name.startswith(HOSTS_AT) for name in names)
        return known and len(self._running(now_ns)) < MAX_SETS

    def _begin(self, names: frozenset[str], planned: Collection[Pair], now_ns: int) -> None:
        found = self._separating(names, planned, PAIRS)
        self._requested = {**self._requested, names: _ProbeRequest(now_ns, found)}
        _log.warning(
            "probing to distinguish suspects names=%s further_pairs=%s together=%d",
            ",".join(sorted(names)), ",".join("->".join(pair) for pair in found.pairs) or "none",
            len(found.together),
        )  # fmt: skip


def _note(requested: _ProbeRequest, now_ns: int) -> SuspectNote:
    pairs = requested.found.pairs
    if not pairs:
        return SuspectNote("no pair of NICs could tell these apart", pending=False)
    reported = ", ".join("->".join(pair) for pair in pairs)
    if now_ns - requested.began_ns < ANSWER_NS:
        return SuspectNote(
            f"further pairs are probed to tell these apart: {reported}", pending=True
        )
    return SuspectNote(
        f"further pairs were probed and did not tell these apart: {reported}", pending=False
    )
