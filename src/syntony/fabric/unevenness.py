"""Overdispersion: losses of one path that come together, and the likelihood of such counts. Pure.

Packets lost in bursts, a queue that is full now and then, or paths that are probed at other moments
make losses differ from path to path more than chance does, though one component is at fault.
Binomial counts are then overconfident, and a search explains the rest by further components. The
unevenness is the correlation of two losses on one path: the count of a path is beta-binomial, with
a variance larger by the factor 1 + (n - 1) unevenness. Paths that lost nothing count accordingly:
that no burst came is less evidence than that none of many single packets was lost.
"""

from __future__ import annotations

import numpy as np

from syntony.fabric.tally import Floats

TRIED = (0.003, 0.01, 0.03, 0.1, 0.3)
"""Values that are compared: with 300 probes on a path, the variance is that of losses of twice to
thirty times their number at once."""
USUAL = 0.03
"""That of losses in bursts of five on paths with 300 probes."""
UNEVEN_NATS = 3.0
"""By this much uneven losses must explain a window better than even ones, which are usual."""


def likelihood(lost: Floats, arrived: Floats, rate: Floats, uneven: float = 0.0) -> Floats:
    """Log-likelihood of paths that lose at these rates λ, without the binomial coefficient."""
    if not uneven:
        return np.asarray(lost * np.log(-np.expm1(-rate)) - arrived * rate)
    from scipy.special import gammaln

    both = 1.0 / uneven - 1.0
    gone, come = both * -np.expm1(-rate), both * np.exp(-rate)
    return np.asarray(
        gammaln(lost + gone)
        - gammaln(gone)
        + gammaln(arrived + come)
        - gammaln(come)
        - (gammaln(lost + arrived + both) - gammaln(both))
    )


def events(lost: Floats, sent: Floats, rate: Floats, uneven: float) -> tuple[Floats, Floats]:
    """How many losses and probes of paths that lose at about this rate are independent, for the
    mean rate of many: their ratio is most likely (the fixed point of Minka 2000)."""
    if not uneven:
        return lost, sent
    from scipy.special import digamma

    both = 1.0 / uneven - 1.0
    gone = both * -np.expm1(-rate)
    return (
        np.asarray(gone * (digamma(lost + gone) - digamma(gone))),
        np.asarray(both * (digamma(sent + both) - digamma(both))),
    )


def entropy(lost: Floats, sent: Floats) -> Floats:
    """The binomial log-likelihood of each path at its own best rate."""
    arrived = sent - lost
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = lost * np.log(lost / sent) + np.where(
            arrived > 0, arrived * np.log(arrived / sent), 0.0
        )
    return np.asarray(parts)
