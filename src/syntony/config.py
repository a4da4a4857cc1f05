"""TOML: configuration files to typed records, with one clear line when they are wrong, and back."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from syntony.errors import ConfigError
from syntony.input_files import MAX_CONFIG_BYTES, read_text
from syntony.model.names import did_you_mean

_T = TypeVar("_T", bound=msgspec.Struct)
_UNKNOWN = re.compile(
    r"Object contains unknown field `(?P<field>[^`]+)`(?P<where>(?: - at `\$\.(?P<path>.+)`)?)"
)
_ABSENT = re.compile(
    r"Object missing required field `(?P<field>[^`]+)`(?: - at `\$\.(?P<path>.+)`)?"
)
_WORD = re.compile(r"(Invalid enum value|Expected `str` matching).* - at `\$\.(?P<path>.+)`")


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file. Raises `ConfigError`: unreadable, or not TOML; with the file's name."""
    try:
        return tomllib.loads(read_text(path, MAX_CONFIG_BYTES))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def load_config(path: str | Path, kind: type[_T]) -> _T:
    """Read a TOML file into `kind`. Raises `ConfigError`: unreadable, not TOML, an unknown key
    (with the nearest known one), a missing key, or a value of the wrong type or out of its bounds;
    always with the file's name."""
    data = read_toml(path)
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_explain(str(error), kind)}") from error


def to_toml(data: Mapping[str, Any]) -> str:
    """Plain data (str, int, float, bool, None, lists, mappings) as TOML; None is left out."""
    return "".join(f"{line}\n" for line in _lines(data))


def toml_value(value: object) -> str:
    """A value as TOML; what is not plain data as text."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(_lines(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    # JSON's strings are TOML's basic strings, except for one character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    bare = name and all(letter.isalnum() or letter in "-_" for letter in name) and name.isascii()
    return name if bare else toml_value(name)


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    return (f"{toml_key(k)} = {toml_value(v)}" for k, v in data.items() if v is not None)


def _explain(message: str, kind: type[msgspec.Struct]) -> str:
    top = msgspec.inspect.type_info(kind)
    if (match := _UNKNOWN.match(message)) is not None:
        field, where = match["field"], match["where"].replace(" - ", " ")
        fields = _all_fields(top)
        if field in fields:
            return f"key {field!r} does not belong{where or ' above the first [section]'}"
        near = did_you_mean(field, _own_fields(top, match["path"] or "")) or did_you_mean(
            field, fields
        )
        return f"unknown key {field!r}{match['where']}{near}"
    if (match := _ABSENT.match(message)) is not None:
        key = ".".join(filter(None, (match["path"], match["field"])))
        return f"key {key!r} is missing"
    if (match := _WORD.match(message)) is not None and (allowed := _allowed(top, match["path"])):
        return f"{match['path']}: give {allowed}"
    return message


def _allowed(info: msgspec.inspect.Type, path: str) -> str:
    """What the text at a path may be; empty: not known."""
    for each in _types_at(info, path):
        if isinstance(each, msgspec.inspect.Metadata):
            return str((each.extra_json_schema or {}).get("description", ""))
        if isinstance(each, msgspec.inspect.EnumType):
            return " or ".join(str(member.value) for member in each.cls)
    return ""


def _own_fields(info: msgspec.inspect.Type, path: str) -> set[str]:
    """Keys of the section at a path; of the file itself if the path is empty."""
    return {
        field.encode_name
        for each in _types_at(info, path)
        if isinstance(each, msgspec.inspect.StructType)
        for field in each.fields
    }


def _types_at(info: msgspec.inspect.Type, path: str) -> list[msgspec.inspect.Type]:
    """The types that the value at a path may have; none: the path is not known."""
    for key in filter(None, path.replace("[...]", "").split(".")):
        name = key.partition("[")[0]
        fields = [
            field
            for each in _alternatives(info)
            if isinstance(each, msgspec.inspect.StructType)
            for field in each.fields
            if field.encode_name == name
        ]
        if not fields:
            return []
        info = fields[0].type
    return list(_alternatives(info))


def _alternatives(info: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """The types that a value, or an item of a list, may have."""
    if isinstance(info, msgspec.inspect.UnionType):
        for each in info.types:
            yield from _alternatives(each)
    elif isinstance(info, msgspec.inspect.VarTupleType):
        yield from _alternatives(info.item_type)
    else:
        yield info


def _all_fields(top: msgspec.inspect.Type) -> set[str]:
    names: set[str] = set()
    queue = [top]
    while queue:
        for each in _alternatives(queue.pop()):
            if isinstance(each, msgspec.inspect.StructType):
                names.update(field.encode_name for field in each.fields)
                queue.extend(field.type for field in each.fields)
    return names
