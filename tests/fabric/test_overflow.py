"""Losses held against packets that wait in the same place, second by second."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.fabric.bursts import Cause, judge
from tests.fabric.flow_rows import FlowCounts, add

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import MIN_QUEUE_NS, FaultLocator
from syntony.fabric.history import FIELDS, FlowHistory, SecondCounts
from syntony.fabric.locate import OVER_NATS, Located, search
from syntony.fabric.overflow import (
    IN_EMPTY,
    LEVELS_NS,
    STANDS_NS,
    ComponentSeconds,
    Overflow,
    QueueingDelays,
    classify,
    waits,
)
from syntony.fabric.starved import FlowEnds
from syntony.fabric.sums import FINE_S

NAN = float("nan")
Runs = list[tuple[int, int, float]]
"""How many seconds, losses of a hundred probes in each, and how long packets waited, ns."""


def seconds(runs: Runs, sigma_ns: float = 0.0) -> ComponentSeconds:
    lost, wait = each_second(runs)
    late = np.where(wait >= LEVELS_NS[:, None], 30.0, 0.0).astype(np.float64)
    return ComponentSeconds(
        np.full(len(lost), 100), lost, QueueingDelays(wait, late, 1.0, sigma_ns)
    )


def each_second(runs: Runs) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    each = [(lost, wait) for count, lost, wait in runs for _ in range(count)]
    lost, wait = zip(*each, strict=True)
    return np.array(lost), np.array(wait, dtype=float)


DEEP = 3
"""Probes are late by so many of the levels."""


def bursts(runs: Runs, share: float = 1.0, sigma_ns: float = 0.0) -> ComponentSeconds:
    """Most packets wait for nothing; of each run, how many ways had a late probe."""
    lost, ways = each_second(runs)
    late = np.zeros((len(LEVELS_NS), len(lost)))
    late[:DEEP] = ways
    return ComponentSeconds(
        np.full(len(lost), 100), lost, QueueingDelays(np.zeros(len(lost)), late, share, sigma_ns)
    )


FULL = 400_000.0


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([(20, 1, 0.0)], Overflow.NONE),
        ([(20, 1, FULL)], Overflow.OPEN),
        ([(20, 0, FULL)], Overflow.UNKNOWN),
        ([(20, 1, NAN)], Overflow.UNKNOWN),
        # As many seconds with a queue as without; losses in one kind, or in both.
        ([(20, 1, FULL), (20, 0, 0.0)], Overflow.ALL),
        ([(20, 0, FULL), (20, 1, 0.0)], Overflow.NONE),
        ([(30, 1, FULL), (30, 1, 0.0)], Overflow.NONE),
        ([(5, 1, FULL), (5, 0, 0.0)], Overflow.OPEN),
        ([(5, 1, FULL), (5, 1, 0.0)], Overflow.OPEN),
        # A moment in which it was full may be within a second in which most found it empty.
        ([(20, 1, FULL), (16, 0, 0.0), (4, 1, 0.0)], Overflow.OPEN),
        ([(30, 2, FULL), (28, 0, 0.0), (2, 1, 0.0)], Overflow.ALL),
        # Seldom without a queue: few seconds say little.
        ([(55, 1, FULL), (5, 0, 0.0)], Overflow.OPEN),
        # Before the first loss the cable may have been well.
        ([(30, 0, 0.0), (30, 1, FULL)], Overflow.OPEN),
        ([(30, 0, FULL), (30, 1, 0.0)], Overflow.NONE),
        # In the first seconds: whether any waited.
        ([(4, 1, FULL)], Overflow.OPEN),
        ([(4, 1, 0.0)], Overflow.UNKNOWN),
        ([(4, 1, NAN)], Overflow.UNKNOWN),
        ([(4, 1, FULL), (20, 1, NAN)], Overflow.UNKNOWN),
        ([(5, 1, FULL)], Overflow.OPEN),
        ([(20, 1, STANDS_NS - 1)], Overflow.NONE),
        ([(20, 1, STANDS_NS)], Overflow.OPEN),
    ],
)
def test_what_the_seconds_say(runs: Runs, expected: Overflow) -> None:
    assert classify(seconds(runs)).overflow is expected


def test_clocks_that_err_see_no_small_queue() -> None:
    assert classify(seconds([(20, 1, 50_000.0)], 16_000.0)).overflow is Overflow.OPEN
    assert classify(seconds([(20, 1, 50_000.0)], 17_000.0)).overflow is Overflow.NONE


@pytest.mark.parametrize(
    ("runs", "standing"),
    [
        ([(50, 1, 0.0), (10, 1, FULL)], FULL),
        ([(58, 1, FULL), (2, 1, 0.0)], 0.0),
        ([(59, 1, FULL), (1, 1, 0.0)], FULL),
        ([(50, 1, FULL), (10, 1, 0.0)], 0.0),
        ([(50, 1, FULL), (6, 1, NAN), (4, 1, FULL)], 0.0),
        ([(50, 1, FULL), (5, 1, NAN), (5, 1, FULL)], FULL),
    ],
)
def test_a_queue_stands_in_nearly_all_of_the_newest_seconds(runs: Runs, standing: float) -> None:
    assert classify(seconds(runs)).standing_ns == standing


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([(20, 1, 0)], Overflow.NONE),
        # As many seconds with a burst as without; losses in one kind, or in both.
        ([(20, 1, 5), (20, 0, 0)], Overflow.ALL),
        ([(20, 0, 5), (20, 1, 0)], Overflow.NONE),
        ([(30, 1, 5), (30, 1, 0)], Overflow.NONE),
        ([(5, 1, 5), (5, 0, 0)], Overflow.OPEN),
        # Some is lost in a moment that no probe saw.
        ([(20, 2, 5), (18, 0, 0), (2, 1, 0)], Overflow.ALL),
        # In all seconds alike.
        ([(30, 1, 5)], Overflow.OPEN),
        # In all, but in some more: it loses more in these, or it does not.
        ([(20, 4, 12), (20, 0, 2)], Overflow.ALL),
        ([(8, 1, 12), (8, 1, 2)], Overflow.OPEN),
        ([(30, 3, 12), (30, 3, 2)], Overflow.NONE),
        # A full queue loses three of four at the most.
        ([(20, 12, 4), (20, 0, 0)], Overflow.ALL),
        ([(20, 13, 4), (20, 0, 0)], Overflow.NONE),
        # Senders slow down before it loses so much for long; for a second it may.
        ([(20, 0, 0), (20, 6, 12)], Overflow.OPEN),
        ([(20, 0, 0), (3, 2, 12), (6, 0, 0), (1, 9, 12)], Overflow.ALL),
        # Few probes meet it: a burst may lose the only one that does.
        ([(12, 0, 1), (4, 1, 1), (8, 1, 0), (16, 0, 0)], Overflow.OPEN),
        ([(12, 0, 4), (4, 1, 4), (8, 1, 0), (16, 0, 0)], Overflow.NONE),
        ([(12, 0, 1.5), (4, 1, 1.5), (8, 1, 0), (16, 0, 0)], Overflow.NONE),
    ],
)
def test_what_the_seconds_say_of_a_queue_that_is_full_in_bursts(
    runs: Runs, expected: Overflow
) -> None:
    first, *_ = runs
    # The first second with a loss begins what is looked at.
    assert classify(bursts([(1, 1, first[2]), *runs])).overflow is expected


def test_what_is_late_of_some_ways_is_held_against_what_these_lose() -> None:
    runs: Runs = [(20, 13, 4), (20, 0, 0)]
    assert classify(bursts(runs, share=0.9)).overflow is Overflow.ALL
    assert classify(bursts(runs, share=0.95)).overflow is Overflow.NONE


def test_a_burst_is_the_longest_delay_that_losses_come_with() -> None:
    found = classify(bursts([(20, 1, 5), (20, 0, 0)]))
    assert found.standing_ns == 0.0
    assert found.burst_ns == LEVELS_NS[DEEP - 1]
    assert classify(bursts([(30, 1, 5)])) == (Overflow.OPEN, 0.0, 0.0)
    assert classify(bursts([(1, 1, 0), (20, 0, 5), (20, 1, 0)])) == (Overflow.NONE, 0.0, 0.0)


@pytest.mark.parametrize("usual", [0.0, 1.5 * STANDS_NS])
def test_a_shorter_delay_that_fits_better_makes_no_shorter_burst(usual: float) -> None:
    """Or the queue that was paged for would be gone while packets still wait for it."""
    each = bursts([(21, 2, 5), (20, 0, 0)])
    late = each.waits.late.copy()
    late[DEEP - 1, 20] = 1
    usual_ns = np.where(each.lost > 0, usual, 0.0)
    found = classify(each._replace(waits=each.waits._replace(usual_ns=usual_ns, late=late)))
    assert (found.overflow, found.burst_ns) == (Overflow.ALL, LEVELS_NS[DEEP - 1])


def test_clocks_that_err_see_no_short_burst() -> None:
    runs: Runs = [(20, 1, 5), (20, 0, 0)]
    most_ns = float(LEVELS_NS[DEEP - 1])
    assert classify(bursts(runs, sigma_ns=most_ns / 3)).overflow is Overflow.ALL
    assert classify(bursts(runs, sigma_ns=most_ns / 2.9)).overflow is Overflow.NONE


def test_the_best_of_many_readings_must_be_better() -> None:
    """So many losses in seconds with a burst are beyond chance by one reading, not by all."""
    nats = 13 * np.log(2 / (1 + IN_EMPTY))
    assert OVER_NATS < nats < OVER_NATS + np.log(1 + len(LEVELS_NS))
    assert classify(bursts([(13, 1, 5), (13, 0, 0)])).overflow is Overflow.OPEN


@pytest.mark.parametrize("case", range(8))
def test_ways_are_late_beyond_what_their_nics_other_ways_are(case: int) -> None:
    """As counted way by way, on any shape, with seconds and floors that are not known."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    flows, seconds = int(rng.integers(1, 40)), int(rng.integers(1, 70))
    src, dst = rng.integers(0, 5, flows), 100 + rng.integers(0, 4, flows)
    usual_ns = 20_000.0 + rng.exponential(30_000.0, (seconds, 2, flows))
    usual_ns[rng.random(usual_ns.shape) < 0.1] = NAN
    usual_ns[:, :, rng.random(flows) < 0.1] = NAN
    slowest_ns = usual_ns + rng.exponential(500_000.0, usual_ns.shape)
    seen = FlowHistory()
    for usual, slowest in zip(usual_ns, slowest_ns, strict=True):
        counts = np.zeros((FIELDS, flows), dtype=np.int64)
        seen.add(SecondCounts(counts, usual, slowest, np.full(flows, 100.0)))
    crosses = rng.random((2, flows)) < (0.5 if case else 1.0)
    crosses[0, 0] = True
    found = waits(seen, FlowEnds((), src, dst), *map(np.flatnonzero, crosses))

    ends = [(src, dst), (dst, src)]
    ways = [(way, flow) for way in range(2) for flow in range(flows)]
    across = [each for each in ways if crosses[each]]
    beside = [each for each in ways if not crosses[each]]
    newest = slowest_ns[-FINE_S:] - 100.0 - np.array(
        [[min(usual_ns[:, way, flow].tolist(), key=lambda v: (np.isnan(v), v))
          for flow in range(flows)] for way in range(2)]
    )  # fmt: skip
    assert found.share == 1.0
    for level, late in zip(LEVELS_NS, found.late, strict=True):
        for second, number in enumerate(late):
            expected = 0.0
            for way, flow in across:
                shares = [0.0]
                for end in range(2):
                    nic = ends[way][end][flow]
                    same = [each for each in beside if ends[each[0]][end][each[1]] == nic]
                    hits = [newest[second, w, f] >= level for w, f in same]
                    shares += [sum(hits) / len(hits)] if hits else []
                expected += (newest[second, way, flow] >= level) - max(shares)
            assert number == pytest.approx(max(0.0, expected), abs=1e-4)


