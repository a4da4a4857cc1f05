"""The agent's own code moves queue pairs of the plug-in to another rail, over the fake provider."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.nccl import provider

from syntony.agent.job_link import JobLink
from syntony.agent.steering.orders import flows_report, order_of
from syntony.agent.steering.view import View
from syntony.model import S
from syntony.model.paths import LinkEvent
from syntony.traffic.failover import Failover
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.instructions import Avoid, Notice
from syntony.traffic.pairs import LocalNic
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.rail_moves import NOT_LEFT, RailOrder
from syntony.wire.traffic import FlowView, Move

PATIENCE_S = 300
RAILS = ("10.0.0.1", "10.0.0.2")


class Side:
    """The reactor's logic on the page of a real process."""

    def __init__(self, link: JobLink) -> None:
        self.link = link
        nics = [LocalNic(name=f"rail{k}", rail=k, addresses=(at,)) for k, at in enumerate(RAILS)]
        policy = Policy(mode=FailoverMode.ACT, place=("night",), confirm_ns=3600 * S)
        self.failover = Failover(policy, nics, seed=1)
        self.view = View(self.failover, lambda _: "")
        self.orders = 0

    def look(self) -> dict[str, FlowView]:
        """What the controller would hear after the next half second, by local address."""
        time.sleep(0.5)
        self.link.report()
        rails = self.link.rates.flows({at: f"rail{k}" for k, at in enumerate(RAILS)})
        self.failover.use(self.link.paths, time.monotonic_ns(), rails)
        self.tick()
        flows: tuple[ReportedFlow, ...] = self.view.rails(rails)
        report = flows_report(flows, (), lambda *_: (), fleet_ns=S, join_port=0)
        return {view.local: view for view in report.flows}

    def tick(self) -> None:
        for each in self.failover.tick(time.monotonic_ns()):
            if isinstance(each, Avoid | Notice):
                self.link.do(each)
        self.view.take_flows()

    def move(self, view: FlowView, instead: FlowView) -> str:
        """As the controller orders it; its id."""
        self.orders += 1
        move = Move(
            move_id=f"m{self.orders}", connection=view.connection, local=view.local, local_port=0,
            remote=view.remote, remote_port=0, port=0, expires_ns=S, evidence="crowded",
            process=view.process, instead=(instead.local, instead.remote),
        )  # fmt: skip
        order = order_of(move, 0)
        assert isinstance(order, RailOrder)
        for each in self.failover.move(order, time.monotonic_ns()):
            if isinstance(each, Avoid):
                self.link.do(each)
        return move.move_id

    def have_moved(self, local: str, instead: str) -> dict[str, FlowView]:
        """Move, until all goes by the other one; ordered again where a slow machine was late."""
        views = self.until(both)
        while True:
            move = self.move(views[local], views[instead])
            views = self.until(lambda views: not views[local].moving)
            if self.results()[move] == "moved":
                assert not views[local].tx_bps
                return views
            assert self.results()[move] == NOT_LEFT

    def results(self) -> dict[str, str]:
        return {each.move_id: each.result for each in self.view.outcomes}

    def until(self, true: Callable[[dict[str, FlowView]], bool]) -> dict[str, FlowView]:
        end_s = time.monotonic() + PATIENCE_S
        while True:
            views = self.look()
            if len(views) == len(RAILS) and true(views):
                return views
            assert time.monotonic() < end_s, views


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    with provider.sending(tmp_path) as link:
        yield Side(link)


def both(views: dict[str, FlowView]) -> bool:
    return all(view.tx_bps and not view.left for view in views.values())


def test_queue_pairs_of_one_rail_go_by_the_other_and_return(side: Side) -> None:
    first, second = RAILS
    views = side.until(both)
    assert all(view.movable and view.moved_to is None for view in views.values())
    views = side.have_moved(first, second)
    assert views[first].moved_to == (views[second].local, views[second].remote)
    assert not views[first].left, "its queue pairs are there"
    back = side.move(views[first], views[first])
    views = side.until(both)
    assert views[first].moved_to is None
    assert side.results()[back] == "moved"


def test_the_stop_switch_ends_a_move(side: Side) -> None:
    first, second = RAILS
    side.have_moved(first, second)
    side.failover.stop(stopped=True, now_ns=time.monotonic_ns())
    side.link.stop(stopped=True)
    views = side.until(both)
    assert not any(view.movable or view.moved_to for view in views.values())


def test_what_moved_returns_before_the_rail_that_stood_in_is_said_to_be_dead(side: Side) -> None:
    first, second = RAILS
    side.have_moved(first, second)
    event = LinkEvent(
        at_ns=time.monotonic_ns(), nic="rail1", carrier=False, admin_up=True, addresses=(second,),
        carrier_down_count=1,
    )  # fmt: skip
    side.failover.handle(event)
    out = side.failover.tick(time.monotonic_ns())
    order = [type(each) for each in out if isinstance(each, Avoid | Notice)]
    assert order == [Avoid, Notice]
