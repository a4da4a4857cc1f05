"""Matrix products: on GPUs through an interpreter that has PyTorch, else on the processors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syntony.io.audit.triad import nodes

WORKER = Path(__file__).with_name("gemm_worker.py")
TIMEOUT_S = 120.0


def gemm(pythons: Sequence[str]) -> dict[str, Any]:
    """What `syntony audit gemm --json` prints: ``devices`` and, without GPUs among them, ``why``.

    Args:
        pythons: interpreters that may have torch, the likeliest first.
    """
    reasons = []
    for python in pythons:
        reported = _worker(python, "gpu")
        if reported.get("devices"):
            return reported
        reasons.append(f"{python}: {reported.get('why', 'measured nothing')}")
    rows = []
    for node, cpus in nodes().items():
        reported = _worker(sys.executable, "cpu", ",".join(map(str, cpus)))
        rows.append({"device": f"node{node}"} | reported)
    return {"devices": rows, "why": "; ".join(reasons)}


def _worker(*command: str) -> dict[str, Any]:
    python, *words = command
    try:
        done = subprocess.run(
            [python, str(WORKER), *words], capture_output=True, timeout=TIMEOUT_S, check=False,
            text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        return {"why": str(error.strerror)}
    except subprocess.TimeoutExpired:
        return {"why": f"no end after {TIMEOUT_S:g} s"}
    if done.returncode != 0:
        return {"why": (done.stderr.strip().splitlines() or ["it failed"])[-1][:160]}
    try:
        reported = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        return {"why": "it printed no JSON"}
    return reported if isinstance(reported, dict) else {}
