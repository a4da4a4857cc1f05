"""The thread that controls paths. It waits on files only (netlink groups, listeners, messages of
other threads), so no event waits for a tick. With the reporting loop it shares only a queue and a
snapshot."""

from __future__ import annotations

import logging
import os
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from syntony.agent.steering.actuators import PathActuator
from syntony.agent.steering.detours import Detours
from syntony.agent.steering.flows import FlowWatch
from syntony.agent.steering.jobs import JobFinder
from syntony.agent.steering.liveness import LivenessSource, Prober, choose
from syntony.agent.steering.mptcp import Mptcp, kernel_events
from syntony.agent.steering.path_corroboration import PathCorroboration
from syntony.agent.steering.path_log import PathLog
from syntony.agent.steering.view import View
from syntony.errors import MissingError
from syntony.io.detours import DetourTable
from syntony.io.process import name_thread
from syntony.io.routes import Routes
from syntony.model import MS, S
from syntony.model.paths import FlowSample, LinkEvent, PathEvent, StallEvent
from syntony.traffic import events
from syntony.traffic.failover import Event, Failover
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.instructions import (
    Announce,
    Avoid,
    Create,
    Destroy,
    Expect,
    Instruction,
    KernelRefusal,
    Note,
    Notice,
    Redirect,
    RestoreRoutes,
    Retire,
    ShortenTimeout,
    Steer,
    WatchPaths,
    Withdraw,
)
from syntony.traffic.moving import MoveOrder
from syntony.traffic.pair_timeouts import PAUSE_NS
from syntony.traffic.pairs import LocalNic, WatchedFlow
from syntony.traffic.path_notices import ProcessPath
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.rail_moves import RailOrder
from syntony.traffic.round_trips import LOOK_NS
from syntony.wire.probes import ProbeFlow

_log = logging.getLogger(__name__)

FLOWS_NS = 100 * MS
"""Interval of snapshots of jobs' flows, for reports."""
ROUTINE_NS = 1 * S
"""Interval of tasks that are not urgent."""
NOTE_ROUTES_NS = 10 * S
"""Interval of recording routes, of NICs that have been up since the last time."""
SWITCH_INTERVAL_S = 0.001
"""Python's thread switch interval: how long this thread waits at most for another that computes."""
HANDOVER_S = 2.0
NICENESS = -10


class ReadableSource(Protocol):
    """A file that becomes readable when there is an event."""

    def fileno(self) -> int: ...

    @property
    def deadline_ns(self) -> int | None:
        """CLOCK_MONOTONIC by which to poll even if it is not readable; None: only when readable."""
        ...

    def poll(self, now_ns: int) -> Sequence[PathEvent | events.WireReceived]:
        """Events since the last call."""
        ...


class OwnSource(ReadableSource, Protocol):
    """A source that path control closes."""

    def close(self) -> None: ...


