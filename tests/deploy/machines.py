"""Machines with their own systemd, apt and sshd, for deployments: systemd-nspawn on a Debian root.

Changes go to memory and are gone with the machine. All machines, and who manages them, are in a
network namespace of their own: three bridges, for management and two rails.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.live import eventually

PROGRAMS = ("systemd-nspawn", "debootstrap", "ssh", "ssh-keygen", "nsenter", "ip")
ROOTS = Path(os.environ.get("ROOTS", "/var/tmp/syntony-roots"))  # noqa: S108 - as try-bare-root.sh
_MANAGED = ("systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "iproute2")
_HERE = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/apt/apt.conf",
    "/etc/ssl/certs/ca-certificates.crt",
)
BRIDGES = {"host0": "mgmt", "eth2": "rail0", "eth3": "rail1"}
BOOT_S = 300.0


def run(*argv: str, timeout_s: float = 120) -> str:
    """Output of a command. Raises `CalledProcessError`."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"
    return done.stdout


def machine_root(suite: str) -> Path:
    """A Debian with systemd and sshd, made once and kept beside `try-bare-root.sh`'s."""
    root = ROOTS / f"{suite}-systemd"
    if not root.exists():
        partial = root.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        ROOTS.mkdir(parents=True, exist_ok=True)
        run(
            "debootstrap",
            "--variant=minbase",
            "--include=ca-certificates",
            suite,
            str(partial),
            timeout_s=1800,
        )
        for file in filter(os.path.exists, _HERE):
            shutil.copy(file, f"{partial}{file}")
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *_MANAGED]
        run("chroot", str(partial), "apt-get", "update", "-qq", timeout_s=600)
        run(
            "chroot",
            str(partial),
            "env",
            "--unset=TMPDIR",  # a directory of these tests, which is not in there
            "DEBIAN_FRONTEND=noninteractive",
            *install,
            timeout_s=1800,
        )
        partial.rename(root)
    return root


class Machines:
    """Running machines, by name."""

    def __init__(self, place: Path, names: Sequence[str]) -> None:
        self.place, self.names = place, list(names)
        self.namespace = f"syt{os.getpid()}"
        self.key = place / "key"

    def address(self, name: str) -> str:
        return f"10.77.0.{self.names.index(name) + 1}"

    def inside(self, *argv: str) -> list[str]:
        """A command in the network of the machines; not `ip netns exec`, which hides cgroups."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *argv]

    def ssh(self, name: str, command: str) -> subprocess.CompletedProcess[str]:
        options = [
            "-i",
            str(self.key),
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "LogLevel=ERROR",
            "-o",
            f"UserKnownHostsFile={self.place}/known",
            "-o",
            "ConnectTimeout=5",
        ]
        return subprocess.run(
            self.inside("ssh", *options, f"root@{self.address(name)}", command),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    @contextmanager
    def network(self) -> Iterator[None]:
        ip = ["ip", "-n", self.namespace]
        run("ip", "netns", "add", self.namespace)
        try:
            for bridge in BRIDGES.values():
                run(*ip, "link", "add", bridge, "type", "bridge")
                run(*ip, "link", "set", bridge, "up")
            run(*ip, "address", "add", "10.77.0.254/24", "dev", "mgmt")
            run(*ip, "link", "set", "lo", "up")
            yield
        finally:
            run("ip", "netns", "del", self.namespace)

    @contextmanager
    def booted(self, name: str, root: Path) -> Iterator[None]:
        """One machine, from its boot until it is gone."""
        number = self.names.index(name)
        extra = [f"--network-veth-extra=v{number}{nic}:{nic}" for nic in ("eth2", "eth3")]
        command = self.inside(
            "systemd-nspawn",
            "--register=no",
            "--keep-unit",
            "--quiet",
            "--volatile=overlay",
            f"--directory={root}",
            f"--machine={name}",
            "--boot",
            "--network-bridge=mgmt",
            *extra,
            f"--bind-ro={self.key}.pub:/root/.ssh/authorized_keys",
        )
        with (self.place / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._connect(name, process)
            yield
        finally:
            # Twice: nspawn passes the first on, as an order to shut down.
            for order in (signal.SIGTERM, signal.SIGKILL):
                if process.poll() is None:
                    os.killpg(process.pid, order)
                    with_grace_s = 20 if order is signal.SIGTERM else 60
                    try:
                        process.wait(with_grace_s)
                    except subprocess.TimeoutExpired:
                        continue

    def _connect(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Addresses on every NIC, as an operator's network has given them."""
        number = self.names.index(name)
        leader = self._leader(process)
        ip = ["nsenter", "-t", str(leader), "-n", "ip"]
        for index, (nic, bridge) in enumerate(BRIDGES.items()):
            if nic != "host0":
                outer = f"v{number}{nic}"
                run("ip", "-n", self.namespace, "link", "set", outer, "master", bridge, "up")
            run(*ip, "address", "add", f"10.77.{index}.{number + 1}/24", "dev", nic)
            run(*ip, "link", "set", nic, "up")
        eventually(
            lambda: self.ssh(name, "true").returncode == 0, f"ssh to {name}", within_s=BOOT_S
        )

    @staticmethod
    def _leader(process: subprocess.Popen[bytes]) -> int:
        """The first process of the machine, once its NICs are there."""
        end_s = time.monotonic() + BOOT_S
        while time.monotonic() < end_s:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for child in children:
                seen = subprocess.run(
                    ["nsenter", "-t", child, "-n", "ip", "link", "show", "eth3"],
                    capture_output=True,
                    check=False,
                )
                if seen.returncode == 0:
                    return int(child)
            time.sleep(0.2)
        raise TimeoutError("a machine without its NICs")


@contextmanager
def running(place: Path, root: Path, names: Sequence[str]) -> Iterator[Machines]:
    """Machines that answer to ssh."""
    machines = Machines(place, names)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(machines.key))
    with ExitStack() as stack:
        stack.enter_context(machines.network())
        for name in names:
            stack.enter_context(machines.booted(name, root))
        yield machines


def later_version(text: str) -> str:
    """Versions in this text, each made a later one for the same Debian."""
    return re.sub(r"(\d\S*-\d+)(\+deb\d+)", r"\1.1\2", text)


def later(packages: Sequence[Path], place: Path) -> list[Path]:
    """The same packages as a later version, in `place`."""
    tree = place / "tree"
    for deb in packages:
        run("dpkg-deb", "-R", str(deb), str(tree), timeout_s=1800)
        control = tree / "DEBIAN/control"
        control.write_text(later_version(control.read_text()))
        build = ("dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "-b", str(tree), str(place))
        run(*build, timeout_s=1800)
        shutil.rmtree(tree)
    return sorted(place.glob("*.deb"))
