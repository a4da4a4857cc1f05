"""Membership and plans: what changes them, what does not."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import msgspec
import pytest
from tests.link import hello

from syntony.controller.config import ControllerConfig
from syntony.controller.fleet import (
    ABSENCE_NS,
    QUIET_NS,
    RETURN_NS,
    SETTLE_LIMIT_NS,
    SETTLE_NS,
    Fleet,
)
from syntony.controller.server import Controller
from syntony.controller.silent_agents import of_hosts
from syntony.fabric.learn import FIRST_NS, INTERVAL_NS
from syntony.model import NicRef, S
from syntony.model.names import host_of, nic_number
from syntony.wire.messages import Hello
from syntony.wire.probes import Plan

CONFIG = ControllerConfig(listen="", tls_ca="", tls_cert="", tls_key="", mesh_peers=4)


def new_fleet() -> Fleet:
    return Fleet(CONFIG)


def fleet_of(*hosts: str) -> tuple[Fleet, dict[str, Plan]]:
    fleet = new_fleet()
    for host in hosts:
        fleet.join(hello(host, "s"), 0)
    return fleet, fleet.replan(SETTLE_NS).plans


HOSTS = ("h0", "h1", "h2", "h3")


def stamping(host: str, *, reads: bool = True, rdma: str = "roce", clocks: bool = True) -> Hello:
    """Of a host whose RDMA devices stamp."""
    reported = hello(host, "s")
    nics = tuple(
        msgspec.structs.replace(
            nic, rdma=rdma, verbs_clock=f"{host}/{nic.name}:verbs" if clocks else ""
        )
        for nic in reported.nics
    )
    return msgspec.structs.replace(reported, nics=nics, reads_device_stamps=reads)


def allowed(fleet: Fleet, now_ns: int) -> bool:
    """Whether the new plan allows stamps of devices, to all alike."""
    mesh = fleet.replan(now_ns)
    (found,) = {plan.device_stamps for plan in mesh.plans.values()}
    named = any(plan.verbs_clocks for plan in mesh.plans.values())
    nodes = {node for nodes in mesh.clocks.values() for node in nodes}
    assert named == found == any(node.endswith(":verbs") for node in nodes)
    return found


def test_devices_stamp_once_no_agent_is_left_that_cannot_read_that() -> None:
    fleet = new_fleet()
    for host in HOSTS:
        fleet.join(stamping(host), 0)
    assert allowed(fleet, SETTLE_NS)
    # A host without RDMA says nothing of it, and need not.
    fleet.join(stamping("h8", reads=False, rdma="", clocks=False), S)
    assert allowed(fleet, 2 * S)
    fleet.join(stamping("h9", reads=False), 3 * S)
    assert fleet.due(3 * S + SETTLE_NS)
    assert not allowed(fleet, 4 * S)
    fleet.leave("h9", 5 * S)
    assert not fleet.due(5 * S + ABSENCE_NS)
    assert not allowed(fleet, 5 * S + ABSENCE_NS)
    gone_ns = 5 * S + ABSENCE_NS + 1
    assert not fleet.due(gone_ns)
    assert fleet.due(gone_ns + SETTLE_NS)
    assert allowed(fleet, gone_ns + SETTLE_NS)


def test_a_host_that_is_upgraded_asks_for_a_new_plan() -> None:
    """And one that goes back to the version before."""
    fleet = new_fleet()
    for host in HOSTS:
        fleet.join(stamping(host), 0)
    fleet.replan(SETTLE_NS)
    for now_ns, reads in ((10 * S, False), (20 * S, True)):
        fleet.join(stamping("h1", reads=reads), now_ns)
        assert fleet.due(now_ns + SETTLE_NS)
        assert allowed(fleet, now_ns + SETTLE_NS) is reads
        fleet.join(stamping("h1", reads=reads), now_ns + S)
        assert not fleet.due(now_ns + S + SETTLE_LIMIT_NS), "nothing new"


def test_an_agent_that_starts_again_and_again_changes_nothing() -> None:
    """Each time it finds its RDMA ports only after its first message."""
    fleet = new_fleet()
    for host in HOSTS:
        fleet.join(stamping(host, reads=host != "h1"), 0)
    assert not allowed(fleet, SETTLE_NS)
    for second in range(1, 9):
        fleet.leave("h1", second * S)
        rdma = "" if second % 2 else "roce"
        fleet.join(stamping("h1", reads=False, rdma=rdma, clocks=False), second * S)
        assert not allowed(fleet, second * S + SETTLE_NS)


def test_clocks_of_rdma_devices_are_the_fleets_clocks() -> None:
    """Each host is told those of the NICs that it probes over verbs, and of its own."""
    fleet = new_fleet()
    for host in HOSTS:
        fleet.join(stamping(host, clocks=host != "h3"), 0)
    mesh = fleet.replan(SETTLE_NS)
    for host in HOSTS:
        plan = mesh.plans[host]
        assert plan.verbs
        ends = {flow.dst for flow in plan.verbs} | {f"{host}/{flow.src}" for flow in plan.verbs}
        assert plan.verbs_clocks == {
            end: f"{end}:verbs" for end in ends if not end.startswith("h3/")
        }
        nodes = {plan.verbs_clocks.get(end, host_of(end)) for end in ends} | {host}
        assert nodes <= mesh.clocks[host]
    assert fleet.is_clock("h0/rail0:verbs")
    assert not fleet.is_clock("h3/rail0:verbs")
    assert not fleet.is_clock("h0/rail0:other")
    fleet.join(stamping("h0", clocks=False), S)
    assert fleet.is_clock("h0")
    assert not fleet.is_clock("h0/rail0:verbs")


def test_a_host_is_told_of_its_own_clock_where_its_nics_have_others() -> None:
    """Seconds of rows are of the host's clock, whatever stamps packets."""
    fleet = new_fleet()
    for host in HOSTS:
        reported = hello(host, "s")
        nics = [
            msgspec.structs.replace(nic, clock=f"{host}/{nic.name}", verbs_clock=f"{host}/x")
            for nic in reported.nics
        ]
        fleet.join(msgspec.structs.replace(reported, nics=tuple(nics)), 0)
    assert all(host in known for host, known in fleet.replan(SETTLE_NS).clocks.items())


