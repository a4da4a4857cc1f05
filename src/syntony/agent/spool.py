"""Stores measurements on disk until the controller has stored them.

Append-only segment files survive the death of the process at any instant (`kill -9`): a record is
in the page cache when `append` returns. They are not synced record by record, so a power failure
can lose the last seconds. The directory is bounded. Beyond that the oldest rows are dropped and
counted, and a full disk costs rows, never the measuring process. The state file contains the number
of waiting rows: rows that the medium has lost are counted exactly. A segment is removed when all of
it is acknowledged, the one that is being written only when it is large enough: while the controller
keeps up, batches are appended to one open file.

Each opening begins a new stream. A batch is identified by its stream and number, so a directory
that goes back in time (a restored snapshot, a power failure) never reuses a known number for other
content. Numbers continue over all streams of a directory; earlier streams are delivered first.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import threading
from array import array
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from syntony.errors import ConfigError, MissingError
from syntony.wire.spoolfile import (
    DRAWN_BYTES,
    SEGMENT_BYTES,
    SLOT_BYTES,
    Frame,
    SpoolState,
    index_segment,
    name_stream,
    pack_frame,
    pack_header,
    pack_state,
    read_frame,
    read_state,
    read_stream,
)

_log = logging.getLogger(__name__)
_SEGMENTS = 16
"""Segments of a full spool: one sixteenth is dropped at once."""
_KEPT_BYTES = 1 << 18
"""Up to this size a segment of which everything is acknowledged is kept for the next batch. Larger,
more of it would be written to the medium: the kernel writes what is 30 s old."""
_SUFFIX = ".spool"
_OURS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors of reading that are not faults of the medium."""
_NUMBERED = "00" + 18 * "[0-9]" + _SUFFIX
"""Names of segments; other files are not ours."""


class _Segment:
    """One file of consecutive records of one stream, indexed by where each begins."""

    def __init__(self, path: Path, stream: str) -> None:
        self.path = path
        self.stream = stream
        self.first_seq = int(path.name.removesuffix(_SUFFIX))
        self.starts = array("Q")
        self.rows = array("Q")
        self.last_intact = 0
        """The newest undamaged number, as far as known."""
        self.size = 0

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.starts) - 1

    def note(self, rows: int, start: int, end: int, *, intact: bool = True) -> None:
        self.starts.append(start)
        self.rows.append(rows)
        self.size = end
        if intact:
            self.last_intact = self.last_seq

    def rows_after(self, seq: int) -> array[int]:
        return self.rows_within(seq, self.last_seq)

    def rows_within(self, after: int, last: int) -> array[int]:
        """Rows with numbers beyond `after`, up to `last`."""
        return self.rows[max(0, after + 1 - self.first_seq) : max(0, last + 1 - self.first_seq)]

    def load(self) -> None:
        """Index the file; damaged frames keep their numbers. A damaged name is mended in the file,
        before more of it is damaged."""
        data = self.path.read_bytes()
        if (stream := read_stream(data)) is not None:
            self.stream = stream
            if len(data) >= SEGMENT_BYTES and data[:SEGMENT_BYTES] != (head := pack_header(stream)):
                with suppress(OSError), self.path.open("r+b") as file:
                    file.write(head)
        self.size = SEGMENT_BYTES
        for entry in index_segment(data, self.first_seq):
            self.note(entry.rows, entry.start, entry.end, intact=entry.intact)


