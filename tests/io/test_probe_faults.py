"""Real faults: stopped processes are nobody's loss, one-way loss has its direction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from syntony.model.probes import LOST, STALLED, ProbeFlag

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
STOP_S = 0.6
RUN_S = 1.0
PATIENCE_S = 300.0
TIMEOUT_MS = 250
TRIES = 4


class Peer:
    """One engine in a process of its own (engine_peer.py), steered by its standard input."""

    def __init__(self, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.io.engine_peer", *arguments],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline().strip()

    def freeze(self, seconds: float) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.process.pid, signal.SIGCONT)

    def result(self) -> dict[str, list[list[int]] | dict[str, int]]:
        out, _ = self.process.communicate("\n", timeout=PATIENCE_S)
        answer: dict[str, list[list[int]] | dict[str, int]] = json.loads(out)
        return answer


def run_with(fault: Callable[[Peer, Peer], None]) -> tuple[list[list[int]], int]:
    """Probe for a while with the fault in the middle: rows of [seq, flags], and for how many ms at
    most the reflector was not run."""
    reflector = Peer("--timeout-ms", str(TIMEOUT_MS))
    initiator = Peer("--to", reflector.first_line, "--timeout-ms", str(TIMEOUT_MS))
    time.sleep(RUN_S)
    fault(initiator, reflector)
    time.sleep(RUN_S)
    rows = initiator.result()["records"]
    counters = reflector.result()["counters"]
    assert isinstance(rows, list)
    assert isinstance(counters, dict)
    return rows, counters["late_ms"]


def test_an_initiator_that_was_stopped_reports_no_loss() -> None:
    for _ in range(TRIES):
        rows, late_ms = run_with(lambda initiator, _: initiator.freeze(STOP_S))
        if late_ms < TIMEOUT_MS:
            break
    else:
        pytest.skip(
            f"this machine kept the other engine waiting in {TRIES} of {TRIES} runs, as when it "
            "is busy: a stopped initiator is NOT tested"
        )
    assert len(rows) > 50
    assert [row for row in rows if row[1] & LOST and not row[1] & STALLED] == []


def test_a_reflector_that_was_stopped_is_not_blamed_on_the_network() -> None:
    rows, late_ms = run_with(lambda _, reflector: reflector.freeze(STOP_S))
    assert late_ms >= TIMEOUT_MS
    directed = ProbeFlag.LOST_FWD | ProbeFlag.LOST_REV
    assert [row for row in rows if row[1] & directed and not row[1] & STALLED] == []
    assert any(row[1] & ProbeFlag.STALL_REMOTE for row in rows)


NAMESPACE = ("unshare", "--user", "--map-root-user", "--net", "--kill-child", "--fork")
WORLD = """
set -e
ip link set lo up
nft add table ip t
nft add chain ip t in '{ type filter hook input priority 0; }'
exec "$@"
"""


@pytest.mark.lab
@pytest.mark.parametrize(
    ("match", "expected", "other"),
    [
        ("udp dport 8620", ProbeFlag.LOST_FWD, ProbeFlag.LOST_REV),
        ("udp sport 8620", ProbeFlag.LOST_REV, ProbeFlag.LOST_FWD),
    ],
)
def test_one_way_loss_has_its_direction(match: str, expected: ProbeFlag, other: ProbeFlag) -> None:
    """A third of the packets of one direction dropped by the kernel's own filter."""
    world = (*NAMESPACE, "sh", "-c", WORLD, "sh")
    both = Peer("--both", "--drop", match, "--timeout-ms", "400", prefix=world)
    time.sleep(3 * RUN_S)
    answer = both.result()
    rows, counters = answer["records"], answer["counters"]
    assert isinstance(rows, list)
    assert isinstance(counters, dict)
    lost = [row for row in rows if row[1] & expected]
    assert len(lost) > len(rows) / 10
    assert [row for row in rows if row[1] & other] == []
    assert len([row for row in rows if row[1] & ProbeFlag.LOST_UNKNOWN]) <= len(rows) / 10
    assert counters["sent"] >= len(rows)
