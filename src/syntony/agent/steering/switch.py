"""The stop switch as a host obeys it, over restarts and without a controller."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from syntony.io.files import write_atomically
from syntony.wire.failover import Switch

_log = logging.getLogger(__name__)
FILE = "traffic-switch.json"


class StopSwitch:
    """The position of the stop switch that this host obeys, kept over restarts.

    One per agent.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE
        self.position = self._load()
        """None: it was never thrown, as far as known."""

    @property
    def stopped(self) -> bool:
        """Whether paths must not be changed."""
        return self.position is not None and self.position.stopped

    def take(self, switch: Switch) -> bool:
        """Use this position if it is the newest. Returns whether it is; then it must be saved."""
        if self.position is not None and not switch.outranks(self.position):
            return False
        self.position = switch
        return True

    def save(self) -> None:
        """Save it whole or not at all: a crash must not leave a partial file."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._file, msgspec.json.encode(self.position))
        except OSError as error:
            _log.error("stop switch cannot be saved for a restart: %s", error)

    def _load(self) -> Switch | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Switch)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            # The switch was thrown, but its position is unreadable: changing nothing is the safe
            # choice.
            _log.error("%s cannot be read, traffic control stays stopped: %s", self._file, error)
            return Switch(stopped=True, at_ns=0, by="unreadable switch file")
