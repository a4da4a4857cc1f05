"""What a job leaves behind, and what cannot be told apart, each with a neighbour on the other side
(docs/decisions/0430 to 0432)."""

from __future__ import annotations

import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle
from tests.workload.test_exceptions import MESH, NICS, WINDOWS, star
from tests.workload.test_rules import AFTER, mesh, of_flow

from syntony.workload import FaultClass, diagnose
from syntony.workload.classes import (
    bad_link,
    class_mismatch,
    contention,
    data_stall,
    hang,
    incast,
    slow_flow,
)
from syntony.workload.diagnose import _explains
from syntony.workload.facts import BundleFacts
from syntony.workload.verdict import Evidence, RuleFinding

S = 1_000 * MS
F = FaultClass


@pytest.mark.parametrize(
    ("goes_on", "ends", "named"),
    [((0, 1, 2), True, False), ((0, 1, 2), False, True), ((0, 1), True, True), ((), True, True)],
)
def test_a_communicator_that_its_ranks_gave_up_is_no_hang(
    goes_on: tuple[int, ...], ends: bool, named: bool
) -> None:
    """Rank 3 never came to the 20th operation; some of the others have another communicator."""
    rows = [("a", seq, rank, T0 + seq * 100 * MS, seq < 20)
            for seq in range(21) for rank in range(4) if (seq, rank) != (20, 3)]  # fmt: skip
    rows += [("b", seq, rank, T0 + 10 * S + seq * 100 * MS, ends)
             for seq in range(80) for rank in goes_on]  # fmt: skip
    made: Columns = {"collectives": {
        "comm": [each[0] for each in rows], "seq": np.array([each[1] for each in rows]),
        "rank": np.array([each[2] for each in rows]), "op": ["all_reduce"] * len(rows),
        "host": [f"h{each[2]}" for each in rows],
        "enqueue_ns": np.array([each[3] for each in rows]),
        "done_ns": np.array([each[3] + 20 * MS if each[4] else np.iinfo(np.int64).min
                             for each in rows]),
    }, "hosts": {"at_ns": np.array([T0 + 40 * S]), "window_ns": np.array([S]), "host": ["h0"]},
    }  # fmt: skip
    found = hang.find(BundleFacts(bundle(made)))
    assert (("rank 3",) in {each.subjects for each in found}) == named


def steps(waits: np.ndarray, numbers: np.ndarray | None = None) -> Columns:
    """Four ranks' steps, one after the other; each waits for data for so many ns."""
    length = 100 * MS + waits
    begin = T0 + np.concatenate(([0], np.cumsum(length)[:-1]))
    number = np.arange(len(waits)) if numbers is None else numbers
    return {"steps": {
        "step": np.tile(number, 4), "rank": np.repeat(np.arange(4), len(waits)),
        "begin_ns": np.tile(begin, 4), "end_ns": np.tile(begin + length, 4),
        "data_ns": np.tile(waits, 4).astype(float),
    }}  # fmt: skip


@pytest.mark.parametrize(
    ("heavy", "named"), [((30,), False), ((30, 32), False), ((30, 32, 34), True)]
)
def test_one_long_pause_is_no_stall(heavy: tuple[int, ...], named: bool) -> None:
    waits = np.zeros(60, dtype=np.int64)
    waits[[*heavy]] = 300 * MS
    assert bool(data_stall.find(BundleFacts(bundle(steps(waits))))) == named


@pytest.mark.parametrize(
    ("before", "apart", "after", "earlier_ms", "named"),
    [
        (12, 4, 3, 0, True),
        (6, 4, 3, 0, True),
        (5, 4, 3, 0, False),  # one may have been written just before
        (12, 4, 4, 0, False),  # a third was due
        (12, 1, 0, 0, False),  # one pause, over two steps
        (12, 4, 3, 160, False),  # as one before, nearly
        (40, 8, 7, 0, True),
    ],
)
def test_two_pauses_are_a_stall_if_none_was_before_and_none_is_due(
    before: int, apart: int, after: int, earlier_ms: int, named: bool
) -> None:
    waits = np.zeros(before + apart + 1 + after, dtype=np.int64)
    waits[[before, before + apart]] = 300 * MS
    waits[0] = earlier_ms * MS
    facts = BundleFacts(bundle(steps(waits)))
    found = data_stall.find(facts)
    assert [each.confidence < 0.9 for each in found] == [True] * named
    if not named:
        assert any("2 of" in gap.reason and "300 ms" in gap.reason for gap in facts.gaps)


@pytest.mark.parametrize(
    ("steps_before", "before_ms", "wait_ms", "named"),
    [(20, 1, 15, True), (6, 1, 15, True), (4, 1, 15, False), (20, 8, 15, False),
     (20, 1, 9, False)],
)  # fmt: skip
def test_a_wait_of_a_tenth_of_the_time_is_a_stall_if_it_is_new(
    steps_before: int, before_ms: int, wait_ms: int, named: bool
) -> None:
    """Steps of 100 ms and the wait for data."""
    waits = np.full(60, before_ms * MS, dtype=np.int64)
    waits[steps_before:] = wait_ms * MS
    found = data_stall.find(BundleFacts(bundle(steps(waits))))
    onset_ns = steps_before * (100 + before_ms) * MS
    assert [each.onset_ns - T0 for each in found] == [onset_ns] * named


