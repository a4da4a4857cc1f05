"""The answer of `syntony why` and `syntony record`, from what a controller answers."""

from __future__ import annotations

import json
import random
from pathlib import Path

import click.testing
import msgspec
import pytest
from tests.workload import test_excuses
from tests.workload.stored_rows import arrow, bundle, record, steps_of

from syntony.cli import _recording, root
from syntony.controller.recordings import _parts
from syntony.errors import InputError
from syntony.model import MS, S
from syntony.wire.jobs import Jobs, JobsQuery, JobView, Recording, RecordingQuery
from syntony.wire.query import join_pages, pages
from syntony.wire.tables import COLLECTIVE
from syntony.workload import diagnose
from syntony.workload.bundle import Gap
from syntony.workload.diagnose import Diagnosis
from syntony.workload.recorded import RecordedBundle
from syntony.workload.sentences import sentences


def recording(late_ns: int) -> RecordedBundle:
    late = {2: late_ns} if late_ns else {}
    return record({COLLECTIVE.name: steps_of(4, 300, late, random.Random(5))})


def answer_of(found: RecordedBundle) -> Recording:
    answer = Recording(
        manifest=msgspec.json.encode(found.manifest), notes=("[left] out",),
        rows=tuple(_parts(found)),
    )  # fmt: skip
    return join_pages(msgspec.msgpack.decode(page, type=Recording) for page in pages(answer))


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> RecordedBundle:
    """A controller that has recorded one job."""
    found = recording(request.param)
    reported = answer_of(found)
    monkeypatch.setattr(_recording, "ask", lambda *_words, **_more: reported)
    return found


def run(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(root, [*words, "--controller", "unix:/nowhere"])


@pytest.mark.parametrize("fleet", [30 * MS], indirect=True)
def test_three_sentences_then_the_evidence(fleet: RecordedBundle) -> None:
    done = run("why", "night")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "night is slow because of straggler: rank 2."
    assert "after its peers" in lines[1]
    assert lines[2].startswith("To do: ")
    assert "straggler: rank 2" in lines[4]
    assert "note: [left] out" in done.stderr


@pytest.mark.parametrize("fleet", [30 * MS], indirect=True)
def test_what_is_recorded_is_diagnosed_alike(fleet: RecordedBundle, tmp_path: Path) -> None:
    place = str(tmp_path / "new" / "bundle")
    assert run("record", "night", "--out", place).exit_code == 0
    requested = json.loads(run("why", "night", "--json").stdout)
    kept = click.testing.CliRunner().invoke(root, ["diagnose", place, "--json"])
    assert json.loads(kept.stdout) == requested
    assert "note: [left] out" in kept.stderr
    assert requested[0]["subjects"] == ["rank 2"]
    again = run("record", "night", "--out", place)
    assert again.exit_code != 0
    assert "is not an empty directory" in str(again.exception)


@pytest.mark.parametrize("fleet", [0], indirect=True)
def test_a_quiet_job_is_not_called_slow(fleet: RecordedBundle) -> None:
    done = run("why", "night")
    assert done.exit_code == 3  # flows and more were not recorded
    assert done.stdout.startswith("It is undetermined whether anything slows night down")
    assert "flows" in done.stdout.splitlines()[1]


def test_a_wait_without_a_verdict_is_shown_and_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = test_excuses.trained(0)
    job.cpu = lambda rank, _second: (0.9 if rank == job.odd else 0.01, 0.0)
    reported = answer_of(job.recorded())
    monkeypatch.setattr(_recording, "ask", lambda *_words, **_more: reported)
    place = str(tmp_path / "bundle")
    assert run("record", "night", "--out", place).exit_code == 0
    for words in (("why", "night", "--controller", "unix:/nowhere"), ("diagnose", place)):
        done = click.testing.CliRunner().invoke(root, words)
        assert done.exit_code == 3
        assert f"undetermined: rank {job.odd}" in done.stdout
        (wait,) = json.loads(click.testing.CliRunner().invoke(root, [*words, "--json"]).stdout)
        assert (wait["class"], wait["subjects"]) == ("undetermined", [f"rank {job.odd}"])


def test_sentences_without_any_gap() -> None:
    first, *_ = sentences("night", Diagnosis((), (Gap("flows", "2 rows make no sense"),)), 90 * S)
    assert first == "Nothing is wrong with night, as far as the last 90 s show."


def test_several_causes_are_counted() -> None:
    (verdict,) = diagnose(bundle(recording(30 * MS))).verdicts
    first, *_ = sentences("night", Diagnosis((verdict, verdict, verdict), ()), S)
    assert first == "night is slow because of straggler: rank 2, and of 2 more causes."
    assert arrow(recording(0))


@pytest.mark.parametrize("fleet", [30 * MS], indirect=True)
def test_runs_are_compared_by_name(
    fleet: RecordedBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of each, though it may have ended long ago; a bundle and a job as well."""
    asked: list[object] = []
    reported = answer_of(fleet)
    jobs = Jobs(now_ns=9_000 * S, jobs=tuple(
        JobView(job=name, began_ns=0, seen_ns=seen_ns, hosts=(), processes=1, running=0, ranks=4,
                programs=())
        for name, seen_ns in (("night", 700 * S), ("other", 800 * S))
    ))  # fmt: skip

    def ask(_target: object, query: object, **_more: object) -> object:
        asked.append(query)
        return jobs if isinstance(query, JobsQuery) else reported

    monkeypatch.setattr(_recording, "ask", ask)
    place = str(tmp_path / "bundle")
    assert run("record", "night", "--out", place).exit_code == 0
    del asked[:]
    done = run("diff", "night", "other", "--window", "5m")
    assert done.exit_code == 0
    assert "Nothing else that both runs recorded changed" in done.stdout
    found = [each for each in asked if isinstance(each, RecordingQuery)]
    assert [(each.job, each.window_ns, each.end_ns) for each in found] == [
        ("night", 300 * S, 700 * S), ("other", 300 * S, 800 * S)]  # fmt: skip
    assert run("diff", place, "night").exit_code == 0
    done = run("diff", place, "never")
    assert "never: neither a directory nor a job of the last 90 days; `" in str(done.exception)
    done = run("diff", place, "nigth")
    assert "of the last 90 days; did you mean 'night'?; `syntony jobs" in str(done.exception)
    done = run("diff", place, "./nowhere")
    assert "./nowhere: no such directory" in str(done.exception)


def test_bundles_need_no_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_words: object) -> None:
        raise AssertionError("a fleet is looked for")

    monkeypatch.setattr("syntony.cli.fleet.fleet_target", nobody)
    done = click.testing.CliRunner().invoke(root, ["diff", str(tmp_path), str(tmp_path)])
    assert isinstance(done.exception, InputError)
