"""Which step survivors recover at, and which rank gives a lost rank its state."""

from __future__ import annotations

import pytest

from syntony.torch.recovery import START, RankReport, RecoveryPlan, RecoveryRefusal, make_plan

LIVE, PAST, AHEAD = (
    RankReport(5, stepped=False),
    RankReport(5, stepped=True),
    RankReport(6, stepped=False),
)


@pytest.mark.parametrize(
    ("survivors", "lost", "plan"),
    [
        ({0: LIVE, 1: LIVE}, {2: 5}, RecoveryPlan(5, 0, undo=False)),
        ({0: PAST, 1: LIVE}, {2: 5}, RecoveryPlan(5, 1, undo=False)),
        ({0: PAST, 1: PAST}, {2: 5}, RecoveryPlan(5, 0, undo=True)),
        ({0: AHEAD, 1: AHEAD}, {2: 5}, RecoveryPlan(5, 0, undo=True)),
        ({0: AHEAD, 1: PAST}, {2: 6}, RecoveryPlan(5, 0, undo=True)),
        ({0: AHEAD, 1: LIVE}, {2: 6}, RecoveryPlan(5, 1, undo=False)),
        (
            {0: RankReport(5, stepped=False, gives=False), 1: PAST},
            {2: 5},
            RecoveryPlan(5, 1, undo=True),
        ),
        (
            {0: RankReport(0, stepped=False), 1: RankReport(START, stepped=False)},
            {2: START},
            RecoveryPlan(START, 0, undo=False),
        ),
        ({1: AHEAD, 2: LIVE}, {}, RecoveryPlan(5, 1, undo=False)),
    ],
)
def test_plans(survivors: dict[int, RankReport], lost: dict[int, int], plan: RecoveryPlan) -> None:
    assert make_plan(survivors, lost) == plan


@pytest.mark.parametrize(
    ("survivors", "lost"),
    [
        ({}, {0: 5}),
        ({0: RankReport(7, stepped=False)}, {1: 5}),
        ({0: RankReport(6, stepped=True)}, {1: 5}),
        ({0: RankReport(5, stepped=False, gives=False)}, {1: 5}),
        ({0: RankReport(0, stepped=True)}, {1: START}),
        ({0: RankReport(1, stepped=False)}, {1: START}),
    ],
)
def test_what_cannot_be_exact_is_refused(
    survivors: dict[int, RankReport], lost: dict[int, int]
) -> None:
    assert isinstance(make_plan(survivors, lost), RecoveryRefusal)


# --- parameters that are split over ranks ---


def holding(*shadows: tuple[int, tuple[int, ...]], boundary: int = 5) -> RankReport:
    return RankReport(boundary, stepped=False, shadows=dict(shadows))


HSDP = {0: "0/2", 1: "1/2", 2: "0/2", 3: "1/2"}
FSDP = {rank: f"{rank}/4" for rank in range(4)}


@pytest.mark.parametrize(
    ("shards", "survivors", "lost", "boundary", "sources"),
    [
        # Of two replicas: a rank of the same part gives, whichever others may be better placed.
        (HSDP, {0: LIVE, 1: PAST, 2: LIVE}, {3: 5}, 5, {3: (1, True)}),
        (HSDP, {2: PAST, 3: LIVE}, {0: 5, 1: 5}, 5, {0: (2, True), 1: (3, False)}),
        (HSDP, {0: AHEAD, 1: LIVE, 2: LIVE}, {3: 5}, 5, {3: (1, False)}),
        # Without: the neighbour, at the newest boundary of which it has a copy.
        (FSDP, {0: LIVE, 2: holding((1, (4, 5))), 3: LIVE}, {1: 5}, 5, {1: (2, False)}),
        (FSDP, {0: LIVE, 2: holding((1, (3, 4))), 3: LIVE}, {1: 5}, 4, {1: (2, False)}),
        (FSDP, {0: holding((3, (4, 5))), 2: holding((1, (3, 4)))}, {1: 5, 3: 5}, 4,
         {1: (2, False), 3: (0, False)}),
        # A copy of a boundary of which the coordinator has no record is of no use.
        (FSDP, {0: LIVE, 2: holding((1, (4, 5))), 3: LIVE}, {1: 4}, 4, {1: (2, False)}),
    ],
)  # fmt: skip
def test_plans_of_split_parameters(
    shards: dict[int, str], survivors: dict[int, RankReport], lost: dict[int, int], boundary: int,
    sources: dict[int, tuple[int, bool]],
) -> None:  # fmt: skip
    plan = make_plan(survivors, lost, shards)
    assert isinstance(plan, RecoveryPlan), plan
    assert plan.boundary == boundary
    assert {rank: tuple(plan.source(rank)) for rank in lost} == sources


@pytest.mark.parametrize(
    ("shards", "survivors", "lost"),
    [
        (HSDP, {0: LIVE, 2: LIVE}, {1: 5, 3: 5}),
        (FSDP, {0: LIVE, 3: LIVE}, {1: 5, 2: 5}),
        (FSDP, {0: holding((3, (5,))), 2: holding((1, (4,)))}, {1: 5, 3: 5}),
        (FSDP, {0: RankReport(6, stepped=False), 2: holding((1, (4,)), boundary=6)}, {1: 6}),
    ],
)  # fmt: skip
def test_lost_parts_that_nobody_has_are_refused(
    shards: dict[int, str], survivors: dict[int, RankReport], lost: dict[int, int]
) -> None:
    assert isinstance(make_plan(survivors, lost, shards), RecoveryRefusal)


def test_connections_that_break_need_no_copies() -> None:
    plan = make_plan({0: LIVE, 1: LIVE}, {}, {0: "0/2", 1: "1/2"})
    assert plan == RecoveryPlan(5, 0, undo=False)
