"""A NIC that sends and receives nothing, while the rows of its host come too late to be judged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.fabric.flow_rows import FlowCounts, add

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator
from syntony.model.names import host_of

HOSTS, RAILS, PORTS, PER_SECOND = 4, 2, 4, 8
DARK = "h2/rail1"


class TwoRails:
    """Four hosts with two NICs each, two leaves for each rail, two spines for all."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.book = PathBook()
        self.watch = FaultLocator(self.book)
        self.flows = [
            Way(f"h{a}/rail{rail}", f"h{b}/rail{rail}", 61_000 + port, 8620)
            for rail in range(RAILS) for a in range(HOSTS) for b in range(HOSTS) if a != b
            for port in range(PORTS)
        ]  # fmt: skip
        for flow in self.flows:
            for way in (flow, reply(flow)):
                self.book.learn(way, self._hops(way))

    def _hops(self, way: Way) -> list[str]:
        near, far = (f"leaf{nic[-1]}-{int(nic[1]) % 2}" for nic in (way.src, way.dst))
        spine = f"spine{self.rng.integers(2)}"
        return [near] if near == far else [near, spine, far]

    def seconds(self, count: int, *, dark: bool, late: str = "") -> list[list[str]]:
        """So many seconds, without the rows of a late host. Returns what was named in each."""
        named = []
        for _ in range(count):
            rows: list[FlowCounts] = []
            heard: dict[tuple[str, str], int] = {}
            for flow in self.flows:
                dead = dark and DARK in {flow.src, flow.dst}
                src, dst = (host_of(nic) for nic in (flow.src, flow.dst))
                if dst != late and not dead:
                    pair = (flow.src, flow.dst)
                    heard[pair] = heard.get(pair, 0) + PER_SECOND
                if src != late:
                    rows.append(_row(flow, dead=dead))
            add(self.watch, rows, heard)
            named.append([found.component for found in self.watch.findings()])
        return named


def _row(flow: Way, *, dead: bool) -> FlowCounts:
    delay_ns = math.nan if dead else 20_000.0
    return FlowCounts(
        way=flow, sent=PER_SECOND, lost=0, sent_back=PER_SECOND, lost_back=0,
        unresolved=PER_SECOND if dead else 0, delay_ns=delay_ns, delay_back_ns=delay_ns,
        clk_err_ns=50.0,
    )  # fmt: skip


@pytest.mark.parametrize("late", ["h2", "", "h0"])
def test_a_dark_nic_is_named_though_rows_of_a_host_are_late(late: str) -> None:
    """Those of its own host, too: its other NIC answers, so it is not the host that is late."""
    fabric = TwoRails()
    assert fabric.seconds(20, dark=False) == [[]] * 20
    assert fabric.seconds(15, dark=True, late=late) == [[DARK]] * 15
