"""Pacing: shares of a link, and what a pacer does to a queue in seeded simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.simulated.incast import LINK, TICK_NS, Case, Outcome, Sender, run
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import mostly_slow

from syntony.model import MS, S
from syntony.traffic.demand import Priority
from syntony.traffic.pace_policy import PacePolicy
from syntony.traffic.pacing import LinkQueue, Pacer, Sending
from syntony.traffic.shares import LEAST, ShareClaim, share

POLICY = PacePolicy(queue_ns=1 * MS, after_ns=0)
RATE = 40_000_000


def claim(
    *links: str,
    priority: Priority = Priority.STANDARD,
    weight: float = 1.0,
    wants: float = math.inf,
) -> ShareClaim:
    return ShareClaim(links or ("l",), priority, weight, wants)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([claim(), claim()], [50, 50]),
        ([claim(weight=3), claim()], [74.5, 25.5]),
        ([claim(wants=10), claim(wants=20), claim()], [10, 20, 70]),
        ([claim(wants=10), claim(wants=20)], [45, 55]),
        ([claim(priority=Priority.GUARANTEED), claim(), claim()], [98, 1, 1]),
        ([claim(priority=Priority.GUARANTEED, wants=60), claim()], [60, 40]),
        ([claim("l", "tight"), claim()], [10, 90]),
        ([claim(priority=Priority.SCAVENGER), claim(wants=30)], [70, 30]),
    ],
)
def test_shares(claims: list[ShareClaim], expected: list[float]) -> None:
    rates = share(claims, {"l": 100.0, "tight": 10.0})
    assert rates.tolist() == pytest.approx(expected, abs=0.11)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from("abcd"), min_size=1),
            st.sampled_from(Priority),
            st.floats(0.1, 10),
            st.one_of(st.just(math.inf), st.floats(0, 200)),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_no_link_is_promised_twice_and_nobody_gets_nothing(
    drawn: list[tuple[set[str], Priority, float, float]],
) -> None:
    claims = [ShareClaim(tuple(sorted(links)), p, w, d) for links, p, w, d in drawn]
    budgets = dict.fromkeys("abcd", 100.0)
    rates = share(claims, budgets)
    for link in budgets:
        on_it = [rate for rate, each in zip(rates, claims, strict=True) if link in each.links]
        assert sum(on_it) <= 100.0 * (1 + 1e-6)
    assert (rates >= 100 * LEAST * (1 - 1e-9)).all()
    tight = {
        link
        for link in budgets
        if sum(r for r, c in zip(rates, claims, strict=True) if link in c.links) >= 99.99
    }
    assert all(tight & set(each.links) for each in claims), "anyone who could have more has it"


def late_half(outcome: Outcome) -> tuple[float, float]:
    """p99 of the queue in ms, and the part of the link that was used."""
    half = len(outcome.queue_ns) // 2
    used = outcome.sent[half:].sum(axis=1).mean()
    return float(np.percentile(outcome.queue_ns[half:], 99)) / MS, float(used)


def drawn_case(seed: int) -> Case:
    draw = np.random.default_rng(seed)
    return Case(
        senders=[Sender()] * int(draw.integers(3, 25)),
        seed=seed,
        late_ns=int(draw.integers(0, 3_500)) * MS,
        order_ns=int(draw.integers(10, 800)) * MS,
        noise=float(draw.uniform(0, 0.05)),
        buffer_ns=int(draw.integers(20, 80)) * MS,
        end_ns=60 * S,
    )


@pytest.mark.parametrize("seed", mostly_slow(range(12), range(4)))
def test_the_queue_goes_the_link_stays_full_and_rates_come_to_rest(seed: int) -> None:
    """Greedy senders, whatever the age of the telemetry; agents' is half a second."""
    case = drawn_case(seed)
    outcome = run(case, Pacer(POLICY))
    queue_ms, used = late_half(outcome)
    assert queue_ms < 1
    assert used >= (0.95 if case.late_ns < 2 * S else 0.90)
    rates = outcome.sent[len(outcome.sent) // 2 :].mean(axis=0)
    assert rates.max() <= 1.03 * rates.min(), "all alike"
    late = [size for at_ns, size in outcome.changes if at_ns > 30 * S]
    assert all(size < 0.1 for size in late), "no oscillation"
    if case.late_ns < 2 * S:
        assert not late, "at rest"


def test_without_a_pacer_the_same_link_has_a_standing_queue() -> None:
    """Else the test above would say nothing."""
    outcome = run(Case(senders=[Sender()] * 8, act_ns=60 * S, end_ns=60 * S), Pacer(POLICY))
    queue_ms, used = late_half(outcome)
    assert queue_ms > 40
    assert used > 0.95


@pytest.mark.parametrize("seed", mostly_slow(range(3), [0]))
def test_traffic_of_others_is_made_room_for_and_found_again_seldom(seed: int) -> None:
    case = Case(senders=[Sender()] * 6, background=0.2, seed=seed, end_ns=120 * S)
    outcome = run(case, Pacer(POLICY))
    half = len(outcome.queue_ns) // 2
    assert np.median(outcome.queue_ns[half:]) < MS, seed
    assert outcome.sent[half:].sum(axis=1).mean() >= 0.75, seed
    assert max(size for at_ns, size in outcome.changes if at_ns > 60 * S) < 0.15, seed


def test_weights_and_classes_hold() -> None:
    gold, plain = Sender(priority=Priority.GUARANTEED, limit=0.5), Sender(weight=2)
    case = Case(senders=[gold, plain, Sender(), Sender(priority=Priority.SCAVENGER)], end_ns=60 * S)
    outcome = run(case, Pacer(POLICY))
    rates = outcome.sent[len(outcome.sent) // 2 :].mean(axis=0)
    assert rates[0] == pytest.approx(0.5, abs=0.02), "all that it wants"
    assert rates[1] / rates[2] == pytest.approx(2, rel=0.15)
    assert rates[3] < 0.05


@pytest.mark.parametrize("seed", mostly_slow(range(3), [0]))
@pytest.mark.parametrize(("busy_ms", "kept"), [(500, 0.9), (100, 0.92)])
def test_senders_that_pause_in_turns_lose_little(busy_ms: int, kept: float, seed: int) -> None:
    senders = [
        Sender(busy_ns=busy_ms * MS, idle_ns=busy_ms * MS, shift_ns=k * 130 * MS) for k in range(4)
    ]

    def ran(act_ns: int) -> tuple[float, float]:
        case = Case(senders=senders, act_ns=act_ns, end_ns=90 * S, seed=seed)
        return late_half(run(case, Pacer(POLICY)))

    (free_ms, free), (paced_ms, paced) = ran(90 * S), ran(5 * S)
    assert paced >= kept * free
    if busy_ms == 100:
        assert paced_ms < free_ms / 4, "what waits now and then is little"


def sendings(count: int, part: float, **more: bool) -> list[Sending]:
    return [
        Sending(
            flow_id=f"f{k}",
            links=(LINK,),
            rate_bps=part * RATE / count,
            paceable=more.get("paceable", True),
        )
        for k in range(count)
    ]


@pytest.mark.parametrize(
    ("what", "flows", "capacities", "queue"),
    [
        ("one flow alone", sendings(1, 1.0), {LINK: RATE}, LinkQueue(S, 20 * MS)),
        ("nobody may be paced", sendings(4, 1.0, paceable=False), {LINK: RATE},
         LinkQueue(S, 20 * MS)),
        ("no queue", sendings(4, 1.0), {LINK: RATE}, LinkQueue(S, 0)),
        ("an old queue", sendings(4, 1.0), {LINK: RATE}, LinkQueue(-5 * S, 20 * MS)),
        ("no delay known", sendings(4, 1.0), {LINK: RATE}, None),
        ("the queue is elsewhere", sendings(4, 0.5), {LINK: RATE}, LinkQueue(S, 20 * MS)),
        ("a rate nobody knows", sendings(4, 1.0), {}, LinkQueue(S, 20 * MS)),
        ("a dead link", sendings(4, 1.0), {LINK: 0}, LinkQueue(S, 20 * MS)),
    ],
)  # fmt: skip
def test_nobody_is_paced_without_need(
    what: str, flows: list[Sending], capacities: dict[str, int], queue: LinkQueue | None
) -> None:
    queues = {LINK: queue} if queue is not None else {}
    assert not Pacer(POLICY).step(flows, capacities, queues, S), what


def test_a_quiet_link_is_let_go_and_kept_longer_the_second_time() -> None:
    def crowded(pacer: Pacer, at_ns: int) -> bool:
        return bool(pacer.step(sendings(4, 1.0), {LINK: RATE}, {LINK: LinkQueue(at_ns, 20 * MS)},
                               at_ns))  # fmt: skip

    def let_go(pacer: Pacer, from_ns: int) -> int:
        at_ns = from_ns
        while pacer.step(sendings(4, 0.1), {LINK: RATE}, {LINK: LinkQueue(at_ns, 0)}, at_ns):
            at_ns += 250 * MS
        return at_ns

    pacer = Pacer(POLICY)
    assert crowded(pacer, S)
    first_ns = let_go(pacer, S) - S
    assert first_ns == pytest.approx(POLICY.hold_down_ns, abs=S)
    assert crowded(pacer, 20 * S)
    assert let_go(pacer, 20 * S) - 20 * S == pytest.approx(2 * first_ns, abs=S)


def test_placement_has_its_chance_first() -> None:
    pacer = Pacer(PacePolicy(queue_ns=MS, after_ns=2 * S, lapse_ns=S))

    def paced(at_ns: int, queue_ns: int) -> bool:
        queue = {LINK: LinkQueue(at_ns, queue_ns)}
        return bool(pacer.step(sendings(4, 1.0), {LINK: RATE}, queue, at_ns))

    assert not paced(S, 20 * MS)
    assert pacer.congested == {LINK}
    assert not any(paced(at_ns, 0) for at_ns in range(2 * S, 5 * S, 250 * MS)), "moved away"
    assert pacer.congested == frozenset()
    turns = [
        paced(at_ns, (at_ns // (500 * MS)) % 2 * 20 * MS) for at_ns in range(5 * S, 9 * S, S // 4)
    ]
    assert turns.index(True) == pytest.approx(10, abs=2), "a pause between steps is none"


@pytest.mark.parametrize(("queue_ns", "kept"), [(5 * MS, True), (0, False)])
def test_whom_the_queue_of_others_holds_back_keeps_its_rate(queue_ns: int, kept: bool) -> None:
    pacer, rates = Pacer(POLICY), dict[str, int]()
    used = 0.6 * RATE
    for look in range(80):
        at_ns = look * S // 4
        flows = [
            Sending("gold", (LINK,), used, paceable=True, priority=Priority.GUARANTEED),
            Sending("brown", (LINK,), rates.get("brown", RATE // 2), paceable=True),
        ]
        waited_ns = 40 * MS if look < 4 else queue_ns
        rates = dict(pacer.step(flows, {LINK: RATE}, {LINK: LinkQueue(at_ns, waited_ns)}, at_ns))
        used = 0.6 * RATE if look < 20 else used * 0.98
    assert (rates["gold"] >= 0.6 * RATE) is kept
    assert rates["gold"] >= used


def test_whoever_has_gone_leaves_its_share_to_the_others() -> None:
    pacer = Pacer(POLICY)
    before = pacer.step(sendings(4, 1.0), {LINK: RATE}, {LINK: LinkQueue(S, 2 * MS)}, S)
    after = pacer.step(sendings(3, 0.75), {LINK: RATE}, {LINK: LinkQueue(S, 2 * MS)}, 2 * S)
    assert after.keys() == {"f0", "f1", "f2"}
    assert after["f0"] == pytest.approx(before["f0"] * 4 / 3, rel=0.01)
    assert not pacer.step(sendings(1, 0.25), {LINK: RATE}, {LINK: LinkQueue(S, 0)}, 3 * S)


def test_ticks_are_what_the_outcome_says() -> None:
    assert len(run(Case(senders=[Sender()], end_ns=S), Pacer()).queue_ns) == S // TICK_NS
