"""What the live bench of faults keeps of a result that was not right."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from bench.localise_cases import Case
from bench.localise_lab import Bench, Result
from tests.live import LiveLab

from bench import localise_lab
from syntony.io.operator_files import load_rules
from syntony.wire.fabric import Findings, FindingsQuery, LearntPaths, PathsQuery
from syntony.wire.incidents import IncidentsReply


def answer(_target: str, query: object) -> Any:
    if isinstance(query, FindingsQuery):
        return Findings(ts_ns=7, findings=())
    if isinstance(query, PathsQuery):
        return LearntPaths(paths=())
    return IncidentsReply(incidents=({"rule": "link-loss", "evidence": []},), silences=(),
                          waiting=0)  # fmt: skip


def test_what_shows_why_a_result_was_not_right_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(localise_lab, "ask", answer)
    lab = tmp_path / "lab"
    for name in ("topology.json", "logs/controller.log", "store/lock", "store/chdb/all_1_1_0/data",
                 "store/chdb/tmp_merge_all_1_2_1/data"):  # fmt: skip
        (lab / name).parent.mkdir(parents=True, exist_ok=True)
        (lab / name).write_text("")
    fake = cast("LiveLab", SimpleNamespace(directory=lab, controller_socket="x"))
    bench = Bench(fake, 3, "shape", tmp_path / "keep")
    result = Result(3, "shape", "NIC, 5 %", 1, "missed", None, None, None, 0, 0, (), (), (), 0.0)
    case = Case("NIC, 5 %", [("loss", "h0/rail0", {"percent": "5"})], {})
    bench._write_down(tmp_path / "keep", case, result, {"before": bench._kept_now()})
    kept = tmp_path / "keep" / "3-NIC-5-%"
    known = json.loads((kept / "result.json").read_text())
    assert (known["result"]["verdict"], known["before"]["ts_ns"]) == ("missed", 7)
    assert known["incidents"]
    assert known["orders"]
    assert load_rules(str(kept / "rules.toml"))
    assert (kept / "store/chdb/all_1_1_0/data").exists()
    assert not (kept / "store/chdb/tmp_merge_all_1_2_1").exists()
    assert {path.name for path in kept.iterdir()} == {
        "result.json", "rules.toml", "topology.json", "logs", "store",
    }  # fmt: skip
