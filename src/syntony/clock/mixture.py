"""Expectation–maximisation over three kinds of probes: pure, delayed, early.

A pure probe scatters normally around its direction's floor; a delayed one adds an exponential wait;
an early one is a stamp gone wrong below the floor. Both directions share the slope and the noise,
which are the clocks' and the stamps'; each has a tail and shares of its own, which are its queues'.
How often a probe is pure is learned per coded-probe class, which is how coded pairs count without
being a gate (Dempster, Laird & Rubin 1977).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.envelope import EnvelopeLine
from syntony.clock.purity import CLASSES
from syntony.clock.samples import Clouds

Floats = NDArray[np.float64]

MIN_NOISE_NS = 3.0
"""No stamp is better: a NIC's counter ticks at 1–8 ns."""
MAX_NOISE_NS = 2_000.0
START_NOISE_NS = 20.0
EARLY_NS = 300.0
"""Deepest a wrong stamp lies below the floor: a missed beat of a NIC's counter."""
EARLY_SHARE = 1e-3
ROUNDS = 14
SETTLED = 0.004
"""Change of a floor, in sigmas of the noise, at which rounds end."""
MIN_PURE = 2.0
"""Expected undelayed probes per direction below which a floor is one point, not a cluster."""
PRIOR_PURE = 0.2
_ROOT_TAU = math.sqrt(2 * math.pi)


class Mixture(NamedTuple):
    """Result of EM."""

    line: EnvelopeLine
    noise_ns: float
    pure_forward: float
    """Expected number of pure forward probes."""
    pure_reverse: float
    contrast: float
    """Pure probes over the delayed ones expected within a sigma of the floor, in the worse
    direction."""
    cluster_gap: float
    """Between the mean instants of both directions' pure probes, as a share of the window."""
    log_likelihood: float
    theta_var: float
    """Variance of theta at the window's reference instant, ns²."""
    slope_var: float
    covariance: float
    """Of theta and slope: the pure probes' mean instant need not be the reference instant."""


class _State(NamedTuple):
    slope: float
    forward_ns: float
    reverse_ns: float
    noise_ns: float
    tails_ns: tuple[float, float]
    """Of delayed probes, forward and reverse."""
    share: Floats
    """Probability of being pure, per direction and class (2·CLASSES,)."""

    @property
    def line(self) -> EnvelopeLine:
        return EnvelopeLine(self.slope, self.forward_ns, self.reverse_ns)


class _Moments(NamedTuple):
    """Weighted moments of the pure probes: per direction weight, mean t and mean y."""

    weight: tuple[float, float]
    t: tuple[float, float]
    y: tuple[float, float]
    spread: float
    """Weighted sum of squared t around each direction's own mean."""
    slope: float


def fit_mixture(clouds: Clouds, start: EnvelopeLine, noise_ns: float) -> Mixture | None:
    """EM from a starting line; None when it finds no cluster in one of the directions.

    Args:
        start: a line between the clouds.
        noise_ns: first guess of the pure probes' scatter.
    """
    heights = clouds.heights(start.slope) - _floors(clouds, start.forward_ns, start.reverse_ns)
    noise_ns = min(max(noise_ns, START_NOISE_NS), MAX_NOISE_NS)
    tails_ns = [max(_median_late(side), 5 * noise_ns) for side in _sides(clouds, heights)]
    share = np.full(2 * CLASSES, PRIOR_PURE)
    groups = np.where(clouds.side > 0, clouds.purity, clouds.purity + CLASSES)
    state = _State(*start, noise_ns, (tails_ns[0], tails_ns[1]), share)
    moments: _Moments | None = None
    likelihood = -math.inf
    for _ in range(ROUNDS):
        pure, delayed, likelihood = _expect(clouds, groups, heights, state)
        moments = _moments(clouds, pure)
        if moments is None:
            return None
        before = state
        state = _maximise(clouds, groups, pure, delayed, moments)
        heights = clouds.heights(state.slope) - _floors(clouds, state.forward_ns, state.reverse_ns)
        if state.line.distance_ns(before.line, clouds.span_ns) < SETTLED * state.noise_ns:
            break
    if moments is None:
        return None
    counts = (clouds.forward, len(clouds.t) - clouds.forward)
    return _settled(counts, clouds.span_ns, state, moments, likelihood)


def _floors(clouds: Clouds, forward_ns: float, reverse_ns: float) -> Floats:
    return np.where(clouds.side > 0, forward_ns, reverse_ns)


def _sides(clouds: Clouds, values: Floats) -> tuple[Floats, Floats]:
    return values[: clouds.forward], values[clouds.forward :]


def _median_late(heights: Floats) -> float:
    """Median of the delays above a floor, 0 if there are none."""
    late = heights[heights > 0]
    return float(np.median(late)) if len(late) else 0.0


