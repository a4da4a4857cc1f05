import msgspec
import numpy as np
import pytest

from syntony.agent.pipeline import Pipeline, agent_row
from syntony.model import ClockState, S, Timeline
from syntony.model.probes import ProbeFlag
from syntony.wire.probes import Plan, ProbeFlow
from syntony.wire.tables import AGENT, HEARD

T0 = 1_700_000_000 * S
RECORD = np.dtype(
    [("flow_id", "<u4"), ("flags", "<u4")]
    + [(stamp, "<i8") for stamp in ("sent_ns", "t1_ns", "t2_ns", "t3_ns", "t4_ns")]
)
HEARD_ROW = np.dtype([("src_nic_id", "<u4"), ("dst_nic_id", "<u4"), ("requests", "<u8")])


def plan(*flow_ids: int) -> Plan:
    flows = tuple(
        ProbeFlow(
            flow_id=flow_id,
            src="rail0",
            dst="h1/rail0",
            dst_nic_id=2,
            dst_addr="10.0.0.2",
            dst_port=8620,
            src_port=61_000,
            interval_ns=S,
        )
        for flow_id in flow_ids
    )
    return Plan(
        generation=1,
        nic_ids={"rail0": 1},
        nic_names={2: "h1/rail0"},
        clocks={"h0/rail0": "h0", "h1/rail0": "h1"},
        flows=flows,
    )


def probes(count: int, flow_id: int = 7) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    records = np.zeros(count, dtype=RECORD)
    records["flow_id"] = flow_id
    records["t1_ns"] = T0 + np.arange(count) * 10_000_000
    records["sent_ns"] = records["t1_ns"]
    for stamp, after in (("t2_ns", 5_000), ("t3_ns", 9_000), ("t4_ns", 16_000)):
        records[stamp] = records["t1_ns"] + after
    return records


def line(node: str) -> Timeline:
    return Timeline(
        node=node,
        ref_ns=T0,
        offset_ns=1_000.0,
        drift_ppb=0.0,
        sigma_ns=1.0,
        state=ClockState.SYNCHRONIZED,
        component="h0",
    )


def test_nothing_is_placed_before_the_clock_is_known_and_nothing_is_lost_meanwhile() -> None:
    pipeline = Pipeline("h0")
    pipeline.plan(plan(7))
    pipeline.add(probes(50))
    assert pipeline.fleet_ns(T0) is None
    assert pipeline.probe_rows(T0 + 10 * S) is None
    pipeline.timelines([line("h0"), line("h1")])
    assert pipeline.fleet_ns(T0) == T0 + 1_000
    rows = pipeline.probe_rows(T0 + 10 * S)
    assert rows is not None
    assert int(np.sum(np.asarray(rows["sent"]))) == 100
    assert pipeline.dropped == 0


def test_pairs_become_edges() -> None:
    pipeline = Pipeline("h0")
    pipeline.plan(plan(7))
    pipeline.add(probes(50))
    (edge,) = pipeline.edges(T0 + S)
    assert (edge.a, edge.b) == ("h0", "h1")
    assert abs(edge.theta_ns - (5_000 - 7_000) / 2) < 10


def test_a_new_plan_keeps_the_window_of_paths_that_stay() -> None:
    pipeline = Pipeline("h0")
    pipeline.plan(plan(7))
    pipeline.add(probes(50))
    pipeline.plan(plan(7, 8))
    assert len(pipeline.edges(T0 + S)) == 1
    pipeline.plan(plan(8))
    assert pipeline.edges(T0 + S) == ()


def knowing(epoch: int) -> Timeline:
    return msgspec.structs.replace(line("h1"), epoch=epoch)


