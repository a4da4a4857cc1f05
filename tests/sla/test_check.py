"""The replacement check, and which of many bad pairs is worth an incident."""

from __future__ import annotations

import pytest

from syntony.model.sla import Latency, SlaItem, SlaRow, SlaStatus
from syntony.sla.check import NicPosition, check_latency, check_places, worst
from syntony.sla.subjects import FEW, FLEET, troubles

OK, WARNING, BREACH, UNKNOWN = (
    SlaStatus.OK, SlaStatus.WARNING, SlaStatus.BREACH, SlaStatus.UNKNOWN,
)  # fmt: skip
BAD = frozenset({BREACH})


def row(subject: str, status: SlaStatus = OK) -> SlaRow:
    return SlaRow(
        subject=subject, path_class="leaf", now=Latency(sent=9, lost=0, measured=9), usual=None,
        peers=None, status=status, reasons=() if status is OK else ("p99 1 ms, promised 50 µs",),
    )  # fmt: skip


def place(expected: str, seen: str, rails: set[int], rail: int = 0) -> tuple[SlaItem, SlaItem]:
    at = NicPosition(
        nic="h0/rail0", rail=rail, expected=expected, seen=seen, rails_there=frozenset(rails)
    )
    cabled, on_rail = check_places([at])
    return cabled, on_rail


@pytest.mark.parametrize(
    ("expected", "seen", "status", "says"),
    [
        ("leaf0-0", "leaf0-0", OK, "at leaf0-0, as the topology says"),
        ("leaf0-0", "leaf0-1", BREACH, "at leaf0-1, the topology says leaf0-0"),
        ("leaf0-0", "", UNKNOWN, "not known yet"),
        ("", "leaf0-0", UNKNOWN, "has no switch for it"),
    ],
)
def test_a_nic_is_where_it_belongs(expected: str, seen: str, status: SlaStatus, says: str) -> None:
    cabled, _ = place(expected, seen, {0})
    assert (cabled.status, says in cabled.detail) == (status, True)


@pytest.mark.parametrize(
    ("rails", "status"), [({0}, OK), ({0, 1}, OK), ({1}, BREACH), (set(), UNKNOWN)]
)
def test_crossed_cables_show_without_any_topology(rails: set[int], status: SlaStatus) -> None:
    _, on_rail = place("", "10.0.0.1", rails)
    assert on_rail.status is status


def test_a_slow_host_is_told_from_a_slow_peer() -> None:
    slow_peer = [row("h0/rail0->h1/rail0", BREACH)] + [
        row(f"h0/rail0->h{n}/rail0") for n in range(2, 6)
    ]
    slow_host = [row(f"h0/rail0->h{n}/rail0", BREACH) for n in range(1, 4)] + slow_peer[1:3]
    assert check_latency(["h0/rail0"], slow_peer)[0].status is WARNING
    assert check_latency(["h0/rail0"], slow_host)[0].status is BREACH


def test_what_was_not_measured_is_unknown() -> None:
    assert {item.status for item in check_latency(["h0/rail0"], [])} == {UNKNOWN}
    only_unknown = [row("h0/rail0->h1/rail0", UNKNOWN)]
    assert check_latency(["h0/rail0"], only_unknown)[0].status is UNKNOWN


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([], UNKNOWN), ([OK], OK), ([OK, WARNING], WARNING), ([OK, WARNING, UNKNOWN], UNKNOWN),
        ([OK, WARNING, UNKNOWN, BREACH], BREACH),
    ],
)  # fmt: skip
def test_the_worst_of_several(statuses: list[SlaStatus], status: SlaStatus) -> None:
    assert worst(statuses) is status


def test_the_nic_that_bad_pairs_share_is_told_once() -> None:
    rows = [row(f"h0/rail0->h{n}/rail0", BREACH) for n in range(1, 5)]
    rows += [row(f"h{n}/rail0->h{n + 1}/rail0") for n in range(1, 9)]
    (found,) = troubles(rows, BAD)
    assert (found.subject, found.share) == ("h0/rail0", 1.0)
    assert found.reasons[0] == "h0/rail0->h1/rail0: p99 1 ms, promised 50 µs"


def test_pairs_that_share_nothing_are_told_one_by_one_while_they_are_few() -> None:
    def pairs(count: int) -> list[SlaRow]:
        bad = [row(f"a{n}/r->b{n}/r", BREACH) for n in range(count)]
        well = [
            row(f"{end}{n}/r->c{other}/r") for n in range(count) for end in "ab" for other in "12"
        ]
        return bad + well

    assert [each.subject for each in troubles(pairs(2), BAD)] == ["a0/r->b0/r", "a1/r->b1/r"]
    (fleet,) = troubles(pairs(FEW + 1), BAD)
    assert fleet.subject == FLEET
    assert troubles([row("a/r->b/r"), row("b/r->a/r", UNKNOWN)], BAD) == []
