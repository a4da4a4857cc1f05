"""Delay: a slower component, a clock that jumped, and nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from syntony.fabric.candidates import Candidates, Listing
from syntony.fabric.delay_search import _lower_spread
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.numbering import make_candidates
from syntony.model.findings import Finding

HOSTS, LEAVES, SPINES = 16, 4, 3


def way(a: int, b: int, spine: int) -> list[str]:
    near, far = a * LEAVES // HOSTS, b * LEAVES // HOSTS
    middle = [f"leaf{near}"] + ([f"spine{spine}", f"leaf{far}"] if near != far else [])
    return [f"h{a}/rail0", *middle, f"h{b}/rail0"]


def fabric() -> tuple[Candidates, list[list[str]]]:
    paths = [
        way(a, b, (3 * a + b + k) % SPINES)
        for a in range(HOSTS)
        for b in range(HOSTS)
        if a != b
        for k in range(2)
    ]
    return make_candidates(Listing.of(paths)), paths


def slower(
    hurt: dict[str, float], *, jumped: dict[str, float] | None = None, seed: int = 1
) -> tuple[Finding, ...]:
    """Findings when components take longer and clocks have jumped ahead, ns."""
    candidates, paths = fabric()
    rng = np.random.default_rng(seed)
    change = rng.normal(0, 300, len(paths))
    for place, nodes in enumerate(paths):
        links = {f"{a}->{b}" for a, b in itertools.pairwise(nodes)}
        change[place] += sum(late for name, late in hurt.items() if name in {*nodes, *links})
        for host, ahead in (jumped or {}).items():
            change[place] += ahead * nodes[-1].startswith(f"{host}/")
            change[place] -= ahead * nodes[0].startswith(f"{host}/")
    sent = np.full(len(paths), 100)
    window = WindowCounts("now", sent, np.zeros_like(sent), change, np.full(len(paths), 100.0))
    return locate(candidates, [window])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("spine1", "spine"), ("leaf2", "leaf"), ("h5/rail0", "nic"), ("leaf0->spine2", "link")],
)
def test_a_slower_component_is_named(name: str, kind: str) -> None:
    (found,) = slower({name: 30_000})
    assert (found.component, found.kind, found.fault) == (name, kind, "delay")
    assert found.delay_ns == pytest.approx(30_000, rel=0.1)


def test_two_at_once() -> None:
    found = slower({"spine0": 20_000, "leaf3->spine1": 60_000})
    assert {each.component for each in found} == {"spine0", "leaf3->spine1"}


@pytest.mark.parametrize("ahead", [40_000, -40_000])
def test_a_clock_that_jumped_is_a_clock(ahead: float) -> None:
    (found,) = slower({}, jumped={"h3": ahead})
    assert (found.component, found.kind, found.fault) == ("h3", "clock", "clock")
    assert found.delay_ns == pytest.approx(ahead, rel=0.1)


@pytest.mark.parametrize("seed", range(30))
def test_noise_is_nothing(seed: int) -> None:
    assert slower({}, seed=seed) == ()


def test_one_slow_path_convicts_nobody() -> None:
    candidates, paths = fabric()
    change = np.zeros(len(paths))
    change[7] = 1e6
    sent = np.full(len(paths), 100)
    window = WindowCounts("now", sent, np.zeros_like(sent), change, np.zeros(len(paths)))
    assert locate(candidates, [window]) == ()


def test_what_was_not_measured_says_nothing() -> None:
    candidates, paths = fabric()
    empty = np.zeros(len(paths), dtype=np.int64)
    nothing = np.full(len(paths), np.nan)
    assert locate(candidates, [WindowCounts("now", empty, empty, nothing, nothing)]) == ()


def test_the_spread_of_undisturbed_paths_is_told_by_the_lower_tail() -> None:
    """However late a third of all is."""
    change_ns = np.random.default_rng(11).normal(0, 700, 40_000)
    assert _lower_spread(change_ns) == pytest.approx(700, rel=0.03)
    change_ns[::3] += 50_000
    assert _lower_spread(change_ns) == pytest.approx(700, rel=0.2)


def test_what_no_path_shows_clearly_is_no_finding() -> None:
    """A spine that is later by three sigmas of every path's measurement: clocks may have moved."""
    candidates, paths = fabric()
    for late, count in ((3.0, 0), (12.0, 1)):
        change = np.array([late * 5_000 * ("spine1" in nodes) for nodes in paths])
        sent = np.full(len(paths), 100)
        sigma = np.full(len(paths), 5_000.0)
        window = WindowCounts("now", sent, np.zeros_like(sent), change, sigma)
        assert len(locate(candidates, [window])) == count
