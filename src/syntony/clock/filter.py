"""Offset and drift of one pair of clocks with their covariance: a two-state Kalman filter.

In plain numbers: an agent takes hundreds of steps a minute, and two by two, numpy's calls cost ten
times the arithmetic.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from syntony.model.clocks import BOUND_SIGMAS

WANDER_PPB = 7.0
"""Random walk of two clocks' relative drift per √s: 3–5 ppb each (servers at steady load)."""
GATE_SIGMAS = 4.0
"""Largest deviation from the prediction at which a single direction is accepted."""
LEAST_THETA_VAR = 1e-4
"""(0.01 ns)²: smallest variance of a window, with any stamps."""
LEAST_DRIFT_VAR = 1e-24
"""(0.001 ppb)²: as above."""
MOST_CORRELATED = 0.9999
"""Of offset and drift: a hundredth of the offset's sigma stays where it is reported at its best."""


class Covariance(NamedTuple):
    """Covariance of an offset in ns and a drift (1): elements in ns², ns and 1."""

    theta: float = 0.0
    cross: float = 0.0
    drift: float = 0.0

    def plus(self, other: Covariance) -> Covariance:
        return Covariance(
            self.theta + other.theta, self.cross + other.cross, self.drift + other.drift
        )

    def times(self, factor: float) -> Covariance:
        return Covariance(self.theta * factor, self.cross * factor, self.drift * factor)

    def through(self, a: float, b: float, c: float, d: float) -> Covariance:
        """M·C·Mᵀ of M = ((a, b), (c, d))."""
        top, left = a * self.theta + b * self.cross, c * self.theta + d * self.cross
        beside, below = a * self.cross + b * self.drift, c * self.cross + d * self.drift
        return Covariance(a * top + b * beside, c * top + d * beside, c * left + d * below)

    def sound(self) -> Covariance:
        """A covariance in spite of rounding: positive variances, correlation below 1."""
        theta, drift = max(self.theta, LEAST_THETA_VAR), max(self.drift, LEAST_DRIFT_VAR)
        most = MOST_CORRELATED * math.sqrt(theta * drift)
        return Covariance(theta, max(-most, min(most, self.cross)), drift)


class OffsetDrift(NamedTuple):
    """``theta_ns`` at an instant and its change per ns, with the uncertainty of both."""

    theta_ns: float = 0.0
    drift: float = 0.0
    cov: Covariance = Covariance()
    bias_ns: float = 0.0
    bias_drift: float = 0.0
    """Errors of both if all that round trips exceeded their floor by stood in one direction: the
    response to the biases of what was measured. No number of windows averages them out."""

    @property
    def total_var(self) -> float:
        """Variance of the offset, its bias included."""
        return self.cov.theta + (self.bias_ns / BOUND_SIGMAS) ** 2

    def predict(self, ahead_ns: float, shift_ns: float, ramp: float = 0.0) -> Self:
        """The same `ahead_ns` later, against a base that is `shift_ns` higher.

        `ramp` is the rate, per ns, at which the drift was last seen to change one way.
        """
        walk = (WANDER_PPB * 1e-9) ** 2 * ahead_ns * 1e-9
        # Continuous random walk of the drift, integrated once: Bar-Shalom et al. 2001, §6.2.
        grown = Covariance(walk * ahead_ns**2 / 3, walk * ahead_ns / 2, walk)
        turned, bent_ns = ramp * ahead_ns, ramp * ahead_ns**2 / 2
        ramped = Covariance(bent_ns**2, bent_ns * turned, turned**2)
        return self._replace(
            theta_ns=self.theta_ns + self.drift * ahead_ns - shift_ns,
            bias_ns=self.bias_ns + self.bias_drift * ahead_ns,
            cov=self.cov.through(1.0, ahead_ns, 0.0, 1.0).plus(grown).plus(ramped),
        )

    def inflate(self, theta_var: float) -> Self:
        """The offset is less sure by this variance."""
        return self._replace(cov=self.cov.plus(Covariance(theta=theta_var)))

    def update(
        self, theta_ns: float, drift: float, noise: Covariance, bias: tuple[float, float] = (0, 0)
    ) -> Self:
        """Take a window's measurement of both, of which queues may cause the `bias`."""
        off, turn = theta_ns - self.theta_ns, drift - self.drift
        cov, spread = self.cov, self.cov.plus(noise)
        det = spread.theta * spread.drift - spread.cross**2
        nis = (
            off * off * spread.drift - 2 * off * turn * spread.cross + turn * turn * spread.theta
        ) / det
        if nis / 2 > _MOST_NIS:
            cov = cov.times(nis / 2)
            spread = cov.plus(noise)
            det = spread.theta * spread.drift - spread.cross**2
        a = (cov.theta * spread.drift - cov.cross * spread.cross) / det
        b = (cov.cross * spread.theta - cov.theta * spread.cross) / det
        c = (cov.cross * spread.drift - cov.drift * spread.cross) / det
        d = (cov.drift * spread.theta - cov.cross * spread.cross) / det
        # Joseph's form: the short one loses variances below rounding, and with them the sign.
        kept = cov.through(1 - a, -b, -c, 1 - d).plus(noise.through(a, b, c, d))
        bias_off, bias_turn = bias[0] - self.bias_ns, bias[1] - self.bias_drift
        return self._replace(
            theta_ns=self.theta_ns + a * off + b * turn,
            drift=self.drift + c * off + d * turn,
            cov=kept.sound(),
            bias_ns=self.bias_ns + a * bias_off + b * bias_turn,
            bias_drift=self.bias_drift + c * bias_off + d * bias_turn,
        )

    def update_theta(self, off_ns: float, variance: float, bias_ns: float = 0.0) -> Self:
        """Take a window's measurement of the offset alone, off the prediction by `off_ns`."""
        cov, spread = self.cov, self.cov.theta + variance
        nis = off_ns * off_ns / spread
        if nis > _MOST_NIS:
            cov = cov.times(nis)
            spread = cov.theta + variance
        a, c = cov.theta / spread, cov.cross / spread
        kept = cov.through(1 - a, 0.0, -c, 1.0).plus(
            Covariance(a * variance * a, a * variance * c, c * variance * c)
        )
        return self._replace(
            theta_ns=self.theta_ns + a * off_ns,
            drift=self.drift + c * off_ns,
            cov=kept.sound(),
            bias_ns=self.bias_ns + a * (bias_ns - self.bias_ns),
            bias_drift=self.bias_drift + c * (bias_ns - self.bias_ns),
        )


_MOST_NIS = GATE_SIGMAS**2 / 2
"""Normalised innovation squared, per degree of freedom, beyond which the model's noise was too
small: the prediction is trusted less."""
