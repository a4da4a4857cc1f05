"""Verdicts of the front end, of clocks, speeds and NCCL, on hosts on paper, from both sides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.audit.paper import DENIED, PaperHost, Text, port, readings, verdicts, worst

from syntony.audit.checks.frontend import _dotted, default_routes, parse_bond
from syntony.audit.checks.wall_time import _SERVICES
from syntony.audit.nccl.diagnosis import (
    FLOORS,
    LOW_SHARE,
    MIN_NODES,
    CaseFigures,
    diagnose,
    floor_of,
    low_cases,
)
from syntony.audit.nccl.plan import Case
from syntony.audit.result import Suspect
from syntony.links.ports import PortState
from syntony.links.roles import LinkRole

MS = 1_000_000
NET = "/sys/class/net/eth0"
HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU"
ROUTE: dict[str, Text] = {
    "/proc/net/route": f"{HEAD}\neth0\t00000000\t0100090A\t0003\t0\t0\t0\t00000000\t0\n"
    "eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0"
}
SIX = f"{'0' * 32} 00 {'0' * 32} 00 {'f' * 32} 00000400 00000001 00000000 00000003"


def test_only_routes_to_everywhere_are_ways_out() -> None:
    assert [tuple(each) for each in default_routes(PaperHost(ROUTE))] == [("IPv4", "eth0")]
    both = PaperHost({**ROUTE, "/proc/net/ipv6_route": f"{SIX} eth2\n{SIX} lo\n"
                      f"{SIX.replace(' 00 ', ' 40 ', 1)} eth3"})  # fmt: skip
    assert [tuple(each) for each in default_routes(both)] == [("IPv4", "eth0"), ("IPv6", "eth2")]
    assert readings("fe.route", both) == {("fe.route", "IPv4"): "present",
                                          ("fe.route", "IPv6"): "present"}  # fmt: skip
    half = PaperHost({"/proc/net/route": f"{HEAD}\neth0\t00000000\t0100090A\t3\t0\t0\t0\t00000080"})
    assert default_routes(half) == ()
    assert worst("fe.route", PaperHost({"/proc/net/route": HEAD})) == {"skip"}
    assert [_dotted(word) for word in ("0100090A", "0100", "xyz")] == ["10.9.0.1", "", ""]


BOND = """Ethernet Channel Bonding Driver
MII Status: up

Slave Interface: eth8
MII Status: up
Aggregator ID: 1

