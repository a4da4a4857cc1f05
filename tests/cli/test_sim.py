"""`syntony sim` and `syntony traffic place`: what is asked, what is printed, how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.sim.fluid.test_nets import TOML
from tests.sim.fluid.test_traffic import GOOD

from syntony.cli import run

Said = tuple[int, str, str]
SMALL = ("--leaves", "2", "--hosts-per-leaf", "2", "--spines", "2")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def said(*args: object) -> Said:
        code = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return said


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    file = tmp_path / "t.toml"
    file.write_text(TOML)
    return file


def flows(tmp_path: Path, **columns: list[Any]) -> Path:
    file = tmp_path / "f.parquet"
    parquet.write_table(pa.table(columns), file)
    return file


def test_run_prints_one_json_document(say: Callable[..., Said], tmp_path: Path) -> None:
    file = tmp_path / "m.cm"
    file.write_text(GOOD)
    code, out, _ = say("sim", "run", *SMALL, "--traffic", file, "--policy", "ecmp", "--json")
    assert code == 0
    found = json.loads(out)
    assert list(found) == [
        "completion_max_us", "completion_mean_us", "rate_mean", "rate_min", "moves_per_flow",
        "epochs", "optimum",
    ]  # fmt: skip
    assert set(found["optimum"]) == {"rate_mean", "rate_min", "rate_min_unsplit"}
    again = json.loads(
        say("sim", "run", *SMALL, "--traffic", file, "--policy", "ecmp", "--json")[1]
    )
    assert again == found


def test_a_preset_brings_its_fabric(say: Callable[..., Said]) -> None:
    args = ("sim", "run", "--traffic", "rings-256", "--policy", "d-mod-k", "--hop-ns", "1000")
    code, out, _ = say(*args, "--json")
    assert code == 0
    assert json.loads(out)["completion_max_us"] == pytest.approx(1309, rel=0.02)
    code, out, _ = say(*args)
    assert code == 0
    assert "256 NICs" in out


def test_a_topology_file_and_damage(
    say: Callable[..., Said], topology: Path, tmp_path: Path
) -> None:
    file = tmp_path / "m.cm"
    file.write_text("0->1 id 1 start 0 size 1000000\n0->1 id 2 start 0 size 1000000\n")
    args = ("sim", "run", "--topology", topology, "--traffic", file, "--json")
    slow = json.loads(say(*args, "--speed", "h0/nic0->leaf0=10", "--dead", "leaf0--spine1")[1])
    fast = json.loads(say(*args)[1])
    assert slow["completion_max_us"] > 5 * fast["completion_max_us"]


def test_a_preset_as_a_file_is_the_same_traffic(say: Callable[..., Said], tmp_path: Path) -> None:
    code, out, _ = say("sim", "traffic", *SMALL, "--traffic", "alltoall")
    assert code == 0
    file = tmp_path / "a.cm"
    file.write_text(out)
    results = [
        json.loads(say("sim", "run", *SMALL, "--traffic", each, "--policy", "d-mod-k", "--json")[1])
        for each in (file, "alltoall")
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--traffic", "nothing"), "neither a file nor a preset"),
        (("--traffic", "rings-256", "--leaves", "2"), "the preset is for 256 NICs"),
        (("--traffic", "missing.cm"), "unreadable"),
        (("--traffic", "rings", "--leaves", "0"), "bad-topology"),
        (("--traffic", "rings", "--pods", "2", "--spines", "2"), "--spines is for two tiers"),
        (("--traffic", "rings", "--dead", "leaf7--spine0", *SMALL), "unknown-link"),
        (("--traffic", "rings", "--dead", "leaf0--spine0", "--dead", "leaf0--spine1", *SMALL),
         "disconnected"),
        (("--traffic", "rings", "--epoch-us", "0", *SMALL), "--epoch-us"),
        (("--traffic", "rings", "--noise", "nan", *SMALL), "--noise"),
        (("--traffic", "rings", "--policy", "magic", *SMALL), "magic"),
    ],
)  # fmt: skip
def test_wrong_questions_end_in_one_line(
    say: Callable[..., Said], args: tuple[str, ...], text: str
) -> None:
    code, out, err = say("sim", "run", *args, "--json")
    assert code == 2
    assert out == ""
    assert text in err
    assert err.count("\n") == 1


def test_place_moves_only_who_gains(
    say: Callable[..., Said], topology: Path, tmp_path: Path
) -> None:
    file = flows(
        tmp_path, src=["h0/nic0", "h0/nic0"], dst=["h1/nic0", "h1/nic0"], flow_id=["a", "b"],
        path=["leaf0/spine1/leaf1", "leaf0/spine0/leaf1"], job=["j", "j"],
    )  # fmt: skip
    code, out, _ = say("traffic", "place", "--topology", topology, "--flows", file, "--json")
    assert code == 0
    found = json.loads(out)
    # 50 Gb/s each is more than the cable of 40 carries.
    assert [(flow["path"], flow["moved"]) for flow in found["flows"]] == [
        ("leaf0/spine0/leaf1", True), ("leaf0/spine0/leaf1", False),
    ]  # fmt: skip
    assert found["rate_min_gbps"] == 50
    assert found["flows"][0]["links"][0] == "h0/nic0->leaf0"
    code, out, _ = say("traffic", "place", "--topology", topology, "--flows", file)
    assert code == 0
    assert "2 flows: least 50 Gb/s" in out


def test_flows_that_wait_for_others_do_not_share_with_them(
    say: Callable[..., Said], topology: Path, tmp_path: Path
) -> None:
    file = flows(
        tmp_path, src=["h0/nic0", "h0/nic0"], dst=["h1/nic0", "h1/nic0"], flow_id=["a", "b"],
        after=[None, "a"], size=[1e6, 1e6], priority=["guaranteed", "scavenger"],
    )  # fmt: skip
    _, out, _ = say("traffic", "place", "--topology", topology, "--flows", file, "--json")
    found = json.loads(out)
    assert [flow["wave"] for flow in found["flows"]] == [0, 1]
    assert found["rate_min_gbps"] == 100


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"src": ["h0/nic0"]}, "missing-columns: FLOWS has no column dst"),
        ({"src": ["h0/nic0"], "dst": ["h1/nic1"]}, "unknown-host"),
        ({"src": ["h0/nic0"], "dst": ["h0/nic0"]}, "to-itself"),
        ({"src": [], "dst": []}, "empty"),
        ({"src": ["h0/nic0"], "dst": ["h1/nic0"], "size": [0]}, "bad-size"),
        ({"src": ["h0/nic0"], "dst": ["h1/nic0"], "weight": [-1.0]}, "bad-weight"),
        ({"src": ["h0/nic0"], "dst": ["h1/nic0"], "demand_gbps": ["x"]}, "bad-demand"),
        ({"src": ["h0/nic0"], "dst": ["h1/nic0"], "priority": ["high"]}, "bad-priority"),
        ({"src": ["h0/nic0"] * 2, "dst": ["h1/nic0"] * 2, "flow_id": ["a", "a"]},
         "duplicate-flow"),
        ({"src": ["h0/nic0"] * 2, "dst": ["h1/nic0"] * 2, "flow_id": ["a", "b"],
          "after": ["b", "a"]}, "trigger-cycle"),
        ({"src": ["h0/nic0"], "dst": ["h1/nic0"], "after": ["z"]}, "unknown-flow"),
    ],
)  # fmt: skip
def test_tables_that_are_wrong_end_in_one_line(
    say: Callable[..., Said],
    topology: Path,
    tmp_path: Path,
    columns: dict[str, list[Any]],
    text: str,
) -> None:
    file = flows(tmp_path, **columns)
    code, out, err = say("traffic", "place", "--topology", topology, "--flows", file, "--json")
    assert code == 2
    assert out == ""
    assert text in err
    assert err.count("\n") == 1


def test_files_that_are_something_else(
    say: Callable[..., Said], topology: Path, tmp_path: Path
) -> None:
    code, _, err = say("traffic", "place", "--topology", topology, "--flows", topology)
    assert code == 2
    assert "not-parquet" in err
    file = flows(tmp_path, src=["h0/nic0"], dst=["h1/nic0"])
    code, _, err = say("traffic", "place", "--topology", file, "--flows", file)
    assert code == 2
    assert "not-text" in err
    dead = ("--dead", "leaf0--spine0", "--dead", "leaf0--spine1")
    code, _, err = say("traffic", "place", "--topology", topology, "--flows", file, *dead)
    assert code == 2
    assert "disconnected: no living path from h0/nic0 to h1/nic0" in err
