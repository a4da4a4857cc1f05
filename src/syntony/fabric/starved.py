"""Distinguish hosts that are late from links that lose. Pure.

A link at a host's edge loses the host's own probes as well as those of others. A host that is short
of processor time answers the probes of others late, and loses none of its own; or it sends none at
all. Then no component of the fabric is at fault.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.fabric import history
from syntony.fabric.book import Way
from syntony.fabric.history import HistoryWindow
from syntony.fabric.locate import OVER_NATS
from syntony.fabric.names import ComponentKind, hosts_at, link_ends, replies_name
from syntony.fabric.tally import Index, Ints
from syntony.model.findings import Finding

_AT_HOSTS = frozenset(
    {ComponentKind.NIC, ComponentKind.HOST, ComponentKind.LINK, ComponentKind.CABLE}
)
AT_ONCE_S = 2
"""Agents report whole seconds: simultaneous ends may be this far apart."""
MUCH = 2.0
"""A host's own probes must fare this much better than those of others."""


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


def with_host_rivals(found: Finding) -> Finding:
    """The finding of a switch that loses everything, or of all hosts at it: for probes both are
    equally likely."""
    odds = [each / 2 for each in (found.confidence, *found.probabilities)]
    return msgspec.structs.replace(
        found,
        confidence=odds[0],
        alternatives=(hosts_at(found.component), *found.alternatives),
        probabilities=(odds[0], *odds[1:]),
        twins=found.twins + 1,
    )


def reclassify_slow_hosts(
    findings: tuple[Finding, ...], flows: FlowEnds, windows: Sequence[HistoryWindow]
) -> tuple[Finding, ...]:
    """Replace findings that are only a late host by such a finding.

    Args:
        findings: of these flows in these windows.
        flows: as the windows count them.
        windows: every one that a finding of loss may name.
    """
    counted = {window.name: window for window in windows}
    return tuple(
        _late(found, flows, counted[found.window]) or found
        if found.loss > 0 and found.kind in _AT_HOSTS and found.window in counted
        else found
        for found in findings
    )


def _late(found: Finding, flows: FlowEnds, window: HistoryWindow) -> Finding | None:
    edge = _edge(found.component, found.kind)
    if not edge:
        return None
    late = np.array([_is_at(nic, edge) for nic in flows.nics], dtype=np.bool_)
    own = late[flows.src]
    requested = late[flows.dst] & ~own
    if not own.any() or not _fares_better(_fate(window, own), _fate(window, requested)):
        return None
    return msgspec.structs.replace(
        found,
        component=replies_name(edge),
        kind=ComponentKind.REPLIES.value,
        alternatives=(),
        probabilities=(),
        twins=0,
    )


def _edge(component: str, kind: str) -> str:
    """The NIC or host at whose edge the component is; empty for one within the fabric."""
    ends = link_ends(component)
    if ends is None:
        return component if kind in {ComponentKind.NIC, ComponentKind.HOST} else ""
    return next((end for end in ends if "/" in end), "")


def _is_at(nic: str, edge: str) -> bool:
    return nic == edge or nic.startswith(f"{edge}/")


def _fate(window: HistoryWindow, flows: NDArray[np.bool_]) -> tuple[float, float]:
    """Number of probes sent, and of these not answered."""
    counts = window.counts[:, flows]
    lost = counts[history.LOST] + counts[history.LOST_BACK] + counts[history.UNRESOLVED]
    sent = counts[history.SENT]
    return float(sent.sum()), float(np.minimum(lost, sent).sum())


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
