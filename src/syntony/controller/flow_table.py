"""The fleet's managed flows, for placement: from both ends' reports and the traced paths.

A flow is identified by connection, local NIC and remote address. Its source port changes when it is
moved; the flow stays the same. The end that opened the connection reports it and can move it; the
other end's report has the path of the reverse direction. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from syntony.fabric.book import SILENT, PathBook, Way
from syntony.fabric.graph import Topology
from syntony.fabric.names import ARROW
from syntony.model import S
from syntony.model.names import host_of
from syntony.model.paths import FourTuple
from syntony.traffic.classes import Classes
from syntony.traffic.demand import CandidatePath, Flow
from syntony.traffic.measurements import MeasuredRate
from syntony.wire.traffic import FlowsReport, FlowView

BOTH_PATHS = " | "
"""Separates the two directions in a path's name."""
ELEPHANT_BPS = 1_000_000
ELEPHANT_SHARE = 0.01
"""Share of its NIC's rate below which a flow's direction is ignored by placement."""
SLOW_SHARE = 0.1
"""With this share of its NIC's rate a flow counts, however slow the NIC (of an emulated host)."""

FORGET_NS = 1_800 * S
"""The path of a source port is dropped this long after it was last reported: a connection's port is
used once, and spare ports are traced again every ten minutes."""
FORGET_EVERY_NS = 60 * S


@dataclass(frozen=True, slots=True)
class Candidate:
    """A path that a flow could take, and the source ports that lead to it."""

    path: CandidatePath
    ports: tuple[int, ...]
    rail: tuple[str, str] | None = None
    """For queue pairs instead of ports: the addresses of the rail that they would use."""


@dataclass(frozen=True, slots=True)
class FlowEntry:
    flow_id: str
    host: str
    """The host that opened the connection."""
    view: FlowView
    src: str
    """NIC, ``host/nic``."""
    dst: str
    forward: tuple[str, ...]
    """Links that packets from `src` cross, in order; empty: unknown."""
    back: tuple[str, ...]
    flow: Flow | None
    """None while its path is unknown: it cannot be placed, and its load is on unknown links."""
    candidates: Mapping[str, Candidate]
    """By path."""
    rate: MeasuredRate

    @property
    def reported(self) -> str:
        """The path as far as known, as text."""
        known = [_called(links) for links in (self.forward, self.back) if links]
        return self.rate.path_id or BOTH_PATHS.join(known)

    @property
    def four(self) -> FourTuple:
        """Its 4-tuple as its host sees it now."""
        return FourTuple.of(self.view)


