"""What the enrolment port serves, TLS on both ports, and certificates that are renewed."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from tests.agent_link.http2 import call, http2_call
from tests.agent_link.test_membership import attached, enrol, join, token
from tests.link import PATIENCE_S, ControllerProcess, hello, running
from tests.live import eventually

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.io.credentials import new_request, store_credentials
from syntony.io.renewal import Renewal
from syntony.io.transport import grpc
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.wire.coding import encode
from syntony.wire.enrol import (
    JOIN,
    MAX_JOIN_BYTES,
    AuthorityQuery,
    IdentitiesQuery,
    Issued,
    RenewQuery,
    RevokeCommand,
)
from syntony.wire.messages import (
    ATTACH,
    QUERY,
    FleetQuery,
    Refuse,
    decode_controller,
)
from syntony.wire.query import Failure, decode_answer
from syntony.wire.roles import Role
from syntony.wire.x509 import read_certificate


@pytest.mark.parametrize("body", [b"", b"\xff" * 64, encode(FleetQuery())])
def test_nonsense_at_the_enrolment_port(controller: ControllerProcess, body: bytes) -> None:
    with _join_channel(controller) as channel:
        answer = decode_answer(channel.unary_unary(JOIN)(body, timeout=600), Issued)
    assert isinstance(answer, Failure)
    assert "not a message" in answer.reason


@pytest.mark.parametrize("method", [QUERY, ATTACH])
def test_nothing_else_is_served_at_the_enrolment_port(
    controller: ControllerProcess, method: str
) -> None:
    with _join_channel(controller) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method)(encode(FleetQuery()), timeout=600)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_large_request_is_not_read(controller: ControllerProcess) -> None:
    with _join_channel(controller) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(JOIN)(b"x" * (MAX_JOIN_BYTES + 1), timeout=600)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def _join_channel(controller: ControllerProcess) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(Path(controller.tls.ca).read_bytes())
    return grpc.secure_channel(f"127.0.0.1:{controller.join_port}", credentials)


# --- what TLS itself must do ---


@pytest.mark.parametrize("port", ["port", "join_port"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_3_and_nothing_below(
    controller: ControllerProcess, port: str, version: ssl.TLSVersion
) -> None:
    """As a client that is not gRPC sees it, with every cipher suite it has."""
    tls = controller.issue("v3", place="v3")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.set_alpn_protocols(["h2"])
    context.minimum_version = context.maximum_version = version
    raw = socket.create_connection(("127.0.0.1", getattr(controller, port)), 20)
    with raw, contextlib.ExitStack() as stack:
        if version is ssl.TLSVersion.TLSv1_2:
            stack.enter_context(pytest.raises(OSError, match=r"(?i)ssl|eof|reset|alert"))
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as secured:
            assert secured.version() == "TLSv1.3"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_agents_speak_tls_1_3_only(controller: ControllerProcess, version: ssl.TLSVersion) -> None:
    with _tls_server(controller.tls, version) as (port, reported):
        _try(controller, port)
        eventually(lambda: bool(reported))
    assert (reported[0] == "TLSv1.3") == (version is ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize(
    ("role", "addresses", "accepted"),
    [
        (Role.CONTROLLER, ["127.0.0.1"], True),
        (Role.OPERATOR, ["127.0.0.1"], False),
        (Role.SCRAPER, ["127.0.0.1"], False),
        (Role.AGENT, [], False),
    ],
)
def test_a_client_certificate_serves_nobody(
    controller: ControllerProcess, role: Role, addresses: list[str], *, accepted: bool
) -> None:
    """A stolen operator's certificate once made a controller that agents would follow."""
    tls = controller.authority.issue(
        "127.0.0.1" if not addresses else "c9", role, addresses=addresses,
        lifetime_ns=600 * S, directory=controller.directory / f"serve-{role}",
    )  # fmt: skip
    with _tls_server(tls, ssl.TLSVersion.TLSv1_3) as (port, reported):
        _try(controller, port)
        eventually(lambda: bool(reported))
    assert (reported[0] == "TLSv1.3") == accepted


def test_a_controllers_certificate_asks_nobody(controller: ControllerProcess) -> None:
    tls = controller.issue("c2", Role.CONTROLLER, place="c2")
    with pytest.raises(RemoteError, match="no controller answers"):
        ask(f"127.0.0.1:{controller.port}", FleetQuery(), tls=tls)


