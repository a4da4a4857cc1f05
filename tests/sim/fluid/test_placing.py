"""Policies that place flows: by edge colouring where it fits, else by chains; limits of size."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from syntony.errors import InputError
from syntony.fabric.files import parse_topology
from syntony.sim.fluid import graph_net, matrix_file
from syntony.sim.fluid.clos import LeafSpine, ThreeTier
from syntony.sim.fluid.field import Field, Telemetry
from syntony.sim.fluid.graph_net import GraphNet
from syntony.sim.fluid.matrix_file import parse_matrix
from syntony.sim.fluid.policies import steered
from syntony.sim.fluid.policies.base import Tools
from syntony.sim.fluid.policies.central import Coloured
from syntony.sim.fluid.policies.steered import Steered
from syntony.sim.fluid.presets import parse_preset, preset_traffic
from syntony.sim.fluid.run import FluidRun, RunSettings, make_policy
from syntony.sim.fluid.scenario import simulate
from syntony.sim.fluid.traffic import SimulatedTraffic, make_traffic

SETTINGS = RunSettings()


def alltoall(net: LeafSpine, seed: int = 1) -> SimulatedTraffic:
    return preset_traffic(parse_preset("alltoall-random"), net, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(3))
def test_beyond_so_many_flows_like_ones_are_coloured_and_none_is_short(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    net = LeafSpine(leaves=4, hosts_per_leaf=4, spines=4)
    traffic = alltoall(net, seed)
    monkeypatch.setattr(steered, "MANY", traffic.flows - 1)
    field, player = make_policy("syntony", net, traffic, SETTINGS, Tools())
    assert isinstance(player, Steered)
    assert player._coloured is not None
    answer = simulate(net, traffic, "syntony", SETTINGS, Tools())
    assert answer.settled.share.min() == pytest.approx(1.0)
    done = FluidRun(field, player, SETTINGS).run_to_end()
    assert np.isfinite(done.end_ns).all()
    for flows, tools in ((traffic.flows, Tools()), (0, Tools(known=False))):
        monkeypatch.setattr(steered, "MANY", flows)
        _, player = make_policy("syntony", net, traffic, SETTINGS, tools)
        assert isinstance(player, Steered)
        assert player._coloured is None


def changed(net: LeafSpine, links: dict[str, float]) -> LeafSpine:
    net.set_links(links)
    return net


TWO_TIERS: dict[str, Any] = {"leaves": 2, "hosts_per_leaf": 2, "spines": 2}


@pytest.mark.parametrize(
    ("net", "traffic", "fits"),
    [
        (LeafSpine(**TWO_TIERS), {}, True),
        (LeafSpine(**TWO_TIERS, planes=2), {}, False),
        (changed(LeafSpine(**TWO_TIERS), {"leaf0--spine0": 0.0}), {}, False),
        (changed(LeafSpine(**TWO_TIERS), {"leaf0->spine0": 40.0}), {}, False),
        (changed(LeafSpine(**TWO_TIERS), {"n0->leaf0": 40.0}), {}, True),
        (ThreeTier(pods=2, leaves=1, hosts_per_leaf=2, aggs=2, cores=1), {}, False),
        (LeafSpine(**TWO_TIERS), {"weight": np.ones(1)}, False),
        (LeafSpine(**TWO_TIERS), {"priority": np.ones(1, dtype=np.int8)}, False),
    ],
)
def test_colouring_is_for_two_tiers_of_equal_links_and_flows_of_one_kind(
    net: LeafSpine, traffic: dict[str, Any], fits: bool
) -> None:
    flows = dataclasses.replace(make_traffic([0], [3], 1e6, [0]), **traffic)
    assert Coloured.fits(Field(net, flows)) is fits


def test_a_higher_class_has_the_better_path_and_flows_under_way_stay() -> None:
    """Two uplinks, one of them slow."""
    net = changed(LeafSpine(leaves=2, hosts_per_leaf=3, spines=2), {"leaf0->spine1": 10.0})
    flows = make_traffic([0, 1, 2], [3, 4, 5], 1e6, [0, 0, 0])
    for best in (1, 2):
        priority = np.array([1, 1, 1], dtype=np.int8)
        priority[best] = 0
        traffic = dataclasses.replace(flows, priority=priority)
        field, player = make_policy("central", net, traffic, SETTINGS, Tools())
        picks = player.start(np.array([1, 2]))
        assert picks[best - 1] == 0, "the wide one"
        assert sorted(picks.tolist()) == [0, 1]
        field.start(np.array([1, 2]), picks)
        player.start(np.array([0]))
        assert field.pick[[1, 2]].tolist() == picks.tolist()


@pytest.mark.parametrize(
    ("part", "queue_ns", "suffers"),
    [(1.0, 0.0, False), (0.9, 9_999.0, False), (0.899, 0.0, True), (1.0, 10_000.0, True)],
)
def test_nobody_is_looked_at_before_any_suffers(
    part: float, queue_ns: float, suffers: bool
) -> None:
    net = LeafSpine(**TWO_TIERS)
    traffic = make_traffic([0, 1], [2, 3], 1e6, [0, 0])
    field, player = make_policy("syntony", net, traffic, SETTINGS, Tools())
    assert isinstance(player, Steered)
    field.start(np.arange(2), np.array([0, 1]))
    field.settle()
    queues = np.zeros(net.links)
    queues[net.link_numbers()["leaf0->spine1"]] = queue_ns
    seen = Telemetry(0.0, field.active.copy(), field.pick.copy(), field.rate * part,
                     np.zeros(net.links), np.zeros(net.links), queues)  # fmt: skip
    assert player._any_suffers(seen) is suffers
    field.end(np.arange(2))
    assert player._any_suffers(seen) is False


# --- limits of size ---


def test_more_flows_than_can_be_held_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_file, "MAX_FLOWS", 2)
    line = "0->1 start 0 size 1\n"
    assert parse_matrix(2 * line).flows == 2
    with pytest.raises(InputError, match="too-large: more than 2 flows"):
        parse_matrix(3 * line)


def test_of_very_many_equal_paths_only_so_many_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["h0/n", "h1/n", "leaf0", "leaf1", *(f"spine{k}" for k in range(9))]
    text = "".join(f'[[device]]\nname = "{name}"\n' for name in names)
    cables = [("h0/n", "leaf0"), ("h1/n", "leaf1")]
    cables += [(leaf, f"spine{k}") for leaf in ("leaf0", "leaf1") for k in range(9)]
    text += "".join(f'[[cable]]\na = "{a}"\nb = "{b}"\n' for a, b in cables)
    ends = np.array([0]), np.array([1])
    assert GraphNet(parse_topology(text)).choices(*ends).tolist() == [9]
    monkeypatch.setattr(graph_net, "MAX_PATHS", 4)
    assert GraphNet(parse_topology(text)).choices(*ends).tolist() == [4]


def test_nics_that_no_switch_joins_have_no_path_and_none_leads_through_another_nic() -> None:
    names = ["h0/n", "h1/n", "h2/n", "leaf0", "leaf1"]
    text = "".join(f'[[device]]\nname = "{name}"\n' for name in names)
    for a, b in (("h0/n", "leaf0"), ("h1/n", "leaf0"), ("h1/n", "leaf1"), ("h2/n", "leaf1")):
        text += f'[[cable]]\na = "{a}"\nb = "{b}"\n'
    net = GraphNet(parse_topology(text))
    assert net.choices(np.array([0, 1]), np.array([1, 2])).tolist() == [1, 1]
    with pytest.raises(InputError, match="disconnected: no path from h0/n to h2/n"):
        net.choices(np.array([0]), np.array([2]))


def test_a_flow_that_has_ended_makes_room_whichever_spine_it_was_on() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=2, spines=2)
    traffic = make_traffic([0, 1] * 4, [2, 3] * 4, 1e6, [0] * 8)
    field, player = make_policy("central", net, traffic, SETTINGS, Tools())
    for wave in np.arange(8).reshape(4, 2):
        picks = player.start(wave)
        assert sorted(picks.tolist()) == [0, 1]
        field.start(wave, picks)
        player.ended(wave)
        field.end(wave)
    assert player.made_room == 0


def test_where_flows_are_not_coloured_they_end_as_well() -> None:
    net = LeafSpine(leaves=2, hosts_per_leaf=2, spines=2, planes=2)
    traffic = make_traffic([0, 1] * 2, [2, 3] * 2, 1e6, [0] * 4)
    field, player = make_policy("central", net, traffic, SETTINGS, Tools())
    for wave in np.arange(4).reshape(2, 2):
        field.start(wave, player.start(wave))
        player.ended(wave)
        field.end(wave)
    assert not len(field.running)


def test_limits_are_of_flows_in_a_file_of_those_that_chains_place_and_of_equal_paths() -> None:
    limits = (matrix_file.MAX_FLOWS, steered.MANY, graph_net.MAX_PATHS)
    assert limits == (10_000_000, 50_000, 1_024)
