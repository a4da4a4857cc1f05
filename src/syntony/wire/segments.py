"""What is said about TCP segments of jobs that both ends sample; part of `syntony.wire.messages`."""

from __future__ import annotations

import msgspec

STAMP = (("at_ns", "<i8"), ("position", "<u4"))
"""One sampled byte: when its segment passed the NIC, fleet time, and its TCP sequence number. In the
order in which they passed."""
STAMP_BYTES = 12
MAX_FLOWS = 256
"""In one report."""
MAX_STAMPS = 128
"""Of one flow and direction in one report."""


class SegmentFlow(msgspec.Struct, frozen=True, kw_only=True):
    """One TCP connection or MPTCP subflow of a job, seen from one host."""

    job: str
    nic: str
    local: str
    local_port: int
    remote: str
    remote_port: int
    sent: bytes
    """Stamps (`STAMP`) of what left, after any queue of the host, before the driver."""
    received: bytes
    """Stamps of what came, before anything of the host looked at it."""
    fresh: bool
    """What passed before the interval was not sampled, or not all of it was reported."""


class SegmentsReport(msgspec.Struct, frozen=True, kw_only=True, tag="segments"):
    """What one host sampled in an interval; the newest only, never spooled."""

    from_ns: int
    """Fleet time: the interval is from here…"""
    at_ns: int
    """… to here: everything that passed before was looked for."""
    bound_ns: int
    """How far the instants may be from fleet time."""
    sigma_ns: float
    """1-sigma of the clock."""
    flows: tuple[SegmentFlow, ...]
    left_out: int = 0
    """Flows beyond these."""
    lost: int = 0
    """Samples that the kernel had no room for since the agent began."""
    clock: str = ""
    """Why there is no fleet time here, and thus no stamp; empty: there is. Instants are 0 then."""
