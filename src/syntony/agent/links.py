"""One host's links: the kernel's events in a separate thread, counters at each sweep.

Events must be noticed within milliseconds, so that thread does nothing else. Modules answer over a
slow bus, tens of milliseconds a page, so they have a thread as well.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from syntony.errors import MissingError, WireError
from syntony.io.carrier import CarrierWatch
from syntony.io.ethtool import NicStatistics, module_eeprom
from syntony.io.kernel_log import KernelLog
from syntony.io.link_files import LinkFiles
from syntony.io.process import name_thread
from syntony.links.counters import CounterSource, of_source
from syntony.links.kernel_log import classify
from syntony.links.ledger import CounterRow, LinkLedger, LinkNote
from syntony.links.modules import ModuleWatch
from syntony.links.optics import Module, from_flat, parse
from syntony.links.roles import LinkRole
from syntony.links.snapshot import PortSnapshot, Slot
from syntony.links.traffic import PortPeaks, TrafficMeter, has_changed
from syntony.mesh.stats import Columns
from syntony.model import MS, S
from syntony.model.paths import LinkEvent
from syntony.wire.tables import LINK_COUNTER, LINK_EVENT, LINK_PORT, Table

_log = logging.getLogger(__name__)
_Event = LinkEvent | LinkNote | str
"""A string is a message of the kernel's log."""

SWEEP_NS = 10 * S
"""Interval of sweeps over all counters: a sweep takes tens of milliseconds on NICs whose firmware
is queried for each."""
POLL_NS = 100 * MS
"""Interval of reading a carrier's counter while the kernel throttles its events. Here they are only
reported; the reactor acts on them and reads ten times as often."""
SETTLE_NS = 1 * S
PORTS_NS = 60 * S
"""Interval of storing a port's row; also whenever a sweep finds its state changed, or its traffic
has changed (`links.traffic.has_changed`)."""
MODULES_S = 60.0
_ETHTOOL = of_source(CounterSource.ETHTOOL)
_NEVER = frozenset({errno.EOPNOTSUPP, errno.EPERM})


class LinkReport(NamedTuple):
    """Rows for the store, by table."""

    rows: tuple[tuple[Table, Columns], ...]


class Optics(NamedTuple):
    """Measurements of a module; NaN where unknown."""

    temperature_c: float
    rx_dbm: float
    """Of the lane with the lowest power."""
    bias_ma: float
    """Of the lane with the highest bias."""


_NO_SLOT = Slot(math.nan, math.nan, math.nan, math.nan)
_UNKNOWN_MODULE = Optics(math.nan, math.nan, math.nan)


class PortTotals(NamedTuple):
    """One port at the last sweep, and the increase of its counters since this began to watch."""

    snapshot: PortSnapshot
    flaps: int
    counters: dict[str, int]
    """Counter key → increase; only readable counters."""
    unreadable: int
    optics: Optics


