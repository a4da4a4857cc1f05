"""An agent's probe records: which count, for which pair, and what is remembered of them.

Records are drawn here: clocks with a constant offset and drift, delays with a floor and a tail.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from syntony.clock.fit import WindowFit, fit_window
from syntony.clock.purity import UNPAIRED
from syntony.clock.samples import Clouds
from syntony.clock.windows import WINDOW_NS, PairKey, PairWindows
from syntony.model import MS, Edge, S

T0 = 1_750_000_000 * S
STAMPS = ("sent_ns", "t1_ns", "t2_ns", "t3_ns", "t4_ns")
PLAIN = np.dtype([("flow_id", np.uint32), *((name, np.int64) for name in STAMPS)])
CODED = np.dtype([*PLAIN.descr, ("seq", np.uint32)])
NEAR = PairKey("h0/a", "h1/a", "h0", "h1")
FAR = PairKey("h0/a", "h2/a", "h0", "h2")
AHEAD_NS = {1: 3 * MS, 2: -70 * MS}
"""By how much the clocks of flows 1 and 2 are ahead."""
PLAN = {1: NEAR, 2: FAR}


def probes(
    flow: int, seed: int, since_ns: int = 0, ahead_ns: int | None = None, count: int = 96
) -> NDArray[np.void]:
    """A window's worth of answered probes, two at a time."""
    rng = np.random.default_rng(seed)
    ahead = AHEAD_NS[flow] if ahead_ns is None else ahead_ns
    rows = np.zeros(count, CODED)
    number = np.arange(count)
    rows["flow_id"], rows["seq"] = flow, number
    rows["sent_ns"] = (
        T0 + since_ns + (number // 2) * (2 * WINDOW_NS // count) + (number % 2) * 9_000
    )
    there, back = (6_000 + rng.exponential(400, count).astype(np.int64) for _ in range(2))
    rows["t1_ns"] = rows["sent_ns"] + 700
    rows["t2_ns"] = rows["t1_ns"] + ahead + there
    rows["t3_ns"] = rows["t2_ns"] + 4_000
    rows["t4_ns"] = rows["t3_ns"] - ahead + back
    return rows


def windows() -> PairWindows:
    found = PairWindows()
    found.plan(PLAN)
    return found


def by_peer(edges: tuple[Edge, ...]) -> dict[str, Edge]:
    return {edge.b: edge for edge in edges}


END_NS = T0 + WINDOW_NS


def test_each_pair_is_estimated_from_its_own_probes() -> None:
    agent = windows()
    assert agent.edges(END_NS) == ()
    both = np.concatenate((probes(1, 1), probes(2, 2)))
    agent.add(both[np.random.default_rng(3).permutation(len(both))])
    found = by_peer(agent.edges(END_NS))
    assert found.keys() == {"h1", "h2"}
    for flow, peer in ((1, "h1"), (2, "h2")):
        assert found[peer].a == "h0"
        assert abs(found[peer].theta_ns - AHEAD_NS[flow]) < 200
        assert found[peer].probes == 2 * 96


@pytest.mark.parametrize("stamp", ["t1_ns", "t2_ns", "t4_ns"])
def test_what_lacks_a_stamp_is_of_no_use(stamp: str) -> None:
    agent, rows = windows(), probes(1, 4)
    rows[stamp][10:] = 0
    agent.add(rows)
    (edge,) = agent.edges(END_NS)
    assert edge.probes == 2 * 10
    rows[stamp] = 0
    empty = windows()
    empty.add(rows)
    assert empty.edges(END_NS) == ()


def test_a_request_counts_without_the_stamp_of_its_reply() -> None:
    agent, rows = windows(), probes(1, 5)
    rows["t3_ns"][::3] = 0
    agent.add(rows)
    (edge,) = agent.edges(END_NS)
    assert edge.probes == 96 + 64
    assert abs(edge.theta_ns - AHEAD_NS[1]) < 200


def test_flows_of_no_plan_are_of_no_use() -> None:
    agent, rows = windows(), probes(1, 6)
    rows["flow_id"][40:] = 3
    agent.add(rows)
    (edge,) = agent.edges(END_NS)
    assert edge.probes == 2 * 40


def test_a_window_slides() -> None:
    """Asked later, what is older than a window does not count; nor what a stepped clock calls
    later than now."""
    agent = windows()
    agent.add(probes(1, 7))
    agent.add(probes(1, 8, since_ns=WINDOW_NS))
    (edge,) = agent.edges(T0 + 2 * WINDOW_NS)
    assert edge.probes == 2 * 96
    (edge,) = agent.edges(T0 + 2 * WINDOW_NS + WINDOW_NS // 2 - 100)
    assert edge.probes == 2 * 48
    assert agent.edges(T0 + 9 * WINDOW_NS) == ()
    back = windows()
    back.add(probes(1, 9, since_ns=3 * WINDOW_NS))
    assert back.edges(T0) == ()


def test_pairs_that_stay_in_the_plan_keep_window_and_memory() -> None:
    agent = windows()
    agent.add(np.concatenate((probes(1, 10), probes(2, 11))))
    assert {edge.mode for edge in agent.edges(END_NS)} == {"first"}
    agent.plan({7: NEAR, 1: NEAR})
    (edge,) = agent.edges(END_NS)
    assert (edge.b, edge.probes, edge.mode) == ("h1", 2 * 96, "both")
    agent.plan(PLAN)
    found = by_peer(agent.edges(END_NS))
    assert found.keys() == {"h1"}, "what was measured of the other pair is gone"
    agent.add(probes(2, 12))
    assert by_peer(agent.edges(END_NS))["h2"].mode == "first"
    agent.plan({})
    assert agent.edges(END_NS) == ()


@pytest.mark.parametrize("stepped", ["h1", "h0"])
def test_a_stepped_clock_takes_its_own_pairs_with_it(stepped: str) -> None:
    """Half a microsecond: too little to be seen in the records themselves."""
    agent = windows()
    agent.add(np.concatenate((probes(1, 13), probes(2, 14))))
    agent.edges(END_NS)
    agent.forget(stepped, END_NS)
    kept = {"h1": {"h2"}, "h0": set[str]()}[stepped]
    assert by_peer(agent.edges(END_NS)).keys() == kept
    agent.add(probes(1, 15, since_ns=-1))  # under way when it stepped
    agent.forget("h7")  # another clock, of which no instant is known
    agent.add(probes(1, 15, since_ns=-1))
    assert by_peer(agent.edges(END_NS)).keys() == kept
    moved_ns = AHEAD_NS[1] + 500
    agent.add(probes(1, 16, since_ns=WINDOW_NS + 1, ahead_ns=moved_ns))
    edge = by_peer(agent.edges(END_NS + WINDOW_NS))["h1"]
    assert edge.mode == "stepped"
    assert abs(edge.theta_ns - moved_ns) < 150


def test_whether_a_probe_reached_a_clock_before_an_instant() -> None:
    agent = windows()
    rows = probes(1, 17)
    agent.add(np.concatenate((rows, probes(2, 18))))
    first_ns = int(rows["t2_ns"].min())
    assert not agent.reach_before("h1", first_ns)
    assert agent.reach_before("h1", first_ns + 1)
    # The far clock is behind: its stamps are earlier, but they are not this clock's.
    assert agent.reach_before("h2", first_ns)
    assert not agent.reach_before("h0", first_ns + S), "nobody probes the prober's own clock"
    agent.add(probes(1, 17, since_ns=WINDOW_NS))
    assert agent.reach_before("h1", first_ns + 1), "whatever came since"


class Seen:
    """A fit that keeps the classes of the probes it was given."""

    def __init__(self) -> None:
        self.forward: list[int] = []
        self.reverse: list[int] = []

    def __call__(self, clouds: Clouds, prior: Any = None) -> WindowFit:
        order = np.argsort(clouds.t[: clouds.forward], kind="stable")
        self.forward = clouds.purity[: clouds.forward][order].tolist()
        self.reverse = clouds.purity[clouds.forward :].tolist()
        return fit_window(clouds, prior)


def classes(rows: NDArray[np.void], plan: dict[int, PairKey] = PLAN) -> Seen:
    seen = Seen()
    agent = PairWindows(fit=seen)
    agent.plan(plan)
    agent.add(rows)
    agent.edges(END_NS)
    return seen


def test_two_probes_back_to_back_are_a_coded_pair() -> None:
    """Of which the spacing tells whether they met the same queue; a lost one leaves one alone."""
    rows = probes(1, 19, count=16)
    calm = np.repeat(rows["t1_ns"][::2], 2) + AHEAD_NS[1] + 6_000 + np.tile([0, 9_000], 8)
    rows["t2_ns"] = calm
    rows["t2_ns"][5] += 300  # the third pair's second probe waited
    found = classes(np.delete(rows, [8, 13]))
    assert found.forward == [0] * 4 + [3] * 2 + [0] * 2 + [UNPAIRED] + [0] * 2 + [UNPAIRED, 0, 0]
    assert UNPAIRED in found.reverse


def test_a_reply_that_is_missing_leaves_its_partner_alone() -> None:
    rows = probes(1, 20, count=16)
    rows["t3_ns"][6] = 0
    found = classes(rows)
    assert found.forward.count(UNPAIRED) == 0
    assert found.reverse.count(UNPAIRED) == 1


def test_probes_of_two_flows_are_no_pair() -> None:
    """Two flows of one pair of NICs number their probes alike."""
    rows = probes(1, 21, count=32)
    rows["flow_id"] = 1 + rows["seq"] % 2
    assert set(classes(rows, {1: NEAR, 2: NEAR}).forward) == {UNPAIRED}
    rows["flow_id"] = 1 + rows["seq"] // 2 % 2
    assert UNPAIRED not in classes(rows, {1: NEAR, 2: NEAR}).forward


def test_records_without_numbers_are_of_probes_sent_one_by_one() -> None:
    rows = probes(1, 22, count=16)
    found = classes(np.array(rows[list(PLAIN.names or ())], dtype=PLAIN))
    assert set(found.forward + found.reverse) == {UNPAIRED}


def test_what_left_the_window_is_let_go_of() -> None:
    """An agent that runs for months keeps one window's records."""
    agent = windows()
    rows = probes(1, 23)
    agent.add(rows)
    later_ns = int(rows["t2_ns"].max()) + 1
    agent.edges(END_NS + WINDOW_NS // 2)
    assert agent.reach_before("h1", later_ns)
    agent.edges(END_NS + 2 * WINDOW_NS)
    assert not agent.reach_before("h1", later_ns)
