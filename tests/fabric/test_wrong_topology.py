"""A topology that is wrong or half there: what paths show counts, and the right part is named."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from tests.fabric.test_fault_locator import HOSTS, LEAVES, SPINES, Fabric

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.graph import Cable, Device, Topology, make_topology

HOMES = {f"h{host}/rail0": f"leaf{host * LEAVES // HOSTS}" for host in range(HOSTS)}
MOVED = "h5/rail0"
"""It is at leaf2."""


def topology(moved: Mapping[str, str], missing: Collection[str] = ()) -> Topology:
    homes = HOMES | dict(moved)
    leaves, spines = (
        [f"{kind}{number}" for number in range(count)]
        for kind, count in (("leaf", LEAVES), ("spine", SPINES))
    )
    cables = [
        *(Cable(a=nic, b=leaf) for nic, leaf in homes.items()),
        *(Cable(a=leaf, b=spine) for leaf in leaves for spine in spines),
    ]
    names = [name for name in (*leaves, *spines, *homes) if name not in missing]
    return make_topology(
        [Device(name=name) for name in names],
        [cable for cable in cables if {cable.a, cable.b} <= {*names}],
    )


def under(planned: Topology) -> Fabric:
    """The fabric as it is, seen with this topology."""
    fabric = Fabric()
    book = PathBook(planned)
    for flow in fabric.flows:
        for way in (flow, reply(flow)):
            book.learn(
                way, [each for each in fabric.book.components(way)[1:-1] if "->" not in each]
            )
    fabric.watch = FaultLocator(book)
    return fabric


@pytest.mark.parametrize(
    ("moved", "missing"),
    [({MOVED: "leaf0"}, ()), ({}, ("leaf0", "spine1", "h0/rail0", MOVED))],
    ids=["a NIC at another leaf", "half of it"],
)
@pytest.mark.parametrize(("hurt", "share"), [("leaf0", 1.0), (f"leaf2->{MOVED}", 0.1)])
def test_the_right_part_is_named(
    moved: Mapping[str, str], missing: Collection[str], hurt: str, share: float
) -> None:
    fabric = under(topology(moved, missing))
    for _ in range(4):
        fabric.second()
    assert fabric.named() == []
    for _ in range(5):
        fabric.second({hurt: share})
    assert fabric.named() == [hurt]


def to(port: int = 61_000, *, back: bool = False) -> Way:
    ends = (MOVED, "h0/rail0") if back else ("h0/rail0", MOVED)
    return Way(*ends, port, 8620)


def test_paths_go_by_where_a_nic_is_found_as_soon_as_it_is_found_there() -> None:
    book = PathBook(topology({MOVED: "leaf1"}))
    book.learn(to(), ["leaf0", "spine0", "leaf2"])
    as_planned = book.components(to())
    assert "leaf1" in as_planned, "nothing is known of the NIC's own packets"
    book.learn(to(back=True), ["*", "spine0", "leaf0"])
    assert book.components(to()) == as_planned
    book.learn(to(back=True), ["leaf2", "spine0", "leaf0"])
    assert "leaf1" not in book.components(to())
    assert f"leaf2->{MOVED}" in book.components(to())
    assert book.cabled_to(MOVED) == book.cabled_nics()[MOVED] == "leaf1", "for what is misplaced"


def test_most_paths_decide_and_what_is_planned_where_as_many_say_either() -> None:
    book = PathBook(topology({MOVED: "leaf1"}))
    known = to(99)
    book.learn(known, ["leaf0", "spine0"])

    def at() -> str:
        return book.components(known)[-2].partition("->")[0]

    book.learn(to(1, back=True), ["leaf2"], 1)
    assert at() == "leaf2"
    book.learn(to(2, back=True), ["leaf1"], 1)
    assert at() == "leaf1"
    book.learn(to(3, back=True), ["leaf2"], 1)
    assert at() == "leaf2"
    book.learn(to(3, back=True), ["leaf1"], 2)
    assert at() == "leaf1"
    book.learn(to(4, back=True), ["leaf2"], 1)
    assert at() == "leaf1"
    book.forget(3, lambda way: way in {known, to(1, back=True), to(4, back=True)})
    assert at() == "leaf2"


def test_who_is_not_in_the_topology_moves_no_nic() -> None:
    """A relay, or a switch that answers by an address that the topology does not list."""
    book = PathBook(topology({}))
    book.learn(to(back=True), ["10.9.9.9", "leaf2", "spine0", "leaf0"])
    assert book.components(to(back=True))[:4] == (
        MOVED, f"{MOVED}->10.9.9.9", "10.9.9.9", "10.9.9.9->leaf2",
    )  # fmt: skip
    book.learn(to(), ["leaf0", "spine0", "leaf2"])
    assert book.components(to())[-2:] == (f"leaf2->{MOVED}", MOVED)
