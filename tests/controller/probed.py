"""A traced Clos fabric whose hosts probe each other as well: losses, queues, paused agents, routes
that converge late and a controller that restarts. Path learners, map, localisation and rules are
the real ones; packets, time and what is lost are drawn here."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from tests.controller.judged import Control, port, queues_of
from tests.controller.traced import PORTS, TARGET, World

from syntony.controller.fabric_changes import FabricChangeService
from syntony.controller.incident_inputs import LatencyInputs
from syntony.controller.locating import PATHS_BACK_NS
from syntony.fabric import history
from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.history import FIELDS, SecondCounts
from syntony.fabric.learn import FlowKey, HopQuery, TracedPath
from syntony.model import S
from syntony.model.findings import Finding
from syntony.model.names import host_of

SKEW = 0.1
"""Share of requests, at most, that their target counts in the second after."""
BASE_NS, NOISE_NS = 20_000.0, 300.0
LAG_S = 2
"""A second is looked at so long after it began."""


class Jam(NamedTuple):
    """What waits at a link because of a job."""

    wait_ns: float
    overflow: float
    """Share of packets that do not fit."""
    pairs: tuple[tuple[str, str], ...]
    """Of NICs that the job sends between."""


class Probed(World):
    """See above.

    Args:
        seed: of shape, placement, hashes, rates and noise.
        leaves: of the fabric; these and the following are drawn if 0.
        spines: of the fabric.
        hosts: below all leaves.
    """

    def __init__(
        self, control: Control, seed: int, leaves: int = 0, *, spines: int = 0, hosts: int = 0
    ) -> None:
        super().__init__(control, seed, leaves, spines=spines, hosts=hosts)
        self.noise = np.random.default_rng(seed)
        self.rate = self.rng.choice([2, 4, 8])
        """Probes of a flow in a second."""
        self.losses: dict[str, float] = {}
        """Switch, NIC or directional link to the share that it loses."""
        self.jams: dict[str, Jam] = {}
        """Of directional links."""
        self.paused_until: dict[str, int] = {}
        """Host whose agent is stopped, to the second that it goes on in."""
        self.down: set[str] = set()
        """Leaves without power, whose hosts' NICs have no carrier, and NICs without one."""
        self.flows = [
            Way(host.name, f"{peer}/rail0", 61_000 + number, TARGET)
            for host in self.hosts for peer in host.peers for number in range(PORTS)
        ]  # fmt: skip
        self._replies = [reply(flow) for flow in self.flows]
        self._by_nic = {host.name: host for host in self.hosts}
        self._skew = {nic: self.rng.uniform(0, SKEW) for nic in control.homes}
        self._late_heard: dict[tuple[str, str], int] = {}
        self._waiting: list[tuple[int, SecondCounts, dict[tuple[str, str], int]]] = []
        self._stored: list[tuple[int, str, list[TracedPath]]] = []
        self._crossed: dict[Way, tuple[str, ...]] = {}
        self._routed: tuple[object, ...] = ()
        self._away_until = 0
        self._begin()

    def _begin(self) -> None:
        assert self.control.kept is not None
        self.book = PathBook()
        self.service = FabricChangeService(self.book, self.control.kept)
        self.watch = FaultLocator(self.book)
        self._numbered = -1
        self.findings: tuple[Finding, ...] = ()

    @property
    def second(self) -> int:
        return self.now_ns // S

    def restart(self, seconds: int) -> None:
        """The controller is gone for so long; what it knew of paths comes from the store."""
        self._away_until = self.second + seconds
        self._waiting.clear()
        self.control.start()
        self._begin()
        first_ns = self.now_ns - PATHS_BACK_NS
        self.rows.extendleft(row for row in self._stored if row[0] >= first_ns)
        self._stored.clear()

    def crossed(self, way: Way) -> tuple[str, ...]:
        """Devices and links that a way really takes."""
        routed = (frozenset(self.dead), self.salt)
        if routed != self._routed:
            self._routed = routed
            self._crossed.clear()
        known = self._crossed.get(way)
        if known is None:
            src, dst = host_of(way.src), host_of(way.dst)
            hops = self.hops(FlowKey("rail0", src, dst, way.sport, way.dport))
            stops = [way.src, *hops, way.dst]
            links = (f"{a}->{b}" for a, b in pairwise(stops))
            known = self._crossed[way] = (*stops, *links)
        return known

    def answer(self, ask: HopQuery) -> str:
        device = super().answer(ask)
        if not device or f"{ask.flow.src}/rail0" in self._dark():
            return ""
        if device == self.leaf[ask.flow.dst] and f"{ask.flow.dst}/rail0" in self.down:
            return ""  # it has no route to there any more
        crossed = self.crossed(
            Way(f"{ask.flow.src}/rail0", f"{ask.flow.dst}/rail0", ask.flow.sport, ask.flow.dport)
        )
        here = crossed[: crossed.index(device) + 1]
        links = (f"{a}->{b}" for a, b in pairwise(here))
        return "" if self.rng.random() < self._loss((*here, *links)) else device

    def turning(self, nic: str, step: int) -> bool:
        return not self._is_paused(nic)

    def _loss(self, crossed: tuple[str, ...]) -> float:
        kept = 1.0
        for name in crossed:
            if name in self.black or name in self.down:
                return 1.0
            kept *= 1 - self.losses.get(name, 0.0)
            kept *= 1 - (self.jams[name].overflow if name in self.jams else 0.0)
        return 1 - kept

    def _wait_ns(self, crossed: tuple[str, ...]) -> float:
        return sum(jam.wait_ns for name, jam in self.jams.items() if name in crossed)

    def _is_paused(self, nic: str) -> bool:
        return self.second < self.paused_until.get(host_of(nic), 0)

    def _probe(self) -> None:
        """One second of probes."""
        flows = self.flows
        crossed = [[self.crossed(way) for way in way_of] for way_of in (flows, self._replies)]
        loss, wait_ns = np.zeros((2, 2, len(flows)))
        if self.losses or self.jams or self.black or self.down:
            loss[:] = [[self._loss(each) for each in ways] for ways in crossed]
            wait_ns[:] = [[self._wait_ns(each) for each in ways] for ways in crossed]
        mute = {nic for nic in self.control.homes if self._is_paused(nic)}
        dark = self._dark()
        sends = np.array([flow.src not in mute | dark for flow in flows])
        answers = np.array([flow.dst not in mute | dark for flow in flows])
        sent = np.where(sends, self.rate, 0)
        came = self.noise.binomial(sent, 1 - loss[0])
        back = np.where(answers, self.noise.binomial(came, 1 - loss[1]), 0)
        counts = np.zeros((FIELDS, len(flows)), dtype=np.int64)
        counts[history.SENT], counts[history.SENT_BACK] = sent, back
        counts[history.UNRESOLVED] = sent - back
        self._doubt(np.flatnonzero(sent > back).tolist())
        delays = BASE_NS + self.noise.normal(0, NOISE_NS, loss.shape)
        delays += wait_ns * self.noise.uniform(0.7, 1.3, loss.shape)
        delays[:, back == 0] = np.nan
        heard: dict[tuple[str, str], int] = {}
        for flow, number in zip(flows, came.tolist(), strict=True):
            pair = (flow.src, flow.dst)
            heard[pair] = heard.get(pair, 0) + number
        reported = {}
        for pair, number in heard.items():
            before = self._late_heard.pop(pair, 0)
            if pair[1] in mute:  # they wait in its socket
                self._late_heard[pair] = before + number
                continue
            late = int(self.noise.binomial(number, self._skew[pair[1]]))
            self._late_heard[pair] = late
            reported[pair] = before + number - late
        second = SecondCounts(counts, delays, delays, np.full(len(flows), 100.0))
        self._waiting.append((self.second, second, reported))
        for nic in self.control.homes:
            host = host_of(nic)
            self.control.silent[host] = 0 if nic not in mute else self.control.silent[host] + S

    def _dark(self) -> set[str]:
        """NICs without a carrier."""
        return {nic for nic, leaf in self.control.homes.items() if {nic, leaf} & self.down}

    def _doubt(self, lossy: list[int]) -> None:
        """Agents trace flows again that lose probes (`syntony.agent.paths`)."""
        for flow in (self.flows[place] for place in lossy):
            dst = host_of(flow.dst)
            key = FlowKey("rail0", host_of(flow.src), dst, flow.sport, flow.dport)
            self._by_nic[flow.src].learner.suspect([key], self.now_ns)

    def _locate(self) -> None:
        """Every second."""
        self._probe()
        self.control.store.links.seen = tuple(
            port(nic, state="no-peer" if nic in self._dark() else "active")
            for nic in self.control.homes
        )
        if self.second < self._away_until:
            return
        self._stored += [row for row in self.rows if row[0] <= self.now_ns]
        super()._locate()
        while self._waiting and self._waiting[0][0] <= self.second - LAG_S + 1:
            self._take(*self._waiting.pop(0))
        self.findings = self.control.findings = self.watch.findings()
        self.service.take_findings(self.findings, (self.second - LAG_S + 1) * S)
        nics = self.watch.answering()
        self.control.answering = frozenset(host_of(nic) for nic in nics)

    def _take(self, ended: int, second: SecondCounts, reported: dict[tuple[str, str], int]) -> None:
        numbering = self.watch.begin(len(self.flows))
        if numbering != self._numbered:
            self._numbered = numbering
            assert [self.watch.number(flow)[0] for flow in self.flows] == [*range(len(self.flows))]
        heard = np.zeros(self.watch.pairs, dtype=np.int64)
        for flow in self.flows[::PORTS]:
            heard[self.watch.number(flow)[1]] = reported.get((flow.src, flow.dst), 0)
        self.watch.take(second, heard, ended * S)

    def _judge(self) -> None:
        if self.second < self._away_until:
            self.control.now_ns += self._since_ns()
            return
        crossing = {f"{a}->{b}": self._crossing(a, b) for a, b in self._pairs()}
        pairs = frozenset(pair for jam in self.jams.values() for pair in jam.pairs)
        queues = queues_of(self.watch.queues(), sorted(pairs), crossing)
        self.control.slas = LatencyInputs(None, queues, crossing, {"train": pairs} if pairs else {})
        super()._judge()

    def _pairs(self) -> list[tuple[str, str]]:
        return sorted({(flow.src, flow.dst) for flow in self.flows}) if self.jams else []

    def _crossing(self, src: str, dst: str) -> frozenset[str]:
        own = [flow for flow in self.flows if (flow.src, flow.dst) == (src, dst)]
        return frozenset(name for flow in own for name in self.book.components(flow))
