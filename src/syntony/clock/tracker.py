"""Track one pair of clocks over many windows: offset and drift with their covariance, path floors.

A two-state Kalman filter (offset, drift) whose drift walks at random. The round trip decides how a
window is used. If it reaches the remembered floor, both directions are used. Otherwise only a
direction that agrees with the prediction is; if none does, the pair holds over. If the round trip
stays above the floor and both directions show confirmed floors, the path has changed: new floors
are learnt around the predicted offset, so that a longer route in one direction moves no clock.
"""

from __future__ import annotations

import enum
import math
from functools import partial
from typing import NamedTuple

from syntony.clock.even_part import KnownPair, even_part, hidden_turn
from syntony.clock.filter import GATE_SIGMAS, Covariance, OffsetDrift
from syntony.clock.fit import Prior, WindowFit, WindowFitter, fit_window
from syntony.clock.floor_evidence import floor_evidence
from syntony.clock.floors import (
    MIN_SLACK_NS,
    Floors,
    Lows,
    fitted_lows,
    growth_ns,
    low_until_ns,
    lows_at,
)
from syntony.clock.innovation import DriftRamp, Innovations
from syntony.clock.samples import Clouds
from syntony.clock.window_steps import STEP_NS, STEP_SIGMAS, stepped_inside

FIRST_DRIFT_SIGMA = 1e-6
"""Minimum 1-sigma of a first window's drift: one lucky envelope must not fix it."""
AMBIGUOUS_GATES = 2.0
"""An excess up to this many gates could lie in either direction, or in both: no direction is used
alone. Floors of kernel stamps move by tens of ns with the machine's load, in both directions."""
SCATTER_RATIO = 3.0
"""A direction whose lowest points scatter this much more than at the floor has a queue, too."""
REBASE_WINDOWS = 3
"""Windows with confirmed floors above the remembered one after which the floor has moved."""
FLOOR_DOWN = 0.3
FLOOR_UP = 0.05
"""Share of a difference by which a remembered floor follows a lower or a higher one, per window."""
UNPROVEN_SHARE = 0.125
"""1-sigma of the offset, as a share of the round trip, before any window confirmed both floors:
a queue may stand in one of them, and hide up to half the round trip, which is four
of these."""
STEP_CLUSTER_GAP = 0.3
"""A clock step within a window leaves one direction's floor before it and the other's after it,
half a window apart; without one the clusters of both directions lie at the same time."""
GROWTH_SCATTERS = 2.0
"""A round trip that changes within a window by more than so many scatters of its floors is a queue
that fills or drains."""
BIAS_SIGMAS = 3.0
"""A bias counts as so many sigmas, a third more than it is: growth is seen late."""
SHARED = 2.0
"""The solve takes half of its edges' errors of drift for common ones. All edges of a host may have
that of a queue in front of it."""


class WindowUse(enum.StrEnum):
    """How a window was used."""

    FIRST = "first"
    BOTH = "both"
    FORWARD = "forward"
    REVERSE = "reverse"
    HELD = "held"
    REBASED = "rebased"
    STEPPED = "stepped"


class Tracked(NamedTuple):
    """The pair's relation: ``theta(t) = base_ns + theta_ns + drift·(t - ref_ns)``."""

    ref_ns: int
    base_ns: int
    theta_ns: float
    drift: float
    theta_var: float
    """Of random errors."""
    doubt_var: float
    """Of systematic errors that no number of windows shrinks."""
    drift_var: float
    rtt_floor_ns: float
    mode: WindowUse


