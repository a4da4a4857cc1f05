"""Reports of sampled TCP segments of jobs; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

from syntony.wire.bounds import Count, Port, Signed, Text, Word

STAMP_BYTES = 12
"""Of one sampled byte: when its segment passed the NIC (int64, ns, fleet time), and its TCP
sequence number (uint32); little-endian."""
MAX_SHIFT = 28
"""Of bytes further apart than 2 to this power, one that is missed would hide a wrap of the 32-bit
numbers."""
MAX_FLOWS = 256
"""In one report."""
MAX_STAMPS = 64
"""Of one flow and direction in one report."""


class SegmentFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One TCP connection or MPTCP subflow of a job, seen from one host. Only flows that were
    sampled in the whole interval, and none of whose samples was lost."""

    job: Word
    nic: Word
    local: Word
    local_port: Port
    remote: Word
    remote_port: Port
    sent: bytes
    """Stamps of outgoing bytes, after all queues of the host, before the driver; in order."""
    received: bytes
    """Stamps of incoming bytes, before the host's network stack."""
    shift: Count
    """Outgoing bytes whose number is a multiple of 2 to this power were sampled, in the whole
    interval."""
    sampled: Count
    """Number of sampled outgoing bytes, including those without a stamp here."""


class SegmentsReport(msgspec.Struct, frozen=True, kw_only=True, tag="segments"):
    """Samples of one host in an interval; the newest only, never spooled."""

    from_ns: Signed
    """Begin of the interval, fleet time."""
    at_ns: Signed
    """End of the interval, fleet time: all earlier segments were read."""
    bound_ns: Signed
    """Maximum error of the instants."""
    sigma_ns: float
    """1-sigma of the clock."""
    step: Signed
    """Last step of the fleet timeline: instants of different steps are not comparable."""
    flows: tuple[SegmentFlow, ...]
    left_out: Count = 0
    """Number of further flows."""
    lost: Count = 0
    """Number of samples that the kernel dropped since the agent started."""
    clock: Text = ""
    """Why there is no fleet time here, and so no stamps and instants; empty: there is."""
