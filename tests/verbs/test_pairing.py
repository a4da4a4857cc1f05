"""Delays of queue pairs, graded by a generator that knows every message."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from syntony.agent.queue_pairs import FleetOffset, QueuePairSocket
from syntony.model import MS, US
from syntony.traffic.queue_pair_delays import Direction, MessageDelay, QueuePairDelays
from syntony.wire.queue_pairs import QueuePairsReport

OFFSET_NS = 7_000_000_123
"""Fleet time less CLOCK_MONOTONIC."""


class Truth(NamedTuple):
    """One message that was received; instants in CLOCK_MONOTONIC."""

    forth: bool
    sent: tuple[int, int]
    """After the first, before the second."""
    received: tuple[int, int]


class Run(NamedTuple):
    reports: list[QueuePairsReport]
    samples: list[tuple[Direction, MessageDelay]]
    truth: dict[int, Truth]
    """By length: no two messages have the same."""
    mismatches: int


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[QueuePairSocket]:
    made = QueuePairSocket(tmp_path / "agent-qp")
    made.start()
    yield made
    made.close()
    assert made.fault is None


def offset() -> FleetOffset:
    return FleetOffset(time.monotonic_ns(), OFFSET_NS, 0)


def run(generator: Path, socket: QueuePairSocket, *, seed: int, ms: int, delays_us: tuple[int, int],
        hosts: tuple[str, str] = ("h0", "h0")) -> Run:  # fmt: skip
    """Let it run and pair what is reported. `hosts`: of the two devices."""
    words = [str(generator), str(seed), str(ms), *map(str, delays_us)]
    environ = os.environ | {
        "SYNTONY_AGENT": str(socket._path).removesuffix("-qp"),
        "SYNTONY_JOB": "night",
    }
    delays = QueuePairDelays()
    reports, samples = [], []
    out = socket._path.with_name("truth")
    with out.open("w") as file, subprocess.Popen(words, stdout=file, env=environ) as process:
        while process.poll() is None:
            time.sleep(0.3)
            report = socket.report(offset)
            if report is None:
                continue
            reports.append(report)
            for number, host in enumerate(dict.fromkeys(hosts)):
                part = [
                    each
                    for each in report.queue_pairs
                    if len(set(hosts)) == 1 or each.device == f"wire{number}"
                ]
                reported = QueuePairsReport(at_ns=report.at_ns, queue_pairs=tuple(part))
                delays.take(host, reported)
            for direction, _, _, fresh in delays.step(report.at_ns):
                samples += [(direction, each) for each in fresh]
    assert process.returncode == 0
    return Run(reports, samples, truth_of(out.read_text()), delays.mismatches)


def truth_of(out: str) -> dict[int, Truth]:
    found = {}
    for line in out.splitlines():
        length, forth, *instants = map(int, line.split())
        a, b, c, d = (each + OFFSET_NS for each in instants)
        assert length not in found
        found[length] = Truth(bool(forth), (a, b), (c, d))
    return found


def grade(found: Run) -> None:
    for direction, sample in found.samples:
        true = found.truth[sample.bytes]
        assert true.forth == (direction[0] == "10.0.0.1"), direction
        assert true.sent[0] <= sample.sent_ns <= true.sent[1]
        assert true.received[0] <= sample.received_ns <= true.received[1]
    assert found.mismatches == 0
    lengths = [sample.bytes for _, sample in found.samples]
    assert len(lengths) == len(set(lengths))


def test_every_message_is_paired_with_itself(generator: Path, socket: QueuePairSocket) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    found = run(generator, socket, seed=seed, ms=3000, delays_us=(200, 200), hosts=("a", "b"))
    grade(found)
    assert len(found.samples) > 100
    generations = {each.key for report in found.reports for each in report.queue_pairs}
    assert len(generations) > 10
    last = found.reports[-2]
    assert last.malformed == 0
    assert not any(each.flags & 3 for report in found.reports for each in report.queue_pairs)
    assert any(each.flags & 4 for report in found.reports for each in report.queue_pairs)
    for each in last.queue_pairs:
        assert each.completed <= each.signaled <= each.sent + each.unannounced
        if not each.flags & 4:
            assert each.received <= each.receives_posted


@pytest.mark.parametrize("delays_us", [(5200, 200), (200, 5200)])
def test_a_delay_is_seen_in_its_direction_only(
    generator: Path, socket: QueuePairSocket, delays_us: tuple[int, int]
) -> None:
    found = run(generator, socket, seed=11, ms=2000, delays_us=delays_us)
    grade(found)
    least = {
        forth: min(each.delay_ns for way, each in found.samples if (way[0] == "10.0.0.1") == forth)
        for forth in (True, False)
    }
    late = delays_us[0] > delays_us[1]
    assert least[late] - 200 * US >= 5 * MS
    assert 200 * US <= least[not late] < 5 * MS
