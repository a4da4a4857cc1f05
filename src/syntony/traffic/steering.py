"""Decide what one connection needs now: leave dead paths, replace stalled ones, join working ones.

`Steering.settle` depends on the present state only, so it may be called at any time, and
repeatedly: the next call makes up for a lost event.
"""

from __future__ import annotations

from syntony.model import MS
from syntony.model.paths import FourTuple, ip_version
from syntony.traffic.announcing import Announcer
from syntony.traffic.budget import Budget
from syntony.traffic.connection import (
    ANNOUNCED_NS,
    AT_ONCE,
    AT_ONCE_PARTIAL,
    TOGETHER_PARTIAL,
    MptcpConnection,
    Subflow,
    SubflowState,
)
from syntony.traffic.health import Health
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import (
    Cause,
    Create,
    Destroy,
    Note,
    Reason,
    Withdraw,
)
from syntony.traffic.joins import join_failed
from syntony.traffic.peers import JoinPair, Peers, join_port, remote_at
from syntony.traffic.policy import FailoverMode, Policy
from syntony.traffic.redundancy import DEGRADED_NS, Redundancy
from syntony.traffic.round_trips import RoundTrips
from syntony.traffic.source_ports import SourcePorts
from syntony.traffic.standby import Standby
from syntony.traffic.turn import Turn

_VOLUNTARY = {Cause.SURPLUS, Cause.CONTENTION, Cause.DEAD_MAN}
"""Causes for which the path that is left still works."""
LOOK_AGAIN_NS = 100 * MS
"""Interval of checks of a hanging subflow on an unanswered path."""
MAX_JOIN_ATTEMPTS = 4
"""Failed joins, each from another port, after which other pairs of NICs are tried across rails:
with four ports one in sixteen connections finds none that avoids one of two spines."""


