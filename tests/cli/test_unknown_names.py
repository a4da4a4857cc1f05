"""A port or a pair of NICs that the fleet does not know is an answer, not an empty screen."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from syntony.cli import run
from syntony.controller import client
from syntony.model import S
from syntony.wire.fabric import LearntPaths, PathsQuery
from syntony.wire.links import LinkHistory, LinkHistoryQuery, Links, LinksQuery, LinkStatus
from syntony.wire.query import Query

REMOTE = ("--controller", "c:1", "--ca", "a", "--cert", "b", "--key", "c")
PORT = LinkStatus(
    nic="h0/rail0", netdev="rail0", rdma="", link_layer="Ethernet", driver="veth", role="compute",
    state="active", gbps=10.0, flaps=0, last_flap_ns=None, seen_ns=0, watched_ns=0,
    temperature_c=None, rx_dbm=None, bias_ma=None,
)  # fmt: skip


@pytest.fixture(autouse=True)
def controller(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_target: str, query: Query[Any], **_: object) -> Struct:
        match query:
            case LinkHistoryQuery():
                return LinkHistory(events=(), counters=(), now_ns=0)
            case LinksQuery(window_ns=window_ns):
                assert window_ns == 86_400 * S, "the window of the history"
                return Links(ports=(PORT,), now_ns=0)
        assert isinstance(query, PathsQuery)
        return LearntPaths(paths=())

    monkeypatch.setattr(client, "ask", ask)


def test_history_of_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["links", "history", "h0/rail0", *REMOTE]) == 0
    assert "nothing happened to h0/rail0" in capsys.readouterr().out
    assert run(["links", "history", "h99/rail0", *REMOTE]) == 2
    assert "no port 'h99/rail0' is known" in capsys.readouterr().err


def test_paths_of_a_pair_that_is_not_probed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fabric", "paths", "h0/rail0", "h99/rail0", *REMOTE]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "no path is known" in said.err
