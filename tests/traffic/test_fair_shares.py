"""Fair rates against what fair means: nobody gets more without one who has no more losing."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from syntony.traffic.demand import Priority
from syntony.traffic.fair import max_min
from syntony.traffic.shares import LEAST, ShareClaim, share


@pytest.mark.parametrize("seed", range(30))
def test_every_flow_has_what_it_asks_for_or_a_full_link_on_which_nobody_has_more(seed: int) -> None:
    rng = random.Random(seed)
    links, flows, hops = rng.randrange(1, 8), rng.randrange(1, 20), rng.randrange(1, 4)
    path = np.full((flows, hops), -1, dtype=np.int32)
    for row in path:
        crossed = rng.sample(
            range(links), rng.randrange(0 if seed % 3 else 1, min(hops, links) + 1)
        )
        row[: len(crossed)] = crossed
    capacity = np.array([rng.choice([0.0, 10.0, rng.uniform(1, 100)]) for _ in range(links)])
    weight = np.array([rng.choice([0.5, 1.0, 3.0]) for _ in range(flows)])
    demand = np.array([rng.choice([math.inf, rng.uniform(0, 20)]) for _ in range(flows)])
    rates = max_min(path, capacity, weight, demand)
    used = [sum(rates[(path == link).any(axis=1)]) for link in range(links)]
    assert all(u <= c * (1 + 1e-6) + 1e-9 for u, c in zip(used, capacity, strict=True))
    for flow in range(flows):
        assert 0 <= rates[flow] <= demand[flow] * (1 + 1e-9)
        if rates[flow] >= demand[flow] * (1 - 1e-9):
            continue
        crossed = [link for link in path[flow] if link >= 0]
        assert any(
            used[link] >= capacity[link] * (1 - 1e-6) - 1e-9
            and all(
                rates[other] / weight[other] <= rates[flow] / weight[flow] * (1 + 1e-6) + 1e-9
                for other in range(flows)
                if link in path[other]
            )
            for link in crossed
        ), f"seed {seed}, flow {flow}"
    alike = max_min(path, capacity)
    same = max_min(path, capacity, np.ones(flows), np.full(flows, np.inf))
    assert np.array_equal(alike, same)


def claim(
    *links: str, priority: Priority = Priority.STANDARD, weight: float = 1.0,
    demand: float = math.inf,
) -> ShareClaim:  # fmt: skip
    return ShareClaim(links, priority, weight, demand)


BUDGETS = {"a": 100.0, "b": 50.0}


def test_a_class_has_what_those_above_leave_and_everybody_a_hundredth() -> None:
    claims = [
        claim("a", priority=Priority.GUARANTEED, demand=60.0),
        claim("a"), claim("a", weight=3.0), claim("a", priority=Priority.SCAVENGER),
    ]  # fmt: skip
    rates = share(claims, BUDGETS)
    assert LEAST == 0.01
    assert sum(rates) == pytest.approx(100)
    assert rates[0] == pytest.approx(60)
    assert rates[3] == pytest.approx(1)
    # 39 are left for two of weights 1 and 3, of which each has one already.
    assert rates[1] == pytest.approx(1 + 37 / 4)
    assert rates[2] == pytest.approx(1 + 3 * 37 / 4)


def test_what_nobody_asks_for_is_handed_out_by_weight_the_highest_class_first() -> None:
    idle = share([claim("a", demand=10.0), claim("a", demand=10.0, weight=3.0)], BUDGETS)
    assert idle == pytest.approx([10 + 80 / 4, 10 + 80 * 3 / 4])
    classes = [claim("a", demand=10.0, priority=Priority.GUARANTEED), claim("a", demand=10.0)]
    assert share(classes, BUDGETS) == pytest.approx([90, 10])


def test_the_tightest_link_of_a_way_decides_and_without_links_nothing() -> None:
    rates = share([claim("a", "b"), claim("a"), claim()], BUDGETS)
    assert rates[:2] == pytest.approx([50, 50], abs=0.5)  # less what each has beforehand
    assert math.isinf(rates[2])
    many = share([claim("b", priority=Priority.SCAVENGER)] * 400, BUDGETS)
    assert many == pytest.approx([50 / 400] * 400)
    assert len(share([], BUDGETS)) == 0
