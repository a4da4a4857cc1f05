"""Topologies: every form that is read, every way a file can be wrong, and what changed."""

from __future__ import annotations

import ipaddress
import itertools
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.cli import run
from syntony.errors import InputError
from syntony.fabric.files import (
    FORMS,
    MAX_BYTES,
    format_topology,
    guess_form,
    parse_topology,
)
from syntony.fabric.graph import Device, Topology, components_of, diff, make_topology
from syntony.fabric.ibnet import parse_subnet
from syntony.fabric.lldp import Neighbour, merge_lldp, read_neighbours
from syntony.fabric.names import ComponentKind
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.topology import topology as lab_topology

TOML = """
[[device]]
name = "h0/rail0"
[[device]]
name = "a"
addresses = ["10.0.0.1"]
[[device]]
name = "b"
[[cable]]
a = "h0/rail0"
b = "a"
[[cable]]
a = "a"
a_port = "1"
b = "b"
b_port = "7"
"""
DOT = """
graph fabric {  // the same
  node [shape=box];
  "h0/rail0" [kind=nic];
  a [addresses="10.0.0.1"];
  "h0/rail0" -- a;
  a:1 -- b:7
}
"""
IBNETDISCOVER = """#
# Topology file: generated on Sat Nov 21 10:00:00 2026
vendid=0x0
devid=0xb924
sysimgguid=0x200000
switchguid=0x200000(200000)
Switch\t4 "S-0000000000200000"\t\t# "leaf0" base port 0 lid 3 lmc 0
[1]\t"H-0000000000100000"[1](100001) \t\t# "gpu000 mlx5_0" lid 9 4xNDR
[2]\t"H-0000000000100002"[1](100003) \t\t# "gpu001 mlx5_0" lid 7 4xNDR

vendid=0x0
devid=0x1021
caguid=0x100000
Ca\t1 "H-0000000000100000"\t\t# "gpu000 mlx5_0"
[1](100001) \t"S-0000000000200000"[1]\t\t# lid 9 lmc 0 "leaf0" lid 3 4xNDR

vendid=0x0
devid=0x1021
caguid=0x100002
Ca\t1 "H-0000000000100002"\t\t# "gpu001 mlx5_0"
[1](100003) \t"S-0000000000200000"[2]\t\t# lid 7 lmc 0 "leaf0" lid 3 4xNDR
"""
LLDP = {
    "lldp": {
        "interface": [
            {
                "rail0": {
                    "chassis": {
                        "leaf0": {"id": {"type": "mac"}, "mgmt-ip": ["10.9.0.1", "fe80::1"]}
                    },
                    "port": {"id": {"type": "ifname", "value": "Ethernet3"}},
                }
            },
            {"rail1": {"chassis": {"name": "leaf1", "id": {"type": "mac", "value": "aa"}}}},
            {"mgmt0": {"chassis": {}}},
        ]
    }
}


def simulated(captures: Path, name: str) -> Path:
    """What ibnetdiscover said of a simulated fabric of 16 HCAs."""
    return captures / "ibsim-ours" / f"{name}.ibnetdiscover.txt"


def capture(captures: Path, name: str) -> Topology:
    return parse_topology(simulated(captures, name).read_text())


def kinds(topology: Topology) -> dict[str, int]:
    return dict(Counter(device.kind.value for device in topology.devices))


def test_toml_json_and_dot_say_the_same_and_tiers_are_found_out() -> None:
    reported = parse_topology(TOML)
    assert kinds(reported) == {"nic": 1, "leaf": 1, "spine": 1}
    assert reported.by_address == {"10.0.0.1": "a"}
    assert parse_topology(format_topology(reported)) == reported
    assert parse_topology(DOT) == reported


def test_an_address_names_its_device_however_it_is_written() -> None:
    made = lab_topology(make_plan(FabricSpec(hosts=4, rails=1, leaves=2, spines=2)))
    port = next(a for d in made.devices for a in d.addresses if a.endswith("::0"))
    written = str(ipaddress.ip_address(port))
    assert written != port
    assert written in made.by_address
    twice = [
        Device(name=name, addresses=(address,))
        for name, address in (("a", "fd73::1"), ("b", "FD73:0::0001"))
    ]
    with pytest.raises(InputError, match="belongs to a and to b"):
        make_topology(twice, [])


