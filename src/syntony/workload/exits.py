"""What the ends of a job's processes say of its end: a rank failed, somebody ended it, or either.

A launcher that ends the rest once one rank has failed, and somebody who ends the job, both send
SIGTERM and later SIGKILL. A rank that lost its connection to another fails by an error or by
SIGABRT, as one does that fails by itself. Pure.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from typing import NamedTuple

from syntony.model import MS, S, format_ns

ASKS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals by which launchers, schedulers and people end a process."""
CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS, signal.SIGTRAP}
)
"""Signals that a process gets for what it did itself."""
UTC_NS = (946_684_800 * S, 4_102_444_800 * S)
"""From 2000 to 2099: instants of UTC; others count from another origin."""
_SHELL = 128
"""A program that waits for another often ends with this plus the signal that ended it."""


class Ended(NamedTuple):
    """How a rank's own process ended, and when: not before `first_ns`, and by `last_ns`."""

    first_ns: int
    last_ns: int
    status: int | None = None
    """Its exit status, below 0 the signal that ended it; None: not visible."""
    oom: bool = False
    """The kernel killed it for lack of memory, or one that it started."""

    handles_term: bool = False
    """It handled SIGTERM: an error may be its answer."""

    @property
    def exact(self) -> bool:
        """Whether the instant is known, and not only a window."""
        return self.first_ns == self.last_ns


class Manner(Enum):
    """How a process ended."""

    UNKNOWN = auto()
    ORDERLY = auto()
    """By itself, without an error; it may have handled a signal."""
    ASKED = auto()
    """By a signal of `ASKS`."""
    KILLED = auto()
    """By SIGKILL, and it is not known why."""
    FAILED = auto()
    """By an error or SIGABRT, which another rank's end may cause as well."""
    CRASHED = auto()
    """For lack of memory, or by a signal of `CRASHES`: nothing that others did."""


_BY_ERRORS = {Manner.KILLED, Manner.FAILED}


class Cause(Enum):
    """What the ends of all ranks tell."""

    OPEN = auto()
    """A rank failed, or somebody ended the job."""
    RANK = auto()
    """The ranks that ended first are the cause."""
    ENDED = auto()
    """Somebody ended the job, or all ranks have done their work."""


def manner(end: Ended) -> Manner:
    """How a rank's process ended."""
    if end.oom:
        return Manner.CRASHED
    if end.status is None:
        return Manner.UNKNOWN
    number = _signal(end.status)
    if number in ASKS:
        return Manner.ASKED
    if number == signal.SIGKILL:
        return Manner.KILLED
    if number in CRASHES:
        return Manner.CRASHED
    return Manner.FAILED if end.status else Manner.ORDERLY


def causes(ended: Mapping[int, Ended], names: list[int]) -> list[int]:
    """Of ranks that ended at the same time those whose ends cannot follow from the others', if
    there are some: they crashed, or one alone was killed and the others had errors."""
    kinds = {rank: manner(ended[rank]) for rank in names}
    if crashed := [rank for rank in names if kinds[rank] is Manner.CRASHED]:
        return crashed
    killed = [rank for rank in names if kinds[rank] is Manner.KILLED]
    return killed if len(killed) == 1 and set(kinds.values()) <= _BY_ERRORS else names


def cause(ended: Mapping[int, Ended], names: Collection[int], absent: Collection[int]) -> Cause:
    """What the ends of a job's ranks tell of why it ended.

    Args:
        ended: all ranks.
        names: those that ended first.
        absent: those that had not begun the operation in which the others waited.
    """
    first = {manner(ended[rank]) for rank in names}
    others = [each for rank, each in ended.items() if rank not in names]
    after = {manner(each) for each in others}
    if asked(first, after):
        return Cause.ENDED
    if first == {Manner.CRASHED} and others and not _alike(ended, names):
        return Cause.RANK
    if after & {Manner.UNKNOWN, Manner.ORDERLY}:
        return Cause.OPEN
    # Who kills all, or kills late what was asked to end before, kills more than the first.
    if first == {Manner.KILLED} and others and Manner.KILLED not in after:
        return Cause.RANK
    # In the operation itself it may have been the first to notice a lost connection. Errors of the
    # others follow from its end, if it is known to be the first, as orders of a launcher do.
    own = first == {Manner.FAILED} and set(names) <= set(absent)
    own = own and not any(ended[rank].handles_term for rank in names)
    follow = after <= {Manner.ASKED, Manner.KILLED} or len(names) == 1
    return Cause.RANK if own and others and follow else Cause.OPEN


