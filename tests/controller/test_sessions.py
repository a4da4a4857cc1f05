"""A stream that is ended for a reason: told once, nothing taken any more, also of a deaf peer."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from syntony.controller import sessions
from syntony.controller.sessions import Session
from syntony.wire.messages import Ack, Refuse
from syntony.wire.roles import Identity, Role
from syntony.wire.x509 import Certificate, Validity

_NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
CERTIFICATE = Certificate("1f", Identity(Role.AGENT, "h1"), Validity(_NOW, _NOW), ())


def session() -> Session:
    return Session("h1", CERTIFICATE)


def test_the_reason_is_all_that_is_delivered() -> None:
    async def reported() -> list[object]:
        one = session()
        one.outbox.put(Ack(seq=1))
        one.end("has been revoked")
        return [message async for message in one.outbox]

    assert asyncio.run(reported()) == [Refuse(reason="has been revoked")]


def test_a_peer_that_neither_reads_nor_stops_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "END_GRACE_S", 0.05)

    async def cut() -> tuple[bool, bool]:
        one = session()
        receiving, writing = (asyncio.create_task(asyncio.sleep(60)) for _ in range(2))
        one.tasks = (receiving, writing)
        one.end("has been revoked")
        done, _ = await asyncio.wait({receiving, writing}, timeout=30)
        return receiving in done and receiving.cancelled(), writing in done and writing.cancelled()

    assert asyncio.run(cut()) == (True, True)
