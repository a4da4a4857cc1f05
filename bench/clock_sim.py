"""Error of pair estimators by load and kind of stamps, on simulated 25G queues with known truth.

    python -m bench.clock_sim [--windows 20]

Columns: this project's window estimator alone; its tracker, started at load 0.1 and then kept under
the load; the hard envelope; and the published way (Huygens, NSDI'18): a linear support vector
machine between the two clouds, over all probes and over coded pairs only, with the constant C that
is best at that very load, which nobody can know beforehand.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from bench.simulated import queues, stamps
from numpy.typing import NDArray

from syntony.clock.envelope import hard_envelope
from syntony.clock.samples import Clouds, PairSamples
from syntony.clock.tracker import PairTracker
from syntony.io.window_fit import fit_window
from syntony.model import S

Floats = NDArray[np.float64]

EPOCH_NS = 1_750_000_000 * S
WINDOW_NS = 2 * S
RATE_PER_S = 1_000
GAP_NS = 10_000
DRIFT = 10e-6
FLOOR_NS = 5_000.0
LOADS = (0.1, 0.4, 0.8, 0.9, 0.95)
CONSTANTS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1e3)
GATE_NS = {"hardware": 30, "kernel": 1_000}
NEWTON_STEPS = 60


def window(load: float, number: int, noise: stamps.StampNoise, seed: int) -> PairSamples:
    """Coded probes over four hops, two at the load and two at a third of it; fresh queues."""
    rng = np.random.default_rng((seed, number, round(load * 100)))
    tx, rx, pairs = [], [], []
    for _ in range(2):
        hops = [(queues.bursty(part, rng), 0.0) for part in (load / 3, load, load, load / 3)]
        count = RATE_PER_S * 2 // 2
        sent = np.sort(rng.uniform(0, WINDOW_NS - 1e5, count))
        sent = np.concatenate((sent, sent + GAP_NS))
        delay = queues.through(hops, sent, FLOOR_NS)
        delay += noise(rng, sent + delay)
        tx.append(sent + number * WINDOW_NS)
        rx.append(sent + number * WINDOW_NS + delay)
        pairs.append(np.tile(np.arange(count), 2))
    return PairSamples(
        fwd_tx=_stamps(tx[0]),
        fwd_rx=_stamps(rx[0] * (1 + DRIFT)),
        rev_tx=_stamps(tx[1] * (1 + DRIFT)),
        rev_rx=_stamps(rx[1]),
        fwd_pair=pairs[0],
        rev_pair=pairs[1],
    )


def _stamps(at: Floats) -> NDArray[np.int64]:
    return EPOCH_NS + np.rint(at).astype(np.int64)


def error_ns(ref_ns: int, base_ns: int, theta_ns: float) -> float:
    """Of an offset told at an instant of clock a."""
    return base_ns - DRIFT * (ref_ns - EPOCH_NS) + theta_ns


def svm_error_ns(clouds: Clouds, constant: float, keep: NDArray[np.bool_]) -> float | None:
    """Squared-hinge linear SVM (as LinearSVC), by Newton; None if a side has under 10 probes."""
    clouds = clouds.only(keep)
    if min(clouds.forward, len(clouds.t) - clouds.forward) < 10:
        return None
    forward, reverse = clouds.y[: clouds.forward], clouds.y[clouds.forward :]
    centre = (np.median(forward) + np.median(reverse)) / 2
    scale = max((np.percentile(forward, 1) - np.percentile(reverse, 99)) / 2, 100.0)
    points = np.column_stack(
        (clouds.t / clouds.span_ns, (clouds.y - centre) / scale, np.ones(len(clouds.t)))
    )
    w = _svm(points, clouds.side, constant)
    if w[1] <= 0:
        return None
    return error_ns(clouds.ref_ns, clouds.base_ns, float(centre - scale * w[2] / w[1]))


def _svm(points: Floats, label: Floats, constant: float) -> Floats:
    w = np.array([0.0, 1.0, 0.0])
    ridge = np.diag([1.0, 1.0, 1e-6])

    def cost(at: Floats) -> float:
        hinge = np.maximum(0.0, 1 - label * (points @ at))
        return float(at @ ridge @ at / 2 + constant * (hinge @ hinge))

    for _ in range(NEWTON_STEPS):
        margin = 1 - label * (points @ w)
        active = margin > 0
        inside = points[active]
        slope = ridge @ w - 2 * constant * inside.T @ (label[active] * margin[active])
        step = np.linalg.solve(ridge + 2 * constant * inside.T @ inside, slope)
        size, now = 1.0, cost(w)
        while cost(w - size * step) > now and size > 1e-6:
            size /= 2
        w = w - size * step
        if float(np.abs(size * step).max()) < 1e-9:
            break
    return w


class Row(NamedTuple):
    errors: dict[str, list[float]]
    seconds: list[float]
    z: list[float]


def measure(load: float, noise: stamps.StampNoise, windows: int, seed: int) -> Row:
    row = Row({}, [], [])
    tracker = PairTracker(fit_window)
    for number in range(windows + 2):
        samples = window(0.1 if number < 2 else load, number, noise, seed)
        clouds = Clouds.of(samples)
        start = time.perf_counter()
        tracked = tracker.step(Clouds.of(samples))
        row.seconds.append(time.perf_counter() - start)
        if number < 2:
            continue
        end_ns = clouds.ref_ns + WINDOW_NS // 2
        if tracked is not None:
            at_end = tracked.theta_ns + tracked.drift * (end_ns - tracked.ref_ns)
            error = error_ns(end_ns, tracked.base_ns, at_end)
            _put(row, "tracker, at end", error)
            ahead = tracked.drift_var * (end_ns - tracked.ref_ns) ** 2
            row.z.append(abs(error) / (tracked.theta_var + ahead) ** 0.5)
        fit, hard = fit_window(clouds), hard_envelope(clouds)
        _put(row, "window", error_ns(clouds.ref_ns, clouds.base_ns, fit.line.theta_ns))
        _put(row, "hard", error_ns(clouds.ref_ns, clouds.base_ns, hard.theta_ns))
        pure = _pure(samples, GATE_NS[noise.__name__])
        for constant in CONSTANTS:
            for name, keep in (("SVM all", np.ones_like(pure)), ("SVM coded", pure)):
                found = svm_error_ns(clouds, constant, keep)
                if found is not None:
                    _put(row, f"{name} {constant:g}", found)
    return row


def _put(row: Row, name: str, error: float) -> None:
    row.errors.setdefault(name, []).append(abs(error))


def _pure(samples: PairSamples, gate_ns: int) -> NDArray[np.bool_]:
    """Coded-pair gate: the second probe of a pair is `half` places after the first."""
    kept = []
    for tx, rx in ((samples.fwd_tx, samples.fwd_rx), (samples.rev_tx, samples.rev_rx)):
        half = len(tx) // 2
        change = np.abs((rx[half:] - rx[:half]) - (tx[half:] - tx[:half]))
        kept.append(np.tile(change <= gate_ns, 2))
    return np.concatenate(kept)


def best(errors: dict[str, list[float]], name: str, windows: int) -> str:
    """p95 with the constant that is best here; starved if it failed in half of the windows."""
    tails = [
        (float(np.percentile(found, 95)), key.rsplit(" ", 1)[1])
        for key, found in errors.items()
        if key.startswith(name) and len(found) > windows / 2
    ]
    if not tails:
        return "starved"
    tail, constant = min(tails)
    return f"{tail:.1f} (C {constant})"


def p95(found: Sequence[float]) -> str:
    return f"{np.percentile(found, 95):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"p95 |error| in ns over {args.windows} windows of 2 s, 1000 probes/s a direction; seed")
    print(f"{args.seed}; |z| is the tracker's error over its claimed sigma")
    print(
        f"{'stamps':9} {'load':>5} {'window':>8} {'tracker':>8} {'|z| p95':>8} {'hard':>8} "
        f"{'SVM all, best C':>20} {'SVM coded, best C':>20} {'ms':>5}"
    )
    for noise in (stamps.hardware, stamps.kernel):
        for load in LOADS:
            row = measure(load, noise, args.windows, args.seed)
            print(
                f"{noise.__name__:9} {load:>5} {p95(row.errors['window']):>8} "
                f"{p95(row.errors['tracker, at end']):>8} {p95(row.z):>8} "
                f"{p95(row.errors['hard']):>8} {best(row.errors, 'SVM all', args.windows):>20} "
                f"{best(row.errors, 'SVM coded', args.windows):>20} "
                f"{1e3 * float(np.median(row.seconds)):>5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
