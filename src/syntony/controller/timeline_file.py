"""The fleet timeline over restarts: one small file, replaced as a whole."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from syntony.clock.anchored import FleetMemory
from syntony.controller.whole_files import write_atomically
from syntony.errors import ConfigError

_log = logging.getLogger(__name__)

NAME = "timeline.json"


class TimelineFile:
    """`timeline.json` in the controller's state directory.

    Raises:
        ConfigError: the directory cannot be made or written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"state_dir {directory}: {error.strerror}") from error
        if not os.access(directory, os.W_OK):
            raise ConfigError(f"state_dir {directory}: not writable by this user")

    def load(self) -> FleetMemory | None:
        """What a predecessor left. None at the first start, or (with a warning) from a file that
        cannot be read: fleet time then starts anew, and the file is kept aside.
        """
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=FleetMemory)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("fleet timeline starts anew: %s unreadable: %s", self._path, error)
        aside = self._path.with_suffix(".bad")
        if self._path.is_file():
            self._path.replace(aside)
        return None

    def save(self, memory: FleetMemory) -> None:
        """After a crash either the old or the new content is there.

        Raises:
            OSError: the disk is full or gone.
        """
        write_atomically(self._path, msgspec.json.encode(memory))
