"""A real sshd on loopback ports, each of them a host with a temper of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.live import eventually
from tests.ports import free_port

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
KEYGEN = shutil.which("ssh-keygen")
_NOBODY = "setpriv --reuid=65534 --regid=65534 --clear-groups"
TEMPERS = {
    "plain": "",
    "hangs": "ForceCommand sleep 600",
    "half": f'ForceCommand {_NOBODY} sh -c "$SSH_ORIGINAL_COMMAND"',
    "german": "SetEnv LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LANGUAGE=de",
    "chatty": 'ForceCommand echo Willkommen; exec sh -c "$SSH_ORIGINAL_COMMAND"',
    "python-less": "ForceCommand echo 'sh: 1: python3: not found' >&2; exit 127",
}
"""Host to what its port does; `stranger`, `changed` and `closed` are only configured."""


@contextmanager
def running(folder: Path) -> Iterator[Path]:
    """The configuration with which ssh finds all of these hosts."""
    for name in ("host", "user", "stranger"):
        subprocess.run(
            [KEYGEN or "", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", folder / name],
            check=True,
        )  # fmt: skip
    ports = [free_port() for _ in TEMPERS]
    port = dict(zip(TEMPERS, ports, strict=True))
    if os.geteuid() == 0:  # where sshd gives its privileges up
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    (folder / "sshd_config").write_text(_sshd_config(folder, port))
    public = (folder / "host.pub").read_text().strip()
    other = (folder / "stranger.pub").read_text().strip()
    (folder / "known").write_text("".join(f"[127.0.0.1]:{p} {public}\n" for p in ports))
    (folder / "known-else").write_text("".join(f"[127.0.0.1]:{p} {other}\n" for p in ports))
    config = folder / "ssh_config"
    with (folder / "log").open("wb") as log, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else listens there
        config.write_text(_ssh_config(folder, {**port, "closed": closed.getsockname()[1]}))
        server = subprocess.Popen(
            [SSHD or "", "-D", "-e", "-f", folder / "sshd_config"], stdout=log, stderr=log
        )
        try:
            eventually(lambda: all(map(_listens, ports)), "sshd listens")
            yield config
        finally:
            server.terminate()
            server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as own:
        return own.connect_ex(("127.0.0.1", port)) == 0


def _sshd_config(folder: Path, ports: dict[str, int]) -> str:
    listen = "".join(f"ListenAddress 127.0.0.1:{port}\n" for port in ports.values())
    match = "".join(
        f"Match LocalPort {port}\n  {TEMPERS[name]}\n" for name, port in ports.items()
        if TEMPERS[name]
    )  # fmt: skip
    return f"""{listen}HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized
PidFile none
UsePAM no
StrictModes no
MaxStartups 100
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
LogLevel ERROR
{match}"""


def _ssh_config(folder: Path, ports: dict[str, int]) -> str:
    hosts = "".join(f"Host {name}\n  Port {port}\n" for name, port in ports.items())
    return f"""{hosts}Host stranger
  Port {ports["plain"]}
  IdentityFile {folder}/stranger
Host changed
  Port {ports["plain"]}
  UserKnownHostsFile {folder}/known-else
Host * !stranger
  IdentityFile {folder}/user
Host *
  HostName 127.0.0.1
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""
