"""Compares latency of pairs, hosts, rails and jobs with objectives, from the store's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from syntony.controller.fleet import Fleet
from syntony.controller.locating import LocateLoop
from syntony.controller.planes import PlaneComparison, PlaneWatch
from syntony.errors import StoreError, UsageError
from syntony.io.operator_files import load_objectives
from syntony.model import MS, S
from syntony.model.findings import Queue, QueueFlow
from syntony.model.names import did_you_mean, host_of
from syntony.model.sla import Latency, SlaItem, SlaRow, SlaStatus
from syntony.sla.check import NicPosition, check_latency, check_places, worst
from syntony.sla.judge import ENOUGH, class_of, judge, peers_by_class
from syntony.sla.terms import Terms
from syntony.store import Store
from syntony.wire.sla import (
    SlaChecked,
    SlaReport,
)

SETTLED_NS = 2_500 * MS
"""Rows of a second are in the store this long after its end (see `controller.complete_seconds`)."""
WINDOW_NS = 60 * S
"""Window of the controller's own periodic evaluation."""
USUAL_AGE_NS = 300 * S
"""Validity of an answer about the past: it changes little, and reads many rows."""
NO_USUAL_AGE_NS = 60 * S
"""… and of the answer that there is none."""
GROUPINGS = ("pair", "host", "rail", "job")
MAX_FLOWS = 100
"""Maximum named for one queue."""

JobPairs = Mapping[str, frozenset[tuple[str, str]]]
"""Job → the pairs of NICs between which it has connections."""


