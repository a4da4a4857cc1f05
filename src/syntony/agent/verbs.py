"""NICs probed over verbs: a second probe engine, over queue pairs, in a separate thread.

Whatever RDMA does to its callers (a device that hangs, a neighbour lookup that takes long), probing
over UDP and failover continue. Peers are asked over UDP for their addresses for probes
(docs/decisions/0228).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from syntony.agent.config import AgentConfig, VerbsMode
from syntony.agent.parts import MAX_BACKOFF_NS, Parts
from syntony.agent.plans import start_flows
from syntony.errors import MissingError, SyntonyError
from syntony.io.clocks import ClockSource
from syntony.io.probe import NoRdmaPortError, ProbeEngine
from syntony.io.probe_records import Endpoint, PeerKeys, ProbeNic, VerbsRoute
from syntony.model import MS, NicRef, S
from syntony.model.names import nic_number
from syntony.model.probes import DeviceClockReading
from syntony.wire.parts import PartStatus
from syntony.wire.probes import Plane, ProbeFlow

_log = logging.getLogger(__name__)

RING_RECORDS = 1 << 13
TURN_NS = 1 * S
"""Interval of checks of the NICs and of requests to peers."""
FAST_TURN_NS = 250 * MS
"""The same while a peer that is to be probed has not answered yet."""
ABSENT_NS = 10 * S
"""A driver that is loaded later is found within this time."""


class VerbsStatus(NamedTuple):
    parts: tuple[PartStatus, ...] = ()
    layers: dict[str, str] = {}  # noqa: RUF012 - a default that nobody changes
    """NIC → ``roce`` or ``infiniband``, for those that are or were attached."""
    clocks: dict[str, DeviceClockReading] = {}  # noqa: RUF012
    """NIC → its device's clock as last read, for those that are or were stamped by it."""
    counters: dict[str, int] = {}  # noqa: RUF012
    heard: bytes = b""


