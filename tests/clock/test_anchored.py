"""The UTC layer over a simulated fleet: its shape stays, and a successor goes on with its time."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from bench.simulated.clocks import EPOCH_NS, ClockKind
from bench.simulated.fleet import QUIET, Reading, SimulatedFleet, Way

from syntony.clock.anchored import AnchoredSolver, FleetMemory
from syntony.clock.anchors import Anchor
from syntony.clock.network import NetworkSolver
from syntony.io.window_fit import fit_window
from syntony.model import MS, ClockState, Edge, S, Timeline, UtcReading

SEED = 11
WINDOW_NS = 2 * S
ANCHORS = [Anchor(f"n{number}", 100.0, reported=True) for number in range(3)]
WANDERING = ClockKind(wander_ppb=3.0)


def fleet_of(anchors: list[Anchor]) -> SimulatedFleet:
    return SimulatedFleet(seed=SEED, kind=WANDERING, anchors=anchors, fit=fit_window)


def step(fleet: SimulatedFleet, lies_ns: dict[str, float] | None = None) -> list[Reading]:
    """One window at whose end the anchors know UTC, which is true time, unless they lie."""
    end_ns = EPOCH_NS + (fleet.window + 1) * WINDOW_NS
    lies = lies_ns or {}
    readings = []
    for number in range(3):
        local_ns = int(fleet.clocks.read(number, np.array([end_ns], dtype=np.int64))[0])
        node = f"n{number}"
        utc_minus_ns = end_ns - local_ns + round(lies.get(node, 0.0))
        readings.append(
            UtcReading(node=node, local_ns=local_ns, utc_minus_ns=utc_minus_ns, bound_ns=50.0)
        )
    fleet.solver.add_readings(readings)
    return fleet.step(lambda _window, _a, _b: (Way(0.4), QUIET))


def utc_error_ns(fleet: SimulatedFleet, reading: Reading) -> tuple[float, float]:
    """(error, bound) of UTC as the reading's host has it at the window's end."""
    utc = fleet.solver.utc
    assert utc is not None
    true_ns = EPOCH_NS + fleet.window * WINDOW_NS
    number = int(reading.line.node[1:])
    local_ns = int(fleet.clocks.read(number, np.array([true_ns], dtype=np.int64))[0])
    fleet_ns = reading.line.to_fleet_ns(local_ns)
    bound_ns = utc.bound_ns(fleet_ns) + reading.line.bound_ns(local_ns)
    return utc.to_utc_ns(fleet_ns) - true_ns, bound_ns


def test_the_shape_stays_and_every_host_knows_utc() -> None:
    alone, led = fleet_of([]), fleet_of(ANCHORS)
    for window in range(16):
        lies = {"n1": 1.0 * MS} if window > 9 else {}
        by_itself, readings = step(alone), step(led, lies)
        for one, other in zip(by_itself, readings, strict=True):
            assert abs(one.error_ns - other.error_ns) < 5, f"seed {SEED}, window {window}"
            assert other.line.state is ClockState.SYNCHRONIZED
        utc = led.solver.utc
        assert utc is not None
        if window < 5:
            continue
        for reading in readings:
            error_ns, bound_ns = utc_error_ns(led, reading)
            assert abs(error_ns) <= bound_ns, f"seed {SEED}, window {window}, {utc}"
            assert bound_ns < 20_000, f"seed {SEED}, window {window}, {utc}"
    utc = led.solver.utc
    assert utc is not None
    assert utc.anchors == ("n0", "n2")
    assert "n1 outvoted" in utc.reason
    assert alone.solver.utc is None


def test_a_successor_goes_on_and_does_not_step() -> None:
    fleet = fleet_of(ANCHORS)
    for _ in range(10):
        before = step(fleet)
    successor = AnchoredSolver(ANCHORS)
    successor.inherit(fleet.solver.memory())
    fleet.solver = successor
    fleet.dead = {3, 4, 5}
    after = step(fleet)
    assert successor.stepped_ns == 0
    true_ns = EPOCH_NS + fleet.window * WINDOW_NS
    for old, new in zip(before[:3], after, strict=False):
        number = int(new.line.node[1:])
        local_ns = int(fleet.clocks.read(number, np.array([true_ns], dtype=np.int64))[0])
        jumped_ns = new.line.to_fleet_ns(local_ns) - old.line.to_fleet_ns(local_ns)
        assert abs(jumped_ns) < 100, f"seed {SEED}"
    fleet.dead = set()
    for reading in step(fleet):
        assert reading.line.state is ClockState.SYNCHRONIZED, f"seed {SEED}: {reading.line}"


def test_what_is_inherited_is_told_to_nobody_before_it_is_seen_again() -> None:
    fleet = fleet_of([])
    step(fleet)
    solver = NetworkSolver()
    solver.inherit(fleet.solver.memory().lines)
    assert solver.solve(0) == ()


def test_a_clock_that_stepped_before_its_first_report_to_a_successor_is_placed_anew() -> None:
    """Its peers speak of it as it was; then it reports another epoch, 300 s away."""

    def edge(a: int, b: int, theta_ns: float, epochs: tuple[int, int]) -> Edge:
        return Edge(
            a=f"n{a}", b=f"n{b}", ref_ns=EPOCH_NS, theta_ns=theta_ns, drift_ppb=0.0, sigma_ns=40.0,
            drift_sigma_ppb=5.0, rtt_floor_ns=10_000.0, probes=16, a_epoch=epochs[0],
            b_epoch=epochs[1],
        )  # fmt: skip

    def whole(jump_ns: float, epoch: int) -> list[Edge]:
        of_n0 = [edge(0, 1, -jump_ns, (epoch, 1)), edge(0, 2, -jump_ns, (epoch, 1))]
        others = [edge(1, 0, jump_ns, (1, epoch)), edge(2, 0, jump_ns, (1, epoch))]
        return [*of_n0, *others, edge(1, 2, 0.0, (1, 1)), edge(2, 1, 0.0, (1, 1))]

    first, epochs = NetworkSolver(), {"n0": 1, "n1": 1, "n2": 1}
    first.update(whole(0.0, 1), 0, epochs)
    lines = first.solve(0)
    second = NetworkSolver()
    second.inherit(lines)
    second.update([each for each in whole(0.0, 1) if each.a == "n1"], S, {"n1": 1})
    second.solve(S)
    jump_ns, stepped = 300.0 * S, {"n0": 2}
    of_n0 = [each for each in whole(jump_ns, 2) if each.a == "n0"]
    second.update(of_n0, 2 * S, {"n1": 1} | stepped)
    second.solve(2 * S)
    second.update(whole(jump_ns, 2), 3 * S, epochs | stepped)
    found = {line.node: line for line in second.solve(3 * S)}
    before = {line.node: line for line in lines}
    for node, local_ns in (("n0", EPOCH_NS + round(jump_ns)), ("n1", EPOCH_NS), ("n2", EPOCH_NS)):
        moved_ns = found[node].to_fleet_ns(local_ns) - before[node].to_fleet_ns(EPOCH_NS)
        assert abs(moved_ns) < 1 * MS, node


@pytest.mark.parametrize("seed", range(6))
def test_fleet_time_survives_a_controller_killed_again_and_again(seed: int) -> None:
    """At any window, with whatever part of the fleet back by then; clocks are minutes apart, so
    that a timeline started again is far away. What was reported to any agent was kept before."""
    chance = random.Random(seed)
    nodes = 6
    fleet = SimulatedFleet(
        seed=seed,
        nodes=nodes,
        kind=ClockKind(max_offset_ns=300e9, wander_ppb=3.0),
        fit=fit_window,
    )
    known: dict[str, Timeline] = {}
    for life in range(8):
        successor = AnchoredSolver()
        successor.inherit(fleet.solver.memory())
        fleet.solver = successor
        back = chance.sample(range(nodes), chance.randint(2, nodes))
        fleet.dead = set(range(nodes)) - set(back)
        for _ in range(chance.randint(1, 3)):
            for reading in fleet.step(lambda _window, _a, _b: (Way(0.4), QUIET)):
                line = reading.line
                if line.state is not ClockState.SYNCHRONIZED:
                    continue
                if line.node in known:
                    reported_ns = known[line.node].to_fleet_ns(line.ref_ns)
                    moved_ns = line.to_fleet_ns(line.ref_ns) - reported_ns
                    assert abs(moved_ns) < 1 * MS, f"seed {seed}, life {life}, {line.node}"
                known[line.node] = line


@pytest.mark.parametrize("later", [1, 2])
def test_clocks_that_return_after_a_restart_are_led_along(later: int) -> None:
    """A late clock's inherited line has not missed what fleet time did meanwhile."""
    fleet = fleet_of(ANCHORS)
    for _ in range(8):
        step(fleet)
    memory = fleet.solver.memory()
    fleet.solver = AnchoredSolver(ANCHORS)
    fleet.solver.inherit(FleetMemory(lines=memory.lines, utc=memory.utc))
    fleet.dead = {5}
    for _ in range(later * 5):
        step(fleet)
    fleet.dead = set()
    back = {reading.line.node: reading for reading in step(fleet)}["n5"]
    assert back.line.state is ClockState.SYNCHRONIZED, f"seed {SEED}: {back.line}"


