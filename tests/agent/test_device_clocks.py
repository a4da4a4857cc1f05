"""Clocks of RDMA devices as nodes of the fleet's graph, graded by clocks whose truth is drawn.

Hosts' clocks and devices' clocks run by themselves. Packets over UDP are stamped by kernels in the
hosts' clocks, late by microseconds; those over verbs by devices in their own, late by nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import drawn

from syntony.agent.nic_clocks import NicClocks
from syntony.agent.pipeline import Pipeline
from syntony.clock.anchored import AnchoredSolver
from syntony.mesh.stats import HOLD_NS
from syntony.model import MS, ClockState, Edge, NicRef, S, Timeline
from syntony.model.names import device_clock, host_of
from syntony.model.probes import DeviceClockReading, ProbeFlag
from syntony.wire.probes import Plan, ProbeFlow

BEGIN_NS = 1_795_000_000 * S
RECORD = np.dtype(
    [("flow_id", "<u4"), ("seq", "<u4"), ("flags", "<u4")]
    + [(stamp, "<i8") for stamp in ("sent_ns", "t1_ns", "t2_ns", "t3_ns", "t4_ns")]
)
BOTH = int(ProbeFlag.HW_LOCAL | ProbeFlag.HW_REMOTE)
HOSTS, RAILS, PATHS = 3, 2, 2
WIRE_NS = 1_500
Clock = Callable[[int], int]


def drawn_clock(rng: random.Random) -> Clock:
    offset_ns, drift = rng.randrange(-50 * MS, 50 * MS), rng.uniform(-40e-6, 40e-6)
    return lambda true_ns: true_ns + offset_ns + round((true_ns - BEGIN_NS) * drift)


class World:
    """A fleet of `HOSTS` hosts, every NIC with a clock of its own over verbs unless left out."""

    def __init__(self, rng: random.Random, without: frozenset[NicRef] = frozenset()) -> None:
        self.rng = rng
        self.nics = [
            NicRef(f"h{host}", f"rail{nic}") for host in range(HOSTS) for nic in range(RAILS)
        ]
        self.clocks = {host: drawn_clock(rng) for host, _ in self.nics}
        self.devices = {str(ref): device_clock(ref) for ref in self.nics if ref not in without}
        self.clocks |= {node: drawn_clock(rng) for node in self.devices.values()}
        self.flows = {host: list(self._flows(host)) for host in sorted({h for h, _ in self.nics})}
        self.pipelines = {host: Pipeline(host) for host in self.flows}
        self.crossings = {host: NicClocks(host) for host in self.flows}
        self.solver = AnchoredSolver()
        for host, pipeline in self.pipelines.items():
            pipeline.begin_epoch(7)
            pipeline.plan(self.plan(host))

    def _flows(self, host: str) -> Iterable[ProbeFlow]:
        for src in self.nics:
            for dst in self.nics:
                for path in range(
                    PATHS if src.host == host != dst.host and src.nic == dst.nic else 0
                ):
                    number = PATHS * (self.nics.index(src) * len(self.nics) + self.nics.index(dst))
                    yield ProbeFlow(
                        flow_id=number + path, src=src.nic, dst=str(dst), dst_nic_id=1, dst_addr="",
                        dst_port=1, src_port=61_000 + path, interval_ns=50 * MS,
                    )  # fmt: skip

    def plan(self, host: str) -> Plan:
        flows = tuple(self.flows[host])
        return Plan(
            generation=1, nic_ids={}, nic_names={}, flows=flows, verbs=flows,
            clocks={str(ref): ref.host for ref in self.nics}, verbs_clocks=dict(self.devices),
        )  # fmt: skip

    def records(self, host: str, from_ns: int, *, verbs: bool) -> NDArray[np.void]:
        """A second of probing."""
        late_ns = 0 if verbs else 3_000
        rows = []
        for flow in self.flows[host]:
            ends = [f"{host}/{flow.src}", flow.dst]
            nodes = [self.devices.get(end, host_of(end)) for end in ends]
            if not verbs:
                nodes = [host_of(end) for end in ends]
            here, there = (self.clocks[node] for node in nodes)
            flags = sum(
                int(flag)
                for node, flag in zip(nodes, (ProbeFlag.HW_LOCAL, ProbeFlag.HW_REMOTE), strict=True)
                if "/" in node
            )
            for seq in range(40):
                at_ns = from_ns + seq // 2 * 50 * MS + self.rng.randrange(MS)
                first_ns = at_ns + WIRE_NS + self.delay(late_ns)
                back_ns = first_ns + 5_000
                last_ns = back_ns + WIRE_NS + self.delay(late_ns)
                rows.append(
                    (flow.flow_id, seq, flags, self.clocks[host](at_ns), here(at_ns),
                     there(first_ns), there(back_ns), here(last_ns))
                )  # fmt: skip
        return np.array(rows, dtype=RECORD)

    def delay(self, late_ns: int) -> int:
        return round(self.rng.expovariate(1 / (late_ns or 50)))

    def readings(self, host: str, at_ns: int) -> dict[str, DeviceClockReading]:
        found = {}
        for ref, node in self.devices.items():
            if ref.startswith(f"{host}/"):
                doubt_ns = self.rng.randrange(50, 500)
                read_ns = at_ns + self.rng.randint(-doubt_ns, doubt_ns)
                clock = self.clocks[node]
                found[ref.partition("/")[2]] = DeviceClockReading(
                    clock(BEGIN_NS), self.clocks[host](at_ns), clock(read_ns), doubt_ns
                )
        return found

    def run(self, seconds: int, from_ns: int = BEGIN_NS) -> dict[str, Timeline]:
        for number in range(seconds):
            at_ns = from_ns + number * S
            for host, pipeline in self.pipelines.items():
                pipeline.add(self.records(host, at_ns, verbs=False))
                pipeline.add_verbs(self.records(host, at_ns, verbs=True))
                self.crossings[host].take_crossings(self.readings(host, at_ns + S // 2))
                for node, epoch in self.crossings[host].epochs.items():
                    pipeline.begin_epoch(epoch, 0, node)
        now_ns = from_ns + seconds * S
        edges: list[Edge] = []
        epochs: dict[str, int] = {}
        for host, pipeline in self.pipelines.items():
            edges += pipeline.edges(self.clocks[host](now_ns))
            edges += map(pipeline.in_epochs, self.crossings[host].edges())
            epochs |= {host: 7} | self.crossings[host].epochs
        self.solver.update(edges, now_ns, epochs)
        lines = {line.node: line for line in self.solver.solve(now_ns)}
        for host, pipeline in self.pipelines.items():
            pipeline.timelines(list(lines.values()), None, self.clocks[host](now_ns))
        return lines

    def touches(self, node: str, pipeline: Pipeline, host: str) -> bool:
        """Whether a host's pairs say anything of a clock."""
        edges = pipeline.edges(self.clocks[host](BEGIN_NS + 4 * S))
        return any(node in (edge.a, edge.b) for edge in edges)

    def true_ns(self, node: str, local_ns: int) -> int:
        """When a clock said so."""
        at_ns = local_ns
        for _ in range(8):
            at_ns += local_ns - self.clocks[node](at_ns)
        return at_ns

    def errors_ns(self, lines: dict[str, Timeline], at_ns: int, nodes: list[str]) -> list[int]:
        """Of what each clock says of fleet time, against the median of them."""
        fleet = [lines[node].to_fleet_ns(self.clocks[node](at_ns)) - at_ns for node in nodes]
        middle = int(np.median(fleet))
        return [abs(each - middle) for each in fleet]


