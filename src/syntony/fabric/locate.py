"""Which components are to blame, over several windows at once. Pure; the daemons' and the CLI's.

Every window is searched by itself. The price of a finding grows with the logarithm of the number of
windows, so that looking more often does not find more by chance. A fault that several
windows show is reported once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syntony.fabric import delay, loss_search
from syntony.fabric.candidates import Candidates
from syntony.fabric.crossed import PathTally
from syntony.fabric.delay import DelayFinding
from syntony.fabric.directions import Amiss, odds_of_both
from syntony.fabric.loss import LossSearch
from syntony.fabric.loss_search import BLACKHOLE_LOSS, CLOSE_NATS, LossFinding
from syntony.fabric.names import ComponentKind
from syntony.fabric.numbering import REPLIES_REBATE
from syntony.fabric.tally import Floats, Index, Ints, Tally
from syntony.model.findings import Finding

MAX_ALTERNATIVES = 8
_CLOSE = float(np.exp(-CLOSE_NATS))
MIN_REPLIES_LOSS = 0.01
"""A host that answers less often than this late is no news: every host does now and then."""
OVER_NATS = 7.0
"""Newer seconds that speak so strongly against a fault (1,000 to 1) end it."""
CONCLUSIVE_LLR = 40.0
PLAIN_CONFIDENCE = 0.9
"""Beyond these a finding is plain: no longer window can know better."""
PLAIN_LOST = 3.0
"""Lost on each path on average: 1 in 20 paths that suffer so would lose nothing."""
MIN_CABLE_SHARE = 0.01
"""A cable this likely is told beside its direction: whoever looks at the one looks at both."""
SAME_SHARE = 0.5
"""Findings of two windows that share so many of the smaller one's paths are one fault."""


class WindowCounts(NamedTuple):
    """What one window's probes say, per path of the candidates' map; zeros where nothing."""

    name: str
    sent: Ints
    lost: Ints
    change_ns: Floats | None = None
    """Median one-way delay less the path's baseline; NaN where either is not known. None: delays
    are not looked at."""
    sigma_ns: Floats | None = None
    """1-sigma of that change as far as clocks are concerned; None: they are right."""
    overlaps: bool = False
    """Whether the windows after it end when this one does."""
    tally: Tally | None = None
    """Its losses, where they have been counted: then not by `sent` and `lost`."""


class Located(NamedTuple):
    """What was found, and how it was looked for."""

    findings: tuple[Finding, ...]
    """Most certain first; empty when nothing is wrong."""
    searches: tuple[LossSearch, ...]
    """Of the windows that overlap, in their order."""


class _Ranked(NamedTuple):
    nats: float
    sure: float
    """Posterior probability of the candidate and its twins together."""
    candidate: int
    window: int
    finding: Finding
    is_over: bool = False
    """Newer seconds speak against it."""


def locate(candidates: Candidates, windows: Sequence[WindowCounts]) -> tuple[Finding, ...]:
    """Findings alone; arguments as `search`."""
    return search(candidates, windows).findings


def search(candidates: Candidates, windows: Sequence[WindowCounts]) -> Located:
    """Look for what is to blame in every window.

    Args:
        candidates: what can be to blame.
        windows: shortest first where they end together; each is judged by the ones before it.
    """
    threshold = float(np.log(max(1, len(windows))))
    lost: list[_Ranked] = []
    late: list[_Ranked] = []
    searches: list[LossSearch] = []
    for number, window in enumerate(windows):
        one = _search(candidates, window, loss_search.STRICTNESS + threshold)
        found = _losses(candidates, window, number, one)
        lost += [each._replace(is_over=_is_over(each, searches)) for each in found]
        if window.overlaps:
            searches.append(one)
        late += _delays(candidates, window, number, delay.STRICTNESS + threshold)
    chosen = [*_consolidated(candidates, lost), *_consolidated(candidates, late)]
    ranked = sorted(chosen, key=lambda each: -each.nats)
    return Located(tuple(each.finding for each in ranked), tuple(searches))


def _is_over(found: _Ranked, shorter: Sequence[LossSearch]) -> bool:
    """Whether newer seconds speak against a fault that a longer window tells of."""
    return any(each.gain_at(found.candidate, found.finding.loss) < -OVER_NATS for each in shorter)


def _consolidated(candidates: Candidates, found: Sequence[_Ranked]) -> list[_Ranked]:
    """One finding for each fault: the shortest window in which it is plain, else the clearest.

    A window that began before the fault did mixes it with better times, and may name a part of
    what is to blame, or more than that. Findings of one window are different faults; of two
    windows, the second yields if most paths of either cross the other, or if either may be the
    other, unless its own window shows the first as well.
    """
    chosen: list[_Ranked] = []

    def order(each: _Ranked) -> tuple[bool, bool, float]:
        plain = each.nats > CONCLUSIVE_LLR and each.sure > PLAIN_CONFIDENCE
        # A host slow to answer is reported only where no window shows a part that explains it.
        habit = candidates.kinds[each.candidate] is ComponentKind.REPLIES
        return (habit, False, each.window) if plain else (habit, True, -each.nats)

    for each in sorted((each for each in found if not each.is_over), key=order):
        besides = [other for other in found if other.window == each.window]
        if not any(_may_be(candidates, each, other, besides) for other in chosen):
            chosen.append(each)
    return chosen


