"""The pacing desk: what agents report in, rates by host out; none without a reason."""

from __future__ import annotations

import pytest
from tests.controller.placed import RATE_BPS, Fabric

from syntony.controller.config import PacingConfig, PlacementMode
from syntony.controller.flow_delays import DelaySecond, PathDelays, ProbeSecond
from syntony.controller.flow_table import FlowTable
from syntony.controller.pacing import EXPIRY_NS, PacingService
from syntony.fabric.graph import Cable, Device, make_topology
from syntony.fabric.names import ComponentKind
from syntony.model import MS, S
from syntony.traffic.classes import Classes, JobClass
from syntony.traffic.meter import HEADERS
from syntony.traffic.pace_policy import PacePolicy
from syntony.traffic.pacing import LinkQueue
from syntony.wire.traffic import FlowsReport, FlowView, Paces

LAST = "leaf0->h0/rail0"
POLICY = PacePolicy(queue_ns=MS, after_ns=0)
SENDERS = ("h1", "h2", "h4", "h5")


class Incast:
    """Some hosts send to h0; agents do as they are reported."""

    def __init__(
        self, mode: PlacementMode = PlacementMode.ACT, classes: tuple[JobClass, ...] = ()
    ) -> None:
        self.fabric = Fabric()
        reported = Classes(classes)
        table = FlowTable(self.fabric.topology, reported)
        table.nics({self.fabric.address(h): f"{h}/rail0" for h in self.fabric.hosts})
        config = PacingConfig(mode=mode, policy=POLICY)
        self.service = PacingService(config, self.fabric.topology, table, reported)
        self.rate = {host: RATE_BPS / len(SENDERS) / HEADERS for host in SENDERS}
        self.jobs = dict.fromkeys(SENDERS, "train")
        self.paceable = True
        self.held: dict[str, Paces] = {}
        self.rows: list[str] = []
        self.late = 0

    def view(self, host: str) -> FlowView:
        return FlowView(
            job=self.jobs[host], connection="0000000a", nic="rail0",
            local=self.fabric.address(host), local_port=40_000,
            remote=self.fabric.address("h0"), remote_port=5_000, dialled=True, movable=True,
            moving=False, tx_bps=int(self.rate[host]), rx_bps=0, windows=3, hops=(),
            paceable=self.paceable,
        )  # fmt: skip

    def step(
        self, at_ns: int, queue_ns: int = 20 * MS, *, deciding: bool = True
    ) -> dict[str, Paces]:
        reports = {
            host: FlowsReport(
                at_ns=at_ns,
                flows=(self.view(host),),
                outcomes=(),
                delays=(),
                join_port=8621,
                late_paces=self.late if host == "h1" else 0,
            )
            for host in SENDERS
        }
        queues = {LAST: LinkQueue(at_ns, queue_ns)}
        orders, rows = self.service.step(at_ns, reports, queues, (), deciding=deciding)
        self.held |= orders
        self.rows += [str(row.rows.column("action")[0]) for row in rows]
        return orders

    def bps(self, host: str) -> int:
        return self.held[host].paces[0].bps


def test_every_sender_gets_its_share_and_an_order_that_ends() -> None:
    world = Incast()
    orders = world.step(100 * S)
    assert orders.keys() == set(SENDERS)
    assert all(order.expires_ns == 100 * S + EXPIRY_NS for order in orders.values())
    assert sum(world.bps(host) for host in SENDERS) == pytest.approx(0.95 * RATE_BPS, rel=0.01)
    assert world.service.links[LAST] == pytest.approx(0.95 * RATE_BPS, rel=0.01)
    assert world.rows == ["pace"]


def test_hosts_that_refuse_late_rates_are_logged_once_a_minute() -> None:
    world = Incast()
    world.late = 7  # of another controller, or of its time before
    for second in range(200):
        if second == 100:
            world.late = 0  # the agent restarts
        world.late += 20 <= second < 110
        world.step(100 * S + second * S)
        late = world.rows.count("pace-late")
        assert late == (second >= 20) + (second >= 80) + (second >= 140), second


