"""One step of the pacer at a time: what is taken up, shared out, corrected and let go."""

from __future__ import annotations

import pytest

from syntony.model import MS, S
from syntony.traffic.demand import Priority
from syntony.traffic.pace_policy import PacePolicy
from syntony.traffic.pacing import LinkQueue, Pacer, Sending

LINK, RATE = "leaf->h0", 100_000_000
POLICY = PacePolicy(queue_ns=MS, after_ns=0)


def flow(number: int, part: float, *, paceable: bool = True, **more: object) -> Sending:
    return Sending(f"f{number}", (LINK,), part * RATE, paceable, **more)  # type: ignore[arg-type]


def step(
    pacer: Pacer, flows: list[Sending], queue_ms: float, now_ns: int, at_ns: int | None = None
) -> dict[str, float]:
    """Rates as parts of the link's."""
    queue = LinkQueue(now_ns if at_ns is None else at_ns, round(queue_ms * MS))
    found = pacer.step(flows, {LINK: RATE}, {LINK: queue}, now_ns)
    return {name: rate / RATE for name, rate in found.items()}


def taken_up(queue_ms: float = 10.0, flows: list[Sending] | None = None) -> Pacer:
    pacer = Pacer(POLICY)
    assert step(pacer, flows or [flow(0, 0.5), flow(1, 0.5)], queue_ms, S)
    return pacer


def part(pacer: Pacer) -> float:
    return pacer.links[LINK] / RATE


@pytest.mark.parametrize(
    ("queue_ms", "expected"), [(1, 0.97 - 0.001), (10, 0.96), (50, 0.92), (500, 0.92)]
)
def test_what_waits_is_to_be_gone_within_a_second_but_not_at_any_price(
    queue_ms: float, expected: float
) -> None:
    pacer = taken_up(queue_ms)
    assert part(pacer) == pytest.approx(expected)
    assert step(pacer, [flow(0, 0.5), flow(1, 0.5)], queue_ms, S) == pytest.approx(
        {"f0": expected / 2, "f1": expected / 2}, rel=1e-3
    )


@pytest.mark.parametrize(
    ("flows", "queue_ms", "crowded"),
    [
        ([flow(0, 0.3), flow(1, 0.3)], 1.0, True),
        ([flow(0, 0.3), flow(1, 0.29)], 1.0, False),
        ([flow(0, 0.5), flow(1, 0.5)], 0.99, False),
        ([flow(0, 0.9), flow(1, 0.5, paceable=False)], 5.0, False),
    ],
)
def test_a_link_is_crowded_from_its_limits_on(
    flows: list[Sending], queue_ms: float, crowded: bool
) -> None:
    pacer = Pacer(POLICY)
    step(pacer, flows, queue_ms, S)
    assert bool(pacer.links) is crowded
    assert (pacer.congested == {LINK}) is crowded


def test_a_queue_is_too_old_to_act_on_after_its_time() -> None:
    flows = [flow(0, 0.5), flow(1, 0.5)]
    for age_ns, counts in ((POLICY.stale_ns, True), (POLICY.stale_ns + 1, False)):
        pacer = Pacer(POLICY)
        assert bool(step(pacer, flows, 9.0, 100 * S, 100 * S - age_ns)) is counts


def test_it_waits_for_placement_as_long_as_told() -> None:
    pacer = Pacer(PacePolicy(queue_ns=MS, after_ns=2 * S))
    flows = [flow(0, 0.5), flow(1, 0.5)]
    assert step(pacer, flows, 30.0, S) == {}
    assert pacer.congested == {LINK}
    assert step(pacer, flows, 5.0, 3 * S - 1) == {}
    assert step(pacer, flows, 5.0, 3 * S)
    assert part(pacer) == pytest.approx(0.97 - 0.03), "the most that waited meanwhile"


