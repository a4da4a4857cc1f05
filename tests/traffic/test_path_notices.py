"""What processes that move their own flows are reported paths."""

from __future__ import annotations

import random

from syntony.model import MS, S
from syntony.model.paths import LinkEvent, LivenessEvent
from syntony.traffic.failover import Failover
from syntony.traffic.instructions import Notice, WatchPaths
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.path_notices import EXPIRES_NS, RENEW_NS
from syntony.traffic.policy import FailoverMode, Policy

POLICY = Policy(mode=FailoverMode.ACT)
PATH, OTHER = ("10.0.0.1", "10.0.0.2"), ("10.1.0.1", "10.1.0.2")
FLOWS = {1: ("nic0", "10.0.0.2"), 2: ("nic1", "10.1.0.2"), 3: ("nic0", "10.0.0.3")}


class Host:
    """Two NICs; a peer at each, and one more at the first."""

    def __init__(self, policy: Policy = POLICY) -> None:
        nics = [
            LocalNic(name=f"nic{rail}", rail=rail, addresses=(f"10.{rail}.0.1",))
            for rail in range(2)
        ]
        self.failover = Failover(policy, nics, seed=1)
        watched = [
            WatchedFlow(
                flow_id=number, nic=nic, remote=remote, remote_name=f"h/{remote}",
                remote_rail=int(nic[-1]), others=(),
            )
            for number, (nic, remote) in FLOWS.items()
        ]  # fmt: skip
        self.failover.watch(watched, 0)
        for number in FLOWS:
            self.live(number, 0, alive=True)

    def live(self, number: int, at_ns: int, *, alive: bool) -> None:
        event = LivenessEvent(at_ns=at_ns, flow_id=number, alive=alive, since_ns=at_ns, misses=5)
        self.failover.handle(event)

    def link(self, nic: str, at_ns: int, *, up: bool) -> None:
        event = LinkEvent(
            at_ns=at_ns, nic=nic, carrier=up, admin_up=True, addresses=(f"10.{nic[-1]}.0.1",),
            carrier_down_count=0 if up else 1,
        )  # fmt: skip
        self.failover.handle(event)

    def notices(self, now_ns: int) -> list[tuple[tuple[str, str], bool]]:
        out = self.failover.tick(now_ns)
        return [(each.path, each.usable) for each in out if isinstance(each, Notice)]


def test_a_path_that_a_process_uses_is_watched() -> None:
    host = Host()
    host.failover.use(frozenset({PATH, ("192.0.2.1", "192.0.2.2")}), 0)
    (requested,) = (each for each in host.failover.tick(1 * S) if isinstance(each, WatchPaths))
    witness = ("nic1", "10.1.0.2")
    assert requested.paths == {("nic0", "10.0.0.2"), witness}


def test_a_dead_path_is_told_at_once_renewed_and_taken_back_after_its_hold_down() -> None:
    host = Host()
    host.failover.use(frozenset({PATH, OTHER}), 0)
    assert host.notices(1 * S) == []
    host.live(1, 2 * S, alive=False)
    dead_ns = 2 * S + POLICY.settle_ns
    assert host.notices(dead_ns) == [(PATH, False)]
    assert host.notices(dead_ns + 1) == []
    due_ns = host.failover.next_due_ns()
    assert due_ns is not None
    assert due_ns <= dead_ns + RENEW_NS < dead_ns + EXPIRES_NS
    assert host.notices(dead_ns + RENEW_NS) == [(PATH, False)]
    back_ns = dead_ns + RENEW_NS + 1
    host.live(1, back_ns, alive=True)
    assert host.notices(back_ns) == []
    usable_ns = host.failover.health.usable_from_ns("nic0", PATH[1])
    assert usable_ns > back_ns
    assert host.failover.next_due_ns() == usable_ns
    assert host.notices(usable_ns - 1) == []
    assert host.notices(usable_ns) == [(PATH, True)]
    assert host.notices(usable_ns + 1 * S) == []


def test_a_nic_without_carrier_takes_all_its_paths_with_it() -> None:
    host = Host()
    third = ("10.0.0.1", "10.0.0.3")
    host.failover.use(frozenset({PATH, OTHER, third}), 0)
    host.link("nic0", 1 * S, up=False)
    assert host.notices(1 * S) == [(PATH, False), (third, False)]


def test_nothing_is_told_where_nothing_may_be_done() -> None:
    for host in (Host(Policy(mode=FailoverMode.OBSERVE)), Host()):
        host.failover.use(frozenset({PATH}), 0)
        host.failover.stop(stopped=True, now_ns=0)
        host.link("nic0", 1 * S, up=False)
        assert host.notices(1 * S) == []
    host.failover.stop(stopped=False, now_ns=2 * S)
    assert host.notices(2 * S) == [(PATH, False)]


def test_paths_that_nobody_uses_any_more_are_forgotten() -> None:
    host = Host()
    host.failover.use(frozenset({PATH}), 0)
    host.link("nic0", 1 * S, up=False)
    assert host.notices(1 * S) == [(PATH, False)]
    host.failover.use(frozenset(), 1 * S)
    assert host.failover.notices.due_ns() is None
    assert host.notices(2 * S) == []
    host.failover.use(frozenset({PATH}), 3 * S)
    assert host.notices(3 * S) == [(PATH, False)]


def test_whatever_happens_a_process_knows_what_is_so_in_the_end() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    host, now_ns = Host(), 0
    known: dict[tuple[str, str], bool] = {}
    host.failover.use(frozenset({PATH, OTHER}), 0)
    for _ in range(300):
        now_ns += rng.randrange(1, 900) * MS
        number = rng.choice([1, 2])
        if rng.random() < 0.5:
            host.live(number, now_ns, alive=rng.random() < 0.5)
        else:
            host.link(f"nic{number - 1}", now_ns, up=rng.random() < 0.5)
        known |= dict(host.notices(now_ns))
    for number in (1, 2):
        host.link(f"nic{number - 1}", now_ns, up=True)
        host.live(number, now_ns, alive=True)
    for _ in range(100):
        now_ns += 10 * S
        known |= dict(host.notices(now_ns))
    assert all(known.values())
