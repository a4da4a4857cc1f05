"""Incast over RDMA between machines, with the real agents, controller and plug-in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.live import SYNTONY

from syntony.lab.verbs import image
from syntony.lab.world import missing_tools

LIMIT_S = 1_500
"""Only a hang takes so long: a quiet machine of two cores needs 200 s."""


@pytest.mark.lab
@pytest.mark.slow
def test_pacing_queue_pairs_shortens_the_queue_of_an_incast(able: None, tmp_path: Path) -> None:
    missing = missing_tools(image.TOOLS)
    if missing:
        pytest.skip(
            f"no machines here: {', '.join(missing)} (see syntony doctor): drills over RDMA are "
            "NOT tested"
        )
    words = (
        *SYNTONY,
        "lab",
        "drill",
        "incast",
        "--over",
        "verbs",
        "--json",
        "--out",
        str(tmp_path),
    )
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["wrong"], report["lost"], report["finished"]) == (0, 0, True)
    assert report["paced_flows"] >= 2
    assert report["after"]["owd_p50_ms"] < report["before"]["owd_p50_ms"] / 2
    assert (tmp_path / "incast.svg").exists()
