"""Enrolment, rotation and revocation between real processes, with real certificates and sockets."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from tests.link import ControllerProcess, hello, probe_rows, running, wait_until

from syntony.agent.config import AgentConfig
from syntony.agent.renewal import Renewal
from syntony.agent.spool import Spool
from syntony.agent.uplink import Uplink
from syntony.cli.enrol import command
from syntony.controller.client import ask
from syntony.controller.pki import TlsPaths
from syntony.errors import RemoteError, SyntonyError
from syntony.io.credentials import new_request, store_credentials
from syntony.io.transport import grpc
from syntony.model import S
from syntony.wire.coding import encode
from syntony.wire.enrol import JOIN, MAX_JOIN_BYTES, IdentitiesQuery, Issued, RenewQuery
from syntony.wire.messages import (
    ATTACH,
    QUERY,
    Batch,
    ControllerMessage,
    Fleet,
    FleetQuery,
    Refuse,
    decode_controller,
)
from syntony.wire.query import Failure, decode_answer
from syntony.wire.roles import Role
from syntony.wire.x509 import read_certificate


def enrol(controller: ControllerProcess, *words: str) -> Result:
    """`syntony enrol …` on the controller's host."""
    done = CliRunner().invoke(command, [*words, "--controller", f"unix:{controller.socket}"])
    if done.exception is not None:
        raise done.exception
    return done


def token(controller: ControllerProcess, *words: str) -> str:
    made = msgspec.json.decode(enrol(controller, "token", *words, "--json").stdout)
    return str(made["token"])


def join(controller: ControllerProcess, name: str, secret: str, *words: str) -> TlsPaths:
    """`syntony enrol join …` on another host. Raises what the command ends with."""
    place = controller.directory / f"joined-{name}"
    at = f"127.0.0.1:{controller.join_port}"
    trust = words or ("--ca", str(controller.tls.ca))
    arguments = ["join", name, "--at", at, "--token", secret, "--dir", str(place), *trust]
    done = CliRunner().invoke(command, arguments)
    if done.exception is not None:
        raise done.exception
    return TlsPaths(place / "ca.crt", place / f"{name}.crt", place / f"{name}.key")


class Agent:
    """An uplink that sends a batch now and then, and what it is reported."""

    def __init__(self, config: AgentConfig) -> None:
        self.reported: list[ControllerMessage] = []
        self.host = config.host
        self.directory = Path(config.spool_dir)
        self.spool = Spool(config.spool_dir, 1 << 20)
        self.spool.open()
        self.uplink = Uplink(
            config, lambda stream: hello(config.host, stream), self.reported.append, self.spool
        )
        self._second = 0

    def submit(self) -> None:
        """A second of rows."""
        self._second += 1
        self.uplink.submit("probe_1s", *probe_rows(self.host, self._second))

    def all_stored(self) -> bool:
        return self.spool.acknowledged == self._second

    def send(self) -> None:
        """A second of rows, and wait until it is stored."""
        self.submit()
        wait_until(self.all_stored)


@contextlib.contextmanager
def attached(config: AgentConfig) -> Iterator[Agent]:
    agent = Agent(config)
    try:
        with agent.uplink:
            yield agent
    finally:
        agent.spool.close()


def connected(controller: ControllerProcess, host: str) -> bool:
    return any(each.connected for each in controller.fleet().agents if each.host == host)


@pytest.mark.parametrize("trust", ["ca", "fingerprint"])
def test_a_new_host_joins_and_serves(controller: ControllerProcess, trust: str) -> None:
    name = f"new-{trust}"
    fingerprint = controller.authority.fingerprint
    words = ("--fingerprint", fingerprint) if trust == "fingerprint" else ()
    tls = join(controller, name, token(controller, "agent", name), *words)
    assert tls.key.stat().st_mode & 0o077 == 0
    assert tls.ca.read_bytes() == controller.authority.pem
    with attached(controller.agent_config(name, tls)) as agent:
        agent.send()
        listing = ask(f"unix:{controller.socket}", IdentitiesQuery())
        (there,) = [each for each in listing.certificates if each.name == name]
        assert there.seen_ns == listing.now_ns
        assert "attached" in enrol(controller, "list").output
    wait_until(lambda: not connected(controller, name))
    listing = ask(f"unix:{controller.socket}", IdentitiesQuery())
    (one,) = [each for each in listing.certificates if each.name == name]
    assert one.seen_ns < listing.now_ns
    assert (one.role, one.origin, one.revoked_ns) == ("agent", "join", 0)
    assert one.seen_ns >= one.issued_ns > 0
    assert name in enrol(controller, "list").output


def test_a_token_buys_one_certificate(controller: ControllerProcess) -> None:
    secret = token(controller, "agent", "once*")
    join(controller, "once1", secret)
    with pytest.raises(RemoteError, match="has been used"):
        join(controller, "once2", secret)


def test_another_fleets_fingerprint_gets_no_token(
    controller: ControllerProcess, tmp_path: Path
) -> None:
    secret = token(controller, "agent", "x1")
    with pytest.raises(SyntonyError, match="another fleet, or somebody in between"):
        join(controller, "x1", secret, "--fingerprint", "0" * 64)
    join(controller, "x1", secret)  # it was not sent


