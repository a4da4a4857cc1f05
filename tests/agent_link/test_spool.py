"""The spool against a model of it, against crashes at every byte, and against a full disk."""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.cases import mostly_slow
from tests.link import open_spool

from syntony.agent.delivery import Delivery
from syntony.agent.spool import Spool
from syntony.errors import ConfigError, MissingError
from syntony.wire.spoolfile import (
    SEGMENT_BYTES,
    Frame,
    index_segment,
    pack_frame,
    pack_state,
    read_state,
)

LIMIT = 4096


def pending(spool: Spool) -> list[Frame]:
    """What is unacknowledged, stream by stream as they are delivered."""
    found, streams = [], [segment.stream for segment in spool._segments]
    for stream in dict.fromkeys(streams):
        seq, frame = spool.read_after(0, stream)
        while frame is not None:
            found.append(frame)
            seq, frame = spool.read_after(seq, stream)
    return found


class SpoolMachine(RuleBasedStateMachine):
    """Append, acknowledge, die and come back: nothing is lost that was not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="spool-"))
        self.spool = open_spool(self.directory, LIMIT)
        self.given: dict[tuple[str, int], bytes] = {}
        self.kept: dict[int, tuple[str, int, bytes]] = {}
        self.appended_rows = 0
        self.released_rows = 0
        self.acknowledged = 0

    def teardown(self) -> None:
        self.spool.close()
        shutil.rmtree(self.directory)

    @rule(rows=st.integers(1, 100), payload=st.binary(max_size=600), table=st.sampled_from("ab"))
    def append(self, rows: int, payload: bytes, table: str) -> None:
        seq = self.spool.append(table, rows, payload)
        self.appended_rows += rows
        assert seq is not None
        assert seq > max(self.kept, default=self.acknowledged)
        assert (self.spool.stream, seq) not in self.given
        self.given[self.spool.stream, seq] = payload
        self.kept[seq] = (table, rows, payload)
        self._forget_shed()

    def _forget_shed(self) -> None:
        """What is shed is the oldest."""
        present = [frame.seq for frame in pending(self.spool)]
        first = present[0] if present else self.spool.last_seq + 1
        self.kept = {seq: record for seq, record in self.kept.items() if seq >= first}

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.kept)))
        self.spool.acknowledge(seq)
        self.acknowledged = max(self.acknowledged, seq)
        for done in [known for known in self.kept if known <= seq]:
            self.released_rows += self.kept.pop(done)[1]

    @rule(seq=st.integers(0, 3))
    def acknowledge_the_past(self, seq: int) -> None:
        self.spool.acknowledge(min(seq, self.acknowledged))

    @rule()
    def die_and_return(self) -> None:
        # A killed process closes nothing in an orderly way; its descriptors just go.
        self.spool.close()
        self.spool = open_spool(self.directory, LIMIT)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        found = {frame.seq: frame[1:] for frame in pending(self.spool)}
        assert found == self.kept
        assert list(found) == sorted(found)

    @invariant()
    def every_row_is_accounted_for(self) -> None:
        waiting = sum(rows for _, rows, _ in self.kept.values())
        assert self.appended_rows == waiting + self.released_rows + self.spool.dropped_rows

    @invariant()
    def keeps_the_streams_of_its_past_and_its_bound(self) -> None:
        for stream in {stream for stream, _ in self.given}:
            seq, frame = self.spool.read_after(0, stream)
            while frame is not None:
                assert self.given[stream, seq] == frame.payload
                seq, frame = self.spool.read_after(seq, stream)
        assert sum(path.stat().st_size for path in self.directory.glob("*.spool")) <= LIMIT


SpoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestSpool = SpoolMachine.TestCase


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 400), garbage=st.binary(max_size=40))
def test_a_torn_tail_costs_only_itself(cut: int, garbage: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _three_records(directory)
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
        _three_records(directory)
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


def _three_records(directory: Path) -> None:
    spool = open_spool(directory, 1 << 20)
    for payload in (b"first", b"second", b"third"):
        spool.append("t", 1, payload)
    spool.close()


def test_numbers_go_on_after_everything_was_acknowledged(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, LIMIT)
    for _ in range(5):
        spool.append("t", 1, b"x")
    spool.acknowledge(5)
    spool.close()
    spool = open_spool(tmp_path, LIMIT)
    assert spool.append("t", 1, b"x") == 6
    spool.close()


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


@pytest.mark.parametrize("size", [None, 0, 16, 20])
@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_file_lost_or_emptied_is_counted(tmp_path: Path, which: int, size: int | None) -> None:
    """The first and the last once were not."""
    spool = open_spool(tmp_path, 1 << 14)
    for _ in range(150):
        spool.append("t", 1, bytes(20))
    spool.close()
    segment = sorted(tmp_path.glob("*.spool"))[which]
    if size is None:
        segment.unlink()
    else:
        os.truncate(segment, size)
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
    if size is None:
        segment.unlink()
    else:
        os.truncate(segment, size)
    spool = open_spool(tmp_path, 1 << 14)
    assert len(pending(spool)) + spool.dropped_rows == 147
    assert spool.dropped_rows > 10
    spool.close()
    spool = open_spool(tmp_path, 1 << 14)  # counted once
    assert len(pending(spool)) + spool.dropped_rows == 147
    spool.close()


def _delivered(spool: Spool) -> list[tuple[str, int, int, bytes]]:
    """(stream, number, rows, payload) of all that waits, as connections deliver it."""
    found = []
    while True:
        delivery = Delivery(spool)
        while (batch := delivery.next_batch()) is not None:
            found.append((delivery.stream, batch.seq, batch.rows, batch.arrow))
            delivery.acknowledge(batch.seq)
        if not delivery.backlog:
            return found


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
    found = _delivered(spool)
    assert len(set(found)) == len(found), "doubled"
    assert set(found) <= given, "nobody has given this"
    assert released + sum(rows for _, _, rows, _ in found) + spool.dropped_rows == appended
    spool.close()


class _KilledError(BaseException):
    """The process is killed: nothing catches it."""


class _DyingOs:
    """`os` of a process that is killed at one of its steps on the disk.

    Args:
        step: the number of that step, from 0.
        part: of the step that is carried out; of a write, of its bytes.
    """

    def __init__(self, step: int, part: float) -> None:
        self._step, self._part = step, part
        self.full = False

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def _do(self, act: Callable[[float], Any]) -> Any:
        self._step -= 1
        if self._step == -1:
            if self._part:
                act(self._part)
            raise _KilledError
        return act(1.0)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return int(self._do(lambda _: os.open(path, flags, mode)))

    def write(self, fd: int, data: bytes) -> int:
        if self.full and len(data) <= 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room = 8 if self.full else len(data)
        return int(self._do(lambda part: os.write(fd, data[: int(room * part)])))

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return int(self._do(lambda part: os.pwrite(fd, data[: int(len(data) * part)], offset)))

    def ftruncate(self, fd: int, length: int) -> None:
        self._do(lambda _: os.ftruncate(fd, length))

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        self._do(lambda _: Path.unlink(path, missing_ok))


class _History:
    """What two processes, one after the other, do with a spool; drawn from a seed."""

    def __init__(self, place: Path, seed: int, limit: int) -> None:
        self._rng = random.Random(seed)
        self._open = partial(Spool, place, limit)
        self.spool = self._open()
        self.given: dict[int, tuple[str, int, bytes]] = {}
        self.appended_rows = self.appending_rows = self.refused_rows = 0
        self.released_rows = self.releasing_rows = 0
        self.acknowledged = self.acknowledging = 0

    def run(self, disk: _DyingOs) -> None:
        for _ in range(2):
            self.spool.close()
            self.spool = self._open()
            self.spool.open()
            delivery, sent = Delivery(self.spool), [0]
            for _ in range(15):
                match self._rng.choice("aaaaassskkf"):
                    case "a":
                        self._append()
                    case "s":
                        if delivery.over:
                            delivery, sent = Delivery(self.spool), [0]
                        while (batch := delivery.next_batch()) is not None:
                            sent.append(batch.seq)
                    case "k":
                        self._acknowledge(delivery, self._rng.choice(sent[-3:]))
                    case _:
                        disk.full = not disk.full

    def _append(self) -> None:
        rows, payload = self._rng.randint(1, 9), self._rng.randbytes(self._rng.randint(0, 300))
        self.given[self.spool.last_seq + 1] = (self.spool.stream, rows, payload)
        self.appending_rows = rows
        if self.spool.append("t", rows, payload) is None:
            self.refused_rows += rows
        self.appended_rows, self.appending_rows = self.appended_rows + rows, 0

    def _acknowledge(self, delivery: Delivery, seq: int) -> None:
        rows = sum(frame.rows for frame in pending(self.spool) if frame.seq <= seq)
        self.acknowledging, self.releasing_rows = max(self.acknowledged, seq), rows
        delivery.acknowledge(seq)
        self.acknowledged, self.releasing_rows = self.acknowledging, 0
        self.released_rows += rows


def _run_until_killed(history: _History, step: int, part: float) -> bool:
    """Whether it had so many steps."""
    disk = _DyingOs(step, part)
    unlink = partialmethod(lambda path, missing_ok=False: disk.unlink(path, missing_ok=missing_ok))
    with (
        mock.patch("syntony.agent.spool.os", disk),
        mock.patch("syntony.agent.spool.Path", type("_Path", (type(Path()),), {"unlink": unlink})),
    ):
        try:
            history.run(disk)
        except _KilledError:
            return True
        return False


def _check_what_is_left(history: _History, place: Path, limit: int) -> None:
    spool = open_spool(place, limit)
    assert spool.acknowledged in {history.acknowledged, history.acknowledging}
    released = history.released_rows
    if spool.acknowledged > history.acknowledged:
        released += history.releasing_rows
    found = _delivered(spool)
    numbers = [number for _, number, _, _ in found]
    assert len(set(numbers)) == len(numbers), "doubled"
    assert min(numbers, default=1 << 60) > history.acknowledged, "delivered again"
    assert {number: (stream, *rest) for stream, number, *rest in found}.items() <= (
        history.given.items()
    ), "nobody has given this"
    known = released + sum(rows for _, _, rows, _ in found) + spool.dropped_rows
    # What is killed while it makes room may count a batch that is delivered.
    assert known >= history.appended_rows, "lost uncounted"
    if limit > 1 << 11:
        assert known <= history.appended_rows + history.appending_rows, "counted, and not lost"
        refused = history.refused_rows
        assert spool.dropped_rows in {refused, refused + history.appending_rows}
    spool.close()


@pytest.mark.parametrize("limit", [1 << 11, 1 << 14, 1 << 20])
@pytest.mark.parametrize("seed", mostly_slow(range(40), range(2)))
def test_killed_at_any_step_every_row_is_delivered_once_or_counted(
    tmp_path: Path, seed: int, limit: int
) -> None:
    """Before, within and after each open, write, truncation and removal of a history, including
    those of the second process's recovery."""
    for part in (0.0, 0.5, 1.0):
        step, killed = 0, True
        while killed:
            place = tmp_path / f"{part}-{step}"
            history = _History(place, seed, limit)
            killed = _run_until_killed(history, step, part)
            history.spool.close()
            _check_what_is_left(history, place, limit)
            step += 1
        assert step > 20


