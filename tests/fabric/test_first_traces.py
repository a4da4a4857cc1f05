"""Paths that are traced for the first time: soon, with few packets, and whole although something
is broken meanwhile. Fabrics are drawn; a failure prints its seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from syntony.fabric.learn import (
    BURST,
    FIRST_NS,
    INTERVAL_NS,
    FlowKey,
    HopQuery,
    PathLearner,
    TracedPath,
)
from syntony.model import MS, S

Path = tuple[str, ...]


class Fabric:
    """A host's NICs, each at a leaf of its rail, and the leaves of its peers. `tiers` 3: pods, with
    two aggregation switches each."""

    def __init__(self, rng: random.Random, *, leaves: int = 0, spines: int = 0) -> None:
        self.rng = rng
        self.tiers = rng.choice((2, 2, 3))
        self.leaves = leaves or rng.randint(2, 6)
        self.spines = spines or rng.randint(1, 4)
        self.silent: set[str] = set()
        self.black: set[tuple[str, str]] = set()
        self.lost = 0.0
        self.limit_ns = 20 * MS
        """A device answers an address so often, after six in a row: as a lab's switches do."""
        self.asked: Counter[int] = Counter()
        """Packets by second."""
        self.answered: Counter[tuple[str, int]] = Counter()
        """Answers by device and second."""
        self._credit: dict[tuple[str, str], tuple[int, int]] = {}
        self._way: dict[FlowKey, Path] = {}

    @property
    def shape(self) -> str:
        return f"{self.tiers} tiers, {self.leaves} leaves, {self.spines} spines"

    def flows(self, ports: int, peers: int = 10, nics: int = 2) -> list[FlowKey]:
        """As an agent plans them: one port of every pair first, and replies."""
        return [
            FlowKey(f"rail{nic}", f"10.0.{nic}.0", f"10.0.{nic}.{peer}", *ends)
            for port in range(61_000, 61_000 + ports)
            for nic in range(nics)
            for peer in range(1, peers + 1)
            for ends in ((port, 8620), (8620, port))
        ]

    def truth(self, flow: FlowKey) -> Path:
        if flow not in self._way:
            rail, far = flow.nic[-1], int(flow.dst.rpartition(".")[2]) % self.leaves
            near, there = f"leaf{rail}-0", f"leaf{rail}-{far}"
            draw = random.Random(f"{flow}")
            up, spine = draw.randrange(2), draw.randrange(self.spines)
            middle: Path = (f"spine{spine}",)
            if self.tiers == 3:
                same_pod = far == 1
                middle = (f"agg0-{up}",)
                if not same_pod:
                    middle = (f"agg0-{up}", f"spine{spine}", f"agg{far}-{up}")
            self._way[flow] = (near,) if far == 0 else (near, *middle, there)
        return self._way[flow]

    def as_traced(self, flow: FlowKey) -> Path:
        hops = ["" if hop in self.silent else hop for hop in self.truth(flow)]
        while hops and not hops[-1]:
            hops.pop()
        return tuple(hops)

    def ask(self, ask: HopQuery, at_ns: int) -> str:
        self.asked[at_ns // S] += 1
        hops = self.truth(ask.flow)[: ask.ttl]
        if len(hops) < ask.ttl or any(pair in self.black for pair in pairwise(hops)):
            return ""
        device = hops[-1]
        if device in self.silent or self.rng.random() < self.lost:
            return ""
        key = device, ask.flow.src
        credit, last_ns = self._credit.get(key, (6 * self.limit_ns, at_ns))
        credit = min(6 * self.limit_ns, credit + at_ns - last_ns)
        allowed = credit >= self.limit_ns
        self._credit[key] = (credit - self.limit_ns * allowed, at_ns)
        self.answered[device, at_ns // S] += allowed
        return device if allowed else ""


class Learning:
    """A learner that is asked as its agent's thread asks it."""

    def __init__(self, fabric: Fabric) -> None:
        self.learner, self.fabric = PathLearner(), fabric
        self.known: dict[FlowKey, TracedPath] = {}
        self.now_ns = 0
        self._coming: list[tuple[HopQuery, str]] = []

    def run(self, until_ns: int, done: Callable[[], bool] = lambda: False) -> None:
        while self.now_ns < until_ns and not done():
            for ask, device in self._coming:
                one = self.learner.answer(ask.flow, ask.ttl, device, self.now_ns)
                self.known |= {one.flow: one} if one else {}
            self.known |= {one.flow: one for one in self.learner.expire(self.now_ns)}
            asks = list(iter(lambda: self.learner.next(self.now_ns), None))
            busy = self.learner.waiting
            asks += [] if asks else self.learner.checks(self.now_ns)
            answers = ((ask, self.fabric.ask(ask, self.now_ns)) for ask in asks)
            self._coming = [each for each in answers if each[1]]
            self.now_ns += BURST * self.learner.interval_ns if busy else 500 * MS

    def wrong(self, flows: list[FlowKey]) -> dict[FlowKey, tuple[Path, Path | None]]:
        found = {flow: (self.fabric.as_traced(flow), self.learner.hops(flow)) for flow in flows}
        return {flow: (truth, hops) for flow, (truth, hops) in found.items() if truth != hops}


@pytest.mark.parametrize("_", range(6))
def test_paths_are_known_after_a_few_packets_each(_: int) -> None:
    rng = random.Random(seed := random.getrandbits(32))
    fabric = Fabric(rng)
    learning, flows = Learning(fabric), fabric.flows(ports=rng.randint(2, 12))
    learning.learner.plan(flows, FIRST_NS)
    learning.run(60 * S, lambda: len(learning.known) == len(flows))
    shape = f"seed {seed}: {fabric.shape}, {len(flows)} flows"
    assert not learning.wrong(flows), shape
    hops = sum(len(fabric.truth(flow)) for flow in flows)
    # One packet behind each path's end, and for each pair of addresses the wait for silence there.
    assert fabric.asked.total() <= hops + len(flows) + 6 * 20 + 0.1 * hops, shape
    assert learning.now_ns <= 5 * S + 1.2 * fabric.asked.total() * FIRST_NS, shape


@pytest.mark.parametrize("_", range(8))
def test_paths_traced_while_a_link_was_black_are_known_whole_afterwards(
    _: int,
) -> None:
    """A path that seems to end early does not end those beside it."""
    rng = random.Random(seed := random.getrandbits(32))
    fabric = Fabric(rng, spines=rng.randint(2, 4))
    flows = fabric.flows(ports=rng.randint(2, 8), peers=4, nics=1)
    links = sorted(
        {pair for flow in flows for way in [fabric.truth(flow)] for pair in pairwise(way)}
    )
    fabric.black = {*rng.sample(links, rng.randint(1, len(links) // 2))}
    fabric.silent = {f"spine{rng.randrange(4)}"} if rng.random() < 0.3 else set()
    learning = Learning(fabric)
    broken = [flow for flow in flows if fabric.black & {*pairwise(fabric.truth(flow))}]
    first = rng.sample(broken, rng.randint(0, len(broken)))
    learning.learner.plan(first, FIRST_NS)
    learning.run(rng.randint(0, 20) * S)
    learning.learner.plan(flows, FIRST_NS)
    whole = [flow for flow in flows if flow not in broken]
    learning.run(learning.now_ns + 30 * S)
    shape = f"seed {seed}: {fabric.shape}, black {fabric.black}"
    assert not learning.wrong(whole), shape
    fabric.black = set()
    learning.run(learning.now_ns + 150 * S)
    assert not learning.wrong(flows), shape


@pytest.mark.parametrize("limit_ns", [100 * MS, S])
def test_devices_that_limit_their_answers_are_asked_no_faster_than_usual(limit_ns: int) -> None:
    fabric = Fabric(random.Random(1))
    fabric.limit_ns = limit_ns
    learning = Learning(fabric)
    learning.learner.plan(fabric.flows(ports=8), FIRST_NS)
    learning.run(20 * S)
    assert max(fabric.asked.values()) <= S // FIRST_NS + BURST
    assert max(fabric.asked[second] for second in range(3, 20)) <= S // INTERVAL_NS + BURST


def test_known_paths_are_traced_at_the_usual_rate() -> None:
    fabric = Fabric(random.Random(2))
    learning, flows = Learning(fabric), fabric.flows(ports=8)
    learning.learner.plan(flows, FIRST_NS)
    learning.run(60 * S, lambda: len(learning.known) == len(flows))
    assert learning.learner.interval_ns == INTERVAL_NS
    learning.learner.suspect(flows, learning.now_ns)
    fabric.asked.clear()
    learning.run(learning.now_ns + 15 * S)
    assert max(fabric.asked.values()) <= S // INTERVAL_NS + BURST


def test_a_plan_that_drops_the_flow_others_wait_for_lets_them_go_on() -> None:
    fabric = Fabric(random.Random(3), leaves=2)
    learning, flows = Learning(fabric), fabric.flows(ports=4, peers=3, nics=1)
    learning.learner.plan(flows, FIRST_NS)
    learning.run(1500 * MS)
    kept = flows[6:]
    learning.learner.plan(kept, FIRST_NS)
    learning.run(20 * S)
    assert not learning.wrong(kept)
