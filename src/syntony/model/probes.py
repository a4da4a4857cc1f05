"""Records of probes, as the probe engine writes them."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.model.units import S

PROBE_TIMEOUT_NS = 1 * S
"""A probe unanswered for this long counts as lost: far beyond any queueing delay."""


class ProbeFlag(enum.IntFlag):
    """Bits of a probe record's `flags`. Mirrors the engine's header, which a test compares."""

    LOST_FWD = 1
    """The request never arrived."""
    LOST_REV = 2
    """The request arrived, its reply did not."""
    LOST_UNKNOWN = 4
    """No reply, and nothing later showed which direction was broken."""
    STALL_LOCAL = 8
    """This engine was late while the probe was in flight."""
    STALL_REMOTE = 16
    """The reflecting engine was late."""
    NO_T1 = 32
    """The stamp of the request leaving never came."""
    NO_T2 = 64
    """The stamp of the request arriving is missing."""
    NO_T3 = 128
    """The stamp of the reply leaving never came."""
    NO_T4 = 256
    """The stamp of the reply arriving is missing."""
    HW_LOCAL = 512
    """t1 and t4 are in the local NIC's own clock."""
    HW_REMOTE = 1024
    """t2 and t3 are in the remote NIC's own clock."""
    NOT_SENT = 2048
    """The kernel refused the request: nothing went on the wire."""


LOST = ProbeFlag.LOST_FWD | ProbeFlag.LOST_REV | ProbeFlag.LOST_UNKNOWN
STALLED = ProbeFlag.STALL_LOCAL | ProbeFlag.STALL_REMOTE
MISSING = ProbeFlag.NO_T1 | ProbeFlag.NO_T2 | ProbeFlag.NO_T3 | ProbeFlag.NO_T4


class DeviceClockReading(NamedTuple):
    """One instant on the host's clock and on that of a NIC's RDMA device."""

    epoch_ns: int
    """The first instant of the device's clock: another one names another epoch."""
    host_ns: int
    device_ns: int
    uncertainty_ns: int


def among(flow_ids: NDArray[Any], known: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which of `flow_ids`, shape (n,), are in `known`, ascending. Several times a second for a few
    hundred probes: a tenth of what `numpy.isin` takes, which sorts both."""
    if not len(known):
        return np.zeros(len(flow_ids), dtype=np.bool_)
    places = known.searchsorted(flow_ids)
    return np.asarray(known.take(places, mode="clip") == flow_ids, dtype=np.bool_)
