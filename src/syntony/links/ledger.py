"""One host's links over time: readings in, rows for the store out.

Losses of carrier come from two sides, the kernel's events (at once, but merged) and its counter
(late, but exact). Both end in the same place: the counter's value, which each event carries too, so
that nothing is counted twice and nothing is missed.

Counters belong to an interface, history to a name. When interfaces are renamed, such as rails that
are swapped, each name goes on from what the counters of its new interface were under the old name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from syntony.links.counters import EVERY, Kind
from syntony.links.deltas import CounterDeltas, CounterOutcome, Delta
from syntony.links.kernel_log import LogFinding
from syntony.links.ports import REMEDIES, LinkRate, PortState
from syntony.links.snapshot import PortSnapshot

SETTLED_NS = 3_000_000_000
"""A state is reported once it has lasted this long. Only states on the way up wait: training takes
a second or two on every healthy boot."""
_ON_THE_WAY = frozenset({PortState.TRAINING, PortState.NO_SUBNET_MANAGER, PortState.RECOVERING})


class PortReading(NamedTuple):
    state: PortState
    rate: LinkRate | None


class PortChange(NamedTuple):
    at_ns: int
    before: PortState
    after: PortState
    rate_before: LinkRate | None
    rate_after: LinkRate | None
    remedy: str


class PortMachine:
    """One port. Takes every reading, and returns the changes to report."""

    def __init__(self) -> None:
        self._reported: PortReading | None = None
        self._seen: PortReading | None = None
        self._since_ns = 0

    @property
    def state(self) -> PortState:
        return self._reported.state if self._reported else PortState.UNKNOWN

    def take(self, at_ns: int, reading: PortReading) -> PortChange | None:
        """Take a reading at `at_ns`, in ascending order. The first is not reported."""
        if reading != self._seen:
            self._seen, self._since_ns = reading, at_ns
        if self._reported is None:
            self._reported = reading
        if reading == self._reported:
            return None
        if reading.state in _ON_THE_WAY and at_ns - self._since_ns < SETTLED_NS:
            return None
        before, self._reported = self._reported, reading
        if reading.state is PortState.ACTIVE and reading.rate is None:
            # A speed that cannot be read is no news, and the known one is kept to compare with.
            self._reported = reading._replace(rate=before.rate)
            if before.state is PortState.ACTIVE:
                return None
        return PortChange(
            at_ns=at_ns,
            before=before.state,
            after=reading.state,
            rate_before=before.rate,
            rate_after=reading.rate,
            remedy=_remedy(before, reading),
        )


def _remedy(before: PortReading, after: PortReading) -> str:
    if after.state is not PortState.ACTIVE:
        return REMEDIES[after.state]
    slower = before.rate and after.rate and after.rate.gbps < before.rate.gbps
    return "lanes were lost: reseat or replace the cable" if slower else ""


DOWN_COUNT = "net:carrier_down_count"
_SATURATING_DOWN_COUNT = "ib/counters:link_downed"
"""Counter of an InfiniBand port's losses of carrier if it has no interface."""
RATED = frozenset({CounterOutcome.COUNTED, CounterOutcome.RESET, CounterOutcome.SATURATED})


class LinkNote(NamedTuple):
    """Something happened to a port: one row of the history."""

    at_ns: int
    port: str
    kind: str
    """``carrier``, ``state``, ``reset``, ``kernel`` or ``module``."""
    losses: int
    """Losses of carrier that this row stands for."""
    before: str
    after: str
    detail: str
    remedy: str


class CounterRow(NamedTuple):
    """A counter went up, or can no longer be trusted."""

    at_ns: int
    port: str
    counter: str
    increase: int
    reading: CounterOutcome


class Sweep(NamedTuple):
    """Results of one reading of all ports."""

    notes: list[LinkNote]
    counters: list[CounterRow]


class _Counters:
    """The last readings of one interface's counters."""

    def __init__(self) -> None:
        self.deltas = CounterDeltas()
        self.down_count: int | None = None


class _Port:
    def __init__(self) -> None:
        self.counters = _Counters()
        self.machine = PortMachine()
        self.losses = 0
        """Losses of carrier since the ledger was created."""
        self.reported = False
        """An event arrived since the last sweep: the count may already be of a new epoch."""
        self.ifindex = 0
        """Of the interface that had this name at the last sweep; 0: no event has said."""
        self.next_ifindex = 0
        """Of another one that has it since; 0: none."""
        self.epoch = ""
        self.snapshot: PortSnapshot | None = None
        self.unreadable: set[str] = set()
        self.totals: dict[str, int] = {}
        """Increase of every readable counter since the ledger was created."""