def test_a_role_is_what_the_token_says(controller: ControllerProcess) -> None:
    tls = join(controller, "wall", token(controller, "viewer", "wall"))
    target = f"127.0.0.1:{controller.port}"
    ask(target, FleetQuery(), tls=tls)
    config = controller.agent_config("wall", tls)
    with attached(config) as agent:
        wait_until(lambda: bool(agent.reported))
    assert "is of role viewer; only agents attach" in str(agent.reported[0])


@pytest.mark.parametrize("role", [Role.AGENT, Role.VIEWER, Role.SCRAPER])
def test_tokens_and_revocations_are_for_operators(
    controller: ControllerProcess, role: Role
) -> None:
    tls = controller.issue("v1", role, place=f"v1-{role}")
    words = ["--controller", f"127.0.0.1:{controller.port}", "--ca", str(tls.ca), "--cert",
             str(tls.cert), "--key", str(tls.key)]  # fmt: skip
    for order in (["token", "operator", "me"], ["revoke", "h1"]):
        done = CliRunner().invoke(command, [*order, *words])
        assert "needs a certificate of role operator" in str(done.exception)


def test_a_revoked_agent_is_cut_and_stays_out_and_others_do_not_notice(
    controller: ControllerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    tls = join(controller, "bad", token(controller, "agent", "bad"))
    config = controller.agent_config("bad", tls)
    with (
        attached(config) as agent,
        attached(controller.agent_config("good")) as other,
    ):
        agent.send()
        other.send()
        before = (agent.uplink.connections, other.uplink.connections)
        enrol(controller, "revoke", "bad", "--comment", "sold")
        wait_until(lambda: not connected(controller, "bad"))
        wait_until(lambda: "host left the fleet host=bad" in controller.log())
        wait_until(lambda: sum(isinstance(each, Refuse) for each in agent.reported) >= 3)  # retries
        refusal = next(each for each in agent.reported if isinstance(each, Refuse))
        assert "has been revoked" in refusal.reason
        agent.uplink.submit("probe_1s", *probe_rows("bad", 99))
        other.send()
        assert (agent.uplink.connections, other.uplink.connections) == before
        assert agent.spool.acknowledged == 1
        assert not connected(controller, "bad")
        reported = [r.getMessage() for r in caplog.records if "has been revoked" in r.getMessage()]
        assert len([line for line in reported if "uplink down" in line]) == 1  # not one each retry
        refused = [
            x for x in controller.log().splitlines() if "agent refused" in x and "'bad'" in x
        ]
        assert len(refused) == 1
        # The same host, with a new token; the files are replaced under the running agent.
        assert join(controller, "bad", token(controller, "agent", "bad")) == tls
        wait_until(lambda: agent.spool.acknowledged == 2)


def test_a_revoked_peer_that_does_not_listen_is_cut_too(controller: ControllerProcess) -> None:
    """It neither reads nor stops sending; its stream must end all the same."""
    tls = join(controller, "deaf", token(controller, "agent", "deaf"))
    over = threading.Event()

    def said() -> Iterator[bytes]:
        yield encode(hello("deaf", "stream"))
        while not over.wait(0.05):
            yield encode(hello("deaf", "stream")) if over.is_set() else _batch()

    with _channel(controller, tls) as channel:
        call = channel.stream_stream(ATTACH)(said(), timeout=60)
        wait_until(lambda: connected(controller, "deaf"))
        enrol(controller, "revoke", "deaf")
        wait_until(lambda: not connected(controller, "deaf"))
        with contextlib.suppress(grpc.RpcError):
            for _ in call:
                pass
        assert call.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        over.set()
        # The TLS connection is still there: nothing can be asked over it.
        answer = decode_answer(channel.unary_unary(QUERY)(encode(FleetQuery()), timeout=20), Fleet)
        assert isinstance(answer, Failure)
        assert "has been revoked" in answer.reason
        (again, *_) = channel.stream_stream(ATTACH)(iter([encode(hello("deaf", "s"))]), timeout=20)
        assert isinstance(decode_controller(again), Refuse)


def _batch() -> bytes:
    rows, arrow = probe_rows("deaf", 1)
    return encode(Batch(seq=1, table="probe_1s", rows=rows, dropped=0, arrow=arrow))


def _channel(controller: ControllerProcess, tls: TlsPaths) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(
        tls.ca.read_bytes(), tls.key.read_bytes(), tls.cert.read_bytes()
    )
    return grpc.secure_channel(f"127.0.0.1:{controller.port}", credentials)


def test_a_revoked_operator_gives_no_orders(controller: ControllerProcess) -> None:
    tls = join(controller, "ops", token(controller, "operator", "ops"))
    target = f"127.0.0.1:{controller.port}"
    ask(target, FleetQuery(), tls=tls)
    enrol(controller, "revoke", "ops")
    with pytest.raises(RemoteError, match="has been revoked"):
        ask(target, FleetQuery(), tls=tls)


# --- the enrolment port: no client certificate, so everybody reaches it ---


@pytest.mark.parametrize("body", [b"", b"\xff" * 64, encode(FleetQuery())])
def test_nonsense_at_the_enrolment_port(controller: ControllerProcess, body: bytes) -> None:
    with _join_channel(controller) as channel:
        answer = decode_answer(channel.unary_unary(JOIN)(body, timeout=20), Issued)
    assert isinstance(answer, Failure)
    assert "not a message" in answer.reason


@pytest.mark.parametrize("method", [QUERY, ATTACH])
def test_nothing_else_is_served_at_the_enrolment_port(
    controller: ControllerProcess, method: str
) -> None:
    with _join_channel(controller) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method)(encode(FleetQuery()), timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_large_request_is_not_read(controller: ControllerProcess) -> None:
    with _join_channel(controller) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(JOIN)(b"x" * (MAX_JOIN_BYTES + 1), timeout=20)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def _join_channel(controller: ControllerProcess) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(controller.tls.ca.read_bytes())
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
        wait_until(lambda: bool(reported))
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
        wait_until(lambda: bool(reported))
    assert (reported[0] == "TLSv1.3") == accepted


def test_a_controllers_certificate_asks_nobody(controller: ControllerProcess) -> None:
    tls = controller.issue("c2", Role.CONTROLLER, place="c2")
    with pytest.raises(RemoteError, match="no controller answers"):
        ask(f"127.0.0.1:{controller.port}", FleetQuery(), tls=tls)


@contextlib.contextmanager
def _tls_server(tls: TlsPaths, highest: ssl.TLSVersion) -> Iterator[tuple[int, list[str]]]:
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


def served_serial(port: int, tls: TlsPaths) -> int:
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
            kept = controller.tls.cert.read_bytes()
            controller.tls.cert.write_bytes(b"half a file")
            assert served_serial(controller.port, tls) == before
            controller.tls.cert.write_bytes(kept)
            controller.issue("controller", Role.CONTROLLER)
            for port in (controller.port, controller.join_port):
                assert served_serial(port, tls) != before
            agent.send()
            assert agent.uplink.connections == 1
        assert controller.log().count("the certificate stays the one before") == 1


def test_the_controller_renews_its_own(tmp_path: Path) -> None:
    controller = ControllerProcess(tmp_path)
    age(controller, controller.tls)
    key = controller.tls.key.read_bytes()
    first = x509.load_pem_x509_certificate(controller.tls.cert.read_bytes()).serial_number
    controller.start()
    try:
        tls = controller.issue("w1", Role.VIEWER)
        wait_until(lambda: served_serial(controller.port, tls) != first)
        assert controller.tls.key.read_bytes() != key
        ask(f"127.0.0.1:{controller.port}", FleetQuery(), tls=tls)
        assert controller.log().count("certificate renewed") == 1
    finally:
        controller.end()


def age(controller: ControllerProcess, tls: TlsPaths) -> None:
    """Give a certificate another one's place that has used up most of its life."""
    current = x509.load_pem_x509_certificate(tls.cert.read_bytes())
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
    tls.cert.write_bytes(aged.public_bytes(serialization.Encoding.PEM))


def test_an_agent_renews_over_its_connection_and_uses_it_on_the_next(
    controller: ControllerProcess,
) -> None:
    tls = join(controller, "turn", token(controller, "agent", "turn"))
    age(controller, tls)
    first = x509.load_pem_x509_certificate(tls.cert.read_bytes())
    config = controller.agent_config("turn", tls)
    with attached(config) as agent, Renewal(config.tls, agent.uplink.ask):
        agent.send()
        wait_until(lambda: tls.cert.read_bytes() != first.public_bytes(serialization.Encoding.PEM))
        agent.send()
        assert agent.uplink.connections == 1  # nobody cut it for that
        serial = read_certificate(tls.cert.read_bytes()).serial
        enrol(controller, "revoke", f"{first.serial_number:x}")  # as if it had expired
        wait_until(lambda: agent.uplink.connections == 2)
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
            before = read_certificate(tls.cert.read_bytes()).serial
            request = new_request(name)
            issued = agent.uplink.ask(RenewQuery(csr=request.csr))
            assert isinstance(issued, Issued)
            store_credentials(tls, issued.certificate, request.key)
            for _ in range(20):
                agent.submit()
            enrol(controller, "revoke", before)
            wait_until(lambda number=number: agent.uplink.connections >= number + 2)  # type: ignore[misc]
            wait_until(agent.all_stored)
        assert agent.spool.dropped_rows == 0
    status = {each.host: each for each in controller.fleet().agents}[name]
    assert (status.batches, status.dropped) == (21 * rounds, 0)


@pytest.mark.slow
def test_an_idle_agent_may_ping(controller: ControllerProcess) -> None:
    """The option that allows it was misspelt: idle streams ended three times a minute."""
    tls = controller.issue("idle", place="idle")
    credentials = grpc.ssl_channel_credentials(
        tls.ca.read_bytes(), tls.key.read_bytes(), tls.cert.read_bytes()
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
