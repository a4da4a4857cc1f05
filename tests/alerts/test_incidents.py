"""One page per cause, whatever happens: the book of incidents under stories and histories."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.alerts.causes import explained
from syntony.alerts.incident_book import Book
from syntony.alerts.incident_texts import shown
from syntony.alerts.incidents import (
    RETENTION_NS,
    BookState,
    ChangeKind,
    IncidentChange,
    IncidentState,
)
from syntony.alerts.observations import Observation, measured
from syntony.alerts.paging import REOPEN_NS
from syntony.alerts.rules import Rule, Severity
from syntony.alerts.silences import Silence
from syntony.errors import UsageError
from syntony.model import S

TICK = 5 * S
METRICS = ("loss", "switch", "fine")


class NameContainment:
    """A switch contains the links that have its name in theirs."""

    def holds(self, wider: str, narrower: str) -> bool:
        return "->" in narrower and wider in narrower.split("->")

    may_hold = holds

    def names(self, one: str, other: str) -> bool:
        return one == other

    def may_include(self, group: str, part: str) -> bool:
        return False

    def is_anything(self, name: str) -> bool:
        return False

    def mirrors(self, one: str, other: str) -> bool:
        return "->" in one and "->".join(reversed(one.split("->"))) == other

    def roots(self, name: str) -> frozenset[str]:
        return frozenset(name.split("->"))

    around = roots

    def hosts(self, name: str) -> frozenset[str]:
        return frozenset()

    def parts(self, name: str) -> frozenset[str]:
        return frozenset(name.split("->"))


def rule(name: str, metric: str, **fields: object) -> Rule:
    return msgspec.convert(
        {
            "name": name,
            "metric": metric,
            "severity": "critical",
            "summary": "{subject} is bad: {value} > {limit}",
            "remedy": "mend it",
            "above": 0.0,
            "stable": "1s",
            **fields,
        },
        Rule,
    )


LINK = rule("link", "loss", explained_by=("switch",), wait="10s")
SWITCH = rule("switch", "switch", open_after=1)


class Story:
    """A book, and time that goes on in ticks."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules or (LINK, SWITCH)
        self.book = Book(self.rules)
        self.now_ns = 1_000 * S
        self.changes: list[IncidentChange] = []

    def tick(self, times: int = 1, /, **values: float | None) -> list[ChangeKind]:
        """Evaluate: ``loss__leaf0->spine0=0.1`` is metric loss of that subject."""
        reported: list[IncidentChange] = []
        for _ in range(times):
            self.now_ns += TICK
            seen = [
                Observation(metric, subject, value)
                for (metric, _, subject), value in (
                    (key.partition("__"), value) for key, value in values.items()
                )
            ]
            reported += self.book.evaluate(self.now_ns, measured(seen, METRICS), NameContainment())
        self.changes += reported
        return [change.kind for change in reported]

    def restart(self) -> None:
        """What was written down is all that is left."""
        text = msgspec.json.encode(self.book.state)
        self.book = Book(self.rules, msgspec.json.decode(text, type=BookState))


A = {"loss__leaf0->spine0": 0.1}
B = {"loss__leaf1->spine0": 0.1}
SPINE = {"switch__spine0": 0.1}


def test_an_incident_opens_after_two_windows_and_pages_after_its_wait() -> None:
    story = Story()
    assert story.tick(**A) == []
    assert story.tick(**A) == [ChangeKind.OPENED]
    assert story.tick(**A) == []
    assert story.tick(**A) == [ChangeKind.PAGE]
    (incident,) = story.book.incidents
    assert incident.summary == "leaf0->spine0 is bad: 0.1 > 0"


def test_one_bad_window_is_no_incident() -> None:
    story = Story()
    for _ in range(10):
        assert story.tick(**A) == []
        assert story.tick() == []


