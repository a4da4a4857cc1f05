"""Disagreements of UDP and verbs: those that were made are found, and nothing else."""

from __future__ import annotations

import random

import pytest

from syntony.mesh.planes import MIN_PROBES, DisagreementKind, Place, disagreements
from syntony.model import US
from syntony.model.sla import Latency


def of(p50_ns: int, sent: int = 600, lost: int = 0) -> Latency:
    measured = sent - lost
    return Latency(
        sent=sent, lost=lost, measured=measured, p50_ns=p50_ns if measured else None,
        p90_ns=p50_ns, p99_ns=p50_ns,
    )  # fmt: skip


def fleet(rng: random.Random, hosts: int) -> list[tuple[str, str]]:
    names = [f"h{number}/rail0" for number in range(hosts)]
    return [(a, b) for a in names for b in names if a != b and rng.random() < 0.8]


@pytest.mark.parametrize("trial", range(20))
def test_what_was_made_is_found_and_nothing_else(trial: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"trial {trial}, seed {seed}")
    rng = random.Random(seed)
    pairs = fleet(rng, rng.randrange(5, 9))
    base = {pair: rng.randrange(5, 200) * US for pair in pairs}
    offset = {0: rng.randrange(0, 80) * US, 26: 0}
    offset[26] = offset[0] + rng.choice([0, 300 * US])
    share = rng.random() * 0.05
    udp: dict[Place, Latency] = {}
    verbs: dict[Place, Latency] = {}
    for (a, b), delay in base.items():
        sent = rng.randrange(300, 3000)
        udp[a, b, 0] = of(delay, sent, round(share * sent))
        for dscp in (0, 26):
            jitter = rng.randrange(-3, 4) * US
            verbs[a, b, dscp] = of(delay + offset[dscp] + jitter, sent, round(share * sent))
    lossy, slow = rng.sample(pairs, 2)
    lossy_at, slow_at = (*lossy, rng.choice([0, 26])), (*slow, rng.choice([0, 26]))
    seen = verbs[lossy_at]
    verbs[lossy_at] = of(seen.p50_ns or 0, seen.sent, seen.sent // 3)
    seen = verbs[slow_at]
    verbs[slow_at] = of((seen.p50_ns or 0) + 500 * US, seen.sent, seen.lost)
    found = disagreements(udp, verbs)
    assert {
        (each.src, each.dst, each.dscp) for each in found if each.what is DisagreementKind.LOSS
    } == {lossy_at}
    assert {
        (each.src, each.dst, each.dscp) for each in found if each.what is DisagreementKind.DELAY
    } == {slow_at}
    late = {each.dscp for each in found if each.what is DisagreementKind.CLASS}
    assert late == ({26} if offset[26] - offset[0] > 100 * US else set())


def test_too_little_evidence_says_nothing() -> None:
    udp = {("a/0", "b/0", 0): of(10 * US, MIN_PROBES - 1)}
    verbs = {("a/0", "b/0", 0): of(900 * US, MIN_PROBES - 1, MIN_PROBES - 1)}
    assert disagreements(udp, verbs) == ()


def test_a_dark_plane_is_told_either_way() -> None:
    place = ("a/0", "b/0", 0)
    whole, dark = of(10 * US, 200), of(0, 200, 200)
    for udp, verbs in ((whole, dark), (dark, whole)):
        (found,) = disagreements({place: udp}, {place: verbs})
        assert (found.what, abs(found.udp - found.verbs)) == (DisagreementKind.LOSS, 1.0)
    assert disagreements({place: dark}, {place: dark}) == ()


def test_a_class_is_compared_with_its_own_over_udp_where_that_is_probed() -> None:
    place = ("a/0", "b/0", 26)
    udp = {place: of(0, 300, 150), ("a/0", "b/0", 0): of(0, 300, 0)}
    assert disagreements(udp, {place: of(0, 300, 150)}) == ()