def test_orders_are_repeated_before_they_end_and_not_more() -> None:
    world = Incast()
    few_ns = 7 * MS // 10  # no reason to change anything
    reported = [bool(world.step(100 * S + k * S // 4, few_ns if k else 20 * MS)) for k in range(9)]
    assert reported == [True, False, False, False, True, False, False, False, True]


def test_observing_says_what_it_would_and_orders_nothing() -> None:
    world = Incast(PlacementMode.OBSERVE)
    assert not any(world.step(100 * S + k * S) for k in range(5))
    assert world.rows == ["pace"]
    assert not world.service.links


@pytest.mark.parametrize("mode", [PlacementMode.OFF, PlacementMode.ACT])
def test_who_is_off_or_has_no_lease_orders_nothing(mode: PlacementMode) -> None:
    world = Incast(mode)
    assert not world.step(100 * S, deciding=mode is PlacementMode.OFF)
    assert not world.rows


def test_a_lease_that_is_lost_is_the_end_and_a_new_one_a_new_start() -> None:
    world = Incast()
    assert world.step(100 * S)
    assert not world.step(101 * S, deciding=False)
    assert world.step(102 * S).keys() == set(SENDERS)


def test_an_operator_switches_it_on_and_off() -> None:
    world = Incast(PlacementMode.OBSERVE)
    assert not world.step(100 * S)
    row = world.service.set_mode(PlacementMode.ACT, "me", "incast", 100 * S)
    assert str(row.rows.column("action")[0]) == "pacing-act"
    assert world.step(100 * S + S // 4).keys() == set(SENDERS)
    world.service.set_mode(PlacementMode.OBSERVE, "me", "", 101 * S)
    assert not world.step(101 * S), "hosts let go when the last order ends"
    world.service.set_mode(PlacementMode.ACT, "me", "", 101 * S)
    assert world.step(101 * S + S // 4).keys() == set(SENDERS), "at once"


def test_jobs_that_did_not_opt_in_are_left_alone() -> None:
    world = Incast()
    world.paceable = False
    assert not world.step(100 * S)


def test_a_guaranteed_job_has_what_it_uses_first() -> None:
    gold = JobClass(jobs=("gold",), priority="guaranteed")
    world = Incast(classes=(gold, JobClass(jobs=("bulk",), priority="scavenger")))
    world.jobs = {"h1": "gold", "h2": "train", "h4": "train", "h5": "bulk"}
    world.step(100 * S)
    world.rate["h1"] = 0.4 * RATE_BPS / HEADERS
    for k in range(1, 30):
        world.step(100 * S + k * S // 4, 0)
    assert world.bps("h1") >= 0.4 * RATE_BPS
    assert world.bps("h2") == pytest.approx(world.bps("h4"), rel=0.3)
    assert world.bps("h5") < 0.5 * world.bps("h2")


def test_whose_flow_has_gone_is_told_to_hold_nothing() -> None:
    world = Incast()
    world.step(100 * S)
    world.rate["h5"] = 0.0
    view = world.view
    world.view = lambda host: view(host) if host != "h5" else _ended(view(host))  # type: ignore[method-assign]
    assert world.step(101 * S)["h5"].paces == ()


def _ended(view: FlowView) -> FlowView:
    import msgspec

    return msgspec.structs.replace(view, windows=0)


@pytest.mark.parametrize(
    ("nic_bps", "least"),
    [(500_000, 50_000), (10**7, 10**6), (10**8, 10**6), (4 * 10**11, 4 * 10**9)],
)
def test_what_counts_as_a_large_flow_depends_on_the_nic(nic_bps: int, least: float) -> None:
    nic = Device(name="h0/rail0", kind=ComponentKind.NIC, addresses=("10.0.0.1",))
    leaf = Device(name="leaf0", kind=ComponentKind.LEAF, addresses=("leaf0",))
    topology = make_topology([nic, leaf], [Cable(a="h0/rail0", b="leaf0", gbps=nic_bps / 1e9)])
    table = FlowTable(topology, Classes(()))
    assert table.least_bps("h0/rail0") == pytest.approx(least)
    assert table.least_bps("h1/rail0") == 10**6, "a NIC of unknown rate"


def second(src: str, *links: str, p50_ns: int, at_ns: int = 10 * S) -> ProbeSecond:
    return ProbeSecond(src, "h0/rail0", (*links, LAST), DelaySecond(at_ns, p50_ns, p50_ns), 1_000)


def test_a_queue_is_what_all_that_cross_a_link_wait() -> None:
    delays = PathDelays()
    delays.add([
        second("h1/rail0", "h1/rail0->leaf0", p50_ns=MS),
        second("h2/rail0", "h2/rail0->leaf0", p50_ns=9 * MS),
        second("h3/rail0", "h3/rail0->leaf0", p50_ns=9 * MS),
        second("h4/rail0", "h4/rail0->leaf1", "leaf1->spine0", "spine0->leaf0", p50_ns=12 * MS),
    ])  # fmt: skip
    queues = delays.queues(11 * S)
    assert queues[LAST] == LinkQueue(10 * S, 9 * MS - 1_000), "one odd path does not count"
    assert queues["h1/rail0->leaf0"].queue_ns == MS - 1_000
    assert not delays.queues(60 * S)
