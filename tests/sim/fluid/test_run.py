"""Runs against what can be said by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from syntony.sim.fluid.clos import LeafSpine, ThreeTier
from syntony.sim.fluid.field import Field
from syntony.sim.fluid.matrix_file import parse_matrix
from syntony.sim.fluid.net import Net
from syntony.sim.fluid.optimum import Optimum, optimum
from syntony.sim.fluid.policies import POLICIES
from syntony.sim.fluid.policies.base import Tools
from syntony.sim.fluid.presets import parse_preset, preset_traffic
from syntony.sim.fluid.run import Finished, FluidRun, RunSettings, Settled, make_policy
from syntony.sim.fluid.scenario import ScenarioResult, damage, simulate
from syntony.sim.fluid.traffic import SimulatedTraffic, check_traffic
from syntony.traffic.fair import Floats, Ints, max_min

PER_BYTE_NS = 8 * 4160 / 4096 / 100  # at 100 Gb/s
SETTINGS = RunSettings(hop_ns=1000)


def round_trip_ns(hops: int, size: float, gbps: float = 100) -> float:
    """Hops both ways, a packet taken in by every switch, and an acknowledgement by every link."""
    packet = min(4160, size * 4160 / 4096)
    return 2000 * hops + 8 * ((hops - 1) * packet + hops * 64) / gbps


NEAR_NS, FAR_NS = round_trip_ns(2, 1e6), round_trip_ns(4, 1e6)


def finish(net: Net, traffic: SimulatedTraffic, policy: str = "d-mod-k") -> Finished:
    field, player = make_policy(policy, net, check_traffic(traffic, net.nics), SETTINGS, Tools())
    return FluidRun(field, player, SETTINGS).run_to_end()


def preset(name: str, net: Net, seed: int = 1, queue_pairs: int = 1) -> SimulatedTraffic:
    return preset_traffic(parse_preset(name), net, np.random.default_rng(seed), queue_pairs)


def ask(
    name: str, net: Net, policy: str, settings: RunSettings = SETTINGS, **tools: bool
) -> ScenarioResult:
    return simulate(net, preset(name, net), policy, settings, Tools(**tools))  # type: ignore[arg-type]


def test_one_flow_takes_its_size_and_a_round_trip() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=1, spines=1)
    done = finish(net, parse_matrix("0->1 id 1 start 7000 size 1000000"))
    assert done.end_ns[0] == pytest.approx(7 + 1e6 * PER_BYTE_NS + FAR_NS)


def test_a_short_flow_leaves_room_for_a_long_one_exactly_when_it_ends() -> None:
    # Both into one NIC: each has half until the short one is done.
    net = LeafSpine(leaves=1, hosts_per_leaf=3, spines=1)
    text = "0->2 id 1 start 0 size 1000000\n1->2 id 2 start 0 size 3000000"
    done = finish(net, parse_matrix(text))
    short, long = 2e6 * PER_BYTE_NS, 4e6 * PER_BYTE_NS
    assert done.end_ns.tolist() == pytest.approx([short + NEAR_NS, long + NEAR_NS])


def test_triggers_start_flows_when_their_kind_says() -> None:
    net = LeafSpine(leaves=1, hosts_per_leaf=8, spines=1)
    text = """0->1 id 1 start 0 size 1000 send_done_trigger 1
