"""Pacing: how fast each flow may send, so that queues stay short and links full.

Sans IO. Where several flows that may be paced cross one link, the link is busy and packets wait on
it (one-way delay), its flows are given rates that together are a little less than the link carries:
what waited in the switch waits in the senders instead, where it harms nobody. The one-way delay
then says whether that little was enough: it is judged only by measurements that lie wholly after
the last change, so a delay that is reported late cannot make rates oscillate.

A link is let go when its flows have used much less than they were given for a while; one that has
to be taken up again soon after is kept longer the next time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from syntony.model import MS, US, S
from syntony.traffic.demand import Capacities, Priority
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.shares import ShareClaim, share

DRAINING = 8
"""A queue that shrinks by this part of what its link leaves free is on its way out: orders take
their time, and the delay is that of a whole second."""


class PacePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When to pace and how hard. Rates are those of frames on the wire."""

    queue_ns: int = 50 * US
    """Queueing delay from which a link counts as crowded (`MovePolicy.queue_ns`)."""
    full: float = 0.6
    """… if its known flows fill at least this part of it: else the queue is another link's. Senders
    that wait for each other fill less of one link when they are held back on another."""
    after_ns: int = 2 * S
    """… and has done so for this long: placement goes first, and may find another way."""
    lapse_ns: int = 1 * S
    """Not crowded for no longer than this is crowded all the same: jobs pause between steps."""
    min_flows: int = 2
    """A flow that is alone on a link is slowed down by nobody but itself."""
    target: float = 0.97
    """Of a link's rate, to all its flows together: a queue then drains by 3 % of line rate."""
    cut: float = 0.95
    """Times this, while packets still wait: somebody whom we do not see sends too."""
    climb: float = 0.01
    """Of the link's rate, at each look that finds no queue: to just below where there was one…"""
    retry_ns: int = 30 * S
    """… in the last while this long."""
    drain_ns: int = 1 * S
    """What waits when a link is taken up is to be gone by then."""
    most: float = 4.0
    """Of a link's rate, may be promised to its flows together, while they leave some of it: jobs
    that pause in turns."""
    spare: float = 0.33
    """Of the link's rate: left over that much, more is promised…"""
    spare_least: float = 0.04
    """… until no more than this is left. From here on packets may wait…"""
    bear: float = 0.5
    """… for this part of the time that they waited when the link was taken up: what comes in bursts
    waits now and then, and a link that is not full drains it."""
    bear_more: float = 0.25
    """… and this part where more is promised than there is: else the queue is back."""
    load_ns: int = 3 * S
    """What is left over is judged by the load of about so long: a report sees part of a step."""
    floor: float = 0.5
    """Of a link's rate: below it our flows make room for nobody."""
    settle_ns: int = 1_200 * MS
    """A delay must be reported an instant so long after the last change of rates: the second that
    it sums up, and what a rate needs to be in force."""
    stale_ns: int = 5 * S
    """Older delays decide nothing."""
    headroom: float = 2.0
    """A flow that uses less than it may is left so many times what it uses: senders that wait for
    each other at every step must not lose to those that they wait for…"""
    headroom_above: float = 1.2
    """… but this much where there are flows of a lower class, which get the rest."""
    binding: float = 0.9
    """A flow that sends this part of its rate or more would send more if it might."""
    forget: float = 0.8
    """Per second: what a flow wanted once counts for less and less."""
    step: float = 0.01
    """Rates are raised by this part at least; they are lowered at once."""
    release: float = 0.4
    """A link whose flows send less than this part of its budget…"""
    hold_down_ns: int = 5 * S
    """… for so long is let go; twice as long each time it has to be taken up again."""
    hold_down_max_ns: int = 120 * S
    decay_ns: int = 120 * S


@dataclass(frozen=True, slots=True)
class Sending:
    """What one host sends in one flow."""

    flow_id: str
    links: tuple[str, ...]
    """That it crosses, as far as they are known."""
    rate_bps: float
    """Now, as frames on the wire."""
    paceable: bool
    """Its host would do as it is reported."""
    priority: Priority = Priority.STANDARD
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """How long packets wait on one link at most, at the end of the second `at_ns`."""

    at_ns: int
    queue_ns: int


@dataclass(slots=True)
class _Crowd:
    """One link that is shared out."""

    capacity_bps: float
    part: float
    """Of the capacity, to all flows that we know together."""
    changed_ns: int
    ceiling: float = math.inf
    """The part at which packets waited, recently."""
    ceiling_ns: int = 0
    """When that was."""
    queue_ns: int = 0
    """That was found when `part` was set."""
    unpaced_ns: int = 0
    """How long packets waited when it was taken up."""
    load: float = 0.0
    """Part that its flows use, recently."""
    looked_ns: int = 0


