"""What each policy does with what it sees, one step at a time, and what there is to be seen."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from syntony.fabric.files import parse_topology
from syntony.sim.fluid.clos import LeafSpine
from syntony.sim.fluid.field import MAX_QUEUE_NS, QUEUE_NS, Field, Telemetry
from syntony.sim.fluid.graph_net import GraphNet
from syntony.sim.fluid.matrix_file import parse_matrix
from syntony.sim.fluid.net import Net
from syntony.sim.fluid.policies import POLICIES
from syntony.sim.fluid.policies.base import PlacingPolicy, Tools, draw
from syntony.sim.fluid.presets import parse_preset, preset_traffic
from syntony.sim.fluid.run import QUIET, RunSettings, make_policy, settle
from syntony.sim.fluid.traffic import make_traffic

EPOCH_NS = 100_000.0
FLOWS, HOSTS, SPINES = 2_000, 20, 4


def many() -> Field:
    """2,000 flows from leaf 0 to leaf 1, those of number 4k + s over spine s."""
    net = LeafSpine(leaves=2, hosts_per_leaf=HOSTS, spines=SPINES)
    traffic = make_traffic((k % HOSTS for k in range(FLOWS)),
                           (HOSTS + k % HOSTS for k in range(FLOWS)), 1e6, [0] * FLOWS)  # fmt: skip
    field = Field(net, traffic)
    field.start(np.arange(FLOWS), np.arange(FLOWS) % SPINES)
    return field


def policy(name: str, field: Field, seed: int = 1) -> PlacingPolicy:
    return POLICIES[name](field, np.random.default_rng(seed), EPOCH_NS, Tools())


def seen(field: Field, *, at_ns: float = 0.0, **links: dict[str, float]) -> Telemetry:
    """Nothing waits and nothing is offered, but on these links."""
    reported = {}
    for what in ("offered", "queue_ns"):
        reported[what] = np.zeros(field.net.links)
        for name, value in links.get(what, {}).items():
            reported[what][field.net.link_numbers()[name]] = value
    return Telemetry(at_ns=at_ns, active=field.active.copy(), pick=field.pick.copy(),
                     rate=field.rate, load=reported["offered"], **reported)  # fmt: skip


@pytest.mark.parametrize(("queue_ns", "part"), [(5_000.0, 0.0), (5_001.0, 0.1), (4e5, 0.1)])
def test_one_in_ten_of_those_that_wait_for_more_than_5_us_draws_again(
    queue_ns: float, part: float
) -> None:
    field = many()
    moves = policy("redraw", field).step(seen(field, queue_ns={"leaf0->spine1": queue_ns}), 0.0)
    assert set((moves.flows % SPINES).tolist()) <= {1}
    assert len(moves.flows) == pytest.approx(part * FLOWS / SPINES, abs=25)
    if part:
        assert set(moves.pick.tolist()) == set(range(SPINES)), "blindly"
    field.end(np.flatnonzero(np.arange(FLOWS) % SPINES == 1))
    reported = seen(field, queue_ns={"leaf0->spine1": queue_ns})
    assert not len(policy("redraw", field).step(reported, 0.0).flows), "who has ended does not move"


@pytest.mark.parametrize(
    ("offered", "age", "part"),
    [(100.0, 0, 0.0), (200.0, 0, 0.25), (400.0, 0, 0.375), (200.0, 1, 0.125), (200.0, 4, 0.05)],
)
def test_half_of_what_is_too_much_for_a_link_leaves_it_and_less_on_older_news(
    offered: float, age: int, part: float
) -> None:
    field = many()
    reported = seen(field, offered={"leaf0->spine1": offered})
    moves = policy("load-aware", field).step(reported, age * EPOCH_NS)
    assert set((moves.flows % SPINES).tolist()) <= {1}
    assert 1 not in moves.pick.tolist()
    assert len(moves.flows) == pytest.approx(part * FLOWS / SPINES, abs=40 if part else 0)


def test_nobody_leaves_for_a_link_that_is_no_better() -> None:
    field = many()
    full = {f"leaf0->spine{s}": 150.0 for s in range(SPINES)}
    assert not len(policy("load-aware", field).step(seen(field, offered=full), 0.0).flows)


def test_switches_send_each_new_flow_where_they_have_the_fewest() -> None:
    field = many()
    field.end(np.arange(FLOWS))
    switches = policy("dlb", field)
    first = np.arange(40)
    field.start(first, switches.start(first))
    assert Counter(field.pick[first].tolist()) == dict.fromkeys(range(SPINES), 10)
    gone = first[field.pick[first] == 2]
    switches.ended(gone)
    field.end(gone)
    more = np.arange(40, 50)
    assert set(switches.start(more).tolist()) == {2}, "ten have left that one"
    assert Counter(switches.start(np.arange(50, 58)).tolist()) == dict.fromkeys(range(SPINES), 2)


def test_a_hash_takes_all_living_paths_alike() -> None:
    field = many()
    drawn = Counter(draw(field, np.arange(FLOWS), np.random.default_rng(3)).tolist())
    assert all(abs(drawn[spine] - FLOWS / SPINES) < 80 for spine in range(SPINES))
    field.net.set_links({"leaf0--spine2": 0.0})
    drawn = Counter(draw(field, np.arange(FLOWS), np.random.default_rng(3)).tolist())
    assert sorted(drawn) == [0, 1, 3]
    assert all(abs(count - FLOWS / 3) < 90 for count in drawn.values())
    assert len(draw(field, np.zeros(0, dtype=np.int64), np.random.default_rng(3))) == 0


# --- what can be seen ---


def three() -> Field:
    """Three NICs into one; one of them over a cable of its own besides."""
    net = LeafSpine(leaves=1, hosts_per_leaf=4, spines=1)
    traffic = parse_matrix("\n".join(f"{k}->3 id {k + 1} start 0 size 1000" for k in range(3)))
    field = Field(net, dataclasses.replace(traffic, weight=np.array([1.0, 1.0, 2.0])))
    field.start(np.arange(3), np.zeros(3, dtype=np.int64))
    field.settle()
    return field


def test_telemetry_is_exact_unless_told_otherwise() -> None:
    field = three()
    reported = field.observe(7.0)
    links = {field.net.link_name(k): k for k in range(field.net.links)}
    assert reported.at_ns == 7.0
    assert reported.rate.tolist() == pytest.approx([25.0, 25.0, 50.0])
    assert reported.load[links["leaf0->n3"]] == pytest.approx(100.0)
    assert reported.load[links["n2->leaf0"]] == pytest.approx(50.0)
    # What they would get if only NICs were in the way: here that is what they get.
    assert reported.offered[links["leaf0->n3"]] == pytest.approx(100.0)
    assert reported.queue_ns.tolist() == [0.0] * field.net.links
    assert reported.active.all()
    field.net.set_links({"leaf0->n3": 50.0})
    field.end(np.array([0]))
    field.settle()
    assert field.observe(8.0).active.tolist() == [False, True, True]
    assert field.observe(8.0).rate.sum() == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("gbps", "queue_ns"),
    [(100.0, 0.0), (80.0, 0.25 * QUEUE_NS), (50.0, QUEUE_NS), (10.0, MAX_QUEUE_NS)],
)
def test_a_queue_stands_in_proportion_to_what_is_too_much(gbps: float, queue_ns: float) -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=1, spines=1)
    net.set_links({"leaf0->spine0": gbps})
    field = Field(net, make_traffic([0], [1], 1e6, [0]))
    field.start(np.array([0]), np.array([0]))
    field.settle()
    reported = field.observe(0.0)
    place = net.link_numbers()["leaf0->spine0"]
    assert reported.queue_ns[place] == pytest.approx(queue_ns)
    assert reported.queue_ns.sum() == reported.queue_ns[place]
    assert reported.delay_ns(field.path(np.array([0]), np.array([0]))) == pytest.approx([queue_ns])


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_measurements_err_by_the_noise(noise: float) -> None:
    field = many()
    field.settle()
    exact = field.observe(0.0)
    noisy = field.observe(0.0, noise, np.random.default_rng(4))
    error = noisy.rate / exact.rate - 1
    assert error.std() == pytest.approx(noise, rel=0.1)
    assert error.mean() == pytest.approx(0, abs=noise / 10)
    assert (noisy.active == exact.active).all()


# --- when a policy has settled ---


@pytest.mark.parametrize("age", [0, 2])
def test_a_policy_that_rests_is_watched_for_a_while_and_not_to_the_end(age: int) -> None:
    net = LeafSpine(leaves=4, hosts_per_leaf=4, spines=5)
    traffic = preset_traffic(parse_preset("rings-random"), net, np.random.default_rng(1))
    settings = RunSettings(age=age)
    field, player = make_policy("load-aware", net, traffic, settings, Tools())
    settled = settle(field, player, settings)
    watched = QUIET + 2 * age + 1
    assert len(settled.history) == 1 + settled.epochs + watched < settings.max_epochs
    assert (settled.history[-watched:] == settled.history[-1]).all()
    still, player = make_policy("ecmp", net, traffic, settings, Tools())
    assert len(settle(still, player, settings).history) == 1
    short = RunSettings(max_epochs=3)
    field, player = make_policy("redraw", net, traffic, short, Tools())
    assert len(settle(field, player, short).history) == 4


# --- line rates of cabled fabrics ---


def test_a_nic_sends_and_receives_by_all_its_cables_and_one_flow_by_the_fastest() -> None:
    cables = [("h2", "leaf0", 40), ("h2", "leaf1", 100), ("h10", "leaf0", 25), ("h10", "leaf1", 0)]
    kinds = {"h2": "host", "h10": "host", "leaf0": "leaf", "leaf1": "leaf"}
    text = "".join(f'[[device]]\nname = "{n}"\nkind = "{k}"\n' for n, k in kinds.items())
    text += "".join(f'[[cable]]\na = "{a}"\nb = "{b}"\ngbps = {g}\n' for a, b, g in cables)
    net: Net = GraphNet(parse_topology(text), gbps=50)
    assert [net.nic_name(k) for k in range(2)] == ["h2", "h10"], "in the order of numbers"
    rates = net.line_rates()
    assert rates.tx.tolist() == rates.rx.tolist() == [140.0, 75.0]
    assert rates.port.tolist() == [100.0, 50.0]
    net.set_links({"leaf1->h2": 10.0})
    rates = net.line_rates()
    assert (rates.tx.tolist(), rates.rx.tolist()) == ([140.0, 75.0], [50.0, 75.0])


def test_whose_spine_is_dead_is_dealt_out_over_the_living_by_its_receivers_place() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=16, spines=4)
    net.set_links({"leaf0--spine0": 0.0})
    traffic = make_traffic(range(16), range(16, 32), 1e6, [0] * 16)
    field = Field(net, traffic)
    picks = policy("d-mod-k", field).start(np.arange(16))
    took = [net.link_name(int(way[1])) for way in field.path(np.arange(16), picks)]
    over = [1, 1, 2, 3, 2, 1, 2, 3, 3, 1, 2, 3, 1, 1, 2, 3]
    assert took == [f"leaf0->spine{spine}" for spine in over]