class LinkLedger:
    """State and history of all links of one host."""

    def __init__(self) -> None:
        self._ports: dict[str, _Port] = {}

    def carrier(
        self, at_ns: int, port: str, down_count: int, *, carrier: bool, ifindex: int = 0
    ) -> list[LinkNote]:
        """Take a carrier change from the kernel or from a poll; `down_count` is its counter.

        Events of an interface that has another one's name count from the next sweep on, which says
        whether it was renamed or is new.
        """
        known = self._ports.setdefault(port, _Port())
        if ifindex:
            known.ifindex = known.ifindex or ifindex
            if ifindex != known.ifindex:
                known.next_ifindex = ifindex
                return []
        known.reported = True
        losses = _losses(known, down_count)
        after = "up" if carrier else "down"
        if not losses and carrier:
            return [LinkNote(at_ns, port, "carrier", 0, "down", after, "", "")]
        if not losses:
            return []
        return [_flap_note(at_ns, port, losses, after)]

    def sweep(self, at_ns: int, snapshots: Iterable[PortSnapshot]) -> Sweep:
        """Take a reading of every port. A port that is missing from it is reported as absent."""
        found = Sweep([], [])
        snapshots = tuple(snapshots)
        counters = self._counters_of(snapshots)
        present = set()
        for snapshot in snapshots:
            present.add(snapshot.name)
            self._take(at_ns, snapshot, counters[snapshot.name], found)
        for name in sorted(self._ports.keys() - present):
            gone = self._ports.pop(name).snapshot
            if gone is not None:
                found.notes.append(
                    LinkNote(at_ns, name, "state", 0, gone.state, "absent", gone.driver,
                             "check the PCIe bus and the driver")
                )  # fmt: skip
        return found

    def _counters_of(self, snapshots: Sequence[PortSnapshot]) -> dict[str, _Counters]:
        """The last readings of the interface that each name has now: those of its epoch, which may
        have been under another name; else those of the name, which start again."""
        of_epoch = {port.epoch: port.counters for port in self._ports.values()}
        found = {}
        for each in snapshots:
            known = self._ports.get(each.name) or _Port()
            moved = None if known.epoch == each.epoch else of_epoch.get(each.epoch)
            found[each.name] = moved or known.counters
        return found

    def kernel(self, at_ns: int, finding: LogFinding) -> LinkNote:
        """A driver's message. Flaps in it are already counted by the carrier."""
        port = finding.device if finding.device in self._ports else ""
        detail = finding.text if port else f"{finding.device} {finding.text}".strip()
        return LinkNote(
            at_ns, port, "kernel", 0, finding.kind, finding.meaning, detail, finding.remedy
        )

    def snapshots(self) -> tuple[PortSnapshot, ...]:
        return tuple(port.snapshot for port in self._ports.values() if port.snapshot is not None)

    def total_flaps(self, port: str) -> int:
        """Losses of carrier since the ledger was created."""
        known = self._ports.get(port)
        return known.losses if known else 0

    def totals(self, port: str) -> dict[str, int]:
        """Counter key → its increase since the ledger was created, for readable counters."""
        known = self._ports.get(port)
        return known.totals if known else {}

    def unreadable(self, port: str) -> int:
        """Counters that exist but cannot be read, or are at their ceiling."""
        known = self._ports.get(port)
        return len(known.unreadable) if known else 0

    def _take(self, at_ns: int, snapshot: PortSnapshot, counters: _Counters, found: Sweep) -> None:
        port = self._ports.setdefault(snapshot.name, _Port())
        port.snapshot = snapshot
        if port.epoch and port.epoch != snapshot.epoch and counters is port.counters:
            counters.down_count = counters.down_count if port.reported else 0
            found.notes.append(
                LinkNote(at_ns, snapshot.name, "reset", 0, "", "", "its counters began anew", "")
            )
        port.counters = counters
        port.epoch, port.reported = snapshot.epoch, False
        port.ifindex, port.next_ifindex = port.next_ifindex or port.ifindex, 0
        deltas = counters.deltas.take(snapshot.epoch, snapshot.counters, EVERY)
        found.notes.extend(_counted_losses(port, at_ns, snapshot, deltas))
        change = port.machine.take(at_ns, PortReading(snapshot.state, snapshot.rate))
        if change is not None:
            found.notes.append(_state_note(snapshot.name, change))
        found.counters.extend(_counter_rows(port, at_ns, snapshot.name, deltas))


def _losses(port: _Port, down_count: int) -> int:
    """Losses since the counter was last seen, from either side."""
    before, port.counters.down_count = port.counters.down_count, down_count
    if before is None:
        return 0
    # A counter that went down was reset: its value counts since then.
    losses = down_count - before if down_count >= before else down_count
    port.losses += losses
    return losses


def _counted_losses(
    port: _Port, at_ns: int, snapshot: PortSnapshot, deltas: dict[str, Delta]
) -> list[LinkNote]:
    down_count = snapshot.counters.get(DOWN_COUNT)
    if down_count is not None:
        losses = _losses(port, down_count)
    else:
        delta = deltas.get(_SATURATING_DOWN_COUNT)
        losses = (delta.increase or 0) if delta else 0
        port.losses += losses
    return [_flap_note(at_ns, snapshot.name, losses, snapshot.state)] if losses else []


def _flap_note(at_ns: int, port: str, losses: int, after: str) -> LinkNote:
    detail = "carrier lost" if losses == 1 else f"carrier lost {losses} times"
    remedy = "clean and reseat the cable; look at the far port"
    return LinkNote(at_ns, port, "carrier", losses, "up", after, detail, remedy)


def _state_note(port: str, change: PortChange) -> LinkNote:
    rates = [f"{rate.gbps:g} Gb/s" for rate in (change.rate_before, change.rate_after) if rate]
    detail = " → ".join(rates) if len(set(rates)) > 1 else ""
    return LinkNote(
        change.at_ns, port, "state", 0, change.before, change.after, detail, change.remedy
    )


def _counter_rows(
    port: _Port, at_ns: int, name: str, deltas: dict[str, Delta]
) -> Iterable[CounterRow]:
    """Increases of recorded counters, and every counter that stops being readable, once."""
    for key, delta in deltas.items():
        if delta.reading is CounterOutcome.UNKNOWN:
            if key not in port.unreadable:
                port.unreadable.add(key)
                yield CounterRow(at_ns, name, key, 0, delta.reading)
            continue
        port.unreadable.discard(key)
        port.totals[key] = port.totals.get(key, 0) + (delta.increase or 0)
        if delta.reading in RATED and delta.increase and EVERY[key].kind is not Kind.TRAFFIC:
            yield CounterRow(at_ns, name, key, delta.increase, delta.reading)
