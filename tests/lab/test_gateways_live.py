"""A lab with two gateways, a leader and a standby: each is lost while rows come in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.live import eventually, live, syntony
from tests.postgres import Server, postgresql

from syntony.controller.client import ask
from syntony.errors import RemoteError
from syntony.lab.client import Lab
from syntony.lab.provision import API_PORT, PORTS_APART
from syntony.wire.messages import Fleet, FleetQuery
from syntony.wire.tables import TABLES

__all__ = ["postgresql"]
pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.usefixtures("able")]
NAME = "gateways-live"
SMALL = ("--hosts", "4", "--rails", "1", "--leaves", "1", "--spines", "1")
PATIENCE_S = 240
DOUBLED = (
    "SELECT count() - uniqExact(host, stream, seq, ts_ns) FROM agent_1s",
    "SELECT count() - uniqExact(host, stream, seq, src, dst, ts_ns) FROM heard_1s",
)
MISSING = (
    "SELECT host, stream, max(seq) + 1 - min(seq) - uniqExact(seq) AS missing FROM ("  # noqa: S608 — names are our own
    + " UNION ALL ".join(
        f"SELECT DISTINCT host, stream, seq FROM {name}"  # noqa: S608
        for name, table in TABLES.items()
        if table.owner
    )
    + ") GROUP BY host, stream HAVING missing > 0"
)
"""Batches of agents of which nothing is stored."""


def said(*words: str) -> Any:
    """Nothing while nobody answers."""
    answer = syntony(*words, "--lab", NAME, "--json")
    return json.loads(answer.stdout) if answer.stdout else None


def leader() -> dict[str, Any]:
    return said("controller", "status") or {}


def gateways() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in leader().get("gateways", ())}


def incidents() -> set[tuple[str, str]]:
    """Rules and subjects of the live ones that are about who is heard."""
    found = said("incidents", "list") or {}
    return {
        (each["rule"], each["subject"])
        for each in found.get("incidents", ())
        if each["rule"] in {"gateway-absent", "host-silent", "silent-together", "fleet-silent"}
    }


def soon(true: Callable[[], bool], what: str) -> None:
    eventually(true, what, within_s=PATIENCE_S)


def attached_to(*names: str) -> bool:
    """Whether the leader has all agents, through these gateways and no others."""
    found = gateways()
    there = {name for name, each in found.items() if each["connected"]}
    return there == set(names) and sum(found[name]["agents"] for name in there) == 4


def fleet(lab: Lab) -> Fleet:
    return ask(f"unix:{lab.controller_socket}", FleetQuery())


def over_http(lab: Lab, number: int, path: str, token: str, body: str = "") -> tuple[int, Any]:
    """Status and answer of a gateway's API; 0: nobody answers."""
    address = lab.addresses(4)["ctl/mgmt0"]
    port = API_PORT + (2 + number - 1) * PORTS_APART
    order = ("-H", "Content-Type: application/json", "-d", body) if body else ()
    words = (
        "curl", "-sk", "--max-time", "60", "-w", r"\n%{http_code}", *order,
        "-H", f"Authorization: Bearer {token}", f"https://{address}:{port}/api/v1/{path}",
    )  # fmt: skip
    try:
        answer, _, status = lab.run("ctl", *words).rpartition("\n")
    except RemoteError:
        return 0, None
    return int(status), json.loads(answer)


def test_gateways_and_leaders_are_lost_and_no_row_with_them(postgresql: Server) -> None:
    url = postgresql.database()
    postgresql.directory.chmod(0o711)  # its owner is nobody in the lab's user namespace
    with live(
        NAME, *SMALL, "--controllers", "2", "--gateways", "2", "--state", url, agents=True
    ) as lab:

        def rows(sql: str) -> list[list[Any]]:
            words = ("curl", "-s", "http://127.0.0.1:8123/?database=syntony", "--data-binary", sql)
            found: list[list[Any]] = json.loads(lab.run("ctl", *words))["data"]
            return found

        soon(lambda: attached_to("gateway1", "gateway2"), "all agents behind gateways")
        soon(lambda: len(rows("SELECT DISTINCT host FROM probe_1s")) == 4, "rows of all")
        token = syntony("enrol", "api", "token", "operator", "olga", "--lab", NAME).stdout.strip()

        def http(number: int, path: str, body: str = "") -> tuple[int, Any]:
            return over_http(lab, number, path, token, body)

        for number in (1, 2):
            soon(lambda: len((http(number, "matrix")[1] or {}).get("cells", ())) == 12, "a matrix")  # noqa: B023 - called at once
            assert http(number, "fleet")[1]["agents"]
            assert http(number, "controller")[1]["name"] == leader()["name"]
        killed = lab.inject("gateway-kill", "gateway1")
        soon(lambda: attached_to("gateway2"), "the other gateway has all agents")
        soon(lambda: incidents() == {("gateway-absent", "gateway gateway1")}, "it is missed")
        lab.clear(killed.id)
        soon(lambda: not incidents(), "it is missed no longer")
        paused = lab.inject("gateway-pause", "gateway2")
        soon(lambda: attached_to("gateway1"), "the first gateway has all agents")
        lab.clear(paused.id)
        soon(lambda: gateways()["gateway2"]["connected"], "the one that was paused is back")
        before = leader()
        dead = lab.inject("controller-kill", "")
        soon(lambda: http(1, "fleet")[0] == 503, "the gateway says that there is no leader")
        assert http(1, "matrix")[0] == 200
        soon(lambda: http(1, "fleet")[0] == 200, "it asks the next leader")
        soon(lambda: leader().get("epoch", 0) > before["epoch"], "the standby leads")
        soon(lambda: leader()["agents"] == 4, "it has all agents")
        status, ordered = http(2, "switch", '{"stopped": true, "why": "test"}')
        assert (status, ordered["switch"]["by"]) == (200, "olga")
        soon(
            lambda: (
                [h["report"]["stopped"] for h in said("failover", "status")["hosts"]] == [True] * 4
            ),
            "agents obey it",
        )
        lab.clear(dead.id)
        for sql in DOUBLED:
            assert rows(sql) == [[0]], sql
        assert all(agent.dropped == 0 for agent in fleet(lab).agents)
        soon(lambda: not rows(MISSING), "every batch is stored")
