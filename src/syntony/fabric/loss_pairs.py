"""Which two parts of one switch lose, if two lose at once. Pure.

A search that adds or exchanges one component at a time can end at a pair that explains the losses
worse than another pair: each part of the better pair gains nothing together with one of the worse.
Also, round trips without a direction fit several pairs. With two uplinks at a leaf, each round trip
enters by one and leaves by the other: if both lose on the way in, one twice as much as the other,
this equals one that loses both ways and the other on the way out. A switch counts as a part of
itself, because it and one of its links may lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np

from syntony.fabric.tally import CandidateParts, Floats, Index, Structure

NO_GAIN = 1e-6
"""Nats below this are rounding errors."""
NEAR_NATS = 10.0
"""Pairs that are further behind the best (20,000 to 1) are no rivals, at any rates."""
SHORT = 0.75
"""Two parts that each alone gain less than this share of what their switch does, added up, are not
fitted together: the likelihood of a path is concave in its rate, so together they gain no more."""
SETTLED_NATS = 0.01


class Fits(Protocol):
    """The rates of a search."""

    @property
    def price(self) -> Floats:
        """Nats that each candidate must gain, (candidates,)."""

    def fitted(self, candidates: Index, rates: Floats, floor: Floats) -> tuple[Floats, Floats]:
        """Nats gained by each candidate at its most likely rate besides `rates`, and that rate."""

    def gains(self, candidates: Index, grid: Floats, rates: Floats, floor: Floats) -> Floats:
        """Nats gained by each candidate at each trial rate, (candidates, trial rates)."""

    def rows_of(
        self, candidate: int, rate: float, rates: Floats, floor: Floats
    ) -> tuple[Index, Floats]:
        """Rows affected by a candidate that loses at this rate, and how often each crosses it."""


class Pair(NamedTuple):
    """Two lossy parts."""

    parts: tuple[int, int]
    """In ascending order."""
    rates: tuple[float, float]
    nats: float
    """Gained by both together."""


class SwitchPair(NamedTuple):
    """Two findings at one switch, at different places."""

    switch: int
    parts: tuple[int, int]
    """In ascending order."""


class RivalPairs(NamedTuple):
    """Two findings and an alternative pair, with its gain beyond the penalties in nats."""

    own: Pair
    pairs: tuple[Pair, ...]
    places: Mapping[int, int]
    """Places of all their parts."""


def pairs_at_switches(structure: Structure, switches: Index, found: Index) -> list[SwitchPair]:
    """Each two of the findings that are parts of one of the switches, at different places.

    Args:
        switches: candidates that may be switches.
    """
    pairs = []
    for switch in switches.tolist():
        parts = structure.parts(switch, found)
        places = _places(with_whole(parts, switch) if switch in found else parts)
        pairs += [
            SwitchPair(switch, (one, two))
            for one, two in combinations(sorted(places), 2)
            if places[one] != places[two]
        ]
    return pairs


def with_whole(parts: CandidateParts, whole: int) -> CandidateParts:
    """The parts and the switch itself, at a separate place; nothing if it has no parts."""
    if not len(parts.candidates):
        return parts
    return CandidateParts(np.append(parts.candidates, whole), np.append(parts.place, -1))


def two_of(fits: Fits, whole: int, parts: CandidateParts, base: Floats, floor: Floats) -> Pair:
    """The two parts that together best explain the losses attributed to a switch, with their
    log-odds against it; arguments as `find_pairs`.

    A lossy switch has the same prior as two lossy links of it; the pair is penalised only for the
    choice of the two.
    """
    own, _ = fits.fitted(np.array([whole], dtype=np.intp), base, floor)
    gain, alone = fits.fitted(parts.candidates, base, floor)
    choices = len(parts.candidates) * (len(parts.candidates) - 1) / 2
    first = int(np.argmax(gain))
    others = np.flatnonzero(parts.place != parts.place[first])
    second = int(others[np.argmax(gain[others])])
    if gain[first] + gain[second] < SHORT * own[0]:
        (a, a_rate), (b, b_rate) = sorted(
            (int(parts.candidates[n]), float(alone[n])) for n in (first, second)
        )
        best = Pair((a, b), (a_rate, b_rate), float(gain[first] + gain[second]))
    else:
        pairs = find_pairs(fits, parts, np.array([first]), alone, base, floor)
        best = max(pairs.values(), key=lambda pair: pair.nats)
    return best._replace(nats=best.nats - float(own[0]) - float(np.log(choices)))


def rival_pairs(
    fits: Fits, findings: SwitchPair, parts: CandidateParts, base: Floats, floor: Floats
) -> RivalPairs:
    """Alternatives to a pair of findings; arguments as `find_pairs`.

    The switch has its usual penalty, so that this comparison and that of a single part are
    consistent.
    """
    own = findings.parts
    places = _places(parts)
    starts = np.flatnonzero(np.isin(parts.place, [places[part] for part in own]))
    _, alone = fits.fitted(parts.candidates, base, floor)
    pairs = find_pairs(fits, parts, starts, alone, base, floor)
    found = {
        pair.parts: pair._replace(nats=pair.nats - float(fits.price[[*pair.parts]].sum()))
        for pair in _refined(fits, pairs, base, floor)
    }
    return RivalPairs(found.pop(own), tuple(found.values()), places)


def _refined(
    fits: Fits, pairs: Mapping[tuple[int, int], Pair], base: Floats, floor: Floats
) -> list[Pair]:
    """The pairs, with both rates of each that is not far behind the best refitted in turn."""
    best = max(pair.nats for pair in pairs.values())
    return [
        pair if pair.nats < best - NEAR_NATS else _fitted_in_turn(fits, pair, base, floor)
        for pair in pairs.values()
    ]


def _fitted_in_turn(fits: Fits, pair: Pair, base: Floats, floor: Floats) -> Pair:
    """The same pair at its most likely rates."""
    (one, two), (rate, other) = pair.parts, pair.rates
    before, nats = -np.inf, pair.nats
    while nats > before + SETTLED_NATS:
        before = nats
        held, nats = _with_rate(fits, one, rate, base, floor)
        gain, rest = fits.fitted(np.array([two]), held, floor)
        other, nats = float(rest[0]), nats + float(gain[0])
        one, two, rate, other = two, one, other, rate
    rates = (rate, other) if (one, two) == pair.parts else (other, rate)
    return pair._replace(rates=rates, nats=max(nats, pair.nats))


def _with_rate(
    fits: Fits, part: int, rate: float, base: Floats, floor: Floats
) -> tuple[Floats, float]:
    """Rates of all rows if one part has this loss, and the nats that it gains."""
    rates_with = base.copy()
    rows, times = fits.rows_of(part, rate, base, floor)
    rates_with[rows] += rate * times
    return rates_with, float(fits.gains(np.array([part]), np.array([[rate]]), base, floor)[0, 0])


def instead(rivals: RivalPairs) -> dict[int, dict[int, float]]:
    """For each of two findings: possible replacements and their odds. Alternatives are pairs, so
    the other part may differ as well."""
    own = rivals.own
    found: dict[int, dict[int, float]] = {part: {} for part in own.parts}
    for pair in rivals.pairs:
        odds = float(np.exp(min(pair.nats - own.nats, 50)))
        for part, rival in _matched(own.parts, pair.parts, rivals.places):
            if rival != part:
                found[part][rival] = found[part].get(rival, 0.0) + odds
    return found


def _places(parts: CandidateParts) -> dict[int, int]:
    return dict(zip(parts.candidates.tolist(), parts.place.tolist(), strict=True))


def _matched(
    own: tuple[int, int], rival: tuple[int, int], places: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Which part of an alternative pair replaces which: itself, else one at the same place, else
    any."""
    one, two = own
    straight, crosswise = list(zip(own, rival, strict=True)), [(one, rival[1]), (two, rival[0])]

    def agreement(pairs: list[tuple[int, int]]) -> int:
        return sum(2 * (a == b) + (places[a] == places[b]) for a, b in pairs)

    return max(straight, crosswise, key=agreement)


