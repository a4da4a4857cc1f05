"""Queue pairs without progress: a table of single cases, and jobs that run, rest and are broken."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.traffic.test_queue_pair_delays import A, B, end

from syntony.model import MS, S
from syntony.traffic.queue_pair_stalls import (
    RECEIVER_NOT_READY,
    RETRY_EXCEEDED,
    SHARED_RECEIVES,
    STALL_NS,
    QueuePairStalls,
    Stall,
    StallCause,
)
from syntony.wire.queue_pairs import QueuePairFigures, QueuePairsReport

NOW_NS = 10_000 * S
SENT: dict[str, Any] = {"sent": 9, "signaled": 9, "completed": 5}
RECEIVED: dict[str, Any] = {"received": 5, "receives_posted": 9}


def stalls(
    sender: dict[str, Any],
    receiver: dict[str, Any] | None,
    *,
    lasts_ns: int = STALL_NS,
    late_ns: int = 0,
) -> list[Stall]:
    """After both ends were reported twice."""
    watch, found = QueuePairStalls(), []
    for now_ns in (NOW_NS, NOW_NS + lasts_ns):
        reports = {"h0": QueuePairsReport(at_ns=now_ns - late_ns, queue_pairs=(end(**sender),))}
        if receiver is not None:
            there = (end(B, A, key="8:1:1", **receiver),)
            reports["h1"] = QueuePairsReport(at_ns=now_ns, queue_pairs=there)
        found = list(watch.look(reports, now_ns).stalls)
    return found


@pytest.mark.parametrize(
    ("sender", "receiver", "cause"),
    [
        ({}, {}, StallCause.NETWORK),
        ({}, {"receives_posted": 5}, StallCause.RECEIVER),
        ({}, {"receives_posted": 5, "flags": SHARED_RECEIVES}, StallCause.NETWORK),
        ({"failed": True, "first_error": RETRY_EXCEEDED}, {}, StallCause.NETWORK),
        ({"failed": True, "first_error": RETRY_EXCEEDED}, None, StallCause.NETWORK),
        ({"failed": True, "first_error": RECEIVER_NOT_READY}, {}, StallCause.RECEIVER),
        ({"failed": True, "first_error": 5}, {}, None),  # flushed: its process ended it
        ({"completed": 9}, {}, None),  # acknowledged; the receiver's thread is busy
        ({"signaled": 5}, {}, None),  # nothing that would complete
        ({}, {"received": 9}, None),  # arrived; the sender's thread is busy
        ({}, None, None),
        ({}, {"failed": True}, None),
        ({"send_psn": 7}, {}, None),  # another generation
        ({"send_psn": 7}, {"receive_psn": 7}, StallCause.NETWORK),
        ({"type": "ud"}, {}, None),
        ({"local": ""}, {}, None),
    ],
)
def test_what_is_a_stall(
    sender: dict[str, Any], receiver: dict[str, Any] | None, cause: StallCause | None
) -> None:
    found = stalls(SENT | sender, None if receiver is None else RECEIVED | receiver)
    assert [each.cause for each in found] == ([] if cause is None else [cause])
    assert all((each.host, each.figures.number) == ("h0", A[1]) for each in found)


def test_it_must_last_and_be_reported() -> None:
    assert stalls(SENT, RECEIVED)
    assert not stalls(SENT, RECEIVED, lasts_ns=STALL_NS - 1)
    assert not stalls(SENT, RECEIVED, late_ns=5 * S)


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [({"completed": 6, "sent": 10, "signaled": 10}, {}), ({}, {"received": 6})],
)
def test_progress_at_either_end_is_progress(
    sender: dict[str, Any], receiver: dict[str, Any]
) -> None:
    watch = QueuePairStalls()
    for now_ns, sent, got in (
        (NOW_NS, SENT, RECEIVED),
        (NOW_NS + STALL_NS - 1, SENT | sender, RECEIVED | receiver),
        (NOW_NS + STALL_NS, SENT | sender, RECEIVED | receiver),
    ):
        ends = {"h0": end(**sent), "h1": end(B, A, key="8:1:1", **got)}
        reports = {
            host: QueuePairsReport(at_ns=now_ns, queue_pairs=(each,)) for host, each in ends.items()
        }
        assert not watch.look(reports, now_ns).stalls


def test_one_of_two_that_claim_to_be_its_peer_is_not_chosen() -> None:
    watch = QueuePairStalls()
    twins = tuple(end(B, A, key=key, **RECEIVED) for key in ("8:1:1", "9:1:1"))
    for now_ns in (NOW_NS, NOW_NS + STALL_NS):
        reports = {
            "h0": QueuePairsReport(at_ns=now_ns, queue_pairs=(end(**SENT),)),
            "h1": QueuePairsReport(at_ns=now_ns, queue_pairs=twins),
        }
        assert not watch.look(reports, now_ns).stalls


def test_a_text_says_what_waits() -> None:
    (found,) = stalls(SENT, RECEIVED)
    assert found.text == (
        "job night, PID 7, queue pair 17 of mlx5_0: 4 messages under way, none completed for "
        "3 s, 4 receives wait for them"
    )
    (found,) = stalls(SENT, RECEIVED | {"receives_posted": 5})
    assert found.text.endswith("for 3 s, the receiver has posted no receive")


class Connection:
    """One direction, message by message, in steps of 50 ms."""

    def __init__(self, rng: random.Random, number: int) -> None:
        self.rng, self.number = rng, number
        self.window = rng.randrange(8, 64)
        self.every = rng.choice([1, 1, 4])
        """Of so many sends one is signalled."""
        self.ahead = rng.randrange(1, 100)
        """Receives that are posted ahead."""
        self.shared = rng.random() < 0.3
        self.sent = self.signaled = self.completed = self.received = 0
        self.receives = self.ahead
        self.flight: list[tuple[int, bool]] = []
        """When it arrives, and whether it is signalled."""
        self.resting = False
        self.broken: StallCause | None = None

    def step(self, now_ns: int) -> None:
        if self.rng.random() < 0.02:
            self.resting = not self.resting
        if self.broken is not StallCause.RECEIVER:
            self.receives = self.received + self.ahead
        while self.broken is not StallCause.NETWORK and self.flight:
            at_ns, signaled = self.flight[0]
            if at_ns > now_ns or (not self.shared and self.received >= self.receives):
                break
            self.flight.pop(0)
            self.received += 1
            self.completed += signaled
        if not self.resting:
            for _ in range(self.rng.randrange(20)):
                if len(self.flight) < self.window:
                    self.sent += 1
                    signaled = self.sent % self.every == 0
                    self.signaled += signaled
                    late_ns = self.rng.randrange(1, 800) * MS
                    at_ns = max(now_ns + late_ns, self.flight[-1][0] if self.flight else 0)
                    self.flight.append((at_ns, signaled))

    def ends(self) -> tuple[QueuePairFigures, QueuePairFigures]:
        here, there = ("10.0.0.1", self.number), ("10.0.0.2", self.number)
        return (
            end(here, there, key=f"s{self.number}", sent=self.sent, signaled=self.signaled,
                completed=self.completed),
            end(there, here, key=f"r{self.number}", received=self.received,
                receives_posted=0 if self.shared else self.receives,
                flags=SHARED_RECEIVES * self.shared),
        )  # fmt: skip


@pytest.mark.parametrize("trial", range(10))
def test_those_that_are_broken_are_found_and_no_other(trial: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"trial {trial}, seed {seed}")
    rng = random.Random(seed)
    jobs = [Connection(rng, number) for number in range(20)]
    watch = QueuePairStalls()
    phase = {host: rng.randrange(1000) * MS for host in ("h0", "h1")}
    reports: dict[str, QueuePairsReport] = {}
    broken_ns = NOW_NS + rng.randrange(20, 60) * S
    bad = rng.sample(jobs, rng.randrange(1, 6))
    # A hundred receives posted ahead, eight messages at a time that take up to 0.8 s: 10 s.
    for now_ns in range(NOW_NS, broken_ns + 20 * S, 50 * MS):
        if now_ns == broken_ns:
            for each in bad:
                each.broken = rng.choice(list(StallCause))
                each.shared &= each.broken is StallCause.NETWORK
                each.resting = False
        for each in jobs:
            each.step(now_ns)
            each.resting &= each.broken is None
        for side, host in enumerate(("h0", "h1")):
            if (now_ns - phase[host]) % S < 50 * MS:
                figures = tuple(each.ends()[side] for each in jobs)
                reports[host] = QueuePairsReport(at_ns=now_ns, queue_pairs=figures)
        if now_ns % S == 0:
            found = watch.look(reports, now_ns)
            known = {each.figures.number: each.cause for each in found.stalls}
            if now_ns < broken_ns + STALL_NS:
                assert not known, known
    assert known == {each.number: each.broken for each in bad}
    assert found.directions == {("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")}
