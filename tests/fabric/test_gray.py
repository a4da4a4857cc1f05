"""Gray failures, second by second: parts that lose between a twentieth and nearly all."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from tests.cases import mostly_slow
from tests.fabric.flow_rows import FlowCounts, add

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.names import ComponentKind, same_place
from syntony.model.findings import Finding

RATES = (0.05, 0.15, 0.3, 0.4, 0.5, 0.6, 0.7)
HEAVY = (0.85, 0.95)
SURE = 0.7
KINDS = ("nic", "edge", "link", "cable", "two nics")
SEEDS = mostly_slow(range(8), [0, 1])


class Trip(NamedTuple):
    """One probe flow's way there and back, as all that a packet passes, link by link."""

    there: tuple[str, ...]
    back: tuple[str, ...]


class Plant:
    """A Clos fabric of random shape whose probes are lost one by one."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.leaves, self.spines = self.rng.randint(2, 4), self.rng.randint(2, 3)
        self.hosts = self.rng.randint(2, 3)
        self.per_second = self.rng.randint(6, 12)
        self.patience = self.rng.randint(2, 12)
        self.nics = [f"n{k}/r0" for k in range(self.leaves * self.hosts)]
        self.book = PathBook()
        self.watch = FaultLocator(self.book)
        ports = range(self.rng.randint(6, 9))
        ends = [(a, b) for a in self.nics for b in self.nics if a != b]
        self.trips = {
            Way(a, b, 50_000 + port, 8620): Trip(self._way(a, b), self._way(b, a))
            for a, b in ends
            for port in ports
        }
        for way, trip in self.trips.items():
            for one, names in ((way, trip.there), (reply(way), trip.back)):
                devices = [name for name in names if "-" not in name]
                self.book.learn(one, devices[1:-1])

    def _way(self, a: str, b: str) -> tuple[str, ...]:
        near, far = (f"leaf{self.nics.index(nic) // self.hosts}" for nic in (a, b))
        spine = f"spine{self.rng.randrange(self.spines)}"
        stops = [a, near, b] if near == far else [a, near, spine, far, b]
        names = list(stops)
        for one, other in pairwise(stops):
            names += [f"{one}->{other}", "--".join(sorted((one, other)))]
        return tuple(names)

    def second(self, loss: dict[str, float] | None = None) -> None:
        """A lost probe's direction is known once a later one of its flow is answered in time. Of
        the others the prober knows only how many requests the target received of all its flows."""
        rows: list[FlowCounts] = []
        heard: dict[tuple[str, str], int] = {}
        for way, trip in self.trips.items():
            risk, risk_back = (
                1 - math.prod(1 - share for name, share in (loss or {}).items() if name in names)
                for names in trip
            )
            arrived, lost, lost_back, unresolved = self._fates(risk, risk_back)
            pair = (way.src, way.dst)
            heard[pair] = heard.get(pair, 0) + arrived
            rows.append(
                FlowCounts(
                    way=way,
                    sent=self.per_second,
                    lost=lost,
                    sent_back=self.per_second - lost,
                    lost_back=lost_back,
                    unresolved=unresolved,
                    delay_ns=math.nan,
                    delay_back_ns=math.nan,
                    clk_err_ns=50.0,
                )
            )
        # The two ends cut their seconds apart.
        moved = {pair: self.rng.choice((-1, 0, 0, 0, 1)) for pair in heard}
        add(self.watch, rows, {pair: count + moved[pair] for pair, count in heard.items()})

    def _fates(self, risk: float, risk_back: float) -> tuple[int, int, int, int]:
        """Of one flow's probes: received, known lost there, known lost back, unresolved."""
        if not risk and not risk_back:
            return self.per_second, 0, 0, 0
        draws = range(self.per_second + self.patience)
        arrived = [self.rng.random() >= risk for _ in draws]
        answered = [each and self.rng.random() >= risk_back for each in arrived]
        lost = lost_back = unresolved = 0
        for k in range(self.per_second):
            if not any(answered[k : k + 1 + self.patience]):
                unresolved += 1
            elif not arrived[k]:
                lost += 1
            elif not answered[k]:
                lost_back += 1
        return sum(arrived[: self.per_second]), lost, lost_back, unresolved


def faulty(plant: Plant, kind: str) -> set[str]:
    """One or two components of this kind."""
    rng = plant.rng
    if kind == "nic":
        return {rng.choice(plant.nics)}
    if kind == "two nics":
        return set(rng.sample(plant.nics, 2))
    names = {name for trip in plant.trips.values() for names in trip for name in names}
    fabric = sorted(name for name in names if "spine" in name)
    edge = sorted(name for name in names if "/" in name and "->" in name)
    if kind == "cable":
        return {rng.choice([name for name in fabric if "--" in name])}
    if kind == "link":
        return {rng.choice([name for name in fabric if "->" in name])}
    return {rng.choice(edge)}


def wrong(findings: Sequence[Finding], hurt: set[str]) -> list[str]:
    """Names that are not to blame, unless told as one of several that cannot be distinguished."""
    return [
        found.component
        for found in findings
        if found.component not in hurt
        and not (found.confidence < SURE and hurt & set(found.alternatives))
    ]


def named(findings: Sequence[Finding]) -> set[str]:
    return {name for found in findings for name in (found.component, *found.alternatives)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_gray_failure_is_named_and_nothing_else(kind: str, seed: int) -> None:
    plant = Plant(seed)
    hurt, share = faulty(plant, kind), plant.rng.choice(RATES)
    plant.second()
    for _ in range(3):
        plant.second(dict.fromkeys(hurt, share))
        findings = plant.watch.findings()
        assert not wrong(findings, hurt), f"{hurt} lose {share}"
        assert hurt <= named(findings), f"{hurt} lose {share}"


@pytest.mark.parametrize("share", [*RATES, *HEAVY])
def test_a_nic_that_loses_both_ways_names_no_other_host(share: float) -> None:
    """Nearly dead, one of its links may be named for it: of so few requests received, the share
    that arrived in another second is not known."""
    plant = Plant(int(100 * share))
    (nic,) = faulty(plant, "nic")
    plant.second()
    for _ in range(4):
        plant.second({nic: share})
        findings = plant.watch.findings()
        assert findings
        assert same_place([nic, *(found.component for found in findings)])
        assert not any(found.kind == ComponentKind.REPLIES for found in findings)


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_the_loss_of_a_nic_is_told_per_crossing(share: float) -> None:
    """A round trip crosses it twice."""
    plant = Plant(7)
    (nic,) = faulty(plant, "nic")
    for _ in range(2):
        plant.second({nic: share})
    (found,) = plant.watch.findings()
    assert found.component == nic
    assert found.loss == pytest.approx(share, abs=0.08)