@contextlib.contextmanager
def _tls_server(tls: TlsFiles, highest: ssl.TLSVersion) -> Iterator[tuple[int, list[str]]]:
    """A server that is not gRPC; it notes what a client agreed on, or why it did not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.cert, tls.key)
    context.set_alpn_protocols(["h2"])
    context.maximum_version = highest
    reported: list[str] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            raw, _ = listener.accept()
            raw.settimeout(20)
            try:
                with raw, context.wrap_socket(raw, server_side=True) as secured:
                    secured.recv(1)  # a client that dislikes the certificate says so only now
                    reported.append(str(secured.version()))
            except OSError as error:
                reported.append(str(error))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1], reported
        thread.join(20)


def _try(controller: ControllerProcess, port: int) -> None:
    tls = controller.issue("t1", Role.VIEWER, place="t1")
    with pytest.raises(RemoteError):
        ask(f"127.0.0.1:{port}", FleetQuery(), tls=tls, timeout_ns=5 * S)


# --- rotation ---


def served_serial(port: int, tls: TlsFiles) -> int:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), 20) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as secured,
    ):
        der = secured.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def test_a_replaced_server_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as controller:
        tls = controller.issue("w1", Role.VIEWER)
        with attached(controller.agent_config("h1")) as agent:
            agent.send()
            before = served_serial(controller.port, tls)
            kept = Path(controller.tls.cert).read_bytes()
            Path(controller.tls.cert).write_bytes(b"half a file")
            assert served_serial(controller.port, tls) == before
            Path(controller.tls.cert).write_bytes(kept)
            controller.issue("controller", Role.CONTROLLER)
            for port in (controller.port, controller.join_port):
                assert served_serial(port, tls) != before
            agent.send()
            assert agent.uplink.connections == 1
        assert controller.log().count("certificate not reloaded, keeping the current one") == 1


def test_the_controller_renews_its_own(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    age(controller, controller.tls)
    key = Path(controller.tls.key).read_bytes()
    first = x509.load_pem_x509_certificate(Path(controller.tls.cert).read_bytes()).serial_number
    controller.start()
    try:
        tls = controller.issue("w1", Role.VIEWER)
        eventually(lambda: served_serial(controller.port, tls) != first)
        assert Path(controller.tls.key).read_bytes() != key
        ask(f"127.0.0.1:{controller.port}", FleetQuery(), tls=tls)
        assert controller.log().count("certificate renewed") == 1
    finally:
        controller.end()


def age(controller: ControllerProcess, tls: TlsFiles) -> None:
    """Give a certificate another one's place that has used up most of its life."""
    current = x509.load_pem_x509_certificate(Path(tls.cert).read_bytes())
    builder = (
        x509.CertificateBuilder()
        .subject_name(current.subject)
        .issuer_name(current.issuer)
        .public_key(current.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(current.not_valid_before_utc - dt.timedelta(hours=9))
        .not_valid_after(current.not_valid_after_utc)
    )
    for extension in current.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    aged = builder.sign(controller.authority.key, hashes.SHA256())
    Path(tls.cert).write_bytes(aged.public_bytes(serialization.Encoding.PEM))


def test_an_agent_renews_over_its_connection_and_uses_it_on_the_next(
    controller: ControllerProcess,
) -> None:
    tls = join(controller, "turn", token(controller, "agent", "turn"))
    age(controller, tls)
    first = x509.load_pem_x509_certificate(Path(tls.cert).read_bytes())
    config = controller.agent_config("turn", tls)
    with attached(config) as agent, Renewal(config.tls, agent.uplink.ask):
        agent.send()
        eventually(
            lambda: Path(tls.cert).read_bytes() != first.public_bytes(serialization.Encoding.PEM)
        )
        agent.send()
        assert agent.uplink.connections == 1  # nobody cut it for that
        serial = read_certificate(Path(tls.cert).read_bytes()).serial
        enrol(controller, "revoke", f"{first.serial_number:x}")  # as if it had expired
        eventually(lambda: agent.uplink.connections == 2)
        agent.send()
    listing = ask(f"unix:{controller.socket}", IdentitiesQuery())
    known = {each.serial: each for each in listing.certificates if each.name == "turn"}
    assert known[serial].origin == "renewal"
    assert known[serial].seen_ns > 0
    assert known[serial].revoked_ns == 0


@pytest.mark.slow
def test_rotation_under_load_loses_no_rows(controller: ControllerProcess) -> None:
    """Certificates replaced again and again, connections cut each time, rows all the while."""
    name, rounds = "load", 8
    tls = join(controller, name, token(controller, "agent", name))
    with attached(controller.agent_config(name, tls)) as agent:
        for number in range(rounds):
            agent.send()
            before = read_certificate(Path(tls.cert).read_bytes()).serial
            request = new_request(name)
            issued = agent.uplink.ask(RenewQuery(csr=request.csr))
            assert isinstance(issued, Issued)
            store_credentials(tls, issued.certificate, request.key)
            for _ in range(20):
                agent.submit()
            enrol(controller, "revoke", before)
            eventually(lambda number=number: agent.uplink.connections >= number + 2)  # type: ignore[misc]
            eventually(agent.all_stored)
        assert agent.spool.dropped_rows == 0
    status = {each.host: each for each in controller.fleet().agents}[name]
    assert (status.batches, status.dropped) == (21 * rounds, 0)


@pytest.mark.slow
def test_an_idle_agent_may_ping(controller: ControllerProcess) -> None:
    """The option that allows it was misspelt: idle streams ended three times a minute."""
    tls = controller.issue("idle", place="idle")
    credentials = grpc.ssl_channel_credentials(
        Path(tls.ca).read_bytes(), Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()
    )
    options = (
        ("grpc.keepalive_time_ms", 2_500),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )
    over = threading.Event()

    def said() -> Iterator[bytes]:
        yield encode(hello("idle", "stream"))
        over.wait(60)

    target = f"127.0.0.1:{controller.port}"
    with grpc.secure_channel(target, credentials, options) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            for _ in channel.stream_stream(ATTACH)(said(), timeout=20):
                pass
        over.set()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("how", ["one connection", "many connections"])
def test_calls_that_send_nothing_keep_nobody_out(tmp_path: Path, how: str) -> None:
    """Sixteen of them, from anybody without a certificate, once held the port for ever."""
    with running(tmp_path) as controller, contextlib.ExitStack() as stack:
        for _ in range(1 if how == "one connection" else 64):
            connection = stack.enter_context(http2_call(controller, JOIN))
            connection.sendall(b"".join(call(JOIN, number) for number in range(3, 35, 2)))
        # This test's address is theirs too: it is kept waiting as long as they may be silent.
        eventually(lambda: _is_answered(controller))
        lines = controller.log().count("enrolment refused")
        assert lines < 2 * PATIENCE_S
        # One connection has no more calls than its address may: this test's own may come first.
        assert lines > 0 or how == "one connection"


def _is_answered(controller: ControllerProcess) -> bool:
    with _join_channel(controller) as channel:
        try:
            answer = channel.unary_unary(JOIN)(encode(AuthorityQuery()), timeout=5)
        except grpc.RpcError:
            return False
    return isinstance(decode_answer(answer, Issued), Issued)


def test_a_stream_that_was_open_before_a_revocation_begins_no_session(
    controller: ControllerProcess,
) -> None:
    """Its certificate is looked at when the agent says who it is, not when it connects."""
    tls = controller.issue("h77")
    credentials = grpc.ssl_channel_credentials(
        Path(tls.ca).read_bytes(), Path(tls.key).read_bytes(), Path(tls.cert).read_bytes()
    )
    go, over = threading.Event(), threading.Event()

    def late() -> Iterator[bytes]:
        go.wait(60)
        yield encode(hello("h77", "s"))
        over.wait(60)

    with grpc.secure_channel(f"127.0.0.1:{controller.port}", credentials) as channel:
        answers = channel.stream_stream(ATTACH)(late(), timeout=600)
        ask(f"unix:{controller.socket}", RevokeCommand(what="h77", by="o", unseen=True))
        go.set()
        refusal = decode_controller(next(answers))
        assert isinstance(refusal, Refuse)
        assert "has been revoked" in refusal.reason
        assert "h77" not in {each.host for each in controller.fleet().agents}
        over.set()