class LinkWatch:
    """Watches the links of the network namespace in which it is created.

    Args:
        configured: interfaces that the operator lists, which count as compute NICs.
    """

    def __init__(self, host: str, configured: frozenset[str]) -> None:
        self._host = host
        self._ledger = LinkLedger()
        self._files = LinkFiles(Path("/"), configured)
        self._statistics: dict[str, tuple[str, NicStatistics | None]] = {}
        """Per interface: the epoch in which they were opened, and None if the driver has none."""
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._modules = _Modules(self._events.put)
        self._traffic = TrafficMeter()
        self._peaks: dict[str, PortPeaks] = {}
        """Of each port's last row."""
        self._real: frozenset[str] = frozenset()
        self._next_sweep_ns = 0
        self._next_ports_ns = 0
        self._carrier: CarrierWatch | None = None
        self._kernel_log = _open_kernel_log()
        self._wake_read = self._wake_write = -1
        self._thread: threading.Thread | None = None
        self.fault: Exception | None = None
        """The error that ended the listening thread."""

    def start(self) -> None:
        """Begin to listen, or restart. Raises `MissingError`, `OSError`: the kernel does not answer
        or refuses; counters can still be read."""
        self._stop_listening()
        self._carrier = CarrierWatch(poll_ns=POLL_NS)
        self._wake_read, self._wake_write = os.pipe()
        self.fault = None
        self._thread = threading.Thread(
            target=self._run, args=(self._carrier,), name="links", daemon=True
        )
        self._thread.start()

    def _stop_listening(self) -> None:
        if self._thread is not None:
            os.close(self._wake_write)
            self._thread.join()
            os.close(self._wake_read)
            self._thread = None
        if self._carrier is not None:
            self._carrier.close()
            self._carrier = None

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._stop_listening()
        self._modules.close()
        if self._kernel_log is not None:
            self._kernel_log.close()
            self._kernel_log = None
        self._files.close()

    def report(self, now_ns: int, fleet_ns: int) -> LinkReport:
        """Events since the last call, and ports whose traffic has changed; every `SWEEP_NS` with
        all counters. To be called about once a second.

        Args:
            now_ns: CLOCK_MONOTONIC.
            fleet_ns: the same instant in fleet time.
        """
        notes: list[LinkNote] = []
        counters: list[CounterRow] = []
        while not self._events.empty():
            notes += self._take(self._events.get(), now_ns)
            # A link changed: its state is read again when it has had time to settle.
            self._next_sweep_ns = min(self._next_sweep_ns, now_ns + SETTLE_NS)
        self._traffic.update(now_ns, self._files.byte_counts(self._real))
        ports = [port for port in self._ledger.snapshots() if self._traffic_changed(port)]
        if now_ns >= self._next_sweep_ns:
            self._next_sweep_ns = now_ns + SWEEP_NS
            sweep = self._ledger.sweep(now_ns, self._snapshots())
            notes += sweep.notes
            counters += sweep.counters
            state_changed = any(note.kind == "state" for note in sweep.notes)
            if state_changed or now_ns >= self._next_ports_ns:
                self._next_ports_ns = now_ns + PORTS_NS
                ports = list(self._ledger.snapshots())
        behind_ns = fleet_ns - now_ns
        tables = (
            (LINK_EVENT, _event_columns(self._host, notes, behind_ns)),
            (LINK_COUNTER, _counter_columns(self._host, counters, behind_ns)),
            (LINK_PORT, self._port_columns(ports, fleet_ns)),
        )
        return LinkReport(tuple((table, rows) for table, rows in tables if rows is not None))

    def _traffic_changed(self, port: PortSnapshot) -> bool:
        """Since the port's last row."""
        before, now = self._peaks.get(port.name, PortPeaks()), self._traffic.peaks(port.name)
        return has_changed(before, now, port.rate.gbps if port.rate else None)

    def ports(self) -> tuple[PortTotals, ...]:
        """Every physical port at the last sweep."""
        ledger = self._ledger
        return tuple(
            PortTotals(
                port,
                ledger.total_flaps(port.name),
                ledger.totals(port.name),
                ledger.unreadable(port.name),
                self._modules.of(port.netdev),
            )
            for port in ledger.snapshots()
        )

    def _take(self, event: _Event, now_ns: int) -> list[LinkNote]:
        if isinstance(event, LinkNote):
            return [event]
        if isinstance(event, str):
            finding = classify(event)
            return [self._ledger.kernel(now_ns, finding)] if finding else []
        if event.nic not in self._real:  # a container's link, or one that no sweep has read yet
            return []
        return self._ledger.carrier(
            event.at_ns,
            event.nic,
            event.carrier_down_count,
            carrier=event.carrier,
            ifindex=event.ifindex,
        )

    def _snapshots(self) -> list[PortSnapshot]:
        real = [port for port in self._files.read() if port.role is not LinkRole.VIRTUAL]
        self._real = frozenset(port.name for port in real)
        self._modules.watch(frozenset(port.netdev for port in real if port.netdev))
        return [
            port._replace(counters=port.counters | self._driver_counters(port)) for port in real
        ]

    def _driver_counters(self, port: PortSnapshot) -> dict[str, int | None]:
        """``ethtool -S``: names are requested once per load of the driver."""
        if not port.netdev:
            return {}
        epoch, statistics = self._statistics.get(port.netdev, ("", None))
        try:
            if epoch != port.epoch:
                self._statistics[port.netdev] = (port.epoch, None)
                statistics = NicStatistics(port.netdev, _ETHTOOL)
                self._statistics[port.netdev] = (port.epoch, statistics)
            values = statistics.read() if statistics else {}
        except OSError:
            return {}
        return {_ETHTOOL[name].key: value for name, value in values.items()}

    def _port_columns(self, ports: Collection[PortSnapshot], fleet_ns: int) -> Columns | None:
        self._peaks |= {port.name: self._traffic.peaks(port.name) for port in ports}
        rows = [
            (
                f"{self._host}/{port.name}", port.netdev, port.rdma, port.link_layer, port.driver,
                port.role, port.state, port.rate.gbps if port.rate else 0.0,
                self._ledger.total_flaps(port.name), *self._modules.of(port.netdev),
                *(port.slot or _NO_SLOT), *self._peaks[port.name],
            )
            for port in ports
        ]  # fmt: skip
        return _columns(LINK_PORT, [(fleet_ns, *row) for row in rows])

    # --- the listening thread ---

    def _run(self, carrier: CarrierWatch) -> None:
        name_thread("links")
        try:
            self._listen(carrier)
        except Exception as error:  # noqa: BLE001 — supervisor: the agent's loop starts it again
            self.fault = error

    def _listen(self, carrier: CarrierWatch) -> None:
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN | select.POLLHUP)
        poller.register(carrier.fileno(), select.POLLIN)
        if self._kernel_log is not None:
            poller.register(self._kernel_log.fileno(), select.POLLIN)
        while not any(ready == self._wake_read for ready, _ in poller.poll(_pause_ms(carrier))):
            for event in carrier.poll(time.monotonic_ns()):
                self._events.put(event)
            if self._kernel_log is not None:
                for message in self._kernel_log.read():
                    self._events.put(message)