def drawn(cause: Cause, seeds: Iterable[int]) -> Counter[Overflow]:
    """Verdicts on what loses enough to be named."""
    cases = [judge(cause, seed) for seed in seeds]
    return Counter(case.verdict.overflow for case in cases if case.lost >= 10)


CABLES = [each for each in Cause if each is not Cause.QUEUE]


def test_drawn_queues_that_are_full_in_bursts_are_no_cables() -> None:
    found = drawn(Cause.QUEUE, range(8))
    assert found.total() >= 3
    assert not found[Overflow.NONE]
    assert found[Overflow.ALL] >= found[Overflow.OPEN]


@pytest.mark.parametrize("cause", CABLES)
def test_a_drawn_cable_is_no_queue_whoever_is_late(cause: Cause) -> None:
    found = drawn(cause, range(5))
    assert found.total() >= 3
    assert not found[Overflow.ALL]
    assert found[Overflow.NONE] > found[Overflow.OPEN]


@pytest.mark.slow
def test_fresh_draws_of_queues_and_cables() -> None:
    first = random.randrange(10**6)
    print(f"seeds from {first}")
    queues = drawn(Cause.QUEUE, range(first, first + 120))
    assert queues[Overflow.NONE] <= 0.2 * queues.total()
    for cause in CABLES:
        cables = drawn(cause, range(first, first + 60))
        assert cables[Overflow.ALL] <= 1
        assert cables[Overflow.OPEN] <= 0.4 * cables.total()


