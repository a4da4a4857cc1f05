"""A spool whose files are cut, flipped, lost or emptied: the rest is delivered, losses counted."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent_link.spool_contents import delivered, pending, three_records
from tests.cases import mostly_slow
from tests.link import open_spool

from syntony.wire.spoolfile import SEGMENT_BYTES, index_segment, pack_state, read_state


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 400), garbage=st.binary(max_size=40))
def test_a_torn_tail_costs_only_itself(cut: int, garbage: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        three_records(directory)
        (segment,) = directory.glob("*.spool")
        whole = segment.read_bytes()
        ends = [entry.end for entry in index_segment(whole, 1)]
        segment.write_bytes(whole[:cut] + garbage)
        spool = open_spool(directory, 1 << 20)
        intact = sum(end <= min(cut, len(whole)) for end in ends)
        found = [frame.payload for frame in pending(spool)]
        assert found == [b"first", b"second", b"third"][:intact]
        assert spool.dropped_rows == 3 - intact
        seq = spool.append("t", 1, b"after")
        assert {frame.seq: frame.payload for frame in pending(spool)}[seq or 0] == b"after"
        spool.close()


@settings(max_examples=100, deadline=None)
@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_wrong_byte_is_never_delivered(place: int, value: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        three_records(directory)
        (segment,) = directory.glob("*.spool")
        data = bytearray(segment.read_bytes())
        data[place % len(data)] = value
        segment.write_bytes(data)
        spool = open_spool(directory, 1 << 20)
        found = [(frame.seq, frame.payload) for frame in pending(spool)]
        lost = spool.dropped_rows
        spool.close()
        assert set(found) <= {(1, b"first"), (2, b"second"), (3, b"third")}
        assert len(found) >= 2
        assert len(found) + lost == 3


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damage_in_the_middle_costs_what_it_hit_and_is_counted(data: st.DataObject) -> None:
    """One flipped bit once cost 960 of 1,000 rows, and their numbers were given out again."""
    rows = [data.draw(st.integers(1, 9)) for _ in range(50)]
    with tempfile.TemporaryDirectory() as name:
        spool = open_spool(name, 1 << 20)
        for number, count in enumerate(rows):
            spool.append("t", count, bytes([number]) * data.draw(st.integers(9, 99)))
        spool.close()
        (segment,) = Path(name).glob("*.spool")
        whole = bytearray(segment.read_bytes())
        frames = [(entry.start, entry.end) for entry in index_segment(bytes(whole), 1)]
        hit = data.draw(st.integers(0, 48))
        place = data.draw(st.integers(frames[hit][0], frames[hit][1] - 1))
        whole[place] ^= 1 << data.draw(st.integers(0, 7))
        segment.write_bytes(whole)
        spool = open_spool(name, 1 << 20)
        for _ in range(2):  # counted once, however often it is read
            assert {frame.seq for frame in pending(spool)} == set(range(1, 51)) - {hit + 1}
        assert spool.dropped_rows == rows[hit]
        assert spool.append("t", 1, b"after") == 51
        spool.close()


@pytest.mark.parametrize("hole", [100, 5_000, 60_000])
def test_a_hole_of_any_size_is_bridged_and_every_batch_in_it_counted(
    tmp_path: Path, hole: int
) -> None:
    """More than 64 batches in a hole once cost the rest of the file, uncounted."""
    spool = open_spool(tmp_path, 1 << 20)
    for number in range(2_000):
        spool.append("t", 1, bytes([number % 256]) * 20)
    spool.close()
    (segment, *_) = sorted(tmp_path.glob("*.spool"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:300] + bytes(hole) + whole[300 + hole :])
    spool = open_spool(tmp_path, 1 << 20)
    found = pending(spool)
    assert len(found) + spool.dropped_rows == 2_000
    assert spool.append("t", 1, b"after") == 2_001
    spool.close()


def cut(segment: Path, size: int | None) -> None:
    """Remove the file, or all beyond so many bytes."""
    if size is None:
        segment.unlink()
    else:
        os.truncate(segment, size)


@pytest.mark.parametrize("size", [None, 0, 16, 20])
@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_file_lost_or_emptied_is_counted(tmp_path: Path, which: int, size: int | None) -> None:
    """The first and the last once were not."""
    spool = open_spool(tmp_path, 1 << 14)
    for _ in range(150):
        spool.append("t", 1, bytes(20))
    spool.close()
    segment = sorted(tmp_path.glob("*.spool"))[which]
    cut(segment, size)
    spool = open_spool(tmp_path, 1 << 14)
    assert len(pending(spool)) + spool.dropped_rows == 150
    assert spool.dropped_rows > 2
    spool.close()


@pytest.mark.parametrize("size", [None, 20])
def test_of_the_version_before_which_kept_no_ledger_missing_numbers_are_counted(
    tmp_path: Path, size: int | None
) -> None:
    spool = open_spool(tmp_path, 1 << 14)
    for _ in range(150):
        spool.append("t", 5, bytes(20))
    spool.acknowledge(3)
    spool.close()
    state = read_state((tmp_path / "state").read_bytes())
    assert state is not None
    (tmp_path / "state").write_bytes(2 * pack_state(state._replace(waiting_rows=None)))
    segment = sorted(tmp_path.glob("*.spool"))[3]
    cut(segment, size)
    spool = open_spool(tmp_path, 1 << 14)
    assert len(pending(spool)) + spool.dropped_rows == 147
    assert spool.dropped_rows > 10
    spool.close()
    spool = open_spool(tmp_path, 1 << 14)  # counted once
    assert len(pending(spool)) + spool.dropped_rows == 147
    spool.close()


@pytest.mark.parametrize("seed", mostly_slow(range(400), range(25)))
def test_whatever_is_cut_or_flipped_every_row_is_delivered_once_or_counted(
    tmp_path: Path, seed: int
) -> None:
    """Any number of wrong bits, of a segment's header two; or a file cut anywhere."""
    rng, limit = random.Random(seed), random.Random(-seed).choice([1 << 13, 1 << 20])
    appended, released, given = 0, 0, set()
    for _ in range(rng.randint(1, 3)):
        spool = open_spool(tmp_path, limit)
        for _ in range(rng.randint(1, 80)):
            rows, payload = rng.randint(1, 9), rng.randbytes(rng.randint(0, 120))
            given.add((spool.stream, spool.append("t", rows, payload), rows, payload))
            appended += rows
        if rng.random() < 0.3:
            waiting = pending(spool)
            done = waiting[: rng.randint(1, len(waiting))]
            released += sum(frame.rows for frame in done)
            spool.acknowledge(done[-1].seq)
        spool.close()
    for path in rng.sample(files := sorted(tmp_path.glob("*.spool")), min(2, len(files))):
        data = bytearray(path.read_bytes())
        if rng.random() < 0.5:
            del data[rng.randrange(len(data)) :]
        else:
            for place in rng.sample(range(SEGMENT_BYTES), rng.randint(0, 2)) + [
                rng.randrange(SEGMENT_BYTES, len(data)) for _ in range(rng.randint(0, 9))
            ]:
                data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    spool = open_spool(tmp_path, limit)
    found = delivered(spool)
    assert len(set(found)) == len(found), "doubled"
    assert set(found) <= given, "nobody has given this"
    assert released + sum(rows for _, _, rows, _ in found) + spool.dropped_rows == appended
    spool.close()


