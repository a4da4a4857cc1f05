"""Orders to send by another rail: what is obeyed, what is refused, and when it is over."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from syntony.model import MS, S
from syntony.model.paths import FourTuple, LinkEvent
from syntony.traffic.failover import Failover
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.instructions import Avoid, Note
from syntony.traffic.pairs import LocalNic
from syntony.traffic.path_notices import EXPIRES_NS, RENEW_NS
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.rail_moves import (
    GIVE_UP_NS,
    IS_MOVED,
    LONGEST_NS,
    MAX_MOVED,
    NOT_LEFT,
    NOT_MOVABLE,
    STANDS_IN,
    TOO_MANY,
    RailOrder,
)
from syntony.traffic.relocate import GONE, IN_HAND, MOVING

RATE_BPS = 1_000_000
POLICY = Policy(mode=FailoverMode.ACT, place=("night",))


class Rail(NamedTuple):
    tx_bps: int = RATE_BPS
    windows: int = 7
    left: bool = False


def path(rail: int) -> tuple[str, str]:
    return f"10.{rail}.0.1", f"10.{rail}.0.2"


class Host:
    """One process with some rails; two of the host's NICs exist unless told otherwise."""

    def __init__(self, rails: int = 2, policy: Policy = POLICY) -> None:
        nics = [
            LocalNic(name=f"nic{rail}", rail=rail, addresses=(path(rail)[0],))
            for rail in range(rails)
        ]
        self.failover = Failover(policy, nics, seed=1)
        self.rails = dict.fromkeys(range(rails), Rail())
        self.now_ns = 100 * S
        self.job, self.orders = "night", 0
        self.avoided: dict[tuple[str, str], int] = {}
        self.actions: list[str] = []
        self.use()

    def use(self, **_: object) -> None:
        flows = [
            ReportedFlow(
                job=self.job, token=0, nic=f"nic{rail}",
                flow=FourTuple(path(rail)[0], 0, path(rail)[1], 0), dialled=True, movable=False,
                moving=False, tx_bps=each.tx_bps, rx_bps=0, windows=each.windows, process=5,
                left=each.left,
            )
            for rail, each in self.rails.items()
        ]  # fmt: skip
        self.failover.use(frozenset(map(path, self.rails)), self.now_ns, flows)

    def order(self, rail: int, instead: int, process: int = 5) -> str:
        """Its outcome so far."""
        self.orders += 1
        order = RailOrder(
            move_id=f"m{self.orders}", process=process, path=path(rail), instead=path(instead),
            evidence="packets wait",
        )  # fmt: skip
        self._do(self.failover.move(order, self.now_ns))
        return self.result()

    def result(self, number: int = 0) -> str:
        """Of the newest order, or a numbered one."""
        found = [
            each.result
            for each in self.failover.relocation.outcomes
            if each.move_id == f"m{number or self.orders}"
        ]
        return found[-1] if found else ""

    def tried(self) -> bool:
        return self.failover.relocation.outcomes[-1].tried

    def later(self, ns: int) -> None:
        self.now_ns += ns
        self._do(self.failover.tick(self.now_ns))

    def obeyed(self, rail: int, instead: int) -> None:
        """The process sends by another one, and was read often enough to say so."""
        self.rails[rail] = Rail(0, self.rails[rail].windows + 2)
        self.rails[instead] = Rail(2 * RATE_BPS, self.rails[instead].windows + 2)
        self.use()
        self.later(1)

    def link(self, rail: int, *, up: bool) -> None:
        event = LinkEvent(
            at_ns=self.now_ns, nic=f"nic{rail}", carrier=up, admin_up=True,
            addresses=(path(rail)[0],), carrier_down_count=0 if up else 1,
        )  # fmt: skip
        self._do(self.failover.handle(event))

    def _do(self, out: list) -> None:  # type: ignore[type-arg]
        for each in out:
            if isinstance(each, Avoid):
                assert each.process == 5
                self.avoided[each.path] = each.expires_ns
            elif isinstance(each, Note) and each.process:
                self.actions.append(each.action)

    @property
    def moved(self) -> set[tuple[str, str]]:
        return {each for each, until_ns in self.avoided.items() if until_ns > self.now_ns}


def test_an_order_is_done_when_a_whole_window_has_nothing_of_the_rail() -> None:
    host = Host()
    assert host.order(0, 1) == ""
    assert host.moved == {path(0)}
    for rail in (Rail(0, 7), Rail(0, 8), Rail(1, 9)):
        host.rails[0] = rail
        host.use()
        host.later(MS)
        assert host.result() == ""
        assert host.failover.rails.moving
    host.rails[0] = Rail(0, 9)
    host.use()
    host.later(MS)
    assert host.result() == "moved"
    assert not host.failover.rails.moving
    assert host.failover.rails.moved_to == {(5, *path(0)): path(1)}
    assert host.order(0, 0) == "moved"
    assert not host.moved
    assert host.actions == ["avoid", "avoid-end"]


