"""Samples segments of jobs' TCP flows at this host's NICs: when which bytes passed."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.errors import MissingError
from syntony.io.clocks import ClockSource
from syntony.io.segment_filter import ports_word
from syntony.io.segment_tap import KEY, SEGMENT, SegmentTap, packed, packet_socket
from syntony.model import MS, ClockState, Timeline
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.segment_delays import STAMP
from syntony.wire.segments import MAX_FLOWS, MAX_SHIFT, MAX_STAMPS, SegmentFlow, SegmentsReport

_log = logging.getLogger(__name__)

PER_SECOND = 12
"""Bytes sampled of each direction of a flow in a second: enough for a median, few enough for
thousands of flows."""
MIN_SHIFT = 12
"""Bytes are sampled no closer than 2 to this power."""
SETTLED_NS = 1 * MS
"""A segment that was timestamped this long ago is in the ring, which takes microseconds."""
MAX_BOUND_NS = 1 * MS
"""Bound of the clock's error beyond which delays in a fabric cannot be measured."""
_STATES = {ClockState.SYNCHRONIZED, ClockState.HOLDOVER}


class HostClockState(NamedTuple):
    """The current quality of the host's clock."""

    line: Timeline | None
    state: ClockState
    continuity: tuple[int, int]
    """(epoch of the clock, steps of served time): if it changes, earlier timestamps are not
    comparable."""
    step: int
    """Identifies the last step of the fleet timeline."""

    def why_not(self, local_ns: int) -> str:
        """Why there is no fleet time; empty: there is."""
        if self.line is None or self.state not in _STATES:
            reason = "" if self.line is None else self.line.reason
            return f"{self.state.name}{reason and ': '}{reason}"
        bound_ns = self.line.bound_ns(local_ns)
        return "" if bound_ns <= MAX_BOUND_NS else f"its error may be {bound_ns:.0f} ns"


class _Sampled:
    def __init__(self, flow: ReportedFlow, reading: int) -> None:
        self.flow, self.since = flow, reading
        self.shifts = [MAX_SHIFT, MAX_SHIFT]
        """Powers of two for outgoing and incoming bytes."""
        self.coarser = MAX_SHIFT
        """The power of outgoing bytes in the previous interval, if it was larger."""

    def adapt(self, flow: ReportedFlow) -> None:
        self.flow, self.coarser = flow, self.shifts[0]
        self.shifts = [
            shift_for(bps, before)
            for bps, before in zip((flow.tx_bps, flow.rx_bps), self.shifts, strict=True)
        ]


class _Stamps(NamedTuple):
    """As in `SegmentFlow`: timestamps of every multiple of 2^shift."""

    raw: bytes
    shift: int


class _Nic:
    def __init__(self, tap: SegmentTap) -> None:
        self.tap = tap
        self.flows: dict[FourTuple, _Sampled] = {}


