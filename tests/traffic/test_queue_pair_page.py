"""Pages of hostile processes: whatever is in them, what can be used is, and nothing else."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from syntony.model import S
from syntony.traffic.queue_pair_page import (
    HEADER,
    MAGIC,
    PAGE_BYTES,
    RINGS_BYTES,
    SLOT,
    SLOTS,
    SLOTS_BYTES,
    STAMP,
    STAMP_RECORD,
    STAMPS,
    Owner,
    QueuePairPageReader,
    ring_offset,
    thinned,
)
from syntony.wire.queue_pairs import QueuePairFigures

OWNER = Owner("night", "train", 17, 1000)
NOW_NS = 1_000 * S


def page(**fields: object) -> bytearray:
    """One queue pair in slot 0 that has posted messages 0 to 9, which are stamped."""
    made = bytearray(PAGE_BYTES)
    header = np.frombuffer(made, HEADER, 1)
    header["magic"], header["version"], header["used"] = MAGIC, 1, 1
    slot = np.frombuffer(made, SLOT, 1, HEADER.itemsize)
    slot["state"], slot["type"], slot["generation"] = 1, 2, 1
    slot["began_ns"], slot["number"], slot["peer_number"] = NOW_NS - S, 17, 18
    slot["device"][0, :6] = list(b"mlx5_0")
    slot["sent"], slot["stamped"][0, 0], slot["first_sent_ns"] = 10, 10, NOW_NS - 1000
    for name, value in fields.items():
        slot[name] = value
    ring = np.frombuffer(made, STAMP, STAMPS, ring_offset(0))
    ring["at_ns"][:10] = NOW_NS - 1000 + np.arange(10)
    ring["number"][:10] = np.arange(10)
    ring["value"][:10] = 64
    return made


def read(
    reader: QueuePairPageReader, before: bytes | bytearray, after: bytes | bytearray | None = None
) -> list[QueuePairFigures]:
    whole = bytes(before)
    last = whole if after is None else bytes(after)
    rings = {
        slot: whole[ring_offset(slot) : ring_offset(slot) + RINGS_BYTES]
        for slot in reader.in_use(whole[:SLOTS_BYTES])
    }
    return reader.read(whole[:SLOTS_BYTES], rings, last[:SLOTS_BYTES], NOW_NS)


def numbers(stamps: bytes) -> list[int]:
    return np.frombuffer(stamps, STAMP_RECORD)["number"].tolist()  # type: ignore[no-any-return]


def test_stamps_are_taken_once() -> None:
    reader = QueuePairPageReader(OWNER)
    (figures,) = read(reader, page())
    assert (figures.job, figures.device, figures.sent, figures.type) == (
        "night",
        "mlx5_0",
        10,
        "rc",
    )
    assert numbers(figures.sent_stamps) == list(range(10))
    (figures,) = read(reader, page())
    assert figures.sent_stamps == b""
    assert reader.malformed == 0


def test_what_was_overwritten_meanwhile_is_left_out() -> None:
    (figures,) = read(QueuePairPageReader(OWNER), page(), page(stamped=[[10 + STAMPS - 7, 0, 0]]))
    assert numbers(figures.sent_stamps) == [4, 5, 6, 7, 8, 9]


def test_numbers_beyond_32_bits_are_whole() -> None:
    whole = page(sent=(7 << 32) + 4)
    ring = np.frombuffer(whole, STAMP, STAMPS, ring_offset(0))
    ring["number"][:10] = (np.arange(-6, 4) & 0xFFFFFFFF).astype(np.uint32)
    (figures,) = read(QueuePairPageReader(OWNER), whole)
    assert numbers(figures.sent_stamps) == list(range((7 << 32) - 6, (7 << 32) + 4))


@pytest.mark.parametrize(
    "field",
    [
        {"state": 9}, {"device": 0x1B}, {"device": 0x41}, {"sent": 1 << 63},
        {"began_ns": 0}, {"began_ns": NOW_NS + 1}, {"first_sent_ns": -1}, {"number": 1 << 24},
        {"receive_psn": 1 << 24}, {"flags": 1 << 63}, {"completed": (1 << 64) - 1},
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_is_not_used(field: dict[str, int]) -> None:
    reader = QueuePairPageReader(OWNER)
    assert read(reader, page(**field)) == []
    assert reader.malformed == 1


@pytest.mark.parametrize(("before", "after"), [(0, 2), (1, 1), (1, 2)])
def test_a_slot_that_is_being_changed_is_read_next_time(before: int, after: int) -> None:
    reader = QueuePairPageReader(OWNER)
    assert len(read(reader, page())) == 1
    assert read(reader, page(sequence=before), page(sequence=after)) == []
    (figures,) = read(reader, page())
    assert figures.sent_stamps == b"", "taken twice"
    assert reader.malformed == 0


def test_a_slot_that_never_stops_changing_is_counted() -> None:
    reader = QueuePairPageReader(OWNER)
    for _ in range(3):
        assert read(reader, page(sequence=1)) == []
    assert reader.malformed == 2


def test_another_page_is_not_read() -> None:
    for at in (0, 8):
        whole = page()
        whole[at] ^= 1
        assert read(QueuePairPageReader(OWNER), whole) == []


def test_stamps_of_the_future_or_out_of_order_are_left_out() -> None:
    whole = page()
    ring = np.frombuffer(whole, STAMP, STAMPS, ring_offset(0))
    ring["at_ns"][9], ring["at_ns"][0], ring["number"][5] = NOW_NS + 1, NOW_NS - 11 * S, 2
    reader = QueuePairPageReader(OWNER)
    (figures,) = read(reader, whole)
    assert numbers(figures.sent_stamps) == [1, 2, 3, 4, 6, 7, 8]
    assert reader.malformed == 2


def test_both_ends_keep_the_same_messages() -> None:
    reported = np.zeros(200, STAMP_RECORD)
    reported["number"] = 8 * np.arange(200)
    here, there = (
        numbers(thinned(reported.tobytes(), 16)),
        numbers(thinned(reported[3:].tobytes(), 16)),
    )
    assert len(here) <= 16
    assert set(there) <= set(here)
    assert len(there) >= 12


def test_noise_is_read_without_an_end() -> None:
    """Random pages, and random changes of a good one; `used`, states and heads set to hit."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    reader = QueuePairPageReader(OWNER)
    used = 0
    for turn in range(300):
        before = page()
        if turn % 3 == 0:
            before[64:SLOTS_BYTES] = rng.bytes(SLOTS_BYTES - 64)
        for _ in range(int(rng.integers(1, 40))):
            at, size = int(rng.integers(12, SLOTS_BYTES - 16)), int(rng.integers(1, 16))
            before[at : at + size] = rng.bytes(size) if rng.integers(2) else b"\xff" * size
        states = np.frombuffer(before, SLOT, SLOTS, HEADER.itemsize)["state"]
        states[rng.integers(0, SLOTS, 20)] = 1
        np.frombuffer(before, HEADER, 1)["used"] = rng.integers(0, 1 << 32)
        after = bytearray(before)
        if turn % 2:
            after[64:SLOTS_BYTES] = rng.bytes(SLOTS_BYTES - 64)
        for figures in read(reader, before, after):
            msgspec.msgpack.encode(figures)
            reported = np.frombuffer(figures.sent_stamps, STAMP_RECORD)
            assert ((reported["at_ns"] > NOW_NS - 10 * S) & (reported["at_ns"] <= NOW_NS)).all()
            assert max(figures.sent, figures.bytes_posted, figures.began_ns) < 1 << 63
            used += 1
    assert used > 10
    assert reader.malformed > 100
