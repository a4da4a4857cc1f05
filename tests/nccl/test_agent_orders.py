"""The agent's own code orders the plug-in, over the fake provider, and sees that it obeys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.nccl import provider

from syntony.agent.job_link import JobLink
from syntony.agent.pacing import PROCESS_RENEW_NS, PaceKeeper, ProcessPacing, process_key
from syntony.agent.reactor.messages import Obey, ProcessPaces
from syntony.agent.steering.orders import flows_report
from syntony.model import S
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.meter import HEADERS
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.process_rates import PacedPath
from syntony.wire.traffic import Pace, Paces

PATIENCE_S = 300
SLOW_BPS = 16_000_000
"""Of frames, for each path: a hundredth of what the machine does."""


class Side:
    """The agent's half: both of its processes, without what is between them but the encoding."""

    def __init__(self, link: JobLink) -> None:
        self.link = link
        self.refuses = ""
        self.keeper = PaceKeeper(
            Policy(mode=FailoverMode.ACT, pace=("night",)), ProcessPacing(self._obey), process_key,
            PROCESS_RENEW_NS,
        )  # fmt: skip

    def _obey(self, paces: ProcessPaces) -> str:
        if self.refuses:
            return self.refuses
        order = Obey(said=paces, fleet_minus_monotonic_ns=None)
        said = msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=Obey).said
        assert isinstance(said, ProcessPaces)
        self.link.pace(dict(said.paces), said.expires_ns)
        return ""

    def look(self) -> tuple[ReportedFlow, ...]:
        """The flows of the process, after the next half second."""
        time.sleep(0.5)
        (view,) = self.link.report()
        return self.link.rates.flows({each.local: "rail0" for each in view.flows})

    def order(self, flows: tuple[ReportedFlow, ...], bps: int, *, stopped: bool = False) -> None:
        """As the controller would, which knows what the agent reports."""
        report = flows_report(flows, (), lambda *_: (), fleet_ns=S, join_port=0)
        paces = [
            Pace(
                local=view.local, local_port=view.local_port, remote=view.remote,
                remote_port=view.remote_port, bps=bps, process=view.process,
            )
            for view in report.flows
        ]  # fmt: skip
        self.keeper.take(Paces(paces=tuple(paces), expires_ns=4 * S), S, time.monotonic_ns())
        self.keeper.tick(flows, time.monotonic_ns(), stopped=stopped)


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    with provider.sending(tmp_path) as link:
        yield Side(link)


def wait_for(
    side: Side, true: Callable[[dict[PacedPath, int]], bool], bps: int = 0
) -> tuple[ReportedFlow, ...]:
    """Until what it sends by path is so; ordered meanwhile to `bps`, if that is not 0."""
    end_s = time.monotonic() + PATIENCE_S
    flows: tuple[ReportedFlow, ...] = ()
    while True:
        if bps:
            side.order(flows, bps)
        if side.link.processes:
            flows = side.look()
        sending = [each for each in flows if each.windows and each.tx_bps]
        rates = {key: each.tx_bps for each in sending if (key := process_key(each))}
        if rates and true(rates):
            return flows
        assert time.monotonic() < end_s, rates
        time.sleep(0.05)


def fast(rates: dict[PacedPath, int]) -> bool:
    return sum(rates.values()) > 4 * len(rates) * SLOW_BPS


def slow(rates: dict[PacedPath, int]) -> bool:
    return max(rates.values()) < 1.2 * SLOW_BPS / HEADERS


def test_a_process_keeps_the_rate_that_it_is_ordered(side: Side) -> None:
    flows = wait_for(side, fast)
    assert all(each.job == "night" and each.process for each in flows)
    flows = wait_for(side, slow, SLOW_BPS)
    assert {side.keeper.rate(each) for each in flows} == {SLOW_BPS}
    side.keeper.tick(flows, time.monotonic_ns(), stopped=True)
    wait_for(side, fast)


def test_an_order_that_nobody_repeats_expires(side: Side) -> None:
    wait_for(side, fast)
    wait_for(side, slow, SLOW_BPS)
    wait_for(side, fast)  # the telemetry process hangs: no tick, no renewal


def test_the_stop_switch_ends_orders_and_refuses_more(side: Side) -> None:
    wait_for(side, fast)
    flows = wait_for(side, slow, SLOW_BPS)
    side.link.stop(stopped=True)
    wait_for(side, fast)
    side.order(flows, SLOW_BPS)
    time.sleep(1)
    wait_for(side, fast)


def test_a_refusal_is_told_and_nothing_is_claimed(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    flows = wait_for(side, fast)
    side.refuses = "the reactor does not answer"
    side.order(flows, SLOW_BPS)
    assert "pacing not available reason=the reactor does not answer" in caplog.text
    assert [side.keeper.rate(each) for each in flows] == [0] * len(flows)
    wait_for(side, fast)
