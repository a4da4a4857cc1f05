"""Losses on paths that the map does not know yet are not put on the paths before."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from tests.fabric.flow_rows import FlowCounts, add
from tests.fabric.test_fault_locator import PER_SECOND, Fabric

from syntony.fabric import staleness
from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.endings import AGAIN_S, BURSTS, Endings, ended
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.sums import FINE_S, WindowSums
from syntony.model import S
from syntony.model.findings import Finding


def test_a_part_that_loses_alike_singles_out_no_flow() -> None:
    seed = random.randrange(100_000)
    print(f"seed {seed}")
    rng, wrong = np.random.default_rng(seed), 0
    for _ in range(300):
        sent = rng.integers(0, 40, rng.integers(2, 200))
        share = np.exp(rng.uniform(np.log(0.001), np.log(0.99)))
        wrong += staleness.singles_out(sent, rng.binomial(sent, share))
    assert wrong <= 2


def test_flows_that_lose_among_others_that_do_not_are_singled_out() -> None:
    seed = random.randrange(100_000)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(100):
        flows = int(rng.integers(12, 200))
        sent = rng.integers(4, 40, flows)
        lossy = rng.permutation(flows) < rng.integers(3, flows // 2)
        assert staleness.singles_out(sent, np.where(lossy, sent, 0))


@pytest.mark.parametrize("lost", [(0, 0, 0), (9, 9, 9), (3, 2, 4)])
def test_nothing_all_or_much_alike_singles_out_no_flow(lost: tuple[int, ...]) -> None:
    assert not staleness.singles_out(np.full(3, 9), np.array(lost))


def test_flows_that_sent_nothing_prove_nothing() -> None:
    sent, lost = np.array([4] * 6 + [0] * 1_000), np.array([4] * 3 + [0] * 1_003)
    assert staleness.singles_out(sent, lost)
    assert not staleness.singles_out(sent, np.minimum(sent, 1))


@pytest.mark.parametrize(
    ("turned", "paths", "turning"),
    [(0, 0, False), (2, 4, False), (3, 4, True), (9, 1_000, False), (10, 1_000, True)],
)
def test_routes_change_where_several_paths_turn(turned: int, paths: int, turning: bool) -> None:
    assert staleness.is_turning(turned, paths) is turning


def moved(fabric: Fabric, flows: list[Way], lossy: bool) -> None:
    """A second in which these flows lose everything, or nothing, wherever they go."""
    rows, heard = [], dict[tuple[str, str], int]()
    gone = {*flows} if lossy else set()
    for flow in fabric.flows:
        came = 0 if flow in gone else PER_SECOND
        pair = (flow.src, flow.dst)
        heard[pair] = heard.get(pair, 0) + came
        rows.append(
            FlowCounts(
                way=flow, sent=PER_SECOND, lost=0, sent_back=came, lost_back=0,
                unresolved=PER_SECOND - came, delay_ns=20_000.0, delay_back_ns=20_000.0,
                clk_err_ns=50.0,
            )
        )  # fmt: skip
    add(fabric.watch, rows, heard)


def one_of_each(fabric: Fabric, flows: list[Way]) -> int:
    """A second in which each of these flows loses one probe; how many do."""
    rows = [
        FlowCounts(
            way=flow, sent=PER_SECOND, lost=0, sent_back=PER_SECOND, lost_back=int(flow in flows),
            unresolved=0, delay_ns=20_000.0, delay_back_ns=20_000.0, clk_err_ns=50.0,
        )
        for flow in fabric.flows
    ]  # fmt: skip
    heard = Counter({(flow.src, flow.dst): 0 for flow in fabric.flows})
    for flow in fabric.flows:
        heard[flow.src, flow.dst] += PER_SECOND
    add(fabric.watch, rows, heard)
    return len(flows)


def most_over_a_spine(fabric: Fabric) -> list[Way]:
    """Four fifths of the flows over one: more than what localisation takes for odd ones."""
    across = [flow for flow in fabric.flows if "spine0" in fabric.book.components(flow)]
    return [flow for place, flow in enumerate(across) if place % 5]


def test_flows_that_went_elsewhere_do_not_blame_where_they_were() -> None:
    fabric = Fabric()
    gone = most_over_a_spine(fabric)
    for _ in range(8):
        moved(fabric, gone, lossy=False)
    for _ in range(staleness.HOLD_S - 1):
        moved(fabric, gone, lossy=True)
        assert fabric.named() == []
    for flow in gone:
        near, _, far = [part for part in fabric.book.components(flow)[1:-1] if "->" not in part]
        fabric.book.learn(flow, [near, "spine1", far], 1)
    for _ in range(20):
        moved(fabric, gone, lossy=False)
        assert fabric.named() == []


class Rerouted(Fabric):
    """Every third path over one link out of leaf0 has moved to another one since it was traced."""

    def __init__(self) -> None:
        super().__init__()
        over = [way for flow in self.flows for way in (flow, reply(flow))]
        over = [way for way in over if "leaf0->spine1" in self.book.components(way)]
        self.gone = frozenset(over[::3])

    def _crossed(self, way: Way) -> tuple[str, ...]:
        known = super()._crossed(way)
        return (
            tuple(name.replace("spine1", "spine0") for name in known) if way in self.gone else known
        )


def test_flows_that_came_to_a_black_hole_do_not_blame_where_they_were() -> None:
    """No trace passes it."""
    fabric = Rerouted()
    for _ in range(8):
        fabric.second()
    named = []
    for _ in range(staleness.HOLD_S + 3):
        fabric.second({"leaf0->spine0": 1.0})
        named.append(fabric.named())
    assert named[-1] == ["leaf0->spine0"]
    assert not any("leaf0->spine1" in each for each in named)


def test_two_links_of_a_switch_that_drop_single_flows_are_both_named() -> None:
    fabric = Fabric(parallel=2)
    for _ in range(8):
        fabric.second()
    named: list[str] = []
    for _ in range(staleness.HOLD_S + 3):
        fabric.second({"leaf0->spine0#0": 1.0, "leaf0->spine1#0": 1.0})
        named = fabric.named()
    assert sorted(named) == ["leaf0->spine0", "leaf0->spine1"]


@pytest.mark.parametrize("beside", [{"leaf0->spine0": 0.05}, {"leaf1->spine0": 1.0}])
def test_a_link_that_drops_single_flows_is_named_beside(beside: dict[str, float]) -> None:
    """… one that loses a share of its packets, and one of another switch."""
    fabric = Fabric(parallel=2)
    for _ in range(8):
        fabric.second()
    named: list[str] = []
    for _ in range(staleness.HOLD_S + 6):
        fabric.second({"leaf0->spine1#0": 1.0, **beside})
        named = fabric.named()
    assert sorted(named) == sorted(["leaf0->spine1", *beside])


def test_what_flows_lost_long_before_does_not_hide_that_some_are_singled_out() -> None:
    """Every flow loses a probe by chance; seconds later most of a spine's go elsewhere."""
    fabric = Fabric()
    gone = most_over_a_spine(fabric)
    by_chance, lost = 20, 0
    for second in range(by_chance):
        lost += one_of_each(fabric, fabric.flows[second::by_chance])
        assert fabric.named() == []
    assert lost == len(fabric.flows)
    for _ in range(staleness.HOLD_S):
        moved(fabric, gone, lossy=False)
    for _ in range(staleness.HOLD_S - 1):
        moved(fabric, gone, lossy=True)
        assert fabric.named() == []


