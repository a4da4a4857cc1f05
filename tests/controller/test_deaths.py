"""Deaths in any order, with other things in between: one page for each, none when they are over.

Shapes, parts, order and delays are drawn; the seed is printed (`tests.controller.dying`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

import pytest
from tests.cases import mostly_slow
from tests.controller.dying import Fleet
from tests.controller.judged import Control

from syntony.alerts.incident_texts import DIMENSIONS
from syntony.alerts.incidents import ChangeKind
from syntony.cli.incident_view import lines
from syntony.fabric.names import OR, cable_name, same_place
from syntony.model.names import host_of
from syntony.wire.incidents import IncidentsQuery

KNOWN_S, QUIET_S = 60, 180
LATE_S = 30
"""A page may come so long after the death is over: agents and controllers that were away."""
SWITCH = frozenset({"switch-down", "switch-loss", "switch-or-hosts", "ambiguous-loss"})
SILENT = frozenset({"host-silent", "silent-together", "fleet-silent"})
LOSS = frozenset({"link-loss", "nic-loss", "ambiguous-loss"})
RULES = {
    "leaf": SWITCH | LOSS | {"port-down"}, "leaf with management": SWITCH | SILENT | {"port-down"},
    "middle": SWITCH | LOSS | {"cable-lost"}, "host": SILENT | LOSS,
    "nic": LOSS | {"port-down"}, "management": SILENT,
}  # fmt: skip
SCREEN = 22


class Death(NamedTuple):
    """One cause, and what its page may be."""

    kind: str
    parts: frozenset[str]
    """Any of these may be named."""
    rules: frozenset[str]
    began_s: int
    lasts_s: int
    must_page: bool = True

    @property
    def ends_s(self) -> int:
        return self.began_s + self.lasts_s

    def fits(self, rule: str, subject: str, at_s: int) -> bool:
        if rule not in self.rules or not self.began_s <= at_s <= self.ends_s + LATE_S:
            return False
        if rule in SILENT and not subject.startswith("h"):
            return True
        named = {name for each in subject.split(OR) for name in each.split(" and ")[0].split(", ")}
        return any(same_place((part, name)) for part in self.parts for name in named)


class Script:
    """Deaths in a fleet one after the other, each with its own delay and length."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.rng = fleet, fleet.rng
        self.deaths: list[Death] = []
        self.told: list[str] = []
        self._unheard: set[int] = set()
        """Seconds in which no agent had a way to the controller."""
        self._ends: list[tuple[int, set[str], set[str]]] = []
        """When they are over, what lives then, and which hosts reach the controller again."""

    def run(self, steps: int) -> None:
        kinds = {
            "leaf": self.leaf, "two leaves": self.two_leaves, "middle": self.middle,
            "host": self.host, "nic": self.nic, "away": self.away,
        }  # fmt: skip
        if not self.fleet.uplinks:
            kinds |= {
                "leaf with management": self.leaf_with_management, "management": self.management
            }  # fmt: skip
        for _ in range(steps):
            kinds[self.rng.choice(sorted(kinds))]()
            self.wait(self.rng.randint(2, 45))
        while self._ends:
            self.wait(1)
        self.wait(QUIET_S)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            for end in [end for end in self._ends if end[0] <= self.fleet.second]:
                self._ends.remove(end)
                self.fleet.dead -= end[1]
                self.fleet.cut -= end[2]
            self.fleet.run(1)
            if not any(map(self.fleet.reports_of, self.fleet.hosts)):
                self._unheard.add(self.fleet.second)

    # Each draws its part, and does nothing where another death would make it something else.

    def away(self) -> None:
        seconds, restart = self.rng.randint(2, 50), self.rng.random() < 0.5
        self.told.append(f"{self.fleet.second}: controller away for {seconds} s, {restart=}")
        self.fleet.pause(seconds, restart=restart)

    def leaf(self, leaf: str = "") -> None:
        leaf = leaf or self._leaf()
        if leaf in self._busy() or self._going() & {"middle"}:
            return
        for host in sorted(self._below(leaf)):
            self.fleet.late_s[host] = self.rng.choice([0, 0, 0, self.rng.randint(1, 25)])
        self._die("leaf", {leaf}, self._names_of(leaf))

    def two_leaves(self) -> None:
        if not self._going():
            for leaf in self.rng.sample(sorted(set(self.fleet.home.values())), 2):
                self.leaf(leaf)

    def leaf_with_management(self) -> None:
        """The hosts at it have no other way to the controller until some time later."""
        leaf = self._leaf()
        below = self._below(leaf)
        busy = {leaf, *below} & self._busy()
        if not busy and not self._going() & {"middle", "management", "leaf with management"}:
            names = self._names_of(leaf) | below
            self._die("leaf with management", {leaf}, names, below, self.rng.randint(12, 30))

    def middle(self) -> None:
        """A spine or a cable, from which routes turn after a while."""
        leaf = self._leaf()
        spine = self.rng.choice(self.fleet.spines[int(leaf[4])])
        part = self.rng.choice([spine, cable_name(leaf, spine)])
        if self._going() & {"middle", "leaf", "leaf with management"}:
            return
        self.fleet.black[part] = self.fleet.second + self.rng.choice([0, 1, 3, 12])
        twins = {spine, *(cable_name(each, spine) for each in set(self.fleet.home.values()))}
        between_two = self.fleet.leaves == 2
        names = twins if between_two else {part}
        self._die("middle", {part}, names, must_page=between_two or part == spine)

    def host(self) -> None:
        host = self.rng.choice(self.fleet.hosts)
        if host not in self._busy() and "management" not in self._going():
            self._die("host", {host}, {host})

    def nic(self) -> None:
        """Not the last one that lives at a leaf: then the leaf is as likely."""
        nic = self.rng.choice(sorted(self.fleet.home))
        leaf = self.fleet.home[nic]
        others = [each for each, at in self.fleet.home.items() if at == leaf and each != nic]
        if {nic, host_of(nic), leaf} & self._busy():
            return
        if any(self.fleet.carrier(each) for each in others):
            self.fleet.late_s[host_of(nic)] = self.rng.choice([0, 0, self.rng.randint(1, 25)])
            self._die("nic", {nic}, {nic})

    def management(self) -> None:
        cut = set(self.rng.sample(self.fleet.hosts, self.rng.randint(1, len(self.fleet.hosts))))
        if not self._going() & {"management", "leaf with management", "host"}:
            self._die("management", set(), cut, cut)

    def _die(
        self, kind: str, dead: set[str], names: set[str], cut: Collection[str] = (),
        cut_s: int = 0, *, must_page: bool = True,
    ) -> None:  # fmt: skip
        fleet, lasts_s = self.fleet, self.rng.randint(15, 70)
        away_s = max(0, fleet.away_until - fleet.second) + 12
        seen = must_page and lasts_s >= 25 + away_s + 20 * (kind == "middle")
        rules = RULES[kind] | (SILENT if kind == "nic" and fleet.uplinks else set())
        death = Death(kind, frozenset(names), rules, fleet.second, lasts_s, seen)
        self.deaths.append(death)
        self.told.append(f"{fleet.second}: {kind} {sorted(dead) or sorted(cut)} for {lasts_s} s")
        fleet.dead |= dead
        fleet.cut |= {*cut}
        self._ends.append((death.ends_s, dead, set()))
        self._ends.append((fleet.second + min(cut_s or lasts_s, lasts_s), set(), {*cut}))

    def _going(self) -> set[str]:
        return {each.kind for each in self._live()}

    def _busy(self) -> set[str]:
        return {name for each in self._live() for name in each.parts}

    def _live(self) -> list[Death]:
        return [each for each in self.deaths if each.ends_s + 5 > self.fleet.second]

    def _leaf(self) -> str:
        return self.rng.choice(sorted(set(self.fleet.home.values())))

    def _below(self, leaf: str) -> set[str]:
        return {host_of(nic) for nic, at in self.fleet.home.items() if at == leaf}

    def _names_of(self, leaf: str) -> set[str]:
        """A leaf with one NIC cannot be told from that."""
        nics = {nic for nic, at in self.fleet.home.items() if at == leaf}
        return {leaf, *(nics if len(nics) == 1 else ())}

    # --- grading ---

    def complaints(self) -> list[str]:
        """What a person on call would object to."""
        control = self.fleet.control
        start_ns = control.now_ns - self.fleet.second * 10**9
        found, counts = [], [0] * len(self.deaths)
        for change in control.changes:
            if change.kind is not ChangeKind.PAGE:
                continue
            at_s = round((change.at_ns - start_ns) / 1e9)
            rule, subject = change.incident.rule, change.incident.subject
            fits = [n for n, death in enumerate(self.deaths) if death.fits(rule, subject, at_s)]
            fits = [n for n in fits if not counts[n]] or fits
            fits = fits[:1]
            if not fits and rule == "fleet-silent":
                of_all = self._silencing(at_s)
                fits = [n for n in of_all if not counts[n]] or of_all
            if not fits:
                found.append(f"wrong at {at_s}: {rule} {subject}")
            for n in fits:
                counts[n] += 1
                if counts[n] > 1:
                    found.append(f"twice at {at_s}: {rule} {subject} for {self.deaths[n].kind}")
        for count, death in zip(counts, self.deaths, strict=True):
            if not count and death.must_page and not self._overlaps(death):
                found.append(f"missed: {death.kind} {sorted(death.parts)} of {death.began_s}")
        found += [f"still open: {rule} {subject}" for subject, rule in control.live().items()]
        found += self._pages_without_end() + self._words()
        return found

    def _silencing(self, at_s: int) -> list[int]:
        """The deaths that leave no agent a way to the controller, if there is none: nothing else
        can be known, and theirs is one page."""
        return [
            n
            for n, death in enumerate(self.deaths)
            if at_s in self._unheard and death.kind in {"leaf", "middle"}
            if self.fleet.uplinks and death.began_s <= at_s <= death.ends_s
        ]

    def _overlaps(self, death: Death) -> bool:
        """Whether another death may hide it: hosts at a dead leaf, agents that all are silent."""
        return any(
            each is not death and each.began_s <= death.ends_s and death.began_s <= each.ends_s + 20
            for each in self.deaths
        )

    def _pages_without_end(self) -> list[str]:
        told = Counter[int]()
        for change in self.fleet.control.changes:
            told[change.incident.number] += change.kind is ChangeKind.PAGE
            told[change.incident.number] -= change.kind is ChangeKind.CLEAR
        return [f"{count} pages of {each} without an end" for each, count in told.items() if count]

    def _words(self) -> list[str]:
        service, found = self.fleet.control.service, []
        for each in service.incidents(IncidentsQuery(resolved=True)).incidents:
            of = service.incidents(IncidentsQuery(number=each["number"])).incidents
            shown = lines(of[0], of[1:])
            lasted_ns = each["resolved_ns"] - each["began_ns"] if each["resolved_ns"] else 0
            if len(shown) > SCREEN:
                found.append(f"{len(shown)} lines: {each['summary']}")
            if each["resolved_ns"] and (lasted_ns <= 0 or "until" not in dict(shown)):
                found.append(f"no end: {each['summary']}")
            if each["pages"] and not each["evidence"]:
                found.append(f"no evidence: {each['summary']}")
            if each["unit"] not in DIMENSIONS | {"", "flaps", "agents"}:
                found.append(f"unit {each['unit']!r}: {each['summary']}")
        return found


def lived(control: Control, seed: int, steps: int, *, in_band: bool = False) -> Script:
    fleet = Fleet(control, seed, in_band=in_band)
    fleet.run(KNOWN_S)
    script = Script(fleet)
    script.run(steps)
    print(fleet.shape, *script.told, sep="\n  ")
    return script


@pytest.mark.parametrize("case", mostly_slow(range(12), {0}))
def test_each_death_is_one_page_in_whatever_order_they_come(control: Control, case: int) -> None:
    seed = random.randrange(1_000_000) if case else 1
    script = lived(control, seed, steps=4)
    assert script.complaints() == []


@pytest.mark.parametrize("case", mostly_slow(range(16), {0}))
def test_what_dies_in_a_fleet_managed_in_band_is_one_page(control: Control, case: int) -> None:
    """It silences the hosts behind it as well."""
    seed = random.randrange(1_000_000) if case else 1
    script = lived(control, seed, steps=1 + case % 2, in_band=True)
    assert script.complaints() == []
