"""The Unix socket at which processes of jobs connect to the agent, and who they are."""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from syntony.errors import MissingError, UsageError
from syntony.io.jobs import job_in_environment
from syntony.model.jobs import job_name

PAGE_VERSION = b"\x01"
"""SYN_JOB_PAGE_VERSION: the one byte that is sent with a page."""
BACKLOG = 64
_CREDENTIALS = struct.Struct("=iII")
_SO_PEERPIDFD = 77
"""Linux 6.5, asm-generic/socket.h."""
_UNPRINTABLE = re.compile(r"[^ -~]")


class SocketFile(NamedTuple):
    """Identity of a file: no other one has both numbers while it exists."""

    device: int
    inode: int


class PeerCredentials(NamedTuple):
    """The process that connected, as the kernel reports it (SO_PEERCRED)."""

    pid: int
    """0: it is in a PID namespace that is not seen from here."""
    uid: int


class Process(NamedTuple):
    pid: int
    uid: int
    program: str
    """Its name, printable; a process may choose any."""
    job: str


def listen(path: Path, kind: int = socket.SOCK_SEQPACKET, mode: int = 0o666) -> socket.socket:
    """A socket at `path`, non-blocking, in place of one whose process has ended.

    Args:
        path: its directory is made where it is missing.
        kind: SOCK_SEQPACKET or SOCK_STREAM.
        mode: who may connect: every user may to the jobs' socket.

    Raises:
        MissingError: a living process listens there, it cannot be made there, or anyone could put
            another one in its place.
    """
    listener = socket.socket(socket.AF_UNIX, kind)
    try:
        with suppress(FileNotFoundError):
            _remove_unused(path)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        allowed = path.parent.stat().st_mode
        if allowed & stat.S_IWOTH and not allowed & stat.S_ISVTX:
            raise MissingError(
                f"{path.parent}: every user may replace the socket there; chmod o-w {path.parent}"
            )
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise MissingError(f"{path}: no socket: {error.strerror or error}") from error
    except MissingError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _remove_unused(path: Path) -> None:
    """Remove the socket of a process that has ended, or a symbolic link."""
    mode = path.lstat().st_mode
    if stat.S_ISSOCK(mode):
        if is_bound(path):
            raise MissingError(
                f"{path}: another process listens there, perhaps another agent; stop it, or set "
                "another clock.dir or reactor_dir for this one"
            )
    elif not stat.S_ISLNK(mode):
        raise MissingError(f"{path} is not a socket; remove it")
    path.unlink()


def is_bound(path: Path) -> bool:
    """Whether a process has the socket open.

    The process does not notice: a datagram socket cannot connect to a socket of another type, which
    fails with EPROTOTYPE if a process has it open and with ECONNREFUSED if none has.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(str(path)) != errno.ECONNREFUSED


def remove(path: Path, file: SocketFile | None) -> None:
    """Remove the file of a socket, if it is still this one."""
    if file is not None and file_of(path) == file:
        path.unlink()


def file_of(path: Path) -> SocketFile | None:
    """Device and inode of a socket's file; None: there is none, or a file of another kind."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return SocketFile(found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None


def missing(path: Path, file: SocketFile | None) -> MissingError | None:
    """Why nobody can connect to a socket that listens: somebody has removed or replaced its file.

    Args:
        path: where it listens.
        file: that it had when it began to.
    """
    found = file_of(path)
    if found is not None and found == file:
        return None
    what = "removed" if found is None else "replaced"
    return MissingError(f"{path}: the socket was {what}")


def credentials(connection: socket.socket) -> PeerCredentials:
    """Anyone who connected, as it was then. Raises `OSError`."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return PeerCredentials(pid, uid)


def open_process(connection: socket.socket, pid: int) -> int:
    """A descriptor that becomes readable when the process that connected ends.

    Before Linux 6.5 it is looked up by number: if the process has ended and another one has got its
    number since, it is that one's.

    Raises:
        OSError: it has ended (ESRCH), or no descriptor is left.
    """
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        return os.pidfd_open(pid)
    pidfd = int.from_bytes(raw, "little" if struct.pack("=H", 1)[0] else "big")
    os.set_inheritable(pidfd, False)
    return pidfd


def identify(pidfd: int, who: PeerCredentials) -> Process:
    """Which job's process it is, by its environment when its program began.

    Raises:
        ProcessLookupError: it has ended.
        UsageError: it names no job.
        OSError: its environment cannot be read.
    """
    place = Path("/proc") / str(who.pid)
    try:
        program = (place / "comm").read_text(errors="replace").strip()
        job = job_name(job_in_environment(place) or "")
    except (OSError, UsageError):
        if _has_ended(pidfd):
            raise ProcessLookupError from None
        raise
    if _has_ended(pidfd):  # its number may be another one's by now
        raise ProcessLookupError
    return Process(who.pid, who.uid, _UNPRINTABLE.sub("?", program), job)


def send_page(connection: socket.socket, fd: int) -> None:
    """Hand a page over. Raises `OSError`."""
    socket.send_fds(connection, [PAGE_VERSION], [fd], socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
