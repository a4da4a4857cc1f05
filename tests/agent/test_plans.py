"""Plans as they arrive at an agent: what cannot be carried out is left out, and said."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ports import free_udp_port

from syntony.agent.plans import start_flows, usable
from syntony.errors import MissingError, SyntonyError
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import ProbeNic
from syntony.model import MS
from syntony.wire.probes import Plan, ProbeFlow

GOOD = ProbeFlow(
    flow_id=1, src="lo", dst="h1/rail0", dst_nic_id=9, dst_addr="127.0.0.1", dst_port=8620,
    src_port=61_000, interval_ns=500 * MS,
)  # fmt: skip
PLAN = Plan(generation=1, nic_ids={"lo": 5}, nic_names={}, clocks={}, flows=(GOOD,))


def changed(**changes: object) -> ProbeFlow:
    return msgspec.structs.replace(GOOD, flow_id=2, **changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"src": "eth9"}, "no NIC 'eth9'"),
        ({"dst_addr": "not-an-ip"}, "not an IP address"),
        ({"dst_addr": "fd00::1"}, "is not ipv4"),
        ({"dst_addr": "224.0.0.1"}, "not a unicast"),
        ({"dst_port": 0}, "port 0"),
        ({"src_port": 0}, "source port 0"),
        ({"dst_port": 65_536}, "port 65536"),
        ({"dst_nic_id": 1 << 32}, "NIC number"),
        ({"dscp": 64}, "DSCP"),
        ({"flow_label": 1 << 20}, "flow label"),
        ({"interval_ns": 0}, "interval 0"),
        ({"interval_ns": 1 << 70}, "interval"),
    ],
)
def test_a_flow_that_cannot_be_costs_itself(changes: dict[str, object], reason: str) -> None:
    found = usable(msgspec.structs.replace(PLAN, flows=(GOOD, changed(**changes))), ["lo"], "ipv4")
    assert found is not None
    assert found.plan.flows == (GOOD,)
    (fault,) = found.faults
    assert reason in fault


def test_flows_that_share_a_number_are_left_out_together() -> None:
    twice = msgspec.structs.replace(PLAN, flows=(GOOD, GOOD, changed()))
    found = usable(twice, ["lo"], "ipv4")
    assert found is not None
    assert [flow.flow_id for flow in found.plan.flows] == [2]


@pytest.mark.parametrize("changes", [{"nic_ids": {"lo": 0}}, {"nic_ids": {"lo": 1 << 32}}])
def test_a_plan_that_is_wrong_as_a_whole_is_not_taken(changes: dict[str, object]) -> None:
    assert usable(msgspec.structs.replace(PLAN, **changes), ["lo"], "ipv4") is None


NUMBERS = st.integers(-(1 << 70), 1 << 70) | st.integers(0, 70_000)
FLOWS = st.builds(
    ProbeFlow, flow_id=NUMBERS, src=st.sampled_from(["lo", "eth9"]), dst=st.text(max_size=9),
    dst_nic_id=NUMBERS, dst_addr=st.ip_addresses().map(str) | st.text(max_size=9),
    dst_port=NUMBERS, src_port=st.just(0) | st.integers(50_000, 50_003), flow_label=NUMBERS,
    dscp=NUMBERS, interval_ns=NUMBERS,
)  # fmt: skip


@given(flows=st.lists(FLOWS, max_size=6).map(tuple))
def test_what_is_usable_the_real_engine_takes(flows: tuple[ProbeFlow, ...]) -> None:
    """Nothing that is left may make the engine raise: agents once exited on it, every time."""
    found = usable(msgspec.structs.replace(PLAN, flows=flows), ["lo"], "ipv4")
    assert found is not None
    assert len(found.plan.flows) + len(found.faults) >= len({flow.flow_id for flow in flows})
    _, faults = start_flows(found.plan.flows, _engine().set_flows)
    assert all("in use" in fault for fault in faults)


_ENGINES: list[ProbeEngine] = []


def _engine() -> ProbeEngine:
    if not _ENGINES:
        from syntony.io.clocks import KernelClock

        nic = ProbeNic(
            name="lo", nic_id=5, address="127.0.0.1", port=free_udp_port(), stamping="kernel"
        )
        _ENGINES.append(ProbeEngine([nic], KernelClock("h0")))
    return _ENGINES[0]


def test_a_port_that_is_taken_costs_the_flows_that_need_it() -> None:
    flows = [
        msgspec.structs.replace(GOOD, flow_id=number, src_port=61_000 + number % 3)
        for number in range(9)
    ]
    in_force: list[int] = []

    def engine(wanted: Sequence[ProbeFlow]) -> None:
        if any(flow.src_port == 61_001 for flow in wanted):
            raise MissingError("port 61001 is in use")
        in_force[:] = [flow.flow_id for flow in wanted]

    started, faults = start_flows(flows, engine)
    assert sorted(in_force) == sorted(flow.flow_id for flow in started) == [0, 2, 3, 5, 6, 8]
    assert faults == ("nic=lo port=61001 flows=3 reason=port 61001 is in use",)


def test_errors_that_are_not_of_flows_are_not_swallowed() -> None:
    def broken(_: Sequence[ProbeFlow]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        start_flows([GOOD], broken)
    with pytest.raises(SyntonyError):
        start_flows([], lambda _: (_ for _ in ()).throw(MissingError("closed")))
