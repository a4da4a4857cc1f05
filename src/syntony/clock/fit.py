"""One window to one line: the best of several envelopes, or a mixture where it is clearly better.

Every candidate claims a sigma from the window itself. Envelopes assume nothing of the stamps'
noise; the mixture assumes a Gaussian cluster at the floor, which NICs and stamps gone wrong below
the floor call for and which most kernels do not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from syntony.clock.envelope import EnvelopeLine, hard_envelope, lowest, soft_envelope
from syntony.clock.mixture import Mixture, fit_mixture
from syntony.clock.samples import Clouds

START_DEPTHS = (5, 20, 100)
"""Order statistics EM starts from: no single one suits every load (see docs/reference/clock.md)."""
SAME_START_NS = 1.0
"""Starts closer than this at the window's ends lead EM to one place."""
MIN_CLUSTER = 3.0
"""Expected undelayed probes per direction from which their cluster is used, not the envelope."""
CONFIRMED_CLUSTER = 5.0
CONFIRMED_CONTRAST = 1.5
"""A cluster of this many probes per direction, this much denser than the delayed ones among them,
is a floor and not the lower end of a standing queue."""
FLOOR_PROBES = 5
"""How many of the fastest probes per direction, beside the very fastest, judge a hard envelope."""
DEPTH_SPREAD = 4
"""The error of an envelope of the k lowest is estimated from the distance of the 4k lowest."""
SOFT_SIGMAS = 1.12
"""That rise, in sigmas of theta, times the root of k: claims twice the error where delays fall off
exponentially from a hard edge, and the error itself where the edge is half a bell
(`bench/clock_foreign.py`)."""
CLUSTER_SIGMA_SHARE = 0.4
"""A mixture is chosen when it claims no more than this of the best envelope's sigma. Envelopes are
that much worse only where stamps lie alone below the floor, or scatter like a bell around it."""
MIN_SIGMA_NS = 1.0
"""Smallest error of a window: NIC clocks tick at 1–8 ns, and both ends round."""
STAMP_CORRELATION = 0.1
"""Part of the stamps' noise that averaging does not remove: one interrupt, one cache, one tick."""
THIN_CLUSTER = 20.0
"""The variance of a cluster of n probes is 1 + THIN_CLUSTER/n times that of the formula: with few
probes it is uncertain which of them are undelayed. Calibrated on `bench/clock_sim.py`."""


class Prior(NamedTuple):
    """Prediction of this window's slope from earlier ones."""

    slope: float
    sigma: float


class WindowFit(NamedTuple):
    """A window's line with the covariance of (theta at the reference instant, slope)."""

    line: EnvelopeLine
    theta_var: float
    slope_var: float
    """Infinite if the slope was taken from the prior, not measured."""
    covariance: float
    noise_ns: float
    """Scatter of the fastest probes around their floor."""
    clustered: bool
    """The line's floors are centres of clusters, `noise_ns` wide, not lowest points."""
    floor_confirmed: bool
    """Both directions show a dense cluster at their floor, or other `FloorEvidence`."""
    cluster_gap: float = 0.0
    """Distance in time of both directions' minimum-delay clusters, as a share of the window."""
    certain: bool = False
    """`floor_confirmed`, and so clearly that one window is enough."""
    gap_ns: float = 0.0
    """1-sigma of theta because floors lie below the lowest probes (`floor_evidence`)."""


WindowFitter = Callable[[Clouds, Prior | None], WindowFit]
"""`fit_window`, or the native one of `syntony.io.window_fit`."""


def fit_window(clouds: Clouds, prior: Prior | None = None) -> WindowFit:
    """The line between the clouds, with its uncertainty.

    Args:
        clouds: of usable samples.
        prior: where EM starts, and the slope of an envelope if it is known better than from the
            window. It never enters the mixture's own numbers.
    """
    envelopes = _envelopes(clouds)
    starts = _starts(clouds, envelopes, prior)
    found = [fit_mixture(clouds, start, noise_ns) for start, noise_ns in starts]
    piles = [
        mixture
        for mixture in found
        if mixture is not None and min(mixture.pure_forward, mixture.pure_reverse) >= MIN_CLUSTER
    ]
    enveloped = min(
        (_enveloped(clouds, line, depth, prior) for depth, line in envelopes.items()),
        key=lambda fit: fit.theta_var,
    )
    if not piles:
        return enveloped
    clustered = _clustered(clouds, max(piles, key=lambda mixture: mixture.log_likelihood))
    if clustered.theta_var <= CLUSTER_SIGMA_SHARE**2 * enveloped.theta_var:
        return clustered
    return enveloped._replace(
        floor_confirmed=clustered.floor_confirmed, cluster_gap=clustered.cluster_gap
    )