class Fabric:
    """Two leaves, two spines, two NICs at each leaf; what links lose and hold back is set."""

    def __init__(self) -> None:
        self.rng = random.Random(5)
        homes = {f"h{k}/rail0": f"leaf{k % 2}" for k in range(6)}
        self.book = PathBook()
        self.watch = FaultLocator(self.book)
        self.flows = [
            Way(a, b, 61_000 + port, 8620)
            for a in homes for b in homes if a != b for port in range(4)
        ]  # fmt: skip
        for flow in self.flows:
            for way in (flow, reply(flow)):
                near, far = homes[way.src], homes[way.dst]
                middle = [f"spine{self.rng.randrange(2)}"] if near != far else []
                self.book.learn(way, dict.fromkeys([near, *middle, far]))
        self.loses: dict[str, int] = {}
        """Link to how many of ten thousand."""
        self.holds_ns: dict[str, float] = {}
        self.unresolved = False
        """Nobody knows which way a round trip broke."""

    def second(self) -> None:
        rows, heard = [], dict[tuple[str, str], int]()
        for flow in self.flows:
            ways = [self.book.components(way) for way in (flow, reply(flow))]
            delay = [
                20_000.0 + self.rng.gauss(0, 300) + sum(self.holds_ns.get(n, 0.0) for n in way)
                for way in ways
            ]
            lost = [
                sum(self.rng.random() * 10_000 < sum(self.loses.get(n, 0) for n in way)
                    for _ in range(10))
                for way in ways
            ]  # fmt: skip
            heard[flow.src, flow.dst] = heard.get((flow.src, flow.dst), 0) + 10 - lost[0]
            broken = sum(lost) if self.unresolved else 0
            there, back = (0, 0) if broken else lost
            answered = 10 - there - broken
            rows.append(
                FlowCounts(flow, 10, there, answered, back, broken, delay[0], delay[1], 100.0)
            )
        add(self.watch, rows, heard)

    def overflow(self) -> dict[str, str]:
        return {each.component: each.overflow for each in self.watch.findings() if each.loss}


