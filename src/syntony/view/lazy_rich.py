"""Rich's classes, imported on first use, so that `--help` does not load Rich.

Use: `from syntony.view import lazy_rich`, then `lazy_rich.Table(…)`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
    globals()[name] = value
    return value
