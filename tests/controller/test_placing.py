"""The placing desk against a fabric in memory: contention goes, and nothing else happens."""

from __future__ import annotations

import pytest
from tests.controller.placed import RATE_BPS, Fabric, World

RINGS = [
    (job, ranks[k], ranks[(k + 1) % 4])
    for job, ranks in (("a", ("h0", "h4", "h1", "h5")), ("b", ("h2", "h6", "h3", "h7")))
    for k in range(4)
]


def crowded(src: str, dst: str, sport: int, dport: int) -> int:
    """All first choices fall on one spine; ports from the pool lead everywhere."""
    return 0 if sport < 50_000 and sport > 8_621 else (sport + dport) % 7


def results(world: World) -> list[str]:
    return [move.result for move in world.desk.moves("", 100)]


def test_two_rings_get_all_there_is() -> None:
    world = World(Fabric(route=crowded), RINGS)
    assert min(world.rates()) == pytest.approx(RATE_BPS / 4)
    world.run(12)
    assert min(world.rates()) == pytest.approx(RATE_BPS)
    assert len(world.moves) <= len(RINGS), "at most one move a flow"
    assert set(results(world)) == {"helped"}
