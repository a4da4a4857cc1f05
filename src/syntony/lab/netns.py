"""Network namespaces of the calling thread: make one, step into one, run a tool inside one."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from syntony.errors import MissingError

NETNS_DIR = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_MS_BIND, _MS_REC = 4096, 0x4000
CGROUPS = "/sys/fs/cgroup"
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    """mount(2). Raises `OSError`."""
    args = (source.encode(), target.encode(), kind.encode(), flags, None)
    _check(_libc.mount(*args), f"mount {target}")


def mount_sys() -> None:
    """A /sys of this network namespace, with the cgroups that the old one has: their counters tell
    of kills for lack of memory. Raises `OSError`."""
    cgroups = None
    with suppress(OSError):
        cgroups = os.open(CGROUPS, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mount("none", "/sys", "sysfs")
    if cgroups is not None:
        with suppress(OSError):  # there is no such directory where the kernel has no cgroups
            mount(f"/proc/self/fd/{cgroups}", CGROUPS, "none", _MS_BIND | _MS_REC)
        os.close(cgroups)


def create(name: str, sysctls: dict[str, str]) -> None:
    """A new namespace at ``/run/netns/name``, its /proc/sys/net values set before any interface.
    Raises `OSError`: the kernel refuses the namespace or a value."""
    place = NETNS_DIR / name
    place.touch()
    with _own_namespace():
        _check(_libc.unshare(_CLONE_NEWNET), "unshare network namespace")
        mount("/proc/thread-self/ns/net", str(place), "none", _MS_BIND)
        for path, value in sysctls.items():
            Path("/proc/sys", path).write_text(value, encoding="ascii")


@contextmanager
def entered(name: str) -> Iterator[None]:
    """The calling thread is in namespace `name` within the block; never await inside."""
    target = os.open(NETNS_DIR / name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _own_namespace():
            _check(_libc.setns(target, _CLONE_NEWNET), f"enter {name}")
            yield
    finally:
        os.close(target)


@contextmanager
def _own_namespace() -> Iterator[None]:
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            _check(_libc.setns(own, _CLONE_NEWNET), "return to the own namespace")
        finally:
            os.close(own)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def inside(node: str) -> tuple[str, ...]:
    """The prefix of a command that runs in namespace `node`."""
    return ("ip", "netns", "exec", node)


def tool(node: str | None, argv: Sequence[str], text: str = "") -> str:
    """Runs a tool in namespace `node` (None: where we are) and returns what it prints. Raises
    `MissingError`: it failed; with its own first line, which names what the kernel refused."""
    done = _run(node, argv, text)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[0]
        where = f" in {node}" if node else ""
        raise MissingError(f"`{' '.join(argv)}` failed{where}: {said}")
    return done.stdout


def batch(node: str | None, argv: Sequence[str], lines: Sequence[str]) -> None:
    """`ip -batch`, `tc -batch`: all of `lines` at once. Raises `MissingError`."""
    if lines:
        tool(node, [*argv, "-batch", "-"], "\n".join(lines) + "\n")


def batch_forced(node: str, argv: Sequence[str], lines: Sequence[str]) -> None:
    """As `batch`, but changes that were already made are not errors."""
    if lines:
        _run(node, [*argv, "-force", "-batch", "-"], "\n".join(lines) + "\n")


def _run(node: str | None, argv: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    def go() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, input=text, text=True, capture_output=True, check=False)

    if node is None:
        return go()
    with entered(node):
        return go()
