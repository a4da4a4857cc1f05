"""Moves processes' queue pairs from one rail to another: holds on rails that work. Pure.

A process spreads what it sends to a peer over its rails. Held off one of them it sends by the
others, and no queue pair has to be known. Failover goes first: a hold ends when the rail that
stands in does not carry any more, and the process itself obeys only while another rail is welcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from syntony.model import S
from syntony.model.paths import FourTuple
from syntony.traffic.flows import JobFlow
from syntony.traffic.health import Health
from syntony.traffic.instructions import Cause, Hold, Instruction, Note, Reason
from syntony.traffic.moving import WORSE, Outcome
from syntony.traffic.path_notices import EXPIRES_NS, RENEW_NS, ProcessPath
from syntony.traffic.policy import Policy, is_named
from syntony.traffic.process_rates import PacedPath
from syntony.traffic.relocate import GONE, IN_HAND, MOVING

GIVE_UP_NS = 3 * S
"""A process that has not left the rail by then is free again: it is read every half second, and a
rail drains within two."""
HOLD_NS = 600 * S
"""A rail returns after so long at the latest: unlike another path, a hold takes capacity away, and
why it was ordered may be over."""
MAX_HOLDS = 16
"""Of one process, whose page has room for 64 notices."""

NOT_MOVABLE = "not to be moved: stopped, observing, or its job is not in [traffic] place"
STANDS_IN = "queue pairs of another rail go by it"
IS_HELD = "the other rail is held itself"
TOO_MANY = "too many rails of this process are held"
NOT_LEFT = "the process did not leave the rail in time"


class RailOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller wants of one process."""

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


class _Hold(msgspec.Struct):
    order: RailOrder
    began_ns: int
    before_bps: int
    renew_ns: int
    done: bool = False
    guard_ns: int | None = None
    """When to compare, unless the controller finds before that it helped."""

    @property
    def instead(self) -> _Key:
        return _Key(self.order.process, *self.order.instead)

    def due_ns(self) -> int:
        last_ns = self.began_ns + (HOLD_NS if self.done else GIVE_UP_NS)
        dues = (last_ns, self.renew_ns, self.guard_ns)
        return min(due for due in dues if due is not None)


