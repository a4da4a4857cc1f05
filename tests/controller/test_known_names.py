"""The names against which a mistyped one is held."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from tests.link import hello

from syntony.controller.orders import known_names
from syntony.model.names import did_you_mean
from syntony.wire.fabric import FabricMap, MapDevice

if TYPE_CHECKING:
    from syntony.controller.services import Services


def test_everything_that_people_name() -> None:
    fabric = FabricMap(
        configured=True,
        devices=(MapDevice(name="leaf0", kind="leaf"), MapDevice(name="spine0", kind="spine")),
        cables=(("leaf0", "spine0"),),
    )
    services = SimpleNamespace(
        locating=SimpleNamespace(fabric_map=lambda: fabric),
        fleet=SimpleNamespace(members={"h0": SimpleNamespace(hello=hello("h0", "s", rails=1))}),
        gateways=SimpleNamespace(statuses=lambda: (SimpleNamespace(name="gw1"),)),
        traffic=SimpleNamespace(used=lambda _: {"train-7": frozenset()}),
        jobs=SimpleNamespace(names=("train-8",)),
    )
    names = "leaf0 spine0 leaf0->spine0 spine0->leaf0 leaf0--spine0 h0 h0/rail0 gw1 train-7 train-8"
    assert asyncio.run(known_names(cast("Services", services))) == set(names.split())


def test_the_nearest_name() -> None:
    assert did_you_mean("gpu01", {"gpu001", "leaf0"}) == "; did you mean 'gpu001'?"
    assert did_you_mean("x", {"gpu001", "leaf0"}) == ""
    assert did_you_mean("x", ()) == ""