Slave Interface: eth9
MII Status: {}
Aggregator ID: {}
"""


@pytest.mark.parametrize(
    ("status", "group", "bad"),
    [("up", "1", set()), ("down", "1", {"fail eth0"}), ("up", "2", {"fail eth0"})],
)
def test_a_bond_has_all_its_legs_in_one_group(status: str, group: str, bad: set[str]) -> None:
    files: dict[str, Text] = {
        **ROUTE, f"{NET}/operstate": "up", "/proc/net/bonding/eth0": BOND.format(status, group)
    }  # fmt: skip
    assert worst("fe.iface", PaperHost(files)) == bad
    assert parse_bond(BOND.format(status, group)) == [("eth8", "up", "1"), ("eth9", status, group)]
    files["/proc/net/bonding/eth0"] = "nothing"
    assert worst("fe.iface", PaperHost(files)) == {"unknown eth0"}


@pytest.mark.parametrize(
    ("files", "bad"),
    [
        ({"operstate": "up", "duplex": "full"}, set()), ({"operstate": "unknown"}, set()),
        ({"operstate": "down"}, {"fail eth0"}), ({"operstate": "up", "duplex": "half"},
                                                 {"fail eth0"}),
        ({"operstate": "up", "duplex": "unknown"}, set()),
    ],
)  # fmt: skip
def test_an_interface_has_a_carrier_and_both_directions(
    files: dict[str, str], bad: set[str]
) -> None:
    reported = {f"{NET}/{name}": text for name, text in files.items()}
    host = PaperHost({**ROUTE, **reported, f"{NET}/mtu": "9000", f"{NET}/speed": "-1"})
    assert worst("fe.iface", host) == bad
    assert readings("fe.iface", host)["fe.mtu", ""] == 9000
    assert worst("fe.iface", PaperHost({"/proc/net/route": HEAD})) == {"skip"}


def counted(**counts: int) -> dict[str, Text]:
    return {f"{NET}/statistics/{name}": str(count) for name, count in counts.items()}


@pytest.mark.parametrize(
    ("first", "later", "bad"),
    [
        ({"rx_packets": 10**6, "tx_packets": 10**6, "rx_errors": 2}, None, set()),
        ({"rx_packets": 10**6, "tx_packets": 10**6, "rx_errors": 3}, None, {"warn eth0"}),
        ({"rx_errors": 0}, {"rx_errors": 0}, set()), ({"rx_errors": 0}, {"rx_errors": 1},
                                                     {"fail eth0"}),
        ({"rx_packets": 9}, None, {"unknown eth0"}), ({"rx_errors": 0}, {}, set()),
    ],
)  # fmt: skip
def test_errors_are_one_in_a_million_and_do_not_grow(
    first: dict[str, int], later: dict[str, int] | None, bad: set[str]
) -> None:
    again = None if later is None else PaperHost({**ROUTE, **counted(**later)})
    host = PaperHost({**ROUTE, **counted(**first)}, later=again)
    assert worst("fe.errors", host) == bad
    if "unknown eth0" in bad:
        assert {status for status, _, _ in verdicts("fe.errors", host)} == {"unknown"}


ADDRESS = {"ifname": "eth0", "addr_info": [{"local": "10.9.0.7", "scope": "global"}]}


def front(
    addresses: Any = (ADDRESS,), neighbours: Any = (), name: Text = "10.9.0.7 STREAM h0",
    servers: str = "nameserver 10.9.0.1",
) -> PaperHost:  # fmt: skip
    return PaperHost(
        {**ROUTE, "/etc/resolv.conf": servers},
        {"ip -j address show": json.dumps(list(addresses)), "getent ahosts h0": name,
         "ip -j neigh show": json.dumps(list(neighbours))},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("host", "bad"),
    [
        (front(), set()), (front([]), {"fail eth0"}),
        (front([ADDRESS | {"ifname": "eth1"}]), {"fail eth0"}),
        (front([{"ifname": "eth0", "addr_info": [{"local": "fe80::1", "scope": "link"}]}]),
         {"fail eth0"}),
        (front([{"ifname": "eth0", "addr_info": [{"local": "::7", "scope": "global",
                                                  "dadfailed": True}]}]), {"fail eth0"}),
        (front([{"ifname": "eth0", "addr_info": [{"local": "::7", "scope": "global",
                                                  "tentative": True}]}]), {"fail eth0"}),
        (front(neighbours=[{"dst": "10.9.0.1", "state": ["REACHABLE"]}]), set()),
        (front(neighbours=[{"dst": "10.9.0.1", "state": ["FAILED"]}]), {"fail gateway"}),
        (front(neighbours=[{"dst": "10.9.0.9", "state": ["FAILED"]}]), set()),
        (front(name="127.0.1.1 STREAM h0"), {"warn name"}), (front(name=DENIED), {"warn name"}),
        (front(name="127.0.1.1 STREAM\n10.9.0.7 STREAM"), set()),
        (front(servers="# none"), {"warn servers"}),
        (front(servers="nameserver 127.0.0.53"), {"unknown servers"}),
    ],
)  # fmt: skip
def test_addresses_names_and_gateways(host: PaperHost, bad: set[str]) -> None:
    assert worst("fe.addr", host) == bad, verdicts("fe.addr", host)


def test_servers_behind_a_stub_are_those_that_are_compared() -> None:
    host = PaperHost(
        {**ROUTE, "/etc/resolv.conf": "nameserver 127.0.0.53",
         "/run/systemd/resolve/resolv.conf": "nameserver 10.9.0.3\n nameserver 10.9.0.2"},
        {"ip -j address show": json.dumps([ADDRESS]), "getent ahosts h0": "10.9.0.7 STREAM",
         "ip -j neigh show": "[]"},
    )  # fmt: skip
    assert worst("fe.addr", host) == set()
    assert readings("fe.addr", host)["fe.dns", ""] == "10.9.0.2 10.9.0.3"


@pytest.mark.parametrize(
    ("state", "bad"),
    [(PortState.ACTIVE, set()), (PortState.NO_PEER, {"warn eth0"}),
     (PortState.DISABLED, {"skip eth0"}), (PortState.UNKNOWN, {"unknown eth0"})],
)  # fmt: skip
def test_other_front_end_ports(state: PortState, bad: set[str]) -> None:
    snapshot = port("", "Ethernet", state, netdev="eth0")._replace(role=LinkRole.FRONTEND)
    assert worst("fe.ports", PaperHost(ports=[snapshot])) == bad
    assert worst("fe.ports", PaperHost({f"{NET}/mtu": "1"}, ports=[port()])) == {"skip"}
    assert worst("fe.ports", PaperHost()) == {"unknown"}


def reached(*rows: Mapping[str, Any]) -> PaperHost:
    return PaperHost({"/proc/mounts": "server:/data /data nfs4 rw 0 0"}, {
        "syntony audit reach --json --count 20 p:22": json.dumps(rows),
        "syntony audit reach --json --count 3 p:22": json.dumps(rows),
    })  # fmt: skip


@pytest.mark.parametrize(
    ("row", "bad"),
    [
        ({"lost": 0, "p99_ns": 20 * MS - 1}, set()), ({"lost": 0, "p99_ns": 20 * MS},
                                                      {"warn p:22"}),
        ({"lost": 1, "p99_ns": 1}, {"fail p:22"}), ({"lost": 0, "max_ns": 1, "tries": 20}, set()),
        ({"lost": 0, "max_ns": 20 * MS, "tries": 20}, {"warn p:22"}),
        ({"p99_ns": 1}, {"unknown p:22"}), ({"lost": 0}, set()),
    ],
)  # fmt: skip
def test_peers_answer_at_once_and_every_time(row: dict[str, int], bad: set[str]) -> None:
    assert worst("fe.mesh", reached({"peer": "p:22", **row}), peers=["p:22"]) == bad
    assert worst("fe.mesh", reached({"peer": "other", **row}), peers=["p:22"]) == {"unknown p:22"}
    assert worst("fe.mesh", reached(row)) == {"skip"}


@pytest.mark.parametrize(
    ("small", "large", "bad"),
    [("3", "1", set()), ("3", "0", {"fail p"}), ("0", "0", {"unknown p"}), ("1", "3", set())],
)
def test_large_packets_pass_if_one_of_three_does(small: str, large: str, bad: set[str]) -> None:
    def ping(size: int, came: str) -> dict[str, Text]:
        command = f"ping -c 3 -i 0.2 -W 1 -M do -s {size} p"
        return {command: f"3 packets transmitted, {came} received, 0% packet loss"}

    host = PaperHost({**ROUTE, f"{NET}/mtu": "9000"}, ping(56, small) | ping(8972, large))
    assert worst("fe.pmtu", host, peers=["p"]) == bad
    assert worst("fe.pmtu", host) == {"skip"}
    lost = PaperHost({**ROUTE, f"{NET}/mtu": "9000"}, {
        **ping(56, "3"), "ping -c 3 -i 0.2 -W 1 -M do -s 8972 p": DENIED})  # fmt: skip
    assert worst("fe.pmtu", lost, peers=["p"]) == {"fail p"}


@pytest.mark.parametrize(
    ("limits", "bad"),
    [
        ({}, set()),
        ({"mounts": ["/data"]}, set()),
        ({"mounts": ["/dat"]}, {"fail /dat"}),
        ({"endpoints": ["p:22"]}, {"fail p:22"}),
        ({"endpoints": ["q:1"]}, {"unknown"}),
    ],
)
def test_what_is_mounted_and_reached(limits: dict[str, list[str]], bad: set[str]) -> None:
    host = reached({"peer": "p:22", "lost": 1})
    assert worst("fe.storage", host, **limits) == bad
    assert readings("fe.storage", host) == {("fe.mount", "/data"): "present"}
    bare = PaperHost({"/proc/mounts": "/dev/sda1 / ext4 rw 0 0"})
    assert worst("fe.storage", bare) == {"skip"}
    assert readings("fe.storage", bare) == {}


# --- clocks ---

CLOCKS = "syntony audit clocks --json"


@pytest.mark.parametrize(
    ("bound", "offset", "bad"),
    [
        (1_000, 998_999, set()),
        (1_000, 999_000, {"warn p"}),
        (1_000, 1_000_999, {"warn p"}),
        (1_000, 1_001_000, {"fail p"}),
        (1_000, -1_001_000, {"fail p"}),
        (999_999, 0, set()),
        (1_000_000, 0, {"fail p", "warn p"}),
        (None, 0, {"unknown p"}),
        (True, 0, {"unknown p"}),
        (1e19, 0, {"unknown p"}),
    ],
)
def test_peers_clocks_agree_and_it_is_known_how_well(
    bound: Any, offset: float, bad: set[str]
) -> None:
    peer = {"peer": "p", "bound_ns": bound, "offset_ns": offset}
    host = PaperHost(commands={CLOCKS: json.dumps({"peers": [peer]})})
    assert worst("fe.time", host) == bad
    lab = PaperHost(commands={CLOCKS: json.dumps({"peers": [peer], "synthetic": True})})
    assert worst("fe.time", lab) == {each for each in bad if "warn" not in each and (
        "unknown" in each or bound == 1_000_000)} | {"skip offsets"}  # fmt: skip
    assert worst("fe.time", PaperHost()) == {"skip"}
    assert worst("fe.time", PaperHost({"/run/syntony/clock.json": ""})) == {"unknown"}


def chrony(offset_s: float, delay_s: float = 0.0, leap: str = "Normal") -> Text:
    return f"0A09,10.9.0.53,2,17.1,{offset_s:.9f},0.2,0.3,1.5,0.001,0.05,{delay_s:.9f},0,64,{leap}"


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        (chrony(0.000999), set()),
        (chrony(-0.001), {"fail wall time"}),
        (chrony(0.0005, 0.00098), set()),
        (chrony(0.0005, 0.001), {"warn wall time"}),
        (chrony(0.0, 0.0, "Not synchronised"), {"fail wall time"}),
    ],
)
def test_the_hosts_clock_is_near_the_true_time(text: Text, bad: set[str]) -> None:
    commands: dict[str, Text] = {"chronyc -n -c tracking": text}
    assert worst("sw.time", PaperHost(commands=commands)) == bad
    commands["syntony clock now --json"] = '{"bound_ns": 999999}'
    assert worst("sw.time", PaperHost(commands=commands)) == bad
    commands["syntony clock now --json"] = '{"bound_ns": 1000000}'
    assert worst("sw.time", PaperHost(commands=commands)) == {*bad, "fail fleet time"}
    commands["syntony clock now --json"] = "{}"
    assert worst("sw.time", PaperHost(commands=commands)) == {*bad, "unknown fleet time"}


def test_without_a_time_service_the_kernels_word_counts() -> None:
    assert len(_SERVICES) == 3
    for said, bad in (("yes", set()), ("no", {"fail wall time"})):
        host = PaperHost(commands={"timedatectl show": f"NTPSynchronized={said}"})
        assert worst("sw.time", host) == bad
    assert worst("sw.time", PaperHost()) == {"unknown"}
    mute = PaperHost(commands={"chronyc -n -c tracking": DENIED})
    assert worst("sw.time", mute) == {"unknown wall time"}
    served = PaperHost({"/run/syntony/clock": ""})
    assert worst("sw.time", served) == {"unknown fleet time"}


# --- speeds ---


def gemm(*rows: Mapping[str, Any]) -> PaperHost:
    return PaperHost(commands={"syntony audit gemm --json": json.dumps({"devices": rows})})


def device(number: int, tflops: Any, **more: Any) -> dict[str, Any]:
    return {"device": f"GPU {number}", "name": "H100", "tflops": tflops, "gpu": True,
            "wrong": 0, "type": "bf16"} | more  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "bad"),
    [
        ([700, 700, 651], set()),
        ([700, 700, 650.9], {"fail GPU 2"}),
        ([700, 100], set()),
        ([700, 700, 0], {"unknown GPU 2"}),
        ([700, 700, True], {"unknown GPU 2"}),
        ([700, 700, "x"], {"unknown GPU 2"}),
    ],
)
def test_no_gpu_is_much_slower_than_its_siblings(rates: list[Any], bad: set[str]) -> None:
    assert worst("node.gemm", gemm(*(device(k, rate) for k, rate in enumerate(rates)))) == bad


def test_elements_that_are_wrong_and_processors_without_a_gpu() -> None:
    assert worst("node.gemm", gemm(device(0, 700, wrong=1))) == {"fail GPU 0"}
    processors = gemm(device(0, 5, gpu=False, device="node0"))
    assert readings("node.gemm", processors) == {("node.gemm-cpu", "node0, bf16"): 5.0}
    assert readings("node.gemm", gemm(device(0, 700))) == {("node.gemm", "H100, bf16"): 700.0}
    unused = PaperHost({"/proc/driver/nvidia/version": ""},
                       {"syntony audit gemm --json": json.dumps({"devices": [
                           device(0, 5, gpu=False, device="node0")]})})  # fmt: skip
    assert worst("node.gemm", unused) == {"unknown GPUs"}
    assert worst("node.gemm", gemm()) == {"unknown"}


# --- NCCL ---

SOURCES = ("Azure", "OCI", "85 % of", "95 % of")


def test_floors_are_published_figures_for_nodes_of_eight_gpus() -> None:
    """In GB/s of bus bandwidth: within a node NVLink's, beyond it no more than eight NICs carry."""
    table = {(each.device, each.nodes): each.gbytes for each in FLOORS}
    assert len(table) == len(FLOORS)
    assert table == {
        ("A100", 1): 228, ("A100", 2): 185, ("H100", 1): 460, ("H100", 2): 440, ("H100", 4): 340,
        ("H200", 1): 431, ("H200", 2): 440, ("H200", 4): 340, ("B200", 1): 800, ("B200", 2): 440,
        ("B200", 4): 340, ("MI300X", 2): 350, ("MI300X", 4): 340,
    }  # fmt: skip
    assert all(each.source.startswith(SOURCES) for each in FLOORS)
    eight_nics = 8 * 400 / 8
    assert all(gbytes <= 0.85 * eight_nics for (_, nodes), gbytes in table.items() if nodes == 4)


