"""Read and check the figures of queue pairs that a job's process writes for its agent
(native/verbs/syn_qp_page.h). Pure.

The process owns the page and may write anything to it at any time. A record is used only if its
sequence number was even and the same before and after it was read; an entry of a ring only if it
was complete at the first reading and not overwritten at the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from syntony.model import S
from syntony.traffic.process_flows import unpacked_address
from syntony.wire.queue_pairs import QueuePairFigures

SLOTS, STAMPS, RINGS = 256, 128, 3
MAGIC, VERSION = b"SYNQPG01", 1
HEADER = np.dtype(
    {
        "names": ["magic", "version", "size", "used", "left_out"],
        "formats": ["S8", "<u4", "<u4", "<u4", "<u4"],
        "itemsize": 64,
    }
)
SLOT = np.dtype(
    [
        ("sequence", "<u4"), ("state", "<u2"), ("type", "<u2"), ("generation", "<u8"),
        ("began_ns", "<i8"), ("number", "<u4"), ("peer_number", "<u4"), ("send_psn", "<u4"),
        ("receive_psn", "<u4"), ("local", "<u1", 16), ("remote", "<u1", 16), ("device", "<u1", 24),
        ("flags", "<u8"), ("reserved", "<u8", 3),
        ("sent", "<u8"), ("unannounced", "<u8"), ("bytes_posted", "<u8"), ("signaled", "<u8"),
        ("posted_ns", "<i8"), ("first_sent_ns", "<i8"), ("reserved2", "<u8", 2),
        ("received", "<u8"), ("bytes_received", "<u8"), ("receives_posted", "<u8"),
        ("received_ns", "<i8"), ("completed", "<u8"), ("completed_ns", "<i8"), ("errors", "<u4"),
        ("first_error", "<u4"), ("reserved4", "<u8"),
        ("stamped", "<u8", 3), ("reserved3", "<u8", 5),
    ]
)  # fmt: skip
"""`struct syn_qp_slot`."""
STAMP = np.dtype([("at_ns", "<i8"), ("number", "<u4"), ("value", "<u4")])
"""`struct syn_qp_stamp`."""
STAMP_RECORD = np.dtype([("at_ns", "<i8"), ("number", "<u8"), ("value", "<u4")])
"""A stamp as it is reported, `STAMP_BYTES` long."""
SLOTS_BYTES = HEADER.itemsize + SLOTS * SLOT.itemsize
RINGS_BYTES = RINGS * STAMPS * STAMP.itemsize
"""Of one slot."""
PAGE_BYTES = SLOTS_BYTES + SLOTS * RINGS_BYTES
OLDEST_NS = 10 * S
"""Maximum age of a stamp: an older one was not read in time."""
_READY, _FAILED = 1, 2
_TYPES = {2: "rc", 3: "uc", 4: "ud"}
_DEVICE = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._:-]{0,22})\0")
_MOST = 1 << 63
_COUNTS = (
    "sent", "unannounced", "bytes_posted", "signaled", "received", "bytes_received",
    "receives_posted", "completed",
)  # fmt: skip
_COUNTED = ("sent", "received", "completed")
"""What each ring's stamps count."""


class Owner(NamedTuple):
    """The process, by the kernel's word."""

    job: str
    program: str
    pid: int
    uid: int


def ring_offset(slot: int) -> int:
    return SLOTS_BYTES + slot * RINGS_BYTES