def test_while_the_controller_keeps_up_one_file_takes_all_batches(tmp_path: Path) -> None:
    """Each acknowledgement once removed a file, and the next batch made one."""
    spool = open_spool(tmp_path, 64 << 20)
    delivery = Delivery(spool)
    files = set()
    for number in range(1, 2_001):
        assert spool.append("t", 1, bytes(500)) == number
        files |= {(path, path.stat().st_ino) for path in tmp_path.glob("*.spool")}
        assert delivery.next_batch() is not None
        delivery.acknowledge(number)
        assert spool.kept_bytes < 1 << 18, "more would reach the medium"
    assert len(files) == 2_000 * (500 + 23) // (1 << 18) + 1
    spool.close()
    # Killed before it is removed: the next process does so.
    assert len(list(tmp_path.glob("*.spool"))) == 1
    spool = open_spool(tmp_path, 64 << 20)
    assert list(tmp_path.glob("*.spool")) == []
    assert spool.append("t", 1, b"x") == 2_001
    spool.close()


def test_on_a_full_disk_acknowledged_batches_make_room_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = open_spool(tmp_path, 64 << 20)
    for _ in range(3):
        spool.append("t", 1, bytes(1_000))
    write, limit = os.write, 4_000

    def full(fd: int, data: bytes) -> int:
        used = sum(path.stat().st_size for path in tmp_path.glob("*.spool"))
        if used >= limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, bytes(data)[: limit - used])

    monkeypatch.setattr(os, "write", full)
    spool.acknowledge(3)
    assert [spool.append("t", 1, bytes(1_000)) for _ in range(4)] == [4, 5, 6, None]
    assert [frame.seq for frame in pending(spool)] == [4, 5, 6]
    assert (spool.dropped_rows, spool.fault != "") == (1, True)
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
    assert [payload for *_, payload in _delivered(spool)] == [b"%d" % each for each in range(60)]
    spool.close()


