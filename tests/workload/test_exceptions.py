"""What a job's start, its ring and its placement do is no fault (docs/decisions/0251)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from tests.workload.made import MS, T0, Columns, bundle

from syntony.workload import FaultClass, diagnose, ranks
from syntony.workload.classes import bad_link, pfc_storm, straggler
from syntony.workload.diagnose import _causes, _exceptions
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import significant_episodes
from syntony.workload.verdict import Evidence, RuleFinding

WINDOWS = 40
F = FaultClass


@pytest.mark.parametrize(
    ("first", "last", "known_from", "kept"),
    [
        (0, 4, 0, False),  # the start
        (0, 5, 0, True),  # longer than that
        (1, 5, 0, True),  # after it
        (10, 14, 0, True),
        (7, 11, 7, False),  # a flow that begins later has a start of its own
        (8, 12, 7, True),
        (0, WINDOWS - 1, 0, True),
    ],
)
def test_a_start_is_no_episode(first: int, last: int, known_from: int, kept: bool) -> None:
    bad, valid = np.zeros((30, WINDOWS), bool), np.ones((30, WINDOWS), bool)
    bad[3, first : last + 1] = True
    valid[3, :known_from] = False
    assert (3 in significant_episodes(bad, valid)) == kept


def test_all_of_a_short_recording_may_be_an_episode() -> None:
    bad, valid = np.zeros((30, 5), bool), np.ones((30, 5), bool)
    bad[3] = True
    assert 3 in significant_episodes(bad, valid)


def finding(
    fault: FaultClass, subject: str, *, delay: float = 0.0, rate: float = 1.0,
    begin: int = 100, end: int = 200, flows: tuple[int, ...] = (),
) -> RuleFinding:  # fmt: skip
    signals: tuple[Evidence, ...] = (Evidence("owd_p50_ns", "", delay, 0.0),) if delay else ()
    if rate:
        signals += (Evidence("rate_bps", "", rate, 2.0),)
    return RuleFinding(
        fault=fault, subjects=(subject,), onset_ns=begin, last_ns=end, confidence=0.9,
        evidence=signals, alternatives=(), action="", flows=frozenset(flows),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("slow", "kept"),
    [
        (finding(F.SLOW_FLOW, "qp1", flows=(1,)), False),
        (finding(F.SLOW_FLOW, "qp1", flows=(1,), delay=9e4), True),  # its packets do wait
        (finding(F.SLOW_FLOW, "qp1", flows=(1,), delay=9e4, rate=1.9), False),  # without harm
        (finding(F.SLOW_FLOW, "qp1", flows=(1,), delay=9e4, rate=0.0), False),  # … that is known
        (finding(F.SLOW_FLOW, "qp1", flows=(1,), begin=201, end=300), True),  # afterwards
        (finding(F.SLOW_FLOW, "qp1", flows=(1,), begin=0, end=99), True),  # before
        (finding(F.STRAGGLER, "rank 1"), True),
    ],
)
def test_a_flow_with_less_to_send_follows_from_what_holds_up_its_ring(
    slow: RuleFinding, kept: bool
) -> None:
    slot = finding(F.PCIE, "h0/n0", flows=(7,))
    for order in ([slot, slow], [slow, slot]):
        causes, follows = _causes(order)
        assert (slow in causes) == kept
        assert slot in causes
        assert bool(follows) == (not kept)


@pytest.mark.parametrize(
    ("delay", "begin", "kept"), [(2e4, 100, False), (4e4, 100, True), (2e4, 201, True)]
)
def test_echoes_of_a_symptom_follow_from_its_cause(delay: float, begin: int, kept: bool) -> None:
    """A slot makes one flow wait; flows elsewhere wait a fifth as long for the bursts of that."""
    slot = finding(F.PCIE, "h0/n0", flows=(1,))
    worst = finding(F.SLOW_FLOW, "qp1", flows=(1,), delay=1e5, rate=0.5)
    other = finding(
        F.SLOW_FLOW, "qp2", flows=(2,), delay=delay, rate=0.5, begin=begin, end=begin + 100
    )
    for order in ([slot, worst, other], [slot, other, worst]):
        causes, follows = _causes(order)
        assert causes == ([slot, other] if kept else [slot])
        assert len(follows[id(slot)]) == (1 if kept else 2)
    assert _causes([worst, other])[0] == ([worst, other] if kept else [worst])


def test_two_flows_with_less_to_send_do_not_explain_each_other() -> None:
    both = [finding(F.SLOW_FLOW, f"qp{each}", flows=(each,)) for each in (1, 2)]
    assert _causes(both)[0] == both


@pytest.mark.parametrize(("links", "kept"), [(3, 3), (4, 0)])
def test_more_than_three_links_alike_are_no_exceptions(links: int, kept: int) -> None:
    kinds = [F.CONTENTION if each % 2 else F.INCAST for each in range(links)]
    found = [finding(kind, f"link{each}", delay=9e4) for each, kind in enumerate(kinds)]
    other = finding(F.PCIE, "h0/n0")
    left, gaps = _exceptions([*found, other], early_ns=100)
    assert left == [*found[:kept], other]
    assert [gap.reason for gap in gaps] == (
        [] if kept else [f"flows wait at {links} links alike: none stands out"]
    )
    assert all(gap.limits for gap in gaps)


def test_of_many_links_those_at_which_flows_came_to_wait_are_exceptions() -> None:
    """How a job is placed does not change; what is as unsure as a note does not count."""
    always = [finding(F.CONTENTION, f"link{each}", delay=9e4) for each in range(4)]
    changed = finding(F.INCAST, "h0/n0", delay=9e4, begin=101)
    for count in (1, 4):
        assert _exceptions([*always[:count], changed], early_ns=100)[0] == [changed]
    worse = finding(F.CONTENTION, "link9", delay=10e4)
    assert _exceptions([worse, changed], early_ns=100) == ([worse, changed], [])
    many = [finding(F.INCAST, f"h{each}/n0", delay=9e4, begin=101) for each in range(4)]
    assert _exceptions(many, early_ns=100)[0] == []
    unsure = [msgspec.structs.replace(each, confidence=0.49) for each in always]
    assert _exceptions([*unsure, changed], early_ns=100) == ([*unsure, changed], [])


def test_what_waits_before_a_receiver_fills_the_links_above_and_not_the_other_way() -> None:
    """Both are as long; a flow that does not cross the link above waits as well."""
    above = finding(F.CONTENTION, "spine>leaf", flows=(1, 2, 3), delay=1.1e6)
    incast = finding(F.INCAST, "h0/n0", flows=(1, 2, 4), delay=1e6)
    apart = finding(F.INCAST, "h1/n0", flows=(7, 8), delay=1e6)
    inside = finding(F.INCAST, "h2/n0", flows=(1, 2), delay=1e6)
    for order in ([above, incast], [incast, above]):
        assert _causes(order)[0] == [incast]
    assert _causes([above, apart])[0] == [above, apart]
    assert _causes([inside, above])[0] == [above, inside]  # nothing tells them apart


def star(flows: list[tuple[str, str]], **more: Any) -> Columns:
    """Flows over one switch, and their links."""
    names = [f"qp{each}" for each in range(len(flows))]
    hops = [(f"{src}->sw", f"sw->{dst}") for src, dst in flows]
    window = np.repeat(np.arange(WINDOWS), len(flows))
    links = sorted({link for path in hops for link in path})
    at = np.repeat(np.arange(WINDOWS), len(links))
    return {
        "flows": {
            "flow": names * WINDOWS, "at_ns": T0 + window * 100 * MS,
            "window_ns": np.full(len(window), 100 * MS), "hops": hops * WINDOWS,
            "src": [src for src, _ in flows] * WINDOWS, "dst": [dst for _, dst in flows] * WINDOWS,
        },
        "links": {
            "link": links * WINDOWS, "at_ns": T0 + at * 100 * MS,
            "window_ns": np.full(len(at), 100 * MS),
        },
    } | more  # fmt: skip


NICS = [f"h{each}/n" for each in range(12)]
MESH = [(NICS[one], NICS[(one + step) % 12]) for one in range(12) for step in (1, 2, 3, 5)]


@pytest.mark.parametrize(
    ("broken", "counted", "expected"), [(1, 0, 1), (3, 0, 3), (4, 0, 0), (4, 4, 4), (4, 2, 4)]
)
def test_so_many_cables_do_not_break_at_once(broken: int, counted: int, expected: int) -> None:
    columns = star(MESH)
    bad = {f"sw->h{each}/n" for each in range(broken)}
    flows, links = columns["flows"], columns["links"]
    late = flows["at_ns"] > T0 + 15 * 100 * MS
    hit = np.array([path[1] in bad for path in flows["hops"]]) & late
    flows["retransmits"] = np.where(hit, 9.0, 0.0)
    dirty = np.isin(links["link"], sorted(bad)[:counted])
    links["symbol_errors"] = np.where(dirty & (links["at_ns"] > T0 + 15 * 100 * MS), 400.0, 0.0)
    found = bad_link.find(BundleFacts(bundle(columns)))
    assert len(found) == expected
    assert {link for each in found for link in each.subjects} == (bad if expected else set())


@pytest.mark.parametrize(
    ("downs", "planned", "excluded"),
    [(0.0, False, True), (1.0, False, False), (0.0, True, True), (1.0, True, None)],
)
def test_packets_lost_while_a_planned_change_holds_a_port_are_no_bad_link(
    downs: float, planned: bool, excluded: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`excluded`: whether flapping is; None: nothing is named."""
    monkeypatch.setattr(bad_link, "RECOVERS_NS", 200 * MS)
    columns = star(MESH)
    flows, links = columns["flows"], columns["links"]
    late = flows["at_ns"] > T0 + 15 * 100 * MS
    hit = np.array([path[1] == "sw->h3/n" for path in flows["hops"]]) & late
    flows["retransmits"] = np.where(hit, 9.0, 0.0)
    links["link"] += ["h3/n"] * WINDOWS
    at = T0 + np.arange(WINDOWS) * 100 * MS
    for name, more in {"at_ns": at, "window_ns": np.full(WINDOWS, 100 * MS)}.items():
        links[name] = np.concatenate((links[name], more))
    of_port = np.array([each == "h3/n" for each in links["link"]])
    during = of_port & (links["at_ns"] == at[16])
    links["downs"] = np.where(during, downs, 0.0)
    links["planned"] = of_port & planned
    found = bad_link.find(BundleFacts(bundle(columns)))
    if excluded is None:
        assert not found
        return
    (each,) = found
    assert each.subjects == ("sw->h3/n",)
    (flapping,) = [other for other in each.alternatives if other.fault == "flapping"]
    assert flapping.excluded is excluded


