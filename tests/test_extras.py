"""`make setup` installs the extra `lab`: the program imports nothing else, also not late."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

from syntony.cli.controller import NEEDS

ROOT = Path(__file__).parents[1]
OPTIONAL = {"matplotlib", "psycopg", "torch"}
"""Imported only where that says what to install (extras `report`, `postgresql`, `torch`)."""
MODULES = {"grpcio": "grpc", "nvidia-ml-py": "pynvml", "prometheus-client": "prometheus_client",
           "pyjwt": "jwt"}  # fmt: skip
"""Packages whose module has another name."""


def packages(extra: str) -> set[str]:
    """Modules that an extra installs, those of the extras it names and of the base included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    found, left = set(), [*project["dependencies"], *extras[extra]]
    while left:
        name, named = re.fullmatch(r"([\w-]+)(?:\[([\w,-]+)\])?.*", left.pop()).groups()  # type: ignore[union-attr]
        if name == "syntony":
            left += [each for part in named.split(",") for each in extras[part]]
        else:
            found.add(MODULES.get(name, name))
    return found


def imports() -> dict[str, set[str]]:
    """Foreign module → the files that import it anywhere."""
    found: dict[str, set[str]] = {}
    hook = {path.stem for path in (ROOT / "src/syntony/job_hook").glob("*.py")}
    """Modules that a job's own interpreter finds in that directory."""
    for path in (ROOT / "src/syntony").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                if top not in {"syntony", *hook, *sys.stdlib_module_names}:
                    found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


def test_a_lab_has_all_that_is_imported() -> None:
    lab = packages("lab")
    assert not {name: files for name, files in imports().items() if name not in lab | OPTIONAL}
    assert set(NEEDS) <= lab


def test_a_controller_has_all_that_it_asks_for() -> None:
    assert set(NEEDS) <= packages("controller")