class SlaService:
    """Reads the store, never writes it. `report` and `check` may run in separate threads.

    Args:
        path: an operator's file of objectives; empty for none.
        store: rows of probing.
        fleet: members and their rails.
        locating: learnt paths.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, path: str, store: Store, fleet: Fleet, locating: LocateLoop) -> None:
        self.terms = load_objectives(path) if path else Terms()
        self.rows: tuple[SlaRow, ...] | None = None
        """Verdicts on all pairs of NICs, from the last `look`; None before the first."""
        self.planes: PlaneComparison | None = None
        """Comparison of UDP and verbs, from the last `look`."""
        self._watch = PlaneWatch(store, fleet)
        self._store = store
        self._fleet = fleet
        self._locating = locating
        self._usual: dict[str, tuple[int, dict[str, Latency]]] = {}
        """By grouping: when it was queried, and the answer."""

    def look(self, fleet_ns: int) -> None:
        """Evaluate all pairs again, and compare planes. Raises `StoreError`: both are unknown."""
        try:
            self.rows = self.report("pair", WINDOW_NS, fleet_ns, {}).rows
            self.planes = self._watch.look((fleet_ns - SETTLED_NS) // S * S)
        except StoreError:
            self.rows = self.planes = None
            raise

    def report(self, grouping: str, window_ns: int, fleet_ns: int, jobs: JobPairs) -> SlaReport:
        """Every subject of a grouping, worst first.

        Args:
            grouping: one of `GROUPINGS`.
            window_ns: how far back.
            fleet_ns: now.
            jobs: pairs of NICs of each job's connections.

        Raises:
            UsageError: another grouping, or a window without data.
            StoreError: the store failed.
        """
        if grouping not in GROUPINGS:
            raise UsageError(f"unknown grouping {grouping!r}: give one of {', '.join(GROUPINGS)}")
        last_ns = (fleet_ns - SETTLED_NS) // S * S
        now = latencies(self._store, grouping, last_ns - window_ns, last_ns, jobs)
        usual = self._usual_of(grouping, last_ns, jobs)
        classes = self._classes() if grouping == "pair" else {}
        rows = verdicts(now, usual, classes, self.terms)
        return SlaReport(by=grouping, window_ns=window_ns, rows=rows)

    def check(
        self, host: str, window_ns: int, fleet_ns: int, incidents: Iterable[tuple[str, str]]
    ) -> SlaChecked:
        """The replacement check of one host.

        Args:
            host: its name.
            window_ns: how far back its latency is evaluated.
            fleet_ns: now.
            incidents: (subject, summary) of live ones about this host.

        Raises:
            UsageError: no such host in the fleet.
            StoreError: the store failed.
        """
        member = self._fleet.members.get(host)
        if member is None:
            raise UsageError(
                f"no host {host!r} has attached{did_you_mean(host, self._fleet.members)}; "
                "`syntony probe plan` shows those that have"
            )
        nics = sorted(f"{host}/{nic.name}" for nic in member.hello.nics)
        status = SlaStatus.OK if member.connected else SlaStatus.BREACH
        detail = "attached" if member.connected else "not attached to the controller"
        items = [SlaItem(check="agent", subject=host, status=status, detail=detail)]
        items += check_places(self._places(nics))
        rows = self.report("pair", window_ns, fleet_ns, {}).rows
        mine = [row for row in rows if set(row.subject.split("->")) & set(nics)]
        items += check_latency(nics, mine)
        items += [
            SlaItem(check="incident", subject=subject, status=SlaStatus.BREACH, detail=summary)
            for subject, summary in incidents
        ]
        return SlaChecked(
            host=host, status=worst(item.status for item in items), items=tuple(items)
        )

    # --- internal ---

    def _usual_of(self, grouping: str, now_ns: int, jobs: JobPairs) -> dict[str, Latency]:
        """Usual values; only subjects with enough data of the past."""
        requested_ns, usual = self._usual.get(grouping, (0, {}))
        if now_ns - requested_ns < (USUAL_AGE_NS if usual else NO_USUAL_AGE_NS):
            return usual
        history = self.terms.history
        usual = enough(
            latencies(
                self._store, grouping, now_ns - history.window_ns, now_ns - history.until_ns, jobs
            )
        )
        self._usual[grouping] = (now_ns, usual)
        return usual

    def _classes(self) -> dict[str, str]:
        crossing = self._locating.crossings()
        return {pair: class_of(crossed.switches) for pair, crossed in crossing.items()}

    def _places(self, nics: Iterable[str]) -> list[NicPosition]:
        seen, rails = self._locating.first_switches(), self._rails()
        there: dict[str, dict[str, int]] = {}
        for nic, switch in seen.items():
            there.setdefault(switch, {})[nic] = rails.get(nic, -1)
        return [
            NicPosition(
                nic=nic,
                rail=rails.get(nic, -1),
                expected=self._locating.cabled_to(nic),
                seen=seen.get(nic, ""),
                rails_there=frozenset(
                    rail
                    for other, rail in there.get(seen.get(nic, ""), {}).items()
                    if host_of(other) != host_of(nic)
                ),
            )
            for nic in nics
        ]

    def _rails(self) -> dict[str, int]:
        return {
            f"{host}/{nic.name}": nic.rail
            for host, member in self._fleet.members.items()
            for nic in member.hello.nics
        }


def latencies(
    store: Store, grouping: str, first_ns: int, last_ns: int, jobs: JobPairs
) -> dict[str, Latency]:
    """Subject → its latency over ``[first_ns, last_ns)``. Raises `StoreError`.

    Args:
        store: rows of probing.
        grouping: one of `GROUPINGS`.
        first_ns: fleet time.
        last_ns: fleet time.
        jobs: pairs of NICs of each job's connections.
    """
    latency = store.latency
    if grouping == "host":
        found = latency.by("host", first_ns, last_ns)  # without probes of a host to itself
        return {name: each for name, each in found.items() if len(set(name.split("->"))) > 1}
    if grouping == "rail":
        return latency.by("rail", first_ns, last_ns)
    if grouping == "job":
        return {job: latency.of_pairs(pairs, first_ns, last_ns) for job, pairs in jobs.items()}
    return store.pair_latencies(first_ns, last_ns)


def enough(found: Mapping[str, Latency]) -> dict[str, Latency]:
    """The entries with enough delays to be a reference."""
    return {subject: each for subject, each in found.items() if each.measured >= ENOUGH}


def verdicts(
    now: Mapping[str, Latency],
    usual: Mapping[str, Latency],
    classes: Mapping[str, str],
    terms: Terms,
) -> tuple[SlaRow, ...]:
    """Every subject's verdict, worst first.

    Args:
        now: the window in question.
        usual: their past, for those with enough of it.
        classes: of their paths, where known.
        terms: the objectives.
    """
    peers = peers_by_class(now, classes)
    rows = [
        judge(
            subject, classes.get(subject, ""), latency, terms,
            usual=usual.get(subject), peers=peers.get(classes.get(subject, "")),
        )
        for subject, latency in now.items()
    ]  # fmt: skip
    rows.sort(key=lambda row: (_RANK[row.status], -(row.now.p99_ns or 0), row.subject))
    return tuple(rows)


def with_flows(queues: Iterable[Queue], flows: Iterable[QueueFlow]) -> tuple[Queue, ...]:
    """Queues with the jobs' flows between the NICs that share them, fastest first."""
    sending = sorted(flows, key=lambda flow: (-flow.rate_bps, flow.job, flow.pair))
    found = []
    for queue in queues:
        pairs = frozenset(queue.pairs)
        sharing = tuple(flow for flow in sending if flow.pair in pairs)
        found.append(structs.replace(queue, flows=sharing[:MAX_FLOWS]))
    return tuple(found)


_RANK = {
    SlaStatus.BREACH: 0,
    SlaStatus.WARNING: 1,
    SlaStatus.UNKNOWN: 2,
    SlaStatus.OK: 3,
}
