"""Finds the newest part of a window on which both clocks of a pair kept their rate.

Queues only add to delays. A line on which both directions together take less than their floors is
not the clocks' relation: one of them has changed its rate within the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from syntony.clock.filter import GATE_SIGMAS, OffsetDrift
from syntony.clock.fit import WindowFit
from syntony.clock.floors import Floors, lows_at
from syntony.clock.samples import Clouds

LEAST_MISSING_NS = 10.0
MISSING_SCATTERS = 3.0
"""A round trip may be shorter than its floor by chance: by the larger of this and of so many
scatters of its floors."""
MISSED_SIGMAS = 3.0
"""An offset further from its prediction is a reason to look, too: where stamps scatter, windows
take their slope from the tracker, and the round trip shows little."""
HALVINGS = 4
LEAST_PROBES = 12
"""Per direction, of the smallest part."""

HEATED = 100e-18
"""0.1 ppm/s, per ns: a crystal that begins to be heated."""
SHOWN_NS, MOST_HIDDEN_NS = 20.0, 400.0
"""So much of a bend shows well within a window, and more than the other shows in its slope."""
HIDDEN_SIGMAS = 5.0
"""What may be hidden counts as so many sigmas: few changes begin at the worst instant."""


class EvenPart(NamedTuple):
    """A window, or its newest part, with the line through it."""

    clouds: Clouds
    fit: WindowFit
    ramp: float = 0.0
    """Change of the drift per ns that makes the whole window's round trip as short as it is."""


class KnownPair(NamedTuple):
    """What earlier windows say of this one."""

    floors: Floors
    """Unconfirmed ones may hold a queue that has gone."""
    predicted: OffsetDrift
    """In the middle of the window."""
    noise_ns: float
    """Scatter of the fastest probes, infinite where not known."""


def even_part(
    clouds: Clouds, fit: WindowFit, known: KnownPair, fitted: Callable[[Clouds], WindowFit]
) -> EvenPart:
    """The window where nothing contradicts an even rate, else the largest newest part of it whose
    own line leaves delays at their floors.

    Where none does, floors have become lower: the window as it is.

    Args:
        fitted: a line without a predicted slope.
    """
    floors, predicted, noise_ns = known
    whole = EvenPart(clouds, fit)
    if math.isinf(floors.remaining_var):
        return whole

    def missing_ns(part: Clouds, slope: float, tilt_ns: float = 0.0) -> float:
        short_ns = floors.rtt_ns - lows_at(part, slope, noise_ns).rtt_ns
        chance_ns = max(LEAST_MISSING_NS, MISSING_SCATTERS * floors.scatter_ns)
        return short_ns if short_ns > math.hypot(chance_ns, tilt_ns) else 0.0

    tilt_ns = GATE_SIGMAS * math.sqrt(predicted.cov.drift) * clouds.span_ns / 2
    short_ns = max(missing_ns(clouds, fit.line.slope), missing_ns(clouds, predicted.drift, tilt_ns))
    off_ns = abs(fit.line.theta_ns - floors.asymmetry_ns - predicted.theta_ns)
    sigma_ns = math.sqrt(predicted.total_var + fit.theta_var)
    if short_ns <= 0 and off_ns < MISSED_SIGMAS * sigma_ns:
        return whole
    part, own = clouds, fitted(clouds)
    left_ns = missing_ns(part, own.line.slope)
    for _ in range(HALVINGS):
        half = part.since(part.ref_ns)
        if left_ns <= 0 or min(half.forward, len(half.t) - half.forward) < LEAST_PROBES:
            break
        part, own = half, fitted(half)
        left_ns = missing_ns(part, own.line.slope)
    if left_ns > short_ns / 2:
        return whole
    # A parabola's chord is ramp·span²/8 away from it.
    ramp = 8 * short_ns / clouds.span_ns**2
    theta_var = own.theta_var + left_ns**2
    slope_var = own.slope_var + (2 * left_ns / part.span_ns) ** 2
    return EvenPart(part, own._replace(theta_var=theta_var, slope_var=slope_var), ramp)


def hidden_turn(scatter_ns: float) -> float:
    """1-sigma of what a drift may have turned by without a sign of it in floors that scatter so."""
    hidden_ns = min(MISSING_SCATTERS * scatter_ns, MOST_HIDDEN_NS) - SHOWN_NS
    return math.sqrt(2 * HEATED * max(hidden_ns, 0.0)) / HIDDEN_SIGMAS
