"""NICs' own clocks beside their hosts', and what somebody else does to them."""

from collections.abc import Callable

import pytest
from msgspec import structs
from tests.cases import drawn

from syntony.agent import nic_clocks
from syntony.agent.nic_clocks import NEVER_SET, NicClocks
from syntony.clock.anchored import AnchoredSolver
from syntony.io.phc import CrossStamp
from syntony.model import Edge, S

T0 = 1_795_000_000 * S
HOSTS = 4
DOUBT_NS = 150


class World:
    """Hosts with a NIC each. Probes between NICs are exact, and see no step by themselves."""

    def __init__(self, draw: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rng, self.second = drawn(draw), 0
        self.rates = [self.rng.uniform(-4e-5, 4e-5) for _ in range(HOSTS)]
        self.set_ns = [0] * HOSTS
        monkeypatch.setattr(nic_clocks, "Phc", self.device)
        self.crossings = [NicClocks(f"h{host}") for host in range(HOSTS)]
        for host, crossing in enumerate(self.crossings):
            crossing.keep({"eth0": (host, 0)})
        self.solver = AnchoredSolver()

    def device(self, host: int) -> object:
        world = self

        class Device:
            path = f"/dev/ptp{host}"

            def cross_stamp(self) -> CrossStamp:
                at_ns = T0 + world.second * S
                read_ns = at_ns + world.rng.randint(-DOUBT_NS, DOUBT_NS)
                return CrossStamp(world.nic_ns(host, read_ns), at_ns, DOUBT_NS)

        return Device()

    def nic_ns(self, host: int, true_ns: int) -> int:
        return true_ns + round(self.rates[host] * (true_ns - T0)) + self.set_ns[host]

    def run(self, seconds: int, seen: Callable[[float], None], paused: int | None = None) -> None:
        """`paused`: a host whose agent reads no clock meanwhile."""
        for _ in range(seconds):
            self.second += 1
            for host, crossing in enumerate(self.crossings):
                if host != paused:
                    crossing.take_crossings({})
            epochs = {f"h{host}": 7 for host in range(HOSTS)}
            for crossing in self.crossings:
                epochs |= crossing.epochs
            now_ns = self.second * S
            self.solver.update([*self.edges(epochs)], now_ns, epochs)
            lines = {line.node: line for line in self.solver.solve(now_ns)}
            true_ns = T0 + now_ns
            for one in range(HOSTS):
                a, b = lines.get(f"h{one}"), lines.get(f"h{(one + 1) % HOSTS}")
                if a is not None and b is not None and a.component == b.component:
                    off_ns = abs(a.to_fleet_ns(true_ns) - b.to_fleet_ns(true_ns))
                    seen(off_ns / (a.bound_ns(true_ns) + b.bound_ns(true_ns)))

    def edges(self, epochs: dict[str, int]) -> list[Edge]:
        at_ns = T0 + self.second * S
        found = [
            Edge(
                a=f"h{a}/eth0", b=f"h{b}/eth0", ref_ns=self.nic_ns(a, at_ns),
                theta_ns=self.nic_ns(b, at_ns) - self.nic_ns(a, at_ns),
                drift_ppb=(self.rates[b] - self.rates[a]) * 1e9, sigma_ns=5.0, drift_sigma_ppb=5.0,
                rtt_floor_ns=9_000.0, probes=200,
            )
            for a in range(HOSTS) for b in range(a)
        ]  # fmt: skip
        found += [edge for crossing in self.crossings for edge in crossing.edges()]
        return [
            structs.replace(edge, a_epoch=epochs[edge.a], b_epoch=epochs[edge.b]) for edge in found
        ]


@pytest.mark.parametrize("draw", range(4))
def test_a_nics_clock_that_somebody_sets_does_not_move_its_host(
    draw: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(draw, monkeypatch)
    ratios: list[float] = []
    world.run(world.rng.randint(5, 9), ratios.append)
    host = world.rng.randrange(HOSTS)
    world.set_ns[host] = round(world.rng.choice((-1, 1)) * 10 ** world.rng.uniform(4.5, 9))
    print(f"draw {draw}: the clock of h{host}/eth0 set by {world.set_ns[host]} ns")
    world.run(12, ratios.append)
    assert max(ratios) < 1
    epochs = {node: epoch for each in world.crossings for node, epoch in each.epochs.items()}
    assert {node for node, epoch in epochs.items() if epoch != NEVER_SET} == {f"h{host}/eth0"}


@pytest.mark.parametrize("draw", range(4))
def test_a_clock_that_is_set_while_the_agent_reads_none_begins_an_epoch(
    draw: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(draw, monkeypatch)
    ratios: list[float] = []
    world.run(world.rng.randint(5, 9), ratios.append)
    host, pause_s = world.rng.randrange(HOSTS), world.rng.randint(5, 30)
    world.run(pause_s, ratios.append, host)
    world.set_ns[host] = round(world.rng.choice((-1, 1)) * 10 ** world.rng.uniform(4.5, 9))
    print(f"draw {draw}: h{host}/eth0 set by {world.set_ns[host]} ns after {pause_s} s")
    world.run(12, ratios.append)
    epochs = {node: epoch for each in world.crossings for node, epoch in each.epochs.items()}
    assert {node for node, epoch in epochs.items() if epoch != NEVER_SET} == {f"h{host}/eth0"}
    assert max(ratios) < 1
