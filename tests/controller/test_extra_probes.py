"""Further probes for suspects that cannot be told apart: asked for within bounds, waited for by the
page, and said to be in vain where they are."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from tests.controller.judged import Control, finding

from syntony.controller.extra_probes import (
    AGAIN_NS,
    ANSWER_NS,
    DURATION_NS,
    MAX_SETS,
    PAIRS,
    ExtraProbeService,
)
from syntony.fabric.extra_probes import ExtraProbe, Pair, SuspectNote
from syntony.model import S
from syntony.model.findings import Finding

TWINS = ("leaf0->spine0", "spine0->leaf1")
PAIR = ("h0/rail0", "h4/rail0")


def twins(number: int = 0) -> Finding:
    one, other = (name.replace("spine0", f"spine{number}") for name in TWINS)
    return finding(
        one, "link", confidence=0.5, alternatives=(other,), probabilities=(0.5,), twins=1
    )


class Requested:
    def __init__(self, found: ExtraProbe) -> None:
        self.found, self.calls = found, list[frozenset[str]]()
        self.service = ExtraProbeService(self.separating)

    def separating(
        self, suspects: Collection[str], planned: Collection[Pair], limit: int
    ) -> ExtraProbe:
        assert limit == PAIRS
        self.calls.append(frozenset(suspects))
        number = next(name.split("spine")[1] for name in sorted(suspects)).partition("-")[0]
        return self.found._replace(pairs=tuple((a, f"{b}.{number}") for a, b in self.found.pairs))


def test_a_sounding_lasts_a_minute_and_is_not_repeated_for_ten() -> None:
    requested = Requested(ExtraProbe((PAIR,), ()))
    running = [
        second
        for second in range(0, AGAIN_NS // S + 120, 5)
        if requested.service.step([twins()], (), second * S)
    ]
    lasts, again = DURATION_NS // S, AGAIN_NS // S
    assert running == [*range(0, lasts, 5), *range(again, again + lasts, 5)]
    assert requested.calls == [frozenset(TWINS)] * 2


def test_what_is_plain_or_not_known_one_by_one_is_not_asked_about() -> None:
    requested = Requested(ExtraProbe((PAIR,), ()))
    plain = finding("leaf0->spine0", "link", alternatives=("leaf0",), probabilities=(0.01,))
    group = finding("leaf0..*", "group", alternatives=("*..leaf1",), probabilities=(0.5,), twins=1)
    place = finding("h0/rail0", "nic", alternatives=("h0/rail0--leaf0", "h0"), twins=2)
    assert not requested.service.step([plain, group, place], (), 0)
    assert not requested.calls


def test_so_many_at_once_and_no_more() -> None:
    requested = Requested(ExtraProbe((PAIR,), ()))
    found = [twins(number) for number in range(MAX_SETS + 3)]
    assert len(requested.service.step(found, (), 0)) == MAX_SETS
    assert len(requested.service.step(found, (), DURATION_NS - 1)) == MAX_SETS
    assert len(requested.calls) == MAX_SETS
    requested.service.step(found, (), DURATION_NS)
    assert len(requested.calls) == MAX_SETS + 3


def test_notes_may_be_read_in_another_thread_while_more_is_asked() -> None:
    requested = Requested(ExtraProbe((PAIR,), ()))
    requested.service.step([twins(0), twins(1)], (), 0)
    reading = iter(requested.service._requested.items())
    next(reading)
    requested.service.step([twins(2)], (), 1)
    assert len(list(reading)) == 1
    assert len(requested.service.notes(1)) == 3


def test_it_says_what_is_asked_and_what_came_of_it() -> None:
    requested = Requested(ExtraProbe((PAIR,), ()))
    requested.service.step([twins()], (), 0)
    note = requested.service.notes(ANSWER_NS - 1)[frozenset(TWINS)]
    assert note.pending
    assert note.text.startswith("further pairs are probed")
    late = requested.service.notes(ANSWER_NS)[frozenset(TWINS)]
    assert not late.pending
    assert "did not tell these apart" in late.text
    never = Requested(ExtraProbe((), (TWINS,)))
    assert not never.service.step([twins()], (), 0)
    assert never.service.notes(0)[frozenset(TWINS)] == SuspectNote(
        "no pair of NICs could tell these apart", pending=False
    )


def test_a_page_waits_for_the_answer_and_then_names_the_part(control: Control) -> None:
    control.notes = {frozenset(TWINS): SuspectNote("further pairs are probed", pending=True)}
    control.findings = (twins(),)
    control.tick(6)
    assert control.pages() == []
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick(4)
    assert control.pages() == ["link-loss leaf0->spine0"]
    control.tick(60)
    assert control.pages() == ["link-loss leaf0->spine0"]


def test_a_page_waits_no_longer_than_for_the_answer(control: Control) -> None:
    control.notes = {frozenset(TWINS): SuspectNote("further pairs are probed", pending=True)}
    control.findings = (twins(),)
    control.tick(6)
    control.notes = {frozenset(TWINS): SuspectNote("did not tell these apart", pending=False)}
    control.tick(1)
    assert control.pages() == [f"ambiguous-loss {' or '.join(TWINS)}"]
    (found,) = control.live_incidents()
    assert "did not tell these apart" in found["evidence"]
    # What is known better later is the same fault, and not over before it is.
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick(60)
    assert len(control.pages()) == 1
    assert len(control.live()) == 2
    control.findings = ()
    control.tick(60)
    assert control.live() == {}


@pytest.mark.parametrize(("component", "kind"), [("leaf0", "leaf"), ("h1/rail0", "nic")])
def test_what_was_told_as_one_of_two_is_not_told_again_by_its_name(
    control: Control, component: str, kind: str
) -> None:
    other = "leaf1"
    control.findings = (
        finding(component, kind, confidence=0.5, alternatives=(other,), probabilities=(0.45,)),
    )
    control.tick(5)
    reported = " or ".join(sorted((component, other)))
    assert control.pages() == [f"ambiguous-loss {reported}"]
    control.findings = (finding(component, kind),)
    control.tick(60)
    assert control.pages() == [f"ambiguous-loss {reported}"]
    control.findings = (finding(other, "leaf"), finding(component, kind))
    control.tick(5)
    assert control.pages()[1:] == [], "whichever it was called by, it was reported"


def test_what_is_seen_beside_another_is_no_other_name_of_it(control: Control) -> None:
    control.findings = (finding("leaf0", "leaf"),)
    control.tick(9)
    control.findings += (finding("leaf0->spine0", "link", alternatives=("spine0",), twins=1),)
    control.tick(9)
    assert control.pages()[1:] == ["ambiguous-loss leaf0->spine0 or spine0"]


def test_an_unlikely_rival_is_no_suspect(control: Control) -> None:
    control.findings = (
        finding("leaf0", "leaf", confidence=0.8, alternatives=("leaf1",), probabilities=(0.2,)),
    )
    control.tick(5)
    assert control.pages() == ["switch-loss leaf0"]


def test_what_came_back_for_a_moment_and_told_nobody_hides_no_other_name(control: Control) -> None:
    control.findings = (twins(),)
    control.tick(6)
    control.findings = ()
    control.tick(30)
    assert control.live() == {}
    control.findings = (twins(),)
    control.tick(1)
    assert len(control.live()) == 1
    control.findings = (finding("leaf0->spine0", "link"),)
    control.tick(6)
    assert control.pages()[1:] == ["link-loss leaf0->spine0"]
