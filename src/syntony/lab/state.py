"""Directories of labs on disk: one private directory each, locked as long as the lab lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from syntony.errors import MissingError, UsageError
from syntony.io.process import read_stat
from syntony.io.run_directory import REACTOR_SOCKET

DEFAULT_NAME = "lab"
CONTROL_SOCKET = "control.sock"
LAB_FILE = "lab.json"
LOGS = "logs"
CLOCKS = "clock"
TAPE = "tape"
_LOCK = "lock"
_GATEWAY = "gateway"
_KILLED_TIMEOUT_S = 30.0
"""Processes that were killed end within seconds, also on a busy machine."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_SOCKET_PATH_MAX = 107
"""sun_path without its final zero (unix(7))."""
_HIDDEN = ("/run", "/sys", "/proc", "/var/run")
"""Places a lab's own mounts cover: its directory must be visible from inside."""


class NoLabError(UsageError):
    """There is no such lab, or none at all."""

    def __init__(self, lack: str, start: str) -> None:
        super().__init__(f"{lack}; {start}")
        self.lack = lack
        """The same without how to start one."""


def labs_root() -> Path:
    """``$TMPDIR/syntony-UID/labs``, made if need be. Raises `MissingError`: it cannot be made, or
    belongs to someone else."""
    top = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - ownership is verified below
    if any(top.resolve().is_relative_to(hidden) for hidden in _HIDDEN):
        top = Path("/tmp")  # noqa: S108 - as above
    private = top / f"syntony-{os.getuid()}"
    try:
        private.mkdir(mode=0o700, exist_ok=True)
        info = private.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
            raise MissingError(
                f"{private} is open to other users (need mode 0700); remove it or set TMPDIR"
            )
        labs = private / "labs"
        labs.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise MissingError(f"{private}: {error.strerror}; set TMPDIR to a place you own") from error
    return labs


def of_controller(number: int, name: str = "controller") -> str:
    """What belongs to one of a lab's controllers, from 1: its daemon, its socket, its store."""
    return name if number == 1 else f"{name}{number}"


def gateway_name(number: int) -> str:
    """One of a lab's gateways, from 1: its daemon, its certificate."""
    return f"{_GATEWAY}{number}"


def is_gateway(name: str) -> bool:
    return name.startswith(_GATEWAY) and name.removeprefix(_GATEWAY).isdecimal()


def controller_socket(directory: Path, number: int) -> Path:
    """Socket on which one of the controllers answers once it is in charge."""
    return directory / f"{of_controller(number)}.sock"


def socket_in_charge(directory: Path) -> Path:
    """The socket of the controller that took charge last: a standby has none yet; a dead one leaves
    its file."""
    made = {}
    for path in directory.glob("controller*.sock"):
        with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
            made[path.stat().st_mtime_ns] = path
    return made[max(made)] if made else controller_socket(directory, 1)


def clock_directory(directory: Path, host: str) -> Path:
    """Where a host's agent serves fleet time: in its place of `/run/syntony`."""
    return directory / CLOCKS / host


def check_name(name: str) -> str:
    """Raises `UsageError` for what cannot name a lab."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} cannot name a lab; use up to 32 letters, digits, dots, dashes, underscores"
        )
    return name


def terminal_session() -> str:
    """Names this process's session (setsid(2)): every process that one terminal, or one job of a
    machine without terminals, started. The leader's start time detects a reused process id."""
    leader = os.getsid(0)
    try:
        return f"{leader}:{read_stat(Path(f'/proc/{leader}')).started_ticks}"
    except OSError:
        return f"{leader}:ended"


def claim(name: str) -> tuple[Path, int]:
    """Makes a lab's directory: its path, and the lock that keeps it (a file descriptor).

    Raises:
        UsageError: a bad name, or one that is in use.
        MissingError: the directory cannot be made.
    """
    directory = labs_root() / check_name(name)
    longest = len(os.fsencode(clock_directory(directory, "h63") / REACTOR_SOCKET))
    if longest > _SOCKET_PATH_MAX:
        raise MissingError(f"{directory} is too long for a socket; set TMPDIR to a shorter path")
    with _registry_lock():
        _sweep()
        try:
            directory.mkdir(mode=0o700)
            (directory / LOGS).mkdir()
        except FileExistsError:
            raise UsageError(
                f"lab {name!r} is already up; end it with: syntony lab down --name {name}"
            ) from None
        except OSError as error:
            raise MissingError(f"{directory}: {error.strerror}") from error
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return directory, lock


def running() -> list[str]:
    """Names of running labs; directories of dead ones are removed."""
    with _registry_lock():
        _sweep()
        return sorted(place.name for place in labs_root().iterdir() if place.is_dir())


def sweep() -> None:
    """Remove the directories of dead labs."""
    with _registry_lock():
        _sweep()


def remove_killed(directory: Path) -> bool:
    """Remove the directory of a lab that was killed, when the last of its processes is gone, and
    return whether it is. If one cannot end, waiting for a disk, the directory is left for the next
    command that looks for labs.
    """
    deadline_s = time.monotonic() + _KILLED_TIMEOUT_S
    while _locked(directory) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return directory.name not in running()


def registry() -> Path:
    """The file to lock (flock(2)) while making or removing a lab's directory."""
    return labs_root() / ".lock"


def find(name: str | None) -> Path:
    """The directory of a running lab; without a name, of the only one. Raises `UsageError`: there
    is none, or several and no name."""
    names = running()
    if name is not None:
        if check_name(name) not in names:
            known = f"running: {', '.join(names)}" if names else "none is running"
            raise NoLabError(
                f"no lab {name!r} ({known})", f"start it: syntony lab up --name {name}"
            )
        return labs_root() / name
    if not names:
        raise NoLabError("no lab is running", "start one: syntony lab up --detach")
    if len(names) > 1:
        raise UsageError(f"several labs are running; choose one: --lab {' | '.join(names)}")
    return labs_root() / names[0]


@contextmanager
def _registry_lock() -> Iterator[None]:
    """Lock the registry: one process at a time makes or removes directories."""
    lock = os.open(registry(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _sweep() -> None:
    for place in labs_root().iterdir():
        if place.is_dir() and not _locked(place):
            shutil.rmtree(place, ignore_errors=True)


def _locked(place: Path) -> bool:
    try:
        lock = os.open(place / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
