"""Reads the NCCL operations that a job's process shares with its agent, without trusting them
(native/nccl/profiler/syn_nccl_page.h). Pure.

The process owns the page and may write anything to it at any time. An operation that has ended is
used if two readings of it are identical in every byte: then it was not overwritten meanwhile.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.model import MS, S

OPERATIONS, WAITS = 8192, 6
MAGIC, VERSION = b"SYNNCL01", 1
HEADER = np.dtype(
    {
        "names": ["magic", "version", "size", "begun", "left_out", "abi"],
        "formats": ["S8", "<u4", "<u4", "<u8", "<u8", "<u4"],
        "itemsize": 64,
    }
)
OPERATION = np.dtype(
    [
        ("number", "<u8"), ("gate", "<u8"), ("comm", "<u8"), ("sequence", "<u8"),
        ("nccl_sequence", "<u8"), ("count", "<u8"), ("enqueue_ns", "<i8"), ("started_ns", "<i8"),
        ("done_ns", "<i8"), ("changed_ns", "<i8"), ("wait_ns", "<i8", WAITS),
        ("waiting", "<u2", WAITS), ("sends", "<u2"), ("receives", "<u2"), ("kernels", "<u2"),
        ("kind", "<u2"), ("steps", "<u4"), ("rank", "<i4"), ("ranks", "<i4"), ("peer", "<i4"),
        ("op", "<u1", 16), ("datatype", "<u1", 16), ("algorithm", "<u1", 8),
        ("protocol", "<u1", 8), ("name", "<u1", 28), ("reserved", "<u8", 2),
    ]
)  # fmt: skip
"""`struct syn_nccl_operation`."""
_TEXTS = ("op", "datatype", "algorithm", "protocol", "name")
_AS_TEXT = np.dtype(
    [
        (name, f"S{kind.itemsize}") if name in _TEXTS else (name, kind.base, kind.shape)
        for name, kind in ((name, OPERATION[name]) for name in OPERATION.names or ())
    ]
)
_FIELDS = {name: at for at, name in enumerate(_AS_TEXT.names or ())}
PAGE_BYTES = HEADER.itemsize + OPERATIONS * OPERATION.itemsize
QUIET_NS = 500 * MS
"""An operation has ended if no other part has begun this long after the end of its last part: its
proxies take turns."""
HANGING_NS = 10 * S
"""An operation that has not ended and has made no progress for this long is reported once."""

_COLLECTIVE, _P2P = 1, 2
_LIVE = 0xFFFF
_MOST = 1 << 62
_MOST_RANKS = 1 << 24
_TEXT = re.compile(rb"[\x21-\x7e]*(?: [\x21-\x7e]+)*")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ELEMENT_BYTES = {
    "ncclInt8": 1, "ncclUint8": 1, "ncclFloat8e4m3": 1, "ncclFloat8e5m2": 1, "ncclFloat16": 2,
    "ncclBfloat16": 2, "ncclInt32": 4, "ncclUint32": 4, "ncclFloat32": 4, "ncclInt64": 8,
    "ncclUint64": 8, "ncclFloat64": 8,
}  # fmt: skip
_FROM_ALL = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
"""NCCL's count is for one rank's share."""


class NcclOperation(NamedTuple):
    """One operation of one rank; instants are CLOCK_MONOTONIC or fleet time, depending on its
    reader.

    Waits are those of the oldest transfer of a proxy operation, averaged over the operation's
    channels; None: it has no proxy operation of that direction.
    """

    comm: str
    """NCCL's hash of the communicator, the same on all ranks: 16 hexadecimal digits."""
    name: str
    """The program's name for the communicator; "": none."""
    op: str
    """all_reduce, all_gather, …; send or recv."""
    collective: bool
    seq: int
    """Number of this kind in its communicator, from 0. The same on all ranks for collectives."""
    rank: int
    nranks: int | None
    peer: int | None
    """For a send or receive."""
    bytes: int | None
    """Size of the operation: the larger of a rank's two buffers."""
    algorithm: str
    protocol: str
    enqueue_ns: int
    started_ns: int | None
    """When its first part began."""
    done_ns: int | None
    """None: it has not ended, or, if it has no `parts`, unknown."""
    parts: int
    """Number of its proxy operations and kernels that NCCL reported."""
    steps: int
    """Number of completed transfers."""
    gpu_wait_ns: int | None
    credit_wait_ns: int | None
    net_wait_ns: int | None
    recv_wait_ns: int | None
    flush_wait_ns: int | None
    consume_wait_ns: int | None
    waiting: tuple[int, ...]
    """Number of proxy operations that wait now: for the GPU, credit, network, data, flush, GPU."""
    changed_ns: int
    """When it last made progress."""
    dropped: int
    """Operations lost since the previous row."""


