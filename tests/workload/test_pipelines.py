"""Jobs whose ranks send to their neighbours only, and jobs whose ranks do not find each other."""

from __future__ import annotations

import random

import pytest
from tests.workload import stored_rows as store
from tests.workload.pipelines import Action, Pipeline, meeting, processes

from syntony.wire.tables import COLLECTIVE, JOB_PROCESS
from syntony.workload import Diagnosis, diagnose
from syntony.workload.classes import _peers
from syntony.workload.verdict import FaultClass as F

SEED = random.randrange(1 << 32)
DRAWS = range(6)


def judged(rows: store.Rows, seconds: int) -> Diagnosis:
    return diagnose(store.bundle(store.record(rows, seconds=seconds)))


def named(found: Diagnosis) -> list[tuple[F, tuple[str, ...]]]:
    return [(each.fault, each.subjects) for each in found.verdicts]


def drawn(number: int) -> tuple[Pipeline, random.Random]:
    draw = random.Random(f"{SEED} {number}")
    print("seed", SEED, number)
    return Pipeline(draw.randrange(3, 8), draw, eager=draw.random() < 0.5), draw


@pytest.mark.parametrize("number", DRAWS)
def test_a_pipeline_without_a_fault_is_none(number: int) -> None:
    pipeline, _ = drawn(number)
    until_s = (pipeline.run(30) - store.T0) // 10**9 + 1
    assert named(judged(pipeline.rows(until_s=until_s + 10), until_s)) == []


@pytest.mark.parametrize("number", DRAWS)
def test_a_stage_that_stops_is_named_though_each_waits_for_its_neighbour(number: int) -> None:
    pipeline, draw = drawn(number)
    odd, place = draw.randrange(pipeline.stages), draw.random()

    def change(rank: int, step: int, actions: list[Action]) -> list[Action]:
        if (rank, step) != (odd, 20):
            return actions
        return [*actions[: int(place * len(actions))], ("stop", None)]

    pipeline.change = change
    until_s = (pipeline.run(30) - store.T0) // 10**9 + 20
    found = judged(pipeline.rows(until_s=until_s + 10), until_s)
    assert named(found) == [(F.HANG, (f"rank {odd}",))]


@pytest.mark.parametrize("number", DRAWS)
def test_a_rank_that_leaves_a_send_out_is_told_from_its_neighbour(number: int) -> None:
    pipeline, draw = drawn(number)
    odd = draw.randrange(pipeline.stages - 1)

    def change(rank: int, step: int, actions: list[Action]) -> list[Action]:
        if (rank, step) != (odd, 20):
            return actions
        sends = [at for at, each in enumerate(actions) if each == ("send", (rank, rank + 1))]
        left_out = draw.choice(sends)
        return [each for at, each in enumerate(actions) if at != left_out]

    pipeline.change = change
    until_s = (pipeline.run(30) - store.T0) // 10**9 + 20
    found = judged(pipeline.rows(until_s=until_s + 10), until_s)
    assert named(found) == [(F.HANG, (f"rank {odd}",))], found.verdicts
    assert f"a transfer from rank {odd} to {odd + 1} came" in found.verdicts[0].evidence[0].text


def test_a_rank_may_come_to_its_first_collective_half_a_minute_later() -> None:
    begun = [{
        "ts_ns": store.T0 + 2 * 10**9 + rank, "host": f"h{rank}", "job": "night", "pid": 7,
        "rank": rank, "comm": "0.0-3:1", "ranks": 4, "op": "all_reduce", "done_ns": 0,
    } for rank in range(3)]  # fmt: skip
    rows = {COLLECTIVE.name: begun, JOB_PROCESS.name: processes(range(4), 90, 4)}
    assert named(judged(rows, 25)) == []
    assert named(judged(rows, 80)) == [(F.HANG, ("rank 3",))]


@pytest.mark.parametrize("number", DRAWS)
def test_a_rank_without_an_agent_did_come_if_what_it_sent_has_arrived(number: int) -> None:
    pipeline, _ = drawn(number)
    pipeline.change = lambda rank, step, actions: (
        [("stop", None)] if (rank, step) == (0, 20) else actions
    )
    until_s = (pipeline.run(30) - store.T0) // 10**9 + 60
    seen = set(range(1, pipeline.stages))
    found = judged(pipeline.rows(until_s=until_s + 10, ranks=seen), until_s)
    assert named(found) == [(F.HANG, ("communicator 0.p2p 0>1",))]


