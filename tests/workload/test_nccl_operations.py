"""Pages of hostile processes: whatever is in them, what can be used is, once, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from syntony.model import S
from syntony.workload.nccl_operations import (
    HANGING_NS,
    HEADER,
    MAGIC,
    OPERATION,
    OPERATIONS,
    PAGE_BYTES,
    QUIET_NS,
    WAITS,
    NcclOperation,
    NcclPageReader,
)

NOW_NS = 1_000 * S
BEGUN_NS = NOW_NS - 2 * S


def page(begun: int = 1, **fields: Any) -> bytearray:
    """All operations up to `begun` that fit, each an all-reduce that has ended; `fields` are of the
    newest."""
    made = bytearray(PAGE_BYTES)
    header = np.frombuffer(made, HEADER, 1)
    header["magic"], header["version"], header["begun"] = MAGIC, 1, begun
    for number in range(max(0, begun - OPERATIONS), begun):
        change(made, number)
    change(made, begun - 1, **fields)
    return made


def change(made: bytearray, at: int, **fields: Any) -> None:
    places = np.frombuffer(made, OPERATION, OPERATIONS, HEADER.itemsize)[at % OPERATIONS :][:1]
    defaults = {
        "number": at, "gate": (at & 0xFFFFFFFF) << 32, "comm": 0xABC, "sequence": at,
        "count": 100, "kind": 1, "rank": 3, "ranks": 8, "enqueue_ns": BEGUN_NS,
        "started_ns": BEGUN_NS + 5, "done_ns": BEGUN_NS + 1000, "changed_ns": BEGUN_NS + 1000,
        "sends": 2, "receives": 1, "steps": 12, "op": b"AllGather", "datatype": b"ncclBfloat16",
        "algorithm": b"RING", "protocol": b"SIMPLE", "name": b"dp 0",
        "wait_ns": [10, 20, 41, 50, 60, 70],
    }  # fmt: skip
    for name, value in (defaults | fields).items():
        if isinstance(value, bytes):
            size = OPERATION[name].shape[0]
            places[name][0] = np.frombuffer(value.ljust(size, b"\0"), np.uint8)
        else:
            places[name] = value


def read(
    reader: NcclPageReader, before: bytearray, after: bytearray | None = None, now_ns: int = NOW_NS
) -> list[NcclOperation]:
    return reader.read(bytes(before), bytes(before if after is None else after), now_ns)


def test_an_operation_is_reported_once() -> None:
    reader = NcclPageReader()
    (row,) = read(reader, page())
    assert row == NcclOperation(
        comm="0000000000000abc", name="dp 0", op="all_gather", collective=True, seq=0, rank=3,
        nranks=8, peer=None, bytes=1600, algorithm="ring", protocol="simple", enqueue_ns=BEGUN_NS,
        started_ns=BEGUN_NS + 5, done_ns=BEGUN_NS + 1000, parts=3, steps=12, gpu_wait_ns=5,
        credit_wait_ns=10, net_wait_ns=20, recv_wait_ns=50, flush_wait_ns=60, consume_wait_ns=70,
        waiting=(0,) * WAITS, changed_ns=BEGUN_NS + 1000, dropped=0,
    )  # fmt: skip
    assert read(reader, page()) == []
    assert [row.seq for row in read(reader, page(3))] == [1, 2]
    assert (reader.malformed, reader.lost) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"op": b"AllReduce"}, {"op": "all_reduce", "bytes": 200}),
        ({"op": b"ReduceScatter"}, {"op": "reduce_scatter", "bytes": 1600}),
        ({"ranks": 0}, {"nranks": None, "bytes": None}),
        ({"datatype": b"ncclNew"}, {"bytes": None}),
        ({"op": b"Send", "kind": 2, "peer": 6}, {"op": "send", "collective": False, "peer": 6}),
        ({"sends": 0}, {"net_wait_ns": None, "recv_wait_ns": 50, "parts": 1}),
        (
            {"sends": 0, "receives": 0, "started_ns": 0, "done_ns": 0},
            {"done_ns": None, "started_ns": None, "recv_wait_ns": None, "parts": 0},
        ),
    ],
)
def test_what_is_not_known_is_none(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    (row,) = read(NcclPageReader(), page(**fields))
    assert {name: getattr(row, name) for name in expected} == expected


def test_more_may_come_of_what_ended_just_now() -> None:
    reader, whole = NcclPageReader(), page()
    assert read(reader, whole, now_ns=BEGUN_NS + 1000 + QUIET_NS - 1) == []
    assert len(read(reader, whole, now_ns=BEGUN_NS + 1000 + QUIET_NS)) == 1


def test_what_hangs_is_reported_while_it_does_and_when_it_ends() -> None:
    reader = NcclPageReader()
    whole = page(gate=1, done_ns=0, waiting=[0, 0, 0, 4, 0, 0])
    assert read(reader, whole, now_ns=BEGUN_NS + 1000 + HANGING_NS - 1) == []
    (row,) = read(reader, whole, now_ns=BEGUN_NS + 1000 + HANGING_NS)
    assert (row.done_ns, row.waiting[3]) == (None, 4)
    assert read(reader, whole, now_ns=BEGUN_NS + 100 * S) == []
    (row,) = read(reader, page(), now_ns=BEGUN_NS + 200 * S)
    assert row.done_ns == BEGUN_NS + 1000
    assert read(reader, page(), now_ns=BEGUN_NS + 300 * S) == []


def test_all_that_is_left_of_a_process_that_ended_is_reported() -> None:
    reader = NcclPageReader()
    whole = page(3)
    change(whole, 1, gate=1 << 32 | 1, done_ns=0)
    rows = reader.read(bytes(whole), bytes(whole), BEGUN_NS + 1000, last=True)
    assert [(row.seq, row.done_ns) for row in rows] == [
        (0, BEGUN_NS + 1000), (1, None), (2, BEGUN_NS + 1000),
    ]  # fmt: skip
    assert reader.read(bytes(whole), bytes(whole), NOW_NS, last=True) == []


def test_one_that_was_reported_to_hang_is_not_again_when_its_process_ends() -> None:
    reader = NcclPageReader()
    whole = page(gate=1, done_ns=0)
    assert len(read(reader, whole, now_ns=NOW_NS + HANGING_NS)) == 1
    now_ns = NOW_NS + 2 * HANGING_NS
    assert reader.read(bytes(whole), bytes(whole), now_ns, last=True) == []


def test_what_was_overwritten_unread_is_counted() -> None:
    reader = NcclPageReader()
    assert len(read(reader, page(10))) == 10
    rows = read(reader, page(OPERATIONS + 17))
    assert [row.dropped for row in rows[:2]] == [7, 0]
    assert rows[0].seq == 17
    assert (len(rows), reader.lost) == (OPERATIONS, 7)


def test_one_that_never_ends_holds_nothing_up() -> None:
    reader = NcclPageReader()
    whole = page(5)
    change(whole, 1, gate=1 << 32 | 1)
    soon_ns = BEGUN_NS + 2 * QUIET_NS
    assert [row.seq for row in read(reader, whole, now_ns=soon_ns)] == [0, 2, 3, 4]
    whole = page(OPERATIONS + 1)
    change(whole, 1, gate=1 << 32 | 1)
    assert len(read(reader, whole, now_ns=soon_ns)) == OPERATIONS - 4
    assert reader.lost == 0
    assert len(read(reader, page(OPERATIONS + 2), now_ns=soon_ns)) == 1
    assert reader.lost == 1


def test_what_changed_meanwhile_is_read_later() -> None:
    reader, first = NcclPageReader(), page(2)
    after = page(2)
    change(after, 0, number=OPERATIONS)  # overwritten
    change(after, 1, sends=3)
    assert read(reader, first, after) == []
    assert read(reader, first, first)[1].seq == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"op": b"AllReduce\x1b[2J"}, {"op": b"A" * 16}, {"name": b"\xff"}, {"name": b"a\n"},
        {"kind": 0}, {"kind": 3}, {"rank": -1}, {"rank": 8}, {"ranks": -1}, {"count": 1 << 62},
        {"count": 1 << 60},
        {"enqueue_ns": 0}, {"enqueue_ns": -5},
        {"started_ns": BEGUN_NS - 1}, {"done_ns": BEGUN_NS - 1}, {"changed_ns": NOW_NS + 1},
        {"wait_ns": [0, 0, -1, 0, 0, 0]}, {"wait_ns": [1 << 62] * 6}, {"sequence": 1 << 63},
        {"kind": 2, "peer": -1},
    ],
)  # fmt: skip
def test_an_operation_that_cannot_be_is_not_used(fields: dict[str, Any]) -> None:
    reader = NcclPageReader()
    assert read(reader, page(**fields)) == []
    assert reader.malformed == 1
    assert read(reader, page(**fields)) == []
    assert reader.malformed == 1


@pytest.mark.parametrize(
    "fields", [
        {"number": 1}, {"number": OPERATIONS}, {"gate": 1 << 32}, {"number": 2**64 - 1},
        {"enqueue_ns": NOW_NS + 1}, {"done_ns": NOW_NS + 1},
    ],
)  # fmt: skip
def test_an_operation_that_is_being_written_or_of_the_future_is_not_used(
    fields: dict[str, int],
) -> None:
    reader = NcclPageReader()
    assert read(reader, page(**fields)) == []
    assert reader.malformed == 0


def test_another_page_is_not_read() -> None:
    reader = NcclPageReader()
    for at in (0, 8):
        whole = page()
        whole[at] ^= 1
        assert read(reader, whole) == []
    assert len(read(reader, page(3))) == 3
    assert read(reader, page(2)) == []  # counts never go back
    assert reader.malformed == 3
    huge = page()
    np.frombuffer(huge, HEADER, 1)["begun"] = 1 << 63
    assert read(reader, huge) == []
    np.frombuffer(huge, HEADER, 1)["begun"] = 1 << 61
    assert read(reader, huge) == []
    assert reader.lost == (1 << 61) - OPERATIONS - 3


def test_noise_is_read_without_an_end() -> None:
    """Random pages, and random changes of good ones; numbers, gates and counts set to hit."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    used = 0
    reader = NcclPageReader()
    whole = page(OPERATIONS)
    for turn in range(40):
        before = bytearray(whole)
        if turn % 3 == 0:
            before[64:] = rng.bytes(PAGE_BYTES - 64)
            places = np.frombuffer(before, OPERATION, OPERATIONS, HEADER.itemsize)
            places["number"] = np.arange(OPERATIONS)
            places["gate"] = places["number"] << np.uint64(32) | rng.integers(
                0, 2, OPERATIONS, np.uint64
            )
        for _ in range(int(rng.integers(1, 60))):
            at, size = int(rng.integers(16, PAGE_BYTES - 16)), int(rng.integers(1, 16))
            before[at : at + size] = rng.bytes(size) if rng.integers(2) else b"\xff" * size
        field = str(rng.choice(["count", "done_ns", "enqueue_ns", "wait_ns", "ranks", "sequence"]))
        places = np.frombuffer(before, OPERATION, OPERATIONS, HEADER.itemsize)
        places[field][:100] = rng.integers(
            0, 2 ** int(rng.integers(1, 63)), places[field][:100].shape
        )
        after = bytearray(before)
        if turn % 2:
            after[64 : 64 + (1 << 16)] = rng.bytes(1 << 16)
        if turn % 8 == 0:
            reader = NcclPageReader()
        for row in read(reader, before, after):
            msgspec.msgpack.encode(row)
            assert 0 < row.enqueue_ns <= NOW_NS
            assert row.done_ns is None or row.enqueue_ns <= row.done_ns <= NOW_NS
            assert all(wait is None or 0 <= wait < 1 << 62 for wait in row[15:21])
            assert "\x1b" not in row.op + row.name
            used += 1
    assert used > 1000