def test_a_plan_that_does_not_change_stays_as_it_is() -> None:
    """It need not be sent again. Others are as if made for the first time."""
    hosts = [f"h{number}" for number in range(60)]
    fleet, before = fleet_of(*hosts)
    fleet.join(hello("new", "s"), S)
    mesh = fleet.replan(2 * S)
    changed = {host for host, plan in mesh.plans.items() if plan is not before.get(host)}
    assert "new" in changed
    assert len(changed) < 20
    numbers = {host: plan.generation for host, plan in mesh.plans.items()}
    assert numbers == {host: 2 if host in changed else 1 for host in mesh.plans}
    fresh = new_fleet()
    fresh._nic_ids = fleet._nic_ids.copy()
    for host in (*hosts, "new"):
        fresh.join(hello(host, "s"), 0)
    for host, plan in fresh.replan(SETTLE_NS).plans.items():
        assert plan == msgspec.structs.replace(mesh.plans[host], generation=1), host
        assert host in changed or plan == before[host]


def test_a_new_plan_is_sent_to_hosts_for_which_it_is_another_one() -> None:
    fleet, sent = new_fleet(), list[tuple[str, int]]()

    def session(host: str) -> SimpleNamespace:
        return SimpleNamespace(
            outbox=SimpleNamespace(put=lambda plan: sent.append((host, plan.generation)))
        )

    controller = object.__new__(Controller)
    controller.__dict__ |= {
        "_fleet": fleet,
        "_state": SimpleNamespace(take_number=lambda _: 0),
        "_owners": SimpleNamespace(save=lambda _: None),
        "_stored_owners": {},
        "_keys": SimpleNamespace(plan=lambda _: None),
        "_sessions": {f"h{number}": session(f"h{number}") for number in range(41)},
    }
    since_ns = time.monotonic_ns() - 60 * S
    for number in range(40):
        fleet.join(hello(f"h{number}", "s"), since_ns)
    asyncio.run(controller._plan())
    assert len(sent) == 40
    sent.clear()
    before = fleet.mesh.plans
    fleet.join(hello("h40", "s"), since_ns)
    asyncio.run(controller._plan())
    changed = [host for host, plan in fleet.mesh.plans.items() if plan is not before.get(host)]
    assert sent == [(host, 2) for host in changed]
    assert "h40" in changed
    assert len(changed) < 20