def test_dot_tells_kinds_and_addresses_that_names_do_not() -> None:
    found = parse_topology(
        'strict digraph { /* a -- z */ x [kind="core", addresses="10.0.0.1 10.0.0.2"]; y -> x:3;\n'
        "# z [kind=leaf]\n edge [len=2]; label = none; y:1 -- w -- v:2 [weight=3] }"
    )
    assert kinds(found) == {"core": 1, "component": 3}
    assert found.by_address == {"10.0.0.1": "x", "10.0.0.2": "x"}
    ends = {(c.a, c.a_port, c.b, c.b_port) for c in found.cables}
    assert ends == {("y", "", "x", "3"), ("y", "1", "w", ""), ("w", "", "v", "2")}


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("# one of our fabrics\n" * 150 + "vendid=0x2c9\n", "ibnetdiscover"),
        (" \n" * 3_000 + "strict digraph {", "dot"),
        ('{"device": []}', "json"), ('\n {"lldp": {}}', "lldp"), ('[{"lldp": 1}]', "lldp"),
        ("[[device]]", "toml"), ("", "toml"), ("graph {", "dot"), ("strict digraph g {", "dot"),
        ("graphs = 1", "toml"), ("vendid=0x0", "ibnetdiscover"), (IBNETDISCOVER, "ibnetdiscover"),
    ],
)  # fmt: skip
def test_a_form_is_known_by_its_first_words(text: str, form: str) -> None:
    assert guess_form(text) == form


def test_a_form_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match="unknown-form: 'yaml': use one of toml, json, dot"):
        parse_topology(TOML, "yaml")


def test_a_port_that_two_ends_tell_of_differently_is_refused() -> None:
    crossed = IBNETDISCOVER.replace(
        '"S-0000000000200000"[1]\t\t# lid 9', '"S-0000000000200000"[2]\t\t# lid 9'
    )
    assert crossed != IBNETDISCOVER
    with pytest.raises(
        InputError, match="ends-differ: port 1 of gpu000/mlx5_0 is reported to lead"
    ):
        parse_topology(crossed)


def test_a_switch_port_that_two_nics_claim_is_nobodys() -> None:
    heard = [Neighbour(f"h{k}/eth0", "leaf0", "aa", (), port) for k, port in enumerate("778")]
    merged = merge_lldp(heard)
    assert [(doubt.subject, doubt.what) for doubt in merged.doubts] == [
        ("leaf0 port 7", "claimed by h0/eth0, h1/eth0")
    ]
    assert [cable.b_port for cable in merged.topology.cables] == ["", "", "8"]


def test_a_file_is_refused_beyond_its_greatest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="too-large: a topology of more than 64 MiB"):
        parse_topology(" " * (MAX_BYTES + 1))
    monkeypatch.setattr("syntony.fabric.files.MAX_BYTES", len(TOML))
    assert len(parse_topology(TOML).devices) == 3
    with pytest.raises(InputError, match="too-large"):
        parse_topology(TOML + "#")


def test_ibnetdiscover_of_a_small_fabric(captures: Path) -> None:
    found = capture(captures, "good")
    assert kinds(found) == {"nic": 16, "leaf": 4, "spine": 2}
    assert len(found.cables) == 32
    assert found.neighbours["gpu000/mlx5_0"] == ("leaf0",)


def test_a_rail_swap_is_two_moves_and_a_dead_link_is_a_removal(captures: Path) -> None:
    good = capture(captures, "good")
    swapped = diff(good, capture(captures, "bad-rail-swap"))
    assert [(c.change, c.name, c.detail) for c in swapped] == [
        ("moved", "gpu000/mlx5_0", "from leaf0 to leaf1"),
        ("moved", "gpu000/mlx5_1", "from leaf1 to leaf0"),
    ]
    gone = diff(good, capture(captures, "bad-link-down"))
    assert ("removed", "gpu001/mlx5_1--leaf1") in [(c.change, c.name) for c in gone]
    assert diff(good, good) == ()


