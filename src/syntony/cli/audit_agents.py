"""Audits through agents: sends the request to the controller and fetches reports as they arrive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from syntony.audit.reported import host_report, unreachable
from syntony.cli.audit_sources import Sources, now_ns
from syntony.cli.fleet import FleetTarget, ask, fleet_target, lab_hosts
from syntony.io.user_name import user_name
from syntony.model import MS, S
from syntony.wire.audit import (
    AuditCommand,
    AuditReportsQuery,
    AuditStarted,
    HostAudit,
)
from syntony.wire.messages import Fleet, FleetQuery

if TYPE_CHECKING:
    from syntony.audit.result import HostReport

_POLL_NS = 200 * MS
_GRACE_NS = 15 * S
"""Time beyond the deadline, for requests to arrive and processes to start."""


def ask_agents(sources: Sources, done: frozenset[str]) -> Iterator[HostReport]:
    """Yield a report of every agent's host as it arrives; hosts that do not answer are reported as
    such. Raises `RemoteError`: the controller does not answer, or refuses."""
    target = fleet_target(sources.lab or None, sources.controller, sources.tls)
    hosts = tuple(host for host in _hosts(target) if host not in done)
    if not hosts:
        return
    command = AuditCommand(
        hosts=hosts,
        checks=sources.checks,
        limits=dict(sources.spec.checks),
        active=sources.active,
        deadline_ns=sources.deadline_ns,
        by=user_name(),
        backend={host: ports for host in hosts if (ports := sources.spec.backend(host))},
    )
    started = ask(target, command)
    for host in started.absent:
        yield unreachable(host, "its agent is not connected", now_ns())
    yield from _fetch(target, started, time.monotonic_ns() + sources.deadline_ns + _GRACE_NS)


def _hosts(target: FleetTarget) -> tuple[str, ...]:
    expected = lab_hosts(target)

    def all_attached(fleet: Fleet) -> bool:
        return expected <= {agent.host for agent in fleet.agents if agent.connected}

    fleet = ask(target, FleetQuery(), until=all_attached)
    return tuple(sorted(expected | {agent.host for agent in fleet.agents}))


def _fetch(target: FleetTarget, started: AuditStarted, end_ns: int) -> Iterator[HostReport]:
    after = 0
    waiting: tuple[str, ...] = started.hosts
    while waiting and time.monotonic_ns() < end_ns:
        query = AuditReportsQuery(order=started.order, after=after)
        answer = ask(target, query)
        yield from map(_report, answer.reports)
        after, waiting = answer.after, answer.waiting
        if waiting and not answer.reports:
            time.sleep(_POLL_NS / S)
    for host in waiting:
        yield unreachable(host, "its agent did not answer in time", now_ns())


def _report(answer: HostAudit) -> HostReport:
    return host_report(answer.host, answer.report, answer.refused, now_ns())
