"""Which components are at fault, over several windows at once. Pure; used by the controller and
CLI.

Every window is searched separately. The penalty of a finding grows with the logarithm of the number
of windows, so that more windows do not find more by chance. A fault that several windows show is
reported once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syntony.fabric import delay, loss_search
from syntony.fabric.candidates import Candidates
from syntony.fabric.crossed import PathTally
from syntony.fabric.delay import SlowParts
from syntony.fabric.delay_search import DelayFinding
from syntony.fabric.directions import AffectedPaths, odds_of_both
from syntony.fabric.effort import DELAYS, Effort
from syntony.fabric.loss import LossSearch
from syntony.fabric.loss_search import BLACKHOLE_LOSS
from syntony.fabric.loss_suspects import LossFinding
from syntony.fabric.names import ComponentKind
from syntony.fabric.numbering import REPLIES_REBATE
from syntony.fabric.tally import NO_CANDIDATES, Floats, Index, Ints, Tally
from syntony.model.findings import Finding

MAX_ALTERNATIVES = 8
MIN_REPLIES_LOSS = 0.01
"""A host that answers late less often than this is not reported: every host does now and then."""
LEAST_SHARE = 0.5
"""A window gets this part of an even share of the work, if those before it took more than
theirs."""
OVER_NATS = 7.0
"""Newer seconds that contradict a fault this strongly (1,000 to 1) end it."""
CONCLUSIVE_LLR = 40.0
PLAIN_CONFIDENCE = 0.9
"""From these values on a finding is conclusive: no longer window can improve it."""
AS_SURE = 0.01
"""… or if no window is surer of one of its suspects by more than this."""
PLAIN_LOST = 3.0
"""Average losses per path: with the same rate, 1 path in 20 would lose nothing."""
MIN_CABLE_SHARE = 0.01
"""From this probability on, a cable is named together with its direction: the same inspection
covers both."""
SAME_SHARE = 0.5
"""Findings of two windows that share this much of the smaller one's paths are the same fault."""


class WindowCounts(NamedTuple):
    """One window's counts, per path of the candidates' map; zeros for paths without data."""

    name: str
    sent: Ints
    lost: Ints
    change_ns: Floats | None = None
    """Median one-way delay minus the path's baseline; NaN where either is unknown. None: delays are
    not evaluated."""
    sigma_ns: Floats | None = None
    """1-sigma of that change because of clock errors; None: clocks are exact."""
    overlaps: bool = False
    """Whether the windows after it end at the same time."""
    between: bool = False
    """Whether only delays between switches count: a busy host may be late for seconds."""
    tally: Tally | None = None
    """Its losses, if already counted: then `sent` and `lost` are not used."""


class Unexplained(NamedTuple):
    """Losses of one window, and delays, without a cause: the search for causes was cut at its
    limit."""

    lost: float = 0.0
    """Number of lost probes."""
    window: str = ""
    """Empty if no search for losses was cut."""
    late: int = 0
    """Number of paths with a delay."""


class Located(NamedTuple):
    """Findings, and the searches that led to them."""

    findings: tuple[Finding, ...]
    """Most certain first; empty if there is no fault."""
    searches: tuple[LossSearch, ...]
    """One for each of the windows that overlap, in their order."""
    unexplained: Unexplained = Unexplained()
    late_nats: float = 0.0
    """Evidence of the delays among the findings."""


class _Ranked(NamedTuple):
    nats: float
    sure: float
    """Posterior probability of the candidate and its twins together."""
    candidate: int
    window: int
    finding: Finding
    is_over: bool = False
    """Whether newer seconds contradict it."""


def locate(candidates: Candidates, windows: Sequence[WindowCounts]) -> tuple[Finding, ...]:
    """Only the findings; arguments as `search`."""
    return search(candidates, windows).findings


