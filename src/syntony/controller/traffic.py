"""Traffic control in the controller: agents' reports, and the stop switch.

The switch is control state and survives a restart; agents also store it and obey it without a
controller. Its row in `path_events` is only a record.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

import msgspec

from syntony.controller.batches import BatchPiece
from syntony.controller.path_event_rows import PathEventRows
from syntony.errors import StateError
from syntony.model import HOUR_NS, S
from syntony.model.findings import QueueFlow
from syntony.state import ControlState, LeaseLostError
from syntony.wire.control import Issuer
from syntony.wire.failover import (
    ConnectionsQuery,
    FailoverStatus,
    FleetConnections,
    HostPaths,
    PathsReport,
    Switch,
    SwitchCommand,
)

_log = logging.getLogger(__name__)
_MAX_TEXT = 200
MAX_USED = 65_536
"""Maximum (job, NIC, NIC) that are remembered."""
STALE_NS = 10 * S
"""Five reports are missing: the host's connections are unknown."""
FORGET_NS = HOUR_NS
"""A host without a report for this long is no longer shown; until then, with its age."""
USED_NS = 120 * S
"""An incident's jobs are those that used its component this recently: failover leaves within
milliseconds a component that an incident names seconds later."""


class _Reported(NamedTuple):
    report: PathsReport
    at_ns: int


