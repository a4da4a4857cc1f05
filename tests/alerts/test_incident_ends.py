"""How long a cause explains what it left behind, and how an incident that was reopened, silenced or
acknowledged goes on."""

from __future__ import annotations

import msgspec
import pytest
from tests.alerts.clos import DEFAULTS, Night, bad
from tests.alerts.test_lifecycle import T0, Apart, Inside, feed, kinds, rule

from syntony.alerts.incident_book import Book
from syntony.alerts.incident_names import MAX_FORMER
from syntony.alerts.incidents import ChangeKind, IncidentState
from syntony.alerts.observations import Observation, measured
from syntony.alerts.rules import Severity
from syntony.alerts.silences import Silence, check_rule
from syntony.errors import UsageError
from syntony.model import DAY_NS, S


@pytest.mark.parametrize(("after_ns", "kept"), [(30 * DAY_NS - 1, True), (30 * DAY_NS, False)])
def test_a_resolved_incident_is_kept_for_thirty_days(after_ns: int, kept: bool) -> None:
    book = Book([rule()])
    feed(book, T0, "hot", 11)
    feed(book, T0 + S, "hot", 1)
    feed(book, T0 + S + after_ns, "hot", 1)
    assert bool(book.incidents) == kept


@pytest.mark.parametrize(("span_s", "paged_s"), [(0, 10), (15, 25), (30, 40)])
def test_what_ended_within_the_window_of_a_value_still_explains_it(
    span_s: int, paged_s: int
) -> None:
    """The rack pages from second 0 and is over in second 10; its after-effects begin there."""
    book = Book([rule("slow", explained_by=("rack",)), rule("rack")])
    paged = {}
    for at_s in range(60):
        seen = [Observation("rack", "r1", 11 if at_s < 10 else 1),
                Observation("slow", "r1/x", 1 + 10 * (at_s >= 10), span_ns=span_s * S)]  # fmt: skip
        for each in book.evaluate(T0 + at_s * S, measured(seen, ["slow", "rack"]), Inside()):
            if each.kind is ChangeKind.PAGE:
                paged[each.incident.rule] = at_s
    assert paged == {"rack": 0, "slow": paged_s}


@pytest.mark.parametrize(("silenced", "pages"), [(False, ["slow"]), (True, [])])
def test_what_nobody_was_paged_for_explains_nothing_afterwards(
    silenced: bool, pages: list[str]
) -> None:
    """But for a silence somebody would have been."""
    book = Book([rule("slow", explained_by=("rack",)), rule("rack", wait="30s")])
    if silenced:
        book.silence(Silence(rule="rack", last_ns=T0 + 99 * S, who="eve"))
    paged = []
    for at_s in range(20):
        seen = [Observation("rack", "r1", 11 if at_s < 10 else 1),
                Observation("slow", "r1/x", 11 if at_s >= 10 else 1, span_ns=60 * S)]  # fmt: skip
        changes = book.evaluate(T0 + at_s * S, measured(seen, ["slow", "rack"]), Inside())
        paged += [each.incident.rule for each in changes if each.kind is ChangeKind.PAGE]
    assert paged == pages


def test_what_is_good_and_has_not_paged_explains_nothing() -> None:
    """It is not resolved yet, and may never be paged for."""
    book = Book([rule("slow", explained_by=("rack",)), rule("rack", wait="30s", clear_after=99)])
    paged = []
    for at_s in range(10):
        seen = [Observation("rack", "r1", 11 if at_s < 5 else 1),
                Observation("slow", "r1/x", 11 if at_s >= 5 else 1)]  # fmt: skip
        changes = book.evaluate(T0 + at_s * S, measured(seen, ["slow", "rack"]), Inside())
        paged += [(at_s, each.incident.rule) for each in changes if each.kind is ChangeKind.PAGE]
    assert paged == [(5, "slow")]


