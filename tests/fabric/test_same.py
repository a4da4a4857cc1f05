"""Localisation looks only at what is suspicious; here against all paths, written down plainly.

The plain side counts from all seconds ever told, flow by flow, and searches with every path tallied
and every candidate scored.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from bench.tallies import LossTally, tally_losses
from tests.cases import mostly_slow
from tests.fabric import foreign
from tests.fabric.flow_rows import FlowCounts, add

from syntony.fabric import delay, delay_search, delay_suspects, locate
from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.broken_trips import SLACK, SLACK_S
from syntony.fabric.candidates import Candidates, Listing
from syntony.fabric.crossed import PathCrossings, PathTally
from syntony.fabric.delay import find_delays
from syntony.fabric.effort import Effort
from syntony.fabric.fault_locator import MIN_CHANGE_NS, FaultLocator
from syntony.fabric.locate import WindowCounts
from syntony.fabric.loss import LossSearch
from syntony.fabric.names import replies_name
from syntony.fabric.numbering import make_candidates
from syntony.fabric.sums import WINDOWS_S
from syntony.model.findings import Finding
from syntony.model.names import host_of


def plain_tally(crossed: PathCrossings, sent: np.ndarray, lost: np.ndarray) -> LossTally:
    """All paths one after the other."""
    return tally_losses(
        crossed.crossings, sent, lost, crossed.candidates, crossed.partly,
        times=np.abs(crossed.times),
    )  # fmt: skip


class PlainDelays(delay_suspects.DelaySuspects):
    """Every candidate is looked for in every path, and every one is scored."""

    def _of(self, candidate: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        crossed = self._crossed
        here = crossed.crossings == candidate
        surely, combo = here.any(axis=1), crossed.partly.combo
        listing = np.append((crossed.partly.members == candidate).any(axis=1), False)
        sure = np.flatnonzero(surely & self._known)
        may = np.flatnonzero(listing[combo] & ~surely & self._known)
        times = [*(crossed.times[row, here[row]].item() for row in sure), *(1 for _ in may)]
        rows = np.concatenate((sure, may))
        return rows, np.array(times, dtype=np.float64), np.arange(len(rows)) < len(sure)

    def _promising(self) -> np.ndarray:
        found = []
        for candidate in range(len(self._price)):
            if candidate in self._found or not math.isfinite(self._price[candidate]):
                continue
            rows, times, _ = self._of(candidate)
            high = self._rest[rows] * np.sign(times) / self._sigma(self._rest)[rows]
            late = high > delay_search.LATE_SIGMAS
            if (times < 0).any():
                late |= high < -delay_search.LATE_SIGMAS
            if late.sum() >= delay_search.MIN_PATHS:
                found.append(candidate)
        return np.array(found, dtype=np.intp)

    def _room(self, rest: np.ndarray) -> np.ndarray:
        return np.full(len(self._price), np.inf)


def plain_delays(
    crossed: PathCrossings, change_ns: np.ndarray, sigma_ns: np.ndarray, penalty: np.ndarray, *,
    threshold: float = delay.STRICTNESS, effort: Effort | None = None,
) -> delay.SlowParts:  # fmt: skip
    if np.isfinite(change_ns).sum() < delay_search.MIN_PATHS:
        return delay.SlowParts([])
    return delay._simplest(partial(PlainDelays, crossed, change_ns, sigma_ns, penalty + threshold))


def drawn(seed: int) -> tuple[foreign.Case, Candidates]:
    rng = random.Random(seed)
    late = rng.random() < 0.5
    case = foreign.draw(
        seed, known=rng.choice([1.0, 0.5, 0.0]), fault=rng.choice([*foreign.FAULTS, ""]),
        delay=late, jitter=rng.choice([0.0, 0.1]),
    )  # fmt: skip
    return case, make_candidates(Listing.of([path.listed for path in case.paths]))


@pytest.mark.parametrize("cases", mostly_slow((4, 12), {4}))
def test_losses_and_delays_are_found_as_by_looking_at_all_paths(cases: int) -> None:
    first = random.randrange(1 << 30)
    for seed in range(first, first + cases):
        case, candidates = drawn(seed)
        crossed, rng = candidates.crossed, np.random.default_rng(seed)
        sent = np.where(rng.random(len(case.sent)) < 0.1, 0, case.sent)
        fast, plain = PathTally(crossed, sent, case.lost), plain_tally(crossed, sent, case.lost)
        every = rng.permutation(crossed.candidates).astype(np.intp)
        for part in np.array_split(every, 3):
            for one, other in zip(fast.clean_of(part), plain.clean_of(part), strict=True):
                assert one.tolist() == other.tolist(), f"seed {seed}"
        searches = [LossSearch(each, candidates.loss_price) for each in (fast, plain)]
        assert searches[0].findings == searches[1].findings, f"seed {seed}"
        gains = [
            [each.gain_at(number, 0.01) for number in range(crossed.candidates)]
            for each in searches
        ]
        assert gains[0] == gains[1], f"seed {seed}"
        change_ns = np.where(rng.random(len(sent)) < 0.1, np.nan, case.change_ns)
        sigma_ns = np.full(len(sent), 100.0)
        found, expected = (
            look(crossed, change_ns, sigma_ns, candidates.penalty)
            for look in (find_delays, plain_delays)
        )
        assert found == expected, f"seed {seed}"


def test_a_clock_that_jumped_is_found_as_by_looking_at_all_paths() -> None:
    first, jumps = random.randrange(1 << 30), 0
    for seed in range(first, first + 40):
        case, candidates = drawn(seed)
        host = host_of(case.paths[0].listed[0])
        jump_ns = random.Random(seed).choice([-1, 1]) * 20_000.0
        ends = [(host_of(path.listed[0]), host_of(path.listed[-1]))
                for path in case.paths]  # fmt: skip
        sign = np.array([(far == host) - (near == host) for near, far in ends])
        change_ns = np.random.default_rng(seed).normal(0, 200, len(sign)) + jump_ns * sign
        found, expected = (
            look(candidates.crossed, change_ns, np.full(len(sign), 100.0), candidates.penalty)
            for look in (find_delays, plain_delays)
        )
        assert found == expected, f"seed {seed}"
        jumps += bool(found.findings)  # in small fabrics a third is
        if jumps == 2:
            break
    assert jumps == 2, f"seeds from {first}"


def test_many_paths_of_one_candidate_are_summed_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    case, candidates = drawn(random.randrange(1 << 30))
    every = np.arange(candidates.crossed.candidates)
    sums = []
    for many in (0, 1 << 30):
        monkeypatch.setattr("syntony.fabric.crossed.MANY", many)
        tally = PathTally(candidates.crossed, case.sent, case.lost)
        sums.append([each.tolist() for each in tally.clean_of(every)])
    assert sums[0] == sums[1], f"seed {case.seed}"


class PlainWatch:
    """Every second ever told; windows are counted from the first row each time."""

    def __init__(self, book: PathBook, flows: list[Way]) -> None:
        self.flows = flows
        there = [book.components(way) for way in flows]
        back = [book.components(reply(way)) for way in flows]
        both = [a + b for a, b in zip(there, back, strict=True)]
        answered = [(replies_name(way.dst),) for way in flows]
        self.candidates = make_candidates(Listing.of([*there, *back, *both, *answered]))
        self.seconds: list[tuple[dict[Way, FlowCounts], dict[tuple[str, str], int]]] = []

    def add(self, rows: list[FlowCounts], heard: dict[tuple[str, str], int]) -> None:
        self.seconds.append(({row.way: row for row in rows}, heard))

    def windows(self) -> list[WindowCounts]:
        found = []
        for length in WINDOWS_S:
            more = len(self.seconds) % 10 if length == 300 else 0
            found.append(self._window(length, self.seconds[-(length + more) :]))
            if len(self.seconds) <= length:
                break
        if len(self.seconds) >= 20:
            found += [self._change(soon=True), self._change()]
        return found

    def _window(
        self, length: int, seconds: list[tuple[dict[Way, FlowCounts], dict[tuple[str, str], int]]]
    ) -> WindowCounts:
        sums = {way: [0] * 5 for way in self.flows}
        sent_of, lost_of, broken_of, heard_of = (defaultdict[tuple[str, str], int](int)
                                                 for _ in range(4))  # fmt: skip
        for rows, heard in seconds:
            for way, row in rows.items():
                sums[way] = [a + b for a, b in zip(sums[way], row[1:6], strict=True)]
                sent_of[way[:2]] += row.sent
                lost_of[way[:2]] += row.lost
                broken_of[way[:2]] += row.unresolved
            for pair, count in heard.items():
                heard_of[pair] += count
        verdict = {}
        for pair in sent_of:
            slack = SLACK + SLACK_S * heard_of[pair] / length
            missing = sent_of[pair] - lost_of[pair] - heard_of[pair]
            telling = broken_of[pair] > 2 * slack
            verdict[pair] = (telling, missing >= broken_of[pair] - slack, missing <= slack)
        doubted = {nic for pair, (telling, there, back) in verdict.items()
                   if telling and not there and not back for nic in pair}  # fmt: skip
        hidden = {
            way
            for pair in sent_of
            for way in self._hidden(sums, pair, SLACK + SLACK_S * heard_of[pair] / length)
        }
        sent, lost = np.zeros((2, 4, len(self.flows)), dtype=np.int64)
        open_targets = set()
        for place, way in enumerate(self.flows):
            out, lost_out, came, lost_back, broken = sums[way]
            telling, there, back = verdict.get(way[:2], (False, False, False))
            clear = telling and (there or back) and not doubted & set(way[:2])
            clear &= way not in hidden
            if broken and not clear:
                open_targets.add(way.dst)
                sent[2, place] = out
                lost[2, place] = min(lost_out + lost_back + broken, out)
                continue
            gone = broken if clear and there else 0
            here = broken if clear and back else 0
            sent[0, place], lost[0, place] = out, lost_out + gone
            sent[1, place], lost[1, place] = came - min(gone, came), lost_back + here
        for place, way in enumerate(self.flows):
            if way.dst in open_targets and not sums[way][4]:
                sent[3, place] = sums[way][2]
        all_sent = sent.reshape(-1)
        all_lost = np.minimum(lost.reshape(-1), all_sent)
        return WindowCounts(f"{length}s", all_sent, all_lost, overlaps=True)

    def _hidden(
        self, sums: dict[Way, list[int]], pair: tuple[str, str], left: float
    ) -> Iterator[Way]:
        broken = [way for way in self.flows if way[:2] == pair and sums[way][4]]
        for way in sorted(broken, key=lambda way: sums[way][4]):
            left -= sums[way][4]
            if left >= 0:
                yield way

    def _change(self, *, soon: bool = False) -> WindowCounts:
        now, before = self.seconds[-10:], self.seconds[-60:-10]
        newest = self.seconds[-2:] if soon else now
        change = np.full((4, len(self.flows)), np.nan)
        sigma = np.zeros(len(self.flows))
        for place, way in enumerate(self.flows):
            for direction in range(2):
                new, old = (
                    [value for rows, _ in part if way in rows
                     and not math.isnan(value := self._delay(rows[way], direction))]
                    for part in (newest, before)
                )  # fmt: skip
                if len(new) >= (2 if soon else 5) and len(old) >= 5:
                    value = min(new) if soon else statistics.median(new)
                    change[direction, place] = value - statistics.median(old)
            errors = [rows[way].clk_err_ns for rows, _ in now if way in rows]
            sigma[place] = max(errors, default=0.0)
        nothing = np.zeros(4 * len(self.flows), dtype=np.int64)
        sigma_ns = np.tile(np.maximum(sigma, MIN_CHANGE_NS / delay_search.LATE_SIGMAS), 4)
        name = "2s" if soon else "10s"
        return WindowCounts(name, nothing, nothing, change.reshape(-1), sigma_ns, between=soon)

    def _delay(self, row: FlowCounts, direction: int) -> float:
        return row.delay_back_ns if direction else row.delay_ns

    def findings(self, monkeypatch: pytest.MonkeyPatch) -> tuple[Finding, ...]:
        with monkeypatch.context() as plain:
            plain.setattr(locate, "PathTally", plain_tally)
            plain.setattr(delay, "find_delays", plain_delays)
            return locate.locate(self.candidates, self.windows())


def fabric(rng: random.Random, leaves: int) -> tuple[PathBook, list[Way]]:
    spines = rng.randint(2, 3)
    nics = [f"h{n}/rail0" for n in range(2 * leaves)]
    book = PathBook()
    flows = [Way(a, b, 61_000 + port, 8620) for a in nics for b in nics if a != b
             for port in range(rng.randint(1, 2))]  # fmt: skip
    for flow in flows:
        for way in (flow, reply(flow)):
            near, far = (int(nic[1 : nic.index("/")]) // 2 for nic in way[:2])
            spine = rng.choice([f"spine{rng.randrange(spines)}"] * 9 + ["*"])
            book.learn(
                way, [f"leaf{near}"] if near == far else [f"leaf{near}", spine, f"leaf{far}"]
            )
    return book, flows


@pytest.mark.parametrize("leaves", mostly_slow((2, 3), {2}))
def test_every_second_is_judged_as_if_all_had_been_counted_anew(
    leaves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults come one after the other; findings of all windows, second by second."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    book, flows = fabric(rng, leaves)
    watch, plain = FaultLocator(book), PlainWatch(book, flows)
    parts = sorted({part for flow in flows for part in book.components(flow)})
    bad, share, late_ns = "", 0.0, 0.0
    compared = 0
    for second in range(40):
        if second % 12 == 3:
            bad, share = rng.choice(parts), rng.choice([1.0, 0.2, 0.0] if second > 3 else [1.0])
            late_ns = 0.0 if share else 60_000.0
        rows, heard = [], defaultdict[tuple[str, str], int](int)
        for flow in flows:
            if second and rng.random() < 0.02:
                continue  # nothing is reported it
            on = [bad in book.components(way) for way in (flow, reply(flow))]
            sent = 8
            lost = sum(rng.random() < (share if on[0] else 0.002) for _ in range(sent))
            lost_back = sum(rng.random() < (share if on[1] else 0.002) for _ in range(sent - lost))
            heard[flow.src, flow.dst] += sent - lost
            delays = [20_000 + rng.gauss(0, 300) + late_ns * each for each in on]
            broken = lost + lost_back if rng.random() < 0.5 or lost + lost_back == sent else 0
            rows.append(
                FlowCounts(
                    flow, sent, 0 if broken else lost, sent - (broken or lost),
                    0 if broken else lost_back, broken,
                    math.nan if broken == sent else delays[0],
                    math.nan if broken == sent else delays[1], rng.uniform(10, 90),
                )
            )  # fmt: skip
        add(watch, rows, heard)
        plain.add(rows, heard)
        assert list(watch._flows) == flows
        _, located = watch._searched(watch._numbered(), Effort())
        assert located.findings == plain.findings(monkeypatch), f"{seed=} {second=}"
        compared += bool(located.findings)
    print(f"{seed=}: {compared} seconds with findings")
    assert compared, f"{seed=}"
