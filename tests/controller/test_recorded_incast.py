"""Pacing of queue pairs, from what a controller saw of an incast between virtual machines.

`recorded/incast_over_verbs.csv` is from `syntony lab drill incast --over verbs` (Soft-RoCE, two
senders, two rails of 0.5 Mb/s): every half second, for each flow to the receiver, its rate and the
newest delay of probes between its NICs. Nothing was paced then; the second sender joins after 11 s.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from syntony.controller.config import PacingConfig, PlacementMode
from syntony.controller.flow_delays import DelaySecond, PathDelays, ProbeSecond
from syntony.controller.flow_table import FlowTable
from syntony.controller.pacing import PacingService
from syntony.fabric.book import Way
from syntony.lab.drill.incast import VERBS_SPEC
from syntony.lab.plan import make_plan
from syntony.lab.topology import topology
from syntony.model import MS, S
from syntony.model.names import host_of
from syntony.traffic.classes import Classes
from syntony.traffic.pace_policy import PacePolicy
from syntony.wire.traffic import FlowsReport, FlowView

RECORDED = Path(__file__).parent / "recorded" / "incast_over_verbs.csv"
PLAN = make_plan(msgspec.structs.replace(VERBS_SPEC, hosts=3))
ADDRESSES = {f"{link.a}": link.a.ipv4 for link in PLAN.links}
JOINED_NS = 11 * S
PROCESS = 7


class Row(NamedTuple):
    """One flow at one instant."""

    at_ns: int
    src: str
    dst: str
    tx_bps: int
    owd_p50_ns: int
    owd_at_ns: int


def rows() -> list[Row]:
    with RECORDED.open(newline="", encoding="ascii") as lines:
        return [
            Row(int(at), src, dst, int(bps), int(delay), int(delay_at))
            for at, src, dst, bps, delay, delay_at in list(csv.reader(lines))[1:]
        ]


def view(row: Row) -> FlowView:
    nic = row.src.partition("/")[2]
    return FlowView(
        job="incast", connection=f"rdma-{PROCESS}", nic=nic, local=ADDRESSES[row.src],
        local_port=0, remote=ADDRESSES[row.dst], remote_port=0, dialled=True, movable=True,
        moving=False, tx_bps=row.tx_bps, rx_bps=0, windows=3, hops=(), paceable=True,
        process=PROCESS,
    )  # fmt: skip


@pytest.fixture
def orders() -> list[tuple[int, dict[tuple[str, str], int]]]:
    """Instant, and rates by host and the receiver's address, of every round with orders."""
    fabric = topology(PLAN)
    table = FlowTable(fabric, Classes(()))
    table.nics({address: nic for nic, address in ADDRESSES.items()})
    policy = PacePolicy(queue_ns=73 * MS)  # three frames, as of every lab
    config = PacingConfig(mode=PlacementMode.ACT, policy=policy)
    service = PacingService(config, fabric, table, Classes(()))
    delays, known, found = PathDelays(), set(), []
    for at_ns, some in groupby(rows(), lambda row: row.at_ns):
        views: defaultdict[str, list[FlowView]] = defaultdict(list)
        for row in some:
            views[host_of(row.src)].append(view(row))
            if row[1:3] + row[4:] not in known:
                known.add(row[1:3] + row[4:])
                second = DelaySecond(row.owd_at_ns, row.owd_p50_ns, row.owd_p50_ns)
                ends = table.ends(Way(row.src, row.dst, 0, 0))
                delays.add([ProbeSecond(row.src, row.dst, ends, second, row.owd_p50_ns)])
        reports = {
            host: FlowsReport(
                at_ns=at_ns, flows=tuple(flows), outcomes=(), delays=(), join_port=8621
            )
            for host, flows in views.items()
        }
        given, _ = service.step(at_ns, reports, delays.queues(at_ns), (), deciding=True)
        rates = {
            (host, pace.remote): pace.bps for host, order in given.items() for pace in order.paces
        }
        if rates:
            found.append((at_ns, rates))
    return found


def test_queue_pairs_that_share_the_receivers_links_are_paced(
    orders: list[tuple[int, dict[tuple[str, str], int]]],
) -> None:
    assert orders, "flows of a slow link count"
    assert orders[0][0] > JOINED_NS, "one sender waits for nobody"
    remotes = {ADDRESSES[f"h0/rail{rail}"] for rail in range(VERBS_SPEC.rails)}
    assert {flow for _, rates in orders for flow in rates} == {
        (host, remote) for host in ("h1", "h2") for remote in remotes
    }
    for _, rates in orders:
        for remote in {remote for _, remote in rates}:
            together = sum(bps for (_, to), bps in rates.items() if to == remote)
            assert 0.6 * VERBS_SPEC.rate_bps < together < VERBS_SPEC.rate_bps
