"""Routing tables: what is missing, narrow, off the plan, thrown away, or goes round in circles."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.audit.facts import UnreadableError
from syntony.audit.parse.routes import KernelRoute, RoutingTable, parse_routes
from syntony.audit.result import Result, Status
from syntony.audit.routing import _at_home, judge_routes
from syntony.io.audit.tables import read_tables
from syntony.lab.plan import FabricSpec, make_plan
from syntony.lab.routes import routes as planned_routes
from syntony.lab.topology import topology

PLAN = make_plan(FabricSpec(hosts=8, spines=4))
TOPOLOGY = topology(PLAN)


def tables(failed: Sequence[str] = ()) -> dict[str, RoutingTable]:
    """Of the lab's switches, as its routing has them."""
    made = planned_routes(PLAN, failed)
    return {
        name: RoutingTable(name, frozenset(a for d in TOPOLOGY.devices if d.name == name
                                    for a in d.addresses),
                    tuple(KernelRoute("main", ipaddress.ip_network(r.prefix),
                                tuple(hop.via for hop in r.hops)) for r in made[name]))
        for name in (*PLAN.leaves, *PLAN.spines)
    }  # fmt: skip


def device_at(address: str) -> str:
    return TOPOLOGY.by_address[str(ipaddress.ip_address(address))]


def bad(results: Sequence[Result]) -> dict[str, Result]:
    return {r.subject: r for r in results if r.status is Status.FAIL}


def test_a_good_fabric_passes_with_and_without_a_plan() -> None:
    for plan in (TOPOLOGY, None):
        (result,) = judge_routes(list(tables().values()), plan)
        assert result.status is Status.PASS, result
        assert "8 tables" in result.evidence


def test_a_lost_member_is_the_cable_with_a_plan_and_the_switch_without() -> None:
    """A session that is down on a link that is up: nothing is lost, all crowd on three of four."""
    seen = tables()
    leaf = seen["leaf0-0"]
    gone = next(r.hops[0] for r in leaf.routes if r.hops)
    spine = device_at(gone)
    seen["leaf0-0"] = leaf._replace(
        routes=tuple(r._replace(hops=tuple(h for h in r.hops if device_at(h) != spine))
                     for r in leaf.routes)
    )  # fmt: skip
    found = bad(judge_routes(list(seen.values()), TOPOLOGY))
    assert list(found) == [f"leaf0-0--{spine}"]
    assert found[f"leaf0-0--{spine}"].suspect == "port"
    found = bad(judge_routes(list(seen.values())))
    assert list(found) == ["leaf0-0"]
    assert found["leaf0-0"].expected == "4 as more than half of the leaf devices have"
    assert "3 of 4" in found["leaf0-0"].evidence


@pytest.mark.parametrize(
    ("at_home", "have", "lacking"),
    # Of so many leaves whose own side it is not, so many have a route there.
    [(1, 4, 2), (1, 3, 0), (1, 6, 0), (3, 3, 1), (3, 2, 0), (4, 2, 0), (4, 3, 0), (0, 4, 3)],
)
def test_what_more_than_half_of_those_elsewhere_have_the_others_lack(
    at_home: int, have: int, lacking: int
) -> None:
    """Seven leaves; everybody has the one route, and some have the other."""
    everybody = KernelRoute("main", ipaddress.ip_network("10.1.0.0/24"), ("192.0.2.1",))
    there = KernelRoute("main", ipaddress.ip_network("10.2.0.0/24"), ("192.0.2.1",))
    seen = [
        RoutingTable(f"leaf{k}", frozenset({"10.2.0.9"} if k < at_home else ()),
              (everybody, there) if at_home <= k < at_home + have else (everybody,))
        for k in range(7)
    ]  # fmt: skip
    found = bad(judge_routes(seen))
    assert sorted(found) == [f"leaf{k}" for k in range(at_home + have, 7)][:lacking]
    assert all("10.2.0.0/24" in each.evidence for each in found.values())


def test_a_destination_that_one_leaf_does_not_know() -> None:
    seen = tables()
    leaf = seen["leaf0-1"]
    seen["leaf0-1"] = leaf._replace(routes=leaf.routes[2:])
    assert set(bad(judge_routes(list(seen.values()), TOPOLOGY))) == {
        f"leaf0-1--spine{n}" for n in range(4)
    }
    (said,) = bad(judge_routes(list(seen.values()))).values()
    assert said.subject == "leaf0-1"
    assert "no route to" in said.got


