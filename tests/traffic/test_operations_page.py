"""What processes of jobs tell of their collectives: all of it, none of what cannot be, and a count
of what was lost."""

from __future__ import annotations

import random
import re
import struct
import sys

import pytest

from syntony.io.job_hook import hook_directory
from syntony.model import MS, S
from syntony.traffic import operations_page as page
from syntony.traffic.operations_page import (
    OPEN_NS,
    JobOperation,
    NewOperations,
    OperationsReader,
    OperationStep,
)

sys.path.append(str(hook_directory()))
import syntony_job_hook as hook  # type: ignore[import-not-found]
import syntony_job_page as ring  # type: ignore[import-not-found]

sys.path.pop()
NOW_NS = 5_000 * S
SEED = random.randrange(1 << 32)


class Written:
    """A page by the words of the reference, not by the hook's code."""

    def __init__(self, rank: int = 1, ranks: int = 4) -> None:
        self.data = bytearray(page.PAGE_BYTES)
        struct.pack_into("=8sIIii", self.data, 0, b"SYNOPS01", 1, page.SLOTS, rank, ranks)
        self.count = 0

    def name(self, comm: int, text: bytes, ranks: int) -> None:
        used = len(text) | comm // 64 << 8
        struct.pack_into("=II56s", self.data, 128 + 64 * (comm % 64), ranks, used, text)

    def record(self, *fields: int) -> None:
        """Kind, operation, communicator, number, bytes, three times."""
        at = 128 + 64 * 64 + self.count % page.SLOTS * 64
        self.count += 1
        struct.pack_into("=HHIQQqqq8xQ", self.data, at, *fields, self.count)
        struct.pack_into("=Q", self.data, 24, self.count)

    def read(self, size: int, offset: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def begin(self, seq: int, at_ns: int, *, op: int = 0, comm: int = 0, size: int = 64) -> None:
        self.record(page.BEGIN, op, comm, seq, size, at_ns, 0, 0)

    def end(self, seq: int, at_ns: int, *, op: int = 0, comm: int = 0) -> None:
        self.record(page.END, op, comm, seq, 0, at_ns, 0, 0)


def named(rank: int = 1, ranks: int = 4) -> Written:
    made = Written(rank, ranks)
    made.name(0, b"0.abc", 4)
    return made


def take(reader: OperationsReader, made: Written, now_ns: int = NOW_NS) -> NewOperations:
    return reader.read(made.read, now_ns)


def test_the_reader_has_the_hooks_layout() -> None:
    assert (ring.MAGIC, ring.VERSION, ring.SLOTS, ring.COMMS) == (
        page.MAGIC, page.VERSION, page.SLOTS, page.COMMS)  # fmt: skip
    assert (ring.HEADER.size, ring.COMM.size, ring.RECORD.size, ring.PAGE_BYTES) == (
        page.HEADER.itemsize, page.COMM.itemsize, page.RECORD.itemsize, page.PAGE_BYTES
    )  # fmt: skip
    fields = page.HEADER.fields
    assert fields is not None
    assert (fields["newest"][1], fields["lost"][1]) == (
        ring.NEWEST_PLACE * 8, ring.LOST_PLACE * 8,
    )  # fmt: skip
    assert (ring.RECORDS_AT, hook.NAMES) == (page.RECORDS_AT, page.NAMES)
    assert (ring.BEGIN, ring.END, ring.STEP, ring.WAIT) == (1, 2, 3, 4)
    assert (page.BEGIN, page.END, page.STEP, page.WAIT) == (1, 2, 3, 4)


def test_a_process_says_where_it_is_once_it_has_reported_nothing_for_long() -> None:
    made, reader = ring.Page("/nowhere"), OperationsReader()

    def frame(now_s: float) -> str:
        made._locate(now_s)
        return reader.read(lambda size, at: made._memory[at : at + size], NOW_NS).frame

    here = re.compile(r"test_operations_page\.py:\d+ frame")
    found = [here.fullmatch(frame(each)) is not None for each in (0.0, 4.9, 5.0, 6.0)]
    made.begin(0, 0, 0, 0)
    found += [here.fullmatch(frame(each)) is not None for each in (7.0, 11.9, 12.0)]
    assert found == [False, False, True, True, False, False, True]


def test_where_a_process_is_is_printable() -> None:
    made = named()
    made.data[40:128] = b"a\n\x1b\xff b".ljust(88, b"\0")
    assert take(OperationsReader(), made).frame == "a??? b"


def test_operations_and_steps_are_told_once() -> None:
    made, reader = named(), OperationsReader()
    made.begin(0, NOW_NS - 9 * MS, op=6, size=4096)
    made.end(0, NOW_NS - 4 * MS, op=6)
    made.record(page.STEP, 0, 0, 7, 0, NOW_NS - 20 * MS, NOW_NS - MS, 3 * MS)
    reported = take(reader, made)
    assert (reported.rank, reported.ranks, reported.dropped) == (1, 4, 0)
    wanted = JobOperation("0.abc", 4, 0, "reduce_scatter", 4096, NOW_NS - 9 * MS, NOW_NS - 4 * MS)
    assert reported.operations == (wanted,)
    assert reported.steps == (OperationStep(7, NOW_NS - 20 * MS, NOW_NS - MS, 3 * MS),)
    assert take(reader, made)[2:] == ((), (), 0, "")


def test_what_was_begun_before_its_communicators_place_was_anothers_has_no_wrong_name() -> None:
    made, reader = named(), OperationsReader()
    made.begin(0, NOW_NS - 9 * MS)
    assert not take(reader, made).operations
    made.end(0, NOW_NS - 8 * MS)
    made.begin(1, NOW_NS - 7 * MS)
    made.end(1, NOW_NS - 6 * MS)
    made.name(64, b"1.def", 2)
    made.begin(0, NOW_NS - 5 * MS, comm=64)
    made.end(0, NOW_NS - 4 * MS, comm=64)
    found = take(reader, made).operations
    assert [(each.comm, each.ranks, each.seq) for each in found] == [
        ("0.abc", 4, 0), ("1.def", 2, 0)
    ]  # fmt: skip
    assert reader.malformed == 1


def test_an_operation_that_lasts_is_told_before_it_ends_and_again_after() -> None:
    made, reader = named(), OperationsReader()
    made.begin(3, NOW_NS)
    assert not take(reader, made, NOW_NS + OPEN_NS - 1).operations
    for expected in (1, 0):  # once
        found = take(reader, made, NOW_NS + OPEN_NS).operations
        assert [each.done_ns for each in found] == [0] * expected
    made.end(3, NOW_NS + 4 * S)
    assert [each.done_ns for each in take(reader, made, NOW_NS + 5 * S).operations] == [
        NOW_NS + 4 * S
    ]


def test_of_a_process_that_has_ended_what_it_was_in_is_told_once() -> None:
    made, reader = named(), OperationsReader()
    made.begin(3, NOW_NS)
    for expected in ([0], []):
        found = reader.read(made.read, NOW_NS, last=True).operations
        assert [each.done_ns for each in found] == expected


def test_what_was_overwritten_is_counted() -> None:
    made, reader = named(), OperationsReader()
    made.begin(0, NOW_NS)
    made.end(0, NOW_NS)
    assert take(reader, made).dropped == 0
    for seq in range(1, page.SLOTS):
        made.begin(seq, NOW_NS)
        made.end(seq, NOW_NS)
    reported = take(reader, made)
    assert reported.dropped == page.SLOTS - 2
    assert len(reported.operations) == page.SLOTS // 2
    struct.pack_into("=Q", made.data, 32, 5)  # by the process's word, besides
    assert take(reader, made).dropped == 5


def test_a_record_that_is_not_whole_yet_is_lost_and_the_others_are_not() -> None:
    made, reader = named(), OperationsReader()
    for seq in range(3):
        made.record(page.STEP, 0, 0, seq, 0, NOW_NS - 2, NOW_NS - 1, 0)
    struct.pack_into("=Q", made.data, page.RECORDS_AT + 64 + 56, 0)
    reported = take(reader, made)
    assert [step.number for step in reported.steps] == [0, 2]
    assert reported.dropped == 1


@pytest.mark.parametrize(
    "fields",
    [
        (9, 0, 0, 1, 1, NOW_NS, 0, 0),
        (page.BEGIN, len(page.NAMES), 0, 1, 1, NOW_NS, 0, 0),
        (page.BEGIN, 0, 1, 1, 1, NOW_NS, 0, 0),
        (page.BEGIN, 0, 64, 1, 1, NOW_NS, 0, 0),
        (page.BEGIN, 0, 0, 1 << 63, 1, NOW_NS, 0, 0),
        (page.BEGIN, 0, 0, 1, 1 << 63, NOW_NS, 0, 0),
        (page.BEGIN, 0, 0, 1, 1, NOW_NS + 2 * S, 0, 0),
        (page.BEGIN, 0, 0, 1, 1, NOW_NS - 601 * S, 0, 0),
        (page.STEP, 0, 0, 1, 0, NOW_NS, NOW_NS - 1, 0),
    ],
)
def test_what_cannot_be_is_not_used(fields: tuple[int, ...]) -> None:
    made, reader = named(), OperationsReader()
    made.record(*fields)
    reported = take(reader, made, NOW_NS + 0)
    assert (reported.operations, reported.steps, reader.malformed) == ((), (), 1)
    assert not take(reader, made, NOW_NS + OPEN_NS).operations


@pytest.mark.parametrize("text", [b"", b"\x1b[2J", b"\xff\xfe", b"a\nb"])
def test_a_communicator_whose_name_could_steer_a_terminal_is_none(text: bytes) -> None:
    made, reader = Written(), OperationsReader()
    made.name(0, text, 4)
    made.begin(0, NOW_NS)
    take(reader, made)
    assert reader.malformed == 1


@pytest.mark.parametrize(("rank", "ranks"), [(-2, 4), (4, 4), (0, 1 << 30), (3, -1)])
def test_a_rank_that_cannot_be_is_not_known(rank: int, ranks: int) -> None:
    assert take(OperationsReader(), named(rank, ranks))[:2] == (-1, 0)


def test_a_random_history_comes_through_in_any_portions() -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    made, reader = named(), OperationsReader()
    made.name(1, b"pair", 2)
    truth: dict[tuple[str, int], tuple[int, int]] = {}
    open_now: list[tuple[int, int, int]] = []
    found: dict[tuple[str, int], tuple[int, int]] = {}
    at_ns, seqs, dropped = NOW_NS - S, [0, 0], 0
    for _ in range(30_000):
        at_ns += draw.randrange(1, 20_000)
        if open_now and draw.random() < 0.55:
            comm, seq, begun = open_now.pop(draw.randrange(len(open_now)))
            made.end(seq, at_ns, comm=comm)
            truth["pair" if comm else "0.abc", seq] = begun, at_ns
        else:
            comm = draw.randrange(2)
            made.begin(seqs[comm], at_ns, comm=comm)
            open_now.append((comm, seqs[comm], at_ns))
            seqs[comm] += 1
        if draw.random() < 0.001 or made.count % 8000 == 0:
            reported = take(reader, made)
            dropped += reported.dropped
            found |= {(e.comm, e.seq): (e.begin_ns, e.done_ns) for e in reported.operations}
    reported = take(reader, made)
    found |= {(e.comm, e.seq): (e.begin_ns, e.done_ns) for e in reported.operations}
    assert dropped == reader.malformed == 0
    assert found == truth


@pytest.mark.parametrize("case", range(40))
def test_a_page_full_of_anything_is_read(case: int) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED + case)
    made, reader = named(), OperationsReader()
    for seq in range(50):
        made.begin(seq, NOW_NS)
    for _ in range(4):
        for _ in range(draw.choice([1, 30, 3000])):
            at = draw.choice([draw.randrange(8, 128), draw.randrange(page.PAGE_BYTES)])
            made.data[at] = draw.randrange(256)
        reported = take(reader, made)
        assert reported.dropped >= 0
        for each in reported.operations:
            assert each.comm.isprintable()
            assert each.done_ns == 0 or each.done_ns >= each.begin_ns
        for step in reported.steps:
            assert 0 <= step.data_ns <= step.end_ns - step.begin_ns
    assert len(reader._open) <= page.MAX_OPEN