@pytest.mark.parametrize("every", range(3, 11))
def test_checkpoints_that_take_less_than_their_share_are_no_stall(every: int) -> None:
    """Steps of 100 ms; a seventh of the time is for checkpoints, or a quarter."""
    for part, named in ((0.14, False), (0.25, True)):
        waits = np.zeros(80, dtype=np.int64)
        waits[every - 1 :: every] = part / (1 - part) * every * 100 * MS
        assert bool(data_stall.find(BundleFacts(bundle(steps(waits))))) == named, part


@pytest.mark.parametrize(("again", "named"), [(30, False), (60, True)])
def test_steps_that_a_rank_went_back_on_do_not_count(again: int, named: bool) -> None:
    """The last thirty of sixty steps waited; then the job goes on, or begins again at step 30."""
    waits = np.zeros(80, dtype=np.int64)
    waits[30:60] = 300 * MS
    numbers = np.concatenate((np.arange(60), np.arange(again, again + 20)))
    assert bool(data_stall.find(BundleFacts(bundle(steps(waits, numbers))))) == named


@pytest.mark.parametrize(
    ("use", "fault", "subjects"),
    [
        (None, "contention", ("up->leaf", "h5/n")),
        ((0.97, 0.4), "contention", ("up->leaf",)),
        ((0.4, 0.97), "incast", ("h5/n",)),
    ],
)
def test_a_nic_and_the_only_link_to_its_switch_are_named_together(
    use: tuple[float, float] | None, fault: str, subjects: tuple[str, ...]
) -> None:
    made = mesh()
    flows = made["flows"]
    into = [flow for flow, (_, dst) in enumerate(MESH) if dst == NICS[5]]
    flows["hops"] = [(path[0], "up->leaf", path[1]) if path[1] == f"sw->{NICS[5]}" else path
                     for path in flows["hops"]]  # fmt: skip
    for flow in into:
        of_flow(flows["owd_p50_ns"], flow)[:] *= 12
    if use is not None:
        links = made["links"]
        links["link"] = [*links["link"], *["up->leaf"] * WINDOWS]
        links["at_ns"] = np.append(links["at_ns"], T0 + np.arange(WINDOWS) * 100 * MS)
        links["window_ns"] = np.full(len(links["at_ns"]), 100 * MS)
        level = {"up->leaf": use[0], f"sw->{NICS[5]}": use[1]}
        links["utilisation"] = np.array([level.get(each, 0.1) for each in links["link"]])
    facts = BundleFacts(bundle(made))
    found = [*contention.find(facts), *incast.find(facts)]
    assert [(each.fault, each.subjects) for each in found] == [(fault, subjects)]


@pytest.mark.parametrize(("windows", "named"), [(1, False), (12, True)])
def test_a_link_that_loses_once_of_each_flow_is_no_bad_link(windows: int, named: bool) -> None:
    made = mesh()
    made["flows"]["retransmits"] = np.zeros(WINDOWS * len(MESH))
    into = [flow for flow, (_, dst) in enumerate(MESH) if dst == NICS[5]]
    for number, flow in enumerate(into[:2]):
        begin = AFTER + 6 * number
        of_flow(made["flows"]["retransmits"], flow, begin)[:windows] = 30
    made["flows"]["hops"] = [
        path if place % len(MESH) in into[:2] else (path[0], f"other{place % len(MESH)}", path[1])
        if place % len(MESH) not in into else (path[0], f"other{place % len(MESH)}")
        for place, path in enumerate(made["flows"]["hops"])
    ]  # fmt: skip
    found = bad_link.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([(f"sw->{NICS[5]}",)] if named else [])


@pytest.mark.parametrize(
    ("delays", "counters", "sure"),
    [(False, True, False), (False, False, True), (True, True, True)],
)
def test_a_link_that_counts_no_errors_is_bad_only_if_packets_are_known_not_to_wait(
    delays: bool, counters: bool, sure: bool
) -> None:
    made = mesh()
    made["flows"]["retransmits"] = np.zeros(WINDOWS * len(MESH))
    for flow, (_, dst) in enumerate(MESH):
        if dst == NICS[5]:
            of_flow(made["flows"]["retransmits"], flow)[:] = 9
    if not delays:
        del made["flows"]["owd_p50_ns"]
    if counters:
        made["links"]["symbol_errors"] = np.zeros(len(made["links"]["link"]))
    (found,) = bad_link.find(BundleFacts(bundle(made)))
    (queue,) = (each for each in found.alternatives if each.fault == F.CONTENTION)
    assert queue.excluded == delays
    assert (found.confidence >= 0.5) == sure


