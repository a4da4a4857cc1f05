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


class KeptOrders(msgspec.Struct, frozen=True, kw_only=True):
    """As the controller sent them; None: not received."""

    plan: Plan | None = None
    keys: ProbeKeys | None = None


def load(directory: Path) -> KeptOrders:
    """Load them; empty if there is no readable file."""
    file = directory / FILE
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=KeptOrders)
    except FileNotFoundError:
        return KeptOrders()
    except (OSError, msgspec.DecodeError) as error:
        _log.error("%s cannot be read, waiting for the controller: %s", file, error)
        return KeptOrders()


def save(directory: Path, kept: KeptOrders) -> None:
    """Save them, readable for the owner only: they contain keys."""
    try:
        write_atomically(directory / FILE, msgspec.msgpack.encode(kept))
    except OSError as error:
        _log.error("plan and keys cannot be saved for a restart: %s", error)
