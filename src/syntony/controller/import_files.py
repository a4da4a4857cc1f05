"""Opens control state, and imports the files in which earlier versions kept it in `state_dir`."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import msgspec

from syntony.alerts.incidents import BookState
from syntony.clock.anchored import FleetMemory
from syntony.controller.config import ControllerConfig
from syntony.controller.fabric_changes import FABRIC_MAP
from syntony.controller.timeline import TIMELINE, StoredTimeline
from syntony.errors import ConfigError
from syntony.fabric.changes import MapState
from syntony.state import ControlState, DatabaseConnection, InUseError
from syntony.state.document import Document
from syntony.state.incident_store import IncidentStore
from syntony.state.outbox import Outbox
from syntony.state.transfer import import_sqlite

_log = logging.getLogger(__name__)
_FILES = ("incidents.json", "timeline.json", "fabric.json", "outbox")
STANDBY_S = 0.5
"""Interval at which a standby checks whether control state is free."""
DONE = ".imported"
"""Suffix of a file's name after the import."""
_NAME = "files imported"


def open_state(config: ControllerConfig) -> ControlState:
    """Open the control state of a configuration, with files to import. Raises `ConfigError`,
    `StateError`."""
    directory = Path(config.state_dir) if config.state_dir else None
    state = _hold(config.state or directory, wait=config.standby)
    if directory is not None:
        if config.state:
            import_sqlite(state, directory)
        import_files(state, directory)
    return state


def _hold(place: Path | str | None, *, wait: bool) -> ControlState:
    """Open control state; if configured as standby, once no other controller holds it.

    A standby also survives outages of its database: once reached, it waits for it.
    """
    reported: set[str] = set()
    while True:
        try:
            return ControlState(place)
        except ConfigError as error:
            if not wait or not (reported or isinstance(error, InUseError)):
                raise
            if str(error) not in reported:
                reported.add(str(error))
                _log.info("standby, waiting reason=%s", error)
        time.sleep(STANDBY_S)


def import_files(state: ControlState, directory: Path) -> None:
    """Import existing files, in one transaction, and rename them. Does nothing the second time, or
    if control state already contains their data.

    Raises:
        ConfigError: a file cannot be read; nothing has been imported.
        StateError: control state cannot be written; nothing has been imported.
    """
    found = [directory / name for name in _FILES if (directory / name).exists()]
    if not found:
        return
    if not state.read("SELECT value FROM counter WHERE name = ?", _NAME):
        book = _read(directory / "incidents.json", BookState)
        memory = _read(directory / "timeline.json", FleetMemory)
        fabric = _read(directory / "fabric.json", MapState)
        with state.transaction() as connection:
            if book is not None:
                IncidentStore(state).save(connection, book)
            if memory is not None:
                Document(state, TIMELINE, StoredTimeline).put(connection, StoredTimeline(memory))
            if fabric is not None:
                Document(state, FABRIC_MAP, MapState).put(connection, fabric)
            _import_messages(Outbox(state), connection, directory / "outbox")
            connection.execute("INSERT INTO counter (name, value) VALUES (?, 1)", (_NAME,))
        _log.warning("imported into control state: %s", ", ".join(path.name for path in found))
    for path in found:
        path.rename(path.with_name(path.name + DONE))


def _import_messages(outbox: Outbox, connection: DatabaseConnection, directory: Path) -> None:
    """Files are ``outbox/RECEIVER/NUMBER.json``."""
    for path in sorted(directory.glob("*/*.json")):
        body = _read(path, dict[str, Any])
        if body is not None:
            body.pop("routing_key", None)  # added when it is sent
            outbox.append(connection, path.parent.name, json.dumps(body))


def _read(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}; move it away to go on without it"
        ) from error
