"""Audits over SSH: the host is recorded by a script that travels with us, and replayed here.

The system's ssh with the user's configuration; nothing is installed there. One round trip.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from syntony.audit.collecting import split_inputs
from syntony.errors import MissingError, RemoteError
from syntony.io.audit.examine import examine_tree
from syntony.io.audit.host import COMMAND_TIMEOUT_NS, recorded_host
from syntony.model import S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from syntony.audit.check import HostCheck
    from syntony.audit.result import HostReport

CONNECT_S = 10
LATER_S = 3.5
"""The second look of a recorded host: a little later than any check asks for."""
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


def ask_over_ssh(
    checks: Sequence[HostCheck],
    now_ns: Callable[[], int],
    *,
    words: Sequence[str] = tuple(ssh_words()),
    sudo: bool = False,
    deadline_ns: int,
) -> Callable[[str], HostReport]:
    """What asks one host by name.

    Args:
        checks: what to ask.
        now_ns: UTC.
        words: ssh and its options (`ssh_words`).
        sudo: read as root, without a password.
        deadline_ns: for connecting and recording together.
    """
    script = recording_script(checks, deadline_ns - CONNECT_S * S)

    def ask(host: str) -> HostReport:
        name = host.rpartition("@")[2]
        named = _named(name) + script
        archive = _record(host, named, words, sudo=sudo, deadline_ns=deadline_ns)
        with tempfile.TemporaryDirectory(prefix="syntony-audit-") as folder:
            _refuse_text(archive)
            unpack(archive, Path(folder))
            return examine_tree(recorded_host(Path(folder), name), checks, now_ns())

    return ask


def _refuse_text(archive: bytes) -> None:
    """A login script that prints stands in front of what was asked for. Raises `RemoteError`."""
    first = archive[:120].partition(b"\n")[0]
    if first.isascii() and first.decode().isprintable() and first:
        raise RemoteError(
            f"the host did not send a recorded tree: it said {first.decode()!r}; does a login "
            "script (.bashrc) print to whom is no terminal?"
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
    """This host as a tree below `folder`, under the name it goes by.

    Raises:
        RemoteError: the recorder failed.
    """
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


def _record(
    host: str, script: bytes, words: Sequence[str], *, sudo: bool, deadline_ns: int
) -> bytes:
    command = "sudo -n python3 -" if sudo else "python3 -"
    line = [*words, "--", host, command]
    try:
        done = subprocess.run(
            line, input=script, capture_output=True, timeout=deadline_ns / S, check=False
        )
    except FileNotFoundError as error:
        raise MissingError("ssh is not installed here; install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise RemoteError(f"no answer over ssh in {deadline_ns / S:g} s") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        told = said[-1][:200] if said else f"exit status {done.returncode}"
        raise RemoteError(f"ssh: {told.removeprefix('ssh: ')}")
    return done.stdout


def unpack(archive: bytes, folder: Path) -> None:
    """A host's tree, as untrusted as the host: nothing is written outside `folder`.

    Raises:
        RemoteError: it is no archive, or too large.
    """
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            for number, entry in enumerate(tar):
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
        return  # a name that is there as something else


def _within(path: Path, folder: Path) -> bool:
    """Whether it is in the folder, whatever links lead to it; it need not exist."""
    return path.resolve().is_relative_to(folder.resolve())