@pytest.mark.parametrize(
    ("name", "ranks", "members"),
    [
        ("0.0-3:1", 4, {0, 1, 2, 3}),
        ("tp.1-7:3#2", 3, {1, 4, 7}),
        ("0.0-3:1", 8, set()),
        ("0.0-3:0", 4, {0, 1, 2, 3}),
        ("0.7-0:1", 4, set()),
        ("0.p2p 3>1", 2, {1, 3}),
        ("rendezvous [::1]:2", 3, {0, 1, 2}),
        ("rendezvous h:1", -1, set()),
        ("0.9f2c11aa", 4, set()),
    ],
)
def test_a_communicators_name_tells_its_ranks(name: str, ranks: int, members: set[int]) -> None:
    assert _peers._members(name, ranks) == members


def test_ranks_that_both_receive_first_are_named_both() -> None:
    pipeline, _ = drawn(0)
    pipeline.change = lambda rank, step, actions: (
        [("recv", (1 - rank, rank)), ("send", (rank, 1 - rank))] * (rank < 2)
        if not step
        else actions
    )
    pipeline.run(3)
    found = judged(pipeline.rows(until_s=60), 50)
    assert named(found) == [(F.HANG, ("rank 0", "rank 1"))]


@pytest.mark.parametrize("number", DRAWS)
def test_a_message_that_nobody_has_fetched_yet_is_no_hang(number: int) -> None:
    """Its send has ended; the receiver computes, or writes a checkpoint."""
    draw = random.Random(f"{SEED} {number}")
    pipeline = Pipeline(2, draw, eager=True)
    pipeline.change = lambda rank, step, actions: (
        actions if step < 20 else [("send", (0, 1))] * (rank == 0 and step == 20)
    )
    until_s = (pipeline.run(21) - store.T0) // 10**9 + 30
    assert named(judged(pipeline.rows(until_s=until_s + 10), until_s)) == []


@pytest.mark.parametrize("known", [True, False])
def test_a_rank_that_never_comes_to_the_rendezvous_is_named(*, known: bool) -> None:
    draw = random.Random(SEED)
    ranks = draw.randrange(3, 9)
    absent = draw.randrange(1, ranks)
    places = {rank: "10.0.0.1:29500" for rank in range(ranks) if rank != absent}
    rows = meeting(ranks, 100, places=places, stores=places.keys() - {0}, formed=set())
    if not known:
        rows[JOB_PROCESS.name] = [each for each in rows[JOB_PROCESS.name]
                                  if each["rank"] != absent]  # fmt: skip
    found = judged(rows, 80)
    assert named(found) == [(F.HANG, (f"rank {absent}",))]
    said = " ".join(each.text for each in found.verdicts[0].evidence)
    assert ("and has not come there yet" if known else "no process of it is recorded") in said
    assert named(judged(rows, 20)) == [], "hosts do not start at the same time"


def test_a_rank_with_another_address_is_named() -> None:
    places = dict.fromkeys((0, 1, 3), "10.0.0.1:29500") | {2: "10.0.0.9:29500"}
    found = judged(meeting(4, 100, places=places, stores={1, 3}, formed=set()), 80)
    assert named(found) == [(F.HANG, ("rank 2",))]
    assert "10.0.0.9:29500" in found.verdicts[0].evidence[0].text


def test_a_rank_that_cannot_reach_the_store_is_named() -> None:
    places = dict.fromkeys(range(4), "10.0.0.1:29500")
    found = judged(meeting(4, 100, places=places, stores={1, 3}, formed=set()), 80)
    assert named(found) == [(F.HANG, ("rank 2",))]


def test_a_store_that_nobody_reaches_is_nobodys_fault_alone() -> None:
    places = dict.fromkeys(range(4), "10.0.0.1:29500")
    found = judged(meeting(4, 100, places=places, stores=set(), formed=set()), 80)
    assert named(found) == [(F.HANG, ("communicator rendezvous 10.0.0.1:29500",))]


