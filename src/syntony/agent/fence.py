"""Refuses decisions of a controller that another one has replaced.

Each start of a controller has a higher epoch. The agent obeys the highest that it has seen and no
lower one: a controller that was paused, cut off or started from an old backup has no effect here.
"""

from __future__ import annotations

import logging
from pathlib import Path

from syntony.errors import WireError
from syntony.io.files import write_atomically
from syntony.wire.control import MAX_EPOCH
from syntony.wire.messages import (
    DECISIONS,
    ControllerMessage,
    Decision,
    Unknown,
    decode_controller,
)

_log = logging.getLogger(__name__)
FILE = "controller-epoch"


class Fence:
    """Refuses decisions whose controller has a lower epoch than one that was obeyed before.

    One per agent; used by the uplink's threads.

    Args:
        directory: where the highest epoch is kept over restarts.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE
        self.highest = self._load()
        """0: no controller with an epoch has been obeyed."""

    def admit(self, message: ControllerMessage | Unknown) -> ControllerMessage | Unknown:
        """Unwrap a decision of the present controller; other messages are returned unchanged.
        Raises `WireError`: a decision of an earlier controller, or without an epoch."""
        if isinstance(message, Decision):
            self._check(message.epoch, f"controller {message.issuer[:80]!r}")
            return decode_controller(message.message)
        if isinstance(message, DECISIONS):
            raise WireError("a decision without the controller's epoch is refused")
        return message

    def _check(self, epoch: int, who: str) -> None:
        if not 0 <= epoch <= MAX_EPOCH:
            raise WireError(f"{epoch} is not an epoch")
        if epoch < self.highest:
            raise WireError(
                f"{who} has epoch {epoch}, epoch {self.highest} has been in charge here since: its "
                "decisions are refused (docs/reference/security.md)"
            )
        if epoch > self.highest:
            self.highest = epoch
            self._save()

    def _load(self) -> int:
        try:
            epoch = int(self._file.read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            _log.error(
                "%s cannot be read, the next controller's epoch is accepted: %s", self._file, error
            )
            return 0
        return epoch if 0 <= epoch <= MAX_EPOCH else 0

    def _save(self) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._file, str(self.highest).encode())
        except OSError as error:
            _log.error("the controller's epoch cannot be saved for a restart: %s", error)
