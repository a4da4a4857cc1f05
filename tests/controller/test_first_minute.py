"""A link breaks before the paths are known: paged for as the group that is known, once, and later
named; also if the controller restarts, or another one takes over, in between. Clos fabrics are
drawn; a failure prints its seed."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from tests.cases import mostly_slow
from tests.controller.judged import Control
from tests.controller.probed import Probed

from syntony.alerts.incidents import ChangeKind, Incident
from syntony.controller.fabric_changes import FabricChangeService
from syntony.fabric.book import PathBook
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.graph import Cable, Device, Topology, make_topology
from syntony.fabric.names import GROUP, OR, cable_name
from syntony.model import S

KINDS = ("black", "one way", "lossy")
WATCHED_S = 75


class Planned(Probed):
    """With a topology, and the crossings of all pairs; agents begin to trace after a while."""

    def __init__(self, control: Control, seed: int, *, odd: bool) -> None:
        draw = random.Random(f"first minute {seed}")
        leaves, spines = draw.randint(3, 4), draw.randint(2, 3)
        self.draw, self.odd = draw, odd
        self.begins_ns = draw.choice((0, 0, draw.randint(5, 25))) * S
        super().__init__(control, seed, leaves, spines=spines, hosts=draw.randint(leaves, 6))

    def _begin(self) -> None:
        super()._begin()
        self.book = PathBook(self._topology())
        self.service = FabricChangeService(self.book, self.control.kept)
        self.watch = FaultLocator(self.book)

    def _topology(self) -> Topology:
        leaves = sorted({*self.leaf.values()})
        names = [*leaves, *self.spines]
        cables = [Cable(a=leaf, b=spine) for leaf in leaves for spine in self.spines]
        if self.odd:  # a peer link that no path takes
            cables.append(Cable(a=leaves[0], b=leaves[1]))
        cables += [Cable(a=nic, b=leaf) for nic, leaf in self.control.homes.items()]
        nics = [Device(name=nic) for nic in self.control.homes]
        return make_topology([*nics, *(Device(name=n, addresses=(n,)) for n in names)], cables)

    def turning(self, nic: str, step: int) -> bool:
        return super().turning(nic, step) and self.now_ns >= self.begins_ns

    def _pairs(self) -> list[tuple[str, str]]:
        return sorted({(flow.src, flow.dst) for flow in self.flows})


class Outcome(NamedTuple):
    pages: list[str]
    incident: Incident
    """That of the first page."""
    others: list[Incident]
    """Live, and nobody's evidence."""
    renamed: list[int]
    """Seconds after the fault."""
    cable: str
    shape: str


def outcome(control: Control, seed: int, kind: str, *, restarts: bool, odd: bool) -> Outcome:
    fabric = Planned(control, seed, odd=odd)
    draw = fabric.draw
    fabric.run(draw.randint(0, 12))
    leaf, spine = draw.choice(sorted({*fabric.leaf.values()})), draw.choice(fabric.spines)
    links = f"{leaf}->{spine}", f"{spine}->{leaf}"
    if kind == "lossy":
        fabric.losses = dict.fromkeys(links, draw.uniform(0.05, 0.3))
    else:
        fabric.black = {*(links if kind == "black" else links[:1])}
    began_s = fabric.second
    if restarts:
        fabric.run(draw.randint(5, 20))
        fabric.restart(draw.randint(1, 8))
    fabric.run(WATCHED_S - (fabric.second - began_s))
    live = [each for each in control.service.live() if not each.cause]
    paged = [each for each in live if each.pages]
    renames = [each for each in control.changes if each.kind is ChangeKind.RENAMED]
    began_ns = control.now_ns - WATCHED_S * S
    return Outcome(
        control.pages(), paged[0] if paged else live[0], live[:1] if not paged else
        [each for each in live if each is not paged[0]],
        [(each.at_ns - began_ns) // S for each in renames], cable_name(leaf, spine),
        f"seed {seed}, {kind}: {fabric.shape}, traced from {fabric.begins_ns // S} s",
    )  # fmt: skip


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kind", mostly_slow(KINDS, {"black"}))
def test_a_link_that_broke_before_paths_were_known_is_named(
    control: Control, kind: str, restarts: bool, odd: bool
) -> None:
    seed = random.getrandbits(32)
    found = outcome(control, seed, kind, restarts=restarts, odd=odd)
    a, b = found.cable.split("--")
    right = {found.cable, f"{a}->{b}", f"{b}->{a}"}
    assert len(found.pages) == 1, (found.shape, found.pages)
    named = {*found.incident.summary.partition(": ")[0].split(OR)}
    if kind == "one way":  # no trace passes it, and those of the other direction do not show it
        right |= {f"{a}{GROUP}*", f"*{GROUP}{a}"}
    assert right & named, (found.shape, found.cable, found.incident)
    assert not found.others, (found.shape, found.others)
