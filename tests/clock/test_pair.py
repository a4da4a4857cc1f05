import numpy as np
import pytest
from bench.simulated.clocks import EPOCH_NS, Queueing, SimulatedClocks

from syntony.clock.pair import PairEstimator, PairSamples
from syntony.clock.samples import MIN_PROBES
from syntony.model import Edge, S

AT_NS = EPOCH_NS + 10 * S
SEEDS = range(8)


def truth_ns(clocks: SimulatedClocks, edge: Edge) -> float:
    """Clock 1 minus clock 0 at the edge's reference instant."""
    true_ns = edge.ref_ns - clocks.offset_ns[0]
    for _ in range(3):
        drift_ns = clocks.drift_ppb[0] * 1e-9 * (true_ns - EPOCH_NS)
        true_ns = edge.ref_ns - clocks.offset_ns[0] - drift_ns
    drift = (clocks.drift_ppb[1] - clocks.drift_ppb[0]) * 1e-9
    return float(clocks.offset_ns[1] - clocks.offset_ns[0] + drift * (true_ns - EPOCH_NS))


def estimate(samples: PairSamples) -> Edge:
    edge = PairEstimator("a", "b").estimate(samples)
    assert edge is not None
    return edge


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "queueing",
    [Queueing(busy=0.0), Queueing(busy=0.5), Queueing(busy=0.8, wait_ns=20_000)],
    ids=["idle", "half", "busy"],
)
def test_offset_and_drift_are_right(seed: int, queueing: Queueing) -> None:
    clocks = SimulatedClocks(2, seed=seed)
    edge = estimate(clocks.probe(0, 1, at_ns=AT_NS, there=queueing, back=queueing))
    error_ns = edge.theta_ns - truth_ns(clocks, edge)
    assert abs(error_ns) < 150
    assert abs(error_ns) < 5 * edge.sigma_ns
    relative_ppb = clocks.drift_ppb[1] - clocks.drift_ppb[0]
    assert edge.drift_ppb == pytest.approx(relative_ppb, abs=100)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_queue_that_never_empties_moves_nothing_once_the_floor_is_known(seed: int) -> None:
    clocks = SimulatedClocks(2, seed=seed)
    estimator = PairEstimator("a", "b")
    assert estimator.estimate(clocks.probe(0, 1, at_ns=AT_NS)) is not None
    stuck = Queueing(floor_ns=60_000.0)
    edge = estimator.estimate(clocks.probe(0, 1, at_ns=AT_NS + 4 * S, there=stuck))
    assert edge is not None
    assert edge.mode == "reverse"
    error_ns = edge.theta_ns - truth_ns(clocks, edge)
    assert abs(error_ns) < min(5 * edge.sigma_ns, 200)  # one window alone is off by 25 µs


@pytest.mark.parametrize("missing", ["fwd", "rev"])
def test_one_direction_alone_gives_no_edge(missing: str) -> None:
    samples = SimulatedClocks(2, seed=1).probe(0, 1, at_ns=AT_NS)
    none = np.zeros(0, dtype=np.int64)
    emptied = samples._replace(**{f"{missing}_tx": none, f"{missing}_rx": none})
    assert PairEstimator("a", "b").estimate(emptied) is None


def test_too_few_probes_give_no_edge() -> None:
    clocks = SimulatedClocks(2, seed=1)
    assert PairEstimator("a", "b").estimate(clocks.probe(0, 1, at_ns=AT_NS, probes=3)) is None
    assert MIN_PROBES == 4


def test_probes_all_at_one_instant_give_no_edge() -> None:
    stamps = np.full(16, AT_NS, dtype=np.int64)
    samples = PairSamples(stamps, stamps + 5_000, stamps + 6_000, stamps + 11_000)
    assert PairEstimator("a", "b").estimate(samples._replace(fwd_tx=stamps)) is None


def test_a_step_inside_the_window_gives_no_edge() -> None:
    samples = SimulatedClocks(2, seed=1).probe(0, 1, at_ns=AT_NS)
    half = len(samples.fwd_rx) // 2
    stepped = samples.fwd_rx.copy(), samples.rev_tx.copy()
    for stamps in stepped:
        stamps[half:] += 10_000_000
    samples = samples._replace(fwd_rx=stepped[0], rev_tx=stepped[1])
    assert PairEstimator("a", "b").estimate(samples) is None


def test_the_edge_does_not_depend_on_the_order_of_probes() -> None:
    samples = SimulatedClocks(2, seed=3).probe(0, 1, at_ns=AT_NS)
    order = np.random.default_rng(1).permutation(len(samples.fwd_tx))
    shuffled = PairSamples(*(stamps[order] for stamps in samples if stamps is not None))
    there, here = estimate(shuffled), estimate(samples)
    assert there.theta_ns + there.drift_ppb * 1e-9 * (here.ref_ns - there.ref_ns) == pytest.approx(
        here.theta_ns, abs=0.1
    )
