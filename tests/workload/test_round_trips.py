"""Round trips divided by measured one-way delays, and what rules make of them."""

from __future__ import annotations

import random

import pytest
from tests.workload.stored_rows import SEED, T0, Rows, bundle, delay, flow, record

from syntony.model import MS, S
from syntony.wire.tables import JOB_DELAY, JOB_FLOW, PROBE
from syntony.workload.diagnose import diagnose
from syntony.workload.flows import Flows
from syntony.workload.round_trips import Second, one_way, with_probes
from syntony.workload.verdict import FaultClass


def _second(rtt_ns: int, there_ns: int | None, back_ns: int | None, at_ns: int = 0) -> Second:
    return Second(at_ns, rtt_ns, there_ns, back_ns, 0.0)


def _world(draw: random.Random, late_ns: int, share: float, kind: str) -> tuple[Rows, str, str]:
    """Eight hosts in a ring and back, each direction with its own one-way delay, from which round
    trips and what is measured follow. From second 30 on one direction is late, or the queueing
    discipline of its sender; a share of the seconds has no measurement."""
    hosts = [f"h{place}/rail0" for place in range(8)]
    ways = [
        (hosts[place], hosts[(place + step) % 8])
        for place in range(8)
        for step in (1, 3, 5, 7)
    ]  # fmt: skip
    slow = draw.choice(ways)
    base = {way: draw.uniform(20_000, 24_000) for way in ways}
    rows: Rows = {JOB_FLOW.name: [], JOB_DELAY.name: []}
    for second in range(60):
        added = late_ns if second >= 30 else 0
        passed = {
            way: base[way] * draw.uniform(0.95, 1.05) + added * (way == slow and kind == "path")
            for way in ways
        }
        for there, back in ways:
            waits = added * ({there, back} == {*slow} and kind == "host")
            trip_ns = passed[there, back] + passed[back, there] + waits + draw.uniform(0, 4_000)
            ports = {"sport": 40_000, "dport": 40_000}
            rows[JOB_FLOW.name].append(flow(there, back, second, rtt_ns=int(trip_ns), **ports))
            if draw.random() < share:
                owd_ns = int(passed[there, back])
                rows[JOB_DELAY.name].append(delay(there, back, second, owd_p50_ns=owd_ns, **ports))
    return rows, f"{slow[0]}:40000>{slow[1]}:40000", f"{slow[1]}:40000>{slow[0]}:40000"


@pytest.mark.parametrize("late_ns", [300_000, 5 * MS])
@pytest.mark.parametrize(
    ("kind", "share", "both", "named_as"),
    [
        ("path", 1.0, False, "one-way delay of its segments"),
        ("path", 0.8, False, "one-way delay of its segments"),
        ("path", 0.0, True, "its part of the round trip"),
        ("host", 1.0, True, "its part of the round trip"),
    ],
)
def test_the_direction_that_is_slow_is_named_where_it_was_measured(
    late_ns: int, kind: str, share: float, both: bool, named_as: str
) -> None:
    print(f"seed {SEED}")
    rows, slow, other = _world(random.Random(SEED), late_ns, share, kind)
    found = diagnose(bundle(record(rows))).verdicts
    assert {each.fault for each in found} == {FaultClass.SLOW_FLOW}
    assert {each.subjects for each in found} == ({(slow,), (other,)} if both else {(slow,)})
    assert all(each.evidence[0].text.startswith(named_as) for each in found)
    value, truth = found[0].evidence[0].value, late_ns / (2 if both else 1)
    assert value is not None
    assert truth < value < truth + 40_000


