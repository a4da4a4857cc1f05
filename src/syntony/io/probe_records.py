"""Records of the probe engine: NICs, keys, routes over verbs, results, counters, states."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from syntony.io._library import dtype_of
from syntony.io.probe_key import Key

RECORD = dtype_of("syn_probe_record")
"""One probe: flow_id, seq, flags, nic_id, dst_nic_id; sent_ns (host clock, never 0); t1_ns, t4_ns
(local clock), t2_ns, t3_ns (remote clock), each 0 if missing."""
HEARD = dtype_of("syn_probe_heard")
"""src_nic_id, dst_nic_id, requests: authentic ones since the engine started."""

WATCH_STATUS = dtype_of("syn_watch_status")
LIVENESS = dtype_of("syn_liveness_event")


class WatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    flow_id: int
    alive: bool | None
    """None: not yet known."""
    heard_ns: int
    """CLOCK_MONOTONIC of the newest reply."""
    rtt_ns: int
    suspect: bool
    """All watched paths between these two NICs are silent, and have been asked by a burst."""
    unresponsive: bool
    """They have been silent for 20 ms, and at least six probes of them for their round trip."""
    steady_ns: int = 0
    """CLOCK_MONOTONIC since when they have not been silent for 20 ms and three of their turns; 0:
    ever."""
    gap_ns: int = 0
    """For how long they were before."""


class PeerKeys(NamedTuple):
    """The keys that authenticate packets to and from one remote NIC."""

    sends: Key
    """Sent with, and accepted."""
    accepts: Key | None = None
    """Accepted as well, while keys are rotated."""


class Endpoint(NamedTuple):
    """Where a NIC takes probes over verbs."""

    nic_id: int
    qpn: int
    """Of its reflector; 0: there is none."""
    gid: bytes
    lid: int
    infiniband: bool


class VerbsRoute(NamedTuple):
    """How packets of one class and flow label get to a remote NIC over verbs."""

    src: str
    """Local NIC's name."""
    to: Endpoint
    flow_label: int
    dscp: int
    sl: int


class ProbeNic(msgspec.Struct, frozen=True, kw_only=True):
    """One local NIC to probe from and to reflect on."""

    name: str
    """The interface's."""
    nic_id: int
    """Its number on the wire, fleet-wide unique."""
    address: str
    """Empty: it is attached later."""
    port: int
    """UDP port of its reflector."""
    stamping: str = "auto"
    """``auto``, ``hardware`` or ``kernel``."""


class NicStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one NIC's packets are stamped, and why so."""

    name: str
    nic_id: int
    stamping: str
    """``kernel`` or ``hardware``, as in force."""
    reason: str
    phc_index: int | None


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Since the engine started. `sent` counts requests and `replies` replies put on the wire;
    `received` counts authentic packets of both kinds. Meanings: syn_probe.h."""

    sent: int
    replies: int
    received: int
    malformed: int
    foreign: int
    replayed: int
    misdelivered: int
    unsolicited: int
    late: int
    send_errors: int
    skipped: int
    stalls: int
    stall_ns: int
    rx_overflow: int
    ring_dropped: int
    tx_stamp_missing: int
    evicted: int
    liveness_dropped: int

    @property
    def rejected(self) -> int:
        """Packets received and ignored because something was wrong with them."""
        return self.malformed + self.foreign + self.replayed + self.misdelivered
