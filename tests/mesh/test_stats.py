from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from syntony.mesh.stats import HOLD_NS, Columns, FlowInfo, PathSeconds, Records, hold_ns
from syntony.model import ClockState, S, Timeline
from syntony.model.probes import ProbeFlag
from syntony.wire.probes import ProbeFlow
from syntony.wire.tables import PROBE

T0 = 1_700_000_000 * S
RECORD = np.dtype(
    [("flow_id", "<u4"), ("flags", "<u4")]
    + [(stamp, "<i8") for stamp in ("sent_ns", "t1_ns", "t2_ns", "t3_ns", "t4_ns")]
)
OFFSETS = {"h0": -5_000_000, "h1": 7_000_000}
"""Local minus fleet, of each clock."""


def info(flow_id: int) -> FlowInfo:
    flow = ProbeFlow(
        flow_id=flow_id,
        src="rail0",
        dst="h1/rail0",
        dst_nic_id=2,
        dst_addr="10.0.0.2",
        dst_port=8620,
        src_port=61_000 + flow_id,
        interval_ns=S // 2,
    )
    return FlowInfo(flow=flow, src="h0/rail0", src_clock="h0", dst_clock="h1")


def lines(**changes: Any) -> dict[str, Timeline]:
    values: dict[str, Any] = {
        "drift_ppb": 0.0,
        "sigma_ns": 30.0,
        "state": ClockState.SYNCHRONIZED,
        "component": "h0",
    }
    return {
        node: Timeline(node=node, ref_ns=T0 + local, offset_ns=-local, **values | changes)
        for node, local in OFFSETS.items()
    }


def probe(
    fleet_ns: int, *, flow_id: int = 1, there_ns: int = 9_000, back_ns: int = 4_000, flags: int = 0
) -> tuple[int, ...]:
    """A probe that left at a fleet instant; its stamps are on the local clocks."""
    t1, t2 = fleet_ns + OFFSETS["h0"], fleet_ns + there_ns + OFFSETS["h1"]
    t3, t4 = t2 + 1_000, t1 + there_ns + 1_000 + back_ns
    if flags & (ProbeFlag.LOST_FWD | ProbeFlag.LOST_UNKNOWN | ProbeFlag.LOST_REV):
        t2 = t3 = t4 = 0
    return flow_id, flags, t1, t1, t2, t3, t4