def test_a_warning_that_becomes_critical_pages_once_more() -> None:
    book = Book([rule(severity="critical")])
    pages = []
    for at_s, mild in enumerate([True, True, False, False, True, False]):
        seen = [Observation("hot", "x", 11, mild=mild)]
        changes = book.evaluate(T0 + at_s * S, measured(seen, ["hot"]), Apart())
        pages += [
            (at_s, each.incident.paged_as) for each in changes if each.kind is ChangeKind.PAGE
        ]
    assert pages == [(0, Severity.WARNING), (2, Severity.CRITICAL)]
    assert book.find(1).pages == 2


def test_who_acknowledged_a_warning_is_not_paged_when_it_becomes_critical() -> None:
    book = Book([rule(severity="critical")])
    book.evaluate(T0, measured([Observation("hot", "x", 11, mild=True)], ["hot"]), Apart())
    book.acknowledge(1, "eve", "", T0)
    assert feed(book, T0 + S, "hot", 11) == []
    assert book.find(1).severity is Severity.CRITICAL


def test_what_comes_back_begins_as_what_it_is_then() -> None:
    """A critical fault that returns as a mild one is a warning, with a page of its own, and open
    although somebody had acknowledged it."""
    book = Book([rule(severity="critical", clear_after=1)])
    feed(book, T0, "hot", 11)
    book.acknowledge(1, "eve", "", T0)
    feed(book, T0 + S, "hot", 1)
    seen = measured([Observation("hot", "x", 11, mild=True)], ["hot"])
    changes = book.evaluate(T0 + 2 * S, seen, Apart())
    assert kinds(changes) == [ChangeKind.REOPENED, ChangeKind.PAGE]
    incident = book.find(1)
    assert (incident.state, incident.severity, incident.pages, incident.paged_as) == (
        IncidentState.OPEN, Severity.WARNING, 2, Severity.WARNING,
    )  # fmt: skip


def test_what_comes_back_after_its_cause_is_not_explained_by_it() -> None:
    book = Book([rule("hot", explained_by=("rack",)), rule("rack")])
    pages = []
    for at_s, (hot, rack) in enumerate([(11, 11), (1, 1), (11, 1)]):
        seen = [Observation("hot", "r1/x", hot), Observation("rack", "r1", rack)]
        changes = book.evaluate(T0 + at_s * S, measured(seen, ["hot", "rack"]), Inside())
        pages += [each.incident.rule for each in changes if each.kind is ChangeKind.PAGE]
        assert [each.live for each in book.incidents] == [hot > 10, rack > 10]
    assert pages == ["rack", "hot"]
    assert book.find(1).cause == 0


@pytest.mark.parametrize(("gap_s", "waits_s"), [(20, 5), (40, 5)])
def test_what_paged_and_comes_back_waits_in_full(gap_s: int, waits_s: int) -> None:
    """Within `stable` as well as after it."""
    book = Book([rule(wait="5s", stable="1s", clear_after=1)])
    assert kinds([c for k in range(6) for c in feed(book, T0 + k * S, "hot", 11)])[-1] == "page"
    assert "resolved" in kinds(feed(book, T0 + 7 * S, "hot", 1))
    back_ns = T0 + (7 + gap_s) * S
    assert kinds(feed(book, back_ns, "hot", 11)) == [ChangeKind.REOPENED]
    assert kinds(feed(book, back_ns + waits_s * S - 1, "hot", 11)) == []
    assert kinds(feed(book, back_ns + waits_s * S, "hot", 11)) == [ChangeKind.PAGE]


def test_a_first_page_waits_no_longer_for_times_that_were_good_within_stable() -> None:
    """Resolved without a page, back before `stable` is over: 3 s of 5 s are left."""
    book = Book([rule(wait="5s", stable="30s")])
    feed(book, T0, "hot", 11)
    feed(book, T0 + 2 * S, "hot", 1)
    feed(book, T0 + 10 * S, "hot", 11)
    feed(book, T0 + 11 * S, "hot", 1)
    feed(book, T0 + 20 * S, "hot", 11)
    assert kinds(feed(book, T0 + 22 * S - 1, "hot", 11)) == []
    assert kinds(feed(book, T0 + 22 * S, "hot", 11)) == [ChangeKind.PAGE]


