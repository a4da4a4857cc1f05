"""Links that lose packets of flows, where probes on other paths tell which."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from tests.workload.made import MS, T0, bundle

from syntony.workload import FaultClass, diagnose
from syntony.workload.facts import BundleFacts
from syntony.workload.probe_streams import ProbeStreams

S = 1000 * MS
HOSTS, SPINES, PORTS = 3, 2, 8
SECONDS, BEGIN = 30, 20
RATE = 0.06
SEED = random.randrange(1 << 32)


def path(src: int, dst: int, spine: int) -> tuple[str, ...]:
    """One host below each leaf."""
    return (f"h{src}/n->leaf{src}", f"leaf{src}->spine{spine}", f"spine{spine}->leaf{dst}",
            f"leaf{dst}->h{dst}/n")  # fmt: skip


def named(
    bad: str,
    *,
    known: bool,
    detour: bool = False,
    lost_in_all: int | None = None,
    spines: int = SPINES,
    queue_ns: float = 0.0,
    counted: bool = True,
) -> list[tuple[str, ...]]:
    """Subjects of `bad-link`, of three hosts whose flows all take the first spine.

    Args:
        bad: the link that loses packets.
        known: whether the paths of probes are.
        detour: whether the flow from the second host to the third took one at once.
        spines: that probes are spread over.
        queue_ns: wait before the link, of flows and probes.
        counted: whether it is recorded how many probes were sent.
        lost_in_all: probes that are lost across the link; None: as many as the link loses.
    """
    left = lost_in_all
    ports = max(PORTS, spines)
    draw = np.random.default_rng(SEED)
    owed = float(draw.random())
    flows: dict[str, list[Any]] = {}
    probes: dict[str, list[Any]] = {}
    for (src, dst), second in itertools.product(
        itertools.permutations(range(HOSTS), 2), range(SECONDS)
    ):
        begun = second >= BEGIN
        away = detour and begun and (src, dst) == (1, 2)
        hops = path(src, dst, 0)
        again = draw.poisson(300 * RATE) if begun and bad in hops else draw.poisson(0.1)
        for name, value in {
            "flow": f"h{src}/n:1>h{dst}/n:2{' (detour)' * away}", "at_ns": T0 + second * S,
            "window_ns": S, "src": f"h{src}/n", "dst": f"h{dst}/n", "proto": "tcp",
            "rate_bps": 2e6, "retransmits": float(again),
            "owd_p50_ns": 15_000.0 * draw.lognormal(0, 0.1) + queue_ns * (begun and bad in hops),
            "hops": hops[::3] if away else hops,
        }.items():  # fmt: skip
            flows.setdefault(name, []).append(value)
        for port in range(ports):
            way = path(src, dst, port % spines)
            # Evenly: of 80 probes, two or fewer would be lost by chance once in seven draws.
            owed += 4 * RATE * (begun and bad in way)
            lost = int(owed)
            owed -= lost
            if left is not None:
                lost = min(left, int(begun and bad in way))
                left -= lost
            for name, value in {
                "at_ns": T0 + second * S, "src": f"h{src}/n", "dst": f"h{dst}/n",
                "sent": 4.0 if counted else None,
                "lost": float(lost), "owd_p50_ns": 5_000.0,
                "owd_p99_ns": 9_000.0 + queue_ns * (begun and bad in way),
                "hops": way if known else None,
            }.items():  # fmt: skip
                probes.setdefault(name, []).append(value)
    if not counted:
        del probes["sent"]
    result = diagnose(bundle({"flows": flows, "probes": probes}))
    lacks = any("no paths of probes are recorded" in each.reason for each in result.gaps)
    assert lacks is not known
    found = result.verdicts
    if not queue_ns:
        assert {each.fault for each in found} <= {FaultClass.BAD_LINK}, (SEED, found)
    return sorted(each.subjects for each in found if each.fault is FaultClass.BAD_LINK)


CABLE, NIC = "leaf1->spine0", "h1/n->leaf1"


@pytest.mark.parametrize("bad", [CABLE, NIC])
def test_probes_tell_a_cable_from_the_nic_before_it(bad: str) -> None:
    """All flows of the host take one uplink, its probes two."""
    assert named(bad, known=True) == [(bad,)], SEED
    assert named(bad, known=False) == [(NIC, CABLE)], SEED


@pytest.mark.parametrize("bad", [CABLE, NIC])
def test_a_detour_over_the_same_link_does_not_blame_the_nic(bad: str) -> None:
    """Only the first and the last link of a detour are known."""
    assert named(bad, known=True, detour=True) == [(bad,)], SEED
    assert named(bad, known=False, detour=True) == [(NIC,)], SEED


@pytest.mark.parametrize(("lost", "found"), [(1, []), (2, []), (5, [(NIC, CABLE)])])
def test_two_lost_probes_confirm_no_bad_link(lost: int, found: list[tuple[str, ...]]) -> None:
    assert named(NIC, known=False, lost_in_all=lost) == found, SEED


@pytest.mark.parametrize(("queue_ns", "named_"), [(0.0, [(CABLE,)]), (1e6, [])])
def test_a_queue_before_one_of_many_uplinks_is_no_bad_link(
    queue_ns: float, named_: list[tuple[str, ...]]
) -> None:
    """One probe of sixteen crosses it."""
    assert named(CABLE, known=True, spines=16, queue_ns=queue_ns) == named_, SEED


def test_without_the_number_of_probes_their_paths_do_not_tell_which_link() -> None:
    assert named(CABLE, known=True, counted=False) == [(NIC, CABLE)], SEED


def test_probes_of_one_pair_are_apart_by_their_paths() -> None:
    table = bundle({"probes": {
        "at_ns": [T0] * 3, "src": ["a/n"] * 3, "dst": ["b/n"] * 3, "sent": [4.0] * 3,
        "lost": [1.0, 2.0, 0.0], "owd_p50_ns": [1e3] * 3, "owd_p99_ns": [1e3] * 3,
        "hops": [("x", "y"), ("x", "y"), ("x", "z")],
    }}).tables["probes"]  # fmt: skip
    streams = ProbeStreams(table)
    assert streams.hops == [("x", "y"), ("x", "z")]
    assert streams.streams["a/n", "b/n"] == [0, 1]
    assert dict(streams.across) == {"x": {0, 1}, "y": {0}, "z": {1}}
    assert streams.counts({0, 1}, T0, T0 + 1) == (3.0, 12.0)
    assert streams.counts({1}, T0, T0 + 1) == (0.0, 4.0)
    assert streams.counts((), T0, T0 + 1) == (0.0, 0.0)


def test_losses_that_become_fewer_are_no_start_that_is_over() -> None:
    """A connection that begins to lose packets with its first second, most in the first three."""
    losses = (27, 26, 9, 20, 16, 12, 17, 15, 15, 13)
    rows = [(flow, second, 0) for flow in range(4) for second in range(SECONDS)]
    rows += [(4, BEGIN + place, count) for place, count in enumerate(losses)]
    flow, second, again = (np.array(each) for each in zip(*rows, strict=True))
    found = BundleFacts(bundle({"flows": {
        "flow": [f"f{each}" for each in flow], "at_ns": T0 + second * S,
        "window_ns": np.full(len(rows), S), "src": [f"h{each}/n" for each in flow],
        "dst": ["h9/n"] * len(rows), "retransmits": again.astype(float),
    }})).flows  # fmt: skip
    assert found is not None
    assert found.lossy.keys() == {4}
    assert found.lossy[4].first == BEGIN
