"""The path learner against simulated routers: slow, silent, rate-limited, changing."""

from __future__ import annotations

import random

import pytest

from syntony.fabric.book import PathBook, Way
from syntony.fabric.graph import Cable, Topology
from syntony.fabric.hops import MIN_CHECKED
from syntony.fabric.learn import (
    AGAIN_NS,
    BURST,
    CHECK_NS,
    CHECKS,
    RETRACE_NS,
    RETRY_NS,
    FlowKey,
    HopQuery,
    PathLearner,
    TracedPath,
)
from syntony.fabric.names import GROUP
from syntony.model import MS, S

FLOWS = [FlowKey("rail0", "10.0.0.1", f"10.0.1.{k % 2}", 61000 + k, 8620) for k in range(12)]


def truth(flow: FlowKey) -> tuple[str, ...]:
    return ("leaf", f"spine{flow.sport % 2}", f"leaf-of-{flow.dst}")


def rerouted(flow: FlowKey) -> tuple[str, ...]:
    """Spine 0 is gone."""
    return ("leaf", "spine1", f"leaf-of-{flow.dst}")


class Routers:
    """Answer by truth; some hops are silent, each router answers so often."""

    def __init__(
        self, seed: int, *, silent: frozenset[str] = frozenset(), lost: float = 0.0
    ) -> None:
        self._rng = random.Random(seed)
        self._silent = silent
        self._lost = lost
        self.requested = 0
        self.truth = truth
        self.seldom: set[str] = set()
        """Those that answer once a second."""
        self._answered_ns: dict[str, int] = {}
        self._coming: list[tuple[int, HopQuery, str]] = []

    def asked(self, ask: HopQuery, at_ns: int) -> str:
        """Who answers a packet; empty: nobody."""
        hops = self.truth(ask.flow)
        name = hops[ask.ttl - 1] if ask.ttl <= len(hops) else ""
        if name in self._silent or self._rng.random() < self._lost:
            return ""
        if name in self.seldom:
            if at_ns < self._answered_ns.get(name, -S) + S:
                return ""
            self._answered_ns[name] = at_ns
        return name

    def run(
        self, learner: PathLearner, until_ns: int, now_ns: int = 0
    ) -> dict[FlowKey, TracedPath]:
        known: dict[FlowKey, TracedPath] = {}
        for at_ns in range(now_ns, until_ns, 5 * MS):
            while (ask := learner.next(at_ns)) is not None:
                self.requested += 1
                if name := self.asked(ask, at_ns):
                    self._coming.append((at_ns + self._rng.randrange(40) * MS, ask, name))
            for answer in [each for each in self._coming if each[0] <= at_ns]:
                self._coming.remove(answer)
                done = learner.answer(answer[1].flow, answer[1].ttl, answer[2], at_ns)
                known |= {done.flow: done} if done else {}
            known |= {each.flow: each for each in learner.expire(at_ns)}
        return known


def checked(
    learning: PathLearner, routers: Routers, now_ns: int, until_ns: int
) -> dict[FlowKey, TracedPath]:
    """Run with checks; the paths that were traced."""
    known: dict[FlowKey, TracedPath] = {}
    for at_ns in range(now_ns, until_ns, 20 * MS):
        known |= routers.run(learning, at_ns + 20 * MS, at_ns)
        for ask in learning.checks(at_ns + 20 * MS):
            if (name := routers.asked(ask, at_ns)) and (
                done := learning.answer(ask.flow, ask.ttl, name, at_ns + 20 * MS)
            ):
                known[done.flow] = done
    return known


def learner() -> PathLearner:
    made = PathLearner()
    made.plan(FLOWS)
    return made


@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_every_path_is_learnt_although_answers_are_lost(lost: float) -> None:
    for seed in range(3):
        known = Routers(seed, lost=lost).run(learner(), 30 * S)
        assert {flow: known[flow].hops for flow in FLOWS} == {f: truth(f) for f in FLOWS}, seed


def test_a_silent_hop_is_unknown_and_those_behind_it_are_not() -> None:
    known = Routers(1, silent=frozenset({"spine0"})).run(learner(), 60 * S)
    for flow in FLOWS:
        first, second, third = truth(flow)
        assert known[flow].hops == (first, "" if second == "spine0" else second, third)