@pytest.mark.parametrize(
    ("name", "nodes", "gbytes"),
    [
        ("NVIDIA H100 80GB HBM3", 1, 460), ("NVIDIA H100 80GB HBM3", 2, 440),
        ("NVIDIA H100 80GB HBM3", 3, 440), ("NVIDIA H100 80GB HBM3", 4, 340),
        ("NVIDIA H100 80GB HBM3", 64, 340), ("AMD Instinct MI300X", 1, None),
        ("NVIDIA A100-SXM4-80GB", 16, 185), ("RTX 6000", 1, None),
    ],
)  # fmt: skip
def test_the_floor_of_a_device_on_so_many_nodes(
    name: str, nodes: int, gbytes: float | None
) -> None:
    floor = floor_of(name, nodes)
    assert (None if floor is None else floor.gbytes) == gbytes


ALL_CASES = [Case(qps=qps, ordered=ordered) for qps in (1, 4) for ordered in (False, True)]
FLAT, FEW = [ALL_CASES[0], ALL_CASES[2]], ALL_CASES[:2]


def test_a_case_is_low_below_its_floor_or_well_below_the_best() -> None:
    seen = {
        each: CaseFigures(busbw)
        for each, busbw in zip(ALL_CASES, (300, 271, 269, 270), strict=True)
    }
    assert low_cases(seen, 270.0) == {ALL_CASES[2]}
    assert low_cases(seen, None) == {ALL_CASES[2]}, f"{LOW_SHARE:.0%} of the best are not low"
    assert low_cases({}, None) == frozenset()
    assert MIN_NODES == 4


