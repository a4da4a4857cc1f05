"""Which program a job is, and the command line of each of its ranks. Pure."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from syntony.errors import UsageError

PORT = 29_600
"""Of the built-in job's listeners and of PyTorch's rendezvous; free in a lab of its own."""
ELEMENTS = 262_144
"""1 MiB of 32-bit numbers a rank and step: 63 ms of a 200 Mb/s link in a ring of four."""

_TITLES = {
    "all-reduce": "all-reduce",
    "all-to-all": "all-to-all",
    "ddp": "DDP training",
    "gather": "gather",
}


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job on the first NIC of some hosts, one rank each."""

    kind: str
    """``all-reduce``, ``all-to-all``, ``ddp`` or ``gather`` (built-in only)."""
    framework: str = "builtin"
    """``builtin`` or ``gloo``."""
    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    """Of the NIC that the ranks are configured to use, one per host."""
    nic: str = "rail0"
    elements: int = ELEMENTS
    python: str = sys.executable
    """An interpreter that has torch, for gloo."""
    port: int = PORT
    """Of its listeners, if it is built in: jobs that share a host need one each."""
    pause_ns: int = 0
    """Of every rank before each step, as if it computed."""
    alone: bool = False
    """In a gather rank 1 sends alone until `LabJob.let_all_send`."""
    nice: int = 0
    """Added to the nice value of each rank before its first step, if it is built in."""
    net: str = ""
    """The built-in job sends by this NCCL transport (`nccl_mesh.Transport`) instead of sockets."""
    message: int = 0
    """Bytes of its longest message there; 0: all that goes to one peer at a time is one."""
    spoil: int | None = None
    """Rank 1 plants a wrong number in this step."""

    @property
    def name(self) -> str:
        by = "PyTorch, gloo" if self.framework == "gloo" else "plain sockets"
        by = "RDMA" if self.net else by
        return f"{_TITLES[self.kind]} ({by})"


BY_NAME = {
    "builtin": ("builtin", "all-reduce"),
    "builtin-all-to-all": ("builtin", "all-to-all"),
    "ddp": ("gloo", "ddp"),
    "all-reduce": ("gloo", "all-reduce"),
    "all-to-all": ("gloo", "all-to-all"),
}
"""What a user may ask for, to (framework, kind)."""


def by_name(name: str) -> tuple[str, str]:
    """(framework, kind). Raises `UsageError`: there is no such job."""
    if name not in BY_NAME:
        raise UsageError(f"no job {name!r}; known: {', '.join(BY_NAME)}")
    return BY_NAME[name]


def argv(spec: JobSpec, rank: int) -> tuple[str, ...]:
    if spec.framework == "gloo":
        script = str(Path(__file__).with_name("gloo.py"))
        numbers = (rank, len(spec.hosts), spec.elements)
        return (spec.python, "-u", script, spec.kind, *map(str, numbers), *_more(spec, rank))
    words = [sys.executable, "-m", "syntony.lab.jobs.builtin", spec.kind]
    words += [str(rank), str(spec.port), str(spec.elements), *spec.addresses]
    if spec.net:
        words += ["--net", spec.net, "--message", str(spec.message)]
    if spec.alone:
        words.append("--alone")
    if spec.nice:
        words += ["--nice", str(spec.nice)]
    return (*words, *_more(spec, rank))


def _more(spec: JobSpec, rank: int) -> tuple[str, ...]:
    words = ("--pause-ns", str(spec.pause_ns)) if spec.pause_ns else ()
    return (*words, "--spoil", str(spec.spoil)) if spec.spoil is not None and rank == 1 else words


def environment(spec: JobSpec, rank: int) -> dict[str, str]:
    """Environment of a rank: how to find the others, and its rank as launchers set it. Everything
    else is on its command line."""
    common = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    common |= {"RANK": str(rank), "WORLD_SIZE": str(len(spec.hosts))}
    if spec.framework != "gloo":
        return common
    return common | {
        "MASTER_ADDR": spec.addresses[0],
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": spec.nic,
    }