def _pause_ms(carrier: CarrierWatch) -> float | None:
    if carrier.deadline_ns is None:
        return None
    return max(0.0, (carrier.deadline_ns - time.monotonic_ns()) / MS)


class _Modules:
    """Measurements of plugged modules, in a thread that runs while there is one to query."""

    def __init__(self, tell: Callable[[LinkNote], None]) -> None:
        self._tell = tell
        self._watch = ModuleWatch()
        self._nics: frozenset[str] = frozenset()
        self._known: dict[str, Module] = {}
        self._mute: set[str] = set()
        """NICs whose driver cannot read modules, or not for this process."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, nics: frozenset[str]) -> None:
        """Set the interfaces that may have modules."""
        self._nics = nics
        self._mute &= nics
        if self._thread is None and nics - self._mute:
            self._thread = threading.Thread(target=self._run, name="modules", daemon=True)
            self._thread.start()

    def of(self, nic: str) -> Optics:
        """The last measurements of the module of an interface."""
        module = self._known.get(nic)
        if module is None:
            return _UNKNOWN_MODULE
        light = [lane.rx_dbm for lane in module.lanes if lane.rx_dbm is not None]
        bias = [lane.bias_ma for lane in module.lanes if lane.bias_ma is not None]
        return Optics(
            math.nan if module.temperature_c is None else module.temperature_c,
            min(light, default=math.nan),
            max(bias, default=math.nan),
        )

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for nic in self._nics - self._mute:
                self._read(nic)
            if not self._nics - self._mute:
                self._thread = None
                return
            self._stop.wait(MODULES_S)

    def _read(self, nic: str) -> None:
        try:
            module = parse(from_flat(module_eeprom(nic)))
        except (OSError, WireError) as error:
            self._known.pop(nic, None)
            if isinstance(error, OSError) and error.errno in _NEVER:
                self._mute.add(nic)
                _log.info("modules not read nic=%s reason=%s", nic, error.strerror)
            return
        self._known[nic] = module
        for note in self._watch.take(time.monotonic_ns(), nic, module):
            self._tell(note)


def _open_kernel_log() -> KernelLog | None:
    try:
        return KernelLog()
    except MissingError as error:
        _log.info("drivers' messages not read reason=%s", error)
        return None


def _event_columns(host: str, notes: Iterable[LinkNote], behind_ns: int) -> Columns | None:
    rows = [
        (
            note.at_ns + behind_ns, f"{host}/{note.port}" if note.port else host, note.kind,
            note.losses, note.before, note.after, note.detail, note.remedy,
        )
        for note in notes
    ]  # fmt: skip
    return _columns(LINK_EVENT, rows)


def _counter_columns(host: str, counters: Iterable[CounterRow], behind_ns: int) -> Columns | None:
    rows = [
        (row.at_ns + behind_ns, f"{host}/{row.port}", row.counter, row.increase, row.reading)
        for row in counters
    ]
    return _columns(LINK_COUNTER, rows)


def _columns(table: Table, rows: list[tuple[Any, ...]]) -> Columns | None:
    if not rows:
        return None
    columns: dict[str, Any] = {}
    for column, values in zip(table.columns, zip(*rows, strict=True), strict=True):
        if column.type == "string":
            columns[column.name] = [str(value) for value in values]
        else:
            columns[column.name] = np.array(values, dtype=column.type)
    return columns