class FlowTable:
    """Keeps only the state that makes successive results consistent.

    Args:
        topology: of the fabric; None: hops are named by their addresses.
        classes: of jobs.
    """

    def __init__(self, topology: Topology | None, classes: Classes) -> None:
        self._classes = classes
        self.book = PathBook(topology)
        self._topology = topology
        self._nics: dict[str, str] = {}
        self._nic_bps = _nic_rates(topology)
        self._cables = _nic_cables(topology)
        self._ports: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
        """Sender, receiver and its port → source ports whose paths are known."""
        self._elephants: dict[str, frozenset[str]] = {}
        """Flow → the directions (``there``, ``back``) in which it ever was an elephant."""
        self._before: dict[str, FourTuple] = {}
        self._forgot_ns = 0

    def learn(self, way: Way, hops: Iterable[str], at_ns: int) -> None:
        """One TCP path, as learnt at `at_ns`, fleet time."""
        self.book.learn(way, hops, at_ns)
        self._ports[way.src, way.dst, way.dport].add(way.sport)

    def forget(self, now_ns: int) -> None:
        """Drop what was not reported for long; `now_ns` is fleet time."""
        if now_ns - self._forgot_ns < FORGET_EVERY_NS:
            return
        self._forgot_ns = now_ns
        for way in self.book.forget(now_ns - FORGET_NS, lambda _: False):
            key = (way.src, way.dst, way.dport)
            self._ports[key].discard(way.sport)
            if not self._ports[key]:
                del self._ports[key]

    def nics(self, names: Mapping[str, str]) -> None:
        """Address → ``host/nic``, from all agents."""
        self._nics = dict(names)

    def rows(self, reports: Mapping[str, FlowsReport]) -> tuple[FlowEntry, ...]:
        """All current flows, by their names.

        Args:
            reports: the newest of every host.
        """
        far = {
            FourTuple.of(view): view
            for report in reports.values()
            for view in report.flows
            if not view.dialled
        }
        chosen: dict[str, tuple[str, FlowView, FlowsReport]] = {}
        for host, report in reports.items():
            for view in report.flows:
                if not view.dialled:
                    continue
                flow_id = f"{host}:{view.connection}:{view.nic}>{view.remote}"
                if flow_id not in chosen or self._better(flow_id, view, chosen[flow_id][1]):
                    chosen[flow_id] = (host, view, report)
        rails = _rails(chosen.values(), self.nic)
        self._before = {
            flow_id: FourTuple.of(view) for flow_id, (_, view, _) in chosen.items()
        }  # fmt: skip
        self._elephants = {k: v for k, v in self._elephants.items() if k in chosen}
        return tuple(
            row
            for flow_id, (host, view, report) in sorted(chosen.items(), key=lambda item: item[0])
            if (
                row := self._rail_row(flow_id, host, view, report, rails)
                if view.process
                else self._row(flow_id, host, view, report, far)
            )
            is not None
        )

    def _better(self, flow_id: str, view: FlowView, than: FlowView) -> bool:
        """While a flow moves it has two subflows: the old one counts until it is gone."""
        before = self._before.get(flow_id)
        if before in {FourTuple.of(view), FourTuple.of(than)}:
            return FourTuple.of(view) == before
        return view.windows < than.windows

    def _row(
        self,
        flow_id: str,
        host: str,
        view: FlowView,
        report: FlowsReport,
        far: Mapping[FourTuple, FlowView],
    ) -> FlowEntry | None:
        src, dst = self.nic(view.local), self.nic(view.remote)
        if src is None or dst is None:
            return None
        there = Way(src, dst, view.local_port, view.remote_port)
        back = Way(dst, src, view.remote_port, view.local_port)
        other = far.get(FourTuple.of(view).reverse)
        for way, hops in ((there, view.hops), (back, other.hops if other is not None else ())):
            if hops:
                self.learn(way, [hop or SILENT for hop in hops], report.at_ns)
        forward, backward = self.book.links(there), self.book.links(back)
        busy = self._busy(flow_id, view, src)
        path = _path(busy, forward, backward)
        candidates = self._candidates(src, dst, report.join_port, busy)
        flow = None
        if path is not None and busy:
            flow = self._flow(flow_id, view, path, candidates if view.movable else {})
        rates = [r for d, r in (("there", view.tx_bps), ("back", view.rx_bps)) if d in busy]
        path_id = path.path_id if path is not None else ""
        return FlowEntry(
            flow_id=flow_id,
            host=host,
            view=view,
            src=src,
            dst=dst,
            forward=forward,
            back=backward,
            flow=flow,
            candidates=candidates,
            rate=MeasuredRate(
                at_ns=report.at_ns, bps=float(min(rates, default=0)), path_id=path_id
            ),
        )

    def _flow(
        self, flow_id: str, view: FlowView, path: CandidatePath, candidates: Mapping[str, Candidate]
    ) -> Flow:
        others = [each.path for each in candidates.values()]
        paths = {each.path_id: each for each in (*others, path)}
        priority, weight = self._classes.of(view.job)
        return Flow(
            flow_id=flow_id,
            job=view.job,
            paths=tuple(paths[name] for name in sorted(paths)),
            path_id=path.path_id,
            priority=priority,
            weight=weight,
            striped=view.process != 0,
        )

    def _rail_row(
        self,
        flow_id: str,
        host: str,
        view: FlowView,
        report: FlowsReport,
        rails: Mapping[tuple[str, int, str], Sequence[FlowView]],
    ) -> FlowEntry | None:
        """Row of a process's traffic over queue pairs of one rail; its candidate paths are its
        rails to the same host. The job's rate depends on all of them together: each counts as the
        mean."""
        src, dst = self.nic(view.local), self.nic(view.remote)
        if src is None or dst is None:
            return None
        mine = rails[host, view.process, host_of(dst)]
        using = [each for each in mine if each.moved_to or not each.left]
        free = [each for each in mine if not each.left and (not each.moved_to or each is view)]
        candidates = {
            path.path_id: Candidate(path=path, ports=(), rail=(each.local, each.remote))
            for each in free
            if (path := self._rail(each.local, each.remote)) is not None
        }
        path = self._rail(*(view.moved_to or (view.local, view.remote)))
        stands_in = any(each.moved_to == (view.local, view.remote) for each in mine)
        flow = None
        if path is not None and view in using and self._busy(flow_id, view, src):
            movable = view.movable and not stands_in
            flow = self._flow(flow_id, view, path, candidates if movable else {})
        path_id = path.path_id if path is not None else ""
        mean_bps = sum(each.tx_bps for each in using) / max(1, len(using))
        return FlowEntry(
            flow_id=flow_id,
            host=host,
            view=view,
            src=src,
            dst=dst,
            forward=(),
            back=(),
            flow=flow,
            candidates=candidates,
            rate=MeasuredRate(at_ns=report.at_ns, bps=mean_bps, path_id=path_id),
        )

    def _rail(self, local: str, remote: str) -> CandidatePath | None:
        """From one NIC to another, as far as all packets take the same path."""
        src, dst = self.nic(local), self.nic(remote)
        links = self.ends(Way(src, dst, 0, 0)) if src and dst else ()
        names = [nic.rpartition("/")[2] for nic in (src, dst) if nic]
        return CandidatePath(path_id=">".join(names), links=links) if links else None

    def ends(self, way: Way) -> tuple[str, ...]:
        """The known links of a path: at least those of its NICs, which no switch can hash
        differently."""
        return self.book.links(way) or tuple(
            link
            for link in (
                self._cables.get(way.src, ("", ""))[0],
                self._cables.get(way.dst, ("", ""))[1],
            )
            if link
        )

    def least_bps(self, nic: str) -> float:
        """Minimum rate, relative to the NIC's, for traffic control."""
        nic_bps = self._nic_bps.get(nic, 0.0)
        least = min(ELEPHANT_BPS, SLOW_SHARE * nic_bps) if nic_bps else ELEPHANT_BPS
        return max(least, ELEPHANT_SHARE * nic_bps)

    def _busy(self, flow_id: str, view: FlowView, src: str) -> frozenset[str]:
        """The relevant directions; a direction that was ever an elephant stays one, because a job
        that pauses resumes."""
        least = self.least_bps(src)
        now = {d for d, bps in (("there", view.tx_bps), ("back", view.rx_bps)) if bps >= least}
        known = self._elephants.get(flow_id, frozenset())
        self._elephants[flow_id] = known | now
        return self._elephants[flow_id]

    def _candidates(
        self, src: str, dst: str, join_port: int, busy: frozenset[str]
    ) -> dict[str, Candidate]:
        """Paths that differ in a direction in which the flow sends, with the ports that lead
        there."""
        found: dict[str, tuple[CandidatePath, list[int]]] = {}
        for port in sorted(self._ports.get((src, dst, join_port), ())):
            forward = self.book.links(Way(src, dst, port, join_port))
            backward = self.book.links(Way(dst, src, join_port, port))
            path = _path(busy, forward, backward)
            if path is not None:
                found.setdefault(path.path_id, (path, []))[1].append(port)
        return {
            name: Candidate(path=path, ports=tuple(ports)) for name, (path, ports) in found.items()
        }

    def nic(self, address: str) -> str | None:
        """``host/nic`` of an address; None: it is not a NIC's."""
        known = self._nics.get(address)
        if known is None and self._topology is not None:
            known = self._topology.by_address.get(address)
        return known


