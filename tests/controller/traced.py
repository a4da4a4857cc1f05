"""A Clos fabric of any shape, whose hosts trace their flows and tell a controller, second by
second: path learners, map and rules are the real ones, packets and time are not."""

from __future__ import annotations

import random
from collections import deque

from tests.controller.judged import Control

from syntony.controller.fabric_changes import FabricChangeService
from syntony.fabric.book import SILENT, PathBook, Way
from syntony.fabric.learn import FlowKey, HopQuery, PathLearner, TracedPath
from syntony.model import MS, S

STEP_NS = 100 * MS
IDLE_STEPS = 5
"""As `syntony.agent.paths` turns: so often while anything is asked, and while nothing is."""
PORTS, TARGET = 8, 8620
STALLS = 0.02
"""A step in so many is the first of half a second to six in which a host stands still."""


class Host:
    """One agent's tracer."""

    def __init__(self, world: World, name: str, peers: list[str]) -> None:
        self.world, self.name, self.peers = world, f"{name}/rail0", peers
        self.learner = PathLearner()
        self.learner.plan(
            FlowKey("rail0", name, peer, *ports)
            for peer in peers
            for port in range(61_000, 61_000 + PORTS)
            for ports in ((port, TARGET), (TARGET, port))
        )
        self.phase = world.rng.randrange(IDLE_STEPS * 2)
        self.coming: list[tuple[HopQuery, str]] = []
        self.learnt: list[TracedPath] = []
        self.busy = False
        self.confirm_ns = 0
        self.stands_until = 0
        """Step; short of processor time until then."""

    def turn(self, step: int, now_ns: int) -> None:
        if self.world.stalls and step >= self.stands_until:
            rng = self.world.rng
            if rng.random() < STALLS:
                self.stands_until = step + rng.randint(5, 60)
        if step < self.stands_until or not self.world.turning(self.name, step):
            return
        if self.busy or step % IDLE_STEPS == self.phase % IDLE_STEPS:
            for ask, device in self.coming:
                done = self.learner.answer(ask.flow, ask.ttl, device, now_ns)
                self.learnt += [done] if done is not None else []
            self.learnt += self.learner.expire(now_ns)
            asks = list(iter(lambda: self.learner.next(now_ns), None))
            self.busy = self.learner.waiting
            checks = [] if asks else self.learner.checks(now_ns)
            answers = ((ask, self.world.answer(ask)) for ask in (*asks, *checks))
            self.coming = [(ask, device) for ask, device in answers if device]
        if step % 10 == self.phase:
            self.tell(now_ns)

    def tell(self, now_ns: int) -> None:
        changed = any(each.changed for each in self.learnt)
        if self.learnt and (changed or now_ns >= self.confirm_ns):
            late_ns = self.world.rng.randint(300, 900) * MS
            self.world.rows.append((now_ns + late_ns, self.name, self.learnt))
            self.learnt, self.confirm_ns = [], now_ns + 5 * S


