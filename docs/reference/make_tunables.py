"""Write the table of tunables from the code: python docs/reference/make_tunables.py

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
    "# Tunables\n\n"
    "Every key of the configuration files, and every constant of the code that has a unit: its "
    "default and where it is. Made from the code by `python docs/reference/make_tunables.py`; a "
    "test compares. Durations are integers of nanoseconds in the files, and shown in words here.\n"
)
_COLUMNS = "| Name | Unit | Default | Source | What |\n| --- | --- | --- | --- | --- |"


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
    if isinstance(value, float | int):
        return f"{value:,}"
    return "see there"


def duration(value_ns: int) -> str:
    """Whole hours and minutes as such."""
    for name, length_ns in (("h", 3600 * S), ("min", 60 * S)):
        if abs(value_ns) > length_ns and value_ns % length_ns == 0:
            return f"{value_ns // length_ns} {name}"
    return format_ns(value_ns)


def first_sentence(text: str) -> str:
    """Of a docstring, in one line."""
    words = " ".join(text.replace("``", "`").split())
    return re.split(r"(?<=[.;:])\s", words, maxsplit=1)[0].rstrip(";:")


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
            yield target.id, first_sentence(text)


def records_in(annotation: object) -> list[type]:
    """Records that a field holds, by itself or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    if typing.get_origin(annotation) in {tuple, typing.Union, types.UnionType}:
        return [each for part in typing.get_args(annotation) for each in records_in(part)]
    return []


def keys(record: type[msgspec.Struct], prefix: str = "") -> Iterator[Row]:
    """Every key of a file, tables within tables."""
    hints = typing.get_type_hints(record)
    texts = field_texts(record)
    where = record.__module__.removeprefix("syntony.")
    for field in msgspec.structs.fields(record):
        many = typing.get_origin(hints[field.name]) is tuple
        name = f"{prefix}{field.encode_name}"
        inner = records_in(hints[field.name])
        for each in inner:
            yield from keys(each, f"{name}[]." if many else f"{name}.")
        if inner:
            continue
        default = "required"
        if field.default is not msgspec.NODEFAULT:
            default = shown(field.default, unit_of(field.name))
        elif field.default_factory is not msgspec.NODEFAULT:
            default = shown(field.default_factory(), unit_of(field.name))
        text = texts.get(field.name, "")
        yield Row(name, unit_of(field.name), default, f"{where}.{record.__name__}", text)


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
                what = texts[target.id]
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
    """The whole page."""
    tables = {
        "`agent.toml`": keys(AgentConfig),
        "`controller.toml`": keys(ControllerConfig),
        "Constants in the code": constants(),
    }
    parts = [_HEAD]
    for title, rows in tables.items():
        lines = "\n".join(row.text() for row in rows)
        parts.append(f"## {title}\n\n{_COLUMNS}\n{lines}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