def two_forms(seed: int) -> tuple[str, str]:
    """One fabric of dual-port adapters as `ibnetdiscover` and as `ibnetdiscover -p` print it; in
    the latter every port of an adapter has a GUID of its own."""
    rng = random.Random(seed)
    hosts, leaves = rng.randint(2, 5), rng.randint(2, 4)
    ends: dict[tuple[int, int], tuple[int, int]] = {}
    for host, port in itertools.product(range(hosts), (1, 2)):
        ends[host, port] = rng.randrange(leaves), 1 + 2 * host + port
    plain, report = [], []
    for host in range(hosts):
        plain.append(f'Ca\t2 "H-{2 * host:016x}"\t\t# "gpu{host} mlx5_0"')
        for port in (1, 2):
            leaf, at = ends[host, port]
            plain.append(f'[{port}]({2 * host:x}) \t"S-{999 + leaf:016x}"[{at}]\t\t# lid 1 lmc 0 '
                         f'"leaf{leaf}" lid 2 4xNDR')  # fmt: skip
            here, there = f"0x{2 * host + port - 1:016x}", f"0x{999 + leaf:016x}"
            says = f"gpu{host} mlx5_0", f"leaf{leaf}"
            report.append(f"CA  {host} {port} {here} 4x NDR - SW  7 {at} {there} ( '{says[0]}' - "
                          f"'{says[1]}' )")  # fmt: skip
            report.append(f"SW  7 {at} {there} 4x NDR - CA  {host} {port} {here} ( '{says[1]}' - "
                          f"'{says[0]}' )")  # fmt: skip
    for leaf in range(leaves):
        own = [(at, end) for end, (its, at) in ends.items() if its == leaf]
        if own:
            plain.append(f'Switch\t64 "S-{999 + leaf:016x}"\t\t# "leaf{leaf}" base port 0')
            plain += [f'[{at}]\t"H-{2 * host:016x}"[{port}]({2 * host:x}) \t\t# "gpu{host} mlx5_0" '
                      "lid 9 4xNDR" for at, (host, port) in own]  # fmt: skip
    rng.shuffle(report)
    return "\n".join(plain), "\n".join(report)


@pytest.mark.parametrize("seed", range(6))
def test_both_forms_of_ibnetdiscover_tell_of_one_fabric(seed: int) -> None:
    plain, report = (parse_subnet(text) for text in two_forms(seed))
    assert diff(plain.topology, report.topology) == ()
    assert plain.topology.devices == report.topology.devices
    assert plain.says == report.says
    assert (plain.rates, plain.whole, report.whole) == (report.rates, True, True)
    assert {len(near) for name, near in plain.topology.neighbours.items() if "/" in name} <= {1, 2}


def test_a_report_that_lacks_a_line_is_not_whole() -> None:
    """The other end of that cable tells of it, so that no cable is missing."""
    _, report = two_forms(1)
    lines = report.splitlines()
    whole = parse_subnet(report)
    for lost in range(len(lines)):
        part = parse_subnet("\n".join([*lines[:lost], *lines[lost + 1 :]]))
        assert part.unlisted or part.one_sided
        assert not part.whole
        assert len(part.topology.cables) == len(whole.topology.cables)


def test_ibnetdiscover_of_a_real_fabric(captures: Path) -> None:
    found = parse_topology((captures / "topograph/example.out").read_text())
    assert kinds(found) == {"nic": 542, "leaf": 31, "spine": 9}


def test_lldp_names_the_switch_of_each_nic() -> None:
    found = merge_lldp(read_neighbours(LLDP, "h3")).topology
    assert found.neighbours["h3/rail0"] == ("leaf0",)
    assert found.neighbours["h3/rail1"] == ("leaf1",)
    assert found.by_address["10.9.0.1"] == "leaf0"
    assert found.cables[0].b_port == "Ethernet3"


def test_a_lab_describes_itself() -> None:
    found = lab_topology(make_plan(FabricSpec(hosts=4)))
    assert kinds(found) == {"nic": 8, "leaf": 4, "spine": 2}
    assert found.neighbours["h3/rail1"] == ("leaf1-1",)
    assert parse_topology(format_topology(found)) == found


def test_unknown_hops_become_one_group() -> None:
    assert components_of(["a", None, None, "b", "c"]) == ["a", "a..b", "b", "b->c", "c"]
    assert components_of(["a", "b"]) == ["a", "a->b", "b"]


