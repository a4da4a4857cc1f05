"""The fabric as observed in traced paths, and its changes. Pure.

Only hops that answered count, never a topology file. A cable exists while some flow's path crosses
it. It is gone when the paths that crossed it were traced again and avoid it. A path without answers
proves nothing. A path that is no longer traced makes a cable *unseen*, not gone; if all other paths
have left the cable, it does not show that the cable is still there either. A change is reported
once it has lasted for `HOLD_NS`. The first discovery is not a change.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from syntony.fabric.aliases import ROUND_NS, Aliases
from syntony.fabric.book import Way
from syntony.fabric.departures import FEW, LEFT_NS, Departures
from syntony.fabric.graph import Topology, TopologyDifference
from syntony.fabric.names import SILENT_AT, cable_name, link_ends
from syntony.fabric.outages import Outages
from syntony.fabric.silent import SilentPart, SilentSwitches
from syntony.model import DAY_NS, S

HOLD_NS = 8 * S
"""Shorter changes are flaps, which links report. A path that has changed is traced again after half
of this time (`learn.RETRACE_NS`)."""
QUIET_NS = 20 * S
"""The first discovery ends when hardly any path has become known for this long, …"""
LATE_SHARE = 0.02
"""… not counting this share of the known paths, which got no answer for a while, …"""
LOOK_NS = 120 * S
"""… and at the latest after two rounds of tracing every path (`learn.AGAIN_NS`)."""
ENOUGH = 10
"""Paths that must have left a cable. If that many crossed it, the chance that a redistribution of
all paths leaves none on it is e^-10."""
LOST_NS = 7 * DAY_NS
"""A lost cable is remembered for this long, …"""
MOVED_NS = DAY_NS
"""… and a moved NIC for this long."""
MAX_REPORTED = 32
"""Changes of one kind reported at a time; of further ones, only their number."""


class NicMove(msgspec.Struct, frozen=True):
    """A NIC that is at another switch than before."""

    before: str
    after: str
    at_ns: int


class MapState(msgspec.Struct, kw_only=True):
    """State that must survive a restart."""

    cables: list[str] = msgspec.field(default_factory=list)
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    """Cable between switches → when it was lost, fleet time."""
    moved: dict[str, NicMove] = msgspec.field(default_factory=dict)
    twins: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Lost cable → other cables that all of its paths left as well: one of them is the cause."""
    down: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Switch that is down → cables that may be the cause instead, and its other addresses."""
    silent: list[SilentPart] = msgspec.field(default_factory=list)
    """Switches that never answered and are down."""


def without_unlisted(state: MapState, topology: Topology) -> MapState:
    """The state; what was lost or is down is forgotten if a topology says that it is no longer
    there: it lists neither the name, nor cables at both ends of a cable and this one among them.
    Addresses that it does not list may be of switches that it does not know."""
    names = {device.name for device in topology.devices}
    cabled = {cable.name for cable in topology.cables}

    def may_be(device: str) -> bool:
        return device in names or (_is_address(device) and device not in topology.by_address)

    def is_planned(cable: str) -> bool:
        a, b = _ends(cable)
        both = a in topology.neighbours and b in topology.neighbours
        return may_be(a) and may_be(b) and (cable in cabled or not both)

    def named(part: SilentPart) -> tuple[str, ...]:
        return tuple(name for name in part.names[:1] if not name.startswith(SILENT_AT))

    return msgspec.structs.replace(
        state,
        lost={cable: at_ns for cable, at_ns in state.lost.items() if is_planned(cable)},
        down={switch: instead for switch, instead in state.down.items() if may_be(switch)},
        silent=[part for part in state.silent if all(map(may_be, (*part.devices, *named(part))))],
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class FabricMap:
    """Takes traced paths and reports changes. Not thread-safe.

    Args:
        state: of a previous process, or nothing.
        traced_ns: when a path was last traced, fleet time; None: all are traced all the time.
        named: devices that a topology lists: each is a switch of its own.
    """

    def __init__(
        self,
        state: MapState | None = None,
        traced_ns: Callable[[Way], int] | None = None,
        named: Container[str] = (),
    ) -> None:
        state = state or MapState()
        self._traced_ns = traced_ns
        self.lost = dict(state.lost)
        self.moved = dict(state.moved)
        self.twins = dict(state.twins)
        self.down = dict(state.down)
        self.silent = SilentSwitches(state.silent)
        self._outages = Outages()
        self._departures = Departures()
        self._aliases = Aliases(named)
        self.abandoned = frozenset[str]()
        """Cables that are lost by what a sample of their paths shows: others may still list
        them."""
        self._reported = set(state.cables)
        self._inherited = bool(state.cables)
        self._ways: dict[Way, tuple[str | None, ...]] = {}
        self._count: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        """Cable → paths that left it, minus those that joined it, since the last report; from 0
        again if none left for `LEFT_NS`."""
        self._left_ns: dict[str, int] = {}
        """Of these, when the newest left."""
        self._crossed_ns: dict[str, int] = {}
        """Cable that paths have left → when the first left it, or a path was last traced across
        it."""
        self._checked_ns = 0
        self._left_with: dict[str, Counter[str]] = {}
        """Cable between switches → cables that were left together with it, itself included, since a
        path last joined it."""
        self._differs: dict[str, int] = {}
        """Cable → since when it differs from what was reported."""
        self._turned: dict[Way, tuple[tuple[str | None, ...], int]] = {}
        """Path → where it went before, and since when it no longer does."""
        self._began_ns: int | None = None
        self._fresh_ns: deque[int] = deque()
        """When paths became known within `QUIET_NS`, during the first discovery."""
        self._looking = True

    def __contains__(self, way: Way) -> bool:
        """Whether the path of a direction of a flow counts; one that is no longer traced does
        not."""
        return way in self._ways

    @property
    def looking(self) -> bool:
        """Whether the first discovery is still in progress."""
        return self._looking

    @property
    def cables(self) -> frozenset[str]:
        """Cables reported as present."""
        return frozenset(self._reported)

    @property
    def answered_ns(self) -> Mapping[str, int]:
        """Device → fleet time at which the newest trace that it answered began."""
        return self._departures.answered_ns

    def state(self) -> MapState:
        """State for the next process."""
        return MapState(
            cables=sorted(self._reported),
            lost=self.lost,
            moved=self.moved,
            twins=self.twins,
            down=self.down,
            silent=list(self.silent.down.values()),
        )

    def homes(self) -> dict[str, str]:
        """NIC → the switch that it was reported at; of several, the one that most paths use."""
        ends = (_ends(cable) for cable in sorted(self._reported, key=lambda c: (self._count[c], c)))
        return {a: b for a, b in ends if _is_nic(a)}

    def take(
        self, way: Way, hops: Sequence[str | None], now_ns: int, learnt_ns: int | None = None
    ) -> None:
        """Update one path.

        Args:
            way: direction of a flow.
            hops: its sender and the devices that answered, in order, None for a silent one; empty
                if the path is no longer traced.
            now_ns: fleet time.
            learnt_ns: when the path was traced, fleet time; now if not given.
        """
        if self._began_ns is None:
            self._began_ns = now_ns
        learnt_ns = now_ns if learnt_ns is None else learnt_ns
        old, new = self._ways.get(way, ()), tuple(hops)
        if not old and self._looking:
            self._fresh_ns.append(now_ns)
        if new:
            self._ways[way] = new
        else:
            self._ways.pop(way, None)
        before, after = _cables(old), _cables(new)
        for cable in before - after:
            self._count[cable] -= 1
            self._leave(cable, now_ns, counts=bool(new))
            self._crossed_ns.setdefault(cable, now_ns)
        for cable in after - before:
            self._count[cable] += 1
            self._left[cable] = max(0, self._left[cable] - 1)
            self._left_with.pop(cable, None)
        between = {cable for cable in before - after if new and not _is_nic(_ends(cable)[0])}
        for cable in between:
            self._left_with.setdefault(cable, Counter()).update(between)
        for cable in before ^ after:
            self._compare(cable, now_ns)
        self.silent.take(way, new, learnt_ns)
        if old and old != new:
            self._departures.turned(way, old, new, learnt_ns)
            self._aliases.turned(way, old, new, learnt_ns)
            self._outages.traced(way, old, new, learnt_ns)
            if new:
                self._turned.setdefault(way, (old, now_ns))
        self.confirm(new, learnt_ns)

    def lose(self, suspects: Collection[str], since_ns: int, until_ns: int) -> None:
        """As `Outages.found`."""
        self._outages.found(suspects, since_ns, until_ns)

    def miss(self, way: Way, hops: Sequence[str | None], learnt_ns: int) -> None:
        """A known path was traced with hops that did not answer, or none such."""
        self._outages.traced(way, self._ways.get(way, ()), hops, learnt_ns)

    def confirm(self, hops: Sequence[str | None], learnt_ns: int) -> None:
        """Record that a sender and the devices that answered it are unchanged."""
        self._departures.crossed(hops, learnt_ns)
        for cable in _cables(hops) & self._crossed_ns.keys() if self._crossed_ns else ():
            self._crossed_ns[cable] = max(learnt_ns, self._crossed_ns[cable])
        for device in self.down.keys() & set(hops):
            if device not in self._departures:
                del self.down[device]
                self._departures.came_back(device)

    def settle(self, now_ns: int) -> list[TopologyDifference]:
        """Changes that have lasted long enough to be reported; a switch that is `down` is reported
        at once."""
        if self._began_ns is None:
            return []
        self.down |= self._outages.down(self.answered_ns, now_ns)
        for switch, instead in self._departures.down(self._count, now_ns).items():
            others = self._aliases.of(switch, self._departures.left_ns(switch), self.answered_ns)
            self.down[switch] = (*instead, *sorted(others))
        self.silent.settle()
        self._drop_untraced(now_ns)
        before, self.abandoned = self.abandoned, self._departures.lost_cables(now_ns)
        for cable in before ^ self.abandoned:
            self._compare(cable, now_ns)
        if self._looking:
            while self._fresh_ns and now_ns - self._fresh_ns[0] >= QUIET_NS:
                self._fresh_ns.popleft()
            quiet = len(self._fresh_ns) <= LATE_SHARE * len(self._ways)
            if not quiet and now_ns - self._began_ns < LOOK_NS:
                return []
            self._look(now_ns)
        changes = [*self._cable_changes(now_ns), *self._turns(now_ns)]
        self.lost = {k: at for k, at in self.lost.items() if now_ns - at < LOST_NS}
        self.twins = {k: twins for k, twins in self.twins.items() if k in self.lost}
        self.moved = {k: m for k, m in self.moved.items() if now_ns - m.at_ns < MOVED_NS}
        return _bounded(changes)

    # --- internal ---

    def _drop_untraced(self, now_ns: int) -> None:
        """Drop paths that have not been traced for two rounds, if they cross a cable that others
        have left and that no path was traced across since: the plan no longer has them."""
        if self._traced_ns is None or now_ns - self._checked_ns < HOLD_NS:
            return
        self._checked_ns = now_ns
        left = {
            cable
            for cable, many in self._left.items()
            if many >= ENOUGH and self._count[cable] and now_ns - self._crossed_ns[cable] >= HOLD_NS
        }
        for way, hops in list(self._ways.items()) if left else ():
            if now_ns - self._traced_ns(way) >= LOOK_NS and not left.isdisjoint(_cables(hops)):
                self.take(way, (), now_ns)

    def _compare(self, cable: str, now_ns: int) -> None:
        if self._is_used(cable) != (cable in self._reported):
            self._differs.setdefault(cable, now_ns)
        else:
            self._differs.pop(cable, None)
        if not self._left[cable]:
            del self._left[cable]
            self._left_ns.pop(cable, None)
            self._crossed_ns.pop(cable, None)
        if not self._count[cable]:
            del self._count[cable]

    def _is_used(self, cable: str) -> bool:
        return self._count[cable] > 0 and cable not in self.abandoned

    def _look(self, now_ns: int) -> None:
        """End the first discovery: without earlier state, what is there is taken as normal."""
        self._looking = False
        self._fresh_ns.clear()
        self._turned.clear()
        if not self._inherited:
            self._reported = set(self._count)
            self._differs.clear()
            return
        for cable in self._reported - set(self._count):
            self._differs.setdefault(cable, now_ns)

    def _cable_changes(self, now_ns: int) -> Iterable[TopologyDifference]:
        due = [c for c, since in self._differs.items() if now_ns - since >= HOLD_NS]
        for cable in sorted(due):
            if cable not in self._differs:
                continue  # reported together with another
            if self._is_used(cable):
                yield from self._cable_added(cable, now_ns)
            else:
                yield from self._cable_removed(cable, now_ns)

    def _cable_added(self, cable: str, now_ns: int) -> Iterable[TopologyDifference]:
        a, b = _ends(cable)
        elsewhere = [c for c in self._reported if _ends(c)[0] == a] if _is_nic(a) else []
        gone = [c for c in elsewhere if not self._count[c]]
        if elsewhere and not gone and now_ns - self._differs[cable] < ROUND_NS:
            return
        known = {end for c in self._reported for end in _ends(c)}
        self._reported_of(cable)
        if gone:
            for old in gone:
                self._unreported(old)
            yield self._move(a, _ends(gone[0])[1], b, now_ns)
            return
        lost_ns = self.lost.pop(cable, None)
        for end in {a, b} - known:
            yield TopologyDifference(change="added", what="device", name=end, detail=f"by {cable}")
        if a in known or not _is_nic(a):
            detail = "it was lost before" if lost_ns is not None else ""
            yield TopologyDifference(change="added", what="cable", name=cable, detail=detail)

    def _move(self, nic: str, before: str, after: str, now_ns: int) -> TopologyDifference:
        known = self.moved.pop(nic, None)
        if known is None or known.before != after:
            first = before if known is None else known.before
            self.moved[nic] = NicMove(first, after, now_ns)
        return TopologyDifference(
            change="moved", what="device", name=nic, detail=f"from {before} to {after}"
        )

    def _cable_removed(self, cable: str, now_ns: int) -> Iterable[TopologyDifference]:
        a, b = _ends(cable)
        if _is_nic(a) and any(self._count[c] and _ends(c)[0] == a for c in self._differs):
            return  # will be seen elsewhere soon
        left, twins, wider = self._left[cable], *self._twins_of(cable)
        self._unreported(cable)
        if wider:
            detail = f"{left} paths no longer cross it, all of which crossed {wider[0]}"
            yield TopologyDifference(change="unseen", what="cable", name=cable, detail=detail)
        elif _is_nic(a) or left < ENOUGH:
            detail = f"{left} paths no longer cross it, and no other is traced" if left else ""
            yield TopologyDifference(change="unseen", what="cable", name=cable, detail=detail)
        else:
            self.lost[cable] = now_ns
            self.twins[cable] = twins
            detail = f"{left} ways go elsewhere"
            yield TopologyDifference(change="removed", what="cable", name=cable, detail=detail)
        known = {end for c in self._reported for end in _ends(c)}
        for end in (end for end in (a, b) if end not in known):
            yield TopologyDifference(
                change="removed", what="device", name=end, detail="its last cable is gone"
            )

    def _twins_of(self, cable: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Cables that no path crosses any more and that were left by all paths that left this one,
        except for at most `FEW`: those that no others left either, and those that others did."""
        left = self._left_with.get(cable, Counter())
        around = sorted(
            other
            for other, ways in left.items()
            if other != cable and not self._is_used(other) and ways > left[cable] - FEW
        )
        twins = tuple(other for other in around if self._is_around(cable, other))
        return twins, tuple(other for other in around if other not in twins)

    def _is_around(self, cable: str, other: str) -> bool:
        """Whether nearly all paths that left the other cable left this one as well."""
        if other in self.lost:
            return cable in self.twins.get(other, ())
        left = self._left_with.get(other, Counter())
        return left[cable] > left[other] - FEW

    def _reported_of(self, cable: str) -> None:
        self._reported.add(cable)
        self._forget_departures(cable)

    def _unreported(self, cable: str) -> None:
        self._reported.discard(cable)
        self._forget_departures(cable)

    def _forget_departures(self, cable: str) -> None:
        self._differs.pop(cable, None)
        self._forget_left(cable)

    def _leave(self, cable: str, now_ns: int, *, counts: bool) -> None:
        if now_ns - self._left_ns.get(cable, now_ns) >= LEFT_NS:
            self._forget_left(cable)
        if counts:
            self._left[cable] += 1
            self._left_ns[cable] = now_ns

    def _forget_left(self, cable: str) -> None:
        self._left.pop(cable, None)
        self._left_ns.pop(cable, None)
        self._crossed_ns.pop(cable, None)
        self._left_with.pop(cable, None)

    def _turns(self, now_ns: int) -> Iterable[TopologyDifference]:
        """Paths between the same two switches that take other switches than before: one change per
        pair."""
        groups: dict[tuple[str, str], list[Way]] = defaultdict(list)
        for way, (old, _) in list(self._turned.items()):
            new = self._ways.get(way)
            pair = _between(old, new) if new is not None else None
            if pair is None or old == new:
                del self._turned[way]
            else:
                groups[pair].append(way)
        for (a, b), ways in sorted(groups.items()):
            if now_ns - min(self._turned[way][1] for way in ways) < ROUND_NS:
                continue
            reported = Counter(
                f"{_middle(self._turned.pop(way)[0])} to {_middle(self._ways[way])}"
                for way in ways
            )  # fmt: skip
            detail = ", ".join(f"{n} from {turn}" for turn, n in reported.most_common(3))
            yield TopologyDifference(
                change="rerouted", what="paths", name=f"{a}..{b}", detail=detail
            )