def _expect(
    clouds: Clouds, groups: NDArray[np.intp], heights: Floats, state: _State
) -> tuple[Floats, Floats, float]:
    """Probability of each probe to be pure and to be delayed, and the log-likelihood.

    `groups` is each probe's direction and class (n + m,).
    """
    share = state.share[groups]
    tail_ns = np.where(clouds.side > 0, *state.tails_ns)
    scaled = heights / state.noise_ns
    pure = share * np.exp(-0.5 * np.minimum(scaled * scaled, 200.0)) / (_ROOT_TAU * state.noise_ns)
    waiting = np.exp(-np.clip(heights / tail_ns, 0.0, 60.0)) / tail_ns
    delayed = (1 - share) * np.where(heights > 0, waiting, 0.0)
    wrong = EARLY_SHARE / EARLY_NS
    early = np.where((heights < 0) & (heights > -EARLY_NS), wrong, wrong * 1e-6)
    total = pure + delayed + early
    return pure / total, delayed / total, float(np.log(total).sum())


def _moments(clouds: Clouds, pure: Floats) -> _Moments | None:
    halves = (slice(0, clouds.forward), slice(clouds.forward, None))
    weight = tuple(float(pure[half].sum()) for half in halves)
    if min(weight) < MIN_PURE:
        return None
    mean_t, mean_y, spread, cross = [], [], 0.0, 0.0
    for half, total in zip(halves, weight, strict=True):
        w, t, y = pure[half], clouds.t[half], clouds.y[half]
        middle_t, middle_y = float(w @ t) / total, float(w @ y) / total
        since = t - middle_t
        spread += float(w @ (since * since))
        cross += float((w * since) @ (y - middle_y))
        mean_t.append(middle_t)
        mean_y.append(middle_y)
    if spread <= 0:
        return None
    return _Moments(
        weight=(weight[0], weight[1]),
        t=(mean_t[0], mean_t[1]),
        y=(mean_y[0], mean_y[1]),
        spread=spread,
        slope=cross / spread,
    )


def _maximise(
    clouds: Clouds, groups: NDArray[np.intp], pure: Floats, delayed: Floats, moments: _Moments
) -> _State:
    forward_ns = moments.y[0] - moments.slope * moments.t[0]
    reverse_ns = -(moments.y[1] - moments.slope * moments.t[1])
    heights = clouds.heights(moments.slope) - _floors(clouds, forward_ns, reverse_ns)
    noise = math.sqrt(float(pure @ (heights * heights)) / float(pure.sum()))
    noise_ns = min(max(noise, MIN_NOISE_NS), MAX_NOISE_NS)
    tails_ns = [
        max(float(late @ np.maximum(side, 0.0)) / max(float(late.sum()), 1e-9), 4 * noise_ns)
        for late, side in zip(_sides(clouds, delayed), _sides(clouds, heights), strict=True)
    ]
    return _State(
        slope=moments.slope,
        forward_ns=forward_ns,
        reverse_ns=reverse_ns,
        noise_ns=noise_ns,
        tails_ns=(tails_ns[0], tails_ns[1]),
        share=_shares(groups, pure, clouds.forward),
    )


def _shares(groups: NDArray[np.intp], pure: Floats, forward: int) -> Floats:
    """Pure share per class, drawn towards its direction's share where a class is thin."""
    overall = np.repeat(
        [min(max(float(part.mean()), 2e-4), 0.999) for part in (pure[:forward], pure[forward:])],
        CLASSES,
    )
    count = np.bincount(groups, minlength=2 * CLASSES)
    found = np.bincount(groups, pure, minlength=2 * CLASSES)
    shares: Floats = np.clip((found + 2 * overall) / (count + 2), 1e-5, 0.999)
    return shares


def _settled(
    counts: tuple[int, int], span_ns: float, state: _State, moments: _Moments, likelihood: float
) -> Mixture:
    slope_var = state.noise_ns**2 / moments.spread
    lever = (moments.t[0] + moments.t[1]) / 2
    theta_var = state.noise_ns**2 * sum(1 / weight for weight in moments.weight) / 4
    delayed = [total - pure for total, pure in zip(counts, moments.weight, strict=True)]
    among = [
        max(late, 1.0) * 2 * state.noise_ns / tail_ns
        for late, tail_ns in zip(delayed, state.tails_ns, strict=True)
    ]
    contrast = min(pure / late for pure, late in zip(moments.weight, among, strict=True))
    return Mixture(
        line=state.line,
        noise_ns=state.noise_ns,
        pure_forward=moments.weight[0],
        pure_reverse=moments.weight[1],
        contrast=contrast,
        cluster_gap=abs(moments.t[0] - moments.t[1]) / span_ns,
        log_likelihood=likelihood,
        theta_var=theta_var + lever**2 * slope_var,
        slope_var=slope_var,
        covariance=-lever * slope_var,
    )
