"""Checks which steps of docs/how-to/deploy.md are done here, and prints the next command."""

from __future__ import annotations

import datetime as dt
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
from cryptography import x509

from syntony.agent.config import AgentConfig
from syntony.config import load_config
from syntony.controller.config import ControllerConfig
from syntony.errors import SyntonyError
from syntony.io.clock_page import ClockPageReader
from syntony.io.credentials import TlsFiles, load_credentials
from syntony.lab.doctor import LabRequirement, RequirementLevel
from syntony.wire.messages import FleetQuery

CONFIG = {"agent": "/etc/syntony/agent.toml", "controller": "/etc/syntony/controller.toml"}
USER = "syntony"
HOME = Path("/var/lib/syntony")
_AS_USER = f"runuser -u {USER} -- syntony"
_CONNECT_S = 3.0
_NET = Path("/sys/class/net")


class DoctorStep(NamedTuple):
    """One step: `look` describes what is there, or raises `StepNotDoneError`; `remedy` is a
    command."""

    name: str
    look: Callable[[], str]
    remedy: str


class StepNotDoneError(Exception):
    """A step is not done; `remedy` may be more exact than the step's."""

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.remedy = remedy


def examine(role: str, path: str | None = None) -> Iterator[LabRequirement]:
    """Each step in order, up to the first that is not done: those after it depend on it.

    Args:
        role: ``agent`` or ``controller``.
        path: its configuration file; the packages' own by default.
    """
    file = path or CONFIG[role]
    try:
        steps = _agent(file) if role == "agent" else _controller(file)
        for step in steps:
            try:
                yield LabRequirement(name=step.name, level=RequirementLevel.OK, detail=step.look())
            except StepNotDoneError as lack:
                remedy = lack.remedy or step.remedy
                yield LabRequirement(
                    name=step.name, level=RequirementLevel.MISSING, detail=str(lack), remedy=remedy
                )
                return
            except SyntonyError as error:
                yield LabRequirement(
                    name=step.name,
                    level=RequirementLevel.MISSING,
                    detail=str(error),
                    remedy=step.remedy,
                )
                return
    except SyntonyError as error:
        remedy = f"edit {file}, then: syntony config check {file}"
        if not Path(file).exists():
            remedy = f"apt install syntony-{role}, or copy deploy/config/{role}.toml to {file}"
        yield LabRequirement(
            name="configuration", level=RequirementLevel.MISSING, detail=str(error), remedy=remedy
        )


def _agent(file: str) -> Iterator[DoctorStep]:
    config = load_config(file, AgentConfig)
    address = config.controllers[0].rpartition(":")[0]
    edit = f"edit {file}, then: syntony config check {file}"
    join = (
        f"{_AS_USER} enrol join {config.host} --at {address}:8444 --fingerprint CA --token TOKEN"
        f" (both from `syntony enrol token agent {config.host}` on the controller's host)"
    )
    yield DoctorStep("configuration", lambda: f"{file}: host {config.host}", edit)
    yield DoctorStep("NICs", partial(_nics, [nic.name for nic in config.nics]), edit)
    yield _user()
    yield DoctorStep(
        "directory", partial(_directory, Path(config.spool_dir).parent), _directory_remedy()
    )
    yield DoctorStep("certificate", partial(_certificate, config.tls), join)
    yield DoctorStep(
        "controller reached",
        partial(_reached, config.controllers),
        f"open TCP to {' and '.join(config.controllers)} in the firewall; start syntony-controller",
    )
    for unit in ("syntony-reactor", "syntony-agent"):
        yield _unit(unit)
    page = Path(config.clock.dir) / "clock"
    yield DoctorStep("fleet time", partial(_clock, page), "journalctl -u syntony-agent -n 50")


def _controller(file: str) -> Iterator[DoctorStep]:
    config = load_config(file, ControllerConfig)
    yield DoctorStep(
        "configuration",
        lambda: f"{file}: listens at {config.listen}",
        f"edit {file}, then: syntony config check {file}",
    )
    yield _user()
    yield DoctorStep("directory", partial(_directory, HOME), _directory_remedy())
    if config.enrolment.listen:
        home = config.enrolment.authority
        yield DoctorStep(
            "authority",
            partial(_authority, Path(home)),
            f"{_AS_USER} enrol authority {home} --address NAME-OF-THIS-HOST",
        )
    yield DoctorStep(
        "certificate", partial(_certificate, config.tls), f"{_AS_USER} enrol authority --help"
    )
    yield _unit("syntony-controller")
    at = config.local_socket
    yield DoctorStep("answers", partial(_answers, at), "journalctl -u syntony-controller -n 50")
    yield DoctorStep(
        "agents", partial(_agents, at), f"syntony enrol token agent HOST --controller unix:{at}"
    )


