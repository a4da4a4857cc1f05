"""States as sysfs words them, and the changes that are reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.links.ledger import SETTLED_NS, PortMachine, PortReading
from syntony.links.ports import (
    REMEDIES,
    LinkRate,
    PortState,
    ethernet_rate,
    ethernet_state,
    infiniband_rate,
    infiniband_state,
    numbered,
)
from syntony.links.roles import LinkRole, NicFacts, role_of
from syntony.model import S

UP = PortReading(PortState.ACTIVE, LinkRate(400, 4, "NDR"))


@pytest.mark.parametrize(
    ("state", "phys", "expected"),
    [
        ("4: ACTIVE", "5: LinkUp", PortState.ACTIVE),
        ("4: ACTIVE", "N/A (no PMA)", PortState.ACTIVE),
        ("1: DOWN", "2: Polling", PortState.NO_PEER),
        ("1: DOWN", "3: Disabled", PortState.DISABLED),
        ("1: DOWN", "4: PortConfigurationTraining", PortState.TRAINING),
        ("2: INIT", "5: LinkUp", PortState.NO_SUBNET_MANAGER),
        ("3: ARMED", "5: LinkUp", PortState.NO_SUBNET_MANAGER),
        ("1: DOWN", "6: LinkErrorRecovery", PortState.RECOVERING),
        ("1: DOWN", "1: Sleep", PortState.DISABLED),
        ("1: DOWN", "7: Phy Test", PortState.TRAINING),
        ("1: DOWN", "5: LinkUp", PortState.NO_PEER),
        ("2: INIT", None, PortState.NO_SUBNET_MANAGER),
        ("1: DOWN", None, PortState.NO_PEER),
        (None, None, PortState.UNKNOWN),
        ("", "garbage", PortState.UNKNOWN),
        ("9: NOVEL", "5: LinkUp", PortState.UNKNOWN),
    ],
)
def test_infiniband_states(state: str | None, phys: str | None, expected: PortState) -> None:
    assert infiniband_state(state, phys) is expected


@pytest.mark.parametrize(
    ("admin_up", "carrier", "expected"),
    [
        (True, True, PortState.ACTIVE),
        (True, False, PortState.NO_PEER),
        (False, None, PortState.DISABLED),
        (True, None, PortState.UNKNOWN),
        (None, True, PortState.UNKNOWN),
    ],
)
def test_ethernet_states(admin_up: bool | None, carrier: bool | None, expected: PortState) -> None:
    assert ethernet_state(admin_up=admin_up, carrier=carrier) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("400 Gb/sec (4X NDR)", LinkRate(400, 4, "NDR")),
        ("2.5 Gb/sec (1X)", LinkRate(2.5, 1, "")),
        ("100 Gb/sec", LinkRate(100, None, "")),
        ("200 Gb/sec (4x hdr)", LinkRate(200, 4, "HDR")),
        ("", None),
        ("N/A", None),
        (None, None),
    ],
)
def test_infiniband_rates(text: str | None, expected: LinkRate | None) -> None:
    assert infiniband_rate(text) == expected


@pytest.mark.parametrize(("text", "gbps"),
    [("100000", 100), ("2500", 2.5), ("-1", None), ("0", None), ("", None), ("x", None),
     (None, None)],
)  # fmt: skip
def test_ethernet_rates(text: str | None, gbps: float | None) -> None:
    rate = ethernet_rate(text)
    assert (rate.gbps if rate else None) == gbps


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    numbered(text), infiniband_rate(text), ethernet_rate(text), infiniband_state(text, text)


def test_every_state_has_a_remedy() -> None:
    assert all(REMEDIES[state] for state in PortState if state is not PortState.ACTIVE)


def test_a_healthy_boot_is_told_once() -> None:
    machine = PortMachine()
    states = (PortState.NO_PEER, PortState.TRAINING, PortState.NO_SUBNET_MANAGER)
    changes = [
        machine.take(at * S // 2, PortReading(state, None)) for at, state in enumerate(states)
    ]
    assert changes == [None, None, None]
    change = machine.take(2 * S, UP)
    assert change is not None
    assert (change.before, change.after) == (PortState.NO_PEER, PortState.ACTIVE)


def test_a_port_stuck_in_training_is_told() -> None:
    machine = PortMachine()
    machine.take(0, UP)
    stuck = PortReading(PortState.TRAINING, None)
    assert machine.take(1, stuck) is None
    change = machine.take(1 + SETTLED_NS, stuck)
    assert change is not None
    assert change.remedy == REMEDIES[PortState.TRAINING]


def test_lost_lanes_are_told_as_degraded() -> None:
    machine = PortMachine()
    machine.take(0, UP)
    change = machine.take(1, PortReading(PortState.ACTIVE, LinkRate(200, 2, "NDR")))
    assert change is not None
    assert "cable" in change.remedy
    back = machine.take(2, UP)
    assert back is not None
    assert (back.rate_before, back.rate_after) == (LinkRate(200, 2, "NDR"), UP.rate)
    assert not back.remedy


def test_a_speed_that_cannot_be_read_is_no_news() -> None:
    machine = PortMachine()
    machine.take(0, UP)
    assert machine.take(1, PortReading(PortState.ACTIVE, None)) is None
    assert machine.take(2, UP) is None


def test_a_link_that_comes_back_with_an_unreadable_speed_is_told_without_one() -> None:
    machine = PortMachine()
    machine.take(0, UP)
    down = machine.take(1, PortReading(PortState.NO_PEER, UP.rate))
    assert down is not None
    assert (down.at_ns, down.rate_before) == (1, UP.rate)
    back = machine.take(2, PortReading(PortState.ACTIVE, None))
    assert back is not None
    assert (back.after, back.rate_after, back.remedy) == (PortState.ACTIVE, None, "")
    slower = machine.take(3, PortReading(PortState.ACTIVE, LinkRate(200, 2, "NDR")))
    assert slower is not None, "the known speed is kept to compare with"
    assert slower.rate_before == UP.rate
    assert "lanes were lost" in slower.remedy


def reported(machine: PortMachine) -> PortState:
    return machine.state


def test_a_step_on_the_way_up_is_told_only_when_it_holds() -> None:
    """A link that goes from one step to the next, or begins one anew, is still on its way."""
    machine = PortMachine()
    assert reported(machine) is PortState.UNKNOWN
    machine.take(0, PortReading(PortState.NO_PEER, None))
    steps = [PortState.TRAINING, PortState.RECOVERING, PortState.NO_SUBNET_MANAGER] * 4
    for at, state in enumerate(steps, start=1):
        assert machine.take(at * (SETTLED_NS - 1), PortReading(state, None)) is None
        assert reported(machine) is PortState.NO_PEER
    since_ns = len(steps) * (SETTLED_NS - 1)
    last = PortReading(steps[-1], None)
    assert machine.take(since_ns + SETTLED_NS - 1, last) is None
    change = machine.take(since_ns + SETTLED_NS, last)
    assert change is not None
    assert (change.before, change.after) == (PortState.NO_PEER, PortState.NO_SUBNET_MANAGER)
    assert reported(machine) is PortState.NO_SUBNET_MANAGER
    assert machine.take(since_ns + 2 * SETTLED_NS, last) is None
    assert SETTLED_NS == 3 * S


NIC = NicFacts("eth0", True, False, False, False, False, 100.0, "mlx5_core")


@pytest.mark.parametrize(
    ("nic", "configured", "role"),
    [
        (NIC._replace(rdma=True), False, LinkRole.COMPUTE),
        (NIC._replace(infiniband=True, rdma=True, default_route=True), False, LinkRole.COMPUTE),
        (NIC._replace(rdma=True, default_route=True), False, LinkRole.FRONTEND),
        (NIC._replace(driver="igb", speed_gbps=1.0), False, LinkRole.MANAGEMENT),
        (NIC._replace(speed_gbps=1.0), False, LinkRole.MANAGEMENT),
        (NIC._replace(driver="cdc_ether", speed_gbps=None), False, LinkRole.MANAGEMENT),
        (NIC._replace(physical=False), False, LinkRole.VIRTUAL),
        (NIC._replace(physical=False), True, LinkRole.COMPUTE),
        (NIC._replace(virtual_function=True, rdma=True), False, LinkRole.VIRTUAL),
        (NIC, False, LinkRole.FRONTEND),
        (NIC._replace(speed_gbps=10.0), False, LinkRole.MANAGEMENT),
        (NIC._replace(speed_gbps=10.0, rdma=True), False, LinkRole.COMPUTE),
        (NIC._replace(speed_gbps=25.0), False, LinkRole.FRONTEND),
        (NIC._replace(speed_gbps=None), False, LinkRole.FRONTEND),
        (NIC._replace(speed_gbps=1.0, default_route=True), False, LinkRole.FRONTEND),
        (NIC._replace(rdma=True, default_route=None), False, LinkRole.COMPUTE),
    ],
)
def test_roles(nic: NicFacts, configured: bool, role: LinkRole) -> None:
    assert role_of(nic, configured=configured) is role
