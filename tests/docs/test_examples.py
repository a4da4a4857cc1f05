"""What pages show of a command's output is what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench.diagnosis import drawn
from bench.diagnosis.case import arrow_tables

from syntony.cli import run
from syntony.io.bundle_files import write_bundle

PAGE = Path(__file__).parents[2] / "docs/how-to/diagnose.md"


def test_the_diagnosis_of_the_made_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = re.search(
        r"^python -m bench.diagnosis .* --class (\S+) --seed (\d+)$", page, re.MULTILINE
    )
    shown = re.search(r"^```\n(slow-flow: .*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert made is not None
    assert shown is not None
    case = drawn.make_case(made[1], int(made[2]))
    write_bundle(tmp_path, arrow_tables(case), case.manifest)
    assert run(["diagnose", str(tmp_path)]) == 1
    assert capsys.readouterr().out.rstrip() == shown[1].rstrip()
