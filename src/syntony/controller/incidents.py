"""Incidents of the controller: rules are evaluated, results stored and receivers notified.

A change of the incident book, the messages about it and an operator's row of the audit log are one
transaction of control state: a crash at any instant leaves all of them or none.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from syntony.alerts import render
from syntony.alerts.incident_book import Book, explained
from syntony.alerts.incidents import ChangeKind, Incident, IncidentChange
from syntony.alerts.observations import Observation, measured
from syntony.alerts.render import FleetName
from syntony.alerts.rules import Rule, parse_rules, with_defaults
from syntony.alerts.silences import Silence, check_rule, warn_of_subject
from syntony.controller import (
    clock_watch,
    impact,
    job_takeovers,
    job_verdicts,
    observe,
    observe_switches,
    planes,
    silent_agents,
    stalled_queue_pairs,
)
from syntony.controller.batches import BatchPiece
from syntony.controller.clock_watch import ClockWatch
from syntony.controller.config import AlertSettings
from syntony.controller.containment import PathContainment
from syntony.controller.fabric_changes import FabricStatus
from syntony.controller.incident_history import IncidentHistory
from syntony.controller.notify import Notifier
from syntony.controller.planes import PlaneComparison
from syntony.controller.silent_agents import NOBODY_REFUSED, Refused
from syntony.errors import ConfigError, UsageError
from syntony.fabric.extra_probes import SuspectNote
from syntony.model import S, format_ns
from syntony.model.clocks import Timeline
from syntony.model.findings import Finding, Queue
from syntony.model.sla import SlaRow
from syntony.state import ControlState, DatabaseConnection, log_change
from syntony.state.document import Document
from syntony.state.incident_store import IncidentStore
from syntony.state.outbox import Outbox
from syntony.store import Store
from syntony.traffic.queue_pair_stalls import StallsSeen
from syntony.wire.control import Issuer
from syntony.wire.incidents import (
    IncidentAction,
    IncidentsQuery,
    IncidentsReply,
    RulesReply,
    SilenceAction,
)
from syntony.wire.job_diagnosis import JobResult
from syntony.wire.links import LinkStatus
from syntony.wire.parts import PartStatus

_log = logging.getLogger(__name__)

HOUR_NS, DAY_NS = 3600 * S, 86_400 * S
SILENT_NS = 10 * S
"""An agent without a report for this long is silent; it sends one every second."""
MAX_HOLD_NS = 60 * S
"""Longest time that a loss is held back because an overflowing queue may cause it."""
MAX_SINCE_NS = 365 * DAY_NS
MAX_TEXT = 500


class LatencyInputs(NamedTuple):
    """Latency, and the jobs that depend on it."""

    rows: tuple[SlaRow, ...] | None
    """Verdicts on pairs of NICs; None: not evaluated yet."""
    queues: tuple[Queue, ...] | None
    """Links at which packets wait; None: not evaluated yet."""
    crossing: Mapping[str, frozenset[str]]
    """``a->b`` → components that its paths cross."""
    jobs: Mapping[str, frozenset[tuple[str, str]]]
    """Job → the pairs of NICs between which it has connections."""
    planes: PlaneComparison | None = None
    """Comparison of probes over UDP and verbs; None: not evaluated yet."""
    stalls: StallsSeen | None = None
    """Jobs' queue pairs without progress; None: not evaluated yet."""
    nics: Mapping[str, str] = {}
    """Address → ``host/nic``."""
    job_results: tuple[JobResult, ...] | None = None
    """Verdicts of `syntony why` on running jobs; None: not evaluated yet."""
    lost_ranks: Sequence[Observation] | None = None
    """Lost ranks of the past hour; None: not evaluated yet."""


class _FleetId(msgspec.Struct):
    id: str


_NO_LATENCY = LatencyInputs(None, None, {}, {})


