"""A peer's agent dies or hangs while one of its rails dies: probes say nothing then, data do."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import pytest
from tests.cases import mostly_slow
from tests.traffic.network import rail_of
from tests.traffic.silent_agents import SilentWorld

from syntony.agent.steering.path_corroboration import _replies
from syntony.io.probe_records import WatchStatus
from syntony.model import MS, S
from syntony.model.paths import LivenessEvent
from syntony.traffic.health import Health
from syntony.traffic.late_peers import BACK_NS
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.policy import Policy

if TYPE_CHECKING:
    from syntony.agent.steering.liveness import LivenessSource


def rails(world: SilentWorld) -> list[list[int]]:
    return [sorted(rail_of(flow.local) for flow in world.living(host)) for host in "ab"]


@pytest.mark.parametrize("seed", mostly_slow(range(80), [13]))
def test_no_healthy_rail_is_left_for_the_silence_of_an_agent(seed: int) -> None:
    """A rail and an agent die within 0.4 s of each other, and come back in any order."""
    draw = random.Random(f"story {seed}")
    count = draw.choice([2, 2, 3, 4])
    world = SilentWorld(seed, third=draw.random() < 0.4, rails=count)
    world.run(3 * S)
    who, killed = draw.choice("ab"), draw.random() < 0.6
    host, rail = draw.choice("ab"), draw.randrange(count)
    after_ns = draw.randrange(-400 * MS, 400 * MS)
    world.at(max(0, -after_ns), lambda: world.gone(who))
    world.at(max(0, after_ns), lambda: world.black_out(host, rail))
    world.run(abs(after_ns) + 1)
    out_ns = draw.choice([800 * MS, 3 * S, 20 * S])
    world.run(draw.randrange(out_ns // 2, out_ns))
    left = not any(map(world.dead, world.hosts["ab".replace(who, "")].subflows))
    returns = [lambda: world.back(who, killed=killed), lambda: world.light(host, rail)]
    draw.shuffle(returns)
    returns[0]()
    world.run(draw.randrange(2 * S))
    returns[1]()
    world.run(12 * S)
    what = f"seed {seed}"
    assert not world.wrong, what
    assert world.blind_ns <= S, what
    assert left or out_ns < S, f"{what}: by the agent that is there, by the word of the data"
    assert rails(world) == [list(range(count))] * 2, what


def test_what_is_still_read_of_a_flow_that_nobody_watches_any_more_is_no_life() -> None:
    """A further port's first answers, read with those that ended the doubt it was asked for."""
    found = health("b", "c")
    found.watch_only(frozenset(found.plan.flows), S)
    more = WatchedFlow(99, "n1", "10.1.1.0", "b/n1", 1)
    found.watch([*found.plan.flows.values(), more])
    found.watch_only(frozenset(found.plan.flows) - {99}, S)
    found.liveness(life(99, S, alive=True))
    for flow_id in (0, 1):
        found.liveness(life(flow_id, 2 * S, alive=False))
    assert found.is_unresponsive("10.0.1.0")
    assert found.decide_deaths(3 * S) == []


class RequestContext:
    """An engine that has begun to ask on one more port."""

    interval_ns = 5 * MS

    def look(self, now_ns: int) -> list[WatchStatus]:
        return [
            WatchStatus(flow_id=flow_id, alive=alive, heard_ns=now_ns, rtt_ns=rtt_ns,
                        suspect=False, unresponsive=False)
            for flow_id, alive, rtt_ns in ((1, True, MS), (2, None, 0), (3, None, MS))
        ]  # fmt: skip


def test_a_port_that_was_never_answered_says_nothing() -> None:
    """The engine tells of it when it began to ask."""
    assert set(_replies(cast("LivenessSource", RequestContext()), S)) == {1, 3}


def health(*hosts: str) -> Health:
    """Two NICs, and two of each peer's."""
    nics = [LocalNic(name=f"n{k}", rail=k, addresses=(f"10.{k}.0.1",)) for k in (0, 1)]
    found = Health(Policy(), nics)
    found.watch([
        WatchedFlow(10 * at + k, f"n{k}", f"10.{k}.1.{at}", f"{host}/n{k}", k)
        for at, host in enumerate(hosts) for k in (0, 1)
    ])  # fmt: skip
    for flow_id in found.plan.flows:
        found.liveness(life(flow_id, 0, alive=True))
    return found


def life(flow_id: int, at_ns: int, *, alive: bool) -> LivenessEvent:
    since_ns = max(0, at_ns - 40 * MS)
    return LivenessEvent(at_ns=at_ns, flow_id=flow_id, alive=alive, since_ns=since_ns, misses=4)


def test_one_peer_that_answers_nowhere_is_not_judged_by_others_that_answer() -> None:
    found = health("b", "c")
    for flow_id in (0, 1):
        found.liveness(life(flow_id, S, alive=False))
    assert found.decide_deaths(2 * S) == []
    assert found.is_unresponsive("10.0.1.0")
    assert not found.is_unresponsive("10.0.1.1")
    found.liveness(life(0, 3 * S, alive=True))
    assert found.decide_deaths(3 * S + BACK_NS - 1) == [], "it has just come back"
    assert found.decide_deaths(3 * S + BACK_NS) == [("n1", "10.1.1.0")]


def test_my_nic_is_dead_whoever_else_is_silent() -> None:
    found = health("b", "c")
    for flow_id in (0, 1, 10):
        found.liveness(life(flow_id, S, alive=False))
    assert set(found.decide_deaths(2 * S)) == {("n0", "10.0.1.0"), ("n0", "10.0.1.1")}
    found.liveness(life(10, 3 * S, alive=True))
    found.decide_deaths(3 * S)
    assert found.dead("n0", "10.0.1.0") is None, "the peer that answers nowhere is in doubt again"


def test_data_that_wait_condemn_a_path_though_its_peer_answers_nowhere() -> None:
    found = health("b", "c")
    for flow_id in (0, 1):
        found.liveness(life(flow_id, S, alive=False))
    found.presume_dead({("n0", "10.0.1.0"): S}, 2 * S)
    assert found.decide_deaths(2 * S) == [("n0", "10.0.1.0")]
