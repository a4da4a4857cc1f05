"""Rich's classes, imported on first use, so that `--help` does not load Rich.

Use: `from syntony.view import lazy_rich`, then `lazy_rich.Table(…)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.markup import escape
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

__all__ = ["Group", "Progress", "RenderableType", "Table", "Text", "Tree", "escape"]

_ELSEWHERE = {"Group": "console", "RenderableType": "console", "escape": "markup"}
"""Names whose module in `rich` is not called like them."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"rich.{_ELSEWHERE.get(name, name.lower())}")
    value: object = getattr(module, name)
    if name == "Table":
        value = _folding(value)
    globals()[name] = value
    return value


def _folding(table: Any) -> object:
    """Rich's table, except that a value too wide for its column is folded, not cut: a narrow
    terminal must not hide digits of a number or the end of a name."""

    class FoldingTable(table):  # type: ignore[misc] # imported on use
        def add_column(self, *headers: Any, **options: Any) -> None:
            options.setdefault("overflow", "fold")
            super().add_column(*headers, **options)

    return FoldingTable
