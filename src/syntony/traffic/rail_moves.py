"""Move what processes send by queue pairs from one rail to another, by orders to avoid one. Pure.

A process spreads its data to a peer over its rails. It sends no new data on a rail that it is told
to avoid; the queue pairs stay as they are. Failover has priority: a move ends when the rail that
stands in fails, and the process obeys only while it has another rail that it may use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.health import Health
from syntony.traffic.instructions import Avoid, Cause, Instruction, Note, Reason
from syntony.traffic.moving import WORSE, Outcome
from syntony.traffic.path_notices import EXPIRES_NS, RENEW_NS, ProcessPath
from syntony.traffic.policy import Policy, is_named
from syntony.traffic.process_rates import PacedPath
from syntony.traffic.relocate import GONE, IN_HAND, MOVING

GIVE_UP_NS = 4 * S
"""A process that still sends by the rail then may go on: it is read every half second, and the
controller waits for five."""
LONGEST_NS = 600 * S
"""A rail is used again after so long at the latest: unlike a move to another path this one takes
capacity away, and why it was ordered may be over."""
MAX_MOVED = 16
"""Of one process, whose page has room for 64 notices."""

NOT_MOVABLE = "not to be moved: stopped, observing, or its job is not in [traffic] place"
STANDS_IN = "queue pairs of another rail go by it"
IS_MOVED = "what the other rail carried has moved itself"
TOO_MANY = "too much of this process has moved"
NOT_LEFT = "the process still sends by the rail"


class RailOrder(msgspec.Struct, frozen=True, kw_only=True):
    move_id: str
    process: int
    """PID on this host."""
    path: ProcessPath
    """The rail that the queue pairs belong to."""
    instead: ProcessPath
    """The rail of the same process that stands in; the same one: back to where they belong."""
    evidence: str


class _Key(NamedTuple):
    process: int
    local: str
    remote: str


class _Move(msgspec.Struct):
    order: RailOrder
    began_ns: int
    before_bps: int
    renew_ns: int
    windows: int
    """Measured by then."""
    done: bool = False
    guard_ns: int | None = None
    """When to compare, unless the controller finds before that it helped."""

    @property
    def instead(self) -> _Key:
        return _Key(self.order.process, *self.order.instead)

    def due_ns(self) -> int:
        last_ns = self.began_ns + (LONGEST_NS if self.done else GIVE_UP_NS)
        dues = (last_ns, self.renew_ns, self.guard_ns)
        return min(due for due in dues if due is not None)


def _has_left(rail: ReportedFlow, move: _Move) -> bool:
    """Whether a whole window after the order had nothing of it; in the first one that ends after it
    what was under way may have been done."""
    return rail.left or (rail.windows > move.windows + 1 and rail.tx_bps == 0)


class RailMoves:
    """Moves what a host's processes send by queue pairs from one rail to another.

    Args:
        policy: whose flows may be moved.
        acting: whether anything may be touched now.
        tell: receives the outcome of orders.
    """

    def __init__(
        self,
        policy: Policy,
        health: Health,
        acting: Callable[[], bool],
        tell: Callable[[Outcome], None],
    ) -> None:
        self._policy, self._health, self._acting, self._report = policy, health, acting, tell
        self._rails: dict[_Key, ReportedFlow] = {}
        self._moves: dict[_Key, _Move] = {}

    def use(self, rails: Iterable[ReportedFlow]) -> None:
        """What processes send by queue pairs, and how fast, rail by rail; replaces what was."""
        self._rails = {
            _Key(each.process, each.flow.local, each.flow.remote): each for each in rails
        }

    def may_move(self, job: str) -> bool:
        """Whether a job's queue pairs may be moved off rails that work."""
        return self._acting() and is_named(job, self._policy.place)

    @property
    def moved_to(self) -> Mapping[PacedPath, ProcessPath]:
        """Rails to be avoided → the rails that stand in."""
        return {key: move.order.instead for key, move in self._moves.items()}

    @property
    def moving(self) -> frozenset[PacedPath]:
        """Rails that processes have not left yet."""
        return frozenset(key for key, move in self._moves.items() if not move.done)

    def order(self, order: RailOrder, now_ns: int) -> list[Instruction]:
        """Take a controller's order; its outcome is reported once the process obeys or refuses."""
        key = _Key(order.process, *order.path)
        if order.instead == order.path:
            if key in self._moves:
                return self._end(key, now_ns, "by order", move_id=order.move_id, result="moved")
            self._outcome(order.move_id, "moved" if self._carries(key) else IN_HAND, now_ns)
            return []
        why = self._refusal(key, order)
        if why:
            self._outcome(order.move_id, why, now_ns)
            return []
        before_bps = self._bps(key, order)
        self._moves[key] = _Move(
            order, now_ns, before_bps, now_ns + RENEW_NS, self._rails[key].windows
        )
        reason = Reason(Cause.CONTENTION, order.evidence, now_ns, now_ns)
        return [self._avoid(key, now_ns), self._note(order, reason)]

    def confirm(self, moves: frozenset[str]) -> None:
        """Moves that the controller found to help."""
        for move in self._moves.values():
            if move.order.move_id in moves:
                move.guard_ns = None

    def due_ns(self) -> int | None:
        """When to `look`, if nothing happens before."""
        return min((move.due_ns() for move in self._moves.values()), default=None)

    def look(self, now_ns: int) -> list[Instruction]:
        """What to do now; `now_ns` is CLOCK_MONOTONIC."""
        if self._moves and not self._acting():
            for move in self._moves.values():
                self._end_pending(move, NOT_MOVABLE, now_ns)
            self._moves.clear()  # processes that hear of the stop switch return by themselves
        return [each for key in list(self._moves) for each in self._look_at(key, now_ns)]

    def _refusal(self, key: _Key, order: RailOrder) -> str:
        """Why an order cannot be carried out; empty if it can."""
        rail, known = self._rails.get(key), self._moves.get(key)
        if rail is None:
            return GONE
        if not self.may_move(rail.job):
            return NOT_MOVABLE
        if known is not None and not known.done:
            return MOVING
        mine = sum(each.process == order.process for each in self._moves)
        if known is None and mine >= MAX_MOVED:
            return TOO_MANY
        return self._unfit(key, _Key(order.process, *order.instead))

    def _unfit(self, key: _Key, instead: _Key) -> str:
        """What stands in has not moved itself: so one rail of a process always carries."""
        if any(move.instead == key for move in self._moves.values()):
            return STANDS_IN
        if instead in self._moves:
            return IS_MOVED
        healthy = self._carries(instead) and (key in self._moves or self._carries(key))
        return "" if healthy else IN_HAND

    def _carries(self, key: _Key) -> bool:
        """Whether the process sends there, and nothing says that it should not."""
        rail, nic = self._rails.get(key), self._health.nic_of(key.local)
        if rail is None or rail.left or nic is None:
            return False
        return self._health.dead(nic, key.remote) is None

    def _bps(self, key: _Key, order: RailOrder) -> int:
        """What goes by both rails."""
        both = (key, _Key(order.process, *order.instead))
        return sum(self._rails[each].tx_bps for each in both if each in self._rails)

    def _look_at(self, key: _Key, now_ns: int) -> list[Instruction]:
        move, rail = self._moves[key], self._rails.get(key)
        if not move.done and rail is not None and _has_left(rail, move):
            move.done, move.guard_ns = True, now_ns + self._policy.confirm_ns
            self._outcome(move.order.move_id, "moved", now_ns)
        over = self._over(key, move, now_ns)
        if over:
            return self._end(key, now_ns, over, result=over)
        if move.guard_ns is not None and now_ns >= move.guard_ns:
            move.guard_ns = None
            worse = self._worse(key, move)
            if worse:
                self._outcome(move.order.move_id, "reverted", now_ns)
                return self._end(key, now_ns, worse, cause=Cause.DEAD_MAN)
        if now_ns < move.renew_ns:
            return []
        move.renew_ns = now_ns + RENEW_NS
        return [self._avoid(key, now_ns)]

    def _over(self, key: _Key, move: _Move, now_ns: int) -> str:
        """Why it ends, whatever it helped; empty if it does not."""
        if key not in self._rails:
            return GONE
        if not self._carries(move.instead):
            return IN_HAND
        if not move.done and now_ns - move.began_ns >= GIVE_UP_NS:
            return NOT_LEFT
        return f"moved for {LONGEST_NS // S} s" if now_ns - move.began_ns >= LONGEST_NS else ""

    def _worse(self, key: _Key, move: _Move) -> str:
        bps = self._bps(key, move.order)
        if bps >= WORSE * move.before_bps:
            return ""
        return (
            f"{bps / 1e6:.1f} Mb/s after move {move.order.move_id}, "
            f"{move.before_bps / 1e6:.1f} before, and no word from the controller"
        )

    def _end(
        self,
        key: _Key,
        now_ns: int,
        evidence: str,
        *,
        result: str = "",
        move_id: str = "",
        cause: Cause = Cause.CONTENTION,
    ) -> list[Instruction]:
        """The rail may be used again. `result`: of `move_id`, else of the order that is not done
        yet."""
        move = self._moves.pop(key)
        if move_id:
            self._outcome(move_id, result, now_ns)
        self._end_pending(move, result or evidence, now_ns)
        free = Avoid(process=key.process, path=move.order.path, at_ns=now_ns, expires_ns=0)
        return [free, self._note(move.order, Reason(cause, evidence, now_ns, now_ns), end=True)]

    def _end_pending(self, move: _Move, result: str, now_ns: int) -> None:
        if not move.done:
            self._outcome(move.order.move_id, result, now_ns, tried=result == NOT_LEFT)

    def _outcome(self, move_id: str, result: str, now_ns: int, *, tried: bool = False) -> None:
        tried = tried or result in {"moved", "reverted"}
        self._report(Outcome(move_id=move_id, result=result, at_ns=now_ns, tried=tried))

    @staticmethod
    def _avoid(key: _Key, now_ns: int) -> Avoid:
        path = (key.local, key.remote)
        return Avoid(process=key.process, path=path, at_ns=now_ns, expires_ns=now_ns + EXPIRES_NS)

    def _note(self, order: RailOrder, reason: Reason, *, end: bool = False) -> Note:
        rail = self._rails.get(_Key(order.process, *order.path))
        own, other = (FourTuple(a, 0, b, 0) for a, b in (order.path, order.instead))
        return Note(
            token=0,
            process=order.process,
            job=rail.job if rail is not None else "",
            action="avoid-end" if end else "avoid",
            reason=reason,
            old=other if end else own,
            new=own if end else other,
        )
