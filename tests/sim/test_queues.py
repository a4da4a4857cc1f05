import numpy as np
import pytest
from bench.simulated import queues, stamps

from syntony.model import S

SPAN_NS = 0.2 * S


def waits(trace: queues.QueueTrace, seed: int = 1) -> queues.Floats:
    at = np.random.default_rng(seed).uniform(0, trace.span_ns, 50_000)
    return trace.wait_ns(at)


@pytest.mark.parametrize("load", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("make", [queues.bursty, queues.heavy_tailed])
def test_a_link_is_busy_for_its_load(load: float, make: type) -> None:
    trace = make(load, np.random.default_rng(3), span_ns=SPAN_NS)
    busy = float(np.mean(waits(trace) > 0))
    assert busy == pytest.approx(load, abs=0.12)


def test_work_follows_the_recursion_one_arrival_at_a_time() -> None:
    trace = queues.bursty(0.7, np.random.default_rng(1), span_ns=2e6)
    left = trace.work_ns[:-1] - np.diff(trace.arrival_ns)
    burst = trace.work_ns[1:] - np.maximum(left, 0)
    frames = burst / (1_500 * 8 / 25)  # bytes at 25 Gb/s
    assert np.allclose(frames, np.rint(frames), atol=1e-6)
    assert frames.min() > 0.99


def test_waiting_grows_with_load_and_tails() -> None:
    means = [
        float(waits(queues.bursty(load, np.random.default_rng(2), span_ns=SPAN_NS)).mean())
        for load in (0.1, 0.4, 0.8, 0.95)
    ]
    assert means == sorted(means)
    heavy = waits(queues.heavy_tailed(0.4, np.random.default_rng(2), span_ns=SPAN_NS))
    light = waits(queues.bursty(0.4, np.random.default_rng(2), span_ns=SPAN_NS))
    assert np.percentile(heavy, 99.9) > 3 * np.percentile(light, 99.9)


def test_a_standing_queue_never_empties() -> None:
    trace = queues.standing(600e3, np.random.default_rng(1), span_ns=SPAN_NS)
    late = waits(trace)
    assert late.min() > 100e3
    assert late.max() <= 600e3


def test_hops_at_one_phase_move_together() -> None:
    trace = queues.bursty(0.5, np.random.default_rng(1), span_ns=SPAN_NS)
    at = np.random.default_rng(2).uniform(0, SPAN_NS, 5_000)
    together = queues.through([(trace, 0.0)] * 3, at, 0.0)
    apart = queues.through([(trace, 0.0), (trace, 5e6), (trace, 9e6)], at, 0.0)
    assert together.std() > 1.1 * apart.std()


AT_NS: stamps.Floats = np.arange(20_000, dtype=np.float64) * 12_345


@pytest.mark.parametrize("name", stamps.NOISES)
def test_noise_is_seeded(name: str) -> None:
    one, two = (stamps.NOISES[name](np.random.default_rng(5), AT_NS) for _ in range(2))
    assert one.tolist() == two.tolist()


@pytest.mark.parametrize("name", sorted(stamps.FOREIGN.keys() - {"rare_early"}))
def test_foreign_noise_has_an_edge_at_nothing_and_no_bell_around_it(name: str) -> None:
    """Nothing is early, and fewer lie in the lowest 20 ns than a bell of 20 ns would hold."""
    noise = stamps.NOISES[name](np.random.default_rng(3), AT_NS)
    assert noise.min() >= 0
    assert noise.min() < 30
    assert np.mean(noise < 20) < 0.45


def test_batches_keep_the_spacing_of_back_to_back_probes_though_both_wait() -> None:
    rng = np.random.default_rng(2)
    at = np.sort(rng.uniform(0, SPAN_NS, 2_000))
    noise = stamps.coalesced(rng, np.concatenate((at, at + stamps.COALESCE_NS)))
    change = np.abs(noise[2_000:] - noise[:2_000])
    assert np.median(change) < 200
    assert np.median(noise) > 4_000


def test_levels_follow_their_points() -> None:
    at = np.array([0.0, 0.1, 0.2, 0.3]) * S
    assert queues.constant(5e3).wait_ns(at).tolist() == [5e3] * 4
    assert queues.filling(2e3).wait_ns(at) == pytest.approx([0, 200, 400, 600])
    teeth = queues.sawtooth(1e3, 99e3, 0.1 * S)
    assert teeth.wait_ns(at + 0.049 * S) == pytest.approx([50e3] * 4)


def test_a_link_that_rests_is_empty() -> None:
    trace = queues.on_off(0.95, np.random.default_rng(1))
    at = np.random.default_rng(2).uniform(0, 10 * S, 20_000)
    assert trace.span_ns == 1 * S, "0.4 s of every second"
    resting = np.mod(at, trace.span_ns) > 0.41 * S
    assert trace.wait_ns(at)[resting].max() == 0
    assert np.mean(trace.wait_ns(at)[~resting] > 0) == pytest.approx(0.95, abs=0.05)