LAST = "leaf1->h1/rail0"


@pytest.mark.parametrize("unresolved", [False, True])
@pytest.mark.parametrize(
    ("full", "empty", "expected"), [(200, 0, "all"), (200, 200, "none"), (0, 200, "none")]
)
def test_a_link_in_a_fabric(full: int, empty: int, expected: str, unresolved: bool) -> None:
    fabric = Fabric()
    fabric.unresolved = unresolved
    for _ in range(20):
        fabric.second()
    for second in range(40):
        waits = second % 2 == 0
        fabric.holds_ns = {LAST: FULL} if waits else {}
        fabric.loses = {LAST: full if waits else empty}
        fabric.second()
    assert fabric.overflow() == {LAST: expected}
    assert fabric.watch.queues() == ()


def test_what_waits_elsewhere_does_not_wait_there() -> None:
    """Every sender waits at its own NIC, and every packet to the same NIC behind another link."""
    for elsewhere in ([f"h{k}/rail0->leaf{k % 2}" for k in range(6)], [LAST]):
        fabric = Fabric()
        for _ in range(20):
            fabric.second()
        fabric.loses = {"leaf0->spine0": 200}
        fabric.holds_ns = dict.fromkeys(elsewhere, FULL)
        for _ in range(20):
            fabric.second()
        assert fabric.overflow() == {"leaf0->spine0": "none"}


@pytest.mark.parametrize(("wait_ns", "queues"), [(FULL, [LAST]), (MIN_QUEUE_NS - 20_000, [])])
def test_a_queue_at_a_link_that_loses_is_known_without_a_search(
    wait_ns: float, queues: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search_losses(*given: Any) -> Located:
        """Only the search for losses gets what is known of faults."""
        return search(*given) if len(given) == 4 else Located((), ())

    monkeypatch.setattr("syntony.fabric.fault_locator.search", search_losses)
    fabric = Fabric()
    for _ in range(20):
        fabric.second()
    fabric.loses, fabric.holds_ns = {LAST: 200}, {LAST: wait_ns}
    for _ in range(15):
        fabric.second()
    assert fabric.overflow() == {LAST: "open"}
    found = fabric.watch.queues()
    assert [each.component for each in found] == queues
    for each in found:
        assert each.fault == "queue"
        assert each.delay_ns == pytest.approx(wait_ns, rel=0.02)
    fabric.loses, fabric.holds_ns = {}, {}
    for _ in range(40):
        fabric.second()
    assert fabric.watch.findings() == fabric.watch.queues() == ()
