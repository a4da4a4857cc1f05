"""A peer whose agent is late is not taken for a dead path, though the plan has few pairs to it."""

from __future__ import annotations

import random
from itertools import product

import pytest
from tests.traffic.one_end import APP, NOW, POLICY, here, nics, there

from syntony.model import MS, S
from syntony.model.paths import FourTuple, LinkEvent, LivenessEvent
from syntony.traffic import events
from syntony.traffic.extra_ports import WITNESSES, with_witnesses
from syntony.traffic.failover import Failover
from syntony.traffic.instructions import Destroy, Instruction, WatchPaths
from syntony.traffic.pairs import WatchedFlow
from syntony.traffic.probe_plan import PlannedNics

PAIRS = [(1, 0), (0, 1), (1, 1)]
"""Rail here, rail there: as the lab's mesh of four hosts had them, where two agents each watched
the last one only and one of them gave it up while its peer had no processor time."""


def flows(pairs: list[tuple[int, int]]) -> list[WatchedFlow]:
    return [
        WatchedFlow(100 * a + 10 * b + n, f"nic{a}", there(b), f"peer/nic{b}", b)
        for a, b in pairs
        for n in range(4)
    ]


class End:
    """One end of a job's connection over two rails; its engine tells of watched flows only."""

    def __init__(self, pairs: list[tuple[int, int]]) -> None:
        self.machine = Failover(POLICY, nics(), 1)
        self.watched: frozenset[tuple[str, str]] = frozenset()
        self.ended: list[Destroy] = []
        self.do(self.machine.watch(flows(pairs), NOW))
        flow = FourTuple(here(0), 33_000, there(0), APP)
        self.machine.handle(events.ConnectionUp(at_ns=NOW, token=7, flow=flow, accepted=True))
        self.do(self.machine.handle(events.JobFound(at_ns=NOW, token=7, job="train")))
        second = FourTuple(here(1), POLICY.port, there(1), 61_908)
        self.do(self.machine.handle(
            events.SubflowUp(at_ns=NOW, token=7, flow=second, local_id=2, remote_id=2)
        ))  # fmt: skip
        self.until(NOW + S)
        self.live(alive=True, at_ns=NOW + S)

    def do(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            if isinstance(each, WatchPaths):
                self.watched = each.paths
            elif isinstance(each, Destroy):
                self.ended.append(each)

    def until(self, at_ns: int) -> None:
        while (due_ns := self.machine.next_due_ns()) is not None and due_ns <= at_ns:
            self.do(self.machine.tick(due_ns))
        self.do(self.machine.tick(at_ns))

    def live(self, *, alive: bool, at_ns: int, only: tuple[str, str] | None = None) -> None:
        for flow in self.machine.health.plan.flows.values():
            pair = flow.nic, flow.remote
            if pair in self.watched and only in {None, pair}:
                self.do(self.machine.handle(LivenessEvent(
                    at_ns=at_ns, flow_id=flow.flow_id, alive=alive, since_ns=at_ns - 40 * MS,
                    misses=9,
                )))  # fmt: skip


def test_a_late_peer_ends_no_path() -> None:
    end = End(PAIRS)
    end.live(alive=False, at_ns=NOW + 2 * S)
    end.until(NOW + 3 * S)
    assert not end.ended
    assert end.watched > {(f"nic{a}", there(b)) for a, b in PAIRS}


@pytest.mark.parametrize("rail", [0, 1])
def test_a_dead_path_is_ended_all_the_same(rail: int) -> None:
    end = End([(0, 0), *PAIRS])
    end.live(alive=False, at_ns=NOW + 2 * S, only=(f"nic{rail}", there(rail)))
    end.until(NOW + 3 * S)
    assert [each.flow.local for each in end.ended] == [here(rail)]


def test_a_dead_path_that_the_plan_has_beside_others_is_ended() -> None:
    end = End(PAIRS)
    end.live(alive=False, at_ns=NOW + 2 * S, only=("nic1", there(1)))
    end.until(NOW + 3 * S)
    assert [each.flow.local for each in end.ended] == [here(1)]


def test_a_nic_without_a_carrier_is_no_witness() -> None:
    end = End([(0, 1), (1, 1)])
    assert end.watched > {("nic0", there(1)), ("nic1", there(1))}
    down = LinkEvent(at_ns=NOW + 2 * S, nic="nic0", carrier=False, admin_up=True,
                     addresses=(here(0),), carrier_down_count=1)  # fmt: skip
    end.do(end.machine.handle(down))
    end.until(NOW + 3 * S)
    assert ("nic0", there(1)) not in end.watched
    assert ("nic1", there(1)) in end.watched


def test_as_few_as_it_takes_of_any_plan() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for _ in range(300):
        rails, hosts = draw.randint(1, 8), draw.randint(1, 4)
        possible = [
            (f"nic{a}", f"10.{b}.0.{host}", f"p{host}/nic{b}")
            for a, b, host in product(range(rails), range(rails), range(hosts))
        ]
        plan = draw.sample(possible, draw.randint(1, len(possible)))
        planned = PlannedNics(
            WatchedFlow(at, nic, remote, name, 0) for at, (nic, remote, name) in enumerate(plan)
        )
        used = {
            (nic, remote)
            for nic, remote, _ in draw.sample(possible, min(len(possible), draw.randint(0, 4)))
        }
        down = f"nic{draw.randrange(rails + 1)}"
        found = with_witnesses(used, planned, lambda nic, down=down: nic != down)  # type: ignore[misc]
        assert used <= found
        for host in range(hosts):
            of = [(nic, remote) for nic, remote, name in plan if name.startswith(f"p{host}/")]
            mine = [pair for pair in of if pair in used]
            watched = [pair for pair in of if pair in found]
            if not mine:
                assert not watched
                continue
            fit = [pair for pair in of if pair[0] != down or pair in mine]
            for side in (0, 1):
                possible_here = len({pair[side] for pair in fit})
                assert len({pair[side] for pair in watched}) >= min(WITNESSES, possible_here)
            assert len(watched) <= len(mine) + WITNESSES
            assert all(pair[0] != down for pair in watched if pair not in mine)
