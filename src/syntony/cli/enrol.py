"""`syntony enrol`: join tokens, certificates, revocation."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import click
import msgspec

from syntony.cli.fleet import FleetTarget, ask, fleet_options, lab_hosts
from syntony.cli.lazy import LazyGroup
from syntony.cli.output import civil_time, comment_option, console, messages, print_json
from syntony.errors import MissingError, RemoteError, UsageError
from syntony.input_files import MAX_SECRET_BYTES, read_bytes
from syntony.io.user_name import user_name
from syntony.model import S, format_ns, parse_duration_ns
from syntony.model.tls_files import TlsFiles
from syntony.view.tables import plain_table
from syntony.wire.enrol import (
    AuthorityQuery,
    CertificateView,
    IdentitiesQuery,
    JoinRequest,
    RenewQuery,
    RevokeCommand,
    TokenCommand,
)
from syntony.wire.roles import Role

_STANDARD_INPUT = "-"


_ELSEWHERE = {
    "api": (
        "enrol_api:command",
        "Tokens for the HTTP API and the console: make, list, revoke.",
    ),
}


@click.group(cls=LazyGroup, lazy=_ELSEWHERE)
def command() -> None:
    """The fleet's members: join tokens, certificates, revocation.

    \b
    Example:
      syntony enrol token agent gpu001            (prints a token, once)
      syntony enrol join gpu001 --at HOST:8444 --ca ca.crt --token TOKEN   (on gpu001)
      syntony enrol revoke gpu001 --comment "host was sold"
    """


@command.command()
@click.argument("role", type=click.Choice([str(role) for role in Role]))
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    help="IP address or DNS name of a gateway, or of an agent that Prometheus scrapes.",
)
@click.option("--valid", default="1h", help="Validity of the token.")
@click.option(
    "--lifetime",
    default="",
    show_default=False,
    help="Validity of its certificates. [default: the fleet's]",
)
@comment_option
@fleet_options
def token(
    *,
    target: FleetTarget,
    role: str,
    names: tuple[str, ...],
    addresses: tuple[str, ...],
    valid: str,
    lifetime: str,
    comment: str,
    as_json: bool,
) -> None:
    """Make a join token, valid for one certificate of ROLE for one of NAMES.

    The token is printed once and not stored; * and ? in a name stand for other characters.

    \b
    Example:
      syntony enrol token agent 'gpu*' --valid 30min
    """
    order = TokenCommand(
        role=role,
        names=names,
        addresses=addresses,
        valid_ns=parse_duration_ns(valid),
        lifetime_ns=parse_duration_ns(lifetime) if lifetime else 0,
        by=user_name(),
        comment=comment,
    )
    made = ask(target, order)
    if as_json:
        print_json(made)
        return
    click.echo(made.token)
    messages.print(f"good until {civil_time(made.expires_ns)} UTC, for one certificate")
    messages.print(f"fingerprint of the CA: {made.fingerprint}")


@command.command(name="list")
@click.option("--all", "everything", is_flag=True, help="Also show expired and revoked ones.")
@fleet_options
def listing(target: FleetTarget, everything: bool, as_json: bool) -> None:
    """List certificates with state and last use, and unused join tokens.

    \b
    Example:
      syntony enrol list --json
    """
    found = ask(target, IdentitiesQuery())
    if as_json:
        print_json(
            {
                "certificates": [
                    msgspec.to_builtins(each) | {"state": _state(each, found.now_ns)}
                    for each in found.certificates
                ],
                "tokens": found.tokens,
            }
        )
        return
    table = plain_table(
        "name", "role", "state", "issued (UTC)", "expires (UTC)", "last seen", "by", "serial"
    )
    for each in found.certificates:
        state = _state(each, found.now_ns)
        if everything or state in {"valid", "expiring"}:
            seen = f"{format_ns(found.now_ns - each.seen_ns)} ago" if each.seen_ns else "never"
            seen = "attached" if each.seen_ns == found.now_ns else seen
            issued, expires = civil_time(each.issued_ns), civil_time(each.expires_ns)
            table.add_row(
                each.name, each.role, state, issued, expires, seen, each.origin, each.serial
            )
    for waiting in found.tokens:
        expires = civil_time(waiting.expires_ns)
        names = " ".join(waiting.names)
        table.add_row(names, waiting.role, "token", "", expires, "", waiting.issuer, "")
    console.print(table)


@command.command()
@click.argument("what", metavar="NAME|SERIAL")
@comment_option
@click.option("--unseen", is_flag=True, help="Even if the fleet has never seen it.")
@fleet_options
def revoke(target: FleetTarget, what: str, comment: str, unseen: bool, as_json: bool) -> None:
    """Refuse every certificate of NAME, or the one with this serial number, from now on.

    Streams that were opened with it are closed. The name can join again with a new token.

    \b
    Example:
      syntony enrol revoke gpu001 --comment "stolen"
    """
    order = RevokeCommand(what=what, by=user_name(), comment=comment, unseen=unseen)
    # A host's certificate is known once its agent has attached; what is no host stays unknown.
    revoked = ask(target, order, retry_refusal=what in lab_hosts(target))
    if as_json:
        print_json(revoked)
        return
    known = len(revoked.serials)
    messages.print(f"{what}: {known} known certificate{'s' if known != 1 else ''} revoked")


@command.command()
@click.argument("name")
@click.option("--at", "controller", metavar="HOST:PORT", required=True, help="The enrolment port.")
@click.option(
    "--token",
    "secret",
    required=True,
    help="Token from `syntony enrol token`; - reads it from stdin.",
)
@click.option("--ca", type=click.Path(), help="The fleet's CA certificate, PEM file.")
@click.option("--fingerprint", help="SHA-256 of the CA certificate, instead of --ca.")
@click.option(
    "--dir", "directory", type=click.Path(), default="/var/lib/syntony/tls",
    help="Directory for ca.crt, NAME.crt and NAME.key; must belong to the daemon's user.",
)  # fmt: skip
def join(
    *,
    name: str,
    controller: str,
    secret: str,
    ca: str | None,
    fingerprint: str | None,
    directory: str,
) -> None:
    """Exchange a join token for a certificate. The private key is made here and stays here.

    \b
    Example:
      syntony enrol join gpu001 --at syntony.example:8444 --ca ca.crt --token syntony-1f…
    """
    from syntony.controller import client
    from syntony.io.credentials import new_request, store_credentials
    from syntony.io.files import write_atomically
    from syntony.wire.x509 import read_certificate

    if (ca is None) == (fingerprint is None):
        raise UsageError("give either --ca FILE or --fingerprint")
    if not controller.rpartition(":")[2].isdecimal():
        raise UsageError(f"--at {controller}: the port is missing, for example {controller}:8444")
    known = _authority(ca) if ca is not None else _fetch_ca(controller, fingerprint or "")
    request = new_request(name)
    given = sys.stdin.readline(MAX_SECRET_BYTES).strip() if secret == _STANDARD_INPUT else secret
    joining = JoinRequest(token=given, csr=request.csr)
    place = Path(directory)
    files = TlsFiles(
        ca=str(place / "ca.crt"), cert=str(place / f"{name}.crt"), key=str(place / f"{name}.key")
    )
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(Path(files.ca), known, 0o644)  # checked before the token is used up
    except OSError as error:
        raise MissingError(f"{error.filename}: cannot be written: {error.strerror}") from error
    issued = client.join(controller, joining, known)
    store_credentials(files, issued.certificate, request.key)
    got = read_certificate(issued.certificate)
    role, expires = got.identity.role, civil_time(got.validity.expires_ns)
    messages.print(f"{name} is {role}; certificate {files.cert} until {expires} UTC")


@command.command()
@click.option(
    "--early", is_flag=True, help="Renew even before two thirds of its validity are over."
)
@fleet_options
def renew(target: FleetTarget, early: bool, as_json: bool) -> None:
    """Renew the certificate in --cert and --key, after two thirds of its validity.

    Agents and controllers renew their own. This is for the others: run it from a timer.

    \b
    Example:
      syntony enrol renew --controller HOST:8443 --ca ca.crt --cert prometheus.crt \\
        --key prometheus.key
    """
    renewed, expires_ns = renew_files(target, early=early)
    if as_json:
        print_json({"renewed": renewed, "expires_ns": expires_ns})
        return
    assert target.tls is not None  # noqa: S101 - whose files they are
    what = "renewed" if renewed else "not due yet"
    messages.print(f"{target.tls.cert}: {what}; until {civil_time(expires_ns)} UTC")


def renew_files(target: FleetTarget, *, early: bool = False) -> tuple[bool, int]:
    """Renew the certificate in the target's files, after two thirds of its validity or `early`.
    Returns whether it was, and when the one in the files expires."""
    from syntony.io.credentials import load_credentials, new_request, store_credentials
    from syntony.wire.x509 import check_validity, read_certificate

    files = target.tls
    if files is None:
        raise UsageError("a certificate is renewed over the network: give --controller HOST:PORT")
    pem = load_credentials(files).certificate
    now = dt.datetime.now(dt.UTC)
    check_validity(pem, files.cert, now)
    own = read_certificate(pem)
    renewed = early or now.timestamp() * S >= own.validity.renewal_ns
    if renewed:
        request = new_request(own.identity.name)
        issued = ask(target, RenewQuery(csr=request.csr))
        store_credentials(files, issued.certificate, request.key)
        own = read_certificate(issued.certificate)
    return renewed, own.validity.expires_ns


@command.command()
@click.argument("directory", type=click.Path())
@click.option("--name", default="controller", help="Name of the first controller.")
@click.option("--address", "addresses", multiple=True, required=True,
              help="IP address or DNS name at which agents reach the controller.")  # fmt: skip
@click.option("--lifetime", default="24h", metavar="TIME", help="Validity of its certificate.")
def authority(directory: str, name: str, addresses: tuple[str, ...], lifetime: str) -> None:
    """Make the fleet's CA in DIRECTORY, and the controller's first certificate in DIRECTORY/tls.

    A CA that is there already is used. The controller renews its certificate by itself.

    \b
    Example:
      syntony enrol authority /var/lib/syntony/ca --address syntony.example
    """
    from syntony.controller.pki import create_authority

    lifetime_ns = parse_duration_ns(lifetime)
    if lifetime_ns <= 0:
        raise UsageError(f"--lifetime {lifetime}: give more than 0")
    place = Path(directory)
    made = create_authority(place)
    tls = made.issue(
        name, Role.CONTROLLER, addresses=addresses, lifetime_ns=lifetime_ns,
        directory=place / "tls",
    )  # fmt: skip
    messages.print(f"CA in {place}; certificate of the controller: {tls.cert}")
    messages.print(f"fingerprint of the CA: {made.fingerprint}")


def _authority(path: str) -> bytes:
    """A file with the CA's certificate."""
    from cryptography import x509

    data = _read(path)
    try:
        x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise UsageError(f"--ca {path}: no certificate in PEM: {error}") from error
    return data


