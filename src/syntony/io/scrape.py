"""An HTTP port for Prometheus: one page, loopback only unless it speaks mutual TLS."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from syntony import __version__
from syntony.errors import ConfigError, MissingError
from syntony.io.credentials import certificate_file
from syntony.io.listening import listening_socket
from syntony.io.log_limit import lines_held_back
from syntony.io.process import own_usage
from syntony.metrics.settings import check_address
from syntony.metrics.sheet import Sheet
from syntony.model import S
from syntony.model.tls_files import TlsFiles
from syntony.wire.enrol import Revocations

_log = logging.getLogger(__name__)

Page = Callable[[str], tuple[str, str] | None]
"""From the scraper's ``Accept`` to (content type, text); None: it cannot be made now."""
TIMEOUT_S = 5.0
"""For one scraper to shake hands, to ask, and to take what it asked for."""
AT_ONCE = 4
"""Scrapers served at once; more are hung up on."""
PAUSE_S = 1.0
"""After a connection that could not be accepted (no file descriptor left, say)."""
PATH = "/metrics"


class ServerTls(NamedTuple):
    """PEM files, read anew at every connection: replacing them renews the certificate."""

    files: TlsFiles
    clients: tuple[str, ...] = ()
    """Common names that may scrape; empty: anyone who the CA vouches for."""


class ScrapeServer:
    """Serves one page from threads of its own.

    Args:
        listen: ``ADDRESS:PORT``.
        page: makes the answer; called from the serving threads.
        tls: how to authenticate; None only on loopback.

    Raises:
        ConfigError: an address that is none, or not loopback without TLS.
        MissingError: the port cannot be listened on.
    """

    def __init__(self, listen: str, page: Page, tls: ServerTls | None = None) -> None:
        address, port = check_address(listen, tls=tls is not None)
        self._page = page
        self._tls = tls
        self.revocations: Callable[[], Revocations] = Revocations
        """Certificates that are not served; asked for at every connection."""
        self._free = threading.BoundedSemaphore(AT_ONCE)
        self._closing = threading.Event()
        try:
            self._socket = listening_socket(address, port, backlog=16)
        except OSError as error:
            raise MissingError(f"metrics: cannot listen on {listen}: {error.strerror}") from error
        self.port = int(self._socket.getsockname()[1])
        """The port listened on: the one asked for, or the one given for 0."""
        self._thread = threading.Thread(target=self._accept, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Idempotent."""
        if self._closing.is_set():
            return
        self._closing.set()
        # Closing alone would leave the thread in accept().
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if not self._closing.wait(PAUSE_S):
                    _log.error("scrapers cannot connect reason=%s", error)
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name="scrape", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(TIMEOUT_S)
            if not connection.recv(1, socket.MSG_PEEK):
                return  # hung up without a word: a probe of the port, as a kubelet's
            secured = (
                connection
                if self._tls is None
                else _secured(connection, self._tls, self.revocations())
            )
            with secured:
                _answer(secured, self._page)
        except (OSError, ConfigError, MissingError) as error:
            _log.info("scrape failed reason=%s", error)
        finally:
            connection.close()
            self._free.release()


def serve(listen: str, page: Page, tls: ServerTls | None) -> ScrapeServer | None:
    """A server; None where the port cannot be had: what is measured matters more than who sees it
    here, and Prometheus notices by itself. Raises `ConfigError`: an address that is none, or not
    loopback without TLS."""
    try:
        return ScrapeServer(listen, page, tls)
    except MissingError as error:
        _log.error("not served, continuing without: %s", error)
        return None


def _secured(connection: socket.socket, tls: ServerTls, revocations: Revocations) -> ssl.SSLSocket:
    """The connection after the handshake, in which both sides have shown a certificate."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(certificate_file(tls.files), tls.files.key)
        context.load_verify_locations(tls.files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise MissingError(f"{tls.files.cert}, {tls.files.ca}: cannot be used: {error}") from error
    secured = context.wrap_socket(connection, server_side=True)
    shown: Any = secured.getpeercert() or {}
    name, serial = _common_name(shown), str(shown.get("serialNumber", "")).lower().lstrip("0")
    if revocations.covers(serial, name):
        secured.close()
        raise ConfigError(f"the certificate of {name!r} with serial {serial} has been revoked")
    if tls.clients and name not in tls.clients:
        secured.close()
        raise ConfigError(f"{name!r} is not among the clients that may scrape")
    return secured


def _common_name(certificate: Any) -> str:
    subject = certificate.get("subject", ())
    return next((text for part in subject for key, text in part if key == "commonName"), "")


def _answer(connection: socket.socket, page: Page) -> None:
    class Handler(BaseHTTPRequestHandler):
        """One request, then the end of the connection (HTTP/1.0)."""

        server_version = "syntony"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(HTTPStatus.NOT_FOUND, f"ask for {PATH}")
                return
            made = page(self.headers.get("Accept", ""))
            if made is None:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "too busy to answer")
                return
            content_type, text = made
            body = text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """A scrape every few seconds is nothing to write down."""

    Handler(connection, connection.getpeername(), None)  # type: ignore[arg-type]


def put_process(sheet: Sheet) -> None:
    usage = own_usage()
    sheet.put("build_info", 1, version=__version__)
    sheet.put("process_cpu_seconds_total", usage.cpu_ns / S)
    sheet.put("process_resident_memory_bytes", usage.rss_bytes)
    sheet.put("log_lines_held_back_total", lines_held_back())
