"""Deliberate changes: which there are, and which are left out."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from importlib.util import module_from_spec
from pathlib import Path

import pytest
from tests.mutants import mutant, sites
from tests.mutate import ALLOWED, ROOT, Covering, FromMemory, forked, pure_rooms, sample, survivors

SOURCE = '''\
"""A docstring 1."""
from typing import Final
LIMIT: Final[int] = 30

def least(a: int, b: int) -> int:
    """Another 2."""
    log.warning("3")
    if a < b and not b:
        raise ValueError(f"4 {a + 5}")
    return min(a, b - 1)

class Thing:
    def __repr__(self) -> str:
        return "6" * 7
'''


@pytest.fixture
def changes(tmp_path: Path) -> list[str]:
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    return [mutant(path, n, tmp_path).diff for n, _ in enumerate(sites(path))]


@pytest.mark.parametrize(
    "new",
    [
        "LIMIT: Final[int] = 90", "LIMIT: Final[int] = 10", "if a <= b and (not b):",
        "if a >= b and (not b):", "if a < b or not b:", "if a < b and b:", "if not b:", "if a < b:",
        "if not (a < b and (not b)):", "if False:", "if True:", "return max(a, b - 1)",
        "return min(a, b + 1)", "return min(a, b - 0)", "return 0", "pass",
    ],
)  # fmt: skip
def test_what_is_changed(changes: list[str], new: str) -> None:
    added = [line for diff in changes for line in diff.splitlines() if line.startswith("+")]
    assert new in {line[1:].strip() for line in added}


def test_texts_types_logging_and_the_wording_of_errors_are_left_alone(changes: list[str]) -> None:
    removed = [line for diff in changes for line in diff.splitlines() if line.startswith("-")]
    assert not [line for line in removed if "docstring" in line or "log." in line or "6" in line]
    errors = [diff for diff in changes if "ValueError" in diff]
    assert len(errors) == 1, "that it is raised at all is another matter"
    assert all(diff.count("\n") < 4 for diff in changes), "one change at a time"


def test_how_a_chart_looks_is_left_alone_and_what_it_says_is_not(tmp_path: Path) -> None:
    path = tmp_path / "chart.py"
    path.write_text("axes.plot(values, lw=2, ls=(0, (4, 3)), zorder=7, at=3)\n")
    added = [mutant(path, n, tmp_path).diff.splitlines()[-1] for n, _ in enumerate(sites(path))]
    assert sorted(added) == [
        "+axes.plot(values, lw=2, ls=(0, (4, 3)), zorder=7, at=2)",
        "+axes.plot(values, lw=2, ls=(0, (4, 3)), zorder=7, at=4)", "+pass",
    ]  # fmt: skip


def test_what_a_process_prints_is_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    def work() -> int:
        os.write(1, b"why it failed\n")
        return 3

    process = forked(work, 60, tmp_path / "output")
    process.join()
    assert process.exitcode == 3
    assert (tmp_path / "output").read_text() == "why it failed\n"


def test_a_change_that_no_test_runs_is_a_survivor_and_the_run_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Nothing(Covering):
        def __init__(self) -> None:
            self.seconds = {}

        def tests(self, *_: object) -> list[str]:
            return []

    changes_ = sample("sla", "", 2, 1)
    found = survivors(changes_, Nothing(), 1, 60.0)
    assert {each.where for each in found} == {each.where for each in changes_}
    assert changes_[0].diff in capsys.readouterr().out


def test_a_sample_depends_on_its_seed_alone() -> None:
    once, again, other = (sample("sla", "", 8, seed) for seed in (1, 1, 2))
    assert once == again != other
    assert all(each.file.startswith("syntony/sla/") for each in once)
    assert {"links", "clock", "view"} < set(pure_rooms())


def test_the_changed_module_is_imported_and_the_files_stay_as_they_are() -> None:
    changed = next(m for m in sample("sla", "subjects", 60, 1) if m.diff.startswith("-FEW = 16"))
    finder = FromMemory(changed)
    assert finder.find_spec("syntony.sla.judge", None) is None
    spec = finder.find_spec("syntony.sla.subjects", None)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.FEW != 16
    assert "FEW = 16" in Path(str(module.__file__)).read_text()


def without_signs(line: str) -> str:
    """Without what versions of Python write differently: quotes and needless brackets."""
    return re.sub(r"[()'\"]", "", line).strip()


def test_equal_changes_are_of_code_that_is_still_there() -> None:
    """Else it is not known any more that no test can notice them."""
    stale = []
    for each in tomllib.loads(ALLOWED.read_text())["equal"]:
        code = ast.unparse(ast.parse((ROOT / "src" / each["file"]).read_text()))
        lines = {without_signs(line) for line in code.splitlines()}
        removed = [line[1:] for line in each["diff"].splitlines() if line.startswith("-")]
        stale += [(each["file"], line) for line in removed if without_signs(line) not in lines]
    assert not stale
