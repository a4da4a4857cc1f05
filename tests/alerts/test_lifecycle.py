"""When an incident opens, clears and pages, decided a second way: by looking back over the history.

The book counts as it goes. Here each evaluation is judged from the whole list of what was measured
before it, as docs/reference/incidents.md words it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.alerts.incident_book import REPEAT_NS, Book
from syntony.alerts.incident_texts import MAX_EVIDENCE
from syntony.alerts.incidents import ChangeKind, IncidentChange
from syntony.alerts.observations import Observation, measured
from syntony.alerts.paging import REOPEN_NS
from syntony.alerts.rules import Rule, Severity, parse_rules
from syntony.alerts.silences import Silence
from syntony.errors import UsageError
from syntony.model import S

T0 = 1_000 * S


class Apart:
    """Nothing is part of anything."""

    def holds(self, wider: str, narrower: str) -> bool:
        return False

    may_hold = may_include = mirrors = holds

    def is_anything(self, name: str) -> bool:
        return False

    def names(self, one: str, other: str) -> bool:
        return one == other

    def hosts(self, name: str) -> frozenset[str]:
        return frozenset()

    parts = hosts

    def roots(self, name: str) -> frozenset[str]:
        return frozenset({"anything"})

    around = roots


class Inside(Apart):
    """A subject is part of every subject whose name begins its own."""

    def holds(self, wider: str, narrower: str) -> bool:
        return narrower != wider and narrower.startswith(wider)

    may_hold = holds


def rule(name: str = "hot", **settings: object) -> Rule:
    fields: dict[str, object] = {
        "name": name, "metric": name, "severity": "warning", "summary": "{subject}: {value}",
        "remedy": "cool it", "above": 10.0, "open_after": 1, "clear_after": 1, "stable": "0s",
    }  # fmt: skip
    return msgspec.convert(fields | settings, Rule)


def kinds(changes: list[IncidentChange]) -> list[ChangeKind]:
    return [change.kind for change in changes]


def feed(
    book: Book,
    at_ns: int,
    metric: str,
    value: float | None,
    subject: str = "x",
    *,
    evidence: tuple[str, ...] = (),
    jobs: tuple[str, ...] = (),
) -> list[IncidentChange]:
    seen = [Observation(metric, subject, value, evidence, jobs)]
    return book.evaluate(at_ns, measured(seen, [metric]), Apart())


class Step(NamedTuple):
    """One evaluation: how long after the one before, and what was measured."""

    after_s: int
    measured: bool
    """Whether the metric was evaluated at all."""
    value: float | None
    """None: the subject was among the observations, but could not be measured."""
    absent: bool
    """Whether the subject was not among the observations."""

    @property
    def known(self) -> bool:
        return self.measured and (self.absent or self.value is not None)


STEPS = st.lists(
    st.builds(
        Step,
        st.integers(1, 9),
        st.integers(0, 4).map(bool),
        st.sampled_from([None, 0.0, 9.0, 10.0, 11.0, 12.0, 40.0]),
        st.integers(0, 5).map(lambda n: not n),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(
    steps=STEPS,
    open_after=st.integers(1, 4),
    clear_after=st.integers(1, 4),
    stable_s=st.integers(0, 20),
    above=st.booleans(),
)
def test_it_opens_and_clears_as_its_history_says(
    steps: list[Step], open_after: int, clear_after: int, stable_s: int, above: bool
) -> None:
    limit = {"above": 10.0} if above else {"above": None, "below": 10.0}
    checked = rule(open_after=open_after, clear_after=clear_after, stable=f"{stable_s}s", **limit)
    book = Book([checked])
    now_s, live = 1_000, False
    history: list[tuple[int, bool]] = []  # known evaluations: when, and whether it was bad
    bad_values: list[float] = []  # of the incident
    opened = 0
    paged, bad_s, quiet_s = False, 0, 0
    for step in steps:
        now_s += step.after_s
        seen = [] if step.absent else [Observation("hot", "x", step.value)]
        metrics = ["hot"] if step.measured else []
        changes = kinds(book.evaluate(now_s * S, measured(seen, metrics), Apart()))
        bad = (
            step.known and not step.absent and step.value is not None
            and (step.value > 10.0 if above else step.value < 10.0)
        )  # fmt: skip
        if step.known:
            history.append((now_s, bad))
        was_live = live
        if step.known and not live:
            live = len(history) >= open_after and all(b for _, b in history[-open_after:])
        elif step.known and not bad:
            last_bad_s = max(at_s for at_s, b in history if b)
            quiet = all(not b for _, b in history[-clear_after:])
            live = not (quiet and now_s - last_bad_s >= stable_s)
        begun = live and not was_live
        assert (ChangeKind.OPENED in changes or ChangeKind.REOPENED in changes) == begun
        assert (ChangeKind.RESOLVED in changes) == (was_live and not live)
        # Without a wait it pages when it opens. The first all-clear comes with the resolution.
        assert (ChangeKind.PAGE in changes) == (begun and not paged)
        if begun and opened:
            quiet_s = max(quiet_s, now_s - bad_s)
        well = paged and not live and step.measured and now_s - bad_s >= 2 * quiet_s
        assert (ChangeKind.CLEAR in changes) == well
        paged = (paged or begun) and not well
        if begun:
            opened += 1
        if live and bad:
            bad_s = now_s
        if live and bad and step.value is not None:
            bad_values.append(step.value)
        incidents = book.incidents
        assert len(incidents) == min(opened, 1), "within fifteen minutes it is the same one"
        if incidents:
            (incident,) = incidents
            assert incident.live == live
            assert incident.reopened == opened - 1
            assert incident.repeats == 0
            assert (incident.resolved_ns == 0) == live
            assert incident.worst == (max(bad_values) if above else min(bad_values))


def test_a_metric_that_was_not_evaluated_says_nothing_of_its_incidents() -> None:
    """A controller whose optics survey failed must not clear what the optics showed before."""
    book = Book([rule("hot", clear_after=1), rule("cold", clear_after=1)])
    feed(book, T0, "hot", 99.0)
    for k in range(1, 100):
        assert feed(book, T0 + k * S, "cold", 0.0) == []
    assert book.find(1).live
    assert kinds(book.evaluate(T0 + 200 * S, measured([], ["hot"]), Apart())) == [
        ChangeKind.RESOLVED,
        ChangeKind.CLEAR,
    ]


def test_good_evaluations_must_follow_each_other() -> None:
    book = Book([rule(clear_after=3)])
    feed(book, T0, "hot", 11)
    for k in range(1, 40):
        assert not kinds(feed(book, T0 + k * S, "hot", 11 if k % 3 == 0 else 1))
    assert kinds(feed(book, T0 + 40 * S, "hot", 1)) == []
    assert kinds(feed(book, T0 + 41 * S, "hot", 1)) == []
    assert ChangeKind.RESOLVED not in kinds(feed(book, T0 + 42 * S, "hot", None))
    assert ChangeKind.RESOLVED in kinds(feed(book, T0 + 43 * S, "hot", 1))


@pytest.mark.parametrize(("after_s", "resolved"), [(59, False), (60, True)])
def test_quiet_for_less_than_stable_is_not_over(after_s: int, resolved: bool) -> None:
    book = Book([rule(stable="1min")])
    feed(book, T0, "hot", 11)
    for at_s in range(1, after_s):
        assert feed(book, T0 + at_s * S, "hot", 1) == []
    assert (ChangeKind.RESOLVED in kinds(feed(book, T0 + after_s * S, "hot", 1))) == resolved


def test_the_worst_of_a_rule_below_is_its_lowest_and_of_one_above_its_highest() -> None:
    for limit, values, worst in (
        ({"above": 10.0}, (20, 50, 30), 50),
        ({"above": None, "below": 10.0}, (7, 3, 5), 3),
    ):
        book = Book([rule(**limit)])
        for k, value in enumerate(values):
            feed(book, T0 + k * S, "hot", value)
        incident = book.find(1)
        assert (incident.worst, incident.value) == (worst, values[-1])
        feed(book, T0 + 9 * S, "hot", None)
        assert incident.value == values[-1], "what was not measured has no value"


def test_the_value_follows_while_it_recovers_and_the_worst_stays() -> None:
    book = Book([rule(clear_after=5)])
    feed(book, T0, "hot", 30)
    feed(book, T0 + S, "hot", 4)
    assert (book.find(1).value, book.find(1).worst) == (4, 30)


def test_evidence_that_differs_in_numbers_alone_is_one_line_with_a_count() -> None:
    book = Book([rule()])
    for k in range(5):
        lines = (
            f"loss on {k} paths over 1s", "leaf0-0..* 100%", f"h{k}/rail0 worst", f"-{k}.5 dB",
            f"lost at 2026-11-25T19:0{k}:57.98{k}Z", f"10.0.0.{k} answers",
        )  # fmt: skip
        feed(book, T0 + k * S, "hot", 11, evidence=lines)
    assert book.find(1).evidence == (
        "h0/rail0 worst", "10.0.0.0 answers", "h1/rail0 worst", "10.0.0.1 answers",
        "h2/rail0 worst", "10.0.0.2 answers", "h3/rail0 worst", "10.0.0.3 answers",
        "loss on 4 paths over 1s (5 times)", "leaf0-0..* 100%", "h4/rail0 worst",
        "-4.5 dB (5 times)", "lost at 2026-11-25T19:04:57.984Z (5 times)", "10.0.0.4 answers",
    )  # fmt: skip


def test_evidence_is_kept_once_each_the_newest_of_very_much_and_jobs_are_a_set() -> None:
    book = Book([rule()])
    for k in range(MAX_EVIDENCE + 5):
        feed(book, T0 + k * S, "hot", 11, evidence=("same", f"seen h{k}"), jobs=("b", "a"))
    feed(book, T0 + 99 * S, "hot", 12, evidence=("last",), jobs=("c", "a"))
    incident = book.find(1)
    assert len(incident.evidence) == MAX_EVIDENCE
    assert len(set(incident.evidence)) == MAX_EVIDENCE
    assert incident.evidence[-1] == "last"
    assert incident.evidence[-2] == f"seen h{MAX_EVIDENCE + 4}"
    assert incident.jobs == ("a", "b", "c")
    assert incident.updated_ns == T0 + 99 * S


def test_the_rule_named_first_explains_and_of_one_rule_the_wider_subject() -> None:
    rules = [rule("hot", explained_by=("rack", "room")), rule("rack"), rule("room")]
    book = Book(rules)
    seen = [
        Observation("hot", "r1/x", 11), Observation("room", "r", 11), Observation("rack", "r1", 11),
        Observation("hot", "r2/x", 11), Observation("hot", "z", 11), Observation("rack", "z", 11),
    ]  # fmt: skip
    book.evaluate(T0, measured(seen, ["hot", "rack", "room"]), Inside())
    causes = {
        (i.rule, i.subject): book.find(i.cause).rule if i.cause else "" for i in book.incidents
    }
    assert causes["hot", "r1/x"] == "rack"
    assert causes["hot", "r2/x"] == "room"
    assert causes["hot", "z"] == "rack", "the same subject explains, too"
    assert causes["rack", "r1"] == causes["room", "r"] == ""
    cable = Book([rule("hot")])
    both = [Observation("hot", "a", 11), Observation("hot", "ab", 11)]
    cable.evaluate(T0, measured(both, ["hot"]), Inside())
    assert [cable.find(1).cause, cable.find(2).cause] == [0, 1]


@pytest.mark.parametrize(("gap_ns", "same"), [(REOPEN_NS - 1, True), (REOPEN_NS, False)])
def test_coming_back_is_the_same_incident_for_a_quarter_of_an_hour(gap_ns: int, same: bool) -> None:
    book = Book([rule()])
    feed(book, T0, "hot", 50)
    feed(book, T0 + S, "hot", 1)
    back = feed(book, T0 + S + gap_ns, "hot", 20)
    assert (back[0].kind is ChangeKind.REOPENED) == same
    assert len(book.incidents) == (1 if same else 2)
    last = book.incidents[-1]
    assert last.live
    assert last.resolved_ns == 0
    assert (last.worst, last.repeats, last.reopened) == ((50, 0, 1) if same else (20, 1, 0))
    assert last.opened_ns == (T0 if same else T0 + S + gap_ns)


@pytest.mark.parametrize(("gap_ns", "repeats"), [(REPEAT_NS - 1, 1), (REPEAT_NS, 0)])
def test_a_repeat_offender_is_one_within_a_week_of_the_same_subject_and_rule(
    gap_ns: int, repeats: int
) -> None:
    book = Book([rule("hot"), rule("cold")])
    for metric, subject in (("hot", "x"), ("hot", "y"), ("cold", "x")):
        feed(book, T0, metric, 50, subject)
        feed(book, T0 + S, metric, 1, subject)
    feed(book, T0 + S + gap_ns, "hot", 20)
    assert book.incidents[-1].repeats == repeats


def test_what_a_person_does_is_kept_and_returned() -> None:
    book = Book([rule()])
    feed(book, T0, "hot", 50)
    (change,) = book.acknowledge(1, "eve", "on it", T0 + 7)
    assert (change.at_ns, change.kind, change.incident.number) == (T0 + 7, "acknowledged", 1)
    incident = book.find(1)
    assert (incident.acknowledged_by, incident.comment, incident.updated_ns) == (
        "eve", "on it", T0 + 7,
    )  # fmt: skip
    assert kinds(book.resolve(1, "bob", T0 + 9)) == [ChangeKind.RESOLVED, ChangeKind.CLEAR]
    assert (incident.comment, incident.resolved_ns) == ("on it", T0 + 9)
    with pytest.raises(UsageError, match="resolved already"):
        book.resolve(1, "bob", T0 + 10)


def test_resolved_by_hand_says_who_and_counts_from_the_start_again() -> None:
    book = Book([rule(open_after=3)])
    for k in range(3):
        feed(book, T0 + k * S, "hot", 50)
    book.resolve(1, "bob", T0 + 3 * S)
    assert book.find(1).comment == "cleared by bob"
    assert [kinds(feed(book, T0 + k * S, "hot", 50)) for k in range(4, 7)] == [
        [],
        [],
        [ChangeKind.REOPENED, ChangeKind.PAGE],
    ]


def test_silences_are_numbered_and_end_one_by_one() -> None:
    book = Book([rule()])
    numbers = [
        book.silence(Silence(subject=subject, last_ns=T0 + 50 * S, who="eve")).number
        for subject in ("x", "y", "x")
    ]
    assert numbers == [1, 2, 3]
    feed(book, T0, "hot", 50)
    book.unsilence(1)
    assert feed(book, T0 + S, "hot", 50) == []
    assert book.find(1).silenced
    book.unsilence(3)
    assert kinds(feed(book, T0 + 2 * S, "hot", 50)) == [ChangeKind.PAGE]
    assert not book.find(1).silenced
    assert [each.number for each in book.state.silences] == [2]
    feed(book, T0 + 50 * S, "hot", 50)
    assert book.state.silences == []


def test_a_silence_covers_from_its_first_instant_to_before_its_last() -> None:
    for at_ns, quiet in ((T0 - 1, False), (T0, True), (T0 + 9, True), (T0 + 10, False)):
        book = Book([rule()])
        book.silence(Silence(rule="h*", first_ns=T0, last_ns=T0 + 10, who="eve"))
        assert (ChangeKind.PAGE not in kinds(feed(book, at_ns, "hot", 50))) == quiet
    book = Book([rule()])
    book.silence(Silence(rule="cold", last_ns=T0 + 10, who="eve"))
    assert ChangeKind.PAGE in kinds(feed(book, T0, "hot", 50))


def test_a_rule_says_nothing_that_was_not_asked() -> None:
    text = '[[rule]]\nname="r"\nmetric="m"\nseverity="info"\nsummary="s"\nremedy="r"\nabove=0\n'
    with pytest.raises(Exception, match="not a setting") as wrong:
        parse_rules(text + "qqqq = 1\n", "own.toml")
    assert "did you mean" not in str(wrong.value)
    (parsed,) = parse_rules(text, "own.toml")
    assert (parsed.open_after, parsed.clear_after, parsed.stable_ns, parsed.wait_ns) == (
        2, 3, 60 * S, 0,
    )  # fmt: skip
    assert parsed.enabled
    assert parsed.severity is Severity.INFO


@pytest.mark.parametrize(("then", "explained"), [(40, True), (39, True), (41, False)])
def test_a_count_stays_explained_until_more_is_counted(then: float, explained: bool) -> None:
    """What is counted within an hour still holds what its cause did, after that is over."""
    rules = [rule("errors", counts=True, explained_by=("rack",)), rule("rack")]
    book = Book(rules)
    for at_s, errors, rack in ((0, 20, 11), (5, 40, 11), (10, then, 1), (15, then, 1)):
        seen = [Observation("errors", "r1/x", errors), Observation("rack", "r1", rack)]
        book.evaluate(T0 + at_s * S, measured(seen, ["errors", "rack"]), Inside())
    incident = next(each for each in book.incidents if each.rule == "errors")
    assert bool(incident.cause) == explained


@pytest.mark.parametrize(
    ("limits", "limit"), [({"above": 2.5}, 2.5), ({"above": None, "below": 7.0}, 7.0)]
)
def test_a_summary_tells_the_limit(limits: dict[str, float | None], limit: float) -> None:
    tight = rule("hot", summary="beyond {limit}", **limits)
    assert tight.limit == limit
    book = Book([tight])
    feed(book, T0, "hot", 2.5 + 4 if "below" in limits else 3)
    assert book.incidents[0].summary == f"beyond {limit:g}"


@pytest.mark.parametrize("mild", [False, True])
@pytest.mark.parametrize("severity", Severity)
def test_what_hurts_little_is_a_warning_where_it_would_be_critical(
    severity: Severity, mild: bool
) -> None:
    book = Book([rule(severity=severity)])
    book.evaluate(T0, measured([Observation("hot", "x", 50, mild=mild)], ["hot"]), Apart())
    calmer = Severity.WARNING if mild and severity is Severity.CRITICAL else severity
    assert book.incidents[0].severity is calmer


def test_what_nobody_was_told_of_is_over_without_waiting_to_be_stable() -> None:
    book = Book([rule(wait="5s", stable="30s", clear_after=2)])
    assert kinds(feed(book, T0, "hot", 11.0)) == [ChangeKind.OPENED]
    assert kinds(feed(book, T0 + S, "hot", 1.0)) == []
    assert kinds(feed(book, T0 + 2 * S, "hot", 1.0)) == [ChangeKind.RESOLVED]


def test_what_somebody_was_told_of_waits_to_be_stable() -> None:
    book = Book([rule(wait="5s", stable="30s")])
    feed(book, T0, "hot", 11.0)
    assert kinds(feed(book, T0 + 5 * S, "hot", 11.0)) == [ChangeKind.PAGE]
    assert kinds(feed(book, T0 + 34 * S, "hot", 1.0)) == []
    ending = kinds(feed(book, T0 + 35 * S, "hot", 1.0))
    assert ending == [ChangeKind.RESOLVED, ChangeKind.CLEAR]


def test_a_counter_waits_to_be_stable_whether_or_not_it_paged() -> None:
    book = Book([rule(wait="5s", stable="30s", counts=True)])
    feed(book, T0, "hot", 11.0)
    assert kinds(feed(book, T0 + 29 * S, "hot", 1.0)) == []
    assert kinds(feed(book, T0 + 30 * S, "hot", 1.0)) == [ChangeKind.RESOLVED]


@pytest.mark.parametrize("paged", [True, False])
def test_a_count_is_its_own_once_a_cause_that_nobody_was_paged_for_is_over(paged: bool) -> None:
    """A port that flaps is down now and then, never for long enough to page."""
    rules = [rule("flaps", counts=True, explained_by=("down",)),
             rule("down", wait="0s" if paged else "30s", clear_after=1)]  # fmt: skip
    book = Book(rules)
    changes: list[IncidentChange] = []
    for at_s, down in ((0, 11), (5, 11), (10, 1), (15, 1), (20, 1)):
        seen = [Observation("flaps", "h0", 12), Observation("down", "h0", down)]
        changes += book.evaluate(T0 + at_s * S, measured(seen, ["flaps", "down"]), Inside())
    assert [each.incident.rule for each in changes if each.kind is ChangeKind.PAGE] == (
        ["down"] if paged else ["flaps"]
    )


def test_a_count_stays_explained_by_the_end_of_what_a_page_explains() -> None:
    rules = [
        rule("flaps", counts=True, explained_by=("down",)), rule("rack"),
        rule("down", wait="9s", explained_by=("rack",), clear_after=1),
    ]  # fmt: skip
    book = Book(rules)
    for at_s, down, rack in ((0, 11, 11), (5, 11, 11), (10, 1, 11), (15, 1, 11)):
        seen = [Observation("flaps", "r1/x", 12), Observation("down", "r1/x", down),
                Observation("rack", "r1", rack)]  # fmt: skip
        book.evaluate(T0 + at_s * S, measured(seen, ["flaps", "down", "rack"]), Inside())
    assert {each.rule: each.pages for each in book.incidents} == {"flaps": 0, "down": 0, "rack": 1}


@pytest.mark.parametrize("begin_s", [0, 20])
def test_a_count_that_a_page_explained_stays_explained_by_it_after_another_cause(
    begin_s: int,
) -> None:
    """The rack's page is over, then a loss at the rack that nobody was paged for. A count that
    begins after the page has no such explanation."""
    rules = [
        rule("flaps", counts=True, explained_by=("rack", "loss")), rule("rack", clear_after=1),
        rule("loss", wait="99s", clear_after=1),
    ]  # fmt: skip
    book = Book(rules)
    for at_s in range(0, 60, 5):
        seen = [Observation("flaps", "r1/x", 12 if at_s >= begin_s else 1),
                Observation("rack", "r1", 11 if at_s < 10 else 1),
                Observation("loss", "r1", 11 if at_s < 30 else 1)]  # fmt: skip
        book.evaluate(T0 + at_s * S, measured(seen, ["flaps", "rack", "loss"]), Inside())
    pages = {each.rule: each.pages for each in book.incidents}
    assert pages == {"flaps": int(begin_s > 0), "rack": 1, "loss": 0}


def test_no_page_for_what_is_not_measured_any_more() -> None:
    """It is not known whether it is still bad."""
    book = Book([rule(wait="5s")])
    feed(book, T0, "hot", 11)
    assert all(not feed(book, T0 + k * S, "cold", 1) for k in range(1, 30))
    assert kinds(feed(book, T0 + 30 * S, "hot", 11)) == [ChangeKind.PAGE]


@pytest.mark.parametrize("steps_s", [(0, 40, 41), (0, 3, 6)])
def test_a_page_waits_in_the_time_of_measurements_that_come_late(steps_s: tuple[int, ...]) -> None:
    """A controller that is behind by ever more, and one that is always behind by 20 s."""
    book = Book([rule(wait="5s")])
    ages_s = (0, 39, 38) if steps_s[1] == 40 else (20, 20, 20)
    paged = []
    for at_s, age_s in zip(steps_s, ages_s, strict=True):
        seen = [Observation("hot", "x", 11)]
        at_ns = {"hot": T0 + (at_s - age_s) * S}
        changes = book.evaluate(T0 + at_s * S, measured(seen, ["hot"], at_ns), Apart())
        paged.append(ChangeKind.PAGE in kinds(changes))
    assert paged == [False, False, steps_s[1] == 3]
