"""The Debian packages on three machines, by the commands of docs/how-to/deploy.md: installed,
upgraded, rolled back and purged.

The packages are those in dist/ or in SYNTONY_DEBS; SUITE=trixie for Debian 13. What a person does
that is no command of the page is done here: packages are copied, names put in /etc/hosts, `gpu001`
in the configuration replaced. Prints how long each part took.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests.deploy.daemons import DEPLOY
from tests.deploy.machines import PROGRAMS, Machines, later, later_version, machine_root, running
from tests.live import eventually

SUITES = {"bookworm": "+deb12_", "trixie": "+deb13_"}
SUITE = os.environ.get("SUITE", "bookworm")
DEBS = Path(os.environ.get("SYNTONY_DEBS", DEPLOY.parent / "dist"))
PAGE = DEPLOY.parent / "docs/how-to/deploy.md"
HOSTS = ("gpu001", "gpu002", "gpu003")
FIRST = HOSTS[0]
LONG_S = 1800.0
APT = "DEBIAN_FRONTEND=noninteractive "
pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="needs root, for machines: a deployment by hand is NOT tested"
    ),
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in PROGRAMS),
        reason="needs systemd-container, debootstrap and openssh-client (Debian packages): a "
        "deployment by hand is NOT tested",
    ),
    pytest.mark.skipif(
        not list(DEBS.glob(f"syntony-agent_*{SUITES[SUITE]}*.deb")),
        reason=f"needs packages for {SUITE} in {DEBS} (make release): a deployment by hand is "
        "NOT tested",
    ),
]


def typed(beginning: str) -> str:
    """The only command of the page that begins so, without its comment."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    (found,) = {line.partition("    #")[0].rstrip() for line in lines if line.startswith(beginning)}
    return found


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    place = tmp_path_factory.mktemp("machines")
    with running(place, machine_root(SUITE), HOSTS) as found:
        yield found


def on(machines: Machines, host: str, *commands: str) -> str:
    """Output of commands typed at a machine, each of which works."""
    done = machines.ssh(host, "set -e; " + "; ".join(commands))
    assert done.returncode == 0, f"{host}: {commands}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def packages(host: str, place: Path = DEBS) -> list[Path]:
    kinds = ["tools", "agent", *(["controller"] if host == FIRST else [])]
    found = [deb for kind in kinds for deb in place.glob(f"syntony-{kind}_*{SUITES[SUITE]}*.deb")]
    assert len(found) == len(kinds), found
    return found


def copy(machines: Machines, host: str, files: list[Path], to: str) -> None:
    subprocess.run(
        machines.inside(
            "scp", "-q", "-i", str(machines.key), "-o", "StrictHostKeyChecking=no",
            "-o", f"UserKnownHostsFile={machines.place}/known",
            *map(str, files), f"root@{machines.address(host)}:{to}",
        ),
        check=True, timeout=LONG_S,
    )  # fmt: skip


def copy_packages(machines: Machines, host: str) -> None:
    copy(machines, host, packages(host), "")
    address = machines.address(FIRST)
    on(machines, host, f"echo {address} syntony.example >>/etc/hosts", "apt-get update -qq")


def install(machines: Machines, host: str) -> None:
    """Section 1, and the names in section 3."""
    commands = [APT + typed("apt install ./syntony-tools_*.deb ./syntony-agent_") + " -y -q"]
    if host == FIRST:
        commands += [APT + typed("apt install ./syntony-tools_*.deb ./syntony-contr") + " -y -q"]
    long(machines, host, *commands, f"sed -i s/{FIRST}/{host}/ /etc/syntony/agent.toml")
    on(machines, host, typed("syntony config check"))