def test_it_is_resolved_after_three_good_windows_and_told_once() -> None:
    story = Story()
    story.tick(4, **A)
    assert story.tick(2) == []
    assert story.tick() == [ChangeKind.RESOLVED, ChangeKind.CLEAR]
    assert story.tick(5) == []


def test_what_was_never_told_is_not_cleared_aloud() -> None:
    story = Story()
    story.tick(2, **A)
    assert ChangeKind.CLEAR not in story.tick(5)


def test_what_cannot_be_measured_neither_opens_nor_clears() -> None:
    story = Story()
    story.tick(4, **A)
    unknown = dict.fromkeys(A)
    assert story.tick(10, **unknown) == []
    assert story.book.evaluate(story.now_ns, measured([], []), NameContainment()) == []
    assert story.book.incidents[0].live


def test_a_dead_spine_is_one_page_and_its_links_are_evidence() -> None:
    story = Story()
    story.tick(2, **A, **B)
    story.tick(20, **A, **B, **SPINE)
    pages = [change for change in story.changes if change.kind is ChangeKind.PAGE]
    assert [page.incident.subject for page in pages] == ["spine0"]
    spine = pages[0].incident.number
    assert {child.subject for child in explained(spine, story.book.incidents)} == {
        "leaf0->spine0",
        "leaf1->spine0",
    }


def test_a_link_that_stays_bad_when_its_switch_is_well_pages() -> None:
    story = Story()
    story.tick(5, **A, **SPINE)
    kinds = story.tick(5, **A)
    assert kinds.index(ChangeKind.UNEXPLAINED) < kinds.index(ChangeKind.PAGE)


def test_what_outlives_its_cause_by_less_than_its_wait_pages_nobody() -> None:
    """A minute's window still holds the loss of a fault that was healed half a minute ago."""
    story = Story()
    story.tick(10, **A, **SPINE)
    kinds = story.tick(4, **A)
    assert ChangeKind.UNEXPLAINED in kinds
    story.tick(10)
    pages = [each.incident.subject for each in story.changes if each.kind is ChangeKind.PAGE]
    assert pages == ["spine0"]


def test_a_link_elsewhere_is_not_explained() -> None:
    story = Story()
    story.tick(10, **SPINE, **{"loss__leaf0->spine1": 0.1})
    pages = {c.incident.subject for c in story.changes if c.kind is ChangeKind.PAGE}
    assert pages == {"spine0", "leaf0->spine1"}


def test_what_comes_back_soon_is_the_same_incident() -> None:
    story = Story()
    story.tick(4, **A)
    story.tick(4)
    assert ChangeKind.REOPENED in story.tick(3, **A)
    assert len(story.book.incidents) == 1
    assert story.book.incidents[0].reopened == 1


def test_what_comes_back_later_is_a_repeat_offender() -> None:
    story = Story()
    story.tick(4, **A)
    story.tick(4)
    story.now_ns += REOPEN_NS
    story.tick(3, **A)
    assert [incident.repeats for incident in story.book.incidents] == [0, 1]


def test_an_acknowledged_incident_pages_nobody_and_clears_itself() -> None:
    story = Story()
    story.tick(2, **A)
    story.book.acknowledge(1, "eve", "on it", story.now_ns)
    assert ChangeKind.PAGE not in story.tick(10, **A)
    assert story.tick(3) == [ChangeKind.RESOLVED]
    with pytest.raises(UsageError, match="resolved already"):
        story.book.acknowledge(1, "eve", "", story.now_ns)
    with pytest.raises(UsageError, match="no incident 7"):
        story.book.find(7)


def test_resolved_by_hand_it_opens_again_if_it_is_still_bad() -> None:
    story = Story()
    story.tick(4, **A)
    kinds = [change.kind for change in story.book.resolve(1, "eve", story.now_ns)]
    assert kinds == [ChangeKind.RESOLVED, ChangeKind.CLEAR]
    assert ChangeKind.REOPENED in story.tick(2, **A)


