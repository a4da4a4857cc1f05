"""The online half on simulated seconds: windows, directions that nobody knows, faults that end."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np
import pytest
from tests.cases import mostly_slow
from tests.fabric.flow_rows import FlowCounts, add

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.graph import Cable, Device, Topology, make_topology

HOSTS, LEAVES, SPINES, PORTS = 8, 4, 2, 8
PER_SECOND = 8


def _topology(parallel: int) -> Topology:
    switches = [f"leaf{n}" for n in range(LEAVES)], [f"spine{n}" for n in range(SPINES)]
    cables = [Cable(a=leaf, b=spine) for leaf in switches[0] for spine in switches[1]]
    return make_topology([Device(name=name) for name in chain(*switches)], cables * parallel)


class Fabric:
    """Eight hosts on four leaves and two spines; every flow's hops drawn once, and which of the
    parallel cables it takes between switches, ``leaf0->spine1#0``."""

    def __init__(self, seed: int = 1, parallel: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.book = PathBook(_topology(parallel) if parallel > 1 else None)
        self._parallel = parallel
        self._cables: dict[Way, tuple[str, ...]] = {}
        self.watch = FaultLocator(self.book)
        self.flows = [
            Way(f"h{a}/rail0", f"h{b}/rail0", 61000 + port, 8620)
            for a in range(HOSTS)
            for b in range(HOSTS)
            if a != b
            for port in range(PORTS)
        ]
        for flow in self.flows:
            for way in (flow, reply(flow)):
                self.book.learn(way, self._hops(way))

    def _hops(self, way: Way) -> list[str]:
        near, far = (int(nic[1 : nic.index("/")]) * LEAVES // HOSTS for nic in (way.src, way.dst))
        spine = self.rng.integers(SPINES)
        return [f"leaf{near}"] if near == far else [f"leaf{near}", f"spine{spine}", f"leaf{far}"]

    def _crossed(self, way: Way) -> tuple[str, ...]:
        known = self.book.components(way)
        if self._parallel > 1 and way not in self._cables:
            taken = self.rng.integers(self._parallel, size=len(known))
            self._cables[way] = tuple(f"{a}#{n}" for a, n in zip(known, taken, strict=True))
        return (*known, *self._cables.get(way, ()))

    def second(
        self, loss: dict[str, float] | None = None, late: dict[str, float] | None = None
    ) -> None:
        """One second with these components losing or delaying packets; dead flows tell nothing."""
        loss, late = loss or {}, late or {}
        rows: list[FlowCounts] = []
        heard: dict[tuple[str, str], int] = {}
        for flow in self.flows:
            hops = [self._crossed(way) for way in (flow, reply(flow))]
            there, back = (
                1 - math.prod(1 - share for name, share in loss.items() if name in on)
                for on in hops
            )
            lost = int(self.rng.binomial(PER_SECOND, there))
            lost_back = int(self.rng.binomial(PER_SECOND - lost, back))
            pair = (flow.src, flow.dst)
            heard[pair] = heard.get(pair, 0) + PER_SECOND - lost
            dead = lost + lost_back == PER_SECOND
            delays = [
                20_000
                + self.rng.normal(0, 300)
                + sum(extra for name, extra in late.items() if name in on)
                for on in hops
            ]
            rows.append(
                FlowCounts(
                    way=flow,
                    sent=PER_SECOND,
                    lost=0 if dead else lost,
                    sent_back=PER_SECOND if dead else PER_SECOND - lost,
                    lost_back=0 if dead else lost_back,
                    unresolved=PER_SECOND if dead else 0,
                    delay_ns=math.nan if dead else delays[0],
                    delay_back_ns=math.nan if dead else delays[1],
                    clk_err_ns=50.0,
                )
            )
        add(self.watch, rows, heard)

    def named(self) -> list[str]:
        return [found.component for found in self.watch.findings()]


@pytest.mark.parametrize(
    ("hurt", "component"),
    [
        (("spine1",), "spine1"),
        (("leaf0->spine0",), "leaf0->spine0"),
        (("leaf0->spine0", "spine0->leaf0"), "leaf0--spine0"),
        (("h3/rail0",), "h3/rail0"),
        (("h3/rail0->leaf1",), "h3/rail0->leaf1"),
        (("leaf3->h6/rail0",), "leaf3->h6/rail0"),
    ],
)
@pytest.mark.parametrize(("share", "seconds"), [(1.0, 1), (0.05, 8)])
def test_a_fault_is_named_by_the_second_it_shows(
    hurt: tuple[str, ...], component: str, share: float, seconds: int
) -> None:
    fabric = Fabric()
    for _ in range(5):
        fabric.second()
    assert fabric.named() == []
    for _ in range(seconds):
        fabric.second(dict.fromkeys(hurt, share))
    assert fabric.named() == [component]


def test_a_fault_that_is_over_is_not_told_for_five_minutes() -> None:
    fabric = Fabric()
    for _ in range(20):
        fabric.second({"spine0": 0.05})
    assert fabric.named() == ["spine0"]
    for _ in range(6):
        fabric.second()
    assert fabric.named() == []


def test_weak_loss_needs_a_long_window() -> None:
    fabric = Fabric()
    for _ in range(100):
        fabric.second({"spine1": 0.004})
    (found,) = fabric.watch.findings()
    assert found.component == "spine1"
    assert int(found.window.removesuffix("s")) >= 10


def test_a_slower_component_is_told_by_its_change() -> None:
    fabric = Fabric()
    for _ in range(25):
        fabric.second()
    assert fabric.named() == []
    for _ in range(10):
        fabric.second(late={"spine0": 50_000.0})
    (found,) = fabric.watch.findings()
    assert (found.component, found.fault, found.loss) == ("spine0", "delay", 0.0)
    assert found.delay_ns == pytest.approx(50_000, rel=0.1)


@pytest.mark.parametrize("slow", ["spine0", "leaf0->spine0", "spine1->leaf2"])
def test_a_delay_between_switches_is_named_after_two_seconds(slow: str) -> None:
    fabric = Fabric()
    for _ in range(25):
        fabric.second()
    fabric.second(late={slow: 50_000.0})
    assert fabric.named() == []
    fabric.second(late={slow: 50_000.0})
    (found,) = fabric.watch.findings()
    assert (found.component, found.fault, found.window) == (slow, "delay", "2s")
    fabric.second()
    assert fabric.named() == []


@pytest.mark.parametrize(
    "late",
    [
        {"h3/rail0": 50_000.0},
        {"h3/rail0->leaf1": 50_000.0},
        {"leaf1->h3/rail0": 50_000.0},
        {"h3/rail0->leaf1": 50_000.0, "leaf1->h3/rail0": -50_000.0},
        {"h3/rail0->leaf1": 50_000.0, "h2/rail0->leaf1": 50_000.0},
    ],
    ids=["a NIC", "sends late", "reads late", "a clock", "both at a leaf"],
)
def test_what_is_late_at_hosts_for_some_seconds_is_not_named(late: dict[str, float]) -> None:
    fabric = Fabric()
    for _ in range(25):
        fabric.second()
    for _ in range(4):
        fabric.second(late=late)
        assert fabric.named() == []


def test_unknown_paths_leave_the_blame_with_a_group() -> None:
    fabric = Fabric()
    truth = fabric.book
    fabric.watch.book = PathBook()
    for flow in fabric.flows:
        for way in (flow, reply(flow)):
            near, far = truth.components(way)[2], truth.components(way)[-3]
            fabric.watch.book.learn(way, [near] if near == far else [near, "*", far])
    for _ in range(4):
        fabric.second({"leaf0->spine0": 0.2})
    found = fabric.watch.findings()
    assert [(each.component, each.kind) for each in found] == [("leaf0..*", "group")]


def test_flows_of_a_replaced_plan_are_forgotten() -> None:
    fabric = Fabric()
    fabric.second()
    gone = [
        flow._replace(sport=flow.sport + 1000 * k) for k in range(1, 4) for flow in fabric.flows
    ]
    nothing = (0, 0, 0, 0, 0, math.nan, math.nan, 0.0)
    add(fabric.watch, [FlowCounts(way, *nothing) for way in gone], {})
    for _ in range(3):
        fabric.second({"spine0": 1.0})
    assert fabric.named() == ["spine0"]


@pytest.mark.parametrize(("gone", "known"), [(552, 1_000), (553, 448)])
def test_flows_are_forgotten_when_twice_as_many_are_known_as_a_plan_has(
    gone: int, known: int
) -> None:
    """… or a thousand, in a small fleet, and more."""
    fabric = Fabric()
    fabric.second()
    nothing = (0, 0, 0, 0, 0, math.nan, math.nan, 0.0)
    old = [FlowCounts(Way(f"g{k}/r", "h0/rail0", 1, 2), *nothing) for k in range(gone)]
    add(fabric.watch, old, {})
    fabric.second()
    assert len(fabric.watch._flows) == known


def test_a_flow_that_is_new_counts_at_once() -> None:
    """Candidates were numbered a moment ago; a plan has grown since."""
    fabric = Fabric()
    all_flows = fabric.flows
    fabric.flows = [flow for flow in all_flows if "h3/rail0" not in flow[:2]]
    for _ in range(3):
        fabric.second()
    assert fabric.named() == []
    fabric.flows = all_flows
    for _ in range(2):
        fabric.second({"h3/rail0": 1.0})
        assert fabric.named() == ["h3/rail0"]


def test_no_flows_no_findings() -> None:
    assert FaultLocator(PathBook()).findings() == ()
    assert FaultLocator(PathBook()).queues() == ()
    young = Fabric()
    young.second(late={"leaf0->spine0": 300_000.0})
    assert young.watch.queues() == (), "nothing is known of its floor"


def settle(fabric: Fabric, seconds: int = 25) -> None:
    for _ in range(seconds):
        fabric.second()
    assert fabric.watch.queues() == ()


@pytest.mark.parametrize("component", ["leaf0->spine0", "spine1->leaf3", "leaf3->h6/rail0"])
@pytest.mark.parametrize("seed", mostly_slow(range(3), [0]))
def test_a_queue_is_named_by_its_link_as_long_as_it_lasts(component: str, seed: int) -> None:
    """A change is over when it has become the rule; a queue is not."""
    fabric = Fabric(seed)
    settle(fabric)
    for seconds in (12, 90):
        for _ in range(seconds):
            fabric.second(late={component: 300_000.0 + fabric.rng.normal(0, 40_000)})
        (found,) = fabric.watch.queues()
        assert (found.component, found.fault) == (component, "queue")
        assert found.delay_ns == pytest.approx(300_000, rel=0.3)
    for _ in range(12):
        fabric.second()
    assert fabric.watch.queues() == ()


def test_a_burst_now_and_then_is_no_congestion() -> None:
    fabric = Fabric()
    settle(fabric)
    for second in range(30):
        fabric.second(late={"leaf0->spine0": 500_000.0} if second % 3 == 0 else None)
    assert fabric.watch.queues() == ()


def test_what_waits_at_a_nic_is_no_queue_of_the_fabric() -> None:
    fabric = Fabric()
    settle(fabric)
    for _ in range(12):
        fabric.second(late={"h3/rail0": 300_000.0})
    assert fabric.watch.queues() == ()


def test_two_queues_are_two() -> None:
    fabric = Fabric()
    settle(fabric)
    for _ in range(12):
        fabric.second(late={"leaf0->spine0": 300_000.0, "spine1->leaf2": 700_000.0})
    found = {each.component for each in fabric.watch.queues()}
    assert found == {"leaf0->spine0", "spine1->leaf2"}


def test_a_nic_answers_until_nothing_of_it_comes() -> None:
    fabric = Fabric()
    fabric.second()
    everyone = {way.dst for way in fabric.flows}
    assert fabric.watch.answering() == everyone
    fabric.second({"h3/rail0": 0.5})
    assert fabric.watch.answering() == everyone
    fabric.second({"h3/rail0": 1.0, "leaf0": 0.1})
    assert fabric.watch.answering() == everyone - {"h3/rail0"}
    fabric.second()
    assert fabric.watch.answering() == everyone
