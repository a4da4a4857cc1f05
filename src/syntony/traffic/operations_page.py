"""Read and validate the collectives and steps that a job's process reports
(`syntony.job_hook`). Pure.

The process owns the page, a ring of records, and may write anything to it at any time. A record is
used if it has the number that belongs in its place, and was not overwritten while it was read.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from syntony.model import S

MAGIC, VERSION = b"SYNOPS01", 1
SLOTS, COMMS = 8192, 64
HEADER = np.dtype(
    {
        "names": ["magic", "version", "slots", "rank", "ranks", "newest", "lost", "frame"],
        "formats": ["S8", "<u4", "<u4", "<i4", "<i4", "<u8", "<u8", "S88"],
        "itemsize": 128,
    }
)
COMM = np.dtype([("ranks", "<u4"), ("used", "<u4"), ("name", "S56")])
RECORD = np.dtype(
    [
        ("kind", "<u2"), ("operation", "<u2"), ("comm", "<u4"), ("seq", "<u8"), ("bytes", "<u8"),
        ("at_ns", "<i8"), ("end_ns", "<i8"), ("data_ns", "<i8"), ("reserved", "<u8"),
        ("number", "<u8"),
    ]
)  # fmt: skip
RECORDS_AT = HEADER.itemsize + COMMS * COMM.itemsize
PAGE_BYTES = RECORDS_AT + SLOTS * RECORD.itemsize
BEGIN, END, STEP, WAIT = 1, 2, 3, 4
NAMES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter",
    "all_to_all", "barrier", "send", "isend", "recv", "irecv", "rendezvous", "init_process_group",
    "new_group",
)  # fmt: skip
"""Operations by their number."""
WAITED = {"isend": "send", "irecv": "recv"}
"""What an operation is called once its rank waits for it. A receive counts from that time on. A
send counts from its call: it had its data then, and its order shows whether one was left out."""
MAX_OPEN = 4096
"""Maximum unfinished operations that are remembered."""
OPEN_NS = 2 * S
"""One that lasts longer is reported before it ends, once."""
OLDEST_NS = 600 * S
MAX_RANKS = 1 << 20
_NAME = re.compile(r"[ -~]{1,56}")
_UNPRINTABLE = re.compile(r"[^ -~]")
Read = Callable[[int, int], bytes]
"""(bytes, offset) of the page to what is there."""


class JobOperation(NamedTuple):
    """One collective operation of one rank; instants are CLOCK_MONOTONIC."""

    comm: str
    ranks: int
    """Of the communicator."""
    seq: int
    name: str
    bytes: int
    begin_ns: int
    done_ns: int
    """0: not yet."""


class OperationStep(NamedTuple):
    number: int
    begin_ns: int
    end_ns: int
    data_ns: int
    """Waited for data."""


class NewOperations(NamedTuple):
    """What was reported since the previous reading."""

    rank: int
    """-1: not known."""
    ranks: int
    operations: tuple[JobOperation, ...] = ()
    steps: tuple[OperationStep, ...] = ()
    dropped: int = 0
    """Records lost since the reading before."""
    frame: str = ""
    """Where its Python is; empty: it has reported something lately."""


class OperationsReader:
    def __init__(self) -> None:
        self._next = 1
        self._lost = 0
        self._open: OrderedDict[tuple[int, int], JobOperation] = OrderedDict()
        self._reported_open: set[tuple[int, int]] = set()
        self.malformed = 0
        """Records that could not be used."""

    def read(self, read: Read, now_ns: int, *, last: bool = False) -> NewOperations:
        """What was reported since the last call.

        Args:
            read: reads the page.
            now_ns: CLOCK_MONOTONIC.
            last: the process has ended: what has not ended is reported, however short it lasted.
        """
        head = read(RECORDS_AT, 0)
        header = np.frombuffer(head, HEADER, 1)[0] if len(head) == RECORDS_AT else None
        if header is None or header["magic"] != MAGIC or header["version"] != VERSION:
            self.malformed += 1
            return NewOperations(-1, 0)
        rank, ranks = int(header["rank"]), int(header["ranks"])
        if not -1 <= rank < ranks <= MAX_RANKS:
            rank, ranks = -1, 0
        dropped = self._count_lost(int(header["lost"]))
        rows, skipped = self._rows(read, int(header["newest"]))
        comms = np.frombuffer(head, COMM, COMMS, HEADER.itemsize)
        operations, steps = self._parse(rows, comms, now_ns, 0 if last else OPEN_NS)
        frame = _UNPRINTABLE.sub("?", bytes(header["frame"]).decode("ascii", "replace"))
        return NewOperations(rank, ranks, tuple(operations), tuple(steps), dropped + skipped, frame)

    def _count_lost(self, lost: int) -> int:
        fresh, self._lost = lost - self._lost, lost
        return fresh if 0 <= fresh < 1 << 32 else 0

    def _rows(self, read: Read, newest: int) -> tuple[Any, int]:
        """Records not read yet, and how many of them are gone."""
        if not self._next <= newest + 1 < 1 << 62:
            self.malformed += newest + 1 != self._next
            self._next = 1 if newest + 1 < self._next else self._next
            return np.empty(0, RECORD), 0
        first = max(self._next, newest - SLOTS + 1)
        wanted = np.arange(first, newest + 1, dtype=np.uint64)
        data = b"".join(
            read((last - begin) * RECORD.itemsize, RECORDS_AT + begin * RECORD.itemsize)
            for begin, last in _stretches(first - 1, newest)
        )
        found = np.frombuffer(data, RECORD)
        if len(found) != len(wanted):
            self.malformed += 1
            return np.empty(0, RECORD), 0
        rows = found[found["number"] == wanted]
        skipped = newest + 1 - self._next - len(rows)
        self._next = newest + 1
        return rows, skipped

    def _parse(
        self, rows: Any, comms: Any, now_ns: int, open_ns: int
    ) -> tuple[list[JobOperation], list[OperationStep]]:
        reported: list[JobOperation] = []
        steps: list[OperationStep] = []
        for row in rows.tolist():
            kind, operation, comm, seq, size, at_ns, end_ns, data_ns, _, _ = row
            in_time = now_ns - OLDEST_NS < at_ns <= now_ns + S and seq < 1 << 62
            if kind == STEP and in_time and at_ns <= end_ns <= now_ns + S:
                steps.append(
                    OperationStep(seq, at_ns, end_ns, min(max(0, data_ns), end_ns - at_ns))
                )
            elif kind == BEGIN and in_time and operation < len(NAMES) and size < 1 << 62:
                named = _named(comms, comm)
                if named is None:
                    self.malformed += 1
                    continue
                if len(self._open) >= MAX_OPEN:
                    self._reported_open.discard(self._open.popitem(last=False)[0])
                self._open[comm, seq] = JobOperation(*named, seq, NAMES[operation], size, at_ns, 0)
            elif kind == END and in_time:
                begun = self._open.pop((comm, seq), None)
                self._reported_open.discard((comm, seq))
                if begun is not None and at_ns >= begun.begin_ns:
                    reported.append(begun._replace(done_ns=at_ns))
            elif kind == WAIT and in_time:
                begun = self._open.get((comm, seq))
                if begun is not None and begun.name in WAITED:
                    begin_ns = begun.begin_ns if begun.name == "isend" else at_ns
                    self._open[comm, seq] = begun._replace(
                        name=WAITED[begun.name], begin_ns=max(begin_ns, begun.begin_ns)
                    )
                    self._reported_open.discard((comm, seq))
            else:
                self.malformed += 1
        return reported + self._lasting(now_ns - open_ns), steps

    def _lasting(self, since_ns: int) -> list[JobOperation]:
        """Operations without an end that began by then, each once."""
        found = []
        for key, each in self._open.items():
            if each.begin_ns <= since_ns and key not in self._reported_open:
                self._reported_open.add(key)
                found.append(each)
        return found


def _stretches(first: int, last: int) -> list[tuple[int, int]]:
    """Places in the ring of what is numbered [first, last), at most `SLOTS` of them."""
    if first >= last:
        return []
    begin, end = first % SLOTS, (last - 1) % SLOTS + 1
    return [(begin, end)] if begin < end else [(begin, SLOTS), (0, end)]


def _named(comms: Any, comm: int) -> tuple[str, int] | None:
    """Name and ranks of a communicator; None: it is none, or its place is another one's by now."""
    row = comms[comm % COMMS]
    if int(row["used"]) >> 8 != comm // COMMS:
        return None
    name, ranks = bytes(row["name"]).decode("ascii", "replace"), int(row["ranks"])
    if not 0 < ranks <= MAX_RANKS or _NAME.fullmatch(name) is None:
        return None
    return name, ranks
