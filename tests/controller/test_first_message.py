"""A stream whose agent does not say who it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from syntony.controller import service
from syntony.controller.hello_check import RefusedError


async def _after(wait_s: float) -> AsyncIterator[bytes]:
    await asyncio.sleep(wait_s)
    yield b"hello"


def test_a_hello_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(service._first(_after(0.01))) == b"hello"
    monkeypatch.setattr(service, "HELLO_S", 0.01)
    with pytest.raises(RefusedError, match="no hello within"):
        asyncio.run(service._first(_after(3600)))
