"""Stragglers in communicators of two ranks, which have no peers there; and chance in many."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle

from syntony.workload.classes import straggler
from syntony.workload.diagnose import MIN_CONFIDENCE
from syntony.workload.facts import BundleFacts
from syntony.workload.ranks import AS_MANY

SEED = random.randrange(1 << 32)
STEPS, STEP_NS = 60, 400 * MS


def collectives(
    comms: Mapping[str, tuple[int, ...]], own_ms: Callable[[str, int, int], float],
    op: str = "all_reduce", each: Callable[[str], int] = lambda _: 1,
) -> Columns:  # fmt: skip
    """Each communicator does `each` operations a step; ranks take so long before each."""
    print(f"seed {SEED}")
    rows: dict[str, list[object]] = {
        name: [] for name in ("comm", "op", "seq", "rank", "host", "enqueue_ns", "done_ns")
    }
    for comm, ranks in comms.items():
        count = each(comm)
        for seq in range(STEPS * count):
            free_ns = T0 + STEP_NS // count * seq
            begun = [free_ns + int(own_ms(comm, rank, seq) * MS) for rank in ranks]
            for rank, enqueue_ns in zip(ranks, begun, strict=True):
                values = (comm, op, seq, rank, f"h{rank}", enqueue_ns, free_ns + STEP_NS // count)
                for name, value in zip(rows, values, strict=True):
                    rows[name].append(value)
    return {"collectives": {
        name: values if name in {"comm", "op", "host"} else np.array(values, np.int64)
        for name, values in rows.items()
    }}  # fmt: skip


def named(columns: Columns) -> list[tuple[str, ...]]:
    return [each.subjects for each in straggler.find(BundleFacts(bundle(columns)))]


def noisy(late: dict[int, float]) -> Callable[[str, int, int], float]:
    draw = random.Random(SEED)
    return lambda _comm, rank, _seq: 40 + draw.gauss(0, 0.5) + late.get(rank, 0)


PAIRS = {f"tp{place}": (2 * place, 2 * place + 1) for place in range(4)}


@pytest.mark.parametrize("rank", [0, 1, 6, 7])
def test_a_slow_rank_of_a_pair_is_compared_with_other_pairs(rank: int) -> None:
    assert named(collectives(PAIRS, noisy({rank: 20}))) == [(f"rank {rank}",)]
    assert named(collectives(PAIRS, noisy({}))) == []


def test_one_pair_alone_says_nothing() -> None:
    assert named(collectives({"tp0": (0, 1)}, noisy({1: 20}))) == []


def test_stages_that_send_to_each_other_differ_and_are_each_compared_with_their_like() -> None:
    """Receivers take far longer by themselves than senders."""
    stages = {f"pp{each}": (each, each + 4) for each in range(4)}
    slower = dict.fromkeys(range(4, 8), 60.0)
    assert named(collectives(stages, noisy(slower), op="send")) == []
    assert named(collectives(stages, noisy(slower | {5: 80.0}), op="send")) == [("rank 5",)]
    assert named(collectives(stages, noisy(slower | {1: 20.0}), op="send")) == [("rank 1",)]


def test_ranks_of_other_roles_are_no_peers() -> None:
    """Ranks 0 to 2 are in a second communicator as well and take longer in the first."""
    comms = {"a": (0, 3), "b": (1, 4), "c": (2, 5), "wide": (0, 1, 2)}

    def own_ms(comm: str, rank: int, seq: int) -> float:
        return 40 + rank * 0.1 + (30 if comm != "wide" and rank < 3 else 0) + seq % 2 * 0.2

    assert named(collectives(comms, own_ms)) == []


@pytest.mark.parametrize(("count", "wanted"), [(1, [("rank 0",)]), (2, [])])
def test_communicators_that_do_more_are_no_peers(count: int, wanted: list[tuple[str, ...]]) -> None:
    """One pair is too few; the others count where they do as much."""
    assert AS_MANY < 2
    columns = collectives(PAIRS, noisy({0: 20}), each=lambda comm: count if comm != "tp0" else 1)
    assert named(columns) == wanted


def test_chance_is_counted_over_all_communicators() -> None:
    """Four late operations in a row are no accident in one communicator, and one in sixty."""
    for count, wanted in ((1, [("rank 1",)]), (60, [])):
        comms = {f"dp{each}": (3 * each, 3 * each + 1, 3 * each + 2) for each in range(count)}

        def own_ms(_comm: str, rank: int, seq: int) -> float:
            late = 20 <= seq < 24 if rank == 1 else seq == (17 * rank + 5) % STEPS
            return 40 + (rank + seq) % 3 * 0.2 + 30 * late

        assert named(collectives(comms, own_ms)) == wanted


@pytest.mark.parametrize(("steps", "sure"), [(40, True), (6, False)])
def test_a_process_that_comes_late_keeps_no_proxy_waiting(steps: int, sure: bool) -> None:
    """Proxies of all ranks wait alike for their GPUs: one rank's process is late, not its GPU. For
    two seconds that may be chance."""
    draw = random.Random(SEED)

    def own_ms(_comm: str, rank: int, seq: int) -> float:
        return 40 + draw.gauss(0, 0.5) + (20 if rank == 2 and 10 <= seq < 10 + steps else 0)

    columns = collectives({"dp": tuple(range(6))}, own_ms)
    rows = columns["collectives"]
    rows["gpu_wait_ns"] = np.array([draw.uniform(1, 3) * MS for _ in rows["seq"]])
    found = [each for each in straggler.find(BundleFacts(bundle(columns)))
             if each.confidence >= MIN_CONFIDENCE]  # fmt: skip
    assert [each.subjects for each in found] == ([("rank 2",)] if sure else [])
