"""Incidents of the controller: rules are evaluated, results stored and receivers notified.

A change of the incident book, the messages about it and an operator's row of the audit log are one
transaction of control state: a crash at any instant leaves all of them or none.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from syntony.alerts import render
from syntony.alerts.causes import explained
from syntony.alerts.incident_book import Book
from syntony.alerts.incidents import ChangeKind, Incident, IncidentChange
from syntony.alerts.render import FleetName
from syntony.alerts.rules import with_defaults
from syntony.alerts.silences import Silence, check_rule, warn_of_subject
from syntony.controller.batches import BatchPiece
from syntony.controller.clock_watch import ClockWatch
from syntony.controller.config import AlertSettings
from syntony.controller.containment import PathContainment
from syntony.controller.equal_suspects import DarkHosts
from syntony.controller.incident_inputs import (
    EvaluationInputs,
    LinkReadings,
    LiveIncidents,
    observations,
)
from syntony.controller.notify import Notifier
from syntony.controller.own_rows import OwnRows
from syntony.errors import ConfigError, StoreError, UsageError
from syntony.io.operator_files import load_rules
from syntony.model import DAY_NS, HOUR_NS, S, format_ns
from syntony.state import ControlState, DatabaseConnection, log_change
from syntony.state.document import Document
from syntony.state.incident_store import IncidentStore
from syntony.state.outbox import Outbox
from syntony.store import Store
from syntony.wire.control import Issuer
from syntony.wire.incidents import (
    IncidentAction,
    IncidentsQuery,
    IncidentsReply,
    RulesReply,
    SilenceAction,
)
from syntony.wire.tables import INCIDENT

_log = logging.getLogger(__name__)

MAX_SINCE_NS = 365 * DAY_NS
MAX_TEXT = 500


class _FleetId(msgspec.Struct):
    id: str


class IncidentService:
    """Evaluates rules, stores incidents and notifies receivers.

    One per controller. `evaluate` and `deliver` run on a separate thread, commands on the event
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
        self.rules = load_rules(settings.rules) if settings.rules else with_defaults(())
        self._store = store
        self._lock = threading.Lock()
        if settings.receivers and not state.durable:
            raise ConfigError(
                "alerts.receivers: set state_dir or state, so that no message can be lost"
            )
        self._state = state
        self._incidents = IncidentStore(state)
        self._book = Book(self.rules, self._incidents.load())
        self._unsaved: list[IncidentChange] | None = None
        """Changes of a transaction that failed, as far as known: the book is ahead of control
        state, and must be read again."""
        fleet = FleetName(settings.cluster, fleet_id(state))
        self.notifier = Notifier(settings.receivers, fleet, Outbox(state))
        self.opened: Counter[str] = Counter()
        """Rule → incidents opened or reopened since this began."""
        self.resolved: Counter[str] = Counter()
        self._history = IncidentHistory()
        self._clocks = ClockWatch()
        self._dark = DarkHosts()
        self._links = LinkReadings((), (), {})
        """The newest."""
        self.evaluated_ns = 0
        """Fleet time of the newest evaluation; 0 before the first."""

    def evaluate(self, fleet_ns: int, inputs: EvaluationInputs) -> list[IncidentChange]:
        """Read the state of links and evaluate all rules at `fleet_ns`.

        Raises:
            StateError: nothing has changed.
        """
        return self.judge(fleet_ns, inputs, self.read_links(fleet_ns))

    def judge(
        self, fleet_ns: int, inputs: EvaluationInputs, readings: LinkReadings | None
    ) -> list[IncidentChange]:
        """Evaluate all rules; without `readings`, those about links keep what they said, and others
        use the newest. Raises as `evaluate`."""
        live = LiveIncidents(self.rules, self._book.incidents)
        clocks = self._clocks.observe(
            inputs.timelines, inputs.expected_clocks, inputs.silent, fleet_ns,
            live.explained_clocks(),
        )  # fmt: skip
        up = self._dark.switches_up(inputs.homes, inputs.answering, inputs.answered_ns, fleet_ns)
        inputs = inputs._replace(up=up)
        self._links = readings or self._links
        held = observations(
            fleet_ns, inputs, self._links, clocks, live, links_known=readings is not None
        )
        places = PathContainment(inputs.slas.crossing, inputs.homes)
        changes = self._change(lambda book: book.evaluate(fleet_ns, held, places))
        self.evaluated_ns = fleet_ns
        return changes

    def read_links(self, fleet_ns: int) -> LinkReadings | None:
        """The state of links; None: the store does not answer."""
        links, window = self._store.links, (fleet_ns - HOUR_NS, fleet_ns + S)
        try:
            return LinkReadings(
                links.ports(*window), links.counters(*window),
                links.modules(fleet_ns - DAY_NS, fleet_ns + S),
            )  # fmt: skip
        except StoreError as error:
            _log.error("state of ports unknown, rules about them not evaluated reason=%s", error)
            return None

    def deliver(self, now_ns: int, fleet_ns: int, wall_ns: int) -> None:
        """Send due messages; `now_ns` is monotonic, `wall_ns` this host's wall-clock time. Waits
        for the network: not for an event loop."""
        self.notifier.deliver(now_ns, fleet_ns, self._book, fleet_ns - wall_ns)

    # --- questions and commands ---

    @property
    def has_rows(self) -> bool:
        """Whether `rows` has something to return; without waiting for an evaluation."""
        return self._history.waiting

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
                found = [
                    self._book.find(query.number),
                    *explained(query.number, self._book.incidents),
                ]
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
        begins = f"in {format_ns(action.in_ns)} " if action.in_ns > 0 else ""
        change = (what, "", f"{begins}for {format_ns(action.for_ns)}", new_silence.comment)
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
                "clear": None,
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
            if self._unsaved is not None:
                stored = self._incidents.load()
                if not self._incidents.differs(self._book.state):  # only the answer was lost
                    self._log_changes(self._unsaved)
                self._book, self._unsaved = Book(self.rules, stored), None
            changes = work(self._book)
            if log is not None or self._incidents.differs(self._book.state):
                self._unsaved = changes
                with self._state.transaction() as connection:
                    self._incidents.save(connection, self._book.state)
                    self.notifier.take(connection, changes, self._book)
                    if log is not None:
                        log(connection)
                self._unsaved = None
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


