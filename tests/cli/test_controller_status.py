"""`syntony controller status` while an upgrade is under way."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from syntony.cli import controller, fleet
from syntony.cli.fleet import FleetTarget
from syntony.model import S
from syntony.wire.control import ControllerQuery, ControllerStatus
from syntony.wire.messages import AgentStatus, Fleet

STATUS = ControllerStatus(
    name="c0", version="0.2.0", epoch=3, seen_epoch=3, durable=True, up_ns=S, agents=3, gateways=()
)


def agent(host: str, version: str, *, connected: bool = True) -> AgentStatus:
    return AgentStatus(
        host=host, connected=connected, nics=(), version=version, last_batch_ns=0, batches=0,
        rows=0, dropped=0, probes_per_s=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("agents", "line"),
    [
        ([("h1", "0.2.0")], "agents    3 attached"),
        (
            [("h1", "0.2.0"), ("h10", "0.1.0"), ("h9", "0.1.0"), ("h3", "0.10.0")],
            "agents    3 attached, version 0.1.0 on h9, h10, version 0.10.0 on h3",
        ),
    ],
)
def test_agents_of_another_version_are_named(
    agents: list[tuple[str, str]], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached = (*(agent(*each) for each in agents), agent("h99", "0.0.1", connected=False))
    found = Fleet(agents=attached, rows_stored=0, probes_per_s=0.0)
    monkeypatch.setattr(fleet, "fleet_target", lambda *_: FleetTarget("unix:x", None))
    monkeypatch.setattr(
        fleet, "_ask_once",
        lambda _, query, *__: STATUS if isinstance(query, ControllerQuery) else found,
    )  # fmt: skip
    done = CliRunner().invoke(controller.command, ["status"])
    assert done.exit_code == 0, done.output
    assert line in done.stdout.splitlines()
    done = CliRunner().invoke(controller.command, ["status", "--json"])
    assert json.loads(done.stdout)["version"] == "0.2.0"