class TrafficService:
    """Keeps agents' reports on jobs' flows, and the stop switch.

    One per controller; used on its event loop only, except `throw`, `flows` and `pairs`.

    Args:
        state: stores the switch.

    Raises:
        StateError: it cannot be read.
    """

    def __init__(self, state: ControlState) -> None:
        self._state = state
        self._reports: dict[str, _Reported] = {}
        self._oldest_ns = 0
        """No known report is older."""
        self._log = PathEventRows()
        self._recording = threading.Lock()
        self._unrecorded: tuple[Switch, Issuer, str] | None = None
        """A stop that is in force but not recorded in control state."""
        self.switch: Switch | None = state.switch()
        """None: never thrown."""
        self._used: dict[tuple[str, str, str], int] = {}
        """(job, NIC, NIC) → when it last had connections between these."""

    def take(self, host: str, report: PathsReport, now_ns: int) -> None:
        """Take an agent's newest report; `now_ns` is monotonic. One about another host is
        ignored."""
        if not _is_of(host, report):
            _log.warning("paths ignored host=%s reason=they start at another host", host)
            return
        self._reports[host] = _Reported(report, now_ns)
        if now_ns - self._oldest_ns >= FORGET_NS:
            self._forget(now_ns)
        for job, ends in _pairs(report).items():
            self._used |= dict.fromkeys(((job, a, b) for a, b in ends), now_ns)
        if len(self._used) > MAX_USED:
            newest = sorted(self._used, key=self._used.__getitem__)[-MAX_USED // 2 :]
            self._used = {key: self._used[key] for key in newest}

    def _forget(self, now_ns: int) -> None:
        """Forget hosts without a report for long. Rare: it looks at all hosts."""
        self._reports = {
            name: each for name, each in self._reports.items() if now_ns - each.at_ns < FORGET_NS
        }
        self._oldest_ns = min(each.at_ns for each in self._reports.values())

    def throw(
        self, command: SwitchCommand, issuer: Issuer, fleet_ns: int
    ) -> tuple[Switch, BatchPiece, StateError | None]:
        """Set the stop switch; waits for the disk, one call at a time.

        Returns:
            The new position, its row for the log, and why it could not be recorded: a stop is
                carried out even then.

        Raises:
            StateError: a start could not be recorded, or another controller has taken over; nothing
                changed.
        """
        before_ns = self.switch.at_ns if self.switch is not None else 0
        # Never older than its predecessor: agents obey the newest.
        at_ns = max(fleet_ns, before_ns + 1)
        switch = Switch(
            stopped=command.stopped, at_ns=at_ns, by=issuer.who, epoch=self._state.epoch
        )
        unrecorded, why = None, command.why[: 2 * _MAX_TEXT]
        with self._recording:
            try:
                self._state.set_switch(switch, issuer, why)
                self._unrecorded = None
            except StateError as error:
                # One that was replaced would stop agents until they hear of its successor.
                if not switch.stopped or isinstance(error, LeaseLostError):
                    raise
                unrecorded = error
                self._unrecorded = switch, issuer, why
                switch = msgspec.structs.replace(switch, recorded=False)
        self.switch = switch
        word = "stopped" if switch.stopped else "started"
        _log.warning("traffic control %s by=%s from=%s", word, issuer.who, issuer.origin)
        return switch, self._row(switch, command.why), unrecorded

    @property
    def is_unrecorded(self) -> bool:
        """Whether a stop is in force that is not recorded in control state."""
        return self._unrecorded is not None

    def record(self) -> None:
        """Record a stop that could not be recorded when it was ordered; waits for the disk.

        Raises:
            StateError: it still cannot.
            LeaseLostError: it never will: another controller has taken over.
        """
        with self._recording:
            if self._unrecorded is not None:
                try:
                    self._state.set_switch(*self._unrecorded)
                except LeaseLostError:
                    self._unrecorded = None
                    raise
                self._unrecorded = None
                _log.warning("traffic control stopped, order now recorded")

    def paths(self, query: ConnectionsQuery, now_ns: int) -> FleetConnections:
        return FleetConnections(hosts=tuple(self._hosts(query, now_ns)))

    def flows(self, now_ns: int) -> list[QueueFlow]:
        """Every path of every job's connections, in the direction in which its host sends, for
        hosts that still report; `now_ns` is monotonic."""
        return [
            QueueFlow(job=connection.job, pair="->".join(pair), rate_bps=subflow.rate_bps)
            for report in self._fresh(now_ns)
            for connection in report.connections
            for subflow in connection.subflows
            if all(pair := _pair(subflow.path))
        ]

    def pairs(self, now_ns: int) -> dict[str, frozenset[tuple[str, str]]]:
        """Job → the pairs of NICs, both directions, between which it has connections, for hosts
        that still report; `now_ns` is monotonic."""
        found: dict[str, set[tuple[str, str]]] = {}
        for report in self._fresh(now_ns):
            for job, ends in _pairs(report).items():
                found.setdefault(job, set()).update(ends)
        return {job: frozenset(ends) for job, ends in found.items()}

    def used(self, now_ns: int) -> dict[str, frozenset[tuple[str, str]]]:
        """As `pairs`, with those left within `USED_NS`; `now_ns` is monotonic."""
        self._used = {key: at for key, at in self._used.items() if now_ns - at < USED_NS}
        found: dict[str, set[tuple[str, str]]] = {}
        for job, a, b in self._used:
            found.setdefault(job, set()).add((a, b))
        return {job: frozenset(ends) for job, ends in found.items()}

    def status(self, now_ns: int) -> FailoverStatus:
        """The switch, and every host's mode without its connections."""
        hosts = (
            HostPaths(host=host, age_ns=now_ns - at_ns, report=_bare(report))
            for host, (report, at_ns) in sorted(self._reports.items())
        )
        return FailoverStatus(switch=self.switch, hosts=tuple(hosts))

    def _fresh(self, now_ns: int) -> list[PathsReport]:
        reports = list(self._reports.values())
        return [reported.report for reported in reports if now_ns - reported.at_ns < STALE_NS]

    def _hosts(self, query: ConnectionsQuery, now_ns: int) -> list[HostPaths]:
        found = []
        for host, (report, at_ns) in sorted(self._reports.items()):
            if query.host and host != query.host:
                continue
            wanted = tuple(each for each in report.connections if query.job in {"", each.job})
            found.append(
                HostPaths(
                    host=host,
                    age_ns=now_ns - at_ns,
                    report=PathsReport(
                        mode=report.mode,
                        stopped=report.stopped,
                        connections=wanted,
                        left_out=report.left_out,
                        processes=tuple(
                            each for each in report.processes if query.job in {"", each.job}
                        ),
                        refused=report.refused,
                    ),
                )
            )
        return found

    def _row(self, switch: Switch, why: str) -> BatchPiece:
        return self._log.piece(
            switch.at_ns,
            cause="operator",
            evidence=" ".join(f"{switch.by}: {why}".split())[: 2 * _MAX_TEXT],
            action="stop" if switch.stopped else "start",
        )


def _is_of(host: str, report: PathsReport) -> bool:
    """Whether the near end of each path is the host's; one that its agent cannot name is an
    address."""
    return all(
        near == host or not slash
        for connection in report.connections
        for subflow in connection.subflows
        for near, slash, _ in (subflow.path.partition(" > ")[0].partition("/"),)
    )


def _bare(report: PathsReport) -> PathsReport:
    return PathsReport(
        mode=report.mode,
        stopped=report.stopped,
        connections=(),
        left_out=len(report.connections) + report.left_out,
    )


def _pairs(report: PathsReport) -> dict[str, set[tuple[str, str]]]:
    """Job → the pairs of NICs, both directions, between which it has connections."""
    found: dict[str, set[tuple[str, str]]] = {}
    for connection in report.connections:
        ends = found.setdefault(connection.job, set())
        for subflow in connection.subflows:
            pair = _pair(subflow.path)
            if all(pair):
                ends |= {pair, pair[::-1]}
    return found


def _pair(path: str) -> tuple[str, str]:
    """The NICs at the ends of ``host/nic:port > host/nic:port``; empty for any other text."""
    a, _, b = path.partition(" > ")
    return a.rpartition(":")[0], b.rpartition(":")[0]
