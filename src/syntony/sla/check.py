"""The replacement check: is a new or moved host at the switches of the topology, and as fast as
other hosts there?

What could not be measured is *unknown*, never OK.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from syntony.model.sla import SlaItem, SlaRow, SlaStatus

_ORDER = (SlaStatus.BREACH, SlaStatus.UNKNOWN, SlaStatus.WARNING, SlaStatus.OK)
"""What is broken comes first; what nobody knows before what is merely worse."""
WORST_TOLD = 3


class NicPosition(NamedTuple):
    nic: str
    rail: int
    expected: str
    """The switch that the operator's topology cables it to; empty: it does not say."""
    seen: str
    """The first switch that its probes cross; empty: not learnt."""
    rails_there: frozenset[int]
    """Rails of the other hosts' NICs whose probes enter at the same switch."""


def worst(statuses: Iterable[SlaStatus]) -> SlaStatus:
    """One status for several; of none: unknown."""
    found = set(statuses)
    return next((status for status in _ORDER if status in found), SlaStatus.UNKNOWN)


def check_places(places: Sequence[NicPosition]) -> list[SlaItem]:
    """Each NIC: at the switch it belongs to, and on its rail."""
    return [_cabled(place) for place in places] + [_on_rail(place) for place in places]


def _cabled(place: NicPosition) -> SlaItem:
    if not place.seen:
        status, detail = (
            SlaStatus.UNKNOWN,
            "its switch is not known yet: paths are traced within a minute",
        )
    elif not place.expected:
        status, detail = SlaStatus.UNKNOWN, f"at {place.seen}; the topology has no switch for it"
    elif place.seen == place.expected:
        status, detail = SlaStatus.OK, f"at {place.seen}, as the topology says"
    else:
        status = SlaStatus.BREACH
        detail = f"at {place.seen}, the topology says {place.expected}: move the cable, or the file"
    return SlaItem(check="place", subject=place.nic, status=status, detail=detail)


def _on_rail(place: NicPosition) -> SlaItem:
    if not place.seen:
        status, detail = SlaStatus.UNKNOWN, "its switch is not known yet"
    elif not place.rails_there:
        status, detail = SlaStatus.UNKNOWN, f"no other host is known at {place.seen}"
    elif place.rail in place.rails_there:
        status, detail = SlaStatus.OK, f"among NICs of rail {place.rail}"
    else:
        others = ", ".join(map(str, sorted(place.rails_there)))
        status = SlaStatus.BREACH
        detail = f"rail {place.rail} at {place.seen}, where rail {others} is: cables crossed?"
    return SlaItem(check="rail", subject=place.nic, status=status, detail=detail)


def check_latency(nics: Sequence[str], rows: Sequence[SlaRow]) -> list[SlaItem]:
    """Each NIC by its pairs, out and in.

    One slow pair of many is somebody else's; a NIC whose pairs are mostly slow is slow itself. So
    it is in breach when at least half of the pairs of a direction are, else at most warned of.
    """
    items = []
    for nic in nics:
        for direction, end in (("out", 0), ("in", 1)):
            mine = [row for row in rows if row.subject.split("->")[end] == nic]
            items.append(_direction(nic, direction, mine))
    return items


def _direction(nic: str, direction: str, rows: Sequence[SlaRow]) -> SlaItem:
    known = [row for row in rows if row.status is not SlaStatus.UNKNOWN]
    subject = f"{nic} {direction}"
    if not known:
        reasons = {reason for row in rows for reason in row.reasons[:1]}
        detail = min(reasons) if reasons else "none of its pairs is probed yet"
        return SlaItem(check="latency", subject=subject, status=SlaStatus.UNKNOWN, detail=detail)
    bad = [row for row in known if row.status is not SlaStatus.OK]
    broken = [row for row in known if row.status is SlaStatus.BREACH]
    status = SlaStatus.OK
    if 2 * len(broken) >= len(known):
        status = SlaStatus.BREACH
    elif bad:
        status = SlaStatus.WARNING
    reported = "; ".join(f"{row.subject}: {row.reasons[0]}" for row in bad[:WORST_TOLD])
    classes = ", ".join(sorted({row.path_class or "unknown class" for row in known}))
    detail = f"{len(known) - len(bad)} of {len(known)} pairs OK ({classes})"
    return SlaItem(
        check="latency",
        subject=subject,
        status=status,
        detail=f"{detail}: {reported}" if reported else detail,
    )
