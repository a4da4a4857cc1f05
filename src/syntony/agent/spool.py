"""Measurements on disk until the controller has stored them.

Append-only segment files survive the death of the process at any instant (`kill -9`): a record is
in the page cache when `append` returns. They are not synced to the medium record by record, so a
power failure can lose the last seconds. The directory is bounded; what does not fit is shed oldest
first and counted, and a full disk costs rows, never the measuring process.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

from syntony.errors import MissingError
from syntony.wire.spoolfile import (
    SEGMENT_MAGIC,
    SLOT_BYTES,
    Frame,
    SpoolState,
    index_segment,
    pack_frame,
    pack_state,
    read_frame,
    read_state,
)

_log = logging.getLogger(__name__)
_SEGMENTS = 16
"""Segments a full spool has: the share shed at once is one sixteenth."""
_SUFFIX = ".spool"
MAX_SEQ = 1 << 62


class _Segment:
    """One file of consecutive records, indexed by where each begins."""

    def __init__(self, path: Path, first_seq: int) -> None:
        self.path = path
        self.first_seq = first_seq
        self.starts = array("Q")
        self.rows = array("Q")
        self.size = 0

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.starts) - 1

    def note(self, rows: int, start: int, end: int) -> None:
        self.starts.append(start)
        self.rows.append(rows)
        self.size = end

    def rows_after(self, seq: int) -> int:
        return sum(self.rows[max(0, seq + 1 - self.first_seq) :])

    def load(self) -> None:
        """Index the file; damaged frames keep their numbers and are counted when they are due."""
        data = self.path.read_bytes()
        self.size = len(SEGMENT_MAGIC)
        lost = 0
        for entry in index_segment(data, self.first_seq):
            self.note(entry.rows, entry.start, entry.end)
            lost += not entry.intact
        if lost or len(data) > self.size:
            cut = len(data) - self.size
            _log.warning("spool damaged file=%s frames=%d bytes=%d", self.path, lost, cut)


class Spool:
    """A bounded queue of batches in a directory. Thread-safe."""

    def __init__(self, directory: str | Path, max_bytes: int) -> None:
        """Open, creating or recovering what is there.

        Raises:
            MissingError: the directory cannot be used, or another process uses it.
        """
        self._directory = Path(directory)
        self._max_bytes = max_bytes
        self._segment_bytes = max(1, max_bytes // _SEGMENTS)
        self._lock = threading.RLock()
        self._segments: list[_Segment] = []
        self._writer = -1
        self._reader: tuple[Path, int] | None = None
        self._failing = False
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._state_fd = os.open(self._directory / "state", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise MissingError(f"spool {directory}: {error.strerror}") from error
        try:
            self._claim()
            self._recover()
        except OSError as error:
            os.close(self._state_fd)
            raise MissingError(f"spool {directory}: {error.strerror}") from error

    def _claim(self) -> None:
        try:
            fcntl.flock(self._state_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OSError(error.errno, "another agent uses it; stop that one first") from error

    def _recover(self) -> None:
        found = read_state(os.pread(self._state_fd, 2 * SLOT_BYTES, 0))
        self._state = found or SpoolState(0, 0, 0, secrets.token_bytes(16))
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            segment = _Segment(path, int(path.name.removesuffix(_SUFFIX)))
            segment.load()
            if segment.starts:
                self._segments.append(segment)
            else:
                path.unlink()
        last = self._segments[-1].last_seq if self._segments else 0
        self._next_seq = self._first_new = max(last + 1, self._state.acknowledged + 1)
        # Both slots, so that later writes find their disk blocks already there.
        self._write_state(self._state)
        self._write_state(self._state)

    @property
    def stream(self) -> str:
        """Identity of this spool; sequence numbers count within it."""
        return self._state.stream.hex()

    @property
    def dropped_rows(self) -> int:
        """Rows ever shed: over the bound, or refused by a full disk."""
        return self._state.dropped_rows

    @property
    def kept_bytes(self) -> int:
        """Size of the segments on disk."""
        with self._lock:
            return self._bytes()

    @property
    def max_bytes(self) -> int:
        """What the segments may take."""
        return self._max_bytes

    @property
    def last_seq(self) -> int:
        """The newest number given out."""
        return self._next_seq - 1

    @property
    def acknowledged(self) -> int:
        """Everything up to this number is in the store."""
        return self._state.acknowledged

    def append(self, table: str, rows: int, payload: bytes) -> int | None:
        """Keep one batch.

        Returns:
            Its number, or None when it was shed at once (counted in `dropped_rows`).
        """
        with self._lock:
            frame = Frame(self._next_seq, table, rows, payload)
            data = pack_frame(frame)
            if len(SEGMENT_MAGIC) + len(data) > self._max_bytes:
                self._drop(rows)
                return None
            self._make_room(len(data))
            try:
                segment = self._writable()
                self._write(segment, data)
            except OSError as error:
                self._complain(error)
                self._drop(rows)
                return None
            segment.note(rows, segment.size, segment.size + len(data))
            self._next_seq += 1
            self._recovered()
            return frame.seq

    def pending(self, after_seq: int = 0) -> Iterator[Frame]:
        """Unacknowledged batches after `after_seq`, oldest first; ends at the newest."""
        while (frame := self._after(after_seq)) is not None:
            yield frame
            after_seq = frame.seq

    def acknowledge(self, seq: int) -> None:
        """Everything up to `seq` is in the store: release it.

        A number that was never given out says that this directory went back in time, and that the
        numbers up to it belong to other batches: what is new since the start is numbered anew.
        """
        with self._lock:
            if seq > MAX_SEQ:
                _log.error("acknowledgement ignored seq=%d reason=no batch has such a number", seq)
            elif seq > self.last_seq:
                self._renumber(seq)
            elif seq > self._state.acknowledged:
                self._release(seq)

    def close(self) -> None:
        """Let go of the directory; what is pending stays for the next process."""
        with self._lock:
            self._close_writer()
            self._close_reader()
            if self._state_fd >= 0:
                os.close(self._state_fd)
                self._state_fd = -1

    def _release(self, seq: int) -> None:
        self._write_state(self._state._replace(acknowledged=seq))
        while self._segments and self._segments[0].last_seq <= seq:
            self._remove_oldest()

    def _renumber(self, seq: int) -> None:
        fresh = [frame for frame in self.pending() if frame.seq >= self._first_new]
        _log.warning("spool went back in time acknowledged=%d newest=%d", seq, self.last_seq)
        self._release(self.last_seq)
        self._close_writer()
        self._next_seq = self._first_new = seq + 1
        self._write_state(self._state._replace(acknowledged=seq))
        for frame in fresh:
            self.append(frame.table, frame.rows, frame.payload)

    # --- writing ---

    def _make_room(self, wanted: int) -> None:
        while self._segments and self._bytes() + len(SEGMENT_MAGIC) + wanted > self._max_bytes:
            self._drop(self._segments[0].rows_after(self._state.acknowledged))
            self._remove_oldest()

    def _bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def _writable(self) -> _Segment:
        if self._writer >= 0 and self._segments[-1].size < self._segment_bytes:
            return self._segments[-1]
        self._close_writer()
        path = self._directory / f"{self._next_seq:020d}{_SUFFIX}"
        writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _write_all(writer, SEGMENT_MAGIC)
        except OSError:
            os.close(writer)
            path.unlink()
            raise
        segment = _Segment(path, self._next_seq)
        segment.size = len(SEGMENT_MAGIC)
        self._segments.append(segment)
        self._writer = writer
        return segment

    def _write(self, segment: _Segment, data: bytes) -> None:
        try:
            _write_all(self._writer, data)
        except OSError:
            try:
                os.ftruncate(self._writer, segment.size)
            finally:
                # A torn tail must not be followed by good frames: go on in a new file.
                self._close_writer()
                if not segment.starts:
                    self._segments.pop()
                    segment.path.unlink(missing_ok=True)
            raise

    def _remove_oldest(self) -> None:
        segment = self._segments.pop(0)
        if not self._segments:
            self._close_writer()
        if self._reader is not None and self._reader[0] == segment.path:
            self._close_reader()
        segment.path.unlink(missing_ok=True)

    def _drop(self, rows: int) -> None:
        self._write_state(self._state._replace(dropped_rows=self._state.dropped_rows + rows))

    def _write_state(self, state: SpoolState) -> None:
        self._state = state._replace(generation=state.generation + 1)
        slot = self._state.generation % 2
        try:
            os.pwrite(self._state_fd, pack_state(self._state), slot * SLOT_BYTES)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            _log.error(
                "spool cannot write, shedding rows until it can dir=%s reason=%s",
                self._directory,
                error.strerror,
            )

    def _recovered(self) -> None:
        if self._failing:
            self._failing = False
            _log.warning(
                "spool writes again dir=%s dropped_rows=%d", self._directory, self.dropped_rows
            )

    # --- reading ---

    def _after(self, seq: int) -> Frame | None:
        with self._lock:
            seq = max(seq, self._state.acknowledged)
            for segment in self._segments:
                for place in range(max(0, seq + 1 - segment.first_seq), len(segment.starts)):
                    frame = self._read(segment, place)
                    if frame is not None:
                        return frame
                    self._drop(segment.rows[place])
                    segment.rows[place] = 0  # counted once
            return None

    def _read(self, segment: _Segment, place: int) -> Frame | None:
        """The record, or None if the medium no longer gives it back as it was written."""
        start = segment.starts[place]
        last = place + 1 == len(segment.starts)
        end = segment.size if last else segment.starts[place + 1]
        try:
            found = read_frame(os.pread(self._reader_of(segment), end - start, start))
        except OSError as error:
            self._complain(error)
            return None
        return found[0] if found is not None else None

    def _reader_of(self, segment: _Segment) -> int:
        if self._reader is None or self._reader[0] != segment.path:
            self._close_reader()
            self._reader = (segment.path, os.open(segment.path, os.O_RDONLY))
        return self._reader[1]

    def _close_reader(self) -> None:
        if self._reader is not None:
            os.close(self._reader[1])
            self._reader = None

    def _close_writer(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