def rows(
    probes: list[tuple[int, ...]], *, flows: tuple[int, ...] = (1, 2), **changes: Any
) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Closed rows by (direction's source, source port, second)."""
    seconds = PathSeconds()
    seconds.plan([info(flow_id) for flow_id in flows])
    seconds.add(np.array(probes, dtype=RECORD))
    clocks = lines(**changes)
    columns = seconds.close(clocks, clocks["h0"], T0 + 10 * S)
    assert columns is not None
    return by_key(columns)


def by_key(columns: Columns) -> dict[tuple[str, int, int], dict[str, Any]]:
    assert set(columns) == {column.name for column in PROBE.columns}
    assert isinstance(columns["src"], list), "names are no arrays: a batch takes them as they are"
    count = len(columns["ts_ns"])
    table = [{name: column[place] for name, column in columns.items()} for place in range(count)]
    return {(row["src"], int(row["sport"]), (int(row["ts_ns"]) - T0) // S): row for row in table}


def picked(row: Mapping[str, Any], *names: str) -> tuple[int, ...]:
    return tuple(int(row[name]) for name in names)


def test_delays_are_on_the_fleet_timeline_in_both_directions() -> None:
    found = rows([probe(T0 + 5, there_ns=delay) for delay in (9_000, 8_000, 12_000)])
    forward = found["h0/rail0", 61_001, 0]
    assert picked(forward, "sent", "lost", "count") == (3, 0, 3)
    assert picked(forward, "owd_min_ns", "owd_p50_ns", "owd_max_ns") == (8_000, 9_000, 12_000)
    reverse = found["h1/rail0", 61_001, 0]
    assert picked(reverse, "sent", "owd_min_ns", "owd_max_ns") == (3, 4_000, 4_000)
    assert (reverse["dst"], reverse["prober"]) == ("h0/rail0", "h0/rail0")
    assert forward["clk_err_ns"] == pytest.approx(30 * 2**0.5)


def test_each_path_and_second_has_its_row() -> None:
    found = rows([probe(T0 + 1), probe(T0 + S), probe(T0 + 1, flow_id=2)])
    assert {key[1:] for key in found} == {(61_001, 0), (61_001, 1), (61_002, 0)}


@pytest.mark.parametrize(
    ("flags", "forward", "reverse"),
    [
        (ProbeFlag.LOST_FWD, (2, 1, 0, 0, 1), (1, 0, 0, 0, 1)),
        (ProbeFlag.LOST_REV, (2, 0, 0, 0, 1), (2, 1, 0, 0, 1)),
        (ProbeFlag.LOST_UNKNOWN, (2, 0, 1, 0, 1), (2, 0, 1, 0, 1)),
        (ProbeFlag.LOST_FWD | ProbeFlag.STALL_LOCAL, (1, 0, 0, 1, 1), (1, 0, 0, 1, 1)),
        (ProbeFlag.LOST_UNKNOWN | ProbeFlag.STALL_REMOTE, (1, 0, 0, 1, 1), (1, 0, 0, 1, 1)),
        (ProbeFlag.STALL_LOCAL, (2, 0, 0, 0, 2), (2, 0, 0, 0, 2)),
    ],
    ids=str,
)
def test_loss_goes_to_its_direction_and_own_stalls_to_neither(
    flags: ProbeFlag, forward: tuple[int, ...], reverse: tuple[int, ...]
) -> None:
    found = rows([probe(T0), probe(T0 + 1, flags=int(flags))])
    names = ("sent", "lost", "unresolved", "stalled", "count")
    assert picked(found["h0/rail0", 61_001, 0], *names) == forward
    assert picked(found["h1/rail0", 61_001, 0], *names) == reverse


def test_a_missing_stamp_costs_its_delay_only() -> None:
    whole = np.array([probe(T0)], dtype=RECORD)
    whole["t3_ns"] = 0
    found = rows([tuple(whole[0].tolist())])
    assert picked(found["h0/rail0", 61_001, 0], "sent", "count") == (1, 1)
    assert picked(found["h1/rail0", 61_001, 0], "sent", "lost", "count") == (1, 0, 0)


@pytest.mark.parametrize("changes", [{"state": ClockState.UNKNOWN}])
def test_unknown_clocks_give_counts_without_delays(changes: dict[str, Any]) -> None:
    row = rows([probe(T0)], **changes)["h0/rail0", 61_001, 0]
    assert picked(row, "sent", "count", "owd_min_ns") == (1, 0, 0)


def test_clocks_of_two_islands_are_not_compared() -> None:
    seconds = PathSeconds()
    seconds.plan([info(1)])
    seconds.add(np.array([probe(T0)], dtype=RECORD))
    clocks = lines() | {"h1": lines(component="h1")["h1"]}
    columns = seconds.close(clocks, clocks["h0"], T0 + 10 * S)
    assert columns is not None
    assert picked(by_key(columns)["h0/rail0", 61_001, 0], "sent", "count") == (1, 0)


def records(*probes: tuple[int, ...]) -> Records:
    return np.array(list(probes), dtype=RECORD)


def test_a_second_closes_only_when_its_probes_are_settled() -> None:
    seconds = PathSeconds()
    seconds.plan([info(1)])
    clocks = lines()
    seconds.add(records(probe(T0 + 1), probe(T0 + S)))
    assert seconds.close(clocks, clocks["h0"], T0 + S + HOLD_NS - 1) is None
    first = seconds.close(clocks, clocks["h0"], T0 + S + HOLD_NS)
    assert first is not None
    assert set(by_key(first)) == {("h0/rail0", 61_001, 0), ("h1/rail0", 61_001, 0)}
    assert seconds.close(clocks, clocks["h0"], T0 + S + HOLD_NS) is None
    second = seconds.close(clocks, clocks["h0"], T0 + 2 * S + HOLD_NS)
    assert second is not None
    assert {key[2] for key in by_key(second)} == {1}
    assert seconds.dropped == 0


def test_the_last_second_is_told_before_it_is_over_and_again_when_it_is() -> None:
    seconds = PathSeconds()
    seconds.plan([info(1)])
    assert seconds.recent(lines(), lines()["h0"], T0 + S) is None
    seconds.add(records(probe(T0 + S // 10), probe(T0 + S // 2), probe(T0 + 3 * S // 2)))
    soon = seconds.recent(lines(), lines()["h0"], T0 + 2 * S)
    assert soon is not None
    assert set(np.asarray(soon["count"]).tolist()) == {1}, "of one second back"
    early = seconds.recent(lines(), lines()["h0"], T0 + S)
    assert early is not None
    assert set(np.asarray(early["sent"]).tolist()) == {3}, "that are known already"
    closed = seconds.close(lines(), lines()["h0"], T0 + 10 * S)
    assert closed is not None
    assert int(np.asarray(closed["sent"]).sum()) == 6, "both directions of all three"


def test_what_is_shed_is_counted() -> None:
    seconds = PathSeconds(max_waiting=2)
    seconds.plan([info(1)])
    seconds.add(records(probe(T0, flow_id=9)))
    assert seconds.dropped == 1
    seconds.add(records(*(probe(T0 + place) for place in range(5))))
    assert seconds.dropped == 4
    seconds.plan([info(2)])
    assert seconds.dropped == 6


@pytest.mark.parametrize(
    ("interval_ns", "seconds"), [(2_000_000, 0), (S // 2, 0), (S // 2 + 1, 1), (S, 1), (4 * S, 4)]
)
def test_rare_probes_are_waited_for(interval_ns: int, seconds: int) -> None:
    """An answered probe is complete with the next pair's reply, or half a timeout later."""
    assert hold_ns(interval_ns) == HOLD_NS + seconds * S