def test_orders_keep_to_the_rate() -> None:
    routers = Routers(1)
    routers.run(PathLearner(), 1 * S)
    assert routers.requested == 0
    routers.run(learner(), 500 * MS)
    assert routers.requested <= 26 + BURST


def test_a_known_path_is_asked_for_again_and_told_as_unchanged() -> None:
    learning, routers = learner(), Routers(1)
    first = routers.run(learning, 8 * S)
    assert all(each.changed for each in first.values())
    again = routers.run(learning, AGAIN_NS + 30 * S, 8 * S)
    assert again.keys() == first.keys()
    assert not any(each.changed for each in again.values())


def many() -> PathLearner:
    made = PathLearner()
    made.plan(map(key, range(200)))
    return made


def key(number: int) -> FlowKey:
    return FlowKey("rail0", "10.0.0.1", f"10.0.1.{number % 9}", 61000 + number, 8620)


def test_one_path_that_turned_makes_those_beside_it_asked_for_at_once() -> None:
    """100 of 200 cross a cable that is gone: the first is found by the clock, the others by it."""
    learning, routers = many(), Routers(1)
    for at_s in (0, 60, 120):
        routers.run(learning, (at_s + 60) * S, at_s * S)
    routers.truth = rerouted
    routers.run(learning, 190 * S, 180 * S)
    assert {learning.hops(key(k)) for k in range(200)} == {rerouted(key(k)) for k in range(9)}


def test_a_path_that_loses_probes_is_asked_for_now_but_not_again_and_again() -> None:
    learning, routers = many(), Routers(1)
    routers.run(learning, 40 * S)
    doubted = key(7)
    learnt = []
    for at_ns in range(40 * S, 50 * S, S):
        learning.suspect([doubted, FLOWS[3]._replace(sport=1)], at_ns)
        learnt.append(doubted in routers.run(learning, at_ns + S, at_ns))
    assert learnt[0]
    assert sum(learnt) <= 3


def test_a_doubt_while_a_path_is_asked_for_is_kept() -> None:
    """What answers then may be of before."""
    learning, routers = learner(), Routers(1)
    routers.run(learning, 20 * S)
    learning.suspect(FLOWS[:1], 20 * S)
    routers.run(learning, 20 * S + 10 * MS, 20 * S)
    learning.suspect(FLOWS[:1], 20 * S + 10 * MS)
    assert FLOWS[0] in routers.run(learning, 22 * S, 20 * S + 10 * MS)
    routers.truth = rerouted
    known = routers.run(learning, 22 * S + RETRACE_NS, 22 * S)
    assert known[FLOWS[0]].hops == rerouted(FLOWS[0])


def test_an_outage_that_ends_is_seen_to_end() -> None:
    """A path that turned is asked for again soon."""
    learning, routers = learner(), Routers(1)
    routers.run(learning, 20 * S)
    routers.truth = rerouted
    learning.suspect(FLOWS[:1], 20 * S)
    assert FLOWS[0] in routers.run(learning, 22 * S, 20 * S)
    routers.truth = truth
    known = routers.run(learning, 22 * S + RETRACE_NS, 22 * S)
    assert known[FLOWS[0]].changed
    assert known[FLOWS[0]].hops == truth(FLOWS[0])


def test_a_path_asked_for_during_an_outage_is_asked_for_again_after_it() -> None:
    """What answers during the outage is a part of the old path; the new one shows that it turned,
    and those beside it are asked for."""
    learning, routers = many(), Routers(1)
    for at_s in (0, 60, 120):
        routers.run(learning, (at_s + 60) * S, at_s * S)
    routers.truth = lambda flow: truth(flow)[: 1 if flow.sport % 2 == 0 else 3]
    learning.suspect(map(key, range(0, 200, 2)), 180 * S)
    routers.run(learning, 188 * S, 180 * S)
    routers.truth = rerouted
    routers.run(learning, 204 * S, 188 * S)
    assert {learning.hops(key(k)) for k in range(200)} == {rerouted(key(k)) for k in range(9)}


