"""Paths that the map dropped count again, and old departures from a switch are forgotten."""

from __future__ import annotations

import pytest
from tests.fabric.test_changes import Fabric

from syntony.controller.fabric_changes import FabricChangeService
from syntony.fabric.book import PathBook, Way
from syntony.fabric.changes import HOLD_NS, LOOK_NS, _cables
from syntony.fabric.departures import ENOUGH, LEFT_NS
from syntony.model import S

HOPS = ("leaf0", "spine1", "leaf1")


@pytest.mark.parametrize(
    ("answers", "counts"), [(HOPS, True), (("leaf0", "*", "leaf1"), False), (HOPS[:2], False)]
)
def test_a_dropped_path_that_is_traced_again_unchanged_counts_again(
    answers: tuple[str, ...], counts: bool
) -> None:
    service = FabricChangeService(PathBook(), None)
    rest = [Way("h0/rail0", "h2/rail0", port, 8620) for port in range(61_000, 61_000 + 2 * ENOUGH)]
    kept = rest.pop()
    for way in (kept, *rest):
        trace(service, way, HOPS, S)
    for way in rest:
        trace(service, way, ("leaf0", "spine0", "leaf1"), 2 * S)
    service.settle(2 * S + LOOK_NS)
    assert kept not in service._map
    trace(service, kept, answers, 3 * S + LOOK_NS)
    assert (kept in service._map) is counts
    assert (service._map._count["leaf0--spine1"] == 1) is counts


def trace(service: FabricChangeService, way: Way, hops: tuple[str, ...], at_ns: int) -> None:
    """As the controller does."""
    if service._book.learn(way, hops, at_ns):
        service.take(way, at_ns, at_ns)
    else:
        service.confirm(way, hops, at_ns, at_ns)


@pytest.mark.parametrize("age_ns", [LEFT_NS - S, LEFT_NS])
def test_departures_from_a_switch_are_forgotten_some_time_after_the_last(age_ns: int) -> None:
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    crossing = [way for way in fabric.ways if "spine1" in fabric.map._ways[way]]
    fabric.dead = {f"leaf{number}--spine1" for number in range(4)}
    for way in crossing[: ENOUGH - 1]:
        fabric.map.take(way, fabric.heard(way), fabric.now_ns + S)
    fabric.now_ns += S
    fabric.wait(age_ns)
    assert ("spine1" in fabric.map._departures) is (age_ns < LEFT_NS)
    assert not fabric.map.down


def test_a_switch_stays_down_although_its_departures_are_forgotten() -> None:
    fabric = Fabric()
    fabric.look()
    fabric.learn()
    fabric.dead = {f"leaf{number}--spine1" for number in range(4)}
    fabric.now_ns += S
    fabric.learn()
    fabric.wait(S)
    fabric.wait(LEFT_NS)
    assert "spine1" not in fabric.map._departures
    assert set(fabric.map.down) == {"spine1"}
    fabric.dead = set()
    fabric.learn()
    assert not fabric.map.down


@pytest.mark.parametrize("age_ns", [LEFT_NS - S, LEFT_NS])
def test_old_departures_do_not_show_that_a_cable_is_lost_that_is_no_longer_traced(
    age_ns: int,
) -> None:
    fabric = Fabric()
    fabric.look()
    cable = "leaf0--spine1"
    crossing = [way for way in fabric.ways if cable in _cables(fabric.map._ways[way])]
    for way in crossing[:ENOUGH]:
        elsewhere = (way.src, *("spine0" if d == "spine1" else d for d in fabric.heard(way)[1:]))
        fabric.map.take(way, elsewhere, fabric.now_ns)
    fabric.wait(age_ns)
    for way in crossing[ENOUGH:]:
        fabric.map.take(way, (), fabric.now_ns)
    change = "removed" if age_ns < LEFT_NS else "unseen"
    assert (change, cable) in fabric.wait(HOLD_NS + S)
