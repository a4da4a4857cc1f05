"""Whether packets are lost in bursts, from the counts of paths across one component. Pure.

A path that loses ten packets at once says no more of what it crosses than one that loses one. In a
window this shows in the paths across one component: some lose nothing, though several are expected,
and others many. Their counts are compared with negative binomial distributions of several ratios of
variance to mean (the index of dispersion): 1 for independent losses, about twice the mean length
of bursts else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from syntony.fabric.loss_gains import SOME_FLOWS_PRICE
from syntony.fabric.tally import Floats

RATIOS = 1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 10.0, 15.0, 22.0
SEVERAL = 3.0
"""From this ratio on, packets are lost at least two at a time."""
CLOSE_NATS = 3.0
"""The least ratio is taken that explains the counts at most so much worse than the best one."""
OTHER_CAUSE_NATS = 14.0
"""Counts that differ from those expected by more than this have another cause."""


class Across(NamedTuple):
    """Paths across one component; (n,) each."""

    expected: Floats
    """Packets that each is expected to lose, …"""
    lost: Floats
    """… and those that it lost."""
    paths: Floats
    """Number of such paths."""
    flows: float = 1.0
    """Share of the paths that a fault of some flows would affect; its losses are independent."""


def dispersion_index(findings: Iterable[Across]) -> float:
    """Variance of the number of lost packets over its mean."""
    gains = _gains(findings)
    return RATIOS[int(np.argmax(gains >= gains.max() - CLOSE_NATS))]


def are_independent(findings: Iterable[Across]) -> bool:
    """Whether the counts contradict bursts of several packets."""
    return bool(_gains(findings)[np.array(RATIOS) >= SEVERAL].max() < -CLOSE_NATS)


def _gains(findings: Iterable[Across]) -> Floats:
    """Log-likelihood of all counts with each ratio, relative to independent losses."""
    return np.asarray(sum(map(_gains_of, findings), np.zeros(len(RATIOS))))


def _gains_of(across: Across) -> Floats:
    mean, lost = np.maximum(across.expected, 1e-9), across.lost
    least = _poisson(np.maximum(lost, 1e-9), lost) - OTHER_CAUSE_NATS
    plain, price = _poisson(mean, lost), 0.0
    if across.flows < 1:
        hit = np.log(across.flows) + _poisson(mean / across.flows, lost)
        spared = np.where(lost > 0, -np.inf, np.log1p(-across.flows))
        plain, price = np.logaddexp(hit, spared), SOME_FLOWS_PRICE
    plain = np.maximum(plain, least)
    bursts = [np.maximum(_negative_binomial(mean, lost, ratio), least) for ratio in RATIOS[1:]]
    more = [float(((each - plain) * across.paths).sum()) + price for each in bursts]
    return np.array([0.0, *more])


def _poisson(mean: Floats, lost: Floats) -> Floats:
    return np.asarray(lost * np.log(mean) - mean - _log_gamma(lost + 1))


def _negative_binomial(mean: Floats, lost: Floats, ratio: float) -> Floats:
    size = mean / (ratio - 1)
    ways = _log_gamma(lost + size) - _log_gamma(size) - _log_gamma(lost + 1)
    return np.asarray(ways + lost * np.log1p(-1 / ratio) - size * np.log(ratio))


def _log_gamma(value: Floats) -> Floats:
    """Logarithm of the gamma function: Stirling's series, for the argument increased by six."""
    more = value + 6
    between = np.log([value + step for step in range(6)]).sum(axis=0)
    series = (more - 0.5) * np.log(more) - more + 0.5 * np.log(2 * np.pi) + 1 / (12 * more)
    return np.asarray(series - between)