def test_a_router_that_answers_no_more_is_not_asked_for_ever() -> None:
    learning = learner()
    Routers(1).run(learning, 8 * S)
    quiet = Routers(1, silent=frozenset({"spine0"}))
    quiet.run(learning, 300 * S, 8 * S)
    quiet.requested = 0
    quiet.run(learning, 420 * S, 300 * S)
    # Two rounds of twelve paths of three hops; half of them ask a silent one three times.
    assert quiet.requested <= 2 * (12 * 3 + 6 * 2) + 20


def test_what_does_not_answer_has_not_turned() -> None:
    """A router that keeps silent for a while makes nobody ask for the paths beside it."""
    learning, routers = many(), Routers(1)
    routers.run(learning, 40 * S)
    quiet = Routers(1, silent=frozenset({"spine0"}))
    learning.suspect([key(8)], 40 * S)
    known = quiet.run(learning, 46 * S, 40 * S)
    assert key(8) in known
    # 100 paths are beside it; by the clock, some 20 of all are asked for.
    assert len(known) < 50


def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    learning = learner()
    assert learning.answer(FLOWS[0], 1, "forged", 0) is None
    ask = learning.next(0)
    assert ask is not None
    assert learning.answer(ask.flow, ask.ttl + 1, "forged", 0) is None
    gone = FlowKey("rail0", "1.1.1.1", "2.2.2.2", 1, 2)
    assert learning.answer(gone, 1, "forged", 0) is None


def test_an_outage_does_not_shorten_a_known_path() -> None:
    book = PathBook()
    way = Way("h0/rail0", "h1/rail0", 61000, 8620)
    assert book.learn(way, ["leaf0", "spine1", "leaf1"])
    assert not book.learn(way, ["leaf0"])
    assert not book.learn(way, ["leaf0", "*", "leaf1"])
    assert book.components(way)[4] == "spine1"
    assert book.learn(way, ["leaf0", "spine0"])
    assert book.version == 2


def test_two_nics_of_one_switch_meet_nobody_else() -> None:
    """A path that is not traced yet: what the topology tells for sure, and no link to itself."""
    cables = tuple(Cable(a=f"h{k}/rail0", b=leaf) for k, leaf in enumerate(("l0", "l0", "l1")))
    book = PathBook(Topology(devices=(), cables=cables))
    near, far = (Way("h0/rail0", f"h{k}/rail0", 61000, 8620) for k in (1, 2))
    assert book.components(near) == (
        "h0/rail0", "h0/rail0->l0", "l0", "l0->h1/rail0", "h1/rail0",
    )  # fmt: skip
    assert any(GROUP in part for part in book.components(far))


def test_what_a_job_uses_is_learnt_before_what_is_planned() -> None:
    learning, routers = PathLearner(), Routers(1)
    learning.plan(FLOWS[:2])
    routers.run(learning, 10 * S)
    learning.plan(FLOWS)
    used = FlowKey("rail0", "10.0.0.1", "10.0.1.0", 40_001, 8621, "tcp")
    learning.follow([used])
    known = routers.run(learning, 10 * S + 200 * MS, 10 * S)
    assert known[used].hops == truth(used) == learning.hops(used)
    assert next(iter(known)) == used, "before the plan"
    known |= routers.run(learning, 15 * S, 10 * S + 200 * MS)
    assert known.keys() == {used, *FLOWS[2:]}
    learning.follow([])
    assert learning.hops(used) is None


def test_a_path_in_use_is_asked_for_more_often_than_a_spare_one() -> None:
    learning, routers = PathLearner(), Routers(1)
    spare = FlowKey("rail0", "10.0.0.1", "10.0.1.0", 61_001, 8621, "tcp")
    used = spare._replace(sport=61_002)
    learning.follow([used], [spare, used])
    assert routers.run(learning, 10 * S).keys() == {spare, used}
    assert routers.run(learning, AGAIN_NS + 10 * S, 10 * S).keys() == {used}


def test_what_comes_into_use_is_asked_for_at_once_though_it_was_known() -> None:
    """A spare path that a job has begun to use: what is known of it may be old."""
    learning, routers = PathLearner(), Routers(1)
    spare = FlowKey("rail0", "10.0.0.1", "10.0.1.0", 61_001, 8621, "tcp")
    learning.follow([], [spare])
    assert spare in routers.run(learning, 10 * S)
    assert not routers.run(learning, 20 * S, 10 * S)
    learning.follow([spare])
    assert spare in routers.run(learning, 21 * S, 20 * S)
    learning.follow([spare])
    assert not routers.run(learning, 25 * S, 21 * S), "the same again is no news"


