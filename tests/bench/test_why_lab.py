"""When a live episode has seen the whole job, and which answers are right."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bench.why_lab import RECORDED_S, grade, missing
from bench.why_lab_causes import CAUSES, Begun, Scene, ended, hang, is_twin, killed, links_like
from tests.workload.made import MS, T0, bundle

from syntony.lab.drill import modes
from syntony.lab.drill.slow_job import JudgedAnswer, NamedFlow

S = 1000 * MS


def recording(*flows: range) -> Any:
    """Of flows with data in these seconds."""
    rows = [(f"h0/n:{flow}>h1/n:1", second) for flow, some in enumerate(flows) for second in some]
    return bundle({"flows": {
        "flow": [name for name, _ in rows], "at_ns": [T0 + second * S for _, second in rows],
        "window_ns": [S] * len(rows), "src": ["h0/n"] * len(rows), "dst": ["h1/n"] * len(rows),
        "owd_p50_ns": [9_000.0] * len(rows),
    }})  # fmt: skip


WHOLE = range(RECORDED_S)


@pytest.mark.parametrize(
    ("flows", "lacks"),
    [
        ((WHOLE, WHOLE), ""),
        ((WHOLE,), "1 of 2 flows are known; too short: none"),
        ((WHOLE, range(1)), "1 of 2 flows are known; too short: none"),
        # Two connections of a job that has ended.
        ((WHOLE, WHOLE, range(1), range(2)), ""),
        # One that began anew, and is there.
        ((WHOLE, WHOLE, WHOLE[-2:]), "2 of 2 flows are known; too short: h0/n:2>h1/n:1 (2 s)"),
    ],
)
def test_a_job_is_whole_once_all_flows_that_it_still_has_are_known(
    flows: tuple[range, ...], lacks: str
) -> None:
    assert missing(recording(*flows), 2) == lacks


def test_nothing_recorded_is_not_whole() -> None:
    assert missing(None, 2) == "no flows"
    assert missing(recording(WHOLE), 0) == "no steps"


FLOWS = [
    ("h1/n", ("h0/n->l0", "l0->s0", "s0->l1", "l1->h1/n")),
    ("h1/n", ("h2/n->l0", "l0->s0", "s0->l1", "l1->h1/n")),
    ("h3/n", ("h0/n->l0", "l0->s0", "s0->l3", "l3->h3/n")),
    ("h4/n", ("h2/n->l0", "l0->s1", "s1->l3", "l3->h4/n")),
    ("h3/n", ("h2/n->l0", "l0->s1", "s1->l3", "l3->h3/n")),
]


@pytest.mark.parametrize(
    ("nic", "links"), [("h1/n", {"s0->l1"}), ("h4/n", set()), ("h3/n", set()), ("h9/n", set())]
)
def test_the_only_link_to_a_nic_is_like_it(nic: str, links: set[str]) -> None:
    """Not one that a flow to another NIC crosses, nor one of several."""
    assert links_like(nic, FLOWS) == links


@pytest.mark.parametrize(
    ("verdicts", "graded"),
    [
        ((), ""),
        ((("incast", ("h1/n",)),), "right"),
        ((("incast", ("h3/n",)),), ""),
        ((("contention", ("s0->l1", "h1/n")),), "twin"),
        ((("contention", ("s0->l1", "h1/n")), ("incast", ("h3/n",))), ""),
        ((("contention", ("s0->l1",)),), ""),
        ((("contention", ("l0->s0", "h1/n")),), ""),
        ((("bad-link", ("s0->l1", "h1/n")),), ""),
    ],
)
def test_a_full_nic_may_be_named_with_its_only_link(
    verdicts: tuple[tuple[str, tuple[str, ...]], ...], graded: str
) -> None:
    alike = links_like("h1/n", FLOWS)
    begun = Begun(
        int, lambda subjects: subjects == ("h1/n",), twin=lambda each: is_twin("h1/n", alike, each)
    )
    named = tuple(NamedFlow(fault=fault, subjects=subjects, confidence=1.0, text="")
                  for fault, subjects in verdicts)  # fmt: skip
    assert grade(JudgedAnswer(at_ns=0, verdicts=named, worst=""), "incast", begun) == graded


@contextlib.contextmanager
def ranks(seed: int) -> Iterator[tuple[Scene, list[subprocess.Popen[bytes]]]]:
    """A job whose ranks do nothing."""
    some = [subprocess.Popen(("sleep", "600"), start_new_session=True) for _ in range(3)]
    job = SimpleNamespace(groups=tuple(each.pid for each in some),
                          spec=SimpleNamespace(hosts=("h0", "h1", "h2")))  # fmt: skip
    try:
        yield cast("Scene", SimpleNamespace(job=job, rng=random.Random(seed))), some
    finally:
        for each in some:
            each.kill()
            each.wait()


def graded(begun: Begun, fault: str, subject: str) -> str:
    said = NamedFlow(fault=fault, subjects=(subject,), confidence=1.0, text="")
    return grade(JudgedAnswer(at_ns=0, verdicts=(said,), worst=""), "undetermined", begun)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("begin", "signals"),
    [(killed, {-signal.SIGKILL}), (ended, {-signal.SIGTERM})],
)
def test_who_ended_first_may_be_named_while_others_run(
    begin: Callable[[Scene], Begun], signals: set[int], seed: int
) -> None:
    with ranks(seed) as (scene, some):
        begun = begin(scene)
        begun.end()
        (first,) = (rank for rank in range(3) if graded(begun, "hang", f"rank {rank}") == "twin")
        gone = some if begin is ended else [some[first]]
        assert {each.wait() for each in gone} == signals
        assert graded(begun, "undetermined", f"job {modes.JOB}") == "right"
        assert graded(begun, "undetermined", "rank 0") == ""
        assert graded(begun, "straggler", f"rank {first}") == ""


def test_a_rank_is_stopped_and_goes_on() -> None:
    with ranks(1) as (scene, some):
        begun = hang(scene)
        rank = next(rank for rank in range(3) if begun.right((f"rank {rank}",)))
        os.waitid(os.P_PID, some[rank].pid, os.WSTOPPED | os.WNOWAIT)
        assert begun.right(("communicator 0.abc",))
        assert not begun.right((f"rank {(rank + 1) % 3}",))
        begun.end()
        os.waitid(os.P_PID, some[rank].pid, os.WCONTINUED | os.WNOWAIT)


def test_each_cause_has_a_row_of_its_own() -> None:
    assert len({each.row for each in CAUSES}) == len(CAUSES)
