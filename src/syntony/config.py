"""TOML configuration files to typed records, with one clear line when they are wrong."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from syntony.errors import ConfigError
from syntony.model.names import did_you_mean

_T = TypeVar("_T", bound=msgspec.Struct)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]+)`(?P<where>.*)")


def load_config(path: str | Path, kind: type[_T]) -> _T:
    """Read a TOML file into `kind`.

    Raises:
        ConfigError: unreadable, not TOML, an unknown key (with the nearest known one), a missing
            key or a value of the wrong type; always with the file's name.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_explain(str(error), kind)}") from error


def _explain(message: str, kind: type[msgspec.Struct]) -> str:
    match = _UNKNOWN.match(message)
    if match is None:
        return message
    field = match["field"]
    hint = did_you_mean(field, _all_fields(kind))
    return f"unknown key {field!r}{match['where']}{hint}"


def _all_fields(kind: type[msgspec.Struct]) -> set[str]:
    names: set[str] = set()
    queue: list[msgspec.inspect.Type] = [msgspec.inspect.type_info(kind)]
    while queue:
        info = queue.pop()
        if isinstance(info, msgspec.inspect.StructType):
            names.update(field.encode_name for field in info.fields)
            queue.extend(field.type for field in info.fields)
        elif isinstance(info, msgspec.inspect.UnionType):
            queue.extend(info.types)
        elif isinstance(info, msgspec.inspect.VarTupleType):
            queue.append(info.item_type)
    return names
