"""One of several parallel cables, whose number a topology tells; groups in both directions; two
parts and more that only a common fit tells apart."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from tests.cases import mostly_slow
from tests.fabric.foreign import Case, Grade, Shape, draw, grade
from tests.fabric.test_fault_locator import Fabric

from syntony.fabric.book import PathBook
from syntony.fabric.candidates import Candidates, Listing
from syntony.fabric.graph import Cable, Device, make_topology
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.names import ComponentKind
from syntony.fabric.numbering import make_candidates
from syntony.fabric.tally import SHARES
from syntony.model.findings import Finding

SMALL = Shape(leaves=2, spines=2, hosts=2, rails=1, parallel=1)
SEEDS = mostly_slow((6, 30), {6})


def located(case: Case, *, delays: bool = False) -> tuple[Finding, ...]:
    listing = Listing.of([path.listed for path in case.paths])
    change_ns = case.change_ns if delays else np.full(len(case.paths), np.nan)
    window = WindowCounts("now", case.sent, case.lost, change_ns, np.full(len(case.paths), 100.0))
    return locate(make_candidates(listing, parallel=case.parallel()), [window])


def graded(case: Case, found: tuple[Finding, ...]) -> Grade:
    return grade(case, [(each.component, each.confidence, each.alternatives) for each in found])


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("delay", [False, True])
@pytest.mark.parametrize("many", [2, 4])
@pytest.mark.parametrize("fault", ["leaf-up", "leaf-down", "cable"])
def test_one_of_parallel_cables_is_named_and_said_to_be_one_of_them(
    fault: str, many: int, delay: bool, seeds: int
) -> None:
    shape = Shape(leaves=4, spines=3, hosts=3, rails=1, parallel=many)
    for seed in range(seeds):
        case = draw(seed, shape=shape, known=1.0, fault=fault, delay=delay)
        found = located(case, delays=delay)
        if not delay and case.lost.sum() < 40:
            continue  # Less than this may be nothing.
        assert graded(case, found) == Grade("right", (), 0), f"seed {seed}: {case.truth}"
        assert [each.one_of for each in found] == [many], f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
def test_a_whole_bundle_of_cables_is_not_one_of_them(seed: int) -> None:
    shape = Shape(leaves=4, spines=3, hosts=3, rails=1, parallel=2)
    case = draw(seed, shape=shape, known=1.0, fault="leaf-up")
    hit = np.array([case.truth in path.true for path in case.paths])
    lost = np.random.default_rng(seed).binomial(case.sent, np.where(hit, 0.2, 0.0))
    (found,) = located(case._replace(lost=lost))
    assert (found.component, found.one_of) == (case.truth, 1)


@pytest.mark.parametrize("known", [0.3, 0.6])
@pytest.mark.parametrize("seed", range(4))
def test_paths_known_in_part_may_take_one_of_parallel_cables(known: float, seed: int) -> None:
    shape = Shape(leaves=4, spines=3, hosts=3, rails=1, parallel=2)
    case = draw(seed, shape=shape, known=known, fault="leaf-up")
    got = graded(case, located(case))
    assert got.verdict in {"right", "twin", "vague", "missed"}
    assert not got.doubled, case.truth


def shares_of(candidates: Candidates, name: str) -> list[float]:
    possible = candidates.crossed.partly.shares
    assert possible is not None
    (number,) = (
        place
        for place, each in enumerate(candidates.names)
        if each == name and candidates.one_of[place] > 1
    )
    return [float(share) for share in SHARES[possible[number]]]


def test_the_share_of_paths_follows_from_how_many_cables_there_are() -> None:
    there = ["leaf0->spine0", "spine0->leaf1"]
    group = ["leaf0", "leaf0..leaf1", "leaf1"]
    parallel = {"leaf0--spine0": 2, "leaf1--spine0": 3}
    whole = make_candidates(Listing.of([there] * 3), parallel=parallel)
    assert shares_of(whole, "leaf0->spine0") == shares_of(whole, "leaf0--spine0") == [0.5]
    assert shares_of(whole, "spine0->leaf1") == [0.33]
    # Of three paths one may cross nothing of it.
    some = make_candidates(Listing.of([there, there, group]), parallel=parallel)
    assert shares_of(some, "leaf0->spine0") == [0.5, 0.33]
    none = make_candidates(Listing.of([there, group]))
    assert none.crossed.partly.shares is None
    assert set(none.one_of.tolist()) == {1}


def test_a_topology_tells_how_many_cables_are_parallel() -> None:
    devices = [Device(name=name) for name in ("leaf0", "spine0", "spine1")]
    cables = [
        Cable(a="leaf0", b="spine0", a_port="1"), Cable(a="spine0", b="leaf0", b_port="2"),
        Cable(a="leaf0", b="spine1"),
    ]  # fmt: skip
    topology = make_topology(devices, cables)
    assert topology.parallel == PathBook(topology).parallel == {"leaf0--spine0": 2}
    assert PathBook().parallel == {}


def test_one_of_parallel_cables_is_named_while_it_loses_and_no_longer() -> None:
    """Second after second: paths across the other cable do not end the fault, nor do they forget
    it."""
    fabric = Fabric(parallel=2)
    for _ in range(5):
        fabric.second()
    for second in range(16):
        fabric.second({"leaf0->spine1#0": 0.3})
        found = fabric.watch.findings()
        if second >= 8:  # Until then it may be a stale map, as of any part that spares some.
            assert [(each.component, each.one_of) for each in found] == [("leaf0->spine1", 2)]
    for after in range(16):
        fabric.second()
        found = fabric.watch.findings()
        if after >= 8:
            assert not found, f"{after} s after the end"


def test_what_one_name_stands_for_is_told_once() -> None:
    """All parallel cables or one of them: one name, with the probability of both."""
    shape = Shape(leaves=2, spines=2, hosts=2, rails=1, parallel=2)
    for seed in range(40):
        for each in located(draw(seed, shape=shape, known=1.0, fault="leaf-up")):
            names = (each.component, *each.alternatives)
            assert len(set(names)) == len(names), f"seed {seed}"
            assert each.confidence + sum(each.probabilities) <= 1 + 1e-9, f"seed {seed}"


@pytest.mark.parametrize(
    ("fault", "seed"),
    [("spine", 52_000_062), ("spine", 54_000_000), ("cable", 54_000_000), ("cable", 54_000_027)],
)
def test_what_fails_in_both_directions_is_one_group(fault: str, seed: int) -> None:
    """Of a spine that nobody answers from, each direction was a fault of its own, or a NIC was
    named that by chance had most of the paths."""
    case = draw(seed, shape=SMALL, known=0.0, fault=fault)
    found = located(case)
    assert graded(case, found) == Grade("vague", (), 0)
    assert [each.both_ways for each in found] == [True]


@pytest.mark.parametrize("seed", range(4))
def test_what_fails_in_one_direction_is_no_group_in_both(seed: int) -> None:
    case = draw(seed, shape=SMALL, known=0.0, fault="leaf-up")
    assert not any(each.both_ways for each in located(case))


@pytest.mark.parametrize("seed", [52_000_069, 52_000_167])
def test_a_lossy_switch_with_a_worse_part_is_among_what_is_told(seed: int) -> None:
    """Two links of it explain the same, to half a nat, once the rates of both are fitted."""
    case = draw(seed, known=1.0, fault="spine", also="part")
    found = located(case)
    assert not graded(case, found).wrong
    told = {name for each in found for name in (each.component, *each.alternatives)}
    assert case.truth in told


def test_a_dead_nic_beside_a_dead_cable_is_no_dead_leaf() -> None:
    """The leaf explains more than either, but paths of another NIC at it are well."""
    case = draw(54_000_097, also=None)
    found = located(case)
    assert graded(case, found) == Grade("twin", (), 0)


def test_a_cable_that_no_lossy_path_lists_is_not_one_of_several() -> None:
    """One path in each direction is dead of those of which nothing is known between two NICs."""

    def way(a: int, b: int, spine: int) -> list[str]:
        hops = [f"h{a}/r", f"leaf{a}", f"spine{spine}", f"leaf{b}", f"h{b}/r"]
        links = [f"{here}->{there}" for here, there in pairwise(hops)]
        return [name for pair in zip(hops, links, strict=False) for name in pair] + hops[-1:]

    known = [way(a, b, spine) for a, b in ((0, 1), (1, 0)) for spine in (0, *[1] * 6)]
    unknown = [
        [f"h{a}/r", f"h{a}/r..h{b}/r", f"h{b}/r"] for a, b in ((0, 1), (1, 0)) for _ in "abc"
    ]
    candidates = make_candidates(
        Listing.of([*known, *unknown]), parallel={"leaf0--spine0": 2, "leaf1--spine0": 2}
    )
    lost = np.array([0] * len(known) + [200, 0, 0] * 2)
    window = WindowCounts("now", np.full(len(lost), 200), lost)
    assert [each.one_of for each in locate(candidates, [window]) if each.one_of > 1] == []


def test_delays_of_two_leaves_are_not_those_of_one_and_of_their_sum() -> None:
    """Between three leaves any two delays add up to, or differ by, the third."""
    case = draw(52_000_032, known=1.0, also=None, delay=True)
    found = located(case, delays=True)
    assert not graded(case, found).wrong
    assert sum(each.paths for each in found) == 40


def test_a_finding_of_an_older_version_is_read() -> None:
    (found,) = located(draw(1, shape=SMALL, known=1.0, fault="leaf-up"))
    old = {k: v for k, v in msgspec.to_builtins(found).items() if k not in {"one_of", "both_ways"}}
    assert msgspec.convert(old, Finding, strict=False) == found
    assert found.kind == ComponentKind.LINK