class QueuePairPageReader:
    """Reads the figures of queue pairs from one page.

    `before` and `after` are two readings of its first `SLOTS_BYTES`.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._taken: dict[tuple[int, int], tuple[int, ...]] = {}
        """(slot, generation) to how many stamps of each ring were taken, or missed."""
        self._changing: set[int] = set()
        """Slots that were being changed when they were last read."""
        self.malformed = 0
        """Records that could not be used."""
        self.left_out = 0
        """Queue pairs for which the page had no place, by the process's word."""

    def in_use(self, before: bytes) -> list[int]:
        """Slots whose rings are to be read between the two readings."""
        header = np.frombuffer(before, HEADER, 1)[0]
        if header["magic"] != MAGIC or header["version"] != VERSION:
            self.malformed += 1
            return []
        self.left_out = int(header["left_out"])
        states = np.frombuffer(before, SLOT, SLOTS, HEADER.itemsize)["state"]
        return np.flatnonzero(states[: int(header["used"])]).tolist()

    def read(
        self, before: bytes, rings: Mapping[int, bytes], after: bytes, now_ns: int
    ) -> list[QueuePairFigures]:
        """Figures of the page, instants in CLOCK_MONOTONIC.

        Args:
            before: `SLOTS_BYTES` bytes.
            rings: slot to `RINGS_BYTES` bytes, read after `before` and before `after`.
            after: `SLOTS_BYTES` bytes.
            now_ns: CLOCK_MONOTONIC, when they were read.
        """
        first = np.frombuffer(before, SLOT, SLOTS, HEADER.itemsize)
        last = np.frombuffer(after, SLOT, SLOTS, HEADER.itemsize)
        found: list[QueuePairFigures] = []
        taken: dict[tuple[int, int], tuple[int, ...]] = {}
        changing: set[int] = set()
        for slot, ring in rings.items():
            if first[slot]["sequence"] & 1 or first[slot]["sequence"] != last[slot]["sequence"]:
                changing.add(slot)
                # Read next time. No process takes so long that this happens twice.
                self.malformed += slot in self._changing
                taken |= {key: count for key, count in self._taken.items() if key[0] == slot}
                continue
            figures = self._parse(first[slot], now_ns)
            if figures is None:
                self.malformed += 1
                continue
            key = slot, int(first[slot]["generation"])
            known = self._taken.get(key, (0,) * RINGS)
            parts = np.frombuffer(ring, STAMP, RINGS * STAMPS).reshape(RINGS, STAMPS)
            stamps = []
            for at, part in enumerate(parts):
                begun = max(known[at], int(last[slot]["stamped"][at]) - STAMPS + 1)
                whole = _entries(part, begun, int(first[slot]["stamped"][at]))
                stamps.append(self._reported(whole, int(last[slot][_COUNTED[at]]), now_ns))
            taken[key] = tuple(int(each) for each in first[slot]["stamped"])
            found.append(
                msgspec.structs.replace(
                    figures,
                    sent_stamps=stamps[0],
                    received_stamps=stamps[1],
                    round_trips=stamps[2],
                )
            )
        self._taken, self._changing = taken, changing
        return found

    def _parse(self, first: np.void, now_ns: int) -> QueuePairFigures | None:
        device = _DEVICE.match(first["device"].tobytes())
        counts: dict[str, Any] = {name: int(first[name]) for name in _COUNTS}
        began_ns, first_sent_ns = int(first["began_ns"]), int(first["first_sent_ns"])
        if (
            first["state"] not in {_READY, _FAILED}
            or device is None
            or max(counts.values()) >= _MOST
            or not 0 < began_ns <= now_ns
            or not 0 <= first_sent_ns <= now_ns
            or int(first["flags"]) >= _MOST
            or max(int(first["number"]), int(first["peer_number"])) >= 1 << 24
            or max(int(first["send_psn"]), int(first["receive_psn"])) >= 1 << 24
        ):
            return None
        kind, owner = int(first["type"]), self._owner
        return QueuePairFigures(
            **owner._asdict(),
            **counts,
            key=f"{owner.pid}:{first['generation']}:{began_ns}",
            device=device[1].decode("ascii"),
            type=_TYPES.get(kind, str(kind)),
            failed=bool(first["state"] == _FAILED),
            number=int(first["number"]),
            peer_number=int(first["peer_number"]),
            local=_address(first["local"].tobytes()),
            remote=_address(first["remote"].tobytes()),
            send_psn=int(first["send_psn"]),
            receive_psn=int(first["receive_psn"]),
            flags=int(first["flags"]),
            began_ns=began_ns,
            first_sent_ns=first_sent_ns,
            errors=int(first["errors"]),
            first_error=int(first["first_error"]),
        )

    def _reported(self, entries: NDArray[np.void], counted: int, now_ns: int) -> bytes:
        """The valid stamps, as `STAMP_RECORD`. Entries have the low 32 bits of their numbers;
        `counted` is above all of them."""
        reported = np.zeros(len(entries), STAMP_RECORD)
        reported["at_ns"], reported["value"] = entries["at_ns"], entries["value"]
        below = (np.uint64(counted) - entries["number"].astype(np.uint64)) & np.uint64(0xFFFFFFFF)
        reported["number"] = np.uint64(counted) - below
        good = (reported["at_ns"] <= now_ns) & (below <= counted)
        good[1:] &= reported["number"][1:] > reported["number"][:-1]
        self.malformed += int((~good).sum())
        return reported[good & (reported["at_ns"] > now_ns - OLDEST_NS)].tobytes()


def _entries(ring: NDArray[np.void], begin: int, end: int) -> NDArray[np.void]:
    """Those numbered from `begin` to before `end`, at most as many as there are."""
    begin = max(begin, end - STAMPS, 0)
    return ring[(np.arange(max(0, end - begin)) + begin % STAMPS) % STAMPS]


def thinned(stamps: bytes, most: int) -> bytes:
    """At most so many of them, those whose number is a multiple of a power of two: both ends of a
    queue pair keep the same ones."""
    reported = np.frombuffer(stamps, STAMP_RECORD)
    mask = 0
    while len(reported) > most:
        mask = mask << 1 | 1
        reported = reported[reported["number"] & np.uint64(mask) == 0]
    return reported.tobytes()


def shifted(stamps: bytes, offsets_ns: Iterable[int]) -> bytes:
    """Every instant later by its offset."""
    reported = np.frombuffer(stamps, STAMP_RECORD).copy()
    reported["at_ns"] += np.fromiter(offsets_ns, np.int64, len(reported))
    return reported.tobytes()


@lru_cache(4096)
def _address(packed: bytes) -> str:
    return unpacked_address(packed) if any(packed) else ""
