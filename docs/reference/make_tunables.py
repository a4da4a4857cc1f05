"""Write the pages of configuration and tunables: python docs/reference/make_tunables.py

Keys of the configuration files come from the records that decode them, with the text beneath each
field; constants are names in capitals with a unit at their end, evaluated where they are simple.
"""

from __future__ import annotations

import ast
import inspect
import operator
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from syntony import model
from syntony.agent.config import AgentConfig
from syntony.controller.config import ControllerConfig
from syntony.model import S, format_ns

PAGE = Path(__file__).with_name("tunables.md")
CONFIGURATION = Path(__file__).with_name("configuration.md")
SOURCE = Path(inspect.getfile(model)).parents[1]
UNITS = {
    "ns": "ns", "us": "µs", "ms": "ms", "s": "s", "bytes": "bytes", "bps": "bit/s", "ppb": "ppb",
    "hz": "Hz", "packets": "packets", "rows": "rows", "percent": "%", "nats": "nats",
}  # fmt: skip
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.LShift: operator.lshift,
}  # fmt: skip
_HEAD = (
    "# Tunables: constants in the code\n\n"
    "Every constant of the code that has a unit: its value and where it is. What operators set is "
    "in [configuration](configuration.md). Made from the code by `python docs/reference/"
    "make_tunables.py`; a test compares.\n\n"
    "| Name | Unit | Value | Source | What |\n| --- | --- | --- | --- | --- |\n"
)
_CONFIGURATION_HEAD = """\
# Configuration: every key of `agent.toml` and `controller.toml`

Check a file with `syntony config check FILE`: an unknown key is an error, with the nearest known \
key, and so is a value out of its bounds, or a file named in it that is missing or invalid. A \
certificate that enrolment has not written yet is only a note. Files of configuration, rules, \
objectives and expected values have 4 MiB at most, topologies and fabrics 64 MiB, certificates \
and secrets 1 MiB, Parquet tables 16 GiB. Devices and sockets are refused; pipes that somebody \
writes to (`<(…)` in a shell) are read. Daemons read their file at their start: \
after a change, `systemctl restart syntony-agent syntony-reactor`, or \
`syntony-controller`. Keys named `_ns` are integers of nanoseconds; this page \
shows them in words. Shortest working files: [deploy](../how-to/deploy.md#3-configure).

Other files: [incident rules](incidents.md#rules-of-your-own), [latency objectives](sla.md#\
objectives), [topology](fabric.md), [expected values for audits](audit.md#expected-values). \
Variables of `syntony run` and of jobs: [run](run.md).

This page is made from the code by `python docs/reference/make_tunables.py`; a test compares.
"""
_LAB_ONLY = ("synthetic_clock", "true_clocks")
_PAGE_LINK = re.compile(r"docs/(reference|how-to)/([\w-]+)\.md(#[\w-]+)?")


class Row(NamedTuple):
    """One line of a table."""

    name: str
    unit: str
    default: str
    source: str
    what: str

    def text(self) -> str:
        cells = (f"`{self.name}`", self.unit, self.default, f"`{self.source}`", self.what)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def unit_of(name: str) -> str:
    """The unit at the end of a name; empty for none."""
    _, _, last = name.lower().rpartition("_")
    found = UNITS.get(last, "")
    return f"1/{found}" if found and "_per_" in name.lower() else found


def shown(value: object, unit: str) -> str:
    """A value as people read it."""
    if unit == "ns" and isinstance(value, int) and value:
        return duration(value)
    if isinstance(value, str):
        return f'`"{value}"`' if value else "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if value in ((), None):
        return "none"
    if not isinstance(value, float | int):
        raise TypeError(f"no text for {value!r}")
    return f"{value:,}"


def duration(value_ns: int) -> str:
    """Whole hours and minutes as such."""
    for name, length_ns in (("h", 3600 * S), ("min", 60 * S)):
        if abs(value_ns) > length_ns and value_ns % length_ns == 0:
            return f"{value_ns // length_ns} {name}"
    return format_ns(value_ns)


def plain(text: str) -> str:
    """A docstring in one line of Markdown, paths of pages as links."""
    words = " ".join(text.replace("``", "`").split())
    return _PAGE_LINK.sub(_link, words)


