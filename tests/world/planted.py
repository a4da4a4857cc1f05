"""Faults that this project had, or must not have, each put back for one world.

A world that does not find them has no eyes: `test_planted` and ``python -m bench.world --planted``
look for each within 50 seeds.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.world import loop, rails
from tests.world.loop import NODE

from syntony.agent import spool
from syntony.agent.delivery import Delivery
from syntony.agent.fence import Fence
from syntony.agent.spool import Spool
from syntony.agent.steering import orders
from syntony.agent.steering.switch import StopSwitch
from syntony.alerts import render
from syntony.alerts.incidents import BookState, ChangeKind
from syntony.clock import gauge
from syntony.clock.gauge import kept_time
from syntony.clock.network import NetworkSolver
from syntony.controller import (
    agent_hub,
    dispatch,
    fleet,
    ingest,
    leadership,
    notify,
    silent_agents,
    stored_past,
)
from syntony.controller.fresh_losses import FreshLosses
from syntony.controller.ingest import RowStream
from syntony.controller.job_flows import JobFlowRecorder
from syntony.controller.lease import LeaseWatch
from syntony.controller.probe_keys import ProbeKeyDistribution
from syntony.controller.timeline import TimelineKeeper
from syntony.mesh import key_rotation
from syntony.mesh.key_rotation import RETURN_NS, KeyRing, KeyRotation
from syntony.model import S, Timeline
from syntony.state import ControlState, control, postgresql
from syntony.state.document import Document
from syntony.state.incident_store import IncidentStore
from syntony.state.postgresql import PostgresDatabase
from syntony.traffic import segment_delays
from syntony.traffic.failover import Failover
from syntony.wire import spoolfile
from syntony.wire.failover import Switch
from syntony.wire.probes import LossReport
from syntony.wire.spoolfile import (
    DRAWN_BYTES,
    SEGMENT_BYTES,
    Entry,
    name_stream,
    read_frame,
)

if TYPE_CHECKING:
    from tests.world.world import World

Plant = Callable[["World"], AbstractContextManager[Any]]


def _patch(owner: object, name: str, value: object) -> Plant:
    return lambda _: mock.patch.object(owner, name, value, create=True)


def _switch_from_telemetry(world: World) -> AbstractContextManager[Any]:
    """The newest operator's row counts, whatever it says."""

    def switch(_: ControlState) -> Switch | None:
        if not world.store.path_events:
            return None
        at_ns, action, evidence = max(world.store.path_events)
        return Switch(stopped=action == "stop", at_ns=at_ns, by=evidence.partition(":")[0])

    return mock.patch.object(ControlState, "switch", switch)


@contextlib.contextmanager
def _one_stream_for_ever(_: World) -> Iterator[None]:
    """A directory is one stream, and an acknowledgement may be ahead of it."""

    def always() -> str:
        node = NODE.get()
        digest = hashlib.sha256((node.name if node else "").encode()).digest()
        return name_stream(digest[:DRAWN_BYTES])

    def jump(self: Spool, seq: int) -> None:
        if seq > self.acknowledged:
            self._release(seq)

    with (
        mock.patch.object(spool, "_new_stream", always),
        mock.patch.object(Spool, "acknowledge", jump),
        mock.patch.object(Delivery, "acknowledge", _acknowledges),
    ):
        yield


def _acknowledges(self: Delivery, seq: int) -> None:
    self._spool.acknowledge(seq)


def _stops_at_damage(data: bytes, first_seq: int) -> Iterator[Entry]:
    """What follows a damaged frame is forgotten, and not counted."""
    offset, seq = SEGMENT_BYTES, first_seq
    while offset < len(data):
        found = read_frame(data, offset)
        if found is None or found[0].seq != seq:
            return
        frame, end = found
        yield Entry(seq, frame.rows, offset, end, intact=True)
        offset, seq = end, seq + 1


def _forgotten(name: str) -> Plant:
    load = Document.load

    def forget(self: Document[Any]) -> Any:
        return None if self._name == name else load(self)

    return _patch(Document, "load", forget)


def _reconnects(self: PostgresDatabase) -> Any:
    """A broken session is replaced without a look at who holds the lock."""
    if self._session.closed:
        self._session = postgresql._connect(self._url)
    return self._session


@contextlib.contextmanager
def _same_epoch(_: World) -> Iterator[None]:
    def epoch(connection: Any) -> int:
        if connection.execute("SELECT epoch FROM lease").fetchone() is None:
            connection.execute("INSERT INTO lease (id, epoch, holder) VALUES (1, 1, 'x')")
        return 1

    with mock.patch.object(postgresql, "next_epoch", epoch):
        yield