@pytest.mark.parametrize(("share", "count"), [(0.2, 1), (0.4, 2)])
def test_a_fabrics_usual_pauses_are_no_storm(share: float, count: int) -> None:
    """Two switches, each with a port that is paused, and pauses into the switch."""
    flows = [(f"a{one}/n", f"a{other}/n") for one in range(5) for other in range(5) if one != other]
    columns = star(flows + [(src.replace("a", "b"), dst.replace("a", "b")) for src, dst in flows])
    rows = columns["flows"]
    rows["hops"] = [tuple(link.replace("sw", "sw" + path[0][0]) for link in path)
                    for path in rows["hops"]]  # fmt: skip
    links = columns["links"]
    links["link"] = [each.replace("sw", "sw" + ("a" if "a" in each else "b"))
                     for each in links["link"]]  # fmt: skip
    pauses = {"swa->a0/n": 0.9, "a1/n->swa": 0.5, "a2/n->swa": 0.5,
              "swb->b0/n": 0.9 * share, "b1/n->swb": 0.1, "b2/n->swb": 0.1}  # fmt: skip
    links["pause_ns"] = np.array([pauses.get(each, 0.0) * 100 * MS for each in links["link"]])
    found = pfc_storm.find(BundleFacts(bundle(columns)))
    assert [each.subjects for each in found] == [("swa->a0/n",), ("swb->b0/n",)][:count]


