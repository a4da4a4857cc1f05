"""What the host's agent is told of a real job: its spares, and the rank that was replaced."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "torch",
    reason="needs PyTorch (pip install '.[torch]'): rows of takeovers are NOT tested on a job",
)

from bench.resilience import start, wait_ready
from tests.live import eventually

from syntony.agent.queue_pairs import FleetOffset
from syntony.agent.takeovers import TakeoverSocket

pytestmark = pytest.mark.slow
WORDS = ["--epochs", "1", "--batches", "120", "--pause-ms", "200"]


def test_spares_and_a_lost_rank_become_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = TakeoverSocket("h0", tmp_path / "agent-takeovers")
    agent.start()
    monkeypatch.setenv("SYNTONY_AGENT", str(tmp_path / "agent"))
    rows: list[dict[str, Any]] = []

    def told(**wanted: Any) -> bool:
        for _, columns in agent.rows(lambda: FleetOffset(time.monotonic_ns(), 0, 0)):
            found = zip(*columns.values(), strict=True)
            rows.extend(dict(zip(columns, row, strict=True)) for row in found)
        return any(wanted.items() <= row.items() for row in rows)

    try:
        run = start(tmp_path, "told", WORDS, spares=1)
        assert wait_ready(run, 0), run.out.with_suffix(".out").read_text()[-2000:]
        eventually(lambda: told(what="spares", generation=0, spares=1), "one spare waits")
        assert run.kill(1, "backward", signal.SIGKILL) is not None
        eventually(lambda: told(what="replaced", rank=1), "the rank is replaced")
        (replaced,) = [row for row in rows if row["what"] == "replaced"]
        assert replaced["spares"] == -1
        wanted = {"what": "spares", "generation": replaced["generation"], "spares": 1}
        eventually(lambda: told(**wanted), "another spare waits")
        assert run.wait() == 0
        assert agent.malformed == 0
    finally:
        agent.close()
