"""Served time: the fleet time that programs read, monotonic, slewed, with a bound.

A solved `Timeline` may jump slightly with every solve. Served time does not: it slews to the
newest timeline at a limited rate, and its bound includes the remaining distance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from msgspec import structs

from syntony.clock.steps import Slew
from syntony.model import MS, ClockState, S, Timeline

SLEW_PPB = 200_000.0
"""Slew rate of served time towards solved time: a fifth of chrony's limit. It removes 200 µs in a
second, and time still runs forwards."""
LEAD_NS = 50 * MS
"""A new piece starts this long after it was made: until then readers use the old one, so that time
does not go backwards while the new piece is written."""
SILENCE_NS = 5 * S
"""Without a new timeline for this long (solves come every second) the clock is in holdover."""
MAX_BOUND_NS = 1 * MS
"""Largest bound of served time: reached after 25 minutes of holdover at the worst temperature ramp.
NTP would be better then."""
FOLLOW_NS = 20.0
"""A clock whose rate has changed is followed again once it is this far from served time."""
HISTORY_PIECES = 4096
"""Pieces remembered: over an hour of one per second (SYN_CLOCK_PIECES of the page)."""


class TimelinePiece(NamedTuple):
    """The served timeline from local instant `from_ns` until the next piece."""

    from_ns: int
    line: Timeline
    residual_ns: float
    """Served minus solved at `from_ns`; shrinks at `slew_ppb`."""
    slew_ppb: float
    state: ClockState
    steps: int
    """A different number than in another piece: not one continuous timeline."""

    def left_ns(self, local_ns: int) -> float:
        """Served minus solved."""
        gone_ns = max(0.0, self.slew_ppb * 1e-9 * (local_ns - self.from_ns))
        return math.copysign(max(0.0, abs(self.residual_ns) - gone_ns), self.residual_ns)

    def shift_ns(self, local_ns: int) -> float:
        """Fleet minus local."""
        return self.line.shift_ns(local_ns) + self.left_ns(local_ns)

    def to_fleet_ns(self, local_ns: int) -> int:
        """Served fleet time of a local instant."""
        return local_ns + round(self.shift_ns(local_ns))

    def bound_ns(self, local_ns: int) -> float:
        """Largest error of `to_fleet_ns`; infinite if the state is UNKNOWN or DISRUPTED."""
        if self.state in {ClockState.UNKNOWN, ClockState.DISRUPTED}:
            return math.inf
        return self.line.bound_ns(local_ns) + abs(self.left_ns(local_ns))


class ServedTimeline:
    """One clock's served timeline. Pure: local instants are arguments, and ascend except for steps.

    Args:
        piece: last piece of a predecessor (an agent that restarted); served time continues from it.
        step_ns: served time steps to a timeline that is further away than this, and always if it
            is further away than `MAX_BOUND_NS`.
        epoch: of the clock at that piece.
    """

    def __init__(
        self, piece: TimelinePiece | None = None, *, step_ns: float = math.inf, epoch: int = 0
    ) -> None:
        self._pieces: list[TimelinePiece] = [] if piece is None else [piece]
        self._step_ns = min(step_ns, MAX_BOUND_NS)
        self._taken_ns: int | None = None
        self._left: TimelinePiece | None = None
        """The last piece before the clock left its pace, while no timeline knows of it."""
        self.epoch = epoch
        """Names the clock's last disruption or change of rate."""

    @property
    def newest(self) -> TimelinePiece | None:
        """The piece in force, or about to be."""
        return self._pieces[-1] if self._pieces else None

    def at(self, local_ns: int) -> TimelinePiece | None:
        """The newest piece that begins at or before a local instant; None before all of them."""
        found = (piece for piece in reversed(self._pieces) if piece.from_ns <= local_ns)
        return next(found, None)

    def take(self, line: Timeline, local_ns: int, *, stepped: bool = False) -> TimelinePiece | None:
        """A newly solved timeline; returns the piece that follows, if it is of use.

        A timeline of another epoch of the clock is of none, and one with a bound beyond
        `MAX_BOUND_NS` is worse than holding over.

        Args:
            stepped: fleet time itself was stepped, so that what is served steps as well.
        """
        if line.state is ClockState.UNKNOWN or line.epoch != self.epoch:
            return None
        from_ns = local_ns + LEAD_NS
        if line.state is not ClockState.DISRUPTED and line.bound_ns(from_ns) > MAX_BOUND_NS:
            return None
        self._taken_ns, self._left = local_ns, None
        return self._add(self._towards(line, from_ns, stepped=stepped))

    def tick(self, local_ns: int) -> TimelinePiece | None:
        """Time has passed; returns a piece if that changes the state."""
        last = self.newest
        if last is None or last.state is ClockState.DISRUPTED:
            return None
        if last.bound_ns(local_ns) > MAX_BOUND_NS:
            self._left = None
            return self._add(self._continued(last, local_ns, ClockState.DISRUPTED))
        silent = self._taken_ns is None or local_ns - self._taken_ns > SILENCE_NS
        if silent and last.state is ClockState.SYNCHRONIZED:
            return self._add(self._continued(last, local_ns, ClockState.HOLDOVER))
        return None

    def disrupt(self, from_ns: int, epoch: int) -> TimelinePiece | None:
        """The local clock cannot be extrapolated across `from_ns`; a new epoch of it begins."""
        self.epoch, self._left = epoch, None
        last = self.newest
        if last is None:
            return None
        return self._add(
            last._replace(from_ns=from_ns, state=ClockState.DISRUPTED, steps=last.steps + 1)
        )

    @property
    def following(self) -> bool:
        """Whether served time is held over through a change of the clock's rate."""
        return self._left is not None

    def leave_pace(self, epoch: int) -> None:
        """The local clock's rate has changed, and a new epoch of it begins: `follow` it."""
        self.epoch = epoch
        if self._left is None:
            last = self.newest
            self._left = None if last is None or last.state is ClockState.DISRUPTED else last

    def follow(self, slew: Slew, local_ns: int) -> TimelinePiece | None:
        """Fleet time goes on through a change of the local clock's rate: held over, by what
        CLOCK_MONOTONIC_RAW says of it."""
        left, last = self._left, self.newest
        if left is None or last is None:
            return None
        ahead_ns = local_ns - left.line.ref_ns
        line = structs.replace(
            left.line,
            offset_ns=left.line.offset_ns - slew.phase_ns + slew.rate_ppb * 1e-9 * ahead_ns,
            drift_ppb=left.line.drift_ppb - slew.rate_ppb,
            asymmetry_ns=left.line.asymmetry_ns + slew.tolerance_ns,
        )
        bare = TimelinePiece(local_ns, line, 0.0, SLEW_PPB, ClockState.HOLDOVER, last.steps)
        apart_ns = self._apart(bare)
        if last is not left and abs(apart_ns - last.left_ns(local_ns)) < FOLLOW_NS:
            return None
        return self._add(bare._replace(residual_ns=apart_ns))

    def widen(self, since_ns: int, by_ns: float) -> list[TimelinePiece]:
        """The clock has left its pace at some instant after `since_ns`, and is off by at most
        `by_ns`: the bound of every instant since then grows by that, served time stays.

        Returns:
            The pieces that replace those in force since then.
        """
        in_force: list[TimelinePiece] = []
        for piece in reversed(self._pieces):
            if not in_force or piece.from_ns < in_force[-1].from_ns:
                in_force.append(piece)
            if piece.from_ns <= since_ns:
                break
        return [
            self._add(
                piece._replace(
                    from_ns=max(piece.from_ns, since_ns + 1),
                    line=structs.replace(piece.line, asymmetry_ns=piece.line.asymmetry_ns + by_ns),
                    residual_ns=piece.left_ns(max(piece.from_ns, since_ns + 1)),
                )
            )
            for piece in reversed(in_force)
        ]

    def adjusted(self, from_ns: int, rate_ppb: float) -> TimelinePiece | None:
        """We ourselves made the local clock run faster, by no more than a quartz does.

        Args:
            from_ns: local reading at that.
            rate_ppb: the change.
        """
        last = self.newest
        if last is None:
            return None
        line = last.line
        drift_ppb = line.drift_ppb - rate_ppb
        # The same at from_ns, with the same reference instant, so that the bound is continuous.
        offset_ns = line.offset_ns + rate_ppb * 1e-9 * (from_ns - line.ref_ns)
        line = structs.replace(line, offset_ns=offset_ns, drift_ppb=drift_ppb)
        bare = last._replace(from_ns=from_ns, line=line, residual_ns=0.0)
        return self._add(bare._replace(residual_ns=self._apart(bare)))

    def _towards(self, line: Timeline, from_ns: int, *, stepped: bool) -> TimelinePiece:
        last = self.newest
        bare = TimelinePiece(
            from_ns, line, 0.0, SLEW_PPB, line.state, 0 if last is None else last.steps
        )
        if last is None:
            return bare
        residual_ns = self._apart(bare)
        reported = stepped or last.state is ClockState.DISRUPTED
        if reported or abs(residual_ns) > self._step_ns:
            return bare._replace(steps=last.steps + 1)
        return bare._replace(residual_ns=residual_ns)

    def _apart(self, bare: TimelinePiece) -> float:
        """What keeps served time continuous where a piece begins: the newest may yet have to."""
        last = self._pieces[-1]
        in_force = self.at(bare.from_ns)
        if in_force is None or in_force.steps != last.steps:
            in_force = last
        return in_force.shift_ns(bare.from_ns) - bare.shift_ns(bare.from_ns)

    @staticmethod
    def _continued(last: TimelinePiece, local_ns: int, state: ClockState) -> TimelinePiece:
        from_ns = local_ns + LEAD_NS
        return last._replace(from_ns=from_ns, residual_ns=last.left_ns(from_ns), state=state)

    def _add(self, piece: TimelinePiece) -> TimelinePiece:
        del self._pieces[: -HISTORY_PIECES + 1]
        self._pieces.append(piece)
        return piece
