"""`python -m bench.diagnosis` grades what its log has."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from bench.diagnosis.__main__ import QUIET, Graded, main


def test_a_log_without_a_generator_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    graded = Graded("drawn", 1, QUIET, "ring", (), (), 0, False, False, None, 0.02)
    log.write_bytes(msgspec.json.encode(graded) + b"\n")
    monkeypatch.setattr(sys, "argv", ["diagnosis", "--report", "--log", str(log), "--seed", "1"])
    assert main() == 0
    printed = capsys.readouterr().out.splitlines()
    assert "Nothing wrong: 0 of 1 with a verdict (0 short of CPU)." in printed
    assert "queued: no bundles" in printed
