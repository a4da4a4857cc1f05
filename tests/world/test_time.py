"""A world replaces `time.monotonic_ns`; a default argument would have been bound before."""

from __future__ import annotations

import ast
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "syntony"
OUTSIDE = {"io/log_limit.py"}
"""No part of a world."""


def bound_early(text: str) -> bool:
    """Whether a default argument is one of `time`'s functions."""
    arguments = (
        node.args
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )
    return any(
        isinstance(default, ast.Attribute) and ast.unparse(default).startswith("time.")
        for each in arguments
        for default in (*each.defaults, *each.kw_defaults)
    )


def test_no_default_argument_reads_the_machines_time() -> None:
    assert bound_early("def f(x, clock=time.monotonic_ns): ...")
    found = {
        str(path.relative_to(SRC)) for path in SRC.rglob("*.py") if bound_early(path.read_text())
    }
    assert found == OUTSIDE
