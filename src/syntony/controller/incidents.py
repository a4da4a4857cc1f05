"""Incidents as the controller keeps them: measured, judged, written down, told.

Order matters. What is to be told is written down first, the book next: a crash in between tells
somebody twice under one key, never not at all.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from syntony.alerts import render
from syntony.alerts.incidents import Book, BookState, Change, ChangeKind, Incident, explained
from syntony.alerts.observations import Observation, measured
from syntony.alerts.rules import Rule, parse_rules, with_defaults
from syntony.alerts.silences import Silence
from syntony.controller import observe
from syntony.controller.batches import Piece
from syntony.controller.config import AlertSettings
from syntony.controller.fabric_changes import Standing
from syntony.controller.incident_history import IncidentHistory
from syntony.controller.notify import Notifier
from syntony.controller.whole_files import write_atomically
from syntony.errors import ConfigError, UsageError
from syntony.model import S
from syntony.model.clocks import Timeline
from syntony.model.findings import Finding, Queue
from syntony.model.sla import SlaRow
from syntony.store import Store
from syntony.wire.incidents import (
    IncidentAction,
    IncidentsQuery,
    IncidentsReply,
    RulesReply,
    SilenceAction,
)

_log = logging.getLogger(__name__)

BOOK_FILE = "incidents.json"
HOUR_NS, DAY_NS = 3600 * S, 86_400 * S
SILENT_NS = 10 * S
"""An agent that has said nothing for so long is silent: it speaks every second."""
MAX_SINCE_NS = 365 * DAY_NS
STARTING_NS = 30 * S
"""After its own start the controller gives agents so long to come back before it misses them."""
MAX_TEXT = 500


class Slas(NamedTuple):
    """What is known of latency and of who needs it."""

    rows: tuple[SlaRow, ...] | None
    """Verdicts on pairs of NICs; None: not looked yet."""
    queues: tuple[Queue, ...] | None
    """Links at which packets wait; None: not looked yet."""
    crossing: Mapping[str, frozenset[str]]
    """``a->b`` → what its paths cross."""
    jobs: Mapping[str, frozenset[tuple[str, str]]]
    """Job → the pairs of NICs that its connections go between."""


_NO_SLAS = Slas(None, None, {}, {})


class AlertDesk:
    """One per controller. `evaluate` and `deliver` run on a thread of their own, commands on the
    event loop; a lock keeps them apart.

    Args:
        settings: rules and receivers.
        state_dir: where the book and undelivered messages are; None for nowhere: a restart begins
            without incidents, and there can be no receivers.
        store: what links did.

    Raises:
        ConfigError: rules or receivers that cannot be used, or a book that cannot be read.
    """

    def __init__(self, settings: AlertSettings, state_dir: Path | None, store: Store) -> None:
        self.rules = _rules(settings.rules)
        self._store = store
        self._lock = threading.Lock()
        if state_dir is None and settings.receivers:
            raise ConfigError("alerts.receivers: set state_dir, so that no message can be lost")
        self._path = None if state_dir is None else state_dir / BOOK_FILE
        self._book = Book(self.rules, _read_book(self._path) if self._path else None)
        self.notifier = Notifier(settings.receivers, settings.cluster, state_dir or Path())
        self.opened: Counter[str] = Counter()
        """Rule → incidents opened or reopened since this began."""
        self.resolved: Counter[str] = Counter()
        self._history = IncidentHistory()
        self.evaluated_ns = 0
        """Fleet time of the newest evaluation; 0 before the first."""
        self._cluster = settings.cluster

    def evaluate(
        self,
        fleet_ns: int,
        silent_ns: Mapping[str, int],
        timelines: tuple[Timeline, ...],
        findings: tuple[Finding, ...],
        slas: Slas = _NO_SLAS,
        *,
        fabric: Standing | None = None,
    ) -> list[Change]:
        """Hold everything that is known against the rules.

        Args:
            fleet_ns: now.
            silent_ns: host → how long its agent has said nothing.
            timelines: of every clock.
            findings: what localisation blames.
            slas: what was found of latency.
            fabric: how the learnt fabric stands; None: not looked yet.

        Raises:
            StoreError: the store failed; nothing has changed.
        """
        silent = frozenset(host for host, age_ns in silent_ns.items() if age_ns > SILENT_NS)
        seen = observe.with_jobs_at(
            self._observations(fleet_ns, silent_ns, silent, timelines), slas.jobs
        )
        seen += observe.with_jobs(observe.of_findings(findings), slas.jobs, slas.crossing)
        metrics = (
            observe.LINK_METRICS | observe.CLOCK_METRICS | observe.HOST_METRICS
            | observe.FINDING_METRICS
        )  # fmt: skip
        if slas.rows is not None:
            seen += observe.of_slas(slas.rows)
            metrics |= observe.SLA_METRICS
        if slas.queues is not None:
            seen += observe.of_queues(slas.queues)
            metrics |= observe.QUEUE_METRICS
        if fabric is not None:
            seen += observe.with_jobs(observe.of_fabric(fabric), slas.jobs, slas.crossing)
            metrics |= observe.FABRIC_METRICS
        places = observe.Places(slas.crossing)
        with self._lock:
            changes = self._book.evaluate(fleet_ns, measured(seen, metrics), places)
            self._settle(changes)
        self.evaluated_ns = fleet_ns
        return changes

    def deliver(self, now_ns: int, fleet_ns: int, wall_ns: int) -> None:
        """Tell whoever is due; `now_ns` is monotonic, `wall_ns` what this host calls the time.
        Waits for the network: not for a loop."""
        self.notifier.deliver(now_ns, fleet_ns, self._book, fleet_ns - wall_ns)

    # --- questions and commands ---

    def rows(self) -> Piece | None:
        """What happened to incidents since the last call, for the store."""
        with self._lock:
            return self._history.rows()

    def incidents(self, query: IncidentsQuery, fleet_ns: int = 0) -> IncidentsReply:
        """Incidents, newest first; those explained by others under them.

        Raises:
            UsageError: there is none of that number, or a time that nothing is kept for.
            StoreError: the past was asked for, and the store failed.
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

    def act(self, action: IncidentAction, by: str, fleet_ns: int) -> IncidentsReply:
        """Acknowledge or clear. Raises `UsageError`."""
        with self._lock:
            if action.what == "ack":
                changes = self._book.acknowledge(
                    action.number, by, action.comment[:MAX_TEXT], fleet_ns
                )
            elif action.what == "resolve":
                changes = self._book.resolve(action.number, by, fleet_ns)
            else:
                raise UsageError(f"{action.what!r} is nothing to do with an incident")
            self._settle(changes)
        _log.warning("incident %s number=%d by=%s", action.what, action.number, by)
        return self.incidents(IncidentsQuery(number=action.number))

    def silence(self, action: SilenceAction, by: str, fleet_ns: int) -> IncidentsReply:
        """Make or end a silence. Raises `UsageError`."""
        with self._lock:
            if action.end:
                self._book.unsilence(action.end)
                _log.warning("silence ended number=%d by=%s", action.end, by)
            else:
                if action.for_ns <= 0:
                    raise UsageError("a silence lasts for a while: give it a time, for example 2h")
                first_ns = fleet_ns + max(0, action.in_ns)
                made = self._book.silence(
                    Silence(
                        rule=action.rule or "*",
                        subject=action.subject or "*",
                        first_ns=first_ns,
                        last_ns=first_ns + action.for_ns,
                        who=by,
                        comment=action.comment[:MAX_TEXT],
                    )
                )
                _log.warning(
                    "silence number=%d rule=%s subject=%s by=%s",
                    made.number, made.rule, made.subject, by,
                )  # fmt: skip
            self._save()
        return self.incidents(IncidentsQuery())

    def live(self) -> list[Incident]:
        """Copies of the incidents that are not resolved."""
        with self._lock:
            return [msgspec.structs.replace(each) for each in self._book.incidents if each.live]

    def told_rules(self) -> RulesReply:
        """The rules in force."""
        return RulesReply(rules=tuple(msgspec.to_builtins(rule) for rule in self.rules))

    # --- within ---

    def _observations(
        self,
        fleet_ns: int,
        silent_ns: Mapping[str, int],
        silent: frozenset[str],
        timelines: tuple[Timeline, ...],
    ) -> list[Observation]:
        links = self._store.links
        window = (fleet_ns - HOUR_NS, fleet_ns + S)
        return [
            *observe.of_links(links.ports(*window), links.counters(*window), silent, fleet_ns),
            *observe.of_modules(links.modules(fleet_ns - DAY_NS, fleet_ns + S)),
            *observe.of_hosts(silent_ns, self._missed()),
            *observe.of_clocks(timelines, silent),
        ]

    def _past(self, since_ns: int, fleet_ns: int) -> IncidentsReply:
        if not 0 < since_ns <= MAX_SINCE_NS:
            raise UsageError(f"incidents are kept for {MAX_SINCE_NS // DAY_NS} days")
        first_ns = fleet_ns - since_ns
        found = {
            (each["number"], each["opened_ns"]): each
            | {"opened": render.instant(each["opened_ns"])}
            for each in self._store.incidents.since(first_ns)
        }
        with self._lock:
            # What is in the book is the newest word, also on what has not reached the store yet.
            for each in self._book.incidents:
                if each.live or each.updated_ns >= first_ns:
                    found[each.number, each.opened_ns] = render.plain(each)
            silences = tuple(msgspec.to_builtins(each) for each in self._book.state.silences)
        told = sorted(found.values(), key=lambda each: (-each["opened_ns"], -each["number"]))
        return IncidentsReply(
            incidents=tuple(told), silences=silences, waiting=self.notifier.waiting()
        )

    def _missed(self) -> frozenset[str]:
        """Hosts that were silent before: one that is silent still, and was not heard of since this
        controller started, is not well because nothing is known of it."""
        names = {rule.name for rule in self.rules if rule.metric in observe.HOST_METRICS}
        return frozenset(
            incident.subject
            for incident in self._book.incidents
            if incident.live and incident.rule in names
        )

    def _settle(self, changes: list[Change]) -> None:
        """With the lock held: what follows from changes, in the order that loses nothing."""
        if not changes:
            return
        self.notifier.take(changes, self._book)
        self._save()
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

    def _save(self) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self._path, msgspec.json.encode(self._book.state))


def _rules(path: str) -> tuple[Rule, ...]:
    if not path:
        return with_defaults(())
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"rules {path}: cannot be read: {error}") from error
    return with_defaults(parse_rules(text, path))


def _read_book(path: Path) -> BookState | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=BookState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}; move it away to begin without incidents"
        ) from error
