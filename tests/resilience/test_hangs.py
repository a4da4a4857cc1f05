"""Which rank is to blame for a collective that does not end."""

from __future__ import annotations

import pytest
from tests.resilience.members import RANKS, logged, running
from tests.resilience.simulated import MS, S

from syntony.torch.hangs import REPORT_NS, Hang, RankProgress, Waiting, locate
from syntony.torch.membership import Membership
from syntony.torch.orders import Log, Settings

LONG = REPORT_NS + S


def waits(
    number: int, name: str = "allreduce", group: str = "", for_ns: int = LONG
) -> RankProgress:
    return RankProgress(Waiting(group, number, name, for_ns), {group: number + 1})


@pytest.mark.parametrize(
    ("ranks", "absent", "waiting"),
    [
        ({0: waits(7), 1: waits(7), 2: RankProgress(None, {"": 7})}, (2,), (0, 1)),
        (
            {0: waits(7), 1: RankProgress(None, {"": 6}), 2: RankProgress(None, {"": 7})},
            (1, 2),
            (0,),
        ),
        # In a group of some ranks, others are not to blame.
        (
            {
                0: waits(3, group="g"),
                1: RankProgress(None, {"": 9, "g": 3}),
                2: RankProgress(None, {"": 1}),
            },
            (1,),
            (0,),
        ),
        # One that waits for another operation, in another group, has not called this one.
        (
            {0: waits(7), 1: RankProgress(Waiting("g", 2, "barrier", S), {"": 7, "g": 3})},
            (1,),
            (0,),
        ),
        ({0: waits(7), 1: waits(7)}, (), (0, 1)),
    ],
)
def test_who_is_absent(
    ranks: dict[int, RankProgress], absent: tuple[int, ...], waiting: tuple[int, ...]
) -> None:
    found = locate(ranks)
    assert isinstance(found, Hang)
    assert (found.absent, found.waiting, found.disagree) == (absent, waiting, "")


def test_different_operations_are_named() -> None:
    found = locate({0: waits(7), 1: waits(7, "broadcast"), 2: waits(7)})
    assert found is not None
    text = "ranks call different operations: allreduce 7 on rank 0, 2; broadcast 7 on rank 1"
    assert found.text.startswith(text)


@pytest.mark.parametrize(
    "ranks",
    [{}, {0: RankProgress()}, {0: waits(7, for_ns=REPORT_NS - 1), 1: RankProgress(None, {"": 7})}],
)
def test_nothing_hangs(ranks: dict[int, RankProgress]) -> None:
    assert locate(ranks) is None


def test_a_message_is_read_with_care() -> None:
    said = {"kind": "heard", "called": {"": 8}, "waiting": ["", 7, "allreduce", 5]}
    assert RankProgress.parse(said) == waits(7, for_ns=5)
    assert RankProgress.parse({"kind": "heard"}) == RankProgress(None, {})
    for bad in ({"waiting": [1]}, {"called": {"": "x"}}, {"called": 3}, {"waiting": 5}):
        with pytest.raises((TypeError, ValueError, KeyError)):
            RankProgress.parse(bad)


def hanging(hung_ns: int, absent: tuple[int, ...] = (2,)) -> tuple[Membership, list[object]]:
    """A job whose ranks wait for others for 20 s; what was ordered."""
    state = running(2)
    state.settings = Settings(2, hung_ns=hung_ns)
    orders: list[object] = []
    for tenth in range(1, 201):
        now_ns = tenth * 100 * MS
        for spare in ("s0", "s1"):
            state.on_heard(state.workers[spare], now_ns)
        for rank in range(RANKS):
            worker = state.workers.get(f"r{rank}")
            if worker is not None:
                one = RankProgress(None, {"": 7}) if rank in absent else waits(7, for_ns=now_ns)
                state.on_heard(worker, now_ns, one)
        orders += state.on_tick(now_ns)
    return state, orders


def test_a_hang_is_reported_once_and_nobody_is_killed_unasked() -> None:
    state, orders = hanging(0)
    assert logged(orders) == ["hang"]
    (log,) = [each for each in orders if isinstance(each, Log)]
    text = "rank 2 has not called allreduce 7, in which rank 0, 1, 3 waits for 10 s"
    assert log.event["reason"] == text
    assert state.replaced == 0


def test_a_hung_rank_is_replaced_if_told_so_unless_it_may_be_all_others() -> None:
    state, orders = hanging(15 * S)
    assert logged(orders)[:3] == ["hang", "lost", "assigned"]
    assert state.replaced == 1
    half, orders = hanging(15 * S, absent=(1, 2))
    assert logged(orders) == ["hang"]
    assert half.replaced == 0
