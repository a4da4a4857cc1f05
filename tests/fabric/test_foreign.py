"""Names of faults on fabrics drawn without Syntony's simulators: twins, and paths known in part."""

from __future__ import annotations

import itertools
from itertools import chain

import numpy as np
import pytest
from tests.cases import mostly_slow
from tests.fabric.foreign import Case, Shape, draw, grade

from syntony.fabric.candidates import Candidates, Listing
from syntony.fabric.link_graph import LinkGraph
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.names import cable_name, link_name
from syntony.fabric.numbering import make_candidates
from syntony.model.findings import Finding

SMALL = Shape(leaves=2, spines=2, hosts=2, rails=1, parallel=1)
SEEDS = mostly_slow((4, 12), {4})
"""How many cases are drawn."""
WIDE = Shape(leaves=4, spines=3, hosts=3, rails=1, parallel=1)


def candidates_of(case: Case) -> Candidates:
    return make_candidates(Listing.of([path.listed for path in case.paths]))


def located(case: Case, *, delays: bool = False) -> tuple[Finding, ...]:
    change_ns = case.change_ns if delays else np.full(len(case.paths), np.nan)
    sigma_ns = np.full(len(case.paths), 100.0)
    window = WindowCounts("now", case.sent, case.lost, change_ns, sigma_ns)
    return locate(candidates_of(case), [window])


def verdict(case: Case, findings: tuple[Finding, ...]) -> tuple[str, int]:
    reported = [(each.component, each.confidence, each.alternatives) for each in findings]
    got = grade(case, reported)
    return got.verdict, got.doubled


@pytest.mark.parametrize("shape", [SMALL, WIDE])
@pytest.mark.parametrize("known", [0.4, 0.7, 1.0])
@pytest.mark.parametrize("fault", ["leaf-up", "leaf-down", "spine", "cable"])
def test_partly_learnt_paths_mislead_nobody(shape: Shape, known: float, fault: str) -> None:
    for seed in range(3):
        case = draw(seed, shape=shape, known=known, fault=fault)
        got, doubled = verdict(case, located(case))
        assert got in {"right", "twin", "vague", "missed"}, f"seed {seed}: {case.truth}"
        assert not doubled, f"seed {seed}: {case.truth}"


def test_a_loss_where_nothing_is_known_is_that_of_a_group() -> None:
    got = [
        verdict(case, located(case))[0]
        for case in (draw(seed, shape=SMALL, known=0.0, fault="leaf-up") for seed in range(6))
    ]
    assert set(got) <= {"vague", "missed"}, got
    assert got.count("vague") >= 4, got


@pytest.mark.parametrize(
    ("shape", "known", "seed"),
    [
        *((SMALL, 0.0, seed) for seed in (18_011, 31_004, 31_213)),
        *((None, None, seed) for seed in (18_015,)),
    ],
)
@pytest.mark.parametrize("delay", [False, True])
def test_a_group_at_a_nic_hides_neither_its_link_nor_its_leaf(
    shape: Shape | None, known: float | None, seed: int, delay: bool
) -> None:
    """A leaf was named although clean paths cross it: they listed a group between two NICs."""
    fault = "spine" if shape else None
    case = draw(seed, shape=shape, known=known, fault=fault, delay=delay)
    got, _ = verdict(case, located(case, delays=delay))
    assert got in {"right", "vague", "missed"}, case.truth


@pytest.mark.parametrize("seed", [52_000_003, 31_035, 31_065, 31_036])
def test_a_group_between_nics_may_be_the_one_between_their_leaves(seed: int) -> None:
    """Half of the paths of a fault listed their leaves, half nothing: a NIC's link had both."""
    case = draw(seed, shape=SMALL, known=0.0, fault="leaf-up")
    assert verdict(case, located(case)) == ("vague", 0), case.truth


def test_a_group_at_a_nic_takes_in_those_behind_its_only_link() -> None:
    paths = [
        ["h0/r", "h0/r->leaf0", "leaf0", "leaf0..leaf1", "leaf1", "leaf1->h1/r", "h1/r"],
        ["h0/r", "h0/r->leaf0", "leaf0", "leaf0..leaf2", "leaf2", "leaf2->h2/r", "h2/r"],
        ["h0/r", "h0/r..h1/r", "h1/r"],
        ["h1/r", "h1/r..h0/r", "h0/r"],
    ]
    candidates = make_candidates(Listing.of(paths))
    partly = candidates.crossed.partly
    there, back = (
        {name for each in partly.members[partly.combo[path]] if each >= 0
         for name in (candidates.names[number] for number in (each, *candidates.same[each]))}
        for path in (2, 3)
    )  # fmt: skip
    assert {"leaf0..leaf1", "leaf0..*", "*..leaf1", "h0/r..h1/r"} <= there
    assert not {"leaf0..leaf2", "*..leaf2"} & there
    assert not any(name.startswith("leaf") and ".." in name for name in back)


