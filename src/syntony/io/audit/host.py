"""`Facts` of this host or of a recorded tree: read-only, unprivileged, nothing outside the root."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Hashable
from pathlib import Path, PurePosixPath
from typing import Protocol, TypeAlias, TypeVar

from syntony.audit.facts import AbsentError, FactError, UnreadableError
from syntony.errors import InputError
from syntony.input_files import read_bytes
from syntony.io.audit.commands import LiveCommands, RecordedCommands
from syntony.io.link_files import LinkFiles
from syntony.links.snapshot import PortSnapshot, with_backend
from syntony.model import S
from syntony.model.names import is_name

COMMAND_TIMEOUT_NS = 8 * S
"""Less than a check's deadline, so that the check can report which command did not answer."""
MAX_FILE_BYTES = 8 << 20
_PIECE_BYTES = 1 << 16
LATER = "later"
"""The second reading of a recorded tree, a tree below the first."""
_T = TypeVar("_T")
Backend: TypeAlias = "Callable[[str], tuple[str, ...]]"
"""A host's name → shell patterns of the ports that carry the job (`Spec.backend`)."""


class Commands(Protocol):
    def run(self, command: tuple[str, ...]) -> str: ...


class HostFacts:
    """One look at one host below `root`: files, commands and ports are asked once each.

    Args:
        root: ``/``, or a recorded tree's.
        backend: which ports of a host carry the job, by its name; none: found out.
    """

    def __init__(
        self, host: str, root: Path, commands: Commands, backend: Backend = lambda _: ()
    ) -> None:
        self._host = host
        self._backend = backend
        self._root = root
        self._commands = commands
        self._answers = _Cache()
        self._contents: dict[str, bytes | FactError] = {}
        self._top = os.path.realpath(root)
        self._within = os.path.join(self._top, "")  # noqa: PTH118 - see _real
        self._folders: dict[str, str] = {}
        self._born_ns = time.monotonic_ns()

    @property
    def host(self) -> str:
        return self._host

    def read(self, path: str) -> str:
        return self.read_bytes(path).decode("utf-8", "replace").strip()

    def read_bytes(self, path: str) -> bytes:
        # Two threads that ask at once read twice; what they read is the same look all the same.
        if path not in self._contents:
            try:
                self._contents[path] = self._read_file(path)
            except FactError as error:
                self._contents[path] = error
        found = self._contents[path]
        if isinstance(found, FactError):
            raise found
        return found

    def _read_file(self, path: str) -> bytes:
        try:
            return _content(self._real(path))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise AbsentError(f"no {path}") from error
        except (OSError, ValueError) as error:
            raise UnreadableError(f"{path}: {_reason(error)}") from error

    def names(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self._real(path))))  # noqa: PTH208 - see _real
        except (FileNotFoundError, NotADirectoryError) as error:
            raise AbsentError(f"no {path}") from error
        except OSError as error:
            raise UnreadableError(f"{path}: {_reason(error)}") from error

    def exists(self, path: str) -> bool:
        try:
            return os.path.exists(self._real(path))  # noqa: PTH110 - see _real
        except (FactError, OSError):
            return False

    def real(self, path: str) -> str:
        real = self._real(path)
        if not os.path.exists(real):  # noqa: PTH110 - see _real
            raise AbsentError(f"no {path}")
        return "/" + real[len(self._within) :]

    def run(self, *command: str) -> str:
        return self._answers.get(command, lambda: self._commands.run(command))

    def ports(self) -> tuple[PortSnapshot, ...]:
        return self._answers.get("ports", self._read_ports)

    def later(self, after_ns: int) -> HostFacts | None:
        return self._answers.get("later", lambda: self._look_again(after_ns))

    def _look_again(self, after_ns: int) -> HostFacts | None:
        if self._root != Path("/"):
            later = self._root / LATER
            if not later.is_dir():
                return None
            return HostFacts(self._host, later, self._commands, self._backend)
        left_ns = self._born_ns + after_ns - time.monotonic_ns()
        if left_ns > 0:
            time.sleep(left_ns / S)
        return HostFacts(self._host, self._root, self._commands, self._backend)

    def _read_ports(self) -> tuple[PortSnapshot, ...]:
        with LinkFiles(self._root) as files:
            return with_backend(files.read(), self._backend(self._host))

    def _real(self, path: str) -> str:
        """The file below the root, links followed; a recorded tree's may not lead out of it.

        A string: checks ask this hundreds of thousands of times, and a `Path` costs twice as much.
        """
        folder, name = os.path.split(path)
        if name in {"", os.curdir, os.pardir}:
            real = self._below(path)
        else:
            # Checks read many files of one directory: links on the way there are followed once.
            if folder not in self._folders:
                self._folders[folder] = os.path.join(self._below(folder), "")  # noqa: PTH118
            real = self._folders[folder] + name
            if os.path.islink(real):  # noqa: PTH114
                real = os.path.realpath(real)
        if not real.startswith(self._within) and real != self._top:
            raise UnreadableError(f"{path} leads out of the tree")
        return real

    def _below(self, path: str) -> str:
        return os.path.realpath(f"{self._within}{path.lstrip('/')}")


