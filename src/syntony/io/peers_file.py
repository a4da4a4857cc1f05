"""The file next to the clock page: whose clock it is, and timelines of own and peers' clocks."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from syntony.errors import MissingError
from syntony.model import SyntheticClockSpec, Timeline

FILE = "clock.json"


class FleetTimelines(msgspec.Struct, frozen=True, kw_only=True):
    """The timelines that the agent last got from the controller."""

    host: str
    synthetic_clock: SyntheticClockSpec | None = None
    """Lab only: what the host's clock is made from."""
    timelines: tuple[Timeline, ...] = ()


def write_peers(directory: Path, peers: FleetTimelines) -> None:
    """Replaces the file in one step. Raises `MissingError`: it cannot be written."""
    new = directory / f"{FILE}.new"
    try:
        new.write_bytes(msgspec.json.encode(peers))
        new.chmod(0o644)
        new.replace(directory / FILE)
    except OSError as error:
        raise MissingError(f"{directory / FILE}: cannot be written: {error.strerror}") from error


def read_peers(directory: Path) -> FleetTimelines:
    """Raises `MissingError`: no agent has run here, or it has not reached a controller yet."""
    path = directory / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=FleetTimelines)
    except OSError as error:
        raise MissingError(
            f"{path}: {os.strerror(error.errno or 0)}; fleet time needs a running agent on this"
            " host that has reached its controller"
        ) from error
    except msgspec.MsgspecError as error:
        raise MissingError(f"{path} is not what an agent writes ({error})") from error