class World:
    """Hosts below leaves, every leaf cabled to every spine.

    Args:
        seed: of shape, placement and hashes.
        leaves: of the fabric; these and the following are drawn if 0.
        spines: of the fabric.
        hosts: below all leaves.
    """

    def __init__(
        self, control: Control, seed: int, leaves: int = 0, *, spines: int = 0, hosts: int = 0
    ) -> None:
        self.rng = random.Random(seed)
        self.leaves = leaves or self.rng.randint(3, 4)
        self.spines = [f"spine{k}" for k in range(spines or self.rng.randint(2, 4))]
        names = [f"h{k}" for k in range(hosts or self.rng.randint(2 * self.leaves, 10))]
        self.leaf = {name: f"leaf{k % self.leaves}" for k, name in enumerate(names)}
        self.dead: set[str] = set()
        self.silent: set[str] = set()
        self.black: set[str] = set()
        """Dead, and still sent to."""
        self.lost = 0.0
        """Share of answers that come too late."""
        self.stalls = False
        """Whether hosts are short of processor time."""
        self.salt = 0
        self._hashes: dict[tuple[FlowKey, int, int], int] = {}
        """Made once: a flow is hashed for every packet."""
        self.control = control
        control.homes = {f"{name}/rail0": leaf for name, leaf in self.leaf.items()}
        self.rows: deque[tuple[int, str, list[TracedPath]]] = deque()
        self.book = PathBook()
        self.service = FabricChangeService(self.book, None)
        peers: dict[str, set[str]] = {name: set() for name in names}
        few = self.rng.randint(4, 5)
        for name in names:
            for peer in self.rng.sample([n for n in names if n != name], min(few, len(names) - 1)):
                peers[name].add(peer)
                peers[peer].add(name)
        self.hosts = [Host(self, name, sorted(peers[name])) for name in names]
        self.step = 0
        self._evaluated_ns = 0
        self.paged_ns: list[int] = []
        self.shape = (
            f"{len(names)} hosts, {self.leaves} leaves, {len(self.spines)} spines, {few} peers"
        )

    @property
    def now_ns(self) -> int:
        return self.step * STEP_NS

    def hops(self, flow: FlowKey) -> list[str]:
        near, far = self.leaf[flow.src], self.leaf[flow.dst]
        able = [
            spine
            for spine in self.spines
            if not self.dead & {spine, f"{near}--{spine}", f"{far}--{spine}"}
        ]
        return [near] if near == far else [near, able[self._hashed(flow, len(able))], far]

    def _hashed(self, flow: FlowKey, ways: int) -> int:
        key = (flow, self.salt, ways)
        if key not in self._hashes:
            self._hashes[key] = random.Random(f"{flow}{self.salt}{ways}").choice(range(ways))
        return self._hashes[key]

    def answer(self, ask: HopQuery) -> str:
        hops = self.hops(ask.flow)
        device = hops[ask.ttl - 1] if ask.ttl <= len(hops) else ""
        lost = self.rng.random() < self.lost or self.black & {*hops[: ask.ttl]}
        return "" if device in self.silent or lost else device

    def turning(self, nic: str, step: int) -> bool:
        """Whether the agent of this NIC's host runs."""
        return True

    def run(self, seconds: int) -> None:
        for _ in range(seconds * S // STEP_NS):
            self.step += 1
            for host in self.hosts:
                host.turn(self.step, self.now_ns)
            if self.step % 10 == 0:
                self._locate()
            if self.step % 20 == 0 or (self.step % 10 == 0 and self.control.news()):
                self._judge()

    def _locate(self) -> None:
        due = [row for row in self.rows if row[0] <= self.now_ns]
        reported = [(each, nic) for row in due for nic in [row[1]] for each in row[2]]
        self.rows = deque(row for row in self.rows if row[0] > self.now_ns)
        for each, nic in sorted(reported, key=lambda one: one[0].at_ns):
            way = Way(nic, f"{each.flow.dst}/rail0", each.flow.sport, each.flow.dport)
            hops = [hop or SILENT for hop in each.hops]
            if self.book.learn(way, hops, each.at_ns):
                self.service.take(way, self.now_ns, each.at_ns)
            else:
                self.service.confirm(way, hops, self.now_ns, each.at_ns)
        self.service.settle(self.now_ns)
        self.control.fabric = self.service.status
        began_ns = self.control.now_ns - self._evaluated_ns
        answered = self.service.answered_ns.items()
        self.control.answered_ns = {switch: began_ns + at_ns for switch, at_ns in answered}

    def _since_ns(self) -> int:
        """Since the rules were evaluated last."""
        since_ns, self._evaluated_ns = self.now_ns - self._evaluated_ns, self.now_ns
        return since_ns

    def _judge(self) -> None:
        pages = len(self.control.pages())
        self.control.tick(after_ns=self._since_ns())
        if len(self.control.pages()) > pages:
            self.paged_ns.append(self.now_ns)