class PathControl:
    """Handles events of the kernel and the probes in order, and moves jobs' connections. Methods
    for other threads come first, the rest runs on its own thread.

    Args:
        nics: NICs that jobs may use.
        stopped: whether the stop switch is on.
        processes: jobs' processes that move their own flows; not closed here.

    Where there is no MPTCP, plain connections are managed all the same: `no_mptcp` says why.

    Raises:
        MissingError: neither kind of connection can be managed.
    """

    def __init__(
        self,
        host: str,
        policy: Policy,
        nics: Sequence[LocalNic],
        *,
        stopped: bool,
        sources: Sequence[OwnSource] = (),
        processes: PathActuator[Notice | Avoid] | None = None,
    ) -> None:
        self._policy = policy
        self._failover = Failover(policy, nics, seed=time.monotonic_ns())
        self._failover.steering.stopped = stopped
        self._flow_plan: tuple[ProbeFlow, ...] = ()
        self._liveness: LivenessSource | None = None
        self._requested = WatchPaths(paths=frozenset())
        plain = self._failover.plain
        self._flows = FlowWatch(
            self._own_addresses,
            (lambda: [each.inode for each in plain.managed()]) if policy.plain else None,
        )
        self._corroboration = PathCorroboration(self._failover.health, self._flows)
        self._detours = Detours(
            lambda: [nic.name for nic in self._failover.health.nics()],
            self._failover.health.nic_of,
            self._listen_to_wires,
            self._soon,
        )
        self._sources: tuple[OwnSource, ...] = (*sources, self._flows)
        self._posted: deque[Callable[[], list[Instruction]]] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._unreported = False
        """Something has happened since flows were last reported."""
        self._closing = False
        self.path_log = PathLog(host, self._failover.health.nic_of)
        self.view = View(self._failover, self.path_log.name)
        """Its flows are `FLOWS_NS` old at most, its connections about a second."""
        self.counters = self.path_log.counters
        self._selector = selectors.DefaultSelector()
        self._jobs = JobFinder(self.post)
        self._routes = Routes()
        self._mptcp: Mptcp | None = None
        self._processes = processes
        self.no_mptcp = ""
        self._routine_ns = self._note_ns = self._flows_ns = self._began_ns = 0
        self._round_trips_ns = 0
        self._thread = threading.Thread(target=self._run, name="path-control", daemon=True)
        try:
            self._open_mptcp()
        except MissingError:
            self.close()
            raise

    def _open_mptcp(self) -> None:
        try:
            heard = kernel_events()
        except MissingError as error:
            if not self._policy.plain:
                raise
            self.no_mptcp = str(error)
            return
        self._mptcp = Mptcp(heard, self._policy, self._selector, self.counters)
        self._listen()

    # --- from other threads ---

    def start(self) -> None:
        self._jobs.start()
        self._thread.start()

    def close(self) -> None:
        """Subflows stay as they are; nothing of ours stays in the kernel."""
        self._closing = True
        self._ring()
        if self._thread.is_alive():
            self._thread.join()
        self._jobs.close()
        self._detours.close()
        closing = (self._mptcp, self._routes, *self._sources, self._selector)
        for each in closing:
            if each is not None:
                each.close()
        os.close(self._wake)

    @property
    def listen_fault(self) -> MissingError | None:
        """Why peers cannot join connections at all of our addresses."""
        return self._mptcp.listen_fault if self._mptcp is not None else None

    def post(self, event: Event) -> None:
        """Hand over an event from another thread."""

        def take() -> list[Instruction]:
            if isinstance(event, events.SocketOwner) and event.job:
                self._flows.refresh()  # from now on it is polled often
            return self._failover.handle(event)

        self._call(take)

    def plan(self, plan: Sequence[ProbeFlow], flows: Sequence[WatchedFlow]) -> None:
        """A new probe plan, as it is and as path control sees it."""

        def take() -> list[Instruction]:
            self._flow_plan = tuple(plan)
            wanted = self._failover.watch(flows, time.monotonic_ns())
            self._watch()  # the same pairs may be probed by other flows now
            return wanted

        self._call(take)
        self.path_log.names = {
            each: flow.remote_name for flow in flows for each in (flow.remote, *flow.others)
        }

    def probe_with(self, prober: Prober | None) -> None:
        """Use this engine's events from now on; returns when the previous one is released."""
        done = threading.Event()

        def take() -> list[Instruction]:
            self._listen_to(prober)
            done.set()
            return []

        self._call(take)
        if not done.wait(HANDOVER_S):
            _log.error("path control thread did not stop, probe engine stays open")

    def use(self, paths: frozenset[ProcessPath], rails: Sequence[ReportedFlow]) -> None:
        """Paths and queue-pair rates as jobs' processes report them."""
        self._soon(lambda: self._failover.use(paths, time.monotonic_ns(), rails))

    def add_nic(self, nic: LocalNic) -> None:
        """A NIC that was missing at the start is there."""
        self._soon(lambda: self._failover.health.add(nic))

    def stop(self, *, stopped: bool) -> None:
        self._call(lambda: self._failover.stop(stopped=stopped, now_ns=time.monotonic_ns()))

    def move(self, order: MoveOrder | RailOrder) -> None:
        """The controller has a better path for one subflow, or for queue pairs of one rail."""
        self._call(lambda: self._failover.move(order, time.monotonic_ns()))

    def confirm(self, moves: frozenset[str]) -> None:
        """Moves that the controller has found to help."""
        self._soon(lambda: self._failover.confirm(moves))

    def _soon(self, work: Callable[[], None]) -> None:
        def take() -> list[Instruction]:
            work()
            return []

        self._call(take)

    def _call(self, work: Callable[[], list[Instruction]]) -> None:
        self._posted.append(work)
        self._ring()

    def _ring(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_write(self._wake, 1)

    # --- the thread ---

    def _run(self) -> None:
        name_thread("path-control")
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        self._selector.register(self._wake, selectors.EVENT_READ, self._read_posted)
        for source in self._sources:
            if source.fileno() >= 0:
                poll = partial(self._poll, source)
                self._selector.register(source, selectors.EVENT_READ, poll)
        while not self._closing:
            try:
                self._turn()
            except Exception:  # noqa: BLE001 - supervisor: one bad event must not end failover
                _log.exception("path control failed on one event, continuing")

    def _turn(self) -> None:
        requested_ns = time.monotonic_ns()
        due_ns = max(requested_ns, self._due_ns())
        ready = self._selector.select((due_ns - requested_ns) / S)
        busy_ns, began_ns = requested_ns - self._began_ns, time.monotonic_ns()
        late_ns = began_ns - due_ns
        self._corroboration.note_wakeup(late_ns, began_ns)
        self._note_pause(max(late_ns, busy_ns if self._began_ns else 0), began_ns)
        self._began_ns = began_ns
        for key, _ in ready:
            for event in key.data():
                self._take(event)
        self._failover.events_read(began_ns)
        now_ns = time.monotonic_ns()
        for source in self._timed():
            if source.deadline_ns is not None and source.deadline_ns <= now_ns:
                for event in self._poll(source):
                    self._take(event)
        now_ns = time.monotonic_ns()
        self._note_pause(now_ns - began_ns, now_ns)  # of this turn, before it decides
        corroborated = self._corroboration.corroborate(self._liveness, now_ns)
        self._carry_out(
            self._failover.tick(now_ns, revived=corroborated.back, presumed=corroborated.presumed)
        )
        if ready:
            self._unreported = True
            self.counters.slowest_ns = max(self.counters.slowest_ns, time.monotonic_ns() - began_ns)
        self._periodic(now_ns)

    def _periodic(self, now_ns: int) -> None:
        """Tasks that are done at intervals, in the next turn."""
        if now_ns >= self._flows_ns:
            self._flows_ns, self._unreported = now_ns + FLOWS_NS, False
            self.view.take_flows()
        if now_ns >= self._round_trips_ns and self._liveness is not None:
            self._round_trips_ns = now_ns + LOOK_NS
            self._carry_out(self._failover.round_trips(self._liveness.round_trips(), now_ns))
        if now_ns >= self._routine_ns:
            self._routine_ns = now_ns + ROUTINE_NS
            self._routine(now_ns)

    def _note_pause(self, paused_ns: int, now_ns: int) -> None:
        """Record that this thread did not run for `paused_ns`: it may have missed events."""
        if paused_ns >= PAUSE_NS:
            self._corroboration.note_pause(now_ns)
            self._take(StallEvent(at_ns=now_ns, lasted_ns=paused_ns))
            self._began_ns = now_ns  # the pause is not counted again as a long turn

    def _timed(self) -> Sequence[ReadableSource]:
        return self._sources if self._liveness is None else (*self._sources, self._liveness)

    def _due_ns(self) -> int:
        dues = [self._failover.next_due_ns(), *(each.deadline_ns for each in self._timed())]
        dues.append(self._flows_ns if self._unreported else None)
        return min([self._routine_ns, *(due for due in dues if due is not None)])

    @staticmethod
    def _poll(source: ReadableSource) -> list[PathEvent | events.WireReceived]:
        """In an order in which a renamed NIC is first known by its new name, then gone under its
        old one."""
        heard = source.poll(time.monotonic_ns())
        return sorted(heard, key=lambda event: isinstance(event, LinkEvent) and not event.carrier)

    def _read_posted(self) -> list[Event]:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        with suppress(IndexError):
            while True:
                self._carry_out(self._posted.popleft()())
        return []

    def _take(self, event: Event) -> None:
        self.counters.events += 1
        before = len(self._failover.connections)
        fresh = isinstance(event, FlowSample) and self._failover.plain.is_new(event)
        self._carry_out(self._failover.handle(event))
        if isinstance(event, events.ConnectionUp):
            self._flows.refresh()
            self._jobs.request(event.token)
        elif isinstance(event, events.ConnectionDown):
            self._jobs.forget(event.token)
        elif isinstance(event, FlowSample) and len(self._failover.connections) > before:
            self._jobs.request(event.token)  # older than this process, or its event was lost
        elif fresh and isinstance(event, FlowSample):
            self._jobs.request_socket(event.inode)

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        waiting = deque(instructions)
        plain: list[Expect | Redirect] = []
        while waiting:
            instruction = waiting.popleft()
            match instruction:
                case WatchPaths():
                    self._requested = instruction
                    self._watch()
                case RestoreRoutes(nic=nic):
                    self._restore(nic)
                case Note():
                    self.path_log.tell(instruction, time.monotonic_ns(), "")
                case Notice() | Avoid() if self._processes is not None:
                    self._processes.do(instruction)
                case ShortenTimeout(inode=inode, rto_ns=rto_ns):
                    self._jobs.quicken(inode, rto_ns)
                case Create() | Destroy() | Retire() | Announce() | Withdraw():
                    waiting.extend(self._steer(instruction))
                case Expect() | Redirect():
                    plain.append(instruction)
        if plain:
            self._redirect(plain)

    def _redirect(self, plain: list[Expect | Redirect]) -> None:
        """All at once: the effect of one failure on many connections is one change for the
        kernel."""
        result = self._detours.do(plain)
        done_ns = time.monotonic_ns()
        for each in plain:
            if isinstance(each, Redirect):
                if result:
                    self._failover.plain.refused(each, done_ns)
                    self.path_log.refused(each)
                self.counters.redirected += not result
                self.path_log.tell(each, done_ns, result)

    def _steer(self, instruction: Steer) -> list[Instruction]:
        assert self._mptcp is not None  # noqa: S101 - no MPTCP, no such connections
        try:
            self._mptcp.do(instruction)
        except OSError as error:
            _log.debug("refused %s reason=%s", instruction, error)
            self.path_log.refused(instruction)
            return self._failover.handle(
                KernelRefusal(
                    at_ns=time.monotonic_ns(),
                    instruction=instruction,
                    errno=error.errno or 0,
                    text=str(error.strerror),
                )
            )
        done_ns = time.monotonic_ns()
        if isinstance(instruction, Create):
            self._failover.join_started(instruction, done_ns)
        if isinstance(instruction, Create | Destroy):
            self.path_log.tell(instruction, done_ns, "")
        return []

    def _listen_to(self, prober: Prober | None) -> None:
        if self._liveness is not None:
            self._selector.unregister(self._liveness)
        self._liveness = LivenessSource(prober) if prober is not None else None
        if self._liveness is not None:
            poll = partial(self._poll, self._liveness)
            self._selector.register(self._liveness, selectors.EVENT_READ, poll)
        self._watch()

    def _listen_to_wires(self, table: DetourTable) -> None:
        self._selector.register(table, selectors.EVENT_READ, partial(self._poll, table))

    def _watch(self) -> None:
        if self._liveness is None:
            return
        health = self._failover.health
        watched = self._flow_plan if self._policy.watch else ()
        chosen = choose(watched, self._requested, health.configured)
        self._liveness.watch(chosen)
        health.watch_only(frozenset(flow.flow_id for flow in chosen), time.monotonic_ns())

    # --- what need not be prompt ---

    def _routine(self, now_ns: int) -> None:
        self._carry_out(self._failover.forget(now_ns))
        self._detours.beat(now_ns)
        self._listen()
        if now_ns >= self._note_ns:
            self._note_ns = now_ns + NOTE_ROUTES_NS
            self._routes.note(self._indexes(now_ns))
        self.view.take_connections()

    def _indexes(self, now_ns: int) -> list[int]:
        """Interfaces that have been up for a while: their present routes are their proper ones."""
        found = []
        for nic in self._failover.health.nics():
            dead = self._failover.health.dead(nic.name, "") is not None
            if not dead and self._failover.health.settled(nic.name, now_ns):
                with suppress(OSError):
                    found.append(socket.if_nametoindex(nic.name))
        return found

    def _restore(self, nic: str) -> None:
        if self._policy.mode is not FailoverMode.ACT or self._failover.steering.stopped:
            return
        self._detours.restore(nic)
        try:
            self.counters.routes_restored += self._routes.restore(socket.if_nametoindex(nic))
        except OSError as error:
            _log.warning("routes not restored nic=%s reason=%s", nic, error)

    def _own_addresses(self) -> set[str]:
        return {each for nic in self._failover.health.nics() for each in nic.addresses}

    def _listen(self) -> None:
        if self._mptcp is not None:
            conns = self._failover.connections.values()
            self._mptcp.listen(
                self._own_addresses(), {conn.local_port for conn in conns if conn.accepted}
            )
