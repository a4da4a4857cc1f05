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
from syntony.clock.window_steps import STEP_NS
from syntony.model.clocks import BOUND_SIGMAS, SWING_PPB

LEAST_MISSING_NS = 10.0
MISSING_SCATTERS = 3.0
"""A round trip may be shorter than its floor by chance: by the larger of this and of so many
scatters of its floors."""
MISSED_SIGMAS = 3.0
"""An offset further from its prediction is a reason to look, too: where stamps scatter, windows
take their slope from the tracker, and the round trip shows little."""
TURNED_SHARE, TURNED_SIGMAS = 0.5, 3.0
"""A bend that makes round trips so short turns the newest part's slope away from the whole
window's: by this share of what it should at least, and by so many sigmas. Round trips that are
short while the slope stays are lower floors: small parts have higher ones by chance."""
HALVINGS = 4
LEAST_PROBES = 12
"""Per direction, of the smallest part."""
HEATED = 100e-18
"""0.1 ppm/s, per ns: a crystal that begins to be heated."""
SHOWN_NS, MOST_HIDDEN_NS = 20.0, 400.0
"""So much of a bend shows well within a window, and more than the other shows in its slope."""
HIDDEN_SIGMAS = 7.0
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
    bent_ns = missing_ns(clouds, fit.line.slope)
    short_ns = max(bent_ns, missing_ns(clouds, predicted.drift, tilt_ns))
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
    turned = abs(own.line.slope - fit.line.slope)
    # Chords of a parabola over a window and over its newest half: ramp·span/4 apart.
    least_turn = max(
        TURNED_SHARE * 2 * bent_ns / clouds.span_ns, TURNED_SIGMAS * math.sqrt(own.slope_var)
    )
    if left_ns > short_ns / 2 or turned < least_turn or _stepped(part, own, clouds, known):
        return whole
    # A parabola's chord is ramp·span²/8 away from it. Where the part goes on as predicted, it was
    # the whole window's line that was wrong.
    ramp = min(8 * short_ns / clouds.span_ns, 4 * abs(own.line.slope - predicted.drift))
    ramp /= clouds.span_ns
    theta_var = own.theta_var + left_ns**2
    slope_var = own.slope_var + (2 * left_ns / part.span_ns) ** 2
    return EvenPart(part, own._replace(theta_var=theta_var, slope_var=slope_var), ramp)


def _stepped(part: Clouds, own: WindowFit, clouds: Clouds, known: KnownPair) -> bool:
    """Whether no change of rate since the window's beginning leads from the prediction to a part's
    offset."""
    since_ns, predicted = part.ref_ns - clouds.ref_ns, known.predicted
    off_ns = own.line.theta_ns - known.floors.asymmetry_ns
    off_ns -= predicted.theta_ns + predicted.drift * since_ns
    turned_ns = abs(own.line.slope - predicted.drift) * (clouds.span_ns / 2 + since_ns)
    sigma_ns = math.sqrt(predicted.total_var + own.theta_var)
    return abs(off_ns) > turned_ns + max(STEP_NS, MISSED_SIGMAS * sigma_ns)


def hidden_turn(scatter_ns: float, unseen_ns: float) -> float:
    """1-sigma of what a drift may have turned by without a sign of it: in floors that scatter so,
    and since delays last came down to them, where the bound covers a heated crystal."""
    hidden_ns = min(MISSING_SCATTERS * scatter_ns, MOST_HIDDEN_NS) - SHOWN_NS
    hidden = math.sqrt(2 * HEATED * max(hidden_ns, 0.0)) / HIDDEN_SIGMAS
    unseen = min(HEATED * max(unseen_ns, 0.0), SWING_PPB * 1e-9) / BOUND_SIGMAS
    return math.hypot(hidden, unseen)
