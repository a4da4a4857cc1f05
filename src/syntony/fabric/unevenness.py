"""Overdispersion: how much losses of paths across one component differ beyond chance. Pure.

Packets lost in bursts, a queue that is full now and then, or paths that are probed at other moments
make λ = -ln(1 - loss) differ from path to path, though one component is at fault. Binomial counts
are then overconfident, and a search explains the rest by further components. The unevenness is the
variance of λ between paths relative to its square. With it, a path's counts weigh as much as those
of a binomial with the same variance (quasi-likelihood, Wedderburn 1974).
"""

from __future__ import annotations

import numpy as np

from syntony.fabric.tally import Floats

CLEARLY = 1.2
"""From this ratio on, an unevenness is clearly larger than another one."""
MIN_COUNT = 5.0
"""Paths with fewer expected losses, or fewer expected arrivals, are left out."""
MIN_PATHS = 4
"""With fewer paths than this the unevenness is unknown: a single one would decide."""
_SIGNIFICANCE = 7.0
"""The variance that chance explains must be exceeded by this divided by the root of the number of
paths: for n normal values, the squared median deviation has a standard error of about 2.3 / √n."""
_NORMAL = 1.4826
"""Standard deviation over median absolute deviation, of normal values."""


def weights(sent: Floats, lost: Floats, unevenness: float, dispersion: float = 1.0) -> Floats:
    """The share of each path's counts that is evidence, (paths,); 1 where nothing is uneven.

    The variance of a count is larger by the factor of one plus this many times n (1-p) λ² / p, or
    by the index of dispersion if that is larger.
    """
    arrived = np.maximum(sent - lost, 0.5)
    rate = np.maximum(np.log(sent / arrived), 1e-9)
    uneven = 1.0 + unevenness * arrived * rate**2 / -np.expm1(-rate)
    return np.asarray(1.0 / np.maximum(uneven, dispersion))


def unevenness(sent: Floats, lost: Floats, rates: Floats) -> float:
    """Unevenness of paths with these expected rates λ; 0: chance explains all. (paths,) each.

    Uses the median, so that paths that cross another fault, or not the expected one, have no
    influence as long as they are fewer than half.
    """
    fit = np.minimum(-np.expm1(-rates), np.exp(-rates)) * sent >= MIN_COUNT
    if fit.sum() < MIN_PATHS:
        return 0.0
    sent, lost, rates = sent[fit], lost[fit], rates[fit]
    gone, arrived = -np.expm1(-rates) * sent, np.exp(-rates) * sent
    off = _NORMAL * float(np.median(np.abs(lost - gone) / (arrived * rates)))
    chance = float(np.median(gone / (arrived * sent * rates**2)))
    beyond = off**2 - chance
    return beyond if beyond > chance * _SIGNIFICANCE / np.sqrt(len(sent)) else 0.0
