"""A cable is pulled while the answers of path learners get lost: one page, soon, by its name."""

from __future__ import annotations

import random

import pytest
from tests.cases import mostly_slow
from tests.controller.judged import Control
from tests.controller.traced import World

from syntony.controller.fabric_changes import FabricStatus
from syntony.controller.observe import FOUND_AGAIN_NS, UNPROVEN_NS, of_fabric
from syntony.fabric.names import cable_name
from syntony.model import S

KNOWN_S = 150
SOON_NS = 60 * S


@pytest.mark.parametrize("case", mostly_slow(range(4), {0}))
def test_a_pulled_cable_beside_saturating_traffic_pages_soon(control: Control, case: int) -> None:
    seed = case if case < 2 else random.randrange(100_000)
    fabric = World(control, seed)
    print(f"seed {seed}: {fabric.shape}")
    fabric.lost, fabric.stalls = 0.6, True
    fabric.run(KNOWN_S)
    assert control.pages() == []
    leaf = fabric.rng.choice(sorted({*fabric.leaf.values()}))
    cable = cable_name(leaf, fabric.rng.choice(fabric.spines))
    fabric.dead, pulled_ns = {cable}, fabric.now_ns
    fabric.run(90)
    assert control.pages() == [f"cable-lost {cable}"]
    assert fabric.paged_ns[0] - pulled_ns <= SOON_NS


@pytest.mark.parametrize(
    ("back", "age_ns", "pending"),
    [
        ({}, 0, False),
        ({"spine1": 0}, 0, True),
        ({"spine1": 0}, FOUND_AGAIN_NS, False),
        ({"leaf1--spine1": 0}, 0, True),  # one of the suspects
        ({"spine0": 0}, 0, False),
    ],
)
def test_cables_of_a_switch_that_came_back_wait(
    back: dict[str, int], age_ns: int, pending: bool
) -> None:
    status = FabricStatus(
        8, {"leaf0--spine1": 0}, (), {"leaf0--spine1": ("leaf1--spine1",)}, {}, back,
        frozenset({"leaf1--spine1"}),
    )  # fmt: skip
    (found,) = of_fabric(status, age_ns)
    assert (found.subject, found.pending) == ("leaf0--spine1 or leaf1--spine1", pending)


@pytest.mark.parametrize(
    ("proven", "age_ns", "pending"),
    [
        ((), 0, True),
        ((), UNPROVEN_NS - 1, True),
        ((), UNPROVEN_NS, False),
        (("leaf0--spine1",), 0, False),
        (("leaf0--spine0",), 0, True),
    ],
)
def test_a_cable_whose_switches_may_be_dead_waits(
    proven: tuple[str, ...], age_ns: int, pending: bool
) -> None:
    """Live, a spine beside a silent one died, and each of its cables paged."""
    lost = {"leaf0--spine1": 7}
    status = FabricStatus(8, lost, (), {}, {}, proven=frozenset(proven))
    (found,) = of_fabric(status, 7 + age_ns)
    assert found.pending is pending
