"""Rows of probes against a count of the same probes one by one, in Python integers.

Clocks drift, stamps are missing, probes are lost either way; every draw prints its seed.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from syntony.mesh.stats import HOLD_NS, FlowInfo, PathSeconds, hold_ns
from syntony.mesh.totals import BOUNDS_NS
from syntony.model import MS, US, ClockState, S, Timeline
from syntony.model.names import host_of
from syntony.model.probes import ProbeFlag
from syntony.wire.probes import ProbeFlow

T0 = 1_700_000_000 * S
NOW = T0 + 20 * S
RECORD = np.dtype(
    [("flow_id", "<u4"), ("flags", "<u4")]
    + [(stamp, "<i8") for stamp in ("sent_ns", "t1_ns", "t2_ns", "t3_ns", "t4_ns")]
)
LOSSES = (0, 0, 0, int(ProbeFlag.LOST_FWD), int(ProbeFlag.LOST_REV), int(ProbeFlag.LOST_UNKNOWN))
STALLS = (0, 0, 0, int(ProbeFlag.STALL_LOCAL), int(ProbeFlag.STALL_REMOTE))


def flow(flow_id: int, src: str, dst: str) -> FlowInfo:
    return FlowInfo(
        flow=ProbeFlow(
            flow_id=flow_id, src=src.partition("/")[2], dst=dst, dst_nic_id=1, dst_addr="10.0.0.9",
            dst_port=8620, src_port=60_000 + flow_id % 1000, flow_label=flow_id, dscp=flow_id % 60,
            interval_ns=S // 2,
        ),
        src=src, src_clock=host_of(src), dst_clock=host_of(dst),
    )  # fmt: skip


def timelines(rng: random.Random) -> dict[str, Timeline]:
    """h0 to h2 on one timeline, h3 on one of its own, h4 not known, h5 not reported at all."""
    return {
        f"h{k}": Timeline(
            node=f"h{k}", ref_ns=T0 + rng.randrange(-30, 30) * S + offset, offset_ns=float(-offset),
            drift_ppb=rng.uniform(-40_000, 40_000), sigma_ns=rng.uniform(5, 500),
            drift_sigma_ppb=rng.uniform(0, 30),
            component="h3" if k == 3 else "h0",
            state=ClockState.UNKNOWN if k == 4 else ClockState.SYNCHRONIZED,
        )
        for k in range(5)
        for offset in [rng.randrange(-10**9, 10**9)]
    }  # fmt: skip


def records(rng: random.Random, lines: dict[str, Timeline], flows: list[FlowInfo]) -> list[Any]:
    found = []
    for _ in range(400):
        info = rng.choice(flows)
        sent = lines["h0"].to_local_ns(T0 + rng.randrange(0, 4 * S))
        stamps = [sent + rng.randrange(-(10**9), 10**9) for _ in range(4)]
        stamps = [stamp if rng.random() < 0.9 else 0 for stamp in stamps]
        flags = rng.choice(LOSSES) | rng.choice(STALLS)
        found.append((info.flow.flow_id, flags, sent, *stamps))
    return found


def sigma_at(line: Timeline, local_ns: int) -> float:
    return math.hypot(line.sigma_ns, line.drift_sigma_ppb * 1e-9 * (local_ns - line.ref_ns))


class Count:
    """One path, second and direction."""

    def __init__(self) -> None:
        self.sent = self.lost = self.unresolved = self.stalled = 0
        self.delays: list[int] = []
        self.error = 0.0

    def rank(self, quantile: float) -> int:
        """The smallest delay that so large a share of them is not above."""
        ordered = sorted(self.delays)
        return next((d for n, d in enumerate(ordered, start=1) if n >= quantile * len(ordered)), 0)


def counted(
    records: list[Any], lines: dict[str, Timeline], flows: list[FlowInfo]
) -> dict[tuple[int, int, str], Count]:
    infos = {info.flow.flow_id: info for info in flows}
    found: dict[tuple[int, int, str], Count] = defaultdict(Count)
    for flow_id, flags, sent, t1, t2, t3, t4 in records:
        info = infos[flow_id]
        ours, theirs = lines.get(info.src_clock), lines.get(info.dst_clock)
        comparable = (
            ours is not None and theirs is not None and ours.component == theirs.component
            and ClockState.UNKNOWN not in {ours.state, theirs.state}
        )  # fmt: skip
        second = lines["h0"].to_fleet_ns(sent) // S * S
        there, back = found[flow_id, second, "out"], found[flow_id, second, "in"]
        lost = bool(flags & 7)
        stalled = lost and bool(flags & 24)
        for each in (there, back):
            each.stalled += stalled
            each.unresolved += bool(flags & 4) and not stalled
        there.sent += not stalled
        there.lost += bool(flags & 1) and not stalled
        back.sent += not stalled and not flags & 1
        back.lost += bool(flags & 2) and not stalled
        if not comparable:
            continue
        assert ours is not None
        assert theirs is not None
        error = math.hypot(sigma_at(ours, t1), sigma_at(theirs, t2))
        for each, a, b in ((there, t1, t2), (back, t3, t4)):
            if a and b:
                one, other = (ours, theirs) if each is there else (theirs, ours)
                each.delays.append(other.to_fleet_ns(b) - one.to_fleet_ns(a))
                each.error = max(each.error, error)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_what_one_counts_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    lines = timelines(rng)
    nics = ["h0/a", "h1/a", "h2/b", "h3/a", "h4/a", "h5/a"]
    flows = [flow(rng.randrange(2**32), src, dst) for src in nics[:3] for dst in nics if src != dst]
    probes = records(rng, lines, flows)
    seconds = PathSeconds()
    seconds.plan(flows)
    for start in range(0, len(probes), 57):
        seconds.add(np.array(probes[start : start + 57], dtype=RECORD))
    columns = seconds.close(lines, lines["h0"], NOW)
    assert columns is not None
    assert seconds.dropped == 0
    infos = {info.flow.flow_id: info for info in flows}
    expected = counted(probes, lines, flows)
    assert len(columns["ts_ns"]) == len(expected)
    for place in range(len(columns["ts_ns"])):
        row = {name: column[place] for name, column in columns.items()}
        info = infos[int(row["flow_label"])]
        way = "out" if row["src"] == info.src else "in"
        ends = (info.src, info.flow.dst)
        assert (row["src"], row["dst"]) == (ends if way == "out" else ends[::-1])
        assert row["prober"] == info.src
        assert (row["sport"], row["dscp"]) == (info.flow.src_port, info.flow.dscp)
        count = expected.pop((info.flow.flow_id, int(row["ts_ns"]), way))
        reported = tuple(
            int(row[name]) for name in ("sent", "lost", "unresolved", "stalled", "count")
        )
        assert reported == (
            count.sent,
            count.lost,
            count.unresolved,
            count.stalled,
            len(count.delays),
        )
        ranks = {"owd_min_ns": 0, "owd_p50_ns": 0.5, "owd_p90_ns": 0.9, "owd_p99_ns": 0.99,
                 "owd_max_ns": 1}  # fmt: skip
        assert [int(row[name]) for name in ranks] == pytest.approx(
            [count.rank(quantile) for quantile in ranks.values()], abs=2
        )
        assert row["clk_err_ns"] == pytest.approx(count.error, rel=1e-5)
    totals = {(nic, way): total for nic, way, total in seconds.totals.each()}
    everything = counted(probes, lines, flows)
    for nic in {info.src for info in flows}:
        for way in ("out", "in"):
            mine = [c for (f, _, w), c in everything.items() if infos[f].src == nic and w == way]
            total = totals[nic, way]
            assert (total.sent, total.lost, total.unresolved, total.stalled) == tuple(
                sum(getattr(c, name) for c in mine)
                for name in ("sent", "lost", "unresolved", "stalled")
            )
            assert sum(total.delays) == sum(len(c.delays) for c in mine)


def test_classes_of_delay_have_their_upper_bound() -> None:
    """As OpenMetrics counts: a delay of exactly a bound is at or below it."""
    assert BOUNDS_NS[:4] == (US, 2 * US, 5 * US, 10 * US)
    assert BOUNDS_NS[-5:] == (5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS)
    assert list(BOUNDS_NS) == sorted(set(BOUNDS_NS))
    still = Timeline(
        node="h0", ref_ns=T0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0, component="h0",
        state=ClockState.SYNCHRONIZED,
    )  # fmt: skip
    for place, bound in enumerate(BOUNDS_NS):
        for more, at in ((0, place), (1, place + 1)):
            seconds = PathSeconds()
            seconds.plan([flow(1, "h0/a", "h1/a")])
            stamps = (T0, T0 + bound + more, 0, 0)
            seconds.add(np.array([(1, 0, T0, *stamps)], dtype=RECORD))
            seconds.close({"h0": still, "h1": still}, still, NOW)
            ((_, _, inwards), (_, _, total)) = sorted(seconds.totals.each())
            assert total.delays.index(1) == at
            assert (sum(total.delays), total.delay_sum_ns) == (1, bound + more)
            assert sum(inwards.delays) == 0


@pytest.mark.parametrize(("early_ns", "closed"), [(0, True), (1, False)])
def test_a_second_is_over_when_its_last_probe_has_had_its_time(early_ns: int, closed: bool) -> None:
    line = Timeline(
        node="h0", ref_ns=T0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0, component="h0",
        state=ClockState.SYNCHRONIZED,
    )  # fmt: skip
    seconds = PathSeconds()
    seconds.plan([flow(1, "h0/a", "h1/a")])
    seconds.add(np.array([(1, 0, T0 + S - 1, 0, 0, 0, 0)], dtype=RECORD))
    columns = seconds.close({"h0": line}, line, T0 + S + HOLD_NS - early_ns)
    assert (columns is not None) == closed
    assert HOLD_NS == 1_200 * MS


@pytest.mark.parametrize(
    ("interval_ns", "more_s"),
    [(0, 0), (S // 2, 0), (S // 2 + 1, 1), (3 * S // 2, 1), (3 * S // 2 + 1, 2), (10 * S, 10)],
)
def test_where_pairs_are_far_between_whole_seconds_more_are_waited(
    interval_ns: int, more_s: int
) -> None:
    """The last stamp comes with the next pair, half a second's timeout after that at the latest."""
    assert hold_ns(interval_ns) == HOLD_NS + more_s * S
    seconds = PathSeconds()
    slow = flow(1, "h0/a", "h1/a")._replace(
        flow=ProbeFlow(flow_id=1, src="a", dst="h1/a", dst_nic_id=1, dst_addr="", dst_port=1,
                       src_port=61_000, interval_ns=interval_ns)
    )  # fmt: skip
    seconds.plan([slow, flow(2, "h0/a", "h2/a")])
    line = Timeline(node="h0", ref_ns=T0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0)
    seconds.add(np.array([(2, 0, T0, 0, 0, 0, 0)], dtype=RECORD))
    due_ns = T0 + S + HOLD_NS + more_s * S
    assert seconds.close({}, line, due_ns - 1) is None
    assert seconds.close({}, line, due_ns) is not None