def test_a_process_that_goes_on_sending_is_let_go() -> None:
    host = Host()
    host.order(0, 1)
    host.later(GIVE_UP_NS - 1)
    assert host.moved == {path(0)}
    host.later(1)
    assert host.result() == NOT_LEFT
    assert host.tried(), "the controller leaves it alone for a while"
    assert not host.moved


def test_orders_are_renewed_and_expire_without_the_agent() -> None:
    host = Host()
    host.order(0, 1)
    host.obeyed(0, 1)
    host.failover.confirm(frozenset({"m1"}))
    first_ns = host.avoided[path(0)]
    assert first_ns == 100 * S + EXPIRES_NS
    due_ns = host.failover.rails.due_ns()
    assert due_ns == 100 * S + RENEW_NS
    host.later(due_ns - host.now_ns)
    assert host.avoided[path(0)] == due_ns + EXPIRES_NS
    assert host.failover.rails.due_ns() == due_ns + RENEW_NS
    later_ns = host.failover.next_due_ns()
    assert later_ns is not None
    assert later_ns <= due_ns + RENEW_NS, "the reactor looks in time"


def test_no_move_is_for_ever() -> None:
    host = Host()
    host.order(0, 1)
    host.obeyed(0, 1)
    host.failover.confirm(frozenset({"m1"}))
    host.later(LONGEST_NS - 2)
    assert host.moved == {path(0)}
    host.later(1)
    assert not host.moved
    assert host.result() == "moved", "what the controller knows stays"


@pytest.mark.parametrize(
    ("share", "confirmed", "stays"),
    [(0.89, False, False), (0.91, False, True), (0.5, True, True)],
)
def test_an_unconfirmed_move_that_made_it_worse_is_taken_back(
    share: float, confirmed: bool, stays: bool
) -> None:
    host = Host()
    host.order(0, 1)
    host.obeyed(0, 1)
    host.rails[1] = Rail(round(2 * RATE_BPS * share), 20)
    host.use()
    if confirmed:
        host.failover.confirm(frozenset({"m1"}))
    host.later(POLICY.confirm_ns - 1)
    assert host.moved == {path(0)}
    host.later(1)
    assert bool(host.moved) is stays
    assert host.result() == ("moved" if stays else "reverted")


def test_what_stands_in_fails() -> None:
    for fail in ("carrier", "left", "gone"):
        host = Host()
        host.order(0, 1)
        host.obeyed(0, 1)
        if fail == "carrier":
            host.link(1, up=False)
        elif fail == "left":
            host.rails[1] = Rail(0, 20, left=True)
        else:
            del host.rails[1]
        host.use()
        host.later(1)
        assert not host.moved, fail
        assert host.failover.rails.moved_to == {}


def test_what_stands_in_fails_before_the_process_has_obeyed() -> None:
    host = Host()
    host.order(0, 1)
    host.link(1, up=False)
    host.later(1)
    assert host.result() == IN_HAND
    assert not host.tried(), "nothing is known of the rail: later it may be tried"


def test_refusals() -> None:
    host = Host(rails=4)
    assert host.order(0, 1, process=6) == GONE
    assert host.order(0, 1) == ""
    assert host.order(0, 2) == MOVING
    host.obeyed(0, 1)
    assert host.order(1, 2) == STANDS_IN
    assert host.order(2, 0) == IS_MOVED
    assert host.order(2, 1) == ""
    host.obeyed(2, 1)
    assert host.order(0, 3) == "", "another one stands in from now on"
    host.later(1)
    assert host.order(3, 1) == STANDS_IN
    host.link(3, up=False)
    host.later(1)
    assert host.order(1, 3) == STANDS_IN
    assert host.order(0, 3) == IN_HAND
    assert host.order(3, 1) == IN_HAND
    host.job = "day"
    host.use()
    assert host.order(0, 1) == NOT_MOVABLE


def test_a_process_has_so_many_orders_at_once() -> None:
    host = Host(rails=MAX_MOVED + 2)
    for rail in range(1, MAX_MOVED + 1):
        assert host.order(rail, 0) == ""
        host.obeyed(rail, 0)
    assert host.order(MAX_MOVED + 1, 0) == TOO_MANY


@pytest.mark.parametrize("how", ["observe", "stop"])
def test_nothing_is_done_where_nothing_may_be(how: str) -> None:
    mode = FailoverMode.OBSERVE if how == "observe" else FailoverMode.ACT
    host = Host(policy=Policy(mode=mode, place=("*",)))
    if how == "stop":
        host.order(0, 1)
        host.failover.stop(stopped=True, now_ns=host.now_ns)
        host.later(1)
        assert host.result() == NOT_MOVABLE
        assert host.failover.rails.moved_to == {}
    assert host.order(0, 1) == NOT_MOVABLE
    assert host.failover.rails.due_ns() is None