class VerbsPlane:
    """Methods are for the reactor's loop and do not wait for RDMA.

    Args:
        udp: the engine that asks peers and answers them.
    """

    def __init__(self, config: AgentConfig, clock: ClockSource, udp: ProbeEngine) -> None:
        self._mode = config.verbs.mode
        self._udp = udp
        self._engine: ProbeEngine | None = None
        if self._mode is not VerbsMode.OFF:
            nics = [
                ProbeNic(
                    name=nic.name, nic_id=nic_number(NicRef(config.host, nic.name)), address="",
                    port=1, stamping=nic.stamping,
                )
                for nic in config.nics
            ]  # fmt: skip
            self._engine = ProbeEngine(nics, clock, ring_records=RING_RECORDS, plane=Plane.VERBS)
        self._names = [nic.name for nic in config.nics]
        self._wake, self._stop = threading.Event(), False
        self._thread: threading.Thread | None = None
        # Set by the loop, replaced as a whole.
        self._there: Mapping[str, str] = {}
        self._numbers: Mapping[str, int] = {}
        self._planned: tuple[ProbeFlow, ...] = ()
        self.device_stamps = False
        """Whether devices' own clocks may stamp; until then the engine does."""
        # Used by the thread.
        self._parts = Parts()
        self._attached: dict[str, tuple[str, int]] = {}
        self._attached_for_device_stamps = False
        self._layers: dict[str, str] = {}
        self._clocks: dict[str, DeviceClockReading] = {}
        self._without: dict[str, tuple[tuple[str, int], int]] = {}
        """NICs without an RDMA port, their state, and when to check them again."""
        self._started_for: tuple[object, ...] = ((), ())
        self._routed_for: tuple[object, ...] = ()
        # Set by the thread, replaced as a whole.
        self._part_statuses: tuple[PartStatus, ...] = ()
        self.flows: tuple[ProbeFlow, ...] = ()
        """Number of probed flows."""
        self.probing = 0
        """Number of changes of these so far."""
        self.turns = 0
        """Number of checks of the NICs so far."""

    def start(self) -> None:
        """Begin to look for RDMA ports."""
        if self._engine is not None:
            run = partial(self._run, self._engine)
            self._thread = threading.Thread(target=run, name="verbs", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop probing. The thread of a device that hangs is abandoned."""
        self._stop = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(2 * TURN_NS / S)
        hangs = self._thread is not None and self._thread.is_alive()
        if self._engine is not None and not hangs:
            self._engine.close()

    def look(self, there: Mapping[str, str], numbers: Mapping[str, int]) -> None:
        """Set the NICs that are present, by address, and their numbers on the wire."""
        if (self._there, self._numbers) != (there, numbers):
            self._there, self._numbers = dict(there), dict(numbers)
            self._wake.set()

    def plan(self, flows: Sequence[ProbeFlow]) -> None:
        """Set what to probe from now on."""
        self._planned = tuple(flows)
        self._wake.set()

    def allow_device_stamps(self, *, allowed: bool) -> None:
        """Allow it from now on; NICs are attached again if that changes."""
        if self.device_stamps != allowed:
            self.device_stamps = allowed
            self._wake.set()

    def set_peers(self, peers: Mapping[int, PeerKeys]) -> None:
        if self._engine is not None:
            self._engine.set_peers(peers)

    def pending(self) -> int:
        """Minimum number of records that `drain` would return now."""
        return self._engine.pending() if self._engine is not None else 0

    def drain(self) -> bytes:
        """Every record since the last call."""
        if self._engine is None or not self._engine.pending():
            return b""
        return self._engine.drain().tobytes()

    def status(self) -> VerbsStatus:
        if self._engine is None or not self._layers:
            return VerbsStatus(parts=self._part_statuses)
        return VerbsStatus(
            self._part_statuses,
            dict(self._layers),
            dict(self._clocks),
            msgspec.structs.asdict(self._engine.counters()),
            self._engine.heard().tobytes(),
        )

    # --- the thread ---

    def _run(self, engine: ProbeEngine) -> None:
        while not self._stop:
            try:
                known = self._turn(engine, time.monotonic_ns())
                self.turns += 1
            except SyntonyError as error:
                _log.warning("probing over verbs failed, retrying reason=%s", error)
                known = True
            self._wake.wait((TURN_NS if known else FAST_TURN_NS) / S)
            self._wake.clear()

    def _turn(self, engine: ProbeEngine, now_ns: int) -> bool:
        """One round; returns whether all peers have answered."""
        there, numbers = self._there, self._numbers
        if any(numbers.get(name, number) != number for name, (_, number) in self._attached.items()):
            engine.set_flows(())
            self._started_for = ()
        if self._attached_for_device_stamps != (device_stamps := self.device_stamps):
            self._attached_for_device_stamps = device_stamps
            for name in tuple(self._attached):
                self._detach(engine, name)
                self._parts.restart(_part(name), now_ns)
        for name in self._names:
            self._keep(engine, name, there, numbers, now_ns)
        self._parts.retry(now_ns)
        self._part_statuses = self._parts.statuses(now_ns)
        self._udp.offer(engine.endpoints().values())
        self._start_flows(engine, now_ns)
        return self._resolve_peers(engine)

    def _keep(
        self,
        engine: ProbeEngine,
        name: str,
        there: Mapping[str, str],
        numbers: Mapping[str, int],
        now_ns: int,
    ) -> None:
        """Attach a new NIC, check an attached one, detach one that has changed."""
        wanted = (there[name], numbers[name]) if name in there and name in numbers else None
        fault: MissingError | None = None
        if name in self._attached:
            if wanted != self._attached[name]:
                fault = MissingError(f"{name!r} has gone, or has another address or number")
            else:
                try:
                    self._read_clock(engine, name, now_ns)
                    engine.check(name)
                except MissingError as error:
                    fault = error
        if fault is not None:
            self._detach(engine, name)
            self._parts.fail(_part(name), fault, now_ns)
        if wanted is None or name in self._attached or self._parts.has(_part(name)):
            return
        absent, until_ns = self._without.get(name, (None, 0))
        if wanted == absent and now_ns < until_ns:
            return
        attach = partial(self._attach, engine, name)
        if self._mode is VerbsMode.AUTO:
            try:
                attach()
            except NoRdmaPortError:
                self._without[name] = (wanted, now_ns + ABSENT_NS)
                return  # there is no error
            except SyntonyError:
                pass  # already reported as its part
        self._parts.add(_part(name), attach, now_ns, MAX_BACKOFF_NS)

    def _attach(self, engine: ProbeEngine, name: str) -> None:
        address, number = self._there.get(name, ""), self._numbers.get(name, 0)
        if not address:
            raise MissingError(f"{name!r} is not there")
        if self._attached.get(name) == (address, number):
            return
        stamping = "" if self._attached_for_device_stamps else "kernel"
        engine.attach(name, address, number, stamping)
        engine.start()
        self._attached[name] = (address, number)
        self._layers[name] = "infiniband" if engine.endpoints()[name].infiniband else "roce"
        self._read_clock(engine, name, time.monotonic_ns())
        status = next(each for each in engine.nic_status() if each.name == name)
        _log.info("probed over verbs nic=%s port=%s", name, status.reason)
        self._started_for = ()

    def _read_clock(self, engine: ProbeEngine, name: str, now_ns: int) -> None:
        """A clock that fails is a separate part; the NIC is attached again without it."""
        part = f"verbs-clock:{name}"

        def check() -> None:
            engine.read_clock(name)

        reading = None
        try:
            reading = engine.read_clock(name)
        except MissingError as error:
            if not self._parts.has(part):
                self._parts.add(part, check, now_ns)
            elif self._parts.is_running(part):
                self._parts.fail(part, error, now_ns)
        if reading is None:
            self._clocks.pop(name, None)
        else:
            self._clocks[name] = reading

    def _detach(self, engine: ProbeEngine, name: str) -> None:
        engine.detach(name)
        self._attached.pop(name, None)
        self._started_for = self._routed_for = ()

    def _start_flows(self, engine: ProbeEngine, now_ns: int) -> None:
        """Probe by the newest plan, from NICs that are attached."""
        planned = self._planned
        wanted = (planned, tuple(sorted(self._attached.items())))
        if wanted == self._started_for:
            return
        flows, faults = start_flows(
            [flow for flow in planned if flow.src in self._attached], engine.set_flows
        )
        self._started_for = wanted
        self.flows = flows
        self.probing += 1
        for fault in faults:
            _log.warning("verbs flows skipped %s", fault)
        name = "probing-verbs"
        if faults:
            if not self._parts.has(name):
                self._parts.add(name, _nothing, now_ns)
            self._parts.fail(name, MissingError(faults[0]), now_ns)
        elif self._parts.has(name):
            self._parts.restart(name, now_ns)

    def _resolve_peers(self, engine: ProbeEngine) -> bool:
        """Ask peers for their addresses, and create address handles; returns whether all are
        known."""
        meetings = {(flow.src, flow.dst_nic_id): flow for flow in self.flows}
        requested = list(meetings.values())
        reported = dict(zip(meetings, self._udp.reported(len(requested)), strict=False))
        self._udp.ask(requested)
        known: dict[tuple[str, int], Endpoint] = {
            key: each
            for key, each in reported.items()
            if each is not None and each.qpn and each.nic_id == key[1]
        }
        routes = {
            VerbsRoute(flow.src, known[key], flow.flow_label, flow.dscp, flow.sl): None
            for flow in self.flows
            if (key := (flow.src, flow.dst_nic_id)) in known
        }
        if (routed_for := tuple(routes)) != self._routed_for:
            made, fault = engine.set_routes(routed_for)
            self._routed_for = routed_for if made == len(routed_for) else ()
            if fault:
                _log.warning("verbs address handles missing made=%d wanted=%d reason=%s",
                             made, len(routed_for), fault)  # fmt: skip
        return len(known) == len(requested)


def _part(nic: str) -> str:
    return f"verbs:{nic}"


def _nothing() -> None:
    """For a part that other steps start."""
