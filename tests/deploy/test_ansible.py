"""The Ansible role, over real sshd, on machines with Debian's own systemd and apt.

The packages are those in dist/ (`make release` or, on the suite's own Debian, `make deb`), or in
SYNTONY_DEBS: building them takes longer than this test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.deploy.daemons import DEPLOY
from tests.deploy.machines import PROGRAMS, Machines, later, later_version, machine_root, running
from tests.live import eventually

SUITES = {"bookworm": "+deb12_", "trixie": "+deb13_"}
SUITE = os.environ.get("SUITE", "bookworm")
DEBS = Path(os.environ.get("SYNTONY_DEBS", DEPLOY.parent / "dist"))
PLACES = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
ANSIBLE = os.environ.get("ANSIBLE_PLAYBOOK") or shutil.which("ansible-playbook", path=PLACES)
HOSTS = ("gpu001", "gpu002", "gpu003")
SOCKET = "unix:/run/syntony-controller/controller.sock"
LONG_S = 600.0
pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="needs root, for machines: the Ansible role is NOT run"
    ),
    pytest.mark.skipif(
        ANSIBLE is None,
        reason="needs ansible-core (pip install ansible-core): the Ansible role is NOT run",
    ),
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in PROGRAMS),
        reason="needs systemd-container, debootstrap and openssh-client (Debian packages): the "
        "Ansible role is NOT run",
    ),
    pytest.mark.skipif(
        not list(DEBS.glob(f"syntony-agent_*{SUITES[SUITE]}*.deb")),
        reason=f"needs packages for {SUITE} in {DEBS} (make release): the Ansible role is NOT run",
    ),
]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    place = tmp_path_factory.mktemp("machines")
    with running(place, machine_root(SUITE), HOSTS) as found:
        yield found


def play(
    machines: Machines, packages: Path = DEBS, **variables: object
) -> subprocess.CompletedProcess[str]:
    hosts = {name: {"ansible_host": machines.address(name)} for name in HOSTS}
    nics = [{"name": "eth2", "rail": 0}, {"name": "eth3", "rail": 1}]
    inventory = {
        "syntony_controller": {"hosts": {HOSTS[0]: {}}},
        "syntony_agents": {"hosts": hosts, "vars": {"syntony_nics": nics}},
        "all": {
            "vars": {
                "ansible_user": "root",
                "ansible_ssh_private_key_file": str(machines.key),
                "ansible_python_interpreter": "/usr/bin/python3",
                "syntony_address": machines.address(HOSTS[0]),
                "syntony_packages": str(packages),
                **variables,
            }
        },
    }
    file = machines.place / "inventory.json"
    file.write_text(json.dumps(inventory))
    environment = {
        **os.environ,
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "ANSIBLE_SSH_COMMON_ARGS": f"-o UserKnownHostsFile={machines.place}/known",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(machines.place),
        "ANSIBLE_TIMEOUT": f"{LONG_S:.0f}",
        "ANSIBLE_LOCAL_TEMP": str(machines.place),
        "ANSIBLE_NOCOLOR": "1",
    }
    return subprocess.run(
        machines.inside(str(ANSIBLE), "-i", str(file), "site.yml"),
        cwd=DEPLOY / "ansible",
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def well(machines: Machines, name: str) -> bool:
    """Every step of the deployment guide is done there."""
    return machines.ssh(name, "syntony doctor --for agent").returncode == 0


def test_three_machines_become_a_fleet(machines: Machines) -> None:
    begun_s = time.monotonic()
    done = play(machines)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

    def measured() -> bool:
        """Each machine probes both others on both rails."""
        asked = machines.ssh(HOSTS[0], f"syntony probe matrix --json --controller {SOCKET}")
        return asked.returncode == 0 and all(
            f"{name}/{nic}" in asked.stdout for name in HOSTS for nic in ("eth2", "eth3")
        )

    eventually(measured, "a matrix of three hosts", within_s=LONG_S)
    print(f"from nothing to a matrix of three hosts: {time.monotonic() - begun_s:.0f} s")
    for name in HOSTS:
        eventually(partial(well, machines, name), f"every step of {name} done", within_s=LONG_S)
    asked = machines.ssh(HOSTS[0], "syntony doctor --for controller --json")
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "3 attached" in asked.stdout


def test_a_second_run_changes_nothing(machines: Machines) -> None:
    done = play(machines)
    assert done.returncode == 0, done.stdout[-4000:]
    recap = done.stdout.partition("PLAY RECAP")[2]
    assert recap.count("changed=0") == len(HOSTS), recap


def test_failover_is_turned_on_with_the_rights_for_it(machines: Machines) -> None:
    done = play(machines, syntony_traffic={"mode": "act", "jobs": ["train-*"]})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

    def acting() -> bool:
        asked = machines.ssh(HOSTS[0], f"syntony failover status --json --controller {SOCKET}")
        hosts = json.loads(asked.stdout)["hosts"] if asked.stdout else []
        modes = {each["host"]: each["report"]["mode"] for each in hosts}
        return modes.keys() == {*HOSTS} and all(mode[:3] == "act" for mode in modes.values())

    eventually(acting, "failover on three hosts", within_s=LONG_S)
    for name in HOSTS:
        shown = machines.ssh(name, "systemctl show --property AmbientCapabilities syntony-reactor")
        assert "cap_sys_ptrace" in shown.stdout
        eventually(partial(well, machines, name), f"every step of {name}", within_s=LONG_S)


def versions(machines: Machines, name: str) -> set[str]:
    asked = machines.ssh(name, "dpkg-query -W -f '${Version}\\n' 'syntony-*'")
    return set(asked.stdout.split())


def test_newer_packages_and_the_older_ones_again(machines: Machines) -> None:
    """An upgrade and its rollback, each by the same command. The controller's host is an agent's as
    well, and keeps both: only with all of its packages at once does apt remove none of them."""
    older = versions(machines, HOSTS[0])
    newer = machines.place / "newer"
    newer.mkdir()
    later(list(DEBS.glob(f"syntony-*{SUITES[SUITE]}*.deb")), newer)
    for packages, wanted in ((newer, set(map(later_version, older))), (DEBS, older)):
        done = play(machines, packages)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        for name in HOSTS:
            assert versions(machines, name) == wanted
            copied = machines.ssh(name, "ls /var/cache/syntony").stdout.split()
            assert {each.split("_")[1] for each in copied} == wanted
            eventually(partial(well, machines, name), f"every step of {name}", within_s=LONG_S)
    removed = machines.ssh(HOSTS[0], "grep ' remove syntony' /var/log/dpkg.log")
    assert not removed.stdout, removed.stdout


def test_purged_packages_leave_a_machine_as_it_was(machines: Machines) -> None:
    """What the administrator has added to systemd's directories stays."""
    machines.ssh(HOSTS[2], "rm -r /etc/systemd/system/syntony-reactor.service.d")
    gone = machines.ssh(HOSTS[2], "apt-get purge -y -qq syntony-agent syntony-tools 2>&1")
    assert gone.returncode == 0, gone.stdout
    # systemd may remember names of units that are gone ("not-found"); a link to one is a remnant.
    look = (
        "find / -xdev -path /proc -prune -o -path /var/log -prune -o -path /var/cache -prune -o "
        "-name '*syntony*' -print; getent passwd syntony; getent group syntony; "
        "systemctl list-units --all 'syntony*' --no-legend | grep -v not-found"
    )
    left = machines.ssh(HOSTS[2], look)
    assert not left.stdout.strip(), left.stdout
