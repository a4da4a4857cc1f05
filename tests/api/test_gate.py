"""Connections that are one too many are closed at once, unfinished handshakes soon."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from syntony.api import gate
from syntony.api.gate import Gate
from syntony.controller.pki import create_authority
from syntony.io.descriptors import Share, count_refused
from syntony.wire.roles import Role

MOST = 3


class Protocol(asyncio.Protocol):
    """Counts as open from the end of its handshake."""

    def __init__(self, opened: set[object]) -> None:
        self._opened = opened

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._opened.discard(self)


class Failing(socket.socket):
    """Has no descriptor left for the first connections."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures = failures

    def accept(self) -> tuple[socket.socket, Any]:
        if self._failures:
            self._failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class LastReports:
    def __init__(self, tls: ssl.SSLContext | None, failures: int) -> None:
        self.opened: set[object] = set()
        self._socket = Failing(failures)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        self.address = self._socket.getsockname()
        self._clients: list[asyncio.StreamWriter] = []
        self._gate = Gate(self._socket, lambda: Protocol(self.opened), tls, self.opened, MOST)

    async def connect(self, tls: ssl.SSLContext | None = None) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*self.address, ssl=tls)
        self._clients.append(writer)
        return reader

    async def hang_up(self) -> None:
        """All clients."""
        while self._clients:
            writer = self._clients.pop()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def close(self) -> None:
        self._gate.close()
        await self.hang_up()
        await until_open(self, 0)
        self._socket.close()


@asynccontextmanager
async def listening(
    tls: ssl.SSLContext | None = None, failures: int = 0
) -> AsyncIterator[LastReports]:
    found = LastReports(tls, failures)
    try:
        yield found
    finally:
        await found.close()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """By the other end; waits for it."""
    try:
        return await asyncio.wait_for(reader.read(1), 60) == b""
    except ConnectionError:
        return True


async def until_open(found: LastReports, count: int) -> None:
    async with asyncio.timeout(60):
        while len(found.opened) != count:  # noqa: ASYNC110 - the protocol knows no event
            await asyncio.sleep(0.01)


def test_one_too_many_is_closed_and_the_next_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        before = count_refused(Share.API)
        async with listening() as found:
            for _ in range(MOST):
                await found.connect()
            await until_open(found, MOST)
            for more in range(1, 4):
                assert await is_closed(await found.connect())
                assert count_refused(Share.API) == before + more
            assert len(caplog.records) == 1, "one line"
            assert "connections refused open=3" in caplog.text
            await found.hang_up()
            await until_open(found, 0)
            await found.connect()
            await until_open(found, 1)

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())


def test_without_a_free_descriptor_it_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "PAUSE_S", 0.05)

    async def story() -> None:
        async with listening(failures=2) as found:
            await found.connect()
            await until_open(found, 1)

    asyncio.run(story())


def test_a_handshake_that_stops_half_way_ends_and_counts_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "HANDSHAKE_S", 0.5)
    files = create_authority(tmp_path / "ca").issue(
        "c", Role.CONTROLLER, addresses=["127.0.0.1"], lifetime_ns=10**13, directory=tmp_path
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)

    async def story() -> None:
        async with listening(context) as found:
            silent = [await found.connect() for _ in range(MOST)]
            assert await is_closed(await found.connect()), "no handshake was finished meanwhile"
            assert not found.opened
            assert all([await is_closed(each) for each in silent])
            await found.connect(ssl.create_default_context(cafile=str(files.ca)))
            await until_open(found, 1)

    asyncio.run(story())
