"""Detour packets of managed jobs' plain TCP connections while their own path is dead.

For connections that cannot use MPTCP: programs started without the wrapper, peers or kernels
without MPTCP, firewalls that strip its options. The connection itself does not notice. Each end
decides for the packets that it sends. Packets that arrive on any of a connection's wires
(`plain_wires`) are delivered to it, so the ends need not agree; an end that receives packets on
another wire replies there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from syntony.model import MS, S
from syntony.model.paths import FlowSample, FourTuple, ip_version
from syntony.traffic import events
from syntony.traffic.budget import Budget
from syntony.traffic.connection import LOSSY_BACKOFF
from syntony.traffic.health import Health
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import (
    Cause,
    Expect,
    Instruction,
    Note,
    Reason,
    Redirect,
    ShortenTimeout,
)
from syntony.traffic.plain_flow import PlainFlow
from syntony.traffic.plain_wires import WireClaims, other_wires
from syntony.traffic.policy import FailoverMode, Policy, is_named

FORGET_NS = 3 * S
"""A connection absent from the kernel's listing for this long has ended."""
MAX_OWNER_LOOKUPS = 3
"""Lookups of a connection's owner, at successive listings: a socket that was just accepted, or a
process that is just starting, is not found in /proc at once."""
TRIES_ON_PAIR = 2
"""Wires tried on one pair of NICs, the connection's own included, before another pair is used. If
one of two equal-cost paths is dead in both directions, three ports of four fail, and after four
tries the kernel's timer is at 1.6 s."""
BLIND_HOLD_DOWNS = 10
"""Additional hold-downs before a connection returns to a wire on which its own data stalled: no
probe shows whether that wire works again, and a failed try costs the job a stall."""
_CERTAIN = {Cause.LOCAL_CARRIER, Cause.ADDRESS}
"""Causes that let nothing through: any other path is as good or better, including one whose probes
are late (as on an overloaded host) or have not begun."""
QUIET_NS = 2 * S
"""A peer from which nothing was received on a detour for this long has left it."""


