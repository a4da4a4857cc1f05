"""UDP beside verbs, from a plan and what the store shows to incidents: a generator other than that
of `mesh`, with sparse planes, lossy fabrics, bursts and clocks that are off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import mostly_slow
from tests.controller.judged import Control
from tests.link import hello

from syntony.controller.config import ControllerConfig
from syntony.controller.fleet import Fleet
from syntony.controller.incident_inputs import LatencyInputs
from syntony.controller.planes import WINDOW_NS, PlaneWatch
from syntony.mesh.plan import VerbsClass
from syntony.mesh.planes import MIN_PROBES, Place
from syntony.model import US, S
from syntony.model.names import host_of
from syntony.model.sla import Latency
from syntony.wire.probes import Plane

LATE_NS = 10_000 * S
SLOW_NS = 700 * US
PATIENCE = 75
"""Evaluations, 2 s apart: longer than any rule waits."""


class World:
    """A fleet whose planes agree, and what is made to differ."""

    def __init__(self, seed: int, *, rdma: float = 1.0) -> None:
        print(f"seed {seed}")
        self.rng = rng = random.Random(seed)
        hosts = [f"h{number}" for number in range(rng.randrange(5, 9))]
        rails = rng.randrange(1, 3)
        dscps = rng.sample(range(64), rng.randrange(1, 4))
        config = ControllerConfig(
            listen="", tls_ca="", tls_cert="", tls_key="",
            verbs_classes=tuple(VerbsClass(dscp=each, sl=rng.randrange(8)) for each in dscps),
        )  # fmt: skip
        self.fleet = Fleet(config)
        self.without = set()
        for host in hosts:
            said = hello(host, "s", rails=rails)
            nics = []
            for nic in said.nics:
                has = rng.random() < rdma
                self.without |= set() if has else {f"{host}/{nic.name}"}
                nics.append(msgspec.structs.replace(nic, rdma="roce" if has else ""))
            self.fleet.join(msgspec.structs.replace(said, nics=tuple(nics)), 0)
        self.fleet.replan(0)
        self.planned = sorted(
            {(src, flow.dst, flow.dscp) for src, flow in self.fleet.verbs_flows()}
        )
        self.off = {host: rng.gauss(0, 20 * US) for host in hosts}
        """What clocks are off: both planes alike."""
        self.wakes = {host: rng.gammavariate(4, 2 * US) for host in hosts}
        """Until the engine over verbs stamps."""
        self.lossy = rng.choice([0.0, 1e-4, 4e-3, 0.03])
        self.sent = {
            Plane.UDP: rng.randrange(1_000, 15_000),
            Plane.VERBS: rng.choice([rng.randrange(5, 90), rng.randrange(110, 1_000)]),
        }
        self.lost: dict[tuple[Plane, Place], float] = {}
        self.slow: dict[tuple[Plane, Place], int] = {}
        self.absent: set[tuple[Plane, Place]] = set()

    @property
    def latency(self) -> World:
        return self

    def classes(self, over: Plane, first_ns: int, last_ns: int) -> dict[Place, Latency]:
        assert last_ns - first_ns == WINDOW_NS
        rng, found = random.Random(f"{over}{self.off}"), {}
        for src, dst, dscp in self.planned:
            way_ns = random.Random(f"{src}{dst}{self.off}").lognormvariate(2.5, 0.8) * US
            place = (src, dst, 0 if over is Plane.UDP else dscp)
            if (over, place) in self.absent or place in found:
                continue
            sent = max(1, round(self.sent[over] * rng.uniform(0.7, 1.3)))
            share = self.lost.get((over, place), self.lossy)
            lost = sum(rng.random() < share for _ in range(sent))
            delay_ns = way_ns + self.off[host_of(dst)] - self.off[host_of(src)]
            if over is Plane.VERBS:
                delay_ns += 30 * US + self.wakes[host_of(dst)]
            delay_ns += rng.gauss(0, 2 * US) + self.slow.get((over, place), 0)
            none = lost == sent
            found[place] = Latency(
                sent=sent, lost=lost, measured=sent - lost, p50_ns=None if none else round(delay_ns)
            )
        return found


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    made = Control(tmp_path)
    yield made
    made.close()


def incidents(control: Control, world: World) -> dict[str, dict[str, Any]]:
    """What is open after a while, by rule and subject."""
    watch = PlaneWatch(world, world.fleet)  # type: ignore[arg-type]
    watch.look(LATE_NS)
    control.slas = LatencyInputs(None, None, {}, {}, watch.look(LATE_NS + WINDOW_NS))
    control.tick(PATIENCE)
    return {f"{each['rule']} {each['subject']}": each for each in control.live_incidents()}


def seeds() -> int:
    return random.randrange(1 << 32)


@pytest.mark.parametrize("trial", mostly_slow(range(6), {0, 1}))
def test_a_quiet_fleet_gives_none(control: Control, trial: int) -> None:
    assert incidents(control, World(seeds())) == {}
    assert control.pages() == []


@pytest.mark.parametrize("trial", mostly_slow(range(6), {0, 1}))
def test_what_differs_is_told_of_that_pair_and_class(control: Control, trial: int) -> None:
    world = World(seeds())
    world.sent[Plane.VERBS] = world.rng.randrange(300, 1_000)
    src, dst, dscp = place = world.rng.choice(world.planned)
    rule = world.rng.choice(["verbs-loss", "udp-loss", "planes-delay"])
    over = Plane.UDP if rule == "udp-loss" else Plane.VERBS
    at = (src, dst, 0) if over is Plane.UDP else place
    if rule == "planes-delay":
        world.slow[over, at] = SLOW_NS
    else:
        world.lost[over, at] = world.rng.uniform(0.2, 1.0)
    found = incidents(control, world)
    assert set(found) == {f"{rule} {src}->{dst}"}
    assert control.pages() == list(found)
    (incident,) = found.values()
    (evidence,) = incident["evidence"]
    reported = f"class {dscp}, SL "
    assert reported in evidence, evidence
    nics = {str(ref): nic for ref, nic in world.fleet.mesh.nics.items()}
    gids = f"RoCE v2, GID ::ffff:{nics[src].address} and ::ffff:{nics[dst].address}: "
    assert gids in evidence
    assert (" slower than " if rule == "planes-delay" else "% lost over verbs, ") in evidence
    assert incident["severity"] == ("critical" if rule == "verbs-loss" else "warning")
    world.slow.clear()
    world.lost.clear()
    assert incidents(control, world) == {}


@pytest.mark.parametrize("trial", mostly_slow(range(2), {0}))
@pytest.mark.parametrize("plane", list(Plane))
def test_a_plane_that_should_be_there_and_is_not(
    control: Control,
    plane: Plane,
    trial: int,
) -> None:
    world = World(seeds())
    world.sent[Plane.VERBS] = 5 * MIN_PROBES
    nic = world.planned[0][0]
    for place in world.planned:
        if nic in place[:2]:
            world.absent.add((plane, (*place[:2], 0) if plane is Plane.UDP else place))
    found = incidents(control, world)
    assert set(found) == {f"plane-absent {nic}"}
    (incident,) = found.values()
    assert f"no probe over {plane}, " in incident["evidence"][0]
    control.silent = {host_of(nic): 5 * S}  # not yet reported as silent
    assert incidents(control, world)
    host = host_of(nic)
    control.silent = {host: 20 * S}
    assert set(incidents(control, world)) == {f"host-silent {host}"}


def test_what_has_just_been_planned_is_not_missed(control: Control) -> None:
    world = World(seeds())
    world.sent[Plane.VERBS] = 5 * MIN_PROBES
    world.absent = {(Plane.VERBS, place) for place in world.planned}
    watch = PlaneWatch(world, world.fleet)  # type: ignore[arg-type]
    assert watch.look(LATE_NS).absent == ()
    assert watch.look(LATE_NS + WINDOW_NS - 1).absent == ()
    assert watch.look(LATE_NS + WINDOW_NS).absent


def test_a_nic_without_rdma_among_those_that_have_it(control: Control) -> None:
    for _ in range(4):
        world = World(seeds(), rdma=0.85)
        rails: dict[str, list[str]] = {}
        for ref in world.fleet.mesh.nics:
            rails.setdefault(ref.nic, []).append(str(ref))
        odd = {
            f"plane-absent {nic}"
            for nics in rails.values()
            for nic in nics
            if nic in world.without
            and len(set(nics) - world.without) >= 3
            and len(set(nics) - world.without) * 2 > len(nics)
        }
        found = incidents(control, world)
        assert {each for each in found if each.startswith("plane-absent")} == odd
        for each in odd:
            assert "it has no RDMA port; " in found[each]["evidence"][0]
    nobody = World(seeds(), rdma=0.0)
    assert incidents(control, nobody) == {}


def test_a_class_that_is_slow_everywhere_is_one_finding(control: Control) -> None:
    world = World(seeds())
    while len({place[2] for place in world.planned}) < 2:
        world = World(seeds())
    world.sent[Plane.VERBS] = 5 * MIN_PROBES
    late = world.planned[-1][2]
    world.slow = {(Plane.VERBS, each): SLOW_NS for each in world.planned if each[2] == late}
    found = incidents(control, world)
    assert set(found) == {f"planes-delay class {late}"}
