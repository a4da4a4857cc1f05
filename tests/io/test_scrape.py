"""The port that Prometheus scrapes: who may, what strangers get, and that none holds up another."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.live import eventually

from syntony.controller.pki import Authority, create_authority
from syntony.errors import ConfigError, MissingError
from syntony.io.listening import listening_socket
from syntony.io.scrape import ScrapeServer, ServerTls
from syntony.model import HOUR_NS
from syntony.model.tls_files import TlsFiles
from syntony.wire.enrol import Revocations
from syntony.wire.roles import Role
from syntony.wire.x509 import read_certificate


def page(accept: str) -> tuple[str, str] | None:
    return None if accept == "nothing" else ("text/plain", "syntony_x 1\n")


@pytest.fixture
def serve() -> Iterator[Callable[..., ScrapeServer]]:
    servers: list[ScrapeServer] = []

    def start(listen: str = "127.0.0.1:0", tls: ServerTls | None = None) -> ScrapeServer:
        servers.append(ScrapeServer(listen, page, tls))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return create_authority(tmp_path_factory.mktemp("ca"))


def issue(authority: Authority, name: str, directory: Path) -> TlsFiles:
    role = Role.SCRAPER if name == "prometheus" else Role.AGENT
    return authority.issue(
        name, role, addresses=["127.0.0.1"], lifetime_ns=HOUR_NS, directory=directory
    )


def get(port: int, path: str = "/metrics", accept: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def get_tls(port: int, ca: str, client: TlsFiles | None) -> int:
    context = ssl.create_default_context(cafile=ca)
    if client is not None:
        context.load_cert_chain(client.cert, client.key)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=600, context=context)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status
    finally:
        connection.close()


def server_tls(paths: TlsFiles, *clients: str) -> ServerTls:
    return ServerTls(paths, clients)


def test_one_page_and_no_other(serve: Callable[..., ScrapeServer]) -> None:
    port = serve().port
    assert get(port) == (200, "syntony_x 1\n")
    assert get(port, "/")[0] == 404
    assert get(port, accept="nothing")[0] == 503


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("0.0.0.0:9862", "can be reached from outside; set tls = true"),
        ("[::]:9862", "can be reached from outside"),
        ("192.0.2.1:9862", "can be reached from outside"),
        ("9862", "not ADDRESS:PORT"),
        ("localhost:9862", "not ADDRESS:PORT"),
        ("127.0.0.1:http", "not ADDRESS:PORT"),
        ("127.0.0.1:70000", "a port is between"),
    ],
)
def test_a_wrong_address_is_told(
    serve: Callable[..., ScrapeServer], listen: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        serve(listen)


@pytest.mark.skipif(
    not socket.has_dualstack_ipv6(),
    reason="needs a kernel with IPv6: ports for both families are NOT tested",
)
def test_any_address_of_ipv6_is_one_of_ipv4_too() -> None:
    with listening_socket(ipaddress.ip_address("::"), 0, 1) as listening:
        port = listening.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, port), timeout=60).close()


def test_a_port_in_use_is_told(serve: Callable[..., ScrapeServer]) -> None:
    port = serve().port
    with pytest.raises(MissingError, match=f"cannot listen on 127.0.0.1:{port}"):
        serve(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "said", [b"", b"\x16\x03\x01\x00\xff", b"GET", b"A" * 70_000 + b"\r\n\r\n"]
)
def test_strangers_do_not_hold_up_the_scraper(
    serve: Callable[..., ScrapeServer], said: bytes
) -> None:
    port = serve().port
    with socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.sendall(said)
        assert get(port)[0] == 200


def test_only_certificates_that_may(
    serve: Callable[..., ScrapeServer], authority: Authority, tmp_path: Path
) -> None:
    paths = issue(authority, "h0", tmp_path)
    prometheus, other = issue(authority, "prometheus", tmp_path), issue(authority, "h1", tmp_path)
    foreign = issue(create_authority(tmp_path / "ca2"), "prometheus", tmp_path / "foreign")
    port = serve("127.0.0.1:0", server_tls(paths, "prometheus")).port
    assert get_tls(port, paths.ca, prometheus) == 200
    for client in (other, foreign, None):
        # With TLS 1.3 a client learns only afterwards that it was refused.
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.BadStatusLine)):
            get_tls(port, paths.ca, client)
    assert get_tls(port, paths.ca, prometheus) == 200


@pytest.mark.parametrize("by", ["name", "serial"])
def test_a_revoked_scraper_is_refused_and_others_are_not(
    serve: Callable[..., ScrapeServer], authority: Authority, tmp_path: Path, by: str
) -> None:
    paths = issue(authority, "h0", tmp_path)
    prometheus = issue(authority, "prometheus", tmp_path)
    again = issue(authority, "prometheus", tmp_path / "again")
    server = serve("127.0.0.1:0", server_tls(paths))
    assert get_tls(server.port, paths.ca, prometheus) == 200
    serials = [
        read_certificate(Path(each.cert).read_bytes()).serial for each in (prometheus, again)
    ]
    revocations = {
        "name": Revocations(names=frozenset({"prometheus"}), known=frozenset(serials[1:])),
        "serial": Revocations(serials=frozenset(serials[:1])),
    }[by]
    server.revocations = lambda: revocations
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.BadStatusLine)):
        get_tls(server.port, paths.ca, prometheus)
    assert get_tls(server.port, paths.ca, again) == 200
    assert get_tls(server.port, paths.ca, paths) == 200


def test_a_renewed_certificate_is_used_at_once(
    serve: Callable[..., ScrapeServer], authority: Authority, tmp_path: Path
) -> None:
    paths = issue(authority, "h0", tmp_path)
    port = serve("127.0.0.1:0", server_tls(paths)).port
    assert get_tls(port, paths.ca, paths) == 200
    authority.issue(
        "h0", Role.AGENT, addresses=["127.0.0.1"], lifetime_ns=-HOUR_NS, directory=tmp_path
    )
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        get_tls(port, paths.ca, None)


def test_a_missing_certificate_is_no_end(
    serve: Callable[..., ScrapeServer],
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    paths = issue(authority, "h0", tmp_path)
    port = serve("127.0.0.1:0", server_tls(paths)).port
    key = Path(paths.key).read_bytes()
    Path(paths.key).unlink()
    client = issue(authority, "prometheus", tmp_path)
    with caplog.at_level("INFO"), pytest.raises((OSError, http.client.BadStatusLine)):
        get_tls(port, paths.ca, client)
    Path(paths.key).write_bytes(key)
    assert get_tls(port, paths.ca, paths) == 200
    assert "h0.key" in caplog.text


def test_a_probe_of_the_port_is_nothing_to_log(
    serve: Callable[..., ScrapeServer],
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A kubelet connects and hangs up, twice a minute."""
    caplog.set_level("INFO", logger="syntony.io.scrape")
    server = issue(authority, "h0", tmp_path)
    scraper = issue(authority, "prometheus", tmp_path)
    port = serve(tls=server_tls(server, "prometheus")).port
    for _ in range(3):
        socket.create_connection(("127.0.0.1", port)).close()
    assert get_tls(port, server.ca, scraper) == 200
    eventually(lambda: threading.active_count() <= 2, "the probes' threads gone")
    assert not caplog.records