def asked(first: Collection[Manner], after: Collection[Manner]) -> bool:
    """Whether those that ended, the first and the others, did so because somebody asked for it."""
    orders = {Manner.ASKED, Manner.ORDERLY}
    late = orders | {Manner.KILLED} if Manner.ASKED in first else {Manner.ORDERLY, Manner.KILLED}
    return bool(first) and set(first) <= orders and set(after) <= late


def _alike(ended: Mapping[int, Ended], names: Collection[int]) -> bool:
    """Whether another rank crashed by the same signal: all may do what the first did."""
    ways = {ended[rank].status for rank in names if not ended[rank].oom}
    return any(each.status in ways for rank, each in ended.items() if rank not in names)


def words(end: Ended) -> str:
    """How a process ended, as the rest of a sentence."""
    if end.oom:
        return "was killed by the kernel for lack of memory"
    if end.status is None:
        return "ended, exit status not visible,"
    number = _signal(end.status)
    if not number:
        return f"ended with exit status {end.status}"
    return f"was {'killed' if number == signal.SIGKILL else 'ended'} by {_name(number)}"


def end_line(rank: int, host: str, end: Ended) -> str:
    """How a rank ended, where and when, in one line."""
    when = f"{'at' if end.exact else 'by'} {time_of_day(end.last_ns)}"
    return f"rank {rank} on {host} {words(end)} {when}"


def story(
    ended: Mapping[int, Ended], names: Sequence[int], host: str, *, waited: bool, over: bool
) -> str:
    """One sentence without its full stop: how the ranks ended that are the cause, and the others.

    Args:
        ended: all ranks that have ended.
        names: the cause.
        host: of the first of these.
        waited: whether the others waited for it.
        over: whether all ranks have ended.
    """
    one = ended[names[0]]
    text = end_line(names[0], host, one)
    if len(names) > 1:
        text += f", at the same time as rank {', '.join(map(str, names[1:]))}"
    others = [each for rank, each in ended.items() if rank not in names]
    if not others:
        return text
    after = ""
    if one.exact and all(each.exact for each in others):
        after = f" {format_ns(max(0, max(each.last_ns for each in others) - one.last_ns))} later"
    who = "one other" if len(others) == 1 else f"{len(others)} others"
    if over:
        who = "the other one" if len(others) == 1 else f"the other {len(others)}"
    known = {words(each) for each in others}
    alike = len(known) == 1 and others[0].status is not None
    how = f" ({known.pop().removeprefix('was ')})" if alike else ""
    return f"{text}; {who} ended{after}{', waiting for it' * waited}{how}"


def together_words(ended: Mapping[int, Ended], within_ns: int) -> str:
    """How all ranks ended, if they did orderly, or somebody ended the job."""
    numbers = sorted({_signal(each.status or 0) for each in ended.values()} - {0})
    how = " and ".join(_name(number) for number in numbers)
    return f"all {len(ended)} ranks ended within {format_ns(within_ns)}, " + (
        f"by {how}" if how else "orderly"
    )


def time_of_day(at_ns: int) -> str:
    """UTC if it can be that, else the number on the recording's timeline, which may have any
    origin."""
    if not UTC_NS[0] <= at_ns < UTC_NS[1]:
        return f"{at_ns / S:.3f} s"
    return f"{datetime.fromtimestamp(at_ns // S, UTC):%H:%M:%S}Z"


def date_and_time(at_ns: int) -> str:
    """The same with its date and milliseconds."""
    if not UTC_NS[0] <= at_ns < UTC_NS[1]:
        return f"{at_ns / S:.3f} s on its timeline"
    return f"{datetime.fromtimestamp(at_ns // S, UTC):%Y-%m-%d %H:%M:%S}.{at_ns // MS % 1000:03d}Z"


def _signal(status: int) -> int:
    """The signal that ended it; 0: none."""
    return -status if status < 0 else status - _SHELL if _SHELL < status <= _SHELL + 64 else 0


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