def test_frames_with_the_numbers_of_others_are_not_delivered(tmp_path: Path) -> None:
    """As in a file that was copied under another name: they once were, again and again."""
    _three_records(tmp_path)
    (segment,) = tmp_path.glob("*.spool")
    segment.rename(tmp_path / f"{50:020d}.spool")
    spool = open_spool(tmp_path, 1 << 20)
    assert pending(spool) == []
    assert spool.dropped_rows == 3
    spool.close()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("junk.spool", f"{'9' * 20}.spool", f"{'9' * 30}.spool"):
        (tmp_path / name).write_bytes(b"not ours")
    spool = open_spool(tmp_path, 1 << 20)
    assert spool.append("t", 1, b"x") == 1
    assert (len(pending(spool)), spool.dropped_rows) == (1, 0)
    spool.close()
    assert len(list(tmp_path.glob("*.spool"))) == 4


def test_streams_are_delivered_oldest_first(tmp_path: Path) -> None:
    streams = []
    for number in range(3):
        spool = open_spool(tmp_path, 1 << 20)
        streams.append(spool.stream)
        for part in range(2):
            spool.append("t", 1, b"%d %d" % (number, part))
        spool.close()
    assert len(set(streams)) == 3
    spool = open_spool(tmp_path, 1 << 20)
    spool.append("t", 1, b"new")
    for number, stream in enumerate(streams):
        assert spool.oldest_stream() == (stream, 2 * number + 2)
        spool.acknowledge(2 * number + 2)
    assert spool.oldest_stream() == (spool.stream, None)
    assert [frame.payload for frame in pending(spool)] == [b"new"]
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