@pytest.mark.parametrize(
    ("paused", "recorded", "named"),
    [
        # A NIC does not take its packets.
        (("swa->b1/n", "s->swa", "b0/n->swa"), True, ("swa->b1/n",)),
        # An output of the switch is full: bursts of the job, or an incast.
        (("s->swa", "b0/n->swa", "a0/n->swb", "swb->s"), True, None),
        # The outputs' pauses are unknown, and so who began them.
        (("s->swa", "b0/n->swa", "a0/n->swb", "swb->s"), False, ("s->swa",)),
    ],
)
def test_a_switch_whose_outputs_are_full_is_no_storm(
    paused: tuple[str, ...], recorded: bool, named: tuple[str, ...] | None
) -> None:
    """NICs a below switch b, and b below a; a spine between them."""
    flows = [(f"a{one}/n", f"b{other}/n") for one in range(6) for other in range(3)]
    flows += [("b0/n", "b1/n"), ("b0/n", "b2/n")]
    columns = star(flows)
    columns["flows"]["hops"] = [
        (f"{src}->swb", "swb->s", "s->swa", f"swa->{dst}") if src[0] == "a" else
        (f"{src}->swa", f"swa->{dst}")
        for src, dst in zip(columns["flows"]["src"], columns["flows"]["dst"], strict=True)
    ]  # fmt: skip
    names = sorted({link for hops in columns["flows"]["hops"] for link in hops})
    if not recorded:
        names = [each for each in names if not each.startswith("swa->")]
    columns["links"] = {
        "link": np.repeat(names, WINDOWS).tolist(),
        "at_ns": np.tile(T0 + np.arange(WINDOWS) * 100 * MS, len(names)),
        "window_ns": np.full(len(names) * WINDOWS, 100 * MS),
        "pause_ns": np.repeat([60.0 * MS * (each in paused) for each in names], WINDOWS),
    }
    found = pfc_storm.find(BundleFacts(bundle(columns)))
    assert [each.subjects for each in found] == ([named] if named else [])


