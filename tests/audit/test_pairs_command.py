"""`audit pairs` with a test that fails for one host, for one pair, for all, and not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syntony.cli import run

HOSTS = "gpu[00-07]"
SCRIPT = """#!/bin/sh
case "$1 $2" in {bad}) echo "link error" >&2; {act};; esac
echo bandwidth 391.5
"""


def pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str, act: str = "exit 1", *more: str
) -> tuple[int, list[dict[str, Any]]]:
    test = tmp_path / "test.sh"
    test.write_text(SCRIPT.format(bad=bad, act=act))
    words = ["audit", "pairs", "--hosts", HOSTS, *more, "--json", "--"]
    code = run([*words, "sh", str(test), "{a}", "{b}"])
    return code, json.loads(capsys.readouterr().out)


def test_a_bad_host_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, reported = pairs(tmp_path, capsys, "*gpu05*")
    assert code == 2
    assert [(r["status"], r["subject"], r["suspect"]) for r in reported] == [
        ("fail", "gpu05", "host")
    ]
    assert "link error" in reported[0]["evidence"]


def test_a_low_value_counts_as_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    low = "echo bandwidth 97; exit 0"
    code, reported = pairs(tmp_path, capsys, "*gpu02*", low, "--at-least", "384")
    assert code == 2
    assert [r["subject"] for r in reported] == ["gpu02"]
    assert "97, not 384" in reported[0]["evidence"]


def test_a_bad_pair_is_a_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, reported = pairs(tmp_path, capsys, '"gpu01 gpu06"', "exit 1", "--every-pair")
    assert code == 2
    assert [(r["subject"], r["suspect"]) for r in reported] == [("gpu01 -- gpu06", "fabric")]


def test_a_good_fleet_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, reported = pairs(tmp_path, capsys, "nobody")
    assert (code, [r["status"] for r in reported]) == (0, ["pass"])


def test_what_cannot_be_run_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "pairs", "--hosts", HOSTS, "--json", "--", "no-such-program", "{a}", "{b}"]
    assert run(words) == 3
    assert [r["status"] for r in json.loads(capsys.readouterr().out)] == ["unknown"]


def test_the_plan_is_perfect_matchings(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "pairs", "--hosts", HOSTS, "--every-pair", "--plan"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan) == 7
    assert all(len({host for pair in matching for host in pair}) == 8 for matching in plan)


@pytest.mark.parametrize(
    "words", [["--hosts", "a", "--plan"], ["--hosts", "a,b"], ["--hosts", "a,b", "--", "x", "{a}"]]
)
def test_wrong_orders_are_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "pairs", *words]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