def test_segments_of_the_version_before_belong_to_the_spools_own_stream(tmp_path: Path) -> None:
    """Version 1 named the stream in the state file alone, and reads today's segments as its own."""
    spool = open_spool(tmp_path, 1 << 20)
    spool.append("t", 1, b"before")
    spool.close()
    (segment,) = tmp_path.glob("*.spool")
    old = b"syntony-spool-1\n"
    segment.write_bytes(old + segment.read_bytes()[len(old) :])
    state = read_state((tmp_path / "state").read_bytes())
    assert state is not None
    spool = open_spool(tmp_path, 1 << 20)
    assert spool.oldest_stream() == (state.stream.hex(), 1)
    spool.close()


def test_numbers_never_given_out_release_nothing(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, LIMIT)
    spool.append("t", 1, b"x")
    for seq in (2, (1 << 64) - 1):
        spool.acknowledge(seq)
    assert (spool.acknowledged, spool.append("t", 1, b"y")) == (0, 2)
    spool.close()


def test_a_process_that_went_back_in_time_counts_what_waits_and_begins_a_stream(
    tmp_path: Path,
) -> None:
    spool = open_spool(tmp_path, 1 << 20)
    before = spool.stream
    for number in range(3):
        spool.append("t", 2, b"%d" % number)
    spool.restart_stream()
    spool.append("t", 1, b"new")
    assert spool.dropped_rows == 6
    assert spool.oldest_stream() == (before, 3)
    spool.close()
    spool = open_spool(tmp_path, 1 << 20)
    assert spool.dropped_rows == 6, "more is there than was expected: nothing is taken back"
    spool.acknowledge(3)
    assert [frame.payload for frame in pending(spool)] == [b"new"]
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