def _may_be(
    candidates: Candidates, one: _Ranked, other: _Ranked, besides: Sequence[_Ranked]
) -> bool:
    """Whether a finding may be the same fault as one of another window, rather than one of
    `besides`, all of its own window, is."""
    if one.window == other.window:
        return False
    if other.finding.component in one.finding.alternatives:
        return True
    if one.finding.component in other.finding.alternatives:
        return True
    share = _shared(candidates, one.candidate, other.candidate)
    nearer = (
        each.candidate == other.candidate
        or _shared(candidates, each.candidate, other.candidate) > share
        for each in besides
        if each is not one
    )
    return share >= SAME_SHARE and not any(nearer)


def _shared(candidates: Candidates, one: int, other: int) -> float:
    """Of the one with fewer paths, the share that crosses the other, too; all if it has none."""
    a, b = (candidates.across(number) for number in (one, other))
    fewer = min(a.sum(), b.sum())
    return float((a & b).sum() / fewer) if fewer else 1.0


def _search(candidates: Candidates, window: WindowCounts, threshold: float) -> LossSearch:
    tally = window.tally or PathTally(candidates.crossed, window.sent, window.lost)
    return LossSearch(
        tally,
        _price(candidates, tally),
        threshold=threshold,
        structure=candidates,
    )


def _price(candidates: Candidates, tally: Tally) -> Floats:
    """What each costs in advance. One of parallel cables is not found where no path that lists it
    lost anything: paths of which less is known may take any."""
    several = np.flatnonzero(candidates.one_of > 1)
    if not len(several):
        return candidates.loss_price
    price = candidates.loss_price.copy()
    lossy = np.zeros(len(price), dtype=np.bool_)
    lossy[tally.crossings[tally.crossings >= 0]] = True
    for number in several.tolist():
        if not lossy[candidates.whole_of(number)]:
            price[number] = np.inf
    return price


def _widened(
    candidates: Candidates,
    found: LossFinding | DelayFinding,
    every: Sequence[LossFinding | DelayFinding],
    amiss: Amiss,
) -> LossFinding | DelayFinding:
    """The same with its cable as an alternative as likely as what suffers in the other direction
    says; the cable where that leaves little doubt."""
    cable = candidates.cable_of(found.candidate)
    if cable is None:
        return found
    nats = odds_of_both(amiss, found.candidate, cable, {each.candidate for each in every})
    both = float(1 / (1 + np.exp(-np.clip(nats, -50, 50))))
    ranked = (1 - both, found.candidate), (both, cable.whole)
    (first, candidate), (second, other) = ranked if 1 - both > _CLOSE else ranked[::-1]
    close = [(other, second * found.confidence)] if second > MIN_CABLE_SHARE else []
    others = zip(found.alternatives, found.probabilities, strict=True)
    suspects = [*close, *(each for each in others if each[0] != cable.whole)]
    return found._replace(
        candidate=candidate,
        confidence=first * found.confidence,
        alternatives=tuple(each for each, _ in suspects),
        probabilities=tuple(share for _, share in suspects),
    )


def _joined(candidates: Candidates, findings: Sequence[LossFinding]) -> list[LossFinding]:
    """The same with one finding, of the cable, for two directions of it that lose at different
    rates, or a cable and one direction of it: one repair serves both."""
    joined: dict[int, LossFinding] = {}
    for each in findings:
        whole = candidates.both_directions(each.candidate)
        place = each.candidate if whole is None else whole
        other = joined.get(place)
        joined[place] = each if other is None else _of_cable(other, each, place)
    return list(joined.values())


def _of_cable(one: LossFinding, other: LossFinding, cable: int) -> LossFinding:
    """What is found for two parts of a cable, or for it and a part, as the cable."""
    surer = max(one, other, key=lambda each: each.confidence)
    parts = {one.candidate, other.candidate, cable}
    odds = dict(zip(surer.alternatives, surer.probabilities, strict=True))
    rivals = {rival: share for rival, share in odds.items() if rival not in parts}
    paths = one.paths + other.paths
    return surer._replace(
        candidate=cable,
        loss=(one.loss * one.paths + other.loss * other.paths) / max(paths, 1),
        nats=one.nats + other.nats,
        confidence=surer.confidence + sum(odds.values()) - sum(rivals.values()),
        lost=one.lost + other.lost,
        paths=paths,
        alternatives=tuple(rivals),
        probabilities=tuple(rivals.values()),
    )


