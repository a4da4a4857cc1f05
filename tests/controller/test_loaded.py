"""Fabrics that are busy and well: NICs loaded to 85 to 95 % both ways, incasts, saturated senders.

Delays and overflow are drawn here, packet by packet of a queue, not by Syntony's own simulators.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.controller.judged import Control, port, queues_of
from tests.fabric.flow_rows import FlowCounts, add

from syntony.controller.incident_inputs import LatencyInputs
from syntony.controller.observe import BURSTS
from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator

FORGOTTEN = 9
"""The case in which bursts of a queue were forgotten, and its cable was named."""
NOTHING_LEFT = 10
"""The case in which a found delay explained nothing any more, and was compared all the same."""
SMALL = 22
"""The seed of the smallest fabric: 2 leaves, 2 spines, 5 hosts."""
PROBES = 10
"""Of a flow, each second."""


def waits(load: float, service_ns: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Waiting times of probes at a queue with Poisson arrivals of packets of one size (Lindley)."""
    behind = np.cumsum(service_ns - rng.exponential(service_ns / load, 4_000))
    found = behind - np.minimum.accumulate(np.minimum(behind, 0.0))
    return np.asarray(rng.choice(found[1_000:], PROBES))


class Burst(NamedTuple):
    """How a queue is full now and then."""

    seconds: float
    """Share of the seconds with such moments."""
    share: float
    """Mean share of these that it is full for."""
    depth_ns: float
    loss: float
    """While it is full."""


class Went(NamedTuple):
    """How a flow's probes of one second went one way."""

    usual_ns: float
    slowest_ns: float
    loss: float


