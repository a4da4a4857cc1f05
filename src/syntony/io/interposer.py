"""Libraries that are preloaded into a job's programs: one makes their TCP multi-path, one counts
what their RDMA queue pairs carry. Where they are, what helps them here."""

from __future__ import annotations

import ctypes
import errno
import ipaddress
import itertools
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import syntony.io
from syntony.errors import MissingError, UsageError

EXCLUDE_VARIABLE = "SYNTONY_TCP_EXCLUDE"
EXCLUDE_MOST = 32
"""SYN_EXCLUDE_MAX of native/tcp/exclude.h."""

NCCL_VERBS_VARIABLE = "NCCL_IBVERBS_LIB"
"""NCCL loads verbs by name, and asks that library first."""

_FILE = "libsyntony_tcp.so"
_VERBS_FILE = "libsyntony-verbs.so"
IPPROTO_MPTCP = 262
_SWITCHES = Path("proc/sys/net/mptcp")
_PATH_MANAGERS = {"0": "kernel", "1": "userspace"}


class MptcpSupport(NamedTuple):
    """This host's support for multi-path connections."""

    mptcp: bool
    """MPTCP sockets can be made in this network namespace."""
    detail: str
    """Why not, and what to do; empty if they can."""
    path_manager: str | None
    """Who adds paths: ``kernel``, ``userspace`` (an agent's), another's name; None: nobody."""
    agent: bool | None
    """A Syntony agent runs in this network namespace; None: it cannot be seen from here."""


def tcp_library() -> Path:
    """The interposer, as `LD_PRELOAD` can name it. Raises `MissingError`: not installed, or under a
    name that `LD_PRELOAD` would split."""
    return _library(_FILE, "a C compiler")


def verbs_library() -> Path:
    """The interposer for verbs, likewise. Raises `MissingError`: as `tcp_library`, or the
    libibverbs that it needs is not there."""
    path = _library(_VERBS_FILE, "a C compiler and libibverbs-dev")
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise MissingError(f"{error}; install libibverbs1, or leave out --verbs") from error
    return path


def _library(file: str, needs: str) -> Path:
    for base in syntony.io.__path__:
        path = Path(base).resolve() / "_native" / file
        if path.exists():
            if set(" \t\n:") & set(str(path)):
                raise MissingError(
                    f"{path}: LD_PRELOAD cannot hold a path with a blank or a colon;"
                    " install syntony elsewhere"
                )
            return path
    raise MissingError(f"{file} is not installed; run `pip install .` with {needs}")


def preloading(library: Path, environ: Mapping[str, str]) -> str:
    """The value of `LD_PRELOAD` that has `library` in front of what is there already."""
    others = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return " ".join([str(library), *(other for other in others if other != str(library))])


def verbs_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What makes programs, and NCCL in them, use verbs through the interposer. Raises
    `MissingError`: as `verbs_library`."""
    path = verbs_library()
    added = {"LD_PRELOAD": preloading(path, environ)}
    if not environ.get(NCCL_VERBS_VARIABLE):
        added[NCCL_VERBS_VARIABLE] = str(path)
    return added


def checked_exclusions(text: str) -> str:
    """`text` if the interposer will understand it: ports, port ranges, addresses, prefixes. Raises
    `UsageError`: names the entry that is none of these."""
    entries = text.replace(",", " ").split()
    if len(entries) > EXCLUDE_MOST:
        raise UsageError(f"{len(entries)} exclusions are more than {EXCLUDE_MOST}; use prefixes")
    for entry in entries:
        if not _is_ports(entry) and not _is_prefix(entry):
            raise UsageError(
                f"cannot exclude {entry!r}: give a port (22), ports (6000-6010),"
                " an address (10.0.0.7) or a prefix (10.0.0.0/8)"
            )
    return ",".join(entries)


def _is_ports(entry: str) -> bool:
    low, dash, high = entry.partition("-")
    numbers = (low, high) if dash else (low, low)
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        return False
    return 1 <= int(numbers[0]) <= int(numbers[1]) <= 65535


def _is_prefix(entry: str) -> bool:
    address, slash, bits = entry.partition("/")
    if "%" in entry or (slash and not (bits.isascii() and bits.isdecimal())):
        return False
    try:
        most = ipaddress.ip_address(address).max_prefixlen
    except ValueError:
        return False
    return not slash or int(bits) <= most


def facts(root: Path = Path("/")) -> MptcpSupport:
    """This host's present support; `root` is where /proc is."""
    switches = root / _SWITCHES
    detail = _obstacle(switches)
    manager = None if detail else _path_manager(switches)
    return MptcpSupport(not detail, detail, manager, _agent_runs(root / "proc"))


def _obstacle(switches: Path) -> str:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP):
            return ""
    except OSError as error:
        if not switches.exists():
            return "this kernel has no MPTCP; use one with CONFIG_MPTCP"
        if error.errno == errno.ENOPROTOOPT:
            return "MPTCP is switched off here; switch it on: sysctl net.mptcp.enabled=1"
        return f"MPTCP sockets are refused here ({error.strerror})"


def _path_manager(switches: Path) -> str | None:
    """6.15 and later name it; before there was a number."""
    for switch in ("path_manager", "pm_type"):
        try:
            value = (switches / switch).read_text().strip()
        except OSError:
            continue
        return _PATH_MANAGERS.get(value, value)
    return None


def _agent_runs(proc: Path) -> bool | None:
    """A process `syntony agent` in the network namespace of this one."""
    try:
        here = (proc / "self/ns/net").readlink()
    except OSError:
        return None
    unsure = False
    for process in proc.glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if not _is_agent(words):
                continue
            if (process / "ns/net").readlink() == here:
                return True
        except PermissionError:
            unsure = True
        except OSError:  # ended meanwhile
            continue
    return None if unsure else False


def _is_agent(words: list[bytes]) -> bool:
    """`syntony [--debug] agent …` or `python -m syntony agent …`, but not `syntony agent check`."""
    for word, following in itertools.pairwise(words):
        if word.rpartition(b"/")[2] in {b"syntony", b"--debug"} and following == b"agent":
            return b"check" not in words
    return False