class SegmentSampler:
    """Samples segments of jobs' TCP flows at this host's NICs.

    One per agent, used by its loop.
    """

    def __init__(self, clock: ClockSource) -> None:
        self._clock = clock
        self._nics: dict[str, _Nic] = {}
        self._refused: dict[str, str] = {}
        """NIC → why it cannot be sampled."""
        self._reading = 0
        self._from_ns: int | None = None
        """Fleet time of the previous reading; None: there was none, or it is not comparable."""
        self._continuity = (0, 0)
        self.sampled = self.lost = self.flows = self.left_out = 0

    def start(self) -> None:
        """Check that segments can be sampled here. NICs are tapped once jobs have flows there.
        Raises `MissingError`: no CAP_NET_RAW."""
        packet_socket().close()

    def close(self) -> None:
        """Idempotent."""
        for nic in self._nics.values():
            nic.tap.close()
        self._nics.clear()

    def report(self, flows: Sequence[ReportedFlow], clock: HostClockState) -> SegmentsReport | None:
        """Segments since the last call, once a second; None: no flow of a job is sampled.

        Args:
            flows: of jobs, now; the fastest are sampled.
            clock: of the host, now.
        """
        self._reading += 1
        local_ns = self._clock.now_ns() - SETTLED_NS
        found = [(nic, *self._read(name, nic)) for name, nic in list(self._nics.items())]
        report = self._made(found, clock, local_ns) if found else None
        if not found:
            self._from_ns = None
        self._sample(flows)
        return report

    def _read(self, name: str, nic: _Nic) -> tuple[NDArray[np.void], bool]:
        """Segments, and whether they are complete."""
        try:
            rows, lost = nic.tap.read()
        except (MissingError, OSError) as error:
            self._refuse(name, str(error))
            self._drop(name)
            return np.zeros(0, SEGMENT), False
        self.sampled += len(rows)
        self.lost += lost
        return rows, not lost

    def _made(
        self,
        found: Sequence[tuple[_Nic, NDArray[np.void], bool]],
        clock: HostClockState,
        local_ns: int,
    ) -> SegmentsReport | None:
        why = clock.why_not(local_ns)
        line = None if why else clock.line
        at_ns = line.to_fleet_ns(local_ns) if line is not None else 0
        from_ns = self._from_ns if clock.continuity == self._continuity else None
        self._continuity, self._from_ns = clock.continuity, at_ns if line is not None else None
        if line is not None and from_ns is None:
            return None  # the interval begins here
        flows = [
            made for nic, rows, whole in found if whole for made in self._flows_of(nic, rows, line)
        ]
        return SegmentsReport(
            from_ns=from_ns if from_ns is not None else 0,
            at_ns=at_ns,
            bound_ns=math.ceil(line.bound_ns(local_ns)) if line is not None else 0,
            sigma_ns=line.sigma_ns if line is not None else 0.0,
            step=clock.step,
            flows=tuple(flows[:MAX_FLOWS]),
            left_out=self.left_out,
            lost=self.lost,
            clock=why,
        )

    def _flows_of(
        self, nic: _Nic, rows: NDArray[np.void], line: Timeline | None
    ) -> list[SegmentFlow]:
        by_key = _grouped(rows)
        none = np.zeros(0, SEGMENT)
        made = []
        for flow, known in nic.flows.items():
            # Set in the reading before last: the interval before the last one began without it.
            if known.since > self._reading - 2:
                continue
            left, came = (by_key.get(key, none) for key in _keys(flow))
            shift = max(known.coarser, known.shifts[0])
            sent, received = (
                self._stamps(left, shift, line),
                self._stamps(came, known.shifts[1], line),
            )
            if sent is not None and received is not None:
                made.append(
                    SegmentFlow(
                        job=known.flow.job,
                        nic=known.flow.nic,
                        **flow._asdict(),
                        sent=sent.raw,
                        received=received.raw,
                        shift=sent.shift,
                        sampled=len(left),
                    )
                )
        return made

    def _stamps(self, rows: NDArray[np.void], shift: int, line: Timeline | None) -> _Stamps | None:
        """Timestamps of sampled bytes, of multiples of a power of two as low as there is room for;
        None: there are none."""
        if line is None:
            return _Stamps(b"", shift)
        while len(found := sampled_bytes(rows, shift)) > MAX_STAMPS:
            shift += 1
            if shift > MAX_SHIFT:
                return None
        local_ns = self._clock.map_array(np.ascontiguousarray(found["at_ns"]))
        found["at_ns"] = local_ns + np.rint(line.shift_ns(local_ns)).astype(np.int64)
        return _Stamps(found.tobytes(), shift)

    def _sample(self, flows: Sequence[ReportedFlow]) -> None:
        known = [each for each in flows if each.traced and each.windows]
        known.sort(key=lambda each: -(each.tx_bps + each.rx_bps))
        self.flows, self.left_out = len(known[:MAX_FLOWS]), len(known[MAX_FLOWS:])
        by_nic: dict[str, list[ReportedFlow]] = {}
        for each in known[:MAX_FLOWS]:
            by_nic.setdefault(each.nic, []).append(each)
        for name in [name for name in self._nics if name not in by_nic]:
            self._drop(name)
        for name, some in by_nic.items():
            try:
                self._sample_nic(name, some)
            except (MissingError, OSError) as error:
                self._refuse(name, str(error))
                self._drop(name)

    def _sample_nic(self, name: str, flows: Sequence[ReportedFlow]) -> None:
        nic = self._nics.get(name)
        if nic is None:
            nic = self._nics[name] = _Nic(SegmentTap(name))
            self._refused.pop(name, None)
        kept = {each.flow: each for each in flows}
        nic.flows = {flow: some for flow, some in nic.flows.items() if flow in kept}
        shifts: dict[int, int] = {}
        for flow, each in kept.items():
            sampled = nic.flows.get(flow)
            if sampled is None:
                sampled = nic.flows[flow] = _Sampled(each, self._reading)
            sampled.adapt(each)
            ports = flow.local_port, flow.remote_port
            for word, shift in zip(
                (ports_word(*ports), ports_word(*reversed(ports))), sampled.shifts, strict=True
            ):
                # Two flows may have the same ports: the denser sampling of both is thinned later.
                shifts[word] = min(shift, shifts.get(word, MAX_SHIFT))
        nic.tap.sample(shifts)

    def _drop(self, name: str) -> None:
        nic = self._nics.pop(name, None)
        if nic is not None:
            nic.tap.close()

    def _refuse(self, name: str, why: str) -> None:
        if self._refused.get(name) != why:
            _log.warning("segments not sampled nic=%s reason=%s", name, why)
        self._refused[name] = why


def shift_for(bps: int, before: int) -> int:
    """Power of two by which bytes are sampled at this rate; unchanged while that is about right."""
    ideal = math.log2(max(1.0, bps / 8 / PER_SECOND))
    if abs(ideal - before) <= 1:
        return before
    return min(MAX_SHIFT, max(MIN_SHIFT, math.floor(ideal)))


def sampled_bytes(rows: NDArray[np.void], shift: int) -> NDArray[np.void]:
    """Bytes of segments whose numbers are multiples of 2^shift, as `STAMP` in CLOCK_REALTIME.

    Args:
        rows: (n,) of `SEGMENT`.
        shift: at least `MIN_SHIFT`.
    """
    first = rows["seq"].astype(np.int64)
    end = first + rows["payload"]
    begin = (first + (1 << shift) - 1) >> shift
    counts = np.maximum(0, ((end - 1) >> shift) - begin + 1)
    found = np.zeros(int(counts.sum()), STAMP)
    found["at_ns"] = np.repeat(rows["real_ns"], counts)
    place = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
    found["number"] = ((np.repeat(begin, counts) + place) << shift) & 0xFFFFFFFF
    return found


def _keys(flow: FourTuple) -> tuple[bytes, bytes]:
    local, remote = packed(flow.local), packed(flow.remote)
    return (
        KEY.pack(local, remote, flow.local_port, flow.remote_port, 1),
        KEY.pack(remote, local, flow.remote_port, flow.local_port, 0),
    )


def _grouped(rows: NDArray[np.void]) -> dict[bytes, NDArray[np.void]]:
    """Grouped by `KEY`, in order."""
    if not len(rows):
        return {}
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), SEGMENT.itemsize)
    keys = np.ascontiguousarray(raw[:, : KEY.size]).view(f"V{KEY.size}")[:, 0]
    values, places = np.unique(keys, return_inverse=True)
    return {value.tobytes(): rows[places == place] for place, value in enumerate(values)}
