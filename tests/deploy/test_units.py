"""The systemd units, the configuration files and the how-to agree with each other."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.daemons import DEPLOY

HOW_TO = DEPLOY.parent / "docs/how-to/deploy.md"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CONFIG = {name: DEPLOY / f"config/{name}.toml" for name in ("agent", "controller")}


def settings(unit: Path) -> dict[str, list[str]]:
    """Settings of a unit to their values, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in unit.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name].append(value)
    return found


def unit(name: str) -> dict[str, list[str]]:
    return settings(DEPLOY / f"systemd/syntony-{name}.service")


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in strings(each)]
    if isinstance(value, list):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


def config(name: str) -> list[str]:
    return strings(tomllib.loads(CONFIG[name].read_text()))


def shell() -> str:
    return "\n".join(re.findall(r"```sh\n(.*?)```", HOW_TO.read_text(), re.DOTALL))


def test_no_unit_removes_what_another_one_uses() -> None:
    """systemd removes a unit's runtime directory when that unit stops."""
    for one, other in itertools.combinations(UNITS, 2):
        mine, theirs = (set(settings(each)["RuntimeDirectory"]) for each in (one, other))
        assert mine, one
        assert not mine & theirs, (one.name, other.name)


@pytest.mark.parametrize("name", CONFIG)
def test_what_a_daemon_writes_is_in_a_directory_that_its_unit_makes(name: str) -> None:
    its = unit(name)
    made = {
        *(f"/run/{each}" for each in its["RuntimeDirectory"]),
        *(f"/var/lib/{each}" for each in its["StateDirectory"]),
    }
    written = [path for path in config(name) if path.startswith(("/run/", "/var/lib/"))]
    assert written
    for path in written:
        assert any(Path(path).is_relative_to(place) for place in made), path


def test_both_daemons_fit_on_one_host() -> None:
    ports = [
        address.rpartition(":")[2]
        for name in CONFIG
        for line in CONFIG[name].read_text().splitlines()
        if (found := re.match(r'listen = "([^"]+)"', line))
        for address in [found[1]]
    ]
    assert len(ports) == len(set(ports)) == 4, ports


@pytest.mark.parametrize("name", CONFIG)
def test_the_how_to_installs_every_file_that_is_configured(name: str) -> None:
    wanted = [path for path in config(name) if path.startswith("/etc/syntony/")]
    wanted.append(f"/etc/syntony/{name}.toml")
    installed = {
        f"{line.split()[-1]}{Path(source).name}"
        for line in (text.split("#")[0].strip() for text in shell().splitlines())
        if line.startswith("install -m")
        for source in line.split()[3:-1]
    }
    assert set(wanted) <= installed


def test_the_how_to_makes_every_certificate_that_is_configured() -> None:
    made = {"/var/lib/syntony/tls"} if "syntony enrol join gpu001 " in shell() else set()
    for place in re.findall(r"syntony enrol authority (\S+)", shell()):
        made |= {place, f"{place}/tls"}
    for name in CONFIG:
        pem = [path for path in config(name) if path.endswith((".crt", ".key"))]
        assert len(pem) == 3
        assert {str(Path(path).parent) for path in pem} <= made


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_run_what_the_how_to_installs(path: Path) -> None:
    (command,) = settings(path)["ExecStart"]
    program, _, arguments = command.partition(" ")
    assert f"python3 -m venv {Path(program).parents[1]}\n" in re.sub(r" +#.*", "", shell())
    assert arguments.split()[-1] in {f"/etc/syntony/{name}.toml" for name in CONFIG}
    (user,) = settings(path)["User"]
    assert re.search(rf"^useradd .* {user}$", shell(), re.MULTILINE)
    assert path.name in shell()


def test_the_how_to_asks_at_the_socket_that_is_configured() -> None:
    (socket,) = [path for path in config("controller") if path.endswith(".sock")]
    assert f"--controller unix:{socket}" in shell()


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_units(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    (command,) = settings(path)["ExecStart"]
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace(command.split()[0], "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    about_ours = [line for line in done.stderr.splitlines() if path.name in line]
    assert not about_ours, done.stderr
