"""A spine goes and comes back on random fabrics: what was lost meanwhile is nobody's once it is
over, whatever ways flows were believed to take."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from tests.cases import mostly_slow
from tests.controller.judged import T0, Control
from tests.fabric.flow_rows import FlowCounts, add

from syntony.controller.incident_inputs import LatencyInputs
from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator
from syntony.model import S

PROBES = 10


class World:
    """Flows whose ways turn at once and are learnt anew some seconds later."""

    def __init__(self, control: Control, seed: int, spines: int = 0) -> None:
        self.control, self.rng = control, random.Random(seed)
        self.np_rng = np.random.default_rng(seed)
        leaves, spines = self.rng.randint(3, 4), spines or self.rng.randint(2, 3)
        self.spines = {f"spine{k}" for k in range(spines)}
        self.homes = {f"h{k}/rail0": f"leaf{k % leaves}" for k in range(self.rng.randint(6, 8))}
        self.book = PathBook()
        self.watch = FaultLocator(self.book)
        self.flows = [
            Way(a, b, 61_000 + port, 8620)
            for a in self.homes for b in self.homes if a != b for port in range(4)
        ]  # fmt: skip
        self.taken: dict[Way, tuple[str, ...]] = {}
        self.second = self.evaluated = 0
        self.losses: dict[str, float] = {}
        """Switch or link to the share that it loses."""
        self.due: list[tuple[int, int, Way]] = []
        """Second in which a way is reported, when it was asked for, and which."""
        control.slas = LatencyInputs(None, None, {}, {})
        self.route(0, 0)

    @property
    def now_ns(self) -> int:
        return T0 + self.second * S

    def route(self, soonest: int, latest: int) -> None:
        """Give each flow one of the spines; the map learns of it so many seconds later."""
        for flow in self.flows:
            for way in (flow, reply(flow)):
                near, far = self.homes[way.src], self.homes[way.dst]
                drawn = {spine: random.Random(f"{way}{spine}").random() for spine in self.spines}
                taken = max(drawn, key=drawn.__getitem__)
                middle = [taken] if near != far else []
                self.taken[way] = tuple(dict.fromkeys([near, *middle, far]))
                requested = self.second + self.rng.randint(soonest, latest)
                self.due.append((requested + 2 * (latest > 0), requested, way))

    def loss(self, way: Way) -> float:
        stops = self.taken[way]
        links = {f"{a}->{b}" for a, b in pairwise(stops)}
        return max((self.losses.get(each, 0.0) for each in {*stops, *links}), default=0.0)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            rows, heard = [], dict[tuple[str, str], int]()
            for flow in self.flows:
                came = self.np_rng.binomial(PROBES, 1 - self.loss(flow))
                back = self.np_rng.binomial(came, 1 - self.loss(reply(flow)))
                pair = (flow.src, flow.dst)
                heard[pair] = heard.get(pair, 0) + int(came)
                broken = PROBES - int(back)
                rows.append(
                    FlowCounts(
                        way=flow, sent=PROBES, lost=0, sent_back=PROBES - broken, lost_back=0,
                        unresolved=broken, delay_ns=20_000.0, delay_back_ns=20_000.0,
                        clk_err_ns=100.0,
                    )
                )  # fmt: skip
            self.second += 1
            reported = [each for each in self.due if each[0] <= self.second]
            self.due = [each for each in self.due if each[0] > self.second]
            for _, requested, way in sorted(reported):
                self.book.learn(way, self.taken[way], T0 + requested * S)
            add(self.watch, rows, heard, self.now_ns)
            self.control.findings = self.watch.findings()
            if self.second % 2 or self.control.news():
                self.control.tick(after_ns=(self.second - self.evaluated) * S)
                self.evaluated = self.second


def world(control: Control, case: int, spines: int = 0) -> World:
    seed = case if case < 2 else random.randrange(100_000)
    print(f"seed {seed}")
    made = World(control, seed, spines)
    made.run(60)
    return made


@pytest.mark.parametrize("case", mostly_slow(range(4), {0}))
def test_what_a_spine_lost_as_it_went_and_came_is_over_soon(control: Control, case: int) -> None:
    fabric = world(control, case)
    spine = fabric.rng.choice(sorted(fabric.spines))
    for change in (fabric.spines.remove, fabric.spines.add):
        if change == fabric.spines.add:
            change(spine)
            fabric.route(1, 6)
        fabric.losses = {spine: fabric.rng.choice([1.0, 0.3])}
        fabric.run(1)
        fabric.losses = {}
        if change == fabric.spines.remove:
            change(spine)
            fabric.route(1, 6)
        fabric.run(16)
        assert control.findings == ()
        assert control.live() == {}
    fabric.run(40)
    assert control.findings == ()
    # Of a spine that loses everything for a second, it itself may be reported; nothing else.
    assert control.pages() == []


@pytest.mark.parametrize("case", mostly_slow(range(3), {0}))
def test_a_link_that_loses_now_and_then_is_told_all_the_same(control: Control, case: int) -> None:
    fabric = world(control, case)
    link = f"{min(fabric.homes.values())}->{min(fabric.spines)}"
    for _ in range(8):
        fabric.losses = {link: 0.5}
        fabric.run(1)
        fabric.losses = {}
        fabric.run(fabric.rng.randint(15, 25))
    assert control.pages() == [f"link-loss {link}"]


@pytest.mark.parametrize("case", mostly_slow(range(3), {0}))
def test_ways_that_turn_do_not_hide_a_link_that_loses(control: Control, case: int) -> None:
    fabric = world(control, case, spines=3)
    link = f"{min(fabric.homes.values())}->{min(fabric.spines)}"
    fabric.losses = {link: 0.1}
    fabric.run(9)
    fabric.spines.remove(max(fabric.spines))
    fabric.route(1, 6)
    fabric.run(30)
    assert link in {each.component for each in control.findings}
    assert control.pages() == [f"link-loss {link}"]
