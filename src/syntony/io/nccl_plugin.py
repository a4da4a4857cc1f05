"""NCCL's plug-ins: where they are, and the environment that makes NCCL load them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import syntony.io
from syntony.errors import MissingError, UsageError

PLUGIN_VARIABLE = "NCCL_NET_PLUGIN"
PROFILER_VARIABLE = "NCCL_PROFILER_PLUGIN"
NEXT_VARIABLE = "SYNTONY_NCCL_PROFILER_NEXT"
"""Another profiler, to which ours passes events on: NCCL loads only one."""
PATH_VARIABLE = "LD_LIBRARY_PATH"
NAME = "syntony"
"""As NCCL makes file names of it: `libnccl-net-syntony.so`, `libnccl-profiler-syntony.so`."""
_NET_FILE = f"libnccl-net-{NAME}.so"
_PROFILER_FILE = f"libnccl-profiler-{NAME}.so"
_PORTS = Path("sys/class/infiniband")


def net_plugin() -> Path:
    """The library that carries traffic. Raises `MissingError`: it was not built."""
    return _installed(_NET_FILE, "a C compiler and libibverbs-dev")


def profiler_plugin() -> Path:
    """The library that records what NCCL does. Raises `MissingError`: it was not built."""
    return _installed(_PROFILER_FILE, "a C compiler")


def _installed(name: str, needed: str) -> Path:
    for base in syntony.io.__path__:
        path = Path(base).resolve() / "_native" / "nccl" / name
        if path.exists():
            return path
    raise MissingError(f"{name} is not installed; run `pip install .` with {needed}")


def plugin_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What makes NCCL load the net plug-in. By its name: NCCL 2.27.3 takes no path.

    Raises:
        UsageError: another plug-in is wanted already. NCCL uses one at a time.
        MissingError: it was not built, or the loader would split its path.
    """
    found = net_plugin()
    other = environ.get(PLUGIN_VARIABLE, "")
    if other not in {"", NAME}:
        raise UsageError(
            f"{PLUGIN_VARIABLE}={other} asks for another plug-in; unset it, or leave out --nccl"
        )
    return {PLUGIN_VARIABLE: NAME, PATH_VARIABLE: _search_path(environ, found.parent)}


def profiler_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that make NCCL load the profiler plug-in, and the plug-in load the profiler that
    was set before. By file name: NCCL 2.24 does not expand plain names. Raises `MissingError`: it
    was not built, or the loader would split its path."""
    path = _search_path(environ, profiler_plugin().parent)
    added = {PROFILER_VARIABLE: _PROFILER_FILE, PATH_VARIABLE: path}
    other = environ.get(PROFILER_VARIABLE, "")
    ours = {"", "none", NAME, _PROFILER_FILE}
    if other.lower() not in ours and not environ.get(NEXT_VARIABLE):
        added[NEXT_VARIABLE] = other
    return added


def _search_path(environ: Mapping[str, str], directory: Path) -> str:
    if set(":;") & set(str(directory)):
        raise MissingError(
            f"{directory}: LD_LIBRARY_PATH cannot hold a path with a colon; install elsewhere"
        )
    others = [path for path in environ.get(PATH_VARIABLE, "").split(":") if path]
    return ":".join([*(path for path in others if path != str(directory)), str(directory)])


def rdma_ports(root: Path = Path("/")) -> list[str]:
    """RDMA ports of this host, ``mlx5_0:1``; `root` is where /sys is looked for."""
    return sorted(
        f"{port.parent.parent.name}:{port.name}" for port in (root / _PORTS).glob("*/ports/[0-9]*")
    )
