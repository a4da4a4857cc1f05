"""Stores the fleets that this user has logged in to, and the default one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from syntony.errors import ConfigError, MissingError, UsageError
from syntony.input_files import MAX_CONFIG_BYTES, read_bytes
from syntony.io.files import write_atomically

if TYPE_CHECKING:
    from syntony.client import Access


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """One fleet and the user's identity in it."""

    url: str
    token: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def access(self) -> Access:
        from syntony.client import Access

        return Access(self.token, self.ca, self.cert, self.key)


class Contexts(msgspec.Struct, frozen=True, kw_only=True):
    current: str = ""
    """Empty: none is in use."""
    contexts: dict[str, Context] = {}

    def used(self) -> Context | None:
        return self.contexts.get(self.current)

    def of_url(self, url: str) -> Context | None:
        """The context of the controller at this URL; None if there is none."""
        return next((each for each in self.contexts.values() if each.url == url), None)

    def with_current(self, name: str) -> Contexts:
        """A copy with another context in use. Raises `UsageError`: there is none of that name."""
        if name and name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none; make one: syntony login URL"
            raise UsageError(f"there is no context {name!r}; known: {known}")
        return msgspec.structs.replace(self, current=name)


def place() -> Path:
    """Path of the file; only its owner can read it."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "syntony" / "contexts.json"


def load() -> Contexts:
    """Load the contexts; none if there is no file. Raises `ConfigError`: it is damaged."""
    path = place()
    try:
        return msgspec.json.decode(read_bytes(path, MAX_CONFIG_BYTES), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}; repair it, or remove it and log in again") from error


def save(contexts: Contexts) -> None:
    """Write the contexts to the file at once, readable by its owner only. Raises `MissingError`: it
    cannot be written."""
    path = place()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(contexts)), 0o600)
    except OSError as error:
        raise MissingError(f"{path}: cannot be written: {error.strerror}") from error
