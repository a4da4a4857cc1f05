"""Two parts of one switch that lose at once: which two. Pure.

A search that adds or exchanges one component at a time can end at a pair that explains the losses
worse than another pair: each part of the better pair gains nothing together with one of the worse.
And round trips without a direction fit several pairs. With two uplinks at a leaf, each round trip
comes in by one and leaves by one: both lossy on the way in, one twice as much as the other, equals
one lossy both ways and the other on the way out. A switch counts as a part of itself: it and one
of its links may lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np

from syntony.fabric.tally import Floats, Index, Parts, Structure

NO_GAIN = 1e-6
"""Nats that are rounding."""
NEAR_NATS = 10.0
"""Pairs further behind the best (20,000 to 1) are no rivals, at whatever rates."""
SETTLED_NATS = 0.01


class Fits(Protocol):
    """What a search knows of rates."""

    @property
    def price(self) -> Floats:
        """Nats that each candidate must gain, (candidates,)."""

    def fitted(self, candidates: Index, rates: Floats, floor: Floats) -> tuple[Floats, Floats]:
        """Nats gained by each candidate at its most likely rate beside `rates`, and that rate."""

    def gains(self, candidates: Index, grid: Floats, rates: Floats, floor: Floats) -> Floats:
        """Nats gained by each candidate at each rate tried, (candidates, rates tried)."""

    def rows_of(
        self, candidate: int, rate: float, rates: Floats, floor: Floats
    ) -> tuple[Index, Floats]:
        """Rows that a candidate that loses at this rate hits, and how often each crosses it."""


class Pair(NamedTuple):
    """Two parts that lose."""

    parts: tuple[int, int]
    """In ascending order."""
    rates: tuple[float, float]
    nats: float
    """Gained by both together."""


class Beside(NamedTuple):
    """Two found at one switch, at different places."""

    switch: int
    parts: tuple[int, int]
    """In ascending order."""


class RivalPairs(NamedTuple):
    """Two that were found, and two others instead; nats beyond their prices."""

    own: Pair
    pairs: tuple[Pair, ...]
    places: Mapping[int, int]
    """Of all their parts."""


def beside_each_other(structure: Structure, switches: Index, found: Index) -> list[Beside]:
    """Each two of those found that are parts of one of the switches, at different places.

    Args:
        switches: candidates that may be switches.
    """
    beside = []
    for switch in switches.tolist():
        parts = structure.parts(switch, found)
        places = _places(with_whole(parts, switch) if switch in found else parts)
        beside += [
            Beside(switch, (one, two))
            for one, two in combinations(sorted(places), 2)
            if places[one] != places[two]
        ]
    return beside


def with_whole(parts: Parts, whole: int) -> Parts:
    """The same and the switch itself, at a place of its own; nothing where it has no parts."""
    if not len(parts.candidates):
        return parts
    return Parts(np.append(parts.candidates, whole), np.append(parts.place, -1))


def two_of(fits: Fits, whole: int, parts: Parts, base: Floats, floor: Floats) -> Pair:
    """The two parts that together best explain what a switch was found for, with their log-odds
    against it; arguments as `find_pairs`.

    A lossy switch is as rare as two lossy links of it: only the choice of the two counts.
    """
    own, _ = fits.fitted(np.array([whole], dtype=np.intp), base, floor)
    gain, _ = fits.fitted(parts.candidates, base, floor)
    pairs = find_pairs(fits, parts, np.array([np.argmax(gain)]), base, floor)
    best = max(pairs.values(), key=lambda pair: pair.nats)
    choices = len(parts.candidates) * (len(parts.candidates) - 1) / 2
    return best._replace(nats=best.nats - float(own[0]) - float(np.log(choices)))


def rival_pairs(
    fits: Fits, beside: Beside, parts: Parts, base: Floats, floor: Floats
) -> RivalPairs:
    """Of two that were found the rivals; arguments as `find_pairs`.

    The switch costs what it costs alone, so that this choice and that of a single part agree.
    """
    own = beside.parts
    places = _places(parts)
    starts = np.flatnonzero(np.isin(parts.place, [places[part] for part in own]))
    pairs = find_pairs(fits, parts, starts, base, floor)
    found = {
        pair.parts: pair._replace(nats=pair.nats - float(fits.price[[*pair.parts]].sum()))
        for pair in _refined(fits, pairs, base, floor)
    }
    return RivalPairs(found.pop(own), tuple(found.values()), places)


def _refined(
    fits: Fits, pairs: Mapping[tuple[int, int], Pair], base: Floats, floor: Floats
) -> list[Pair]:
    """The same, both rates of each that is not far behind the best fitted in turn."""
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
        held, nats = _beside(fits, one, rate, base, floor)
        gain, rest = fits.fitted(np.array([two]), held, floor)
        other, nats = float(rest[0]), nats + float(gain[0])
        one, two, rate, other = two, one, other, rate
    rates = (rate, other) if (one, two) == pair.parts else (other, rate)
    return pair._replace(rates=rates, nats=max(nats, pair.nats))


def _beside(
    fits: Fits, part: int, rate: float, base: Floats, floor: Floats
) -> tuple[Floats, float]:
    """Rates of all rows where one part loses so much, and the nats that it gains."""
    beside = base.copy()
    rows, times = fits.rows_of(part, rate, base, floor)
    beside[rows] += rate * times
    return beside, float(fits.gains(np.array([part]), np.array([[rate]]), base, floor)[0, 0])


def instead(rivals: RivalPairs) -> dict[int, dict[int, float]]:
    """For each of two found parts: what may lose instead, and its odds. Rivals are pairs, so the
    other part may be another one, too."""
    own = rivals.own
    found: dict[int, dict[int, float]] = {part: {} for part in own.parts}
    for pair in rivals.pairs:
        odds = float(np.exp(min(pair.nats - own.nats, 50)))
        for part, rival in _matched(own.parts, pair.parts, rivals.places):
            if rival != part:
                found[part][rival] = found[part].get(rival, 0.0) + odds
    return found


def _places(parts: Parts) -> dict[int, int]:
    return dict(zip(parts.candidates.tolist(), parts.place.tolist(), strict=True))


def _matched(
    own: tuple[int, int], rival: tuple[int, int], places: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Which part of a rival pair replaces which: itself, else one at the same place, else any."""
    one, two = own
    straight, crosswise = list(zip(own, rival, strict=True)), [(one, rival[1]), (two, rival[0])]

    def agreement(pairs: list[tuple[int, int]]) -> int:
        return sum(2 * (a == b) + (places[a] == places[b]) for a, b in pairs)

    return max(straight, crosswise, key=agreement)


def find_pairs(
    fits: Fits, parts: Parts, starts: Index, base: Floats, floor: Floats
) -> dict[tuple[int, int], Pair]:
    """Pairs of parts at different places, by parts: of each pair the best rates that were tried.

    Holds one part at its rate and fits every other; then holds the best of these and fits again,
    until nothing more is gained. Repeated for each start.

    Args:
        parts: of one switch.
        starts: places within `parts` of those to begin with.
        base: rates without any of them, (rows,).
        floor: how unlikely each row can be at most, (rows,).
    """
    found: dict[tuple[int, int], Pair] = {}
    _, alone = fits.fitted(parts.candidates, base, floor)
    for start in starts.tolist():
        one, rate, best = start, float(alone[start]), -np.inf
        while True:
            each = int(parts.candidates[one])
            beside, fixed = _beside(fits, each, rate, base, floor)
            others = np.flatnonzero(parts.place != parts.place[one])
            gain, rest = fits.fitted(parts.candidates[others], beside, floor)
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
