"""Words of incidents that have paged, when later evidence says better what the fault is."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from tests.alerts.clos import Night, bad
from tests.alerts.test_lifecycle import T0, rule
from tests.alerts.test_paged_links import Fabric, paged

from syntony.alerts.incident_book import Book
from syntony.alerts.incident_names import may_rename
from syntony.alerts.incidents import BookState, ChangeKind, Incident, IncidentChange
from syntony.alerts.observations import Containment, Observation, measured
from syntony.alerts.rules import Rule
from syntony.model import S

LINK, CABLE = "leaf0->spine1", "leaf0->spine1 or spine1->leaf0"


class Switches(Fabric):
    """A switch holds the links at it."""

    def holds(self, wider: str, narrower: str) -> bool:
        return super().holds(wider, narrower) or ("->" in narrower and wider in narrower)

    may_hold = holds

    def names(self, one: str, other: str) -> bool:
        return other in one

    def mirrors(self, one: str, other: str) -> bool:
        return False


class Groups(Switches):
    """``leaf0..*`` may include every link at that leaf; names with two dots are groups."""

    def may_include(self, group: str, part: str) -> bool:
        return ".." in group and group.partition("..")[0] in part


def _rules() -> list[Rule]:
    every = ("link", "switch")
    settings: dict[str, object] = {"wait": "2s", "stable": "30s", "clear_after": 3, "joins": every}
    dead = {"summary": "{subject}: is dead", "remedy": "check its power", "proven": True}
    return [
        rule("link", explained_by=("dead", "switch"), **settings),
        rule("switch", explained_by=("dead",), **settings),
        rule("dead", **settings | dead | {"wait": "0s"}),
    ]


class Life:
    """One book, evaluated every two seconds."""

    def __init__(self, topology: Containment | None = None) -> None:
        self.book, self.second = Book(_rules()), 0
        self._topology = topology or Switches()
        self.changes: list[IncidentChange] = []
        self.summaries: list[str] = []

    def run(self, times: int, **subjects: str) -> None:
        """What is bad: metric to subject."""
        for _ in range(times):
            self.second += 2
            seen = [
                Observation(metric, subject, 11.0, (f"reported of {subject}",))
                for metric, subject in subjects.items()
            ]
            what = measured(seen, ["link", "switch", "dead"])
            new = self.book.evaluate(T0 + self.second * S, what, self._topology)
            self.changes += new
            self.summaries += [each.incident.summary for each in new if each.kind in TOLD]

    def restart(self) -> None:
        """Another process goes on with what was stored."""
        stored = msgspec.msgpack.encode(self.book.state)
        self.book = Book(_rules(), msgspec.msgpack.decode(stored, type=BookState))

    @property
    def incident(self) -> Incident:
        return self.book.incidents[0]

    def renames(self) -> list[int]:
        """When, in seconds."""
        return [(each.at_ns - T0) // S for each in self.changes if each.kind is ChangeKind.RENAMED]


TOLD = frozenset({ChangeKind.PAGE, ChangeKind.RENAMED, ChangeKind.CLEAR})


def test_proof_gives_the_incident_its_words_at_once_and_no_second_page() -> None:
    life = Life()
    life.run(5, switch="spine1")
    life.run(3, switch="spine1", dead="spine1")
    assert paged(life.changes) == ["spine1"]
    assert (life.incident.summary, life.incident.remedy) == (
        "spine1: is dead", "check its power",
    )  # fmt: skip
    (former,) = life.incident.former_words
    assert former.endswith("Z: spine1: 11")
    life.run(40)
    assert life.summaries == ["spine1: 11", "spine1: is dead", "spine1: is dead"], "also its end"
    assert not any(each.live for each in life.book.incidents)


def test_a_likelier_name_replaces_one_that_is_not_found_any_more() -> None:
    life = Life()
    life.run(5, switch="spine1")
    life.run(5, link=LINK)
    assert life.incident.summary == "spine1: 11", "not yet"
    life.run(5, link=LINK)
    assert life.incident.summary == f"{LINK}: 11"
    assert len(life.renames()) == len(paged(life.changes)) == 1


def test_a_wider_component_gives_its_words_to_the_part_that_paged() -> None:
    life = Life()
    life.run(5, link=LINK)
    life.run(3, link=CABLE)
    assert life.incident.summary == f"{LINK}: 11"
    life.run(5, link=CABLE)
    assert life.incident.summary == f"{CABLE}: 11"
    assert paged(life.changes) == [LINK]


def test_what_a_wide_cause_leaves_behind_does_not_rename_it() -> None:
    life = Life()
    life.run(5, switch="spine1")
    life.run(20, switch="spine1", link=LINK)
    life.run(4, link=LINK)
    life.run(40)
    assert life.renames() == []


@pytest.mark.parametrize("period", [1, 2, 7, 12])
def test_names_that_alternate_do_not_flood_the_receivers(period: int) -> None:
    life = Life()
    life.run(5, switch="spine1")
    while life.second < 600:
        life.run(period, link=LINK)
        life.run(period, switch="spine1")
    assert paged(life.changes) == ["spine1"]
    assert all(later - one >= 60 for one, later in pairwise(life.renames()))
    assert bool(life.renames()) == (period > 5)


def test_an_incident_that_reopens_has_its_own_words_again() -> None:
    life = Life()
    life.run(5, switch="spine1")
    life.run(5, dead="spine1")
    life.run(40)
    life.run(5, switch="spine1")
    assert life.incident.reopened == 1
    assert life.incident.summary == "spine1: 11"
    assert life.incident.former_words


GROUP = "leaf0..*"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_group_has_the_words_and_evidence_of_its_part_once_that_is_known(restarts: bool) -> None:
    life = Life(Groups())
    life.run(5, switch=GROUP)
    assert paged(life.changes) == [GROUP]
    life.run(4, link=LINK)
    assert life.incident.evidence == (f"reported of {GROUP}",), "not yet"
    if restarts:
        life.restart()
    life.run(4, link=LINK)
    assert life.incident.subject == GROUP, "messages keep their key"
    assert life.incident.summary == f"{LINK}: 11"
    assert life.incident.evidence == (f"reported of {LINK}",)
    assert life.incident.former_words[0].endswith(f"{GROUP}: 11")
    assert len(life.renames()) == len(paged(life.changes)) == 1


@pytest.mark.parametrize("again_s", [4, 24])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_part_that_was_named_is_not_called_a_group_again(again_s: int, restarts: bool) -> None:
    """Paths are unknown to a controller whose store does not answer yet."""
    life = Life(Groups())
    life.run(5, switch=GROUP)
    life.run(8, link=LINK)
    life.run(again_s // 2)
    if restarts:
        life.restart()
    for _ in range(4):
        life.run(20, switch=GROUP)
        life.run(5, switch="leaf0..leaf1")
    assert life.incident.summary == f"{LINK}: 11"
    assert len(life.renames()) == len(paged(life.changes)) == 1


@pytest.mark.parametrize(
    ("paged", "later", "renames"),
    [
        ("leaf1..*", "*..* or leaf1..*", 0),
        ("leaf1..*", "*..leaf1 or leaf1..*", 0),
        ("leaf1..*", "*..*", 0),
        ("*..* or leaf1..*", "leaf1..*", 1),
        ("leaf1..leaf2", "leaf1..*", 0),
        ("leaf1..*", "leaf1..leaf2", 1),
    ],
)
def test_a_group_is_not_called_a_wider_one(paged: str, later: str, renames: int) -> None:
    """Of one fault that is found as both in turn."""
    night = Night()
    assert night.run(20, bad("ambiguous-loss", paged)) == [f"ambiguous-loss {paged}"]
    for _ in range(3):
        night.run(70, bad("ambiguous-loss", later))
        night.run(70, bad("ambiguous-loss", paged))
    assert len(night.said(ChangeKind.PAGE)) == 1
    assert len(night.said(ChangeKind.RENAMED)) == renames


def test_a_part_may_give_way_to_another_part() -> None:
    life = Life(Groups())
    life.run(5, switch=GROUP)
    life.run(8, link=LINK)
    life.run(60, link="leaf0->spine2")
    assert life.incident.summary == "leaf0->spine2: 11"
    assert len(paged(life.changes)) == 1


def test_a_part_that_is_not_found_for_a_while_does_not_page_for_its_group_again() -> None:
    """Less long than the rule's `stable`."""
    life = Life(Groups())
    life.run(5, switch=GROUP)
    life.run(30, link=LINK)
    life.run(10)
    life.run(10, link=LINK)
    assert len(paged(life.changes)) == 1
    assert not any(each.kind is ChangeKind.RESOLVED for each in life.changes)
    life.run(20)
    assert not any(each.live for each in life.book.incidents)


@pytest.mark.parametrize(("good_ns", "renamed"), [(10 * S - 1, False), (10 * S, True)])
def test_an_inferred_name_replaces_one_that_was_not_found_for_ten_seconds(
    good_ns: int, renamed: bool
) -> None:
    life = Life()
    life.run(5, switch="spine1")
    life.run(5, link=LINK)
    switch, link = life.book.incidents
    assert life.renames() == []
    streaks = life.book.state.streaks
    rules = {each.name: each for each in _rules()}
    now_ns = streaks["switch|spine1"].good_ns + good_ns
    found = may_rename(switch, link, switch, rules=rules, streaks=streaks, now_ns=now_ns)
    assert found == renamed
