"""Links that other jobs fill, seen by probes (docs/decisions/0507): each with a neighbour in which
nothing is to be named."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle
from tests.workload.test_busy_jobs import SEED, UP, bursts, busy, utilised
from tests.workload.test_exceptions import MESH, NICS, WINDOWS
from tests.workload.test_rules import AFTER, US, mesh, of_flow

from syntony.workload import FaultClass, changed_links, diagnose
from syntony.workload.changed_links import changed_link, least_score, normal_scores, segments
from syntony.workload.facts import BundleFacts


@pytest.fixture(autouse=True)
def _seed() -> None:
    print(f"seed {SEED}")


def probed(made: Columns, more: float, *, kind: float = 104.0, every: int = 2) -> Columns:
    """As `made`, with probes along the paths of all flows, which wait for up to 3 µs; those across
    `up` for `more` µs longer from window 15 on. Flows are of class 104, probes of `kind`."""
    flows = made["flows"]
    flows["tc"] = np.full(len(flows["at_ns"]), 104.0)
    rng = np.random.default_rng(SEED)
    window = np.repeat(np.arange(0, WINDOWS, every), len(MESH))
    flow = np.tile(np.arange(len(MESH)), len(window) // len(MESH))
    delay = 4 + rng.uniform(0, 3, len(window))
    delay += np.isin(flow, UP) * (window >= AFTER) * rng.uniform(0.5, 1.5, len(window)) * more
    made["probes"] = {
        "at_ns": T0 + window * 100 * MS, "owd_p50_ns": delay * US,
        "src": [MESH[each][0] for each in flow], "dst": [MESH[each][1] for each in flow],
        "hops": [flows["hops"][each] for each in flow], "tc": np.full(len(window), kind),
    }  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("more", "kind", "named"),
    [
        (15.0, 104.0, True),
        (1.0, 104.0, False),  # a queue shorter than the path harms nobody
        (15.0, 8.0, False),  # another class has another queue
    ],
)
def test_a_full_link_harms_if_probes_across_it_wait(more: float, kind: float, named: bool) -> None:
    """The flows' own scatter hides what is added to their delays."""
    made = probed(busy(), more, kind=kind)
    utilised(made, "up", 0.95)
    facts = BundleFacts(bundle(made))
    assert [each.links for each in facts.full_links] == [("up",)] * named
    verdicts = [each for each in diagnose(bundle(made)).verdicts
                if each.fault is FaultClass.CONTENTION]  # fmt: skip
    assert [each.subjects for each in verdicts] == [("up",)] * named
    for verdict in verdicts:
        (probes,) = [each for each in verdict.evidence if each.signal == "probes"]
        assert (probes.value or 0) > 2 * (probes.baseline or 0)


@pytest.mark.parametrize(("kind", "named"), [(104.0, True), (8.0, False)])
def test_a_link_that_probes_wait_at_stands_out(kind: float, named: bool) -> None:
    """What waits at it are only probes, and the flows a little."""
    facts = BundleFacts(bundle(probed(bursts(1.4, UP, share=1.0), 40.0, kind=kind)))
    assert facts.flows is not None
    found = changed_link(facts.flows, facts.crossings)
    assert (found is not None and found.streams > 0) is named
    if named and found is not None:
        assert found.links == ("up",)
        assert found.flows == frozenset(UP)
        # By ranks two halves of equal size differ most: of its twelve windows with probes, each
        # second one, up to three that happen to be the lowest are left to the time before.
        assert 0 <= (found.begin_ns - T0) // (100 * MS) - AFTER <= 1 + 2 * 3


@pytest.mark.parametrize(("more", "named"), [(8.0, False), (6.0, False), (5.0, True)])
def test_a_link_stands_out_of_others_that_wait_less_than_half_as_long(
    more: float, named: bool
) -> None:
    """However certain theirs are: here nothing scatters. Seven times the path is added at the
    link."""
    made = mesh()
    flows = made["flows"]
    flows["hops"] = [(path[0], "up", path[1]) if place % len(MESH) in UP else path
                     for place, path in enumerate(flows["hops"])]  # fmt: skip
    into = [flow for flow, (_, dst) in enumerate(MESH) if dst == NICS[9]]
    for members, times in ((UP, 8.0), (into, more)):
        for flow in members:
            of_flow(flows["owd_p50_ns"], flow)[:] *= times
    facts = BundleFacts(bundle(made))
    assert facts.flows is not None
    found = changed_link(facts.flows, facts.crossings)
    assert (found.links if found else None) == (("up",) if named else None)


def test_less_is_enough_for_few_links_that_flows_wait_at(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = BundleFacts(bundle(bursts(8.0, UP)))
    assert facts.flows is not None
    found = changed_link(facts.flows, facts.crossings)
    assert found is not None
    all_links = len({*facts.crossings[0].across})
    between = NormalDist().cdf(-found.score)  # what one of some links exceeds by chance
    monkeypatch.setattr(changed_links, "CHANCE", between * np.sqrt(all_links))
    assert changed_link(facts.flows, facts.crossings) is None
    assert changed_link(facts.flows, facts.crossings, {"up"}) == found


@pytest.mark.parametrize(("last", "links"), [(8.0, "wide"), (1.0, "up")])
def test_of_a_link_and_a_wider_one_that_is_named_at_which_all_wait(last: float, links: str) -> None:
    """One more flow crosses the wider one."""
    made = mesh()
    flows = made["flows"]
    other = MESH.index((NICS[8], NICS[9]))
    flows["hops"] = [
        (path[0], *["up"] * (place % len(MESH) in UP), "wide", path[1])
        if place % len(MESH) in {*UP, other} else path
        for place, path in enumerate(flows["hops"])
    ]  # fmt: skip
    for flow in UP:
        of_flow(flows["owd_p50_ns"], flow)[:] *= 8
    of_flow(flows["owd_p50_ns"], other)[:] *= last
    facts = BundleFacts(bundle(made))
    assert facts.flows is not None
    found = changed_link(facts.flows, facts.crossings)
    assert found is not None
    assert found.links == (links,)


def test_a_higher_score_is_needed_of_more_links() -> None:
    found = [least_score(links) for links in (3, 10, 350)]
    assert np.allclose(found, (4.0, 4.26, 5.0), atol=0.02)


def test_a_few_long_delays_do_not_hide_a_change() -> None:
    """From 0 to 1 in all windows, but two of them are 30."""
    change = np.repeat([0.0, 1.0], 20)[None, :] + np.linspace(0, 0.1, 40)
    change[0, [25, 33]] = 30.0
    (plain, *_), (ranked, *_) = segments(change), segments(change, normal_scores(change))
    assert plain[0] < 5 < ranked[0]


def test_normal_scores_are_symmetric_and_keep_what_is_not_known() -> None:
    scores = normal_scores(np.array([[3.0, np.nan, 1.0, 2.0]]))
    assert np.isnan(scores[0, 1])
    assert scores[0, 3] == pytest.approx(0.0, abs=1e-9)
    assert scores[0, 0] == pytest.approx(-scores[0, 2])
