"""What an agent holds back: what it was told, what it may, and for no longer than it was told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from syntony.agent.pacing import LINGER_NS, LONGEST_NS, RETRY_NS, PaceKeeper, socket_key
from syntony.errors import MissingError
from syntony.io.pacing import Paced
from syntony.model import MS, S
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.policy import FailoverMode, Policy
from syntony.wire.traffic import Pace, Paces

FOUR = FourTuple("10.0.0.1", 61_000, "10.0.0.2", 8_621)
FLEET_NS = 1_000 * S


class Kernel:
    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.requested: list[dict[Paced, int]] = []
        self.closed: list[bool] = []

    def set(self, rates: Mapping[Paced, int]) -> None:
        self.requested.append(dict(rates))
        if self.refuses and rates:
            raise MissingError("no tc")

    def close(self) -> None:
        self.closed.append(True)


def flow(job: str = "train-1", four: FourTuple = FOUR) -> ReportedFlow:
    return ReportedFlow(
        job=job, token=7, nic="rail0", flow=four, dialled=True, movable=True, moving=False,
        tx_bps=10**7, rx_bps=0, windows=3,
    )  # fmt: skip


def keeper(kernel: Kernel, mode: FailoverMode = FailoverMode.ACT) -> PaceKeeper[Paced]:
    return PaceKeeper(Policy(mode=mode, pace=("train-*",)), kernel, socket_key)


def paces(bps: int = 5_000_000, good_ns: int = 3 * S) -> Paces:
    return Paces(paces=(Pace(**FOUR._asdict(), bps=bps),), expires_ns=FLEET_NS + good_ns)


def test_what_was_told_is_done_once_and_ends_with_the_order() -> None:
    kernel = Kernel()
    it = keeper(kernel)
    it.take(paces(), FLEET_NS, 0)
    for at_ns in (0, S, 2 * S):
        it.tick([flow()], at_ns, stopped=False)
    assert kernel.requested == [{("rail0", FOUR): 5_000_000}]
    it.tick([flow()], 3 * S, stopped=False)
    assert kernel.requested[1:] == [{}], "nobody has told it again"
    assert not it.in_force
    it.tick([], 3 * S + LINGER_NS - MS, stopped=False)
    assert not kernel.closed, "its queues may still have to drain"
    it.tick([], 3 * S + LINGER_NS, stopped=False)
    it.tick([], 9 * S + LINGER_NS, stopped=False)
    assert len(kernel.closed) == 1


@pytest.mark.parametrize(
    ("what", "message", "fleet_ns"),
    [
        ("too late", paces(good_ns=0), FLEET_NS),
        ("no fleet time", paces(), None),
        ("no rate", paces(bps=0), FLEET_NS),
    ],
)
def test_orders_that_are_not_obeyed(what: str, message: Paces, fleet_ns: int | None) -> None:
    kernel = Kernel()
    it = keeper(kernel)
    it.take(message, fleet_ns, 0)
    it.tick([flow()], 0, stopped=False)
    assert not kernel.requested, what


@pytest.mark.parametrize(
    ("what", "mode", "job", "stopped"),
    [
        ("observing", FailoverMode.OBSERVE, "train-1", False),
        ("not named", FailoverMode.ACT, "other", False),
        ("stopped", FailoverMode.ACT, "train-1", True),
    ],
)
def test_flows_that_are_not_held_back(
    what: str, mode: FailoverMode, job: str, stopped: bool
) -> None:
    kernel = Kernel()
    it = keeper(kernel, mode)
    it.take(paces(), FLEET_NS, 0)
    it.tick([flow(job)], 0, stopped=stopped)
    assert not kernel.requested, what
    assert not it.may(flow(job), stopped=stopped)


def test_the_stop_switch_lets_go() -> None:
    kernel = Kernel()
    it = keeper(kernel)
    it.take(paces(), FLEET_NS, 0)
    it.tick([flow()], 0, stopped=False)
    it.tick([flow()], MS, stopped=True)
    assert kernel.requested[-1] == {}


def test_a_flow_that_has_moved_or_ended_is_forgotten() -> None:
    kernel = Kernel()
    it = keeper(kernel)
    it.take(paces(), FLEET_NS, 0)
    it.tick([flow()], 0, stopped=False)
    it.tick([flow(four=FOUR._replace(local_port=61_001))], MS, stopped=False)
    assert kernel.requested[-1] == {}


def test_an_order_for_ever_is_good_for_seconds() -> None:
    kernel = Kernel()
    it = keeper(kernel)
    it.take(paces(good_ns=10**6 * S), FLEET_NS, 0)
    it.tick([flow()], 0, stopped=False)
    it.tick([flow()], LONGEST_NS, stopped=False)
    assert kernel.requested[-1] == {}


def test_a_kernel_that_refuses_is_left_alone_for_a_while() -> None:
    kernel = Kernel(refuses=True)
    it = keeper(kernel)
    for at_ns in range(0, RETRY_NS + 2 * S, S):
        it.take(paces(), FLEET_NS, at_ns)
        it.tick([flow()], at_ns, stopped=False)
    assert len(kernel.requested) == 2
    assert not it.in_force
