"""Orders of operators: carried out one at a time, each in the audit log before it is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from syntony.controller.audits import AuditDesk
from syntony.controller.batches import Piece
from syntony.controller.incidents import AlertDesk
from syntony.controller.placement import Placement
from syntony.controller.sessions import Session
from syntony.controller.traffic import TrafficDesk
from syntony.errors import StateError, UsageError
from syntony.model import format_ns
from syntony.state import ControlState
from syntony.wire.audit import AuditCommand
from syntony.wire.control import CHANGES_LIMIT, Changes, ChangesQuery, Issuer
from syntony.wire.failover import SwitchCommand
from syntony.wire.incidents import IncidentAction, SilenceAction
from syntony.wire.messages import Answer
from syntony.wire.traffic import PlacementCommand, TrafficQuery

Order = IncidentAction | SilenceAction | SwitchCommand | PlacementCommand | AuditCommand


class Orders:
    """One per controller, used on its event loop.

    Args:
        state: where orders are recorded.
        traffic, placement, alerts, audits: who carries them out.
        sessions: host to its attached agent.
        put_local: queues rows of telemetry that tell of an order.
    """

    def __init__(
        self,
        *,
        state: ControlState,
        traffic: TrafficDesk,
        placement: Placement,
        alerts: AlertDesk,
        audits: AuditDesk,
        sessions: Mapping[str, Session],
        put_local: Callable[[Piece], None],
    ) -> None:
        self._state = state
        self._traffic = traffic
        self._placement = placement
        self._alerts = alerts
        self._audits = audits
        self._sessions = sessions
        self._put_local = put_local
        self._one_at_a_time = asyncio.Lock()

    async def carry_out(self, order: Order, issuer: Issuer, now_ns: int) -> Answer:
        """Raises `UsageError`, `StateError`: it was not carried out, or not as it should be."""
        async with self._one_at_a_time:
            match order:
                case SwitchCommand():
                    return await self._throw(order, issuer, now_ns)
                case PlacementCommand():
                    row = await asyncio.to_thread(self._placement.command, order, issuer, now_ns)
                    self._put_local(row)
                    return self._placement.traffic(TrafficQuery(), time.monotonic_ns())
                case _:
                    return await self._carry_out_and_log(order, issuer, now_ns)

    def changes(self, query: ChangesQuery, now_ns: int) -> Changes:
        """The audit log; reads the disk. Raises `UsageError`, `StateError`."""
        if query.window_ns <= 0 or not 0 < query.limit <= CHANGES_LIMIT:
            raise UsageError(f"ask for a positive time range and 1 to {CHANGES_LIMIT} changes")
        return Changes(changes=self._state.changes(now_ns - query.window_ns, query.limit))

    async def _throw(self, order: SwitchCommand, issuer: Issuer, now_ns: int) -> Answer:
        switch, row, unrecorded = await asyncio.to_thread(
            self._traffic.throw, order, issuer, now_ns
        )
        self._put_local(row)
        for session in self._sessions.values():
            session.outbox.put(switch)
        if unrecorded is not None:
            raise StateError(
                f"agents are stopped, but the order is not recorded ({unrecorded}); "
                "repeat it before this controller restarts"
            )
        return self._traffic.status(time.monotonic_ns())

    async def _carry_out_and_log(
        self, order: IncidentAction | SilenceAction | AuditCommand, issuer: Issuer, now_ns: int
    ) -> Answer:
        """For orders whose state is kept elsewhere."""
        answer: Answer
        match order:
            case IncidentAction():
                answer = await asyncio.to_thread(self._alerts.act, order, issuer.who, now_ns)
                what, became, comment = f"incident {order.number}", order.what, order.comment
            case SilenceAction():
                answer = await asyncio.to_thread(self._alerts.silence, order, issuer.who, now_ns)
                what, became, comment = _silence(order)
            case AuditCommand():
                answer = self._audit(order, issuer.who, now_ns)
                what, became, comment = "audit", "started", ""
        await asyncio.to_thread(
            self._state.record, what, became, at_ns=now_ns, issuer=issuer, comment=comment
        )
        return answer

    def _audit(self, order: AuditCommand, by: str, now_ns: int) -> Answer:
        started, sent = self._audits.start(order, by, self._sessions, now_ns)
        for each in sent:
            self._sessions[each.host].outbox.put(each)
        return started


def _silence(order: SilenceAction) -> tuple[str, str, str]:
    if order.end:
        return (f"silence {order.end}", "ended", "")
    what = f"silence of {order.rule or '*'} on {order.subject or '*'}"
    return (what, f"for {format_ns(order.for_ns)}", order.comment)