class Spool:
    """A bounded queue of batches in a directory. Thread-safe.

    While it is not open, and while the disk refuses writes, batches are dropped and counted.
    """

    def __init__(self, directory: str | Path, max_bytes: int) -> None:
        self._directory = Path(directory)
        self._max_bytes = max_bytes
        self._segment_bytes = max(1, max_bytes // _SEGMENTS)
        self._kept_bytes = min(_KEPT_BYTES, self._segment_bytes)
        self._lock = threading.RLock()
        self._segments: list[_Segment] = []
        self._writer = -1
        self._reader: tuple[_Segment, int] | None = None
        self._failing = False
        self._state_fd = -1
        self._state = SpoolState(0, 0, 0, secrets.token_bytes(16), 0)
        self._next_seq = 1
        self.stream = _new_stream()
        """Stream of new batches."""
        self.fault = "not opened yet"
        """Why batches are dropped now; empty if they are stored."""

    def open(self) -> None:
        """Create or recover the directory; does nothing if it is open already.

        Raises:
            MissingError: the directory cannot be used.
            ConfigError: another process uses it.
        """
        with self._lock:
            if self._state_fd >= 0:
                return
            shed = self._state.dropped_rows
            try:
                self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._state_fd = os.open(self._directory / "state", os.O_RDWR | os.O_CREAT, 0o600)
                self._claim()
                self._recover(shed)
            except OSError as error:
                self.close()
                self.fault = f"{self._directory}: {error.strerror}"
                raise MissingError(f"spool {self.fault}") from error
            except ConfigError:
                self.close()
                raise
            self.fault = ""

    def _claim(self) -> None:
        try:
            fcntl.flock(self._state_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"spool {self._directory}: another agent uses it; stop that one first"
            ) from error

    def _recover(self, shed: int) -> None:
        found = read_state(os.pread(self._state_fd, 2 * SLOT_BYTES, 0)) or self._state._replace(
            dropped_rows=0, waiting_rows=None
        )
        self._state = found._replace(dropped_rows=found.dropped_rows + shed)
        self._segments = []
        for path in sorted(self._directory.glob(_NUMBERED)):
            segment = _Segment(path, found.stream.hex())
            segment.load()
            if segment.starts and segment.last_seq > self.acknowledged:
                self._segments.append(segment)
            else:
                path.unlink()
        last = self._segments[-1].last_seq if self._segments else 0
        self._next_seq = max(last, self._state.acknowledged) + 1
        self.stream = _new_stream()
        self._count_lost()
        # Write both slots, so that later writes find their disk blocks allocated.
        self._write_state()
        self._write_state()

    def _count_lost(self) -> None:
        """Waiting rows that no file has any more. If only numbers are known to be missing, at least
        one row each."""
        known = [rows for each in self._segments for rows in each.rows_after(self.acknowledged)]
        kept, should = sum(known), self._state.waiting_rows
        if should is None and self._segments:
            first = max(self._segments[0].first_seq, self.acknowledged + 1)
            should = kept + max(0, self.last_seq + 1 - first) - sum(rows > 0 for rows in known)
        lost = max(0, (should or 0) - kept)
        self._state = self._state._replace(waiting_rows=kept + lost)
        if lost:
            _log.warning("spool damaged dir=%s lost_rows=%d", self._directory, lost)
            self._drop(lost)

    @property
    def dropped_rows(self) -> int:
        """Total of dropped rows: over the limit, or refused by a full disk."""
        return self._state.dropped_rows

    @property
    def kept_bytes(self) -> int:
        """Size of the segments on disk."""
        with self._lock:
            return self._bytes()

    @property
    def max_bytes(self) -> int:
        """Limit of the size of the segments."""
        return self._max_bytes

    @property
    def last_seq(self) -> int:
        """The newest number assigned."""
        return self._next_seq - 1

    @property
    def acknowledged(self) -> int:
        """Everything up to this number is in the store."""
        return self._state.acknowledged

    def append(self, table: str, rows: int, payload: bytes) -> int | None:
        """Store one batch.

        Returns:
            Its number, or None if it was dropped at once (counted in `dropped_rows`).
        """
        with self._lock:
            frame = Frame(self._next_seq, table, rows, payload)
            data = pack_frame(frame)
            # Count them before they are written: if the process is killed in between, they are
            # lost.
            self._write_state(waiting_rows=self._waiting(rows))
            if self._state_fd < 0 or SEGMENT_BYTES + len(data) > self._max_bytes:
                self._drop(rows)
                return None
            self._make_room(len(data))
            try:
                segment = self._store(data)
            except OSError as error:
                self._complain(error)
                self._drop(rows)
                return None
            segment.note(rows, segment.size, segment.size + len(data))
            self._next_seq += 1
            self._recovered()
            return frame.seq

    def oldest_stream(self) -> tuple[str, int | None]:
        """The stream to deliver next, and its last number; the newest has no end."""
        with self._lock:
            while self._segments and (stream := self._segments[0].stream) != self.stream:
                # Not those after another one's: they are delivered in turn.
                parts = list(takewhile(lambda each: each.stream == stream, self._segments))
                last = parts[-1].last_seq
                if any(each.last_intact > self._state.acknowledged for each in parts):
                    return stream, last
                if self.read_after(0, stream)[0] < last:  # counts damaged records
                    return stream, last
                self._release(last)
            return self.stream, None

    def read_after(self, seq: int, stream: str) -> tuple[int, Frame | None]:
        """The first unacknowledged batch of a stream after `seq`, with its number, and how far the
        search went. None at the end of the stream, or if this process lacks descriptors or
        memory."""
        with self._lock:
            seq = max(seq, self._state.acknowledged)
            for segment in self._segments:
                if segment.stream != stream:
                    continue
                for place in range(max(0, seq + 1 - segment.first_seq), len(segment.starts)):
                    try:
                        frame = self._read(segment, place)
                    except OSError as error:
                        self._complain(error)
                        return segment.first_seq + place - 1, None
                    if frame is not None:
                        return frame.seq, frame
                    if rows := segment.rows[place]:
                        segment.rows[place] = 0  # counted only once
                        self._drop(rows)
                seq = max(seq, segment.last_seq)
            return seq, None

    def acknowledge(self, seq: int) -> None:
        """Everything up to `seq` is in the store: delete it. Numbers never assigned have no
        effect."""
        with self._lock:
            if self._state.acknowledged < seq <= self.last_seq:
                self._release(seq)

    def restart_stream(self) -> None:
        """Number new batches in a new stream: the store has batches of this stream that this
        process does not know, so its own state is older (a virtual machine resumed from a
        snapshot).

        Waiting batches may have numbers of other batches and be lost: all are counted as dropped,
        and delivered nevertheless.
        """
        with self._lock:
            waiting = [segment for segment in self._segments if segment.stream == self.stream]
            self._drop(sum(sum(each.rows_after(self._state.acknowledged)) for each in waiting))
            self._close_writer()
            self.stream = _new_stream()

    def close(self) -> None:
        """Close the directory; pending batches stay for the next process."""
        with self._lock:
            self._close_writer()
            self._close_reader()
            if self._state_fd >= 0:
                os.close(self._state_fd)
                self._state_fd = -1

    def _release(self, seq: int) -> None:
        released = sum(sum(each.rows_within(self.acknowledged, seq)) for each in self._segments)
        self._write_state(acknowledged=seq, waiting_rows=self._waiting(-released))
        self._remove_released()

    def _remove_released(self) -> None:
        """Remove segments of which everything is acknowledged; the one that is being written stays
        while it is small."""
        while self._segments and self._segments[0].last_seq <= self.acknowledged:
            writing = self._writer >= 0 and len(self._segments) == 1
            if writing and self._segments[0].size < self._kept_bytes:
                return
            self._remove_oldest()

    # --- writing ---

    def _make_room(self, wanted: int) -> None:
        while self._segments and self._bytes() + SEGMENT_BYTES + wanted > self._max_bytes:
            self._drop(sum(self._segments[0].rows_after(self._state.acknowledged)))
            self._remove_oldest()

    def _bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def _store(self, data: bytes) -> _Segment:
        try:
            return self._write(self._writable(), data)
        except OSError:
            # There may be room where the acknowledged batches of this segment are.
            if not self._segments or self._segments[-1].last_seq > self.acknowledged:
                raise
            self._remove_released()
            return self._write(self._writable(), data)

    def _writable(self) -> _Segment:
        if self._writer >= 0 and self._segments[-1].size < self._segment_bytes:
            return self._segments[-1]
        self._close_writer()
        path = self._directory / f"{self._next_seq:020d}{_SUFFIX}"
        writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _write_all(writer, pack_header(self.stream))
        except OSError:
            os.close(writer)
            path.unlink()
            raise
        segment = _Segment(path, self.stream)
        segment.size = SEGMENT_BYTES
        self._segments.append(segment)
        self._writer = writer
        return segment

    def _write(self, segment: _Segment, data: bytes) -> _Segment:
        try:
            _write_all(self._writer, data)
        except OSError:
            try:
                os.ftruncate(self._writer, segment.size)
            finally:
                # A torn tail must not be followed by valid frames: continue in a new file.
                self._close_writer()
                if not segment.starts:
                    self._segments.pop()
                    segment.path.unlink(missing_ok=True)
            raise
        return segment

    def _remove_oldest(self) -> None:
        segment = self._segments.pop(0)
        if not self._segments:
            self._close_writer()
        if self._reader is not None and self._reader[0] is segment:
            self._close_reader()
        try:
            segment.path.unlink(missing_ok=True)
        except OSError as error:  # read-only: left until the directory is opened again
            self._complain(error)

    def _drop(self, rows: int) -> None:
        dropped = self._state.dropped_rows + rows
        self._write_state(dropped_rows=dropped, waiting_rows=self._waiting(-rows))

    def _waiting(self, more: int) -> int:
        """Rows that wait when there are so many more, or fewer."""
        return max(0, (self._state.waiting_rows or 0) + more)

    def _write_state(self, **changed: Any) -> None:
        self._state = self._state._replace(generation=self._state.generation + 1, **changed)
        if self._state_fd < 0:
            return
        slot = self._state.generation % 2
        try:
            os.pwrite(self._state_fd, pack_state(self._state), slot * SLOT_BYTES)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        self.fault = f"{self._directory}: {error.strerror}"
        if not self._failing:
            self._failing = True
            _log.error(
                "spool cannot write, shedding rows until it can dir=%s reason=%s",
                self._directory,
                error.strerror,
            )

    def _recovered(self) -> None:
        self.fault = ""
        if self._failing:
            self._failing = False
            _log.warning(
                "spool writes again dir=%s dropped_rows=%d", self._directory, self.dropped_rows
            )

    # --- reading ---

    def _read(self, segment: _Segment, place: int) -> Frame | None:
        """The record, or None if the medium no longer returns it as it was written. Raises
        `OSError`: unknown, because this process lacks resources."""
        start = segment.starts[place]
        last = place + 1 == len(segment.starts)
        end = segment.size if last else segment.starts[place + 1]
        try:
            found = read_frame(os.pread(self._reader_of(segment), end - start, start))
        except OSError as error:
            if error.errno in _OURS:
                raise
            self._complain(error)
            return None
        whole = found is not None and found[0].seq == segment.first_seq + place
        return found[0] if found is not None and whole else None

    def _reader_of(self, segment: _Segment) -> int:
        if self._reader is None or self._reader[0] is not segment:
            self._close_reader()
            self._reader = (segment, os.open(segment.path, os.O_RDONLY))
        return self._reader[1]

    def _close_reader(self) -> None:
        if self._reader is not None:
            os.close(self._reader[1])
            self._reader = None

    def _close_writer(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1


def _new_stream() -> str:
    return name_stream(secrets.token_bytes(DRAWN_BYTES))


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
