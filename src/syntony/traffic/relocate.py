"""Carry out orders to move subflows, step by step. Orders that cannot be finished are cancelled.

See `syntony.traffic.moving` for the steps. Failover goes first: a path that dies under a move ends
the move, never the other way round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from syntony.model import MS, S
from syntony.traffic.connection import MptcpConnection, Subflow, SubflowState
from syntony.traffic.instructions import Cause, Reason, Retire
from syntony.traffic.moving import DRAIN_NS, REMEMBERED, WORSE, Guard, MoveOrder, Moving, Outcome
from syntony.traffic.peers import JoinPair, remote_at
from syntony.traffic.policy import Policy, is_named
from syntony.traffic.steering import Steering
from syntony.traffic.turn import Turn

WARM_NS = 30 * MS
"""Both subflows carry data for this long, a dozen round trips of an idle fabric, in which the
window of the new one opens: otherwise the move would cost a slow start."""
GIVE_UP_NS = 2 * S
"""A move that is not finished within this time is cancelled."""

GONE, MOVING, IN_HAND = (
    "no such subflow (any more)", "a move of this flow is under way", "failover has it in hand",
)  # fmt: skip
PASSING = {GONE, MOVING, IN_HAND}
"""Refusals that do not concern the path: the flow may be moved there later."""


class Relocation:
    """All moves of one host. Time is an argument."""

    def __init__(self, policy: Policy, steering: Steering) -> None:
        self._policy = policy
        self._steering = steering
        self.outcomes: deque[Outcome] = deque(maxlen=REMEMBERED)
        """Oldest first."""

    def refusal(self, conns: Mapping[int, MptcpConnection], order: MoveOrder) -> str:
        """Why an order cannot be carried out; empty if it can."""
        conn = conns.get(order.token)
        if conn is None:
            return "no such connection here"
        if not self.movable(conn):
            return "not to be moved: stopped, observing, or its job is not in [traffic] place"
        if conn.accepted:
            return "not ours to move"
        return self._unfit(conn, order) or self._unreachable(conns, conn, order)

    def _unfit(self, conn: MptcpConnection, order: MoveOrder) -> str:
        subflow = conn.subflows.get(order.flow)
        if subflow is None:
            return GONE
        if (subflow.nic, subflow.flow.remote) in conn.moving:
            return MOVING
        if (
            subflow.state is not SubflowState.UP
            or subflow.stalled
            or self._steering.fault(conn, subflow)
        ):
            return IN_HAND
        return ""

    def _unreachable(
        self, conns: Mapping[int, MptcpConnection], conn: MptcpConnection, order: MoveOrder
    ) -> str:
        remote = remote_at(conn, order.flow.remote)
        if remote is None or remote.port != self._policy.port:
            return "the peer cannot be joined at the agents' port"
        new = order.flow._replace(local_port=order.port, remote_port=remote.port)
        if any(new in each.subflows for each in conns.values()):
            return f"port {order.port} is in use"
        return ""

    def movable(self, conn: MptcpConnection) -> bool:
        """Whether its flows may be moved off paths that work."""
        named = is_named(conn.job or "", self._policy.place)
        return bool(conn.job) and named and self._steering.acting

    def begin(
        self, conns: Mapping[int, MptcpConnection], order: MoveOrder, now_ns: int
    ) -> Turn | None:
        """The first step of an order; None if it cannot be carried out."""
        why = self.refusal(conns, order)
        if why:
            self._report(order, why, now_ns, tried=why not in PASSING)
            return None
        turn = Turn(conns[order.token], now_ns, [], [])
        self._make(turn, order, order.port)
        return turn

    def confirm(self, conns: Iterable[MptcpConnection], moves: frozenset[str]) -> None:
        """Moves that the controller found to help."""
        for conn in conns:
            for flow, guard in list(conn.guards.items()):
                if guard.order.move_id in moves:
                    del conn.guards[flow]

    def advance(self, turn: Turn) -> None:
        """The next step of the moves under way on one connection."""
        self._check_guards(turn)
        for moving in list(turn.conn.moving.values()):
            self._advance(turn, moving)

    def _advance(self, turn: Turn, moving: Moving) -> None:
        new = turn.conn.subflows.get(moving.new)
        old = turn.conn.subflows.get(moving.order.flow)
        if new is None:
            self._cancel(turn, moving, old, "the new subflow did not come up, or went again")
        elif old is None:
            self._done(turn, moving, new)
        elif turn.now_ns >= moving.began_ns + GIVE_UP_NS:
            self._cancel(turn, moving, old, "the old subflow could not be ended in time")
        elif new.state is SubflowState.UP:
            self._drain(turn, moving, old, new)

    def _make(self, turn: Turn, order: MoveOrder, port: int | None) -> None:
        conn, flow = turn.conn, order.flow
        remote = remote_at(conn, flow.remote)
        subflow = conn.subflows[flow]
        if remote is None or subflow.nic is None:
            self._report(order, "the peer cannot be joined", turn.now_ns)
            return
        reason = Reason(order.cause, order.evidence, turn.now_ns, turn.now_ns)
        way = JoinPair(subflow.nic, flow.local, remote)
        new = self._steering.create(turn, way, reason, flow, port)
        if new is None:
            self._report(order, "the second's budget of actions is spent", turn.now_ns)
            return
        conn.guards.pop(flow, None)
        conn.moving[way.pair] = Moving(order, new, way.nic, turn.now_ns, subflow.meter.bps)

    def _drain(self, turn: Turn, moving: Moving, old: Subflow, new: Subflow) -> None:
        reason = Reason(
            moving.order.cause, moving.order.evidence, moving.began_ns, moving.began_ns
        )  # fmt: skip
        retire_ns = new.since_ns + WARM_NS
        if turn.now_ns < retire_ns:
            turn.dues.append(retire_ns)
            return
        if moving.retired_ns is None:
            moving.retired_ns = turn.now_ns
            turn.out.append(
                Retire(token=turn.conn.token, job=turn.job, flow=old.flow, reason=reason)
            )
        if turn.now_ns < moving.retired_ns + DRAIN_NS:
            turn.dues.append(moving.retired_ns + DRAIN_NS)
        else:
            self._steering.end(turn, old, reason)
            if old.flow not in turn.conn.subflows:
                self._done(turn, moving, new)
            else:
                turn.dues.append(turn.now_ns + DRAIN_NS)

    def _done(self, turn: Turn, moving: Moving, new: Subflow) -> None:
        del turn.conn.moving[moving.pair]
        if moving.order.cause is Cause.DEAD_MAN:
            turn.conn.placed.pop(new.pair, None)
            self._report(moving.order, "reverted", turn.now_ns)
            return
        turn.conn.placed[new.pair] = new.flow.local_port
        due_ns = turn.now_ns + self._policy.confirm_ns
        turn.conn.guards[new.flow] = Guard(moving.order, moving.before_bps, due_ns)
        turn.dues.append(due_ns)
        self._report(moving.order, "moved", turn.now_ns)

    def _cancel(self, turn: Turn, moving: Moving, old: Subflow | None, why: str) -> None:
        del turn.conn.moving[moving.pair]
        if old is not None and moving.retired_ns is not None:
            reason = Reason(moving.order.cause, why, turn.now_ns, turn.now_ns)
            turn.out.append(
                Retire(
                    token=turn.conn.token,
                    job=turn.job,
                    flow=old.flow,
                    reason=reason,
                    retired=False,
                )
            )
        self._report(moving.order, why, turn.now_ns)

    def _check_guards(self, turn: Turn) -> None:
        """Check unconfirmed moves; undo those that made it worse."""
        conn = turn.conn
        for flow, guard in list(conn.guards.items()):
            subflow = conn.subflows.get(flow)
            if subflow is None:
                del conn.guards[flow]
            elif turn.now_ns < guard.due_ns:
                turn.dues.append(guard.due_ns)
            elif subflow.pair not in conn.moving:
                del conn.guards[flow]
                if subflow.meter.bps < WORSE * guard.before_bps and self.movable(conn):
                    self._revert(turn, subflow, guard)

    def _revert(self, turn: Turn, subflow: Subflow, guard: Guard) -> None:
        evidence = (
            f"{subflow.meter.bps / 1e6:.1f} Mb/s after move {guard.order.move_id}, "
            f"{guard.before_bps / 1e6:.1f} before, and no word from the controller"
        )
        order = MoveOrder(
            move_id=guard.order.move_id,
            token=turn.conn.token,
            flow=subflow.flow,
            port=0,
            evidence=evidence,
            cause=Cause.DEAD_MAN,
        )
        if not subflow.stalled and self._steering.fault(turn.conn, subflow) is None:
            self._make(turn, order, None)

    def _report(self, order: MoveOrder, result: str, now_ns: int, *, tried: bool = True) -> None:
        outcome = Outcome(move_id=order.move_id, result=result, at_ns=now_ns, tried=tried)
        self.outcomes.append(outcome)
