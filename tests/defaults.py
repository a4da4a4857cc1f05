"""What is meant where a field is left out: by a caller, or by a peer that does not know it yet."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec


def meaningful(room: str) -> dict[str, Any]:
    """Defaults of a room's records that are anything but nothing (0, empty, none), by
    ``Record.field``."""
    return {name: default for name, default in _defaults(room) if default}


def _defaults(room: str) -> Iterator[tuple[str, Any]]:
    package = importlib.import_module(f"syntony.{room}")
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, kind in vars(importlib.import_module(info.name)).items():
            if not isinstance(kind, type) or kind.__module__ != info.name:
                continue
            if issubclass(kind, msgspec.Struct):
                for field in msgspec.structs.fields(kind):
                    made = field.default_factory
                    default = field.default if made is msgspec.NODEFAULT else made()
                    if default is not msgspec.NODEFAULT:
                        yield f"{name}.{field.name}", default
            for field, default in getattr(kind, "_field_defaults", {}).items():
                yield f"{name}.{field}", default
