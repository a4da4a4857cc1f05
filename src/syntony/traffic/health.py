"""Decide which NICs and paths are alive, and which side is at fault when they are not.

A path here is a pair: local NIC and remote address. If all paths of a local NIC are dead while
other local NICs work, the *local NIC* is at fault. If all paths to a remote NIC are dead while the
local NICs work, the *remote NIC* is. If only some flows of a pair are dead, the *fabric* is, and
the pair stays in use. If everything is dead at once, the fault is probably in this host; if all
NICs of one peer are silent at once, probably in its agent. In both cases nothing is concluded from
probes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from syntony.model import MS, S
from syntony.model.paths import LinkEvent, LivenessEvent, StallEvent
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.instructions import Cause, Reason
from syntony.traffic.late_peers import BACK_NS, late_until_ns
from syntony.traffic.pairs import (
    BRIEF_STEP_NS,
    ConnectionProgress,
    LocalNic,
    Pair,
    PairReplies,
    PairState,
    Reply,
    WatchedFlow,
)
from syntony.traffic.policy import Policy
from syntony.traffic.probe_plan import PlannedNics

UNRESPONSIVE_NS = 1 * S
"""A peer that has not replied on any NIC for this long is not merely late."""
SETTLED_NS = 5 * S
"""A NIC unchanged for this long is assumed to have all its addresses and routes."""


class _Nic:
    def __init__(self, nic: LocalNic) -> None:
        self.name = self.configured = nic.name
        self.rail = nic.rail
        self.addresses = nic.addresses
        self.up = True
        self.changed_ns = 0
        self.hold = HoldDown()


class Health:
    """State of all NICs and pairs, from carrier events and probes. Time is in the events, or an
    argument."""

    def __init__(self, policy: Policy, nics: Iterable[LocalNic]) -> None:
        self._policy = policy
        self._nics = {nic.name: _Nic(nic) for nic in nics}
        self._pairs: dict[Pair, PairState] = {}
        self.plan = PlannedNics()
        self._by_remote: dict[str, list[Pair]] = defaultdict(list)
        self._by_nic: dict[str, list[Pair]] = defaultdict(list)
        self._by_host: dict[str, list[Pair]] = defaultdict(list)
        self._watched: frozenset[int] | None = None
        self._stalled_until_ns = 0
        self.undecided: frozenset[Pair] = frozenset()
        """Pairs that would be dead if any other probe of the peer, or of this host, had been
        answered."""

    # --- NICs and plan ---

    def watch(self, flows: Sequence[WatchedFlow]) -> None:
        """Take a new plan, which has the configured names of NICs. Flows that stay keep their
        state."""
        now = {nic.configured: nic.name for nic in self._nics.values()}
        self.plan = PlannedNics(flow._replace(nic=now.get(flow.nic, flow.nic)) for flow in flows)
        old, self._pairs = self._pairs, {}
        self._by_remote.clear()
        self._by_nic.clear()
        self._by_host.clear()
        for flow in self.plan.flows.values():
            pair = (flow.nic, flow.remote)
            if pair not in self._pairs:
                self._pairs[pair] = old.get(pair) or PairState()
                self._by_remote[flow.remote].append(pair)
                self._by_nic[flow.nic].append(pair)
                self._by_host[flow.host].append(pair)
        for state in self._pairs.values():
            state.keep(self.plan.flows.keys())

    def watch_only(self, flow_ids: frozenset[int], now_ns: int) -> None:
        """Only these flows are probed fast from now on. The state of others is dropped, and their
        late events are ignored."""
        self._watched = flow_ids
        for pair in self._pairs.values():
            if not pair.alive.keys() <= flow_ids:
                pair.keep(flow_ids)
                if not pair.alive:
                    pair.died_ns = pair.dead = None
                elif pair.died_ns is None and not any(pair.alive.values()):
                    pair.died_ns = now_ns

    def add(self, nic: LocalNic) -> None:
        """Add a NIC that was missing. A known one keeps its state."""
        if all(nic.name != known.configured for known in self._nics.values()):
            self._nics[nic.name] = _Nic(nic)

    def nic_of(self, address: str) -> str | None:
        for nic in self._nics.values():
            if address in nic.addresses:
                return nic.name
        return None

    def configured(self, nic: str) -> str:
        """The name of a NIC in the configuration and in plans, which may differ from its current
        name."""
        state = self._nics.get(nic)
        return nic if state is None else state.configured

    def nics(self) -> list[LocalNic]:
        return [
            LocalNic(name=nic.name, rail=nic.rail, addresses=nic.addresses)
            for nic in self._nics.values()
        ]

    # --- events ---

    def link(self, event: LinkEvent) -> bool:
        """Take a carrier event; returns whether anything changed. Renamed NICs are recognised by
        their addresses."""
        nic = self._nics.get(event.nic) or self._renamed(event)
        if nic is None:
            return False
        before = (nic.up, nic.addresses)
        up = event.carrier and event.admin_up
        if up or event.addresses:
            # While a NIC is down the kernel removes addresses that return later.
            nic.addresses = event.addresses
        if up != nic.up:
            nic.up, nic.changed_ns = up, event.at_ns
            (nic.hold.returned if up else nic.hold.failed)(event.at_ns, self._policy)
        return before != (nic.up, nic.addresses)

    def _renamed(self, event: LinkEvent) -> _Nic | None:
        for nic in self._nics.values():
            if set(nic.addresses) & set(event.addresses):
                del self._nics[nic.name]
                self._rekey(nic.name, event.nic)
                nic.name = event.nic
                self._nics[event.nic] = nic
                return nic
        return None

    def _rekey(self, old: str, new: str) -> None:
        """A NIC was renamed; its paths keep their state."""

        def renamed(pair: Pair) -> Pair:
            return (new, pair[1]) if pair[0] == old else pair

        self._pairs = {renamed(pair): state for pair, state in self._pairs.items()}
        for index in (self._by_remote, self._by_host):
            for name, pairs in index.items():
                index[name] = [renamed(pair) for pair in pairs]
        self._by_nic[new] = [renamed(pair) for pair in self._by_nic.pop(old, [])]
        self.plan = self.plan.renamed(old, new)

    def liveness(self, event: LivenessEvent) -> bool:
        """A probed flow died or recovered; returns whether its pair has recovered with it."""
        flow = self.plan.flows.get(event.flow_id)
        if flow is None or (self._watched is not None and event.flow_id not in self._watched):
            return False
        pair = self._pairs[flow.nic, flow.remote]
        pair.alive[event.flow_id] = event.alive
        if event.alive:
            pair.partial.lives(event.flow_id)
            self._extend_dying(flow.host, event.at_ns)
            return pair.revive(event.at_ns, self._policy)
        pair.partial.died(event.flow_id, event.since_ns, event.at_ns)
        pair.presumed = pair.presumed and any(self._flows_alive(flow.nic, flow.remote))
        pair.since_ns = max(pair.since_ns, event.since_ns)
        pair.misses = event.misses
        if pair.died_ns is None and not any(self._flows_alive(flow.nic, flow.remote)):
            pair.died_ns = event.at_ns
        return False

    def _extend_dying(self, host: str, at_ns: int) -> None:
        """A flow is answered again. If its whole peer, or every peer, was silent, give the other
        dying pairs as much more time as the silence lasted, at most `BACK_NS`."""
        if self._all_dead():
            again: Iterable[Pair] = self._pairs
        elif self._is_host_unresponsive(host):
            again = self._by_host[host]
        else:
            return
        dying = [self._pairs[key] for key in again if self._dying(key)]
        more_ns = min(BACK_NS, at_ns - max((each.died_ns or 0 for each in dying), default=0))
        for pair in dying:
            pair.carries_until_ns = max(pair.carries_until_ns, at_ns + more_ns)

    @property
    def needs_replies(self) -> bool:
        """Whether newer replies could show that a pair presumed dead is alive, or partially
        reachable."""
        return any(pair.presumed or pair.partial.unsure for pair in self._pairs.values())

    def answers(self, replies: Mapping[int, Reply]) -> dict[Pair, PairReplies]:
        """Replies to the live flows, combined by pair."""
        found: dict[Pair, list[Reply]] = defaultdict(list)
        for flow_id, reply in replies.items():
            flow = self.plan.flows.get(flow_id)
            if flow is not None and self._pairs[flow.nic, flow.remote].alive.get(flow_id):
                found[flow.nic, flow.remote].append(reply)
        return {
            key: PairReplies(
                newest_ns=max(reply.heard_ns for reply in its),
                flows=len(its),
                host=self._host(key),
                dying=self._dying(key),
                rtt_ns=max(its).rtt_ns,
                silent=its[0].silent,
                unresponsive=its[0].unresponsive,
                steady_ns=its[0].steady_ns,
                gap_ns=its[0].gap_ns,
            )
            for key, its in found.items()
        }

    def timeout_ns(self, key: Pair, now_ns: int) -> int:
        """Extra time before a pair is declared dead: more if it recently recovered at once."""
        excuse_ns = max(0, self._stalled_until_ns - now_ns)
        return excuse_ns + BRIEF_STEP_NS * self._pairs[key].brief_now(now_ns)

    def presume_dead(self, since: Mapping[Pair, int], now_ns: int) -> None:
        """Declare pairs dying before all of their flows are dead; `decide_deaths` decides now.

        Args:
            since: pair to its last sign of life, CLOCK_MONOTONIC.
            now_ns: the same clock.
        """
        for key, since_ns in since.items():
            pair = self._pairs[key]
            pair.since_ns, pair.presumed = since_ns, True
            # Its extra time is already over.
            given_ns = BRIEF_STEP_NS * pair.brief_now(now_ns)
            pair.died_ns = now_ns - self._policy.settle_ns - given_ns

    def revive_answered(self, replies: Mapping[int, Reply], now_ns: int) -> bool:
        """Take the last reply of each flow. A pair presumed dead and answered since is alive.
        Returns whether any pair has recovered."""
        back = False
        for flow_id, reply in replies.items():
            flow = self.plan.flows.get(flow_id)
            if flow is None:
                continue
            pair = self._pairs[flow.nic, flow.remote]
            pair.partial.answered(flow_id, reply.heard_ns)
            if pair.presumed and reply.heard_ns > pair.since_ns:
                self._extend_dying(flow.host, now_ns)
                back |= pair.revive(now_ns, self._policy)
        return back

    def pending_deaths(self, now_ns: int) -> list[Pair]:
        """Pairs whose death is to be decided now. Corroborate with the jobs' data first."""
        return self._due(now_ns)

    def corroborate(
        self, nic: str, remote: str, flows: Iterable[ConnectionProgress], now_ns: int
    ) -> None:
        """Corroborate probe loss on a pair with the progress of jobs' connections.

        Data sent after the last probe reply and acknowledged prove that the path works. While no
        connection waits longer than usual, the decision is postponed, for a limited time.

        Args:
            nic: local.
            remote: address.
            flows: of jobs, on this pair.
            now_ns: CLOCK_MONOTONIC.
        """
        pair = self._pair(nic, remote)
        if pair is not None:
            pair.corroborate(flows, now_ns)

    def excuse_late_peers(self, replies: Mapping[int, Reply], now_ns: int) -> None:
        """Postpone the death of pairs whose peer is late rather than one of its NICs dead.

        That is the case if the peer's other NICs are alive but have not replied since either,
        have fallen silent as well, or have just recovered. It ends when they reply or die.

        Args:
            replies: by flow.
            now_ns: CLOCK_MONOTONIC.
        """
        pending = self.pending_deaths(now_ns)
        answers = self.answers(replies) if pending else {}
        for key in pending:
            pair = self._pairs[key]
            until_ns = late_until_ns(key, self._host(key), pair.since_ns, answers, now_ns)
            if until_ns > now_ns:
                pair.carries_until_ns = until_ns

    def since_ns(self, key: Pair) -> int | None:
        """Last probe reply of a pair whose flows have all died, CLOCK_MONOTONIC; None for a pair
        presumed dead, which gets no more time."""
        pair = self._pairs[key]
        return None if pair.presumed else pair.since_ns

    def keep_until(self, key: Pair, until_ns: int) -> None:
        """Do not declare a pair dead before this time."""
        pair = self._pairs[key]
        pair.carries_until_ns = max(pair.carries_until_ns, until_ns)

    def stall(self, event: StallEvent) -> None:
        """This process was not scheduled: silence until now proves nothing."""
        self._stalled_until_ns = event.at_ns + self._policy.stall_grace_ns

    # --- conclusions ---

    def due_ns(self) -> int | None:
        """When `decide_deaths` may have something to decide."""
        return min(
            (at_ns for key, at_ns in self._undecided() if self._is_conclusive(key)), default=None
        )

    def _due(self, now_ns: int) -> list[Pair]:
        late = [key for key, at_ns in self._undecided() if at_ns <= now_ns]
        return [key for key in late if self._is_conclusive(key)]

    def _undecided(self) -> Iterable[tuple[Pair, int]]:
        """Dying pairs, and when to decide."""
        for key, pair in self._pairs.items():
            if pair.died_ns is not None and pair.dead is None:
                yield key, pair.decide_ns(self._policy, self._stalled_until_ns)

    def _is_conclusive(self, key: Pair) -> bool:
        """Whether silence proves a path dead: its peer replies on another path, or no peer replies
        to this NIC while peers reply to other NICs."""
        if self._all_dead():
            return False
        nic, _ = key
        if self._pairs[key].presumed or not self._is_host_unresponsive(self._host(key)):
            return True
        local = [each for each in self._by_nic[nic] if self._pairs[each].alive]
        return len(local) > 1 and all(map(self._dying, local))

    def is_unresponsive(self, remote: str) -> bool:
        """Whether the peer with this address replies on none of its several NICs. Its agent may be
        gone; then only the jobs' data show which of its paths work."""
        known = self.plan.known(remote)
        return known is not None and self._is_host_unresponsive(known.host)

    def _host(self, key: Pair) -> str:
        known = self.plan.known(key[1])
        return known.host if known is not None else ""

    def _is_host_unresponsive(self, host: str) -> bool:
        requested = [
            key
            for key in self._by_host.get(host, ())
            if self._pairs[key].alive and self._nics[key[0]].up
        ]
        return len({remote for _, remote in requested}) > 1 and all(map(self._dying, requested))

    def decide_deaths(self, now_ns: int) -> list[Pair]:
        """Declare pairs dead whose time is over, and return them."""
        due = self._due(now_ns)
        for key in due:
            pair = self._pairs[key]
            pair.dead = Reason(*self._cause(key, now_ns), now_ns, pair.since_ns)
            pair.hold.failed(now_ns, self._policy)
        self._undo_unproven(now_ns)
        self.undecided = frozenset(key for key, at_ns in self._undecided() if at_ns <= now_ns)
        return due

    def _undo_unproven(self, now_ns: int) -> None:
        """Pairs declared dead may have recovered while their peer replies nowhere: forget that they
        are dead."""
        for key, pair in self._pairs.items():
            if pair.dead is None or self._is_conclusive(key):
                continue
            died = [self._pairs[each].died_ns or 0 for each in self._by_host[self._host(key)]]
            if now_ns - max(died) >= UNRESPONSIVE_NS:
                pair.dead, pair.presumed = None, False

    def dead(self, nic: str, remote: str) -> Reason | None:
        """Why a path must not be used now, or None."""
        state = self._nics.get(nic)
        if state is None or not state.up:
            at_ns = state.changed_ns if state else 0
            return Reason(Cause.LOCAL_CARRIER, f"{nic} has no carrier or is down", at_ns, at_ns)
        pair = self._pair(nic, remote)
        return pair.dead if pair is not None else None

    def reaches(self, nic: str, remote: str) -> bool:
        """Whether a path is known to work: its own probes are answered. Across rails, which are not
        probed, other probes of both NICs are."""
        remote = self.plan.probed(remote)
        if any(self._flows_alive(nic, remote)):
            return True
        if (nic, remote) in self._pairs:
            return False
        return self._answered_on(nic) and not self._is_remote_dead(remote)

    def may_be_partial(self, nic: str, remote: str) -> bool:
        """Whether a pair that is silent on all probed ports may work on others: its local NIC is
        not known to be at fault."""
        alone = len(self._by_nic.get(nic, ())) == 1
        return self.unanswered(nic, remote) and (alone or self._answered_on(nic))

    def _answered_on(self, nic: str) -> bool:
        return any(any(self._flows_alive(*pair)) for pair in self._by_nic.get(nic, ()))

    def _is_remote_dead(self, remote: str) -> bool:
        """Whether no live local NIC reaches a remote NIC."""
        pairs = self._by_remote.get(remote, ())
        if not pairs or any(any(self._flows_alive(*pair)) for pair in pairs):
            return False
        return any(
            any(self._flows_alive(*other)) for nic, _ in pairs for other in self._by_nic[nic]
        )

    def settled(self, nic: str, now_ns: int) -> bool:
        """Whether the state of a NIC has not changed for `SETTLED_NS`."""
        state = self._nics.get(nic)
        return state is not None and now_ns - state.changed_ns > SETTLED_NS

    def unanswered(self, nic: str, remote: str) -> bool:
        """Whether the probes of this path are unanswered, whether it was declared dead or not."""
        pair = self._pair(nic, remote)
        return pair is not None and pair.died_ns is not None

    def revived_ns(self, nic: str, remote: str) -> int:
        """When a path last recovered: failures before that no longer count."""
        state = self._nics.get(nic)
        pair = self._pair(nic, remote)
        return max(
            state.changed_ns if state is not None and state.up else 0,
            pair.revived_ns if pair is not None else 0,
        )

    def partial_ns(self, nic: str, remote: str) -> int | None:
        """Since when a pair is partially reachable; None if it is not known to be."""
        pair = self._pair(nic, remote)
        return None if pair is None or pair.died_ns is not None else pair.partial.since_ns

    def is_partial(self, nic: str, remote: str) -> bool:
        """Whether some ECMP paths of a pair work and others do not."""
        return self.partial_ns(nic, remote) is not None

    def usable_from_ns(self, nic: str, remote: str) -> int:
        """When a path's hold-down is over; 0 for one that never failed. A partially reachable pair
        has no hold-down of its own: part of it worked all the time."""
        state = self._nics.get(nic)
        pair = self._pair(nic, remote)
        held = pair is not None and not self.is_partial(nic, remote)
        return max(
            state.hold.until_ns if state is not None else 0,
            pair.hold.until_ns if pair is not None and held else 0,
        )

    def _pair(self, nic: str, remote: str) -> PairState | None:
        """The pair that is probed for a path, if there is one."""
        return self._pairs.get((nic, self.plan.probed(remote)))

    def _flows_alive(self, nic: str, remote: str) -> Iterable[bool]:
        """Flows without any event count as dead: they prove nothing."""
        pair = self._pairs.get((nic, remote))
        return pair.alive.values() if pair is not None else ()

    def _dying(self, key: Pair) -> bool:
        return self._pairs[key].died_ns is not None

    def _all_dead(self) -> bool:
        probed = [key for key, pair in self._pairs.items() if pair.alive]
        nics = {nic for nic, _ in probed if self._nics[nic].up} if probed else set()
        return len(nics) > 1 and all(map(self._dying, probed))

    def _cause(self, key: Pair, now_ns: int) -> tuple[Cause, str]:
        nic, remote = key
        pair = self._pairs[key]
        local = [each for each in self._by_nic[nic] if self._pairs[each].alive]
        remote_keys = [each for each in self._by_remote[remote] if self._pairs[each].alive]
        local_dead, remote_dead = sum(map(self._dying, local)), sum(map(self._dying, remote_keys))
        silence = f"{pair.misses} probes unanswered"
        if pair.presumed:
            silent_ms = (now_ns - pair.since_ns) // MS
            silence = f"no answer for {silent_ms} ms and data waiting"
        evidence = (
            f"{silence}; {local_dead} of {len(local)} paths of {nic} dead, "
            f"{remote_dead} of {len(remote_keys)} to {remote}"
        )
        if local_dead == len(local) > 1:
            return Cause.LOCAL_NIC, evidence
        if local_dead < len(local) and remote_dead == len(remote_keys):
            return Cause.REMOTE_NIC, evidence
        return Cause.PATH, evidence
