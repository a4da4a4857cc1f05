"""Audits over SSH: the host is recorded by a script that travels with us, and replayed here.

The system's ssh with the user's configuration; nothing is installed there. One round trip.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, Self

from syntony.audit.check import HostCheck
from syntony.audit.collecting import split_inputs
from syntony.audit.result import HostReport
from syntony.errors import MissingError, RemoteError
from syntony.io.audit.examine import examine_tree
from syntony.io.audit.host import COMMAND_TIMEOUT_NS, Backend, recorded_host
from syntony.model import S

CONNECT_S = 10
LEAVE_S = 3.0
"""How long the end of an audit waits for threads that are still busy with a tree."""
LATER_S = 3.5
"""Delay of a recorded host's second reading: slightly longer than any check needs."""
ALONE_NS = 900 * S
"""For what loads a host that is recorded here: a level 3 of DCGM takes as long."""
MAX_TREE_BYTES = 512 << 20
MAX_ENTRIES = 500_000


def ssh_words(options: Sequence[str] = (), config: str = "") -> list[str]:
    """The system's ssh, never asking for a password, up to its options.

    Args:
        options: as after ``-o``.
        config: a file in place of the user's configuration.
    """
    file = ["-F", config] if config else []
    words = [part for option in options for part in ("-o", option)]
    return ["ssh", *file, *words, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}"]


class SshAudits:
    """Asks hosts over SSH; whatever ends it, no ssh, no tree and no traceback is left behind.

    Args:
        now_ns: UTC.
        words: ssh and its options (`ssh_words`).
        sudo: read as root, without a password.
        deadline_ns: for connecting and recording together.
        backend: which ports of a host carry the job, by its name; none: found out.
    """

    def __init__(
        self,
        checks: Sequence[HostCheck],
        now_ns: Callable[[], int],
        *,
        words: Sequence[str] = tuple(ssh_words()),
        sudo: bool = False,
        deadline_ns: int,
        backend: Backend = lambda _: (),
    ) -> None:
        self._backend = backend
        self._checks, self._now_ns = checks, now_ns
        self._words, self._sudo, self._deadline_ns = words, sudo, deadline_ns
        self._script = recording_script(checks, deadline_ns - CONNECT_S * S)
        self._folder = Path()
        self._lock = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._asking = 0
        self._over = False
        self._signal: Any = None

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="syntony-audit-"))
        if threading.current_thread() is threading.main_thread():
            self._signal = signal.signal(signal.SIGTERM, _terminated)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends every ssh, waits a little for the threads that used them, removes their trees."""
        with self._lock:
            self._over = True
            for process in self._running:
                process.kill()
            self._lock.wait_for(lambda: not self._asking, timeout=LEAVE_S)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._signal is not None:
            signal.signal(signal.SIGTERM, self._signal)

    def ask(self, host: str) -> HostReport:
        """One host by name. Raises `RemoteError`, `MissingError`."""
        with self._lock:
            self._asking += 1
        folder: Path | None = None
        try:
            name = host.rpartition("@")[2]
            archive = self._record(host, _named(name) + self._script)
            _refuse_text(archive)
            folder = self._new_folder()
            unpack(archive, folder, self._go_on)
            return examine_tree(
                recorded_host(folder, name, self._backend), self._checks, self._now_ns()
            )
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            with self._lock:
                self._asking -= 1
                self._lock.notify_all()

    def _go_on(self) -> None:
        if self._over:
            raise RemoteError("the audit has ended")

    def _new_folder(self) -> Path:
        with self._lock:
            self._go_on()
            return Path(tempfile.mkdtemp(dir=self._folder))

    def _record(self, host: str, script: bytes) -> bytes:
        """The archive that the host sends."""
        command = "sudo -n python3 -" if self._sudo else "python3 -"
        process = self._start([*self._words, "--", host, command])
        try:
            output, complaint = process.communicate(script, timeout=self._deadline_ns / S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise RemoteError(f"no answer over ssh in {self._deadline_ns / S:g} s") from error
        finally:
            with self._lock:
                self._running.discard(process)
            _close(process)
        self._go_on()
        if process.returncode != 0:
            said = complaint.decode("utf-8", "replace").strip().splitlines()
            reported = said[-1][:200] if said else f"exit status {process.returncode}"
            raise RemoteError(f"ssh: {reported.removeprefix('ssh: ')}")
        return output

    def _start(self, line: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._lock:
            self._go_on()
            try:
                process = subprocess.Popen(
                    line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            except FileNotFoundError as error:
                raise MissingError("ssh is not installed here; install openssh-client") from error
            except OSError as error:
                raise RemoteError(f"{line[0]}: {error.strerror}") from error
            self._running.add(process)
        return process


def _close(process: subprocess.Popen[bytes]) -> None:
    """Anyone who inherited ssh's pipes (a proxy command) cannot keep us waiting."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    if process.poll() is None:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=1)


