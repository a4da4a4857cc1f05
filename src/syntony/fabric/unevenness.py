"""How much the loss of paths across one component differs beyond chance. Pure.

Packets lost in bursts, a queue that is full now and then, or paths that are probed at other moments
make λ = -ln(1 - loss) differ from path to path, though one component is at fault. Binomial counts
then claim more than they know, and a search explains the rest by further components. The unevenness
is the variance of λ between paths relative to its square; with it, a path's counts weigh as much as
those of a binomial with the same variance (quasi-likelihood, Wedderburn 1974).
"""

from __future__ import annotations

import numpy as np

from syntony.fabric.tally import Floats

CLEARLY = 1.2
"""An unevenness is clearly larger than another one from this ratio on."""
MIN_COUNT = 5.0
"""Paths expected to lose fewer, or of which fewer are expected to come, do not say."""
MIN_PATHS = 8
"""Fewer paths than this do not say either."""
_SIGNIFICANCE = 7.0
"""The variance that chance explains must be exceeded by this over the root of the paths: of n
normal values, the squared median deviation has a standard error of some 2.3 / √n."""
_NORMAL = 1.4826
"""Standard deviation over median absolute deviation, of normal values."""


def weights(sent: Floats, lost: Floats, unevenness: float) -> Floats:
    """What share of each path's counts is evidence, (paths,); 1 where nothing is uneven.

    The variance of a count is larger by one and this many times n (1-p) λ² / p.
    """
    came = np.maximum(sent - lost, 0.5)
    rate = np.maximum(np.log(sent / came), 1e-9)
    return np.asarray(1.0 / (1.0 + unevenness * came * rate**2 / -np.expm1(-rate)))


def unevenness(sent: Floats, lost: Floats, rates: Floats) -> float:
    """Of paths that should lose at these rates λ; 0: chance explains all. (paths,) each.

    By the median, so that paths that cross something else as well, or not what they should, do not
    make the others uneven as long as they are fewer than half.
    """
    fit = np.minimum(-np.expm1(-rates), np.exp(-rates)) * sent >= MIN_COUNT
    if fit.sum() < MIN_PATHS:
        return 0.0
    sent, lost, rates = sent[fit], lost[fit], rates[fit]
    gone, came = -np.expm1(-rates) * sent, np.exp(-rates) * sent
    off = _NORMAL * float(np.median(np.abs(lost - gone) / (came * rates)))
    chance = float(np.median(gone / (came * sent * rates**2)))
    beyond = off**2 - chance
    return beyond if beyond > chance * _SIGNIFICANCE / np.sqrt(len(sent)) else 0.0
