"""Checks which steps of docs/how-to/deploy.md are done here, and prints the next command."""

from __future__ import annotations

import datetime as dt
import os
import pwd
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
from cryptography import x509

import syntony
from syntony.agent.config import AgentConfig
from syntony.config import load_config
from syntony.controller.config import ControllerConfig
from syntony.errors import MissingError, SyntonyError
from syntony.io.capabilities import grantable
from syntony.io.clock_page import ClockPageReader
from syntony.io.credentials import load_credentials
from syntony.io.files import is_denied
from syntony.io.installation import is_older
from syntony.io.interfaces import address
from syntony.lab.doctor import LabRequirement, RequirementLevel
from syntony.model.tls_files import TlsFiles
from syntony.wire.messages import FleetQuery

CONFIG = {"agent": "/etc/syntony/agent.toml", "controller": "/etc/syntony/controller.toml"}
USER = "syntony"
HOME = Path("/var/lib/syntony")
_AS_USER = f"runuser -u {USER} -- syntony"
_AS_ROOT = "run this as root"
_CONNECT_S = 3.0
_NET = Path("/sys/class/net")
_BOOTED = Path("/run/systemd/system")
MIN_FREE_BYTES = 16 << 20
"""Minimum free space for state and spools: a quarter of a spool's usual limit."""
_USE = stat.S_IWUSR | stat.S_IXUSR
_SET_CLOCK = "timedatectl set-ntp true (or chronyc makestep), then: date -u"
_GRANT = (
    "in a container: add the capabilities NET_ADMIN and NET_RAW (docker run --cap-add, "
    "securityContext.capabilities); on a host: systemctl edit syntony-agent"
)


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


class StepDoubtfulError(StepNotDoneError):
    """A step whose lack costs a feature, or that cannot be checked: those after it can be done."""


def examine(role: str, path: str | None = None) -> Iterator[LabRequirement]:
    """Each step in order, up to the first that is not done: those after it depend on it.

    Args:
        role: ``agent`` or ``controller``.
        path: its configuration file; the packages' own by default.
    """
    file = path or CONFIG[role]
    try:
        for step in _agent(file) if role == "agent" else _controller(file):
            yield (found := _checked(step))
            if found.level is RequirementLevel.MISSING:
                return
    except SyntonyError as error:
        remedy = f"edit {file}, then: syntony config check {file}"
        if is_denied(file):
            remedy = _AS_ROOT
        elif not Path(file).exists():
            remedy = f"apt install syntony-{role}, or copy deploy/config/{role}.toml to {file}"
        yield LabRequirement("configuration", RequirementLevel.MISSING, str(error), remedy)


def _checked(step: DoctorStep) -> LabRequirement:
    try:
        return LabRequirement(step.name, RequirementLevel.OK, step.look())
    except StepNotDoneError as lack:
        doubtful = isinstance(lack, StepDoubtfulError)
        level = RequirementLevel.WARNING if doubtful else RequirementLevel.MISSING
        return LabRequirement(step.name, level, str(lack), lack.remedy or step.remedy)
    except SyntonyError as error:
        return LabRequirement(step.name, RequirementLevel.MISSING, str(error), step.remedy)


def _agent(file: str) -> Iterator[DoctorStep]:
    config = load_config(file, AgentConfig)
    address = config.controllers[0].rpartition(":")[0]
    edit = f"edit {file}, then: syntony config check {file}"
    join = (
        f"{_AS_USER} enrol join {config.host} --at {address}:8444 --fingerprint CA --token TOKEN"
        f" (both from `syntony enrol token agent {config.host}` on the controller's host)"
    )
    yield DoctorStep("configuration", lambda: f"{file}: host {config.host}", edit)
    yield DoctorStep("NICs", partial(_nics, file, config), edit)
    yield _user()
    yield DoctorStep(
        "directory", partial(_directory, Path(config.spool_dir).parent), _directory_remedy()
    )
    yield DoctorStep("clock", _local_clock, _SET_CLOCK)
    yield DoctorStep("certificate", partial(_certificate, config.tls), join)
    yield DoctorStep(
        "controller reached",
        partial(_reached, config.controllers),
        f"open TCP to {' and '.join(config.controllers)} in the firewall; start syntony-controller",
    )
    yield DoctorStep("capabilities", _capabilities, _GRANT)
    yield _unit("syntony-reactor", f"agent reactor --config {file}")
    yield _unit("syntony-agent", f"agent --config {file}")
    page = Path(config.clock.dir) / "clock"
    yield DoctorStep("fleet time", partial(_clock, page), _log("syntony-agent"))


