"""Takeovers on their way to the fleet: from a coordinator's events to rows and incidents."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live import eventually

from syntony.agent.job_peers import Peer
from syntony.agent.queue_pairs import FleetOffset
from syntony.agent.takeovers import (
    MAX_LEFT,
    REASONS,
    TakeoverMessage,
    TakeoverSocket,
    _Inbox,
    reason_class,
)
from syntony.controller.job_takeovers import NOT_REPLACED, REPLACED, observations
from syntony.io.job_socket import Process
from syntony.model import S
from syntony.torch.feed import MAX_LATE, MAX_TEXT, Trail
from syntony.wire.arrow import encode_columns
from syntony.wire.tables import TAKEOVER

AHEAD_NS = 1_000_000 * S


def event(kind: str, **rest: Any) -> dict[str, Any]:
    return {"event": kind, "at_ns": time.monotonic_ns(), **rest}


def story(trail: Trail, *, equal: bool = True) -> list[dict[str, Any]]:
    """A rank is replaced, and parameters are compared."""
    events = (
        event("digest", boundary=2, equal=True, sha256={0: "aa", 1: "aa"}),
        event("lost", rank=1, reason="killed by signal 9", boundary=7, worker="w1"),
        event("formed", generation=1, boundary=7, lost={1: "killed by signal 9"},
              took_ns=200_000_000, holders={0: "w0", 1: "w5"}),
        event("digest", boundary=9, equal=equal, sha256={0: "bb", 1: "bb" if equal else "cc"}),
        event("digest", boundary=23, equal=True, sha256={0: "dd", 1: "dd"}),
    )  # fmt: skip
    return [message for each in events for message in trail.messages(each)]


def test_a_takeover_is_told_with_its_proof() -> None:
    replaced, verified = story(Trail({"w1": "far", "w5": "here"}, "here"))
    wanted = {
        "what": "replaced", "rank": 1, "at": "far", "reason": "killed by signal 9",
        "worker": "w5", "took_ns": 200_000_000, "step": 7, "generation": 1, "before": "aa",
    }  # fmt: skip
    assert wanted.items() <= replaced.items()
    assert {
        "what": "verified",
        "before": "aa",
        "after": "bb",
        "step": 9,
    }.items() <= verified.items()


def test_parameters_that_differ_are_told() -> None:
    assert [each["what"] for each in story(Trail({}, "here"), equal=False)][1] == "differs"


def test_a_job_that_gives_up_is_told_with_the_rank() -> None:
    trail = Trail({"w1": "here"}, "here")
    assert not trail.messages(event("lost", rank=1, reason="stopped", boundary=7, worker="w1"))
    (told,) = trail.messages(event("gave-up", reason="no spare is left"))
    assert (told["what"], told["rank"], told["at"], told["step"]) == ("ended", 1, "", 7)
    (other,) = trail.messages(event("gave-up", reason="again"))
    assert other["rank"] == -1, "nobody was lost since"


def test_spares_are_told_when_they_change() -> None:
    trail, told = Trail({}, "here"), []
    for generation, ready in ((0, 0), (0, 2), (0, 2), (1, 1), (1, 1), (1, 2), (2, 2)):
        told += trail.of_spares(generation, ready, time.monotonic_ns())
    assert {each["what"] for each in told} == {"spares"}
    assert [(each["generation"], each["spares"]) for each in told] == [
        (0, 0), (0, 2), (1, 1), (1, 2), (2, 2)
    ]  # fmt: skip


def test_spares_become_rows_and_no_event(agent: TakeoverSocket, tmp_path: Path) -> None:
    tell(tmp_path, [*Trail({}, "here").of_spares(3, 2, time.monotonic_ns()), *story(Trail({}, ""))])
    rows = gathered(agent, 3)
    assert [(each["what"], each["generation"], each["spares"]) for each in rows] == [
        ("spares", 3, 2), ("replaced", 1, -1), ("verified", 0, -1)
    ]  # fmt: skip
    assert agent.malformed == 0
    assert len(observations(rows[::-1])) == 1, "the lost rank alone"


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("killed by signal 9", "killed"), ("stopped", "stopped"), ("silent", "silent"),
        ("gone", "gone"), ("drained", "drained"), ("x" * 99, "other"), ("", "other"),
        ("replacement failed with exit code 1", "failed"), ("hung: allreduce 7 not called", "hung"),
        ("slow: all others waited for it 20% of the time", "slow"),
    ],
)  # fmt: skip
def test_reasons_have_few_classes(reason: str, found: str) -> None:
    assert reason_class(reason) == found
    assert found in REASONS


@pytest.mark.parametrize("event", ["unprotected", "fixed"])
def test_a_job_whose_ranks_cannot_be_replaced_is_not_protected(event: str) -> None:
    (row,) = Trail({}, "here").messages({"event": event, "reason": "stages", "at_ns": 1})
    assert (row["what"], row["reason"]) == ("unprotected", "stages")


def test_each_late_rank_is_told_with_its_host() -> None:
    trail = Trail({"w1": "far", "w2": "here"}, "here")
    late = trail.messages(
        event("straggler", ranks=(1, 2), workers=["w1", "w2"], reason="all wait " * 40)
    )
    assert [(e["what"], e["rank"], e["at"]) for e in late] == [
        ("straggler", 1, "far"), ("straggler", 2, "")
    ]  # fmt: skip
    assert all(len(each["reason"]) == MAX_TEXT for each in late)
    (end,) = trail.messages(event("no-straggler", ranks=(1, 2)))
    for each in (*late, end):
        message = msgspec.convert(each, TakeoverMessage)
        assert message.is_plausible(time.monotonic_ns()), "the agent takes it"
    assert end["what"] == "no-straggler"
    many = tuple(range(MAX_LATE + 9))
    late = trail.messages(event("straggler", ranks=many, workers=["w1"] * len(many), reason=""))
    assert [each["rank"] for each in late] == list(many[:MAX_LATE])


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[TakeoverSocket]:
    made = TakeoverSocket("h0", tmp_path / "agent-takeovers")
    made.start()
    yield made
    made.close()
    assert made.fault is None


def tell(place: Path, messages: list[Any], job: str = "night") -> None:
    """By a process of a job, as coordinators are."""
    program = """