def find_pairs(  # noqa: PLR0917
    fits: Fits, parts: CandidateParts, starts: Index, alone: Floats, base: Floats, floor: Floats
) -> dict[tuple[int, int], Pair]:
    """Pairs of parts at different places, by parts: for each pair the best rates that were tried.

    Holds one part at its rate and fits every other. Then holds the best of these and fits again,
    until there is no more gain. Repeated for each start.

    Args:
        parts: of one switch.
        starts: places within `parts` to start with.
        alone: most likely rate of each part without the others.
        base: rates without any of them, (rows,).
        floor: lower bound of each row's likelihood, (rows,).
    """
    found: dict[tuple[int, int], Pair] = {}
    for start in starts.tolist():
        one, rate, best = start, float(alone[start]), -np.inf
        while True:
            each = int(parts.candidates[one])
            rates_with, fixed = _with_rate(fits, each, rate, base, floor)
            others = np.flatnonzero(parts.place != parts.place[one])
            gain, rest = fits.fitted(parts.candidates[others], rates_with, floor)
            for other, other_rate, nats in zip(
                parts.candidates[others].tolist(), rest.tolist(), (fixed + gain).tolist(),
                strict=True,
            ):  # fmt: skip
                (a, a_rate), (b, b_rate) = sorted(((each, rate), (other, other_rate)))
                if (a, b) not in found or nats > found[a, b].nats:
                    found[a, b] = Pair((a, b), (a_rate, b_rate), nats)
            two = int(np.argmax(gain))
            if fixed + gain[two] <= best + NO_GAIN:
                break
            best = fixed + float(gain[two])
            one, rate = int(others[two]), float(rest[two])
    return found