class PlainPaths:
    """All plain connections of one host; called by `Failover`.

    Args:
        acting: whether anything may be changed now.
    """

    def __init__(self, policy: Policy, health: Health, acting: Callable[[], bool]) -> None:
        self._policy = policy
        self._health = health
        self._acting = acting
        self._budget = Budget(policy.max_actions_per_s)
        self._ports = range(policy.port_low, policy.port_high + 1)
        self.flows: dict[int, PlainFlow] = {}
        """By inode of the socket."""
        self._claims = WireClaims()
        self._due_ns: int | None = None
        self._stranded = False
        """Whether a connection on a dead wire found no other one."""

    # --- events ---

    def sample(self, sample: FlowSample) -> list[Instruction]:
        """Take one connection of the kernel's listing; return what is to be done."""
        if not self._policy.plain or not sample.inode:
            return []
        conn = self.flows.get(sample.inode)
        if conn is None or conn.flow != sample.flow:
            out = [] if conn is None else self._drop(conn)
            fresh = PlainFlow(sample, self._health.nic_of(sample.flow.local))
            self.flows[sample.inode] = fresh
            return [*out, *self._if_acting(self._claims.claim(fresh, ()))]
        stalled = conn.take(sample, self._policy, self._partial_ns(conn.wire))
        return self.settle(conn, sample.at_ns) if stalled and conn.job else []

    def is_new(self, sample: FlowSample) -> bool:
        """Whether the owner of a connection is to be looked up; to be called before `sample`."""
        if not self._policy.plain or sample.token or not sample.inode:
            return False
        conn = self.flows.get(sample.inode)
        return conn is None or conn.flow != sample.flow or conn.owner_lookups < MAX_OWNER_LOOKUPS

    def owner(self, event: events.SocketOwner) -> list[Instruction]:
        """The owner of a connection was looked up."""
        conn = self.flows.get(event.inode)
        if conn is None:
            return []
        managed = event.job and is_named(event.job, self._policy.jobs)
        conn.job = event.job if managed and conn.subflow.nic is not None else ""
        conn.owner_lookups = MAX_OWNER_LOOKUPS if event.job else conn.owner_lookups + 1
        if not conn.job:
            return []
        return [*self._expect(conn), *self._shorten_timeout(conn), *self.settle(conn, event.at_ns)]

    def wire_received(self, event: events.WireReceived) -> list[Instruction]:
        """The peer sends on another wire: the previous one failed in one direction or both."""
        conn = self._claims.owner(event.wire)
        if conn is None or event.wire == conn.flow or not self._acting():
            return []
        peer_searches = self._peer_searches(conn, event)
        if conn.wire == event.wire:
            conn.peer_received_ns = event.at_ns
            return []
        if conn.detour_reason is not None and not conn.follows_peer and not peer_searches:
            return []  # this end chose its wire for its own reasons
        if event.at_ns < conn.ignore_peer_until_ns or not self._fit(conn, event.wire, event.at_ns):
            return []
        reason = Reason(Cause.PEER, "the peer sends on this wire", event.at_ns, event.at_ns)
        conn.peer_received_ns, conn.follows_peer = event.at_ns, True
        return self._put(conn, event.wire, reason, event.at_ns)

    @staticmethod
    def _peer_searches(conn: PlainFlow, event: events.WireReceived) -> bool:
        """Whether the peer tries one wire after the other while this end has no data under way:
        it receives none of our acknowledgements. If both ends search, the one with the smaller port
        follows the peer's first new wire, the other one its second; otherwise they could swap wires
        forever."""
        fresh = event.wire != conn.peer_wire
        again = conn.detour_reason is None or conn.peer_ns > conn.detour_reason.at_ns
        conn.peer_wire, conn.peer_ns = event.wire, event.at_ns
        leads = conn.flow.local_port > conn.flow.remote_port
        return fresh and not conn.stuck and (again or not leads)

    def refused(self, redirect: Redirect, now_ns: int) -> None:
        """The kernel refused a redirect: the connection stays on its old wire, and the refused one
        is held down."""
        conn = self.flows.get(redirect.token)
        if conn is None or conn.wire != redirect.wire:
            return
        conn.failed.setdefault(redirect.wire, HoldDown()).failed(now_ns, self._policy)
        conn.put(redirect.old, now_ns)
        conn.detour_reason = conn.detour_reason if conn.detoured else None

    def replan(self, now_ns: int) -> list[Instruction]:
        """NICs or the plan have changed: compute wires again."""
        out = [each for flow in self.managed() for each in self._expect(flow)]
        return [*out, *self.settle_all(now_ns)]

    def forget(self, now_ns: int) -> list[Instruction]:
        """Drop what the kernel no longer lists."""
        over = [e for e in self.flows.values() if now_ns - e.subflow.seen_ns > FORGET_NS]
        return [each for flow in over for each in self._drop(flow)]

    # --- queries ---

    def managed(self) -> Iterator[PlainFlow]:
        """Connections of managed jobs between NICs that are probed."""
        return (flow for flow in self.flows.values() if flow.job)

    def pairs(self) -> set[tuple[str, str]]:
        """Pairs (NIC, remote address) that these connections use or may need."""
        found = set()
        for conn in self.managed():
            for wire in (conn.flow, *conn.wires):
                nic = self._health.nic_of(wire.local)
                if nic is not None:
                    found.add((nic, wire.remote))
        return found

    def due_ns(self) -> int | None:
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
        """Settle the connections that send over one of these pairs (NIC, remote address)."""
        touched = set(pairs)
        return [
            each
            for flow in self.managed()
            if (self._health.nic_of(flow.wire.local), self._health.plan.probed(flow.wire.remote))
            in touched
            for each in self.settle(flow, now_ns)
        ]

    def settle(self, conn: PlainFlow, now_ns: int) -> list[Instruction]:
        """Instructions that one managed connection needs: to leave a path with a fault, or to
        return to its own. They depend on the present state only."""
        reason = self._fault(conn)
        if reason is None:
            return self._return(conn, now_ns) if conn.detoured else []
        if reason.cause is Cause.FABRIC and self._unanswered(conn.wire):
            return []  # wait for the probes to decide on the pair
        return self._leave(conn, reason, now_ns)

    def settle_stranded(self, now_ns: int) -> list[Instruction]:
        """Retry connections that had no path: to be called when a path has come up."""
        if not self._stranded:
            return []
        self._stranded = False
        return self.settle_all(now_ns)

    def _leave(self, conn: PlainFlow, reason: Reason, now_ns: int) -> list[Instruction]:
        if reason.cause is Cause.FABRIC:
            conn.failed.setdefault(conn.wire, HoldDown()).failed(now_ns, self._policy)
            conn.tried.add(conn.wire)
        else:
            self._clear_failures(conn, conn.wire)
        wire = self._next(conn, now_ns)
        if wire is None and reason.cause in _CERTAIN:
            wire = self._next(conn, now_ns, unanswered=True)
        if wire is None:
            self._stranded = True
            return self._note(conn, "keep-last-path", reason)
        if not self._acting():
            return self._note(conn, "would-detour", reason, wire)
        if not self._budget.take(now_ns):
            self._look_at(now_ns + max(1, self._budget.wait_ns))
            return []
        conn.follows_peer = False
        conn.wait.failed(now_ns, self._policy)
        return self._put(conn, wire, reason, now_ns)

    @staticmethod
    def _clear_failures(conn: PlainFlow, wire: FourTuple) -> None:
        """Forget stalls on a dead pair of NICs: they are explained, and its probes show when it
        works again."""
        for each in [each for each in conn.failed if each[0::2] == wire[0::2]]:
            del conn.failed[each]

    def _next(self, conn: PlainFlow, now_ns: int, *, unanswered: bool = False) -> FourTuple | None:
        """The first usable wire. Wires that stalled come last. Before them come those of pairs that
        are partially reachable, or on which `TRIES_ON_PAIR` wires stalled (one, if the kernel's
        timer is slow by now): each further try takes the kernel twice as long."""
        vain = Counter(wire[0::2] for wire in conn.tried)
        most = TRIES_ON_PAIR if conn.backoff < LOSSY_BACKOFF else 1

        def rank(wire: FourTuple) -> tuple[bool, bool]:
            return wire in conn.tried, vain[wire[0::2]] >= most or self._partial_ns(
                wire
            ) is not None

        fit = (wire for wire in conn.wires if self._fit(conn, wire, now_ns, unanswered=unanswered))
        return min(fit, key=rank, default=None)

    def _return(self, conn: PlainFlow, now_ns: int) -> list[Instruction]:
        """Return to the connection's own wire once it works; another port of the
        same NICs is as good."""
        own, wire = conn.flow, conn.wire
        same_nics = (own.local, own.remote) == (wire.local, wire.remote)
        if same_nics and not conn.follows_peer:
            return []
        if conn.moved_ns is not None and conn.stuck:
            # The kernel has not tried the present wire yet.
            self._look_at(now_ns + self._policy.hold_down_ns)
            return []
        nic = self._health.nic_of(own.local)
        fault = self._pair_fault(own)
        if fault is not None:
            self._clear_failures(conn, own)
        unsure = self._unanswered(own) or self._partial_ns(own) is not None
        if fault is not None or unsure or not self._acting():
            self._look_at(now_ns + self._policy.hold_down_ns)
            return []
        if conn.follows_peer and conn.alive_ns < conn.peer_received_ns + QUIET_NS // 2:
            # Silent altogether: the peer may be waiting for its timer on the detour.
            self._look_at(now_ns + self._policy.hold_down_ns)
            return []
        lost = conn.failed.get(own)
        due_ns = max(
            conn.wait.until_ns,
            self._health.usable_from_ns(nic or "", own.remote),
            conn.peer_received_ns + QUIET_NS if conn.follows_peer else 0,
            lost.until_ns + BLIND_HOLD_DOWNS * self._policy.hold_down_ns if lost is not None else 0,
        )
        if now_ns < due_ns:
            self._look_at(due_ns)
            return []
        since_ms = (now_ns - conn.detour_reason.at_ns) // MS if conn.detour_reason else 0
        was = conn.detour_reason.cause if conn.detour_reason else Cause.PEER
        reason = Reason(Cause.RETURN, f"{was}, {since_ms} ms ago", now_ns, now_ns)
        # The followed peer has left the detour; it uses it again only for a new reason.
        conn.ignore_peer_until_ns = 0 if conn.follows_peer else now_ns + 2 * QUIET_NS
        conn.follows_peer = False
        out = self._put(conn, own, reason, now_ns)
        conn.detour_reason = None
        return out

    def _put(
        self, conn: PlainFlow, wire: FourTuple, reason: Reason, now_ns: int
    ) -> list[Instruction]:
        old = conn.wire
        conn.put(wire, now_ns)
        conn.detour_reason = reason
        self._look_at(now_ns + self._policy.hold_down_ns)
        return [
            Redirect(
                token=conn.inode,
                job=conn.job or "",
                flow=conn.flow,
                wire=wire,
                old=old,
                reason=reason,
            )
        ]

    def _note(
        self, conn: PlainFlow, action: str, reason: Reason, new: FourTuple | None = None
    ) -> list[Instruction]:
        reported = f"{action} {reason.cause}"
        if conn.subflow.reported == reported:
            return []
        conn.subflow.reported = reported
        return [
            Note(
                token=conn.inode,
                job=conn.job or "",
                action=action,
                reason=reason,
                old=conn.wire,
                new=new,
            )
        ]

    # --- state of wires ---

    def _fault(self, conn: PlainFlow) -> Reason | None:
        if conn.detoured and conn.wire not in conn.wires:
            return Reason(Cause.ADDRESS, "another connection may use this wire, too", 0, 0)
        return self._pair_fault(conn.wire) or conn.subflow.stalled

    def _pair_fault(self, wire: FourTuple) -> Reason | None:
        nic = self._health.nic_of(wire.local)
        if nic is None:
            return Reason(Cause.ADDRESS, f"{wire.local} is no longer here", 0, 0)
        return self._health.dead(nic, wire.remote)

    def _partial_ns(self, wire: FourTuple) -> int | None:
        return self._health.partial_ns(self._health.nic_of(wire.local) or "", wire.remote)

    def _unanswered(self, wire: FourTuple) -> bool:
        return self._health.unanswered(self._health.nic_of(wire.local) or "", wire.remote)

    def _fit(
        self, conn: PlainFlow, wire: FourTuple, now_ns: int, *, unanswered: bool = False
    ) -> bool:
        """Whether a wire may be used: it did not fail lately and its pair is answered, or, with
        `unanswered`, at least not known to be dead."""
        hold = conn.failed.get(wire)
        if wire == conn.wire or (hold is not None and now_ns < hold.until_ns):
            return False
        if self._pair_fault(wire) is not None:
            return False
        if unanswered:
            return True
        return not self._unanswered(wire) and self._health.reaches(
            self._health.nic_of(wire.local) or "", wire.remote
        )

    def _look_at(self, due_ns: int) -> None:
        self._due_ns = due_ns if self._due_ns is None else min(self._due_ns, due_ns)

    # --- within ---

    def _expect(self, conn: PlainFlow) -> list[Instruction]:
        """Deliver what arrives on one of its wires to it from now on."""
        version = ip_version(conn.flow.local)
        near = {
            address: nic.rail
            for nic in self._health.nics()
            for address in nic.addresses
            if ip_version(address) == version
        }
        far = {
            address: rail
            for address, rail in self._health.plan.addresses_of(conn.flow.remote).items()
            if ip_version(address) == version
        }
        near.setdefault(conn.flow.local, 0)
        wires = other_wires(conn.flow, near, far, self._ports) if conn.flow.remote in far else ()
        return self._if_acting(self._claims.claim(conn, wires))

    def _shorten_timeout(self, conn: PlainFlow) -> list[Instruction]:
        if not self._policy.plain_rto_ns or not self._acting():
            return []
        return [ShortenTimeout(inode=conn.inode, rto_ns=self._policy.plain_rto_ns)]

    def _if_acting(self, expects: list[Expect]) -> list[Instruction]:
        return [*expects] if self._policy.mode is FailoverMode.ACT else []

    def _drop(self, conn: PlainFlow) -> list[Instruction]:
        self.flows.pop(conn.inode, None)
        return self._if_acting(self._claims.drop(conn))