def test_a_job_whose_ranks_have_all_come_does_not_hang() -> None:
    """Of which one has no agent, too."""
    places = dict.fromkeys(range(3), "10.0.0.1:29500")
    everywhere = {0, 1, 2}
    rows = meeting(4, 100, places=places, stores=everywhere, formed=everywhere)
    assert named(judged(rows, 80)) == []


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize("times", [1.0, 2.0])
def test_a_stage_that_becomes_slow_is_named_though_no_other_has_its_work(
    number: int, times: float
) -> None:
    pipeline, draw = drawn(number)
    odd, since = draw.randrange(pipeline.stages), draw.randrange(20, 30)
    slowest = max(pipeline.work_ns)
    pipeline.work_ns[odd] = slowest
    pipeline.times = lambda rank, step: times if rank == odd and step >= since else 1.0
    until_s = (pipeline.run(50) - store.T0) // 10**9 + 1
    found = judged(pipeline.rows(until_s=until_s + 10), until_s)
    expected = [(F.STRAGGLER, (f"rank {odd}",))] if times > 1 else []
    assert named(found) == expected, found.verdicts


def test_all_stages_that_get_more_work_at_once_are_no_stragglers() -> None:
    pipeline, _ = drawn(7)
    pipeline.times = lambda _rank, step: 1.7 if step >= 25 else 1.0
    until_s = (pipeline.run(50) - store.T0) // 10**9 + 1
    assert named(judged(pipeline.rows(until_s=until_s + 10), until_s)) == []


def test_a_stage_that_takes_longer_and_holds_nobody_up_is_no_straggler() -> None:
    print("seed", SEED)
    draw = random.Random(SEED)
    pipeline = Pipeline(3, draw)
    odd = draw.randrange(pipeline.stages)
    pipeline.micro = 4 * pipeline.stages
    pipeline.work_ns = [40e6] * pipeline.stages
    pipeline.work_ns[odd] = 8e6
    pipeline.times = lambda rank, step: 2.0 if rank == odd and step >= 25 else 1.0
    until_s = (pipeline.run(50) - store.T0) // 10**9 + 1
    assert named(judged(pipeline.rows(until_s=until_s + 10), until_s)) == []


def test_a_stage_that_always_takes_longest_is_noted_without_a_verdict() -> None:
    pipeline, draw = drawn(8)
    odd = draw.randrange(pipeline.stages)
    pipeline.micro = 4 * pipeline.stages
    pipeline.work_ns = [8e6] * pipeline.stages
    pipeline.work_ns[odd] = 24e6
    until_s = (pipeline.run(40) - store.T0) // 10**9 + 1
    found = judged(pipeline.rows(until_s=until_s + 10), until_s)
    assert named(found) == []
    assert any(f"rank {odd} computes" in each.reason for each in found.gaps)


@pytest.mark.parametrize("status", [-11, 1])
def test_a_stage_whose_process_ended_is_named_with_how_it_did(status: int) -> None:
    """Without a launcher that ends the others."""
    pipeline, draw = drawn(9)
    odd = draw.randrange(pipeline.stages)
    pipeline.change = lambda rank, step, actions: (
        [("stop", None)] if (rank, step) == (odd, 20) else actions
    )
    last_ns = pipeline.run(30)
    until_s = (last_ns - store.T0) // 10**9 + 20
    rows = pipeline.rows(until_s=until_s + 10)
    rows[JOB_PROCESS.name] = [each for each in rows[JOB_PROCESS.name]
                              if each["rank"] != odd or each["ts_ns"] < last_ns]  # fmt: skip
    newest = [each for each in rows[JOB_PROCESS.name] if each["rank"] == odd][-1]
    newest |= {"ended": 1, "lived_ns": float(last_ns - newest["ts_ns"]), "exit_status": status}
    (verdict,) = judged(rows, until_s).verdicts
    assert (verdict.fault, verdict.subjects) == (F.HANG, (f"rank {odd}",))
    said = "SIGSEGV" if status < 0 else "ended with exit status 1"
    assert said in verdict.evidence[0].text