class PairTracker:
    """Windows of one pair in, its relation out. Not thread-safe."""

    def __init__(self, fit: WindowFitter = fit_window) -> None:
        self._fit = fit
        self._ref_ns = self._base_ns = self._seen_ns = 0
        """Middle of the last window; until when delays have shown the clocks' rate."""
        self._span_ns = 1.0
        self._filter = OffsetDrift()
        self._floors: Floors | None = None
        self._lowest: Floors | None = None
        """The floors before they were taken to have moved."""
        self._above_floor_since_ns: int | None = None
        self._noise_ns = math.inf
        self._clock_changed = self._contradicted = False
        self._bend = DriftRamp()
        self._unexplained = Innovations()

    def forget(self) -> None:
        """A clock has stepped or changed its rate: keep only the floors of the paths."""
        self._clock_changed = True

    def step(self, clouds: Clouds) -> Tracked | None:
        """Take one window; None when it contradicts itself (a clock stepped inside it)."""
        if self._floors is not None and 0 < self._ref_ns - clouds.ref_ns < clouds.span_ns / 2:
            clouds = clouds.since(self._ref_ns - self._span_ns / 2)  # as of the last window
        if self._floors is None or clouds.ref_ns < self._ref_ns:
            return self._begin(clouds, self._fitted(clouds, None), WindowUse.FIRST)
        self._span_ns = clouds.span_ns
        if self._clock_changed:
            return self._resume(clouds, self._floors)
        advance_ns = float(clouds.ref_ns - self._ref_ns)
        self._predict(clouds.ref_ns, clouds.base_ns)
        if stepped_inside(clouds, self._filter.drift, math.sqrt(self._filter.cov.drift)):
            return None
        prior = Prior(self._filter.drift, math.sqrt(self._filter.cov.drift))
        fit = self._fitted(clouds, prior)
        earlier = KnownPair(self._floors, self._filter, self._noise_ns)
        part = even_part(clouds, fit, earlier, partial(self._fitted, prior=None))
        if min(fit.line.rtt_ns, part.fit.line.rtt_ns) < 0:
            return None
        self._predict(part.clouds.ref_ns, part.clouds.base_ns)
        self._span_ns = part.clouds.span_ns
        self._bend.seen = max(self._bend.seen, part.ramp)
        # In how many sliding windows each probe takes part: its noise is divided among them.
        overlap = max(1.0, part.clouds.span_ns / max(advance_ns, 1.0))
        return self._take_window(part.clouds, part.fit, self._floors, overlap)

    def _fitted(self, clouds: Clouds, prior: Prior | None) -> WindowFit:
        fit = self._fit(clouds, prior)
        floors = floor_evidence(clouds, fit.line.slope, clustered=fit.floor_confirmed)
        return fit._replace(
            floor_confirmed=floors.confirmed, certain=floors.certain, gap_ns=floors.gap_ns
        )

    def _begin(self, clouds: Clouds, fit: WindowFit, mode: WindowUse) -> Tracked | None:
        if fit.line.rtt_ns < 0 or (fit.floor_confirmed and fit.cluster_gap > STEP_CLUSTER_GAP):
            return None
        self._ref_ns, self._base_ns = clouds.ref_ns, clouds.base_ns
        self._span_ns = clouds.span_ns
        self._start(fit)
        self._watch_bend(clouds, fit)
        self._noise_ns = fit.noise_ns if fit.clustered else math.inf
        self._learn_floors(fitted_lows(clouds, fit, self._noise_ns), fit)
        return self._tracked(mode)

    def _resume(self, clouds: Clouds, floors: Floors) -> Tracked | None:
        """Restart offset and drift with known floors. Any excess of the round trip over them may be
        queueing in one direction."""
        fit = self._fitted(clouds, None)
        if fit.line.rtt_ns < 0 or (fit.floor_confirmed and fit.cluster_gap > STEP_CLUSTER_GAP):
            return None
        self._clock_changed = False
        self._ref_ns, self._base_ns = clouds.ref_ns, clouds.base_ns
        lows = fitted_lows(clouds, fit, self._noise_ns)
        self._start(fit, floors.asymmetry_ns, self._bias_ns(fit, lows))
        self._watch_bend(clouds, fit)
        excess_ns = lows.rtt_ns - floors.rtt_ns
        if excess_ns < -lows.slack_ns:
            self._learn_floors(lows, fit)
        elif excess_ns > lows.slack_ns:
            self._filter = self._filter.inflate((excess_ns / 2) ** 2)
        return self._tracked(WindowUse.STEPPED)

    def _watch_bend(self, clouds: Clouds, fit: WindowFit) -> None:
        slope, slope_var = fit.line.slope, fit.slope_var
        if math.isinf(slope_var):
            # The predicted slope: windows confirm it as long as no offset contradicts it.
            slope, slope_var = self._filter.drift, self._filter.cov.drift * self._unexplained.factor
        before_ns = self._bent_ns
        self._bend.take(clouds, slope, slope_var)
        if self._floors is not None and self._bent_ns > before_ns:
            # It has lowered the floors since before it was noticed.
            least_ns = self._floors.least_ns + self._bent_ns - before_ns
            self._floors = self._floors._replace(least_ns=least_ns)

    def _start(self, fit: WindowFit, asymmetry_ns: float = 0.0, bias_ns: float = 0.0) -> None:
        slope_var = max(fit.slope_var, FIRST_DRIFT_SIGMA**2)
        if math.isinf(slope_var):
            slope_var = self._filter.cov.drift
        cov = Covariance(fit.theta_var, fit.covariance, slope_var).sound()
        self._filter = OffsetDrift(fit.line.theta_ns - asymmetry_ns, fit.line.slope, cov, bias_ns)
        self._seen_ns = self._ref_ns + round(self._span_ns / 2)
        self._bend = DriftRamp()
        self._unexplained = Innovations()
        self._above_floor_since_ns = None

    def _learn_floors(self, lows: Lows, fit: WindowFit) -> None:
        """Learn floors from one window, assumed to be equal in both directions.

        Only floors confirmed in both directions show that no queue stands in one of them.
        """
        self._lowest = None
        theta_ns = fit.line.theta_ns
        floors = Floors(
            lows.forward_ns - theta_ns,
            lows.reverse_ns + theta_ns,
            lows.rtt_ns + self._bent_ns,
            scatter_ns=lows.worse_ns,
        )
        if fit.floor_confirmed:
            floors = floors.confirm(fit, self._ref_ns)
        doubt_var = min(floors.remaining_var, (fit.line.rtt_ns * UNPROVEN_SHARE) ** 2)
        self._floors = floors._replace(doubt_var=doubt_var)

    def _confirm_floors(self, floors: Floors, fit: WindowFit, span_ns: float) -> None:
        """One more window has confirmed the floors; windows that share probes count once.

        Earlier windows had the same round trip, so it confirms those, too.
        """
        if floors.confirmed and self._ref_ns - floors.confirmed_ns < span_ns:
            return
        floors = floors.confirm(fit, self._ref_ns)
        self._floors = floors._replace(doubt_var=min(floors.doubt_var, floors.remaining_var))

    def _predict(self, ref_ns: int, base_ns: int) -> None:
        ahead_ns = float(ref_ns - self._ref_ns)
        self._filter = self._filter.predict(
            ahead_ns, float(base_ns - self._base_ns), self._bend.seen
        )
        self._ref_ns, self._base_ns = ref_ns, base_ns

    def _take_window(
        self, clouds: Clouds, fit: WindowFit, floors: Floors, overlap: float
    ) -> Tracked | None:
        lows = fitted_lows(clouds, fit, self._noise_ns)
        excess_ns = lows.rtt_ns - floors.rtt_ns
        slack_ns = lows.slack_ns
        if excess_ns > slack_ns:
            return self._tracked(self._take_above_floor(clouds, fit, lows, floors, overlap))
        self._above_floor_since_ns, self._contradicted = None, False
        if excess_ns < -slack_ns and fit.cluster_gap > STEP_CLUSTER_GAP:
            return None
        if self._lowest is not None and -slack_ns > excess_ns:
            lowest, self._lowest = self._lowest, None
            if lows.rtt_ns >= lowest.rtt_ns - slack_ns:
                # No better floor than any before: the longer route was a queue, or is gone, and
                # the asymmetry from before is known.
                self._floors = lowest
                return self._take_window(clouds, fit, lowest, overlap)
        return self._take_at_floor(clouds, fit, lows, floors, overlap)

    def _take_at_floor(
        self, clouds: Clouds, fit: WindowFit, lows: Lows, floors: Floors, overlap: float
    ) -> Tracked | None:
        """A window whose round trip is at the floor, or below it."""
        excess_ns, slack_ns = lows.rtt_ns - floors.rtt_ns, lows.slack_ns
        asymmetry_ns = floors.asymmetry_ns
        lower = lows.rtt_ns + self._bent_ns < floors.least_ns - slack_ns
        if lower:
            # A better floor than any before: assume symmetric paths again.
            self._filter = self._filter.inflate((excess_ns / 2) ** 2 + asymmetry_ns**2)
            asymmetry_ns = 0.0
        elif fit.floor_confirmed and floors.asymmetry_ns == 0:
            self._confirm_floors(floors, fit, clouds.span_ns)
        innovation_ns = fit.line.theta_ns - asymmetry_ns - self._filter.theta_ns
        sigma_ns = math.sqrt(self._filter.cov.theta + fit.theta_var)
        bias_ns = self._bias_ns(fit, lows)
        if abs(innovation_ns) > bias_ns + max(STEP_NS, STEP_SIGMAS * sigma_ns):
            self._start(fit, asymmetry_ns, bias_ns)
            if lower:  # a clock that sent at two rates: no line passes between such clouds
                self._filter = self._filter.inflate(excess_ns**2)
            return self._tracked(WindowUse.STEPPED)
        if lower:
            self._learn_floors(lows, fit)
        self._update_both(clouds, fit, lows, asymmetry_ns, overlap)
        if excess_ns >= -slack_ns:
            self._watch_bend(clouds, fit)
        self._follow_floors(lows)
        if fit.clustered:
            self._noise_ns = fit.noise_ns
        return self._tracked(WindowUse.BOTH)

    def _take_above_floor(
        self, clouds: Clouds, fit: WindowFit, lows: Lows, floors: Floors, overlap: float
    ) -> WindowUse:
        """A window whose round trip never came down to the floor."""
        if self._ambiguous(lows.rtt_ns - floors.rtt_ns, lows):
            if self._contradicts(fit, floors, lows):
                return WindowUse.HELD
            self._update_both(clouds, fit, lows, floors.asymmetry_ns, overlap)
            if fit.floor_confirmed and self._floor_has_moved(clouds.span_ns):
                self._follow_floors(lows, 1.0)
                self._above_floor_since_ns = None
            return WindowUse.BOTH
        mode = self._update_from_one(clouds, fit, floors, overlap)
        if fit.floor_confirmed and self._floor_has_moved(clouds.span_ns):
            self._rebase(lows)
            return WindowUse.REBASED
        if not fit.floor_confirmed:
            self._above_floor_since_ns = None
        return mode

    def _contradicts(self, fit: WindowFit, floors: Floors, lows: Lows) -> bool:
        """Whether the offset differs from the prediction by more than queues explain (half of what
        they add to the round trip). Once is a bad fit; twice in a row is a clock step."""
        off_ns = abs(fit.line.theta_ns - floors.asymmetry_ns - self._filter.theta_ns)
        sigma_ns = math.sqrt(self._filter.cov.theta + fit.theta_var)
        stepped = off_ns > self._bias_ns(fit, lows) + max(STEP_NS, STEP_SIGMAS * sigma_ns)
        return not self._start_again(fit, floors, lows, contradicted=stepped) and stepped

    def _start_again(
        self, fit: WindowFit, floors: Floors, lows: Lows, *, contradicted: bool
    ) -> bool:
        """Start offset and drift anew if this window and the one before contradict them."""
        again = contradicted and self._contradicted
        self._contradicted = contradicted
        if again:
            self._start(fit, floors.asymmetry_ns, self._bias_ns(fit, lows))
        return again

    def _gate_ns(self, scatter_ns: float, noise_var: float) -> float:
        """By how much a measurement may miss the prediction by chance, or by its known bias."""
        return GATE_SIGMAS * math.sqrt(self._filter.total_var + scatter_ns**2 + noise_var)

    def _ambiguous(self, excess_ns: float, lows: Lows) -> bool:
        """Whether the prediction is too uncertain to attribute the excess to one direction."""
        return excess_ns <= AMBIGUOUS_GATES * self._gate_ns(lows.worse_ns, MIN_SLACK_NS**2 / 4)

    def _update_from_one(
        self, clouds: Clouds, fit: WindowFit, floors: Floors, overlap: float
    ) -> WindowUse:
        """Use the direction that agrees with the prediction, if only one does.

        At the predicted slope: the queue in the other direction distorts the window's own.
        """
        lows = lows_at(clouds, self._filter.drift, self._noise_ns)
        ahead_ns = self._filter.theta_ns
        tilt_ns = math.sqrt(self._filter.cov.drift) * clouds.span_ns / 2
        noise_var = tilt_ns**2 + MIN_SLACK_NS**2 / 4
        sides = {
            WindowUse.FORWARD: (
                lows.forward_ns - floors.forward_ns - ahead_ns,
                lows.forward_scatter_ns,
            ),
            WindowUse.REVERSE: (
                floors.reverse_ns - lows.reverse_ns - ahead_ns,
                lows.reverse_scatter_ns,
            ),
        }
        # Queues only add: the offset lies between the two, whatever they are.
        least_ns, most_ns = sides[WindowUse.REVERSE][0], sides[WindowUse.FORWARD][0]
        contradicted = max(least_ns, -most_ns) > self._gate_ns(lows.worse_ns, noise_var)
        self._start_again(fit, floors, lows, contradicted=contradicted)
        if contradicted:
            self._filter = self._filter.inflate(max(abs(least_ns), abs(most_ns)) ** 2)
            return WindowUse.HELD
        sharp_ns = SCATTER_RATIO * floors.scatter_ns + MIN_SLACK_NS
        agreeing = [
            mode for mode, side in sides.items() if self._agrees(*side, noise_var, sharp_ns)
        ]
        if len(agreeing) == 1:
            off_ns, scatter_ns = sides[agreeing[0]]
            # Or this direction's queue grows, too, and moves the offset from the prediction.
            moved_ns = off_ns if agreeing[0] is WindowUse.FORWARD else -off_ns
            bias_ns = self._filter.bias_ns + moved_ns
            until_ns = low_until_ns(clouds, self._filter.drift, lows)
            self._seen_ns = max(self._seen_ns, until_ns[agreeing[0] is WindowUse.REVERSE])
            self._update_theta(off_ns, (scatter_ns**2 + noise_var) * overlap, bias_ns)
            return agreeing[0]
        # Queues in both directions leave half the excess uncertain, the same half in every
        # window: such a window counts only if the prediction is no better than that.
        if not agreeing and self._filter.cov.theta < ((lows.rtt_ns - floors.rtt_ns) / 2) ** 2:
            return WindowUse.HELD
        self._update_both(clouds, fit, lows, floors.asymmetry_ns, overlap)
        return WindowUse.BOTH

    def _agrees(self, off_ns: float, scatter_ns: float, noise_var: float, sharp_ns: float) -> bool:
        """Whether a direction is near the prediction and scatters little: no queue is in it."""
        return abs(off_ns) <= self._gate_ns(scatter_ns, noise_var) and scatter_ns <= sharp_ns

    def _floor_has_moved(self, span_ns: float) -> bool:
        if self._above_floor_since_ns is None:
            self._above_floor_since_ns = self._ref_ns
        return self._ref_ns - self._above_floor_since_ns >= (REBASE_WINDOWS - 1) * span_ns * 0.9

    def _rebase(self, lows: Lows) -> None:
        """Learn new floors around the predicted offset, so that a new route moves no clock."""
        if self._floors is None:
            return
        self._lowest = self._lowest or self._floors
        theta_ns = self._filter.theta_ns
        forward_ns, reverse_ns = lows.forward_ns - theta_ns, lows.reverse_ns + theta_ns
        longer_ns = forward_ns - self._floors.forward_ns - reverse_ns + self._floors.reverse_ns
        self._floors = Floors(
            forward_ns,
            reverse_ns,
            lows.rtt_ns,
            self._floors.asymmetry_ns + longer_ns / 2,
            self._floors.doubt_var + self._filter.cov.theta,
            lows.worse_ns,
            bias_ns=abs(self._filter.bias_ns),
        )
        self._above_floor_since_ns = None

    def _update_both(
        self, clouds: Clouds, fit: WindowFit, lows: Lows, asymmetry_ns: float, overlap: float
    ) -> None:
        bias_ns, bias_drift = self._biases(clouds, fit, lows)
        self._seen_ns = max(self._seen_ns, min(low_until_ns(clouds, fit.line.slope, lows)))
        theta_ns = fit.line.theta_ns - asymmetry_ns
        innovation_ns = theta_ns - self._filter.theta_ns
        theta_var = fit.theta_var + (bias_ns / 2) ** 2
        if math.isinf(fit.slope_var):
            self._update_theta(innovation_ns, theta_var * overlap, bias_ns)
            return
        slope_var = fit.slope_var + (bias_drift / 2) ** 2
        noise = Covariance(theta_var, fit.covariance, slope_var).times(overlap)
        self._unexplained.take(innovation_ns, self._filter.cov.theta + noise.theta)
        self._filter = self._filter.update(theta_ns, fit.line.slope, noise, (bias_ns, bias_drift))

    def _biases(self, clouds: Clouds, fit: WindowFit, lows: Lows) -> tuple[float, float]:
        """Of a window's offset and of its slope, if all that its round trips exceed the least by
        stands in one direction.

        Where a queue grows by g over the window, the line between the clouds may have the slope of
        either direction's floor, which differ by g/span, and lie g/2 off in the window's middle.
        One halfway between makes clusters, at the same time in both, g/√48 wide.
        """
        rise_ns, scatter_ns = growth_ns(clouds, fit.line.slope)
        grown_ns = max(0.0, abs(rise_ns) - GROWTH_SCATTERS * scatter_ns)
        if fit.clustered and fit.cluster_gap < STEP_CLUSTER_GAP:
            grown_ns = min(grown_ns, math.sqrt(48) * fit.noise_ns)
        return (
            self._bias_ns(fit, lows) + grown_ns / 2,
            math.copysign(grown_ns, rise_ns) / clouds.span_ns,
        )

    def _bias_ns(self, fit: WindowFit, lows: Lows) -> float:
        """The most that queues explain of an offset."""
        if self._floors is None:
            return 0.0
        # Where few probes meet no queue, a line through those lies below the lowest few.
        excess_ns = min(lows.rtt_ns, fit.line.rtt_ns) - self._floors.least_ns
        return self._floors.bias_ns + max(0.0, excess_ns) / 2

    @property
    def _bent_ns(self) -> float:
        """By how much a bent clock's floors, at the ends of a straight line, may be too low."""
        return self._bend.seen * self._span_ns**2 / 8

    def _update_theta(self, innovation_ns: float, variance: float, bias_ns: float) -> None:
        self._unexplained.take(innovation_ns, self._filter.cov.theta + variance)
        self._filter = self._filter.update_theta(innovation_ns, variance, bias_ns)

    def _follow_floors(self, lows: Lows, upward: float = FLOOR_UP) -> None:
        """Floors go down quickly and up slowly, each direction's around the tracked offset."""
        if self._floors is None:
            return
        theta_ns = self._filter.theta_ns
        seen = (lows.forward_ns - theta_ns, lows.reverse_ns + theta_ns)
        known = (self._floors.forward_ns, self._floors.reverse_ns)
        followed = [
            old + (FLOOR_DOWN if new < old else upward) * (new - old)
            for old, new in zip(known, seen, strict=True)
        ]
        scatter_ns = self._floors.scatter_ns + upward * (lows.worse_ns - self._floors.scatter_ns)
        lower_ns = min(0.0, lows.rtt_ns + self._bent_ns - self._floors.least_ns)
        self._floors = self._floors._replace(
            forward_ns=followed[0],
            reverse_ns=followed[1],
            scatter_ns=scatter_ns,
            least_ns=self._floors.least_ns + FLOOR_DOWN * lower_ns,
        )

    def _tracked(self, mode: WindowUse) -> Tracked | None:
        """The relation at the instant where offset and drift are uncorrelated."""
        if self._floors is None:
            return None
        since_ns = float(self._ref_ns - self._seen_ns)
        turn = hidden_turn(self._floors.scatter_ns, since_ns + self._span_ns / 2)
        turned = Covariance(drift=turn**2).through(1.0, max(since_ns, 0.0), 0.0, 1.0)
        cov = self._filter.cov.plus(turned)
        bias_drift = self._filter.bias_drift / BIAS_SIGMAS
        bias_ns = self._filter.bias_ns / BIAS_SIGMAS
        bent_ns, ramped = self._bend.line_error_ns(self._ref_ns), self._bend.line_turn(self._ref_ns)
        drift_var = cov.drift + ramped**2 + self._floors.drift_doubt(self._span_ns) ** 2
        back_ns = round(cov.cross / (drift_var + bias_drift**2))
        return Tracked(
            ref_ns=self._ref_ns - back_ns,
            base_ns=self._base_ns,
            theta_ns=self._filter.theta_ns - self._filter.drift * back_ns,
            drift=self._filter.drift,
            theta_var=(cov.theta - (2 * cov.cross - drift_var * back_ns) * back_ns)
            * self._unexplained.factor,
            doubt_var=self._floors.doubt_var + bent_ns**2 + (bias_ns - bias_drift * back_ns) ** 2,
            drift_var=drift_var + (SHARED * bias_drift) ** 2,
            rtt_floor_ns=self._floors.rtt_ns,
            mode=mode,
        )