def _terminated(number: int, _: object) -> NoReturn:
    """So that SIGTERM (a scheduler's time-out) leaves nothing behind either."""
    raise SystemExit(128 + number)


def _refuse_text(archive: bytes) -> None:
    """Detect output of a login script in front of the archive. Raises `RemoteError`."""
    first = archive[:120].partition(b"\n")[0]
    if first.isascii() and first.decode().isprintable() and first:
        raise RemoteError(
            f"the host did not send a recorded tree: it said {first.decode()!r}; does a login "
            "script (.bashrc) print without a terminal?"
        )


def _named(host: str) -> bytes:
    return f"HOST = {host!r}\n".encode()


def recording_script(checks: Sequence[HostCheck], limit_ns: int = ALONE_NS) -> bytes:
    """The collector, with what these checks read in front of it.

    Args:
        checks: what is to be recorded.
        limit_ns: for all commands that load the host, one after the other.
    """
    files, commands, alone = split_inputs(checks)
    parameters = {
        "files": files,
        "commands": commands,
        "alone": alone,
        "alone_s": max(limit_ns, S) / S,
        "timeout_s": COMMAND_TIMEOUT_NS / S,
        "later_s": LATER_S,
    }
    return f"PARAMETERS = {json.dumps(parameters)!r}\n{_collector()}".encode()


def record_here(checks: Sequence[HostCheck], folder: Path, name: str) -> None:
    """This host as a tree below `folder`, under the name it goes by. Raises `RemoteError`: the
    recorder failed."""
    done = subprocess.run(
        [sys.executable, "-"],
        input=_named(name) + recording_script(checks),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise RemoteError(f"the recorder failed: {said[:200]}")
    unpack(done.stdout, folder)


@cache
def _collector() -> str:
    return resources.files("syntony.io.audit").joinpath("collector.py").read_text("utf-8")


def unpack(archive: bytes, folder: Path, go_on: Callable[[], None] = lambda: None) -> None:
    """A host's tree, as untrusted as the host: nothing is written outside `folder`.

    Args:
        folder: exists.
        go_on: called before each entry; raises to end it.

    Raises:
        RemoteError: it is no archive, or too large.
    """
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            for number, entry in enumerate(tar):
                go_on()
                size += entry.size
                if size > MAX_TREE_BYTES or number > MAX_ENTRIES:
                    raise RemoteError("the host sent more than an audit can hold")
                _unpack_one(tar, entry, folder)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise RemoteError(f"the host did not send a recorded tree: {error}") from error


def _unpack_one(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    """Files, folders and links within the tree; `tarfile`'s own filters are not in every 3.11."""
    name = PurePosixPath(entry.name)
    place = folder / name
    if name.is_absolute() or ".." in name.parts or not _within(place.parent, folder):
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.isdir():
            place.mkdir(exist_ok=True)
        elif entry.issym() and _within(place.parent / entry.linkname, folder):
            place.symlink_to(entry.linkname)
        elif entry.isfile() and _within(place, folder):
            content = tar.extractfile(entry)
            place.write_bytes(content.read() if content is not None else b"")
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        return  # the name exists as something else


def _within(path: Path, folder: Path) -> bool:
    """Whether it is in the folder, whatever links lead to it; it need not exist."""
    return path.resolve().is_relative_to(folder.resolve())
