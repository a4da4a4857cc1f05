"""The fluid link of the pacing simulator, with pacers that only watch or only command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from bench.simulated.incast import LINK, LOOK_NS, TICK_NS, Case, Outcome, Sender, run

from syntony.model import MS, S
from syntony.traffic.demand import Priority
from syntony.traffic.pacing import LinkQueue, Pacer, Sending


class Orders(Pacer):
    """Says the same each time, and remembers what it was reported."""

    def __init__(self, *orders: dict[str, int]) -> None:
        super().__init__()
        self.orders = list(orders) or [{}]
        self.reported: list[tuple[int, list[float], LinkQueue]] = []
        self.sendings: list[Sending] = []

    def step(  # type: ignore[override]
        self,
        sendings: Sequence[Sending],
        capacities: Mapping[str, int],
        queues: Mapping[str, LinkQueue],
        now_ns: int,
    ) -> dict[str, int]:
        assert set(capacities) == set(queues) == {LINK}
        self.sendings = list(sendings)
        self.reported.append((now_ns, [each.rate_bps for each in sendings], queues[LINK]))
        return self.orders.pop(0) if len(self.orders) > 1 else self.orders[0]


def sent(outcome: Outcome, from_s: float, to_s: float) -> list[float]:
    """Mean part of the link that each sender has."""
    first, last = (round(at * S) // TICK_NS for at in (from_s, to_s))
    return [float(each) for each in outcome.sent[first:last].mean(axis=0)]


def queue_ms(outcome: Outcome, from_s: float, to_s: float) -> np.ndarray:
    first, last = (round(at * S) // TICK_NS for at in (from_s, to_s))
    return np.asarray(outcome.queue_ns[first:last] / MS)


def test_a_sender_alone_has_the_link_within_two_seconds_and_fills_the_buffer() -> None:
    case = Case([Sender(limit=1.2)], end_ns=20 * S)
    outcome = run(case, Orders())
    assert sent(outcome, 2, 20)[0] > 0.9
    assert queue_ms(outcome, 2, 20).max() == pytest.approx(50)
    assert outcome.queue_ns.min() >= 0
    assert outcome.dropped > 0


def test_who_wants_less_than_the_link_waits_for_nothing() -> None:
    outcome = run(Case([Sender(limit=0.3), Sender(limit=0.5)], end_ns=10 * S), Orders())
    assert sent(outcome, 5, 10) == pytest.approx([0.3, 0.5])
    assert outcome.queue_ns.max() == 0
    assert outcome.dropped == 0


def test_many_share_the_link_about_equally_and_never_get_more_than_it_has() -> None:
    outcome = run(Case([Sender()] * 4, end_ns=60 * S), Orders())
    shares = sent(outcome, 10, 60)
    assert sum(shares) == pytest.approx(1, abs=0.05)
    assert all(0.15 < share < 0.35 for share in shares)
    assert outcome.sent.sum(axis=1).max() <= 1 + 1e-9
    assert 10 < np.median(queue_ms(outcome, 10, 60)) <= 50, "a standing queue"


def test_others_traffic_takes_its_part() -> None:
    outcome = run(Case([Sender(limit=0.8)], background=0.6, end_ns=20 * S), Orders())
    assert 0.2 < sent(outcome, 5, 20)[0] < 0.5
    assert queue_ms(outcome, 5, 20).max() == pytest.approx(50)
    calm = run(Case([Sender(limit=0.3)], background=0.6, end_ns=20 * S), Orders())
    assert calm.queue_ns.max() == 0
    assert sent(calm, 5, 20) == pytest.approx([0.3])


def test_an_order_holds_a_sender_back_once_it_is_in_force() -> None:
    case = Case([Sender(), Sender()], act_ns=5 * S, order_ns=100 * MS, end_ns=12 * S)
    pacer = Orders({"f0": 8_000_000, "f1": 20_000_000})
    outcome = run(case, pacer)
    assert pacer.reported[0][0] == 5 * S
    assert [at for at, _, _ in pacer.reported[:3]] == [5 * S + k * LOOK_NS for k in range(3)]
    assert outcome.changes == [(5 * S, 1.0)]
    at = (5 * S + 100 * MS) // TICK_NS
    drained = at + S // TICK_NS  # what waited goes through first
    assert outcome.sent[drained:, 0].max() <= 0.2 + 1e-9
    assert outcome.sent[drained:, 1].max() <= 0.5 + 1e-9
    assert outcome.queue_ns[at] < outcome.queue_ns[at - 1]
    assert outcome.sent[:at, 0].max() > 0.3, "not before"
    assert sent(outcome, 10, 12) == pytest.approx([0.2, 0.5])
    assert queue_ms(outcome, 10, 12).max() == 0


def test_changes_are_how_much_an_order_differs_from_the_one_before() -> None:
    rates = (10_000_000, 12_000_000, 12_000_000, 6_000_000)
    orders = Orders(*({"f0": rate} for rate in rates), {})
    outcome = run(Case([Sender()], act_ns=S, end_ns=4 * S), orders)
    whens = [S, S + LOOK_NS, S + 3 * LOOK_NS, S + 4 * LOOK_NS]
    assert [at for at, _ in outcome.changes] == whens
    assert [by for _, by in outcome.changes] == pytest.approx([1.0, 0.2, 0.5, 1.0])


def test_overflows_count_from_when_rates_are_set() -> None:
    early = Case([Sender(limit=1.5)], act_ns=8 * S, end_ns=8 * S)
    assert run(early, Orders()).dropped == 0
    late = Case([Sender(limit=1.5)], act_ns=0, end_ns=8 * S)
    assert run(late, Orders()).dropped > 0


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_pacer_is_told_of_rates_late_in_windows_and_with_noise(noise: float) -> None:
    case = Case(
        [Sender(limit=0.4, priority=Priority.GUARANTEED, weight=3.0), Sender(limit=0.2)],
        noise=noise, late_ns=400 * MS, end_ns=30 * S, seed=4,
    )  # fmt: skip
    pacer = Orders()
    run(case, pacer)
    rates = np.array([rates for _, rates, _ in pacer.reported])
    assert rates.mean(axis=0) == pytest.approx([16e6, 8e6], rel=0.03)
    assert rates[:, 0].std() / 16e6 == pytest.approx(noise, rel=0.35)
    for now_ns, _, queue in pacer.reported:
        assert 400 * MS <= now_ns - queue.at_ns < 800 * MS
        assert queue.queue_ns == 0
    first, second = pacer.sendings
    assert (first.priority, first.weight) == (Priority.GUARANTEED, 3.0)
    assert (second.priority, second.weight) == (Priority.STANDARD, 1.0)
    assert first.links == (LINK,)
    assert first.paceable


def test_a_pacer_is_told_of_the_queue_there_was() -> None:
    pacer = Orders()
    outcome = run(Case([Sender()] * 4, noise=0.0, end_ns=20 * S), pacer)
    for _, _, queue in pacer.reported[-8:]:
        last = queue.at_ns // TICK_NS
        there = outcome.queue_ns[last - S // TICK_NS : last]
        assert queue.queue_ns == int(np.median(there))
        assert queue.queue_ns > 0


@pytest.mark.parametrize(
    ("at_ms", "wants"),
    [(0, False), (499, False), (500, True), (799, True), (800, False), (1499, False), (1500, True)],
)
def test_a_sender_takes_turns(at_ms: int, wants: bool) -> None:
    beat = Sender(busy_ns=300 * MS, idle_ns=700 * MS, shift_ns=500 * MS)
    assert beat.wants(at_ms * MS) is wants
    assert Sender().wants(at_ms * MS)


def test_a_seed_repeats() -> None:
    senders = [Sender(limit=limit) for limit in (0.9, 0.5, 0.4)]
    one, two, other = (run(Case(senders, seed=k, end_ns=10 * S), Orders()) for k in (1, 1, 2))
    assert (one.sent == two.sent).all()
    assert (one.sent != other.sent).any()