def _controller(file: str) -> Iterator[DoctorStep]:
    config = load_config(file, ControllerConfig)
    yield DoctorStep(
        "configuration",
        lambda: f"{file}: listens at {config.listen}",
        f"edit {file}, then: syntony config check {file}",
    )
    yield _user()
    yield DoctorStep("directory", partial(_directory, HOME), _directory_remedy())
    yield DoctorStep("clock", _local_clock, _SET_CLOCK)
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
    yield _unit("syntony-controller", f"controller --config {file}")
    at = config.local_socket
    yield DoctorStep("answers", partial(_answers, at), _log("syntony-controller"))
    yield DoctorStep(
        "agents", partial(_agents, at), f"syntony enrol token agent HOST --controller unix:{at}"
    )


def _nics(file: str, config: AgentConfig) -> str:
    """The NICs and the addresses that are probed."""
    names = [nic.name for nic in config.nics]
    missing = [name for name in names if not (_NET / name).exists()]
    if missing:
        have = " ".join(sorted(each.name for each in _NET.iterdir()))
        raise StepNotDoneError(f"no {' '.join(missing)} here; this host has {have}")
    family, other = config.family, "ipv4" if config.family == "ipv6" else "ipv6"
    lacking = [name for name in names if not _has_address(name, family)]
    if not lacking:
        return f"{' '.join(names)}, probed at their {family} addresses"
    lack = f"no {family} address at {' '.join(lacking)}"
    if all(_has_address(name, other) for name in names):
        remedy = f'set family = "{other}" in {file} (as on all hosts), then: '
        raise StepNotDoneError(f"{lack}, but {other} ones", f"{remedy}syntony config check {file}")
    raise StepNotDoneError(lack, f"ip -br address show dev {lacking[0]}; give it one")


def _has_address(name: str, family: str) -> bool:
    try:
        return bool(address(name, family))
    except MissingError:
        return False


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
    place = os.statvfs(path)
    if place.f_flag & os.ST_RDONLY:
        mount = f"$(findmnt -n -o TARGET --target {path})"
        raise StepNotDoneError(
            f"{path} is on a read-only file system", f"dmesg | tail; mount -o remount,rw {mount}"
        )
    if path.stat().st_mode & _USE != _USE:
        raise StepNotDoneError(f"{path} cannot be written by {USER}: its mode forbids that")
    free = place.f_bavail * place.f_frsize
    if free < MIN_FREE_BYTES:
        raise StepNotDoneError(
            f"{path} has {free >> 20} MiB free, {MIN_FREE_BYTES >> 20} are needed",
            f"df -h {path}; du -xhd1 {path}",
        )
    if place.f_files and not place.f_favail:
        raise StepNotDoneError(f"{path} has no free inode", f"df -i {path}")
    return f"{path}: {free >> 20} MiB free"


def _local_clock() -> str:
    """Whether this host's clock can be right: certificates are not valid before they are made."""
    now = dt.datetime.now(dt.UTC)
    built = dt.datetime.fromtimestamp(Path(syntony.__file__).stat().st_mtime, dt.UTC)
    if now < built - dt.timedelta(days=1):  # files from an archive may be in local time
        raise StepNotDoneError(f"it says {now:%F %R} UTC, but this program is of {built:%F}")
    return f"{now:%F %R} UTC"


def _capabilities() -> str:
    """What a daemon here can be granted: units and containers bound it."""
    lacking = [each for each in grantable() if each.ok is not True]
    if lacking:
        raise StepDoubtfulError("; ".join(f"{each.name} {each.detail}" for each in lacking))
    return "can be granted"


def _authority(home: Path) -> str:
    try:
        lacking = [name for name in ("ca.crt", "ca.key") if not (home / name).exists()]
    except PermissionError:
        raise StepNotDoneError(f"{home} cannot be read", _AS_ROOT) from None
    if lacking:
        raise StepNotDoneError(f"{home} has no {' and no '.join(lacking)}")
    _check_readable(home / "ca.key", home)
    return f"{home}; keep a copy of ca.key offline"