def test_who_cannot_be_paced_is_made_room_for_down_to_half_of_the_link() -> None:
    pacer = taken_up(flows=[flow(0, 0.4), flow(1, 0.4), flow(2, 0.2, paceable=False)])
    rates = step(pacer, [flow(0, 0.4), flow(1, 0.4), flow(2, 0.2, paceable=False)], 10.0, S)
    assert rates == pytest.approx({"f0": 0.38, "f1": 0.38}, rel=1e-3)
    rates = step(pacer, [flow(0, 0.4), flow(1, 0.4), flow(2, 0.9, paceable=False)], 10.0, S + 1)
    assert rates == pytest.approx({"f0": 0.25, "f1": 0.25}, rel=1e-3)


def test_while_packets_wait_less_is_shared_out_and_never_below_the_floor() -> None:
    pacer = taken_up()
    before, now_ns = part(pacer), S
    parts = []
    for _ in range(40):
        now_ns += 2 * S
        flows = [flow(0, part(pacer) / 2), flow(1, part(pacer) / 2)]
        step(pacer, flows, 30.0, now_ns)
        parts.append(part(pacer))
    assert parts[0] == pytest.approx(before * POLICY.cut)
    assert parts[1] == pytest.approx(before * POLICY.cut**2)
    assert min(parts) == parts[-1] == POLICY.floor


def test_a_queue_told_too_soon_after_a_change_corrects_nothing() -> None:
    for late_ns, corrects in ((POLICY.settle_ns - 1, False), (POLICY.settle_ns, True)):
        pacer = taken_up()
        before = part(pacer)
        step(pacer, [flow(0, 0.48), flow(1, 0.48)], 30.0, 10 * S, S + late_ns)
        assert (part(pacer) < before) is corrects


def test_a_queue_that_drains_is_left_to_drain() -> None:
    pacer = taken_up(50.0)
    before = part(pacer)
    busy = [flow(0, 0.47), flow(1, 0.47)]
    # 8 % of two seconds is left free: a queue that lost an eighth of that is on its way out.
    step(pacer, busy, 50.0 - 21, 3 * S)
    assert part(pacer) == before
    step(pacer, busy, 50.0 - 22, 5 * S)
    assert part(pacer) < before


def test_without_a_queue_the_target_comes_back_and_then_no_more_while_it_is_used() -> None:
    pacer = taken_up(50.0)
    busy = [flow(0, 0.46), flow(1, 0.46)]
    step(pacer, busy, 0.0, 3 * S)
    assert part(pacer) == pytest.approx(POLICY.target)
    for second in range(5, 30, 2):
        step(pacer, [flow(0, 0.485), flow(1, 0.485)], 0.0, second * S)
    assert part(pacer) == pytest.approx(POLICY.target)


def test_where_there_was_a_queue_it_climbs_slowly_to_just_below_until_that_is_long_ago() -> None:
    pacer = taken_up()
    busy = [flow(0, 0.48), flow(1, 0.48)]
    waited_at = part(pacer)
    step(pacer, busy, 30.0, 3 * S)
    low = part(pacer)
    found = []
    now_ns = 3 * S
    while now_ns < 60 * S:
        now_ns += 2 * S
        step(pacer, [flow(0, part(pacer) / 2), flow(1, part(pacer) / 2)], 0.0, now_ns)
        found.append((now_ns, part(pacer)))
    assert found[0][1] == pytest.approx(low + 0.01), "of the link's rate"
    early = [each for at_ns, each in found if at_ns <= 3 * S + POLICY.retry_ns]
    assert max(early) == pytest.approx(waited_at - POLICY.climb)
    assert found[-1][1] == pytest.approx(POLICY.target), "after a while it is tried again"


def test_what_is_left_over_is_promised_to_those_that_pause_in_turns() -> None:
    pacer = taken_up()
    idle = [flow(0, 0.2), flow(1, 0.2)]
    for second in range(2, 30):
        step(pacer, idle, 0.0, second * S)
    assert 1.2 < part(pacer) <= POLICY.most


