"""The plan and the keys that a starting reactor takes over from the one before it.

They are files in the sockets' directory, which a boot empties: the controller is asked then.
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
    """As the controller sent them; None: it has not."""

    plan: Plan | None = None
    keys: ProbeKeys | None = None


def load(directory: Path) -> KeptOrders:
    """Nothing, where there is nothing that can be read."""
    file = directory / FILE
    try:
        return msgspec.msgpack.decode(file.read_bytes(), type=KeptOrders)
    except FileNotFoundError:
        return KeptOrders()
    except (OSError, msgspec.DecodeError) as error:
        _log.error("%s cannot be read, waiting for the controller: %s", file, error)
        return KeptOrders()


def save(directory: Path, kept: KeptOrders) -> None:
    """Only its owner may read it: it holds keys."""
    try:
        write_atomically(directory / FILE, msgspec.msgpack.encode(kept))
    except OSError as error:
        _log.error("plan and keys cannot be saved for a restart: %s", error)
