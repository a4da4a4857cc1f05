"""What the documentation names exists: files, modules, keys, metrics, variables; and its counts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.docs.test_links import TOP

from syntony.agent.config import AgentConfig
from syntony.audit.registry import every_check
from syntony.controller.config import ControllerConfig
from syntony.mesh.plan import ports_to_cover
from syntony.metrics.table import EVERY, PREFIX
from syntony.workload.classes import RULES

PAGES = sorted(
    page
    for page in [*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")]
    if "decisions" not in page.parts  # records of their day: names may have changed since
)
_CODE = re.compile(r"^ *```\w*\n.*?^ *```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_TOML = re.compile(r"^ *```toml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?<![\w/.-])(?:bench|deploy|native|src|tests)/[\w./-]+\.\w+")
_BENCH = re.compile(r"python -m (bench(?:\.\w+)+)")
_MODULE = re.compile(r"\bsyntony\.(?!rules\b)[a-z_]+(?:\.[a-z_]+)+\b(?!\.)")
_METRIC = re.compile(rf"`{PREFIX}([a-z0-9_]+)(?:\{{[^`]*)?`")
_VARIABLE = re.compile(r"\bSYNTONY_[A-Z0-9_]*[A-Z0-9]\b")
_OTHER_FILES = {"rule", "objective", "device", "roles", "checks"}
"""First keys of files that are no configuration of a daemon."""
_DEFAULTS = TOP / "deploy/ansible/roles/syntony/defaults/main.yml"
_NO_METRICS = {
    *re.findall(r"^syntony_(\w+):", _DEFAULTS.read_text(encoding="utf-8"), re.MULTILINE),
    *("detours", "local", "verbs_probe_"),
}
"""Variables of Ansible, a table of nftables, a database; the beginning of names."""


@cache
def variables() -> frozenset[str]:
    """Every variable that the code or a file that it ships names."""
    found: set[str] = set()
    for room in ("src", "native", "deploy", "tests", "web"):
        for path in (TOP / room).rglob("*"):
            suffixes = {".py", ".c", ".h", ".sh", ".js", ".txt"}
            if path.suffix in suffixes and path.is_file() and path != Path(__file__):
                found.update(_VARIABLE.findall(path.read_text(encoding="utf-8", errors="replace")))
    return frozenset(found)


def exists(module: str) -> bool:
    """Whether a dotted name is a module, or what is in one."""
    path = TOP / "src" / module.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists() or in_module(module)


def in_module(name: str) -> bool:
    module, _, last = name.rpartition(".")
    path = TOP / "src" / module.replace(".", "/")
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.exists() and re.search(rf"\b{last}\b", file.read_text(encoding="utf-8")):
            return True
    return False


def family(name: str) -> str:
    """A histogram's name without the end of one of its series."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if base in EVERY else name


def missing(text: str) -> Iterator[str]:
    """Names in code that are of nothing."""
    for code in _CODE.findall(text):
        yield from (name for name in _FILE.findall(code) if not (TOP / name).exists())
        for name in _BENCH.findall(code):
            path = TOP / name.replace(".", "/")
            if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists()):
                yield name
        yield from (name for name in _MODULE.findall(code) if not exists(name))
        yield from (name for name in _VARIABLE.findall(code) if name not in variables())
        for name in _METRIC.findall(code):
            if family(name) not in EVERY and name not in _NO_METRICS:
                yield PREFIX + name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_what_a_page_names_exists(page: Path) -> None:
    assert not list(missing(page.read_text(encoding="utf-8")))


def test_a_name_of_nothing_is_noticed() -> None:
    text = (
        "`tests/nope.py tests/live.py` `python -m bench.nope` `syntony.clock.nope` "
        "`SYNTONY_"
        "NOPE` `syntony_nope_total` `syntony_agent_part_up{part=…}` `syntony.clock.pair`"
    )
    assert list(missing(text)) == [
        "tests/nope.py", "bench.nope", "syntony.clock.nope", "SYNTONY_NOPE", "syntony_nope_total",
    ]  # fmt: skip


def keys(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Names of a record's keys, each with those of the table that it holds."""
    return _keys_of(msgspec.inspect.type_info(record)) or {}


def _keys_of(info: msgspec.inspect.Type) -> dict[str, Any] | None:
    match info:
        case msgspec.inspect.StructType():
            return {field.encode_name: _keys_of(field.type) for field in info.fields}
        case msgspec.inspect.VarTupleType():
            return _keys_of(info.item_type)
        case msgspec.inspect.UnionType():
            return next((found for each in info.types if (found := _keys_of(each))), None)
    return None


def unknown(table: dict[str, Any], known: dict[str, Any], path: str = "") -> list[str]:
    wrong = []
    for key, value in table.items():
        if key not in known:
            wrong.append(path + key)
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                wrong += unknown(each, known[key] or {}, f"{path}{key}.")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_examples_of_configuration_have_known_keys(page: Path) -> None:
    for block in _TOML.findall(page.read_text(encoding="utf-8")):
        table = tomllib.loads(block)
        if not _OTHER_FILES & table.keys():
            of_each = [unknown(table, keys(record)) for record in (AgentConfig, ControllerConfig)]
            assert [] in of_each, block


def test_an_unknown_key_is_noticed() -> None:
    table = tomllib.loads("host = 'a'\n[traffic]\nmod = 'act'\n[[nics]]\nname = 'a'\nrial = 1\n")
    assert unknown(table, keys(AgentConfig)) == ["traffic.mod", "nics.rial"]


def test_the_readme_counts_right() -> None:
    text = (TOP / "README.md").read_text(encoding="utf-8")
    assert f"| {len(every_check())} checks in one command" in text
    assert f"one of {len(RULES)} causes by name" in text


def test_the_page_on_scale_has_the_plan_s_own_numbers() -> None:
    """Its table of source ports, and its examples by its own rule."""
    text = (TOP / "docs/reference/scale.md").read_text(encoding="utf-8")
    paths, ports = (
        [int(cell) for cell in re.findall(r"\d+", line)]
        for line in text.splitlines()
        if line.startswith(("| `ecmp_paths` | 1", "| ports |"))
    )
    assert [ports_to_cover(each) for each in paths] == ports
    examples = re.findall(
        r"^\| (\d+) hosts × (\d) NICs \| (\d+), (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+)"
        r"[^|]*\| (\d+) GB",
        text, re.MULTILINE,
    )  # fmt: skip
    assert len(examples) >= 5
    for hosts, nics, ecmp, peers, flows, rows, cores, day in examples:
        count = int(hosts) * int(nics) * int(peers) * ports_to_cover(int(ecmp))
        of_rows = 2 * count + 20 * int(hosts)
        assert float(flows.replace(",", "")) == pytest.approx(count, rel=0.01)
        assert float(rows.replace(",", "")) == pytest.approx(of_rows, rel=0.01)
        assert float(cores) == pytest.approx(of_rows / 220_000 + count / 800_000, abs=0.06)
        assert float(day) == pytest.approx(of_rows * 18 * 86_400 / 1e9, rel=0.01)