def test_a_nic_has_one_link_unless_several_are_known() -> None:
    names = ["h0/r->leaf0", "leaf0->h0/r", "h1/r->leaf0", "h1/r->leaf1", "leaf0->spine0"]
    ways = LinkGraph(names, lambda name: "/" in name)
    assert ways.only_link("h0/r", away=True) == ("h0/r->leaf0", "h0/r--leaf0", "leaf0")
    assert ways.only_link("h0/r", away=False) == ("leaf0->h0/r", "h0/r--leaf0", "leaf0")
    for end in ("h1/r", "h2/r", "leaf0"):
        assert ways.only_link(end, away=True) == ()


PARALLEL = Shape(leaves=4, spines=3, hosts=3, rails=1, parallel=2)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("delay", [False, True])
def test_one_of_parallel_cables_is_not_named_by_one_of_its_directions(
    delay: bool, seeds: int
) -> None:
    for seed in range(seeds):
        case = draw(seed, shape=PARALLEL, known=1.0, fault="cable", delay=delay)
        got, _ = verdict(case, located(case, delays=delay))
        assert got in {"right", "twin", "missed"}, f"seed {seed}: {case.truth}"


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("delay", [False, True])
@pytest.mark.parametrize("fault", ["leaf-up", "leaf-down"])
def test_one_direction_of_parallel_cables_is_not_named_as_both(
    fault: str, delay: bool, seeds: int
) -> None:
    named = 0
    for seed in range(seeds):
        case = draw(seed, shape=PARALLEL, known=1.0, fault=fault, delay=delay)
        got, _ = verdict(case, located(case, delays=delay))
        assert got in {"right", "missed"}, f"seed {seed}: {case.truth}"
        named += got == "right"
    assert named


@pytest.mark.parametrize(("seed", "known"), [(33_052, 1.0), (32_332, 1.0), (32_332, None)])
def test_a_cable_whose_other_direction_shows_nothing_is_told_beside_its_link(
    seed: int, known: float | None
) -> None:
    """By chance no path took the other direction of the faulty one of two parallel cables."""
    case = draw(seed, known=known)
    (found,) = located(case)
    assert case.truth in found.alternatives
    assert found.confidence + sum(found.probabilities) <= 1 + 1e-9
    assert verdict(case, (found,)) == ("twin", 0)


@pytest.mark.parametrize("delay", [False, True])
def test_twins_share_what_is_known_of_them(delay: bool) -> None:
    """On 2 x 2, a spine and its two cables are crossed by exactly the same paths."""
    for seed in range(4):
        case = draw(seed, shape=SMALL, known=1.0, fault="cable", delay=delay)
        (found,) = located(case, delays=delay)
        twins = found.alternatives[: found.twins]
        assert case.truth in twins, f"seed {seed}"
        assert {found.component, *twins} == {
            case.truth.split("--")[1], *(f"leaf{n}r0--{case.truth.split('--')[1]}" for n in (0, 1))
        }, f"seed {seed}"  # fmt: skip
        assert found.confidence <= 0.6
        every = (found.confidence, *found.probabilities)
        assert 0.95 < sum(every[: 1 + found.twins]) <= 1 + 1e-9
        assert sum(every) <= 1 + 1e-9


def test_only_what_exactly_the_same_paths_cross_is_a_twin() -> None:
    """Held against sets of paths, written down without the module's numbers."""
    for seed in range(4):
        case = draw(seed, known=1.0, fault="")
        candidates = candidates_of(case)
        across = {
            name: frozenset(n for n, path in enumerate(case.paths) if name in path.true)
            for name in chain.from_iterable(path.true for path in case.paths)
        }
        for number, same in enumerate(candidates.same):
            name = candidates.names[number]
            for twin in same:
                other = candidates.names[twin]
                if name in across and other in across:
                    assert across[name] == across[other], f"seed {seed}: {name}, {other}"


def test_jitter_of_some_paths_is_no_delay_of_a_component() -> None:
    for seed in (*range(12), 32_055):
        case = draw(seed, fault="", jitter=0.1)
        assert located(case, delays=True) == (), f"seed {seed}"


def test_a_delay_is_found_among_paths_that_jitter() -> None:
    named = 0
    for seed in range(8):
        case = draw(seed, shape=WIDE, known=1.0, fault="spine", delay=True, jitter=0.1)
        got, doubled = verdict(case, located(case, delays=True))
        assert (got, doubled) == ("right", 0), f"seed {seed}"
        named += 1
    assert named == 8


@pytest.mark.parametrize("fault", ["leaf-up", "cable", "spine"])
@pytest.mark.parametrize("uneven", [0.1, 0.3])
def test_a_delay_that_paths_do_not_share_exactly_has_one_name(uneven: float, fault: str) -> None:
    """As of a queue, or beside busy hosts."""
    missed = []
    for seed in range(6):
        case = draw(seed, shape=SMALL, known=0.5, fault=fault, delay=True, uneven=uneven)
        got, doubled = verdict(case, located(case, delays=True))
        assert (got, doubled) in {("right", 0), ("twin", 0), ("missed", 0)}, f"seed {seed}"
        missed += [seed] if got == "missed" else []
    assert len(missed) <= 1, f"seeds {missed}"