def fleet_id(state: ControlState) -> str:
    """Identifies this fleet among others of the same name; generated once. Raises `StateError`."""
    document = Document(state, "fleet id", _FleetId)
    known = document.load()
    if known is None:
        known = _FleetId(secrets.token_hex(4))
        document.save(known)
    return known.id


_NOTIFICATIONS = frozenset({ChangeKind.PAGE, ChangeKind.CLEAR})
"""Notifications are not part of an incident's history."""


class IncidentHistory:
    """History of incidents as rows of the store, kept longer than the book keeps incidents.

    Rows wait here for the next insert; a crash in between loses history rows, but never an incident
    or a page, which are on disk before. Not thread-safe: its service's lock protects it.
    """

    def __init__(self) -> None:
        self._waiting: list[dict[str, Any]] = []
        self._own_rows = OwnRows(INCIDENT)

    def add(self, changes: Iterable[IncidentChange]) -> None:
        """Take changes, in their current state."""
        self._waiting += [_row(change) for change in changes if change.kind not in _NOTIFICATIONS]

    @property
    def waiting(self) -> bool:
        """Whether there are rows; for any thread."""
        return bool(self._waiting)

    def rows(self) -> BatchPiece | None:
        """All waiting rows; None if there are none."""
        records, self._waiting = self._waiting, []
        return self._own_rows.piece(records)


def _row(change: IncidentChange) -> dict[str, Any]:
    fields = msgspec.to_builtins(change.incident)
    return {
        **{name: fields[name] for name in _COPIED},
        "ts_ns": change.at_ns,
        "change": change.kind.value,
        "evidence": "\n".join(fields["evidence"]),
        "jobs": ", ".join(fields["jobs"]),
    }


_COPIED = (
    "number", "rule", "subject", "severity", "state", "summary", "remedy", "opened_ns",
    "resolved_ns", "value", "worst", "cause", "reopened", "repeats", "acknowledged_by", "comment",
)  # fmt: skip
