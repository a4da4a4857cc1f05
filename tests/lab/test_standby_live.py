"""A lab with a standby: the one in charge stands still or dies, and the fleet is led on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.live import eventually, live, syntony
from tests.postgres import Server, postgresql

from syntony.lab.client import Lab

__all__ = ["postgresql"]
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.usefixtures("able")]
NAME = "standby-live"
SMALL = ("--hosts", "2", "--rails", "1", "--leaves", "1", "--spines", "1")
PATIENCE_S = 240


def in_charge() -> dict[str, Any]:
    """Nothing while nobody answers."""
    said = syntony("controller", "status", "--lab", NAME, "--json")
    found: dict[str, Any] = json.loads(said.stdout) if said.returncode == 0 else {}
    return found


def led_on(lab: Lab, epoch: int) -> dict[str, Any]:
    """Waits until another one is in charge, which both agents obey, and what was ordered holds."""
    found: dict[str, Any] = {}

    def there() -> bool:
        found.update(in_charge())
        return bool(found) and found["epoch"] > epoch and found["agents"] == 2

    eventually(there, "another one is in charge of both agents", within_s=PATIENCE_S)
    eventually(lambda: stopped() == [True, True], "agents obey", within_s=PATIENCE_S)
    assert lab.controller_socket.exists()
    return found


def stopped() -> list[bool]:
    said = syntony("failover", "status", "--lab", NAME, "--json")
    hosts = json.loads(said.stdout)["hosts"] if said.stdout else []
    return [host["report"]["stopped"] for host in hosts]


def test_a_standby_leads_on_when_the_one_in_charge_stands_still_or_dies(
    postgresql: Server,
) -> None:
    url = postgresql.database()
    postgresql.directory.chmod(0o711)  # its owner is nobody in the lab's user namespace
    with live(NAME, *SMALL, "--controllers", "2", "--state", url, agents=True) as lab:
        eventually(lambda: in_charge().get("agents") == 2, "both agents", within_s=PATIENCE_S)
        assert syntony("failover", "stop", "--why", "test", "--lab", NAME).returncode == 0
        first, socket = in_charge(), lab.controller_socket
        paused = lab.inject("controller-pause", "")
        second = led_on(lab, first["epoch"])
        assert second["name"] != first["name"]
        assert lab.controller_socket != socket
        lab.clear(paused.id)  # it wakes up, is told, and waits again
        killed = lab.inject("controller-kill", "")
        third = led_on(lab, second["epoch"])
        lab.clear(killed.id)
        assert third["name"] == first["name"]
