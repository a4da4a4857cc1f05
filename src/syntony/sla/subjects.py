"""What of many pairs' verdicts is worth an incident: the NIC they share, else the pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from syntony.model.sla import SlaStatus

FEW = 16
"""More pairs than this that share no NIC are one thing, not many."""
FLEET = "fleet"
MAX_REASONS = 5


class PairVerdict(Protocol):
    """On one pair of NICs."""

    @property
    def subject(self) -> str:
        """``h0/rail0->h1/rail0``."""

    @property
    def status(self) -> SlaStatus: ...

    @property
    def reasons(self) -> tuple[str, ...]: ...


class Trouble(NamedTuple):
    """One subject that is not as it should be."""

    subject: str
    """A NIC, a pair ``a->b``, or `FLEET`."""
    share: float
    """Of its measured pairs, those that are bad."""
    reasons: tuple[str, ...]


def troubles(rows: Iterable[PairVerdict], bad: frozenset[SlaStatus]) -> list[Trouble]:
    """NICs at least half of whose pairs are bad; what is left, pair by pair, or all as one.

    Args:
        rows: verdicts on pairs of NICs.
        bad: the statuses looked for.
    """
    known = [row for row in rows if row.status is not SlaStatus.UNKNOWN]
    wanted = [row for row in known if row.status in bad]
    if not wanted:
        return []
    shared = _shared(known, wanted)
    found = [_of(nic, rows_of, len(rows_of) / total) for nic, (rows_of, total) in shared.items()]
    reported = {row.subject for rows_of, _ in shared.values() for row in rows_of}
    rest = [row for row in wanted if row.subject not in reported]
    if len(rest) > FEW:
        return [*found, _of(FLEET, rest, len(rest) / len(known))]
    return found + [_of(row.subject, [row], 1.0) for row in rest]


def pair_troubles(pairs: Mapping[str, str]) -> list[Trouble]:
    """As `troubles`.

    Args:
        pairs: of NICs, each with why it is bad; empty for one that is as it should be.
    """
    rows = [
        _Pair(pair, SlaStatus.BREACH if why else SlaStatus.OK, (why,))
        for pair, why in pairs.items()
    ]
    return troubles(rows, frozenset({SlaStatus.BREACH}))


class _Pair(NamedTuple):
    subject: str
    status: SlaStatus
    reasons: tuple[str, ...]


def _shared(
    known: Sequence[PairVerdict], wanted: Sequence[PairVerdict]
) -> dict[str, tuple[list[PairVerdict], int]]:
    """NIC → its bad pairs and how many it has, where those are at least half and more than one."""
    total: dict[str, int] = defaultdict(int)
    for row in known:
        for nic in row.subject.split("->"):
            total[nic] += 1
    bad: dict[str, list[PairVerdict]] = defaultdict(list)
    for row in wanted:
        for nic in row.subject.split("->"):
            bad[nic].append(row)
    return {
        nic: (rows, total[nic])
        for nic, rows in sorted(bad.items())
        if len(rows) > 1 and 2 * len(rows) >= total[nic]
    }


def _of(subject: str, rows: Sequence[PairVerdict], share: float) -> Trouble:
    reasons = tuple(f"{row.subject}: {row.reasons[0]}" for row in rows[:MAX_REASONS])
    return Trouble(subject, share, reasons)
