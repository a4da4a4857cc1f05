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
    """Stamps of what left, after any queue of the host, before the driver; in order."""
    received: bytes
    """Stamps of what came, before anything of the host looked at it."""
    shift: Count
    """Of what left, every byte whose number is a multiple of 2 to this power was sampled, in the
    whole interval."""
    sampled: Count
    """Bytes sampled of what left, those included that have no stamp here."""


class SegmentsReport(msgspec.Struct, frozen=True, kw_only=True, tag="segments"):
    """What one host sampled in an interval; the newest only, never spooled."""

    from_ns: Signed
    """Fleet time: the interval is from here…"""
    at_ns: Signed
    """… to here: everything that passed before was looked for."""
    bound_ns: Signed
    """How far the instants may be from fleet time."""
    sigma_ns: float
    """1-sigma of the clock."""
    step: Signed
    """Names the last step of the fleet timeline: instants with different ones do not compare."""
    flows: tuple[SegmentFlow, ...]
    left_out: Count = 0
    """Flows beyond these."""
    lost: Count = 0
    """Samples that the kernel had no room for since the agent began."""
    clock: Text = ""
    """Why there is no fleet time here, and thus no stamp; empty: there is. Instants are 0 then."""