class Steering:
    """Decides for one connection at a time; keeps no connection."""

    def __init__(self, policy: Policy, health: Health, seed: int) -> None:
        self._policy = policy
        self._health = health
        self._budget = Budget(policy.max_actions_per_s)
        self._peers = Peers(policy, health)
        self._announcer = Announcer(policy, health)
        self._redundancy = Redundancy(health)
        self.round_trips = RoundTrips()
        self.standby = Standby(policy, health, self.round_trips)
        self.ports = SourcePorts(policy, seed)
        self.stopped = False
        self.events_read_ns: int | None = None
        """All kernel events up to this time have been read; None: up to now."""

    @property
    def acting(self) -> bool:
        """Whether anything may be changed."""
        return self._policy.mode is FailoverMode.ACT and not self.stopped

    def settle(self, conn: MptcpConnection, now_ns: int) -> Turn:
        """What to do now, and when to evaluate again."""
        turn = Turn(conn, now_ns, [], [])
        if conn.job:
            self._leave(turn)
            self._replace_stalled(turn)
            self._update_alone(turn)
            self.standby.check(turn, self.living(conn), acting=self.acting)
            if self.acting and conn.local:
                call = conn.accepted and self._needs_cross_rail(turn)
                self._announcer.announce(turn, ip_version(conn.local), call=call)
                self._assume_announcements(turn, ip_version(conn.local))
                self._join(turn, ip_version(conn.local))
                self._trim(turn)
                self._redundancy.check(turn, self.living(conn))
            else:
                conn.short_since_ns = conn.degraded = None
        return turn

    def fault(self, conn: MptcpConnection, subflow: Subflow) -> Reason | None:
        """Why a subflow's path must not be used, if so."""
        if subflow.nic is None:
            return None
        flow = subflow.flow
        if self._health.nic_of(flow.local) is None:
            since_ns = subflow.seen_ns
            return Reason(Cause.ADDRESS, f"{flow.local} is no longer here", since_ns, since_ns)
        return self._health.dead(subflow.nic, flow.remote) or conn.withdrawn(flow.remote)

    def living(self, conn: MptcpConnection) -> list[Subflow]:
        """Subflows that carry data as far as is known."""
        return [
            subflow
            for subflow in conn.up()
            if subflow.stalled is None and self.fault(conn, subflow) is None
        ]

    def _update_alone(self, turn: Turn) -> None:
        """Update since when the connection has no living subflow on an answered path."""
        conn = turn.conn
        if any(not self._unanswered(each) for each in self.living(conn)):
            conn.alone_ns = None
            conn.called = False
        elif conn.alone_ns is None:
            conn.alone_ns = turn.now_ns

    def _needs_cross_rail(self, turn: Turn) -> bool:
        """Whether it has had no sure path for so long that two ends that learnt of different dead
        paths would have found a common one by themselves."""
        if turn.conn.alone_ns is None:
            return False
        from_ns = turn.conn.alone_ns + 2 * self._policy.join_ns
        if turn.now_ns < from_ns:
            turn.dues.append(from_ns)
        return turn.now_ns >= from_ns

    def _unanswered(self, subflow: Subflow) -> bool:
        return self._health.unanswered(*subflow.pair)

    def _outlives(self, subflow: Subflow, other: Subflow) -> bool:
        """Whether data were acknowledged on one subflow well after they stopped on another. If the
        peer replies to no probes, only this distinguishes them."""
        silent_ns = self._policy.silence_ns
        later = subflow.moved_ns > other.acked_ns + silent_ns
        return later and self._health.is_unresponsive(subflow.flow.remote)

    # --- leaving ---

    def _leave(self, turn: Turn) -> None:
        """End subflows on dead paths, and those that did not come up in time."""
        for subflow in list(turn.conn.subflows.values()):
            reason = self.fault(turn.conn, subflow)
            if subflow.state is SubflowState.COMING:
                late_ns = subflow.since_ns + self._policy.join_ns
                events_read_ns = turn.now_ns if self.events_read_ns is None else self.events_read_ns
                if subflow.one_of and turn.conn.carries(subflow.pair):
                    self._drop(turn, subflow, "another one is up")
                elif reason is not None or events_read_ns >= late_ns:
                    self._give_up(turn, subflow)
                else:
                    turn.dues.append(late_ns)
            elif reason is not None:
                self.end(turn, subflow, reason)

    def _give_up(self, turn: Turn, subflow: Subflow) -> None:
        """End a subflow that did not come up. No data are lost; the next port is tried."""
        flow = subflow.flow
        self._drop(turn, subflow, "no answer to the join")
        self.ports.avoid(flow.local, flow.remote, flow.local_port)
        at_once = AT_ONCE_PARTIAL if self._health.is_partial(*subflow.pair) else AT_ONCE
        turn.conn.tries(*subflow.pair).failed(turn.now_ns, self._policy, at_once, subflow.since_ns)
        why = f"no answer for {(turn.now_ns - subflow.since_ns) // MS} ms"
        turn.out.extend(join_failed(turn.conn, subflow, why, turn.now_ns))

    @staticmethod
    def _drop(turn: Turn, subflow: Subflow, why: str) -> None:
        flow = subflow.flow
        del turn.conn.subflows[flow]
        turn.conn.ended.append(flow)
        reason = Reason(Cause.JOIN, why, turn.now_ns, subflow.since_ns)
        turn.out.append(Destroy(token=turn.conn.token, job=turn.job, flow=flow, reason=reason))

    def end(self, turn: Turn, subflow: Subflow, reason: Reason) -> None:
        """End a subflow if enough others live; otherwise note that, once."""
        conn, flow, pair = turn.conn, subflow.flow, subflow.pair
        others = [each for each in self.living(conn) if each is not subflow]
        sure = [
            each for each in others if not self._unanswered(each) or self._outlives(each, subflow)
        ]
        wanted = max(1, self._policy.min_paths)
        if len(sure) < wanted <= len(others):
            # The others may be dying as well: then the fault is not in one path.
            turn.dues.append(turn.now_ns + self._policy.settle_ns)
            return
        if len(others) < wanted:
            self._note(turn, subflow, "keep-last-path", reason)
            return
        if not self.acting:
            self._note(turn, subflow, "would-leave", reason)
            return
        if not self._allowed(turn):
            return
        del conn.subflows[flow]
        if reason.cause not in _VOLUNTARY:
            conn.lost[pair] = reason
        if reason.cause is Cause.FABRIC:
            conn.stalls.setdefault(pair, HoldDown()).failed(turn.now_ns, self._policy)
        new = sure[0].flow
        conn.ended.append(flow)
        turn.out.append(Destroy(token=conn.token, job=turn.job, flow=flow, reason=reason, new=new))
        # After the end of the subflow: the kernel sends this over the first one that it has.
        nic, _ = pair
        in_use = any(each.nic == nic for each in others)
        if reason.cause not in _VOLUNTARY | {Cause.PEER} and nic in conn.announced and not in_use:
            number = conn.announced.pop(nic)
            turn.out.append(
                Withdraw(
                    token=conn.token,
                    address=flow.local,
                    port=join_port(self._policy, flow.local),
                    local_id=number,
                )
            )

    def _allowed(self, turn: Turn) -> bool:
        """Whether the budget of this second allows an action; otherwise schedules another check."""
        if self._budget.take(turn.now_ns):
            return True
        turn.dues.append(turn.now_ns + max(1, self._budget.wait_ns))
        return False

    @staticmethod
    def _note(turn: Turn, subflow: Subflow, action: str, reason: Reason) -> None:
        reported = f"{action} {reason.cause}"
        if subflow.reported != reported:
            subflow.reported = reported
            turn.out.append(
                Note(
                    token=turn.conn.token,
                    job=turn.job,
                    action=action,
                    reason=reason,
                    old=subflow.flow,
                )
            )

    # --- replacing ---

    def _replace_stalled(self, turn: Turn) -> None:
        """Replace stalled subflows between live NICs: the fabric drops this flow's path."""
        conn = turn.conn
        for subflow in list(conn.subflows.values()):
            flow = subflow.flow
            if subflow.stalled is None or self.fault(conn, subflow) is not None:
                continue
            if self._unanswered(subflow) and not any(
                self._outlives(each, subflow) for each in self.living(conn)
            ):
                # The pair itself may be dead. Its probes will show it or, if the peer replies to
                # none, the data on other subflows.
                turn.dues.append(turn.now_ns + LOOK_AGAIN_NS)
                continue
            self.ports.avoid(flow.local, flow.remote, flow.local_port)
            if len(self.living(conn)) >= max(1, self._policy.min_paths):
                self.end(turn, subflow, subflow.stalled)
            elif not self.acting:
                self._note(turn, subflow, "would-replace", subflow.stalled)
            elif not any(each.state is SubflowState.COMING for each in conn.subflows.values()):
                self._replace(turn, subflow, subflow.stalled)

    def _replace(self, turn: Turn, subflow: Subflow, reason: Reason) -> None:
        """Make before break: the stalled one ends when the new one is up."""
        flow = subflow.flow
        remote = remote_at(turn.conn, flow.remote)
        if remote is None:
            self._note(turn, subflow, "keep-last-path", reason)
            return
        way = JoinPair(subflow.nic or "", flow.local, remote)
        due_ns = self._alone_from_ns(turn.conn, way)
        if turn.now_ns < due_ns:
            turn.dues.append(due_ns)
        else:
            self._begin(turn, way, reason, replaces=flow)

    # --- joining ---

    def _join(self, turn: Turn, family: int) -> None:
        """Join rail to rail, one subflow over every usable pair; the initiator does this."""
        conn = turn.conn
        if not self._initiates(turn):
            return
        alone = not self.living(conn)
        for way in self._peers.join_pairs(conn, family):
            if conn.uses(way.pair) or self._health.dead(*way.pair) is not None:
                continue
            due_ns = self._alone_from_ns(conn, way) if alone else self._joined_from_ns(conn, way)
            if turn.now_ns < due_ns:
                turn.dues.append(due_ns)
            else:
                self._begin(turn, way, self._why(conn, way.pair, turn.now_ns))
        if alone and not any(
            self._health.dead(*way.pair) is None
            and way.remote.withdrawn is None
            and conn.tries(*way.pair).count < MAX_JOIN_ATTEMPTS
            for way in self._peers.join_pairs(conn, family)
        ):
            self._join_across(turn, family)

    def _initiates(self, turn: Turn) -> bool:
        """Whether this end makes joins. For a connection older than this process the initiator is
        guessed from the ports. If no join arrives for long, neither end considers itself the
        initiator, so both try in turn."""
        conn = turn.conn
        if not conn.accepted or not conn.guessed or conn.short_since_ns is None:
            return not conn.accepted
        later = any(conn.local > flow.remote for flow in conn.subflows)
        due_ns = conn.short_since_ns + (3 if later else 2) * DEGRADED_NS
        if turn.now_ns < due_ns:
            turn.dues.append(due_ns)
        return turn.now_ns >= due_ns

    def _joined_from_ns(self, conn: MptcpConnection, way: JoinPair) -> int:
        """When to join over a pair while other paths live: after its hold-downs."""
        return max(
            conn.free_from_ns(*way.pair),
            self._health.usable_from_ns(*way.pair),
            self._peers.withdrawn_retry_ns(way),
        )

    def _alone_from_ns(self, conn: MptcpConnection, way: JoinPair) -> int:
        """When to join over a pair while no other path lives: at once if it is alive, unless joins
        have failed since it recovered."""
        sure = self._health.reaches(*way.pair) and not self._health.unanswered(*way.pair)
        due_ns = conn.tries(*way.pair).free_from_ns(self._health.revived_ns(*way.pair))
        return due_ns if sure else max(due_ns, self._peers.withdrawn_retry_ns(way))

    def _join_across(self, turn: Turn, family: int) -> None:
        """If no rail is known to have both NICs alive, join across rails, or to an address that the
        peer withdrew and may have again without a path to announce it. Not every fabric routes
        between rails; the handshake shows whether this one does."""
        conn = turn.conn
        if any(each.state is SubflowState.COMING for each in conn.subflows.values()):
            return
        if not self._needs_cross_rail(turn):
            return
        self._peers.assume(conn, family)
        ways = [
            way
            for across in (False, True)
            for way in self._peers.join_pairs(conn, family, across=across)
            if not conn.uses(way.pair) and self._health.dead(*way.pair) is None
        ]
        ways.sort(key=lambda way: not self._health.reaches(*way.pair))
        for way in ways:
            due_ns = conn.free_from_ns(*way.pair)
            if turn.now_ns < due_ns:
                turn.dues.append(due_ns)
                continue
            reason = Reason(Cause.JOIN, "no rail lives at both ends", turn.now_ns, turn.now_ns)
            self.create(turn, way, reason)
            return

    def _assume_announcements(self, turn: Turn, family: int) -> None:
        """Assume announcements that this agent may have missed, because it was not running or had
        too many events; the peer repeats them only seldom. Only for addresses that reply to probes.
        If one was not announced, the peer's kernel refuses the join, which costs a packet."""
        conn = turn.conn
        if conn.accepted or not self._peers.unannounced(conn, family):
            return
        if turn.now_ns >= conn.announced_by_ns:
            conn.announced_by_ns = turn.now_ns + ANNOUNCED_NS
            nics = {nic.rail: nic.name for nic in self._health.nics()}
            self._peers.assume(
                conn,
                family,
                lambda address, rail: self._health.reaches(nics.get(rail, ""), address),
            )
        turn.dues.append(conn.announced_by_ns)

    def _trim(self, turn: Turn) -> None:
        """End all but one subflow of each pair; the initiator chooses, after their hold-down."""
        if turn.conn.accepted or turn.conn.moving:
            return
        seen: set[tuple[str | None, str]] = set()
        living = self.living(turn.conn)
        across = [each for each in living if self._peers.is_across(turn.conn, each)]
        needed = len(across) == len(living)
        for subflow in living:
            pair = (subflow.nic, subflow.flow.remote)
            if pair not in seen and (needed or subflow not in across):
                seen.add(pair)
                continue
            due_ns = subflow.since_ns + self._policy.hold_down_ns
            if turn.now_ns < due_ns:
                turn.dues.append(due_ns)
                continue
            what = "across rails, and not needed" if subflow in across else "two over one pair"
            reason = Reason(Cause.SURPLUS, what, turn.now_ns, turn.now_ns)
            self.end(turn, subflow, reason)

    def _begin(
        self, turn: Turn, way: JoinPair, reason: Reason, replaces: FourTuple | None = None
    ) -> None:
        """Start one join, or several at once on a partially reachable pair, where most fail."""
        partial = self._health.is_partial(*way.pair)
        for _ in range(TOGETHER_PARTIAL if partial else 1):
            self.create(turn, way, reason, replaces, one_of=partial)

    def create(
        self,
        turn: Turn,
        way: JoinPair,
        reason: Reason,
        replaces: FourTuple | None = None,
        port: int | None = None,
        *,
        one_of: bool = False,
    ) -> FourTuple | None:
        """Start a join, from a given port or any. None if the budget of this second is spent."""
        if not self._allowed(turn):
            return None
        conn, remote = turn.conn, way.remote
        remote.withdrawn = None  # the handshake shows whether it still is
        if port is None:
            port = self._port(conn, way)
        flow = FourTuple(way.local, port, remote.address, remote.port)
        subflow = Subflow(flow, way.nic, SubflowState.COMING, turn.now_ns)
        subflow.local_id = conn.new_id()
        conn.subflows[flow] = subflow
        create = Create(
            token=conn.token,
            job=turn.job,
            flow=flow,
            local_id=subflow.local_id,
            reason=reason,
            old=replaces,
            quiet=one_of or not conn.tries(*way.pair).reported,
        )
        subflow.requested, subflow.one_of = create, one_of
        turn.out.append(create)
        turn.dues.append(turn.now_ns + self._policy.join_ns)
        return flow

    def _why(self, conn: MptcpConnection, pair: tuple[str, str], now_ns: int) -> Reason:
        lost = conn.lost.get(pair)
        if lost is None:
            return Reason(Cause.JOIN, "both NICs are of one rail", now_ns, now_ns)
        away_ns = now_ns - lost.at_ns
        if lost.cause is Cause.FABRIC and away_ns < self._policy.hold_down_ns:
            return lost  # another path between the same NICs: nothing has recovered
        if self._health.is_partial(*pair):
            reported = f"{lost.cause}, {away_ns // MS} ms ago; some source ports are still silent"
            return Reason(Cause.RETURN, reported, now_ns, now_ns)
        return Reason(Cause.RETURN, f"{lost.cause}, {away_ns // MS} ms ago", now_ns, now_ns)

    def _port(self, conn: MptcpConnection, way: JoinPair) -> int:
        """The port that the controller chose for the pair, once; any other if it failed."""
        placed = conn.placed.pop(way.pair, None)
        if placed is not None and self.ports.good(way.local, way.remote.address, placed):
            return placed
        used = {each.local_port for each in conn.subflows if each.local == way.local}
        return self.ports.draw(way.local, way.remote.address, used)