def test_a_rate_is_lowered_at_once_and_raised_when_that_is_worth_telling() -> None:
    pacer = taken_up()
    flows = [flow(0, 0.5), flow(1, 0.5), flow(2, 0.0, paceable=False)]
    before = step(pacer, flows, 10.0, S)

    def after(others: float) -> dict[str, float]:
        return step(pacer, [*flows[:2], flow(2, others, paceable=False)], 10.0, S + 1)

    lower = after(0.004)
    assert lower["f0"] < before["f0"]
    assert after(0.0) == lower, "half a per cent more"
    assert after(0.02)["f0"] < lower["f0"]
    assert after(0.0)["f0"] == pytest.approx(before["f0"])


def test_a_flow_that_wants_less_leaves_it_to_the_others_for_a_while() -> None:
    pacer = taken_up()
    both = [flow(0, 0.48), flow(1, 0.48)]
    even = step(pacer, both, 2.0, S)
    shares: list[dict[str, float]] = []
    for tick in range(1, 41):
        flows = [flow(0, 0.1), flow(1, shares[-1]["f1"] if shares else even["f1"])]
        shares.append(step(pacer, flows, 0.6, S + tick * S // 4))
    first, last = shares[0]["f0"], shares[-1]["f0"]
    assert first == pytest.approx(even["f0"] * POLICY.forget**0.25, rel=0.02), "not at once"
    assert last == pytest.approx(0.1 * POLICY.headroom, rel=0.05), "twice what it sends stays"
    assert shares[-1]["f1"] == pytest.approx(part(pacer) - last, rel=0.03)


def test_one_above_others_is_left_less_beyond_what_it_sends() -> None:
    pacer = taken_up()

    def run(low_queue: float) -> float:
        rate = 0.4
        for tick in range(60):
            flows = [
                flow(0, 0.2, priority=Priority.GUARANTEED), flow(1, rate),
            ]  # fmt: skip
            rates = step(pacer, flows, low_queue, 2 * S + tick * S // 4)
            rate = rates["f1"]
        return rates["f0"]

    assert run(0.6) == pytest.approx(0.2 * POLICY.headroom_above, rel=0.05)


def test_forgetting_frees_all_and_what_was_only_said_is_said_again() -> None:
    pacer = taken_up()
    flows = [flow(0, 0.5), flow(1, 0.5)]
    pacer.forget_rates()
    assert step(pacer, flows, 10.0, S + 1)
    assert pacer.links
    pacer.forget()
    assert not pacer.links
    assert pacer.congested == frozenset()


@pytest.mark.parametrize("capacity", [None, 0])
def test_a_link_whose_rate_is_not_known_any_more_is_let_go(capacity: int | None) -> None:
    pacer = taken_up()
    found = pacer.step([flow(0, 0.5), flow(1, 0.5)], {LINK: capacity}, {}, 2 * S)
    assert found == {}
    assert not pacer.links


def test_a_link_that_changed_its_rate_is_shared_out_at_the_new_one() -> None:
    pacer = taken_up()
    found = pacer.step([flow(0, 0.25), flow(1, 0.25)], {LINK: RATE // 2}, {}, 2 * S)
    assert sum(found.values()) == pytest.approx(0.96 * RATE / 2, rel=1e-3)


def test_a_flow_weighs_one_unless_told_otherwise() -> None:
    found = step(Pacer(POLICY), [flow(0, 0.5), flow(1, 0.5, weight=1.0)], 10.0, S)
    assert found["f0"] == pytest.approx(found["f1"])


@pytest.mark.parametrize("back_ns", [60 * S, 7_200 * S])
def test_fleet_time_that_is_stepped_back_changes_no_load(back_ns: int) -> None:
    """As `utc_step_ns` allows."""
    pacer, now_ns = taken_up(), 10_000 * S
    step(pacer, [flow(0, 0.45), flow(1, 0.45)], 0.0, now_ns)
    more = [flow(0, 0.48), flow(1, 0.48)]
    step(pacer, more, 0.0, now_ns - back_ns)
    step(pacer, more, 0.0, now_ns - back_ns + S)
    assert 0.9 < pacer._paced[LINK].load < 0.96
