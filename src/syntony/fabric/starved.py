"""Distinguish hosts that are late from links that lose. Pure.

A link at a host's edge loses the host's own probes as well as those of others. A host that is short
of processor time answers the probes of others late, and loses none of its own; or it sends none at
all. Then no component of the fabric is at fault. If a host's own reports are missing but its other
NICs answer, it runs, and the NIC is at fault.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.fabric import history
from syntony.fabric.book import Way
from syntony.fabric.history import HistoryWindow
from syntony.fabric.locate import OVER_NATS
from syntony.fabric.names import ComponentKind, link_ends, replies_name
from syntony.fabric.tally import Index, Ints
from syntony.model.findings import Finding
from syntony.model.names import host_of

_AT_HOSTS = frozenset(
    {ComponentKind.NIC, ComponentKind.HOST, ComponentKind.LINK, ComponentKind.CABLE}
)
AT_ONCE_S = 2
"""Agents report whole seconds: simultaneous ends may be this far apart."""
MUCH = 2.0
"""A host's own probes must fare this much better than those of others."""
_AMISS = [history.LOST, history.LOST_BACK, history.UNRESOLVED]
Recent = Callable[[Index], Ints]
"""Counts of some flows in each of the last seconds, (seconds, `history.FIELDS`, n)."""


class FlowEnds(NamedTuple):
    """The NICs between which flows are, by the direction of their requests."""

    nics: tuple[str, ...]
    src: Index
    """Places in `nics`, (flows,)."""
    dst: Index

    @classmethod
    def of(cls, flows: Sequence[Way]) -> FlowEnds:
        places: dict[str, int] = {}
        src, dst = (
            np.array([places.setdefault(nic, len(places)) for nic in nics], dtype=np.intp)
            for nics in ([way.src for way in flows], [way.dst for way in flows])
        )
        return cls(tuple(places), src, dst)


class Stopped(enum.Enum):
    """How the NICs at a switch stopped sending probes."""

    NO = enum.auto()
    """Some send, or there is only one."""
    APART = enum.auto()
    """The last of them stopped alone: typical of hosts that stall, not of hosts at a switch that
    dies."""
    TOGETHER = enum.auto()
    """Both are possible."""


def how_stopped(sent: Ints, nics: Index) -> Stopped:
    """How several NICs stopped sending probes.

    Args:
        sent: probes of some flows in each second, the newest last, (seconds, flows).
        nics: number of the NIC that sends each, (flows,).
    """
    each = (sent[:, nics == nic].any(axis=1) for nic in np.unique(nics))
    last = sorted(int(np.flatnonzero(sends).max(initial=-1)) for sends in each)
    if len(last) < 2 or last[-1] >= len(sent) - 1:
        return Stopped.NO
    return Stopped.APART if last[-1] > last[-2] + AT_ONCE_S else Stopped.TOGETHER


def reclassify_slow_hosts(
    findings: tuple[Finding, ...],
    flows: FlowEnds,
    windows: Sequence[HistoryWindow],
    recent: Recent,
) -> tuple[Finding, ...]:
    """Replace findings that are only a late host by such a finding; and a link of a NIC by the NIC,
    where nothing is known of what the NIC itself sends. Each component is named once for loss.

    Args:
        findings: of these flows in these windows.
        flows: as the windows count them.
        windows: every one that a finding of loss may name.
        recent: counts of the same flows.
    """
    counted = {window.name: window for window in windows}
    reported = (
        _late(found, flows, counted[found.window], recent) or found
        if found.loss > 0 and found.kind in _AT_HOSTS and found.window in counted
        else found
        for found in findings
    )
    named: dict[tuple[str, str, bool], Finding] = {}
    for found in reported:
        named.setdefault((found.component, found.kind, found.loss > 0), found)
    return tuple(named.values())


