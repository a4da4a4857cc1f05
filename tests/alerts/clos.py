"""A small fabric, the rules that come with Syntony, and evaluations of what is bad."""

from __future__ import annotations

import msgspec

from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import BookState, ChangeKind, Incident, IncidentChange
from syntony.alerts.observations import Observation, measured
from syntony.alerts.rules import Rule, with_defaults
from syntony.alerts.silences import Silence
from syntony.controller.containment import PathContainment
from syntony.model import S

T0 = 1_700_000_000 * S
HOMES = {
    "h0/rail0": "leaf0", "h1/rail0": "leaf0", "h2/rail0": "leaf1", "h3/rail0": "leaf1",
    "h4/rail0": "leaf2", "h5/rail0": "leaf2", "h5/rail1": "leaf3",
}  # fmt: skip
"""Two hosts at each leaf; h5 has a second NIC."""
DEFAULTS = {rule.name: rule for rule in with_defaults(())}


def crossing() -> dict[str, frozenset[str]]:
    """The components of the paths of each pair of NICs, by two spines."""
    return {
        f"{a}->{b}": frozenset(
            {a, b, f"{a}->{one}", one, f"{other}->{b}", other}
            | {
                part
                for spine in ("spine0", "spine1") if one != other
                for part in (f"{one}->{spine}", spine, f"{spine}->{other}")
            }
        )
        for a, one in HOMES.items() for b, other in HOMES.items() if a != b
    }  # fmt: skip


PLACES = PathContainment(crossing(), HOMES)


def bad(name: str, subject: str, **fields: object) -> Observation:
    """What breaks a rule, by the rule's name."""
    rule = DEFAULTS[name]
    return Observation(rule.metric, subject, rule.limit + 1)._replace(**fields)  # type: ignore[arg-type]


class Night:
    """One book, evaluated every two seconds."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules or tuple(DEFAULTS.values())
        self.book, self.now_ns = Book(self.rules), T0
        self.changes: list[IncidentChange] = []

    def run(self, seconds: int, *seen: Observation) -> list[str]:
        """For so long this is bad, and nothing else. Returns what was paged for meanwhile."""
        before = len(self.changes)
        what = measured(seen, {rule.metric for rule in self.rules})
        for _ in range(seconds // 2):
            self.now_ns += 2 * S
            self.changes += self.book.evaluate(self.now_ns, what, PLACES)
        return self.said(ChangeKind.PAGE, before)

    def restart(self) -> None:
        """What was stored is all that is left."""
        stored = msgspec.json.encode(self.book.state)
        self.book = Book(self.rules, msgspec.json.decode(stored, type=BookState))

    def said(self, kind: str, begin: int = 0) -> list[str]:
        """Changes of one kind: rule and subject."""
        return [
            f"{each.incident.rule} {each.incident.subject}"
            for each in self.changes[begin:] if each.kind == kind
        ]  # fmt: skip

    def find(self, rule: str) -> Incident:
        """The newest incident of a rule."""
        return next(each for each in reversed(self.book.incidents) if each.rule == rule)

    def cause(self, rule: str) -> str:
        """The rule of what explains the newest incident of a rule."""
        number = self.find(rule).cause
        return self.book.find(number).rule if number else ""

    def live(self) -> set[str]:
        return {each.rule for each in self.book.incidents if each.live}

    def silence(self, *subjects: str, seconds: int = 1_000) -> None:
        for subject in subjects:
            self.book.silence(
                Silence(subject=subject, last_ns=self.now_ns + seconds * S, who="eve")
            )
