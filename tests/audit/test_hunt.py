"""Matchings and the hunt for bad hosts."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.audit.hunt import GroupHunt, HuntOutcome, Pair, PairHunt
from syntony.audit.pairs import matchings, rounds_of, sample_rounds, sampled, slow_pairs


@given(st.integers(0, 40))
def test_every_pair_meets_once_and_nobody_twice_in_a_round(hosts: int) -> None:
    plan = matchings(hosts)
    assert len(plan) == rounds_of(hosts) if hosts > 1 else len(plan) <= 1
    met = [tuple(pair) for matching in plan.tolist() for pair in matching]
    assert len(set(met)) == len(met) == hosts * (hosts - 1) // 2
    for matching in plan.tolist():
        busy = [host for pair in matching for host in pair]
        assert len(busy) == len(set(busy)) == hosts - hosts % 2


@given(st.integers(2, 200), st.integers(0, 99))
def test_a_sample_has_no_pair_twice(hosts: int, seed: int) -> None:
    plan = sampled(hosts, sample_rounds(hosts), seed)
    met = {tuple(pair) for matching in plan.tolist() for pair in matching}
    assert len(met) == plan.shape[0] * plan.shape[1]
    assert np.all(plan < hosts)
    assert np.array_equal(plan, sampled(hosts, sample_rounds(hosts), seed))


def hunt_pairs(hunt: PairHunt, fails: set[str], broken: frozenset[str] = frozenset()) -> None:
    while pairs := hunt.next_round():
        hunt.report({pair: not fails & set(pair) and set(pair) != broken for pair in pairs})


@settings(max_examples=60)
@given(hosts=st.integers(4, 300), bad=st.integers(0, 299), seed=st.integers(0, 99))
def test_a_single_bad_host_is_named_in_log_n_and_two_rounds(
    hosts: int, bad: int, seed: int
) -> None:
    names = [f"h{number}" for number in range(hosts)]
    hunt = PairHunt(names, seed=seed)
    hunt_pairs(hunt, {names[bad % hosts]})
    assert hunt.rounds <= math.ceil(math.log2(hosts)) + 2
    assert [(n.blame, n.hosts) for n in hunt.named()] == [(HuntOutcome.HOST, (names[bad % hosts],))]


@settings(max_examples=30)
@given(hosts=st.integers(16, 200), seed=st.integers(0, 999))
def test_several_bad_hosts_are_all_named(hosts: int, seed: int) -> None:
    names = [f"h{number}" for number in range(hosts)]
    bad = set(random.Random(seed).sample(names, 3))
    hunt = PairHunt(names, seed=seed)
    hunt_pairs(hunt, bad)
    assert {(n.blame, n.hosts[0]) for n in hunt.named()} == {
        (HuntOutcome.HOST, host) for host in bad
    }


def test_a_path_between_two_good_hosts_is_a_pair() -> None:
    names = [f"h{number}" for number in range(16)]
    hunt = PairHunt(names, every_pair=True)
    hunt_pairs(hunt, set(), frozenset({"h3", "h9"}))
    assert [(n.blame, n.hosts) for n in hunt.named()] == [(HuntOutcome.PAIR, ("h3", "h9"))]


@pytest.mark.parametrize("hosts", [2, 3])
def test_without_anybody_known_good_nothing_is_decided(hosts: int) -> None:
    hunt = PairHunt([f"h{number}" for number in range(hosts)])
    hunt_pairs(hunt, {f"h{number}" for number in range(hosts)})
    assert hunt.named()
    assert {n.blame for n in hunt.named()} == {HuntOutcome.UNDECIDED}


def test_a_good_fleet_names_nobody_and_re_tests_nothing() -> None:
    hunt = PairHunt([f"h{number}" for number in range(64)])
    hunt_pairs(hunt, set())
    assert hunt.named() == ()
    assert hunt.rounds == 6


def test_what_was_not_tested_is_not_blamed() -> None:
    hunt = PairHunt(["a", "b", "c", "d"])
    while pairs := hunt.next_round():
        hunt.report({pair: True for pair in pairs if "d" not in pair})
    assert hunt.named() == ()


@settings(max_examples=60)
@given(hosts=st.integers(2, 300), bad=st.integers(0, 299), least=st.integers(2, 4))
def test_groups_are_halved_until_one_host_is_left(hosts: int, bad: int, least: int) -> None:
    names = [f"h{number}" for number in range(hosts)]
    culprit = names[bad % hosts]
    hunt = GroupHunt(names, least=least)
    while groups := hunt.next_round():
        hunt.report([culprit not in group for group in groups])
    assert hunt.rounds <= math.ceil(math.log2(hosts)) + 1
    reported = [(n.blame, n.hosts) for n in hunt.named()]
    assert reported[-1] == (HuntOutcome.HOST, (culprit,))


def test_halves_that_pass_alone_fail_only_together() -> None:
    hunt = GroupHunt([f"h{number}" for number in range(8)])
    while groups := hunt.next_round():
        hunt.report([len(group) < 8 for group in groups])
    assert [(n.blame, len(n.hosts)) for n in hunt.named()] == [(HuntOutcome.PAIR, 8)]


def test_slow_is_what_its_class_is_not() -> None:
    values: dict[Pair, float] = {("a", f"b{n}"): 4.0 + n / 100 for n in range(9)}
    values |= {("x", f"y{n}"): 9.0 for n in range(9)} | {("a", "slow"): 94.0}
    classes = {pair: "near" if pair[0] == "a" else "far" for pair in values}
    assert set(slow_pairs(values, classes)) == {("a", "slow")}
    assert slow_pairs({("a", "b"): 1.0, ("a", "c"): 9.0}, dict.fromkeys([("a", "b"), ("a", "c")], 1)) == {}  # fmt: skip  # noqa: E501
