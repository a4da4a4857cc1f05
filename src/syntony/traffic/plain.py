"""Plain TCP connections of managed jobs: their packets take another way while theirs is dead.

For what cannot be multi-path: programs that nothing can be put in front of, peers or kernels
without MPTCP, firewalls that take its options off. The connection itself knows nothing of it. Each
end decides for what it sends; what arrives on any of a connection's ways is taken for its own, so
the ends need not agree, and an end that hears its peer on another way answers there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple, ip_version
from syntony.traffic import events
from syntony.traffic.budget import Budget
from syntony.traffic.claims import NameClaims
from syntony.traffic.connection import LOSSY_BACKOFF
from syntony.traffic.health import Health
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Cause, Expect, Instruction, Note, Quicken, Reason, Redirect
from syntony.traffic.plain_flow import PlainFlow
from syntony.traffic.policy import FailoverMode, Policy, is_named
from syntony.traffic.ways import ways_of

FORGET_NS = 3 * S
"""What the kernel's listing has not shown for so long is over."""
ASK = 3
"""Times that a connection's owner is looked for, at successive listings: a socket that was just
accepted, or a process that is just being started, is not found in /proc at once."""
TRIES_ON_PAIR = 2
"""Its own way and one other port, then another pair of NICs: with two equal-cost paths of which
one is dead, there and back, three ports of four lead nowhere, and by then the kernel's timer is at
1.6 s."""
BLIND = 10
"""Further hold-downs before a connection returns to a path on which its own data stalled: no probe
shows whether that path works again, and a failed try costs the job a stall."""
_CERTAIN = {Cause.LOCAL_CARRIER, Cause.ADDRESS}
"""Causes that let nothing through: any other path is as good or better, including one whose probes
are late (as on an overloaded host) or have not begun."""
QUIET_NS = 2 * S
"""A peer that has not been heard on another way for so long is not there any more."""