def test_starting_agents_give_one_plan() -> None:
    fleet = new_fleet()
    for place, host in enumerate(HOSTS):
        fleet.join(hello(host, "s"), place * SETTLE_NS // 2)
        assert not fleet.due(place * SETTLE_NS // 2)
    last = (len(HOSTS) - 1) * SETTLE_NS // 2
    assert not fleet.due(last + SETTLE_NS - 1)
    assert fleet.due(last + SETTLE_NS)
    fleet.replan(last + SETTLE_NS)
    assert not fleet.due(last + SETTLE_NS)


def test_a_sounding_widens_the_plan_and_its_end_narrows_it_again() -> None:
    hosts = [f"h{number}" for number in range(9)]
    fleet, _ = fleet_of(*hosts)
    before = set(fleet.probe_ports())
    pair = next(
        (f"{a}/rail0", f"{b}/rail0") for a in hosts for b in hosts
        if a != b and (f"{a}/rail0", f"{b}/rail0") not in before
    )  # fmt: skip
    now_ns = 10 * S
    fleet.set_extra_pairs(frozenset(), now_ns)
    assert not fleet.due(now_ns + SETTLE_NS), "nothing new"
    fleet.set_extra_pairs(frozenset({pair}), now_ns)
    assert fleet.due(now_ns + SETTLE_NS)
    fleet.replan(now_ns + SETTLE_NS)
    assert set(fleet.probe_ports()) == before | {pair, pair[::-1]}
    fleet.set_extra_pairs(frozenset({pair}), now_ns + S)
    assert not fleet.due(now_ns + 9 * S), "as it was"
    fleet.set_extra_pairs(frozenset(), now_ns + 9 * S)
    fleet.replan(now_ns + 10 * S)
    assert set(fleet.probe_ports()) == before


def test_a_steady_trickle_does_not_put_the_plan_off_for_ever() -> None:
    fleet = new_fleet()
    for tick in range(3 * SETTLE_LIMIT_NS // SETTLE_NS):
        now_ns = tick * SETTLE_NS // 2
        fleet.join(hello(f"h{tick}", "s"), now_ns)
        if fleet.due(now_ns):
            assert now_ns >= SETTLE_LIMIT_NS
            return
    raise AssertionError("never due")


def test_the_first_plan_waits_for_the_hosts_of_the_controller_before() -> None:
    fleet = new_fleet()
    fleet.await_return(HOSTS, 0)
    assert not fleet.due(RETURN_NS - QUIET_NS)
    for host in HOSTS[:3]:
        fleet.join(hello(host, "s"), RETURN_NS - QUIET_NS)
    assert not fleet.due(RETURN_NS - 1)
    now_ns = RETURN_NS - 1
    fleet.join(hello(HOSTS[3], "s"), now_ns)
    assert fleet.due(now_ns), "all are back: nothing more is waited for"
    assert set(fleet.replan(now_ns).plans) == set(HOSTS)
    # Who is awaited once is not awaited again.
    fleet.leave("h1", now_ns)
    fleet.join(hello("h9", "s"), now_ns)
    assert fleet.due(now_ns + SETTLE_NS)


def test_a_host_that_does_not_return_is_not_waited_for_any_longer() -> None:
    """Than it takes the others to return, one after the other."""
    for gap_ns in (0, QUIET_NS // 2, QUIET_NS - 1):
        fleet = new_fleet()
        fleet.await_return((*HOSTS, "h9"), 0)
        for number, host in enumerate(HOSTS):
            assert not fleet.due(number * gap_ns)
            fleet.join(hello(host, "s"), number * gap_ns)
        last_ns = (len(HOSTS) - 1) * gap_ns
        assert not fleet.due(last_ns + QUIET_NS - 1)
        now_ns = last_ns + QUIET_NS
        assert fleet.due(now_ns)
        assert set(fleet.replan(now_ns).plans) == set(HOSTS)
        fleet.join(hello("h5", "s"), now_ns)
        assert fleet.due(now_ns + SETTLE_NS)


def test_a_new_host_is_no_sign_that_the_others_are_back() -> None:
    fleet = new_fleet()
    fleet.await_return(HOSTS, 0)
    fleet.join(hello("h9", "s"), 0)
    assert not fleet.due(RETURN_NS - 1)
    fleet.join(hello(HOSTS[0], "s"), RETURN_NS - S)
    fleet.join(hello("h8", "s"), RETURN_NS - 1)
    assert fleet.due(RETURN_NS), "none is waited for any longer because others come"


def test_hosts_that_return_for_long_are_waited_for_until_the_limit() -> None:
    fleet = new_fleet()
    fleet.await_return([f"h{number}" for number in range(100)], 0)
    for second in range(RETURN_NS // S):
        assert not fleet.due(second * S)
        fleet.join(hello(f"h{second}", "s"), second * S)
    assert fleet.due(RETURN_NS)


def test_a_plan_names_the_addresses_that_are_not_probed() -> None:
    fleet = new_fleet()
    for host in HOSTS[:2]:
        usual = hello(host, "s")
        nics = [
            msgspec.structs.replace(nic, addresses=(*nic.addresses, f"fd00::{host}:{nic.name}"))
            for nic in usual.nics
        ]
        fleet.join(msgspec.structs.replace(usual, nics=tuple(nics)), 0)
    plan = fleet.replan(SETTLE_NS).plans["h0"]
    assert plan.others == {
        flow.dst: (f"fd00::{flow.dst.replace('/', ':')}",) for flow in plan.flows
    }


def test_every_part_of_a_plan_fits_the_others() -> None:
    _, plans = fleet_of(*HOSTS)
    assert set(plans) == set(HOSTS)
    for host, plan in plans.items():
        assert plan.nic_ids == {nic: nic_number(NicRef(host, nic)) for nic in ("rail0", "rail1")}
        for flow in plan.flows:
            target = NicRef.parse(flow.dst)
            theirs = plans[target.host]
            assert theirs.nic_ids[target.nic] == flow.dst_nic_id
            assert theirs.nic_names[plan.nic_ids[flow.src]] == f"{host}/{flow.src}"
            assert plan.clocks[flow.dst] == target.host


def test_each_host_is_told_the_clocks_of_both_directions() -> None:
    fleet, plans = fleet_of(*HOSTS)
    clocks = fleet.mesh.clocks
    for host, plan in plans.items():
        assert host in clocks[host]
        for flow in plan.flows:
            peer = NicRef.parse(flow.dst).host
            assert peer in clocks[host]
            assert host in clocks[peer]


def test_a_short_absence_changes_nothing() -> None:
    fleet, plans = fleet_of(*HOSTS)
    fleet.leave("h1", 10 * S)
    assert not fleet.due(10 * S + ABSENCE_NS)
    fleet.join(hello("h1", "t"), 10 * S + ABSENCE_NS)
    assert not fleet.due(10 * S + ABSENCE_NS + SETTLE_LIMIT_NS)
    assert fleet.mesh.plans == plans


def test_a_long_absence_takes_the_host_out_and_its_return_brings_it_back() -> None:
    fleet, plans = fleet_of(*HOSTS)
    fleet.leave("h1", 0)
    gone_ns = ABSENCE_NS + 1
    assert not fleet.due(gone_ns)
    assert fleet.due(gone_ns + SETTLE_NS)
    assert set(fleet.replan(gone_ns + SETTLE_NS).plans) == {"h0", "h2", "h3"}
    assert not fleet.due(gone_ns + 10 * SETTLE_NS)
    fleet.join(hello("h1", "s"), 2 * ABSENCE_NS)
    assert fleet.due(2 * ABSENCE_NS + SETTLE_NS)
    again = fleet.replan(2 * ABSENCE_NS + SETTLE_NS).plans
    assert {host: plan.flows for host, plan in again.items()} == {
        host: plan.flows for host, plan in plans.items()
    }


def test_a_host_that_is_removed_leaves_the_plan_once_its_stream_has_ended() -> None:
    fleet, _ = fleet_of(*HOSTS)
    assert fleet.remove({"h1", "h9"}, 1 * S) == ()
    assert not fleet.due(1 * S + SETTLE_NS)
    fleet.leave("h1", 2 * S)
    assert fleet.remove({"h1", "h9"}, 3 * S) == ("h1",)
    assert "h1" not in fleet.members
    assert fleet.due(3 * S + SETTLE_NS)
    assert set(fleet.replan(3 * S + SETTLE_NS).plans) == {"h0", "h2", "h3"}
    assert fleet.remove({"h1"}, 4 * S) == ()
    assert not fleet.due(4 * S + SETTLE_NS)
    fleet.join(hello("h1", "t"), 5 * S)
    assert fleet.due(5 * S + SETTLE_NS)


def test_a_host_that_was_removed_owns_no_address_any_more() -> None:
    """Also one that only a previous controller knew."""
    fleet, _ = fleet_of("h0", "h1")
    fleet.owners |= {"10.9.9.9": "old", "10.9.9.8": "other"}
    fleet.leave("h1", S)
    assert fleet.remove({"old", "h1"}, 2 * S) == ("h1",)
    assert set(fleet.owners.values()) == {"h0", "other"}
    assert fleet.due(3 * S)
    fleet.replan(3 * S)
    assert set(fleet.owners.values()) == {"h0", "other"}
    assert fleet.remove({"old", "h1"}, 4 * S) == ()
    assert not fleet.due(5 * S), "nothing has changed"


def test_an_absent_host_whose_address_another_one_has_may_have_been_renamed() -> None:
    fleet, _ = fleet_of("h0", "h1", "h2")
    renamed = msgspec.structs.replace(fleet.members["h1"].hello, host="new")
    assert fleet.heirs() == {}
    fleet.leave("h1", S)
    assert fleet.heirs() == {}
    fleet.join(renamed, 2 * S)
    assert fleet.heirs() == {"h1": "new"}
    (told,) = of_hosts({"h1": 60 * S}, frozenset(), {"h0"}, {}, heirs=fleet.heirs())
    assert told.evidence == ("new has its address now: if it was renamed, syntony enrol revoke h1",)
    fleet.remove(["h1"], 3 * S)
    assert fleet.heirs() == {}


def test_a_changed_nic_asks_for_a_new_plan() -> None:
    fleet, _ = fleet_of(*HOSTS)
    fleet.join(hello("h1", "s", rails=1), 10 * S)
    assert fleet.due(10 * S + SETTLE_NS)
    assert set(fleet.replan(11 * S).plans["h1"].nic_ids) == {"rail0"}


def test_taken_numbers_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syntony.controller.fleet.nic_number", lambda _: 0xFFFFFFFF)
    _, plans = fleet_of(*HOSTS)
    numbers = [number for plan in plans.values() for number in plan.nic_ids.values()]
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6, 7, 0xFFFFFFFF]


def test_a_plans_number_only_grows() -> None:
    """Given by control state; where that lags, or has none, the next."""
    fleet, _ = fleet_of("h0", "h1")
    first = fleet.mesh.generation
    numbers = [fleet.replan(S, given).generation for given in (0, 40, 7, 41, 100)]
    assert numbers == [first + 1, 40, 41, 42, 100]


@pytest.mark.parametrize("hosts", [2, 9, 30, 31, 60])
def test_hosts_that_learn_paths_send_no_more_than_forty_do_later(hosts: int) -> None:
    _, plans = fleet_of(*(f"h{number}" for number in range(hosts)))
    (interval_ns,) = {plan.first_trace_ns for plan in plans.values()}
    assert hosts * S // interval_ns <= max(hosts, 40) * S // INTERVAL_NS
    assert FIRST_NS <= interval_ns <= INTERVAL_NS
    assert (interval_ns < INTERVAL_NS) == (hosts < 31)
    assert interval_ns % FIRST_NS == 0, "few joins change it, and with it the plans of all hosts"