def test_both_directions_of_a_flow_are_its_round_trip() -> None:
    """Whatever was measured of them, and however clocks differ."""
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(500):
        trip_ns, off_ns = draw.randrange(1, 10 * MS), draw.randrange(-MS, MS)
        there = draw.randrange(trip_ns)
        back = draw.randrange(trip_ns - there)
        one, other = there + off_ns, back - off_ns
        both = [one_way([_second(trip_ns, *each)])[0] for each in ((one, other), (other, one))]
        assert sum(both) == pytest.approx(trip_ns)
        assert both[0] - both[1] == pytest.approx(one - other)
        assert one_way([_second(trip_ns, None, None)])[0] == trip_ns / 2
        assert one_way([_second(trip_ns, there, None)])[0] == max(there, trip_ns / 2)
        part_ns = one_way([_second(trip_ns, None, back)])[0]
        assert 0 <= part_ns <= min(trip_ns / 2, trip_ns - back)
    assert one_way([_second(100, 900, 5)])[0] == 900  # the kernel's is smoothed: it follows


def test_a_second_that_was_measured_in_part_is_divided_as_the_one_before() -> None:
    """Whichever direction has become slow since."""
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    for _ in range(500):
        there, back, rest = (draw.randrange(10 * MS) for _ in range(3))
        whole = _second(there + back + rest, there, back)
        unmeasured = _second(draw.randrange(20 * MS), None, None)
        slower, faster = there + draw.randrange(5 * MS), back + draw.randrange(5 * MS)
        trip_ns = slower + faster + rest
        for part in (_second(trip_ns, slower, None), _second(trip_ns, None, faster)):
            for before in ([whole], [unmeasured, whole]):
                assert one_way([part, *before])[0] == pytest.approx(slower + rest / 2)
            later = _second(trip_ns, None, None)  # differs as the newest with a measurement
            assert one_way([later, part, whole])[0] == pytest.approx(slower + rest / 2)
            assert one_way([later, part])[0] == trip_ns / 2
        any_ns = draw.randrange(30 * MS)
        for one, other in ((there, None), (None, back), (None, None)):
            part_ns = one_way([_second(any_ns, one, other), whole])[0]
            assert (one or 0) <= part_ns <= max(any_ns, one or 0)


def test_the_least_certain_clock_that_was_used_counts() -> None:
    seconds = [
        Second(4, 90, None, None, 5.0),
        Second(3, 90, None, None, 1.0),
        Second(2, 90, 30, None, 3.0),
        Second(1, 90, 30, 20, 4.0),
        Second(0, 90, 30, 20, 9.0),
    ]
    assert [one_way(seconds[at:])[1] for at in range(5)] == [5.0, 4.0, 4.0, 4.0, 9.0]
    assert one_way([seconds[1], seconds[2], seconds[3]._replace(clk_err_ns=2.0)])[1] == 3.0


def test_directions_that_need_more_than_their_round_trip_leave_nothing_to_hosts() -> None:
    assert one_way([_second(100, *each) for each in ((None, None), (50, None), (90, 30))])[0] == 50


def test_a_difference_measured_long_ago_divides_nothing() -> None:
    for gap, share in ((9, 2.0), (10, 1.0)):
        rows: Rows = {JOB_FLOW.name: [], JOB_DELAY.name: []}
        for there, back, owd_ns in (("h0/rail0", "h1/rail0", 20 * MS), ("h1/rail0", "h0/rail0", 0)):
            for second in (0, gap):
                row = flow(there, back, second, rtt_ns=20 * MS, dport=40_000)
                rows[JOB_FLOW.name].append(row)
            row = delay(there, back, 0, owd_p50_ns=owd_ns, dport=40_000)
            rows[JOB_DELAY.name].append(row)
        found = Flows(bundle(record(rows)).tables["flows"])
        place = next(n for n, name in enumerate(found.names) if name.startswith("h0"))
        assert found.column("owd_p50_ns")[place][-1] == pytest.approx(share * 10 * MS)


def test_what_a_clock_does_not_know_is_no_slow_flow() -> None:
    """One-way delays of a host whose clock says that it may be 40 µs off."""
    rows, slow, _ = _world(random.Random(SEED), 200_000, 1.0, "path")
    assert diagnose(bundle(record(rows))).verdicts
    for row in rows[JOB_DELAY.name]:
        row["clk_err_ns"] = 40_000.0
    found = bundle(record(rows))
    assert not diagnose(found).verdicts
    assert slow in Flows(found.tables["flows"]).names


