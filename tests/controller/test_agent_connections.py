"""Which of two connections of one agent a leader or a gateway keeps."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.controller.test_sessions import CERTIFICATE
from tests.link import hello

from syntony.agent.stream import ConnectionNumbers
from syntony.controller.agent_hub import AgentHub
from syntony.controller.gateway import Gateway
from syntony.controller.hello_check import RefusedError
from syntony.controller.service import Hub
from syntony.controller.sessions import AgentSession
from syntony.wire.messages import Hello


def leader(attached: dict[str, AgentSession]) -> AgentHub:
    """As far as it checks."""

    def accept(_: Any) -> None:
        pass

    services: Any = SimpleNamespace(
        leadership=SimpleNamespace(check=accept, seal=None),
        membership=SimpleNamespace(enrolment=SimpleNamespace(admit=None)),
    )
    parts: Any = SimpleNamespace(carry_out=None)
    return AgentHub(
        services=services, sessions=attached, ingest=parts, last_reports=parts, job_flows=parts,
        segments=parts, dispatcher=parts, fleet_now=lambda: None,
    )  # fmt: skip


def gateway(greeting: Hello) -> Gateway:
    """An agent is attached to it."""
    made = Gateway(("leader:1",), None, None, lambda: 0)  # type: ignore[arg-type]
    made.attached(AgentSession(greeting, CERTIFICATE), greeting, ())
    return made


@pytest.mark.parametrize("at", ["leader", "gateway"])
def test_the_connection_that_was_dialled_last_is_kept_whenever_it_comes(at: str) -> None:
    async def tried() -> None:
        numbers = ConnectionNumbers()
        first, second, third = (numbers.number(hello("h1", each)) for each in ("s", "s", "t"))
        hub: Hub
        hub = (
            leader({"h1": AgentSession(second, CERTIFICATE)}) if at == "leader" else gateway(second)
        )
        with pytest.raises(RefusedError, match="connection 1 of 'h1': its later connection 2"):
            hub.check(first)
        hub.check(second)
        hub.check(third)
        hub.check(ConnectionNumbers().number(first))  # of another process: it has started again
        hub.check(msgspec.structs.replace(first, host="h2"))

    asyncio.run(tried())
