"""Moves between paths that work, in the simulated network: steps, refusals, faults on the way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.traffic.network import Host, World, moves

from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic.instructions import Cause, Create, Destroy, Instruction, Note, Retire, Withdraw
from syntony.traffic.moving import DRAIN_NS, MoveOrder
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.relocate import GIVE_UP_NS, WARM_NS

PLACED = Policy(mode=FailoverMode.ACT, place=("tr*",))
PORT = PLACED.port_low + 5
JOIN = PLACED.port


def settled(seed: int = 1, policy: Policy = PLACED) -> World:
    world = World(seed, policy=policy)
    world.run(1 * S)
    return world


def on_rail(host: Host, rail: int = 0) -> FourTuple:
    return next(f for f in host.subflows if f.local.split(".")[1] == str(rail))


def order(world: World, **more: Any) -> MoveOrder:
    values = {"move_id": "m1", "token": 7, "port": PORT, "evidence": "spine0 is crowded"}
    return MoveOrder(**{**values, "flow": on_rail(world.hosts["a"]), **more})


def give(world: World, wanted: MoveOrder, to: str = "a") -> None:
    host = world.hosts[to]
    world.do(host, host.machine.move(wanted, world.now_ns))


def outcome(world: World, host: str = "a") -> str:
    reported = world.hosts[host].machine.relocation.outcomes
    return reported[-1].result if reported else ""


def actions(world: World, since_ns: int, host: str = "a") -> list[Instruction]:
    return [each for at_ns, each in world.hosts[host].actions if at_ns >= since_ns]


def test_make_drain_break() -> None:
    world = settled()
    old, began_ns = on_rail(world.hosts["a"]), world.now_ns
    give(world, order(world))
    world.run(20 * MS)
    assert old in world.hosts["a"].subflows, "the old one lives while the new one warms"
    world.run(500 * MS)
    new = old._replace(local_port=PORT, remote_port=JOIN)
    assert new in world.hosts["a"].subflows
    assert old not in world.hosts["a"].subflows
    done = actions(world, began_ns)
    orders = [each for each in done if not isinstance(each, Note)]
    assert [type(each) for each in orders] == [Create, Retire, Destroy]
    create_ns, retire_ns, destroy_ns = (
        at_ns for at_ns, each in world.hosts["a"].actions
        if at_ns >= began_ns and not isinstance(each, Note)
    )  # fmt: skip
    assert retire_ns >= create_ns + WARM_NS, "both carry while the new one's window opens"
    assert destroy_ns >= retire_ns + DRAIN_NS
    assert not [each for each in done if isinstance(each, Withdraw)]
    assert {each.reason.cause for each in done if isinstance(each, Create | Destroy)} == {
        Cause.CONTENTION
    }
    assert outcome(world) == "moved"
    before = len(moves(world))
    world.run(30 * S)
    assert len(moves(world)) == before, "nothing is joined again, and nothing trimmed"


def test_both_rails_of_a_connection_at_once() -> None:
    world = settled()
    for rail in (0, 1):
        flow = on_rail(world.hosts["a"], rail)
        give(world, order(world, move_id=f"m{rail}", flow=flow))
        assert world.living("a")
    world.run(1 * S)
    reported = world.hosts["a"].machine.relocation.outcomes
    assert [each.result for each in reported] == ["moved", "moved"]
    assert {flow.local_port for flow in world.hosts["a"].subflows} == {PORT}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"token": 8}, "no such connection"),
        ({"flow": FourTuple("10.0.0.1", 1, "10.0.0.2", 2)}, "no such subflow"),
    ],
)
def test_an_order_that_does_not_fit_is_refused(change: dict[str, Any], why: str) -> None:
    world = settled()
    before = len(moves(world))
    give(world, order(world, **change))
    world.run(1 * S)
    assert why in outcome(world)
    assert len(moves(world)) == before


def test_the_accepting_end_moves_nothing() -> None:
    world = settled()
    give(world, order(world, flow=on_rail(world.hosts["b"])), to="b")
    assert outcome(world, "b") == "not ours to move"


def test_a_path_that_is_dead_and_kept_for_want_of_another_is_failovers() -> None:
    """Its data have not stalled yet: what is known of its NIC is enough."""
    world = settled()
    for nic in ("nic1", "nic0"):
        world.link("a", nic, up=False)
    (last,) = (f for f, each in world.hosts["a"].machine.connections[7].subflows.items())
    give(world, order(world, flow=last))
    assert outcome(world) == "failover has it in hand"
    assert not world.hosts["a"].machine.relocation.outcomes[-1].tried


@pytest.mark.parametrize(
    "policy",
    [
        Policy(mode=FailoverMode.ACT),
        Policy(mode=FailoverMode.ACT, place=("other-*",)),
        Policy(mode=FailoverMode.OBSERVE, place=("*",)),
    ],
)
def test_only_jobs_that_opted_in_are_moved(policy: Policy) -> None:
    world = settled(policy=policy)
    give(world, order(world))
    assert "not to be moved" in outcome(world)


def test_the_stop_switch_stops_moves() -> None:
    world = settled()
    for host in world.hosts.values():
        world.do(host, host.machine.stop(stopped=True, now_ns=world.now_ns))
    give(world, order(world))
    assert "stopped" in outcome(world)


def test_one_move_of_a_flow_at_a_time_and_no_port_twice() -> None:
    world = settled()
    give(world, order(world))
    give(world, order(world, move_id="m2", port=PORT + 1))
    assert "under way" in outcome(world)
    world.run(1 * S)
    give(world, order(world, move_id="m3"))
    assert "in use" in outcome(world)
    reported = world.hosts["a"].machine.relocation.outcomes
    assert [(each.move_id, each.tried) for each in reported] == [
        ("m2", False), ("m1", True), ("m3", True)
    ], "what is passing says nothing of the path"  # fmt: skip


def test_a_new_path_that_is_dead_leaves_the_old_one_untouched() -> None:
    world = settled()
    old = on_rail(world.hosts["a"])
    # An odd sum of ports is spine 1 in this network.
    port = PORT if (PORT + JOIN) % 2 else PORT + 1
    world.bad_spines = {1}
    give(world, order(world, port=port))
    world.run(GIVE_UP_NS)
    assert "did not come up" in outcome(world)
    if (old.local_port + old.remote_port) % 2 == 0:
        assert old in world.hosts["a"].subflows


def test_a_nic_that_dies_under_a_move_ends_it() -> None:
    world = settled()
    give(world, order(world))
    world.run(40 * MS)
    world.link("a", "nic0", up=False)
    world.run(GIVE_UP_NS)
    assert outcome(world)
    assert world.hosts["a"].machine.connections[7].moving == {}
    assert [f.local.split(".")[1] for f in world.living("a")] == ["1"]


def unconfirmed(*, rate_after: int, confirm: bool) -> World:
    """A move, after which the flow goes at `rate_after` per cent, and silence of the controller."""
    world = settled()
    give(world, order(world))
    world.run(1 * S)
    machine = world.hosts["a"].machine
    conn = machine.connections[7]
    (guard,) = conn.guards.values()
    (new,) = conn.guards
    guard.before_bps = conn.subflows[new].meter.bps * 100 // rate_after
    if confirm:
        machine.confirm(frozenset({"m1"}))
    world.run(PLACED.confirm_ns + 1 * S)
    return world


@pytest.mark.parametrize(
    ("rate_after", "confirm", "reverted"),
    [
        (50, False, True),
        (50, True, False),
        (100, False, False),
        (92, False, False),
        (88, False, True),
    ],
)
def test_dead_man(rate_after: int, confirm: bool, reverted: bool) -> None:
    world = unconfirmed(rate_after=rate_after, confirm=confirm)
    assert (outcome(world) == "reverted") is reverted
    subflows = world.hosts["a"].machine.connections[7].subflows
    assert any(flow.local_port == PORT for flow in subflows) is not reverted
    assert sorted(f.local.split(".")[1] for f in subflows) == ["0", "1"]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    gap_ms=st.integers(0, 300),
    break_ms=st.integers(0, 300),
    nic=st.sampled_from(["nic0", "nic1"]),
    side=st.sampled_from("ab"),
)
def test_whatever_breaks_when_the_connection_lives_and_every_order_ends(
    seed: int, gap_ms: int, break_ms: int, nic: str, side: str
) -> None:
    world = settled(seed)
    give(world, order(world))
    world.run(gap_ms * MS)
    world.link(side, nic, up=False)
    world.run(break_ms * MS + 1)
    world.link(side, nic, up=True)
    for _ in range(10):
        world.run(500 * MS)
    conn = world.hosts["a"].machine.connections[7]
    assert not conn.moving
    assert len(world.hosts["a"].machine.relocation.outcomes) >= 1
    assert sorted(f.local.split(".")[1] for f in world.living("a")) == ["0", "1"]