def _nics(names: list[str]) -> str:
    missing = [name for name in names if not (_NET / name).exists()]
    if missing:
        have = " ".join(sorted(each.name for each in _NET.iterdir()))
        raise StepNotDoneError(f"no {' '.join(missing)} here; this host has {have}")
    return " ".join(names)


def _user() -> DoctorStep:
    make = f"useradd --system --home-dir {HOME} --shell /usr/sbin/nologin {USER}"
    return DoctorStep("user", _user_exists, make)


def _user_exists() -> str:
    try:
        return f"{USER}: uid {pwd.getpwnam(USER).pw_uid}"
    except KeyError:
        raise StepNotDoneError(f"there is no user {USER}") from None


def _directory_remedy() -> str:
    return f"install -d -m 700 -o {USER} -g {USER} {HOME}"


def _directory(path: Path) -> str:
    try:
        owner = path.owner()
    except (OSError, KeyError) as error:
        raise StepNotDoneError(
            f"{path}: {getattr(error, 'strerror', 'its owner has no name')}"
        ) from None
    if owner != USER:
        raise StepNotDoneError(f"{path} belongs to {owner}")
    return str(path)


def _authority(home: Path) -> str:
    try:
        lacking = [name for name in ("ca.crt", "ca.key") if not (home / name).exists()]
    except PermissionError:
        raise StepNotDoneError(f"{home} cannot be read", "run this as root") from None
    if lacking:
        raise StepNotDoneError(f"{home} has no {' and no '.join(lacking)}")
    return f"{home}; keep a copy of ca.key offline"


def _certificate(files: TlsFiles) -> str:
    """The certificate in force, and how long it is valid."""
    certificate = x509.load_pem_x509_certificate(load_credentials(files).certificate)
    left = certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)
    if left <= dt.timedelta(0):
        raise StepNotDoneError(f"{files.cert} expired at {certificate.not_valid_after_utc}")
    return f"{files.cert}: good for {left.total_seconds() / 3600:.1f} h, then renewed by the daemon"


def _reached(addresses: Sequence[str]) -> str:
    """The first address that accepts connections: a standby does not."""
    failures = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
                return address
        except (OSError, ValueError) as error:
            failures.append(f"{address}: {error}")
    raise StepNotDoneError("; ".join(failures))


def _unit(name: str) -> DoctorStep:
    return DoctorStep(name, partial(_active, name), f"systemctl enable --now {name}")


def _active(name: str) -> str:
    if shutil.which("systemctl") is None:
        raise StepNotDoneError(
            "this host has no systemd", f"run what ExecStart= of {name}.service says"
        )
    done = subprocess.run(
        ["systemctl", "is-active", name], capture_output=True, text=True, timeout=10, check=False
    )
    state = done.stdout.strip() or done.stderr.strip() or "unknown"
    if state == "failed":
        raise StepNotDoneError("failed", f"journalctl -u {name} -n 50")
    if state != "active":
        raise StepNotDoneError(state)
    return "active"


def _clock(page: Path) -> str:
    reading = ClockPageReader(page).now()
    if reading.bound_ns is None:
        raise StepNotDoneError(
            f"{reading.status}: a fleet of two hosts and some seconds are needed"
        )
    return f"{reading.status}, within {reading.bound_ns} ns"


def _ask(at: str) -> list[str]:
    from syntony.controller.client import ask

    agents = ask(f"unix:{at}", FleetQuery(), tls=None).agents
    return [agent.host for agent in agents if agent.connected]


def _answers(at: str) -> str:
    _ask(at)
    return f"at unix:{at}"


def _agents(at: str) -> str:
    hosts = _ask(at)
    if not hosts:
        raise StepNotDoneError("no agent is attached")
    return f"{len(hosts)} attached: {' '.join(hosts[:8])}{' …' if len(hosts) > 8 else ''}"


def hint(checks: list[LabRequirement]) -> None:
    """The next command, on stderr."""
    remedy = next((check.remedy for check in checks if check.level is RequirementLevel.MISSING), "")
    click.echo(f"next: {remedy}" if remedy else "every step is done", err=True)