@pytest.mark.parametrize(
    ("low", "sockets", "direct", "says", "suspect"),
    [
        ((), False, None, None, None),
        (ALL_CASES, True, None, "TCP sockets", Suspect.CONFIG),
        (ALL_CASES, False, False, "no channel uses GPUDirect", Suspect.HOST),
        (ALL_CASES, False, True, "a host, its NICs", Suspect.HOST),
        (ALL_CASES, False, None, "a host, its NICs", Suspect.HOST),
        (FLAT, False, None, "between leaves and spines", Suspect.FABRIC),
        (FLAT, False, False, "between leaves and spines", Suspect.FABRIC),
        (FEW, False, None, "few queue pairs are low", Suspect.FABRIC),
        (ALL_CASES[:1], False, None, "few queue pairs are low", Suspect.FABRIC),
        (ALL_CASES[3:], False, None, "the order is not the cabling's", Suspect.SWITCH),
        (ALL_CASES[2:], False, None, "no known pattern", Suspect.FABRIC),
        (ALL_CASES[2:3], False, None, "no known pattern", Suspect.FABRIC),
    ],
)
def test_what_a_pattern_of_low_cases_means(
    low: Any, sockets: bool, direct: bool | None, says: str | None, suspect: Suspect | None
) -> None:
    found = diagnose(frozenset(ALL_CASES), frozenset(low), sockets=sockets, direct=direct)
    assert (found is None) == (says is None)
    if found is not None and says is not None:
        assert says in found.says
        assert found.suspect is suspect
