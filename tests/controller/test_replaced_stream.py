"""Rows that wait at a leader when their agent is attached through a gateway."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.controller.test_sessions import CERTIFICATE
from tests.link import hello

from syntony.controller.agent_hub import AgentHub
from syntony.controller.ingest import Ingest
from syntony.controller.sessions import AgentSession, Opening
from syntony.wire.messages import Batch


@pytest.mark.parametrize(("via", "waiting"), [("", 2), ("gateway1", 0)])
def test_what_waits_is_dropped_when_another_controller_will_be_sent_it(
    via: str, waiting: int
) -> None:
    """A gateway that an agent attaches to is sent again what was not acknowledged, and stores it:
    a leader that stores it as well stores it twice."""

    async def tried() -> None:
        ingest = Ingest(MagicMock(), lambda: None, lambda *_: None)
        services = MagicMock()
        services.traffic = SimpleNamespace(switch=None)
        parts: Any = MagicMock()
        hub = AgentHub(
            services=services, sessions={}, ingest=ingest, last_reports=parts, job_flows=parts,
            segments=parts, dispatcher=parts, fleet_now=lambda: None,
        )  # fmt: skip
        first, second = (
            AgentSession(hello("h1", "s"), CERTIFICATE, Opening(via=each)) for each in ("", via)
        )
        hub.attached(first, hello("h1", "s"), ())
        for seq in (1, 2):
            batch = Batch(seq=seq, table="agent_1s", rows=1, dropped=0, arrow=b"rows")
            await hub.batch(first, batch)
        hub.attached(second, hello("h1", "s"), ())
        assert len(ingest._items) == waiting
        assert second.source.accepted == waiting

    asyncio.run(tried())