def _late(found: Finding, flows: FlowEnds, window: HistoryWindow, recent: Recent) -> Finding | None:
    edge = _edge(found.component, found.kind)
    if not edge:
        return None
    late = np.array([_is_at(nic, edge) for nic in flows.nics], dtype=np.bool_)
    own = late[flows.src]
    requested = late[flows.dst] & ~own
    fates = _fate(window.counts[:, own]), _fate(window.counts[:, requested])
    if not own.any() or not _fares_better(*fates):
        return None
    if _answers_elsewhere(edge, flows, own, requested, recent):
        return _of_nic(found, edge)
    return msgspec.structs.replace(
        found,
        component=replies_name(edge),
        kind=ComponentKind.REPLIES.value,
        alternatives=(),
        probabilities=(),
        twins=0,
    )


def _of_nic(found: Finding, nic: str) -> Finding | None:
    """The finding of a NIC's link as one of the NIC, which the same probes of others cross."""
    if nic in {found.component, *found.alternatives}:
        return None
    half = found.confidence / 2
    return msgspec.structs.replace(
        found,
        component=nic,
        kind=ComponentKind.NIC.value,
        confidence=half,
        alternatives=(found.component, *found.alternatives),
        probabilities=(half, *found.probabilities),
        twins=found.twins + 1,
    )


def _edge(component: str, kind: str) -> str:
    """The NIC or host at whose edge the component is; empty for one within the fabric."""
    ends = link_ends(component)
    if ends is None:
        return component if kind in {ComponentKind.NIC, ComponentKind.HOST} else ""
    return next((end for end in ends if "/" in end), "")


def _is_at(nic: str, edge: str) -> bool:
    return nic == edge or nic.startswith(f"{edge}/")


def _answers_elsewhere(
    edge: str, flows: FlowEnds, own: NDArray[np.bool_], requested: NDArray[np.bool_], recent: Recent
) -> bool:
    """Whether a host reports no probes from a NIC while those to it are lost, and answers at its
    other NICs meanwhile.

    Args:
        edge: the NIC.
        flows: their ends.
        own: flows from there, (flows,).
        requested: flows to there, (flows,).
        recent: counts of these flows.
    """
    at_host = np.array([_is_at(nic, host_of(edge)) for nic in flows.nics], dtype=np.bool_)
    other = np.flatnonzero(at_host[flows.dst] & ~at_host[flows.src] & ~requested)
    counts = recent(np.flatnonzero(requested))
    lost = counts[:, _AMISS].sum(axis=(1, 2))
    reports = recent(np.flatnonzero(own))[:, history.SENT].any(axis=1)
    if lost[reports].sum() * 2 > lost.sum():
        return False
    answers = _fate_over(recent(other)[lost > 0])
    return answers[0] > 0 and _fares_better(answers, _fate_over(counts[lost > 0]))


def _fate_over(counts: Ints) -> tuple[float, float]:
    """As `_fate`, of counts by second, (seconds, `FIELDS`, n)."""
    return _fate(counts.transpose(1, 0, 2).reshape(history.FIELDS, -1))


def _fate(counts: Ints) -> tuple[float, float]:
    """Number of probes sent, and of these not answered; of counts (`FIELDS`, n)."""
    sent = counts[history.SENT]
    return float(sent.sum()), float(np.minimum(counts[_AMISS].sum(axis=0), sent).sum())


def _fares_better(own: tuple[float, float], requested: tuple[float, float]) -> bool:
    (sent, lost), (requested_sent, requested_lost) = own, requested
    if not requested_lost:
        return False
    if not sent:
        return True
    share = min(requested_lost / requested_sent, 1 - 1e-6)
    if lost / sent * MUCH > share:
        return False
    # Evidence of the host's own probes against a loss as high as that of others' probes.
    like = lost * np.log(share) + (sent - lost) * np.log1p(-share)
    best = lost / sent
    most = (lost * np.log(best) if lost else 0.0) + (sent - lost) * np.log1p(-best)
    return bool(most - like > OVER_NATS)
