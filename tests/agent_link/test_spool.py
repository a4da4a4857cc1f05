"""The spool against a model of it, at work, and against a full disk."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.agent_link.spool_contents import pending
from tests.link import open_spool

from syntony.agent.delivery import Delivery
from syntony.errors import ConfigError, MissingError
from syntony.wire.spoolfile import SEGMENT_BYTES, Frame, pack_frame, read_state

LIMIT = 4096


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


def test_numbers_go_on_after_everything_was_acknowledged(tmp_path: Path) -> None:
    spool = open_spool(tmp_path, LIMIT)
    for _ in range(5):
        spool.append("t", 1, b"x")
    spool.acknowledge(5)
    spool.close()
    spool = open_spool(tmp_path, LIMIT)
    assert spool.append("t", 1, b"x") == 6
    spool.close()


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


def test_room_is_made_for_the_head_of_a_new_segment_too(tmp_path: Path) -> None:
    frame = len(pack_frame(Frame(1, "t", 1, bytes(1000))))
    most = 3 * frame + 2 * SEGMENT_BYTES + SEGMENT_BYTES // 2
    spool = open_spool(tmp_path, most)  # each frame begins a segment
    for _ in range(3):
        spool.append("t", 1, bytes(1000))
    assert sum(path.stat().st_size for path in tmp_path.glob("*.spool")) <= most
    assert (len(pending(spool)), spool.dropped_rows) == (2, 1)
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
