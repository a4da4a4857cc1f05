"""What a drill over verbs needs: machines with RDMA ports, and NCCL's own transport to compare."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.errors import MissingError, UsageError
from syntony.lab.client import Lab
from syntony.lab.plan import FabricSpec
from syntony.lab.world import World, new_lab, search_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOSTS = 2
"""Emulated machines: a processor for each."""
SPEC = FabricSpec(hosts=HOSTS, leaves=HOSTS)
ELEMENTS = 16_384
"""64 KiB a rank and step."""
START_S = 300.0
"""Python alone takes ten seconds to start in an emulated machine that has a core of its own."""
LIBRARY = "nvidia/nccl/lib/libnccl.so.2"
"""Where its wheels (`nvidia-nccl-cu13`) put it."""
TABLE = "ncclNetIb"
_HIDDEN = ("/tmp", "/run", "/dev")  # noqa: S108 - names, not files


@contextmanager
def verbs_lab(say: Callable[[str], None]) -> Iterator[Lab]:
    """A lab of machines, gone afterwards. Without agents: they would take most of an emulated
    processor from the job, and the plug-in leaves rails on errors and port events without them.

    Raises:
        MissingError: this machine lacks something that virtual machines need, or one did not boot.
    """
    from syntony.lab.verbs.boot import wait_for_machines
    from syntony.lab.verbs.image import image

    file = new_lab(f"drill-{os.getpid()}", SPEC, image=str(image()), agents=False)
    with World(file, detach=False) as world:
        world.wait_ready()
        lab = Lab(world.directory)
        wait_for_machines(lab, say)
        yield lab


def check_lab(lab: Lab) -> None:
    """Raises `UsageError`: its hosts have no RDMA ports."""
    if not lab.file().image:
        raise UsageError(
            f"the hosts of lab {lab.name!r} have no RDMA; start one with: syntony lab verbs up"
        )


def nccl_transport(given: Path | None) -> str:
    """NCCL's own IB transport, as ranks are given it: ``LIBRARY@OFFSET``; empty if no NCCL is
    installed here.

    Args:
        given: the library; None: looked for beside Syntony's own packages.

    Raises:
        UsageError: the one given cannot be used.
        MissingError: `nm` is not installed.
    """
    path = given or _installed()
    if path is None:
        return ""
    path = path.resolve()
    if not path.is_file():
        raise UsageError(f"--nccl {given}: no such file")
    if str(path).startswith(tuple(f"{place}/" for place in _HIDDEN)):
        raise UsageError(f"{path}: machines do not see {', '.join(_HIDDEN)}; put it elsewhere")
    nm = shutil.which("nm", path=search_path())
    if nm is None:
        raise MissingError("nm not found; install with: apt install binutils")
    said = subprocess.run([nm, str(path)], capture_output=True, text=True, check=False).stdout
    for line in said.splitlines():
        if line.split()[2:] == [TABLE]:
            return f"{path}@{int(line.split()[0], 16):#x}"
    raise UsageError(f"{path} does not say where {TABLE} is; take the library of NVIDIA's wheel")


def _installed() -> Path | None:
    places = (Path(each, LIBRARY) for each in sys.path if each)
    return next((each for each in places if each.is_file()), None)
