"""Verdicts on recorded rows: the controller's own code, from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet
from tests.store.rows import probed, rows_of

from syntony.cli.sla import command
from syntony.errors import ConfigError, InputError, UsageError
from syntony.model.names import host_of
from syntony.wire.tables import PROBE

NICS = [f"h{number}/rail0" for number in range(4)]
SLOW = {"owd_p99_ns": 90_000, "owd_max_ns": 95_000}


def record(file: Path, **changed: dict[str, Any]) -> Path:
    """Five seconds of every pair; `changed` by the sending NIC's host."""
    rows = [
        probed(a, b, second, **changed.get(host_of(a), {}))
        for a in NICS for b in NICS if a != b for second in range(5)
    ]  # fmt: skip
    parquet.write_table(rows_of(PROBE, rows), file)
    return file


def run(*words: str) -> Result:
    result = CliRunner().invoke(command, ["recorded", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_what_breaks_an_objective_of_its_class(tmp_path: Path) -> None:
    rows = record(tmp_path / "rows.parquet", h1=SLOW)
    (tmp_path / "sla.toml").write_text('[[objective]]\nclass = "leaf"\np99 = "50us"\n')
    parts = [[a, f"{a}->leaf0", "leaf0", f"leaf0->{b}", b] for a in NICS for b in NICS if a != b]
    parquet.write_table(pa.table({"components": parts}), tmp_path / "paths.parquet")
    sla, paths = str(tmp_path / "sla.toml"), str(tmp_path / "paths.parquet")
    done = run(str(rows), "--sla", sla, "--paths", paths, "--json")
    reported = {row["subject"]: row for row in json.loads(done.stdout)["rows"]}
    assert done.exit_code == 2
    assert {subject for subject, row in reported.items() if row["status"] == "breach"} == {
        f"h1/rail0->{nic}" for nic in NICS if nic != "h1/rail0"
    }
    assert {row["path_class"] for row in reported.values()} == {"leaf"}
    assert reported["h0/rail0->h2/rail0"]["now"]["p50_ns"] == 2_000
    assert run(str(rows), "--sla", sla).exit_code == 0, "no class is known"
    assert run(str(rows), "--by", "rail").exit_code == 0


def test_rows_that_cannot_be_used_are_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    good = rows_of(PROBE, [probed(NICS[0], NICS[1])])
    bad: list[tuple[pa.Table, str]] = [
        (good.drop_columns(["sent"]), "missing-columns: .*no column sent"),
        (good.slice(0, 0), "empty"),
        (good.set_column(good.column_names.index("lost"), "lost", pa.array(["x"])), "not-numbers"),
        (good.set_column(good.column_names.index("src"), "src", pa.array([None], pa.string())),
         "missing-values: .*src"),
    ]  # fmt: skip
    for table, says in bad:
        parquet.write_table(table, file)
        with pytest.raises(InputError, match=says):
            run(str(file))
    file.write_text("not parquet")
    with pytest.raises(InputError, match="not a readable Parquet"):
        run(str(file))
    record(file)
    with pytest.raises(ConfigError):
        run(str(file), "--sla", str(tmp_path / "nowhere.toml"))
    with pytest.raises(UsageError, match="longer than 0"):
        run(str(file), "--window", "0s")
