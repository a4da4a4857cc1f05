"""Hops that are no switches of the fabric, and hosts that report what is not."""

from __future__ import annotations

import pytest
from tests.fabric.test_fault_locator import Fabric

from syntony.fabric.book import Way

FIREWALL, LIAR, LIE = "10.9.9.9", "h5/rail0", "what it says"


class Guarded(Fabric):
    """Leaf 3 reaches the spines through a firewall, which answers path learners."""

    def _hops(self, way: Way) -> list[str]:
        hops = super()._hops(way)
        for place in range(len(hops) - 1, 0, -1):
            if "leaf3" in hops[place - 1 : place + 1]:
                hops.insert(place, FIREWALL)
        return hops


class Lying(Fabric):
    """One host counts probes as lost that were answered; what others probe there is well."""

    def _crossed(self, way: Way) -> tuple[str, ...]:
        claimed = way.src == LIAR and way.dport == self.flows[0].dport
        return (*super()._crossed(way), *((LIE,) if claimed else ()))


def named(fabric: Fabric, hurt: dict[str, float]) -> list[str]:
    for _ in range(4):
        fabric.second()
    assert fabric.named() == []
    for _ in range(6):
        fabric.second(hurt)
    return fabric.named()


@pytest.mark.parametrize("hurt", [FIREWALL, "leaf3", "leaf0->spine0", "spine1"])
@pytest.mark.parametrize("share", [1.0, 0.1])
def test_a_firewall_on_the_way_is_named_where_it_loses_and_only_there(
    hurt: str, share: float
) -> None:
    assert named(Guarded(), {hurt: share}) == [hurt]


@pytest.mark.parametrize("share", [1.0, 0.3, 0.05])
@pytest.mark.parametrize("hurt", [(), ("spine1",)])
def test_who_reports_losses_that_are_none_has_nobody_else_blamed(
    hurt: tuple[str, ...], share: float
) -> None:
    found = named(Lying(), {LIE: share} | dict.fromkeys(hurt, 0.3))
    assert [each for each in found if LIAR not in each] == [*hurt]
