"""The state machine against a simulated network: faults, delays, lost and wrong events."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import mostly_slow
from tests.traffic.network import World, moves, notes, rail_of, reverse

from syntony.model import MS, S
from syntony.traffic.instructions import Announce, Cause, Create, Destroy, Withdraw
from syntony.traffic.policy import FailoverMode, Policy

NICS = [(host, f"nic{rail}") for host in "ab" for rail in (0, 1)]


def settled(seed: int, **options: object) -> World:
    world = World(seed, **options)  # type: ignore[arg-type]
    world.run(1 * S)
    return world


def rails(world: World, host: str) -> list[int]:
    return sorted(rail_of(flow.local) for flow in world.hosts[host].subflows)


def causes(world: World) -> set[Cause]:
    return {each.reason.cause for each in moves(world) if isinstance(each, Create | Destroy)}


def test_one_subflow_over_every_rail_within_a_millisecond() -> None:
    world = World(1)
    world.run(1 * MS)
    for host in "ab":
        assert rails(world, host) == [0, 1]
    assert len(moves(world)) == 1


def test_quiet_means_nothing_is_done() -> None:
    world = settled(2)
    before = len(moves(world))
    world.run(60 * S)
    assert len(moves(world)) == before


@pytest.mark.parametrize(("host", "nic"), NICS)
def test_carrier_loss_leaves_at_once_and_returns_after_the_hold_down(host: str, nic: str) -> None:
    world = settled(3)
    world.link(host, nic, up=False)
    world.run(2 * MS)
    lost = int(nic[-1])
    for each in "ab":
        assert rails(world, each) == [1 - lost], "both ends know over the living subflow"
    assert causes(world) == {Cause.JOIN, Cause.LOCAL_CARRIER, Cause.PEER}
    world.run(3 * S)
    began_ns = world.now_ns
    world.link(host, nic, up=True)
    world.run(world.policy.hold_down_ns - 1)
    assert not moves(world, began_ns)
    world.run(100 * MS)
    for each in "ab":
        assert rails(world, each) == [0, 1]


@pytest.mark.parametrize("host", ["a", "b"])
def test_an_agent_that_comes_back_finds_its_way_back_to_every_rail(host: str) -> None:
    world = settled(3)
    world.black.add((host, "nic1"))
    world.run(200 * MS)
    assert rails(world, "a") == rails(world, "b") == [0]
    world.black.clear()
    world.run(2 * S)  # both announce, and join, again
    world.black.add((host, "nic1"))
    world.run(200 * MS)
    world.black.clear()
    world.restart(host)
    world.run(5 * S)
    assert rails(world, "a") == rails(world, "b") == [0, 1]


def test_an_announcement_that_nobody_heard_is_made_up_for() -> None:
    """Made before our agent was back: its peer says it again a minute later only."""
    world = settled(3)
    flow = next(each for each in world.living("a") if rail_of(each.local) == 1)
    world._closed(world.hosts["a"], flow)
    world._closed(world.hosts["b"], reverse(flow))
    world.restart("a")
    world.run(3 * S)
    assert rails(world, "a") == rails(world, "b") == [0, 1]


@pytest.mark.parametrize(("host", "nic"), NICS)
def test_a_black_hole_is_left_by_the_word_of_the_probes(host: str, nic: str) -> None:
    world = settled(4)
    world.black.add((host, nic))
    world.run(200 * MS)
    for each in "ab":
        assert rails(world, each) == [1 - int(nic[-1])]
    world.black.clear()
    world.run(3 * S)
    for each in "ab":
        assert rails(world, each) == [0, 1]


def test_a_bad_spine_is_left_by_a_new_port_while_both_rails_stay() -> None:
    for seed in range(4):
        world = settled(seed)
        world.bad_spines.add(1)
        world.run(6 * S)
        assert len(world.living("a")) == 2, f"seed {seed}"
        assert rails(world, "a") == [0, 1], f"seed {seed}"


def test_a_lossy_flow_leaves_a_bad_spine_as_soon_though_the_usual_ports_say_little() -> None:
    """Of two ports watched between two NICs one passes each spine: that is no proof."""
    for seed in range(12):
        world = settled(seed, lossy=True)
        mine = next(flow for flow in world.living("a") if rail_of(flow.local) == 0)
        world.bad_spines.add((mine.local_port + mine.remote_port) % 2)
        world.run(150 * MS)
        assert mine not in world.hosts["a"].subflows, f"seed {seed}"
        world.run(S)
        assert len(world.living("a")) == 2, f"seed {seed}: by now another port is found"


def test_a_rail_whose_watched_ports_all_pass_a_bad_spine_is_joined_over_the_other_one() -> None:
    """Its NICs live, as ports that are asked only then show; the log says that others do not."""
    for seed in range(5):
        world = settled(seed, blind=True)
        began_ns = world.now_ns
        world.bad_spines.add((0, 0))
        world.run(150 * MS)
        assert rails(world, "a") == [1] or len(world.living("a")) == 2, f"seed {seed}"
        world.run(650 * MS)
        assert rails(world, "a") == rails(world, "b") == [0, 1], f"seed {seed}"
        assert len(world.living("a")) == 2, f"seed {seed}"
        reported = [each for each in notes(world, began_ns) if each.action == "create"]
        tried = [each for each in moves(world, began_ns) if isinstance(each, Create) and each.quiet]
        assert 1 <= len(reported) < len(tried), "several are tried at a time, of whom one is told"
        assert {each.reason.cause for each in reported} == {Cause.RETURN}, f"seed {seed}"
        assert all("ports are still silent" in each.reason.evidence for each in reported)
        world.run(5 * S)
        assert len(world.living("a")) == 2, f"seed {seed}: it stays"
        world.bad_spines.clear()
        world.run(5 * S)
        assert len(world.living("a")) == 2, f"seed {seed}"


def test_a_dead_nic_is_not_joined_however_many_ports_are_asked() -> None:
    world = settled(3, blind=True)
    world.black.add(("b", "nic0"))
    world.run(5 * S)
    assert rails(world, "a") == [1]
    tries = [each for each in moves(world) if isinstance(each, Create)]
    assert len(tries) == 1, "the one of the beginning"


@pytest.mark.parametrize("seed", range(4))
def test_what_comes_back_is_told_as_a_return_whoever_saw_it_go(seed: int) -> None:
    """Here nobody but the flow itself, at either end."""
    world = settled(seed)
    world.reported.clear()  # no probe is ever judged
    world.black.add(("b", "nic0"))
    world.run(3 * S)
    assert rails(world, "a") == rails(world, "b") == [1]
    began_ns = world.now_ns
    world.black.clear()
    world.run(6 * S)
    assert rails(world, "a") == rails(world, "b") == [0, 1]
    left = {each.reason.cause for each in moves(world) if isinstance(each, Destroy)}
    made = {each.reason.cause for each in moves(world, began_ns) if isinstance(each, Create)}
    assert Cause.FABRIC in left
    assert made == {Cause.RETURN}


def test_all_paths_dead_is_left_alone() -> None:
    world = settled(5)
    before = len(moves(world))
    world.black |= set(NICS)
    world.run(10 * S)
    kept = sum(len(host.subflows) for host in world.hosts.values())
    assert kept >= 2, "each end keeps a subflow to come back on"
    assert len(moves(world)) - before <= 4
    world.black.clear()
    world.run(10 * S)
    for each in "ab":
        assert rails(world, each) == [0, 1]


@pytest.mark.parametrize("pause_ns", mostly_slow([0, 40 * MS, 3 * S], [40 * MS]))
@pytest.mark.parametrize("black", [False, True])
@pytest.mark.parametrize("mine", [0, 1])
def test_when_no_rail_lives_at_both_ends_it_goes_across_and_comes_back(
    mine: int, black: bool, pause_ns: int
) -> None:
    """Where the second NIC keeps its carrier, its host hears nobody at all, and has given up its
    other NIC already: joins are let in all the same."""
    world = settled(11)
    gone = ("a", f"nic{mine}"), ("b", f"nic{1 - mine}")
    if black:  # the probes are faster than the peer's word
        for host, flow_id in world.reported:
            if host == "b" and flow_id // 10 % 10 == mine:
                world.lie(host, flow_id, alive=False)
        world.run(world.policy.settle_ns + 1 * MS)
    world.link(*gone[0], up=False)
    world.run(pause_ns)
    if black:
        world.black.add(gone[1])
    else:
        world.link(*gone[1], up=False)
    world.run(3 * S)
    (flow,) = world.living("a")
    assert (rail_of(flow.local), rail_of(flow.remote)) == (1 - mine, mine)
    for host, nic in gone:
        world.link(host, nic, up=True)
    world.run(2 * world.policy.hold_down_max_ns)
    assert {(rail_of(f.local), rail_of(f.remote)) for f in world.living("a")} == {(0, 0), (1, 1)}
    assert rails(world, "a") == rails(world, "b") == [0, 1]


def test_one_nic_only_means_hands_off() -> None:
    world = settled(6, rails=1)
    world.black.add(("a", "nic0"))
    world.run(5 * S)
    assert len(world.hosts["a"].subflows) == 1
    assert not [each for each in moves(world) if isinstance(each, Destroy) and each.new]
    assert {note.action for note in notes(world)} == {"keep-last-path"}


def test_observe_only_says_and_does_not() -> None:
    world = settled(7, policy=Policy(mode=FailoverMode.OBSERVE))
    world.link("a", "nic0", up=False)
    world.run(1 * S)
    assert not moves(world)
    assert notes(world)
    assert not any(
        isinstance(each, Announce | Withdraw)
        for host in world.hosts.values()
        for _, each in host.actions
    )


def test_the_stop_switch_stops_and_what_it_held_back_is_done_on_start() -> None:
    world = settled(8)
    before = len(moves(world))
    for host in world.hosts.values():
        world.do(host, host.machine.stop(stopped=True, now_ns=world.now_ns))
    world.link("a", "nic0", up=False)
    world.run(2 * S)
    assert len(moves(world)) == before
    for host in world.hosts.values():
        world.do(host, host.machine.stop(stopped=False, now_ns=world.now_ns))
    world.run(100 * MS)
    assert rails(world, "a") == rails(world, "b") == [1]


def test_a_flapping_nic_is_used_ever_less() -> None:
    world = settled(9)
    for _ in range(30):
        world.link("a", "nic0", up=False)
        world.run(300 * MS)
        world.link("a", "nic0", up=True)
        world.run(1_700 * MS)
    # Held down 1, 2, 4, … s: used at most twice before the hold-down outlasts the flapping.
    created = [each for each in moves(world) if isinstance(each, Create)]
    assert len(created) <= 4
    assert world.living("a")
    world.run(world.policy.hold_down_max_ns + 1 * S)
    assert rails(world, "a") == [0, 1]


def test_no_more_actions_per_second_than_allowed() -> None:
    world = World(10, policy=Policy(mode=FailoverMode.ACT, max_actions_per_s=1))
    world.run(5 * S)
    world.link("a", "nic0", up=False)
    world.run(10 * S)
    for host in world.hosts.values():
        acted = [at for at, each in host.actions if isinstance(each, Create | Destroy)]
        assert all(
            later - earlier > 0.9 * S for earlier, later in zip(acted, acted[2:], strict=False)
        )


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 32))
@example(1059)  # a NIC comes back, nobody hears of it, and then the other one fails
def test_faults_never_cost_the_last_living_path_and_all_comes_back(seed: int) -> None:
    world = settled(seed, event_loss=0.05)
    chance = random.Random(seed)
    for _ in range(6):
        fault = chance.choice(NICS)
        carrier = chance.random() < 0.5
        began_ns = world.now_ns
        if carrier:
            world.link(*fault, up=False)
        else:
            world.black.add(fault)
        for _ in range(20):
            world.run(chance.randrange(1, 100) * MS)
            # The other NIC of the host lives, so the connection must have a way.
            if not (world.hosts["a"].subflows and world.hosts["b"].subflows):
                world.run(1 * S)
            assert world.hosts["a"].subflows, f"seed {seed}"
            assert world.hosts["b"].subflows, f"seed {seed}"
        # Joins in vain among them, when both rails are away at some moment of the two seconds.
        assert len(moves(world, began_ns)) <= 20, f"seed {seed}: moves for one fault"
        world.black.discard(fault)
        if carrier:
            world.link(*fault, up=True)
        world.run(chance.randrange(100, 5_000) * MS)
        if not world.living("a"):
            world.run(1 * S)  # both ends left at once, and events were lost
        assert world.living("a"), f"seed {seed}"
    world.run(2 * world.policy.hold_down_max_ns)
    assert rails(world, "a") == rails(world, "b") == [0, 1], f"seed {seed}"


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_false_news_does_no_harm(seed: int) -> None:
    world = settled(seed)
    chance = random.Random(seed)
    ids = sorted(world.reported)
    for _ in range(100):
        host, flow_id = chance.choice(ids)
        if chance.random() < 0.2:
            world.stall(host, chance.randrange(50) * MS)
        else:
            world.lie(host, flow_id, alive=chance.random() < 0.5)
        world.run(chance.randrange(1, 200) * MS)
        if not world.living("a"):
            # Both ends were lied to within a round trip, each about the way the other kept: they
            # may part for a moment, and find together again.
            world.run(1 * S)
            assert world.living("a"), f"seed {seed}"
    for host, flow_id in ids:
        world.lie(host, flow_id, alive=True)
    world.run(2 * world.policy.hold_down_max_ns)
    assert rails(world, "a") == rails(world, "b") == [0, 1], f"seed {seed}"


@pytest.mark.parametrize("minutes", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_noise_without_a_false_failover(minutes: int) -> None:
    """Stalls of our own, single probed ports that die for a moment, acknowledgements that come
    late: nothing of it is a failure."""
    seed = 20
    world = settled(seed)
    before = len(moves(world))
    chance = random.Random(seed)
    ids = sorted(world.reported)
    while world.now_ns < minutes * 60 * S:
        host, flow_id = chance.choice(ids)
        what = chance.random()
        if what < 0.3:  # one port of a pair, the other lives
            world.lie(host, flow_id, alive=False)
            world.run(chance.randrange(1, 400) * MS)
            world.lie(host, flow_id, alive=True)
        elif what < 0.6:  # everything seems dead, as after a stall; answers come within the grace
            world.stall(host, 40 * MS)
            mine = [each for owner, each in ids if owner == host]
            for each in mine:
                world.lie(host, each, alive=False)
            world.run(chance.randrange(1, 20) * MS)
            for each in mine:
                world.lie(host, each, alive=True)
        world.run(chance.randrange(5_000, 40_000) * MS)
    assert len(moves(world)) == before, f"seed {seed}"
