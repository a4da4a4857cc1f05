"""Names, distances and books of paths: small tables of what is called what, and what it crosses."""

from __future__ import annotations

import itertools

import pytest

from syntony.fabric.book import PathBook, Way
from syntony.fabric.candidates import Listing
from syntony.fabric.graph import Cable, Device, components_of, diff, make_topology
from syntony.fabric.names import (
    GROUP,
    ComponentKind,
    crosses,
    directions,
    guess_kind,
    link_ends,
    pairs_across,
    same_place,
)
from syntony.fabric.numbering import _CLAIM, IMPLIED_PRICE, make_candidates


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("a--b", ("a->b", "b->a")), ("a->b", ("a->b",)), ("a", ("a",)),
        ("a--b or c", ("a--b or c",)), ("a--b or c--d", ("a--b or c--d",)),
    ],
)  # fmt: skip
def test_the_directions_of_what_is_named(name: str, ways: tuple[str, ...]) -> None:
    assert directions(name) == ways


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("a->b", ("a", "b")), ("a--b", ("a", "b")), ("h0/rail0->leaf0", ("h0/rail0", "leaf0")),
        ("a", None), ("a->", None), ("->b", None), ("a->b->c", None), ("a--b--c", None), ("", None),
    ],
)  # fmt: skip
def test_links_have_two_ends(name: str, ends: tuple[str, str] | None) -> None:
    assert link_ends(name) == ends


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("leaf3", "leaf"), ("tor-3", "leaf"), ("pod1-leaf2", "leaf"), ("SPINE0", "spine"),
        ("superspine1", "core"), ("super-spine1", "core"), ("agg2", "agg"), ("sw9", "switch"),
        ("hca0", "nic"), ("gpu-17", "host"), ("banana", "component"), ("h3/rail0", "nic"),
        ("leaf3/eth1", "cable"), ("sw1/2", "cable"), ("/x", "component"), ("a..b", "group"),
        ("a->b", "link"), ("a--b", "cable"), ("leaf1-spine2", "link"),
    ],
)  # fmt: skip
def test_what_a_name_says(name: str, kind: str) -> None:
    assert guess_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "hit"),
    [("a", True), ("x", False), ("a->b", True), ("b->a", False), ("a--b", True), ("b--a", True),
     ("a--c", False), ("c--b", True), ("b--c", True)],
)  # fmt: skip
def test_a_cable_is_crossed_in_either_direction(name: str, hit: bool) -> None:
    assert crosses(name, ["a", "a->b", "b", "c->b"]) == hit
    both = f"y->z or {name}"
    crossing = {"one": ("x->y",), "two": ("a", "a->b", "b", "c->b"), "three": ("y->z", "z")}
    assert pairs_across([name, both], crossing) == {
        name: ["two"] * hit, both: ["two"] * hit + ["three"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("names", "same"),
    [
        (("h0/rail0", "h0/rail0--leaf0"), True), (("h0/rail0", "h0", "h0/rail1"), True),
        (("leaf0--spine1", "leaf0->spine1", "spine1->leaf0"), True),
        (("leaf0->spine1", "leaf0->spine2"), False), (("h0/rail0", "h1/rail0"), False),
        (("leaf0", "leaf0--spine0"), False), (("leaf0->h0/rail0", "h0"), True),
    ],
)  # fmt: skip
def test_one_repair_serves_a_host_its_nics_and_their_cables(
    names: tuple[str, ...], same: bool
) -> None:
    assert same_place(names) is same


def test_a_path_has_its_links_and_what_is_unknown_is_a_group() -> None:
    assert components_of(["h", "l", "s"]) == ["h", "h->l", "l", "l->s", "s"]
    assert components_of(["h", None, None, "s", "t"]) == ["h", "h..s", "s", "s->t", "t"]
    assert components_of([None, "s", None]) == ["s"]
    assert components_of([]) == []
    assert components_of(["l", "s", "s", "m"]) == ["l", "l->s", "s", "s->m", "m"]
    assert components_of(["s", None, "s"]) == ["s", "s..s", "s"]


def clos() -> tuple[list[Device], list[Cable]]:
    """Two pods of two leaves and an aggregation switch each, under one core, names that say
    nothing; the NICs are reported by theirs."""
    devices = [Device(name=f"h{k}/rail0") for k in range(4)]
    devices += [Device(name=name) for name in ("w0", "w1", "w2", "w3", "x0", "x1", "y")]
    cables = [Cable(a=f"h{k}/rail0", b=f"w{k}", a_port="1", b_port="1") for k in range(4)]
    cables += [Cable(a=f"w{k}", b=f"x{k // 2}") for k in range(4)]
    return devices, [*cables, Cable(a="x0", b="y"), Cable(a="x1", b="y")]


def test_tiers_are_counted_from_the_nics_and_distances_over_switches() -> None:
    topology = make_topology(*clos())
    kinds = {device.name: device.kind.value for device in topology.devices}
    assert [kinds[n] for n in ("h0/rail0", "w0", "x1", "y")] == ["nic", "leaf", "spine", "core"]
    assert topology.of_kind(ComponentKind.CORE, ComponentKind.SPINE) == ("x0", "x1", "y")
    away = topology.distances("h0/rail0")
    assert away == {"h0/rail0": 0, "w0": 1, "x0": 2, "w1": 3, "y": 3, "x1": 4, "w2": 5, "w3": 5}
    assert topology.nearer("y", away) == {"x0"}
    assert topology.nearer("x1", away) == {"y"}
    assert topology.nearer("w0", away) == {"h0/rail0"}
    assert topology.nearer("stranger", away) == set()
    assert topology.kind_of("y->x0") is ComponentKind.LINK


def test_a_topology_differs_by_what_moved_came_and_went() -> None:
    devices, cables = clos()
    devices.append(Device(name="h9/rail0"))
    cables.append(Cable(a="h9/rail0", b="w0"))
    before = make_topology(devices, cables)
    assert diff(before, make_topology(devices[::-1], cables[::-1])) == ()
    moved = [Cable(a="w3", b="h0/rail0", b_port="1", a_port="2"), *cables[1:]]
    (change,) = diff(before, make_topology(devices, moved))
    assert (change.change, change.name, change.detail) == ("moved", "h0/rail0", "from w0 to w3")
    fewer = make_topology([d for d in devices if d.name != "h3/rail0"],
                          [c for c in cables if c.a != "h3/rail0"])  # fmt: skip
    for one, other, word in ((before, fewer, "removed"), (fewer, before, "added")):
        reported = [(c.change, c.what, c.name, c.detail) for c in diff(one, other)]
        assert reported[0] == (word, "device", "h3/rail0", "nic")
        assert reported[-1] == (word, "cable", "h3/rail0--w3", "ports 1 and 1")


A = Way("h0/rail0", "h1/rail0", 61000, 8620)


def test_a_book_keeps_the_fuller_path_and_counts_its_news() -> None:
    book = PathBook()
    assert book.learn(A, ["l", "*", "m"])
    assert book.learn(A, ["l", "s", "m"])
    for poorer in (["l", "s", "m"], ["l", "s"], ["l", "*", "m"], ["", "s"], []):
        assert not book.learn(A, poorer)
    assert book.version == 2
    assert book.devices_on(A) == ("h0/rail0", "l", "s", "m")
    assert book.learn(A, ["l", "t", "m"])
    assert book.learn(A, ["l", "t", "m", "n"])
    assert (book.version, len(book), book.known()) == (4, 1, (A,))
    other = A._replace(sport=61001)
    assert book.learn(other, [], 5)
    assert book.components(other) == ("h0/rail0", "h0/rail0->h1/rail0", "h1/rail0")
    assert book.devices_on(other._replace(sport=9)) == ()
    assert book.first_switches() == {"h0/rail0": "l"}


def test_a_book_forgets_what_was_not_heard_of_and_is_not_asked_for() -> None:
    book = PathBook()
    ways = [A._replace(sport=k) for k in range(4)]
    for at_ns, way in enumerate(ways):
        book.learn(way, ["l"], at_ns)
    book.learn(ways[0], ["l"], 9)
    book.learn(ways[0], ["l"], 1)
    assert book.forget(3, keep=lambda way: way == ways[1]) == (ways[2],)
    assert book.known() == (ways[0], ways[1], ways[3])
    assert book.version == 5
    assert book.forget(3, keep=lambda way: way == ways[1]) == ()
    assert book.version == 5


def test_the_topology_names_addresses_and_the_switch_of_a_nic() -> None:
    devices, cables = clos()
    named = [Device(name=d.name, addresses=(f"@{d.name}",)) for d in devices]
    book = PathBook(make_topology(named, cables))
    assert book.cabled_to("h0/rail0") == "w0"
    assert book.cabled_to("w0") == book.cabled_to("stranger") == ""
    book.learn(A, ["*", "@x0", "?"])
    # The first hop is silent, the topology knows it; where the last one is not the one that the
    # topology says, something is between.
    assert book.components(A) == (
        "h0/rail0", "h0/rail0->w0", "w0", "w0->x0", "x0", "x0->?", "?", "?..w1", "w1",
        "w1->h1/rail0", "h1/rail0",
    )  # fmt: skip
    unknown = A._replace(sport=1)
    assert book.components(unknown)[2:5] == ("w0", "w0..w1", "w1")
    own = A._replace(dst="h0/rail0")
    assert book.components(own)[2:3] == ("w0",)
    assert len(book.components(own)) == 5


CLAIMS = ["h0/rail0", "banana", "leaf0", "leaf0..x", "leaf0--spine0", "gpu-17", "leaf0->spine0"]
"""What claims least first: a NIC, a part of no kind, a switch, a group, a cable, a host, a link."""


@pytest.mark.parametrize("least", range(len(CLAIMS) - 1))
@pytest.mark.parametrize("order", [1, -1])
def test_of_twins_that_are_listed_the_one_that_claims_least_is_named(
    least: int, order: int
) -> None:
    paths = [CLAIMS[least : least + 2][::order], ["other"]]
    found = make_candidates(Listing.of(paths))
    first, second = (found.names.index(name) for name in CLAIMS[least : least + 2])
    assert second in found.same[first] or GROUP in CLAIMS[least + 1] or GROUP in CLAIMS[least]
    assert first not in found.same[second]


@pytest.mark.parametrize(
    "pair", list(itertools.permutations(["leaf0", "agg0", "spine0", "core0", "sw0"], 2))
)
def test_of_switches_that_are_twins_the_first_on_the_path_is_named(pair: tuple[str, str]) -> None:
    found = make_candidates(Listing.of([list(pair), ["other"]]))
    first, second = map(found.names.index, pair)
    assert second in found.same[first]


def test_the_clock_of_a_host_is_named_last_and_what_it_answers_before_it() -> None:
    kinds = list(ComponentKind)
    assert sorted(_CLAIM, key=lambda kind: _CLAIM[kind])[-2:] == [
        ComponentKind.REPLIES, ComponentKind.CLOCK
    ]  # fmt: skip
    assert set(_CLAIM) == set(kinds), "each kind has its place"


def test_of_twins_a_part_is_named_before_what_it_is_made_of_or_part_of() -> None:
    """A NIC before its cable, host and links; a switch of any tier before its only cable."""
    switches = ["leaf", "agg", "spine", "core", "switch"]
    assert len({_CLAIM[ComponentKind(kind)] for kind in switches}) == 1
    order = ["nic", "component", "switch", "group", "cable", "host", "link", "replies", "clock"]
    claims = [_CLAIM[ComponentKind(kind)] for kind in order]
    assert claims == sorted(set(claims))


def test_candidates_are_what_is_listed_and_what_that_implies() -> None:
    nic, leaf, spine = "h0/rail0", "leaf0", "spine0"
    paths = [[f"{nic}->{leaf}", f"{leaf}->{spine}"], [f"{leaf}->spine1"], [f"spine1->{leaf}"],
             [f"h1/rail0->{leaf}", f"{leaf}->{spine}"]]  # fmt: skip
    found = make_candidates(Listing.of(paths))
    number = {(name, kind): k for k, (name, kind) in enumerate(zip(found.names, found.kinds,
                                                                   strict=True))}  # fmt: skip

    def across(name: str, kind: ComponentKind) -> list[int]:
        stands = number[name, kind]
        for representative, others in enumerate(found.same):
            if stands in others:
                stands = representative
        return [
            path for path in range(len(paths)) if stands in found.crossed.crossings[path].tolist()
        ]

    assert across(leaf, ComponentKind.LEAF) == [0, 1, 2, 3]
    assert across(f"{leaf}--spine1", ComponentKind.CABLE) == [1, 2]
    assert across(f"{leaf}->{spine}", ComponentKind.LINK) == [0, 3]
    assert across(nic, ComponentKind.NIC) == [0]
    finite = found.penalty[[number[leaf, ComponentKind.LEAF],
                          number[f"{leaf}->spine1", ComponentKind.LINK]]]  # fmt: skip
    assert finite[0] - finite[1] == pytest.approx(IMPLIED_PRICE), "what is told comes first"


def test_a_round_trip_crosses_what_lies_on_both_its_ways_twice() -> None:
    there = ["h0/r", "h0/r->leaf0", "leaf0", "leaf0->h1/r", "h1/r"]
    back = ["h1/r", "h1/r->leaf0", "leaf0", "leaf0->h0/r", "h0/r"]
    paths = [there, back, there + back, ["h0/r", "h0/r->leaf0", "leaf0", "leaf0->h2/r", "h2/r"]]
    found = make_candidates(Listing.of([*paths, ["replies of h1/r"]]))

    def times(name: str) -> list[int]:
        place = found.names.index(name)
        stands = next((k for k, same in enumerate(found.same) if place in same), place)
        here = found.crossed.crossings == stands
        return [int(row[at].sum()) for row, at in zip(found.crossed.times, here, strict=True)]

    assert times("leaf0") == [1, 1, 2, 1, 0]
    assert times("h0/r") == times("h0") == [1, 1, 2, 1, 0]
    assert times("h0/r--leaf0") == [1, 1, 2, 1, 0]
    assert times("h0/r->leaf0") == [1, 0, 1, 1, 0]
    assert times("leaf0->h0/r") == [0, 1, 1, 0, 0]
    assert times("replies of h1/r") == [0, 0, 1, 0, 1]
    assert found.kinds[found.names.index("replies of h1/r")] is ComponentKind.REPLIES
    assert not any(kind is ComponentKind.CLOCK and name.startswith("replies")
                   for name, kind in zip(found.names, found.kinds, strict=True))  # fmt: skip


def test_what_all_paths_cross_equally_often_cannot_be_told_apart() -> None:
    """Round trips alone: twice half as bad explains the same as once."""
    ways = [(f"h{k}/r", f"h{k}/r->leaf0", "leaf0", f"leaf0->h{k}/r") for k in range(4)]
    trips = [[a, up, leaf, f"leaf0->{b}", b, b, f"{b}->leaf0", leaf, down, a]
             for a, up, leaf, down in ways for b, *_ in ways if a != b]  # fmt: skip
    found = make_candidates(Listing.of(trips))
    nic = found.names.index("h0/r")
    twins = {found.names[k] for k in found.same[nic]}
    assert twins == {"h0/r->leaf0", "leaf0->h0/r", "h0/r--leaf0", "h0"}