class Busy:
    """A fabric, jobs that load some of its links, and what the controller makes of it."""

    def __init__(self, control: Control, seed: int, *, known: bool = True) -> None:
        self.control, self.rng = control, np.random.default_rng(seed)
        draw = random.Random(seed)
        leaves, spines = draw.randint(2, 3), draw.randint(2, 3)
        self.homes = {f"h{n}/rail0": f"leaf{n % leaves}" for n in range(draw.randint(5, 7))}
        self.book = PathBook()
        self.watch = FaultLocator(self.book)
        self.flows = [
            Way(a, b, 61_000 + port, 8620)
            for a in self.homes for b in self.homes if a != b for port in range(6)
        ]  # fmt: skip
        for flow in self.flows:
            for way in (flow, reply(flow)):
                near, far = self.homes[way.src], self.homes[way.dst]
                middle = [f"spine{draw.randrange(spines)}"] if near != far else []
                self.book.learn(way, dict.fromkeys([near, *middle, far]))
        self.crossing: dict[str, frozenset[str]] = {}
        for flow in self.flows:
            name = f"{flow.src}->{flow.dst}"
            mine = frozenset(self.book.components(flow))
            self.crossing[name] = self.crossing.get(name, frozenset()) | mine
        control.homes = dict(self.homes)
        self.loads: dict[str, tuple[float, float]] = {}
        """Link to its load and how long a packet takes there, ns."""
        self.pairs: list[tuple[str, str]] = []
        """Of the job."""
        self.known = known
        """Whether the job reports its connections; else only ports' counters show its traffic."""
        self.sent: dict[str, int] = {}
        """The last second in which a NIC sent for it; `received` alike."""
        self.received: dict[str, int] = {}
        self.overflow = 0.0
        """Share that a switch loses on a link while packets wait for it."""
        self.broken: dict[str, float] = {}
        """Link to the share that it loses, whether packets wait there or not."""
        self.bursts: dict[str, Burst] = {}
        """Links whose queue is full for moments of some seconds."""
        self.full: dict[str, float] = {}
        """Link to the share of this second that its queue is full."""
        self.second = 0

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.second += 1
            at = {link: waits(*load, self.rng) for link, load in self.loads.items()}
            self.full = {
                link: each.share * self.rng.exponential() * (self.rng.random() < each.seconds)
                for link, each in self.bursts.items()
            }
            rows, heard = [], dict[tuple[str, str], int]()
            for flow in self.flows:
                there, back = (self._one(way, at) for way in (flow, reply(flow)))
                lost = int(self.rng.binomial(PROBES, there.loss))
                lost_back = int(self.rng.binomial(PROBES - lost, back.loss))
                pair = (flow.src, flow.dst)
                heard[pair] = heard.get(pair, 0) + PROBES - lost
                rows.append(
                    FlowCounts(
                        way=flow, sent=PROBES, lost=lost, sent_back=PROBES - lost,
                        lost_back=lost_back, unresolved=0, delay_ns=there.usual_ns,
                        delay_back_ns=back.usual_ns, clk_err_ns=200.0,
                        slowest_ns=there.slowest_ns, slowest_back_ns=back.slowest_ns,
                    )
                )  # fmt: skip
            add(self.watch, rows, heard)
            if self.second % 2:
                self._judge()

    def _one(self, way: Way, at: dict[str, NDArray[np.float64]]) -> Went:
        """Queues overflow at switches, since a host that sends waits for its own queue."""
        components = self.book.components(way)
        crossed = [link for link in components if link in at]
        waited = sum((self.rng.permutation(at[link]) for link in crossed), np.zeros(PROBES))
        base = 15_000 + self.rng.normal(0, 300, PROBES)
        full = sum(link.startswith("leaf") for link in crossed)
        kept = (1 - self.overflow) ** full
        for link in self.broken.keys() & components:
            kept *= 1 - self.broken[link]
        for link in self.full.keys() & components:
            burst, share = self.bursts[link], min(1.0, self.full[link])
            waited = waited + burst.depth_ns * (self.rng.random(PROBES) < share)
            kept *= 1 - burst.loss * share
        delay_ns = np.sort(base + waited)
        usual_ns = (delay_ns[PROBES // 2 - 1] + delay_ns[PROBES // 2]) / 2
        return Went(float(usual_ns), float(delay_ns[-1]), 1 - kept)

    def _judge(self) -> None:
        pairs = self.pairs if self.known else []
        jobs = {"train": frozenset(pairs)} if pairs else {}
        queues = queues_of(self.watch.queues(), pairs, self.crossing)
        self.sent |= {a: self.second for a, _ in self.pairs}
        self.received |= {b: self.second for _, b in self.pairs}
        self.control.store.links.seen = tuple(
            port(nic, tx_bps=self._peak(self.sent, nic), rx_bps=self._peak(self.received, nic))
            for nic in self.homes
        )
        self.control.slas = LatencyInputs(None, queues, self.crossing, jobs)
        self.control.findings = self.watch.findings()
        self.control.tick()

    def _peak(self, last: dict[str, int], nic: str) -> float:
        """Bits per second, as an agent reports it: the peak of ten seconds."""
        return 3.9e11 if self.second - last.get(nic, -10) < 10 else 1e6


def traffic(cases: Iterable[int], always: Collection[int]) -> pytest.MarkDecorator:
    """Cases of traffic of a known job and of none; those not among `always` are marked slow, and of
    the latter all but the first."""
    both = [(case, known) for known in (True, False) for case in cases]
    quick = {(case, True) for case in always} | {(0, False)}
    return pytest.mark.parametrize(
        ("case", "known"),
        [each if each in quick else pytest.param(*each, marks=pytest.mark.slow) for each in both],
    )


def drawn(control: Control, case: int, known: bool = True) -> Busy:
    seed = {0: SMALL, FORGOTTEN: 98_074, NOTHING_LEFT: 92_822}.get(case) or random.randrange(
        100_000
    )
    print(f"seed {seed}")
    return Busy(control, seed, known=known)


@traffic(range(2), {0})
def test_a_nic_that_is_loaded_both_ways_pages_nobody(
    control: Control, case: int, known: bool
) -> None:
    """Training at 85 to 95 % of a NIC of 25 to 400 Gb/s; packets of 9,000 bytes."""
    busy = drawn(control, case, known)
    busy.run(40)
    nic = sorted(busy.homes)[case]
    leaf = busy.homes[nic]
    service_ns = 72_000 / float(busy.rng.choice([25, 100, 400]))
    busy.loads = {
        link: (float(busy.rng.uniform(0.85, 0.95)), service_ns)
        for link in (f"{nic}->{leaf}", f"{leaf}->{nic}")
    }
    busy.pairs = [
        pair for other in busy.homes if other != nic for pair in ((nic, other), (other, nic))
    ]
    busy.run(150)
    busy.loads, busy.pairs = {}, []
    busy.run(80)
    assert control.pages() == []


def incast(busy: Busy, victim: str) -> str:
    """All others send to one NIC. Returns the link that packets wait for."""
    senders = [nic for nic in busy.homes if nic != victim]
    busy.loads = {f"{nic}->{busy.homes[nic]}": (0.97, 20_000.0) for nic in senders}
    last = f"{busy.homes[victim]}->{victim}"
    busy.loads[last] = (0.99, 20_000.0)
    busy.pairs = [(nic, victim) for nic in senders]
    return last


@traffic(range(3), {0})
def test_an_incast_is_one_warning_and_its_senders_are_none(
    control: Control, case: int, known: bool
) -> None:
    """The receiver's link overflows; those who send to it wait at their own NICs as well."""
    busy = drawn(control, case, known)
    busy.run(40)
    last = incast(busy, f"h{case}/rail0")
    busy.overflow = (0.002, 0.0005, 0.02)[case]
    busy.run(60)
    assert control.pages() == [f"congestion {last}"]
    busy.loads, busy.pairs, busy.overflow = {}, [], 0.0
    busy.run(60)
    assert control.pages() == [f"congestion {last}"]


@traffic([*range(3), FORGOTTEN], {FORGOTTEN})
def test_a_queue_that_comes_and_goes_is_no_cable(control: Control, case: int, known: bool) -> None:
    """A job of steps: a second of everybody to one, some without."""
    busy = drawn(control, case, known)
    busy.run(40)
    last = incast(busy, "h1/rail0")
    loads, rests = busy.loads, busy.rng.integers(1, 4)
    busy.overflow = 0.01
    for _ in range(30):
        busy.loads = loads
        busy.run(1)
        busy.loads = {}
        busy.run(int(rests))
    assert not [page for page in control.pages() if page != f"congestion {last}"]


@traffic(range(3), {0})
def test_a_cable_that_loses_under_a_job_that_waits_there_is_named(
    control: Control, case: int, known: bool
) -> None:
    """The same job; the cable loses in steps and between them."""
    busy = drawn(control, case, known)
    busy.run(40)
    last = incast(busy, "h1/rail0")
    loads, rests = busy.loads, busy.rng.integers(1, 3)
    busy.broken = {last: 0.01}
    for _ in range(60):
        busy.loads = loads
        busy.run(1)
        busy.loads = {}
        busy.run(int(rests))
    losses = [page for page in control.pages() if "loss" in page]
    assert losses == [f"link-loss {last}"]


@traffic(range(3), {0})
def test_a_queue_that_is_full_for_moments_is_congestion(
    control: Control, case: int, known: bool
) -> None:
    """The link is half empty in most of each second; bursts of the job overflow it."""
    busy = drawn(control, case, known)
    busy.run(40)
    victim = "h1/rail0"
    last = f"{busy.homes[victim]}->{victim}"
    busy.loads = {last: (0.5, 1_000.0)}
    busy.pairs = [(nic, victim) for nic in busy.homes if nic != victim]
    busy.bursts = {last: Burst(0.6, (0.02, 0.05, 0.1)[case], 640_000.0, 0.1)}
    busy.run(100)
    assert control.pages() == [f"congestion {last}"]
    (reported,) = [each for each in control.live_incidents() if each["rule"] == "congestion"]
    assert BURSTS in reported["evidence"]


@pytest.mark.parametrize("seed", [1000, 1013])
def test_the_losses_of_bursts_do_not_page_before_the_queue_is_known(
    control: Control, seed: int
) -> None:
    """One second of bursts loses over 5 %, or losses return before there are enough seconds."""
    busy = Busy(control, seed)
    busy.run(40)
    victim = "h1/rail0"
    last = f"{busy.homes[victim]}->{victim}"
    busy.loads = {last: (0.5, 1_000.0)}
    busy.pairs = [(nic, victim) for nic in busy.homes if nic != victim]
    busy.bursts = {last: Burst(0.6, 0.1, 640_000.0, 0.1)}
    busy.run(16)
    assert set(control.pages()) <= {f"congestion {last}"}


@traffic(range(3), {0})
def test_a_cable_under_bursts_that_all_fit_is_named(
    control: Control, case: int, known: bool
) -> None:
    busy = drawn(control, case, known)
    busy.run(40)
    victim = "h1/rail0"
    last = f"{busy.homes[victim]}->{victim}"
    busy.loads = {last: (0.5, 1_000.0)}
    busy.pairs = [(nic, victim) for nic in busy.homes if nic != victim]
    busy.bursts = {last: Burst(0.4, (0.02, 0.05, 0.1)[case], 640_000.0, 0.0)}
    busy.broken = {last: 0.01}
    busy.run(90)
    assert control.pages() == [f"link-loss {last}"]


@traffic([*range(2), NOTHING_LEFT], {0})
def test_where_packets_wait_all_the_time_the_cable_may_be_it(
    control: Control, case: int, known: bool
) -> None:
    busy = drawn(control, case, known)
    busy.run(40)
    last = incast(busy, "h1/rail0")
    busy.broken = {last: 0.005}
    busy.run(90)
    assert control.pages() == [f"congestion {last}"]
    (reported,) = [each for each in control.live_incidents() if each["rule"] == "congestion"]
    assert any("or its cable" in line for line in reported["evidence"])
    # The job ends, the losses do not: no queue explains them any more.
    busy.loads = {}
    busy.run(60)
    assert control.pages() == [f"congestion {last}", f"link-loss {last}"]
