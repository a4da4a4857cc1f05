"""Put subflows on standby whose delay costs a connection more than they carry. Pure.

Data in order wait for the slowest subflow that has a part of them. A job that sends a message and
waits for the answer (a step of a collective) waits for the slow path's round trip every time, while
the fast paths idle; a job that streams hardly notices. So the delay alone decides nothing:

* A subflow is a candidate if the probes between its NICs take longer than those of the fastest
  sibling, and if the siblings could carry more than it does in the time that they wait for it.
* It is put on standby for a trial. If the connection does not send more without it, it is taken
  back, and not tried again for a minute, then longer.
* It is taken back when its round trip is short again, when the others are busy all the time (the
  job streams now), or when nothing else lives.

A standby subflow is a backup in the kernel's sense (MP_PRIO): it stays established, and carries
data again at once when nothing else can. Each end judges what it sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from syntony.model import MS, S
from syntony.traffic.connection import MptcpConnection, Subflow
from syntony.traffic.health import Health
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Cause, Note, Reason, Retire
from syntony.traffic.meter import RECENT
from syntony.traffic.pairs import Pair
from syntony.traffic.policy import Policy
from syntony.traffic.round_trips import LOOK_NS, LOOKS, RoundTripExcess, RoundTrips
from syntony.traffic.turn import Turn

MIN_EXCESS_NS = 1 * MS
"""A smaller difference may be due to a busy host, as probes of loaded machines show."""
MIN_RATIO = 2
"""Minimum ratio of the round trip to the fastest sibling's: queues of a shared fabric make one path
half as slow again now and then."""
MIN_GAIN = 1.05
"""Times what the connection sent before that it must send without the path: rates of a steady job
vary by a few per cent."""
ALWAYS_BUSY = 0.995
"""Siblings that are busy for a larger share of the time do not seem to wait for another rank: the
job may be streaming, and the slow path would add its rate. Messages in close succession look the
same, because a delayed acknowledgement counts as busy. So this, too, is a rare trial."""


class _Trials(NamedTuple):
    """How long after a failed trial the next one waits: of leaving a slow subflow, and of
    taking it back for a job that seems to stream. A trial takes two seconds."""

    hold_down_ns: int = 30 * S
    hold_down_max_ns: int = 600 * S
    decay_ns: int = 3_600 * S


TRIALS = _Trials()


class Standby:
    """Checks one connection at a time; its state is in the subflows.

    Args:
        policy: hold-downs, and how many paths a connection must keep.
        health: which address of a remote NIC is probed.
        round_trips: of those probes.
    """

    def __init__(self, policy: Policy, health: Health, round_trips: RoundTrips) -> None:
        self._policy = policy
        self._health = health
        self._round_trips = round_trips

    def concerns(self, conn: MptcpConnection) -> bool:
        """Whether a check of a connection may change anything."""
        subflows = conn.up()
        if len(subflows) < 2 or not conn.job:
            return False
        fastest = self._fastest(subflows)
        return any(
            each.on_standby or (fastest is not None and self._is_slow(each, fastest))
            for each in subflows
        )

    def check(self, turn: Turn, living: Sequence[Subflow], *, acting: bool) -> None:
        """Put the subflow that costs most on standby, and take those back that need not be.

        Args:
            turn: takes instructions and due times.
            living: subflows that carry data, or could, as far as is known.
            acting: whether anything may be changed.
        """
        if turn.conn.inherited and acting:
            turn.conn.inherited = False
            self._inherit(turn)
        used = [each for each in living if not each.on_standby]
        for each in living:
            if each.on_standby and acting:
                self._take_back(turn, each, used)
        if len(used) > max(1, self._policy.min_paths) and not turn.conn.moving:
            self._set_aside(turn, used, acting=acting)

    @staticmethod
    def _inherit(turn: Turn) -> None:
        """Put every subflow into use, whatever a previous agent has ordered."""
        reason = Reason(Cause.JOIN, "the agent was restarted", turn.now_ns, turn.now_ns)
        turn.out.extend(
            Retire(
                token=turn.conn.token, job=turn.job, flow=each.flow, reason=reason, retired=False
            )
            for each in turn.conn.up()
        )

    # --- onto standby ---

    def _set_aside(self, turn: Turn, used: Sequence[Subflow], *, acting: bool) -> None:
        fastest = self._fastest(used)
        slow = [each for each in used if fastest is not None and self._is_slow(each, fastest)]
        if fastest is None or not slow or not all(map(_is_measured, turn.conn.up())):
            return
        free = [each for each in slow if turn.now_ns >= turn.conn.slow_until_ns(each.pair)]
        free.sort(key=lambda each: -(self._round_trips.newest_ns(self._pair(each)) or 0))
        most = len(used) - max(1, self._policy.min_paths)
        groups = [free[:count] for count in range(1, min(len(free), most) + 1)]
        group = max(groups, key=lambda group: _surplus_bps(group, slow, used), default=[])
        if not group or _surplus_bps(group, slow, used) <= 0:
            return
        before_bps = sum(each.meter.recent_bps for each in used)
        for each in group:
            reason = self._reason(turn, each, fastest, _cost_bps(group, slow, used))
            if acting:
                self._put(turn, each, fastest, reason, before_bps)
            elif each.reported != "would-standby":
                each.reported = "would-standby"
                turn.out.append(_note(turn, each, "would-standby", reason))

    def _put(
        self, turn: Turn, subflow: Subflow, fastest: Subflow, reason: Reason, before_bps: float
    ) -> None:
        slow, excess, pair = subflow.slow, self._excess(subflow, fastest), subflow.pair
        slow.reason, slow.excess_ns = reason, excess.least_ns if excess is not None else 0
        slow.before_bps = before_bps
        turn.conn.slow.setdefault(pair, HoldDown()).failed(turn.now_ns, self._policy)
        turn.conn.streams.setdefault(pair, HoldDown()).failed(turn.now_ns, TRIALS)
        _order(turn, subflow, "standby", reason)

    def _is_slow(self, subflow: Subflow, fastest: Subflow) -> bool:
        """Whether its pair's round trip has been longer than the fastest one's at every look."""
        excess = self._excess(subflow, fastest)
        least_ns = self._round_trips.newest_ns(self._pair(fastest))
        if excess is None or least_ns is None:
            return False
        return excess.least_ns >= max(MIN_EXCESS_NS, (MIN_RATIO - 1) * least_ns)

    def _reason(self, turn: Turn, slow: Subflow, fastest: Subflow, cost_bps: float) -> Reason:
        rtt_ns, least_ns = (
            self._round_trips.newest_ns(self._pair(each)) or 0 for each in (slow, fastest)
        )
        evidence = (
            f"round trip {rtt_ns / MS:.1f} ms, {least_ns / MS:.1f} ms on {fastest.nic}; it carries "
            f"{slow.meter.recent_bps / 1e6:.1f} Mb/s and costs the others {cost_bps / 1e6:.1f}"
        )
        since_ns = turn.now_ns - LOOKS * LOOK_NS
        return Reason(Cause.SLOW, evidence, turn.now_ns, since_ns)

    # --- and back ---

    def _take_back(self, turn: Turn, subflow: Subflow, used: Sequence[Subflow]) -> None:
        why = self._why_back(turn, subflow, used)
        if why:
            subflow.slow.reason = None
            _order(turn, subflow, "resume", Reason(Cause.RETURN, why, turn.now_ns, turn.now_ns))

    def _why_back(self, turn: Turn, subflow: Subflow, used: Sequence[Subflow]) -> str:
        """Why one need not stay on standby; empty: it must."""
        if not used:
            return "no other path lives"
        if not all(map(_is_measured, (subflow, *used))):
            return ""
        return _no_gain(turn, subflow, used) or self._over(turn, subflow, used)

    def _over(self, turn: Turn, subflow: Subflow, used: Sequence[Subflow]) -> str:
        """Whether it would not cost more than it carries any more."""
        fastest = self._fastest(used)
        if fastest is None or turn.now_ns < turn.conn.slow_until_ns(subflow.pair):
            return ""
        stream = turn.conn.streams.get(subflow.pair)
        streams = all(each.meter.busy >= ALWAYS_BUSY for each in used)
        if streams and stream is not None and turn.now_ns >= stream.until_ns:
            return "the other paths are busy all the time"
        excess = self._excess(subflow, fastest)
        if excess is None or excess.most_ns > subflow.slow.excess_ns // 2:
            return ""
        rtt_ns = self._round_trips.newest_ns(self._pair(subflow)) or 0
        return f"round trip {rtt_ns / MS:.1f} ms again"

    def _excess(self, subflow: Subflow, other: Subflow) -> RoundTripExcess | None:
        return self._round_trips.excess(self._pair(subflow), self._pair(other))

    def _pair(self, subflow: Subflow) -> Pair:
        nic, remote = subflow.pair
        return nic, self._health.plan.probed(remote)

    def _fastest(self, subflows: Sequence[Subflow]) -> Subflow | None:
        pair = self._round_trips.fastest(self._pair(each) for each in subflows)
        return next((each for each in subflows if self._pair(each) == pair), None)


def _no_gain(turn: Turn, subflow: Subflow, used: Sequence[Subflow]) -> str:
    """Whether the trial showed no gain; a gain is believed for good."""
    before_bps, subflow.slow.before_bps = subflow.slow.before_bps, 0.0
    after_bps = sum(each.meter.recent_bps for each in used)
    if after_bps >= MIN_GAIN * before_bps:
        return ""
    turn.conn.slow.setdefault(subflow.pair, HoldDown()).failed(turn.now_ns, TRIALS)
    return f"{after_bps / 1e6:.1f} Mb/s without it, {before_bps / 1e6:.1f} with it"


def refused_standby(subflow: Subflow, order: Retire) -> None:
    """The kernel did not change a subflow: it is as it was, and will be ordered again."""
    if order.reason.cause is Cause.SLOW:
        subflow.slow.reason = None
    elif order.reason.cause is Cause.RETURN:
        subflow.slow.reason = order.reason


def _cost_bps(group: Sequence[Subflow], slow: Sequence[Subflow], used: Sequence[Subflow]) -> float:
    """What the others would carry more if they never waited while a group of slow ones is busy. To
    leave only one of two equally slow ones does not help."""
    busy = max(each.meter.busy for each in group)
    still = max((each.meter.busy for each in slow if each not in group), default=0.0)
    more_bps = sum(
        max(0.0, each.meter.capacity_bps * busy - each.meter.recent_bps)
        for each in used
        if each not in group
    )
    return more_bps * max(0.0, 1 - still / busy) if busy else 0.0


def _surplus_bps(
    group: Sequence[Subflow], slow: Sequence[Subflow], used: Sequence[Subflow]
) -> float:
    """What a group costs more than it carries."""
    return _cost_bps(group, slow, used) - sum(each.meter.recent_bps for each in group)


def _is_measured(subflow: Subflow) -> bool:
    """Whether all its recent windows are of the time since the last change."""
    return subflow.meter.windows > subflow.slow.since_window + RECENT


def _order(turn: Turn, subflow: Subflow, action: str, reason: Reason) -> None:
    order = Retire(
        token=turn.conn.token,
        job=turn.job,
        flow=subflow.flow,
        reason=reason,
        retired=subflow.on_standby,
    )
    for each in turn.conn.subflows.values():
        each.slow.since_window = each.meter.windows
    turn.out.extend((order, _note(turn, subflow, action, reason)))


def _note(turn: Turn, subflow: Subflow, action: str, reason: Reason) -> Note:
    return Note(token=turn.conn.token, job=turn.job, action=action, reason=reason, old=subflow.flow)
