"""A fleet whose parts die and return in any order: hosts with several rails, their leaves and
spines, the management network, and a controller that pauses or is restarted.

Localisation, map of the fabric, silence of agents and rules are the real ones. What a host knows
reaches the controller only while the host lives and has a way there; what waits is read afterwards.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from tests.controller.judged import Control, line, port

from syntony.controller.fabric_changes import FabricChangeService
from syntony.controller.incident_inputs import LatencyInputs
from syntony.controller.last_reports import TICK_NS, LastReports
from syntony.fabric import history
from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.history import FIELDS, SecondCounts
from syntony.fabric.names import cable_name
from syntony.links.ports import PortState
from syntony.model import ClockState, S
from syntony.model.names import host_of
from syntony.wire.links import LinkStatus

PORTS, TARGET = 4, 8620
PROBES = 4
"""Of a flow in a second."""
LAG_S = 2
"""A second is looked at so long after it began."""
ROUND_S = 60
"""Every path is traced at least so often …"""
CHECK_S = 8
"""… and a changed one is found within this time."""
BASE_NS = 20_000.0
HOLDOVER_S = 10


class Report(NamedTuple):
    """A path that a host traced."""

    way: Way
    hops: tuple[str, ...]
    at_s: int


class Uplink:
    """The connection of a host's agent to a controller that is beyond the spines. It crosses a NIC,
    its leaf, and a spine that depends on its source port. One that carries nothing is given up, and
    made again from another port, and after some attempts from another NIC."""

    GIVE_UP_S, RETRY_S, ATTEMPTS = 10, 5, 3

    def __init__(self, host: str, rng: random.Random, rails: int) -> None:
        self.host, self._rng, self._rails = host, rng, rails
        self.nic = f"{host}/rail{0 if rng.random() < 0.7 else rng.randrange(rails)}"
        self.connected = True
        self._port = rng.random()
        self._broken_s = self._failed = self._wait_s = 0

    def step(self, fleet: Fleet) -> None:
        """One second."""
        if fleet.passes(self.nic, self._port):
            if self._broken_s:
                # What was lost is sent again after up to as long as nothing came through.
                most = self._broken_s if self._broken_s < self.GIVE_UP_S else 1
                self._wait_s = self._rng.randint(0, most)
                self._broken_s = self._failed = 0
            self._wait_s -= 1
            self.connected = self._wait_s < 0
            return
        self.connected = False
        self._broken_s += 1
        if self._broken_s >= self.GIVE_UP_S and self._broken_s % self.RETRY_S == 0:
            self._port = self._rng.random()
            self._failed += 1
            if self._failed >= self.ATTEMPTS:
                self._failed = 0
                self.nic = f"{self.host}/rail{self._rng.randrange(self._rails)}"


class Fleet:
    """See above.

    Args:
        control: takes what the controller would.
        seed: of shape, placement, hashes, noise and delays.
        in_band: hosts reach the controller over the fabric.
    """

    def __init__(self, control: Control, seed: int, *, in_band: bool = False) -> None:
        self.control, self.noise = control, np.random.default_rng(seed)
        rng = self.rng = random.Random(seed)
        rails, self.leaves = rng.randint(1, 3), rng.randint(2, 3)
        self.hosts = [f"h{number}" for number in range(rng.randint(2 * self.leaves, 10))]
        shared = rng.random() < 0.5
        count = rng.randint(2, 4)
        self.spines = {
            rail: [f"spine{k}" if shared else f"spine{rail}-{k}" for k in range(count)]
            for rail in range(rails)
        }
        self.home = {
            f"{host}/rail{rail}": f"leaf{rail}-{number % self.leaves}"
            for number, host in enumerate(self.hosts)
            for rail in range(rails)
        }
        few, pairs = rng.randint(3, 5), set[tuple[str, str]]()
        for host in self.hosts:
            others = [each for each in self.hosts if each != host]
            for peer in rng.sample(others, min(few, len(others))):
                pairs |= {(host, peer), (peer, host)}
        self.flows = [
            Way(f"{a}/rail{rail}", f"{b}/rail{rail}", 61_000 + number, TARGET)
            for a, b in sorted(pairs) for rail in range(rails) for number in range(PORTS)
        ]  # fmt: skip
        self.ways = [*self.flows, *map(reply, self.flows)]
        self.shape = (
            f"seed {seed}: {len(self.hosts)} hosts, {rails} rails, {self.leaves} leaves each, "
            f"{count} {'shared' if shared else 'own'} spines"
        )
        self.dead: set[str] = set()
        """Leaves, spines, cables between switches, NICs and hosts."""
        self.black: dict[str, int] = {}
        """Dead spine or cable that is still sent to → until which second."""
        self.cut: set[str] = set()
        """Hosts without a way to the controller."""
        self.late_s: dict[str, int] = {}
        """Host → so long its carriers take to be reported; else at once."""
        self.holdover_until: dict[str, int] = {}
        """NIC → when its clock is synchronized again."""
        self.second = 0
        self.away_until = 0
        self.restarts = False
        self._taken: dict[Way, tuple[str, ...]] = {}
        self._traced: dict[Way, tuple[tuple[str, ...], int]] = {}
        self._due: list[tuple[int, Way]] = []
        self._waiting: dict[str, list[Report]] = {host: [] for host in self.hosts}
        self._stored: list[Report] = []
        self._ports: dict[str, tuple[str, int]] = dict.fromkeys(self.home, (PortState.ACTIVE, 0))
        """What the controller knows: state, and when it was reported."""
        self._down_since: dict[str, int] = {}
        self._lost_s: dict[str, int] = {}
        """When each last lost its carrier."""
        self._flaps = dict.fromkeys(self.home, 0)
        self._told_flaps = dict.fromkeys(self.home, 0)
        self._seconds: list[tuple[int, SecondCounts, dict[tuple[str, str], int]]] = []
        self._routed: object = None
        self.uplinks = {
            host: Uplink(host, random.Random(f"{seed} {host}"), rails)
            for host in (self.hosts if in_band else ())
        }
        self.shape += ", in band" * in_band
        control.silent = dict.fromkeys(self.hosts, 0)
        control.probed = frozenset(self.home)
        control.pairs = frozenset((flow.src, flow.dst) for flow in self.flows)
        for way in self.ways:
            self._due.append((rng.randint(1, 15), way))
        self._begin()

    def _begin(self) -> None:
        assert self.control.kept is not None
        self.book = PathBook()
        self.map = FabricChangeService(self.book, self.control.kept)
        self.watch = FaultLocator(self.book)
        self.reports = LastReports(self.second * S)
        self.ticks = self.second * S
        self._seconds.clear()
        self.incoming = [each for each in self._stored if each.at_s >= self.second - 600]

    # --- what happens ---

    def pause(self, seconds: int, *, restart: bool = False) -> None:
        """The controller stands still, or is gone and started again."""
        self.away_until, self.restarts = self.second + seconds, restart

    def reports_of(self, host: str) -> bool:
        """Whether a host's agent reaches the controller."""
        connected = host not in self.uplinks or self.uplinks[host].connected
        return connected and host not in self.dead and host not in self.cut

    def carrier(self, nic: str) -> bool:
        """Whether a NIC has a carrier."""
        return not {nic, self.home[nic], host_of(nic)} & self.dead

    def passes(self, nic: str, port: float) -> bool:
        """Whether a connection to the controller from a NIC and a source port works."""
        leaf, spines = self.home[nic], self.spines[int(nic[-1])]
        able = [each for each in spines if not {each, cable_name(leaf, each)} & self._gone()]
        if not able or not self.carrier(nic):
            return False
        drawn = {each: random.Random(f"{nic}{port}{each}").random() for each in able}
        spine = max(drawn, key=drawn.__getitem__)
        return not {leaf, spine, cable_name(leaf, spine)} & self.dead

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.second += 1
            self._route()
            self._trace()
            self._watch_carriers()
            for uplink in self.uplinks.values():
                uplink.step(self)
            self._probe()
            if self.second < self.away_until:
                self.control.now_ns += S
                continue
            if self.restarts:
                self.restarts = False
                self.control.start()
                self._begin()
            self._listen()
            self._locate()
            if self.second % 2 == 0 or self.control.news():
                self._judge()
            else:
                self.control.now_ns += S

    # --- packets ---

    def _gone(self) -> frozenset[str]:
        """Dead parts that routes have left."""
        return frozenset(part for part in self.dead if self.black.get(part, 0) <= self.second)

    def _route(self) -> None:
        gone = self._gone()
        if gone == self._routed:
            return
        self._routed = gone
        for way in self.ways:
            near, far = self.home[way.src], self.home[way.dst]
            if near == far:
                self._taken[way] = (near,)
                continue
            able = [
                spine for spine in self.spines[int(way.src[-1])]
                if not {spine, cable_name(near, spine), cable_name(spine, far)} & gone
            ]  # fmt: skip
            drawn = {spine: random.Random(f"{way}{spine}").random() for spine in able}
            taken = (near, max(drawn, key=drawn.__getitem__), far)
            if self._taken.get(way) != taken:
                self._taken[way] = taken
                self._due.append((self.second + self.rng.randint(1, CHECK_S), way))

    def _lost(self, way: Way) -> bool:
        stops = (way.src, *self._taken[way], way.dst)
        parts = {*stops, *(cable_name(a, b) for a, b in pairwise(stops))}
        return bool(parts & self.dead) or bool({host_of(way.src), host_of(way.dst)} & self.dead)

    def _is_traced(self, way: Way) -> bool:
        """Whether all switches of a way answer a path learner; its target need not be alive."""
        stops = (way.src, *self._taken[way])
        parts = {*stops, *(cable_name(a, b) for a, b in pairwise(stops)), host_of(way.src)}
        return not parts & self.dead

    def _trace(self) -> None:
        due = [each for each in self._due if each[0] <= self.second]
        self._due = [each for each in self._due if each[0] > self.second]
        for _, way in due:
            self._due.append((self.second + self.rng.randint(ROUND_S // 2, ROUND_S), way))
            if self._is_traced(way):
                self._waiting[host_of(way.src)].append(Report(way, self._taken[way], self.second))

    def _watch_carriers(self) -> None:
        for nic in self.home:
            up = self.carrier(nic)
            if not up and nic not in self._down_since:
                self._down_since[nic] = self._lost_s[nic] = self.second
                self._flaps[nic] += 1
            elif up and nic in self._down_since:
                del self._down_since[nic]
                self.holdover_until[nic] = self.second + self.rng.randint(2, 25)

    def _probe(self) -> None:
        lost = {way: self._lost(way) for way in self.ways} if self.dead else {}
        counts = np.zeros((FIELDS, len(self.flows)), dtype=np.int64)
        delays = BASE_NS + self.noise.normal(0, 300.0, (2, len(self.flows)))
        heard: dict[tuple[str, str], int] = {}
        for place, flow in enumerate(self.flows):
            src, dst = host_of(flow.src), host_of(flow.dst)
            if src in self.dead:
                continue
            there = 0 if lost.get(flow) else PROBES
            back = 0 if lost.get(reply(flow)) else there
            if self.reports_of(src):
                counts[history.SENT, place] = PROBES
                counts[history.SENT_BACK, place] = back
                counts[history.UNRESOLVED, place] = PROBES - back
            if not back or not self.reports_of(src):
                delays[:, place] = np.nan
            if self.reports_of(dst):
                heard[flow.src, flow.dst] = heard.get((flow.src, flow.dst), 0) + there
            if back < PROBES and self.rng.random() < 0.3:
                self._due.append((self.second + self.rng.randint(1, 3), flow))
        second = SecondCounts(counts, delays, delays, np.full(len(self.flows), 100.0))
        self._seconds.append((self.second, second, heard))

    # --- the controller ---

    def _listen(self) -> None:
        """Ticks of its loop; a pause ends with one late tick."""
        now_ns = self.second * S
        if now_ns - self.ticks > S:
            self.ticks = now_ns
            self.reports.tick(now_ns)
        while self.ticks < now_ns:
            self.ticks += TICK_NS
            self.reports.tick(self.ticks)
        for host in filter(self.reports_of, self.hosts):
            self.reports.received(host)
            self.incoming += self._waiting[host]
            self._waiting[host] = []
        for nic in self.home:
            if not self.reports_of(host_of(nic)):
                continue
            late_s = self.late_s.get(host_of(nic), 0)
            down = nic in self._down_since and self.second - self._down_since[nic] >= late_s
            self._ports[nic] = ("no-peer" if down else PortState.ACTIVE, self.second)
            self._told_flaps[nic] = self._flaps[nic] - (nic in self._down_since and not down)

    def _locate(self) -> None:
        now_ns = self.control.now_ns + S
        for each in sorted(self.incoming, key=lambda one: one.at_s):
            at_ns = now_ns - (self.second - each.at_s) * S
            if self.book.learn(each.way, each.hops, at_ns):
                self.map.take(each.way, now_ns, at_ns)
            else:
                self.map.confirm(each.way, each.hops, now_ns, at_ns)
        self._stored += self.incoming
        self.incoming = []
        self.map.settle(now_ns)
        self.control.fabric = self.map.status
        self.control.answered_ns = {**self.map.answered_ns}
        self.control.homes = {**self.book.first_switches(), **self.map.homes}
        due = [each for each in self._seconds if each[0] <= self.second - LAG_S + 1]
        self._seconds = [each for each in self._seconds if each[0] > self.second - LAG_S + 1]
        for ended, second, heard in due[-5:]:
            self.watch.begin(len(self.flows))
            numbers = [self.watch.number(flow) for flow in self.flows]
            received = np.zeros(self.watch.pairs, dtype=np.int64)
            for (_, pair), flow in zip(numbers, self.flows, strict=True):
                received[pair] = heard.get((flow.src, flow.dst), 0)
            self.watch.take(second, received, now_ns - (self.second - ended) * S)
        self.control.findings = self.watch.findings()
        self.control.answering = frozenset(map(host_of, self.watch.answering()))
        self.control.in_band |= {
            host: uplink.nic for host, uplink in self.uplinks.items() if self.reports_of(host)
        }

    def _judge(self) -> None:
        self.control.now_ns += S
        if not self.reports.settled:
            return
        now_ns = self.control.now_ns
        self.control.silent = self.reports.silent(self.hosts)
        self.control.store.links.seen = tuple(self._status(nic, now_ns) for nic in self.home)
        self.control.timelines = tuple(line(nic, self._clock(nic)) for nic in self.home)
        self.control.slas = LatencyInputs(None, (), {}, {})
        self.control.evaluate()

    def _clock(self, nic: str) -> ClockState:
        """In holdover once it was cut off for long, and for a while afterwards."""
        cut_off = self.second - self._down_since.get(nic, self.second) > HOLDOVER_S
        late = self.holdover_until.get(nic, 0) > self.second
        return ClockState.HOLDOVER if cut_off or late else ClockState.SYNCHRONIZED

    def _status(self, nic: str, now_ns: int) -> LinkStatus:
        state, at_s = self._ports[nic]
        flaps = self._told_flaps[nic]
        lost_ns = now_ns - (self.second - self._lost_s[nic]) * S if flaps else None
        return port(nic, state=state, seen_ns=now_ns - (self.second - at_s) * S, flaps=flaps,
                    last_flap_ns=lost_ns)  # fmt: skip