class PageProgress(NamedTuple):
    """How far a page was read, for the next reader."""

    begin: int
    """Operations before this one were reported or lost."""
    read_ns: int
    """When it was last read, CLOCK_MONOTONIC: operations that had ended then were reported."""


class NcclPageReader:
    """Reads one page repeatedly; reports each operation once, or twice if it hangs.

    Args:
        before: progress of the previous reader.
    """

    def __init__(self, before: PageProgress | None = None) -> None:
        self._next = 0 if before is None else before.begin
        """Operations before this one were reported or lost."""
        self._reported_until_ns = 0 if before is None else before.read_ns - QUIET_NS
        """Operations that had ended by then were reported by another reader."""
        self._read_ns = 0
        self._reported: set[int] = set()
        """Later operations whose end was reported."""
        self._hanging: set[int] = set()
        """Later operations that were reported as unfinished."""
        self._dropped = 0
        """Lost operations that are not in a row yet."""
        self.lost = 0
        """Total of operations that were overwritten before they were reported."""
        self.malformed = 0
        """Pages and operations that were invalid."""
        self.left_out = 0
        """Parts and steps for which the process had no room, as it reports."""

    def read(
        self, before: bytes, after: bytes, now_ns: int, *, last: bool = False
    ) -> list[NcclOperation]:
        """New rows: operations that ended, and those that hang.

        Args:
            before: `PAGE_BYTES` bytes.
            after: the same, read after `before`.
            now_ns: CLOCK_MONOTONIC, after both were read.
            last: the process has ended: nothing changes any more, and operations that have not
                ended never will. All remaining ones are reported.
        """
        header = np.frombuffer(after, HEADER, 1)[0]
        if header["magic"] != MAGIC or header["version"] != VERSION:
            self.malformed += 1
            return []
        self.left_out = int(header["left_out"])
        end = int(header["begun"])
        if not self._next <= end < _MOST:
            self.malformed += 1
            return []
        self._forget(max(self._next, end - OPERATIONS))
        first = np.frombuffer(before, OPERATION, OPERATIONS, HEADER.itemsize)
        second = np.frombuffer(after, OPERATION, OPERATIONS, HEADER.itemsize)
        found = []
        settled_ns = (now_ns, now_ns) if last else (now_ns - QUIET_NS, now_ns - HANGING_NS)
        for place, ended in _candidates(first, second, self._next, end, settled_ns):
            number = int(second[place]["number"])
            if ended and _ended_ns(second[place]) <= self._reported_until_ns:
                self._reported.add(number)
            if number in self._reported or (not ended and number in self._hanging):
                continue
            found += self._report(number, second[place], now_ns, ended=ended)
        while self._next in self._reported:
            self._reported.remove(self._next)
            self._hanging.discard(self._next)
            self._next += 1
        self._read_ns = now_ns
        return found

    @property
    def progress(self) -> PageProgress:
        """How far it has read."""
        return PageProgress(self._next, self._read_ns)

    def _forget(self, begin: int) -> None:
        """Operations before `begin` are no longer in the page."""
        lost = begin - self._next - sum(1 for number in self._reported if number < begin)
        self.lost += lost
        self._dropped += lost
        self._next = begin
        self._reported = {number for number in self._reported if number >= begin}
        self._hanging = {number for number in self._hanging if number >= begin}

    def _report(
        self, number: int, place: np.void, now_ns: int, *, ended: bool
    ) -> list[NcclOperation]:
        (self._reported if ended else self._hanging).add(number)
        row = _row(place, now_ns, ended=ended, dropped=self._dropped)
        if row is None:
            self.malformed += 1
            return []
        self._dropped = 0
        return [row]