@pytest.mark.parametrize("draw", range(4))
def test_devices_are_placed_in_fleet_time_within_their_bounds(draw: int) -> None:
    world = World(drawn(draw))
    lines = world.run(4)
    at_ns = BEGIN_NS + 4 * S
    devices = sorted(world.devices.values())
    assert {lines[node].state for node in devices} == {ClockState.SYNCHRONIZED}
    assert {lines[node].epoch for node in devices} == {
        world.clocks[node](BEGIN_NS) for node in devices
    }
    errors_ns = world.errors_ns(lines, at_ns, devices)
    rail_ns = world.errors_ns(lines, at_ns, [node for node in devices if "rail0" in node])
    hosts_ns = world.errors_ns(lines, at_ns, sorted(world.pipelines))
    print(f"off by up to: devices {max(errors_ns)} ns, on one rail {max(rail_ns)} ns, "
          f"hosts {max(hosts_ns)} ns")  # fmt: skip
    for node, error_ns in zip(devices, errors_ns, strict=True):
        assert error_ns <= lines[node].bound_ns(world.clocks[node](at_ns)) + 100
    assert max(errors_ns) < 1_000


def test_probes_tell_devices_of_one_rail_apart_to_nanoseconds() -> None:
    world = World(drawn(0))
    world.run(4)
    for host, pipeline in world.pipelines.items():
        edges = pipeline.edges(world.clocks[host](BEGIN_NS + 4 * S))
        found = {(edge.a, edge.b) for edge in edges if "/" in edge.a or "/" in edge.b}
        assert found == {
            (world.devices[f"{host}/{flow.src}"], world.devices[flow.dst])
            for flow in world.flows[host]
        }
        for edge in edges:
            if (edge.a, edge.b) in found:
                at_ns = world.true_ns(edge.a, edge.ref_ns)
                truth_ns = world.clocks[edge.b](at_ns) - world.clocks[edge.a](at_ns)
                assert abs(edge.theta_ns - truth_ns) < 20


