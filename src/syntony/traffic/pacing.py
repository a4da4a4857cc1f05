"""Compute pacing rates of flows, so that queues stay short and links full.

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

from syntony.model import S
from syntony.traffic.demand import Capacities, Priority
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.pace_policy import PacePolicy
from syntony.traffic.shares import ShareClaim, share

DRAINING = 8
"""A queue that shrinks by this part of what its link leaves free is on its way out: orders take
their time, and the delay is that of a whole second."""


@dataclass(frozen=True, slots=True)
class Sending:
    flow_id: str
    links: tuple[str, ...]
    """The links that it crosses, as far as is known."""
    rate_bps: float
    """Present rate, as frames on the wire."""
    paceable: bool
    """Whether its host can pace it."""
    priority: Priority = Priority.STANDARD
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """Largest queueing delay on one link in the second that ended at `at_ns`."""

    at_ns: int
    queue_ns: int


@dataclass(slots=True)
class _PacedLink:
    capacity_bps: float
    part: float
    """Share of the capacity given to all known flows together."""
    changed_ns: int
    ceiling: float = math.inf
    """The share at which packets recently waited."""
    ceiling_ns: int = 0
    """When that was."""
    queue_ns: int = 0
    """Queueing delay when `part` was set."""
    unpaced_ns: int = 0
    """Queueing delay when pacing began."""
    load: float = 0.0
    """Share that its flows recently used."""
    looked_ns: int = 0


class Pacer:
    """Rates for the flows of all congested links. At most one decides for a fabric at a time."""

    def __init__(self, policy: PacePolicy | None = None) -> None:
        self.policy = policy or PacePolicy()
        self._paced: dict[str, _PacedLink] = {}
        self._timeout: defaultdict[str, HoldDown] = defaultdict(HoldDown)
        self._demand: dict[str, float] = {}
        self._rates: dict[str, int] = {}
        self._congested_ns: dict[str, tuple[int, int, int]] = {}
        """Congested links not paced yet: since when, when last, and the largest queueing delay."""
        self._last_ns: int | None = None

    @property
    def congested(self) -> frozenset[str]:
        """Links that are paced, or will be unless the congestion ends."""
        return frozenset(self._paced) | frozenset(self._congested_ns)

    @property
    def links(self) -> Mapping[str, float]:
        """Paced links, and bits per second given to all known flows."""
        return {
            name: paced_link.capacity_bps * paced_link.part
            for name, paced_link in self._paced.items()
        }

    def forget(self) -> None:
        self._paced, self._demand, self._rates, self._congested_ns = {}, {}, {}, {}

    def forget_rates(self) -> None:
        """The last rates were not put into force: the caller only observes."""
        self._rates = {}

    def step(
        self,
        sendings: Sequence[Sending],
        capacities: Capacities,
        queues: Mapping[str, LinkQueue],
        now_ns: int,
    ) -> Mapping[str, int]:
        """Rates in force from now on, bits per second by flow; a flow without one is not paced.

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
            if link in self._paced:
                self._congested_ns.pop(link, None)
            elif self._is_congested(some, capacities.get(link), queues.get(link), now_ns):
                since_ns, _, most_ns = self._congested_ns.get(link, (now_ns, now_ns, 0))
                most_ns = max(most_ns, queues[link].queue_ns)
                self._congested_ns[link] = (since_ns, now_ns, most_ns)
                if now_ns - since_ns >= self.policy.after_ns:
                    self._take_up(link, float(capacities[link] or 0), most_ns, now_ns)
        self._congested_ns = {
            link: spell
            for link, spell in self._congested_ns.items()
            if now_ns - spell[1] <= self.policy.lapse_ns
        }
        for link in list(self._paced):
            self._look_after(link, by_link.get(link, []), capacities, queues.get(link), now_ns)
        self._rates = self._shared_out(sendings, by_link)
        return dict(self._rates)

    # --- links ---

    def _is_congested(
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
        self._paced[link] = _PacedLink(
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
        policy, paced_link = self.policy, self._paced[link]
        capacity = capacities.get(link)
        if not capacity or sum(each.paceable for each in some) < policy.min_flows:
            del self._paced[link]
            return
        paced_link.capacity_bps = float(capacity)
        load = sum(each.rate_bps for each in some) / capacity
        if load >= policy.release * min(paced_link.part, policy.target):
            self._timeout[link].returned(now_ns, policy)
        elif now_ns >= self._timeout[link].until_ns:
            del self._paced[link]
            return
        fresh = 1 - math.exp(min(0, paced_link.looked_ns - now_ns) / policy.load_ns)
        paced_link.load += (load - paced_link.load) * fresh
        paced_link.looked_ns = now_ns
        if queue is not None and queue.at_ns >= paced_link.changed_ns + policy.settle_ns:
            self._correct(paced_link, queue, now_ns)

    def _correct(self, paced_link: _PacedLink, queue: LinkQueue, now_ns: int) -> None:
        """Lower a link's share while packets wait; raise it otherwise, but not soon to where they
        did.

        Args:
            queue: how long packets wait there.
            now_ns: fleet time.
        """
        policy = self.policy
        part = paced_link.part
        spare = min(part, policy.target) - paced_link.load
        idle = spare > policy.spare_least
        bear = policy.bear if part <= policy.target else policy.bear_more
        bears_ns = bear * paced_link.unpaced_ns if idle else 0
        if queue.queue_ns >= max(policy.queue_ns, bears_ns):
            drained_ns = max(0.0, 1 - part) * (queue.at_ns - paced_link.changed_ns)
            if queue.queue_ns >= paced_link.queue_ns - drained_ns / DRAINING:
                if not idle or part > policy.target:
                    paced_link.ceiling, paced_link.ceiling_ns = part, now_ns
                least = policy.target if part > policy.target else policy.floor
                part = max(least, part * policy.cut)
            paced_link.queue_ns, paced_link.changed_ns = queue.queue_ns, now_ns
        elif queue.queue_ns < max(policy.queue_ns, bears_ns) // 2:
            if now_ns - paced_link.ceiling_ns > policy.retry_ns:
                paced_link.ceiling = math.inf
            more = idle and (part > policy.target or spare > policy.spare)
            limit = policy.most if more else policy.target
            climb = spare / 2 if more else policy.climb
            wanted = max(part + climb, 0 if paced_link.ceiling_ns else policy.target)
            part = max(part, min(limit, paced_link.ceiling - policy.climb, wanted))
        if part != paced_link.part:
            paced_link.part, paced_link.changed_ns, paced_link.queue_ns = (
                part,
                now_ns,
                queue.queue_ns,
            )

    # --- flows ---

    def _waiting(self, queues: Mapping[str, LinkQueue], now_ns: int) -> frozenset[str]:
        """Paced links on which packets wait."""
        policy = self.policy
        return frozenset(
            link
            for link in self._paced
            if (queue := queues.get(link)) is not None
            and queue.queue_ns >= policy.queue_ns
            and now_ns - queue.at_ns <= policy.stale_ns
        )

    def _learn_demands(
        self, sendings: Sequence[Sending], waiting: frozenset[str], now_ns: int
    ) -> None:
        """Update the demands of flows. A flow held back by its rate demands more; any other what it
        sends, and a little more. Earlier demands decay, since jobs pause between two steps. With
        flows of lower classes below it a flow keeps its demand while packets wait on its path: the
        queue may be theirs and hold it back."""
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
        for link, paced_link in self._paced.items():
            others = sum(each.rate_bps for each in by_link[link] if not each.paceable)
            least = self.policy.floor * paced_link.capacity_bps
            budgets[link] = max(least, paced_link.capacity_bps * paced_link.part - others)
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
        """Lower a rate at once; raise it only by at least `step`."""
        before = self._rates.get(flow_id)
        if before is not None and before <= rate < before * (1 + self.policy.step):
            return before
        return rate