def _rails(
    chosen: Iterable[tuple[str, FlowView, FlowsReport]], nic: Callable[[str], str | None]
) -> Mapping[tuple[str, int, str], Sequence[FlowView]]:
    """Rate of each process over queue pairs to each host, by rail."""
    found: defaultdict[tuple[str, int, str], list[FlowView]] = defaultdict(list)
    for host, view, _ in chosen:
        if view.process:
            found[host, view.process, host_of(nic(view.remote) or "")].append(view)
    return found


def _path(
    busy: frozenset[str], forward: tuple[str, ...], backward: tuple[str, ...]
) -> CandidatePath | None:
    """The path in the relevant directions; None while part of it is unknown."""
    parts = [links for d, links in (("there", forward), ("back", backward)) if d in busy]
    if not all(parts):
        return None
    name = BOTH_PATHS.join(map(_called, parts))
    return CandidatePath(path_id=name, links=tuple(link for links in parts for link in links))


def _called(links: tuple[str, ...]) -> str:
    """An operator's name of the path: the switches between the first and the last, which follow
    from the NICs; if there is one switch, that one."""
    switches = [link.partition(ARROW)[2] for link in links[:-1]]
    return ">".join(switches[1:-1] or switches[:1])


def _nic_rates(topology: Topology | None) -> dict[str, float]:
    """NIC → bits per second, from the topology."""
    return {
        end: cable.gbps * 1e9
        for cable in (topology.cables if topology is not None else ())
        for end in (cable.a, cable.b)
        if "/" in end and cable.gbps
    }


def _nic_cables(topology: Topology | None) -> dict[str, tuple[str, str]]:
    return {
        nic: (f"{nic}{ARROW}{far}", f"{far}{ARROW}{nic}")
        for cable in (topology.cables if topology is not None else ())
        for nic, far in ((cable.a, cable.b), (cable.b, cable.a))
        if "/" in nic
    }


def capacities(topology: Topology | None, dead: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Link → bits per second, both directions of every cable whose rate is known; 0: dead.

    Args:
        topology: of the fabric.
        dead: links, cables and devices that lose packets.
    """
    lost = frozenset(dead)
    for cable in topology.cables if topology is not None else ():
        for a, b in ((cable.a, cable.b), (cable.b, cable.a)):
            link = f"{a}{ARROW}{b}"
            if lost & {link, cable.name, a, b}:
                yield link, 0
            elif cable.gbps:
                yield link, round(cable.gbps * 1e9)
