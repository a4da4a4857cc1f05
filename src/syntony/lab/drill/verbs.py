"""Requirements of drills over verbs: machines with RDMA ports, and NCCL's own transport."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from syntony.errors import MissingError, UsageError
from syntony.lab.client import Lab
from syntony.lab.drill.fleet import wait_ready
from syntony.lab.drill.modes import MANAGED, VERBS
from syntony.lab.plan import MGMT, FabricSpec
from syntony.lab.verbs.guest import rdma_name
from syntony.lab.world import World, new_lab, search_path
from syntony.model import S
from syntony.traffic.classes import JobClass

HOSTS = 2
"""Emulated machines: a processor for each."""
SPEC = FabricSpec(hosts=HOSTS, leaves=HOSTS)
ELEMENTS = 16_384
"""64 KiB a rank and step."""
START_S = 300.0
"""Python alone takes ten seconds to start in an emulated machine that has a core of its own."""
START_BESIDE_AGENTS_S = 900.0
"""Agents take most of an emulated processor: on 2 cores at load 20, Python took 46 s to start
there, `syntony run` more than 200 s."""
SOCKETS = MGMT
"""NIC of the ranks' sockets, over which they find each other, as NCCL's (`NCCL_SOCKET_IFNAME`): on
a rail agents would manage these connections and watch their paths."""
PROBE_INTERVAL_NS = 1 * S
"""Of these agents."""
LEAST = {
    "sample_segments": False,
    "verbs": {"mode": "off"},
    "traffic": {"watch": False, "plain": False},
}
"""What these agents leave out, because none of it is needed to move and pace queue pairs: samples
of TCP and care for plain connections, probes over verbs, and probes of jobs' paths at a high rate.
The last would fill a link of 2 Mb/s, and took a quarter of an emulated processor."""
READY_S = 600.0
"""Until agents have clocks there."""
FIRST, NICER = ("nice", "-n", "-10"), 15
"""Prefix of a rank's command: agents take most of an emulated processor, so that without it Python
starts for minutes. And the niceness that is added when its steps begin: ranks are idle most of the
time, and late reports of an agent are discarded."""
SLOW = "SYNTONY_NCCL_TIMEOUT=19"
"""2.1 s per try: on a slow, congested link packets wait long without being lost."""
LIBRARY = "nvidia/nccl/lib/libnccl.so.2"
"""Where its wheels (`nvidia-nccl-cu13`) put it."""
TABLE = "ncclNetIb"
_HIDDEN = ("/tmp", "/run", "/dev")  # noqa: S108 - names, not files


@contextmanager
def verbs_lab(
    say: Callable[[str], None],
    spec: FabricSpec = SPEC,
    *,
    agents: bool = False,
    classes: tuple[JobClass, ...] = (),
) -> Iterator[Lab]:
    """Yield a lab of virtual machines that is removed afterwards. Agents take most of an emulated
    processor from a job, and
    the plug-in leaves rails on errors and port events without them.

    Raises:
        MissingError: this machine lacks something that virtual machines need, or one did not boot.
        RemoteError: agents were not ready in time.
    """
    from syntony.lab.verbs.boot import wait_for_machines
    from syntony.lab.verbs.image import image

    file = new_lab(
        f"drill-{os.getpid()}",
        spec,
        image=str(image()),
        agents=agents,
        classes=classes,
        options={"probe_interval_ns": PROBE_INTERVAL_NS},
        agent_options=LEAST,
    )
    with World(file, detach=False) as world:
        world.wait_ready()
        lab = Lab(world.directory)
        wait_for_machines(lab, say)
        if agents:
            say("agents find each other and fleet time")
            wait_ready(lab, READY_S)
        yield lab


def managed(job: str, rails: tuple[str, ...]) -> tuple[str, ...]:
    """The prefix of a job's rank commands: the plug-in over these rails, under an agent that knows
    the job by that name."""
    names = "+".join(rdma_name(rail) for rail in rails)
    return (*FIRST, *VERBS, SLOW, f"SYNTONY_NCCL_RAILS={names}",
            *MANAGED, job, "--nccl", "--no-nccl-profiler", "--")  # fmt: skip


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
        given: the library; None: searched for next to Syntony's own packages.

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
