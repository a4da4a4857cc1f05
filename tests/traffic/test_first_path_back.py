"""A connection without any usable path uses the first one that is seen alive, held down or not."""

from __future__ import annotations

import random

import pytest
from tests.cases import mostly_slow
from tests.traffic.network import Pair, World

from syntony.model import MS, S
from syntony.model.paths import FourTuple, LivenessEvent
from syntony.traffic import events
from syntony.traffic.failover import Failover
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Create, Instruction
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.policy import FailoverMode, Policy

AT_ONCE_NS = 400 * MS
"""Probes find the path within tens of ms here; three joins in a row may be lost on bad spines."""


EVERY = [(host, f"nic{rail}") for host in "ab" for rail in range(2)]


def shake(world: World, rng: random.Random) -> None:
    """A history: paths fail and come back, which builds up hold-downs and failed joins; whole
    again at its end."""
    cut: set[Pair] = set()
    for _ in range(rng.randrange(2, 12)):
        pair = rng.choice(EVERY)
        match rng.randrange(3):
            case 0 if pair not in cut:
                world.black ^= {pair}
            case 1:
                world.bad_spines ^= {(rng.randrange(2), rng.randrange(2))}
            case 2:
                cut ^= {pair}
                world.link(*pair, up=pair not in cut)
        world.run(int(rng.uniform(0.05, 4) * S))
    for pair in cut:
        world.link(*pair, up=True)
    world.black, world.bad_spines = set(), set()


def delivers(world: World, within_ns: int) -> bool:
    """Whether anything has got through recently."""
    alive = [world.hosts["a"].subflows[flow] for flow in world.living("a")]
    return any(at_ns > world.now_ns - within_ns for at_ns in alive)


@pytest.mark.parametrize("seed", mostly_slow(range(60), range(3)))
def test_the_first_path_back_is_used_at_once(seed: int) -> None:
    rng = random.Random(seed)
    world = World(seed, timers=True)
    world.run(1 * S)
    shake(world, rng)
    world.run(int(rng.uniform(0, 2) * S))
    host, silently = rng.choice("ab"), rng.random() < 0.5
    down = [(host, "nic0"), (host, "nic1")]
    for pair in down:
        if silently:
            world.black.add(pair)
        else:
            world.link(*pair, up=False)
    world.run(int(rng.uniform(0.3, 15) * S))
    assert not delivers(world, 100 * MS)
    first = rng.choice(down)
    if silently:
        world.black.remove(first)
    else:
        world.link(*first, up=True)
    waited_ns = 0
    while not delivers(world, waited_ns) and waited_ns < 20 * S:
        world.run(10 * MS)
        waited_ns += 10 * MS
    assert waited_ns <= AT_ONCE_NS, (seed, waited_ns / S, silently, first)


PEERS = ("10.0.0.2", "10.1.0.2")
POLICY = Policy(mode=FailoverMode.ACT)


class End:
    """The initiator of one connection over two rails, without a kernel: joins never come up."""

    def __init__(self, seed: int, now_ns: int) -> None:
        nics = [LocalNic(name=f"n{k}", rail=k, addresses=(f"10.{k}.0.1",)) for k in (0, 1)]
        self.machine = Failover(POLICY, nics, seed)
        self.machine.watch([WatchedFlow(k, f"n{k}", PEERS[k], f"b/n{k}", k) for k in (0, 1)], 0)
        for rail in (0, 1):
            self.probe(rail, now_ns, alive=True)
        first = FourTuple("10.0.0.1", 40_000, PEERS[0], 5_000)
        self.machine.handle(events.ConnectionUp(at_ns=now_ns, token=7, flow=first, accepted=False))
        self.machine.handle(events.JobFound(at_ns=now_ns, token=7, job="train"))
        for rail in (0, 1):
            self.machine.handle(events.AddressAnnounced(
                at_ns=now_ns, token=7, remote_id=rail + 1, address=PEERS[rail], port=POLICY.port
            ))  # fmt: skip
        self.conn = self.machine.connections[7]

    def probe(self, rail: int, now_ns: int, *, alive: bool) -> list[Instruction]:
        event = LivenessEvent(at_ns=now_ns, flow_id=rail, alive=alive, since_ns=now_ns, misses=5)
        return self.machine.handle(event)

    def suffer(self, rng: random.Random, now_ns: int) -> None:
        """Something of a bad past."""
        rail = rng.randrange(2)
        pair = f"n{rail}", PEERS[rail]
        match rng.randrange(4):
            case 0:
                self.conn.tries(*pair).failed(now_ns, POLICY)
            case 1:
                self.conn.stalls.setdefault(pair, HoldDown()).failed(now_ns, POLICY)
            case 2:
                self.probe(rail, now_ns, alive=False)
                self.machine.tick(now_ns + 100 * MS)
                self.probe(rail, now_ns + 100 * MS, alive=True)
            case 3:
                self.machine.handle(
                    events.AddressWithdrawn(at_ns=now_ns, token=7, remote_id=rail + 1)
                )

    def fall_silent(self, now_ns: int) -> None:
        """All paths die, and the subflows with them."""
        for rail in (0, 1):
            self.probe(rail, now_ns, alive=False)
        self.machine.tick(now_ns + 100 * MS)
        while self.conn.subflows:
            for flow in list(self.conn.subflows):
                self.machine.handle(
                    events.SubflowDown(at_ns=now_ns + 100 * MS, token=7, flow=flow, error=110)
                )


@pytest.mark.parametrize("seed", range(200))
def test_whatever_its_hold_down(seed: int) -> None:
    rng = random.Random(seed)
    now_ns = rng.randrange(100 * S)
    end = End(seed, now_ns)
    for _ in range(rng.randrange(12)):
        now_ns += rng.randrange(3 * S)
        end.suffer(rng, now_ns)
    now_ns += 200 * MS
    end.fall_silent(now_ns)
    now_ns += 200 * MS + rng.randrange(2 * S)
    back = rng.randrange(2)
    out = [*end.probe(back, now_ns, alive=True), *end.machine.tick(now_ns)]
    joined = [each.flow.remote for each in out if isinstance(each, Create)]
    assert PEERS[back] in joined, (seed, back)


def test_a_join_begun_before_the_path_was_back_is_no_reason_to_wait() -> None:
    """Its packets were lost, so it fails after the path is back."""
    end = End(seed=1, now_ns=0)
    end.fall_silent(1 * S)
    pair, now_ns = ("n0", PEERS[0]), 1 * S

    def begun(until_ns: int) -> bool:
        """Run until a join is begun over the pair."""
        nonlocal now_ns
        while (due_ns := end.machine.next_due_ns()) is not None and due_ns <= until_ns:
            now_ns = max(now_ns, due_ns)
            joins = [each for each in end.machine.tick(now_ns) if isinstance(each, Create)]
            if any((each.flow.local, each.flow.remote) == ("10.0.0.1", pair[1]) for each in joins):
                return True
        return False

    while end.conn.tries(*pair).count < 8:
        assert begun(60 * S)
    end.probe(0, now_ns + 1 * MS, alive=True)
    assert begun(now_ns + 2 * POLICY.join_ns)