def test_a_next_hop_that_is_no_way() -> None:
    seen = tables()
    leaf = seen["leaf0-0"]
    detour = TOPOLOGY.neighbours["h0/rail0"]
    assert detour == ("leaf0-0",)
    host = next(d for d in TOPOLOGY.devices if d.name == "h0/rail0").addresses[0]
    odd = leaf.routes[0]._replace(hops=(*leaf.routes[0].hops, host))
    seen["leaf0-0"] = leaf._replace(routes=(odd, *leaf.routes[1:]))
    (said,) = bad(judge_routes(list(seen.values()), TOPOLOGY)).values()
    assert said.subject == "leaf0-0"
    assert said.got.endswith("goes by h0/rail0")


def test_a_circle_and_a_thrown_away_destination() -> None:
    net = ipaddress.ip_network("10.1.0.0/24")

    def table(name: str, own: str, *hops: str, thrown: str = "") -> RoutingTable:
        return RoutingTable(name, frozenset({own}), (KernelRoute("main", net, hops, thrown),))

    seen = [table("r1", "1.1.1.1", "2.2.2.2"), table("r2", "2.2.2.2", "3.3.3.3"),
            table("r3", "3.3.3.3", "1.1.1.1", "4.4.4.4"), table("r4", "4.4.4.4")]  # fmt: skip
    found = bad(judge_routes(seen))
    assert [r for r in found if r.count("->") == 3] != []
    (circle,) = [r for r in found.values() if "circle" in r.got]
    assert {"r1", "r2", "r3"} <= set(circle.subject.split(" -> "))
    more = ipaddress.ip_network("10.2.0.0/24")
    both = [each._replace(routes=(*each.routes, KernelRoute("main", more, each.routes[0].hops)))
            for each in seen]  # fmt: skip
    assert len([r for r in judge_routes(both) if "circle" in r.got]) == 1, "told once"
    found = bad(judge_routes([table("r1", "1.1.1.1", thrown="blackhole"), *seen[1:2], seen[3]]))
    assert "blackhole 10.1.0.0/24" in found["r1"].evidence


def test_nothing_to_compare_with_is_no_pass() -> None:
    two = list(tables().values())[:2]
    assert [r.status for r in judge_routes(two)] == [Status.UNKNOWN]
    assert [r.status for r in judge_routes([])] == [Status.SKIP]
    silent = judge_routes([], silent={"leaf9": "no answer"})
    assert [(r.subject, r.status) for r in silent] == [("leaf9", Status.UNKNOWN)]


IPROUTE: list[Mapping[str, Any]] = [
    {"type": "local", "dst": "10.0.0.1", "dev": "eth0", "table": "local"},
    {"type": "local", "dst": "127.0.0.0/8", "dev": "lo", "table": "local"},
    {"type": "broadcast", "dst": "10.0.0.255", "dev": "eth0", "table": "local"},
    {"dst": "10.0.0.0/24", "dev": "eth0", "protocol": "kernel", "flags": []},
    {"dst": "default", "gateway": "10.0.0.254", "dev": "eth0", "table": "100", "flags": []},
    {"dst": "10.7.0.0/16", "flags": [], "nexthops": [
        {"gateway": "10.0.0.2", "dev": "eth0", "weight": 1, "flags": []},
        {"via": {"family": "inet6", "host": "fe80::1"}, "dev": "eth1", "flags": []},
        {"gateway": "10.0.0.3", "dev": "eth2", "weight": 1, "flags": ["dead", "linkdown"]}]},
    {"type": "blackhole", "dst": "10.8.0.0/16", "flags": []},
    {"dst": "ff00::/8", "dev": "eth0", "type": "multicast", "table": "local"},
    {"dst": "default", "gateway": "fe80::9", "dev": "eth0", "flags": []},
]  # fmt: skip


def test_iproutes_json() -> None:
    table = parse_routes(json.dumps(IPROUTE), "leaf1")
    reported = {(r.table, str(r.network)): (r.hops, r.thrown) for r in table.routes}
    assert table.own == {"10.0.0.1"}
    assert reported == {
        ("main", "10.0.0.0/24"): ((), ""),
        ("100", "0.0.0.0/0"): (("10.0.0.254",), ""),
        ("main", "10.7.0.0/16"): (("10.0.0.2", "fe80::1"), ""),  # the dead one is no way
        ("main", "10.8.0.0/16"): ((), "blackhole"),
        ("main", "::/0"): (("fe80::9",), ""),
    }


def test_frrs_json() -> None:
    reported = {"10.7.0.0/16": [
        {"prefix": "10.7.0.0/16", "protocol": "bgp", "selected": True, "vrfName": "main",
         "nexthops": [{"ip": "10.0.0.2", "fib": True, "active": True},
                      {"ip": "10.0.0.3", "active": False}]},
        {"prefix": "10.7.0.0/16", "protocol": "static", "nexthops": [{"ip": "9.9.9.9"}]},
    ]}  # fmt: skip
    (route,) = parse_routes(json.dumps(reported), "leaf1").routes
    assert (route.hops, route.thrown) == (("10.0.0.2",), "")