# --- further probes, silences ---


def test_no_page_while_further_probes_are_under_way() -> None:
    book = Book([rule()])
    for at_s, pending in enumerate([True, True, False]):
        seen = [Observation("hot", "x", 11, pending=pending)]
        changes = book.evaluate(T0 + at_s * S, measured(seen, ["hot"]), Apart())
        assert (ChangeKind.PAGE in kinds(changes)) == (not pending)


@pytest.mark.parametrize(
    ("counts", "past", "then", "pages"),
    [
        (True, False, 12, False), (True, False, 13, True), (True, False, 11, False),
        (False, True, 12, False), (False, True, 13, True), (False, False, 12, True),
    ],
)  # fmt: skip
def test_after_a_silence_only_what_has_happened_since_pages(
    counts: bool, past: bool, then: float, pages: bool
) -> None:
    """A count or a change of the past; a state that is still bad pages then."""
    book = Book([rule(counts=counts)])
    book.silence(Silence(last_ns=T0 + 2 * S, who="eve"))
    changes = []
    for at_s, value in enumerate([12, 11, then, then]):
        seen = [Observation("hot", "x", value, past=past)]
        changes += book.evaluate(T0 + at_s * S, measured(seen, ["hot"]), Apart())
    assert kinds(changes).count(ChangeKind.PAGE) == pages


def test_after_a_silence_a_count_that_fell_and_rises_again_pages() -> None:
    """What was counted during the silence leaves the window; what rises then is new."""
    book = Book([rule(counts=True)])
    book.silence(Silence(last_ns=T0 + 2 * S, who="eve"))
    pages = []
    for at_s, value in enumerate([20, 20, 15, 12, 13]):
        if ChangeKind.PAGE in kinds(feed(book, T0 + at_s * S, "hot", value)):
            pages.append(at_s)
    assert pages == [4]


@pytest.mark.parametrize(
    ("silenced", "quiet"), [((), False), (("h0",), False), (("h0", "h1"), True)]
)
def test_a_silence_of_each_host_is_one_of_hosts_that_fall_silent_together(
    silenced: tuple[str, ...], quiet: bool
) -> None:
    night = Night()
    night.silence(*silenced)
    seen = bad("silent-together", "2 hosts", members=("h0", "h1"))
    assert bool(night.run(20, seen)) != quiet
    assert night.find("silent-together").silenced == quiet


def test_members_that_are_inferred_are_silenced_by_their_names_alone() -> None:
    night = Night()
    night.silence("h0", "h1")
    assert night.run(20, bad("gateways-absent-together", "gateways a, b", members=("h0", "h1")))


@pytest.mark.parametrize(("subject", "quiet"), [("h0/rail0", True), ("h1/rail0", False)])
def test_a_silence_of_what_a_host_reports_over_is_one_of_the_host(
    subject: str, quiet: bool
) -> None:
    night = Night()
    night.silence(subject)
    assert bool(night.run(20, bad("host-silent", "h0", via=("h0/rail0",)))) != quiet


@pytest.mark.parametrize(("hosts", "quiet"), [(("h0",), False), (("h0", "h1"), True)])
def test_a_silence_of_all_hosts_at_a_leaf_is_one_of_the_hosts_there(
    hosts: tuple[str, ...], quiet: bool
) -> None:
    night = Night()
    night.silence(*hosts)
    assert bool(night.run(20, bad("switch-or-hosts", "hosts at leaf0"))) != quiet


# --- what the page says ---


def test_what_hurts_jobs_is_listed_where_the_page_is_and_what_does_not_is_not() -> None:
    night = Night()
    loss = bad("link-loss", "leaf0->spine0", jobs=("a",))
    verdict = bad("job-slow-network", "leaf0->spine0", jobs=("b", "c"))
    symptom = bad("latency-sla", "h0/rail0->h2/rail0", jobs=("d",))
    night.run(60, loss, verdict, symptom)
    page = night.find("link-loss")
    assert page.jobs == ("a", "b", "c")
    assert [line for line in page.evidence if "hurts" in line] == [
        "hurts b, c: job-slow-network leaf0->spine0"
    ]


