"""A simulated InfiniBand subnet (ibsim), routed by a real subnet manager (opensm)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.audit.fabrics import Wiring

TOOLS = ("ibsim", "ibsim-run", "opensm", "ibnetdiscover")
_PATIENCE_S = 120.0
"""Two thousand nodes take half a minute to load."""
_WIDTH_SPEED = {"4xHDR": "w=2 s=7 e=7", "1xHDR": "w=1 s=7 e=7", "4xEDR": "w=2 s=7 e=1"}
"""As ibsim's files tell width, speed and extended speed; this version knows nothing faster."""


def missing() -> list[str]:
    """What is not installed (Debian: ibsim-utils, opensm, infiniband-diags)."""
    return [tool for tool in TOOLS if shutil.which(tool, path=_path()) is None]


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def net_text(wiring: Wiring) -> str:
    """The subnet as ibsim reads it."""
    lines: list[str] = []
    nodes = sorted({port.node for port in wiring.far}, key=lambda node: (" " in node, node))
    for node in nodes:
        hca = " " in node
        says = wiring.says.get(node, node if hca else f"MF0;{node}:MQM9700/U1")
        kind = "Hca\t1" if hca else "Switch\t128"
        tail = "" if hca else " enhanced port 0 lid 0 lmc 0"
        lines.append(f'{kind} "{_id(node)}"\t# "{says}"{tail}')
        for port, far in sorted(wiring.far.items()):
            if port.node == node:
                rate = wiring.rates.get(port, "4xHDR")
                lines.append(f'[{port.port}]\t"{_id(far.node)}"[{far.port}]\t{_WIDTH_SPEED[rate]}')
        lines.append("")
    return "\n".join(lines)


def _id(node: str) -> str:
    return "H-" + node.replace(" ", "-") if " " in node else node


class Subnet:
    """A running one."""

    def __init__(self, folder: Path, wiring: Wiring) -> None:
        self.name = f"syntony-{os.getpid()}-{folder.name}"
        self._environment = {
            **os.environ, "PATH": _path(), "IBSIM_SOCKNAME": self.name,
            "OSM_TMP_DIR": str(folder), "OSM_CACHE_DIR": str(folder),
        }  # fmt: skip
        self.folder = folder
        """Where its programs run: they leave their picture of /sys in the working directory."""
        self._first = min(port.node for port in wiring.far if " " in port.node)

    def discover(self) -> str:
        """What `ibnetdiscover` prints on the first host."""
        done = subprocess.run(
            ["ibsim-run", "ibnetdiscover"], env=self.at_first(), cwd=self.folder,
            capture_output=True, text=True, timeout=_PATIENCE_S, check=True,
        )  # fmt: skip
        return done.stdout

    def at_first(self, **more: str) -> Mapping[str, str]:
        """The environment of a program on the first host."""
        return {**self._environment, "SIM_HOST": _id(self._first), **more}


@contextmanager
def simulated(wiring: Wiring, folder: Path, *, manager: bool = True) -> Iterator[Subnet]:
    """A subnet until the end of the block, with every port active if there is a `manager`."""
    file = folder / "net"
    file.write_text(net_text(wiring))
    subnet = Subnet(folder, wiring)
    nodes = len({port.node for port in wiring.far})
    sizes = [
        "-N",
        str(nodes + 8),
        "-S",
        str(nodes + 8),
        "-P",
        str(len(wiring.far) * 2 + 129 * 200),
        "-L",
        "65000",
    ]
    log = (folder / "ibsim.log").open("w+")
    said = (folder / "opensm.log").open("w+")
    simulator = subprocess.Popen(
        ["ibsim", *sizes, "-s", "-f", str(folder / "out"), str(file)],
        env=subnet.at_first(), cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip
    started = [simulator]
    try:
        _until(lambda: subnet.name in Path("/proc/net/unix").read_text(), simulator)
        if manager:
            started.append(
                subprocess.Popen(
                    [
                        "ibsim-run",
                        "opensm",
                        "-f",
                        str(folder / "osm.log"),
                        "-R",
                        "minhop",
                        "-s",
                        "0",
                    ],
                    env=subnet.at_first(SIM_SET_ISSM="1"),
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                )
            )
            _until(lambda: "MASTER state" in _text(folder / "opensm.log"), started[-1])
            _until(lambda: " lid 0 4x" not in subnet.discover(), started[-1])
        yield subnet
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        log.close()
        said.close()


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


def _until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not true():
        if process.poll() is not None or time.monotonic() > end_s:
            raise TimeoutError(f"{process.args!r} did not start")
        time.sleep(0.02)