class IncidentService:
    """One per controller. `evaluate` and `deliver` run on a separate thread, commands on the event
    loop; a lock separates them.

    Args:
        settings: rules and receivers.
        state: stores the book and undelivered messages; without files, there can be no receivers.
        store: events of links.

    Raises:
        ConfigError: invalid rules or receivers.
        StateError: the book cannot be read.
    """

    def __init__(self, settings: AlertSettings, state: ControlState, store: Store) -> None:
        self.rules = load_rules(settings.rules)
        self._store = store
        self._lock = threading.Lock()
        if settings.receivers and not state.durable:
            raise ConfigError(
                "alerts.receivers: set state_dir or state, so that no message can be lost"
            )
        self._state = state
        self._incidents = IncidentStore(state)
        self._book = Book(self.rules, self._incidents.load())
        self._unsaved = False
        """A transaction failed: the book is ahead of control state, and must be read again."""
        fleet = FleetName(settings.cluster, fleet_id(state))
        self.notifier = Notifier(settings.receivers, fleet, Outbox(state))
        self.opened: Counter[str] = Counter()
        """Rule → incidents opened or reopened since this began."""
        self.resolved: Counter[str] = Counter()
        self._history = IncidentHistory()
        self._clocks = ClockWatch()
        self.evaluated_ns = 0
        """Fleet time of the newest evaluation; 0 before the first."""

    def evaluate(
        self,
        fleet_ns: int,
        silent_ns: Mapping[str, int],
        timelines: tuple[Timeline, ...],
        findings: tuple[Finding, ...],
        slas: LatencyInputs = _NO_LATENCY,
        *,
        expected_clocks: Collection[str] = frozenset(),
        fabric: FabricStatus | None = None,
        homes: Mapping[str, str] | None = None,
        agent_parts: Mapping[str, Sequence[PartStatus]] | None = None,
        answering: Collection[str] = frozenset(),
        refused: Refused = NOBODY_REFUSED,
        notes: Mapping[frozenset[str], SuspectNote] | None = None,
        gateways: Sequence[Observation] = (),
    ) -> list[IncidentChange]:
        """Evaluate all rules.

        Args:
            fleet_ns: now.
            silent_ns: host → for how long its agent has sent no report.
            timelines: of every clock.
            findings: of localisation.
            slas: findings about latency.
            expected_clocks: those of NICs that probe or are probed.
            fabric: state of the learnt fabric; None: not evaluated yet.
            homes: NIC → the switch that it is at.
            agent_parts: host → the parts of its agent, for those that reported.
            answering: hosts whose NICs answer the probes of others.
            refused: hosts that may not report.
            notes: by suspects that cannot be distinguished: the attempts to do so.
            gateways: expected ones.

        Raises:
            StoreError, StateError: nothing has changed.
        """
        silent = frozenset(host for host, age_ns in silent_ns.items() if age_ns > SILENT_NS)
        ports = self._store.links.ports(fleet_ns - HOUR_NS, fleet_ns + S)
        observations = impact.with_jobs_at(
            [
                *self._observations(fleet_ns, silent, ports, homes=homes or {}),
                *self._clocks.observe(
                    timelines, expected_clocks, silent, fleet_ns, self._explained_clocks()
                ),
                # Hosts that were silent before: one that has not reported since this controller
                # started is still silent, not healthy because nothing is known of it.
                *silent_agents.of_hosts(
                    silent_ns,
                    self._blamed_for(silent_agents.HOST_METRICS),
                    answering,
                    refused.reasons,
                ),
                *silent_agents.of_fleet(silent_ns),
                *silent_agents.of_sets(silent_ns, answering, self._known_sets(refused.removed)),
                *gateways,
                *silent_agents.of_gateway_sets(gateways, self._known_gateways()),
            ],
            slas.jobs,
        )
        findings = silent_agents.without_hosts_that_report(
            findings, silent_ns, homes or {}, self._blamed_for(observe.SWITCH_OR_HOSTS)
        )
        findings = observe_switches.without_switches_lost_apart(
            findings, ports, homes or {}, silent, fleet_ns
        )
        senders = {src for pairs in slas.jobs.values() for src, _ in pairs}
        found = observe.of_findings(findings, notes, senders)
        found = impact.with_jobs(found, slas.jobs, slas.crossing)
        waits = self._blamed_for(observe.DELAY | observe.QUEUE_METRICS)
        crowded = {job for each in self._live_about(observe.QUEUE_METRICS) for job in each.jobs}
        long = {
            each.subject
            for each in self._live_about(observe.LOSSES)
            if fleet_ns - each.held_ns >= MAX_HOLD_NS
        }
        found = impact.under_load(
            found, findings, slas.queues or (), known=waits, crowded=crowded, long=long
        )
        observations += impact.with_impact(found, slas.crossing, jobs_known=bool(slas.jobs))
        metrics = (
            observe.LINK_METRICS | clock_watch.METRICS | silent_agents.HOST_METRICS
            | silent_agents.TOGETHER | silent_agents.FLEET_METRICS | observe.FINDING_METRICS
            | observe.PART_METRICS | silent_agents.GATEWAY_METRICS | silent_agents.GATEWAYS_TOGETHER
        )  # fmt: skip
        if slas.rows is not None:
            observations += observe.of_slas(slas.rows)
            metrics |= observe.SLA_METRICS
        if slas.planes is not None:
            differ = planes.observations(slas.planes, silent)
            observations += impact.with_jobs(differ, slas.jobs, slas.crossing)
            metrics |= planes.METRICS
        if slas.stalls is not None:
            observations += stalled_queue_pairs.observations(slas.stalls, slas.nics, silent)
            metrics |= stalled_queue_pairs.METRICS
        if slas.job_results is not None:
            observations += job_verdicts.observations(slas.job_results)
            metrics |= job_verdicts.METRICS
        if slas.queues is not None:
            observations += observe.of_queues(
                slas.queues, findings, self._blamed_for(observe.DELAY)
            )
            metrics |= observe.QUEUE_METRICS
        if fabric is not None:
            observations += impact.with_jobs(observe.of_fabric(fabric), slas.jobs, slas.crossing)
            metrics |= observe.FABRIC_METRICS
        if homes:
            gone = {} if fabric is None else fabric.gone
            down = observe_switches.of_switches(ports, homes, gone, silent, fleet_ns)
            observations += impact.with_jobs(down, slas.jobs, slas.crossing)
            metrics |= observe_switches.SWITCH_METRICS
        observations += observe.of_parts(agent_parts or {}, silent)
        if slas.lost_ranks is not None:
            observations += slas.lost_ranks
            metrics |= job_takeovers.METRICS
        observations = [
            each for each in observations if each.subject.partition("/")[0] not in refused.removed
        ]
        held, places = measured(observations, metrics), PathContainment(slas.crossing, homes)
        changes = self._change(lambda book: book.evaluate(fleet_ns, held, places))
        self.evaluated_ns = fleet_ns
        return changes

    def deliver(self, now_ns: int, fleet_ns: int, wall_ns: int) -> None:
        """Send due messages; `now_ns` is monotonic, `wall_ns` this host's wall-clock time. Waits
        for the network: not for an event loop."""
        self.notifier.deliver(now_ns, fleet_ns, self._book, fleet_ns - wall_ns)

    # --- questions and commands ---

    def rows(self) -> BatchPiece | None:
        """Changes of incidents since the last call, for the store."""
        with self._lock:
            return self._history.rows()

    def incidents(self, query: IncidentsQuery, fleet_ns: int = 0) -> IncidentsReply:
        """Incidents, newest first; those explained by others are listed under them.

        Raises:
            UsageError: there is no incident with that number, or no data for that time.
            StoreError: the past was requested, and the store failed.
        """
        if query.since_ns:
            return self._past(query.since_ns, fleet_ns)
        with self._lock:
            if query.number:
                found = [self._book.find(query.number), *explained(self._book, query.number)]
            else:
                found = [each for each in self._book.incidents if query.resolved or each.live]
                found.reverse()
            plain = tuple(render.plain(each) for each in found)
            silences = tuple(msgspec.to_builtins(each) for each in self._book.state.silences)
        return IncidentsReply(incidents=plain, silences=silences, waiting=self.notifier.waiting())

    def act(self, action: IncidentAction, issuer: Issuer, fleet_ns: int) -> IncidentsReply:
        """Acknowledge or clear. Raises `UsageError`, `StateError`: nothing has changed."""
        number, who, comment = action.number, issuer.who, action.comment[:MAX_TEXT]
        was = ""

        def work(book: Book) -> list[IncidentChange]:
            nonlocal was
            was = book.find(number).state.value
            if action.what == "ack":
                return book.acknowledge(number, who, comment, fleet_ns)
            if action.what == "resolve":
                return book.resolve(number, who, fleet_ns)
            raise UsageError(f"{action.what!r} is not an action on an incident")

        def log(connection: DatabaseConnection) -> None:
            change = (f"incident {number}", was, action.what, comment)
            log_change(connection, fleet_ns, issuer, change)

        self._change(work, log)
        _log.warning("incident %s number=%d by=%s", action.what, number, who)
        return self.incidents(IncidentsQuery(number=number))

    def silence(
        self,
        action: SilenceAction,
        issuer: Issuer,
        fleet_ns: int,
        known: Collection[str] = frozenset(),
    ) -> IncidentsReply:
        """Begin or end a silence.

        Args:
            action: what to do.
            issuer: who wants it.
            fleet_ns: now.
            known: names of the fleet's parts and jobs; a silence that matches none of them is
                accepted with a warning, because its subject may come later.

        Raises:
            UsageError, StateError: nothing has changed.
        """
        if not action.end and action.for_ns <= 0:
            raise UsageError("a silence needs a duration, for example 2h")
        first_ns = fleet_ns + max(0, action.in_ns)
        new_silence = Silence(
            rule=action.rule or "*",
            subject=action.subject or "*",
            first_ns=first_ns,
            last_ns=first_ns + action.for_ns,
            who=issuer.who,
            comment=action.comment[:MAX_TEXT],
        )
        check_rule(new_silence, [rule.name for rule in self.rules])
        what = f"silence of {new_silence.rule} on {new_silence.subject}"
        change = (what, "", f"for {format_ns(action.for_ns)}", new_silence.comment)
        if action.end:
            change = (f"silence {action.end}", "", "ended", "")

        def work(book: Book) -> list[IncidentChange]:
            if action.end:
                book.unsilence(action.end)
            else:
                book.silence(new_silence)
            return []

        self._change(work, lambda connection: log_change(connection, fleet_ns, issuer, change))
        _log.warning("%s %s by=%s", change[0], change[2], issuer.who)
        reply = self.incidents(IncidentsQuery())
        with self._lock:
            subjects = {*known, *(incident.subject for incident in self._book.incidents)}
        warning = "" if action.end else warn_of_subject(new_silence, subjects)
        return msgspec.structs.replace(reply, warning=warning)

    def live(self) -> list[Incident]:
        """Copies of the incidents that are not resolved."""
        with self._lock:
            return [msgspec.structs.replace(each) for each in self._book.incidents if each.live]

    def reported_rules(self) -> RulesReply:
        """The rules in force."""
        return RulesReply(rules=tuple(msgspec.to_builtins(rule) for rule in self.rules))

    # --- internal ---

    def _observations(
        self,
        fleet_ns: int,
        silent: frozenset[str],
        ports: Sequence[LinkStatus],
        *,
        homes: Mapping[str, str],
    ) -> list[Observation]:
        links = self._store.links
        window = (fleet_ns - HOUR_NS, fleet_ns + S)
        return [
            *observe.of_links(ports, links.counters(*window), silent, fleet_ns, homes),
            *observe.of_modules(links.modules(fleet_ns - DAY_NS, fleet_ns + S)),
        ]

    def _past(self, since_ns: int, fleet_ns: int) -> IncidentsReply:
        if not 0 < since_ns <= MAX_SINCE_NS:
            raise UsageError(f"incidents are kept for {MAX_SINCE_NS // DAY_NS} days")
        first_ns = fleet_ns - since_ns
        units = {rule.name: rule.unit for rule in self.rules}
        found = {
            (each["number"], each["opened_ns"]): each
            | {
                "opened": render.instant(each["opened_ns"]),
                "began": render.instant(each["began_ns"]),
                "resolved": each["resolved_ns"] and render.instant(each["resolved_ns"]),
                "unit": units.get(each["rule"], ""),
            }
            for each in self._store.incidents.since(first_ns)
        }
        with self._lock:
            # The book has the newest state, also of changes that have not reached the store yet.
            for each in self._book.incidents:
                if each.live or each.updated_ns >= first_ns:
                    found[each.number, each.opened_ns] = render.plain(each)
            silences = tuple(msgspec.to_builtins(each) for each in self._book.state.silences)
        reported = sorted(found.values(), key=lambda each: (-each["opened_ns"], -each["number"]))
        return IncidentsReply(
            incidents=tuple(reported), silences=silences, waiting=self.notifier.waiting()
        )

    def _blamed_for(self, metrics: Container[str]) -> frozenset[str]:
        """Subjects of the live incidents about any of these metrics."""
        return frozenset(incident.subject for incident in self._live_about(metrics))

    def _explained_clocks(self) -> frozenset[str]:
        """Clocks that are not synchronized because of something other than the fleet's."""
        of_fleet = {each.number for each in self._live_about(clock_watch.FLEET_METRICS)}
        return frozenset(
            each.subject
            for each in self._live_about(clock_watch.CLOCK_METRICS)
            if each.cause and each.cause not in of_fleet
        )

    def _known_sets(self, removed: Container[str]) -> dict[str, tuple[str, ...]]:
        """Agents of one incident that fell silent together, and still belong to the fleet, by
        subject."""
        return {
            each.subject: tuple(host for host in each.members if host not in removed)
            for each in self._live_about(silent_agents.TOGETHER)
        }

    def _known_gateways(self) -> dict[str, tuple[str, ...]]:
        """Gateways that were lost together and are one incident, by subject."""
        return {
            each.subject: each.members for each in self._live_about(silent_agents.GATEWAYS_TOGETHER)
        }

    def _live_about(self, metrics: Container[str]) -> list[Incident]:
        names = {rule.name for rule in self.rules if rule.metric in metrics}
        return [each for each in self._book.incidents if each.live and each.rule in names]

    def _change(
        self,
        work: Callable[[Book], list[IncidentChange]],
        log: Callable[[DatabaseConnection], None] | None = None,
    ) -> list[IncidentChange]:
        """Change the book and commit it with all that follows.

        Args:
            work: changes the book, or raises before any change.
            log: writes an operator's row of the audit log.
        """
        with self._lock:
            if self._unsaved:
                self._book = Book(self.rules, self._incidents.load())
                self._unsaved = False
            changes = work(self._book)
            if log is not None or self._incidents.differs(self._book.state):
                self._unsaved = True
                with self._state.transaction() as connection:
                    self._incidents.save(connection, self._book.state)
                    self.notifier.take(connection, changes, self._book)
                    if log is not None:
                        log(connection)
                self._unsaved = False
            self._log_changes(changes)
        return changes

    def _log_changes(self, changes: list[IncidentChange]) -> None:
        """Count and log the recorded changes."""
        self._history.add(changes)
        for change in changes:
            if change.kind in {ChangeKind.OPENED, ChangeKind.REOPENED}:
                self.opened[change.incident.rule] += 1
            elif change.kind is ChangeKind.RESOLVED:
                self.resolved[change.incident.rule] += 1
            if change.kind not in {ChangeKind.PAGE, ChangeKind.CLEAR}:
                _log.warning(
                    "incident %s number=%d severity=%s cause=%d summary=%s",
                    change.kind, change.incident.number, change.incident.severity,
                    change.incident.cause, change.incident.summary,
                )  # fmt: skip


def load_rules(path: str) -> tuple[Rule, ...]:
    """The rules in force with an operator's file; without a path the default ones.

    Raises:
        ConfigError: the file cannot be used.
    """
    if not path:
        return with_defaults(())
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"rules {path}: cannot be read: {error}") from error
    return with_defaults(parse_rules(text, path))


def fleet_id(state: ControlState) -> str:
    """Identifies this fleet among others of the same name; generated once. Raises `StateError`."""
    document = Document(state, "fleet id", _FleetId)
    known = document.load()
    if known is None:
        known = _FleetId(secrets.token_hex(4))
        document.save(known)
    return known.id