def test_the_five_newest_earlier_words_are_kept_oldest_first() -> None:
    night = Night()
    group = bad("ambiguous-loss", "leaf0 or spine0")
    night.run(20, group)
    said = [night.find("ambiguous-loss").summary]
    for _ in range(4):
        for seen in (bad("switch-down", "leaf0"), group):
            night.run(90, seen)
            said.append(night.find("ambiguous-loss").summary)
    kept = night.find("ambiguous-loss").former_words
    assert len(said) == 9
    assert len(kept) == MAX_FORMER == 5
    assert [words.partition("Z: ")[2] for words in kept] == said[-6:-1]


def test_a_wider_name_of_the_same_rule_is_the_better_one_also_where_nothing_is_joined() -> None:
    """A cable of which one direction paged."""
    worn = rule("worn", wait="2s")
    night = Night(worn)
    one, both = (Observation("worn", subject, 11) for subject in ("leaf0->spine0", "leaf0--spine0"))
    assert night.run(10, one) == ["worn leaf0->spine0"]
    assert night.run(20, one, both) == []
    assert night.book.find(1).summary == "leaf0--spine0: 11"


def test_of_two_causes_the_oldest_explains_also_when_it_is_back_and_after_a_restart() -> None:
    night = Night()
    one, other = bad("link-loss", "leaf0->spine0"), bad("link-loss", "spine0->leaf1")
    pair = bad("latency-sla", "h0/rail0->h2/rail0")
    night.run(10, one)
    night.run(60, other)
    night.run(20, one, other, pair)
    assert [each.reopened for each in night.book.incidents] == [1, 0, 0]
    assert night.find("latency-sla").cause == 1
    night.restart()
    night.run(10, one, other, pair)
    assert night.find("latency-sla").cause == 1


def test_what_a_cause_that_is_over_was_evidence_of_stays_the_page() -> None:
    """A NIC loses packets, its host is silent for a while, its port flaps now and then: the flaps,
    which are the silence's, do not explain what explains that."""
    flapping = msgspec.structs.replace(DEFAULTS["link-flapping"], joins=(), proven=False)
    night = Night(*(DEFAULTS | {flapping.name: flapping}).values())
    loss, flaps = bad("nic-loss", "h0/rail0"), bad("link-flapping", "h0/rail0")
    host = bad("host-silent", "h0", via=("h0/rail0",))
    assert night.run(2, flaps) == []
    assert night.run(10, loss) == ["nic-loss h0/rail0"]
    assert night.run(10, loss, host) == night.run(10, loss, flaps, host) == []
    assert night.run(60, loss, flaps) == []
    assert (night.cause("nic-loss"), night.cause("link-flapping")) == ("", "host-silent")
    assert night.cause("host-silent") == "nic-loss"


def test_what_may_be_the_same_as_its_cause_keeps_that_open() -> None:
    """Both lose packets; the one that was paged for is good from one evaluation to the next."""
    settings: dict[str, object] = {"joins": ("link", "switch"), "stable": "0s", "clear_after": 1}
    night = Night(rule("link", explained_by=("switch",), **settings), rule("switch", **settings))
    switch, link = Observation("switch", "leaf0", 11), Observation("link", "leaf0->spine0", 11)
    assert night.run(2, switch, link) == ["switch leaf0"]
    assert night.run(4, link) == []
    assert night.said("resolved") == []
    night.run(4)
    assert night.said("clear") == ["switch leaf0"]


def test_a_silence_for_a_rule_that_does_not_exist_is_refused() -> None:
    silence = Silence(rule="link-los", last_ns=T0, who="eve")
    with pytest.raises(UsageError, match="no rule 'link-los'; did you mean"):
        check_rule(silence, ["link-loss", "port-down"])
    check_rule(Silence(rule="link-*", last_ns=T0, who="eve"), ["link-loss"])