def test_a_switch_that_goes_on_dropping_single_flows_is_named() -> None:
    fabric = Fabric()
    hit = most_over_a_spine(fabric)
    for _ in range(8):
        moved(fabric, hit, lossy=False)
    named = []
    for _ in range(staleness.HOLD_S + 1):
        moved(fabric, hit, lossy=True)
        named.append(fabric.named())
    assert named == [[]] * staleness.HOLD_S + [["spine0"]]


def test_what_is_named_stays_named_while_routes_change() -> None:
    fabric = Fabric()
    for second in range(20):
        fabric.second({"leaf0->spine0": 0.2})
        named = fabric.named()
        if second >= 10:
            assert named == ["leaf0->spine0"], second
            elsewhere = [f for f in fabric.flows if "leaf2" in fabric.book.components(f)]
            for flow in fabric.rng.choice(len(elsewhere), 9):
                way = elsewhere[int(flow)]
                hops = [part for part in fabric.book.components(way) if "-" not in part][1:-1]
                spine = f"spine{fabric.rng.integers(2)}"
                fabric.book.learn(way, [hops[0], spine, hops[-1]] if len(hops) > 1 else hops, 1)


# --- what is forgotten ---


def test_a_path_turned_when_another_device_answers() -> None:
    book, way = PathBook(), Way("h0/rail0", "h1/rail0", 61_000, 8620)
    for at_ns, hops, turned in (
        (1, ["leaf0", "*", "leaf1"], False),
        (2, ["leaf0", "spine0", "leaf1"], False),
        (3, ["leaf0", "*", "leaf1"], False),
        (4, ["leaf0", "spine1", "leaf1"], True),
        (5, ["leaf0", "spine1"], False),
        (3, ["leaf0", "spine0", "leaf1"], False),
        (6, ["leaf0", "spine0"], True),
    ):
        book.learn(way, hops, at_ns)
        assert book.turned() == ({way: at_ns} if turned else {}), hops


