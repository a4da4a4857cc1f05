"""What failover may do, as an operator sets it."""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Iterable

import msgspec

from syntony.model import MS, S
from syntony.model.config_values import Natural, Port, Positive


class FailoverMode(enum.StrEnum):
    """Whether failover acts, only reports, or does nothing."""

    OFF = "off"
    OBSERVE = "observe"
    """Report what would be done, change nothing."""
    ACT = "act"


def is_named(job: str, patterns: Iterable[str]) -> bool:
    """Whether one of these shell patterns matches the job."""
    return any(fnmatch.fnmatchcase(job, pattern) for pattern in patterns)


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[traffic]``: failover and moves of jobs' connections (docs/how-to/failover.md)."""

    mode: FailoverMode = FailoverMode.OBSERVE
    """``off``, ``observe`` (report what would be done) or ``act``."""
    jobs: tuple[str, ...] = ("*",)
    """Which jobs are managed, as shell patterns over ``SYNTONY_JOB``."""
    hold_down_ns: Natural = 1 * S
    """How long a path that has recovered is not used; doubles with every failure."""
    hold_down_max_ns: Natural = 60 * S
    """Upper limit of `hold_down_ns`."""
    decay_ns: Positive = 60 * S
    """After this long without a failure, a path's hold-down is halved."""
    min_paths: Positive = 1
    """Failover leaves a connection at least this many live subflows."""
    max_actions_per_s: Positive = 2_000
    """Limit of creations and destructions of paths; further ones wait. It bounds the harm of a
    wrong decision. 2,000 lets the 1,000 connections of a busy host leave a dead NIC, and
    return, within one second."""
    plain: bool = True
    """Whether plain TCP connections of managed jobs are sent over another path while theirs is
    dead; both ends need agents."""
    plain_rto_ns: Natural = 80 * MS
    """Shortest retransmission timeout of such connections, in addition to their round trip (the
    kernel's is 200 ms); needs Linux 6.15 and CAP_SYS_PTRACE. 0: not changed. A little longer than
    detecting a dead path and setting up a detour take (60 to 75 ms), so that the first
    retransmission takes the detour; peers delay acknowledgements by at most half of it."""
    watch: bool = True
    """Whether the paths that jobs use are probed at a high rate (up to 1,600 probes a second and
    host), and NICs' carriers read every 10 ms, so that a path that loses everything is left within
    0.1 s. Without, what the kernel and a job's own errors show is all that is known: for processors
    or links too slow for that, such as emulated ones."""
    settle_ns: Natural = 6 * MS
    """Delay between the failure of a path and the action on it, in which failures of its siblings
    become known: probes of one NIC are spread over one interval (5 ms)."""
    stall_grace_ns: Natural = 25 * MS
    """The same after the agent itself was not scheduled: replies may still wait in its socket."""
    silence_ns: Positive = 60 * MS
    """A subflow with unacknowledged data and no acknowledgement for this long is stalled: above the
    kernel's longest usual delay of an acknowledgement (40 ms, TCP_DELACK_MIN)…"""
    silence_rtts: Natural = 4
    """… and above this many of its own round trips (a full queue makes them long)."""
    join_ns: Positive = 60 * MS
    """Timeout of a join: a new subflow that is not up by then is tried on another source port."""
    join_max_ns: Positive = 5 * S
    """Longest pause between two attempts; it doubles with every failure."""
    port: Port = 8621
    """TCP port at which agents accept joins; the same in the whole fleet."""
    place: tuple[str, ...] = ()
    """Which of the managed jobs may be moved off congested paths, as shell patterns over
    ``SYNTONY_JOB``. None by default (docs/how-to/contention.md)."""
    pace: tuple[str, ...] = ()
    """Which of the managed jobs may be paced where they congest a link, as shell patterns over
    ``SYNTONY_JOB``. None by default."""
    spare_ports: Natural = 32
    """Source ports, from `port_low` on, whose paths are traced in advance if `place` names jobs:
    of four spines, all are reached with probability 1 - 4·(3/4)^32 = 0.9996."""
    confirm_ns: Natural = 5 * S
    """A move that the controller has not confirmed within this time is undone by the agent if it
    made things worse: twice the two windows of a second that a verdict takes."""
    port_low: Port = 61_000
    """Lowest source port of the subflows that agents create, above the kernel's own range
    (ip_local_port_range)."""
    port_high: Port = 65_535
    """Highest source port of the subflows that agents create."""

    def __post_init__(self) -> None:
        if self.port_low > self.port_high:
            raise ValueError(
                f"traffic: port_low {self.port_low} is above port_high {self.port_high}"
            )