def test_a_new_epoch_of_a_clock_forgets_what_was_measured_with_it() -> None:
    """The host's own, or a peer's as the controller tells it; edges say which they speak of."""
    pipeline = Pipeline("h0")
    pipeline.begin_epoch(11)
    pipeline.plan(plan(7))
    pipeline.add(probes(50))
    (edge,) = pipeline.edges(T0 + S)
    assert (edge.a_epoch, edge.b_epoch) == (11, 0)
    pipeline.timelines([line("h0"), knowing(21)])
    (edge,) = pipeline.edges(T0 + S)
    assert (edge.a_epoch, edge.b_epoch) == (11, 21), "nothing is lost where it is first told"
    pipeline.timelines([line("h0"), knowing(22)])
    assert pipeline.edges(T0 + S) == ()
    pipeline.add(probes(50))
    (edge,) = pipeline.edges(T0 + S)
    assert (edge.a_epoch, edge.b_epoch) == (11, 22)
    pipeline.begin_epoch(12, T0 + S // 4)
    assert pipeline.edges(T0 + S) == ()
    under_way = probes(25)
    pipeline.add(under_way)
    assert pipeline.edges(T0 + S) == (), "sent before, back after"
    pipeline.add(probes(50))
    (edge,) = pipeline.edges(T0 + S)
    assert (edge.a_epoch, edge.b_epoch) == (12, 22)
    assert edge.probes < 50


def test_a_peers_new_epoch_leaves_out_probes_sent_before_it_was_told() -> None:
    """They may have been stamped at the clock's old rate, and still be under way."""
    pipeline = Pipeline("h0")
    pipeline.plan(plan(7))
    pipeline.timelines([line("h0"), knowing(21)])
    pipeline.timelines([line("h0"), knowing(22)], local_ns=T0 + S // 4)
    pipeline.add(probes(25))
    assert pipeline.edges(T0 + S) == ()
    pipeline.add(probes(50))
    (edge,) = pipeline.edges(T0 + S)
    assert edge.ref_ns > T0 + S // 4


@pytest.mark.parametrize(("since_ns", "kept"), [(0, True), (5_000, True), (5_001, False)])
def test_an_epoch_told_first_forgets_what_was_stamped_before_it(since_ns: int, kept: bool) -> None:
    """A peer's clock may have changed between the first probe and the first timeline."""
    pipeline = Pipeline("h0")
    pipeline.plan(plan(7))
    pipeline.add(probes(50))
    pipeline.timelines([line("h0"), knowing(T0 + since_ns)], local_ns=T0 + S)
    assert bool(pipeline.edges(T0 + S)) is kept


def test_heard_rows_count_what_came_since_the_last_call() -> None:
    pipeline = Pipeline("h0")
    pipeline.plan(plan(7))
    heard = np.array([(2, 1, 10), (99, 1, 3)], dtype=HEARD_ROW)
    rows = pipeline.received_rows(heard, T0)
    assert rows is not None
    assert set(rows) == {column.name for column in HEARD.columns}
    assert (list(rows["src"]), list(rows["dst"])) == (["h1/rail0"], ["h0/rail0"])
    assert list(rows["received"]) == [10]
    assert pipeline.received_rows(heard, T0 + S) is None
    heard["requests"] += 4
    rows = pipeline.received_rows(heard, T0 + 2 * S)
    assert rows is not None
    assert list(rows["received"]) == [4]


def test_heard_rows_count_from_where_this_process_begins_to_listen() -> None:
    """An engine that is older than this process, and one that is younger."""
    pipeline = Pipeline("h0")
    pipeline.plan(plan(7))
    for before in (1000, 0):
        heard = np.array([(2, 1, before)], dtype=HEARD_ROW)
        pipeline.count_from(heard)
        assert pipeline.received_rows(heard, T0) is None
        heard["requests"] += 4
        rows = pipeline.received_rows(heard, T0 + S)
        assert rows is not None
        assert list(rows["received"]) == [4]


def test_an_agent_row_has_the_columns_of_its_table() -> None:
    counters = {column.name: 1 for column in AGENT.columns if column.name not in {"ts_ns", "host"}}
    assert set(agent_row("h0", T0, counters)) == {column.name for column in AGENT.columns}


def test_losses_are_told_once_in_each_step_and_not_before_the_clock_is_known() -> None:
    pipeline, lost = Pipeline("h0"), probes(100)
    pipeline.plan(plan(7))
    lost["flags"][40] = int(ProbeFlag.LOST_UNKNOWN)  # sent 0.4 s into the second
    pipeline.add(lost)
    now_ns = T0 + 1_700_000_000
    assert pipeline.losses(now_ns) is None
    pipeline.timelines([line("h0"), line("h1")])
    found = pipeline.losses(now_ns + 7)
    assert found is not None
    assert (found.at_ns, found.prompt) == (T0 + 1_600_000_000, ("h1",))
    (pair,) = found.pairs
    assert (pair.src, pair.dst, pair.lost, pair.paths) == ("h0/rail0", "h1/rail0", 1, 1)
    assert pipeline.losses(now_ns + 8) is None
    assert pipeline.losses(now_ns + 200_000_000) is not None
