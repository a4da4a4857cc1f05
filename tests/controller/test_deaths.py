"""Deaths in any order, with other things in between: one page for each, none when they are over.

Shapes, parts, order and delays are drawn; the seed is printed (`tests.controller.dying`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from tests.cases import mostly_slow
from tests.controller.dying import Fleet, host_of
from tests.controller.judged import Control

from syntony.alerts.incident_texts import DIMENSIONS
from syntony.alerts.incidents import ChangeKind
from syntony.cli.incident_view import lines
from syntony.fabric.names import OR, cable_name, same_place, suspects
from syntony.wire.incidents import IncidentsQuery

KNOWN_S, QUIET_S = 60, 180
LATE_S = 30
"""A page may come so long after the death is over: agents and controllers that were away."""
SWITCH = frozenset({"switch-down", "switch-loss", "switch-or-hosts", "ambiguous-loss"})
SILENT = frozenset({"host-silent", "silent-together", "fleet-silent"})
LOSS = frozenset({"link-loss", "nic-loss", "ambiguous-loss"})
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
    """Faults of a fleet one after the other, each with its own delay and length."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.rng = fleet, fleet.rng
        self.deaths: list[Death] = []
        self.told: list[str] = []
        self._ends: list[tuple[int, set[str], set[str]]] = []

    def run(self, steps: int) -> None:
        for _ in range(steps):
            kind = self.rng.choice([
                "leaf", "spine", "host", "nic", "cable", "management", "leaf with management",
                "two leaves", "paused", "restarted",
            ])  # fmt: skip
            self.begin(kind)
            self.wait(self.rng.randint(2, 45))
        while self._ends:
            self.wait(1)
        self.wait(QUIET_S)

    def begin(self, kind: str) -> None:
        """Draw and begin one, unless it would overlap with one that makes it something else."""
        fleet, rng, lasts_s = self.fleet, self.rng, self.rng.randint(15, 70)
        busy = {part for death in self._live() for part in death.parts}
        leaves = sorted(set(fleet.home.values()))
        leaf = rng.choice(leaves)
        rail = int(leaf[4])
        spine, host = rng.choice(fleet.spines[rail]), rng.choice(fleet.hosts)
        below = {host_of(nic) for nic, at in fleet.home.items() if at == leaf}
        nic = rng.choice(sorted(fleet.home))
        kinds = {each.kind for each in self._live()}
        if kind in {"paused", "restarted"}:
            seconds = rng.randint(2, 50)
            self.told.append(f"{fleet.second}: {kind} for {seconds} s")
            fleet.pause(seconds, restart=kind == "restarted")
            return
        late_s = rng.choice([0, 0, 3, 12])
        match kind:
            case "leaf" if leaf not in busy and not kinds & {"spine", "cable"}:
                for each in below:
                    fleet.late_s[each] = rng.choice([0, 0, 0, rng.randint(1, 25)])
                self._die(kind, {leaf}, self._of_leaf(leaf), lasts_s)
            case "leaf with management" if leaf not in busy and not (below | kinds) & {
                *busy, "management", "leaf with management", "spine", "cable",
            }:  # fmt: skip
                self._die(kind, {leaf}, self._of_leaf(leaf), lasts_s, cut=below, rules=SILENT,
                          also=below, back_s=rng.randint(12, 30))  # fmt: skip
            case "two leaves" if not kinds:
                for each in rng.sample(leaves, 2):
                    self._die("leaf", {each}, self._of_leaf(each), lasts_s)
            case "spine" | "cable" if not kinds & {
                "spine", "cable", "leaf", "leaf with management",
            }:  # fmt: skip
                cable = cable_name(leaf, spine)
                part = spine if kind == "spine" else cable
                fleet.black[part] = fleet.second + late_s
                known = fleet.leaves == 2 or kind == "spine"
                self._die(kind, {part}, {spine, cable, *self._twins(spine)} if fleet.leaves == 2
                          else {part}, lasts_s, must_page=known)  # fmt: skip
            case "host" if host not in busy and not kinds & {"management"}:
                self._die(kind, {host}, {host}, lasts_s)
            case "nic" if nic not in busy and not busy & {host_of(nic), fleet.home[nic]}:
                fleet.late_s[host_of(nic)] = rng.choice([0, 0, rng.randint(1, 25)])
                self._die(kind, {nic}, {nic, fleet.home[nic]} if self._is_alone(nic) else {nic},
                          lasts_s)  # fmt: skip
            case "management" if not kinds & {"management", "leaf with management", "host"}:
                cut = set(rng.sample(fleet.hosts, rng.randint(1, len(fleet.hosts))))
                self._die(kind, set(), cut, lasts_s, cut=cut)
            case _:
                return

    def _die(
        self, kind: str, dead: set[str], parts: Iterable[str], lasts_s: int, *,
        cut: Iterable[str] = (), must_page: bool = True, rules: frozenset[str] = frozenset(),
        also: Iterable[str] = (), back_s: int = 0,
    ) -> None:  # fmt: skip
        fleet = self.fleet
        of_kind = {
            "leaf": SWITCH | {"port-down"} | LOSS, "leaf with management": SWITCH | {"port-down"},
            "spine": SWITCH, "cable": SWITCH | LOSS | {"cable-lost"}, "host": SILENT | LOSS,
            "nic": LOSS | {"port-down", "switch-loss", "switch-or-hosts"}, "management": SILENT,
        }  # fmt: skip
        away_s = max(0, fleet.away_until - fleet.second) + 12
        seen = must_page and lasts_s >= 25 + away_s + (20 if kind in {"spine", "cable"} else 0)
        self.deaths.append(
            Death(kind, frozenset(parts) | frozenset(also), of_kind[kind] | rules, fleet.second,
                  lasts_s, seen)
        )  # fmt: skip
        self.told.append(f"{fleet.second}: {kind} {sorted(dead) or sorted(cut)} for {lasts_s} s")
        fleet.dead |= dead
        fleet.cut |= set(cut)
        if back_s and back_s < lasts_s:
            self._ends += [(fleet.second + back_s, set(), set(cut)), (fleet.second + lasts_s, dead, set())]
        else:
            self._ends.append((fleet.second + lasts_s, dead, set(cut)))

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            for end in [end for end in self._ends if end[0] <= self.fleet.second]:
                self._ends.remove(end)
                self.fleet.dead -= end[1]
                self.fleet.cut -= end[2]
            self.fleet.run(1)

    def _live(self) -> list[Death]:
        return [each for each in self.deaths if each.ends_s + 5 > self.fleet.second]

    def _of_leaf(self, leaf: str) -> set[str]:
        nics = {nic for nic, at in self.fleet.home.items() if at == leaf}
        return {leaf, *(nics if len(nics) == 1 else ())}

    def _is_alone(self, nic: str) -> bool:
        return [*self.fleet.home.values()].count(self.fleet.home[nic]) == 1

    def _twins(self, spine: str) -> set[str]:
        return {cable_name(leaf, spine) for leaf in set(self.fleet.home.values())}

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
            if not fits:
                found.append(f"wrong at {at_s}: {rule} {subject}")
            for n in fits[:1]:
                counts[n] += 1
                if counts[n] > 1:
                    found.append(f"twice at {at_s}: {rule} {subject} for {self.deaths[n].kind}")
        for count, death in zip(counts, self.deaths, strict=True):
            if not count and death.must_page and not self._overlaps(death):
                found.append(f"missed: {death.kind} {sorted(death.parts)} of {death.began_s}")
        found += [f"still open: {rule} {subject}" for subject, rule in control.live().items()]
        found += self._pages_without_end() + self._words()
        return found

    def _overlaps(self, death: Death) -> bool:
        """Whether another death may hide it: hosts at a dead leaf, agents that all are silent."""
        return any(
            each is not death and each.began_s <= death.ends_s and death.began_s <= each.ends_s + 20
            for each in self.deaths
        )

    def _pages_without_end(self) -> list[str]:
        kinds = {ChangeKind.PAGE: 1, ChangeKind.CLEAR: -1}
        open_: dict[int, int] = {}
        for change in self.fleet.control.changes:
            number = change.incident.number
            open_[number] = open_.get(number, 0) + kinds.get(change.kind, 0)
        return [f"{count} pages of {number} without an end" for number, count in open_.items() if count]

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


def lived(control: Control, seed: int, steps: int) -> Script:
    fleet = Fleet(control, seed)
    fleet.run(KNOWN_S)
    script = Script(fleet)
    script.run(steps)
    print(fleet.shape, *script.told, sep="\n  ")
    return script


@pytest.mark.parametrize("case", mostly_slow(range(12), {0, 1}))
def test_each_death_is_one_page_in_whatever_order_they_come(control: Control, case: int) -> None:
    seed = random.randrange(1_000_000) if case else 1
    script = lived(control, seed, steps=4)
    assert script.complaints() == []
    assert suspects("a or b") == ("a", "b")
