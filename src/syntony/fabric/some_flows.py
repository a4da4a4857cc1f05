"""Whether the affected paths at a component are some of its flows, or those of another component.
Pure.

A fault of some flows selects them by their ports, so that about the same share of the paths is
affected no matter where else they go. If nearly all affected paths cross one other component, and
nearly all others do not, the fault is there or behind it, perhaps in an unnamed component.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from syntony.fabric.tally import Clean, Crossings, Floats, Index, PartlyLearnt

SINGLED_OUT_NATS = 4.0
"""Evidence needed beyond the logarithm of the number of other components: chance exceeds it for one
fault in 50 at most."""


def is_of_another(
    crossings: Crossings,
    partly: PartlyLearnt,
    well: float,
    clean_of: Callable[[Index], Clean],
    explained: Crossings,
) -> bool:
    """Whether the affected paths at a component are clearly those of another component.

    It is unknown how many of the unaffected paths across the other component cross this one too:
    the maximum is assumed.

    Args:
        crossings: what the affected paths cross, (paths, width).
        partly: what they may cross in addition.
        well: number of paths across the component that lost nothing.
        clean_of: candidates → their paths that lost nothing.
        explained: what further paths across the component cross whose losses other findings
            explain: this fault does not affect them, (paths, width).
    """
    surely = crossings[crossings >= 0].astype(np.intp)
    others, count = np.unique(surely, return_counts=True)
    every, parts, amiss, clean = others, others, count, clean_of(others).paths
    if len(perhaps := partly.pairs(crossings)[1]):
        every, of_all = np.unique(np.concatenate((surely, perhaps)), return_counts=True)
        across = clean_of(every)
        parts = np.concatenate((others, every))
        amiss = np.concatenate((count, of_all))
        clean = np.concatenate((clean, across.paths + across.partly_paths))
    spared = np.bincount(explained[explained >= 0], minlength=int(parts.max(initial=-1)) + 1)
    gain = _gain_apart(
        amiss.astype(np.float64),
        np.minimum(clean, well) + spared[parts],
        float(len(crossings)),
        well + len(explained),
    )
    return bool(gain.max(initial=0.0) > SINGLED_OUT_NATS + np.log(max(len(every), 1)))


def _gain_apart(inside: Floats, well_inside: Floats, amiss: float, well: float) -> Floats:
    """Nats gained by a separate share for the paths across each other component; 0 if that is less
    than the share of the rest."""
    outside, well_outside = amiss - inside, well - well_inside
    apart = _likelihood(inside, well_inside) + _likelihood(outside, well_outside)
    gain = apart - _likelihood(np.array([amiss]), np.array([well]))
    return np.where(inside * well_outside > outside * well_inside, gain, 0.0)


def _likelihood(amiss: Floats, well: Floats) -> Floats:
    """Log-likelihood of these counts, at the share that fits each best."""
    every = np.maximum(amiss + well, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.where(n > 0, n * np.log(n / every), 0.0) for n in (amiss, well)]
    return np.asarray(parts[0] + parts[1])