def long(machines: Machines, host: str, *commands: str) -> None:
    """The same as `on`, for what may take long."""
    done = subprocess.run(
        machines.inside(
            "ssh", "-i", str(machines.key), "-o", f"UserKnownHostsFile={machines.place}/known",
            f"root@{machines.address(host)}", "set -e; " + "; ".join(commands),
        ),
        capture_output=True, text=True, timeout=LONG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def join(machines: Machines, host: str, fingerprint: str) -> None:
    """Section 4, on one host."""
    token = on(machines, FIRST, typed("syntony enrol token agent").replace("gpu001", host))
    secret = token.split()[0]
    command = typed("runuser -u syntony -- syntony enrol join").replace("gpu001", host)
    command = command.replace('"$FINGERPRINT"', fingerprint).replace('"$TOKEN"', secret)
    start = typed("systemctl enable --now syntony-reactor")
    on(machines, host, command, start)


def started(machines: Machines, host: str) -> list[str]:
    """The processes of the host's daemons."""
    units = "syntony-agent syntony-reactor" + (" syntony-controller" if host == FIRST else "")
    pids = on(machines, host, f"systemctl show --value --property MainPID {units}").split()
    assert "0" not in pids, on(machines, host, f"systemctl status {units} || true")
    return pids


def changes_version(machines: Machines, host: str, command: str, version: str) -> None:
    """A command of apt: the daemons run anew, what was edited stays, all is well again."""
    before = started(machines, host)
    long(machines, host, command)
    kinds = "${Version}\\n' 'syntony-*'"
    assert set(on(machines, host, f"dpkg-query -W -f '{kinds}").split()) == {version}
    assert not set(before) & set(started(machines, host))
    on(machines, host, f"grep -q {host} /etc/syntony/agent.toml")
    eventually(partial(well, machines, host), f"{host} with {version}", within_s=LONG_S)


def upgraded_rolled_back_purged(machines: Machines) -> None:
    page = PAGE.read_text(encoding="utf-8")
    version = packages(FIRST)[0].name.split("_")[1]
    newer = later(packages(FIRST), machines.place)
    (upgrade,) = re.findall(r"`(apt install \./syntony-\*\.deb)`", page)
    (back,) = re.findall(r"`(apt install --allow-downgrades [^`]*)`", page)
    back = back.replace("_OLD", f"_{version}_amd64")
    host = HOSTS[1]
    for each in (FIRST, host):  # the controller first, then an agent
        files = [file for file in newer if each == FIRST or "controller" not in file.name]
        on(machines, each, "mkdir new")
        copy(machines, each, files, "new")
        changes_version(machines, each, f"cd new; {APT}{upgrade} -y -q", later_version(version))
    changes_version(machines, host, f"{APT}{back} -y -q", version)
    on(machines, FIRST, typed("syntony enrol revoke gpu001").replace(FIRST, host))
    on(machines, host, APT + typed("apt purge syntony-agent") + " -y -q")
    left = on(
        machines, host, "getent passwd syntony || true",
        "ls -d /opt/syntony /etc/syntony /var/lib/syntony /run/syntony 2>/dev/null || true",
        # These machines share control groups, in which the daemons of others keep units' names.
        "systemctl list-units --all --no-legend --state=loaded 'syntony*'",
    )  # fmt: skip
    assert left == ""


def well(machines: Machines, name: str) -> bool:
    return machines.ssh(name, "syntony doctor --for agent").returncode == 0


def test_three_machines_become_a_fleet_and_change_by_the_page(machines: Machines) -> None:
    took_s = {}
    begun_s = time.monotonic()

    def part(name: str) -> None:
        nonlocal begun_s
        now_s = time.monotonic()
        took_s[name] = round(now_s - begun_s)
        begun_s = now_s

    with ThreadPoolExecutor(len(HOSTS)) as hands:
        list(hands.map(partial(copy_packages, machines), HOSTS))
        part("copied")
        list(hands.map(partial(install, machines), HOSTS))
        part("installed")
        made = on(
            machines, FIRST,
            typed("runuser -u syntony -- syntony enrol authority"),
            typed("systemctl enable --now syntony-controller"),
        )  # fmt: skip
        (fingerprint,) = re.findall(r"fingerprint of the CA: (\S+)", made.replace("\n", " "))
        socket = "test -S /run/syntony-controller/controller.sock"
        eventually(
            lambda: machines.ssh(FIRST, socket).returncode == 0, "a controller", within_s=LONG_S
        )
        part("controller")
        for host in HOSTS:
            join(machines, host, fingerprint)
        part("joined")
    asked = typed("syntony probe matrix --controller unix:") + " --json"

    def measured() -> bool:
        """Each machine probes both others on both rails."""
        seen = machines.ssh(FIRST, asked)
        return seen.returncode == 0 and all(
            f"{name}/{nic}" in seen.stdout for name in HOSTS for nic in ("eth2", "eth3")
        )

    eventually(measured, "a matrix of three hosts", within_s=LONG_S)
    part("visible")
    print(f"Debian {SUITE}, seconds: {took_s}, load {os.getloadavg()[0]:.0f}")
    listed = on(machines, FIRST, typed("syntony enrol list"))
    assert all(host in listed for host in HOSTS)
    for host in HOSTS:
        eventually(partial(well, machines, host), f"every step of {host} done", within_s=LONG_S)
    on(machines, FIRST, "syntony doctor --for controller")
    upgraded_rolled_back_purged(machines)
