"""Opens and checks the files that a daemon's configuration names, as the daemon will."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from syntony.agent.config import AgentConfig
from syntony.errors import ConfigError, SyntonyError
from syntony.input_files import MAX_SECRET_BYTES, read_bytes
from syntony.io.credentials import is_issued_by, load_credentials
from syntony.io.operator_files import load_objectives, load_rules, load_topology
from syntony.model.tls_files import TlsFiles
from syntony.wire.roles import Role
from syntony.wire.x509 import Certificate, read_certificate

if TYPE_CHECKING:
    from syntony.controller.config import ControllerConfig, OidcConfig


class NamedFiles(NamedTuple):
    """One key of a configuration that names files."""

    key: str
    check: Callable[[], object]
    """Raises `SyntonyError`; may return what to note."""
    made_by: tuple[tuple[str, ...], str] = ((), "")
    """Files that need not be there yet, and the command that writes them: all of them."""


def check_files(path: str, config: AgentConfig | ControllerConfig) -> list[str]:
    """Check every file that `config`, read from `path`, names.

    Returns:
        Lines on what could not be checked: files that enrolment will write, or that only the
        daemon's user and root can read. And on a certificate that Prometheus cannot verify.

    Raises:
        ConfigError: a file is missing or invalid; names `path`, the key and the file.
    """
    notes = []
    for each in _of_agent(config) if isinstance(config, AgentConfig) else _of_controller(config):
        files, command = each.made_by
        if files and all(map(_is_absent, files)):
            notes.append(f"{each.key}: {files[0]} is not there yet; {command} writes it")
            continue
        try:
            found = each.check()
        except SyntonyError as error:
            if not isinstance(error.__cause__, PermissionError):
                raise ConfigError(f"{path}: {each.key}: {error}") from error
            notes.append(f"{each.key}: not checked: {error}; run this as root")
            continue
        if found and isinstance(found, str):
            notes.append(f"{each.key}: {found}")
    return notes


def _is_absent(path: str) -> bool:
    """Whether nothing is there; False also if that cannot be found out."""
    try:
        os.lstat(path)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def _of_agent(config: AgentConfig) -> Iterator[NamedFiles]:
    files = config.tls
    made_by = ((files.cert,), f"syntony enrol join {config.host}")
    yield NamedFiles("tls", partial(_agents_identity, config), made_by)


def _of_controller(config: ControllerConfig) -> Iterator[NamedFiles]:
    from syntony.controller.notify import check_receiver

    authority = config.enrolment.authority
    join = f"syntony enrol {'join' if config.gateway or not authority else 'authority'}"
    own = ((config.tls_cert, config.tls_key), join)
    yield NamedFiles("tls_cert", partial(_controllers_identity, config), own)
    if authority:
        home = Path(authority)
        files = tuple(str(home / name) for name in ("ca.crt", "ca.key"))
        made_by = (files, f"syntony enrol authority {authority}")
        yield NamedFiles("enrolment.authority", partial(_trusted, home, config.tls_ca), made_by)
    if config.alerts.rules:
        yield NamedFiles("alerts.rules", partial(load_rules, config.alerts.rules))
    for receiver in config.alerts.receivers:
        yield NamedFiles("alerts.receivers", partial(check_receiver, receiver))
    if config.sla:
        yield NamedFiles("sla", partial(load_objectives, config.sla))
    if config.topology:
        yield NamedFiles("topology", partial(load_topology, config.topology))
    if config.oidc is not None:
        yield NamedFiles("oidc", partial(_provider, config.oidc))


def _identity(files: TlsFiles) -> Certificate:
    """A daemon's certificate, key and CA, which fit together."""
    found = load_credentials(files)
    certificate = read_certificate(found.certificate)
    if not _issued(found.certificate, files.ca, found.ca):
        raise ConfigError(
            f"{files.cert} is not signed by a CA in {files.ca}: no other member would accept it"
        )
    return certificate


def _controllers_identity(config: ControllerConfig) -> None:
    from syntony.controller.listen import check_role

    check_role(_identity(config.tls).identity.role, config)


def _trusted(authority: Path, trusted: str) -> None:
    """An authority whose certificates this controller will accept."""
    from syntony.controller.pki import load_authority

    made = load_authority(authority)
    try:
        ca = read_bytes(trusted, MAX_SECRET_BYTES)
    except OSError:
        return  # the check of tls_cert says so, once there is a certificate
    if not _issued(made.pem, trusted, ca):
        raise ConfigError(
            f"{authority / 'ca.crt'} is not in tls_ca = {trusted!r}: the controller would refuse "
            "the certificates that it issues"
        )


def _issued(certificate: bytes, path: str | Path, ca: bytes) -> bool:
    try:
        return is_issued_by(certificate, ca)
    except ValueError as error:
        raise ConfigError(f"{path}: no certificate in PEM: {error}") from error


def _agents_identity(config: AgentConfig) -> str:
    files, host = config.tls, config.host
    own = _identity(files)
    role, name = own.identity
    if role is not Role.AGENT:
        raise ConfigError(f"{files.cert} is of role {role}; an agent needs one of role agent")
    if name != host:
        raise ConfigError(f"{files.cert} is of {name!r}, not of host = {host!r}")
    if own.addresses or not config.metrics.tls:
        return ""
    return (
        f"{files.cert} has no address, so Prometheus cannot verify it; join again with a token of: "
        f"syntony enrol token agent {host} --address {host}"
    )


def _provider(config: OidcConfig) -> None:
    try:
        from syntony.api.oidc import check_files as check
    except ModuleNotFoundError as error:
        raise ConfigError(f"needs {error.name}; pip install 'syntony[controller]'") from error
    check(config)