def _losses(
    candidates: Candidates, window: WindowCounts, number: int, search: LossSearch
) -> list[_Ranked]:
    tally = search.tally
    joined = _joined(candidates, search.findings)
    named = [
        _widened(candidates, each, search.findings, _lossy(tally, each.candidate))
        for each in joined
    ]
    return [
        _Ranked(
            found.nats,
            found.confidence,
            found.candidate,
            number,
            Finding(
                component=candidates.names[name.candidate],
                kind=candidates.kinds[name.candidate].value,
                fault="blackhole" if found.loss >= BLACKHOLE_LOSS else "loss",
                loss=found.loss,
                delay_ns=0.0,
                window=window.name,
                explains=round(found.lost, 1),
                paths=found.paths,
                flows=found.flows,
                **_suspects(candidates, name)._asdict(),
            ),
        )
        for found, name in zip(joined, named, strict=True)
        if candidates.kinds[found.candidate] is not ComponentKind.REPLIES
        or (found.loss >= MIN_REPLIES_LOSS and found.nats >= REPLIES_REBATE)
    ]


def _delays(
    candidates: Candidates, window: WindowCounts, number: int, threshold: float
) -> list[_Ranked]:
    if window.change_ns is None:
        return []
    sigma_ns = np.zeros(len(window.sent)) if window.sigma_ns is None else window.sigma_ns
    findings = delay.find_delays(
        candidates.crossed,
        window.change_ns,
        sigma_ns,
        candidates.penalty,
        threshold=threshold,
    )
    named = [
        _widened(candidates, each, findings, _late(candidates, window.change_ns, each.delay_ns))
        for each in findings
    ]
    return [
        _Ranked(
            found.nats,
            found.confidence,
            found.candidate,
            number,
            Finding(
                component=candidates.names[name.candidate],
                kind=candidates.kinds[name.candidate].value,
                fault="clock" if _is_clock(candidates, found.candidate) else "delay",
                loss=0.0,
                delay_ns=found.delay_ns,
                window=window.name,
                explains=float(found.paths),
                paths=found.paths,
                **_suspects(candidates, name)._asdict(),
            ),
        )
        for found, name in zip(findings, named, strict=True)
    ]


def _lossy(tally: Tally, candidate: int) -> Amiss:
    """Paths that lost anything; plainly, where those across the candidate lost several each."""
    across = tally.lost[(tally.crossings == candidate).any(axis=1)]
    plain = len(across) > 0 and float(across.mean()) >= PLAIN_LOST
    return Amiss(tally.crossings, tally.paths, lambda each: tally.clean_of(each).paths, plain)


def _late(candidates: Candidates, change_ns: Floats, delay_ns: float) -> Amiss:
    """Paths that became slower, by more than half of what one part adds."""
    known, crossed = np.isfinite(change_ns), candidates.crossed
    late = change_ns > delay_ns / 2
    timely = known & ~late

    def well(candidates: Index) -> Floats:
        counts = [np.count_nonzero(timely & crossed.by(each)) for each in candidates.tolist()]
        return np.array(counts, dtype=np.float64)

    return Amiss(crossed.crossings[late], int(np.count_nonzero(known)), well, plain=True)


def _is_clock(candidates: Candidates, number: int) -> bool:
    return candidates.kinds[number] is ComponentKind.CLOCK


class _Suspects(NamedTuple):
    """The fields of a `Finding` that say who it may be."""

    confidence: float
    alternatives: tuple[str, ...]
    probabilities: tuple[float, ...]
    twins: int
    one_of: int
    both_ways: bool


def _suspects(candidates: Candidates, found: LossFinding | DelayFinding) -> _Suspects:
    """The found one's twins first, then its rivals with theirs; each at its share. One of parallel
    cables and all of them go by one name."""
    number = found.candidate
    twins = [_suspect(candidates, twin, found.confidence) for twin in candidates.same[number]]
    if isinstance(found, LossFinding):
        part_share = found.parts_probability / max(1, len(found.parts))
        twins += [(candidates.place_of(part), part_share) for part in found.parts]
    name, confidence = _suspect(candidates, number, found.confidence)
    odds = {name: confidence}
    for twin, probability in twins:
        odds[twin] = odds.get(twin, 0.0) + probability
    together = len(odds) - 1
    for other, probability in zip(found.alternatives, found.probabilities, strict=True):
        for each in (other, *candidates.same[other]):
            rival, share = _suspect(candidates, each, probability)
            odds[rival] = odds.get(rival, 0.0) + share
    confidence = odds.pop(name)
    return _Suspects(
        confidence=confidence,
        alternatives=tuple(odds)[:MAX_ALTERNATIVES],
        probabilities=tuple(odds.values())[:MAX_ALTERNATIVES],
        twins=min(together, MAX_ALTERNATIVES),
        one_of=int(candidates.one_of[number]),
        both_ways=bool(candidates.both_ways[number]),
    )


def _suspect(candidates: Candidates, number: int, probability: float) -> tuple[str, float]:
    """Its name, and its share of what it and its twins have."""
    return _reported_as(candidates, number), probability * float(candidates.shares[number])


def _reported_as(candidates: Candidates, number: int) -> str:
    name = candidates.names[number]
    return f"clock of {name}" if _is_clock(candidates, number) else name