def test_sockets_whose_round_trips_differ_show_no_clock() -> None:
    """A host that acknowledges late, and whose peers do not: round trips are of one clock each."""
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    hosts = [f"h{place}/rail0" for place in range(4)]
    slow = draw.choice(hosts)
    trips = {True: draw.uniform(800_000, 1_000_000), False: draw.uniform(200_000, 300_000)}
    rows: Rows = {JOB_FLOW.name: [], JOB_DELAY.name: []}
    for second in range(60):
        for there, back in ((a, b) for a in hosts for b in hosts if a != b):
            usual = sum(trips.values()) / 2 if slow not in (there, back) else trips[back == slow]
            rtt_ns = int(usual * draw.uniform(0.98, 1.02))
            rows[JOB_FLOW.name].append(flow(there, back, second, rtt_ns=rtt_ns))
    found = diagnose(bundle(record(rows))).verdicts
    assert FaultClass.CLOCK_FAULT not in {each.fault for each in found}


@pytest.mark.parametrize(
    ("there", "back", "used"),
    [
        (24_000, 4, True),
        (4, 24_000, True),
        (12_000, 11_000, False),  # both wait, or a host does
        (9_000, 4, False),  # it is not where most of the round trip is
        (60_000, 4, False),  # they wait longer than the flow's packets: it is not their queue
        (24_000, -4, False),  # a clock is wrong
        (None, 24_000, False),
    ],
)
def test_probes_divide_a_round_trip_where_they_say_clearly_where_packets_wait(
    there: float | None, back: float | None, used: bool
) -> None:
    second = _second(26_000, None, None)
    wanted = Second(0, 26_000, 24_000 if there == 24_000 else 4, 4 if there == 24_000 else 24_000,
                    7.0) if used else second  # fmt: skip
    assert with_probes(second, there, back, 7.0) == wanted
    measured = _second(26_000, 5, None)
    assert with_probes(measured, there, back, 7.0) == measured


@pytest.mark.parametrize(("dscp", "named"), [(0, [("h1/rail0",)]), (10, [])])
def test_a_full_nic_is_named_though_no_segment_was_measured_since(
    dscp: int, named: list[tuple[str, ...]]
) -> None:
    """A job that stands still sends too little to be sampled: only probes say that the packets to
    the NIC wait, and not those from it. Bursts make all others wait a little."""
    draw = random.Random(SEED)
    print(f"seed {SEED}")
    rows: Rows = {JOB_FLOW.name: [], PROBE.name: []}
    for second in range(60):
        for there, back in ((a, b) for a in range(4) for b in range(4) if a != b):
            late = second >= 30
            full = late and 1 in (there, back)
            trip_ns = draw.uniform(24, 27) * MS if full else draw.uniform(28_000, 32_000)
            rows[JOB_FLOW.name].append(flow(
                f"h{there}/rail0", f"h{back}/rail0", second, dport=40_000, dscp=0.0,
                rtt_ns=int(trip_ns + late * draw.uniform(1, 3) * MS),
                hops=f"h{there}/rail0->leaf leaf->h{back}/rail0",
            ))  # fmt: skip
            rows[PROBE.name].append({
                "ts_ns": T0 + second * S, "src": f"h{there}/rail0", "dst": f"h{back}/rail0",
                "sent": 20, "count": 20, "dscp": dscp, "clk_err_ns": 100.0,
                "owd_p50_ns": 24 * MS if late and back == 1 else 4_000,
            })  # fmt: skip
    found = diagnose(bundle(record(rows))).verdicts
    assert [each.subjects for each in found if each.fault == FaultClass.INCAST] == named
    assert {each.fault for each in found} <= {FaultClass.INCAST}