def test_a_short_or_foreign_page_is_none() -> None:
    for data in (b"", bytes(page.PAGE_BYTES), b"SYNOPS02" + bytes(page.PAGE_BYTES)):
        reader = OperationsReader()
        reported = reader.read(lambda size, at, data=data: data[at : at + size], NOW_NS)  # type: ignore[misc]
        assert (reported.rank, reported.operations, reader.malformed) == (-1, (), 1)


@pytest.mark.parametrize(
    ("step_ms", "period"), [(0.1, 64), (3, 32), (6, 16), (49, 2), (50, 1), (1_000, 1)]
)
def test_the_hook_asks_for_a_backward_pass_every_50_ms(step_ms: float, period: int) -> None:
    """It knows after 32 steps, of which the first half does not count."""
    made = hook.Hook("nowhere")
    for step in range(1, 100):
        made._step = step
        now_ns = round(step * step_ms * MS) + (10 * S if step >= 16 else 0)
        made._sample(now_ns)
        assert made._period == (period if step >= 32 else 1)


def test_a_transfer_that_its_rank_waits_for_is_told_again_under_another_name() -> None:
    made, reader = named(), OperationsReader()
    isend, irecv = page.NAMES.index("isend"), page.NAMES.index("irecv")
    made.begin(0, NOW_NS - OPEN_NS - MS, op=isend)
    made.begin(1, NOW_NS - OPEN_NS - MS, op=irecv)
    assert [each.name for each in take(reader, made).operations] == ["isend", "irecv"]
    made.record(page.WAIT, isend, 0, 0, 0, NOW_NS, 0, 0)
    made.record(page.WAIT, isend, 0, 7, 0, NOW_NS, 0, 0)
    (waits,) = take(reader, made).operations
    assert (waits.name, waits.begin_ns, waits.done_ns) == ("send", NOW_NS - OPEN_NS - MS, 0)
    made.record(page.WAIT, irecv, 0, 1, 0, NOW_NS - MS, 0, 0)
    made.end(0, NOW_NS, op=isend)
    made.end(1, NOW_NS, op=irecv)
    sent, received = take(reader, made).operations
    assert (sent.name, sent.begin_ns) == ("send", NOW_NS - OPEN_NS - MS)
    assert (received.name, received.begin_ns) == ("recv", NOW_NS - MS)
    assert reader.malformed == 0