def test_maintenance_is_silent_and_what_is_left_pages_at_its_end() -> None:
    story = Story()
    silence = Silence(subject="leaf0->*", last_ns=story.now_ns + 100 * S, who="eve")
    numbered = story.book.silence(silence)
    assert ChangeKind.PAGE not in story.tick(15, **A)
    assert story.book.incidents[0].silenced
    assert ChangeKind.PAGE in story.tick(10, **A)
    with pytest.raises(UsageError, match="no silence"):
        story.book.unsilence(numbered.number)


def test_a_silence_of_a_host_is_one_of_its_parts() -> None:
    silence = Silence(subject="h3", last_ns=1, who="eve")
    assert silence.covers("h3/rail0")
    assert silence.covers("h3")
    assert not silence.covers("h30/rail0")


def test_a_silence_of_a_part_is_one_of_what_it_is_part_of() -> None:
    story = Story()
    story.book.silence(Silence(subject="spine0", last_ns=story.now_ns + 100 * S, who="eve"))
    assert ChangeKind.PAGE not in story.tick(15, **{"loss__leaf0->spine0": 0.1})
    assert ChangeKind.PAGE in story.tick(4, **{"loss__leaf0->spine1": 0.1})


def test_since_when_it_is_there_again() -> None:
    story = Story()
    story.tick(4, **A)
    first_ns = story.book.incidents[0].since_ns
    story.tick(60)
    story.tick(2, **A)
    (again,) = story.book.incidents
    assert again.reopened == 1
    assert first_ns == again.opened_ns < again.since_ns == story.now_ns


