"""Links that others fill while a job runs, and whose flows then wait longer. One flow is enough if
bytes show that others do.

A job whose own flows wait for each other scatters so much that a full link does not stand out of
it. Where utilisation is recorded, the time in which a link is full says when to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from syntony.workload.bundle import Floats, Ints
from syntony.workload.changed_links import against_others, known_mean, relative, risen
from syntony.workload.common_hop import MIN_PURITY
from syntony.workload.crossings import Crossings
from syntony.workload.device_tables import LinkTable
from syntony.workload.flows import CLOCK_SIGMAS, LATE_RATIO, LIKE, Flows
from syntony.workload.grid import Episode, Flags, K, episodes, median

FULL = 0.85
"""Utilisation from which a link is full: near it, queues of bursty traffic grow without bound."""
ROSE = 0.2
"""Minimum difference of utilisation to other times: a link that is always full is the job's normal
state."""
STRANGERS = 0.5
"""Minimum part of that difference that is not bytes of the recorded flows."""
LONGER = 3.0
"""Minimum rise of its flows' delays, compared with all other flows', in standard errors: the time
to compare comes from utilisation, so nothing is chosen among many."""
MOST_ELSEWHERE = 0.5
"""Maximum share of the flows that do not cross a full link that wait longer as well."""


class FullLink(NamedTuple):
    """Links that the same flows cross and that are full at the same time."""

    links: tuple[str, ...]
    flows: frozenset[int]
    begin_ns: int
    last_ns: int
    share: float
    """Share of the windows in between in which they are full."""
    use: float
    """Utilisation, and at other times."""
    before: float
    delay_ns: float
    """Delay of its flows, and at other times."""
    usual_ns: float
    probes_ns: tuple[float, float] | None
    """Likewise of probes across it; None: there are none."""
    elsewhere: int
    """Number of other flows that do not wait longer."""
    strangers: bool | None
    """Whether the bytes are known not to be the job's."""


def full_links(flows: Flows, kinds: Sequence[Crossings], links: LinkTable) -> list[FullLink]:
    """Links that fill up while most flows, or probes, across them, unlike others, begin to wait
    longer."""
    use, levels = links.utilisation, [relative(each) for each in kinds]
    with np.errstate(invalid="ignore"):
        found = episodes(use >= FULL, np.isfinite(use))
    full = {row: each for row, each in found.items() if _rise(use[row], each) >= ROSE}
    across = {row: flows.across.get(links.names[row], set()) for row in full}
    crossing = {flow for members in across.values() for flow in members}
    result: dict[tuple[frozenset[int], int, int], FullLink] = {}
    for row, stretch in sorted(full.items()):
        span = links.grid.instant(stretch.first), links.grid.instant(stretch.last + 1)
        part = flows.during(*span)
        longer, known = _longer(flows, part)
        own = np.array(sorted(across[row]), dtype=np.int64)
        members = [sorted(each.across.get(links.names[row], ())) for each in kinds]
        strangers = _strangers(flows, links, row, stretch, across[row])
        least = 1 if strangers else 2
        if (
            strangers is False
            or known[own].sum() < least
            or not any(
                _rose(level, rows, part, least)
                and (_added(each, rows, part) or (strangers and _slower(flows, own, part)))
                for each, level, rows in zip(kinds, levels, members, strict=True)
            )
        ):
            continue
        others = known.copy()
        others[sorted(crossing)] = False
        if longer[others].sum() > MOST_ELSEWHERE * others.sum():
            continue
        delays = [[float(median(side)) for side in _parts(each.delay[rows], part)]
                  for each, rows in zip(kinds, members, strict=True)]  # fmt: skip
        probed = [(now, usual) for now, usual in delays[1:] if np.isfinite((now, usual)).all()]
        each = FullLink(
            (links.names[row],), frozenset(across[row]), *span, stretch.share,
            _level(use[row], stretch, inside=True), _level(use[row], stretch, inside=False),
            delays[0][0], delays[0][1], probed[0] if probed else None,
            int((others & ~longer).sum()), strangers,
        )  # fmt: skip
        key = each.flows, part.start, part.stop
        twin = result.get(key)
        result[key] = each if twin is None else twin._replace(
            links=(*twin.links, *each.links))  # fmt: skip
    return list(result.values())


