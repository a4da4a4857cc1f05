"""Record a running lab's answers, as the console gets them, for tests that run without a lab.

``python -m tests.console.record LAB FILE``: one JSON object, from a request's name and parameters
to its answer.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from syntony.cli.fleet import ask, fleet_target
from syntony.errors import RemoteError
from syntony.model import S
from syntony.wire.audit import AuditViewQuery
from syntony.wire.clocks import ClockHistoryQuery, ClockQuery
from syntony.wire.control import ChangesQuery
from syntony.wire.fabric import FabricChangesQuery, FindingsQuery, TopologyQuery
from syntony.wire.failover import ConnectionsQuery, FailoverLogQuery, FailoverStatusQuery
from syntony.wire.incidents import IncidentsQuery, RulesQuery
from syntony.wire.jobs import JobReportQuery, JobsQuery
from syntony.wire.links import LinkHistoryQuery, LinksQuery
from syntony.wire.messages import FleetQuery
from syntony.wire.probes import MatrixQuery, SeriesQuery
from syntony.wire.query import Query
from syntony.wire.sla import QueuesQuery, SlaReportQuery
from syntony.wire.traffic import MovesQuery, TrafficQuery

MINUTES_NS = 600 * S


def route(query: type[Query[Any]]) -> str:
    """``clock-history`` of `ClockHistoryQuery`: the last part of the path of its endpoint."""
    name = query.__name__.removesuffix("Query").removesuffix("Command")
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def questions() -> list[Query[Any]]:
    """One of each that a view asks; those about one job or incident are added by `record`."""
    return [
        FleetQuery(), IncidentsQuery(resolved=True), RulesQuery(), ClockQuery(),
        ClockHistoryQuery(window_ns=MINUTES_NS, step_ns=2 * S), FindingsQuery(), QueuesQuery(),
        TopologyQuery(), LinksQuery(), LinkHistoryQuery(), MatrixQuery(window_ns=60 * S),
        FabricChangesQuery(), FailoverStatusQuery(), FailoverLogQuery(), ConnectionsQuery(),
        TrafficQuery(), MovesQuery(), JobsQuery(window_ns=3600 * S), ChangesQuery(),
        AuditViewQuery(), SlaReportQuery(),
    ]  # fmt: skip


def record(lab: str) -> dict[str, Any]:
    """Every answer by route; of jobs, incidents and pairs one each."""
    target = fleet_target(lab, None, None)
    answers: dict[str, Any] = {}

    def take(query: Query[Any]) -> Any:
        try:
            answer = ask(target, query, until=lambda _: True)
        except RemoteError as error:
            print(f"{route(type(query))}: {error}", file=sys.stderr)
            return None
        answers[route(type(query))] = msgspec.to_builtins(answer)
        return answer

    for query in questions():
        take(query)
    for job in answers.get("jobs", {}).get("jobs", ())[:1]:
        take(JobReportQuery(job=job["job"], window_ns=120 * S))
    for cell in answers["matrix"]["cells"][:1]:
        take(SeriesQuery(src=cell["src"], dst=cell["dst"], window_ns=MINUTES_NS))
    return answers


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(record(sys.argv[1])), encoding="utf-8")
