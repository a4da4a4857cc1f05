"""Which NICs and paths live, and whose fault it is when they do not.

A path here is a pair: local NIC and remote address. Three points of view: all of a NIC's paths dead
while other NICs live is *my NIC*; all paths to one remote NIC dead while mine lives is *his NIC*;
some flows of a pair dead and others alive is *the fabric* (and no reason to give the pair up).
Everything dead at once says more of this host than of any path, and all NICs of one peer silent at
once says more of the agent there that should answer: then nothing is concluded from probes.
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
    Answers,
    ConnectionProgress,
    LocalNic,
    Pair,
    PairState,
    Reply,
    WatchedFlow,
)
from syntony.traffic.planned import Planned
from syntony.traffic.policy import Policy

MUTE_NS = 1 * S
"""A peer that has answered nowhere for so long is not just late."""
SETTLED_NS = 5 * S
"""A NIC unchanged for so long has all its addresses and routes, if it ever gets them."""


class _Nic:
    def __init__(self, nic: LocalNic) -> None:
        self.name = self.configured = nic.name
        self.rail = nic.rail
        self.addresses = nic.addresses
        self.up = True
        self.changed_ns = 0
        self.hold = HoldDown()


class Health:
    """What carriers and probes say. Time is in the events, or an argument."""

    def __init__(self, policy: Policy, nics: Iterable[LocalNic]) -> None:
        self._policy = policy
        self._nics = {nic.name: _Nic(nic) for nic in nics}
        self._pairs: dict[Pair, PairState] = {}
        self.plan = Planned()
        self._by_remote: dict[str, list[Pair]] = defaultdict(list)
        self._by_nic: dict[str, list[Pair]] = defaultdict(list)
        self._by_host: dict[str, list[Pair]] = defaultdict(list)
        self._watched: frozenset[int] | None = None
        self._stalled_until_ns = 0
        self.undecided: frozenset[Pair] = frozenset()
        """Pairs that would have been given up, had anything else of the peer, or of this host, been
        answered."""

    # --- who is whom ---

    def watch(self, flows: Sequence[WatchedFlow]) -> None:
        """Take a new plan, which names NICs as they are configured; what is known of flows that
        stay is kept."""
        now = {nic.configured: nic.name for nic in self._nics.values()}
        self.plan = Planned(flow._replace(nic=now.get(flow.nic, flow.nic)) for flow in flows)
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

    def only(self, flow_ids: frozenset[int], now_ns: int) -> None:
        """From now on only these flows are probed fast: what was known of others is out of date,
        and so is what is still read of them."""
        self._watched = flow_ids
        for pair in self._pairs.values():
            if not pair.alive.keys() <= flow_ids:
                pair.keep(flow_ids)
                if not pair.alive:
                    pair.died_ns = pair.dead = None
                elif pair.died_ns is None and not any(pair.alive.values()):
                    pair.died_ns = now_ns

    def add(self, nic: LocalNic) -> None:
        """A NIC that was missing is there. One that is known keeps its state."""
        if all(nic.name != known.configured for known in self._nics.values()):
            self._nics[nic.name] = _Nic(nic)

    def nic_of(self, address: str) -> str | None:
        """The NIC that has a local address."""
        for nic in self._nics.values():
            if address in nic.addresses:
                return nic.name
        return None

    def configured(self, nic: str) -> str:
        """What a NIC is called in the configuration and in plans, whatever its name is now."""
        state = self._nics.get(nic)
        return nic if state is None else state.configured

    def nics(self) -> list[LocalNic]:
        """All of them, as they are now."""
        return [
            LocalNic(name=nic.name, rail=nic.rail, addresses=nic.addresses)
            for nic in self._nics.values()
        ]

    # --- events ---

    def link(self, event: LinkEvent) -> bool:
        """A carrier event; whether anything changed. Renamed NICs are known by their addresses."""
        nic = self._nics.get(event.nic) or self._renamed(event)
        if nic is None:
            return False
        before = (nic.up, nic.addresses)
        up = event.carrier and event.admin_up
        if up or event.addresses:
            # While it is down the kernel takes addresses away that will be back.
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
        """A NIC is called otherwise; what is known of its paths stays."""

        def renamed(pair: Pair) -> Pair:
            return (new, pair[1]) if pair[0] == old else pair

        self._pairs = {renamed(pair): state for pair, state in self._pairs.items()}
        for index in (self._by_remote, self._by_host):
            for name, pairs in index.items():
                index[name] = [renamed(pair) for pair in pairs]
        self._by_nic[new] = [renamed(pair) for pair in self._by_nic.pop(old, [])]
        self.plan = self.plan.renamed(old, new)

    def liveness(self, event: LivenessEvent) -> bool:
        """A probed flow died or came back; whether its pair is well again with it."""
        flow = self.plan.flows.get(event.flow_id)
        if flow is None or (self._watched is not None and event.flow_id not in self._watched):
            return False
        pair = self._pairs[flow.nic, flow.remote]
        pair.alive[event.flow_id] = event.alive
        if event.alive:
            pair.partial.lives(event.flow_id)
            self._greet(flow.host, event.at_ns)
            return pair.revive(event.at_ns, self._policy)
        pair.partial.died(event.flow_id, event.since_ns, event.at_ns)
        pair.presumed = pair.presumed and any(self._flows_alive(flow.nic, flow.remote))
        pair.since_ns = max(pair.since_ns, event.since_ns)
        pair.misses = event.misses
        if pair.died_ns is None and not any(self._flows_alive(flow.nic, flow.remote)):
            pair.died_ns = event.at_ns
        return False

    def _greet(self, host: str, at_ns: int) -> None:
        """A flow is answered again. Where nothing of its peer was, or nothing at all, others are
        given as long as that lasted."""
        if self._all_dead():
            again: Iterable[Pair] = self._pairs
        elif self._is_mute(host):
            again = self._by_host[host]
        else:
            return
        dying = [self._pairs[key] for key in again if self._dying(key)]
        more_ns = min(BACK_NS, at_ns - max((each.died_ns or 0 for each in dying), default=0))
        for pair in dying:
            pair.carries_until_ns = max(pair.carries_until_ns, at_ns + more_ns)

    @property
    def unsure(self) -> bool:
        """Whether newer answers may tell of a pair what its flows have not: that it is not dead, or
        is reachable in part."""
        return any(pair.presumed or pair.partial.unsure for pair in self._pairs.values())

    def answers(self, replies: Mapping[int, Reply]) -> dict[Pair, Answers]:
        """Of each pair with flows that live, by their own account."""
        found: dict[Pair, list[Reply]] = defaultdict(list)
        for flow_id, reply in replies.items():
            flow = self.plan.flows.get(flow_id)
            if flow is not None and self._pairs[flow.nic, flow.remote].alive.get(flow_id):
                found[flow.nic, flow.remote].append(reply)
        return {
            key: Answers(
                newest_ns=max(reply.heard_ns for reply in heard),
                flows=len(heard),
                host=self._host(key),
                dying=self._dying(key),
                rtt_ns=max(heard).rtt_ns,
                silent=heard[0].silent,
                hushed=heard[0].hushed,
                steady_ns=heard[0].steady_ns,
                gap_ns=heard[0].gap_ns,
            )
            for key, heard in found.items()
        }

    def timeout_ns(self, key: Pair, now_ns: int) -> int:
        """How much more time than others a pair is given, whose deaths recently healed at once."""
        excuse_ns = max(0, self._stalled_until_ns - now_ns)
        return excuse_ns + BRIEF_STEP_NS * self._pairs[key].brief_now(now_ns)

    def presume(self, since: Mapping[Pair, int], now_ns: int) -> None:
        """These pairs are dead though not all of their flows have said so; to be concluded now.

        Args:
            since: pair to its last sign of life, CLOCK_MONOTONIC.
            now_ns: the same clock.
        """
        for key, since_ns in since.items():
            pair = self._pairs[key]
            pair.since_ns, pair.presumed = since_ns, True
            # The time that it is given is over.
            given_ns = BRIEF_STEP_NS * pair.brief_now(now_ns)
            pair.died_ns = now_ns - self._policy.settle_ns - given_ns

    def heard(self, replies: Mapping[int, Reply], now_ns: int) -> bool:
        """When flows were last answered. Presumed dead and answered since: it was not; whether any
        pair is well again with it."""
        back = False
        for flow_id, reply in replies.items():
            flow = self.plan.flows.get(flow_id)
            if flow is None:
                continue
            pair = self._pairs[flow.nic, flow.remote]
            pair.partial.heard(flow_id, reply.heard_ns)
            if pair.presumed and reply.heard_ns > pair.since_ns:
                self._greet(flow.host, now_ns)
                back |= pair.revive(now_ns, self._policy)
        return back

    def pending(self, now_ns: int) -> list[Pair]:
        """Pairs whose death is to be decided now: whose flows should be looked at before."""
        return self._due(now_ns)

    def corroborate(
        self, nic: str, remote: str, flows: Iterable[ConnectionProgress], now_ns: int
    ) -> None:
        """How the jobs' own data on a pair get on, before its death is decided.

        What was sent after the probes' last answer and was acknowledged proves that the path
        carries. And while no flow has waited for longer than it always does, nobody needs to know
        yet: that much time is given, but not for ever.

        Args:
            nic: local.
            remote: address.
            flows: of jobs, on this pair.
            now_ns: CLOCK_MONOTONIC.
        """
        pair = self._pairs.get((nic, self.plan.probed(remote)))
        if pair is not None:
            pair.corroborate(flows, now_ns)

    def answered(self, replies: Mapping[int, Reply], now_ns: int) -> None:
        """Watched flows and when each was last answered, before deaths are decided: where the
        peer's other NICs live but have not answered since either, or have fallen silent as well,
        or have just come back, the peer itself is late, not one of its NICs dead. That ends by
        itself: they answer, or die.

        Args:
            replies: by flow.
            now_ns: CLOCK_MONOTONIC.
        """
        pending = self.pending(now_ns)
        answers = self.answers(replies) if pending else {}
        for key in pending:
            pair = self._pairs[key]
            until_ns = late_until_ns(key, self._host(key), pair.since_ns, answers, now_ns)
            if until_ns > now_ns:
                pair.carries_until_ns = until_ns

    def since_ns(self, key: Pair) -> int | None:
        """The last answer of any probe of a pair whose flows have died by themselves,
        CLOCK_MONOTONIC; None where it is presumed dead, and so has been given its time."""
        pair = self._pairs[key]
        return None if pair.presumed else pair.since_ns

    def believe(self, key: Pair, until_ns: int) -> None:
        """A pair is not given up before then."""
        pair = self._pairs[key]
        pair.carries_until_ns = max(pair.carries_until_ns, until_ns)

    def stall(self, event: StallEvent) -> None:
        """We were not scheduled ourselves: silence up to now proves nothing yet."""
        self._stalled_until_ns = event.at_ns + self._policy.stall_grace_ns

    # --- conclusions ---

    def due_ns(self) -> int | None:
        """When `conclude` may have something to say."""
        return min((at_ns for key, at_ns in self._undecided() if self._proves(key)), default=None)

    def _due(self, now_ns: int) -> list[Pair]:
        late = [key for key, at_ns in self._undecided() if at_ns <= now_ns]
        return [key for key in late if self._proves(key)]

    def _undecided(self) -> Iterable[tuple[Pair, int]]:
        """Dying pairs, and when to decide."""
        for key, pair in self._pairs.items():
            if pair.died_ns is not None and pair.dead is None:
                yield key, pair.decide_ns(self._policy, self._stalled_until_ns)

    def _proves(self, key: Pair) -> bool:
        """Whether silence proves a path dead: its peer answers on another path, or no peer answers
        on its NIC while peers answer on other NICs."""
        if self._all_dead():
            return False
        nic, _ = key
        if self._pairs[key].presumed or not self._is_mute(self._host(key)):
            return True
        mine = [each for each in self._by_nic[nic] if self._pairs[each].alive]
        return len(mine) > 1 and all(map(self._dying, mine))

    def mute(self, remote: str) -> bool:
        """Whether the peer that has an address answers at none of several NICs: its agent is gone,
        maybe, and only the jobs' data tell which of its paths live."""
        known = self.plan.known(remote)
        return known is not None and self._is_mute(known.host)

    def _host(self, key: Pair) -> str:
        known = self.plan.known(key[1])
        return known.host if known is not None else ""

    def _is_mute(self, host: str) -> bool:
        requested = [
            key
            for key in self._by_host.get(host, ())
            if self._pairs[key].alive and self._nics[key[0]].up
        ]
        return len({remote for _, remote in requested}) > 1 and all(map(self._dying, requested))

    def conclude(self, now_ns: int) -> list[Pair]:
        """Pairs that are dead for good as of now."""
        due = self._due(now_ns)
        for key in due:
            pair = self._pairs[key]
            pair.dead = Reason(*self._cause(key, now_ns), now_ns, pair.since_ns)
            pair.hold.failed(now_ns, self._policy)
        self._doubt(now_ns)
        self.undecided = frozenset(key for key, at_ns in self._undecided() if at_ns <= now_ns)
        return due

    def _doubt(self, now_ns: int) -> None:
        """What was found dead may have come back while the peer answers nowhere."""
        for key, pair in self._pairs.items():
            if pair.dead is None or self._proves(key):
                continue
            died = [self._pairs[each].died_ns or 0 for each in self._by_host[self._host(key)]]
            if now_ns - max(died) >= MUTE_NS:
                pair.dead, pair.presumed = None, False

    def dead(self, nic: str, remote: str) -> Reason | None:
        """Why a path must not be used now, or None."""
        state = self._nics.get(nic)
        if state is None or not state.up:
            at_ns = state.changed_ns if state else 0
            return Reason(Cause.LOCAL_CARRIER, f"{nic} has no carrier or is down", at_ns, at_ns)
        pair = self._pairs.get((nic, self.plan.probed(remote)))
        return pair.dead if pair is not None else None

    def reaches(self, nic: str, remote: str) -> bool:
        """Whether a path is known to live: its own probes say so or, across rails, where nobody
        probes, those of both its ends to others."""
        remote = self.plan.probed(remote)
        if any(self._flows_alive(nic, remote)):
            return True
        if (nic, remote) in self._pairs:
            return False
        return self._answered_on(nic) and not self._blamed(remote)

    def may_be_partial(self, nic: str, remote: str) -> bool:
        """Whether a pair that is silent on all ports may live on others: its NIC here is not the
        one to blame, as far as it has anyone else to ask."""
        alone = len(self._by_nic.get(nic, ())) == 1
        return self.doubtful(nic, remote) and (alone or self._answered_on(nic))

    def _answered_on(self, nic: str) -> bool:
        return any(any(self._flows_alive(*pair)) for pair in self._by_nic.get(nic, ()))

    def _blamed(self, remote: str) -> bool:
        """Whether a remote NIC is dead as far as any NIC of ours that lives can tell."""
        pairs = self._by_remote.get(remote, ())
        if not pairs or any(any(self._flows_alive(*pair)) for pair in pairs):
            return False
        return any(
            any(self._flows_alive(*other)) for nic, _ in pairs for other in self._by_nic[nic]
        )

    def settled(self, nic: str, now_ns: int) -> bool:
        """Whether a NIC has been as it is for a while."""
        state = self._nics.get(nic)
        return state is not None and now_ns - state.changed_ns > SETTLED_NS

    def doubtful(self, nic: str, remote: str) -> bool:
        """Whether probes on this very path go unanswered, believed dead or not yet."""
        pair = self._pairs.get((nic, self.plan.probed(remote)))
        return pair is not None and pair.died_ns is not None

    def revived_ns(self, nic: str, remote: str) -> int:
        """When a path was seen alive again: what failed on it before says nothing of it now."""
        state = self._nics.get(nic)
        pair = self._pairs.get((nic, self.plan.probed(remote)))
        return max(
            state.changed_ns if state is not None and state.up else 0,
            pair.revived_ns if pair is not None else 0,
        )

    def partial_ns(self, nic: str, remote: str) -> int | None:
        """When the fabric began to lose some of what goes between two NICs; None: nobody knows that
        it does."""
        pair = self._pairs.get((nic, self.plan.probed(remote)))
        return None if pair is None or pair.died_ns is not None else pair.partial.since_ns

    def is_partial(self, nic: str, remote: str) -> bool:
        """Whether the fabric is known to lose some of what goes between two NICs."""
        return self.partial_ns(nic, remote) is not None

    def usable_from_ns(self, nic: str, remote: str) -> int:
        """When a path's hold-down is over; 0 for one that never failed. A partially reachable pair
        has none of its own: it has not come back, a part of it was there all the time."""
        state = self._nics.get(nic)
        pair = self._pairs.get((nic, self.plan.probed(remote)))
        held = pair is not None and not self.is_partial(nic, remote)
        return max(
            state.hold.until_ns if state is not None else 0,
            pair.hold.until_ns if pair is not None and held else 0,
        )

    def _flows_alive(self, nic: str, remote: str) -> Iterable[bool]:
        """Flows never heard of count as dead: they prove nothing."""
        pair = self._pairs.get((nic, remote))
        return pair.alive.values() if pair is not None else ()

    def _dying(self, key: Pair) -> bool:
        return self._pairs[key].died_ns is not None

    def _all_dead(self) -> bool:
        heard = [key for key, pair in self._pairs.items() if pair.alive]
        nics = {nic for nic, _ in heard if self._nics[nic].up} if heard else set()
        return len(nics) > 1 and all(map(self._dying, heard))

    def _cause(self, key: Pair, now_ns: int) -> tuple[Cause, str]:
        nic, remote = key
        pair = self._pairs[key]
        mine = [each for each in self._by_nic[nic] if self._pairs[each].alive]
        his = [each for each in self._by_remote[remote] if self._pairs[each].alive]
        mine_dead, his_dead = sum(map(self._dying, mine)), sum(map(self._dying, his))
        silence = f"{pair.misses} probes unanswered"
        if pair.presumed:
            silent_ms = (now_ns - pair.since_ns) // MS
            silence = f"no answer for {silent_ms} ms and data waiting"
        evidence = (
            f"{silence}; {mine_dead} of {len(mine)} paths of {nic} dead, "
            f"{his_dead} of {len(his)} to {remote}"
        )
        if mine_dead == len(mine) > 1:
            return Cause.LOCAL_NIC, evidence
        if mine_dead < len(mine) and his_dead == len(his):
            return Cause.REMOTE_NIC, evidence
        return Cause.PATH, evidence
