"""Deliberate changes of a module's syntax tree, one at a time: what `tests/mutate.py` draws from.

Left out is what no test should notice: texts, types, decorators, `__repr__`, logging, assertions,
the wording of exceptions, how charts and tables look.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
PAIRS = [("min", "max"), ("any", "all"), ("bisect_left", "bisect_right"), ("floor", "ceil"),
         ("minimum", "maximum"), ("argmin", "argmax"), ("nanmin", "nanmax")]  # fmt: skip
CALLS = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
DEFAULTS = {"bool": (True, False), "int": (0,), "float": (0.0,), "str": ("",)}
LOGGERS = {"log", "logger", "logging", "warnings"}
LARGE = 16
"""Larger constants, and all that are not whole, are scaled by 3 instead of being off by one."""
APPEARANCE = {
    "alpha", "color", "colors", "columnspacing", "fontsize", "fontweight", "frameon",
    "handlelength", "length", "ls", "lw", "mew", "ms", "pad", "pad_edge", "padding", "xytext",
    "zorder",
}  # fmt: skip
"""Keyword arguments of drawing libraries: how something looks, not what it says or where."""
UNCHANGED = {"annotation", "returns", "decorator_list", "bases", "format_spec", "exc", "cause"}


class Site(NamedTuple):
    """A node, what replaces it, the statement around it, and whether a function holds that."""

    node: ast.AST
    new: ast.AST
    statement: ast.stmt
    in_function: bool

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", self.statement.lineno)


@dataclass(frozen=True)
class Mutant:
    """One change of one file; `lines` are the first and the last of the statement it is in."""

    file: str
    lines: tuple[int, int]
    in_function: bool
    diff: str
    source: str

    @property
    def where(self) -> str:
        return f"{self.file}:{self.lines[0]}"


def sites(path: Path) -> Iterator[Site]:
    """Everything that can be changed in a file, in an order that only its text decides."""
    return _sites(ast.parse(path.read_text()), None, None)


def mutant(path: Path, number: int, root: Path) -> Mutant:
    """The file with its site of that number changed; `file` is told relative to `root`."""
    tree = ast.parse(path.read_text())
    before = ast.unparse(tree).splitlines()
    site = next(islice(_sites(tree, None, None), number, None))
    after = ast.unparse(_Replace(site).visit(tree))
    lines = difflib.unified_diff(before, after.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    body = getattr(site.statement, "body", None)
    first = site.statement.lineno
    last = body[0].lineno - 1 if body else site.statement.end_lineno or first
    file = path.relative_to(root).as_posix()
    return Mutant(file, (first, max(first, last)), site.in_function, "\n".join(changed), after)


class _Replace(ast.NodeTransformer):
    def __init__(self, site: Site) -> None:
        self._site = site

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self._site.node:
            return self._site.new
        return self.generic_visit(node)


def _sites(
    node: ast.AST, statement: ast.stmt | None, function: ast.FunctionDef | None
) -> Iterator[Site]:
    if _is_skipped(node):
        return
    if isinstance(node, ast.stmt):
        statement = node
    if statement is not None:
        returns = ast.unparse(function.returns) if function and function.returns else ""
        for new in (*_logic(node), *_values(node), *_statements(node, returns)):
            yield Site(node, new, statement, function is not None)
    inner = node if isinstance(node, ast.FunctionDef) else function
    for name, value in ast.iter_fields(node):
        if name in UNCHANGED or (name == "keywords" and isinstance(node, ast.ClassDef)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _sites(child, statement, inner)


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name="__repr__" | "__str__") | ast.Assert():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.keyword(arg="strict" | "n"):
            return True
        case ast.keyword(arg=str(name)) if name in APPEARANCE:
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGGERS
    return False


def _altered(node: ast.AST, **changes: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in changes.items():
        setattr(new, name, value)
    return new


def _logic(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield _altered(node, ops=[*ops[:i], other(), *ops[i + 1 :]])
        case ast.BoolOp(op=joint, values=values):
            yield _altered(node, op=ast.Or() if isinstance(joint, ast.And) else ast.And())
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                yield _altered(node, values=rest) if len(rest) > 1 else rest[0]
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield _altered(node, test=ast.UnaryOp(ast.Not(), test))
            yield _altered(node, test=ast.Constant(value=False))
            if not isinstance(node, ast.While):
                yield _altered(node, test=ast.Constant(value=True))
        case ast.comprehension(ifs=ifs):
            for i in range(len(ifs)):
                yield _altered(node, ifs=ifs[:i] + ifs[i + 1 :])


def _values(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in OPERATORS:
            yield _altered(node, op=OPERATORS[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(flag)):
            yield ast.Constant(value=not flag)
        case ast.Constant(value=0 | 0.0):
            yield ast.Constant(value=1)
        case ast.Constant(value=int(n)):
            yield from map(ast.Constant, (n + 1, n - 1) if n <= LARGE else (n * 3, n // 3))
        case ast.Constant(value=float(x)):
            yield from map(ast.Constant, (x * 3, x / 3))
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield _altered(node, func=ast.Name(CALLS[name], ast.Load()))
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CALLS:
            yield _altered(node, func=ast.Attribute(owner, CALLS[name], ast.Load()))


def _statements(node: ast.AST, returns: str) -> Iterator[ast.AST]:
    match node:
        case ast.Return(value=value) if value and not isinstance(value, ast.Constant):
            for default in DEFAULTS.get(returns, (None,)):
                yield ast.Return(ast.Constant(default))
        case ast.Raise() | ast.Continue() | ast.Break() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            yield ast.Pass()
