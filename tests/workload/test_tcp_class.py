"""Jobs over TCP in another class than the probes, from rows of the store: a generator of its own.

A fabric of two priorities: packets of a job wait in their class's queue. Probes are of the default
class. Drawn: hosts, rails, pattern, class, delays, how often anything is measured.
"""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import pytest
from tests.workload.stored_rows import Rows, bundle, columns, delay, flow, record

from syntony.model import MS, US
from syntony.wire.tables import JOB_DELAY, JOB_FLOW, PROBE
from syntony.workload import FaultClass, diagnose
from syntony.workload.recorded import recorded

SEED = random.randrange(1 << 32)
CASES = 10
SECONDS = 40


class Drawn(NamedTuple):
    """What a job looks like, and what is wrong."""

    wait_ns: float
    """In the queue of the job's class."""
    dscp: float
    begin: int
    """Second in which the class begins to wait; not half of them, which looks like scatter."""
    wrong: frozenset[str]
    """Hosts whose packets are of that class."""
    hosts: tuple[str, ...]
    shared: bool
    """Probes wait in the same queue, whatever their class, when the job sends."""
    measured: float
    """Share of the seconds of which one-way delays are known."""
    in_hosts_ns: float
    """Part of a round trip that is no wait in the fabric."""


def draw_job(draw: random.Random, **given: Any) -> Drawn:
    count = draw.randrange(4, 9)
    hosts = tuple(f"n{place}" for place in range(count))
    drawn = Drawn(
        wait_ns=draw.uniform(0.3, 4) * MS, dscp=float(draw.randrange(1, 64)),
        begin=draw.choice((0, draw.randrange(5, 15))), wrong=frozenset(hosts), hosts=hosts,
        shared=False, measured=draw.uniform(0.5, 1), in_hosts_ns=draw.uniform(10, 60) * US,
    )  # fmt: skip
    return drawn._replace(**given)


def rows_of(job: Drawn, draw: random.Random) -> Rows:
    step = draw.choice((1, 2))
    places = range(len(job.hosts))
    pairs = {(one, (one + by) % len(job.hosts)) for one in places for by in (step, -step)}
    rows: Rows = {JOB_FLOW.name: [], JOB_DELAY.name: [], PROBE.name: []}
    base = {pair: draw.uniform(4, 9) * US for pair in pairs}
    for second in range(SECONDS):
        passed = {}
        for one, other in sorted(pairs):
            odd = second >= job.begin and job.hosts[one] in job.wrong
            waits = job.wait_ns * draw.uniform(0.6, 1.4) * odd
            passed[one, other] = base[one, other] * draw.uniform(0.9, 1.1) + waits
        for one, other in sorted(pairs):
            way = f"{job.hosts[one]}/e0", f"{job.hosts[other]}/e0"
            ports: dict[str, Any] = {"sport": 41_000, "dport": 41_000}
            trip = passed[one, other] + passed[other, one] + job.in_hosts_ns * draw.uniform(1, 2)
            dscp = job.dscp if job.hosts[one] in job.wrong else 0.0
            rows[JOB_FLOW.name].append(flow(*way, second, rtt_ns=int(trip), dscp=dscp, **ports))
            if draw.random() < job.measured:
                owd_ns = int(passed[one, other])
                rows[JOB_DELAY.name].append(delay(*way, second, owd_p50_ns=owd_ns, **ports))
            probed = base[one, other] * draw.uniform(0.9, 1.1)
            longest = probed + job.wait_ns * draw.uniform(1.5, 3) * job.shared
            rows[PROBE.name].append({
                "ts_ns": flow(*way, second)["ts_ns"], "src": way[0], "dst": way[1], "dscp": 0,
                "sent": 20, "count": 20, "owd_p50_ns": int(probed), "owd_p99_ns": int(longest),
            })  # fmt: skip
    return rows


def named(rows: Rows) -> set[tuple[str, ...]]:
    """Subjects of class mismatches."""
    found = diagnose(bundle(record(rows, seconds=SECONDS))).verdicts
    return {each.subjects for each in found if each.fault is FaultClass.CLASS_MISMATCH}


def test_a_job_whose_class_waits_is_named() -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(CASES):
        job = draw_job(draw)
        assert named(rows_of(job, draw)) == {("night",)}, job


def test_a_host_whose_class_alone_waits_is_named() -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(CASES):
        job = draw_job(draw, begin=0)
        odd = draw.choice(job.hosts)
        assert named(rows_of(job._replace(wrong=frozenset({odd})), draw)) == {(odd,)}, job


@pytest.mark.parametrize(
    "given",
    [
        {"wait_ns": 0.0},
        {"dscp": 0.0},  # the probes' own class
        {"dscp": math.nan},  # agents of before
        {"shared": True},  # bursts of the job itself
        {"measured": 0.0},  # half of a round trip is not what probes measure
    ],
)
def test_nothing_is_said_of_the_class_of_a_job(given: dict[str, Any]) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(CASES):
        job = draw_job(draw, **given)
        assert named(rows_of(job, draw)) == set(), job


def test_hosts_that_add_to_the_round_trip_are_no_class() -> None:
    """Ten times what the fabric takes, on every host, in a job whose class does not wait."""
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    for _ in range(CASES):
        job = draw_job(draw, wait_ns=0.0, in_hosts_ns=draw.uniform(0.2, 5) * MS)
        for share in (0.0, 0.3):
            assert named(rows_of(job._replace(measured=share), draw)) == set(), job


def test_the_class_of_a_flow_is_recorded_where_it_is_known() -> None:
    way = "h0/rail0", "h1/rail0"
    rows: Rows = {
        JOB_FLOW.name: [
            flow(*way, second, dscp=dscp) for second, dscp in enumerate((26.0, math.nan, 0.0))
        ]
    }
    assert record(rows).tables["flows"]["dscp"] == [26, None, 0]
    for row in rows[JOB_FLOW.name]:
        row["dscp"] = math.nan
    found = columns(rows)
    assert "dscp" not in recorded("night", found, 0, 1 << 62, 1 << 62).tables["flows"]
