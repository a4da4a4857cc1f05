"""Clock error and bound where queues grow slowly, routes differ, and oscillators jump or warm up.

    python -m bench.clock_growing [--seeds 0:20] [--only KIND …] [--jobs 2] [--json FILE]

Simulated fleets of six clocks on the product's code path (window fit in C, tracker, solve, bound),
as agents and controller run it: windows of 4 s, estimated every 2 s, solved every second and read
until the next solve. Physics of its own, not those of `bench.simulated`: clocks are integrals of
frequency, each host has a fluid queue at its uplink and its downlink, stamps have ticks. A
violation is two clocks whose fleet times differ by more than the sum of their bounds.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from syntony.clock.network import NetworkSolver
from syntony.clock.pair import PairEstimator
from syntony.clock.samples import PairSamples
from syntony.io.window_fit import fit_window
from syntony.model import ClockState, S

Floats = NDArray[np.float64]
HOSTS, PEERS, SECONDS, WINDOW = 6, 2, 40, 4
CLOCK_STEP = 0.01
QUEUE_STEP = 0.5e-3
EPOCH_NS = 1_760_000_000 * S
READS = (0.05, 0.4, 0.95)
"""After each solve, seconds."""
CLAIMS = (ClockState.SYNCHRONIZED, ClockState.HOLDOVER)
UP, DOWN = 0, 1


class World:
    """Clocks, ports and routes over true time, in seconds from 0."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng((seed, 4242))
        count = int((SECONDS + 2) / CLOCK_STEP)
        self.t = np.arange(count) * CLOCK_STEP
        walk = rng.normal(0, rng.uniform(0.3e-9, 3e-9) * math.sqrt(CLOCK_STEP), (HOSTS, count))
        self.frequency = rng.uniform(-20e-6, 20e-6, (HOSTS, 1)) + np.cumsum(walk, axis=1)
        self.ahead_ns = rng.uniform(-50e6, 50e6, HOSTS)
        self.at = np.arange(int((SECONDS + 2) / QUEUE_STEP)) * QUEUE_STEP
        self.queue = np.stack(
            [[self._bursts(rng.uniform(0.02, 0.15)) for _ in "ud"] for _ in range(HOSTS)]
        )
        base = rng.uniform(1_500, 7_000, (HOSTS, HOSTS))
        self.route_ns = (base + base.T) / 2
        self.later: list[tuple[float, int, int, float]] = []
        """From when on, from where, to where, how much longer."""
        self.kernel = bool(rng.random() < 0.4)
        self.tick_ns = int(rng.choice([1, 1, 8, 16]))
        self.rate = int(rng.choice([16, 32]))
        """Coded pairs of probes per second."""

    def _bursts(self, load: float, sources: int = 4) -> Floats:
        """A fluid queue fed by sources that are on and off for random times."""
        rng, count = self.rng, len(self.at)
        offered = np.zeros(count)
        for _ in range(sources):
            on = rng.exponential(rng.uniform(1, 30), count // 4 + 8)
            off = rng.exponential(float(on.mean()) * (1 / load - 1), len(on))
            ends = np.cumsum(np.ravel(np.column_stack((off, on)))).astype(int)
            edge = np.zeros(count + 1)
            ends = ends[ends < count]
            np.add.at(edge, ends, np.where(np.arange(len(ends)) % 2 == 0, 1.0, -1.0))
            offered += np.cumsum(edge)[:count] * rng.uniform(0.4, 0.9)
        work = np.cumsum((offered - 1) * QUEUE_STEP * 1e9)
        return np.minimum(work - np.minimum.accumulate(np.minimum(work, 0)), 300e3)

    def load(self, host: int, port: int, load: float) -> None:
        self.queue[host, port] += self._bursts(load)

    def grow(self, host: int, port: int) -> None:
        """A queue that grows for seconds by 10 to 10,000 ns/s, stands, and may drain."""
        rng = self.rng
        start, lasts = rng.uniform(7, 18), rng.uniform(2, 25)
        top_ns = 10 ** rng.uniform(1, 4) * lasts
        part = np.clip((self.at - start) / lasts, 0, 1)
        shape = rng.choice(["line", "bend", "settle", "steps"])
        if shape == "bend":
            part = part**2
        elif shape == "settle":
            part = (1 - np.exp(-3 * part)) / (1 - math.exp(-3))
        elif shape == "steps":
            part = np.round(part * 8) / 8
        if rng.random() < 0.4:
            empty = start + lasts + rng.uniform(2, 12)
            part *= np.clip((empty - self.at) / rng.uniform(0.05, 10), 0, 1)
        self.queue[host, port] += top_ns * part * np.maximum(1 + self._jitter(), 0)

    def _jitter(self) -> Floats:
        """Relative, with a memory of milliseconds."""
        rng = self.rng
        knots = np.arange(0, SECONDS + 3, rng.uniform(1e-3, 50e-3))
        noise = np.interp(self.at, knots, rng.normal(0, 1, len(knots)))
        return np.asarray(noise * rng.choice([0.005, 0.03, 0.15]))

    def jump(self, host: int, ppb: float) -> None:
        since = self.t >= self.rng.uniform(10, 38)
        self.frequency[host] += since * self.rng.choice([-1, 1]) * ppb * 1e-9

    def warm(self, host: int) -> None:
        rng = self.rng
        start, lasts = rng.uniform(6, 30), rng.uniform(1, 8)
        rate = rng.choice([-1, 1]) * 10 ** rng.uniform(0.5, 2) * 1e-9
        self.frequency[host] += rate * np.clip(self.t - start, 0, lasts)

    def seal(self) -> None:
        step_ns = CLOCK_STEP * 1e9
        self.phase_ns = np.cumsum(self.frequency, axis=1) * step_ns - self.frequency * step_ns
        self.phase_ns += self.ahead_ns[:, None]

    def read(self, host: int, at_ns: Floats, tick_ns: int = 1) -> NDArray[np.int64]:
        reading = np.rint(at_ns + np.interp(at_ns * 1e-9, self.t, self.phase_ns[host]))
        return np.asarray(EPOCH_NS + reading.astype(np.int64) // tick_ns * tick_ns)

    def delay(self, a: int, b: int, sent_ns: Floats) -> Floats:
        count = len(sent_ns)
        if self.kernel:
            noise = self.rng.gamma(3, 250, count)
            noise += (self.rng.random(count) < 0.02) * self.rng.exponential(8e3, count)
        else:
            noise = self.rng.normal(0, 6, count)
            noise += (self.rng.random(count) < 0.1) * self.rng.exponential(300, count)
        took = self.route_ns[a, b] + noise
        for since, x, y, longer_ns in self.later:
            if (x, y) == (a, b):
                took += np.where(sent_ns >= since * 1e9, longer_ns, 0.0)
        took += np.interp(sent_ns * 1e-9, self.at, self.queue[a, UP])
        took += np.interp((sent_ns + took) * 1e-9, self.at, self.queue[b, DOWN])
        return np.asarray(took)


def _some(world: World, most: int = HOSTS - 1) -> list[int]:
    count = int(world.rng.integers(1, most + 1))
    return [int(host) for host in world.rng.choice(HOSTS, count, replace=False)]


def quiet(_world: World) -> None: ...


def one_port(world: World) -> None:
    world.grow(int(world.rng.integers(HOSTS)), int(world.rng.choice([UP, DOWN])))


def downlinks(world: World) -> None:
    for host in _some(world):
        world.grow(host, DOWN)


def all_ports(world: World) -> None:
    for port in (UP, DOWN):
        for host in _some(world, 5):
            world.grow(host, port)


def on_off(world: World) -> None:
    for host in _some(world):
        for port in (UP, DOWN):
            world.load(host, port, world.rng.uniform(0.04, 0.22))


def routes(world: World) -> None:
    rng = world.rng
    world.route_ns += rng.uniform(0, 60, (HOSTS, HOSTS))
    for _ in range(int(rng.integers(1, 6))):
        a = int(rng.integers(HOSTS))
        b = (a + int(rng.integers(1, PEERS + 1))) % HOSTS
        a, b = (a, b) if rng.random() < 0.5 else (b, a)
        world.later.append((rng.uniform(8, 30), a, b, rng.uniform(-800, 3_000)))


def warming(world: World) -> None:
    for host in _some(world):
        world.warm(host)


def jumps(world: World) -> None:
    for host in _some(world, 3):
        world.jump(host, 100.0)


def settles(world: World) -> None:
    """Crystals that approach another temperature, first by up to 0.1 ppm/s."""
    rng = world.rng
    for host in _some(world):
        lag = 10 ** rng.uniform(math.log10(5), math.log10(300))
        rate = rng.choice([-1, 1]) * 10 ** rng.uniform(0.7, 2) * 1e-9
        gone = np.maximum(world.t - rng.uniform(8, SECONDS - 4), 0)
        world.frequency[host] += rate * lag * (1 - np.exp(-gone / lag))


def fans(world: World) -> None:
    """Fans that switch at random instants: two temperatures, followed with a lag."""
    rng = world.rng
    for host in _some(world):
        lag = 10 ** rng.uniform(math.log10(5), math.log10(60))
        top = 10 ** rng.uniform(0.7, 2) * 1e-9 * lag
        target, at, on = np.zeros(len(world.t)), rng.uniform(6, 16), 1.0
        while at < SECONDS:
            target[world.t >= at] = on * top
            on = 1.0 - on
            at += rng.uniform(3, 20)
        followed = np.zeros(len(target))
        for tick in range(1, len(followed)):
            off = target[tick - 1] - followed[tick - 1]
            followed[tick] = followed[tick - 1] + CLOCK_STEP / lag * off
        world.frequency[host] += rng.choice([-1, 1]) * followed


def leaps(world: World) -> None:
    for host in _some(world, 4):
        world.jump(host, 10 ** world.rng.uniform(1, 2.2))


def mixed(world: World) -> None:
    for draw in (downlinks, on_off, warming):
        draw(world)


KINDS: dict[str, Callable[[World], None]] = {
    draw.__name__: draw
    for draw in (
        quiet,
        one_port,
        downlinks,
        all_ports,
        on_off,
        routes,
        warming,
        jumps,
        settles,
        fans,
        leaps,
        mixed,
    )
}


class Fleet(NamedTuple):
    """How one fleet fared."""

    kind: str
    seed: int
    kernel: bool
    instants: int
    violated: int
    """Instants at which two clocks contradicted each other's bounds."""
    worst: float
    """Largest difference of two clocks over the sum of their bounds."""
    error_p50_ns: float
    error_p95_ns: float
    """Of a clock against the median of all."""
    bound_p50_ns: float
    worst_at: tuple[float, int, int]


def run(task: tuple[str, int]) -> Fleet:
    """One fleet from a cold start."""
    kind, seed = task
    world = World(seed)
    KINDS[kind](world)
    world.seal()
    ends = sorted((a, (a + step) % HOSTS) for a in range(HOSTS) for step in range(1, PEERS + 1))
    pairs = {end: PairEstimator(f"n{end[0]}", f"n{end[1]}", fit_window) for end in ends}
    seen: dict[tuple[int, int], list[tuple[NDArray[np.int64], ...]]] = {end: [] for end in ends}
    solver = NetworkSolver()
    errors, bounds, ratios, places = [], [], [], []
    for second in range(SECONDS):
        edges = []
        for (a, b), window in seen.items():
            window.append(_probes(world, a, b, second))
            del window[:-WINDOW]
            if (second + a) % 2 == 0:
                edge = pairs[a, b].estimate(_samples(window))
                edges += [edge] if edge is not None else []
        now_ns = (second + 1) * S
        solver.update(edges, now_ns)
        lines = {int(line.node[1:]): line for line in solver.solve(now_ns) if line.state in CLAIMS}
        for later in READS:
            at_ns = np.array([now_ns + later * 1e9])
            readings = [(line, int(world.read(host, at_ns)[0])) for host, line in lines.items()]
            if len(readings) < 2:
                continue
            error = np.array(
                [line.to_fleet_ns(local) - EPOCH_NS - at_ns[0] for line, local in readings]
            )
            bound = np.array([line.bound_ns(local) for line, local in readings])
            ratio = np.abs(error[:, None] - error) / (bound[:, None] + bound)
            hosts = list(lines)
            i, j = np.unravel_index(ratio.argmax(), ratio.shape)
            ratios.append(float(ratio.max()))
            places.append((second + 1 + later, hosts[i], hosts[j]))
            errors.append(np.abs(error - np.median(error)))
            bounds.append(bound)
    error, bound = np.concatenate(errors), np.concatenate(bounds)
    worst = int(np.argmax(ratios))
    return Fleet(
        kind,
        seed,
        world.kernel,
        len(ratios),
        sum(ratio > 1 for ratio in ratios),
        ratios[worst],
        float(np.median(error)),
        float(np.percentile(error, 95)),
        float(np.median(bound)),
        places[worst],
    )


def _probes(world: World, a: int, b: int, second: int) -> tuple[NDArray[np.int64], ...]:
    sent = second * 1e9 + np.sort(world.rng.uniform(0, 0.98e9, world.rate))
    number = np.tile(np.arange(world.rate) + second * world.rate, 2)
    sent = np.concatenate((sent, sent + 8_000))
    arrived = sent + world.delay(a, b, sent)
    answered = arrived + 15_000
    returned = answered + world.delay(b, a, answered)
    stamps = ((a, sent), (b, arrived), (b, answered), (a, returned))
    tick_ns = 1 if world.kernel else world.tick_ns
    return (*(world.read(host, at, tick_ns) for host, at in stamps), number)


def _samples(window: list[tuple[NDArray[np.int64], ...]]) -> PairSamples:
    fwd_tx, fwd_rx, rev_tx, rev_rx, number = (
        np.concatenate(part) for part in zip(*window, strict=True)
    )
    return PairSamples(fwd_tx, fwd_rx, rev_tx, rev_rx, number, number)


def main() -> int:
    """Print a line per kind; status 1 where a bound broke."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", default="0:20", help="first and last + 1")
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="one line per fleet")
    args = parser.parse_args()
    seeds = range(*map(int, args.seeds.split(":")))
    print(f"seeds {args.seeds}; medians over fleets, ns")
    print(
        f"{'kind':12}{'violated':>10}{'instants':>10}{'worst':>7}{'p50':>7}{'p95':>8}{'bound':>8}"
    )
    fleets: list[Fleet] = []
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for kind in args.only:
            some = list(pool.map(run, [(kind, seed) for seed in seeds]))
            show(kind, some)
            fleets += some
    if args.json:
        args.json.write_text("".join(json.dumps(each._asdict()) + "\n" for each in fleets))
    return int(any(each.violated for each in fleets))


def show(kind: str, fleets: list[Fleet]) -> None:
    """One line of the table."""
    broken = [each for each in fleets if each.violated]
    p50_ns, p95_ns, bound_ns = (
        float(np.median([each[Fleet._fields.index(name)] for each in fleets]))
        for name in ("error_p50_ns", "error_p95_ns", "bound_p50_ns")
    )
    print(
        f"{kind:12}{f'{len(broken)}/{len(fleets)}':>10}"
        f"{sum(each.violated for each in fleets):>10}{max(each.worst for each in fleets):>7.2f}"
        f"{p50_ns:>7.1f}{p95_ns:>8.1f}{bound_ns:>8.1f}  "
        f"{[(each.seed, round(each.worst, 2)) for each in broken] or ''}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
