"""Ports, units, paths and packages on the pages for operators are those of what is shipped."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_links import TOP

from syntony.agent.config import AgentConfig
from syntony.config import load_config
from syntony.controller.config import ControllerConfig
from syntony.mesh.plan import FIRST_SOURCE_PORT
from syntony.store.clickhouse import DEFAULT_PORT
from syntony.traffic.policy import Policy

HOW_TO = TOP / "docs/how-to"
DEPLOY = HOW_TO / "deploy.md"
PAGES = [
    HOW_TO / f"{name}.md"
    for name in ("deploy", "high-availability", "kubernetes", "prometheus", "replace-ca", "slurm")
]
SHIPPED = TOP / "deploy"
AGENT = load_config(SHIPPED / "config/agent.toml", AgentConfig)
CONTROLLER = load_config(SHIPPED / "config/controller.toml", ControllerConfig)
POSTGRESQL, HTTPS, ROCE = 5432, 443, 4791
_CODE = re.compile(r"^ *```\w*\n.*?^ *```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_UNIT = re.compile(r"\bsyntony-(?:agent|reactor|controller|renew)\b(?:@\w*)?(?:\.\w+)?")
_PATH = re.compile(r"(?<![\w.$}-])/(?:etc|var/lib|run|opt|usr/share)/syntony[\w./@-]*")
_PACKAGE = re.compile(r"\bsyntony-([a-z]+)_")


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


def firewall() -> dict[tuple[str, str], set[int]]:
    """The table's ports, by who connects to whom."""
    text = DEPLOY.read_text(encoding="utf-8").partition("### Firewall")[2].partition("\n## ")[0]
    found: dict[tuple[str, str], set[int]] = {}
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith(("| From", "| ---")):
            source, target, ports, _ = (cell.strip() for cell in line.strip("| ").split(" | ", 3))
            numbers = {int(each) for each in re.findall(r"\b\d{3,5}\b", ports)}
            found.setdefault((source, target), set()).update(numbers)
    return found


def test_the_firewall_lets_through_what_the_daemons_use() -> None:
    table = firewall()
    probed, rdma = "every probed NIC", "every probed RDMA NIC"
    metrics = port(AGENT.metrics.listen), port(CONTROLLER.metrics.listen)
    assert table == {
        (probed, probed): {AGENT.probe_port, FIRST_SOURCE_PORT},
        (rdma, rdma): {ROCE},
        ("switches", probed): set(),
        ("agents, people", "controller, gateways"): {port(CONTROLLER.listen)},
        ("gateways", "controllers"): {port(CONTROLLER.listen)},
        ("new members", "controller"): {port(CONTROLLER.enrolment.listen)},
        ("people", "controller, gateways"): {port(CONTROLLER.api.listen)},
        ("Prometheus", "agents"): {metrics[0]},
        ("Prometheus", "controller, gateways"): {metrics[1]},
        ("controller, gateways", "ClickHouse"): {DEFAULT_PORT},
        ("controller", "PostgreSQL"): {POSTGRESQL},
        ("controller", "receivers"): set(),
        ("controller", "OpenID Connect provider"): {HTTPS},
        ("jobs' hosts", "jobs' hosts"): {Policy().port},
    }
    assert port(AGENT.controllers[0]) == port(CONTROLLER.listen)


def code(page: Path) -> str:
    return "\n".join(_CODE.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_ports_of_our_daemons_are_theirs(page: Path) -> None:
    ours = {
        port(each)
        for each in (
            AGENT.metrics.listen, CONTROLLER.metrics.listen, CONTROLLER.listen,
            CONTROLLER.enrolment.listen, CONTROLLER.api.listen,
        )
    }  # fmt: skip
    others = {DEFAULT_PORT, POSTGRESQL, HTTPS, 9090, 9093, 9000, 22}
    named = {int(each) for each in re.findall(r"(?<=[\w\]]):(\d{2,5})\b(?![:\w-])", code(page))}
    assert named <= ours | others


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_units_are_shipped(page: Path) -> None:
    units = {path.name for path in (SHIPPED / "systemd").iterdir()}
    for line in re.findall(r"[^\n`]*\b(?:systemctl|journalctl|systemd)\b[^\n`]*", code(page)):
        for unit in _UNIT.findall(line.partition("#")[0]):
            name = re.sub(r"@\w*", "@", unit)
            full = name if "." in name else f"{name}.service"
            assert full in units, line


def known_paths() -> str:
    """Whatever ships or makes a path: configuration, units, packages, charts, defaults of code."""
    rooms = ("deploy", "src/syntony/cli", "src/syntony/agent", "src/syntony/controller")
    files = [path for room in rooms for path in (TOP / room).rglob("*") if path.is_file()]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


CHOSEN = ("/etc/syntony/pgpass", "/etc/syntony/tls", "/var/lib/syntony/ca2")
"""Places that a page itself decides on."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_paths_are_those_of_the_daemons(page: Path) -> None:
    known = known_paths()
    for found in {each.rstrip("/.") for each in _PATH.findall(code(page))}:
        path = found.removesuffix("-wal").removesuffix("-shm")
        if path.startswith("/usr/share/syntony/"):
            assert (SHIPPED / path.removeprefix("/usr/share/syntony/")).exists(), path
        elif not path.startswith(CHOSEN):
            # Or a file in a directory of a daemon: HOST.crt, control.db.
            is_known = path in known or path.rpartition("/")[0] in known
            assert is_known, path


def test_packages_are_made() -> None:
    control = (SHIPPED / "packages/debian/control").read_text(encoding="utf-8")
    made = set(re.findall(r"^Package: syntony-(\w+)$", control, re.MULTILINE))
    text = code(DEPLOY)
    named = set(_PACKAGE.findall(text))
    for line in re.findall(r"apt (?:purge|install)[^\n`]*", text):
        named |= set(re.findall(r"\bsyntony-([a-z]+)", line.partition("#")[0]))
    assert named == made


def test_shipped_paths_are_the_units() -> None:
    """The directories that the configuration names are those that units and packages make."""
    agent, controller = (
        tomllib.loads((SHIPPED / f"config/{name}.toml").read_text(encoding="utf-8"))
        for name in ("agent", "controller")
    )

    def unit(name: str, key: str) -> str:
        text = (SHIPPED / f"systemd/syntony-{name}.service").read_text(encoding="utf-8")
        (found,) = re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)
        return str(found)

    def inside(table: dict[str, Any], *keys: str) -> bool:
        return all(str(table[key]).startswith("/var/lib/syntony/") for key in keys)

    assert {unit(name, "StateDirectory") for name in ("agent", "reactor", "controller")} == {
        "syntony"
    }
    assert inside(agent, "spool_dir")
    assert inside(agent["tls"], "ca", "cert", "key")
    assert inside(controller, "tls_ca", "tls_cert", "tls_key", "state_dir", "store")
    assert (
        controller["local_socket"]
        == f"/run/{unit('controller', 'RuntimeDirectory')}/controller.sock"
    )
    assert agent["clock"]["dir"] == f"/run/{unit('agent', 'RuntimeDirectory')}"
    purge = (SHIPPED / "packages/debian/syntony-controller.postrm").read_text(encoding="utf-8")
    for key in ("state_dir", "store"):
        assert controller[key] in purge
    assert controller["enrolment"]["authority"] in purge
