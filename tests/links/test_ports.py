"""States as sysfs words them, and the changes that are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.links.machine import SETTLED_NS, PortMachine, PortReading
from syntony.links.ports import (
    REMEDIES,
    PortState,
    Rate,
    ethernet_rate,
    ethernet_state,
    infiniband_rate,
    infiniband_state,
    numbered,
)
from syntony.links.roles import NicFacts, Role, role_of
from syntony.model import S

UP = PortReading(PortState.ACTIVE, Rate(400, 4, "NDR"))


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
        ("400 Gb/sec (4X NDR)", Rate(400, 4, "NDR")),
        ("2.5 Gb/sec (1X)", Rate(2.5, 1, "")),
        ("100 Gb/sec", Rate(100, None, "")),
        ("", None),
        ("N/A", None),
        (None, None),
    ],
)
def test_infiniband_rates(text: str | None, expected: Rate | None) -> None:
    assert infiniband_rate(text) == expected


@pytest.mark.parametrize(("text", "gbps"), [("100000", 100), ("-1", None), ("", None), ("x", None)])
def test_ethernet_rates(text: str, gbps: float | None) -> None:
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
    change = machine.take(1, PortReading(PortState.ACTIVE, Rate(200, 2, "NDR")))
    assert change is not None
    assert change.degraded
    assert "cable" in change.remedy


def test_a_speed_that_cannot_be_read_is_no_news() -> None:
    machine = PortMachine()
    machine.take(0, UP)
    assert machine.take(1, PortReading(PortState.ACTIVE, None)) is None
    assert machine.take(2, UP) is None


NIC = NicFacts("eth0", True, False, False, False, False, 100.0, "mlx5_core")


@pytest.mark.parametrize(
    ("nic", "configured", "role"),
    [
        (NIC._replace(rdma=True), False, Role.COMPUTE),
        (NIC._replace(infiniband=True, rdma=True, default_route=True), False, Role.COMPUTE),
        (NIC._replace(rdma=True, default_route=True), False, Role.FRONTEND),
        (NIC._replace(driver="igb", speed_gbps=1.0), False, Role.MANAGEMENT),
        (NIC._replace(speed_gbps=1.0), False, Role.MANAGEMENT),
        (NIC._replace(driver="cdc_ether", speed_gbps=None), False, Role.MANAGEMENT),
        (NIC._replace(physical=False), False, Role.VIRTUAL),
        (NIC._replace(physical=False), True, Role.COMPUTE),
        (NIC._replace(virtual_function=True, rdma=True), False, Role.VIRTUAL),
        (NIC, False, Role.FRONTEND),
    ],
)
def test_roles(nic: NicFacts, configured: bool, role: Role) -> None:
    assert role_of(nic, configured=configured) is role
