"""How often, how fast, how long and for whom: what holds failover and placement back."""

from __future__ import annotations

import math
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.traffic.flow_samples import flow_sample

from syntony.errors import ConfigError
from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple
from syntony.traffic.budget import Budget
from syntony.traffic.classes import Classes, JobClass
from syntony.traffic.demand import Priority
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.lease import EXPIRY_NS, LEASE_NS, WAIT_NS, ListeningHost, may_decide
from syntony.traffic.meter import WINDOW_NS, Meter
from syntony.traffic.policy import Policy
from syntony.traffic.source_ports import SourcePorts

POLICY = Policy(hold_down_ns=1 * S, hold_down_max_ns=20 * S, decay_ns=60 * S)
T0 = 1_000 * S


def test_a_hold_down_doubles_to_its_cap_and_halves_with_quiet() -> None:
    held = HoldDown()
    assert (held.until_ns, held.repeated) == (0, False)
    lengths = []
    for _ in range(7):
        held.failed(T0, POLICY)
        lengths.append((held.until_ns - T0) // S)
    assert lengths == [1, 2, 4, 8, 16, 20, 20]
    assert [held.repeated] == [True]
    # Seven failures; five quiet minutes take five of them off, and the new one adds one.
    later_ns = T0 + 5 * 60 * S + 59 * S
    held.failed(later_ns, POLICY)
    assert held.until_ns == later_ns + 4 * S
    held.returned(later_ns + 9 * S, POLICY)
    assert held.until_ns == later_ns + 13 * S, "from when it is well again"
    held.failed(later_ns + 10_000 * S, POLICY)
    assert held.until_ns == later_ns + 10_001 * S
    assert [held.repeated] == [False]
    fresh = HoldDown()
    fresh.returned(T0, POLICY)
    assert fresh.until_ns == T0, "what never failed is not held"
    for _ in range(500):
        fresh.failed(T0, POLICY)
    assert fresh.until_ns == T0 + 20 * S


@given(
    st.integers(1, 50), st.lists(st.integers(-S // 4, S // 2), min_size=1, max_size=200),
)  # fmt: skip
def test_a_budget_is_never_exceeded_in_any_second_and_never_withheld(
    per_s: int, waits: list[int]
) -> None:
    """At most two seconds' worth in any second (a full bucket, and what fills it meanwhile); and
    anyone who waits as long as he is told gets his turn."""
    budget, now_ns = Budget(per_s), T0
    taken: deque[int] = deque()
    for wait_ns in waits:
        now_ns += wait_ns
        for _ in range(3):
            if budget.take(now_ns):
                taken.append(now_ns)
            else:
                assert 0 < budget.wait_ns <= S
    for at_ns in taken:
        assert sum(at_ns <= other < at_ns + S for other in taken) <= 2 * per_s
    latest_ns = T0 + sum(max(0, wait) for wait in waits) + S
    while budget.take(latest_ns):
        pass
    wait_ns = budget.wait_ns
    assert not budget.take(latest_ns + wait_ns - 1)
    assert budget.take(latest_ns + wait_ns + 1)
    full = Budget(per_s)
    assert sum(full.take(T0) for _ in range(2 * per_s)) == per_s


def sample(at_ns: int, acked: int, received: int) -> FlowSample:
    return flow_sample(
        FourTuple("a", 1, "b", 2), at_ns, token=0, inode=0, bytes_acked=acked,
        bytes_received=received,
    )  # fmt: skip


def test_a_meter_counts_whole_windows() -> None:
    meter = Meter()
    meter.take(sample(T0, 1000, 0))
    assert (meter.windows, meter.bps) == (0, 0)
    meter.take(sample(T0 + WINDOW_NS - 1, 9999, 9999))
    assert (meter.windows, meter.bps) == (0, 0)
    meter.take(sample(T0 + WINDOW_NS, 1000 + 50_000, 25_000))
    assert (meter.tx_bps, meter.rx_bps, meter.bps) == (1_000_000, 500_000, 1_500_000)
    meter.take(sample(T0 + WINDOW_NS + 800 * MS, 51_000 + 50_000, 25_000))
    assert (meter.windows, meter.tx_bps, meter.rx_bps) == (2, 500_000, 0)
    meter.take(sample(T0 + 10 * S, 0, 0))
    assert (meter.windows, meter.bps) == (3, 0), "counters of another socket"
    early = Meter()
    early.take(sample(0, 0, 0))
    early.take(sample(WINDOW_NS, 50, 0))
    assert early.windows == 1


def test_ports_are_in_their_range_and_the_bad_ones_are_avoided() -> None:
    policy = Policy(port_low=100, port_high=103)
    ports = SourcePorts(policy, seed=1)
    assert {ports.draw("a", "b") for _ in range(200)} == {100, 101, 102, 103}
    for port in (100, 101, 102):
        ports.avoid("a", "b", port)
        assert not ports.good("a", "b", port)
    assert ports.good("a", "b", 103)
    assert ports.good("b", "a", 100)
    drawn = [ports.draw("a", "b") for _ in range(200)]
    assert drawn.count(103) > 150
    assert 100 in {ports.draw("c", "b") for _ in range(100)}
    for k in range(1024 - 3):
        ports.avoid("x", "y", k)
    assert not ports.good("a", "b", 100)
    ports.avoid("x", "y", 5000)
    assert ports.good("a", "b", 100), "the oldest is forgotten"
    assert not ports.good("a", "b", 101)


def test_the_first_class_that_names_a_job_counts() -> None:
    classes = Classes(
        [JobClass(jobs=("prod-*",), priority="guaranteed", weight=2.0),
         JobClass(jobs=("prod-x", "test-*"), priority="scavenger")]
    )  # fmt: skip
    assert classes.of("prod-x") == (Priority.GUARANTEED, 2.0)
    assert classes.of("test-1") == (Priority.SCAVENGER, 1.0)
    assert classes.of("other") == (Priority.STANDARD, 1.0)
    for wrong in (
        JobClass(jobs=("a",), priority="urgent"), JobClass(jobs=("a",), weight=0.0),
        JobClass(jobs=("a",), weight=math.inf), JobClass(jobs=()), JobClass(jobs=("a",), weight=-1),
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            Classes([wrong])


@pytest.mark.parametrize(
    ("hosts", "fresh", "steady", "may"),
    [(1, 1, 1, True), (2, 1, 1, False), (2, 2, 2, True), (3, 2, 2, True), (3, 2, 1, False),
     (4, 2, 2, False), (4, 3, 3, True), (5, 3, 3, True), (5, 5, 2, False), (0, 0, 0, False)],
)  # fmt: skip
def test_more_than_half_of_the_hosts_decide(hosts: int, fresh: int, steady: int, may: bool) -> None:
    electorate = [f"h{k}" for k in range(hosts)]
    heard = {
        host: ListeningHost(
            since_ns=T0 - (WAIT_NS if k < steady else WAIT_NS - 1),
            newest_ns=T0 - (LEASE_NS - 1 if k < fresh else LEASE_NS),
        )
        for k, host in enumerate(electorate)
    } | {f"stranger{k}": ListeningHost(0, T0) for k in range(9)}
    decided, why = may_decide(heard, electorate, T0)
    assert decided == may
    assert bool(why) != may
    assert WAIT_NS > LEASE_NS + EXPIRY_NS, "an order of the other half has expired by then"
