"""A topology file that was replaced: what it no longer lists is not missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.controller.fabric_changes import FABRIC_MAP, FabricChangeService
from syntony.fabric.book import PathBook
from syntony.fabric.changes import MapState, without_unlisted
from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.names import ComponentKind, cable_name, silent_at
from syntony.fabric.silent import SilentPart
from syntony.state import ControlState
from syntony.state.document import Document

LEAF, SPINE = ComponentKind.LEAF, ComponentKind.SPINE


def topology(*cables: tuple[str, str], addresses: dict[str, str] | None = None) -> Topology:
    of = addresses or {}
    names = {"leaf0", "leaf1", "spine0", "spine1"} | {end for cable in cables for end in cable}
    devices = [
        Device(
            name=name,
            kind=LEAF if name.startswith("leaf") else SPINE,
            addresses=(of[name],) if name in of else (),
        )
        for name in sorted(names)
    ]
    return make_topology(devices, [Cable(a=a, b=b) for a, b in cables])


WHOLE = (("leaf0", "spine0"), ("leaf0", "spine1"), ("leaf1", "spine0"), ("leaf1", "spine1"))


@pytest.mark.parametrize(
    ("cable", "listed", "kept"),
    [
        (("leaf0", "spine0"), WHOLE, True),
        (("leaf0", "spine0"), WHOLE[1:], False),  # removed for good
        (("leaf0", "spine2"), WHOLE, False),  # with its switch
        (("leaf0", "spine0"), (), True),  # a file of names only
        (("10.0.0.1", "10.0.0.2"), WHOLE, True),  # switches that it does not know
        (("10.0.0.1", "10.0.0.9"), WHOLE, False),  # a switch that has a name now
    ],
)
def test_a_lost_cable_is_missed_while_the_topology_may_have_it(
    cable: tuple[str, str], listed: tuple[tuple[str, str], ...], kept: bool
) -> None:
    known = MapState(cables=["leaf1--spine1"], lost={cable_name(*cable): 7})
    left = without_unlisted(known, topology(*listed, addresses={"leaf0": "10.0.0.9"}))
    assert left.lost == (known.lost if kept else {})
    assert left.cables == known.cables


def test_a_switch_that_is_down_is_missed_while_the_topology_has_it() -> None:
    known = MapState(down={"spine0": (), "spine2": (), "10.0.0.1": ()})
    left = without_unlisted(known, topology(*WHOLE))
    assert left.down == {"spine0": (), "10.0.0.1": ()}


def test_a_silent_switch_that_is_down_is_missed_while_the_topology_has_it() -> None:
    pairs = (("leaf0", "leaf1"),)
    unnamed = SilentPart(pairs, 7, names=(silent_at(pairs[0]),))
    known = [unnamed, *(SilentPart(pairs, 7, names=(name,)) for name in ("spine1", "spine2"))]
    assert without_unlisted(MapState(silent=known), topology(*WHOLE)).silent == known[:2]


def test_a_controller_that_starts_with_another_topology_misses_nothing_of_the_old(
    tmp_path: Path,
) -> None:
    with ControlState(tmp_path) as state:
        lost = {"leaf0--spine2": 7, "leaf1--spine2": 7, "leaf0--spine0": 7}
        known = MapState(cables=["leaf1--spine0"], lost=lost)
        Document(state, FABRIC_MAP, MapState).save(known)
        status = FabricChangeService(PathBook(topology(*WHOLE)), state).status
    assert status is not None
    assert set(status.lost) == {"leaf0--spine0"}
    assert status.gone == {}