def test_a_segment_of_another_stream_between_two_of_one_is_delivered(tmp_path: Path) -> None:
    """Two wrong bits of its header once took all of it away, uncounted, with those around it."""
    spool = open_spool(tmp_path, 1 << 13)
    for number in range(60):
        spool.append("t", 1, b"%d" % number)
    spool.close()
    segment = sorted(tmp_path.glob("*.spool"))[1]
    data = bytearray(segment.read_bytes())
    data[9:11] = bytes(value ^ 1 for value in data[9:11])
    segment.write_bytes(data)
    spool = open_spool(tmp_path, 1 << 13)
    assert [payload for *_, payload in delivered(spool)] == [b"%d" % each for each in range(60)]
    spool.close()


def test_frames_with_the_numbers_of_others_are_not_delivered(tmp_path: Path) -> None:
    """As in a file that was copied under another name: they once were, again and again."""
    three_records(tmp_path)
    (segment,) = tmp_path.glob("*.spool")
    segment.rename(tmp_path / f"{50:020d}.spool")
    spool = open_spool(tmp_path, 1 << 20)
    assert pending(spool) == []
    assert spool.dropped_rows == 3
    spool.close()


def test_a_stream_of_which_nothing_can_be_read_is_passed_over(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, 1 << 20)
    spool.append("t", 7, b"unreadable" * 9)
    spool.close()
    (segment,) = tmp_path.glob("*.spool")
    segment.write_bytes(segment.read_bytes()[:-1])
    spool = open_spool(tmp_path, 1 << 20)
    assert spool.oldest_stream() == (spool.stream, None)
    assert (spool.dropped_rows, list(tmp_path.glob("*.spool"))) == (7, [])
    spool.close()


def test_a_damaged_name_of_a_stream_is_mended_in_its_file(tmp_path: Path) -> None:
    """Wrong bits do not add up over several starts of an agent."""
    spool = open_spool(tmp_path, 1 << 20)
    stream, _ = spool.stream, spool.append("t", 1, b"waits")
    spool.close()
    (segment,) = tmp_path.glob("*.spool")
    whole = segment.read_bytes()
    for start in range(4):
        data = bytearray(whole)
        for place in (start, 8 + start, 12 + start):
            data[place] ^= 1 << start
        segment.write_bytes(data)
        spool = open_spool(tmp_path, 1 << 20)
        assert spool.oldest_stream() == (stream, 1)
        assert segment.read_bytes() == whole
        spool.close()


def test_what_the_medium_loses_under_an_open_spool_is_counted_once(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, 1 << 20)
    for rows in (3, 5, 7):
        spool.append("t", rows, b"payload")
    (segment,) = tmp_path.glob("*.spool")
    data = bytearray(segment.read_bytes())
    data[data.index(b"payload")] ^= 1
    segment.write_bytes(data)
    for _ in range(2):
        assert [frame.seq for frame in pending(spool)] == [2, 3]
        assert spool.dropped_rows == 3
    spool.close()
    spool = open_spool(tmp_path, 1 << 20)
    assert [frame.seq for frame in pending(spool)] == [2, 3]
    assert spool.dropped_rows == 3
    spool.close()


def test_a_damaged_state_file_keeps_the_records(tmp_path: Path) -> None:
    three_records(tmp_path)
    (tmp_path / "state").write_bytes(b"nonsense")
    spool = open_spool(tmp_path, 1 << 20)
    assert [frame.payload for frame in pending(spool)] == [b"first", b"second", b"third"]
    spool.close()