def search(
    candidates: Candidates,
    windows: Sequence[WindowCounts],
    effort: Effort | None = None,
    known: Index = NO_CANDIDATES,
) -> Located:
    """Search every window for components at fault.

    Args:
        candidates: possible causes.
        windows: shortest first where they end together; each is judged by the ones before it, and
            gets what they leave of its share of the work.
        effort: limit on the work for all of them; None: none.
        known: as `LossSearch`.
    """
    effort = effort or Effort()
    unexplained, unexplained_late, steps = Unexplained(), 0, effort.left
    least = steps * LEAST_SHARE / max(len(windows), 1)
    threshold = float(np.log(max(1, len(windows))))
    lost: list[_Ranked] = []
    late: list[_Ranked] = []
    searches: list[LossSearch] = []
    for number, window in enumerate(windows):
        # A window of delays has no losses.
        rest = sum(each.change_ns is None for each in windows[number:])
        part = effort.part(1 / max(rest, 1), least=least if rest else steps * DELAYS)
        one = _search(candidates, window, loss_search.STRICTNESS + threshold, part, known)
        slow = _slow_parts(candidates, window, delay.STRICTNESS + threshold, part)
        effort.take(part.spent)
        unexplained_late = max(unexplained_late, slow.unexplained)
        unexplained = max(unexplained, Unexplained(one.unexplained, window.name))
        found = _losses(candidates, window, number, one)
        lost += [each._replace(is_over=_is_over(each, searches)) for each in found]
        if window.overlaps:
            searches.append(one)
        late += _delays(candidates, window, number, slow.findings)
    slowed = _consolidated(candidates, late)
    ranked = sorted([*_consolidated(candidates, lost), *slowed], key=lambda each: -each.nats)
    unexplained = unexplained if unexplained.lost else Unexplained()
    return Located(
        tuple(each.finding for each in ranked),
        tuple(searches),
        unexplained._replace(late=unexplained_late),
        sum(each.nats for each in slowed),
    )


def _is_over(found: _Ranked, shorter: Sequence[LossSearch]) -> bool:
    """Whether newer seconds contradict a fault that a longer window shows."""
    return any(each.gain_at(found.candidate, found.finding.loss) < -OVER_NATS for each in shorter)


def _consolidated(candidates: Candidates, found: Sequence[_Ranked]) -> list[_Ranked]:
    """One finding for each fault: from the shortest window in which it is conclusive, else the
    clearest.

    A window that began before the fault also contains time without it, and may name a part of the
    faulty component, or more than that. Findings of one window are different faults. Of findings of
    two windows, the second is dropped if most paths of either cross the other, or if either may be
    the other, unless its own window shows the first as well.
    """
    chosen: list[_Ranked] = []

    def order(each: _Ranked) -> tuple[bool, bool, float]:
        suspects = {each.finding.component, *each.finding.alternatives}
        surest = max(other.sure for other in found if other.finding.component in suspects)
        least = min(PLAIN_CONFIDENCE, surest - AS_SURE)
        plain = each.nats > CONCLUSIVE_LLR and each.sure > least
        # A host that answers late is reported only if no window shows a component that explains it.
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
    """Whether a finding may be the same fault as one of another window, unless one of `besides`,
    from its own window, fits that one better."""
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
    """The share of paths that cross both, of the one with fewer paths; 1 if it has none."""
    a, b = (candidates.across(number) for number in (one, other))
    fewer = min(a.sum(), b.sum())
    return float((a & b).sum() / fewer) if fewer else 1.0


def _search(
    candidates: Candidates, window: WindowCounts, threshold: float, effort: Effort, known: Index
) -> LossSearch:
    tally = window.tally or PathTally(candidates.crossed, window.sent, window.lost)
    return LossSearch(
        tally,
        _price(candidates, tally),
        threshold=threshold,
        structure=candidates,
        effort=effort,
        known=known,
    )


def _price(candidates: Candidates, tally: Tally) -> Floats:
    """Penalty of each. One of parallel cables is not considered if no path that lists it lost
    anything: partly learnt paths may take any."""
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
    amiss: AffectedPaths,
) -> LossFinding | DelayFinding:
    """The finding with its cable as an alternative, as likely as the losses in the other direction
    suggest; the cable itself if that is the likelier one."""
    cable = candidates.cable_of(found.candidate)
    if cable is None:
        return found
    nats = odds_of_both(amiss, found.candidate, cable, {each.candidate for each in every})
    both = float(1 / (1 + np.exp(-np.clip(nats, -50, 50))))
    ranked = (1 - both, found.candidate), (both, cable.whole)
    (first, candidate), (second, other) = ranked if both < 0.5 else ranked[::-1]
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
    """The findings with a single one, of the cable, for two directions of it that lose at different
    rates, or for a cable and one direction of it or of one that is parallel to it: one repair
    serves both. `findings`: most certain first."""
    joined: dict[str | int, LossFinding] = {}
    for each in findings:
        cable = _cable_of(candidates, each.candidate)
        place = each.candidate if cable is None else candidates.names[cable]
        before = joined.get(place)
        if cable is not None and before and _names_differ(candidates, before, each):
            first = _cable_of(candidates, before.candidate)
            joined[place] = _of_cable(candidates, before, each, cable if first is None else first)
        else:
            joined.setdefault(place, each)
    return list(joined.values())


def _names_differ(candidates: Candidates, one: LossFinding, other: LossFinding) -> bool:
    """Not so for a link, and one of several that are parallel to it."""
    return candidates.names[one.candidate] != candidates.names[other.candidate]


