"""NCCL's net plug-in: where it is, and how a job's processes are told of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import syntony.io
from syntony.errors import MissingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGIN_VARIABLE = "NCCL_NET_PLUGIN"
PATH_VARIABLE = "LD_LIBRARY_PATH"
NAME = "syntony"
"""As NCCL makes a file name of it: `libnccl-net-syntony.so`."""
_FILE = f"libnccl-net-{NAME}.so"
_PORTS = Path("sys/class/infiniband")


def net_plugin() -> Path:
    """The library that NCCL loads.

    Raises:
        MissingError: it was not built.
    """
    for base in syntony.io.__path__:
        path = Path(base).resolve() / "_native" / "nccl" / _FILE
        if path.exists():
            return path
    raise MissingError(
        f"{_FILE} is not installed; run `pip install .` with a C compiler and libibverbs-dev"
    )


def plugin_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What makes NCCL load the plug-in. By its name: NCCL 2.27.3 takes no path.

    Raises:
        UsageError: another plug-in is wanted already. NCCL uses one at a time.
        MissingError: it was not built, or the loader would split its path.
    """
    directory = str(net_plugin().parent)
    other = environ.get(PLUGIN_VARIABLE, "")
    if other not in {"", NAME}:
        raise UsageError(
            f"{PLUGIN_VARIABLE}={other} asks for another plug-in; unset it, or leave out --nccl"
        )
    if set(":;") & set(directory):
        raise MissingError(
            f"{directory}: LD_LIBRARY_PATH cannot hold a path with a colon; install elsewhere"
        )
    others = [path for path in environ.get(PATH_VARIABLE, "").split(":") if path]
    return {
        PLUGIN_VARIABLE: NAME,
        PATH_VARIABLE: ":".join([*(path for path in others if path != directory), directory]),
    }


def rdma_ports(root: Path = Path("/")) -> list[str]:
    """RDMA ports of this host, ``mlx5_0:1``; `root` is where /sys is looked for."""
    return sorted(
        f"{port.parent.parent.name}:{port.name}" for port in (root / _PORTS).glob("*/ports/[0-9]*")
    )