def _candidates(
    first: NDArray[np.void],
    second: NDArray[np.void],
    begin: int,
    end: int,
    settled_ns: tuple[int, int],
) -> list[tuple[int, bool]]:
    """Places of operations with numbers in `begin` to `end` (exclusive) that ended, or else hang,
    the oldest first; `settled_ns`: the latest end, and the latest progress of one that hangs."""
    numbers = second["number"]
    fits = (
        (numbers >= begin) & (numbers < end) & (first["number"] == numbers)
        & (numbers % OPERATIONS == np.arange(OPERATIONS))
        & (second["gate"] >> np.uint64(32) == (numbers & np.uint64(0xFFFFFFFF)))
    )  # fmt: skip
    words = OPERATION.itemsize // 8
    same = (first.view("<u8") == second.view("<u8")).reshape(-1, words).all(axis=1)
    over = second["gate"] & np.uint64(_LIVE) == 0
    ended = over & same & (_ended_ns(second) <= settled_ns[0])
    hangs = ~over & (second["changed_ns"] <= settled_ns[1])
    places = np.flatnonzero(fits & (ended | hangs))
    places = places[np.argsort(numbers[places], kind="stable")]
    return list(zip(places.tolist(), ended[places].tolist(), strict=True))


def _ended_ns(operations: Any) -> Any:
    """When operations ended; if the end is unknown, when they began."""
    return np.maximum(operations["done_ns"], operations["enqueue_ns"])


def _text(raw: bytes, name: str) -> str | None:
    """None: it is not terminated, or has bytes that are invalid in a name."""
    whole = len(raw) < OPERATION[name].itemsize and _TEXT.fullmatch(raw)
    return raw.decode("ascii") if whole else None


def _row(place: np.void, now_ns: int, *, ended: bool, dropped: int) -> NcclOperation | None:
    """None: its values are impossible."""
    values = place.view(_AS_TEXT).item()
    fields: dict[str, Any] = {name: values[at] for name, at in _FIELDS.items()}
    texts = [_text(fields[name], name) for name in _TEXTS]
    enqueue_ns, started_ns = fields["enqueue_ns"], fields["started_ns"]
    done_ns, changed_ns = fields["done_ns"], fields["changed_ns"]
    waits = fields["wait_ns"].tolist()
    rank, ranks, count = fields["rank"], fields["ranks"], fields["count"]
    kind, peer, sends, receives = (fields[name] for name in ("kind", "peer", "sends", "receives"))
    parts = sends + receives + fields["kernels"]
    named = [text for text in texts if text is not None]
    if (
        len(named) != len(texts)
        or kind not in {_COLLECTIVE, _P2P}
        or not 0 < enqueue_ns <= changed_ns <= now_ns
        or any(at_ns and not enqueue_ns <= at_ns <= now_ns for at_ns in (started_ns, done_ns))
        or not all(0 <= each < _MOST for each in waits)
        or max(count, fields["sequence"]) >= _MOST
        or not 0 <= rank < _MOST_RANKS
        or not (ranks == 0 or rank < ranks < _MOST_RANKS)
        or (kind == _P2P and not 0 <= peer < _MOST_RANKS)
    ):
        return None
    name, datatype, algorithm, protocol, comm_name = named
    op = _WORDS.sub("_", name).lower()
    size = _bytes(op, count, datatype, ranks)
    if size is not None and size >= _MOST:
        return None
    total = (sends,) * 3 + (receives,) * 3
    mean = [wait // of if of else None for wait, of in zip(waits, total, strict=True)]
    return NcclOperation(
        comm=f"{fields['comm']:016x}",
        name=comm_name,
        op=op,
        collective=kind == _COLLECTIVE,
        seq=fields["sequence"],
        rank=rank,
        nranks=ranks or None,
        peer=peer if kind == _P2P else None,
        bytes=size,
        algorithm=algorithm.lower(),
        protocol=protocol.lower(),
        enqueue_ns=enqueue_ns,
        started_ns=started_ns or None,
        done_ns=done_ns if ended and done_ns else None,
        parts=parts,
        steps=fields["steps"],
        gpu_wait_ns=mean[0],
        credit_wait_ns=mean[1],
        net_wait_ns=mean[2],
        recv_wait_ns=mean[3],
        flush_wait_ns=mean[4],
        consume_wait_ns=mean[5],
        waiting=tuple(fields["waiting"].tolist()),
        changed_ns=changed_ns,
        dropped=dropped,
    )


def _bytes(op: str, count: int, datatype: str, ranks: int) -> int | None:
    size = _ELEMENT_BYTES.get(datatype)
    if size is None or (op in _FROM_ALL and not ranks):
        return None
    return count * size * (ranks if op in _FROM_ALL else 1)
