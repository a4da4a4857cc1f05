"""The plan and the keys that a starting reactor takes over from its predecessor.

They are files in the sockets' directory, which is emptied at boot: then the controller sends them.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from syntony.io.files import write_atomically
from syntony.wire.probes import Plan, ProbeKeys

_log = logging.getLogger(__name__)
FILE = "reactor-kept"


class SavedOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders that the controller sent last; None: not received."""

    plan: Plan | None = None
    keys: ProbeKeys | None = None


def load(directory: Path) -> SavedOrders:
    """Load them; empty if there is no readable file."""
    file = directory / FILE
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=SavedOrders)
    except FileNotFoundError:
        return SavedOrders()
    except (OSError, msgspec.DecodeError) as error:
        _log.error("%s cannot be read, waiting for the controller: %s", file, error)
        return SavedOrders()


def save(directory: Path, orders: SavedOrders) -> None:
    """Save them, readable for the owner only: they contain keys."""
    try:
        write_atomically(directory / FILE, msgspec.msgpack.encode(orders))
    except OSError as error:
        _log.error("plan and keys cannot be saved for a restart: %s", error)
