"""`syntony diagnose`: what is printed, and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.diagnosis import drawn
from bench.diagnosis.case import Case, arrow_tables

from syntony.cli import run
from syntony.io.bundle_files import write_bundle
from syntony.model import S
from syntony.workload.exits import date_and_time


def written(folder: Path, case: Case) -> str:
    write_bundle(folder, arrow_tables(case), case.manifest)
    return str(folder)


def test_a_slow_flow_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = drawn.make_case("slow-flow", 3)
    assert run(["diagnose", written(tmp_path, case), "--json"]) == 1
    (verdict,) = json.loads(capsys.readouterr().out)
    assert verdict["class"] == "slow-flow"
    assert verdict["subjects"] == [case.truth.subject]
    assert {"onset_ns", "confidence", "evidence", "alternatives", "action"} <= verdict.keys()
    assert {each["class"] for each in verdict["alternatives"]} >= {"contention", "host-jitter"}
    assert verdict["blast_radius"]["ranks"] > 1


def test_a_slow_flow_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = drawn.make_case("slow-flow", 3)
    assert run(["diagnose", written(tmp_path, case)]) == 1
    text = capsys.readouterr().out
    assert text.startswith(f"slow-flow: {case.truth.subject}\n")
    for head in ("since", "suffers", "sure", "because", "do", "not"):
        assert f"\n  {head} " in text


def test_nothing_wrong_and_nothing_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = drawn.make_case("", 100)
    assert run(["diagnose", written(tmp_path, case)]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    (tmp_path / "flows.parquet").unlink()
    assert run(["diagnose", str(tmp_path), "--json"]) == 3
    reported = capsys.readouterr()
    assert json.loads(reported.out) == []
    assert "flows: missing; cannot be concluded: slow flows" in reported.err


def test_a_broken_bundle_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diagnose", str(tmp_path)]) == 2
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1
    assert "a bundle is a directory that `syntony record` wrote" in reported


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = drawn.make_case("slow-flow", 3)
    flows = case.tables["flows"]["flow"]
    evil = "[red]\x1b]0;owned\x07\x1b[31mqp"
    case.tables["flows"]["flow"] = [evil if each == case.truth.subject else each for each in flows]
    assert run(["diagnose", written(tmp_path, case)]) == 1
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "[red]qp" in text


def test_only_instants_that_can_be_utc_are_called_so() -> None:
    assert date_and_time(1_790_000_000 * S + 123_456_789) == "2026-09-21 14:13:20.123Z"
    assert date_and_time(12 * S + 345_678_901) == "12.346 s on its timeline"