@pytest.mark.parametrize(("counted", "explained"), [(False, True), (True, False)])
def test_a_class_that_waits_explains_its_losses(counted: bool, explained: bool) -> None:
    signals = ("retransmits", "symbol_errors") if counted else ("retransmits",)
    cause, other = (
        RuleFinding(
            fault=fault, subjects=("x",), onset_ns=0, last_ns=9, confidence=0.9, alternatives=(),
            evidence=tuple(Evidence(each, "") for each in signals), action="",
            flows=frozenset({1, 2}),
        ) for fault in (F.CLASS_MISMATCH, F.BAD_LINK)
    )  # fmt: skip
    assert _explains(cause, other) == explained


@pytest.mark.parametrize(("own", "named"), [(90_000.0, True), (4_000.0, False), (None, False)])
def test_one_pair_is_enough_where_probes_of_its_class_wait(own: float | None, named: bool) -> None:
    made = star([(NICS[0], NICS[1])])
    flows = made["flows"]
    flows |= {"owd_p50_ns": np.full(WINDOWS, 100_000.0), "tc": np.full(WINDOWS, 96.0)}
    kinds = [(0.0, 4_000.0)] + ([(96.0, own)] if own is not None else [])
    many = WINDOWS * len(kinds)
    made["probes"] = {
        "at_ns": np.tile(flows["at_ns"], len(kinds)), "src": [NICS[0]] * many,
        "dst": [NICS[1]] * many, "tc": np.repeat([each for each, _ in kinds], WINDOWS),
        "owd_p50_ns": np.repeat([each for _, each in kinds], WINDOWS),
    }  # fmt: skip
    assert bool(class_mismatch.find(BundleFacts(bundle(made)))) == named


@pytest.mark.parametrize(
    ("slow", "odd", "named"), [(3, 0, [("",)]), (2, 0, []), (3, 3, [("a0",), ("a1",), ("a2",)])]
)
def test_pairs_without_probes_do_not_hide_a_class_that_waits(
    slow: int, odd: int, named: list[tuple[str, ...]]
) -> None:
    """Probes between three of ten pairs of NICs; the packets of so many of them wait. So many hosts
    have a class of their own."""
    pairs = [(f"a{each}/n", f"b{each}/n") for each in range(10)]
    made = star(pairs)
    flows = made["flows"]
    waits = np.array([not slow <= int(each[1]) < 3 for each in flows["src"]])
    flows |= {
        "owd_p50_ns": np.where(waits, 100_000.0, 4_000.0),
        "tc": np.array([32.0 if int(each[1]) < odd else 96.0 for each in flows["src"]]),
    }
    made["probes"] = {
        "at_ns": T0 + np.repeat(np.arange(WINDOWS), 3) * 100 * MS,
        "src": [src for src, _ in pairs[:3]] * WINDOWS,
        "dst": [dst for _, dst in pairs[:3]] * WINDOWS,
        "tc": np.zeros(3 * WINDOWS), "owd_p50_ns": np.full(3 * WINDOWS, 4_000.0),
    }  # fmt: skip
    found = class_mismatch.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == named
    assert all(each.confidence < 0.8 for each in found) or odd


@pytest.mark.parametrize(("many", "named"), [(1, True), (2, False)])
def test_flows_of_one_link_that_only_send_slower_are_not_slow_each(many: int, named: bool) -> None:
    made = mesh()
    made["flows"]["rate_bps"] = np.full(WINDOWS * len(MESH), 1e10)
    into = [flow for flow, (_, dst) in enumerate(MESH) if dst == NICS[5]][:many]
    for flow in into:
        of_flow(made["flows"]["rate_bps"], flow)[:] *= 0.4
    found = diagnose(bundle(made))
    assert bool(slow_flow.find(BundleFacts(bundle(made)))) == named
    assert any("has a link or NIC of it" in each.reason for each in found.gaps) != named


@pytest.mark.parametrize("meanwhile", [True, False])
def test_flows_that_did_not_send_meanwhile_do_not_speak_for_a_link(meanwhile: bool) -> None:
    made = mesh()
    delays = made["flows"]["owd_p50_ns"]
    into = [flow for flow, (_, dst) in enumerate(MESH) if dst == NICS[5]]
    for flow in into[:2]:
        of_flow(delays, flow)[:] *= 12
    for flow in into[2:]:
        of_flow(delays, flow, 0 if meanwhile else AFTER)[AFTER if meanwhile else 0 :] *= (
            1.0 if meanwhile else np.nan)  # fmt: skip
    found = incast.find(BundleFacts(bundle(made)))
    assert [each.subjects for each in found] == ([] if meanwhile else [(NICS[5],)])


def test_the_scatter_of_few_flows_is_not_that_of_the_one_which_waits() -> None:
    """Of two flows of their length one waits half of the time."""
    made = mesh()
    made["flows"]["hops"] = [
        (path[0],) if place % len(MESH) in (7, 8) else path
        for place, path in enumerate(made["flows"]["hops"])
    ]  # fmt: skip
    waits = of_flow(made["flows"]["owd_p50_ns"], 7, WINDOWS // 2)
    waits[:] *= 20 * np.tile([0.8, 1.2], len(waits))[: len(waits)]
    flows = BundleFacts(bundle(made)).flows
    assert flows is not None
    assert flows.waiting[7, WINDOWS // 2 :].all()