def _check_readable(path: Path, top: Path) -> None:
    """Raises `StepNotDoneError`: not by the daemons' user, as if root made it without `runuser`."""
    user = pwd.getpwnam(USER)
    groups = os.getgrouplist(USER, user.pw_gid)

    def allowed(place: Path, bit: int) -> bool:
        found = place.stat()
        shift = 6 if found.st_uid == user.pw_uid else 3 if found.st_gid in groups else 0
        return user.pw_uid == 0 or bool(found.st_mode >> shift & bit)

    path = path.absolute()
    searched = all(allowed(each, stat.S_IXOTH) for each in path.parents)
    if not (searched and allowed(path, stat.S_IROTH)):
        raise StepNotDoneError(
            f"{path} cannot be read by the user {USER}", f"chown -R {USER}: {top}"
        )


def _certificate(files: TlsFiles) -> str:
    """The certificate in force, and how long it is valid."""
    if is_denied(files.key):
        raise StepNotDoneError(f"{files.key} cannot be read", _AS_ROOT)
    certificate = x509.load_pem_x509_certificate(load_credentials(files).certificate)
    for each in map(Path, (files.ca, files.cert, files.key)):
        _check_readable(each, each.parent)
    now = dt.datetime.now(dt.UTC)
    if now < certificate.not_valid_before_utc:
        raise StepNotDoneError(
            f"{files.cert} is valid from {certificate.not_valid_before_utc:%F %R} UTC, but this "
            f"host's clock says {now:%F %R} UTC",
            _SET_CLOCK,
        )
    left = certificate.not_valid_after_utc - now
    if left <= dt.timedelta(0):
        raise StepNotDoneError(
            f"{files.cert} expired at {certificate.not_valid_after_utc:%F %R} UTC; this host's "
            f"clock says {now:%F %R} UTC"
        )
    return f"{files.cert}: good for {left.total_seconds() / 3600:.1f} h, then renewed by the daemon"


def _reached(addresses: Sequence[str]) -> str:
    """The first address that accepts connections: a standby does not."""
    failures = []
    for each in addresses:
        host, _, port = each.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
                return each
        except (OSError, ValueError) as error:
            failures.append(f"{each}: {error}")
    raise StepNotDoneError("; ".join(failures))


def _unit(name: str, words: str) -> DoctorStep:
    """`words`: what the unit runs."""
    if _has_systemd():
        return DoctorStep(name, partial(_active, name), f"systemctl enable --now {name}")
    return DoctorStep(name, _unchecked, f"if it does not run: {_AS_USER} {words}")


def _unchecked() -> str:
    raise StepDoubtfulError("not checked: this host runs no systemd")


def _log(unit: str) -> str:
    if _has_systemd():
        return f"journalctl -u {unit} -n 50"
    return f"read what {unit} writes to its standard error"


def _active(name: str) -> str:
    state = _systemctl("is-active", name) or "unknown"
    log = f"journalctl -u {name} -n 50"
    if state == "failed":
        raise StepNotDoneError("failed", log)
    if state == "activating":  # of a simple service: between an end and the next start
        raise StepNotDoneError("it ends soon after each start", log)
    if state != "active":
        raise StepNotDoneError(state)
    pid = _systemctl("show", "--property=MainPID", "--value", name)
    if pid.isdigit() and is_older(int(pid)):
        raise StepNotDoneError(
            "active since before the package was installed: an older version runs",
            f"systemctl restart {name}",
        )
    return "active"


def _systemctl(*words: str) -> str:
    done = subprocess.run(
        ["systemctl", *words], capture_output=True, text=True, timeout=10, check=False
    )
    return done.stdout.strip() or done.stderr.strip()


def _has_systemd() -> bool:
    """Whether it runs: as sd_booted(3) finds out."""
    return shutil.which("systemctl") is not None and _BOOTED.is_dir()


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
    doubtful = [check.name for check in checks if check.level is RequirementLevel.WARNING]
    but = f", but look at: {', '.join(doubtful)}" if doubtful else ""
    click.echo(f"next: {remedy}" if remedy else f"every step is done{but}", err=True)
