"""Two parts of one switch that lose at once: which two. Pure.

Adding one component at a time, and exchanging one for one, can end at two parts that explain the
losses worse than two others do: each of these alone, beside one of the former, gains nothing. And
of round trips without a direction two such pairs can explain the same. Where the uplinks of a leaf
are two, every round trip into it crosses one of them down and one up; both that lose down, one
twice as much as the other, look just like the one losing in both directions and the other up.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np

from syntony.fabric.tally import Floats, Index, Parts, PartsOf

NO_GAIN = 1e-6
"""Nats that are rounding."""


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
    parts_of: PartsOf


class RivalPairs(NamedTuple):
    """Two that were found, and two others instead; nats beyond their prices."""

    own: Pair
    pairs: tuple[Pair, ...]
    places: Mapping[int, int]
    """Of all their parts."""


def beside_each_other(parts_of: PartsOf, switches: Index, found: Index) -> list[Beside]:
    """Each two of those found that are parts of one of the switches, at different places.

    Args:
        switches: candidates that may be switches.
    """
    beside = []
    for switch in switches.tolist():
        parts = parts_of(switch, found)
        places = _places(with_whole(parts, switch) if switch in found else parts)
        beside += [
            Beside(switch, (one, two), parts_of)
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
    """The two parts that explain best what their whole is found for, with the log-odds of the two
    against the one; arguments as `find_pairs`.

    A switch that loses a share of all its packets is as rare as two of its links that do, so
    nothing but the choice of the two speaks against them.
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

    The switch is as unlikely as two of its links: it costs what two of the other cost.
    """
    own = beside.parts
    places = _places(parts)
    starts = np.flatnonzero(np.isin(parts.place, [places[part] for part in own]))
    found = {
        pair.parts: pair._replace(nats=pair.nats - _price(fits, pair, beside.switch))
        for pair in find_pairs(fits, parts, starts, base, floor).values()
    }
    return RivalPairs(found.pop(own), tuple(found.values()), places)


def instead(rivals: RivalPairs) -> dict[int, dict[int, float]]:
    """Of each of two that were found: what may lose in its stead if the other is not the other
    one either → odds against it."""
    own = rivals.own
    found: dict[int, dict[int, float]] = {part: {} for part in own.parts}
    for pair in rivals.pairs:
        odds = float(np.exp(min(pair.nats - own.nats, 50)))
        for part, rival in _matched(own.parts, pair.parts, rivals.places):
            if rival != part:
                found[part][rival] = found[part].get(rival, 0.0) + odds
    return found


def _price(fits: Fits, pair: Pair, switch: int) -> float:
    prices = fits.price[[each for each in pair.parts if each != switch]]
    return float(prices.sum() * (3 if switch in pair.parts else 1))


def _places(parts: Parts) -> dict[int, int]:
    return dict(zip(parts.candidates.tolist(), parts.place.tolist(), strict=True))


def _matched(
    own: tuple[int, int], rival: tuple[int, int], places: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Which of a rival pair stands for which: itself, else one at the same place, else the other
    one."""
    one, two = own
    straight, crosswise = list(zip(own, rival, strict=True)), [(one, rival[1]), (two, rival[0])]

    def agreement(pairs: list[tuple[int, int]]) -> int:
        return sum(2 * (a == b) + (places[a] == places[b]) for a, b in pairs)

    return max(straight, crosswise, key=agreement)


def find_pairs(
    fits: Fits, parts: Parts, starts: Index, base: Floats, floor: Floats
) -> dict[tuple[int, int], Pair]:
    """Pairs of parts at different places, by parts: of each the best that was tried.

    From each start the best other part beside it is found, then the best beside that, for as long
    as anything is gained.

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
            beside = base.copy()
            held, times = fits.rows_of(each, rate, base, floor)
            beside[held] += rate * times
            fixed = fits.gains(np.array([each]), np.array([[rate]]), base, floor)[0, 0]
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
            best = float(fixed + gain[two])
            one, rate = int(others[two]), float(rest[two])
    return found