def test_the_oldest_are_shed_and_counted_and_so_are_flows_that_are_planned_no_more() -> None:
    line = Timeline(node="h0", ref_ns=T0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0)
    seconds = PathSeconds(max_waiting=10)
    seconds.plan([flow(1, "h0/a", "h1/a"), flow(2, "h0/a", "h2/a")])
    for k in range(15):
        seconds.add(np.array([(1 + k % 2, 0, T0 + k * S // 2, 0, 0, 0, 0)], dtype=RECORD))
        assert seconds.dropped == max(0, k - 9)
    seconds.plan([flow(2, "h0/a", "h2/a")])
    assert seconds.dropped == 5 + 5
    columns = seconds.close({}, line, NOW)
    assert columns is not None
    assert sorted(columns["ts_ns"].tolist()) == sorted(  # type: ignore[union-attr]
        2 * [T0 + k * S // 2 // S * S for k in range(5, 15) if k % 2]
    )
    assert seconds.close({}, line, NOW) is None


def test_recent_is_the_last_second_and_takes_nothing_away() -> None:
    line = Timeline(
        node="h0", ref_ns=T0, offset_ns=250.0, drift_ppb=0.0, sigma_ns=1.0, component="h0",
        state=ClockState.SYNCHRONIZED,
    )  # fmt: skip
    seconds = PathSeconds()
    seconds.plan([flow(1, "h0/a", "h1/a")])
    assert seconds.recent({"h0": line}, line, NOW) is None
    old, edge = NOW - S - 250 - 1, NOW - S - 250
    for sent in (old, edge, NOW - 1000):
        seconds.add(np.array([(1, 0, sent, sent, sent + 7, 0, 0)], dtype=RECORD))
    for _ in range(2):
        columns = seconds.recent({"h0": line, "h1": line}, line, NOW)
        assert columns is not None
        assert [int(n) for n in columns["sent"]] == [2, 2]
        assert [int(n) for n in columns["count"]] == [2, 0]
        assert {int(n) for n in columns["ts_ns"]} == {(NOW - S) // S * S}
    assert seconds.recent({"h0": line}, line, NOW + 2 * S) is None
    assert seconds.close({"h0": line}, line, NOW + 5 * S) is not None
