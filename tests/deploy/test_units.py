"""The systemd units, the configuration files and the how-to agree with each other."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.daemons import DEPLOY
from tests.link import running
from tests.live import syntony

from syntony.controller.config import EnrolmentConfig
from syntony.model import parse_duration_ns
from syntony.wire.roles import Role

HOW_TO = DEPLOY.parent / "docs/how-to/deploy.md"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
DAEMONS = [path for path in UNITS if "@" not in path.name]
TIMERS = sorted((DEPLOY / "systemd").glob("*.timer"))
PROMETHEUS = HOW_TO.with_name("prometheus.md")
RENEW_ENV = DEPLOY / "config/renew.env"
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
    for one, other in itertools.combinations(DAEMONS, 2):
        mine, theirs = (set(settings(each)["RuntimeDirectory"]) for each in (one, other))
        assert mine, one
        kept = [settings(each)["RuntimeDirectoryPreserve"] == ["yes"] for each in (one, other)]
        assert not mine & theirs or all(kept), (one.name, other.name)


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
    assert len(ports) == len(set(ports)) == 5, ports


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


@pytest.mark.parametrize("path", DAEMONS, ids=lambda path: path.name)
def test_units_run_what_the_how_to_installs(path: Path) -> None:
    (command,) = settings(path)["ExecStart"]
    program, _, arguments = command.partition(" ")
    assert f"python3 -m venv {Path(program).parents[1]}\n" in re.sub(r" +#.*", "", shell())
    assert arguments.split()[-1] in {f"/etc/syntony/{name}.toml" for name in CONFIG}
    (user,) = settings(path)["User"]
    assert re.search(rf"^useradd .* {user}$", shell(), re.MULTILINE)
    assert path.name in shell()


def test_the_reactor_may_probe_over_verbs() -> None:
    """Eight NICs with 21 paths each: MB as in docs/reference/verbs-probes.md."""
    its = unit("reactor")
    assert "char-infiniband_verbs rw" in its["DeviceAllow"]
    assert its["LimitMEMLOCK"] == ["infinity"]
    text = (HOW_TO.parents[1] / "reference/verbs-probes.md").read_text()
    found = re.search(r"([\d.]+) MB for each NIC and ([\d.]+) MB for each path", text)
    assert found
    nic_mb, path_mb = map(float, found.groups())
    (limit,) = its["MemoryMax"]
    assert int(limit.removesuffix("M")) >= 44 + 8 * (nic_mb + 21 * path_mb)


def test_neither_half_of_an_agent_needs_the_other() -> None:
    """What would stop one with the other, or start it in vain, is in neither unit."""
    for name in ("agent", "reactor"):
        its = unit(name)
        assert not its.keys() & {
            "Requires",
            "Requisite",
            "BindsTo",
            "PartOf",
            "Upholds",
            "OnFailure",
        }
        assert its["Restart"] == ["always"]
    assert "syntony-reactor.service" in unit("agent")["Wants"][0]
    assert unit("agent")["RuntimeDirectory"] == unit("reactor")["RuntimeDirectory"]
    assert unit("agent")["StateDirectory"] == unit("reactor")["StateDirectory"]


def test_the_how_to_asks_at_the_socket_that_is_configured() -> None:
    (socket,) = [path for path in config("controller") if path.endswith(".sock")]
    assert f"--controller unix:{socket}" in shell()


@pytest.mark.parametrize("path", [*UNITS, *TIMERS], ids=lambda path: path.name)
def test_systemd_accepts_the_units(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian: systemd): the units are NOT checked by systemd")
    for each in (path, path.with_suffix(".service")):
        (command,) = settings(path.with_suffix(".service"))["ExecStart"]
        text = each.read_text().replace(command.split()[0], "/bin/true")
        (tmp_path / each.name).write_text(text)
    requested = path.name.replace("@", "@prometheus")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", requested],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )  # fmt: skip
    stem = path.stem.removesuffix("@")
    about_ours = [line for line in done.stderr.splitlines() if stem in line]
    assert not about_ours, done.stderr


def renewal(name: str) -> list[str]:
    """The command that the timer of a member starts."""
    (command,) = settings(DEPLOY / "systemd/syntony-renew@.service")["ExecStart"]
    env = dict(line.split("=") for line in RENEW_ENV.read_text().splitlines() if line[0] != "#")
    for variable, value in env.items():
        command = command.replace(f"${{{variable}}}", value)
    assert "$" not in command
    return command.replace("%i", name).split()


def test_the_timer_renews_where_prometheus_reads() -> None:
    _, *words = renewal("prometheus")
    files = {words[words.index(f"--{each}") + 1] for each in ("ca", "cert", "key")}
    read = (DEPLOY / "prometheus/prometheus.yml").read_text()
    assert set(re.findall(r"\w+_file: (\S+)", read)) == files
    (place,) = settings(DEPLOY / "systemd/syntony-renew@.service")["StateDirectory"]
    assert {str(Path(each).parent) for each in files} == {
        f"/var/lib/{place.replace('%i', 'prometheus')}"
    }
    text = PROMETHEUS.read_text()
    for each in ("syntony-renew@.service", "syntony-renew@.timer", "renew.env"):
        assert each in text
    assert f"--dir {Path(min(files)).parent}" in text
    assert "systemctl enable --now syntony-renew@prometheus.timer" in text


def test_the_timer_comes_often_enough_for_a_day() -> None:
    """Renewal is due in the last third of a certificate's life; some tries may fail."""
    (timer,) = TIMERS
    hours, minutes = (
        settings(timer)[name][0] for name in ("OnUnitActiveSec", "RandomizedDelaySec")
    )
    longest_ns = parse_duration_ns(hours) + parse_duration_ns(minutes)
    assert EnrolmentConfig().lifetime_ns // 3 >= 5 * longest_ns
    assert settings(timer)["OnBootSec"]


def test_the_command_of_the_timer_renews(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        place = tmp_path / "syntony-scraper"
        issued = controller.issue("scraper", Role.SCRAPER, place="syntony-scraper")
        before = Path(issued.cert).read_bytes()
        words = [
            word.replace("/var/lib", str(tmp_path)).replace(
                "syntony.example:8443", f"127.0.0.1:{controller.port}"
            )
            for word in renewal("scraper")
        ]
        assert str(place) in " ".join(words)
        for more, says, changed in (((), "not due yet", False), (("--early",), "renewed", True)):
            done = syntony(*words[1:], *more)
            assert done.returncode == 0, done.stderr
            assert says in done.stderr
            assert (Path(issued.cert).read_bytes() != before) is changed