class Pacer:
    """Rates for the flows of all crowded links. One at a time decides for a fabric."""

    def __init__(self, policy: PacePolicy | None = None) -> None:
        self.policy = policy or PacePolicy()
        self._crowds: dict[str, _Crowd] = {}
        self._timeout: defaultdict[str, HoldDown] = defaultdict(HoldDown)
        self._demand: dict[str, float] = {}
        self._rates: dict[str, int] = {}
        self._crowded_ns: dict[str, tuple[int, int, int]] = {}
        """Links crowded and not taken up: since when, when last, and how long packets waited."""
        self._last_ns: int | None = None

    @property
    def crowded(self) -> frozenset[str]:
        """Links that are shared out, or will be unless things get better."""
        return frozenset(self._crowds) | frozenset(self._crowded_ns)

    @property
    def links(self) -> Mapping[str, float]:
        """Links that are shared out, and bits per second to all flows that we know."""
        return {name: crowd.capacity_bps * crowd.part for name, crowd in self._crowds.items()}

    def forget(self) -> None:
        """From now on nobody is paced."""
        self._crowds, self._demand, self._rates, self._crowded_ns = {}, {}, {}, {}

    def forget_rates(self) -> None:
        """What was said last is not in force: anyone who asks only observes."""
        self._rates = {}

    def step(
        self,
        sendings: Sequence[Sending],
        capacities: Capacities,
        queues: Mapping[str, LinkQueue],
        now_ns: int,
    ) -> Mapping[str, int]:
        """Rates in force from now on, bits per second by flow; a flow that is not there is free.

        Args:
            sendings: all flows that are known, paceable or not.
            capacities: of links; one that is not known is never shared out.
            queues: newest known, by link.
            now_ns: fleet time.
        """
        by_link: defaultdict[str, list[Sending]] = defaultdict(list)
        for each in sendings:
            for link in each.links:
                by_link[link].append(each)
        self._learn_demands(sendings, self._waiting(queues, now_ns), now_ns)
        for link, some in by_link.items():
            if link in self._crowds:
                self._crowded_ns.pop(link, None)
            elif self._is_crowded(some, capacities.get(link), queues.get(link), now_ns):
                since_ns, _, most_ns = self._crowded_ns.get(link, (now_ns, now_ns, 0))
                most_ns = max(most_ns, queues[link].queue_ns)
                self._crowded_ns[link] = (since_ns, now_ns, most_ns)
                if now_ns - since_ns >= self.policy.after_ns:
                    self._take_up(link, float(capacities[link] or 0), most_ns, now_ns)
        self._crowded_ns = {
            link: spell
            for link, spell in self._crowded_ns.items()
            if now_ns - spell[1] <= self.policy.lapse_ns
        }
        for link in list(self._crowds):
            self._look_after(link, by_link.get(link, []), capacities, queues.get(link), now_ns)
        self._rates = self._shared_out(sendings, by_link)
        return dict(self._rates)

    # --- links ---

    def _is_crowded(
        self,
        some: Iterable[Sending],
        capacity: int | None,
        queue: LinkQueue | None,
        now_ns: int,
    ) -> bool:
        policy = self.policy
        if not capacity or queue is None or now_ns - queue.at_ns > policy.stale_ns:
            return False
        flows = list(some)
        return (
            sum(each.paceable for each in flows) >= policy.min_flows
            and queue.queue_ns >= policy.queue_ns
            and sum(each.rate_bps for each in flows) >= policy.full * capacity
        )

    def _take_up(self, link: str, capacity_bps: float, queue_ns: int, now_ns: int) -> None:
        policy = self.policy
        drain = min(1 - policy.cut, queue_ns / policy.drain_ns)
        part = policy.target - drain
        self._crowds[link] = _Crowd(
            capacity_bps, part, now_ns,
            queue_ns=queue_ns, unpaced_ns=queue_ns, load=part, looked_ns=now_ns,
        )  # fmt: skip
        self._timeout[link].failed(now_ns, policy)

    def _look_after(
        self,
        link: str,
        some: Sequence[Sending],
        capacities: Capacities,
        queue: LinkQueue | None,
        now_ns: int,
    ) -> None:
        policy, crowd = self.policy, self._crowds[link]
        capacity = capacities.get(link)
        if not capacity or sum(each.paceable for each in some) < policy.min_flows:
            del self._crowds[link]
            return
        crowd.capacity_bps = float(capacity)
        load = sum(each.rate_bps for each in some) / capacity
        if load >= policy.release * min(crowd.part, policy.target):
            self._timeout[link].returned(now_ns, policy)
        elif now_ns >= self._timeout[link].until_ns:
            del self._crowds[link]
            return
        fresh = 1 - math.exp((crowd.looked_ns - now_ns) / policy.load_ns)
        crowd.load += (load - crowd.load) * fresh
        crowd.looked_ns = now_ns
        if queue is not None and queue.at_ns >= crowd.changed_ns + policy.settle_ns:
            self._correct(crowd, queue, now_ns)

    def _correct(self, crowd: _Crowd, queue: LinkQueue, now_ns: int) -> None:
        """Less while packets wait; more when they do not, but not soon to where they did.

        Args:
            crowd: the link.
            queue: how long packets wait there.
            now_ns: fleet time.
        """
        policy = self.policy
        part = crowd.part
        spare = min(part, policy.target) - crowd.load
        idle = spare > policy.spare_least
        bear = policy.bear if part <= policy.target else policy.bear_more
        bears_ns = bear * crowd.unpaced_ns if idle else 0
        if queue.queue_ns >= max(policy.queue_ns, bears_ns):
            drained_ns = max(0.0, 1 - part) * (queue.at_ns - crowd.changed_ns)
            if queue.queue_ns >= crowd.queue_ns - drained_ns / DRAINING:
                if not idle or part > policy.target:
                    crowd.ceiling, crowd.ceiling_ns = part, now_ns
                least = policy.target if part > policy.target else policy.floor
                part = max(least, part * policy.cut)
            crowd.queue_ns, crowd.changed_ns = queue.queue_ns, now_ns
        elif queue.queue_ns < max(policy.queue_ns, bears_ns) // 2:
            if now_ns - crowd.ceiling_ns > policy.retry_ns:
                crowd.ceiling = math.inf
            more = idle and (part > policy.target or spare > policy.spare)
            limit = policy.most if more else policy.target
            climb = spare / 2 if more else policy.climb
            wanted = max(part + climb, 0 if crowd.ceiling_ns else policy.target)
            part = max(part, min(limit, crowd.ceiling - policy.climb, wanted))
        if part != crowd.part:
            crowd.part, crowd.changed_ns, crowd.queue_ns = part, now_ns, queue.queue_ns

    # --- flows ---

    def _waiting(self, queues: Mapping[str, LinkQueue], now_ns: int) -> frozenset[str]:
        """Shared links on which packets wait."""
        policy = self.policy
        return frozenset(
            link
            for link in self._crowds
            if (queue := queues.get(link)) is not None
            and queue.queue_ns >= policy.queue_ns
            and now_ns - queue.at_ns <= policy.stale_ns
        )

    def _learn_demands(
        self, sendings: Sequence[Sending], waiting: frozenset[str], now_ns: int
    ) -> None:
        """A flow held back by its rate wants more; another one what it sends, and a little more;
        and for a while what it wanted before: jobs pause between two steps. One with lower classes
        below it wants that as long as packets wait on its way: they may be theirs, and keep it from
        sending what it would, the less the more they are given for it."""
        passed_s = 0.0 if self._last_ns is None else max(0, now_ns - self._last_ns) / S
        self._last_ns = now_ns
        policy, fade = self.policy, self.policy.forget**passed_s
        lowest = max((each.priority for each in sendings), default=Priority.STANDARD)
        demands = {}
        for each in sendings:
            rate = self._rates.get(each.flow_id)
            if rate is None or each.rate_bps >= policy.binding * rate:
                demands[each.flow_id] = math.inf
                continue
            before = min(self._demand.get(each.flow_id, math.inf), float(rate))
            above = each.priority < lowest
            wanted = each.rate_bps * (policy.headroom_above if above else policy.headroom)
            kept = above and not waiting.isdisjoint(each.links)
            demands[each.flow_id] = max(wanted, before if kept else before * fade)
        self._demand = demands

    def _shared_out(
        self, sendings: Sequence[Sending], by_link: Mapping[str, Sequence[Sending]]
    ) -> dict[str, int]:
        budgets = {}
        for link, crowd in self._crowds.items():
            others = sum(each.rate_bps for each in by_link[link] if not each.paceable)
            least = self.policy.floor * crowd.capacity_bps
            budgets[link] = max(least, crowd.capacity_bps * crowd.part - others)
        claimants = [
            each for each in sendings if each.paceable and not budgets.keys().isdisjoint(each.links)
        ]
        claims = [
            ShareClaim(
                links=tuple(link for link in each.links if link in budgets),
                priority=each.priority,
                weight=each.weight,
                demand_bps=self._demand[each.flow_id],
            )
            for each in claimants
        ]
        fresh = share(claims, budgets) if claims else ()
        return {
            each.flow_id: self._steady(each.flow_id, int(rate))
            for each, rate in zip(claimants, fresh, strict=True)
        }

    def _steady(self, flow_id: str, rate: int) -> int:
        """Lower at once, raised only if that is worth telling."""
        before = self._rates.get(flow_id)
        if before is not None and before <= rate < before * (1 + self.policy.step):
            return before
        return rate
