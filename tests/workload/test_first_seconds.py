"""A queue in its first seconds, when not all that wait in it are certain to: as recorded live."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tests.workload.made import MS, T0, bundle

from syntony.workload import FaultClass, diagnose
from syntony.workload.facts import BundleFacts
from syntony.workload.verdict import Verdict

S = 1000 * MS
QUIET = 19
Delays = dict[tuple[int, int], tuple[float, ...]]
INTO_H2: Delays = {(0, 2): (19.3, 21.8, 22.7, 22.5), (1, 2): (13.1, 19.1, 19.4, 19.5),
           (3, 2): (9.1, 25.7, 26.7, 24.9)}  # fmt: skip
"""Milliseconds from host to host in the seconds in which two strangers fill a NIC."""
OUT_OF_H2: Delays = {(2, 0): (0.046, 5.2, 6.7, 7.8), (2, 1): (0.014, 5.3, 6.7, 7.7)}
"""Half of the round trips of what it sends: what is acknowledged waits there as well."""


def hops(src: int, dst: int) -> tuple[str, ...]:
    out, into = src // 2, dst // 2
    way = (f"leaf{out}",) if out == into else (f"leaf{out}", f"spine{src % 2}", f"leaf{into}")
    nodes = (f"h{src}/n", *way, f"h{dst}/n")
    return tuple(f"{one}->{other}" for one, other in itertools.pairwise(nodes))


def after(seconds: int, waits: Delays) -> Any:
    """Four hosts that send to each other, so many seconds after some of their flows began to wait;
    in three seconds before that, a flow waited for twice as long as usual."""
    draw = np.random.default_rng(7)
    flows: dict[str, list[Any]] = {
        name: [] for name in ("flow", "at_ns", "window_ns", "src", "dst", "proto", "rate_bps",
                              "owd_p50_ns", "hops")}  # fmt: skip
    for src in range(4):
        for dst in {*range(4)} - {src}:
            delays = 13_000 * draw.lognormal(0, 0.1, QUIET + seconds)
            delays[draw.choice(QUIET, 2, replace=False)] *= 2.5
            if (src, dst) in waits:
                delays[QUIET:] = [each * MS for each in waits[src, dst][:seconds]]
            for second, delay in enumerate(delays):
                flows["flow"].append(f"h{src}/n:1>h{dst}/n:1")
                flows["at_ns"].append(T0 + second * S)
                flows["window_ns"].append(S)
                flows["src"].append(f"h{src}/n")
                flows["dst"].append(f"h{dst}/n")
                flows["proto"].append("tcp")
                flows["rate_bps"].append(3e6 if second < QUIET else 0.4e6)
                flows["owd_p50_ns"].append(delay)
                flows["hops"].append(hops(src, dst))
    return bundle({"flows": flows})


def named(seconds: int, waits: Delays) -> tuple[Verdict, ...]:
    return diagnose(after(seconds, waits)).verdicts


@pytest.mark.parametrize("seconds", [3, 4])
def test_no_flow_of_a_queue_is_named_before_the_queue_is(seconds: int) -> None:
    found = named(seconds, INTO_H2 | OUT_OF_H2)
    assert {each.fault for each in found} <= {FaultClass.INCAST}


def test_in_the_first_seconds_one_flow_of_the_queue_is_late_and_the_others_are_not_yet() -> None:
    """Else the case above shows nothing."""
    flows = BundleFacts(after(3, INTO_H2 | OUT_OF_H2)).flows
    assert flows is not None
    assert 0 < len({*INTO_H2} & {(int(flows.src[each][1]), int(flows.dst[each][1]))
                                 for each in flows.late}) < len(INTO_H2)  # fmt: skip


def test_the_queue_is_named_a_second_later() -> None:
    assert [each.subjects for each in named(4, INTO_H2 | OUT_OF_H2)] == [("h2/n",)]


@pytest.mark.parametrize("seconds", [3, 4])
def test_a_flow_that_alone_waits_is_named_at_once(seconds: int) -> None:
    slow: Delays = {(0, 2): INTO_H2[0, 2]}
    assert [each.fault for each in named(seconds, slow)] == [FaultClass.SLOW_FLOW]


def test_a_flow_whose_answers_wait_in_the_queue_is_no_slow_flow() -> None:
    """Of its connection only round trips are known, and the other direction is in the queue."""
    halves: Delays = {(2, 0): (0.1, 15.0, 16.0, 15.0, 16.0, 15.0)}
    queue: Delays = {pair: (*waits, *waits[2:]) for pair, waits in INTO_H2.items()}
    assert {each.fault for each in named(6, queue | halves)} == {FaultClass.INCAST}
    # A flow that is in no connection with the queue's is slow by itself.
    assert FaultClass.SLOW_FLOW in {each.fault for each in named(6, queue | {(1, 3): halves[2, 0]})}


def test_two_flows_that_wait_at_one_link_among_many_are_not_slow_each() -> None:
    """Where most wait a little, no link stands out, and two that wait far longer at one are in a
    queue all the same."""
    usual = (0.5, 0.4, 0.6, 0.5, 0.4, 0.6)
    little: Delays = {(src, dst): usual for src in range(4) for dst in range(4) if src != dst}
    long: Delays = {(0, 2): (19.0, 21.8, 22.7, 22.5, 21.0, 22.0), (1, 2): (18.0,) * 6}
    assert FaultClass.SLOW_FLOW not in {each.fault for each in named(6, little | long)}


def test_a_full_nic_that_drops_is_no_bad_link_of_a_sender_that_loses_a_little_elsewhere() -> None:
    """Hundreds of packets are sent again to the full NIC, and by chance a few to two others."""
    draw = np.random.default_rng(9)
    queue: Delays = {pair: (*waits, *waits[2:]) for pair, waits in INTO_H2.items()}
    made = after(6, queue)
    table = made.tables["flows"]
    names = [str(table.codes("flow").at(row)) for row in range(table.rows)]
    late = (table.ints("at_ns") - T0) // S >= QUIET
    many = np.array([">h2/" in name for name in names])
    few = np.array([name in {"h3/n:1>h0/n:1", "h3/n:1>h1/n:1"} for name in names])
    again = draw.poisson(np.where(late & many, 100, np.where(late & few, 2, 0))).astype(float)
    ends = [(table.codes("src").at(row), table.codes("dst").at(row)) for row in range(table.rows)]
    probes = bundle({"probes": {
        "at_ns": table.ints("at_ns"), "src": [src for src, _ in ends],
        "dst": [dst for _, dst in ends], "sent": [100.0] * table.rows,
        "lost": np.where(late & many, 4.0, 0.0), "owd_p50_ns": np.where(late & many, 2e7, 4e3),
        "owd_p99_ns": np.where(late & many, 2e7, 9e3),
    }})  # fmt: skip
    lossy = made._replace(tables={**probes.tables,
        "flows": type(table)("flows", {**table.columns, "retransmits": again}, table.rows)
    })  # fmt: skip
    assert {each.fault for each in diagnose(lossy).verdicts} == {FaultClass.INCAST}


def test_a_connection_that_waits_much_longer_than_others_of_its_nic_is_slow() -> None:
    """As recorded live: one connection is throttled at h0, and other flows of h0 wait a little."""
    little = (0.034, 0.031, 0.03, 0.035, 0.033, 0.034, 0.03, 0.031)
    waits: Delays = {(0, 1): little, (0, 3): little, (0, 2): (4.4,) * 8, (2, 0): (8.3,) * 8}
    found = named(8, waits)
    assert {each.fault for each in found} == {FaultClass.SLOW_FLOW}
    ends = {"h0/n:1>h2/n:1", "h2/n:1>h0/n:1"}
    assert {name for each in found for name in each.subjects} <= ends