def test_room_is_made_for_the_head_of_a_new_segment_too(tmp_path: Path) -> None:
    frame = len(pack_frame(Frame(1, "t", 1, bytes(1000))))
    most = 3 * frame + 2 * SEGMENT_BYTES + SEGMENT_BYTES // 2
    spool = open_spool(tmp_path, most)  # each frame begins a segment
    for _ in range(3):
        spool.append("t", 1, bytes(1000))
    assert sum(path.stat().st_size for path in tmp_path.glob("*.spool")) <= most
    assert (len(pending(spool)), spool.dropped_rows) == (2, 1)
    spool.close()


def test_a_damaged_state_file_keeps_the_records(tmp_path: Path) -> None:
    _three_records(tmp_path)
    (tmp_path / "state").write_bytes(b"nonsense")
    spool = open_spool(tmp_path, 1 << 20)
    assert [frame.payload for frame in pending(spool)] == [b"first", b"second", b"third"]
    spool.close()


def test_a_batch_larger_than_the_spool_is_shed_and_counted(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, 1000)
    assert spool.append("t", 7, bytes(2000)) is None
    assert spool.dropped_rows == 7
    spool.close()


def test_two_agents_cannot_share_a_spool(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, LIMIT)
    with pytest.raises(ConfigError, match="another agent uses it"):
        open_spool(tmp_path, LIMIT)
    spool.close()


def test_a_place_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingError, match="spool"):
        open_spool(tmp_path / "file", LIMIT)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_cannot_be_read_for_want_of_descriptors_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    spool = open_spool(tmp_path, LIMIT)
    for each in (b"one", b"two"):
        spool.append("t", 10, each)
    spool.close()
    spool = open_spool(tmp_path, LIMIT)
    stream, last = spool.oldest_stream()

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert spool.read_after(0, stream) == (0, None)
        assert spool.oldest_stream() == (stream, last)
    assert spool.dropped_rows == 0
    assert [frame.payload for frame in pending(spool)] == [b"one", b"two"]
    spool.close()


def test_a_full_disk_sheds_counts_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool = open_spool(tmp_path, 1 << 20)
    spool.append("t", 1, b"before")
    write = os.write

    def full(fd: int, data: bytes) -> int:
        # As a file system does: the part that fits is written, then nothing more is.
        if len(data) <= 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, bytes(data)[:8])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert [spool.append("t", 10, b"during") for _ in range(3)] == [None] * 3
    assert spool.dropped_rows == 30
    assert spool.append("t", 1, b"after") == 2
    assert [frame.payload for frame in pending(spool)] == [b"before", b"after"]
    spool.close()
    assert len([r for r in caplog.records if "cannot write" in r.message]) == 1
    spool = open_spool(tmp_path, 1 << 20)
    assert [frame.payload for frame in pending(spool)] == [b"before", b"after"]
    assert spool.dropped_rows == 30
    spool.close()