class RailHolds:
    """Of one host.

    Args:
        policy: whose flows may be moved.
        health: what is known of this host's paths.
        acting: whether anything may be touched now.
        tell: takes what becomes of orders.
    """

    def __init__(
        self,
        policy: Policy,
        health: Health,
        acting: Callable[[], bool],
        tell: Callable[[Outcome], None],
    ) -> None:
        self._policy, self._health, self._acting, self._tell = policy, health, acting, tell
        self._rails: dict[_Key, JobFlow] = {}
        self._holds: dict[_Key, _Hold] = {}

    def use(self, rails: Iterable[JobFlow]) -> None:
        """What processes send by queue pairs, and how fast, rail by rail; replaces what was."""
        self._rails = {
            _Key(each.process, each.flow.local, each.flow.remote): each for each in rails
        }

    def may_move(self, job: str) -> bool:
        """Whether a job's queue pairs may be moved off rails that work."""
        return self._acting() and is_named(job, self._policy.place)

    @property
    def held(self) -> Mapping[PacedPath, ProcessPath]:
        """Rails that are held, to those that stand in."""
        return {key: hold.order.instead for key, hold in self._holds.items()}

    @property
    def moving(self) -> frozenset[PacedPath]:
        """Those that processes have not left yet."""
        return frozenset(key for key, hold in self._holds.items() if not hold.done)

    def order(self, order: RailOrder, now_ns: int) -> list[Instruction]:
        """The controller's word; its outcome is told when the process has obeyed, or refused."""
        key = _Key(order.process, *order.path)
        if order.instead == order.path:
            if key in self._holds:
                return self._end(key, now_ns, "by order", move_id=order.move_id, result="moved")
            self._outcome(order.move_id, "moved" if self._carries(key) else IN_HAND, now_ns)
            return []
        why = self._refusal(key, order)
        if why:
            self._outcome(order.move_id, why, now_ns)
            return []
        before_bps = self._bps(key, order)
        self._holds[key] = _Hold(order, now_ns, before_bps, now_ns + RENEW_NS)
        reason = Reason(Cause.CONTENTION, order.evidence, now_ns, now_ns)
        return [self._hold(key, now_ns), self._note(order, reason)]

    def confirm(self, moves: frozenset[str]) -> None:
        """The controller has found that these helped."""
        for hold in self._holds.values():
            if hold.order.move_id in moves:
                hold.guard_ns = None

    def due_ns(self) -> int | None:
        """When to `look`, if nothing happens before."""
        return min((hold.due_ns() for hold in self._holds.values()), default=None)

    def look(self, now_ns: int) -> list[Instruction]:
        """What is to be done now; `now_ns` is CLOCK_MONOTONIC."""
        if self._holds and not self._acting():
            for hold in self._holds.values():
                self._end_pending(hold, NOT_MOVABLE, now_ns)
            self._holds.clear()  # processes that hear of the stop switch return by themselves
        return [each for key in list(self._holds) for each in self._look_at(key, now_ns)]

    def _refusal(self, key: _Key, order: RailOrder) -> str:
        """Why an order to hold cannot be obeyed; empty if it can."""
        rail, known = self._rails.get(key), self._holds.get(key)
        if rail is None:
            return GONE
        if not self.may_move(rail.job):
            return NOT_MOVABLE
        if known is not None and not known.done:
            return MOVING
        mine = sum(each.process == order.process for each in self._holds)
        if known is None and mine >= MAX_HOLDS:
            return TOO_MANY
        return self._unfit(key, _Key(order.process, *order.instead))

    def _unfit(self, key: _Key, instead: _Key) -> str:
        """Of the holds of a process none stands in for another: so one rail always carries."""
        if any(hold.instead == key for hold in self._holds.values()):
            return STANDS_IN
        if instead in self._holds:
            return IS_HELD
        healthy = self._carries(instead) and (key in self._holds or self._carries(key))
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
        hold, rail = self._holds[key], self._rails.get(key)
        if not hold.done and rail is not None and rail.left and self._carries(hold.instead):
            hold.done, hold.guard_ns = True, now_ns + self._policy.confirm_ns
            self._outcome(hold.order.move_id, "moved", now_ns)
        over = self._over(key, hold, now_ns)
        if over:
            return self._end(key, now_ns, over, result=over)
        if hold.guard_ns is not None and now_ns >= hold.guard_ns:
            hold.guard_ns = None
            worse = self._worse(key, hold)
            if worse:
                self._outcome(hold.order.move_id, "reverted", now_ns)
                return self._end(key, now_ns, worse, cause=Cause.DEAD_MAN)
        if now_ns < hold.renew_ns:
            return []
        hold.renew_ns = now_ns + RENEW_NS
        return [self._hold(key, now_ns)]

    def _over(self, key: _Key, hold: _Hold, now_ns: int) -> str:
        """Why a hold ends, whatever it helped; empty if it does not."""
        if key not in self._rails:
            return GONE
        if not self._carries(hold.instead):
            return IN_HAND
        if not hold.done and now_ns - hold.began_ns >= GIVE_UP_NS:
            return NOT_LEFT
        return f"held for {HOLD_NS // S} s" if now_ns - hold.began_ns >= HOLD_NS else ""

    def _worse(self, key: _Key, hold: _Hold) -> str:
        bps = self._bps(key, hold.order)
        if bps >= WORSE * hold.before_bps:
            return ""
        return (
            f"{bps / 1e6:.1f} Mb/s after move {hold.order.move_id}, "
            f"{hold.before_bps / 1e6:.1f} before, and no word from the controller"
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
        hold = self._holds.pop(key)
        if move_id:
            self._outcome(move_id, result, now_ns)
        self._end_pending(hold, result or evidence, now_ns)
        free = Hold(process=key.process, path=hold.order.path, at_ns=now_ns, expires_ns=0)
        return [free, self._note(hold.order, Reason(cause, evidence, now_ns, now_ns), end=True)]

    def _end_pending(self, hold: _Hold, result: str, now_ns: int) -> None:
        if not hold.done:
            self._outcome(hold.order.move_id, result, now_ns, tried=result == NOT_LEFT)

    def _outcome(self, move_id: str, result: str, now_ns: int, *, tried: bool = False) -> None:
        tried = tried or result in {"moved", "reverted"}
        self._tell(Outcome(move_id=move_id, result=result, at_ns=now_ns, tried=tried))

    @staticmethod
    def _hold(key: _Key, now_ns: int) -> Hold:
        path = (key.local, key.remote)
        return Hold(process=key.process, path=path, at_ns=now_ns, expires_ns=now_ns + EXPIRES_NS)

    def _note(self, order: RailOrder, reason: Reason, *, end: bool = False) -> Note:
        rail = self._rails.get(_Key(order.process, *order.path))
        own, other = (FourTuple(a, 0, b, 0) for a, b in (order.path, order.instead))
        return Note(
            token=0,
            process=order.process,
            job=rail.job if rail is not None else "",
            action="hold-end" if end else "hold",
            reason=reason,
            old=other if end else own,
            new=own if end else other,
        )