def test_a_search_that_comes_back_to_where_it_was_ends() -> None:
    """Of this case the search added and dropped the same parts for ever."""
    case = draw(57_000_004, delay=True, uneven=0.3)
    assert verdict(case, located(case, delays=True)) == ("right", 0)


def test_one_fault_is_one_finding_however_many_probes_it_costs() -> None:
    """The background must give back what a new finding explains before another is looked for."""
    for seed in range(6):
        case = draw(seed, shape=WIDE, known=1.0, fault="spine")
        hit = np.array([case.truth in path.true for path in case.paths])
        sent = np.full(len(hit), 20_000)
        lost = np.random.default_rng(seed).binomial(sent, np.where(hit, 0.12, 1e-6))
        (found,) = located(case._replace(sent=sent, lost=lost))
        assert found.component == case.truth, f"seed {seed}"
        assert found.loss == pytest.approx(0.12, rel=0.01), f"seed {seed}"


@pytest.mark.parametrize(("seed", "known"), [(52_000_197, None), (52_000_132, 1.0)])
def test_no_path_moves_onto_a_dead_nic_that_it_does_not_end_at(
    seed: int, known: float | None
) -> None:
    """All paths across a dead spine were taken for stale ones of a dead NIC."""
    case = draw(seed, known=known, also=None)
    assert verdict(case, located(case))[0] in {"right", "twin"}, f"{case.truth} and {case.also}"


def test_the_background_hides_no_part_of_a_fault() -> None:
    """A spine that loses 11 % was told beside a cable of its own that loses 0.7 %."""
    (found,) = located(draw(18, known=1.0))
    assert (found.component, found.fault) == ("spine1", "loss")


def test_what_lies_between_two_devices() -> None:
    ways = LinkGraph(
        [
            "h0/r->leaf0", "leaf0->spine0", "spine0->leaf1", "leaf1->h1/r", "leaf0->spine1",
            "spine1->leaf2", "leaf0->h0/r",
        ],
        lambda name: "/" in name,
    )  # fmt: skip
    assert ways.between("leaf0", "leaf1") == {
        "spine0", "leaf0->spine0", "leaf0--spine0", "spine0->leaf1", "leaf1--spine0",
        # Half a way is known: the other half may be there.
        "spine1", "leaf0->spine1", "leaf0--spine1",
    }  # fmt: skip
    assert "leaf0" in ways.between("h0/r", "h1/r")
    assert ways.between("x", "y") == set()
    assert list(ways.shortest("leaf0", "leaf1")) == [("leaf0", "spine0", "leaf1")]
    assert list(ways.shortest("leaf0", "leaf0")) == [("leaf0",)]
    assert list(ways.shortest("leaf1", "leaf0")) == list(ways.shortest("x", "leaf0")) == []


def test_a_link_down_leads_only_to_what_lies_below() -> None:
    pods = [[f"core0->agg{n}", f"agg{n}->leaf{n}", f"leaf{n}->h{n}/r"] for n in range(3)]
    ways = LinkGraph([*itertools.chain(*pods), "leaf1->agg1"], lambda name: "/" in name)
    # In pod 3 only the leaf is known: its aggregation switches may be any.
    assert {"agg0", "agg1", "agg2"} <= ways.between("core0", "leaf3")
    # In pod 0, agg0 is known above the leaf, and nothing above two pods.
    assert ways.between("core0", "leaf0") == {"agg0"} | {
        name(a, b)
        for a, b in (("core0", "agg0"), ("agg0", "leaf0"))
        for name in (link_name, cable_name)
    }
    # A leaf leads to no other leaf.
    assert "leaf1" not in ways.between("agg1", "leaf2")


def test_between_two_leaves_of_three_tiers_lies_what_their_shortest_ways_cross() -> None:
    ways = LinkGraph(
        [
            "h0/r->leaf0", "leaf0->agg0", "agg0->core0", "core0->agg1", "agg1->leaf1",
            "leaf1->h1/r", "core0->agg2", "agg2->leaf2", "agg3->core0", "leaf0->agg4",
            "agg4->core1", "core1->agg5", "agg5->core2", "core2->agg6", "agg6->leaf1",
            "leaf0->h9/r", "h9/r->leaf1",
        ],
        lambda name: "/" in name,
    )  # fmt: skip
    shortest = ["leaf0", "agg0", "core0", "agg1", "leaf1"]
    # No way leads through a NIC that both are cabled to. The first and last links of longer ways
    # may belong to others that are not known.
    half = [("leaf0", "agg4"), ("agg6", "leaf1")]
    pairs = [*itertools.pairwise(shortest), *half]
    links = {name(a, b) for a, b in pairs for name in (link_name, cable_name)}
    assert ways.between("leaf0", "leaf1") == {"agg0", "core0", "agg1", "agg4", "agg6"} | links