def _is_nic(name: str) -> bool:
    return "/" in name


def _ends(cable: str) -> tuple[str, str]:
    """Both ends, a NIC first."""
    a, b = link_ends(cable) or (cable, cable)
    return (b, a) if _is_nic(b) and not _is_nic(a) else (a, b)


def _cables(hops: Sequence[str | None]) -> set[str]:
    return {cable_name(a, b) for a, b in pairwise(hops) if a and b and a != b}


def _between(old: Sequence[str | None], new: Sequence[str | None]) -> tuple[str, str] | None:
    """The first and last switch, if both paths have the same; otherwise it is another kind of
    change."""
    ends = {(way[1], way[-1]) for way in (old, new) if len(way) > 2}
    if len(ends) != 1 or len(old) != len(new):
        return None
    a, b = ends.pop()
    return (a, b) if a and b else None


def _middle(way: Sequence[str | None]) -> str:
    return ">".join(device or "?" for device in way[2:-1])


def _bounded(changes: Sequence[TopologyDifference]) -> list[TopologyDifference]:
    """At most this many of a kind, and how many more there were."""
    kinds: Mapping[tuple[str, str], list[TopologyDifference]] = defaultdict(list)
    for change in changes:
        kinds[change.change, change.what].append(change)
    reported = []
    for (kind, what), some in kinds.items():
        reported += some[:MAX_REPORTED]
        if len(some) > MAX_REPORTED:
            detail = f"{len(some) - MAX_REPORTED} more, not listed"
            reported.append(TopologyDifference(change=kind, what=what, name="*", detail=detail))
    return reported