def _cable_of(candidates: Candidates, number: int) -> int | None:
    """A cable, or that of which a link is a direction; None for all else."""
    is_cable = candidates.kinds[number] is ComponentKind.CABLE
    return number if is_cable else candidates.both_directions(number)


def _of_cable(
    candidates: Candidates, one: LossFinding, other: LossFinding, cable: int
) -> LossFinding:
    """Findings for two parts of a cable, or for it and a part, as one of the cable."""

    def is_elsewhere(suspect: int) -> bool:
        whole = _cable_of(candidates, suspect)
        return whole is None or candidates.names[whole] != candidates.names[cable]

    rivals, shares = [], []
    for each in (one, other):
        odds = dict(zip(each.alternatives, each.probabilities, strict=True))
        rivals.append({rival: share for rival, share in odds.items() if is_elsewhere(rival)})
        shares.append(each.confidence + sum(odds.values()) - sum(rivals[-1].values()))
    surer = int(np.argmax(shares))
    paths = one.paths + other.paths
    return (one, other)[surer]._replace(
        candidate=cable,
        loss=(one.loss * one.paths + other.loss * other.paths) / max(paths, 1),
        nats=one.nats + other.nats,
        confidence=shares[surer],
        lost=one.lost + other.lost,
        paths=paths,
        alternatives=tuple(rivals[surer]),
        probabilities=tuple(rivals[surer].values()),
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
    # One finding by each name: one of parallel cables and all of them share theirs.
    reported: dict[str, tuple[LossFinding, LossFinding | DelayFinding]] = {}
    for found, name in zip(joined, named, strict=True):
        if _is_reported(candidates, found):
            reported.setdefault(candidates.names[name.candidate], (found, name))
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
        for found, name in reported.values()
    ]


def _is_reported(candidates: Candidates, found: LossFinding) -> bool:
    """False for the replies of a host that is hardly ever late."""
    if candidates.kinds[found.candidate] is not ComponentKind.REPLIES:
        return True
    return found.loss >= MIN_REPLIES_LOSS and found.nats >= REPLIES_REBATE


def _slow_parts(
    candidates: Candidates, window: WindowCounts, threshold: float, effort: Effort
) -> SlowParts:
    if window.change_ns is None:
        return SlowParts([])
    sigma_ns = np.zeros(len(window.sent)) if window.sigma_ns is None else window.sigma_ns
    return delay.find_delays(
        candidates.crossed,
        window.change_ns,
        sigma_ns,
        candidates.penalty,
        threshold=threshold,
        effort=effort,
    )


def _delays(
    candidates: Candidates, window: WindowCounts, number: int, findings: Sequence[DelayFinding]
) -> list[_Ranked]:
    if window.change_ns is None:
        return []
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
        if not window.between
        or candidates.are_between_switches((found.candidate, *found.alternatives))
    ]


def _lossy(tally: Tally, candidate: int) -> AffectedPaths:
    """Paths that lost anything; conclusive if paths across the candidate lost several probes
    each."""
    across = tally.lost[(tally.crossings == candidate).any(axis=1)]
    plain = len(across) > 0 and float(across.mean()) >= PLAIN_LOST
    return AffectedPaths(
        tally.crossings, tally.paths, lambda each: tally.clean_of(each).paths, plain
    )


def _late(candidates: Candidates, change_ns: Floats, delay_ns: float) -> AffectedPaths:
    """Paths that became slower by more than half of the component's delay."""
    known, crossed = np.isfinite(change_ns), candidates.crossed
    late = change_ns > delay_ns / 2
    timely = known & ~late

    def well(candidates: Index) -> Floats:
        counts = [np.count_nonzero(timely & crossed.by(each)) for each in candidates.tolist()]
        return np.array(counts, dtype=np.float64)

    return AffectedPaths(crossed.crossings[late], int(np.count_nonzero(known)), well, plain=True)


def _is_clock(candidates: Candidates, number: int) -> bool:
    return candidates.kinds[number] is ComponentKind.CLOCK


class _Suspects(NamedTuple):
    """The fields of a `Finding` for the suspects."""

    confidence: float
    alternatives: tuple[str, ...]
    probabilities: tuple[float, ...]
    twins: int
    one_of: int
    both_ways: bool


def _suspects(candidates: Candidates, found: LossFinding | DelayFinding) -> _Suspects:
    """The found component's twins first, then its rivals with their twins; each with its
    probability. One of parallel cables and all of them have the same name."""
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
    """Its name, and its share of the probability of its group of twins."""
    return _reported_as(candidates, number), probability * float(candidates.shares[number])


def _reported_as(candidates: Candidates, number: int) -> str:
    name = candidates.names[number]
    return f"clock of {name}" if _is_clock(candidates, number) else name
