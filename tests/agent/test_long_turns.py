"""A turn of the agent's loop that takes long, as on a host that is short of CPU."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from syntony.agent import daemon, job_paths
from syntony.agent.config import AgentConfig, NicConfig
from syntony.agent.daemon import TURN_NS, Agent
from syntony.agent.inbox import ClockSet, Inbox
from syntony.agent.reactor.link import ReactorLink
from syntony.agent.reactor.messages import ReactorUpdate
from syntony.agent.spool import Spool
from syntony.agent.uplink import Uplink
from syntony.model import ClockState, S, Timeline
from syntony.model.tls_files import TlsFiles
from syntony.wire.clocks import Timelines
from syntony.wire.failover import Switch
from syntony.wire.messages import ControllerMessage
from syntony.wire.tables import AGENT
from syntony.wire.traffic import FlowsReport, Moves, Paces

HOST = "h0"
UPDATE = ReactorUpdate(pending=0, probing=0, outcome="", has_flows=True)


class Host:
    """An agent that is not started, whose link counters take long to read."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch, step_ns: int) -> None:
        nowhere = TlsFiles(ca="/nonexistent", cert="/nonexistent", key="/nonexistent")
        config = AgentConfig(
            host=HOST, controller="127.0.0.1:1", tls=nowhere,
            nics=(NicConfig(name="va", rail=0),), spool_dir=str(place / "spool"),
        )  # fmt: skip
        self.now_ns = 1_700_000_000 * S
        self.done: list[str] = []
        self.agent = agent = Agent(config, Spool(place / "spool", 1 << 20))
        clock = SimpleNamespace(monotonic_ns=lambda: self.now_ns)
        for module in (daemon, job_paths):
            patch.setattr(module, "time", clock)
        patch.setattr(agent, "_clock", SimpleNamespace(now_ns=lambda: self.now_ns))
        patch.setattr(ReactorLink, "up", True)
        patch.setattr(ReactorLink, "look", lambda *_, **__: UPDATE)
        patch.setattr(ReactorLink, "obey", self._obey)
        patch.setattr(agent._links, "report", lambda *_: self._read(step_ns))
        agent.parts.add("link-counters", lambda: None, 0)
        line = Timeline(
            node=HOST, ref_ns=self.now_ns, offset_ns=0, drift_ppb=0.0, sigma_ns=1.0,
            state=ClockState.SYNCHRONIZED, component=HOST,
        )  # fmt: skip
        agent._pipeline.timelines(Timelines(timelines=(line,)).timelines)
        self.uplink = cast(
            Uplink,
            SimpleNamespace(
                submit=lambda table, *_: self.done.append(table),
                send=lambda report: self.done.append(type(report).__name__),
                release=lambda: self.done.append("sent"),
                together=nullcontext,
            ),
        )

    def turn(self) -> list[str]:
        self.done = []
        self.agent._report_due(self.uplink)
        return self.done

    def _obey(self, order: Any, fleet_minus_monotonic_ns: int | None) -> str:
        assert fleet_minus_monotonic_ns == 0
        self.done.append(type(order).__name__)
        return ""

    def _read(self, step_ns: int) -> None:
        self.now_ns += step_ns
        for order in (ClockSet(), Moves(moves=(), helped=())):
            self.agent.receive(cast(ControllerMessage, order))


def test_orders_and_flows_do_not_wait_for_the_reports_of_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, monkeypatch, S)
    done = host.turn()
    flows = FlowsReport.__name__
    at = done.index("Moves")
    assert done[at : at + 3] == ["Moves", flows, "sent"]
    assert at < done.index(AGENT.name), "which comes after the link counters"
    assert [type(each) for each in host.agent.inbox.take(0)] == [ClockSet], "not urgent"


def test_a_turn_in_time_is_not_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path, monkeypatch, TURN_NS - 1)
    done = host.turn()
    assert AGENT.name in done
    assert "Moves" not in done
    assert "sent" not in done
    assert [type(each) for each in host.agent.inbox.take(0)] == [ClockSet, Moves]


def test_urgent_messages_go_first_and_all_others_keep_their_order() -> None:
    inbox = Inbox()
    stop = Switch(stopped=True, at_ns=1, by="ops")
    order, rates = Moves(moves=(), helped=()), Paces(paces=(), expires_ns=5)
    first, second, third = (Timelines(timelines=(), step=step) for step in (1, 2, 3))
    for message in (first, stop, second, order, rates):
        inbox.put(message)
    assert list(inbox.take_urgent()) == [stop, order, rates]
    assert list(inbox.take_urgent()) == []
    inbox.put(third)
    assert list(inbox.take(0)) == [first, second, third]
    assert list(inbox.take(0)) == []
