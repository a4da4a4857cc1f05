"""Opens the controller's control state."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from syntony.controller.config import ControllerConfig
from syntony.errors import ConfigError
from syntony.state import ControlState, InUseError, SilentError
from syntony.state.transfer import import_sqlite

_log = logging.getLogger(__name__)
STANDBY_S = 0.5
"""Interval at which a standby checks whether control state is free."""


def open_state(config: ControllerConfig) -> ControlState:
    """Open the control state of a configuration. Raises `ConfigError`, `StateError`."""
    directory = Path(config.state_dir) if config.state_dir else None
    state = _hold(config.state or directory, wait=config.standby)
    if directory is not None and config.state:
        import_sqlite(state, directory)
    return state


def _hold(place: Path | str | None, *, wait: bool) -> ControlState:
    """Open control state; if configured as standby, once no other controller holds it.

    A standby that has reached its database once waits while that is away; every controller waits
    for a database that does not answer.
    """
    reported: set[str] = set()
    may_take = check_of(place)
    while True:
        try:
            return ControlState(place)
        except ConfigError as error:
            in_use = isinstance(error, InUseError)
            if not (wait if in_use else reported or isinstance(error, SilentError)):
                raise
            if str(error) not in reported:
                reported.add(str(error))
                _log.info("%s, waiting reason=%s", "standby" if wait else "starting", error)
        time.sleep(STANDBY_S)
        while not may_take():
            time.sleep(STANDBY_S)


def check_of(place: Path | str | None) -> Callable[[], bool]:
    """Tells whether an attempt to open a control state is due. SQLite: always, it costs little."""
    if not isinstance(place, str):
        return lambda: True
    from syntony.state.postgresql import HolderCheck

    return HolderCheck(place).may_take
