"""What the mover believes of a fabric, quantity by quantity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.traffic.test_place import GBPS, leaf_spine

from syntony.model import S
from syntony.traffic.demand import CandidatePath, Flow
from syntony.traffic.measurements import (
    FreshMeasurements,
    LinkLoad,
    MeasuredRate,
    Measurements,
    PathDelay,
)
from syntony.traffic.model import LEAST_LEFT, Model
from syntony.traffic.moves import MoveCause, MovePolicy
from syntony.traffic.place import place
from syntony.traffic.problem import DEAD

POLICY = MovePolicy()
NOW = 100 * S
FLOWS = leaf_spine([(0, 2), (1, 3)], spines=2, hosts=2)
LINKS = {link: 100 * GBPS for flow in FLOWS for path in flow.paths for link in path.links}
ON_S0 = {"j0": "s0", "j1": "s0"}
UP = "leaf0->spine0"


def model(**capacities: int) -> Model:
    found = Model(tuple(FLOWS))
    found.learn_capacities(Measurements(capacities=LINKS | {k.replace("_", "->"): v
                                                    for k, v in capacities.items()}))  # fmt: skip
    return found


def fresh(seen: Measurements) -> FreshMeasurements:
    return FreshMeasurements(seen, NOW, POLICY.stale_ns)


def nothing(of: Model) -> np.ndarray:
    return np.zeros(len(of.names))


def use(of: Model, paths: dict[str, str] | None = None) -> dict[str, float]:
    found = of.use(of.choice(paths or ON_S0), nothing(of))
    return dict(zip(of.names, found.tolist(), strict=True))


def seen(bps: float, queue_ns: int | None = None, flow: str = "j0") -> Measurements:
    delays = {} if queue_ns is None else {(flow, "s0"): PathDelay(NOW, queue_ns, 0)}
    return Measurements(rates={flow: MeasuredRate(NOW, bps, "s0")}, delays=delays)


def suffering(
    of: Model, what: Measurements, paths: dict[str, str] | None = None
) -> dict[str, MoveCause]:
    found = of.suffering(fresh(what), POLICY, of.choice(paths or ON_S0), nothing(of))
    return {flow: cause for flow, (cause, _) in found.items()}


@pytest.mark.parametrize("capacity", [1, 2, 1_000])
def test_a_link_that_carries_next_to_nothing_is_crowded_and_not_dead(capacity: int) -> None:
    found = model(leaf0_spine0=capacity)
    assert np.isfinite(use(found)[UP])
    assert use(found)[UP] > 1


def test_two_flows_ask_for_twice_a_link_and_a_dead_one_has_no_end() -> None:
    assert use(model())[UP] == 2.0
    assert use(model())["leaf0->spine1"] == 0.0
    found = model(leaf0_spine1=0)
    assert use(found)["leaf0->spine1"] == np.inf
    others = nothing(found)
    others[found.link[UP]] = 50 * GBPS
    requested = found.use(found.choice({"j0": "s0", "j1": ""}), others)
    assert requested[found.link[UP]] == pytest.approx(1.5), "others' traffic counts"


def test_a_flow_that_sends_little_asks_for_less_each_time_and_for_all_once_it_queues() -> None:
    found = model()
    alone = {"j0": "s0", "j1": "s1"}
    for expected in (0.5, 0.25, 0.125):
        assert suffering(found, seen(0.0), alone) == {}
        assert use(found, alone)[UP] == pytest.approx(expected)
    suffering(found, seen(60.0 * GBPS), alone)
    assert use(found, alone)[UP] == pytest.approx(0.75), "a quarter more than it sends"
    suffering(found, seen(90.0 * GBPS), alone)
    assert use(found, alone)[UP] == 1.0, "never more than it could get"
    suffering(found, seen(0.0), alone)
    assert suffering(found, seen(0.0, POLICY.queue_ns), alone) == {"j0": MoveCause.CROWDED}
    assert use(found, alone)[UP] == 1.0


def test_a_flow_of_which_nothing_is_known_keeps_what_it_asked_for() -> None:
    found = model()
    suffering(found, Measurements())
    assert use(found)[UP] == 2.0
    suffering(found, Measurements(rates={"j0": MeasuredRate(NOW - POLICY.stale_ns - 1, 0.0, "s0")}))
    assert use(found)[UP] == 2.0


@pytest.mark.parametrize(
    ("queue_us", "suffers"), [(POLICY.queue_ns - 1, False), (POLICY.queue_ns, True)]
)
def test_who_waits_in_a_queue_suffers(queue_us: int, suffers: bool) -> None:
    found = suffering(model(), Measurements(delays={("j0", "s0"): PathDelay(NOW, queue_us, 0)}))
    assert found == ({"j0": MoveCause.CROWDED} if suffers else {})


def test_why_a_flow_moves_is_told_with_what_was_measured() -> None:
    queue_ns = POLICY.queue_ns + 1_900
    for what, said in ((seen(99.0 * GBPS, queue_ns), f"queues {POLICY.queue_ns // 1000 + 1} µs"),
                       (seen(45.25 * GBPS), "gets 45.2 of 100 Gb/s")):  # fmt: skip
        of = model()
        found = of.suffering(fresh(what), POLICY, of.choice(ON_S0), nothing(of))
        assert {flow: why for flow, (_, why) in found.items()} == {"j0": said}


@pytest.mark.parametrize(
    ("gbps", "paths", "suffers"),
    [(89.0, ON_S0, True), (91.0, ON_S0, False), (89.0, {"j0": "s0", "j1": "s1"}, False)],
)
def test_who_gets_too_little_on_a_crowded_link_suffers(
    gbps: float, paths: dict[str, str], suffers: bool
) -> None:
    assert ("j0" in suffering(model(), seen(gbps * GBPS), paths)) is suffers


@pytest.mark.parametrize(("part", "suffers"), [(0.94, False), (0.95, True)])
def test_a_link_that_is_measured_full_is_crowded(part: float, suffers: bool) -> None:
    what = replace(seen(50.0 * GBPS), loads={UP: LinkLoad(NOW, part * 100 * GBPS)})
    assert ("j0" in suffering(model(), what, {"j0": "s0", "j1": "s1"})) is suffers
    stale = replace(what, loads={UP: LinkLoad(NOW - POLICY.stale_ns - 1, 100.0 * GBPS)})
    assert suffering(model(), stale, {"j0": "s0", "j1": "s1"}) == {}


def test_a_short_delay_acquits_a_slow_flow() -> None:
    assert suffering(model(), seen(10.0 * GBPS, 0)) == {}


def test_a_flow_without_a_path_or_on_a_dead_one_is_to_be_placed() -> None:
    found = model(spine0_leaf1=0)
    assert suffering(found, Measurements(), {"j0": "s0", "j1": ""}) == {
        "j0": MoveCause.DEAD, "j1": MoveCause.UNPLACED
    }  # fmt: skip
    assert not found.alive(found.row("j0", "s0"))
    assert found.alive(found.row("j0", "s1"))
    assert found.row("j0", "nowhere") == DEAD


def background(of: Model, load: float, ours: float = 0.0, at_ns: int = NOW) -> float:
    what = Measurements(
        loads={UP: LinkLoad(at_ns, load * GBPS)},
        rates={
            "j0": MeasuredRate(NOW, ours * GBPS, "s0"),
            "j1": MeasuredRate(NOW, 7.0 * GBPS, "s1"),
        },
    )
    found = of.background(fresh(what), POLICY, of.choice(ON_S0))
    return float(found[of.link[UP]]) / GBPS


def test_others_traffic_is_what_is_measured_less_our_own_and_smoothed() -> None:
    found = model()
    assert background(found, 70.0, 30.0) == pytest.approx(40.0)
    assert background(found, 30.0, 30.0) == pytest.approx(28.0), "a moment without it"
    assert background(found, 30.0, 30.0) == pytest.approx(19.6)
    assert background(model(), 70.0, 30.0, NOW - POLICY.stale_ns - 1) == 0.0


@pytest.mark.parametrize(("load", "counts"), [(4.9, False), (5.1, True)])
def test_a_little_of_others_is_noise(load: float, counts: bool) -> None:
    assert (background(model(), load) > 0) is counts


def test_a_flow_without_a_told_path_counts_where_it_is_believed_to_be() -> None:
    found = model()
    what = Measurements(
        loads={UP: LinkLoad(NOW, 50.0 * GBPS)}, rates={"j0": MeasuredRate(NOW, 20.0 * GBPS)}
    )
    others = found.background(fresh(what), POLICY, found.choice(ON_S0))
    assert others[found.link[UP]] == 30.0 * GBPS


@pytest.mark.parametrize(
    ("before", "after", "worth"),
    [
        ([2.0, 0.0], [1.0, 1.0], True),
        ([1.0, 0.5], [0.95, 0.5], True),
        ([1.0, 0.5], [0.96, 0.5], False),  # nothing was crowded, and little is gained
        ([1.5, 1.5], [1.5, 1.44], True),  # the worst as bad, the whole excess less
        ([1.5, 1.5], [1.5, 1.46], False),
        ([1.0, 1.0], [1.06, 0.5], False),  # the worst is worse
        ([np.inf, 0.5], [0.0, 0.5], True),
    ],
)
def test_a_move_is_worth_it_where_the_worst_link_or_the_excess_is_less(
    before: list[float], after: list[float], worth: bool
) -> None:
    found = model()
    names = [UP, "leaf0->spine1"]
    was, will = nothing(found), nothing(found)
    for name, a, b in zip(names, before, after, strict=True):
        was[found.link[name]], will[found.link[name]] = a, b
    assert found.worth(names, was, will, 0.05) is worth
    assert not found.worth([], was, will, 0.05)
    assert not found.worth(["elsewhere"], was, will, 0.05)


def test_placement_gets_what_others_leave_and_never_less_than_a_little() -> None:
    found = model()
    others = nothing(found)
    others[found.link[UP]] = 30 * GBPS
    others[found.link["leaf0->spine1"]] = 100 * GBPS
    barred_row = found.row("j0", "s1")
    problem = found.to_solve(others, lambda number, row: (number, row) == (0, barred_row))
    capacity = dict(zip(found.names, problem.capacity.tolist(), strict=True))
    assert capacity[UP] == 70 * GBPS
    assert capacity["leaf0->spine1"] == pytest.approx(LEAST_LEFT * 100 * GBPS)
    assert problem.barred is not None
    assert np.flatnonzero(problem.barred).tolist() == [barred_row]


def test_flows_on_links() -> None:
    found = model()
    choice = found.choice({"j0": "s0", "j1": "s1"})
    assert found.on_links([UP], choice) == {"j0"}
    assert found.on_links(["spine1->leaf1", "elsewhere"], choice) == {"j1"}
    assert found.on_links([UP], found.choice({"j0": "", "j1": "s1"})) == set()
    assert found.path(1, found.row("j1", "s1")) == "s1"


def test_where_no_capacity_is_known_all_are_taken_for_the_most_that_was_ever_seen() -> None:
    found = Model(tuple(FLOWS))
    rates = {name: MeasuredRate(NOW, 30.0 * GBPS, "s0") for name in ("j0", "j1")}
    found.learn_capacities(Measurements(rates=rates))
    assert use(found)[UP] == pytest.approx(2.0), "60 Gb/s over one cable: a link is 60"
    found.background(fresh(Measurements()), POLICY, found.choice(ON_S0))
    problem = found.to_solve(nothing(found), lambda *_: False)
    assert set(problem.capacity.tolist()) == {60.0 * GBPS}
    found.learn_capacities(Measurements(loads={UP: LinkLoad(NOW, 80.0 * GBPS)}))
    problem = found.to_solve(nothing(found), lambda *_: False)
    assert set(problem.capacity.tolist()) == {80.0 * GBPS}
    found.learn_capacities(Measurements())
    assert set(found.to_solve(nothing(found), lambda *_: False).capacity.tolist()) == {80.0 * GBPS}


def test_where_nothing_was_ever_seen_links_are_narrow_and_not_dead() -> None:
    found = Model(tuple(FLOWS))
    found.learn_capacities(Measurements())
    found.background(fresh(Measurements()), POLICY, found.choice(ON_S0))
    problem = found.to_solve(nothing(found), lambda *_: False)
    assert set(problem.capacity.tolist()) == {1.0}


def test_a_link_that_changes_its_speed_changes_what_flows_ask_for() -> None:
    found = model()
    alone = {"j0": "s0", "j1": "s1"}
    suffering(found, seen(0.0), alone)
    found.learn_capacities(Measurements(capacities=LINKS | {"h1->leaf0": 40 * GBPS}))
    assert found.ideal_bps == {"j0": 100.0 * GBPS, "j1": 40.0 * GBPS}
    assert use(found, alone) | {} == use(found, alone)
    assert use(found, alone)[UP] == 0.5, "what was learnt of the other is kept"
    assert use(found, alone)["leaf0->spine1"] == 0.4


# --- placement ---


def three_tiers(pairs: list[tuple[int, int]]) -> list[Flow]:
    """Two leaves, two spines at each, two cores at each spine."""
    flows = []
    for number, (src, dst) in enumerate(pairs):
        paths = tuple(
            CandidatePath(f"s{s}c{c}", (f"h{src}->l0", f"l0->s{s}", f"s{s}->c{s}{c}",
                                        f"c{s}{c}->t{s}", f"t{s}->l1", f"l1->h{dst}"))
            for s in (0, 1)
            for c in (0, 1)
        )  # fmt: skip
        flows.append(Flow(f"j{number}", "j", paths))
    return flows


def test_who_is_well_placed_on_three_tiers_stays() -> None:
    flows = three_tiers([(0, 2), (1, 3)])
    for paths in (("s1c1", "s0c0"), ("s1c0", "s0c1"), ("s0c1", "s1c0")):
        placed = [replace(f, path_id=path) for f, path in zip(flows, paths, strict=True)]
        assert place(placed, {}) == dict(zip(("j0", "j1"), paths, strict=True))


def test_who_collides_on_any_of_three_tiers_parts() -> None:
    flows = three_tiers([(0, 2), (1, 3)])
    chosen = place([replace(f, path_id="s1c1") for f in flows], {})
    assert len({path[:2] for path in chosen.values()}) == 2


def test_flows_of_unlike_sizes_change_places_though_no_link_has_room_for_one_more() -> None:
    flows = leaf_spine([(k, 4 * (k + 1)) for k in range(4)], spines=2, hosts=4)
    sizes, paths = (60, 45, 35, 35), ("s0", "s0", "s1", "s1")
    placed = [
        replace(flow, demand_bps=size * GBPS, path_id=path)
        for flow, size, path in zip(flows, sizes, paths, strict=True)
    ]
    links = {link: 100 * GBPS for flow in flows for path in flow.paths for link in path.links}
    chosen = place(placed, links)
    loads = {
        spine: sum(size for size, path in zip(sizes, chosen.values(), strict=True) if path == spine)
        for spine in ("s0", "s1")
    }
    assert max(loads.values()) <= 100
