"""Failover's table of connections, and what it has watched and when."""

from __future__ import annotations

import errno

from tests.traffic.flow_samples import flow_sample
from tests.traffic.one_end import (
    APP,
    NOW,
    POLICY,
    Host,
    here,
    life,
    machine,
    nics,
    of,
    there,
    watched,
)

from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.traffic import events
from syntony.traffic.connection import RemoteAddress, Subflow, SubflowState
from syntony.traffic.connection_table import ConnectionTable
from syntony.traffic.failover import WATCH_EVERY_NS, Failover
from syntony.traffic.instructions import (
    Create,
    KernelRefusal,
    WatchPaths,
)
from syntony.traffic.pairs import Reply
from syntony.traffic.policy import FailoverMode, Policy


def test_a_port_that_the_kernel_refused_is_not_drawn_again() -> None:
    policy = Policy(mode=FailoverMode.ACT, port_low=61_000, port_high=61_001)
    host = Host(policy)
    host.announced(1, policy.port)
    table = ConnectionTable(policy, host.health, host.steering.ports)
    table.by_token[7] = host.conn
    (create,) = of(host.settle(), Create)
    refused = KernelRefusal(at_ns=NOW, instruction=create, errno=errno.EADDRNOTAVAIL)
    table.take(host.conn, refused)
    assert create.flow not in host.conn.subflows
    drawn = {host.steering.ports.draw(here(1), there(1)) for _ in range(20)}
    assert drawn == {61_000, 61_001} - {create.flow.local_port}


def ticked(found: Failover, until_ns: int) -> list[tuple[int, object]]:
    out: list[tuple[int, object]] = []
    while (due_ns := found.next_due_ns()) is not None and due_ns <= until_ns:
        out += [(due_ns, each) for each in found.tick(due_ns)]
    return out


def test_what_a_connection_uses_is_watched_soon_after_it_has_changed() -> None:
    found = machine()
    out = ticked(found, NOW + WATCH_EVERY_NS)
    planned = {("nic0", there(0)), ("nic1", there(1))}
    assert [each.paths for _, each in out if isinstance(each, WatchPaths)][-1] == planned
    at_ns = NOW + 3 * WATCH_EVERY_NS
    found.handle(events.AddressAnnounced(
        at_ns=at_ns, token=7, remote_id=2, address="10.1.0.9", port=POLICY.port
    ))  # fmt: skip
    watches = [
        each for _, each in ticked(found, at_ns + WATCH_EVERY_NS) if isinstance(each, WatchPaths)
    ]
    assert watches[-1].paths == planned | {("nic1", "10.1.0.9")}
    gone_ns = at_ns + 10 * WATCH_EVERY_NS
    found.handle(events.ConnectionDown(at_ns=gone_ns, token=7))
    watches = [
        each for _, each in ticked(found, gone_ns + WATCH_EVERY_NS) if isinstance(each, WatchPaths)
    ]
    assert watches[-1].paths == frozenset()


def test_changes_that_follow_each_other_are_looked_at_together() -> None:
    found = machine()
    ticked(found, NOW + WATCH_EVERY_NS)
    found.handle(events.ConnectionDown(at_ns=NOW + S, token=7))
    (first,) = (at_ns for at_ns, each in ticked(found, NOW + 2 * S) if isinstance(each, WatchPaths))
    assert first == NOW + S, "the first one at once"
    again_ns = first + WATCH_EVERY_NS // 5
    for token in (8, 9):
        port = 33_000 + token
        found.handle(events.ConnectionUp(
            at_ns=again_ns, token=token, flow=FourTuple(here(0), port, there(0), APP),
            accepted=False,
        ))  # fmt: skip
        found.handle(events.JobFound(at_ns=again_ns, token=token, job="train"))
    seen = [at_ns for at_ns, each in ticked(found, NOW + 2 * S) if isinstance(each, WatchPaths)]
    assert seen == [first + WATCH_EVERY_NS]


def test_only_what_a_job_uses_is_watched() -> None:
    found = Failover(POLICY, nics(), 1)
    found.watch(watched(), NOW)
    flow = FourTuple(here(0), 33_000, there(0), APP)
    found.handle(events.ConnectionUp(at_ns=NOW, token=7, flow=flow, accepted=False))
    assert found.table.pairs() == set(), "nobody knows yet whose it is"
    found.handle(events.JobFound(at_ns=NOW, token=7, job=""))
    assert found.table.pairs() == set()
    found.handle(events.JobFound(at_ns=NOW, token=7, job="train"))
    assert found.table.pairs() == {("nic0", there(0)), ("nic1", there(1))}


def test_news_of_a_connection_that_nobody_knows_are_borne() -> None:
    flow = FourTuple(here(0), 33_000, there(0), APP)
    news = events.SubflowUp(at_ns=NOW, token=99, flow=flow, local_id=1, remote_id=1)
    assert machine().handle(news) == []


def test_a_path_that_was_presumed_dead_and_answers_is_looked_at_at_once() -> None:
    found = machine()
    conn = found.connections[7]
    conn.remotes[2] = RemoteAddress(there(1), POLICY.port, 1)
    assert not [each for each in found.tick(NOW, revived=False) if isinstance(each, Create)]
    assert [each for each in found.tick(NOW, revived=True) if isinstance(each, Create)]


def test_a_second_of_progress_is_a_rate() -> None:
    subflow = Subflow(FourTuple(here(0), 1, there(0), 2), "nic0", SubflowState.UP, 0)

    def take(at_ns: int, acked: int) -> None:
        subflow.take(
            flow_sample(subflow.flow, at_ns, bytes_acked=acked),
            POLICY,
        )  # fmt: skip

    take(0, 1_000)
    take(S, 1_001_000)
    assert subflow.rate_bps == 8_000_000
    take(S + S // 2, 1_001_000)
    assert subflow.rate_bps == 4_000_000, "half a second counts half"
    take(4 * S, 1_001_000)
    assert subflow.rate_bps == 0
    take(5 * S, 500)
    assert subflow.rate_bps == 0, "counters that go back are no progress"


def test_answers_are_those_of_flows_that_live() -> None:
    host = Host()
    replies = {0: Reply(5), 1: Reply(9, silent=True), 10: Reply(7), 99: Reply(50)}
    found = host.health.answers(replies)
    assert {pair: (its.newest_ns, its.flows, its.host) for pair, its in found.items()} == {
        ("nic0", there(0)): (9, 2, "peer"), ("nic1", there(1)): (7, 1, "peer")
    }  # fmt: skip
    host.health.liveness(life(1, NOW, alive=False))
    assert host.health.answers(replies)["nic0", there(0)].newest_ns == 5