import json, sys, time
from syntony.torch.feed import Feed
feed = Feed(sys.argv[1])
for each in json.load(sys.stdin):
    feed.tell(each)
feed.flush()
assert not feed._waiting
time.sleep(0.3)
"""
    subprocess.run(
        [sys.executable, "-c", program, str(place / "agent")], check=True,
        input=json.dumps(messages).encode(), env=os.environ | {"SYNTONY_JOB": job},
    )  # fmt: skip


def gathered(agent: TakeoverSocket, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def enough() -> bool:
        for table, columns in agent.rows(lambda: FleetOffset(time.monotonic_ns(), AHEAD_NS, 0)):
            assert table is TAKEOVER
            assert encode_columns(table, columns)
            rows = zip(*columns.values(), strict=True)
            found.extend(dict(zip(columns, row, strict=True)) for row in rows)
        return len(found) >= count

    eventually(enough, "rows")
    return found


def test_those_that_come_and_go_without_fleet_time_cost_little_memory(
    agent: TakeoverSocket,
) -> None:
    """Each once left up to 64 messages of 4 KB behind, for as long as there was no fleet time."""
    for _ in range(MAX_LEFT + 3):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            for _ in range(2):
                theirs.send(b"not a message")
            agent._leave(Peer(Process(1, 0, "p", "night"), ours, -1, _Inbox(ours), 0))
    assert agent.malformed == 2 * 3
    assert agent.rows(lambda: None) == []
    assert agent.rows(lambda: FleetOffset(time.monotonic_ns(), AHEAD_NS, 0)) == []
    assert agent.malformed == 2 * (MAX_LEFT + 3)


def test_what_a_coordinator_tells_becomes_rows_counts_and_an_incident(
    agent: TakeoverSocket, tmp_path: Path
) -> None:
    tell(tmp_path, story(Trail({"w1": "here"}, "here")))
    rows = gathered(agent, 2)
    assert [(each["job"], each["what"], each["at"]) for each in rows] == [
        ("night", "replaced", "h0"), ("night", "verified", "h0")
    ]  # fmt: skip
    assert abs(rows[0]["ts_ns"] - AHEAD_NS - time.monotonic_ns()) < 60 * S
    assert (agent.replaced["killed"], agent.events["verified"], agent.malformed) == (1, 1, 0)
    assert agent.stall_ns == 200_000_000
    (found,) = observations(rows[::-1])
    assert (found.metric, found.subject, found.value) == (REPLACED, "h0", 1.0)
    assert found.jobs == ("night",)
    (line,) = found.evidence
    assert "rank 1, killed by signal 9, step 7; generation 1 after 200" in line
    assert "parameters aa before, bb on all ranks after" in line


@pytest.mark.parametrize(
    "wrong",
    [
        [], {"what": "replaced"}, {"rank": -2}, {"what": "nothing"}, {"at": "a\nb"}, {"more": 1},
        {"reason": "x" * 300}, {"at_ns": -(1 << 50)}, {"took_ns": -1}, {"step": "7"},
        {"spares": -2}, {"what": "spares"}, {"spares": 1 << 20},
    ],
)  # fmt: skip
def test_what_cannot_be_is_counted_and_not_used(
    agent: TakeoverSocket, tmp_path: Path, wrong: Any
) -> None:
    (good, _) = story(Trail({}, "here"))
    bad = wrong if wrong in ([], {"what": "replaced"}) else good | wrong
    tell(tmp_path, [bad, good])
    assert [each["rank"] for each in gathered(agent, 1)] == [1]
    assert agent.malformed == 1


def test_without_fleet_time_messages_are_kept(agent: TakeoverSocket, tmp_path: Path) -> None:
    tell(tmp_path, story(Trail({}, "here")))
    assert agent.rows(lambda: None) == []
    assert len(gathered(agent, 2)) == 2


def test_drained_ranks_open_nothing_and_jobs_that_end_do() -> None:
    def rows(**values: Any) -> list[dict[str, Any]]:
        blank = {"job": "night", "what": "replaced", "rank": 1, "at": "h3", "step": 4,
                 "generation": 1, "reason": "drained", "stall_ns": 1, "sha256_before": "",
                 "sha256": ""}  # fmt: skip
        return [blank | values]

    assert observations(rows()) == []
    assert observations([]) == []
    (found,) = observations(rows(what="ended", reason="no spare is left"))
    assert (found.metric, found.subject) == (NOT_REPLACED, "job night")
    assert "no spare is left" in found.evidence[0]
