"""The answer of `syntony why` and `syntony record`, from what a controller answers."""

from __future__ import annotations

import json
import random
from pathlib import Path

import click.testing
import msgspec
import pytest
from tests.workload.test_recorded import arrow, bundle, record, steps_of

from syntony.cli import _recording, root
from syntony.controller.recordings import _parts
from syntony.model import MS, S
from syntony.wire.jobs import Recording
from syntony.wire.query import join_pages, pages
from syntony.wire.tables import COLLECTIVE
from syntony.workload import diagnose
from syntony.workload.bundle import Gap
from syntony.workload.diagnose import Diagnosis
from syntony.workload.recorded import Recorded
from syntony.workload.sentences import sentences


def recording(late_ns: int) -> Recorded:
    late = {2: late_ns} if late_ns else {}
    return record({COLLECTIVE.name: steps_of(4, 300, late, random.Random(5))})


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Recorded:
    """A controller that has recorded one job."""
    found = recording(request.param)
    answer = Recording(
        manifest=msgspec.json.encode(found.manifest), notes=("[left] out",),
        rows=tuple(_parts(found)),
    )  # fmt: skip
    reported = join_pages(msgspec.msgpack.decode(page, type=Recording) for page in pages(answer))
    monkeypatch.setattr(_recording, "ask", lambda *_words, **_more: reported)
    return found


def run(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(root, [*words, "--controller", "unix:/nowhere"])


@pytest.mark.parametrize("fleet", [30 * MS], indirect=True)
def test_three_sentences_then_the_evidence(fleet: Recorded) -> None:
    done = run("why", "night")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "night is slow because of straggler: rank 2."
    assert "after its peers" in lines[1]
    assert lines[2].startswith("To do: ")
    assert "straggler: rank 2" in lines[4]
    assert "note: [left] out" in done.stderr


@pytest.mark.parametrize("fleet", [30 * MS], indirect=True)
def test_what_is_recorded_is_diagnosed_alike(fleet: Recorded, tmp_path: Path) -> None:
    place = str(tmp_path / "new" / "bundle")
    assert run("record", "night", "--out", place).exit_code == 0
    requested = json.loads(run("why", "night", "--json").stdout)
    kept = click.testing.CliRunner().invoke(root, ["diagnose", place, "--json"])
    assert json.loads(kept.stdout) == requested
    assert requested[0]["subjects"] == ["rank 2"]
    again = run("record", "night", "--out", place)
    assert again.exit_code != 0
    assert "is no empty directory" in str(again.exception)


@pytest.mark.parametrize("fleet", [0], indirect=True)
def test_a_quiet_job_is_not_called_slow(fleet: Recorded) -> None:
    done = run("why", "night")
    assert done.exit_code == 3  # flows and more were not recorded
    assert done.stdout.startswith("It is undetermined whether anything slows night down")
    assert "flows" in done.stdout.splitlines()[1]


def test_sentences_without_any_gap() -> None:
    first, *_ = sentences("night", Diagnosis((), (Gap("flows", "2 rows make no sense"),)), 90 * S)
    assert first == "Nothing is wrong with night, as far as the last 90 s show."


def test_several_causes_are_counted() -> None:
    (verdict,) = diagnose(bundle(recording(30 * MS))).verdicts
    first, *_ = sentences("night", Diagnosis((verdict, verdict, verdict), ()), S)
    assert first == "night is slow because of straggler: rank 2, and of 2 more causes."
    assert arrow(recording(0))
