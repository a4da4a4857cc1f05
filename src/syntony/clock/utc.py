"""Track UTC on the fleet timeline, and steer the fleet slowly to it. Pure.

A layer above the network solve: it takes finished timelines and returns one common change of rate,
so offsets between clocks never depend on an anchor. A two-state Kalman filter follows UTC
minus fleet time, from the readings on which most anchors and its own memory agree. Anchors that are
outvoted, or run at another rate than the memory, are left out and named. Without agreement it holds
over: the frequency stays, the bound grows.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np

from syntony.clock.anchors import Agreement, Vote, agreement, left_out
from syntony.clock.lead import Lead
from syntony.model import ClockState, S, Utc
from syntony.model.clocks import WALK_PPB

START_SPAN_NS = 4 * S
"""Anchors are watched this long before the one step at the start: offset and rate at once."""
START_PATIENCE_NS = 10 * S
"""After this long with some anchors, those still missing are no longer waited for."""
START_RATE_SIGMA_PPB = 1_000.0
"""Doubt of the rate seen at the start: an anchor's own servo may be slewing it."""
APPROACH_NS = 100 * S
"""Time constant with which fleet time is led to UTC."""
MAX_LEAD_PPB = 100.0
"""Fastest approach: a millisecond takes three hours, and no interval is off by more than 1e-7."""
MAX_TURN_PPB_PER_S = 0.5
"""Fastest change of the fleet's rate: a quarter of the temperature ramp that bounds allow for, so
that a host that has not received it yet stays within its bound."""
RATE_GATE_PPB = 1_000.0
"""An anchor that runs this much faster or slower than the memory is being slewed, or has gone."""
RATE_SPAN_NS = 8 * S
MOVED_SOLVES = 10
"""Agreements in a row against the memory after which UTC itself has moved (a leap second, a
corrected source)."""
MIN_NOISE_NS = 20.0
_MEMORY = "memory"
_NOBODY: Mapping[str, str] = MappingProxyType({})


class UtcMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a restart."""

    utc: Utc
    covariance: tuple[float, float, float]
    """Of (offset ns, rate ppb) at `utc.ref_ns`: both variances, then the covariance."""


class UtcServo:
    """Votes in, `Lead` out; `utc` is what hosts are reported.

    Args:
        anchors: how many there are; the start waits for all of them, for a while.
        step_ns: beyond this fleet time is stepped after the start too; 0 for never.
    """

    def __init__(self, anchors: int, step_ns: float = 0.0) -> None:
        self.utc: Utc | None = None
        self._anchors = anchors
        self._step_ns = step_ns
        self._cov = np.zeros((2, 2))
        self._seen: dict[str, deque[tuple[int, float]]] = defaultdict(lambda: deque(maxlen=64))
        self._waiting_since_ns: int | None = None
        self._against = 0
        self._turned_ns: int | None = None
        self._silent = ""

    def step(
        self, cast: Sequence[Vote], fleet_ns: int, silent: Mapping[str, str] = _NOBODY
    ) -> Lead:
        """What the anchors say at `fleet_ns`, which ascends; and why some are silent, by node."""
        self._silent = "; ".join(f"{node} {why}" for node, why in silent.items())
        for vote in cast:
            self._seen[vote.node].append((fleet_ns, vote.offset_ns))
        if self.utc is None or self.utc.state is ClockState.UNKNOWN:
            return self._start(cast, fleet_ns)
        self._predict(self.utc, fleet_ns)
        running = {vote.node: rate for vote in cast if (rate := self._running(vote)) is not None}
        steady = [vote for vote in cast if vote.node not in running]
        found = self._agreed(self.utc, steady)
        reasons = [f"{node} runs {rate / 1e3:+,.1f} ppm off" for node, rate in running.items()]
        if found is None:
            self._hold(steady, reasons)
        elif _MEMORY in found.nodes:
            self._against = 0
            self._take(found, [left_out(steady, found), *reasons])
        else:
            self._moved(found, reasons)
        return self._lead(fleet_ns)

    def lose(self, reason: str) -> None:
        """There is no fleet time to compare with: held, while the bound goes on growing."""
        if self.utc is not None and self.utc.state is ClockState.SYNCHRONIZED:
            held = ClockState.HOLDOVER
            self.utc = msgspec.structs.replace(self.utc, state=held, anchors=(), reason=reason)

    def memory(self) -> UtcMemory | None:
        """State to continue from after a restart."""
        if self.utc is None or self.utc.state is ClockState.UNKNOWN:
            return None
        cov = self._cov
        variances = (float(cov[0, 0]), float(cov[1, 1]), float(cov[0, 1]))
        return UtcMemory(utc=self.utc, covariance=variances)

    def inherit(self, memory: UtcMemory) -> None:
        """Go on where a predecessor stopped: no step at this start."""
        offset_var, rate_var, cross = memory.covariance
        self.utc = memory.utc
        self._cov = np.array([[offset_var, cross], [cross, rate_var]])

    def _start(self, cast: Sequence[Vote], fleet_ns: int) -> Lead:
        found = agreement(cast)
        if found is None:
            self._waiting_since_ns = None
            reason = self._nobody() if not cast else f"{_names(cast)} contradict each other"
            self.utc = _unknown(fleet_ns, reason)
            return Lead(fleet_ns)
        if self._waiting_since_ns is None:
            self._waiting_since_ns = fleet_ns
            self._seen.clear()
            for vote in cast:
                self._seen[vote.node].append((fleet_ns, vote.offset_ns))
        waited_ns = fleet_ns - self._waiting_since_ns
        patient = len(cast) < self._anchors and waited_ns < START_PATIENCE_NS
        spans = [self._rate(node, START_SPAN_NS) for node in found.nodes]
        rates = [rate for rate in spans if rate is not None]
        if patient or waited_ns < START_SPAN_NS or not rates:
            self.utc = _unknown(fleet_ns, f"watching {', '.join(found.nodes)}")
            return Lead(fleet_ns)
        step_ns, rate_ppb = round(found.centre_ns), float(np.median(rates))
        self._cov = np.diag([_noise_var(found), START_RATE_SIGMA_PPB**2])
        self.utc = Utc(
            ref_ns=fleet_ns + step_ns,
            offset_ns=found.centre_ns - step_ns,
            drift_ppb=0.0,
            error_ns=_reach(found, found.centre_ns),
            confirmed_ns=fleet_ns + step_ns,
            drift_sigma_ppb=START_RATE_SIGMA_PPB,
            state=ClockState.SYNCHRONIZED,
            anchors=found.nodes,
            reason=left_out(cast, found),
        )
        self._seen.clear()
        return Lead(fleet_ns, step_ns, rate_ppb)

    def _predict(self, utc: Utc, fleet_ns: int) -> None:
        seconds = (fleet_ns - utc.ref_ns) * 1e-9
        if seconds < 0:
            seconds = 0.0
        move = np.array([[1.0, seconds], [0.0, 1.0]])
        walk = WALK_PPB**2 * seconds
        grown = walk * np.array([[seconds**2 / 3, seconds / 2], [seconds / 2, 1.0]])
        self._cov = move @ self._cov @ move.T + grown
        offset_ns = utc.offset_ns + utc.drift_ppb * seconds
        self.utc = msgspec.structs.replace(utc, ref_ns=fleet_ns, offset_ns=offset_ns)

    def _rate(self, node: str, span_ns: int) -> float | None:
        """Of an anchor against fleet time over the span, ppb; None before it is over."""
        seen = self._seen[node]
        newest_ns, offset_ns = seen[-1]
        for at_ns, earlier_ns in reversed(seen):
            if newest_ns - at_ns >= span_ns:
                return (offset_ns - earlier_ns) / (newest_ns - at_ns) * 1e9
        return None

    def _running(self, vote: Vote) -> float | None:
        """How fast an anchor leaves the memory, ppb, when that is too fast to be true."""
        rate = self._rate(vote.node, RATE_SPAN_NS)
        if rate is None or self.utc is None:
            return None
        off = rate - self.utc.drift_ppb
        doubt = 4 * math.sqrt(self._cov[1, 1])
        return off if abs(off) > RATE_GATE_PPB + doubt else None

    def _agreed(self, utc: Utc, cast: Sequence[Vote]) -> Agreement | None:
        if not cast:
            return None
        # Never narrower than the best anchor: claims are honest at their own width, not below it.
        half_ns = max(utc.bound_ns(utc.ref_ns), min(vote.half_ns for vote in cast))
        found = agreement([*cast, Vote(_MEMORY, utc.offset_ns, half_ns)])
        if found is None or set(found.nodes) == {_MEMORY}:
            return None
        return found

    def _take(self, found: Agreement, reasons: Sequence[str]) -> None:
        utc = self.utc
        if utc is None:
            return
        innovation = found.centre_ns - utc.offset_ns
        gain = self._cov[:, 0] / (self._cov[0, 0] + _noise_var(found))
        offset_ns = utc.offset_ns + float(gain[0]) * innovation
        self._cov = self._cov - np.outer(gain, self._cov[0])
        self._cov = (self._cov + self._cov.T) / 2
        self.utc = msgspec.structs.replace(
            utc,
            offset_ns=offset_ns,
            drift_ppb=utc.drift_ppb + float(gain[1]) * innovation,
            error_ns=_reach(found, offset_ns),
            confirmed_ns=utc.ref_ns,
            drift_sigma_ppb=math.sqrt(self._cov[1, 1]),
            state=ClockState.SYNCHRONIZED,
            anchors=tuple(node for node in found.nodes if node != _MEMORY),
            reason="; ".join(filter(None, reasons)),
        )

    def _hold(self, cast: Sequence[Vote], reasons: Sequence[str]) -> None:
        self._against = 0
        if self.utc is None:
            return
        why = self._nobody()
        if cast:
            why = f"{_names(cast)} contradict" + (" each other" if cast[1:] else "s the memory")
        self.utc = msgspec.structs.replace(
            self.utc,
            state=ClockState.HOLDOVER,
            anchors=(),
            reason="; ".join([*reasons] or [why]),
        )

    def _nobody(self) -> str:
        return f"no anchor is there: {self._silent}" if self._silent else "no anchor is there"

    def _moved(self, found: Agreement, reasons: Sequence[str]) -> None:
        """Most anchors, together, contradict the memory."""
        self._against += 1
        if self.utc is None:
            return
        moved_ns = found.centre_ns - self.utc.offset_ns
        why = f"{', '.join(found.nodes)} say that UTC has moved by {moved_ns * 1e-9:+.9f} s"
        if self._against < MOVED_SOLVES:
            self.utc = msgspec.structs.replace(
                self.utc,
                state=ClockState.HOLDOVER,
                anchors=(),
                reason="; ".join([why, *reasons]),
            )
            return
        self._against = 0
        self._cov[0] = self._cov[:, 0] = 0.0
        self._cov[0, 0] = _noise_var(found)
        self.utc = msgspec.structs.replace(self.utc, offset_ns=found.centre_ns)
        self._take(found, [why, *reasons])

    def _lead(self, fleet_ns: int) -> Lead:
        """The change of fleet time's rate that leads it to UTC, within the limits."""
        utc = self.utc
        if utc is None or utc.state is not ClockState.SYNCHRONIZED:
            self._turned_ns = fleet_ns
            return Lead(fleet_ns)
        step_ns = 0
        if self._step_ns and abs(utc.offset_ns) > self._step_ns:
            step_ns = round(utc.offset_ns)
            self._seen.clear()
        since_s = 1.0 if self._turned_ns is None else (fleet_ns - self._turned_ns) * 1e-9
        self._turned_ns = fleet_ns
        approach_ppb = (utc.offset_ns - step_ns) / (APPROACH_NS * 1e-9)
        wanted_ppb = utc.drift_ppb + min(max(approach_ppb, -MAX_LEAD_PPB), MAX_LEAD_PPB)
        turn_ppb = MAX_TURN_PPB_PER_S * min(max(since_s, 0.0), 10.0)
        rate_ppb = min(max(wanted_ppb, -turn_ppb), turn_ppb)
        self.utc = msgspec.structs.replace(
            utc,
            ref_ns=utc.ref_ns + step_ns,
            confirmed_ns=utc.confirmed_ns + step_ns,
            offset_ns=utc.offset_ns - step_ns,
            drift_ppb=utc.drift_ppb - rate_ppb,
        )
        return Lead(fleet_ns, step_ns, rate_ppb)


def _unknown(fleet_ns: int, reason: str) -> Utc:
    return Utc(
        ref_ns=fleet_ns,
        offset_ns=0.0,
        drift_ppb=0.0,
        error_ns=0.0,
        confirmed_ns=fleet_ns,
        drift_sigma_ppb=0.0,
        reason=reason,
    )


def _names(cast: Sequence[Vote]) -> str:
    return ", ".join(vote.node for vote in cast)


def _reach(found: Agreement, offset_ns: float) -> float:
    """How far the ends of what was agreed on are from an offset."""
    return max(found.high_ns - offset_ns, offset_ns - found.low_ns)


def _noise_var(found: Agreement) -> float:
    """Variance of the agreement's centre: half the interval is two sigmas."""
    return max(MIN_NOISE_NS, (found.high_ns - found.low_ns) / 4) ** 2
