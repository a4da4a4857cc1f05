"""Words and shapes that the console and the wire share, compared without a browser."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from syntony.agent.links import PORTS_NS
from syntony.alerts.incidents import Incident, IncidentState
from syntony.alerts.render import plain
from syntony.alerts.rules import Rule, Severity
from syntony.alerts.silences import Silence
from syntony.links.ports import PortState
from syntony.model import ClockState, S
from syntony.model.clocks import Timeline
from syntony.model.findings import Finding, Queue
from syntony.view import heatmap
from syntony.wire import (  # fmt: skip
    audit,
    clocks,
    control,
    fabric,
    failover,
    incidents,
    jobs,
    links,
    messages,
    parts,
    probes,
    sla,
    traffic,
)
from syntony.workload.flow_lines import FlowLine
from syntony.workload.verdict import Verdict

WEB = Path(__file__).parents[2] / "web/src"
STATUS = (WEB / "status.ts").read_text()
MESSAGES = (WEB / "messages.ts").read_text()
STRUCTS: dict[str, type[msgspec.Struct]] = {
    "Part": parts.PartStatus, "Nic": messages.NicInfo, "Agent": messages.AgentStatus,
    "Fleet": messages.Fleet, "Silence": Silence, "Incidents": incidents.IncidentsReply,
    "Rule": Rule, "Timeline": Timeline, "Clocks": clocks.Clocks,
    "ClockSample": clocks.ClockSample, "ClockTruth": clocks.ClockTruth,
    "ClockTruths": clocks.ClockTruths, "ClockHistory": clocks.ClockHistory,
    "Cell": probes.MatrixCell, "Matrix": probes.Matrix, "Point": probes.SeriesPoint,
    "FabricMap": fabric.FabricMap, "Finding": Finding, "Findings": fabric.Findings,
    "Queue": Queue, "Queues": sla.Queues, "FabricChange": fabric.FabricChange,
    "Port": links.LinkStatus, "Links": links.Links, "LinkEvent": links.LinkEventRow,
    "LinkCounter": links.LinkCounterRow, "LinkHistory": links.LinkHistory,
    "JobView": jobs.JobView, "Jobs": jobs.Jobs, "Verdict": Verdict, "FlowLine": FlowLine,
    "JobReport": jobs.JobReport, "Takeover": jobs.Takeover,
    "ControllerStatus": control.ControllerStatus, "HostPaths": failover.HostPaths,
    "FailoverStatus": failover.FailoverStatus, "PathEvent": failover.PathEventRow,
    "Move": traffic.MoveView, "LinkLoad": traffic.LinkLoadView,
    "PlacedFlow": traffic.PlacedFlow, "Traffic": traffic.Traffic, "Change": control.Change,
    "AuditVerdict": audit.AuditVerdict, "AuditPort": audit.AuditPort,
    "AuditSection": audit.AuditSection, "AuditRun": audit.AuditRunView,
    "AuditView": audit.AuditView,
}  # fmt: skip
"""Interface of ``messages.ts`` → what a controller sends for it."""


def interfaces() -> dict[str, dict[str, str]]:
    """Of ``messages.ts``: fields and their types, those within a field's own braces left out."""
    found = {}
    for name, body in re.findall(r"export interface (\w+) \{(.*?)\}\n", MESSAGES, re.DOTALL):
        flat = body
        while flat != (flatter := re.sub(r"\{[^{}]*\}", "object", flat)):
            flat = flatter
        found[name] = dict(re.findall(r"(\w+): ([^;}]+?)\s*(?:;|$)", flat))
    return found


def nullable(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Fields as they are sent, and whether they may be null."""
    hints = get_type_hints(kind)
    return {
        field.encode_name: NoneType in get_args(hints[field.name])
        for field in msgspec.structs.fields(kind)
    }


def keys(name: str) -> set[str]:
    """Of an object literal in ``status.ts``."""
    found = re.search(rf"{name}: Record<string, Tone> = {{(.*?)}};", STATUS, re.DOTALL)
    assert found is not None, name
    return set(re.findall(r'"?([\w-]+)"?: "', found[1]))


def incident(state: IncidentState) -> dict[str, Any]:
    """As it is sent, of one in a state."""
    return plain(
        Incident(
            number=1, rule="link-loss", subject="h0/rail0", severity=Severity.WARNING, state=state,
            summary="", remedy="", opened_ns=S, updated_ns=S, resolved_ns=2 * S,
        )
    )  # fmt: skip


def test_every_interface_is_compared() -> None:
    assert set(interfaces()) == {*STRUCTS, "Incident"}
    assert all(interfaces().values())


@pytest.mark.parametrize("name", STRUCTS)
def test_what_views_read_is_sent_and_may_be_null_where_they_know_it(name: str) -> None:
    sent = nullable(STRUCTS[name])
    read = interfaces()[name]
    assert set(read) <= set(sent)
    surprises = [field for field, kind in read.items() if sent[field] and "null" not in kind]
    assert not surprises


@pytest.mark.parametrize("state", IncidentState)
def test_what_views_read_of_an_incident_is_sent(state: IncidentState) -> None:
    sent, read = incident(state), interfaces()["Incident"]
    assert set(read) <= set(sent)
    nulls = {field for field in read if sent[field] is None}
    assert nulls <= {field for field, kind in read.items() if "null" in kind}


def test_every_state_of_a_port_has_a_tone() -> None:
    assert keys("PORT_TONES") == set(PortState) - {PortState.UNKNOWN}


def test_every_state_of_a_clock_has_a_tone() -> None:
    assert set(ClockState) <= keys("TONES")


def test_a_port_is_stale_only_after_its_agent_should_have_told_of_it_twice() -> None:
    found = re.search(r"PORT_STALE_NS = (\w+);", STATUS)
    assert found is not None
    assert 2 * PORTS_NS < float(found[1]) < 3 * PORTS_NS


def test_directions_without_a_delay_have_the_terminal_s_signs_and_words() -> None:
    """A share of lost probes is its own sign; the picture has none for what was not probed."""
    matrix = (WEB / "delay/matrix.ts").read_text()
    gaps = dict(re.findall(r'Gap = \["([^"]+)", "([^"]+)"\]', matrix))
    assert gaps.pop(heatmap.LOST) == "lost"
    assert {mark: heatmap.MEANINGS[mark] for mark in gaps} == gaps
    assert set(heatmap.MEANINGS) - set(gaps) == {"30%", "·"}
    assert f'"{heatmap.MEANINGS["30%"]}"' in matrix
    assert f"DARK_LOSS = {heatmap.DARK_LOSS};" in matrix
