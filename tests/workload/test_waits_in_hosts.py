"""Flows of TCP whose round trips grow in a host, and not between the NICs."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from tests.workload.made import MS, T0, bundle

from syntony.workload import FaultClass, diagnose
from syntony.workload.verdict import Verdict

S, US = 1000 * MS, 1_000
HOSTS, SPINES = 5, 2
SECONDS, BEGIN = 30, 20
SEED = random.randrange(1 << 32)


def nic(host: int) -> str:
    return f"h{host}/n"


def verdicts(
    slow: set[tuple[int, int]],
    *,
    between: float,
    held: set[tuple[int, int]] = frozenset(),  # type: ignore[assignment]
    measured: bool = True,
    seconds: int = SECONDS - BEGIN,
    silent: set[tuple[int, int]] = frozenset(),  # type: ignore[assignment]
    since: int = BEGIN,
    new: set[tuple[int, int]] = frozenset(),  # type: ignore[assignment]
) -> tuple[Verdict, ...]:
    """Of hosts that all send to each other, one below each leaf.

    Args:
        slow: sender and receiver of flows that wait for 300 µs for so many `seconds` since `BEGIN`.
        between: the share of that between the NICs.
        held: flows whose receiver holds them back for 5 % of the time then.
        measured: whether segments were seen at both NICs.
        silent: flows of which nothing is recorded from the second `since` on.
        new: flows that begin at `BEGIN`.
    """
    draw = np.random.default_rng(SEED)
    rows: dict[str, list[Any]] = {}
    for (src, dst), second in itertools.product(
        itertools.permutations(range(HOSTS), 2), range(BEGIN + seconds)
    ):
        bad = second >= BEGIN
        if (src, dst) in silent and second >= since:
            continue
        if (src, dst) in new and second < BEGIN:
            continue
        wait = 300.0 * US * draw.lognormal(0, 0.1) if bad and (src, dst) in slow else 0.0
        spine = f"spine{(src + dst) % SPINES}"
        way = 8.0 * US * draw.lognormal(0, 0.1) + between * wait
        for name, value in {
            "flow": f"{nic(src)}:1>{nic(dst)}:{src}", "at_ns": T0 + second * S, "window_ns": S,
            "src": nic(src), "dst": nic(dst), "proto": "tcp", "rank": float(src),
            "peer_rank": float(dst), "rate_bps": 3e6, "retransmits": 0.0,
            "owd_p50_ns": 7.0 * US * draw.lognormal(0, 0.1) + 8.0 * US + wait,
            "rtt_p50_ns": 30.0 * US + wait, "one_way_p50_ns": way if measured else float("nan"),
            "credit_blocked_ns": 0.05 * S if bad and (src, dst) in held else 0.0,
            "hops": (f"{nic(src)}->leaf{src}", f"leaf{src}->{spine}", f"{spine}->leaf{dst}",
                     f"leaf{dst}->{nic(dst)}"),
        }.items():  # fmt: skip
            rows.setdefault(name, []).append(value)
    return diagnose(bundle({"flows": rows})).verdicts


def into(host: int) -> set[tuple[int, int]]:
    return {(each, host) for each in range(HOSTS) if each != host}


def test_packets_that_wait_in_hosts_fill_no_link() -> None:
    assert [(each.fault, each.subjects) for each in verdicts(into(1), between=1.0)] == [
        (FaultClass.INCAST, ("h1/n",))
    ], f"seed {SEED}"
    assert [each.fault for each in verdicts(into(1), between=1.0, measured=False)] == [
        FaultClass.INCAST
    ], f"seed {SEED}"
    assert verdicts(into(1), between=0.05) == (), f"seed {SEED}"


@pytest.mark.parametrize("held", [False, True])
def test_a_flow_that_waits_in_a_host_is_not_slow_alone_while_its_receiver_holds_others_back(
    held: bool,
) -> None:
    """One sender that waits for credit is too little to name the receiver."""
    found = verdicts({(0, 1)}, between=0.05, held={(3, 1)} if held else set(), seconds=5)
    assert [each.fault for each in found] == ([] if held else [FaultClass.SLOW_FLOW]), SEED


def test_a_receiver_that_holds_all_back_is_named_and_no_link() -> None:
    found = verdicts(into(1), between=0.05, held=into(1))
    assert [(each.fault, each.subjects) for each in found] == [
        (FaultClass.SLOW_RECEIVER, ("rank 1",))
    ], f"seed {SEED}"


@pytest.mark.parametrize(
    ("silent", "since", "named"),
    [(set(), BEGIN, True), ({(2, 1), (3, 1)}, BEGIN, True), ({(2, 1), (4, 1)}, BEGIN, False),
     (into(1) - {(0, 1)}, BEGIN, False), (into(1) - {(0, 1)}, 0, True)],
)  # fmt: skip
def test_a_flow_is_slow_alone_only_beside_others_that_are_not(
    silent: set[tuple[int, int]], since: int, named: bool
) -> None:
    """Of the others across one of its links nothing may be recorded since: they may wait as well.
    Two of them share a spine with it."""
    found = verdicts({(0, 1)}, between=1.0, seconds=5, silent=silent, since=since)
    assert [each.fault for each in found] == ([FaultClass.SLOW_FLOW] if named else []), SEED
    if not named:
        assert not verdicts({(0, 1)}, between=1.0, seconds=5, silent=silent, new={(0, 1)})