@pytest.mark.parametrize("draw", range(4))
def test_delays_over_verbs_are_those_of_the_wire(draw: int) -> None:
    """Stamped by devices at both ends, at one, or at none: on the fleet's timeline all the same."""
    rng = drawn(draw)
    nics = World(rng).nics
    without = frozenset(rng.sample(nics, rng.randrange(len(nics))))
    world = World(rng, without)
    print(f"without a clock: {sorted(map(str, without))}")
    world.run(4)
    now_ns = BEGIN_NS + 4 * S
    for host, pipeline in world.pipelines.items():
        fleet_ns = pipeline.fleet_ns(world.clocks[host](now_ns))
        assert fleet_ns is not None
        rows = pipeline.verbs_rows(fleet_ns + HOLD_NS)
        assert rows is not None
        measured = np.asarray(rows["count"]) > 0
        assert measured.all()
        delays_ns = np.asarray(rows["owd_p50_ns"])
        print(host, delays_ns.min(), delays_ns.max())
        assert (np.abs(delays_ns - WIRE_NS) < 2_000).all()


def test_stamps_of_another_clock_than_the_plans_are_left_out() -> None:
    """A device's clock has failed, and the plan does not say so yet; or has come."""
    rng = drawn(0)
    world = World(rng)
    world.run(4)
    host = "h0"
    pipeline = world.pipelines[host]
    fleet_ns = pipeline.fleet_ns(world.clocks[host](BEGIN_NS + 4 * S))
    assert fleet_ns is not None
    pipeline.verbs_rows(fleet_ns + S + HOLD_NS)
    records = world.records(host, BEGIN_NS + 6 * S, verbs=True)
    engine = world.clocks[host](BEGIN_NS + 6 * S) - records["t1_ns"]
    records["t1_ns"] += engine
    records["t4_ns"] += engine
    records["flags"] &= ~np.uint32(ProbeFlag.HW_LOCAL)
    pipeline.add_verbs(records)
    rows = pipeline.verbs_rows(fleet_ns + 5 * S + HOLD_NS)
    assert rows is not None
    assert np.asarray(rows["sent"]).sum() == 2 * len(records)
    assert np.asarray(rows["count"]).sum() == 0