@pytest.mark.parametrize("word", ["blackhole", "unreachable", "prohibit"])
def test_frr_says_of_a_hop_that_nothing_gets_through(word: str) -> None:
    for yes in (True, False):
        hop = {word: yes, "fib": True, "active": True}
        reported = {"10.7.0.0/16": [{"selected": True, "nexthops": [hop]}]}
        (route,) = parse_routes(json.dumps(reported), "leaf1").routes
        assert (route.hops, route.thrown) == ((), word if yes else "")


@pytest.mark.parametrize(
    "text",
    ["", "null", "5", '"x"', '[{"dst": "10.0.0.0/24"', '[{"type": "unicast"}]', "[5]",
     '[{"dst": "nonsense", "gateway": "1.1.1.1"}]', '{"10.0.0.0/8": 5}', '{"x": [{"selected": 1}]}',
     "Zielnetz  Router"],
)  # fmt: skip
def test_what_is_no_table_is_said(text: str) -> None:
    with pytest.raises(UnreadableError, match="leaf1"):
        parse_routes(text, "leaf1")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["dst", "gateway", "nexthops", "type", "flags", "via", "selected", "ip"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=60)
@given(_JSON)
def test_hostile_tables_are_unreadable_or_harmless(reported: Any) -> None:
    try:
        table = parse_routes(json.dumps(reported), "leaf1")
    except UnreadableError:
        return
    judge_routes([table, table._replace(device="leaf2"), table._replace(device="leaf3")])


def test_tables_from_files(tmp_path: Path) -> None:
    (tmp_path / "leaf1.json").write_text(json.dumps(IPROUTE))
    (tmp_path / "leaf2.json").write_text("[{")
    read, silent = read_tables(tmp_path)
    assert [each.device for each in read] == ["leaf1"]
    assert list(silent) == ["leaf2"]


def test_hosts_forward_nothing() -> None:
    """A host's default route leads back to its leaf: that is no circle. Of a device that no
    topology has, nobody knows that it does not forward."""
    host, leaf = "h0/rail0", "leaf0-0"
    address = {d.name: d.addresses[0] for d in TOPOLOGY.devices if d.addresses}

    def table(name: str, network: str, hop: str) -> RoutingTable:
        route = KernelRoute("main", ipaddress.ip_network(network), (hop,))
        return RoutingTable(name, frozenset({address[name]}), (route,))

    seen = [table(host, "0.0.0.0/0", address[leaf]), table(leaf, "198.51.100.0/24", address[host])]
    assert not [r for r in judge_routes(seen, TOPOLOGY) if "circle" in r.got]
    assert [r.subject for r in judge_routes(seen) if "circle" in r.got] != []


def test_a_circle_is_told_by_a_destination_that_somebody_forwards() -> None:
    """What is only connected somewhere is no destination of its own."""
    connected = KernelRoute("main", ipaddress.ip_network("10.0.0.0/24"), ())
    onwards = ipaddress.ip_network("10.0.0.0/8")
    seen = [
        RoutingTable(f"r{k}", frozenset({f"192.0.2.{k}"}),
              (KernelRoute("main", onwards, (f"192.0.2.{(k + 1) % 3}",)),))
        for k in range(3)
    ]  # fmt: skip
    seen.append(RoutingTable("edge", frozenset({"192.0.2.9"}), (connected,)))
    (circle,) = [r for r in judge_routes(seen) if "circle" in r.got]
    assert circle.got.startswith("10.0.0.0/8 ")


@pytest.mark.parametrize(
    ("own", "routes", "home"),
    [
        ({"10.1.0.1"}, (), True),
        ({"10.2.0.1"}, (), False),
        (set(), (("10.1.0.0/26", (), ""), ("0.0.0.0/0", ("1.1.1.1",), "")), True),
        (set(), (("0.0.0.0/0", ("1.1.1.1",), ""), ("10.1.0.0/24", (), "")), True),
        (set(), (("10.1.0.0/24", ("1.1.1.1",), ""), ("0.0.0.0/0", (), "")), False),
        (set(), (("10.1.0.0/24", (), "blackhole"),), False),
        (set(), (("fd00::/64", (), ""),), False),
        (set(), (), False),
    ],
)  # fmt: skip
def test_a_destination_is_a_devices_own_side(
    own: set[str], routes: tuple[tuple[str, tuple[str, ...], str], ...], home: bool
) -> None:
    """By an address there, or by a connected part of it, whatever else is in the table."""
    made = tuple(
        KernelRoute("main", ipaddress.ip_network(net), hops, gone) for net, hops, gone in routes
    )
    table = RoutingTable("leaf", frozenset(own), made)
    assert _at_home(table, ipaddress.ip_network("10.1.0.0/24")) is home
