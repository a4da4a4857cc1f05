"""One-way delays of segments: never of a wrong pair, and of most that can be paired."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.traffic.segment_world import NUMBERS, T0, Segment, Tap, World

from syntony.model import MS, US, S
from syntony.traffic.segment_delays import (
    EXPECTED,
    KEEP_NS,
    LATE_NS,
    MAX_DELAY_NS,
    MAX_DIRECTIONS,
    NO_RECEIVER,
    STAMP,
    Delays,
    SegmentDelays,
)
from syntony.wire.segments import SegmentFlow, SegmentsReport

SEED = random.randrange(1 << 32)
GBPS = 1e9
QUIET: dict[str, float] = {}
LATE = {"loss": 0.02, "needless": 0.05, "duplicate": 0.02, "late": 0.01}
"""Some packets need longer than `MAX_DELAY_NS`; both ends see all of them."""
ROUGH = LATE | {"unread": 0.1, "unsent": 0.05, "adapt": 0.2, "slowest_ns": MAX_DELAY_NS // 2}


def run(world: World, taps: dict[str, Tap], bound_ns: int) -> list[Delays]:
    """All reports, in the order in which they come, and a step each half second."""
    service = SegmentDelays()
    messages = sorted(
        (
            (at_ns, host, report)
            for host, tap in taps.items()
            for at_ns, report in tap.reports(bound_ns)
        ),
        key=lambda each: each[:2],
    )
    found: list[Delays] = []
    now_ns = T0 - 3 * S
    for at_ns, host, report in messages:
        while now_ns + S // 2 <= at_ns:
            now_ns += S // 2
            found += service.step(now_ns)
        service.take(host, report, at_ns)
    return found + service.step(now_ns + LATE_NS + 5 * S)


def grade(rng: random.Random, bps: float, odds: dict[str, float]) -> tuple[int, int, list[Delays]]:
    """Delays reported, those that no copy of a byte had, and everything reported."""
    world = World(rng, seconds=12, bps=bps, **odds)
    shift = min(27, max(world.finest, int(np.log2(bps / 8 / 16))))
    bound_ns = rng.choice([100, 20 * US])
    errors = [rng.randrange(-bound_ns, bound_ns + 1) for _ in range(2)]
    taps = {
        "h0": Tap(world, sends=True, shift=shift + rng.randrange(2), error_ns=errors[0]),
        "h1": Tap(world, sends=False, shift=shift, error_ns=errors[1]),
    }
    found = run(world, taps, bound_ns)
    true = {delay for some in world.true_delays.values() for delay in some}
    reported = [delay - errors[1] + errors[0] for each in found for delay in each.delays_ns]
    assert all(2 * bound_ns == each.bound_ns for each in found if each.delays_ns)
    return len(reported), sum(delay not in true for delay in reported), found


@pytest.mark.parametrize("gbps", [0.001, 0.2, 8, 60, 400])
@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("odds", [ROUGH, LATE], ids=["rough", "late"])
def test_no_byte_is_taken_for_another_however_rough_the_way(
    gbps: float, turn: int, odds: dict[str, float]
) -> None:
    seed = SEED + turn
    print("seed", seed, gbps)
    reported, false, _ = grade(random.Random(seed), gbps * GBPS, odds)
    assert false == 0, reported


@pytest.mark.parametrize("gbps", [0.001, 0.2, 8, 60, 400])
def test_most_seconds_of_a_quiet_way_are_measured(gbps: float) -> None:
    print("seed", SEED, gbps)
    reported, false, found = grade(random.Random(SEED), gbps * GBPS, QUIET)
    assert false == 0
    measured = {each.second_ns for each in found if each.delays_ns}
    assert len(measured) >= 10  # of 12; the first is spent on knowing what was sent before
    assert reported >= 5 * len(measured)
    assert {(each.host, each.nic, each.job) for each in found} == {("h0", "rail0", "night")}
    assert not any(each.why for each in found if each.second_ns >= T0 + 2 * S)


# --- by hand


def stamps(*some: tuple[int, int]) -> bytes:
    return np.array([(T0 + at_ns, number) for at_ns, number in some], STAMP).tobytes()


def flow(*, sends: bool, made: bytes, shift: int = 16, **fields: object) -> SegmentFlow:
    given = {
        "job": "night", "nic": "rail0", "local": "10.0.0.1", "local_port": 40_000,
        "remote": "10.0.0.2", "remote_port": 5_000, "shift": shift, "sent": made, "received": b"",
        "sampled": len(made) // 12,
    }  # fmt: skip
    if not sends:
        given |= {
            "local": "10.0.0.2", "local_port": 5_000, "remote": "10.0.0.1", "remote_port": 40_000,
            "sent": b"", "received": made, "sampled": 0,
        }  # fmt: skip
    return SegmentFlow(**given | fields)  # type: ignore[arg-type]


def report(from_ns: int, at_ns: int, *flows: SegmentFlow, **fields: object) -> SegmentsReport:
    given: dict[str, object] = {
        "from_ns": T0 + from_ns, "at_ns": T0 + at_ns, "bound_ns": 100, "sigma_ns": 3.0, "step": 1,
        "flows": flows, **fields,
    }  # fmt: skip
    return SegmentsReport(**given)  # type: ignore[arg-type]


B = 1 << 16
"""Between two sampled bytes."""
MANY = [(2 * S + place, place * B) for place in range(1, EXPECTED + 1)]


def one_second(
    sent: list[tuple[int, int]], received: list[tuple[int, int]], **fields: object
) -> list[Delays]:
    """Of an interval from 0 to 3 s."""
    service = SegmentDelays()
    service.take("h0", report(0, 3 * S, flow(sends=True, made=stamps(*sent))), T0 + 3 * S)
    other = report(0, 3 * S, flow(sends=False, made=stamps(*received)), **fields)
    service.take("h1", other, T0 + 3 * S)
    return service.step(T0 + 20 * S)


def delays(found: list[Delays]) -> list[int]:
    return [delay for each in found for delay in each.delays_ns]


def test_the_delay_is_from_leaving_to_coming_with_both_clocks_bounds() -> None:
    (found,) = one_second([(2 * S, 7 * B)], [(2 * S + 5 * MS, 7 * B)], bound_ns=40, sigma_ns=4.0)
    assert (found.second_ns, found.delays_ns) == (T0 + 2 * S, (5 * MS,))
    assert (found.bound_ns, found.sigma_ns) == (140, 5.0)
    assert found.flow == ("10.0.0.1", 40_000, "10.0.0.2", 5_000)


def test_what_clocks_may_be_off_makes_a_delay_negative_and_more_makes_none() -> None:
    assert delays(one_second([(2 * S, B)], [(2 * S - 200, B)])) == [-200]
    found = one_second([(2 * S, B)], [(2 * S - 201, B)])
    assert delays(found) == []
    assert sum(each.unmatched for each in found) <= 1


@pytest.mark.parametrize("second_ns", [200 * MS, 900 * MS])
def test_a_byte_that_was_sent_twice_is_not_used_whichever_copy_came(second_ns: int) -> None:
    sent = [(S + MS, B), (S + 2 * MS, 2 * B), (S + MS + second_ns, B)]
    for came in (5 * MS, second_ns + 5 * MS):
        found = one_second(sent, [(S + came, B), (S + 6 * MS, 2 * B)])
        assert delays(found) == [4 * MS]
        assert sum(each.discarded for each in found) == 1


def test_a_byte_that_came_twice_counts_once() -> None:
    found = one_second([(2 * S, B)], [(2 * S + 5, B), (2 * S + MS, B)])
    assert delays(found) == [5]
    assert [each.discarded for each in found] == [1]


def test_a_copy_that_may_have_passed_before_sampling_began_is_not_used() -> None:
    late = MAX_DELAY_NS - 1
    assert delays(one_second([(late - 9, B)], [(late, B)])) == []
    assert delays(one_second([(late - 9, B)], [(late + 1, B)])) == [10]


def test_bytes_finer_than_what_was_sampled_all_the_time_are_not_used() -> None:
    service = SegmentDelays()
    for begin, shift, byte in ((0, 16, 4 * B), (3, 14, 5 * B)):
        first, last = begin * S, (begin + 3) * S
        sent = stamps((first + 2 * S, byte), (first + 2 * S + 1, byte + B // 4))
        service.take("h0", report(first, last, flow(sends=True, made=sent, shift=shift)), T0 + last)
        came = stamps((first + 2 * S + 7, byte), (first + 2 * S + 8, byte + B // 4))
        service.take("h1", report(first, last, flow(sends=False, made=came)), T0 + last)
    found = service.step(T0 + 20 * S)
    assert delays(found) == [7, 7, 7]
    assert [each.discarded for each in found] == [1, 0]


def test_the_same_number_a_wrap_later_is_another_byte() -> None:
    sent = [(S + place * 10 * MS, (place << 28) % NUMBERS) for place in range(40)]
    came = [(at_ns + 3 * MS, number) for at_ns, number in sent]
    assert delays(one_second(sent, came)) == [3 * MS] * 40
    # One that the sender's tap has not seen: the number of a wrap before is no match.
    found = one_second(sent[:20] + sent[21:], came)
    assert delays(found) == [3 * MS] * 39
    assert sum(each.unmatched for each in found) == 1


def test_a_gap_between_reports_begins_anew() -> None:
    service = SegmentDelays()
    for first in (0, 4):  # the report from 3 to 4 s is missing
        made = stamps((first * S + 500 * MS, (first + 1) * B))
        both = report(first * S, (first + 3) * S, flow(sends=True, made=made))
        service.take("h0", both, T0 + (first + 3) * S)
        came = stamps((first * S + 501 * MS, (first + 1) * B))
        other = report(first * S, (first + 3) * S, flow(sends=False, made=came))
        service.take("h1", other, T0 + (first + 3) * S)
    assert delays(service.step(T0 + 20 * S)) == []


def test_ends_on_different_steps_of_the_timeline_are_not_compared() -> None:
    assert delays(one_second([(2 * S, B)], [(2 * S + 5, B)], step=2)) == []


def test_a_step_of_the_timeline_between_a_senders_reports_begins_again() -> None:
    service = SegmentDelays()
    for first, step in ((0, 1), (1, 2)):
        made = stamps((first * S + 500 * MS, (first + 1) * B), (first * S + 900 * MS, 9 * B))
        service.take(
            "h0", report(first * S, (first + 1) * S, flow(sends=True, made=made), step=step), T0
        )
    came = stamps((S + 600 * MS, 2 * B))
    service.take("h1", report(0, 2 * S, flow(sends=False, made=came), step=2), T0)
    assert delays(service.step(T0 + 9 * S)) == []


def test_a_byte_that_was_on_its_way_for_longer_than_a_second_is_not_measured() -> None:
    assert delays(one_second([(S, B)], [(S + MAX_DELAY_NS, B)])) == [MAX_DELAY_NS]
    assert delays(one_second([(S, B)], [(S + MAX_DELAY_NS + 1, B)])) == []


def test_what_another_host_says_to_have_received_does_not_mix() -> None:
    service = SegmentDelays()
    service.take("h0", report(0, 3 * S, flow(sends=True, made=stamps((2 * S, B)))), T0 + 3 * S)
    for host, came_ns in (("h9", 1), ("h1", 5)):
        came = flow(sends=False, made=stamps((2 * S + came_ns, B)))
        service.take(host, report(0, 3 * S, came), T0 + 3 * S)
    assert delays(service.step(T0 + 20 * S)) == [5]


def test_no_second_is_reported_twice() -> None:
    service = SegmentDelays()
    service.take("h0", report(0, 3 * S, flow(sends=True, made=stamps(*MANY))), T0 + 3 * S)
    first = service.step(T0 + 6 * S)
    came = stamps(*((at_ns + 4, number) for at_ns, number in MANY))
    service.take("h1", report(0, 3 * S, flow(sends=False, made=came)), T0 + 6 * S)
    then = service.step(T0 + 20 * S)
    assert [each.second_ns for each in (*first, *then)] == [T0 + 2 * S, T0 + 3 * S]


def test_nothing_is_matched_before_the_sender_has_reported_all_until_then() -> None:
    service = SegmentDelays()
    first = flow(sends=True, made=stamps((S + 900 * MS, B)))
    service.take("h0", report(0, 2 * S, first), T0 + 2 * S)
    came = flow(sends=False, made=stamps((2 * S + 200 * MS, B)))
    service.take("h1", report(0, 3 * S, came), T0 + 3 * S)
    assert service.step(T0 + 3 * S) == []
    again = flow(sends=True, made=stamps((2 * S + 100 * MS, B)))
    service.take("h0", report(2 * S, 3 * S, again), T0 + 3 * S)
    assert delays(service.step(T0 + 20 * S)) == []


@pytest.mark.parametrize(
    ("sent_ns", "came_ns", "whole"),
    [
        (3 * S + 200, 3 * S, True),
        (3 * S + 199, 3 * S, False),  # what came last may not be matched: clocks
        (3 * S + 200, 3 * S - 1, False),  # more may have come
        (4 * S, 4 * S, True),
    ],
)
def test_a_second_is_over_once_both_ends_have_reported_what_passed_in_it(
    sent_ns: int, came_ns: int, whole: bool
) -> None:
    service = SegmentDelays()
    service.take("h0", report(0, sent_ns, flow(sends=True, made=stamps(*MANY))), T0 + sent_ns)
    assert service.step(T0 + 3 * S) == []
    came = stamps(*((at_ns + 4, number) for at_ns, number in MANY))
    service.take("h1", report(0, came_ns, flow(sends=False, made=came)), T0 + 3 * S)
    found = service.step(T0 + 3 * S)
    assert delays(found) == ([4] * EXPECTED if whole else [])
    assert delays(service.step(T0 + 2 * S + LATE_NS)) == ([] if whole else [4] * EXPECTED)


def whys(*reports: tuple[str, SegmentsReport], now_ns: int = 20 * S) -> set[str]:
    service = SegmentDelays()
    for host, each in reports:
        service.take(host, each, T0 + 3 * S)
    return {each.why for each in service.step(T0 + now_ns)}


def test_that_nothing_is_known_has_a_reason() -> None:
    sent = "h0", report(0, 3 * S, flow(sends=True, made=stamps(*MANY)))
    blind = report(-T0, -T0, flow(sends=True, made=b"", sampled=EXPECTED), clock="UNKNOWN")
    deaf = "h1", report(-T0, -T0, flow(sends=False, made=b""), clock="UNKNOWN")
    came = "h1", report(0, 3 * S, flow(sends=False, made=stamps(*MANY)))
    other = "h1", report(0, 3 * S, flow(sends=False, made=stamps((2 * S, 77 * B))))
    nothing = "h1", report(0, 3 * S, flow(sends=False, made=b""))
    soon = 4 * S + LATE_NS
    assert whys(sent) == {NO_RECEIVER}
    assert whys(sent, deaf, now_ns=soon) == {"no fleet time on h1: UNKNOWN"}
    assert whys(("h0", blind), came, now_ns=soon) == {"no fleet time on h0: UNKNOWN"}
    assert any("rewritten" in each for each in whys(sent, other))
    assert any("was seen where" in each for each in whys(sent, nothing))
    assert whys(came) == set()  # whose it is, nobody knows
    few = "h0", report(0, 3 * S, flow(sends=True, made=stamps(*MANY[:-1])))
    assert whys(few) == set()


def test_a_clock_that_comes_back_is_used_once_all_is_known_again() -> None:
    service = SegmentDelays()
    blind = report(-T0, -T0, flow(sends=True, made=b"", sampled=9), clock="UNKNOWN")
    service.take("h0", blind, T0)
    service.take("h0", report(0, 3 * S, flow(sends=True, made=stamps(*MANY))), T0 + 3 * S)
    came = [(at_ns + 4, number) for at_ns, number in MANY]
    service.take("h1", report(0, 3 * S, flow(sends=False, made=stamps(*came))), T0 + 3 * S)
    assert delays(service.step(T0 + 20 * S)) == [4] * len(MANY)


def test_directions_are_bounded_and_forgotten() -> None:
    service = SegmentDelays()
    some = tuple(
        flow(sends=True, made=b"", local_port=port) for port in range(1, MAX_DIRECTIONS // 2 + 2)
    )
    service.take("h0", report(0, S, *some), T0)
    assert service.left_out == 2
    service.step(T0 + KEEP_NS + 1)
    service.take("h0", report(S, 2 * S, *some[-1:]), T0 + KEEP_NS + 1)
    assert service.left_out == 2


def test_memory_is_of_the_last_seconds_only() -> None:
    service = SegmentDelays()
    for second in range(60):
        made = stamps(*((second * S + place * MS, ((second * 20 + place) << 28) % NUMBERS)
                        for place in range(20)))  # fmt: skip
        service.take(
            "h0", report(second * S, (second + 1) * S, flow(sends=True, made=made)), T0 + second * S
        )
        service.step(T0 + second * S)
    (direction,) = (each for each in service._directions.values() if each.sender is not None)
    assert direction.sender is not None
    kept = direction.sender._bytes
    assert 20 * (KEEP_NS // S - 1) <= len(kept) <= 20 * (KEEP_NS // S + 1)
    assert sum(map(len, direction.sender._places.values())) == len(kept)


def test_the_world_itself_has_what_it_is_asked_for() -> None:
    """The grader: bytes that were sent again, that came twice, numbers that wrapped."""
    world = World(random.Random(1), seconds=4, bps=60 * GBPS, **ROUGH)
    last: Segment = world.sent[-1]
    assert last.end > NUMBERS
    assert any(len(some) > 1 for some in world.true_delays.values())
