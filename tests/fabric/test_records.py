"""The records that the room reads and keeps: LLDP entries, topologies, paths, observations."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from syntony.errors import InputError
from syntony.fabric.book import PathBook, Way
from syntony.fabric.graph import Cable, Device, diff, make_topology
from syntony.fabric.lldp import _chassis, _interfaces, _port
from syntony.fabric.names import ComponentKind
from syntony.fabric.observed import MIN_BASE_WINDOWS, check_observed, window_counts

ID = {"type": "mac", "value": "aa:bb"}


@pytest.mark.parametrize(
    ("chassis", "found"),
    [
        ({"sw1": {"id": ID, "mgmt-ip": "10.0.0.1"}}, ("sw1", "aa:bb", ("10.0.0.1",))),
        ({"sw1": {"id": ID}}, ("sw1", "aa:bb", ())),
        ({"id": ID}, ("aa:bb", "aa:bb", ())),
        ([{"id": [ID], "name": [{"value": "sw1"}]}, {"name": "other"}], ("sw1", "aa:bb", ())),
        (
            {"id": ID, "name": "sw1", "mgmt-ip": ["::1", {"value": "10.0.0.1"}, "::1", 7]},
            ("sw1", "aa:bb", ("::1", "10.0.0.1")),
        ),
        ({}, None), ([], None), ("sw1", None), ({"sw1": "text"}, None), ({"name": ""}, None),
    ],
)  # fmt: skip
def test_a_neighbour_has_a_name_an_id_and_addresses(chassis: Any, found: Any) -> None:
    assert _chassis({"chassis": chassis}) == found


@pytest.mark.parametrize(
    ("port", "found"),
    [
        ({"id": {"type": "ifname", "value": "Ethernet1/1"}}, "Ethernet1/1"),
        ([{"id": [{"value": "swp1"}, {"value": "no"}]}, {"id": {"value": "no"}}], "swp1"),
        ({"id": {"value": 7}}, ""), ({}, ""), ([], ""), (None, ""), ({"id": []}, ""),
    ],
)  # fmt: skip
def test_a_port_is_its_id(port: Any, found: str) -> None:
    assert _port({"port": port}) == found


def test_interfaces_are_listed_by_name_whichever_way_they_are_grouped() -> None:
    one, two = {"via": "LLDP"}, {"via": "CDP"}
    listed = [("eth0", one), ("eth1", two)]
    assert list(_interfaces({"eth0": one, "eth1": two})) == listed
    assert list(_interfaces([{"eth0": one}, {"eth1": two}])) == listed
    named = {"name": "eth0", "via": "LLDP"}
    assert list(_interfaces([named])) == [("eth0", named)]
    for wrong in (["eth0"], {"eth0": "text"}):
        with pytest.raises(InputError, match="not-lldp"):
            list(_interfaces(wrong))


# --- topologies ---


def device(name: str, *addresses: str, kind: ComponentKind | None = None) -> Device:
    return Device(name=name, addresses=addresses, kind=kind or ComponentKind.COMPONENT)


def test_what_a_topology_is_checked_for() -> None:
    a, b = device("a", "10.0.0.1"), device("b")
    for devices, cables, name in (
        ([a, device("a")], [], "duplicate-name"),
        ([a, device("b", "10.0.0.1")], [], "duplicate-address: 10.0.0.1 belongs to a and to b"),
        ([device("")], [], "bad-name"),
        ([device("x->y")], [], "bad-name"),
        ([device("x\ty")], [], "bad-name"),
        ([a], [Cable(a="a", b="aa")], "unknown-device: a cable ends at 'aa'; did you mean 'a'"),
        ([a], [Cable(a="a", b="zzzz")], "unknown-device: a cable ends at 'zzzz'$"),
        ([a], [Cable(a="a", b="a")], "loop"),
        ([a, b], [Cable(a="a", b="b", gbps=-1.0)], "bad-speed"),
        ([a, b], [Cable(a="a", b="b", gbps=float("inf"))], "bad-speed"),
        ([a, b], [Cable(a="a", b="b", a_port="1")] * 2, "port-twice: port 1 of a"),
        ([a, b], [Cable(a="a", b="b", b_port="9"), Cable(a="b", b="a", a_port="9")],
         "port-twice: port 9 of b"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=name):
            make_topology(devices, cables)
    twice = make_topology(
        [device("a", "10.0.0.1", "10.0.0.1"), b],
        [Cable(a="a", b="b"), Cable(a="b", b="a", a_port="1"), Cable(a="b", b="a", b_port="1")],
    )
    assert len(twice.cables) == 3, "ports that are not reported, and equal ones of two devices"


def test_switches_are_tiers_by_their_distance_from_the_nics() -> None:
    names = ["h0/nic0", "one", "two", "three", "four"]
    kinds = {"h0/nic0": ComponentKind.NIC, "two": ComponentKind.AGG}
    found = make_topology(
        [device(name, kind=kinds.get(name)) for name in names],
        [Cable(a=a, b=b) for a, b in pairwise(names)],
    )
    assert [found.kind_of(name) for name in names] == [
        ComponentKind.NIC, ComponentKind.LEAF, ComponentKind.AGG, ComponentKind.CORE,
        ComponentKind.COMPONENT,
    ]  # fmt: skip


def test_a_cable_is_the_same_whichever_end_is_told_first_and_ports_tell_two_apart() -> None:
    ends = [device("a", kind=ComponentKind.LEAF), device("b", kind=ComponentKind.SPINE)]
    one = make_topology(ends, [Cable(a="a", b="b", a_port="1", b_port="2")])
    same = make_topology(ends, [Cable(a="b", b="a", a_port="2", b_port="1")])
    assert diff(one, same) == ()
    replugged = make_topology(ends, [Cable(a="a", b="b", a_port="3", b_port="2")])
    assert [(c.change, c.what, c.name, c.detail) for c in diff(one, replugged)] == [
        ("removed", "cable", "a--b", "ports 1 and 2"), ("added", "cable", "a--b", "ports 3 and 2")
    ]  # fmt: skip
    bare = make_topology(ends, [Cable(a="a", b="b")])
    assert [c.detail for c in diff(bare, make_topology(ends, []))] == [""]
    half = make_topology(ends, [Cable(a="a", b="b", b_port="2")])
    assert [c.detail for c in diff(half, make_topology(ends, []))] == ["ports ? and 2"]
    other = make_topology([device("a", kind=ComponentKind.SPINE), ends[1]], [Cable(a="a", b="b")])
    assert [(c.change, c.name, c.detail) for c in diff(bare, other)] == [
        ("changed", "a", "was leaf, is spine")
    ]


# --- paths ---


def test_what_was_learnt_earlier_or_says_no_more_is_no_news() -> None:
    book, way = PathBook(), Way("h0/r", "h1/r", 7, 8620)
    assert book.learn(way, ["a", "b", "c"], 100)
    for hops, at_ns, news in (
        (["a", "x", "c"], 99, False), (["a", "b", "c"], 100, False), (["a", "*"], 101, False),
        (["a", "", "c"], 102, False), (["a", "b", "c", "d"], 103, True), (["a", "x"], 104, True),
    ):  # fmt: skip
        version = book.version
        assert book.learn(way, hops, at_ns) is news
        assert book.version == version + news
    assert book.devices_on(way) == ("h0/r", "a", "x")
    assert book.forget(104, lambda _: False) == ()
    version = book.version
    assert book.forget(105, lambda _: True) == ()
    assert book.version == version
    assert book.forget(105, lambda _: False) == (way,)
    assert (len(book), book.devices_on(way), book.version) == (0, (), version + 1)
    assert book.learn(way, ["a"], 1), "nothing is remembered of when it was heard of"


def test_a_nic_meets_the_switch_that_most_of_its_paths_begin_with() -> None:
    book = PathBook()
    for sport, hop in enumerate(["a", "b", "b", "*"]):
        book.learn(Way("h0/r", "h1/r", sport, 8620), [hop])
    book.learn(Way("h2/r", "h1/r", 0, 8620), [])
    assert book.first_switches() == {"h0/r": "b"}


# --- observations ---


def observations(p50: list[float], base: list[float] | None = None) -> list[float]:
    """Change of the delay of one path in each of as many windows (the whole left out)."""
    count = len(p50)
    columns: dict[str, Any] = {
        "path_id": np.zeros(count, dtype=np.int64), "sent": np.full(count, 10),
        "lost": np.zeros(count, dtype=np.int64), "window": np.arange(count),
        "owd_p50_ns": np.array(p50),
    }  # fmt: skip
    if base is not None:
        columns["owd_base_ns"] = np.array(base)
    found = window_counts(check_observed(columns, np.zeros(count, dtype=np.int64)), 1)
    assert found[-1].sent.tolist() == [10 * count]
    changes = [window.change_ns for window in found[:-1]]
    return [float(change[0]) for change in changes if change is not None]


def test_a_path_is_compared_with_the_middle_of_its_own_past() -> None:
    past = [100.0, 140.0, 120.0, 100.0, 140.0, 120.0, 100.0, 140.0][:MIN_BASE_WINDOWS]
    found = observations([*past, 170.0, 171.0])
    middle = float(np.median(past))
    assert np.isnan(found[:MIN_BASE_WINDOWS]).all()
    assert found[MIN_BASE_WINDOWS:] == [170 - middle, 171 - float(np.median([*past, 170.0]))]
    reported = observations([*past, 170.0], [90.0] * (len(past) + 1))
    assert reported[-1] == 80.0, "what is reported its base goes before"


@pytest.mark.parametrize(
    ("delays", "found"),
    [([1, 2.5, None], [1.0, 2.5, None]), ([None] * 3, [None] * 3), ([True, 2, 3], "not-numbers"),
     (["1", 2, 3], "not-numbers"), ([1 + 2j, 2, 3], "not-numbers"),
     ([float("inf"), 2, None], "bad-delay")],
)  # fmt: skip
def test_a_column_may_have_gaps_but_nothing_else_than_numbers(
    delays: list[Any], found: list[float | None] | str
) -> None:
    counts = {name: np.array([k, k, k], dtype=object) for name, k in (("sent", 5), ("lost", 0))}
    columns = {"path_id": np.arange(3), **counts, "owd_p50_ns": np.array(delays, dtype=object)}
    if isinstance(found, str):
        with pytest.raises(InputError, match=found):
            check_observed(columns, np.arange(3))
        return
    for kind, fits in (("U1", False), ("?", False), ("i4", True), ("f4", True)):
        typed = columns | {"owd_p50_ns": np.ones(3).astype(kind)}
        if fits:
            assert check_observed(typed, np.arange(3)).p50_ns.tolist() == [1.0] * 3
        else:
            with pytest.raises(InputError, match="not-numbers: OBS column owd_p50_ns is not of"):
                check_observed(typed, np.arange(3))
    reported = check_observed(columns, np.arange(3)).p50_ns.tolist()
    assert [None if value != value else value for value in reported] == found  # noqa: PLR0124 - NaN
    columns["sent"] = np.array([5, None, 5], dtype=object)
    with pytest.raises(InputError, match="missing-counts: OBS row 1"):
        check_observed(columns, np.arange(3))


def test_more_lost_than_sent_is_refused() -> None:
    columns = {"path_id": np.array([0]), "sent": np.array([5]), "lost": np.array([6])}
    with pytest.raises(InputError, match="lost-above-sent: OBS row 0: lost 6 of 5"):
        check_observed(columns, np.array([0]))
    columns["lost"] = np.array([5])
    assert check_observed(columns, np.array([0])).lost.tolist() == [5]
