"""Loss on simulated fabrics whose faults are known: who is named, and that nobody else is."""

from __future__ import annotations

import numpy as np
import pytest
from bench.simulated.fabric import Clos, Counts, draw_flows, prices, probe, round_trips
from bench.tallies import merge, tally_losses
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony.fabric.loss import LossSearch

SMALL = Clos(leaves=8, spines=4, nics_per_leaf=8, rails=4)


def run(
    fabric: Clos, loss: dict[int, float], seed: int, *, stale: float = 0.0, probes: float = 40
) -> Counts:
    """One window; `loss` per candidate of any kind."""
    rng = np.random.default_rng(seed)
    risk = np.full(fabric.links, 1e-5)
    for candidate, share in loss.items():
        risk[fabric.members(candidate)] = share
    flows = draw_flows(fabric, rng, peers=8, ports=8)
    return probe(fabric, flows, risk, rng, probes_per_flow=probes, stale=stale)


def named(fabric: Clos, counts: Counts) -> dict[int, float]:
    tally = tally_losses(counts.crossings, counts.sent, counts.lost, fabric.candidates)
    return {found.candidate: found.loss for found in LossSearch(tally, prices(fabric)).findings}


@pytest.mark.parametrize("kind", list(SMALL.kinds))
@pytest.mark.parametrize("share", [0.02, 1.0])
def test_one_fault_of_each_kind_is_named_and_sized(kind: str, share: float) -> None:
    place = SMALL.kinds[kind]
    for seed in range(3):
        bad = place.first + seed % place.size
        found = named(SMALL, run(SMALL, {bad: share}, seed))
        assert set(found) == {bad}, f"{kind} seed {seed}: {found}"
        # A path crosses a device by one of its links or by two.
        assert 0.5 * share < found[bad] < 2.5 * share


@pytest.mark.parametrize("seed", range(10))
def test_five_faults_at_once(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    bad = rng.choice(SMALL.links, 5, replace=False)
    shares = np.exp(rng.uniform(np.log(0.005), np.log(0.05), 5))
    found = named(SMALL, run(SMALL, dict(zip(bad.tolist(), shares.tolist(), strict=True)), seed))
    assert set(found) == set(bad.tolist()), f"seed {seed}"


def test_a_quiet_fabric_yields_nothing() -> None:
    for seed in range(40):
        assert named(SMALL, run(SMALL, {}, seed)) == {}, f"seed {seed}"


@pytest.mark.parametrize("share", [0.05, 1.0])
def test_stale_paths_neither_hide_a_fault_nor_blame_another(share: float) -> None:
    spine = SMALL.kinds["spine"].first + 1
    for seed in range(5):
        found = named(SMALL, run(SMALL, {spine: share}, seed, stale=0.1))
        assert set(found) == {spine}, f"seed {seed}: {found}"


def test_one_lossy_path_convicts_nobody() -> None:
    counts = run(SMALL, {}, 5)
    lost = counts.lost.copy()
    lost[17] = counts.sent[17]
    assert named(SMALL, counts._replace(lost=lost)) == {}


def test_round_trips_cannot_tell_the_directions_of_a_nic() -> None:
    counts = round_trips(run(SMALL, {SMALL.kinds["nic-up"].first + 5: 0.05}, 3))
    tally = tally_losses(counts.crossings, counts.sent, counts.lost, SMALL.candidates)
    (found,) = LossSearch(tally, prices(SMALL)).findings
    same = {SMALL.kinds[kind].first + 5 for kind in ("nic-up", "nic-down", "nic")}
    assert {found.candidate, *found.alternatives} == same
    assert found.confidence == pytest.approx(1 / 3, rel=0.01)


def test_paths_counted_in_parts_are_the_same_as_at_once() -> None:
    counts = run(SMALL, {SMALL.kinds["leaf"].first: 0.03}, 2)
    half = len(counts.sent) // 2
    parts = [
        tally_losses(counts.crossings[s], counts.sent[s], counts.lost[s], SMALL.candidates)
        for s in (slice(0, half), slice(half, None))
    ]
    whole = tally_losses(counts.crossings, counts.sent, counts.lost, SMALL.candidates)
    penalty = prices(SMALL)
    assert LossSearch(merge(parts), penalty).findings == LossSearch(whole, penalty).findings


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_counts_are_digested(data: st.DataObject) -> None:
    paths = data.draw(st.integers(1, 12))
    width = data.draw(st.integers(1, 4))
    cells = st.lists(st.integers(-1, 5), min_size=width, max_size=width, unique=True)
    crossings = np.array([data.draw(cells) for _ in range(paths)], dtype=np.int32)
    sent = np.array(data.draw(st.lists(st.integers(0, 10**6), min_size=paths, max_size=paths)))
    share = np.array(data.draw(st.lists(st.floats(0, 1), min_size=paths, max_size=paths)))
    lost = np.floor(sent * share).astype(np.int64)
    tally = tally_losses(crossings, sent, lost, 6)
    for found in LossSearch(tally, np.full(6, np.log(6.0))).findings:
        assert 0 < found.loss <= 1
        assert 0 < found.confidence <= 1
        assert found.nats > 0
        assert found.lost <= lost.sum() * (1 + 1e-9)