@pytest.mark.parametrize("seconds", [1, 3, 7])
@pytest.mark.parametrize("backwards", [False, True])
def test_counts_from_before_a_path_turned_are_forgotten(seconds: int, backwards: bool) -> None:
    """Of all flows of the pair, of seconds before and of those that are taken up later."""
    book = PathBook()
    watch = FaultLocator(book)
    flows = [
        Way("h0/rail0", dst, 61_000 + port, 8620)
        for dst in ("h1/rail0", "h2/rail0") for port in range(2)
    ]  # fmt: skip
    way = reply(flows[0]) if backwards else flows[0]
    book.learn(way, ["leaf0", "spine0", "leaf1"])

    def second(number: int) -> list[int]:
        rows = [FlowCounts(flow, 5, 0, 5, 0, 0, 1.0, 1.0, 1.0) for flow in flows]
        add(watch, rows, {}, number * S)
        windows = watch._history.windows(len(flows))
        return [int(window.counts[0, :2].sum()) for window in windows[-1:]]

    for number in range(1, 9):
        assert second(number) == [10 * number]
    book.learn(way, ["leaf0", "spine1", "leaf1"], (9 + seconds) * S - 1)
    for number in range(9, 9 + seconds):
        assert second(number) == [0]
    assert second(9 + seconds) == [0]
    assert second(10 + seconds) == [10]
    assert [int(n) for n in watch._history.windows(4)[-1].counts[0]][2:] == [5 * (10 + seconds)] * 2


@pytest.mark.parametrize("keep", [0, 1, 5, 99])
def test_sums_keep_the_newest_seconds_of_a_column(keep: int) -> None:
    sums = WindowSums(1)
    added = min(FINE_S, 37)
    for number in range(added):
        sums.add(np.array([[number, number]]))
    sums.forget(np.array([True, False]), keep)
    kept = sum(range(max(0, added - keep), added))
    assert [total.tolist() for _, total in sums.windows()][-1] == [[kept, sum(range(added))]]


@pytest.mark.parametrize(
    ("sent", "lost", "since"),
    [
        ([100] * 10, [0] * 10, None),
        ([100] * 10, [0, 0, 0, 90, 0, 0, 0, 0, 0, 0], 6),
        ([100] * 10, [0, 0, 0, 100, 100, 100, 0, 0, 0, 0], 4),
        ([100] * 10, [0, 0, 0, 90, 0, 0, 0, 0, 0, 1], None),
        ([100] * 10, [1, 0, 0, 1, 0, 0, 0, 1, 0, 0], None),
        ([100] * 60, [1] + [0] * 59, 59),
        ([100] * 10, [0] * 9 + [100], None),
        ([100] * 9 + [0], [0] * 8 + [100, 0], None),
    ],
)
def test_a_burst_is_over_when_it_cannot_go_on(
    sent: list[int], lost: list[int], since: int | None
) -> None:
    assert ended(np.array(sent), np.array(lost)) == since


def finding(component: str) -> Finding:
    return Finding(
        component=component, kind="link", fault="loss", loss=0.5, delay_ns=0.0, window="1s",
        explains=9.0, paths=4, confidence=1.0, alternatives=(), probabilities=(), twins=0,
    )  # fmt: skip


def test_a_third_burst_in_one_place_is_of_a_fault_that_comes_and_goes() -> None:
    endings = Endings()
    here, there = finding("leaf0->spine0"), finding("leaf1->spine0")
    for number in range(BURSTS):
        assert endings.burst(here, 10 * number)
    assert not endings.burst(here, AGAIN_S - 1)
    assert endings.burst(there, AGAIN_S - 1)
    assert endings.burst(here, AGAIN_S), "the first was long ago"
    assert not endings.burst(here, AGAIN_S + 1)


@pytest.mark.parametrize(
    ("hidden", "link", "rival"),
    [
        (True, "leaf0->spine1", "leaf0..*"),
        (False, "leaf0->spine1", ""),
        (True, "h0/rail0->leaf0", ""),
    ],
)
def test_beside_a_silent_switch_a_loss_of_some_flows_may_be_there(
    hidden: bool, link: str, rival: str
) -> None:
    """Half of the flows of a link moved to a spine that answers no traces, and lose all there; or
    the link is a NIC's, which no flow can leave."""
    fabric = Fabric()
    over = [Way("h0/rail0", f"h{peer}/rail0", 62_000, 8620) for peer in range(2, 8)]
    for second in (0, 30, 60) if hidden else ():
        for way in over:
            fabric.book.learn(way, ["leaf0", "*", f"leaf{int(way.dst[1]) // 2}"], second * S)
    for _ in range(5):
        fabric.second()
    across = [flow for flow in fabric.flows if link in fabric.book.components(flow)]
    found: list[Finding] = []
    for second in range(12):
        moved(fabric, across[::2], lossy=True)
        found = [each for each in fabric.watch.findings() if each.kind == "link"]
        assert not (second < staleness.HOLD_S - 1 and found)
    assert [each.component for each in found] == [link]
    assert found[0].alternatives == ((rival,) if rival else ())
