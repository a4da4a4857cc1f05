"""Round trips alone: a host that is slow to answer is no fabric that loses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.fabric.flow_rows import FlowCounts, add
from tests.fabric.test_fault_locator import PER_SECOND, Fabric

from syntony.fabric.candidates import Listing
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.numbering import make_candidates

HOSTS, LEAVES, SPINES, PORTS, SENT = 8, 4, 2, 8, 2_000


class Trips:
    """Eight hosts on four leaves and two spines; every path there and back by one hash."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.ends = [
            (f"h{a}/rail0", f"h{b}/rail0", port)
            for a in range(HOSTS) for b in range(HOSTS) if a != b for port in range(PORTS)
        ]  # fmt: skip
        self.paths = [[*self._way(a, b), *self._way(b, a)] for a, b, _ in self.ends]

    def _way(self, a: str, b: str) -> list[str]:
        near, far = (f"leaf{int(nic[1]) * LEAVES // HOSTS}" for nic in (a, b))
        middle = [near] if near == far else [near, f"spine{self.rng.integers(SPINES)}", far]
        stops = [a, *middle, b]
        links = [f"{x}->{y}" for x, y in pairwise(stops)]
        return [name for pair in zip(stops, [*links, ""], strict=True) for name in pair if name]

    def named(self, loss: dict[str, float], stall: dict[str, float]) -> list[tuple[str, str]]:
        came = [
            np.prod([1 - loss.get(name, 0.0) for name in path]) * (1 - stall.get(b, 0.0))
            for path, (_, b, _) in zip(self.paths, self.ends, strict=True)
        ]
        sent = np.full(len(came), SENT, dtype=np.int64)
        lost = self.rng.binomial(SENT, 1 - np.array(came))
        nothing = np.full(len(came), np.nan)
        counts = WindowCounts("60s", sent, lost, nothing, np.zeros(len(came)))
        found = locate(make_candidates(Listing.of(self.paths)), [counts])
        return [(each.kind, each.component) for each in found]


@pytest.mark.parametrize("seed", range(3))
def test_who_is_told(seed: int) -> None:
    trips = Trips(seed)
    assert trips.named({}, {"h3/rail0": 0.002}) == [], "now and then, every host is late"
    assert trips.named({}, {"h3/rail0": 0.05}) == [("replies", "replies of h3/rail0")]
    (reported,) = trips.named({"h3/rail0->leaf1": 0.02}, {})
    assert reported == ("nic", "h3/rail0"), "its own probes suffer too"
    found = trips.named({"leaf0->spine1": 0.02}, {"h3/rail0": 0.002})
    assert found in ([("cable", "leaf0--spine1")], [("link", "leaf0->spine1")])


def test_a_nic_whose_own_probes_nobody_knows_of_is_named_itself() -> None:
    """The same paths cross it and what it answers: the part comes before the habit."""
    trips = Trips()
    kept = [k for k, (a, _, _) in enumerate(trips.ends) if a != "h3/rail0"]
    trips.ends = [trips.ends[k] for k in kept]
    trips.paths = [trips.paths[k] for k in kept]
    assert trips.named({}, {"h3/rail0": 0.05}) == [("nic", "h3/rail0")]


def starved(fabric: Fabric, share: float, *, heard: bool) -> None:
    """A second in which h3 answers so much too late, its own probes skipped as often, and the
    fabric is well."""
    rows: list[FlowCounts] = []
    arrived: dict[tuple[str, str], int] = {}
    for flow in fabric.flows:
        requested, asks = flow.dst == "h3/rail0", flow.src == "h3/rail0"
        broken = int(fabric.rng.binomial(PER_SECOND, share)) if requested else 0
        sent = int(fabric.rng.binomial(PER_SECOND, 1 - share)) if asks else PER_SECOND
        pair = (flow.src, flow.dst)
        arrived[pair] = arrived.get(pair, 0) + sent - (0 if heard else broken)
        rows.append(FlowCounts(flow, sent, 0, sent, 0, broken, 20_000.0, 20_000.0, 50.0))
    add(fabric.watch, rows, arrived)


@pytest.mark.parametrize("heard", [True, False])
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_a_starved_host_is_no_link_that_loses(share: float, heard: bool) -> None:
    """Whether it heard in time what it answered late, or heard it late already: what it is asked
    breaks, what it asks does not."""
    fabric = Fabric()
    for _ in range(12):
        fabric.second()
    for _ in range(4):
        starved(fabric, share, heard=heard)
        found = fabric.watch.findings()
        assert {(each.kind, each.component) for each in found} == {
            ("replies", "replies of h3/rail0")
        }
    for _ in range(12):
        fabric.second()
        fabric.named()
    assert fabric.named() == []
