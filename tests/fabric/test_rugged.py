"""Faults that are not one even rate, on fabrics with switches that never answer: no wrong names."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fabric.foreign import Case, Grade, grade
from tests.fabric.rugged import draw

from syntony.fabric.candidates import Listing
from syntony.fabric.extra_probes import separating
from syntony.fabric.link_graph import LinkGraph
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.names import link_name
from syntony.fabric.numbering import make_candidates
from syntony.model.findings import Finding


def found_in(case: Case, *, delays: bool = False) -> tuple[Finding, ...]:
    candidates = make_candidates(
        Listing.of([path.listed for path in case.paths]), parallel=case.parallel()
    )
    change = case.change_ns if delays else np.full(len(case.paths), np.nan)
    window = WindowCounts("now", case.sent, case.lost, change, np.full(len(change), 100.0))
    return locate(candidates, [window])


def graded(case: Case, *, delays: bool = False) -> Grade:
    found = found_in(case, delays=delays)
    return grade(case, [(each.component, each.confidence, each.alternatives) for each in found])


@pytest.mark.parametrize("seed", [1074, 1032])
@pytest.mark.parametrize("delays", [False, True])
def test_ways_behind_a_silent_switch_are_no_known_ones(seed: int, delays: bool) -> None:
    """Known links elsewhere would explain the same, if packets went down and up again."""
    assert graded(draw(seed, faults=1, delay=delays), delays=delays).verdict == "vague"


@pytest.mark.parametrize("seed", [1038, 1_900_037])
def test_a_finding_bears_the_name_of_its_likeliest_suspect(seed: int) -> None:
    """A switch was listed at 0.00 beside two cables at 0.50 each, one of these once more."""
    found = found_in(draw(seed, faults=2) if seed == 1038 else draw(seed))
    assert len({each.component for each in found}) == len(found)
    for each in found:
        assert each.confidence > 0.05 * max(each.probabilities, default=0.0), each


def test_a_longer_window_is_compared_with_one_whose_finding_bears_another_name() -> None:
    case = draw(1_900_037)
    candidates = make_candidates(
        Listing.of([path.listed for path in case.paths]), parallel=case.parallel()
    )
    windows = [WindowCounts(name, case.sent, case.lost, overlaps=True) for name in ("3 s", "10 s")]
    assert locate(candidates, windows)


@pytest.mark.parametrize("seed", range(1000, 1003))
def test_no_fault_is_no_finding(seed: int) -> None:
    assert graded(draw(seed, faults=0)).verdict == "right"


def test_no_way_leads_down_and_up_again() -> None:
    """Of leaves 0 and 1 each at two switches, leaf 2 at one of a third: the only known way between
    tops would lead down through a leaf."""
    cables = ["leaf0--agg0", "leaf0--agg1", "leaf1--agg1", "leaf1--agg2"]
    hosts = [f"h{n}/r--leaf{n}" for n in range(2)]
    ways = LinkGraph([*cables, *hosts], lambda name: "/" in name)
    assert "leaf1" not in ways.between("leaf0", "agg2") | ways.between("agg1", "agg2")
    inside = ways.between("agg0", "agg2")
    assert "agg1" not in inside
    assert "agg1->leaf1" not in inside
    assert "agg1" in ways.between("leaf0", "leaf1")


def test_extra_probes_take_the_ways_that_packets_take() -> None:
    """The only known way from leaf 0 to leaf 2 would lead down through leaf 1 and up again."""
    cables = [("leaf0", "agg0"), ("leaf1", "agg0"), ("leaf1", "agg1"), ("leaf2", "agg1")]
    links = [name for a, b in cables for name in (link_name(a, b), link_name(b, a))]
    homes = {f"h{n}/r": f"leaf{n}" for n in range(3)}
    near = {("h0/r", "h1/r"), ("h1/r", "h0/r")}
    found = separating(("leaf0->agg0", "agg0->leaf0"), links, homes, planned=near, limit=4)
    assert {*found.pairs} == near


def test_two_comparisons_that_disagree_leave_a_name_unsure() -> None:
    """A switch between two faults was named at 0.9: pairs of its links were compared by paths that
    have not moved, and all together by those that have."""
    found = found_in(draw(21_500_038))
    assert {each.component for each in found} == {"agg20->leaf20", "agg20->core00"}
    assert max(each.confidence for each in found) < 0.5
