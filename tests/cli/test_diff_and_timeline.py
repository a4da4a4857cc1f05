"""`syntony diff` and `syntony timeline`: what is printed or written, and exit statuses."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.diagnosis import drawn
from bench.diagnosis.case import Case, arrow_tables

from syntony.cli import run
from syntony.io.bundle_files import write_bundle
from syntony.workload import timeline

EVIL = "[red]\x1b]0;owned\x07\x1b[31mh0"


def case() -> Case:
    return drawn.make_case("slow-flow", 3)


def written(folder: Path, one: Case) -> str:
    write_bundle(folder, arrow_tables(one), one.manifest)
    return str(folder)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """A run, and the same with flows of half the rate."""
    slower = case()
    rates = slower.tables["flows"]["rate_bps"]
    slower.tables["flows"]["rate_bps"] = [each and each / 2 for each in rates]
    return written(tmp_path / "before", case()), written(tmp_path / "after", slower)


def test_what_changed_for_people(runs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The worst first."""
    assert run(["diff", *runs]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Steps take as long as before: ")
    assert "changes is rate_bps of " in lines[1]
    assert lines[3].startswith("  worse  rate_bps of ")
    assert ", 0.50 times (" in lines[3]
    assert lines[-1].endswith("more (--json)")


def test_what_changed_as_json(runs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", *runs, "--json"]) == 1
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["comparable"] is True
    assert len(result["sentences"]) == 3
    for change in result["changes"]:
        assert change["measure"] == "rate_bps"
        assert change["worse"] is True
        assert change["ratio"] == pytest.approx(0.5)
        assert change["unit"] == "bit/s"


def test_nothing_changed(runs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", runs[0], runs[0]]) == 0
    assert "Nothing else that both runs recorded changed" in capsys.readouterr().out


def test_runs_that_cannot_be_compared(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    other = written(tmp_path / "other", drawn.make_case("", 3))
    assert run(["diff", runs[0], other]) == 3
    reported = capsys.readouterr()
    assert reported.out.startswith("The runs cannot be compared: ")
    assert run(["diff", runs[0], str(tmp_path)]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("syntony: error: ")
    (tmp_path / "file").write_text("")
    for name, says in (("file", "not a directory"), ("none", "no such directory")):
        assert run(["diff", runs[0], str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.endswith(f"{name}: {says}\n")


def test_neither_a_directory_nor_a_fleet(
    tmp_path: Path,
    runs: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TMPDIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("SYNTONY_CONTROLLER", raising=False)
    assert run(["diff", runs[0], "tuesday"]) == 2
    says = "tuesday: no such directory, and no fleet to ask for a job: no controller is named"
    assert says in capsys.readouterr().err


def test_what_one_bundle_lacks_is_said(
    runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (Path(runs[1]) / "links.parquet").write_bytes(b"PAR1")
    assert run(["diff", *runs]) == 1
    reported = capsys.readouterr()
    assert f"note: {runs[1]}: links: not a readable Parquet file" in reported.err
    assert "links: in one run only, not compared" in reported.out


def test_a_trace_is_written(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.json"
    assert run(["timeline", runs[0], "--out", str(out)]) == 0
    reported = capsys.readouterr()
    assert "open it in https://ui.perfetto.dev" in reported.err
    assert not reported.out
    events = json.loads(out.read_bytes())["traceEvents"]
    (verdict,) = [each for each in events if each["ph"] == "i"]
    assert verdict["name"] == f"slow-flow: {case().truth.subject}"
    assert {each["cat"] for each in events if "cat" in each} >= {"collective", "step", "flow"}


def test_a_trace_with_the_name_of_a_compressed_file_is_one(
    tmp_path: Path, runs: tuple[str, str]
) -> None:
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    for out in (plain, packed):
        assert run(["timeline", runs[0], "--out", str(out)]) == 0
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_a_trace_that_cannot_be_written(
    tmp_path: Path, runs: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["timeline", runs[0], "--out", str(tmp_path / "no" / "trace.json")]) == 2
    assert "cannot be written (No such file or directory)" in capsys.readouterr().err
    assert run(["timeline", str(tmp_path), "--out", str(tmp_path / "trace.json")]) == 2
    assert not (tmp_path / "trace.json").exists()


def test_a_trace_is_written_whole_or_not_at_all(
    tmp_path: Path, runs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_made: object) -> Iterator[bytes]:
        yield b"{"
        raise OSError(28, "No space left on device")

    out, there = tmp_path / "link.json", tmp_path / "trace.json"
    there.write_text("before")
    out.symlink_to(there)
    with monkeypatch.context() as patched:
        patched.setattr(timeline, "encoded", broken)
        assert run(["timeline", runs[0], "--out", str(out)]) == 2
    assert there.read_text() == "before"
    assert not list(tmp_path.glob(".*"))
    assert run(["timeline", runs[0], "--out", str(out)]) == 0
    assert out.is_symlink()
    assert json.loads(there.read_bytes())["traceEvents"]


def test_a_trace_goes_into_a_pipe_as_well(tmp_path: Path, runs: tuple[str, str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert run(["timeline", runs[0], "--out", str(pipe)]) == 0
    reader.join(300)
    assert json.loads(read[0])["traceEvents"]
    assert pipe.is_fifo()


def test_own_clocks_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of flight-recorder dumps."""
    entry = {"profiling_name": "nccl:all_reduce", "state": "completed", "collective_seq_id": 1,
             "time_created_ns": 10**18, "process_group": ["0", "pg"]}  # fmt: skip
    (tmp_path / "dump_0").write_text(json.dumps({"version": "2.5", "entries": [entry]}))
    out = tmp_path / "trace.out"
    assert run(["timeline", str(tmp_path), "--out", str(out)]) == 0
    assert "each host is on its own clock: hosts cannot be compared" in capsys.readouterr().err


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = []
    for factor in (1, 5):
        one = case()
        one.tables["hosts"]["host"] = [
            EVIL if each == "h0" else each for each in one.tables["hosts"]["host"]
        ]
        waits = one.tables["hosts"]["runq_ns"]
        one.tables["hosts"]["runq_ns"] = [each and each * factor for each in waits]
        both.append(written(tmp_path / str(factor), one))
    assert run(["diff", *both]) == 1
    reported = capsys.readouterr()
    assert "\x1b" not in reported.out + reported.err
    assert "[red]h0" in reported.out