class PlainPaths:
    """All plain connections of one host; called by `Failover`.

    Args:
        policy: what may be done.
        health: which NICs and pairs live.
        acting: whether anything may be touched now.
    """

    def __init__(self, policy: Policy, health: Health, acting: Callable[[], bool]) -> None:
        self._policy = policy
        self._health = health
        self._acting = acting
        self._budget = Budget(policy.max_actions_per_s)
        self._ports = range(policy.port_low, policy.port_high + 1)
        self.flows: dict[int, PlainFlow] = {}
        """By the inode of their socket."""
        self._claims = NameClaims()
        self._due_ns: int | None = None
        self._stranded = False
        """Whether a connection on a dead way found no other one."""

    # --- what is heard ---

    def sample(self, sample: FlowSample) -> list[Instruction]:
        """The kernel's listing."""
        if not self._policy.plain or not sample.inode:
            return []
        known = self.flows.get(sample.inode)
        if known is None or known.flow != sample.flow:
            out = [] if known is None else self._drop(known)
            fresh = PlainFlow(sample, self._health.nic_of(sample.flow.local))
            self.flows[sample.inode] = fresh
            return [*out, *self._reported(self._claims.claim(fresh, ()))]
        stalled = known.take(sample, self._policy, self._partial_ns(known.wire))
        return self.settle(known, sample.at_ns) if stalled and known.job else []

    def is_new(self, sample: FlowSample) -> bool:
        """Whether it is to be asked whose it is; to be called before `sample`."""
        if not self._policy.plain or sample.token or not sample.inode:
            return False
        known = self.flows.get(sample.inode)
        return known is None or known.flow != sample.flow or known.requested < ASK

    def owner(self, event: events.SocketOwner) -> list[Instruction]:
        """Whose a connection is."""
        known = self.flows.get(event.inode)
        if known is None:
            return []
        managed = event.job and is_named(event.job, self._policy.jobs)
        known.job = event.job if managed and known.judge.nic is not None else ""
        known.requested = ASK if event.job else known.requested + 1
        if not known.job:
            return []
        return [*self._expect(known), *self._quicken(known), *self.settle(known, event.at_ns)]

    def heard(self, event: events.WireHeard) -> list[Instruction]:
        """The peer sends on another way: something is wrong with the one before, there or back."""
        known = self._claims.owner(event.wire)
        if known is None or event.wire == known.flow or not self._acting():
            return []
        moves_on = self._moves_on(known, event)
        if known.wire == event.wire:
            known.heard_ns = event.at_ns
            return []
        if known.kept is not None and not known.follows and not moves_on:
            return []  # we have our own reasons for where we are
        if event.at_ns < known.deaf_ns or not self._fit(known, event.wire, event.at_ns):
            return []
        reason = Reason(Cause.PEER, "the peer sends this way", event.at_ns, event.at_ns)
        known.heard_ns, known.follows = event.at_ns, True
        return self._put(known, event.wire, reason, event.at_ns)

    @staticmethod
    def _moves_on(known: PlainFlow, event: events.WireHeard) -> bool:
        """Whether the peer, too, goes from way to way while nothing of ours is under way: it hears
        nothing of what we acknowledge, and nobody acknowledges that to us. Of two ends that look
        for each other the one with the listener's port goes after the first new way, the other one
        after the second; else they might change places for ever."""
        fresh = event.wire != known.peer_wire
        again = known.kept is None or known.peer_ns > known.kept.at_ns
        known.peer_wire, known.peer_ns = event.wire, event.at_ns
        leads = known.flow.local_port > known.flow.remote_port
        return fresh and not known.stuck and (again or not leads)

    def refused(self, redirect: Redirect, now_ns: int) -> None:
        """The kernel would not: the connection is where it was, and that way is left alone."""
        known = self.flows.get(redirect.token)
        if known is None or known.wire != redirect.wire:
            return
        known.failed.setdefault(redirect.wire, HoldDown()).failed(now_ns, self._policy)
        known.put(redirect.old, now_ns)
        known.kept = known.kept if known.detoured else None

    def replan(self, now_ns: int) -> list[Instruction]:
        """Peers, their addresses or ours may be others now."""
        out = [each for flow in self.managed() for each in self._expect(flow)]
        return [*out, *self.settle_all(now_ns)]

    def forget(self, now_ns: int) -> list[Instruction]:
        """Drop what the kernel no longer lists."""
        over = [e for e in self.flows.values() if now_ns - e.judge.seen_ns > FORGET_NS]
        return [each for flow in over for each in self._drop(flow)]

    # --- what is asked ---

    def managed(self) -> Iterator[PlainFlow]:
        """Connections of managed jobs between NICs that are probed."""
        return (flow for flow in self.flows.values() if flow.job)

    def pairs(self) -> set[tuple[str, str]]:
        """(NIC, remote address) that these connections use or may need."""
        found = set()
        for known in self.managed():
            for way in (known.flow, *known.ways):
                nic = self._health.nic_of(way.local)
                if nic is not None:
                    found.add((nic, way.remote))
        return found

    def due_ns(self) -> int | None:
        """When `tick` has something to do."""
        return self._due_ns

    # --- decisions ---

    def tick(self, now_ns: int) -> list[Instruction]:
        if self._due_ns is None or now_ns < self._due_ns:
            return []
        return self.settle_all(now_ns)

    def settle_all(self, now_ns: int) -> list[Instruction]:
        self._due_ns = None
        return [each for flow in self.managed() for each in self.settle(flow, now_ns)]

    def settle_pairs(self, pairs: Iterable[tuple[str, str]], now_ns: int) -> list[Instruction]:
        """Those that send over one of these pairs."""
        touched = set(pairs)
        return [
            each
            for flow in self.managed()
            if (self._health.nic_of(flow.wire.local), self._health.plan.probed(flow.wire.remote))
            in touched
            for each in self.settle(flow, now_ns)
        ]

    def settle(self, known: PlainFlow, now_ns: int) -> list[Instruction]:
        """What one managed connection needs, from the present state only."""
        reason = self._fault(known)
        if reason is None:
            return self._return(known, now_ns) if known.detoured else []
        if reason.cause is Cause.FABRIC and self._doubtful(known.wire):
            return []  # the probes will tell of the pair
        return self._leave(known, reason, now_ns)

    def settle_stranded(self, now_ns: int) -> list[Instruction]:
        """Something lives again, or for the first time."""
        if not self._stranded:
            return []
        self._stranded = False
        return self.settle_all(now_ns)

    def _leave(self, known: PlainFlow, reason: Reason, now_ns: int) -> list[Instruction]:
        if reason.cause is Cause.FABRIC:
            known.failed.setdefault(known.wire, HoldDown()).failed(now_ns, self._policy)
            known.tried.add(known.wire)
        else:
            self._explained(known, known.wire)
        way = self._next(known, now_ns)
        if way is None and reason.cause in _CERTAIN:
            way = self._next(known, now_ns, doubtful=True)
        if way is None:
            self._stranded = True
            return self._tell(known, "keep-last-path", reason)
        if not self._acting():
            return self._tell(known, "would-detour", reason, way)
        if not self._budget.take(now_ns):
            self._look_at(now_ns + max(1, self._budget.wait_ns))
            return []
        known.follows = False
        known.wait.failed(now_ns, self._policy)
        return self._put(known, way, reason, now_ns)

    @staticmethod
    def _explained(known: PlainFlow, wire: FourTuple) -> None:
        """What stalled there did so because the pair of NICs was dying: its probes will tell when
        it is well again."""
        for way in [way for way in known.failed if way[0::2] == wire[0::2]]:
            del known.failed[way]

    def _next(self, known: PlainFlow, now_ns: int, *, doubtful: bool = False) -> FourTuple | None:
        """The first that is fit; those that failed before come last, and before them those of a
        pair of NICs on which two were, or one where the kernel's timer is slow by now, or between
        which the fabric is known to lose a part: every further one takes it twice as long."""
        vain = Counter(way[0::2] for way in known.tried)
        most = TRIES_ON_PAIR if known.backoff < LOSSY_BACKOFF else 1

        def rank(way: FourTuple) -> tuple[bool, bool]:
            return way in known.tried, vain[way[0::2]] >= most or self._partial_ns(way) is not None

        fit = (way for way in known.ways if self._fit(known, way, now_ns, doubtful=doubtful))
        return min(fit, key=rank, default=None)

    def _return(self, known: PlainFlow, now_ns: int) -> list[Instruction]:
        """Back to its own way, once that is well; a port that was drawn anew is as good."""
        own, wire = known.flow, known.wire
        same_nics = (own.local, own.remote) == (wire.local, wire.remote)
        if same_nics and not known.follows:
            return []
        if known.moved_ns is not None and known.stuck:
            # The kernel has yet to try the way that it is on.
            self._look_at(now_ns + self._policy.hold_down_ns)
            return []
        nic = self._health.nic_of(own.local)
        fault = self._pair_fault(own)
        if fault is not None:
            self._explained(known, own)
        unsure = self._doubtful(own) or self._partial_ns(own) is not None
        if fault is not None or unsure or not self._acting():
            self._look_at(now_ns + self._policy.hold_down_ns)
            return []
        if known.follows and known.alive_ns < known.heard_ns + QUIET_NS // 2:
            # Silent altogether: the peer may wait for its timer on the way that we follow it on.
            self._look_at(now_ns + self._policy.hold_down_ns)
            return []
        lost = known.failed.get(own)
        due_ns = max(
            known.wait.until_ns,
            self._health.usable_from_ns(nic or "", own.remote),
            known.heard_ns + QUIET_NS if known.follows else 0,
            lost.until_ns + BLIND * self._policy.hold_down_ns if lost is not None else 0,
        )
        if now_ns < due_ns:
            self._look_at(due_ns)
            return []
        since_ms = (now_ns - known.kept.at_ns) // MS if known.kept else 0
        was = known.kept.cause if known.kept else Cause.PEER
        reason = Reason(Cause.RETURN, f"{was}, {since_ms} ms ago", now_ns, now_ns)
        # Whom it followed has left that way, and is there again for a new reason only.
        known.deaf_ns = 0 if known.follows else now_ns + 2 * QUIET_NS
        known.follows = False
        out = self._put(known, own, reason, now_ns)
        known.kept = None
        return out

    def _put(
        self, known: PlainFlow, wire: FourTuple, reason: Reason, now_ns: int
    ) -> list[Instruction]:
        old = known.wire
        known.put(wire, now_ns)
        known.kept = reason
        self._look_at(now_ns + self._policy.hold_down_ns)
        return [
            Redirect(
                token=known.inode,
                job=known.job or "",
                flow=known.flow,
                wire=wire,
                old=old,
                reason=reason,
            )
        ]

    def _tell(
        self, known: PlainFlow, action: str, reason: Reason, new: FourTuple | None = None
    ) -> list[Instruction]:
        reported = f"{action} {reason.cause}"
        if known.judge.reported == reported:
            return []
        known.judge.reported = reported
        return [
            Note(
                token=known.inode,
                job=known.job or "",
                action=action,
                reason=reason,
                old=known.wire,
                new=new,
            )
        ]

    # --- what is known of ways ---

    def _fault(self, known: PlainFlow) -> Reason | None:
        if known.detoured and known.wire not in known.ways:
            return Reason(Cause.ADDRESS, "the way is another connection's, too", 0, 0)
        return self._pair_fault(known.wire) or known.judge.stalled

    def _pair_fault(self, way: FourTuple) -> Reason | None:
        nic = self._health.nic_of(way.local)
        if nic is None:
            return Reason(Cause.ADDRESS, f"{way.local} is no longer here", 0, 0)
        return self._health.dead(nic, way.remote)

    def _partial_ns(self, way: FourTuple) -> int | None:
        return self._health.partial_ns(self._health.nic_of(way.local) or "", way.remote)

    def _doubtful(self, way: FourTuple) -> bool:
        return self._health.doubtful(self._health.nic_of(way.local) or "", way.remote)

    def _fit(
        self, known: PlainFlow, way: FourTuple, now_ns: int, *, doubtful: bool = False
    ) -> bool:
        """Whether a way may be taken: nothing is known against it, and both its NICs live; or, if
        it may be doubtful, they are not known to be dead."""
        hold = known.failed.get(way)
        if way == known.wire or (hold is not None and now_ns < hold.until_ns):
            return False
        if self._pair_fault(way) is not None:
            return False
        if doubtful:
            return True
        return not self._doubtful(way) and self._health.reaches(
            self._health.nic_of(way.local) or "", way.remote
        )

    def _look_at(self, due_ns: int) -> None:
        self._due_ns = due_ns if self._due_ns is None else min(self._due_ns, due_ns)

    # --- within ---

    def _expect(self, known: PlainFlow) -> list[Instruction]:
        """Whatever arrives on one of its ways is its own, from now on, faults or none."""
        version = ip_version(known.flow.local)
        near = {
            address: nic.rail
            for nic in self._health.nics()
            for address in nic.addresses
            if ip_version(address) == version
        }
        far = {
            address: rail
            for address, rail in self._health.plan.addresses_of(known.flow.remote).items()
            if ip_version(address) == version
        }
        near.setdefault(known.flow.local, 0)
        ways = ways_of(known.flow, near, far, self._ports) if known.flow.remote in far else ()
        return self._reported(self._claims.claim(known, ways))

    def _quicken(self, known: PlainFlow) -> list[Instruction]:
        if not self._policy.plain_rto_ns or not self._acting():
            return []
        return [Quicken(inode=known.inode, rto_ns=self._policy.plain_rto_ns)]

    def _reported(self, expects: list[Expect]) -> list[Instruction]:
        return [*expects] if self._policy.mode is FailoverMode.ACT else []

    def _drop(self, known: PlainFlow) -> list[Instruction]:
        self.flows.pop(known.inode, None)
        return self._reported(self._claims.drop(known))
