"""Ranks for which others wait, and that need not be stuck (docs/decisions/0690)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.workload import stored_rows as store

from syntony.cli.diagnose import UNKNOWN, exit_status
from syntony.model import MS, S
from syntony.wire.tables import COLLECTIVE, JOB_PROCESS, STEP
from syntony.workload import Diagnosis, diagnose
from syntony.workload.facts import BundleFacts
from syntony.workload.recorded import RecordedBundle
from syntony.workload.sentences import sentences
from syntony.workload.top import job_line
from syntony.workload.verdict import FaultClass as F

SEED = random.randrange(1 << 32)
SINCE_S, UNTIL_S = 20, 40
"""From then on ranks wait; end of the recording."""
DRAWS = range(3)


class Job:
    """Ranks that do something every tenth of a second until `SINCE_S`."""

    def __init__(self, number: int) -> None:
        print("seed", SEED, number)
        self.draw = random.Random(f"{SEED} {number}")
        self.ranks = self.draw.randrange(4, 8)
        self.odd = self.draw.randrange(self.ranks)
        self.operations: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.cpu: Callable[[int, int], tuple[float, float]] = lambda _rank, _second: (0.01, 0.01)
        """Share of a core that a rank has, and waits for, in a second."""
        self.frame: Callable[[int], str] = lambda _rank: ""
        self.numbers: dict[tuple[str, int], int] = {}

    @property
    def whole(self) -> str:
        return f"0.0-{self.ranks - 1}:1"

    def call(  # noqa: PLR0917 - a row
        self, comm: str, rank: int, at_ns: int, done_ns: int, op: str, size: int = 100,
        count: int = 0,
    ) -> None:  # fmt: skip
        """Args: `count`: of ranks in the communicator; 0: all."""
        seq = self.numbers[comm, rank] = self.numbers.get((comm, rank), -1) + 1
        self.operations.append({
            "ts_ns": store.T0 + at_ns, "host": f"h{rank}", "job": "night", "pid": 7, "rank": rank,
            "comm": comm, "ranks": count or self.ranks, "seq": seq, "op": op, "bytes": size,
            "done_ns": done_ns and store.T0 + done_ns,
        })  # fmt: skip

    def together(self, at_ns: int, op: str, first: int = -1, size: int = 100) -> None:
        """An operation of all, to which one rank comes last."""
        begun = [at_ns + self.draw.randrange(MS) + 3 * MS * (rank == first)
                 for rank in range(self.ranks)]  # fmt: skip
        for rank, begun_ns in enumerate(begun):
            self.call(self.whole, rank, begun_ns, max(begun) + MS, op, size)

    def recorded(
        self, until_s: int = UNTIL_S, *, readings: bool = True, every_s: int = 2,
        state: Callable[[int, int], str] = lambda _rank, _second: "S",
    ) -> RecordedBundle:  # fmt: skip
        processes = [
            store.process(
                f"h{rank}", rank, second, ranks=self.ranks, state=state(rank, second),
                cpu_ns=round(every_s * S * self.cpu(rank, second)[0]),
                runq_ns=every_s * S * self.cpu(rank, second)[1],
                frame=self.frame(rank), window_ns=every_s * S,
            )
            for rank in range(self.ranks) for second in range(0, until_s + 10, every_s)
        ]  # fmt: skip
        rows = {COLLECTIVE.name: self.operations, STEP.name: self.steps,
                JOB_PROCESS.name: processes if readings else []}  # fmt: skip
        return store.record(rows, seconds=until_s)

    def judged(self, until_s: int = UNTIL_S, **given: Any) -> Diagnosis:
        return diagnose(store.bundle(self.recorded(until_s, **given)))


def named(found: Diagnosis) -> list[tuple[F, tuple[str, ...]]]:
    return [(each.fault, each.subjects) for each in found.verdicts]


def undetermined(found: Diagnosis) -> str:
    """Why nothing is named, though ranks wait."""
    assert named(found) == []
    (record,) = found.waits
    assert exit_status(found) == UNKNOWN
    reason = record.evidence[0].text
    since = f"night waits for {record.subjects[0]} since 22:13:{20 + SINCE_S}Z"
    said = sentences("night", found, UNTIL_S * S)
    assert said[0] == f"{since}, and it is undetermined whether it hangs."
    assert said[1][1:] == f"{reason[1:]}."
    assert said[2].startswith("To do: if it should not take that long, look at ")
    assert abs(record.onset_ns - store.T0 - SINCE_S * S) < S
    return reason


def trained(number: int, pause: range = range(0)) -> Job:
    """A job whose ranks wait in a barrier for one of them. `pause`: steps that it does not do."""
    job = Job(number)
    for step in range(10 * SINCE_S):
        if step in pause:
            continue
        job.together(step * S // 10, "all_reduce")
        for rank in range(job.ranks):
            at_ns = store.T0 + step * S // 10
            job.steps.append({"ts_ns": at_ns, "host": f"h{rank}", "job": "night", "rank": rank,
                              "step": step + 1, "end_ns": at_ns + S // 10})  # fmt: skip
    for rank in range(job.ranks):
        if rank != job.odd:
            job.call(job.whole, rank, SINCE_S * S, 0, "barrier", 0)
    return job


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize(
    ("own", "others", "stuck"),
    [
        ((0.95, 0.0), (0.01, 0.0), False),
        ((0.06, 0.9), (0.01, 0.3), False),  # of a host whose cores are short
        ((0.01, 0.0), (0.01, 0.0), True),
        ((0.1, 0.05), (0.01, 0.0), True),
        ((0.95, 0.0), (0.9, 0.0), True),  # those that wait compute as well, as with NCCL
        ((0.02, 0.5), (0.01, 0.5), True),
        ((0.003, 0.3), (0.0005, 0.1), True),  # a thread that wakes up once a second, there
        ((0.008, 1.2), (0.0005, 0.9), True),
        ((0.02, math.nan), (0.001, math.nan), True),
        ((0.95, math.nan), (0.001, math.nan), False),
    ],
)
def test_a_rank_that_computes_is_not_stuck(
    number: int, own: tuple[float, float], others: tuple[float, float], *, stuck: bool
) -> None:
    job = trained(number)
    job.cpu = lambda rank, _second: own if rank == job.odd else others
    found = job.judged()
    if stuck:
        assert named(found) == [(F.HANG, (f"rank {job.odd}",))]
        return
    reason = undetermined(found)
    assert f"{job.ranks - 1} of {job.ranks} ranks wait for rank {job.odd}: its process" in reason
    assert f"computes ({own[0]:.0%} of a core)" in reason


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize(
    ("own", "others", "states", "starved"),
    [
        ((0.003, 0.0), (0.002, 0.0), "RS", True),  # it has not run for whole readings
        ((0.008, 1.2), (0.0005, 0.9), "RS", True),
        ((0.02, 0.98), (0.02, 0.98), "RR", True),  # those that wait with NCCL are as well
        ((0.02, 0.98), (0.01, 0.3), "SS", False),
        ((0.9, 0.0), (0.9, 0.0), "RR", False),
    ],
)
def test_a_rank_that_waits_for_a_core_is_not_stuck(
    number: int, own: tuple[float, float], others: tuple[float, float], states: str, *,
    starved: bool,
) -> None:  # fmt: skip
    job = trained(number)
    job.cpu = lambda rank, _second: own if rank == job.odd else others
    found = job.judged(state=lambda rank, _second: states[rank != job.odd])
    if not starved:
        assert named(found) == [(F.HANG, (f"rank {job.odd}",))]
        return
    text = f"for rank {job.odd}: its process waits for a core (it had {own[0]:.0%} of one)"
    assert text in undetermined(found)
    sleeps = job.judged(state=lambda rank, second: "S" if second == 38 else states[rank != job.odd])
    assert named(sleeps) == [(F.HANG, (f"rank {job.odd}",))]


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize("until_s", [26, 30])
def test_a_rank_that_was_hardly_read_is_not_named(number: int, until_s: int) -> None:
    """An agent that is short of CPU reads processes seldom."""
    job = trained(number)
    reason = undetermined(job.judged(until_s, every_s=6))
    assert reason.endswith(f"for rank {job.odd}: its process has hardly been read since")
    assert named(job.judged(34, every_s=6)) == [(F.HANG, (f"rank {job.odd}",))]


@pytest.mark.parametrize("number", DRAWS)
def test_a_rank_that_has_not_run_since_its_message_came_does_not_hang(number: int) -> None:
    """Its receive is open, though the other rank has sent: it is no hang of both."""
    job = learned(number)
    job.call("0.p2p 0>1", 0, SINCE_S * S + MS, SINCE_S * S + 2 * MS, "send", count=2)
    job.call("0.p2p 0>1", 1, SINCE_S * S, 0, "recv", count=2)
    job.call("0.p2p *>0", 0, SINCE_S * S + 3 * MS, 0, "recv")
    assert named(job.judged()) == [(F.HANG, ("communicator 0.p2p 0>1",))]
    job.cpu = lambda rank, _second: (0.004, 0.99 if rank == 1 else 0.0)
    found = job.judged(state=lambda rank, _second: "R" if rank == 1 else "S")
    assert "for rank 1: its process waits for a core" in undetermined(found)


@pytest.mark.parametrize("number", DRAWS)
def test_ranks_that_seem_to_wait_for_each_other_may_wait_for_a_core(number: int) -> None:
    job = learned(number)
    for one, other in ((1, 2), (2, 1)):
        job.call(f"0.p2p {one}>{other}", other, SINCE_S * S, 0, "recv", count=2)
    assert named(job.judged(60)) == [(F.HANG, ("rank 1", "rank 2"))]
    found = job.judged(60, state=lambda rank, _second: "R" if rank == 2 else "S")
    assert "for rank 2: its process waits for a core" in undetermined(found)


def test_a_wait_is_recorded_with_what_its_rank_does_and_how_to_see_more() -> None:
    job = trained(0)
    job.cpu = lambda rank, _second: (0.9 if rank == job.odd else 0.01, 0.0)
    job.frame = lambda rank: "train.py:9 evaluate" if rank == job.odd else "train.py:7 main"
    (record,) = job.judged().waits
    assert (record.fault, record.subjects) == (F.UNDETERMINED, (f"rank {job.odd}",))
    others = ", ".join(str(rank) for rank in range(job.ranks) if rank != job.odd)
    assert [each.text for each in record.evidence[1:]] == [
        "no progress for 20 s until the recording ends",
        f"Python of rank {job.odd} is at train.py:9 evaluate",
        f"Python of rank {others} is at train.py:7 main",
    ]
    assert record.action.endswith(f"look at what it does: `py-spy dump --pid 7` on h{job.odd}")
    assert record.blast_radius.ranks == job.ranks
    assert [(each.fault, each.excluded) for each in record.alternatives] == [(F.HANG, False)]
    whole = Diagnosis((), (), waits=(record,))
    assert exit_status(whole) == UNKNOWN
    line = job_line("night", store.bundle(job.recorded()), whole)
    assert (line.verdict, line.subject, line.others) == ("undetermined", f"rank {job.odd}", 0)


@pytest.mark.parametrize("frames", [True, False])
def test_a_job_without_steps_waits_for_the_rank_that_is_elsewhere(*, frames: bool) -> None:
    """As in a backward pass of `DistributedDataParallel`: no operation is open."""
    job = trained(0)
    job.operations = [each for each in job.operations if each["done_ns"]]
    job.frame = lambda rank: frames * ("train.py:9 load" if rank == job.odd else "train.py:7 main")
    found = job.judged()
    (record,) = found.waits
    assert record.subjects == ((f"rank {job.odd}",) if frames else ("job night",))
    assert record.evidence[0].text.startswith("no rank has ended a step for 20 s, and steps take")
    first = sentences("night", found, UNTIL_S * S)[0]
    assert first.startswith(f"night waits for rank {job.odd} since" if frames else "night waits si")


def test_of_two_ranks_in_two_places_neither_is_waited_for() -> None:
    job = trained(0)
    job.operations = [each for each in job.operations if each["done_ns"]]
    job.frame = lambda rank: f"train.py:{rank} main" if rank < 2 else ""
    (record,) = job.judged().waits
    assert record.subjects == ("job night",)


def test_the_newest_process_of_a_rank_says_where_that_is() -> None:
    """It was started again, as another process."""
    processes = [
        store.process("h0", 0, second, pid=pid, frame=frame, ended=int(second == 4))
        for pid, frame, some in (
            (7, "old.py:1 f", range(0, 5, 2)),
            (9, "new.py:2 g", range(6, 9, 2)),
        )
        for second in some
    ]
    made = store.bundle(store.record({JOB_PROCESS.name: processes}, seconds=10))
    found = BundleFacts(made).processes
    assert found is not None
    assert (found.pid(0), found.frames) == (9, {0: "new.py:2 g"})


def test_a_wait_that_is_not_much_longer_than_others_is_recorded() -> None:
    """A hang is named once nothing moves for ten times as long as ever before."""
    job = trained(0, range(50, 70))
    (record,) = (found := job.judged(SINCE_S + 15)).waits
    assert named(found) == []
    assert record.subjects == (f"rank {job.odd}",)
    assert record.evidence[0].text.endswith("not yet long enough to be called a hang")
    assert named(job.judged(SINCE_S + 25)) == [(F.HANG, (f"rank {job.odd}",))]


def test_a_rank_that_computed_until_a_moment_ago_is_stuck() -> None:
    job = trained(0)
    job.cpu = lambda rank, second: (0.9 if rank == job.odd and second < 32 else 0.01, 0.0)
    assert named(job.judged()) == [(F.HANG, (f"rank {job.odd}",))]
    assert undetermined(job.judged(33))


def test_a_rank_that_computes_for_longer_than_nccl_waits_is_stuck() -> None:
    job = trained(0)
    job.cpu = lambda rank, _second: (0.9 if rank == job.odd else 0.01, 0.0)
    assert undetermined(job.judged(SINCE_S + 599))
    job.frame = lambda _rank: "train.py:9 evaluate"
    found = job.judged(SINCE_S + 603)
    assert named(found) == [(F.HANG, (f"rank {job.odd}",))]
    places = [each.text for each in found.verdicts[0].evidence if each.signal == "frame"]
    assert places == [f"Python of rank {job.odd} is at train.py:9 evaluate"]


def test_without_readings_the_rank_is_named() -> None:
    job = trained(0)
    assert named(job.judged(readings=False)) == [(F.HANG, (f"rank {job.odd}",))]


def test_readings_before_the_wait_do_not_count() -> None:
    job = trained(0)
    job.cpu = lambda rank, second: (0.9 if rank == job.odd and second <= SINCE_S else 0.01, 0.0)
    assert named(job.judged(SINCE_S + 7)) == [(F.HANG, (f"rank {job.odd}",))]


def served(number: int, *, last: int = 0, steps: bool = False) -> Job:
    """Ranks that wait for the next order of rank 0, which there was ten times a second. `last`:
    which rank came last to these; below 0: by chance."""
    job = Job(number)
    for step in range(10 * SINCE_S):
        job.together(step * S // 10, "broadcast", last, 8)
        job.together(step * S // 10 + 10 * MS, "broadcast", size=step % 7 + 50)
        for layer in range(3):
            job.together(step * S // 10 + (layer + 2) * 10 * MS, "all_reduce")
    for rank in range(1, job.ranks):
        job.call(job.whole, rank, SINCE_S * S, 0, "broadcast", 8)
    for rank in (1, 2):
        job.call("sub.1-2:1", rank, S, S + MS, "all_reduce", count=2)
    if steps:
        job.steps = trained(number).steps
    return job


@pytest.mark.parametrize("number", DRAWS)
def test_workers_that_wait_for_orders_do_not_hang(number: int) -> None:
    reason = undetermined(served(number).judged())
    assert "wait for rank 0: it gives the orders" in reason


@pytest.mark.parametrize("state", ["T", "t", "D"])
@pytest.mark.parametrize("make", [trained, served])
def test_nothing_excuses_a_rank_that_was_stopped_later(
    make: Callable[[int], Job], state: str
) -> None:
    """Long after the others had begun to wait for it."""
    job = make(0)
    odd = job.odd if make is trained else 0
    job.cpu = lambda rank, second: (0.9 if rank == odd and second < 40 else 0.01, 0.0)
    found = job.judged(
        60, state=lambda rank, second: state if rank == odd and second >= 40 else "S"
    )
    assert named(found) == [(F.HANG, (f"rank {odd}",))]
    assert any(each.signal == "state" for each in found.verdicts[0].evidence)


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize(("last", "steps"), [(-1, False), (1, False), (0, True)])
def test_a_rank_that_does_not_always_come_last_or_owes_a_step_is_stuck(
    number: int, last: int, *, steps: bool
) -> None:
    found = served(number, last=last, steps=steps).judged()
    assert named(found) == [(F.HANG, ("rank 0",))]


@pytest.mark.parametrize("number", DRAWS)
def test_a_worker_that_leaves_out_what_was_ordered_is_stuck(number: int) -> None:
    job = served(number)
    odd = max(1, job.odd)
    for rank in range(job.ranks):
        if rank:
            job.operations = [each for each in job.operations if each["done_ns"]]
    for rank in range(job.ranks):
        job.numbers[job.whole, rank] = 10 * SINCE_S * 5 - 1
        if rank != odd:
            job.call(job.whole, rank, SINCE_S * S, 0, "all_reduce")
    assert named(job.judged()) == [(F.HANG, (f"rank {odd}",))]


def learned(number: int, until_s: int = SINCE_S) -> Job:
    """Ranks that send to rank 0, and wait for its answer, again and again."""
    job = Job(number)
    for at in range(10 * SINCE_S, 10 * until_s):
        job.steps.append({"ts_ns": store.T0 + at * S // 10, "host": "h0", "job": "night", "rank": 0,
                          "step": at + 1, "end_ns": store.T0 + (at + 1) * S // 10})  # fmt: skip
    for step in range(5 * SINCE_S):
        for rank in range(1, job.ranks):
            at_ns = step * S // 5 + job.draw.randrange(50 * MS)
            for source, target, after_ns in ((rank, 0, 0), (0, rank, 100 * MS)):
                comm, begin_ns = f"0.p2p {source}>{target}", at_ns + after_ns
                job.call(comm, source, begin_ns, begin_ns + 2 * MS, "send", count=2)
                early_ns = begin_ns - (90 * MS if source == 0 else -MS)
                job.call(comm, target, early_ns, begin_ns + 3 * MS, "recv", count=2)
    return job


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize(
    ("steps", "talks", "stuck"),
    [(True, (), False), (False, (0, 2), False), (False, (3, 2), True), (False, (), True)],
)
def test_a_rank_that_goes_on_elsewhere_is_not_stuck(
    number: int, talks: tuple[int, ...], *, steps: bool, stuck: bool
) -> None:
    """A message is waiting for it, too."""
    job = learned(number, UNTIL_S if steps else SINCE_S)
    job.call("0.p2p 1>0", 1, SINCE_S * S, SINCE_S * S + MS, "send", count=2)
    job.call("0.p2p 0>1", 1, SINCE_S * S + 2 * MS, 0, "recv", count=2)
    for at_ns in range(SINCE_S * S, UNTIL_S * S, S // 5) if talks else ():
        for rank, op in zip(talks, ("send", "recv"), strict=True):
            comm = f"0.p2p {talks[0]}>{talks[1]}"
            job.call(comm, rank, at_ns, at_ns + MS, op, count=2)
    found = job.judged()
    if stuck:
        assert named(found) == [(F.HANG, ("rank 0",))]
    else:
        assert "wait for rank 0: it goes on elsewhere" in undetermined(found)


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize("owed", [True, False])
def test_a_rank_that_does_not_fetch_what_was_sent_to_it_is_stuck(
    number: int, *, owed: bool
) -> None:
    job = learned(number)
    if owed:
        job.call("0.p2p 1>0", 1, SINCE_S * S, SINCE_S * S + MS, "send", count=2)
    job.call("0.p2p 0>1", 1, SINCE_S * S + 2 * MS, 0, "recv", count=2)
    found = job.judged()
    if owed:
        assert named(found) == [(F.HANG, ("rank 0",))]
    else:
        assert "it gives the orders" in undetermined(found)


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize("barrier", [True, False])
@pytest.mark.parametrize("left", [1, 2])
def test_who_waits_for_any_rank_waits_for_those_that_wait_for_nobody(
    number: int, left: int, *, barrier: bool
) -> None:
    """The others wait for it in a barrier of all, or for its answers, which tells less."""
    job = learned(number)
    silent = list(range(job.ranks))[-left:]
    for rank in range(1, job.ranks - left):
        if barrier:
            job.call(job.whole, rank, SINCE_S * S, 0, "barrier", 0)
        else:
            job.call(f"0.p2p {rank}>0", rank, SINCE_S * S, SINCE_S * S + MS, "send", count=2)
            job.call(f"0.p2p {rank}>0", 0, SINCE_S * S, SINCE_S * S + MS, "recv", count=2)
            job.call(f"0.p2p 0>{rank}", rank, SINCE_S * S + 2 * MS, 0, "recv", count=2)
    job.call("0.p2p *>0", 0, S, S + MS, "recv")
    job.call("0.p2p *>0", 0, SINCE_S * S, 0, "recv")
    found = job.judged(60)
    if left == 1 or barrier:
        assert named(found) == [(F.HANG, tuple(f"rank {rank}" for rank in silent))]
    else:
        assert named(found) == []
    job.cpu = lambda rank, _second: (0.9 if rank in silent else 0.01, 0.0)
    if left == 1 or barrier:
        found = job.judged(60)
        assert named(found) == []
        assert found.waits[0].subjects == tuple(f"rank {rank}" for rank in silent)


def test_a_rank_that_waits_for_any_other_does_not_hang_by_itself() -> None:
    job = learned(0)
    job.call("0.p2p *>0", 0, SINCE_S * S, 0, "recv")
    assert named(job.judged()) == []


@pytest.mark.parametrize("number", DRAWS)
@pytest.mark.parametrize("waits", [True, False])
def test_a_rank_that_does_not_form_a_group_is_stuck_if_others_wait_for_it(
    number: int, *, waits: bool
) -> None:
    """With NCCL they go on at once."""
    job = Job(number)
    group = f"new_group.0-{job.ranks - 1}:1"
    for rank in range(job.ranks):
        for at_ns in range(S, SINCE_S * S, S // 2):
            job.call(group, rank, at_ns, at_ns + MS, "new_group", 0)
            job.call(job.whole, rank, at_ns + 2 * MS, at_ns + 3 * MS, "all_reduce")
        if rank != job.odd:
            job.call(group, rank, SINCE_S * S, 0 if waits else SINCE_S * S + MS, "new_group", 0)
    expected = [(F.HANG, (f"rank {job.odd}",))] if waits else []
    assert named(job.judged(60)) == expected


def test_a_rank_whose_operations_were_lost_is_not_waited_for() -> None:
    """It may have come: the others ended what it must have taken part in."""
    job = trained(0)
    gone = 10 * SINCE_S - 20
    job.operations = [
        each for each in job.operations if each["rank"] != job.odd or each["seq"] < gone
    ]
    (record,) = job.judged().waits
    assert record.subjects == ("job night",)


def test_an_operation_that_its_ranks_left_long_ago_is_not_waited_for() -> None:
    """As after a time limit; later nothing is open."""
    job = trained(0)
    job.operations = [each for each in job.operations if each["done_ns"]]
    for rank in range(job.ranks):
        if rank != job.odd:
            job.call("1." + job.whole[2:], rank, 5 * S, 0, "barrier", 0)
    (record,) = job.judged().waits
    assert record.subjects == ("job night",)


def test_a_rank_that_waits_for_any_other_is_not_waited_for() -> None:
    job = trained(0, range(50, 70))
    any_rank = next(rank for rank in range(job.ranks) if rank != job.odd)
    job.operations = [
        each for each in job.operations if each["done_ns"] or each["rank"] != any_rank
    ]
    job.call(f"0.p2p *>{any_rank}", any_rank, SINCE_S * S, 0, "recv")
    (record,) = job.judged(SINCE_S + 15).waits
    assert record.subjects == (f"rank {job.odd}",)


def test_a_wait_in_a_new_group_is_told_as_it_is() -> None:
    job = trained(0)
    job.operations = [each for each in job.operations if each["done_ns"]]
    for rank in range(job.ranks):
        if rank != job.odd:
            job.call("1." + job.whole[2:], rank, SINCE_S * S, 0, "barrier", 0)
    (record,) = job.judged(SINCE_S + 20).waits
    assert record.subjects == (f"rank {job.odd}",)
    assert record.evidence[0].text.endswith("not yet long enough to be called a hang")
