"""Meshes of edges for `test_recorded`: offset and sigma of each clock, and what is left out.

Drawn by `edge_worlds`, plus a fleet that is solved again and again while its clocks wander.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
from bench.simulated.clocks import ClockKind
from bench.simulated.fleet import QUIET, SimulatedFleet, Way
from tests.clock.edge_worlds import REF_NS, TOPOLOGIES, Judged, World

from syntony.clock.anchored import AnchoredSolver
from syntony.clock.anchors import Anchor
from syntony.clock.laplacian import Laplacian
from syntony.clock.network import EdgeVerdict, NetworkSolver
from syntony.io.window_fit import fit_window
from syntony.model import MS, ClockState, Edge, S, Timeline, UtcReading


def judged(world: World) -> Iterator[str]:
    solver = NetworkSolver()
    solver.update(world.edges, now_ns=0)
    lines = {line.node: line for line in solver.solve(now_ns=0)}
    found = Judged.of(world, [lines[f"n{node}"] for node in range(world.count)])
    for error_ns, off_ppb, line in zip(
        found.error_ns, found.drift_error_ppb, found.lines, strict=True
    ):
        said = line.reason or line.state
        yield (
            f"{line.node} off={error_ns:.5g} turn={off_ppb:.5g} sigma={line.sigma_ns:.5g}"
            f" rate={line.drift_sigma_ppb:.5g} half={line.asymmetry_ns:.5g} {said}"
        )
    yield from verdicts(solver.verdicts)


def verdicts(found: Sequence[EdgeVerdict]) -> Iterator[str]:
    for each in found:
        if each.reason:
            edge = each.edge
            yield f"{edge.a} to {edge.b} off={each.residual_ns:.5g} {each.reason}"


def clean() -> Iterator[str]:
    """Every topology, told by one end or by both, over one port or two."""
    for seed, topology in enumerate(TOPOLOGIES):
        yield from judged(World(seed, 9, topology, ports=1 + seed % 2, both_ends=seed % 3 == 0))
    yield from judged(World(8, 2, "everyone", both_ends=False))


def liars() -> Iterator[str]:
    """One whose edges say something else each, two of them, and one of which all say the same."""
    for seed, lying in ((1, (2,)), (2, (1, 5))):
        world = World(seed, 10, "everyone", both_ends=seed == 1)
        for node in lying:
            world.spoil(world.from_one(node, world.rng.uniform(-40e3, 60e3, 10)))
            world.spoil(world.from_one(node, world.rng.uniform(-40e3, 60e3, 10)).T)
        yield from judged(world)


def wrong_edges() -> Iterator[str]:
    """Single edges that are off by little, by much, and at ends that few others hold."""
    for seed, topology in enumerate(("everyone", "ring", "random_regular", "star", "clustered")):
        world = World(seed, 12, topology, sigmas_ns=(5.0, 30.0))
        off_ns = np.zeros((12, 12))
        for by_ns in (60.0, 250.0, 900.0, 30e3):
            off_ns[tuple(world.rng.integers(0, 12, 2))] = by_ns
        world.spoil(off_ns)
        world.slew(4, 3e3, {1, 2, 3})
        world.slew(8, 65.0, {0, 1})
        world.slew(9, -130.0, {0, 1})
        yield from judged(world)


def doubts() -> Iterator[str]:
    """Queues that may stand: behind one clock, at a rack, everywhere; claimed as sigma, or not."""
    for seed, topology in enumerate(("everyone", "clustered", "ring", "star")):
        world = World(seed, 12, topology)
        world.spoil(world.from_one(2, world.rng.uniform(0, 400e3, 12)), doubt_ns=100e3)
        yield from judged(world)
        world = World(seed, 12, topology)
        late_ns = (np.arange(12) < 4) * 60e3
        world.spoil(late_ns[None, :] - late_ns[:, None], doubt_ns=40e3)
        world.spoil(world.from_one(7, world.rng.uniform(-2e6, 2e6, 12)), sigma_ns=5e6)
        yield from judged(world)
    world = World(9, 7)
    world.spoil(np.full((7, 7), 0.1), doubt_ns=2_500.0)
    yield from judged(world)


def contradictions() -> Iterator[str]:
    """Unequal paths everywhere; a clock that half of its peers contradict."""
    for count in (3, 4, 5, 8):
        world = World(count, count, "everyone", sigmas_ns=(5.0, 5.01))
        world.spoil(world.rng.uniform(-200, 200, (count, count)))
        yield from judged(world)
    for seed in (1, 2):
        world = World(seed, 9, "ring" if seed == 1 else "everyone", sigmas_ns=(5.0, 10.0))
        world.spoil(world.from_one(3, np.where(np.arange(9) % 2, 20e3, 0.0)), doubt_ns=300.0 * seed)
        yield from judged(world)


def large() -> Iterator[str]:
    """Where systems are solved by iteration and variances are sampled."""
    for seed, topology in enumerate(("random_regular", "clustered")):
        world = World(seed, 432, topology, both_ends=seed == 0)
        world.spoil(world.from_one(7, world.rng.uniform(-90e3, 90e3, 432)))
        world.spoil(world.from_one(200, world.rng.uniform(0, 400e3, 432)), doubt_ns=100e3)
        said = list(judged(world))
        yield from said[:12]
        yield from said[198:202]
        yield f"left out={len(said) - 432}"


def wandered() -> Iterator[str]:
    """Solved from where clocks were a second before, some of which have moved since."""
    for seed in (1, 2):
        world = World(seed, 90, sigmas_ns=(10.0, 40.0))
        wrong_ns = np.zeros((90, 90))
        wrong_ns[world.rng.integers(0, 90, 9), :] = world.rng.uniform(-900, 900, (9, 90))
        world.spoil(wrong_ns)
        solver = NetworkSolver()
        for now, moved_ns in enumerate((0.0, 30.0, 150.0, 4_000.0)):
            late_ns = np.where(np.arange(90) % 30 == 7, moved_ns, 0.0)
            world.spoil(late_ns[None, :] - late_ns[:, None])
            world.offset_ns += late_ns
            solver.update(world.edges, now * S)
            lines = {line.node: line for line in solver.solve(now * S)}
            found = Judged.of(world, [lines[f"n{node}"] for node in range(90)])
            said = [f"{found.error_ns[node]:.5g}" for node in (0, 1, 2, 3, 7, 37, 67)]
            yield f"mean={np.abs(found.error_ns).mean():.5g} {' '.join(said)}"
            out = sum(bool(verdict.reason) for verdict in solver.verdicts)
            yield f"sigma={found.sigma_ns.mean():.5g} out={out}"


def spans() -> Iterator[str]:
    """Variances of nodes and of differences, near and far, of an uneven mesh."""
    for count in (30, 450):
        rng = np.random.default_rng(count)
        plus = np.concatenate((np.arange(count), rng.integers(0, count, 2 * count)))
        minus = np.concatenate(((np.arange(count) + 1) % count, rng.integers(0, count, 2 * count)))
        minus = np.where(plus == minus, (minus + 3) % count, minus)
        weights = rng.uniform(0.0, 2.0, len(plus)) ** 4
        mesh = Laplacian(plus, minus, count)
        x = mesh.solve(weights, rng.normal(0, 1, len(plus)), tolerance=1e-6)
        for values in (mesh.sigmas(weights), mesh.spans(weights), mesh.share, x):
            yield f"mean={values.mean():.5g} {' '.join(f'{each:.5g}' for each in values[:6])}"


def fleet_lines(fleet: SimulatedFleet, lines: Sequence[Timeline]) -> Iterator[str]:
    for reading in fleet.readings(tuple(lines), REF_NS + fleet.window * 2 * S):
        line = reading.line
        yield (
            f"{line.node} off={reading.error_ns:.5g} bound={reading.bound_ns:.5g}"
            f" sigma={line.sigma_ns:.5g} rate={line.drift_sigma_ppb:.5g}"
            f" part={line.component} {line.state} {line.reason}"
        )


def again_and_again() -> Iterator[str]:
    """A fleet solved each window: a clock steps, one dies, an island leaves and returns."""
    fleet = SimulatedFleet(seed=3, kind=ClockKind(wander_ppb=20.0), pairs=32, fit=fit_window)
    for window in range(14):
        if window == 2:
            fleet.clocks.step_ns[4] += 40e3
        if window == 4:
            fleet.dead.add(1)
        if window == 8:
            fleet.reboot(2, 3e6)

        def traffic(at: int, a: int, b: int) -> tuple[Way, Way] | None:
            return None if 5 <= at < 9 and (a < 3) != (b < 3) else (Way(0.4), QUIET)

        readings = fleet.step(traffic)
        if window in {1, 2, 3, 5, 6, 8, 9, 13}:
            yield from fleet_lines(fleet, [reading.line for reading in readings])
            yield from verdicts(fleet.solver._solver.verdicts)


def led_to_utc() -> Iterator[str]:
    """Anchors that know UTC lead fleet time; one of them lies for a while; a successor goes on."""
    anchors = [Anchor("n0", 200.0, True), Anchor("n1", 200.0, True), Anchor("n2", 5e6)]
    fleet = SimulatedFleet(
        seed=4, nodes=4, anchors=anchors, pairs=32, fit=fit_window, kind=ClockKind(5e6, 5e3, 3.0)
    )
    for window in range(16):
        end_ns = REF_NS + (window + 1) * 2 * S
        at = [int(fleet.clocks.read(n, np.array([end_ns]))[0]) for n in range(4)]
        fleet.solver.add_readings(
            UtcReading(
                node=f"n{n}",
                local_ns=local_ns,
                utc_minus_ns=end_ns - local_ns + (n == 1 and window > 9) * MS,
                bound_ns=50.0,
            )
            for n, local_ns in enumerate(at)
        )
        if window == 12:
            successor = AnchoredSolver(anchors)
            successor.inherit(fleet.solver.memory())
            fleet.solver = successor
            fleet.dead = {3}
        readings = fleet.step(lambda *_: (QUIET, QUIET))
        utc = fleet.solver.utc
        if utc is None:
            continue
        lost = [f"{reading.error_ns:.5g}" for reading in readings]
        local_ns = at[0]
        fleet_ns = readings[0].line.to_fleet_ns(local_ns)
        yield (
            f"{utc.state} off={utc.to_utc_ns(fleet_ns) - end_ns} bound={utc.bound_ns(fleet_ns):.5g}"
            f" rate={utc.drift_ppb:.5g} by={fleet.solver.stepped_ns} {' '.join(utc.anchors)}"
            f" {' '.join(lost)} {utc.reason}"
        )


def torn_and_held() -> Iterator[str]:
    """Told of steps by epochs: what is forgotten, for how long, and what is said meanwhile."""
    world = World(5, 5, "everyone")
    solver = NetworkSolver()
    epochs = {f"n{node}": 70 + node for node in range(5)}

    def known(edges: Sequence[Edge]) -> list[Edge]:
        return [msgspec.structs.replace(e, a_epoch=epochs[e.a], b_epoch=epochs[e.b]) for e in edges]

    def reported(now_s: float) -> Iterator[str]:
        for line in solver.solve(round(now_s * S)):
            yield (
                f"{now_s} {line.node} at={(line.ref_ns - REF_NS) * 1e-6:.6g}"
                f" offset={line.offset_ns:.9g} rate={line.drift_ppb:.6g} sigma={line.sigma_ns:.5g}"
                f" turn={line.drift_sigma_ppb:.5g} epoch={line.epoch} {line.state} {line.reason}"
            )

    solver.update(known(world.edges), 0, epochs)
    yield from reported(0)
    epochs["n2"] = 99
    solver.update([], S, {"n2": 99})
    yield from reported(1)
    solver.update(known([e for e in world.edges if "n2" not in {e.a, e.b}]), 2 * S)
    solver.forget(["n3"])
    yield from reported(2)
    solver.update(known([e for e in world.edges if "n2" in {e.a, e.b}]), 12 * S)
    yield from reported(12)
    yield from reported(300)
    yield from reported(611)
    later = NetworkSolver()
    later.inherit([line for line in solver.solve(30 * S) if line.state is not ClockState.UNKNOWN])
    later.update(known(world.edges), 31 * S, epochs)
    yield f"away {' '.join(line.node for line in later.held_over())}"
    solver = later
    yield from reported(31)


STORIES = (
    clean, liars, wrong_edges, doubts, contradictions, large, wandered, spans, again_and_again,
    led_to_utc, torn_and_held,
)  # fmt: skip
CASES: dict[str, Callable[[], Iterator[str]]] = {
    f"mesh {story.__name__}": story for story in STORIES
}