def _fetch_ca(controller: str, fingerprint: str) -> bytes:
    """Fetch the CA's certificate from the enrolment port, verified by its fingerprint alone."""
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    from syntony.controller import client

    host, _, port = controller.rpartition(":")
    try:
        # The port's own certificate is not verified for this one request: the answer is
        # checked against the fingerprint.
        timeout_s = client.DEFAULT_TIMEOUT_NS / S
        shown = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=timeout_s)
    except ssl.SSLError as error:
        raise RemoteError(
            f"no enrolment port of a controller at {controller}: it does not speak TLS, or asks "
            "for a certificate; give the port of [enrolment] listen, usually 8444"
        ) from error
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise RemoteError(f"no controller answers at {controller}: {reason}") from error
    ca = client.join(controller, AuthorityQuery(), shown.encode()).ca
    try:
        found = x509.load_pem_x509_certificate(ca).fingerprint(hashes.SHA256()).hex()
    except ValueError as error:
        raise MissingError(f"{controller} sends no CA certificate: {error}") from error
    if found != fingerprint.lower().replace(":", "").removeprefix("sha256"):
        raise MissingError(
            f"the CA at {controller} has the fingerprint {found}, not the one given: another "
            "fleet, or the connection is intercepted"
        )
    return ca


def _state(each: CertificateView, now_ns: int) -> str:
    if each.revoked_ns:
        return "revoked"
    if each.expires_ns <= now_ns:
        return "expired"
    return (
        "expiring"
        if each.expires_ns - now_ns < (each.expires_ns - each.issued_ns) // 4
        else "valid"
    )


def _read(path: str) -> bytes:
    try:
        return read_bytes(path, MAX_SECRET_BYTES)
    except OSError as error:
        raise MissingError(f"{path}: cannot be read: {error.strerror}") from error