def _link(found: re.Match[str]) -> str:
    room, name, anchor = found.groups()
    place = "" if room == "reference" else f"../{room}/"
    return f"[{name.replace('-', ' ')}]({place}{name}.md{anchor or ''})"


def first_sentence(text: str) -> str:
    """Of a docstring, in one line."""
    return re.split(r"(?<=[.;:])\s", plain(text), maxsplit=1)[0].rstrip(";:")


# --- configuration files


@cache
def field_texts(record: type) -> dict[str, str]:
    """The text beneath each field of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    return dict(documented(tree.body)) if isinstance(tree, ast.ClassDef) else {}


def documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Names that are assigned, each with the string that follows, if any."""
    for statement, after in zip(body, [*body[1:], None], strict=True):
        target: ast.expr | None = None
        if isinstance(statement, ast.AnnAssign):
            target = statement.target
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        if isinstance(target, ast.Name):
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = str(after.value.value)
            yield target.id, text


def records_in(annotation: object) -> list[type]:
    """Records that a field holds, by itself or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    if typing.get_origin(annotation) in {tuple, typing.Union, types.UnionType}:
        return [each for part in typing.get_args(annotation) for each in records_in(part)]
    return []


def sections(record: type[msgspec.Struct], path: str = "", mark: str = "") -> Iterator[str]:
    """A table of the record's own keys, then those of the tables within it."""
    hints = typing.get_type_hints(record)
    texts = field_texts(record)
    lines: list[str] = []
    within: list[str] = []
    for field in msgspec.structs.fields(record):
        if field.encode_name in _LAB_ONLY:
            continue
        for each in records_in(hints[field.name]):
            many = typing.get_origin(hints[field.name]) is tuple
            name = f"{path}{field.encode_name}"
            within += sections(each, f"{name}.", f"[[{name}]]" if many else f"[{name}]")
        if not records_in(hints[field.name]):
            cells = (f"`{field.encode_name}`", default_of(field), plain(texts[field.name]))
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    table = "\n".join(["| Key | Default | Meaning |", "| --- | --- | --- |", *lines])
    if not mark:
        yield f"{table}\n"
    else:
        about = plain(inspect.getdoc(record) or "").removeprefix(f"`{mark}`: ")
        yield f"### `{mark}`\n\n{about[:1].upper()}{about[1:]}\n\n{table}\n"
    yield from within


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """The value of a key that a file leaves out."""
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT:
        return "required"
    if isinstance(value, tuple) and value:
        return f"`{list(map(str, value))}`".replace("'", '"')
    if type(value) is int and "port" in field.name:
        return str(value)
    return shown(value, unit_of(field.name))


# --- constants


def constants() -> Iterator[Row]:
    """Names in capitals with a unit, at the top of a module."""
    known = {name: value for name, value in vars(model).items() if isinstance(value, int)}
    for path in sorted(SOURCE.rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        values = dict(known)
        texts = dict(documented(body))
        for statement in body:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                continue
            target = statement.targets[0]
            if not isinstance(target, ast.Name):
                continue
            value = evaluated(statement.value, values)
            if value is None:
                continue
            values[target.id] = value
            if target.id.isupper() and (unit := unit_of(target.id)):
                what = first_sentence(texts[target.id])
                yield Row(target.id.lstrip("_"), unit, shown(value, unit), module, what)


def evaluated(node: ast.expr, known: dict[str, Any]) -> Any:
    """A number made of numbers and known names; None for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = evaluated(node.left, known), evaluated(node.right, known)
        if left is not None and right is not None:
            return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = evaluated(node.operand, known)
        return None if value is None else -value
    return None


def page() -> str:
    """The page of constants."""
    return _HEAD + "".join(f"{row.text()}\n" for row in constants())


def configuration() -> str:
    """The page of configuration files."""
    files: dict[str, type[msgspec.Struct]] = {
        "/etc/syntony/agent.toml": AgentConfig,
        "/etc/syntony/controller.toml": ControllerConfig,
    }
    parts = [_CONFIGURATION_HEAD]
    for path, record in files.items():
        parts += [f"## `{path}`\n", *sections(record)]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    CONFIGURATION.write_text(configuration(), encoding="utf-8")
