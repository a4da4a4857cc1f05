"""`syntony fabric locate`: real files in, findings or one named error out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from syntony.cli import run

NODES = ["h0/rail0", "leaf0", "spine0", "leaf1", "h1/rail0"]


def files(
    tmp_path: Path, paths: dict[str, Any], observed: dict[str, Any]
) -> tuple[str, str, str, str]:
    for name, columns in (("paths", paths), ("obs", observed)):
        parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    return "--paths", str(tmp_path / "paths.parquet"), "--obs", str(tmp_path / "obs.parquet")


def fleet(bad: str, share: float) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(4)
    rows = []
    for a in range(8):
        for b in range(8):
            for spine in range(2):
                nodes = [f"h{a}/rail0", f"leaf{a // 2}", f"spine{spine}", f"leaf{b // 2}"]
                if a // 2 != b // 2:
                    rows.append([*nodes, f"h{b}/rail0"])
    lost = [int(rng.binomial(500, share if bad in nodes else 0.0)) for nodes in rows]
    ids = [f"p{place}" for place in range(len(rows))]
    observed = {"path_id": ids, "sent": [500] * len(rows), "lost": lost}
    return {"path_id": ids, "components": rows}, observed


def locate(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = run(["fabric", "locate", *args, "--json"])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("bad", ["spine1", "leaf2", "h5/rail0"])
def test_the_component_is_named(
    bad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = locate(files(tmp_path, *fleet(bad, 0.02)), capsys)
    assert (code, err) == (0, "")
    (found,) = json.loads(out)
    wanted = "component kind loss delay_ns confidence window explains alternatives"
    assert set(wanted.split()) <= set(found)
    assert found["component"] == bad
    assert found["loss"] == pytest.approx(0.02, rel=0.3)
    twins = found["probabilities"][: found["twins"]]
    assert 0.9 < found["confidence"] + sum(twins) <= 1 + 1e-9


def test_a_topology_tells_of_parallel_cables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every second path across the link takes the other of two cables."""
    paths = {
        "path_id": list(range(40)),
        "components": [["h0/r", "leaf0", "leaf0->spine0", "spine0", f"h{1 + n % 5}/r"]
                       for n in range(40)],
    }  # fmt: skip
    observed = {"path_id": paths["path_id"], "sent": [200] * 40, "lost": [20, 0] * 20}
    topology = tmp_path / "fabric.toml"
    devices = "".join(f'[[device]]\nname = "{name}"\n' for name in ("leaf0", "spine0"))
    topology.write_text(devices + '[[cable]]\na = "leaf0"\nb = "spine0"\n' * 2)
    args = (*files(tmp_path, paths, observed), "--topology", str(topology))
    code, out, _ = locate(args, capsys)
    (found,) = json.loads(out)
    assert (code, found["component"], found["one_of"]) == (0, "leaf0->spine0", 2)
    topology.write_text('[[cable]]\na = "leaf0"\nb = "spine0"\n')
    check_error(locate(args, capsys), "unknown-device")


def test_nothing_wrong_is_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = locate(files(tmp_path, *fleet("nobody", 0.0)), capsys)
    assert (code, json.loads(out)) == (0, [])


def test_windows_are_looked_at_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, quiet = fleet("nobody", 0.0)
    _, lossy = fleet("spine0", 0.05)
    rows = len(quiet["sent"])
    both = {name: quiet[name] + lossy[name] for name in quiet}
    both["window"] = ["before"] * rows + ["after"] * rows
    _, out, _ = locate(files(tmp_path, paths, both), capsys)
    (found,) = json.loads(out)
    assert (found["component"], found["window"]) == ("spine0", "after")


def test_a_path_is_its_own_baseline_over_stretches_of_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, quiet = fleet("nobody", 0.0)
    rng = np.random.default_rng(8)
    late = np.array(["spine1" in nodes for nodes in paths["components"]])
    windows = range(6)
    observed = {name: quiet[name] * len(windows) for name in quiet}
    observed["window"] = [window for window in windows for _ in late]
    observed["owd_p50_ns"] = np.concatenate(
        [10_000 + rng.normal(0, 200, len(late)) + 25_000 * late * (w == 5) for w in windows]
    ).tolist()
    _, out, _ = locate(files(tmp_path, paths, observed), capsys)
    (found,) = json.loads(out)
    assert (found["component"], found["fault"], found["window"]) == ("spine1", "delay", "5")
    assert found["delay_ns"] == pytest.approx(25_000, rel=0.1)


def test_a_constant_delay_is_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths, observed = fleet("nobody", 0.0)
    slow = [100_000.0 if "spine1" in nodes else 10_000.0 for nodes in paths["components"]]
    _, out, _ = locate(files(tmp_path, paths, {**observed, "owd_p50_ns": slow}), capsys)
    assert json.loads(out) == []


ONE = {"path_id": [1], "components": [NODES]}
SEEN = {"path_id": [1], "sent": [10], "lost": [0]}
BAD_OBSERVED: dict[str, dict[str, Any]] = {
    "missing-columns": {"path_id": [1], "sent": [10]},
    "empty": {name: pa.array([], pa.int64()) for name in SEEN},
    "missing-counts": {**SEEN, "lost": [float("nan")]},
    "negative-counts": {**SEEN, "lost": [-1]},
    "not-counts": {**SEEN, "sent": [10.5]},
    "not-numbers": {**SEEN, "sent": ["ten"]},
    "lost-above-sent": {**SEEN, "lost": [11]},
    "unknown-path": {**SEEN, "path_id": [2]},
    "missing-path": {**SEEN, "path_id": pa.array([None], pa.int64())},
    "path-types": {**SEEN, "path_id": ["one"]},
    "duplicate-rows": {name: values * 2 for name, values in SEEN.items()},
    "bad-delay": {**SEEN, "owd_p50_ns": [float("inf")]},
    "missing-window": {**SEEN, "window": pa.array([None], pa.string())},
}
BAD_PATHS: dict[str, dict[str, Any]] = {
    "missing-columns": {"path_id": [1]},
    "empty": {"path_id": pa.array([], pa.int64()), "components": pa.array([], pa.string())},
    "missing-path": {"path_id": pa.array([None], pa.int64()), "components": [NODES]},
    "duplicate-path": {"path_id": [1, 1], "components": [NODES, NODES]},
    "not-lists": {"path_id": [1], "components": ["h0"]},
    "no-components": {"path_id": [1], "components": pa.array([[]], pa.list_(pa.string()))},
    "not-names": {"path_id": [1], "components": [[1, 2]]},
}


@pytest.mark.parametrize("name", BAD_OBSERVED)
def test_bad_observations_have_a_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_error(locate(files(tmp_path, ONE, BAD_OBSERVED[name]), capsys), name)


@pytest.mark.parametrize("name", BAD_PATHS)
def test_bad_paths_have_a_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_error(locate(files(tmp_path, BAD_PATHS[name], SEEN), capsys), name)


def test_no_parquet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = files(tmp_path, ONE, SEEN)
    Path(args[3]).write_bytes(b"PAR1 and no more")
    check_error(locate(args, capsys), "not-parquet")


def check_error(result: tuple[int, str, str], name: str) -> None:
    code, out, err = result
    assert (code, out) == (2, "")
    assert f"error: {name}: " in err
    assert len(err.strip().splitlines()) == 1