def _by_epoch_alone(self: Switch, other: Switch) -> bool:
    """A successor's order ends a later stop that its predecessor could not record (0501)."""
    if self.epoch and other.epoch and self.epoch != other.epoch:
        return self.epoch > other.epoch
    return self.at_ns > other.at_ns


def _outranked_by_stops(self: Switch, other: Switch) -> bool:
    """Such a stop is replaced by an earlier stop, which an earlier start can end (0501)."""
    return _by_epoch_alone(self, other) if self.stopped else _OUTRANKS(self, other)


def _waits_by_the_hosts_clock(self: KeyRotation, now_ns: int) -> KeyRing | None:
    """A new leader counts from when its predecessor's host thought that the phase began (0517)."""
    if now_ns - self._began_ns < RETURN_NS:
        return None
    began_ns, self._began_ns = self._began_ns, 0
    try:
        return _NEXT(self, now_ns)
    finally:
        self._began_ns = began_ns


def _largest_part(
    fresh: Mapping[str, Timeline], previous: Mapping[str, Timeline], disrupted: Collection[str]
) -> list[str]:
    """The part whose time goes on is chosen before asking which of its clocks stepped (0518)."""
    honest = kept_time(fresh, previous)
    parts = Counter(previous[node].component for node in honest)
    heir = min(parts, key=lambda part: (-parts[part], part), default=None)
    heirs = [node for node in honest if previous[node].component == heir]
    return [node for node in heirs if node not in disrupted] or heirs


def _raises_at_once(state: ControlState, above: int, **order: Any) -> int:
    """The new epoch counts before it is recorded, and if it never is."""
    before, state.database.epoch = state.database.epoch, above + 1
    with state.transaction() as connection:
        connection.execute("UPDATE lease SET epoch = ?", (above + 1,))
        change = ("controller epoch", str(before), str(above + 1), order["comment"])
        control.log_change(connection, order["at_ns"], order["issuer"], change)
    return above + 1


def _unchecked(query: Any, who: Any) -> Any:
    return dispatch.QUESTIONS[type(query)]


async def _leaves(*_: object) -> None:
    """Nothing is done about it."""


def _takes_any(self: StopSwitch, switch: Switch) -> bool:
    self.position = switch
    return True


def _believes(self: FreshLosses, host: str, report: LossReport, *_: object) -> None:
    """An agent may say that another host's probes are lost."""
    self._reports.setdefault(report.at_ns, {})[host] = report
    self._counted.pop(report.at_ns, None)


def _exact(*values: Any) -> segment_delays.Delays:
    """Delays by fleet time are taken for exact."""
    return _DELAYS(*values)._replace(bound_ns=0)