def _envelopes(clouds: Clouds) -> dict[int, EnvelopeLine]:
    """Depth to envelope: the hard one, and those of the few lowest that the window is large for."""
    hard = hard_envelope(clouds)
    fewest = min(clouds.forward, len(clouds.t) - clouds.forward)
    depths = (depth for depth in START_DEPTHS if depth <= fewest // 2)
    return {1: hard} | {depth: soft_envelope(clouds, depth, hard) for depth in depths}


def _starts(
    clouds: Clouds, envelopes: dict[int, EnvelopeLine], prior: Prior | None
) -> list[tuple[EnvelopeLine, float]]:
    """Distinct lines with a first guess of the noise, each."""
    lines = list(envelopes.values())
    if prior is not None:
        lines.insert(1, _at_slope(clouds, prior.slope, START_DEPTHS[0]))
    distinct: list[EnvelopeLine] = []
    for line in lines:
        if all(line.distance_ns(other, clouds.span_ns) > SAME_START_NS for other in distinct):
            distinct.append(line)
    return [(line, _rise(clouds, line)) for line in distinct]


def _at_slope(clouds: Clouds, slope: float, depth: int) -> EnvelopeLine:
    heights = clouds.heights(slope)
    return EnvelopeLine(
        slope,
        lowest(heights[: clouds.forward], depth),
        lowest(heights[clouds.forward :], depth),
    )


def _rise(clouds: Clouds, line: EnvelopeLine) -> float:
    """Distance of the line's floors from the lowest points: the scale of the scatter."""
    heights = clouds.heights(line.slope)
    return max(
        line.forward_ns - float(heights[: clouds.forward].min()),
        line.reverse_ns - float(heights[clouds.forward :].min()),
    )


def _clustered(clouds: Clouds, mixture: Mixture) -> WindowFit:
    least = max(MIN_SIGMA_NS, STAMP_CORRELATION * mixture.noise_ns)
    fewest = min(mixture.pure_forward, mixture.pure_reverse)
    worse = 1 + THIN_CLUSTER / fewest
    return WindowFit(
        line=mixture.line,
        theta_var=worse * mixture.theta_var + least**2,
        slope_var=worse * mixture.slope_var + (least / clouds.span_ns) ** 2,
        covariance=worse * mixture.covariance,
        noise_ns=mixture.noise_ns,
        clustered=True,
        floor_confirmed=fewest >= CONFIRMED_CLUSTER and mixture.contrast >= CONFIRMED_CONTRAST,
        cluster_gap=mixture.cluster_gap,
    )


def _enveloped(clouds: Clouds, line: EnvelopeLine, depth: int, prior: Prior | None) -> WindowFit:
    sigma_ns = _envelope_sigma(clouds, line, depth)
    slope_sigma = 2 * sigma_ns / clouds.span_ns
    slope_var = slope_sigma**2
    if prior is not None and prior.sigma < slope_sigma:
        line = _at_slope(clouds, prior.slope, depth)
        sigma_ns = _envelope_sigma(clouds, line, depth)
        slope_var = math.inf
    return WindowFit(
        line, sigma_ns**2, slope_var, 0.0, sigma_ns, clustered=False, floor_confirmed=False
    )


def _envelope_sigma(clouds: Clouds, line: EnvelopeLine, depth: int) -> float:
    """1-sigma of theta: how far the fastest probes of each direction scatter above the line.

    The lowest few of a direction that rises more slowly from its floor lie higher above it: what
    both directions' few rise unequally over their very lowest counts as error, too.
    """
    heights = clouds.heights(line.slope)
    sides = (heights[: clouds.forward], heights[clouds.forward :])
    if depth == 1:
        rises = [lowest(side, FLOOR_PROBES + 1) - float(side.min()) for side in sides]
        return max(math.hypot(*rises) / 2, MIN_SIGMA_NS)
    lows = [lowest(side, depth) for side in sides]
    rises = [
        lowest(side, DEPTH_SPREAD * depth) - low for side, low in zip(sides, lows, strict=True)
    ]
    above = [low - float(side.min()) for side, low in zip(sides, lows, strict=True)]
    scatter_ns = math.hypot(*rises) / (2 * SOFT_SIGMAS * math.sqrt(depth))
    return max(math.hypot(scatter_ns, (above[0] - above[1]) / 2), MIN_SIGMA_NS)
