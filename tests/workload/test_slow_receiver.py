"""Slow receivers of TCP jobs, by what senders' kernels say of the receiver's window."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from tests.workload.stored_rows import bundle, flow, process, record

from syntony.model import S
from syntony.wire.tables import JOB_FLOW, JOB_PROCESS
from syntony.workload import FaultClass, Verdict, diagnose

SEED = random.randrange(1 << 32)
SECONDS, ONSET = 60, 30


def rows(draw: random.Random, hosts: int, slow: dict[tuple[int, int], float]) -> dict[str, Any]:
    """All to all over TCP; from the middle on flows in `slow` wait for their receiver's window for
    so much of each second, NaN: nobody knows, and go at a fifth of their rate."""
    found = []
    for src, dst in ((src, dst) for src in range(hosts) for dst in range(hosts) if src != dst):
        for second in range(SECONDS):
            waits = slow.get((src, dst), 0.0)
            hit = (src, dst) in slow and second >= ONSET
            found.append(flow(
                f"h{src}/eth0", f"h{dst}/eth0", second, dport=5_000 + src,
                tx_bps=1e8 * draw.uniform(0.97, 1.03) * (0.2 if hit else 1.0),
                window_limited_ns=math.nan if math.isnan(waits) else waits * S if hit else 1e6,
            ))  # fmt: skip
    processes = [process(f"h{host}", host, second) for host in range(hosts)
                 for second in range(SECONDS)]  # fmt: skip
    return {JOB_PROCESS.name: processes, JOB_FLOW.name: found}


def verdicts(given: dict[str, Any]) -> tuple[Verdict, ...]:
    return diagnose(bundle(record(given, seconds=SECONDS))).verdicts


def test_the_rank_is_named_whose_window_all_its_senders_wait_for() -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    hosts = draw.randrange(4, 9)
    slow = draw.randrange(hosts)
    share = draw.uniform(0.3, 0.95)
    given = rows(draw, hosts, {(src, slow): share for src in range(hosts) if src != slow})
    (found,) = verdicts(given)
    assert (found.fault, found.subjects) == (FaultClass.SLOW_RECEIVER, (f"rank {slow}",))


def test_connections_that_ended_before_do_not_speak_for_a_receiver() -> None:
    """Of the job's run before, to the same rank."""
    draw = random.Random(SEED)
    hosts, slow = 3, 1
    given = rows(draw, hosts, {(src, slow): 0.1 for src in range(hosts) if src != slow})
    given[JOB_FLOW.name] += [
        flow(f"h{src}/eth0", f"h{slow}/eth0", second, dport=6_000 + src + 10 * turn, tx_bps=1e8,
             window_limited_ns=1e6)
        for turn in range(2) for src in range(hosts) if src != slow for second in range(8)
    ]  # fmt: skip
    (found,) = verdicts(given)
    assert (found.fault, found.subjects) == (FaultClass.SLOW_RECEIVER, (f"rank {slow}",))


@pytest.mark.parametrize(
    ("share", "reason"),
    [(0.8, "its sender waits 80% of the time for the receiver's credit or window"),
     (math.nan, "not checked: credit_blocked_ns not recorded")],
)  # fmt: skip
def test_of_one_slow_connection_either_end_may_be_the_cause(share: float, reason: str) -> None:
    """Where one sender alone waits, or nobody knows for what, both are said."""
    draw = random.Random(SEED)
    hosts = 5
    given = rows(draw, hosts, {(1, 2): share})
    if math.isnan(share):
        for each in given[JOB_FLOW.name]:
            each["window_limited_ns"] = math.nan
    (found,) = verdicts(given)
    assert found.fault == FaultClass.SLOW_FLOW
    (rival,) = (each for each in found.alternatives if each.fault == FaultClass.SLOW_RECEIVER)
    assert not rival.excluded
    assert rival.reason.startswith(reason)


def test_a_connection_that_is_slow_by_itself_is_not_its_receivers_fault() -> None:
    (found,) = verdicts(rows(random.Random(SEED), 5, {(1, 2): 0.0}))
    (rival,) = (each for each in found.alternatives if each.fault == FaultClass.SLOW_RECEIVER)
    assert (found.fault, rival.excluded) == (FaultClass.SLOW_FLOW, True)