def test_a_rule_that_is_gone_leaves_no_orphan() -> None:
    story = Story()
    story.tick(4, **A)
    story.rules = (SWITCH,)
    story.restart()
    assert story.tick() == [ChangeKind.RESOLVED, ChangeKind.CLEAR]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(9, "", "9"), (0.05, "ratio", "5%"), (12, "s", "12 s"), (30_000, "ns", "30 µs")],
)
def test_values_are_shown_in_their_unit(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


STEPS = st.lists(
    st.tuples(
        st.fixed_dictionaries({key: st.sampled_from([0.0, 0.1, None]) for key in (*A, *B, *SPINE)}),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(STEPS)
def test_any_history(steps: list[tuple[dict[str, float | None], bool]]) -> None:
    """Whatever happens, with restarts in between: no two live incidents for one cause, every page
    has at most one all-clear, and at the end all is well again."""
    story, untouched = Story(), Story()
    for values, restart in steps:
        if restart:
            story.restart()
        assert story.tick(**values) == untouched.tick(**values)
        live = Counter((i.rule, i.subject) for i in story.book.incidents if i.live)
        assert max(live.values(), default=0) <= 1
    story.tick(5)
    assert all(incident.state is IncidentState.RESOLVED for incident in story.book.incidents)
    story.now_ns += REOPEN_NS
    story.tick()
    reported = Counter(change.kind for change in story.changes)
    assert reported[ChangeKind.PAGE] == reported[ChangeKind.CLEAR]
    assert not story.book.state.streaks


def test_severity_orders_what_is_listed() -> None:
    assert list(Severity) == ["info", "warning", "critical"]


def test_the_book_forgets_the_oldest_of_very_many_but_none_that_is_open() -> None:
    story = Story()
    story.tick(4, **A)
    (first,) = story.book.incidents
    over = [
        msgspec.structs.replace(
            first, number=100 + k, subject=f"x{k}", state=IncidentState.RESOLVED, resolved_ns=k + 1
        )
        for k in range(10_050)
    ]
    story.book.state.incidents = [*over, first]
    story.tick(**A)
    assert len(story.book.incidents) == 10_001
    assert story.book.incidents[0].number == 150
    assert story.book.find(first.number).live
    story.now_ns += RETENTION_NS
    story.tick(**A)
    assert [each.number for each in story.book.incidents] == [first.number]


def test_what_is_another_ones_evidence_goes_on_under_no_other_name() -> None:
    """Only a page that stands for itself is continued by what is known better later."""
    fine = rule("fine", "fine", joins=("link",))
    slow = msgspec.structs.replace(LINK, clear_after=9)
    story = Story(slow, SWITCH, fine)
    loss = {"loss__leaf0->spine0": 0.1}
    story.tick(4, **loss)
    assert story.book.incidents[0].paged
    story.tick(1, **loss, switch__spine0=1.0)
    story.tick(3, switch__spine0=1.0, fine__leaf0=1.0, **dict.fromkeys(loss, 0.0))
    link, switch, other = story.book.incidents
    assert (link.cause, other.rule, other.cause) == (switch.number, "fine", 0)
    assert other.paged


@pytest.mark.parametrize(
    ("reported", "later"), [("leaf0->spine0", "leaf0"), ("leaf0", "leaf0->spine0")]
)
def test_what_is_known_better_later_goes_on_under_the_name_that_was_told(
    reported: str, later: str
) -> None:
    fine = rule("fine", "fine", joins=("link",))
    story = Story(LINK, SWITCH, fine)
    story.tick(4, **{f"loss__{reported}": 0.1})
    story.tick(6, **{f"loss__{reported}": 0.0, f"fine__{later}": 1.0})
    link, other = story.book.incidents
    assert (other.cause, other.pages, link.live) == (link.number, 0, True), "open while it is there"
    story.tick(6, **{f"loss__{reported}": 0.0, f"fine__{later}": 0.0})
    assert not any(each.live for each in story.book.incidents)


def test_what_holds_a_part_that_was_paged_for_is_no_second_page() -> None:
    story = Story(LINK)
    part, whole = {"loss__leaf0->spine0": 0.1}, {"loss__leaf0": 0.1}
    story.tick(4, **part)
    story.tick(6, **part, **whole)
    one, other = story.book.incidents
    assert (one.pages, one.cause, other.pages, other.cause) == (1, 0, 0, one.number)
    story.tick(60)
    assert not any(each.live for each in story.book.incidents)
    # Where nobody knows of the part yet, the whole is paged for.
    story = Story(LINK)
    story.tick(1, **part)
    story.tick(4, **part, **whole)
    one, other = story.book.incidents
    assert (one.pages, one.cause, other.pages) == (0, other.number, 1)


def test_what_was_measured_without_its_cause_is_not_explained_by_it() -> None:
    story = Story()
    story.tick(3, **{"switch__leaf0": 1.0, "loss__leaf0->spine0": 0.1})
    assert [change.incident.subject for change in story.changes if change.kind == "page"] == [
        "leaf0"
    ]
    seen = [
        Observation("switch", "leaf0", 1.0),
        Observation("loss", "leaf0->spine0", 0.1, apart_from=frozenset({"switch"})),
    ]
    reported = []
    for _ in range(4):
        story.now_ns += TICK
        reported += story.book.evaluate(story.now_ns, measured(seen, METRICS), NameContainment())
    assert [change.kind for change in reported] == [ChangeKind.UNEXPLAINED, ChangeKind.PAGE]
    # Apart from another metric it is not apart from this one.
    seen[1] = seen[1]._replace(apart_from=frozenset({"fine"}))
    reported = story.book.evaluate(story.now_ns + TICK, measured(seen, METRICS), NameContainment())
    assert [change.kind for change in reported] == [ChangeKind.EXPLAINED]


def test_a_cause_whose_rule_is_switched_off_explains_nothing() -> None:
    story = Story(LINK)
    story.tick(4, **{"switch__leaf0": 1.0, "loss__leaf0->spine0": 0.1})
    assert [change.kind for change in story.changes] == [ChangeKind.OPENED, ChangeKind.PAGE]
