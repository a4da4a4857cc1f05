"""Finds NIC pairs where probes over UDP and verbs disagree or one kind is missing, in the store,
as observations for the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from syntony.alerts.observations import Observation
from syntony.controller.fleet import Fleet, PlannedMesh
from syntony.mesh.plan import MeshNic
from syntony.mesh.planes import (
    Absence,
    Disagreement,
    DisagreementKind,
    Place,
    absences,
    disagreements,
    without_rdma,
)
from syntony.model import NicRef, S, format_ns
from syntony.model.names import host_of
from syntony.sla.subjects import pair_troubles
from syntony.store import Store
from syntony.wire.probes import Plane, ProbeFlow

WINDOW_NS = 120 * S
"""Window of the comparison; by default a pair of one path is probed 120 times over verbs in it."""
VERBS_LOSS, UDP_LOSS = "verbs_loss", "udp_loss"
DELAY, ABSENT = "planes_delay", "plane_absent"
METRICS = frozenset({VERBS_LOSS, UDP_LOSS, DELAY, ABSENT})


class PlaneComparison(NamedTuple):
    compared: frozenset[Place]
    """Directions in a class with data of both planes."""
    differ: tuple[Disagreement, ...]
    absent: tuple[Absence, ...]
    without: Mapping[str, tuple[int, int]]
    """NIC without an RDMA port → number of its rail's NICs with one, and in total."""
    names: Mapping[Place, str]
    """Parameters of the probes over verbs: class, service level, RoCE version, GIDs."""


class PlaneWatch:
    """Finds NIC pairs on which probes over UDP and verbs disagree.

    One per controller; `look` may run in a separate thread.

    Args:
        store: rows of probing.
        fleet: which pairs are probed over which plane.
    """

    def __init__(self, store: Store, fleet: Fleet) -> None:
        self._store, self._fleet = store, fleet
        self._since: dict[Place, int] = {}
        """Pairs that the plan has over both planes → since when, fleet time."""

    def look(self, last_ns: int) -> PlaneComparison:
        """Compare the planes until `last_ns` (fleet time). Raises `StoreError`."""
        mesh = self._fleet.mesh
        flows = {
            (f"{host}/{flow.src}", flow.dst, flow.dscp): flow
            for host, mine in mesh.verbs.items()
            for flow in mine
        }
        self._since = {place: self._since.get(place, last_ns) for place in flows}
        without = without_rdma((str(ref), nic.rail, nic.rdma) for ref, nic in mesh.nics.items())
        if not flows:
            return PlaneComparison(frozenset(), (), (), without, {})
        window, latency = (last_ns - WINDOW_NS, last_ns), self._store.latency
        verbs = latency.classes(Plane.VERBS, *window)
        udp = latency.classes(Plane.UDP, *window)
        lasting = [place for place, since_ns in self._since.items() if since_ns <= window[0]]
        both = (place for place in verbs if place in udp or (*place[:2], 0) in udp)
        return PlaneComparison(
            compared=frozenset(both),
            differ=disagreements(udp, verbs),
            absent=absences(lasting, udp, verbs),
            without=without,
            names={place: _name(place, flow, mesh) for place, flow in flows.items()},
        )


def observations(
    comparison: PlaneComparison, silent: Collection[str] = frozenset()
) -> list[Observation]:
    """For each metric, the NIC that its pairs share, else pairs; for a class that is slow
    everywhere, the class.

    Args:
        comparison: the result of one evaluation.
        silent: hosts whose agents send no reports: missing probes of these are not a fault of a
            plane.
    """
    by_metric: dict[str, dict[Place, str]] = {VERBS_LOSS: {}, UDP_LOSS: {}, DELAY: {}, ABSENT: {}}
    found = []
    for each in comparison.differ:
        if each.what is DisagreementKind.CLASS:
            text = f"{_delay(each)} in the least delayed class"
            found.append(Observation(DELAY, f"class {each.dscp}", 1.0, (text,), span_ns=WINDOW_NS))
            continue
        place = (each.src, each.dst, each.dscp)
        metric, text = DELAY, f"{_delay(each)} in this class"
        if each.what is DisagreementKind.LOSS:
            metric = VERBS_LOSS if each.verbs > each.udp else UDP_LOSS
            text = f"{each.verbs:.1%} lost over verbs, {each.udp:.1%} over UDP"
        by_metric[metric][place] = f"{_of(place, comparison)}: {text}"
    for gone in comparison.absent:
        src, dst, _ = gone.place
        if {host_of(src), host_of(dst)} & set(silent):
            continue
        other = Plane.UDP if gone.plane is Plane.VERBS else Plane.VERBS
        text = f"no probe over {gone.plane}, {gone.sent} over {other}"
        by_metric[ABSENT][gone.place] = f"{_of(gone.place, comparison)}: {text}"
    for metric, bad in by_metric.items():
        found += _shared(metric, bad, comparison.compared | set(by_metric[ABSENT]))
    for nic, (having, there) in sorted(comparison.without.items()):
        if host_of(nic) not in silent:
            reported = f"it has no RDMA port; {having} of the {there} NICs of its rail have one"
            found.append(Observation(ABSENT, nic, 1.0, (reported,)))
    return found


def _shared(metric: str, bad: Mapping[Place, str], known: Iterable[Place]) -> list[Observation]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for place in sorted({*known, *bad}):
        reported = reasons[f"{place[0]}->{place[1]}"]
        reported += [bad[place]] if place in bad else []
    pairs = {pair: "; ".join(reported) for pair, reported in reasons.items()}
    return [
        Observation(metric, each.subject, each.share, each.reasons, span_ns=WINDOW_NS)
        for each in pair_troubles(pairs)
    ]


def _delay(each: Disagreement) -> str:
    udp, verbs, usual = (format_ns(round(value)) for value in (each.udp, each.verbs, each.usual_ns))
    beyond = each.verbs - each.udp - each.usual_ns
    way = "slower" if beyond > 0 else "faster"
    by = format_ns(round(abs(beyond)))
    return f"{verbs} over verbs, {udp} over UDP: {by} {way} than {usual} beyond UDP, which is usual"


def _of(place: Place, comparison: PlaneComparison) -> str:
    back = (place[1], place[0], place[2])
    return comparison.names.get(place) or comparison.names.get(back) or f"class {place[2]}"


def _name(place: Place, flow: ProbeFlow, mesh: PlannedMesh) -> str:
    nics = [mesh.nics.get(NicRef.parse(end)) for end in place[:2]]
    known = [nic for nic in nics if nic is not None]
    return f"class {flow.dscp}, SL {flow.sl}, {_kind(known)}"


def _kind(nics: Iterable[MeshNic]) -> str:
    there = list(nics)
    if any(nic.rdma == "infiniband" for nic in there):
        return "InfiniBand"
    gids = " and ".join(
        nic.address if ":" in nic.address else f"::ffff:{nic.address}" for nic in there
    )
    return f"RoCE v2, GID {gids}"