def test_where_a_job_could_go_comes_before_the_plan() -> None:
    learning, routers = PathLearner(), Routers(1)
    used = FlowKey("rail0", "10.0.0.1", "10.0.1.0", 61_001, 8621, "tcp")
    spare = [used._replace(sport=61_002 + k) for k in range(8)]
    learning.plan(FLOWS)
    learning.follow([used], spare)
    first = [learning.next(k * S) for k in range(9)]
    assert [ask.flow for ask in first if ask] == [used, *spare]
    assert routers.run(learning, 40 * S, 9 * S).keys() == {used, *spare, *FLOWS}


def test_questions_are_open_until_they_are_answered_or_too_old() -> None:
    learning = learner()
    waiting = [learning.waiting]
    assert learning.next(0) is not None
    waiting.append(learning.waiting)
    for at_ns in (RETRY_NS - 1, RETRY_NS):
        learning.expire(at_ns)
        waiting.append(learning.waiting)
    assert waiting == [False, True, True, False]


def test_after_a_pause_five_packets_go_at_once_and_then_one_in_twenty_milliseconds() -> None:
    """A Linux router answers six in a row."""
    waiting = learner()
    at_once = 0
    while waiting.next(100 * S) is not None:
        at_once += 1
    assert at_once == 5
    for later in range(1, 5):
        at_ns = 100 * S + later * 20 * MS
        assert waiting.next(at_ns - 1) is None
        assert waiting.next(at_ns) is not None
        assert waiting.next(at_ns) is None


@pytest.mark.parametrize("spines", [2, 7, 32])
def test_a_hop_that_died_is_noticed_by_checks_within_a_turn_of_the_hops(spines: int) -> None:
    flows = [FLOWS[0]._replace(sport=61_000 + k) for k in range(spines * 8)]

    def old(flow: FlowKey) -> tuple[str, ...]:
        return ("leaf", f"spine{flow.sport % spines}", f"leaf-of-{flow.dst}")

    def new(flow: FlowKey) -> tuple[str, ...]:
        return ("leaf", "spine1" if flow.sport % spines == 0 else old(flow)[1], old(flow)[2])

    learning = PathLearner()
    learning.plan(flows)
    routers = Routers(1)
    routers.truth = old
    routers.run(learning, 100 * S)
    found, sent = None, 0
    for at_ns in range(100 * S, 100 * S + (spines + CHECKS) * CHECK_NS, CHECK_NS):
        for ask in learning.checks(at_ns):
            sent += 1
            assert ask.ttl == 2
            assert learning.answer(ask.flow, ask.ttl, new(ask.flow)[1], at_ns) is None
            if new(ask.flow) != old(ask.flow) and found is None:
                found = ask.flow
    assert found is not None
    assert sent <= spines + 2 * CHECKS
    requested = []
    while (due := learning.next(100 * S + (spines + CHECKS) * CHECK_NS)) is not None:
        requested.append(due.flow)
    assert found in requested, "a path that differs is asked for whole, at once"


def test_a_path_that_left_a_silent_hop_is_noticed_by_checks() -> None:
    learning, routers = learner(), Routers(1, silent=frozenset({"spine1"}))
    routers.run(learning, 28 * S)
    asks = [ask for at_ns in range(30 * S, 34 * S, CHECK_NS) for ask in learning.checks(at_ns)]
    beyond = [ask for ask in asks if ask.flow.sport % 2]
    assert {ask.flow for ask in beyond} == {flow for flow in FLOWS if flow.sport % 2}
    learning.answer(beyond[-1].flow, 2, "spine0", 34 * S)
    due = [ask.flow for at_ns in range(34 * S, 35 * S, 20 * MS) if (ask := learning.next(at_ns))]
    assert due[:1] == [beyond[-1].flow], "the path that differs is asked for whole, at once"


