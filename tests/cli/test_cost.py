"""`syntony cost`: what is printed, and how it ends."""

from __future__ import annotations

import json

import pytest

from syntony.cli import run


def test_json_holds_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "--gpus", "256,1024", "--json"]) == 0
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    assert [each["gpu_hours_per_failure"] for each in jobs] == [640, 2560]


def test_the_table_says_what_was_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "--gpus", "1000,50000", "--price", "2", "--takeover", "300ms"]) == 0
    out = capsys.readouterr().out
    for words in (
        "100 – 250",
        "42.05 min – 105.1 min",
        "loses 2 h of work and 30 min",
        "10 % of",
        "lost ranks (58.7 %) stop it for 300 ms",
        "makes no progress",
        "price a month",
    ):
        assert words in out, words  # fmt: skip


def test_nothing_else_is_said_of_a_small_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "--gpus", "256", "--nics-per-host", "1"]) == 0
    out = capsys.readouterr().out
    assert "nothing is survived" in out
    assert "no progress" not in out
    assert "price" not in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gpus", "many"], "write a number"),
        (["--gpus", "0"], "gpus: 0 is not between"),
        (["--checkpoint", "2"], "not a duration"),
        (["--lost-share", "2"], "lost_share"),
        (["--lab", "x"], "--history"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_bad_assumptions_are_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cost", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert len(captured.err.splitlines()) == 1