_DELAYS = segment_delays._delays
_OUTRANKS, _NEXT = Switch.outranks, KeyRotation.next
PLANTED: dict[str, Plant] = {
    "switch-from-telemetry": _switch_from_telemetry,
    "switch-not-kept": _patch(ControlState, "set_switch", lambda *_: None),
    "switch-forgotten-by-agents": _patch(StopSwitch, "save", lambda _: None),
    "older-switch-obeyed": _patch(StopSwitch, "take", _takes_any),
    "one-stream-for-ever": _one_stream_for_ever,
    "stops-at-damage": _patch(spool, "index_segment", _stops_at_damage),
    "acknowledged-when-accepted": _patch(
        RowStream, "stored", property(lambda self: self.accepted, lambda *_: None)
    ),
    "first-batches-not-looked-up": _patch(ingest, "MAX_UNACKED", 0),
    "backlog-not-looked-up": _patch(
        RowStream, "backlog", property(lambda _: False, lambda *_: None)
    ),
    "retries-not-looked-up": _patch(
        ingest._Waiting, "tried", property(lambda _: False, lambda *_: None)
    ),
    "key-used-at-once": _patch(KeyRing, "sending", property(lambda self: self.epochs[-1])),
    "new-key-at-each-start": _forgotten("probe keys"),
    "keys-not-confirmed": _patch(KeyRotation, "waiting", lambda _: ()),
    "keys-not-drained": _patch(key_rotation, "DRAIN_NS", 0),
    "agents-without-a-fence": _patch(Fence, "_check", lambda *_: None),
    "takeover-in-the-same-epoch": _same_epoch,
    "epoch-raised-unrecorded": _patch(leadership, "raise_epoch", _raises_at_once),
    "session-replaced-unseen": _patch(PostgresDatabase, "_usable", _reconnects),
    "timeline-not-kept": _patch(TimelineKeeper, "load", mock.AsyncMock(return_value=0)),
    "timeline-told-before-it-is-kept": _patch(
        TimelineKeeper, "clocks", property(lambda _: 1 << 30, lambda *_: None)
    ),
    "incidents-not-kept": _patch(
        IncidentStore,
        "load",
        lambda _: BookState(next_number=1, incidents=[], streaks={}, silences=[], next_silence=1),
    ),
    "messages-without-their-own-key": _patch(render, "key", lambda _: secrets.token_hex(4)),
    "clock-evidence-not-checked": _patch(agent_hub, "check_edges", lambda _, said, __: (said, 0)),
    "any-certificate-is-an-operator": _patch(dispatch, "authorise", _unchecked),
    "gateway-wakes-up-unaware": _patch(ingest, "UNCHECKED_NS", 1 << 60),
    "batches-not-held": _patch(Delivery, "unchecked_until_ns", lambda *_: 0),
    "wide-windows-not-looked-up": _patch(Delivery, "newest_sent", lambda *_: 0),
    "names-of-streams-not-mended": _patch(spoolfile, "_MENDED_BITS", 0),
    "starts-end-later-stops": _patch(Switch, "outranks", _by_epoch_alone),
    "stops-replace-later-stops": _patch(Switch, "outranks", _outranked_by_stops),
    "absence-by-the-hosts-clock": _patch(KeyRotation, "next", _waits_by_the_hosts_clock),
    "stepped-clocks-do-not-wait": _patch(NetworkSolver, "_waits", lambda *_: False),
    "part-chosen-by-its-size": _patch(gauge, "_heirs", _largest_part),
    "ends-of-incidents-not-sent": _patch(
        notify, "_NOTIFIED", notify._NOTIFIED - {ChangeKind.CLEAR}
    ),
    "silent-hosts-not-noticed": _patch(silent_agents, "of_hosts", lambda *_, **__: []),
    "hosts-of-before-not-missed": _patch(ProbeKeyDistribution, "known_hosts", ()),
    "takeover-waits-for-the-store": _patch(stored_past, "WAIT_NS", 60 * S),
    "agents-kept-without-a-lease": _patch(LeaseWatch, "doubt_lease", _leaves),
    "absent-hosts-hold-the-plan": _patch(fleet, "QUIET_NS", fleet.RETURN_NS),
    "few-threads": _patch(loop, "THREADS", 6),
    "losses-of-others-believed": _patch(FreshLosses, "take", _believes),
    "moves-while-stopped": _patch(Failover, "stop", lambda *_, **__: []),
    "expired-moves-obeyed": _patch(rails, "order_of", lambda move, _: orders._rail_order(move)),
    "delays-without-bounds": _patch(segment_delays, "_delays", _exact),
    "late-inserts-not-waited-for": _patch(ingest, "LATE_NS", 0),
    "flows-not-taken": _patch(JobFlowRecorder, "take", lambda *_: None),
    "orders-not-logged": _patch(control, "log_change", lambda *_: None),
}  # fmt: skip
NEED_GATEWAYS = frozenset(name for name in PLANTED if name.startswith("gateway-"))
SHOWN_BY: dict[str, dict[str, Any]] = {
    "stops-at-damage": {"only": ("flip_a_bit",)},
    "agents-kept-without-a-lease": {"only": ("cut_database",)},
    "gateway-wakes-up-unaware": {"only": ("pause_gateway", "store_slow")},
    "moves-while-stopped": {"only": ("run_job",)},
    "expired-moves-obeyed": {"only": ("run_job", "network_slow"), "mean_gap_s": 3.0},
    "epoch-raised-unrecorded": {"only": ("database_full",), "order_gap_s": 2.0},
    "timeline-told-before-it-is-kept": {"only": ("kill_controller",)},
    "batches-not-held": {"only": ("split_streams",), "gateways": 2, "mean_gap_s": 3.0},
    "names-of-streams-not-mended": {"only": ("flip_a_bit", "network_slow", "store_slow")},
    "starts-end-later-stops": {"only": ("partition",), "order_gap_s": 2.0},
    "stops-replace-later-stops": {
        "only": ("partition",),
        "order_gap_s": 1.0,
        "faults_s": 600.0,
        "mean_gap_s": 12.0,
    },
    "absence-by-the-hosts-clock": {
        "only": ("controllers_clock_jump", "cut_host", "stop_controller"),
        "hostile": False,
        "faults_s": 600.0,
        "mean_gap_s": 10.0,
        "order_gap_s": 2.0,
    },
    "late-inserts-not-waited-for": {"only": ("store_hangs",)},
    "stepped-clocks-do-not-wait": {"only": ("clock_jump", "kill_controller", "partition")},
    "part-chosen-by-its-size": {"only": ("clock_jump", "partition"), "mean_gap_s": 3.0},
}
"""Settings of the world that shows a planted one: others would hide it, or are rarely so. Not used
if faults are named."""