def _level(row: Floats, stretch: Episode, *, inside: bool) -> float:
    """Mean of a link's row in or outside of an episode: jobs send in bursts."""
    during = np.zeros(len(row), dtype=bool)
    during[stretch.first : stretch.last + 1] = True
    kept = row[np.isfinite(row) & (during if inside else ~during)]
    return float(kept.mean()) if len(kept) >= K else float("nan")


def _rise(row: Floats, stretch: Episode) -> float:
    rise = _level(row, stretch, inside=True) - _level(row, stretch, inside=False)
    return rise if np.isfinite(rise) else 0.0


def _rose(level: Floats, members: list[int], part: slice, least: int) -> bool:
    """Whether most of a link's flows or probes wait longer in a part than at other times, compared
    with all others, beyond their scatter. By how much depends on what they waited for before:
    strangers add the same to all."""
    if len(members) < least:
        return False
    (change,) = against_others(level, [members])
    inside, outside = (each[np.isfinite(each)] for each in (change[part], np.delete(change, part)))
    if min(len(inside), len(outside)) < K:
        return False
    rise = inside.mean() - outside.mean()
    many = len(inside) + len(outside)
    scatter = (len(inside) * inside.var() + len(outside) * outside.var()) / (many - 2)
    error = np.sqrt(scatter * (1 / len(inside) + 1 / len(outside)))
    longer = risen(level, change, members, part) > 0
    most = longer.sum() >= MIN_PURITY * len(longer)
    return bool(most and rise >= max(np.log(LIKE), LONGER * error))


def _added(crossings: Crossings, members: list[int], part: slice) -> bool:
    """Whether what strangers add to the delay of what crosses a link is a queue as long as the
    path: at a well-used link packets wait a little, which harms nobody."""
    inside, outside = (known_mean(each, 1) for each in _parts(crossings.delay[members], part))
    path_ns = (LATE_RATIO - 1) * np.abs(crossings.reference[members])
    least = np.maximum(path_ns, CLOCK_SIGMAS * crossings.clock_err_ns[members])
    return bool(median(inside - outside - least) >= 0)


def _slower(flows: Flows, members: Ints, part: slice) -> bool:
    """Whether most of these flows send slower in a part than at other times."""
    now, usual = (median(each, axis=1) for each in _parts(flows.rate[members], part))
    return bool(median(now / usual) < 1 / LIKE)


def _parts(values: Floats, part: slice) -> tuple[Floats, Floats]:
    """Columns in and outside of a part."""
    return values[:, part], np.delete(values, part, axis=1)


def _longer(flows: Flows, part: slice) -> tuple[Flags, Flags]:
    """Flows that wait longer in a part than at other times, and those of which that is known."""
    inside, outside = _parts(flows.excess, part)
    known: Flags = (np.isfinite(inside).sum(axis=1) >= K) & (np.isfinite(outside).sum(axis=1) >= K)
    now, usual = median(inside, axis=1), median(outside, axis=1)
    least = np.maximum(
        (LATE_RATIO - 1) * np.abs(flows.reference), CLOCK_SIGMAS * flows.clock_err_ns
    )
    with np.errstate(invalid="ignore"):
        longer: Flags = known & (now > least) & (now > LATE_RATIO * np.maximum(usual, 0))
    return longer, known


def _strangers(
    flows: Flows, links: LinkTable, row: int, stretch: Episode, across: Iterable[int]
) -> bool | None:
    """Whether most of what a link carries more is not of these flows; None if bytes or speed are
    not recorded."""
    speed_bps = float(median(links.column("speed_bps")[row]))
    members = sorted(across)
    sent = flows.column("bytes", "sum")[members]
    if not np.isfinite(speed_bps) or not np.isfinite(sent).any():
        return None
    own = np.nansum(sent, axis=0) * 8e9 / (speed_bps * flows.grid.width_ns)
    begin_ns, last_ns = (links.grid.instant(each) for each in (stretch.first, stretch.last + 1))
    inside, outside = _parts(own[None, :], flows.during(begin_ns, last_ns))
    if not (inside.size and outside.size):
        return None
    rise = _rise(links.utilisation[row], stretch)
    return bool(rise - (inside.mean() - outside.mean()) >= STRANGERS * rise)