def test_a_clock_in_another_epoch_begins_again() -> None:
    rng = drawn(0)
    world = World(rng)
    before = world.run(4)
    node = world.devices["h0/rail0"]
    old, jump_ns = world.clocks[node], 3 * MS
    world.clocks[node] = lambda true_ns: old(true_ns) + jump_ns
    assert world.crossings["h0"].take_crossings(world.readings("h0", BEGIN_NS + 5 * S))
    assert not world.crossings["h0"].take_crossings(world.readings("h0", BEGIN_NS + 6 * S))
    assert not NicClocks("h0").take_crossings(world.readings("h0", BEGIN_NS)), "the first"
    epochs = world.crossings["h0"].epochs
    own, peer = world.pipelines["h0"], world.pipelines["h1"]
    local_ns = world.clocks["h0"](BEGIN_NS + 4 * S)
    assert world.touches(node, own, "h0")
    own.begin_epoch(epochs[node], 0, node)
    assert not world.touches(node, own, "h0")
    own.add_verbs(world.records("h0", BEGIN_NS + 3 * S, verbs=True))
    own.timelines(list(before.values()), None, local_ns)
    assert {edge.a_epoch for edge in own.edges(local_ns) if edge.a == node} == {epochs[node]}, (
        "the controller does not know yet"
    )
    assert node not in {edge.b for edge in world.crossings["h0"].edges()}
    assert world.touches(node, peer, "h1")
    world.solver.update([], BEGIN_NS + 6 * S, {"h0": 7} | epochs)
    lines = {line.node: line for line in world.solver.solve(BEGIN_NS + 6 * S)}
    assert lines[node].state is ClockState.UNKNOWN
    assert lines[node].epoch == epochs[node] != before[node].epoch
    for host, pipeline in world.pipelines.items():
        pipeline.timelines(list(lines.values()), None, world.clocks[host](BEGIN_NS + 6 * S))
    assert not world.touches(node, peer, "h1")
    after = world.run(4, BEGIN_NS + 7 * S)
    at_ns = BEGIN_NS + 11 * S
    assert max(world.errors_ns(after, at_ns, sorted(world.devices.values()))) < 1_000


def test_no_reading_of_before_the_hosts_clock_was_set_is_used_after() -> None:
    """The reactor may have read the clocks before, and say so after."""
    world = World(drawn(0))
    clocks = NicClocks("h0")
    for number in range(4):
        clocks.take_crossings(world.readings("h0", BEGIN_NS + number * S))
    assert list(clocks.edges())
    under_way = world.readings("h0", BEGIN_NS + 4 * S)
    clocks.forget()
    set_ns = 20 * MS
    for _ in range(3):
        clocks.take_crossings(under_way)
    for number in range(5, 8):
        readings = world.readings("h0", BEGIN_NS + number * S)
        clocks.take_crossings(
            {nic: each._replace(host_ns=each.host_ns + set_ns) for nic, each in readings.items()}
        )
    edges = list(clocks.edges())
    assert {edge.b for edge in edges} == {world.devices["h0/rail0"], world.devices["h0/rail1"]}
    for edge in edges:
        at_ns = world.true_ns("h0", edge.ref_ns - set_ns)
        truth_ns = world.clocks[edge.b](at_ns) - edge.ref_ns
        assert abs(edge.theta_ns - truth_ns) < 1_000


def test_a_reactor_that_was_away_comes_back_with_another_epoch() -> None:
    world = World(drawn(0))
    clocks = NicClocks("h0")
    readings = world.readings("h0", BEGIN_NS)
    assert not clocks.take_crossings(readings)
    assert not clocks.take_crossings({})
    assert clocks.epochs == {}
    assert not clocks.take_crossings(readings)
    clocks.take_crossings({})
    later = {nic: each._replace(epoch_ns=each.epoch_ns + S) for nic, each in readings.items()}
    assert clocks.take_crossings(later)


def test_an_engines_stamps_over_verbs_tell_nothing_of_hosts_clocks() -> None:
    rng = drawn(0)
    nics = World(rng).nics
    world = World(rng, frozenset(nics))
    for host, pipeline in world.pipelines.items():
        pipeline.add_verbs(world.records(host, BEGIN_NS, verbs=True))
        assert pipeline.edges(world.clocks[host](BEGIN_NS + S)) == ()