def this_host(
    timeout_ns: int = COMMAND_TIMEOUT_NS, name: str = "", backend: Backend = lambda _: ()
) -> HostFacts:
    """The machine that runs us, by its own name unless the fleet knows it by another."""
    own = os.uname().nodename.split(".")[0]
    return HostFacts(name or own, Path("/"), LiveCommands(timeout_ns), backend)


def recorded_host(root: Path, name: str = "", backend: Backend = lambda _: ()) -> HostFacts:
    """A recorded tree, by the name it was recorded under, else its directory's. Raises `FactError`:
    it is no directory, or has none of what checks read."""
    if not root.is_dir():
        raise AbsentError(f"{root} is not a directory")
    known = ("sys", "proc", "etc", "commands")
    if not any((root / part).is_dir() for part in known):
        raise UnreadableError(
            f"{root} is not a recorded tree: none of {', '.join(known)} is below it"
        )
    return HostFacts(name or _recorded_name(root), root, RecordedCommands(root), backend)


def _recorded_name(root: Path) -> str:
    for file in ("etc/hostname", "proc/sys/kernel/hostname"):
        try:
            reported = read_bytes(root / file, 4096).decode("utf-8", "replace").strip()
        except OSError:
            continue
        if is_name(reported):
            return reported.split(".")[0]
    return root.resolve().name


class _Cache:
    """Caches answers and failures: each is obtained once, also if several threads ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._kept: dict[Hashable, object] = {}

    def get(self, question: Hashable, ask: Callable[[], _T]) -> _T:
        with self._lock:
            lock = self._locks.setdefault(question, threading.Lock())
        with lock:
            if question not in self._kept:
                try:
                    self._kept[question] = ask()
                except FactError as error:
                    self._kept[question] = error
        answer = self._kept[question]
        if isinstance(answer, FactError):
            raise type(answer)(*answer.args)
        return answer  # type: ignore[return-value]


def _content(file: str) -> bytes:
    """In pieces: files below /proc/sys refuse a read for more than the kernel can allocate."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        pieces: list[bytes] = []
        size = 0
        while size < MAX_FILE_BYTES and (piece := os.read(descriptor, _PIECE_BYTES)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


_DEVICES = "sys/bus/pci/devices"
_CLASSES = ("infiniband", "net", "nvme")
MAX_BYTES = 256 << 20


def unpack_dump(file: Path, folder: Path) -> None:
    """Write below `folder` a tree that others wrote as one JSON object, path → content (as Meta's
    GCM records /sys).

    Such dumps hold devices and leave the class directories out: these are linked to the devices
    again, as the kernel does. Raises `InputError`: it cannot be read, or is no object of absolute
    paths to texts.
    """
    try:
        content = json.loads(read_bytes(file, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            "not-a-tree", f"{file} is neither a directory nor a dump of one"
        ) from error
    if not isinstance(content, dict) or not content or not all(map(_fits, content.items())):
        raise InputError(
            "not-a-tree", f"{file} is not a JSON object that maps absolute paths to texts"
        )
    for path, text in content.items():
        target = folder / path.lstrip("/")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            raise InputError("not-a-tree", f"{file}: {path[:80]}: {error.strerror}") from error
    _link_classes(folder)


def _fits(item: tuple[object, object]) -> bool:
    path, text = item
    if not isinstance(path, str) or not isinstance(text, str) or "\0" in path:
        return False
    parts = PurePosixPath(path).parts
    return parts[:1] == ("/",) and ".." not in parts and len(parts) > 1


def _link_classes(folder: Path) -> None:
    for kind in _CLASSES:
        for device in sorted(folder.glob(f"{_DEVICES}/*/{kind}/*")):
            link = folder / "sys/class" / kind / device.name
            if not link.exists() and device.is_dir():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(os.path.relpath(device, link.parent))
                if not (device / "device").exists():
                    (device / "device").symlink_to("../..")