@pytest.mark.parametrize("spines", [2, 8])
def test_paths_that_moved_to_a_silent_switch_are_noticed_by_checks(spines: int) -> None:
    """Spine 0 is drained, and no check shows where its flows went."""
    flows = [FLOWS[0]._replace(sport=61_000 + k) for k in range(spines * 8)]
    learning = PathLearner()
    learning.plan(flows)
    routers = Routers(1, silent=frozenset({"spine9"}))

    def old(flow: FlowKey) -> tuple[str, ...]:
        return ("leaf", f"spine{flow.sport % spines}", f"leaf-of-{flow.dst}")

    routers.truth = old
    routers.run(learning, 200 * S)
    moved = {flow for flow in flows if flow.sport % spines == 0}
    routers.truth = lambda flow: (
        (old(flow)[0], "spine9", old(flow)[2]) if flow in moved else old(flow)
    )
    known = checked(learning, routers, 200 * S, 220 * S)
    assert moved <= known.keys(), "twenty seconds for a turn of eight at a time"
    assert all(learning.hops(flow) == ("leaf", "", "leaf-of-10.0.1.0") for flow in moved)
    assert all(learning.hops(flow) == old(flow) for flow in flows if flow not in moved)
    # Of the others a third is due by itself.
    assert len(known.keys() - moved) <= len(flows) // 2


def test_a_switch_that_answers_seldom_is_not_traced_for_it() -> None:
    """One answer a second, to whatever it is asked: five checks in between."""
    learning, routers = learner(), Routers(1)
    routers.truth = rerouted
    routers.run(learning, 115 * S)
    routers.seldom = {"spine1"}
    known = checked(learning, routers, 115 * S, 127 * S)
    assert len(known) <= 4, "those that are due by themselves"


def test_what_a_check_confirms_or_nobody_answers_is_left_alone() -> None:
    learning, routers = learner(), Routers(1)
    known = routers.run(learning, 10 * S)
    for at_ns in range(10 * S, 12 * S, CHECK_NS):
        for ask in learning.checks(at_ns):
            if ask.flow.sport % 3:
                learning.answer(ask.flow, ask.ttl, truth(ask.flow)[ask.ttl - 1], at_ns)
    assert all(learning.hops(flow) == known[flow].hops for flow in FLOWS)
    assert learning.answer(FLOWS[0], 2, "spine9", 12 * S) is None
    before = [flow for flow in FLOWS if learning._flows[flow].due_ns <= 12 * S]
    assert not before


def test_spare_and_short_paths_are_not_checked_and_checks_keep_to_their_rate() -> None:
    learning, routers = PathLearner(), Routers(1)
    learning.follow((), spare=FLOWS[:6])
    near = FLOWS[7]._replace(dst="10.0.0.9")
    learning.plan([near, *FLOWS[8:]])
    routers.truth = lambda flow: ("leaf",) if flow == near else truth(flow)
    routers.run(learning, 30 * S)
    asks = [ask for at_ns in range(30 * S, 40 * S, 20 * MS) for ask in learning.checks(at_ns)]
    assert {ask.flow for ask in asks} == set(FLOWS[8:])
    assert len(asks) <= 10 * S // CHECK_NS + CHECKS


def test_a_doubt_of_what_is_not_known_yet_asks_no_sooner() -> None:
    """Paths that lose everything would be asked for all the time."""
    quiet = Routers(6, silent=frozenset(name for flow in FLOWS for name in truth(flow)))
    requested = []
    for doubts in (False, True):
        learning, quiet.requested = learner(), 0
        for at_s in range(60):
            if doubts:
                learning.suspect(FLOWS, at_s * S)
            quiet.run(learning, (at_s + 1) * S, at_s * S)
        requested.append(quiet.requested)
    assert requested[0] == requested[1] > 0


def test_a_path_is_as_old_as_its_first_question() -> None:
    """… of this time: what answered since may be gone by the last."""
    learning = PathLearner()
    learning.plan(FLOWS[:1])
    ends = []
    for began_ns in (10 * S, 200 * S):
        now_ns = began_ns
        done = None
        while done is None:
            ask = learning.next(now_ns)
            if ask is not None and ask.ttl <= MIN_CHECKED:
                lost = now_ns < began_ns + 2 * S
                hop = truth(ask.flow)[ask.ttl - 1]
                done = None if lost else learning.answer(*ask, hop, now_ns)
            now_ns += S
            done = next(iter(learning.expire(now_ns)), done)
        ends.append((done.at_ns, now_ns > began_ns + 3 * S))
    assert ends == [(10 * S, True), (200 * S, True)]