def test_utc_is_held_when_the_whole_fleet_is() -> None:
    fleet = fleet_of(ANCHORS)
    for _ in range(8):
        step(fleet)
    solver = fleet.solver
    assert isinstance(solver, AnchoredSolver)
    solver.solve(fleet.window * WINDOW_NS + 60 * S)
    assert solver.utc is not None
    assert solver.utc.state is ClockState.HOLDOVER
    assert "no clock" in solver.utc.reason
    step(fleet)
    assert fleet.solver.utc is not None
    assert fleet.solver.utc.state is ClockState.SYNCHRONIZED, f"seed {SEED}: {solver.utc}"


def test_a_thousand_clocks_carry_fleet_time_over_a_restart() -> None:
    solver = AnchoredSolver()
    line = Timeline(node="", ref_ns=0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0)
    away = [msgspec.structs.replace(line, node=f"away{n}", component="x") for n in range(1_200)]
    solver.inherit(FleetMemory(lines=tuple(away)))
    edge = Edge(a="x", b="y", ref_ns=EPOCH_NS, theta_ns=5.0, drift_ppb=1.0, sigma_ns=5.0,
                drift_sigma_ppb=5.0, rtt_floor_ns=10_000.0, probes=100)  # fmt: skip
    solver.update([edge], 0)
    solver.solve(0)
    remembered = [line.node for line in solver.memory().lines]
    assert len(remembered) == 1_000
    assert remembered[:3] == ["x", "y", "away0"], "those that are there come first"


def test_edges_of_nobody_known_lead_nowhere() -> None:
    solver = AnchoredSolver([Anchor("absent", 100.0)])
    edge = Edge(
        a="x",
        b="y",
        ref_ns=EPOCH_NS,
        theta_ns=5.0,
        drift_ppb=1.0,
        sigma_ns=5.0,
        drift_sigma_ppb=5.0,
        rtt_floor_ns=10_000.0,
        probes=100,
    )
    solver.update([edge], 0)
    assert len(solver.solve(0)) == 2
    assert solver.utc is not None
    assert solver.utc.state is ClockState.UNKNOWN
    assert "absent not heard of" in solver.utc.reason
