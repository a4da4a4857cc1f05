"""From a contention trial to its figures and chart, on made-up trials whose figures are known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from syntony.lab.drill import contention_report, qos
from syntony.lab.drill.contention import SPEC, ContentionTrial, ControllerSample, JobRun
from syntony.lab.drill.contention_figures import (
    PAYLOAD,
    ROCE_PAYLOAD,
    figures,
    optimum_bps,
)
from syntony.lab.jobs.records import RankDone, Record, StepRecord
from syntony.lab.plan import FabricSpec
from syntony.model import MS, S
from syntony.traffic.classes import Classes
from syntony.traffic.demand import Priority
from syntony.wire.traffic import LinkLoadView, MoveView, PlacedFlow, Traffic

ACTED_NS, END_NS = 10 * S, 30 * S
LEAD_TIME_NS = 1_000 * S
ELEMENTS = 250_000
"""1 MB; two ranks of a ring send as much each step: 16 Mbit together."""


def job(name: str, *, resolved_ns: int = ACTED_NS + S) -> JobRun:
    """A step every 400 ms, from then on every 200 ms."""
    records: list[Record] = []
    at_ns, step = 0, 0
    while at_ns < END_NS + S:
        start_ns, at_ns = at_ns, at_ns + (400 if at_ns < resolved_ns else 200) * MS
        records += [
            StepRecord(rank=r, step=step, start_ns=start_ns, end_ns=at_ns, wrong=0) for r in (0, 1)
        ]
        step += 1
    records += [RankDone(rank=r, at_ns=at_ns, steps=step) for r in (0, 1)]
    return JobRun(
        name=name,
        title="all-reduce",
        kind="all-reduce",
        ranks=2,
        elements=ELEMENTS,
        finished=True,
        records=tuple(records),
    )


def sample(at_ns: int) -> ControllerSample:
    crowded = at_ns < ACTED_NS + S
    reported_ns = (at_ns - 2 * S) // S * S
    delay_ns = 9 * MS if reported_ns <= ACTED_NS + S else 10_000
    flows = tuple(
        PlacedFlow(
            flow=f"{name}-flow", job=name, src="h2/rail0", dst="h0/rail0", sport=1, dport=2,
            path="spine0", tx_bps=1, rx_bps=0, paths=2, movable=True, moving=False,
            owd_p50_ns=delay_ns // 2, owd_p99_ns=delay_ns, owd_at_ns=reported_ns + LEAD_TIME_NS,
        )
        for name in ("red", "blue")
    )  # fmt: skip
    links = (
        LinkLoadView(link="leaf0-0->spine0", bps=1, capacity_bps=1, flows=2 if crowded else 1),
        LinkLoadView(link="h0/rail0->leaf0-0", bps=1, capacity_bps=1, flows=2),
    )
    traffic = Traffic(
        mode="act", deciding=True, why="", now_ns=at_ns + LEAD_TIME_NS, flows=flows, links=links
    )
    return ControllerSample(at_ns=at_ns, traffic=traffic)


def move(result: str) -> MoveView:
    return MoveView(
        move_id="1", ts_ns=ACTED_NS + LEAD_TIME_NS, flow="red-flow", job="red", src="h2/rail0",
        dst="h0/rail0", old="spine0", new="spine1", cause="crowded", evidence="", result=result,
        took_ns=1,
    )  # fmt: skip


def trial(**more: Any) -> ContentionTrial:
    base = ContentionTrial(
        spec=SPEC,
        alone_ns=(22 * S, 26 * S),
        began_ns=2 * S,
        acted_ns=ACTED_NS,
        ended_ns=END_NS,
        fleet_ahead_ns=LEAD_TIME_NS,
        jobs=(job("red"), job("blue")),
        samples=tuple(sample(at_ns) for at_ns in range(2 * S, END_NS, S // 2)),
        moves=(move("helped"),),
    )
    return msgspec.structs.replace(base, **more)


def test_figures() -> None:
    found = figures(trial())
    assert found.before.total_mbps == pytest.approx(2 * 16 / 0.4)
    assert found.after.total_mbps == pytest.approx(2 * 16 / 0.2)
    assert found.after.mbps == pytest.approx({"red": 80, "blue": 80})
    assert found.gain == pytest.approx(2)
    assert found.alone_mbps == pytest.approx(160)
    assert found.optimum_mbps == pytest.approx(4 * 2 * 40 * PAYLOAD)
    assert found.resolved_s == pytest.approx(1.0, abs=0.5)
    assert (found.before.shared_links, found.after.shared_links) == (1, 0)
    assert found.before.owd_p99_ms == pytest.approx(9)
    assert found.after.owd_p99_ms == pytest.approx(0.01)
    assert (found.moves, found.flows, found.moves_per_flow) == (1, 2, 0.5)
    assert (found.wrong, found.lost, found.finished) == (0, 0, True)


def test_jobs_over_rdma_share_two_hosts_and_their_links() -> None:
    found = figures(trial(verbs=True))
    assert found.optimum_mbps == pytest.approx(2 * 2 * 40 * ROCE_PAYLOAD)
    assert found.before.name == "RDMA"
    assert found.before.total_mbps == pytest.approx(80, rel=0.05)
    assert (found.before.shared_links, found.after.shared_links) == (1, 1)  # the NIC's alone


def test_what_was_not_better_was_not_resolved() -> None:
    same = (job("red", resolved_ns=END_NS), job("blue", resolved_ns=END_NS))
    found = figures(trial(jobs=same, moves=(move("undone"), move("no answer"))))
    assert found.resolved_s is None
    assert (found.moves, found.undone, found.refused) == (1, 1, 1)
    assert found.held_up == "1 orders not carried out: no answer"


def test_a_controller_that_could_not_decide_says_so() -> None:
    def look(at_ns: int, why: str) -> ControllerSample:
        traffic = msgspec.structs.replace(sample(at_ns).traffic, deciding=not why, why=why)
        return ControllerSample(at_ns=at_ns, traffic=traffic)

    early, late = look(ACTED_NS - S, "starting"), look(END_NS - S, "2 of 4 hosts listen")
    found = figures(trial(samples=(early, look(ACTED_NS + S, ""), late)))
    assert found.held_up == "no decisions in 1 of 2 looks: 2 of 4 hosts listen"


@pytest.mark.parametrize(
    ("spec", "kind", "ranks", "share"),
    [
        (FabricSpec(hosts=4, leaves=2, spines=2), "all-reduce", 2, 1.0),
        (FabricSpec(hosts=4, leaves=2, spines=1), "all-reduce", 2, 0.5),
        (FabricSpec(hosts=8, leaves=2, spines=2), "all-reduce", 4, 0.5),
        (FabricSpec(hosts=8, leaves=2, spines=2), "all-to-all", 4, 0.75),
        (FabricSpec(hosts=8, leaves=2, spines=3), "all-to-all", 4, 1.0),
    ],
)
def test_the_optimum_is_what_spines_leave(
    spec: FabricSpec, kind: str, ranks: int, share: float
) -> None:
    one = msgspec.structs.replace(job("red"), kind=kind, ranks=ranks)
    line_bps = spec.rails * spec.rate_bps * PAYLOAD
    assert optimum_bps(spec, (one,)) == pytest.approx(ranks * line_bps * share)


def test_jobs_with_one_receiver_can_have_what_its_nics_take() -> None:
    spec = FabricSpec(hosts=4, rails=1)
    jobs = [msgspec.structs.replace(job(name), kind="gather", ranks=2) for name in ("a", "b")]
    assert optimum_bps(spec, jobs) == pytest.approx(spec.rate_bps * PAYLOAD)
    assert figures(trial(jobs=tuple(jobs))).before.name == "TCP"


def test_the_chart_is_drawn_and_says_what_was_found() -> None:
    made = trial()
    report = contention_report.make_report(made)
    drawn = contention_report.make_chart(made, report.figures, report.fabric)
    assert "80 → 160 Mb/s" in drawn.subtitle
    assert max(drawn.delay.value) == pytest.approx(9)
    assert drawn.title.startswith("Two jobs")
    svg = drawn.render("svg")
    assert b"Syntony acts" in svg
    assert b"job red" in svg


def test_what_a_guaranteed_job_gets_is_told_of_what_it_does_alone() -> None:
    found = figures(trial())
    named = msgspec.structs.replace(found.before, mbps={"gold": 20.0, "grey": 60.0})
    better = msgspec.structs.replace(found.after, mbps={"gold": 50.0, "grey": 30.0})
    found = msgspec.structs.replace(found, alone_mbps=150.0, before=named, after=better)
    assert qos.guaranteed_shares(found) == (0.4, 1.0)
    assert qos.guaranteed_shares(msgspec.structs.replace(found, alone_mbps=0.0)) == (0.0, 0.0)
    assert Classes(qos.CLASSES).of("gold")[0] is Priority.GUARANTEED
    assert Classes(qos.CLASSES).of("brown")[0] is Priority.SCAVENGER
    classes = [Classes(qos.LINK_CLASSES).of(name)[0] for name in qos.JOBS]
    assert classes == [Priority.GUARANTEED, Priority.STANDARD, Priority.SCAVENGER]
