"""A real Slurm in the hosts of a lab: Debian's slurmctld, slurmd and munged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.live import LiveLab, eventually

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sinfo", "scontrol")
_SBIN = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_CONF = """\
ClusterName=lab
SlurmctldHost={machine}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.sock
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool.%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
Prolog={place}/prolog
Epilog={place}/prolog
PrologFlags=Alloc
TaskProlog={place}/task-prolog
HealthCheckProgram={place}/healthcheck
HealthCheckInterval=5
HealthCheckNodeState=ANY
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Node(NamedTuple):
    """What Slurm says of a node."""

    state: str
    reason: str

    @property
    def drained(self) -> bool:
        return self.state.startswith("drain")


class Slurm:
    """One cluster; each host of the lab is a node."""

    def __init__(self, lab: LiveLab, place: Path) -> None:
        self.lab, self.place = lab, place
        self.hosts = list(lab.status().hosts)

    def argv(self, host: str, *command: str) -> list[str]:
        """`command` in a host, with the rights of the machine's root.

        A lab's own user namespace maps one user, and forbids setgroups, which slurmd calls.
        """
        words = [word for word in self.lab.enter_argv(host, command) if word != "-U"]
        environment = [f"SLURM_CONF={self.place}/slurm.conf", f"PATH={self.path()}"]
        return [shutil.which("env") or "env", *environment, *words]

    def path(self) -> str:
        return f"{Path(sys.executable).parent}:{_SBIN}"

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command on the first host, to its end."""
        return subprocess.run(
            self.argv(self.hosts[0], *command),
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    def node(self, name: str) -> Node:
        line = self.run("sinfo", "-h", "-N", "-n", name, "-o", "%T|%E").stdout
        state, _, reason = line.partition("\n")[0].partition("|")
        return Node(state, reason)

    def idle(self) -> bool:
        return all(self.node(host).state == "idle" for host in self.hosts)

    def wrapped(self, name: str, script: Path, *options: str) -> None:
        """A script as slurmd starts it, given what a deployment has at fixed places.

        While `NAME.off` is there, it does nothing. `NAME.runs` has a line for each start.
        """
        wrapper = self.place / name
        wrapper.write_text(
            f"#!/bin/sh\nPATH={self.path()}\nSLURM_CONF={self.place}/slurm.conf\n"
            f"SYNTONY_SLURM_ENV=/nonexistent XDG_STATE_HOME={self.place}\n"
            "export PATH SLURM_CONF SYNTONY_SLURM_ENV XDG_STATE_HOME\n"
            f"[ ! -e {wrapper}.off ] || exit 0\n"
            f'echo "$SLURMD_NODENAME" >>{wrapper}.runs\n'
            f"exec {script} {' '.join(options)} 2>>{wrapper}.log\n"
        )
        wrapper.chmod(0o755)

    def configure(self) -> None:
        addresses = {host: self.lab.addresses(4)[f"{host}/mgmt0"] for host in self.hosts}
        machine = os.uname().nodename
        nodes = "\n".join(
            f"NodeName={host} NodeHostname={machine} NodeAddr={address} CPUs=2"
            for host, address in addresses.items()
        )
        conf = _CONF.format(machine=machine, address=addresses[self.hosts[0]],
                            place=self.place, nodes=nodes)  # fmt: skip
        (self.place / "slurm.conf").write_text(conf)
        (self.place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = self.place / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)

    @contextmanager
    def daemons(self) -> Iterator[None]:
        place = self.place
        first = self.hosts[0]
        munge = [f"--{name}-file={place}/munge.{name}" for name in ("key", "pid", "seed", "log")]
        with ExitStack() as stack:
            socket = f"--socket={place}/munge.sock"
            stack.enter_context(self._daemon(first, "munged", "--foreground", "--force", socket,
                                             *munge))  # fmt: skip
            eventually((place / "munge.sock").exists, "munged's socket")
            stack.enter_context(self._daemon(first, "slurmctld", "-D", "-i"))
            for host in self.hosts:
                stack.enter_context(self._daemon(host, "slurmd", "-D", "-N", host))
            eventually(self.idle, f"nodes that are idle: {self.log()}")
            yield

    @contextmanager
    def _daemon(self, host: str, *command: str) -> Iterator[None]:
        log = self.place / f"{command[0]}.{host}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self.argv(host, *command), stdout=out, stderr=out, start_new_session=True
            )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def log(self) -> str:
        """The last lines of every daemon and script."""
        tails = (f"{path.name}: {path.read_text(errors='replace')[-600:]}"
                 for path in sorted(self.place.glob("*.log")))  # fmt: skip
        return "\n".join(tails)