NODE = '[[device]]\nname = "a"\n'
WRONG = {
    "not-toml": "[[device",
    "not-json": "{",
    "bad-file": '[[device]]\nname = "a"\nkind = "router"\n',
    "duplicate-name": NODE + NODE,
    "duplicate-address": "".join(f'[[device]]\nname="{x}"\naddresses=["1"]\n' for x in "ab"),
    "unknown-device": NODE + '[[cable]]\na = "a"\nb = "aa"\n',
    "loop": NODE + '[[cable]]\na = "a"\nb = "a"\n',
    "bad-name": '[[device]]\nname = "a->b"\n',
    "empty": "",
    "not-dot": "graph { a -- ",
    "not-lldp": '{"lldp": 3}',
    "not-ibnetdiscover": "vendid=0x2c9\nSwitch\t65 what",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_named_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fabric"
    file.write_text(WRONG[name])
    assert run(["fabric", "import", str(file)]) == 2
    said = capsys.readouterr()
    assert f"error: {name}: {file}" in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_a_port_is_in_one_cable() -> None:
    text = "graph { a:1 -- b:1; a:1 -- c:1 }"
    with pytest.raises(InputError, match="port-twice"):
        parse_topology(text)


def test_import_and_diff_on_the_command_line(
    captures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = (str(simulated(captures, name)) for name in ("good", "bad-rail-swap"))
    assert run(["fabric", "import", good]) == 0
    assert "16 nic" in capsys.readouterr().out
    assert run(["fabric", "diff", good, good, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["fabric", "diff", good, bad, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)) == 2


def _either(text: str, form: str) -> None:
    try:
        found = parse_topology(text, form)
    except InputError:
        return
    assert found.devices
    assert all(isinstance(device.kind, ComponentKind) for device in found.devices)


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 6000), junk=st.text(max_size=8), place=st.integers(0, 6000))
def test_truncated_and_garbled_files_end_in_a_topology_or_a_named_error(
    cut: int, junk: str, place: int
) -> None:
    texts = {
        "ibnetdiscover": IBNETDISCOVER,
        "toml": TOML,
        "dot": DOT,
        "lldp": json.dumps(LLDP),
    }
    for form, text in texts.items():
        _either(text[:cut], form)
        at = place % len(text)
        _either(text[:at] + junk + text[at + len(junk) :], form)


@settings(max_examples=60, deadline=None)
@given(
    document=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=6),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["lldp", "interface", "chassis", "port", "id", "name", "value", "mgmt-ip"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    form=st.sampled_from(sorted(FORMS)),
)
def test_any_json_is_digested(document: object, form: str) -> None:
    _either(json.dumps({"lldp": {"interface": document}}), "lldp")
    _either(json.dumps(document), form)


_WORDS = st.sampled_from(
    ["leaf0", "leaf1", "", "a--b", "x" * 200, "evil\x1b[2J", "10.0.0.1", "Eth1"]
)


@settings(max_examples=60)
@given(
    heard=st.lists(
        st.builds(
            Neighbour, nic=st.sampled_from(["h0/eth0", "h0/eth1", "h1/eth0", "leaf0"]),
            name=_WORDS, chassis=_WORDS, addresses=st.lists(_WORDS, max_size=2).map(tuple),
            port=_WORDS,
        ),
        max_size=8,
    )
)  # fmt: skip
def test_neighbours_that_say_anything_are_merged_or_doubted(heard: list[Neighbour]) -> None:
    """Whatever hosts hear, what is sound stays and nothing is lost without a word."""
    merged = merge_lldp(heard)
    nics = {cable.a for cable in merged.topology.cables}
    doubted = {doubt.subject for doubt in merged.doubts}
    assert {each.nic for each in heard} <= nics | doubted
    owners = [a for device in merged.topology.devices for a in device.addresses]
    assert len(owners) == len(set(owners))


def test_ports_below_a_garbled_head_are_not_those_of_the_node_before() -> None:
    """They, and the head, are reported as skipped, cut at 60 characters."""
    head = 'Switch\t40 S-0000000000000002"\t\t# "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 2 lmc 0'
    lines = [
        'Switch\t40 "S-0000000000000001"\t\t# "MF0;leaf0:MQM8700/U1" enhanced port 0 lid 1 lmc 0',
        '[1]\t"H-0000000000000011"[1](11) \t\t# "h0 mlx5_0" lid 11 4xHDR',
        '[2]\t"H-0000000000000012"[1](12) \t\t# "h1 mlx5_0" lid 12 4xHDR',
        head,
        '[3]\t"H-0000000000000013"[1](13) \t\t# "h2 mlx5_0" lid 13 4xHDR',
    ]
    reported = parse_subnet("\n".join(lines))
    assert {at for at, _ in reported.rates} == {"leaf0"}
    assert len(reported.topology.cables) == 2
    assert reported.skipped == (f"line 4: {head[:60]!r}", f"line 5: {lines[4][:60]!r}")
