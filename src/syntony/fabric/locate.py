"""Which components are to blame, over several windows at once. Pure; the daemons' and the CLI's.

Every window is searched by itself. The price of a finding grows with the logarithm of the number of
windows, so that looking more often does not find more by chance. A component found in several
windows is told once, by the window in which it is clearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syntony.fabric import delay, loss
from syntony.fabric.candidates import Candidates
from syntony.fabric.names import ComponentKind
from syntony.fabric.tally import Floats, Ints, tally_losses
from syntony.model.findings import Finding

BLACKHOLE_LOSS = 0.9
"""Above this a component is called a black hole: stale paths keep it from being exactly 1."""
MAX_ALTERNATIVES = 8


class WindowCounts(NamedTuple):
    """What one window's probes say, per path of the candidates' map; zeros where nothing."""

    name: str
    sent: Ints
    lost: Ints
    change_ns: Floats
    """Median one-way delay less the path's baseline; NaN where either is not known."""
    sigma_ns: Floats
    """1-sigma of that change as far as clocks are concerned."""


class _Ranked(NamedTuple):
    nats: float
    finding: Finding


def locate(candidates: Candidates, windows: Sequence[WindowCounts]) -> tuple[Finding, ...]:
    """Findings, most certain first; empty when nothing is wrong."""
    strictness = float(np.log(max(1, len(windows))))
    best: dict[tuple[str, str], _Ranked] = {}
    for window in windows:
        for ranked in (
            *_losses(candidates, window, loss.STRICTNESS + strictness),
            *_delays(candidates, window, delay.STRICTNESS + strictness),
        ):
            key = (ranked.finding.component, "clock" if ranked.finding.kind == "clock" else "")
            if key not in best or ranked.nats > best[key].nats:
                best[key] = ranked
    ranking = sorted(best.values(), key=lambda ranked: -ranked.nats)
    return tuple(ranked.finding for ranked in ranking)


def _losses(candidates: Candidates, window: WindowCounts, strictness: float) -> list[_Ranked]:
    tally = tally_losses(candidates.crossings, window.sent, window.lost, len(candidates.names))
    clocks = np.array([kind is ComponentKind.CLOCK for kind in candidates.kinds], dtype=np.bool_)
    price = np.where(clocks, np.inf, candidates.price)
    return [
        _Ranked(
            found.nats,
            Finding(
                component=candidates.names[found.candidate],
                kind=candidates.kinds[found.candidate].value,
                fault="blackhole" if found.loss >= BLACKHOLE_LOSS else "loss",
                loss=found.loss,
                delay_ns=0.0,
                confidence=found.confidence,
                window=window.name,
                explains=round(found.lost, 1),
                paths=found.paths,
                alternatives=_alternatives(candidates, found.candidate, found.alternatives),
            ),
        )
        for found in loss.find_losses(tally, price, strictness=strictness)
    ]


def _delays(candidates: Candidates, window: WindowCounts, strictness: float) -> list[_Ranked]:
    found_delays = delay.find_delays(
        candidates.crossings,
        candidates.signs,
        window.change_ns,
        window.sigma_ns,
        candidates.price,
        strictness=strictness,
    )
    return [
        _Ranked(
            found.nats,
            Finding(
                component=candidates.names[found.candidate],
                kind=candidates.kinds[found.candidate].value,
                fault="clock" if _is_clock(candidates, found.candidate) else "delay",
                loss=0.0,
                delay_ns=found.delay_ns,
                confidence=found.confidence,
                window=window.name,
                explains=float(found.paths),
                paths=found.paths,
                alternatives=_alternatives(candidates, found.candidate, found.alternatives),
            ),
        )
        for found in found_delays
    ]


def _is_clock(candidates: Candidates, number: int) -> bool:
    return candidates.kinds[number] is ComponentKind.CLOCK


def _alternatives(candidates: Candidates, chosen: int, others: tuple[int, ...]) -> tuple[str, ...]:
    """Names, those that cannot be told from the chosen one first."""
    numbers = [*candidates.same[chosen]]
    for other in others:
        numbers += [other, *candidates.same[other]]
    names = [
        f"clock of {candidates.names[n]}" if _is_clock(candidates, n) else candidates.names[n]
        for n in numbers
    ]
    return tuple(dict.fromkeys(names))[:MAX_ALTERNATIVES]
