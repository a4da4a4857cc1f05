"""Connections with fewer paths than rails: which are missed, and what is in the way."""

from __future__ import annotations

import pytest
from tests.traffic.network import Host as NetworkHost
from tests.traffic.network import World, moves, notes, rail_of
from tests.traffic.one_end import (
    NOW,
    POLICY,
    Host,
    here,
    life,
    nics,
    of,
    there,
    watched,
)

from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic.connection import MptcpConnection, SubflowState
from syntony.traffic.health import Health
from syntony.traffic.instructions import (
    Cause,
    Note,
    Reason,
)
from syntony.traffic.pairs import LocalNic
from syntony.traffic.redundancy import DEGRADED_NS, Redundancy

PROBED = 8620
"""Port that probes go to."""


@pytest.mark.parametrize("six", [False, True])
def test_only_rails_that_both_hosts_have_in_the_connections_family_are_missed(six: bool) -> None:
    host = Host(rails=2, six=six)
    redundancy = Redundancy(host.health)
    alive = [host.conn.subflows[host.first]]
    assert [nic.name for nic in redundancy.missing(host.conn, alive)] == ["nic1"]
    assert [nic.name for nic in redundancy.missing(host.conn, [])] == ["nic0", "nic1"]
    fewer = [flow for flow in watched() if flow.remote_rail == 0]
    host.health.watch(fewer)
    assert redundancy.missing(host.conn, alive) == [], "the peer has no NIC on the other rail"
    host.health.watch([])
    missed = redundancy.missing(host.conn, alive)
    assert [nic.name for nic in missed] == ["nic1"], "of a peer that nobody knows all is expected"


def test_a_rail_that_the_peer_has_in_the_other_family_only_is_not_missed() -> None:
    host = Host(six=True)
    flows = [each._replace(others=()) if each.remote_rail else each for each in watched()]
    host.health.watch(flows)
    alive = [host.conn.subflows[host.first]]
    assert Redundancy(host.health).missing(host.conn, alive) == []


def test_rails_without_an_address_of_the_family_are_not_missed() -> None:
    health = Health(POLICY, [*nics(1), LocalNic(name="nic1", rail=1, addresses=("fd01::1",)),
                             LocalNic(name="nic2", rail=2, addresses=())])  # fmt: skip
    conn = MptcpConnection(7, 0, accepted=False)
    conn.local = here(0)
    missed = [nic.name for nic in Redundancy(health).missing(conn, [])]
    assert missed == ["nic0", "nic2"], "one without any address is down"


def obstacle(host: Host) -> str:
    host.settle(NOW)
    turn = host.settle(NOW + DEGRADED_NS)
    notes = [each for each in of(turn, Note) if each.action == "degraded"]
    assert all((each.token, each.job) == (7, "train") for each in notes), "whose it is"
    return notes[0].reason.evidence if notes else ""


def test_a_degraded_connection_says_what_is_in_the_way() -> None:
    dead = Host()
    dead.announced(1)
    dead.kill(1)
    assert "4 probes unanswered" in obstacle(dead)
    down = Host()
    down.carrier("nic1", up=False)
    assert "no carrier" in obstacle(down)
    stuck = Host()
    flow = FourTuple(here(1), 61_000, there(1), POLICY.port)
    stuck.add(flow, "nic1").stalled = Reason(Cause.FABRIC, "", NOW, NOW)
    stuck.conn.subflows[flow].state = SubflowState.UP
    assert (
        Redundancy(stuck.health)
        ._obstacle(stuck.conn, nics()[1], NOW)
        .endswith("its data are not acknowledged")
    )
    waiting = Host(accepted=True)
    assert obstacle(waiting) == "1 of 2 paths: nic1: the peer has not joined"
    unknown = Host()
    unknown.health.watch([])
    unknown.announced(0)
    assert "announced no address of its rail" in obstacle(unknown)
    held = Host()
    held.announced(1)
    held.kill(1)
    for flow_id in (10, 11):
        held.health.liveness(life(flow_id, NOW, alive=True))
    assert "held down for 1.0 s more" in Redundancy(held.health)._obstacle(
        held.conn, nics()[1], NOW
    )


@pytest.mark.parametrize("draw", range(6))
def test_a_path_that_answers_and_carries_no_data_is_held_down_for_its_data(draw: int) -> None:
    """Probes and joins are small and pass, full segments do not: an MTU that one switch lacks."""
    world = BigPacketsVanish(draw)
    world.run(world.random.randrange(2_000, 5_000) * MS)
    world.vanishing = True
    world.run(20 * S)
    degraded = [note.reason.evidence for note in notes(world) if note.action == "degraded"]
    print(degraded)
    assert any("its data were not acknowledged, held down for" in each for each in degraded)
    assert not any("0 joins" in each for each in degraded)
    assert world.living("a"), "the other rail goes on"
    assert len(moves(world)) < 30, "it is tried again, more and more rarely"


class BigPacketsVanish(World):
    vanishing = False

    def dead(self, flow: FourTuple) -> bool:
        probes = PROBED in {flow.local_port, flow.remote_port}
        return super().dead(flow) or (self.vanishing and not probes and rail_of(flow.local) == 0)

    def _join(self, host: NetworkHost, flow: FourTuple, local_id: int) -> None:
        vanishing, self.vanishing = self.vanishing, False
        super()._join(host, flow, local_id)
        self.vanishing = vanishing


def reported(host: Host, now_ns: int) -> list[Note]:
    """Of a connection that the peer joins, so that nothing is reported joins of ours."""
    return of(host.settle(now_ns), Note)


@pytest.mark.parametrize("short_ns", [DEGRADED_NS, 7 * S + 240 * MS])
def test_a_connection_that_is_whole_again_says_for_how_long_it_was_not(short_ns: int) -> None:
    host = Host(accepted=True)
    assert reported(host, NOW) == []
    (degraded,) = reported(host, NOW + 5 * S)
    assert (degraded.action, degraded.reason.since_ns) == ("degraded", NOW)
    host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    (whole,) = reported(host, NOW + short_ns)
    assert (whole.action, whole.token, whole.job) == ("whole", 7, "train")
    assert whole.reason.evidence == f"a path on every rail again after {short_ns / 1e9:.1f} s"
    host.conn.subflows.popitem()
    assert reported(host, NOW + short_ns + MS) == [], "not degraded at once again"


def test_one_that_is_whole_again_in_time_was_never_degraded() -> None:
    host = Host(accepted=True)
    assert NOW + 5 * S in host.settle(NOW).dues
    assert reported(host, NOW + 5 * S - 1) == []
    host.add(FourTuple(here(1), 61_000, there(1), POLICY.port), "nic1")
    assert reported(host, NOW + 5 * S - 1) == []
    host.conn.subflows.popitem()
    assert reported(host, NOW + 5 * S) == [], "from now on"
