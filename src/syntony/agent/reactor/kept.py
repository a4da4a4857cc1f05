"""What a reactor that starts goes on with: the plan and the keys that the one before it had.

They are beside the sockets, where nothing outlives the host: after a boot the controller is asked.
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
        _log.error("%s cannot be read, the controller's word is awaited: %s", file, error)
        return KeptOrders()


def save(directory: Path, kept: KeptOrders) -> None:
    """Only its owner may read it: it holds keys."""
    try:
        write_atomically(directory / FILE, msgspec.msgpack.encode(kept))
    except OSError as error:
        _log.error("plan and keys cannot be kept over a restart: %s", error)
