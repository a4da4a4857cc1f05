"""Verdicts and readings of back-end ports and of software, on hosts on paper, from both sides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.audit.paper import (
    DENIED,
    PaperHost,
    Text,
    check,
    port,
    readings,
    verdicts,
    worst,
)

from syntony.audit.checks.pcie_config import nearness
from syntony.links.ports import PortState
from syntony.links.snapshot import PortSnapshot
from syntony.model.names import natural

CLASS = "/sys/class/infiniband"
P0, P1 = f"{CLASS}/mlx5_0/ports/1", f"{CLASS}/mlx5_1/ports/1"
NET = "/sys/class/net"
IB0 = port(netdev="ib0")
ETH0 = port("mlx5_0:1", "Ethernet", netdev="eth0")
ETH1 = port("mlx5_1:1", "Ethernet", netdev="eth1")
DARK = PortState.NO_PEER
AT = "mlx5_0:1"

Case = tuple[tuple[PortSnapshot, ...], Mapping[str, Text], set[str]]


def said(name: str, *cases: Case) -> list[Any]:
    return [pytest.param(name, *case, id=f"{name}-{number}") for number, case in enumerate(cases)]


BACK_END = [
    *said(
        "be.act.state",
        ((port(),), {f"{P0}/lid": "0x1", f"{P0}/sm_lid": "0x2"}, set()),
        ((port(),), {f"{P0}/lid": "0x0", f"{P0}/sm_lid": "0x2"}, {f"fail {AT}"}),
        ((port(),), {f"{P0}/lid": "0x1", f"{P0}/sm_lid": "0"}, {f"fail {AT}"}),
        ((port(),), {f"{P0}/lid": "text"}, set()),
        ((port(state=DARK),), {}, {f"fail {AT}"}),
        ((port(state=PortState.UNKNOWN),), {}, {f"unknown {AT}"}),
        ((port(state=PortState.NO_SUBNET_MANAGER),), {f"{P0}/lid": "0"}, {f"fail {AT}"}),
        ((ETH0,), {f"{NET}/eth0/operstate": "up"}, set()),
        ((ETH0,), {f"{NET}/eth0/operstate": "down"}, {f"fail {AT}"}),
        ((ETH0,), {}, {f"unknown {AT}"}),
        ((IB0,), {f"{NET}/ib0/operstate": "down", f"{NET}/ib0/flags": "0x1002"}, set()),
        ((IB0,), {f"{NET}/ib0/operstate": "down", f"{NET}/ib0/flags": "0x1003"}, {f"fail {AT}"}),
        ((IB0, port("mlx5_1:1", netdev="ib1"), port("mlx5_2:1", netdev="ib2")),
         {f"{NET}/ib0/operstate": "down", f"{NET}/ib1/operstate": "up",
          f"{NET}/ib2/operstate": "up"}, {f"fail {AT}"}),
        ((IB0, port("mlx5_1:1", netdev="ib1")),
         {f"{NET}/ib0/operstate": "down", f"{NET}/ib1/operstate": "up"}, set()),
        ((), {f"{P0}/x": ""}, {"unknown"}),
    ),
    *said(
        "be.act.rate",
        ((port(),), {f"{P0}/rate": "400 Gb/sec (4X NDR)"}, set()),
        ((port(lanes=3),), {f"{P0}/rate": "300"}, {f"fail {AT}"}),
        ((port(lanes=8),), {f"{P0}/rate": "800"}, set()),
        ((port(lanes=None),), {f"{P0}/rate": "400"}, set()),
        ((port(layer="Ethernet", lanes=1),), {f"{P0}/rate": "100"}, set()),
        ((port(),), {}, {f"unknown {AT}"}),
        ((port(lanes=0),), {f"{P0}/rate": "viel"}, {f"unknown {AT}"}),
        ((port(state=DARK),), {f"{P0}/rate": "10"}, {f"skip {AT}"}),
        ((port(state=PortState.DISABLED),), {f"{P0}/rate": "10"}, {f"skip {AT}"}),
        ((port(state=PortState.TRAINING, lanes=1),), {f"{P0}/rate": "10"}, {f"fail {AT}"}),
    ),
    *said(
        "be.act.mtu",
        ((ETH0,), {f"{NET}/eth0/mtu": "4200"}, set()),
        ((ETH0,), {f"{NET}/eth0/mtu": "4199"}, {f"fail {AT}"}),
        ((IB0,), {f"{NET}/ib0/mtu": "2044"}, set()),
        ((IB0,), {f"{NET}/ib0/mtu": "x"}, {f"unknown {AT}"}), ((IB0,), {}, {f"unknown {AT}"}),
        ((port(),), {}, {"skip"}),
    ),
    *said(
        "be.act.pkey",
        ((port(),), {f"{P0}/pkeys/0": "0xffff", f"{P0}/pkeys/1": "0x0000"}, set()),
        ((port(),), {f"{P0}/pkeys/0": "0x8001"}, set()),
        ((port(),), {f"{P0}/pkeys/0": "0x7fff"}, {f"fail {AT}"}),
        ((port(),), {}, {f"unknown {AT}"}), ((ETH0,), {}, {"skip"}),
    ),
    *said(
        "be.act.flap",
        ((port(counters={"net:carrier_down_count": 0}),), {"/proc/uptime": "9 9"}, set()),
        ((port(counters={"net:carrier_down_count": 1}),), {"/proc/uptime": "9 9"}, {f"warn {AT}"}),
        ((port(counters={"net:carrier_down_count": 5}),), {"/proc/uptime": "9 9"}, {f"fail {AT}"}),
        ((port(counters={"net:carrier_down_count": 9}),), {"/proc/uptime": "172800 9"},
         {f"warn {AT}"}),
        ((port(counters={"net:carrier_down_count": 10}),), {"/proc/uptime": "172800 9"},
         {f"fail {AT}"}),
        ((port(counters={"net:carrier_down_count": 255}),), {"/proc/uptime": "172800000 9"},
         {f"warn {AT}"}),
        ((port(counters={"ib/counters:link_downed": 255}),), {"/proc/uptime": "172800000 9"},
         {f"fail {AT}"}),
        ((port(counters={"ib/counters:link_downed": 254}),), {"/proc/uptime": "172800000 9"},
         {f"warn {AT}"}),
        ((port(counters={"net:carrier_down_count": None}),), {"/proc/uptime": "9 9"},
         {f"unknown {AT}"}),
        ((port(),), {"/proc/uptime": "9 9"}, {f"unknown {AT}"}),
    ),
    *said(
        "be.act.homog",
        ((port(), port("mlx5_1:1")), {f"{CLASS}/mlx5_0/board_id": "A",
                                      f"{CLASS}/mlx5_1/board_id": "A"}, set()),
        ((port(), port("mlx5_1:1"), port("mlx5_2:1", state=DARK)),
         {f"{CLASS}/mlx5_{k}/board_id": "A" for k in range(3)}, {"fail A"}),
        ((port(), port("mlx5_1:1", state=DARK)),
         {f"{CLASS}/mlx5_{k}/board_id": f"{k}" for k in range(2)}, {"skip 0", "skip 1"}),
        # Of two cards nobody can say which is right, nor of two against two: the dark port is named
        # by itself.
        ((port(), port("mlx5_1:1", state=DARK)),
         {f"{CLASS}/mlx5_{k}/board_id": "A" for k in range(2)}, {"skip A"}),
        (tuple(port(f"mlx5_{k}:1", state=DARK if k % 2 else PortState.ACTIVE) for k in range(4)),
         {f"{CLASS}/mlx5_{k}/board_id": "A" for k in range(4)}, {"skip A"}),
    ),
    *said(
        "be.init.phys",
        ((port(),), {}, set()), ((port(state=PortState.NO_SUBNET_MANAGER),), {}, set()),
        ((port(state=DARK),), {}, {f"fail {AT}"}),
        ((port(state=PortState.TRAINING),), {}, {f"fail {AT}"}),
        ((port(state=PortState.UNKNOWN),), {}, {f"unknown {AT}"}),
    ),
    *said(
        "be.act.counters",
        ((port(counters={"ib/counters:symbol_error": 65_534}),), {}, {f"unknown {AT}"}),
        ((port(counters={"ib/counters:symbol_error": 65_535}),), {},
         {f"warn {AT}", f"unknown {AT}"}),
        ((port(counters={"ib/counters:excessive_buffer_overrun_errors": 15}),), {},
         {f"unknown {AT}"}),
        ((port(counters={"ib/counters:link_downed": 255}),), {}, {f"warn {AT}", f"unknown {AT}"}),
        ((port(counters={"ib/counters:link_downed": 254}),), {}, {f"unknown {AT}"}),
        ((port(counters={"other": 1}),), {}, {f"unknown {AT}"}),
    ),
    *said(
        "be.gid.ib",
        ((port(), port("mlx5_1:1")), {f"{P0}/lid": "0x1", f"{P1}/lid": "0x2"}, set()),
        ((port(), port("mlx5_1:1")), {f"{P0}/lid": "0x1", f"{P1}/lid": "0x1"}, {"fail lid"}),
        ((port(), port("mlx5_1:1", state=DARK)), {f"{P0}/lid": "0x1", f"{P1}/lid": "0x1"}, set()),
        ((port(),), {f"{P0}/lid": "lid"}, {f"unknown {AT}"}),
        ((port(state=DARK),), {}, {"unknown"}), ((ETH0,), {}, {"skip"}),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ports", "files", "bad"), BACK_END)
def test_a_ports_verdict_changes_where_the_check_says(
    name: str, ports: tuple[PortSnapshot, ...], files: Mapping[str, Text], bad: set[str]
) -> None:
    host = PaperHost(files, ports=ports)
    assert worst(name, host) == bad, verdicts(name, host)


STILL_HEALTHY = {
    "ib/counters:local_link_integrity_errors": 0, "ib/counters:link_error_recovery": 0,
    "ib/counters:excessive_buffer_overrun_errors": 0, "ib/hw_counters:rnr_nak_retry_err": 0,
    "ib/counters:port_rcv_errors": 30, "ib/hw_counters:out_of_sequence": 30,
    "ib/hw_counters:packet_seq_err": 30, "ib/hw_counters:roce_slow_restart": 30,
}  # fmt: skip
"""In three seconds; of link recoveries five a minute, which is less than one."""


@pytest.mark.parametrize(
    ("counter", "before", "after", "bad"),
    [
        ("ib/counters:symbol_error", 5, 35, set()),
        ("ib/counters:symbol_error", 5, 36, {f"fail {AT}"}),
        ("ib/counters:link_downed", 5, 5, set()),
        ("ib/counters:link_downed", 5, 6, {f"fail {AT}"}),
        ("ib/counters:symbol_error", 900, 5, set()),
        ("ib/counters:port_xmit_discards", 0, 300, set()),
        ("ib/counters:port_xmit_discards", 0, 301, {f"fail {AT}"}),
        ("ib/hw_counters:local_ack_timeout_err", 0, 3, set()),
        ("ib/hw_counters:local_ack_timeout_err", 0, 4, {f"fail {AT}"}),
        ("ib/counters:symbol_error", 5, None, set()),
        *(
            (name, 7, 7 + in_three_seconds + more, {f"fail {AT}"} if more else set())
            for name, in_three_seconds in STILL_HEALTHY.items()
            for more in (0, 1)
        ),
    ],
)
def test_a_counter_that_grows_faster_than_its_limit_in_three_seconds(
    counter: str, before: int, after: int | None, bad: set[str]
) -> None:
    later = PaperHost(ports=[port(counters={counter: after})])
    host = PaperHost(ports=[port(counters={counter: before})], later=later)
    assert worst("be.act.counters", host) == bad


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("Raw Physical BER : 9.9E-8\nSymbol BER : 4E-15\nTemperature [C] : 69", set()),
        ("Raw Physical BER : 1E-7", {f"fail {AT}"}), ("Symbol BER : 5E-15", {f"warn {AT}"}),
        ("Symbol BER : 9.9E-15", {f"warn {AT}"}), ("Symbol BER : 1E-14", {f"fail {AT}"}),
        ("Symbol BER : 0\nTemperature [C] : 70", {f"warn {AT}"}),
        ("Temperature [C] : 20", {f"unknown {AT}"}), ("Raw Physical BER : 1E-7.5", {f"fail {AT}"}),
    ],
)  # fmt: skip
def test_bit_errors_and_optics(text: str, bad: set[str]) -> None:
    mlxlink: dict[str, Text] = {"mlxlink -d mlx5_0 -p 1 -c -e -m": text}
    assert worst("be.act.ber", PaperHost(commands=mlxlink, ports=[port()])) == bad
    assert worst("be.act.ber", PaperHost(ports=[port()])) == {"skip"}
    other = PaperHost(commands=mlxlink, ports=[port("irdma0:1")])
    assert worst("be.act.ber", other) == {"skip irdma0:1"}


@pytest.mark.parametrize(
    ("reported", "bad"),
    [
        ({"prio-pfc": {"3": True, "4": False}}, set()),
        ({"prio-pfc": {}}, set()),
        ({"prio-pfc": {"3": True, "4": True}}, {f"fail {AT}"}),
        ({"prio_pfc": [0, 1, 0, "on"]}, {f"fail {AT}"}),
        ({"prio_pfc": [0, 1, 0, "off"]}, set()),
        ({}, {f"unknown {AT}"}),
        ([], {f"unknown {AT}"}),
        (None, {f"unknown {AT}"}),
    ],
)
def test_one_lossless_priority(reported: Any, bad: set[str]) -> None:
    commands: dict[str, Text] = {"dcb -j pfc show dev eth0": json.dumps(reported)}
    assert worst("be.act.qos", PaperHost(commands=commands, ports=[ETH0])) == bad
    assert worst("be.act.qos", PaperHost(commands=commands, ports=[port()])) == {"skip"}


def test_what_is_read_of_queues_is_what_to_compare() -> None:
    enable = f"{NET}/eth0/ecn/roce_np/enable"
    files = {f"{enable}/3": "1", f"{enable}/4": "0", f"{CLASS}/mlx5_0/tc/1/traffic_class": "106"}
    commands: dict[str, Text] = {
        "dcb -j pfc show dev eth0": '{"prio-pfc": {"3": true}}',
        "dcb -j app show dev eth0": '{"dscp_prio": {"26": 3}}',
    }
    host = PaperHost(files, commands, [ETH0])
    assert {key: value for (key, _), value in readings("be.act.qos", host).items()} == {
        "be.qos.pfc": "3", "be.qos.ecn": "3", "be.qos.class": "106", "be.qos.trust": "dscp",
    }  # fmt: skip


# --- GIDs and addresses ---

V4 = "0000:0000:0000:0000:0000:ffff:0a00:000{}"


def gids(*entries: tuple[int, str, str], at: str = P0) -> dict[str, Text]:
    """Index, address, type."""
    found: dict[str, Text] = {}
    for place, address, kind in entries:
        found |= {f"{at}/gids/{place}": address, f"{at}/gid_attrs/types/{place}": kind}
    return found


USUAL = ((0, "fe80::1", "IB/RoCE v1"), (1, "fe80::1", "RoCE v2"), (2, V4.format(1), "IB/RoCE v1"),
         (3, V4.format(1), "RoCE v2"))  # fmt: skip


def test_rates_are_compared_among_cards_of_one_board() -> None:
    """Two kinds of card in one host may have two rates; without a board the layer tells them."""
    ports = [port(), port("mlx5_1:1"), port("mlx5_2:1", "Ethernet")]
    files = {f"{CLASS}/mlx5_{k}/ports/1/rate": f"{k} Gb/sec" for k in range(3)}
    files |= {f"{CLASS}/mlx5_0/board_id": "A", f"{CLASS}/mlx5_1/board_id": "B"}
    assert set(readings("be.act.rate", PaperHost(files, ports=ports))) == {
        ("be.act.rate", "A"), ("be.act.rate", "B"), ("be.act.rate", "Ethernet"),
    }  # fmt: skip


def test_an_entry_is_told_as_people_write_addresses() -> None:
    for entries, said in (
        (USUAL, "index 3: 10.0.0.1 (RoCE v2)"),
        (((0, "2001:db8::1", "IB/RoCE v1"),), "index 0: 2001:db8::1 (RoCE v1)"),
        (((0, "::", "RoCE v2"),), "an unset entry"),
    ):
        assert verdicts("be.gid.table", PaperHost(gids(*entries), ports=[ETH0]))[0][2] == said


@pytest.mark.parametrize(
    ("entries", "environment", "bad"),
    [
        (USUAL, "", set()), (USUAL[:3], "", {f"fail {AT}"}), (USUAL[:2], "", {f"fail {AT}"}),
        ((), "", {f"unknown {AT}"}), (((3, V4.format(1), ""),), "", {f"unknown {AT}"}),
        (((0, "2001:db8::1", "RoCE v2"),), "", {f"fail {AT}"}),
        (((0, "2001:db8::1", "RoCE v2"),), "NCCL_IB_ADDR_FAMILY=AF_INET6", set()),
        (((0, "fe80::1", "RoCE v2"),), "NCCL_IB_ADDR_FAMILY=AF_INET6", {f"fail {AT}"}),
        (((0, "::", "RoCE v2"),), "", {f"fail {AT}"}),
    ],
)  # fmt: skip
def test_an_entry_that_nccl_can_use(
    entries: tuple[tuple[int, str, str], ...], environment: str, bad: set[str]
) -> None:
    files = {**gids(*entries), "/etc/environment": environment}
    assert worst("be.gid.table", PaperHost(files, ports=[ETH0])) == bad
    dark = port("mlx5_0:1", "Ethernet", DARK, netdev="eth0")
    assert worst("be.gid.table", PaperHost(files, ports=[dark])) == {f"skip {AT}"}
    assert worst("be.gid.table", PaperHost(files, ports=[port()])) == {"skip"}


@pytest.mark.parametrize(
    ("environment", "bad", "evidence"),
    [
        ("", {"skip"}, ""), ("NCCL_IB_GID_INDEX=3", set(), "place 3, family 4, version 2"),
        ("NCCL_IB_GID_INDEX=2", {f"fail {AT}"}, "place 2"),
        ("NCCL_IB_GID_INDEX=1", {f"fail {AT}"}, ""),
        ("NCCL_IB_GID_INDEX=9", {f"fail {AT}"}, ""), ("NCCL_DEBUG=WARN", {"skip"}, ""),
        ("NCCL_IB_ADDR_RANGE=10.0.0.0/8", set(), "range 10.0.0.0/8"),
    ],
)  # fmt: skip
def test_what_the_environment_leads_to(environment: str, bad: set[str], evidence: str) -> None:
    host = PaperHost({**gids(*USUAL), "/etc/nccl.conf": environment}, ports=[ETH0])
    assert worst("be.gid.v2", host) == bad
    assert any(evidence in each.evidence for each in check("be.gid.v2").test(host))
    unset = [each.evidence for each in check("be.gid.v2").test(host) if "None" in each.evidence]
    assert unset == [], "what is not set is not told"
    denied = PaperHost({**gids(*USUAL), "/etc/nccl.conf": DENIED}, ports=[ETH0])
    assert worst("be.gid.v2", denied) == {"unknown"}


@pytest.mark.parametrize(
    ("second", "bad"), [(USUAL, set()), (((0, V4.format(2), "RoCE v2"),), {"fail"})]
)
def test_one_index_on_all_ports(second: tuple[tuple[int, str, str], ...], bad: set[str]) -> None:
    ports = [ETH0, ETH1, port("mlx5_2:1", "Ethernet", netdev="eth2")]
    files = gids(*USUAL) | gids(*USUAL, at=P1)
    host = PaperHost(files | gids(*second, at=f"{CLASS}/mlx5_2/ports/1"), ports=ports)
    assert worst("be.gid.same", host) == bad
    assert readings("be.gid.same", host)["be.gid.index", ""] in {0, 3}


def interfaces(**addresses: str) -> str:
    return json.dumps([
        {"ifname": name, "addr_info": [{"local": each.split("/")[0],
                                        "prefixlen": int(each.split("/")[1])}]}
        for name, each in addresses.items()
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("addresses", "rules", "bad", "order"),
    [
        ({"eth0": "10.0.0.1/24", "eth1": "10.1.0.1/24"}, [], set(), "1 2"),
        ({"eth0": "10.1.0.1/24", "eth1": "10.0.0.1/24"}, [], set(), "2 1"),
        ({"eth0": "10.0.0.1/24", "eth1": "10.0.0.2/24"}, [], {"fail eth0", "fail eth1"}, "1 1"),
        ({"eth0": "10.0.0.1/24", "eth1": "10.0.0.2/24"}, [{"src": "10.0.0.1"}], {"fail eth1"},
         "1 1"),
        ({"eth0": "10.0.0.1/24"}, [], {"fail eth1"}, "1"),
        ({"eth0": "10.0.0.1/24", "eth1": "fe80::1/64"}, [], {"fail eth1"}, "1"),
        ({}, [], {"fail eth0", "fail eth1"}, None),
    ],
)  # fmt: skip
def test_each_nic_answers_by_itself(
    addresses: dict[str, str], rules: list[Any], bad: set[str], order: str | None
) -> None:
    commands: dict[str, Text] = {"ip -j address show": interfaces(**addresses),
                                 "ip -j rule show": json.dumps(rules)}  # fmt: skip
    host = PaperHost(commands=commands, ports=[ETH1, ETH0])
    assert worst("be.gid.ip", host) == bad
    assert readings("be.gid.ip", host).get(("be.rail-order", "")) == order
    one = PaperHost(commands=commands, ports=[ETH0])
    assert worst("be.gid.ip", one) == {"skip"}
    assert worst("be.gid.ip", PaperHost(ports=[ETH0])) == {"unknown"}


def test_names_are_ordered_by_their_numbers() -> None:
    names = ["mlx5_10", "mlx5_2", "mlx5_bond_0", "mlx5_1"]
    assert sorted(names, key=natural) == ["mlx5_1", "mlx5_2", "mlx5_10", "mlx5_bond_0"]


# --- nearness on the bus ---

NEAR = [
    (("d0", "p0", "u", "r"), ("d1", "p1", "u", "r"), "PIX"),
    (("d0", "p0", "u0", "x", "r"), ("d1", "p1", "u1", "x", "r"), "PXB"),
    (("d0", "r"), ("d1", "r"), "PIX"),
    (("d0", "p0", "u", "r"), ("d1", "r"), "PIX"),
    (("d0", "a", "b", "c", "r"), ("d1", "r"), "PXB"),
    (("d0", "0000:00:01.0"), ("d1", "0000:00:03.0"), "PHB"),
    (("d0", "0000:00:01.0"), ("d1", "0000:80:01.0"), "SYS"),
]


@pytest.mark.parametrize(("one", "other", "rank"), NEAR)
def test_how_near_two_devices_are(one: tuple[str, ...], other: tuple[str, ...], rank: str) -> None:
    assert nearness(one, other) == nearness(other, one) == rank


def topology(*rows: str) -> dict[str, Text]:
    head = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity"
    return {"nvidia-smi topo -m": "\n".join([head, *rows, "", "  NIC0: mlx5_0", "  NIC1: mlx5_1"]),
            "nvidia-smi -q -x": "<nvidia_smi_log></nvidia_smi_log>"}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "bad", "nearest"),
    [
        (("GPU0\tX\tNV18\tPIX\tSYS", "GPU1\tNV18\tX\tSYS\tPXB"), set(), "PIX: mlx5_0"),
        (("GPU0\tX\tNV18\tPIX\tSYS", "GPU1\tNV18\tX\tSYS\tNODE"), {"fail GPU1"}, "PIX: mlx5_0"),
        (("GPU0\tX\tNV18\tNODE\tSYS", "GPU1\tNV18\tX\tSYS\tNODE"), set(), "NODE: mlx5_0"),
        (("GPU0\tX\tNV18\tNODE\tSYS", "GPU1\tNV18\tX\tSYS\tSYS"), {"fail GPU1"}, "NODE: mlx5_0"),
        (("GPU0\tX\tNV18\tPHB\tPHB", "GPU1\tNV18\tX\tPHB\tPHB"), set(), "PHB: mlx5_0 mlx5_1"),
    ],
)  # fmt: skip
def test_each_gpu_has_its_nic_beside_it(rows: tuple[str, ...], bad: set[str], nearest: str) -> None:
    host = PaperHost(commands=topology(*rows), ports=[port(), port("mlx5_1:1")])
    assert worst("pcie.affinity", host) == bad
    assert readings("pcie.affinity", host)["pcie.affinity", "GPU0"] == nearest
    one = PaperHost(commands=topology(*rows), ports=[port()])
    assert worst("pcie.affinity", one) == set(), "fewer NICs than GPUs are only compared"
    guest = PaperHost({"/proc/cpuinfo": "flags : hypervisor"}, topology(*rows), host.ports())
    assert worst("pcie.affinity", guest) == (bad if "PIX" in rows[0] else {"skip"})