@pytest.mark.parametrize(("every", "named"), [(1, True), (5, True), (40, False)])
def test_the_links_above_a_storm_may_be_paused_in_bursts(every: int, named: bool) -> None:
    """As a job's traffic to that port comes: in one window of so many."""
    columns = star([(f"h{one}/n", f"h{other}/n") for one in range(5) for other in range(5)
                    if one != other])  # fmt: skip
    links = columns["links"]
    window = (links["at_ns"] - T0) // (100 * MS)
    burst = np.isin(links["link"], ["h1/n->sw", "h2/n->sw"]) & (window % every == every // 2)
    root = np.array(links["link"]) == "sw->h0/n"
    links["pause_ns"] = np.where(root, 90 * MS, np.where(burst, 50 * MS, 0.0))
    found = pfc_storm.find(BundleFacts(bundle(columns)))
    assert [each.subjects for each in found] == [("sw->h0/n",)] * named


def ring(late: tuple[int, ...], *, ends: bool, compute: str) -> Columns:
    """Twelve ranks of four hosts; those named come 40 ms late from step 10 on."""
    rank, step = np.tile(np.arange(12), WINDOWS), np.repeat(np.arange(WINDOWS), 12)
    behind = np.isin(rank, late) & (step >= 10)
    rng = np.random.default_rng(1)
    ready = 70 * MS * rng.normal(1, 0.002, len(rank)) + np.where(behind, 40 * MS, 0)
    begin = T0 + step * 200 * MS
    done = begin + np.repeat(ready.reshape(WINDOWS, 12).max(axis=1), 12).astype(int) + 10 * MS
    columns: Columns = {
        "collectives": {
            "comm": ["world"] * len(rank), "op": ["all_reduce"] * len(rank), "seq": step,
            "rank": rank, "host": [f"h{each // 3}" for each in rank],
            "enqueue_ns": begin + ready.astype(int), "done_ns": done,
        },
        "steps": {
            "step": step, "rank": rank, "begin_ns": begin, "end_ns": done,
            "compute_ns": ready if compute == "its own" else np.full(len(rank), 70.0 * MS),
        },
    }  # fmt: skip
    if not ends:
        del columns["collectives"]["done_ns"]
    if not compute:
        del columns["steps"]["compute_ns"]
    return columns


@pytest.mark.parametrize(
    ("late", "ends", "compute", "named"),
    [
        ((5,), True, "", {"rank 5"}),
        ((5, 8), True, "", {"rank 5", "rank 8"}),
        ((5,), False, "", {"rank 5"}),
        ((5, 8), False, "", set()),  # released late by the operation before
        ((5,), True, "its own", {"rank 5"}),
        ((5,), False, "its own", {"rank 5"}),
        ((5,), True, "as others", set()),
        ((5,), False, "as others", set()),
    ],
)
def test_a_rank_that_is_late_but_computes_no_longer_is_no_straggler(
    late: tuple[int, ...], ends: bool, compute: str, named: set[str]
) -> None:
    found = straggler.find(BundleFacts(bundle(ring(late, ends=ends, compute=compute))))
    assert {name for each in found for name in each.subjects} == named


def test_a_slow_rank_in_a_whole_diagnosis() -> None:
    (verdict,) = diagnose(bundle(ring((5,), ends=True, compute="its own"))).verdicts
    assert (verdict.fault, verdict.subjects) == (F.STRAGGLER, ("rank 5",))


@pytest.mark.parametrize("cells", [12 * WINDOWS, 12 * WINDOWS - 1, 12 * 7 + 5, 1])
def test_matrices_of_ranks_and_operations_are_bounded(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of a few rows each of many ranks and operations would fill any memory."""
    monkeypatch.setattr(ranks, "MAX_CELLS", cells)
    facts = BundleFacts(bundle(ring((), ends=True, compute="")))
    assert facts.ranks is not None
    (comm,) = facts.ranks.comms
    kept = max(1, min(WINDOWS, cells // 12))
    assert comm.seqs.tolist() == [*range(WINDOWS - kept, WINDOWS)]
    assert facts.ranks.left_out == WINDOWS - kept
    assert any("left out" in gap.reason for gap in facts.gaps) == (kept < WINDOWS)


@pytest.mark.parametrize(
    ("count", "delay", "begin", "kept"),
    [(2, 9e4, 101, True), (3, 9e4, 101, False), (3, 4e4, 101, True), (3, 9e4, 100, True)],
)
def test_a_link_is_no_exception_among_others_alike_that_are_unsure(
    count: int, delay: float, begin: int, kept: bool
) -> None:
    """Those that have always been so do not count beside one that came to be."""
    unsure = [finding(F.CONTENTION, f"link{each}", delay=delay, begin=begin)
              for each in range(count)]  # fmt: skip
    unsure = [msgspec.structs.replace(each, confidence=0.4) for each in unsure]
    changed = finding(F.CONTENTION, "link9", delay=9e4, begin=101)
    left, _ = _exceptions([*unsure, changed], early_ns=100)
    assert (changed in left) == kept