2->3 id 2 start 50000000 size 1000 recv_done_trigger 1
4->5 id 3 trigger 1 size 1000
5->6 id 4 trigger 1 size 1000
trigger id 1 """
    flow_ns = 1000 * PER_BYTE_NS
    near_ns = round_trip_ns(2, 1000)
    one, two = flow_ns + near_ns, 50_000 + flow_ns + near_ns - 2000 - 8 * 2 * 64 / 100
    after = {"oneshot": [one, one], "multishot": [one, two], "count 2 barrier": [two, two]}
    for kind, starts in after.items():
        done = finish(net, parse_matrix(text + kind))
        ends = [start + flow_ns + near_ns for start in starts]
        assert done.end_ns[2:].tolist() == pytest.approx(ends), kind


def test_weights_share_a_link_in_proportion() -> None:
    net = LeafSpine(leaves=1, hosts_per_leaf=3, spines=1)
    traffic = parse_matrix("0->2 id 1 start 0 size 1000000\n1->2 id 2 start 0 size 3000000")
    weighted = dataclasses.replace(traffic, weight=np.array([1.0, 3.0]))
    done = finish(net, weighted)
    assert done.end_ns.tolist() == pytest.approx([4e6 * PER_BYTE_NS + NEAR_NS] * 2)


def test_a_slower_cable_is_slower() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=1, spines=1)
    damage(net, [], ["leaf0->spine0=40"], 1)
    done = finish(net, parse_matrix("0->1 id 1 start 0 size 1000000"))
    assert done.end_ns[0] == pytest.approx(
        2.5e6 * PER_BYTE_NS + FAR_NS + 1.5 * 8 * (4160 + 64) / 100
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_every_bit_arrives_under_every_policy_and_a_seed_repeats(policy: str) -> None:
    net = LeafSpine(leaves=4, hosts_per_leaf=4, spines=4)
    traffic = preset("alltoall", net)
    first, again = finish(net, traffic, policy), finish(net, traffic, policy)
    assert (first.end_ns == again.end_ns).all()
    # No NIC sends faster than its line: sixteen rounds or as many as there are peers.
    rounds = traffic.flows / net.nics
    least = rounds * 2e6 * PER_BYTE_NS
    assert first.end_ns.max() >= least


def test_pinned_paths_reproduce_the_packet_level_reference() -> None:
    # 256 hosts, 16 x 16 x 16, 100 Gb/s, 1 us per hop, RoCE with D-mod-K: 1,309 and 2,768 us.
    net = LeafSpine(leaves=16, hosts_per_leaf=16, spines=16)
    for name, reference_us in (("rings-256", 1309), ("alltoall-256", 2768)):
        done = finish(net, preset(name, net))
        assert done.end_ns.max() / 1000 == pytest.approx(reference_us, rel=0.02)


@pytest.mark.parametrize("name", ["rings", "rings-random", "alltoall", "permutation"])
@pytest.mark.parametrize("age", [0, 3])
def test_ours_is_at_the_optimum_with_flows_known_or_not(name: str, age: int) -> None:
    settings = SETTINGS._replace(age=age)
    for known in (True, False):
        net = LeafSpine(leaves=8, hosts_per_leaf=8, spines=8)
        answer = ask(name, net, "syntony", settings, known=known)
        assert answer.settled.share.mean() >= 0.98 * answer.optimum.rate_mean
        assert answer.settled.share.min() >= 0.98 * answer.optimum.rate_min
        assert answer.settled.moves <= len(answer.settled.share)


def test_ours_is_at_the_optimum_in_three_tiers_and_in_planes_with_rails() -> None:
    for net in (
        ThreeTier(pods=4, leaves=4, hosts_per_leaf=4, aggs=4, cores=4),
        LeafSpine(leaves=8, hosts_per_leaf=4, spines=4, rails=4, planes=2),
    ):
        answer = ask("rings-random", net, "syntony")
        # In two planes a flow that could be split would get twice as much.
        assert answer.settled.share.min() >= 0.98 * answer.optimum.pinned_min == 0.98


def test_dead_cables_cost_ours_no_more_than_they_must() -> None:
    net = LeafSpine(leaves=16, hosts_per_leaf=8, spines=8)
    damage(net, ["4"], [], 3)
    answer = ask("rings-random", net, "syntony")
    assert answer.settled.share.mean() >= 0.95 * answer.optimum.rate_mean
    assert answer.settled.share.min() >= 0.95 * answer.optimum.pinned_min


@pytest.mark.slow
def test_very_many_flows_are_placed_by_colouring_and_fare_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = LeafSpine(leaves=8, hosts_per_leaf=8, spines=8)
    by_chains = finish(net, preset("alltoall-random", net), "syntony")
    monkeypatch.setattr("syntony.sim.fluid.policies.steered.MANY", 0)
    answer = ask("alltoall-random", net, "syntony")
    assert answer.settled.share.min() == pytest.approx(1.0)
    coloured = finish(net, preset("alltoall-random", net), "syntony")
    assert coloured.end_ns.max() < 1.15 * by_chains.end_ns.max()


def test_policies_rank_as_theory_says() -> None:
    net = LeafSpine(leaves=16, hosts_per_leaf=16, spines=16)
    means = {
        policy: float(ask("rings-256-random", net, policy).settled.share.mean())
        for policy in ("ecmp", "dlb", "redraw", "load-aware", "central", "spray")
    }
    assert means["ecmp"] < means["dlb"] < means["load-aware"] <= means["central"]
    assert means["redraw"] < means["load-aware"]
    assert means["central"] == means["spray"] == pytest.approx(1.0)


def test_load_aware_moves_settle_below_full_load_and_blind_redraws_do_not_at_full() -> None:
    spare = LeafSpine(leaves=8, hosts_per_leaf=8, spines=10)
    calm = ask("rings-random", spare, "load-aware")
    assert calm.settled.share.min() == pytest.approx(1.0)
    assert calm.settled.moves <= len(calm.settled.share)
    full = LeafSpine(leaves=16, hosts_per_leaf=16, spines=16)
    blind = ask("rings-256-random", full, "redraw")
    assert blind.settled.moves > 5 * len(blind.settled.share)


def test_the_optimum_of_a_fabric_with_two_uplinks_for_three() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=3, spines=2)
    text = "\n".join(f"{k}->{3 + k} id {k + 1} start 0 size 1" for k in range(3))
    traffic = parse_matrix(text)
    field, _ = make_policy("ecmp", net, traffic, SETTINGS, Tools())
    best = optimum(field, traffic.first_wave)
    assert best == pytest.approx((2 / 3, 2 / 3, 0.5))


def test_of_three_flows_two_share_one_of_a_nics_two_ports() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=3, spines=4, planes=2)
    traffic = parse_matrix("\n".join(f"0->{3 + k} start 0 size 1" for k in range(3)))
    field, _ = make_policy("ecmp", net, traffic, SETTINGS, Tools())
    assert optimum(field, traffic.first_wave) == pytest.approx((1.0, 1.0, 0.75))


def test_epochs_and_moves_are_counted() -> None:
    net = LeafSpine(leaves=8, hosts_per_leaf=8, spines=8)
    done = finish(net, preset("rings-random", net), "load-aware")
    assert done.moves > 0
    assert done.epochs == pytest.approx(done.end_ns.max() / SETTINGS.epoch_ns, rel=0.05)
    assert done.events >= done.epochs
    still = finish(net, preset("rings-random", net), "ecmp")
    assert (still.moves, still.epochs) == (0, 0)


def test_rates_are_found_anew_only_when_a_flow_starts_ends_or_moves() -> None:
    net, found = LeafSpine(leaves=2, hosts_per_leaf=1, spines=2), []

    def share(
        links: Ints, capacity: Floats, weight: Floats | None = None, demand: Floats | None = None
    ) -> Floats:
        found.append(len(capacity) == net.links)
        return max_min(links, capacity, weight, demand)

    traffic = check_traffic(parse_matrix("0->1 id 1 start 0 size 100000000"), net.nics)
    field, player = make_policy("load-aware", net, traffic, SETTINGS, Tools(share=share))
    done = FluidRun(field, player, SETTINGS).run_to_end()
    assert done.epochs > 50
    assert sum(found) == 1


def test_an_answer_is_told_in_microseconds_and_parts_of_the_optimum() -> None:
    done = Finished(np.array([1_234_567.8, 2_000_000.0, 3_000_000.7]), 1, 2, 3)
    rest = Settled(np.array([0.5, 0.25, 0.1234567]), np.array([0.2, 0.3]), 2, 7)
    best = Optimum(0.98765432, 0.87654321, 0.76543219)
    assert ScenarioResult(done, rest, best).document() == {
        "completion_max_us": 3000.001, "completion_mean_us": 2078.189, "rate_mean": 0.291152,
        "rate_min": 0.123457, "moves_per_flow": 0.666667, "epochs": 7,
        "optimum": {"rate_mean": 0.987654, "rate_min": 0.876543, "rate_min_unsplit": 0.765432},
    }  # fmt: skip


def test_flows_start_in_order_of_time_whatever_their_order_in_the_file() -> None:
    net = LeafSpine(leaves=1, hosts_per_leaf=2, spines=1)
    starts_ns = np.array([9e6, 3e6, 6e6, 0.0])
    rows = "".join(
        f"0->1 id {k} start {at_ns * 1000:.0f} size 1000000\n" for k, at_ns in enumerate(starts_ns)
    )
    ends_ns = finish(net, parse_matrix(rows)).end_ns
    assert ends_ns - starts_ns == pytest.approx(np.full(4, 1e6 * PER_BYTE_NS + NEAR_NS))


def test_a_flow_has_one_path_unless_it_is_sprayed() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=2, spines=2)
    traffic = check_traffic(parse_matrix("0->2 start 0 size 1\n1->3 start 0 size 1"), net.nics)
    for field, gbps in ((Field(net, traffic), 50), (Field(net, traffic, sprayed=True), 100)):
        field.start(np.arange(2), np.zeros(2, dtype=np.int64))
        field.settle()
        assert field.rate.tolist() == pytest.approx([gbps] * 2)
