"""What failover may do, as an operator sets it."""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Iterable

import msgspec

from syntony.model import MS, S


class FailoverMode(enum.StrEnum):
    """How far failover goes."""

    OFF = "off"
    OBSERVE = "observe"
    """Say what would be done, touch nothing."""
    ACT = "act"


def is_named(job: str, patterns: Iterable[str]) -> bool:
    """Whether one of these shell patterns means the job."""
    return any(fnmatch.fnmatchcase(job, pattern) for pattern in patterns)


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[traffic]` section of an agent's configuration."""

    mode: FailoverMode = FailoverMode.OBSERVE
    jobs: tuple[str, ...] = ("*",)
    """Which jobs are managed, as shell patterns over ``SYNTONY_JOB``."""
    hold_down_ns: int = 1 * S
    """How long a path that came back is left alone; doubles with every failure."""
    hold_down_max_ns: int = 60 * S
    decay_ns: int = 60 * S
    """After this long without a failure, a path's hold-down is halved."""
    min_paths: int = 1
    """Living subflows below which failover never takes a connection."""
    max_actions_per_s: int = 2_000
    """Beyond it actions wait: the most harm a wrong decision can do in a second. 2,000 lets the
    1,000 connections of a busy host leave a dead NIC, and return, within one second."""
    plain: bool = True
    """Whether connections that are not multi-path take other ways, too (both ends need agents)."""
    plain_rto_ns: int = 80 * MS
    """Shortest retransmission timeout of plain connections of managed jobs, over and above their
    round trip (the kernel's is 200 ms); 0: theirs to choose. A little longer than the detection of
    a dead path and a detour take (60 to 75 ms), so that the first retransmission finds it in force;
    peers hold acknowledgements back for half as long at most."""
    settle_ns: int = 6 * MS
    """A path's death is acted upon this much later, when the deaths of its siblings are known:
    probes of one NIC are spread over one interval (5 ms)."""
    stall_grace_ns: int = 25 * MS
    """After a stall of our own, deaths wait this long for the answers that lie in the socket."""
    silence_ns: int = 60 * MS
    """A subflow with unacknowledged data and no acknowledgement for so long is stalled: above the
    kernel's longest usual delay of an acknowledgement (40 ms, TCP_DELACK_MIN)…"""
    silence_rtts: int = 4
    """… and above this many of its own round trips (a full queue makes them long)."""
    join_ns: int = 60 * MS
    """A new subflow that is not up by then is tried on another source port."""
    join_max_ns: int = 5 * S
    """Between two attempts, after many failures (doubling)."""
    port: int = 8621
    """TCP port where agents let peers join."""
    place: tuple[str, ...] = ()
    """Which of the managed jobs may be moved between paths that work, because others crowd them;
    shell patterns over ``SYNTONY_JOB``. None by default."""
    pace: tuple[str, ...] = ()
    """Which of the managed jobs may be held back where they crowd a link; shell patterns over
    ``SYNTONY_JOB``. None by default."""
    spare_ports: int = 32
    """Source ports, from `port_low` on, whose paths are learnt in advance where `place` names jobs:
    of four spines, all are reached with probability 1 - 4·(3/4)^32 = 0.9996."""
    confirm_ns: int = 5 * S
    """A move that the controller has not confirmed by then is undone here if it made things worse:
    twice the two windows of a second that a verdict takes."""
    port_low: int = 61_000
    port_high: int = 65_535
    """Source ports of our subflows: above the kernel's own range (ip_local_port_range)."""
