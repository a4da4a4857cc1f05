"""Cabling: every planted fault is named, exactly and alone, without an expected file and with."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.audit.fabrics import Port, Wiring
from tests.audit.foreign_fabrics import Built
from tests.cases import mostly_slow

from syntony.audit.cabling import Cabling, cluster, pattern
from syntony.audit.fabric_check import audit_fabric
from syntony.audit.majority import majority
from syntony.audit.result import Result, Status
from syntony.cli import run
from syntony.cli.audit_fabric import read_cabling
from syntony.errors import InputError
from syntony.fabric.ibnet import parse_subnet
from syntony.model.names import host_of

Reported = set[tuple[str, str]]


def cabling(text: str) -> Cabling:
    reported = parse_subnet(text)
    assert reported.unlisted == reported.one_sided == ()
    return Cabling(reported.topology, reported.rates, reported.says)


def wrong(results: tuple[Result, ...]) -> Reported:
    """Check and subject of everything that is not right."""
    bad = {Status.FAIL, Status.WARN, Status.UNKNOWN}
    return {(result.check, result.subject) for result in results if result.status in bad}


def found(wiring: Wiring, seed: int = 0) -> Reported:
    return wrong(audit_fabric(cabling(wiring.text(seed))))


def audit(*words: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = run(["audit", "fabric", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


@settings(max_examples=25)
@given(
    groups=st.integers(1, 4), hosts=st.integers(4, 7), rails=st.integers(2, 5),
    spines=st.integers(1, 4), uplinks=st.integers(1, 3), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_good_fabric_of_any_size_has_no_findings(seed: int, **sizes: int) -> None:
    assert found(Wiring(**sizes), seed) == set()


@settings(max_examples=25)
@given(data=st.data(), groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_one_rail_swap_anywhere_is_the_only_finding(
    data: st.DataObject, groups: int, seed: int
) -> None:
    wiring = Wiring(groups=groups)
    group = data.draw(st.integers(0, groups - 1))
    host = data.draw(st.integers(0, 3))
    one, other = data.draw(st.permutations(range(4)).map(lambda order: sorted(order[:2])))
    wiring.swap(
        Port(wiring.leaf(group, one), host + 1), Port(wiring.leaf(group, other), host + 1)
    )  # fmt: skip
    name = wiring.nic(group, host, one).replace(" ", "/")
    assert found(wiring, seed) == {("be.topo.rail", f"{name}+mlx5_{other}")}


@settings(max_examples=25)
@given(data=st.data(), seed=st.integers(0, 99))
def test_one_lost_uplink_anywhere_is_named_with_its_port(data: st.DataObject, seed: int) -> None:
    wiring = Wiring(groups=2, hosts=3)
    group, rail = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 3))
    port = data.draw(st.integers(4, 7))
    leaf = wiring.leaf(group, rail)
    spine = f"spine{(port - 4) // 2}"
    wiring.cut(Port(leaf, port))
    results = audit_fabric(cabling(wiring.text(seed)))
    assert wrong(results) == {("be.topo.uplinks", f"{leaf}--{spine}")}
    result = next(result for result in results if result.status is Status.FAIL)
    assert (result.got, result.expected) == ("1 links", "2 links")
    assert f"port {port} of {leaf}" in result.evidence


@pytest.mark.parametrize("hosts", mostly_slow([1, 2, 3, 5], {2, 3}))
def test_a_last_pod_of_few_hosts_below_32_uplinks(hosts: int) -> None:
    """3 of 35 cables of its leaves go to NICs: that made them spines, and 32 false failures."""
    wiring = Wiring(groups=3, hosts=16, rails=8, spines=4, uplinks=8)
    for rail in range(8):
        for place in range(hosts, 16):
            wiring.cut(Port(wiring.leaf(2, rail), place + 1))
    assert found(wiring) == set()
    wiring.swap(Port(wiring.leaf(2, 0), 1), Port(wiring.leaf(2, 1), 1))
    expected = {
        1: set(),  # one host alone: nobody can say which leaf is whose
        2: {("be.topo.rail", "leaf-*-03/mlx5_0"), ("be.topo.rail", "leaf-*-03/mlx5_1")},
    }
    assert found(wiring) == expected.get(hosts, {("be.topo.rail", "gpu0032/mlx5_0+mlx5_1")})


def test_two_swapped_cables_on_one_leaf_are_each_other_s_remedy() -> None:
    wiring = Wiring(groups=1)
    wiring.swap(Port("leaf-03-01", 2), Port("leaf-03-01", 3))
    results = audit_fabric(cabling(wiring.text()))
    assert wrong(results) == {
        ("be.topo.portpos", "gpu0001/mlx5_2"),
        ("be.topo.portpos", "gpu0002/mlx5_2"),
    }
    assert "swap the cables of gpu0001/mlx5_2 and gpu0002/mlx5_2 at leaf-03-01" in {
        result.remedy for result in results
    }


def test_a_cable_in_another_group_joins_no_groups() -> None:
    wiring = Wiring(groups=3)
    wiring.swap(Port("leaf-02-01", 1), Port("leaf-02-03", 2))
    assert found(wiring) == {
        ("be.topo.rail", "gpu0000/mlx5_1"),
        ("be.topo.rail", "gpu0009/mlx5_1"),
        ("be.topo.portpos", "gpu0000/mlx5_1"),
        ("be.topo.portpos", "gpu0009/mlx5_1"),
    }


def test_an_absent_leaf_has_a_name() -> None:
    wiring = Wiring(groups=4)
    wiring.remove("leaf-03-02")
    assert found(wiring) == {("be.topo.attached", "leaf-03-02")}


def test_a_dark_nic_is_named_with_its_port() -> None:
    wiring = Wiring()
    wiring.cut(Port("leaf-02-01", 3))
    results = audit_fabric(cabling(wiring.text()))
    assert wrong(results) == {("be.topo.attached", "gpu0002/mlx5_1")}
    assert "on leaf-02-01 port 3" in {result.expected for result in results}


def test_a_stray_uplink_is_between_the_planes_it_joins() -> None:
    """Rails with spines of their own; one cable of plane 0 goes to plane 1."""
    wiring = Wiring(groups=3, rails=2, spines=0)
    for rail in (0, 1):
        for group in range(3):
            for spine in range(4):
                above = Port(f"spine{rail}-{spine}", group + 1)
                wiring.join(Port(wiring.leaf(group, rail), 20 + spine), above)
    assert found(wiring) == set()
    wiring.cut(Port("leaf-01-02", 21))
    wiring.cut(Port("spine1-0", 3))
    wiring.join(Port("leaf-01-02", 21), Port("spine1-0", 3))
    assert {subject for check, subject in found(wiring) if check == "be.topo.uplinks"} == {
        "leaf-01-02--spine0-1",
        "leaf-01-02--spine1-0",
        "leaf-02-03--spine1-0",
    }


def test_speeds_widths_and_the_ends_of_a_cable() -> None:
    wiring = Wiring()
    wiring.slow(Port("leaf-01-01", 2), "1xNDR")
    wiring.slow(Port("leaf-02-02", 6), "4xHDR")
    wiring.rates[Port("leaf-04-02", 1)] = "4xEDR"
    assert {reported for reported in found(wiring) if reported[0] == "be.topo.speed"} == {
        ("be.topo.speed", "gpu0001/mlx5_0--leaf-01-01"),
        ("be.topo.speed", "leaf-02-02--spine0"),
        ("be.topo.speed", "gpu0004/mlx5_3--leaf-04-02"),
    }


@pytest.mark.parametrize("seed", range(4))
def test_the_lower_switches_decide_the_rate_of_uplinks(seed: int) -> None:
    """One vote each, however many uplinks it has and in whichever order its cables are reported."""
    wiring = Wiring(groups=3, rails=1, hosts=4, spines=0)
    slow = wiring.leaf(2, 0)
    for spine in range(6):
        wiring.join(Port(slow, 20 + spine), Port(f"spine{spine}", 1))
        wiring.slow(Port(slow, 20 + spine), "4xHDR")
    for group in (0, 1):
        for spine in (0, 1):
            wiring.join(Port(wiring.leaf(group, 0), 20 + spine), Port(f"spine{spine}", 2 + group))
    odd = {subject for check, subject in found(wiring, seed) if check == "be.topo.speed"}
    assert odd == {f"{slow}--spine{spine}" for spine in range(6)}


def test_names_that_say_nothing_or_the_same() -> None:
    wiring = Wiring()
    wiring.says["gpu0001 mlx5_1"] = "MT4129 ConnectX7   Mellanox Technologies"
    wiring.says["gpu0002 mlx5_1"] = "localhost mlx5_1"
    wiring.says["gpu0003 mlx5_1"] = wiring.says["gpu0004 mlx5_1"] = "twin mlx5_1"
    reported = {subject for check, subject in found(wiring) if check == "be.topo.names"}
    assert reported == {"MT4129 ConnectX7 Mellanox Technologies", "localhost", "twin mlx5_1"}
    dark = {subject for check, subject in found(wiring) if check == "be.topo.attached"}
    assert not dark & {"gpu0001/mlx5_1", "gpu0002/mlx5_1"}, "their links are there"


def test_a_fabric_that_is_not_in_port_order_is_no_fault() -> None:
    wiring = Wiring(hosts=6)
    for rail in range(1, 4):
        for place in range(6 - rail):
            for group in range(2):
                leaf = wiring.leaf(group, rail)
                wiring.swap(Port(leaf, place + 1), Port(leaf, place + 2))
    assert found(wiring) == set()


def test_what_the_expected_file_shows_too_is_right(tmp_path: Path) -> None:
    wiring = Wiring()
    wiring.cut(Port("leaf-01-01", 5))
    plan = cabling(wiring.text())
    assert wrong(audit_fabric(plan, plan)) == set()
    wiring.swap(Port("leaf-01-01", 1), Port("leaf-02-01", 1))
    wiring.cut(Port("leaf-02-01", 6))
    results = audit_fabric(cabling(wiring.text(3)), plan)
    assert {reported for reported in wrong(results) if reported[0] != "be.topo.bisection"} == {
        ("be.topo.links", "gpu0000/mlx5_0 <-> gpu0000/mlx5_1"),
        ("be.topo.links", "leaf-02-01--spine0"),
        ("be.topo.rail", "gpu0000/mlx5_0+mlx5_1"),
        ("be.topo.uplinks", "leaf-02-01--spine0"),
    }


def test_the_captured_fabric_without_any_expected_file(
    captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """31 leaves, 9 spines, 542 NIC ports: what its owners had not seen."""
    code, reported = audit("--ibnetdiscover", captures / "topograph/example.out", capsys=capsys)
    assert code == 2
    by_check: dict[str, list[dict[str, Any]]] = {}
    for result in reported:
        if result["status"] in {"fail", "warn", "unknown"}:
            by_check.setdefault(result["check"], []).append(result)
    assert [r["subject"] for r in by_check["be.topo.rail"]] == ["b08-p1-dgx-08-c01/HCA-5+HCA-6"]
    assert [r["subject"] for r in by_check["be.topo.attached"]] == ["A09-P1-IBLEAF-03-01"]
    uplinks = by_check["be.topo.uplinks"]
    missing = sum(int(r["expected"].split()[0]) - int(r["got"].split()[0]) for r in uplinks)
    assert (len(uplinks), missing) == (16, 26)
    assert {host_of(r["subject"]) for r in by_check["be.topo.portpos"]} == {
        "a05-p1-dgx-01-c12", "a05-p1-dgx-01-c14", "b06-p1-dgx-06-c02", "b06-p1-dgx-06-c07",
        "b06-p1-dgx-06-c08",
    }  # fmt: skip
    assert Counter(r["got"] for r in by_check["be.topo.names"]) == {
        "69 NICs": 1, "3 NICs": 1, "2 NICs": 1,
    }  # fmt: skip
    assert set(by_check) == {
        "be.topo.rail", "be.topo.attached", "be.topo.uplinks", "be.topo.portpos", "be.topo.names",
        "be.topo.bisection",
    }  # fmt: skip


SIMULATED = {
    "good": set(),
    "bad-link-down": {("be.topo.attached", "gpu001/mlx5_1")},
    "bad-rail-swap": {("be.topo.rail", "gpu000/mlx5_0+mlx5_1")},
    "bad-port-swap-same-leaf": {
        ("be.topo.portpos", "gpu001/mlx5_2"), ("be.topo.portpos", "gpu002/mlx5_2"),
    },
    "bad-counters-and-spine0-lost-from-leaf0": {
        ("be.topo.uplinks", "leaf0--spine0"), ("be.topo.bisection", "fabric"),
        ("be.topo.portpos", "gpu001/mlx5_2"), ("be.topo.portpos", "gpu002/mlx5_2"),
    },
    "bad-width-and-speed": {
        ("be.topo.speed", "gpu002/mlx5_2--leaf2"), ("be.topo.speed", "leaf1--spine1"),
        ("be.topo.bisection", "fabric"),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_fabrics(
    name: str, captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    file = captures / f"ibsim-ours/{name}.ibnetdiscover.txt"
    code, reported = audit("--ibnetdiscover", file, capsys=capsys)
    wrong_ones = {(r["check"], r["subject"]) for r in reported if r["status"] in {"fail", "warn"}}
    assert wrong_ones == SIMULATED[name]
    keys = {"check", "status", "suspect", "subject", "expected", "got", "evidence", "remedy"}
    assert all(keys <= r.keys() for r in reported)
    fails = any(r["status"] == "fail" for r in reported)
    assert code == (2 if fails else 1 if wrong_ones else 0)


def test_a_plan_and_lldp_are_read_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for host in range(4):
        rails = [0, 1] if host != 2 else [1, 0]
        interfaces = [
            {
                f"rail{nic}": {
                    "chassis": {f"leaf{leaf}": {"id": {"type": "mac", "value": "aa"}}},
                    "port": {"id": {"type": "ifname", "value": f"Ethernet{host}"}},
                }
            }
            for nic, leaf in enumerate(rails)
        ]
        document = {"lldp": {"interface": interfaces}}
        (tmp_path / f"h{host}.json").write_text(json.dumps(document))
    code, reported = audit("--lldp", tmp_path, capsys=capsys)
    assert code == 2
    assert [r["subject"] for r in reported if r["status"] == "fail"] == ["h2/rail0+rail1"]


def _lldp(folder: Path, leaves: dict[str, list[dict[str, Any]]]) -> None:
    """Each host's neighbours: name, id, address and port of its NICs' switches."""
    for host, nics in leaves.items():
        interfaces = [
            {
                f"rail{at}": {
                    "chassis": {
                        each["name"]: {
                            "id": {"type": "mac", "value": each.get("id", each["name"])},
                            "mgmt-ip": each.get("ip", []),
                        }
                    },
                    "port": {"id": {"type": "ifname", "value": each["port"]}},
                }
            }
            for at, each in enumerate(nics)
        ]
        (folder / f"{host}.json").write_text(json.dumps({"lldp": {"interface": interfaces}}))


def _neighbours(hosts: int = 5, **more: Any) -> dict[str, list[dict[str, Any]]]:
    return {
        f"h{host}": [{"name": f"leaf{r}", "port": f"Eth{host}", **more} for r in range(2)]
        for host in range(hosts)
    }


def test_what_contradicts_itself_in_lldp_costs_only_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reported = _neighbours(ip=["10.0.0.1"])  # one address on both leaves
    reported["h4"].reverse()
    reported["h3"][0]["port"] = "Eth2"  # stale: h2 is there
    reported["h1"].append({"name": "evil\x1b]0;x\x07", "port": "1"})
    _lldp(tmp_path, reported)
    (tmp_path / "h5.json").write_text("{")
    code, results = audit("--lldp", tmp_path, capsys=capsys)
    assert code == 2
    said = {(r["check"], r["subject"]): r for r in results if r["status"] != "pass"}
    assert said["be.topo.source", "leaf0, leaf1"]["status"] == "fail"
    assert "10.0.0.1" in said["be.topo.source", "leaf0, leaf1"]["got"]
    assert said["be.topo.source", "leaf0 port Eth2"]["status"] == "unknown"
    assert "h2/rail0, h3/rail0" in said["be.topo.source", "leaf0 port Eth2"]["evidence"]
    assert said["be.topo.source", "h5"]["status"] == "unknown"
    assert said["be.topo.source", "h1/rail2"]["status"] == "unknown"
    assert said["be.topo.rail", "h4/rail0+rail1"]["status"] == "fail"


def test_two_switches_of_one_name_are_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reported = _neighbours(hosts=8)
    for host, nics in reported.items():
        for each in nics:
            each.update(name="sonic", id=f"aa:{each['name']}", port=f"{each['name']}{host}")
    _lldp(tmp_path, reported)
    code, results = audit("--lldp", tmp_path, capsys=capsys)
    assert code == 2
    assert [(r["check"], r["subject"]) for r in results if r["status"] == "fail"] == [
        ("be.topo.source", "sonic")
    ]


NOISE = (
    "ibwarn: [4242] mad_rpc: _do_madrpc failed; dport (DR path slid 0; dlid 0; 0,1,1,7)",
    "src/query_smp.c:227; umad (DR path slid 0; dlid 0; 0,1 Attr 0x11:1) bad status 110",
    "sudo: unable to resolve host gpu0001",
    "Warning: Permanently added '10.0.0.7' (ED25519) to the list of known hosts.",
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), report=st.booleans())
def test_lines_of_other_programs_are_skipped_and_counted(
    data: st.DataObject, report: bool, tmp_path: Path
) -> None:
    fabric = Built(data.draw(st.integers(0, 2**31)))
    lines = (fabric.ports_report() if report else fabric.full()).splitlines()
    clean = read_cabling_text("\n".join(lines), tmp_path)
    noise = data.draw(st.lists(st.sampled_from(NOISE), min_size=1, max_size=4))
    for text in noise:
        lines.insert(data.draw(st.integers(0, len(lines))), text)
    noisy = read_cabling_text("\n".join(lines), tmp_path)
    assert noisy.topology == clean.topology
    results = audit_fabric(noisy)
    (reported,) = [r for r in results if r.check == "be.topo.source"]
    assert reported.status is Status.UNKNOWN
    assert reported.evidence.startswith(f"{len(noise)} lines make no sense")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), report=st.booleans())
def test_a_line_torn_by_another_program_costs_one_end_of_a_cable(
    data: st.DataObject, report: bool, tmp_path: Path
) -> None:
    """Every cable is reported at both ends: what is left tells it still."""
    fabric = Built(data.draw(st.integers(0, 2**31)))
    lines = (fabric.ports_report() if report else fabric.full()).splitlines()
    clean = read_cabling_text("\n".join(lines), tmp_path)
    cables = [at for at, line in enumerate(lines) if "NDR" in line]
    at = data.draw(st.sampled_from(cables))
    lines[at] = lines[at][: data.draw(st.integers(1, 20))] + NOISE[0]
    torn = read_cabling_text("\n".join(lines), tmp_path)
    assert torn.topology.neighbours == clean.topology.neighbours
    assert len(torn.doubts) == 1


def read_cabling_text(text: str, folder: Path) -> Cabling:
    file = folder / "fabric.txt"
    file.write_text(text)
    return read_cabling(file)


def test_a_dual_port_adapter_of_a_ports_report_is_one() -> None:
    lines = [
        f"CA {host * 2 + port:5d} {port:2d} 0x{0x100 + host * 2 + port:016x} 4x EDR - "
        f"SW 99 {host * 2 + port:2d} 0x{0x10:016x} ( 'n{host} HCA-1' - 'MF0;leaf:X/U1' )"
        for host in range(3) for port in (1, 2)
    ]  # fmt: skip
    fabric = Cabling(parse_subnet("\n".join(lines)).topology)
    assert [nic.label for nic in fabric.by_host["n0"]] == ["HCA-1:1", "HCA-1:2"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no-nics"),
        ("ibnetdiscover: command not found", "not-ibnetdiscover"),
        (Wiring().text()[:9000], "cut-off"),
        ("\n".join(Wiring().text().splitlines()[:60]), "cut-off"),
        ("\x00\xff", "not-ibnetdiscover"),
        (None, "unreadable"),
    ],
)
def test_what_cannot_be_read_is_unknown_never_a_pass(
    text: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fabric.txt"
    if text is not None:
        file.write_text(text)
    code = run(["audit", "fabric", "--ibnetdiscover", str(file), "--json"])
    said = capsys.readouterr()
    assert code == 3
    reported = json.loads(said.out)
    assert {result["status"] for result in reported} == {"unknown"}
    assert all(why in result["evidence"] for result in reported)
    assert len(said.err.strip().splitlines()) == 1


@settings(max_examples=100)
@given(cut=st.integers(0, 20_000), junk=st.text(max_size=12), place=st.integers(0, 20_000))
def test_garbled_text_ends_in_verdicts_or_one_named_error(cut: int, junk: str, place: int) -> None:
    text = Wiring(groups=1).text()
    for garbled in (text[:cut], text[: place % len(text)] + junk + text[place % len(text) :]):
        try:
            reported = parse_subnet(garbled)
        except InputError:
            continue
        results = audit_fabric(Cabling(reported.topology, reported.rates, reported.says))
        assert all(result.status in set(Status) for result in results)


def test_small_parts() -> None:
    assert majority("aab") == "a"
    assert majority("ab") is None
    assert majority("abc") is None
    assert majority("aabb") is None
    assert pattern(["leaf-1-7", "leaf-2-7"]) == "leaf-*-7"
    assert pattern(["a", "b", "c"]) == "a and 2 more"
    sets = {str(n): frozenset("ab") for n in range(3)} | {"x": frozenset("bc")}
    assert cluster(sets) == [("a", "b", "c")]
    assert cluster({**sets, "y": frozenset("c"), "z": frozenset("c")}) == [("a", "b"), ("c",)]
