"""Which way each flow goes: TTL-limited packets with its exact 5-tuple. Pure.

Events in, orders out.

A hop answers with ICMP *time exceeded*; who answers is no more than a claim, since such packets are
not authenticated: an answer counts only if it quotes what only that packet carried. Routers limit
how often they answer (Linux: one a second per asker by default), so orders come one at a time, and
silence of a hop means *unknown*, never *absent*: hops behind it are still asked for.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from syntony.model import MS, S

ANSWER_NS = 1 * S
"""An answer that takes longer is lost: as a probe's (`syntony.io.probe.TIMEOUT_NS`)."""
TRIES = 3
"""Unanswered questions to one hop before it is unknown."""
MAX_TTL = 8
"""Switches on a path: five on three tiers, up to seven with a routed border."""
SILENT_END = 2
"""So many silent hops in a row are taken for the end of the path: the far host never answers."""
INTERVAL_NS = 20 * MS
"""50 packets a second of 60 bytes: nothing to a link, little to a switch's control plane."""
BURST = 5
"""Packets at once after a pause: below the six that a Linux router answers in a row."""
AGAIN_NS = 60 * S
"""A known path is traced again this often: routes change, switches restart."""
DOUBT_NS = 4 * S
"""A path that has changed is traced again so soon, since a short outage ends meanwhile; and one
that there is reason to doubt at most so often."""
SILENCES = 5
"""A path on which some fell silent is asked for again as soon, but at most so often in a row: an
outage ends meanwhile, or they answer no more."""
CHECK_NS = 200 * MS
"""Between two checks while nothing is asked: one packet to the hop in the middle of a known path,
where paths between the same ends differ; such hops go by turns. A switch that died without losing
a probe is noticed within seconds, whatever the number of flows."""
CHECKS = 3
"""At once, of those that were due since the last."""
MIN_CHECKED = 3
"""Hops of a path that is checked: a shorter one has no other way."""
SPARE_AGAIN_NS = 600 * S
"""… and this often where nothing of a job goes yet: what is used is traced at once."""
_GOLDEN = 0.6180339887
"""Multiples of it, modulo 1, are spread evenly however many there are."""
_SPREAD = 5 / 6
"""Of the time until a path is traced the second time."""
_FOLLOWED, _SPARE, _PLANNED = range(3)
"""Ranks: what is due in one goes before what is due in the next."""
_BEGUN = -1
"""Due before what is not begun: paths come to be known one after the other, not all at the end, and
one switch is not asked for everything at once."""


class FlowKey(NamedTuple):
    """A flow as switches see it, and the local NIC it leaves by."""

    nic: str
    src: str
    dst: str
    sport: int
    dport: int
    proto: str = "udp"
    """``udp`` or ``tcp``: switches hash it too, so the same ports go another way."""
    label: int = 0
    """IPv6 flow label, which some switches hash."""


class Ask(NamedTuple):
    """Send one packet of `flow` with this TTL."""

    flow: FlowKey
    ttl: int


class Learnt(NamedTuple):
    """A flow's path as it is now known."""

    flow: FlowKey
    hops: tuple[str, ...]
    """Addresses of the hops, in order; empty text for one that does not answer."""
    changed: bool
    """Whether it differs from what was known before."""
    at_ns: int
    """CLOCK_MONOTONIC, when its trace began: every hop answered since."""


class _Flow:
    """The known hops of one flow, and the next hop to trace."""

    def __init__(self) -> None:
        self.hops: tuple[str, ...] | None = None
        self.hearing: dict[int, str] = {}
        self.ttl = 1
        self.tries = 0
        self.began_ns = 0
        self.requested = 0
        """Number of the question that is open; 0 for none."""
        self.due = 0
        """Number of its place in the queue; an older one no longer counts."""
        self.due_ns = 0
        self.learnt_ns = 0
        self.doubted = False
        """While it was being traced."""
        self.checked = 0
        """The hop that a check asks now; 0 for none."""
        self.whole: tuple[str, ...] = ()
        """The path as last known but for what was merely silent since, …"""
        self.silences = 0
        """… so many times in a row."""


class PathLearner:
    """All flows of one host. Not thread-safe.

    Args:
        interval_ns: between two packets, whatever the number of flows.
    """

    def __init__(self, *, interval_ns: int = INTERVAL_NS) -> None:
        self._interval_ns = interval_ns
        self._next_ns = 0
        self._flows: dict[FlowKey, _Flow] = {}
        self._planned: frozenset[FlowKey] = frozenset()
        self._followed: frozenset[FlowKey] = frozenset()
        self._spare: frozenset[FlowKey] = frozenset()
        self._ready: tuple[list[tuple[int, int, FlowKey]], ...] = ([], [], [])
        """By rank: (due, number, flow)."""
        self._open: deque[tuple[int, int, FlowKey]] = deque()
        self._questions = 0
        self._by_middle: dict[str, dict[FlowKey, None]] = {}
        """Hop in the middle to the paths across it, by turns; the hops by turns, too. Some are of
        before."""
        self._check_ns = 0
        self._lengths: dict[tuple[str, str], int] = {}
        """Hops between two addresses: paths of equal cost are equally long, so that the silence
        behind the last hop is waited for once, not for every flow."""

    def plan(self, flows: Iterable[FlowKey]) -> None:
        """Take the flows to learn; what is known of those that stay is kept."""
        self._planned = frozenset(wanted := list(dict.fromkeys(flows)))
        self._take([*self._followed, *self._spare, *wanted])

    def follow(self, flows: Iterable[FlowKey], spare: Iterable[FlowKey] = ()) -> None:
        """Beside the plan: learnt before it.

        Args:
            flows: what jobs use now, before everything else.
            spare: where they could go instead.
        """
        before, self._followed = self._followed, frozenset(flows)
        before_spare, self._spare = self._spare, frozenset(wanted := list(dict.fromkeys(spare)))
        if before == self._followed and before_spare == self._spare:
            return
        for flow in self._followed & self._flows.keys() - before:
            if not self._flows[flow].requested:
                self._schedule(flow, 0)
        self._take([*self._followed, *wanted, *self._planned])

    def doubt(self, flows: Iterable[FlowKey], now_ns: int) -> None:
        """What is known of these may be the past: they lose packets, or others that shared a hop
        with them go elsewhere. They are traced now, at the rate of all."""
        for flow in flows:
            state = self._flows.get(flow)
            if state is None or state.hops is None:
                continue
            if state.requested or state.hearing or state.ttl > 1:
                # What is on its way may have been there before the reason to doubt.
                state.doubted = True
                continue
            due_ns = max(now_ns, state.learnt_ns + DOUBT_NS)
            if state.due_ns > due_ns:
                self._schedule(flow, due_ns)

    def hops(self, flow: FlowKey) -> tuple[str, ...] | None:
        """The path as last learnt; None: not yet."""
        state = self._flows.get(flow)
        return None if state is None else state.hops

    def _take(self, flows: Iterable[FlowKey]) -> None:
        known, self._flows = self._flows, {}
        for flow in flows:
            if flow in self._flows:
                continue
            self._flows[flow] = known.get(flow) or _Flow()
            if flow not in known:
                self._schedule(flow, 0)

    @property
    def waiting(self) -> bool:
        """Whether a question is open."""
        return bool(self._open)

    def next(self, now_ns: int) -> Ask | None:
        """The packet to send now, if any; call again until None."""
        if now_ns < self._next_ns:
            return None
        flow = self._pop(now_ns)
        if flow is None:
            return None
        state = self._flows[flow]
        if state.ttl == 1 and not state.tries:
            state.began_ns = now_ns
        state.tries += 1
        self._questions += 1
        state.requested = self._questions
        self._open.append((now_ns + ANSWER_NS, state.requested, flow))
        earliest_ns = now_ns - (BURST - 1) * self._interval_ns
        self._next_ns = max(earliest_ns, self._next_ns) + self._interval_ns
        return Ask(flow, state.ttl)

    def checks(self, now_ns: int) -> list[Ask]:
        """Packets to send now, while nothing else is asked, to see whether known paths still go
        where they went. `answer` takes what comes back; silence says nothing."""
        if now_ns < self._check_ns:
            return []
        asks: list[Ask] = []
        self._check_ns = max(now_ns - (CHECKS - 1) * CHECK_NS, self._check_ns)
        for hop in list(self._by_middle):
            if self._check_ns > now_ns:
                break
            flow = self._next_across(hop)
            if flow is not None:
                self._check_ns += CHECK_NS
                state = self._flows[flow]
                state.checked = _middle(state.hops).ttl
                asks.append(Ask(flow, state.checked))
        return asks

    def _next_across(self, hop: str) -> FlowKey | None:
        """The path across a hop that was checked least lately, and is not asked for now; the hop's
        next turn comes after all others'."""
        flows = self._by_middle.pop(hop)
        for flow in list(flows):
            del flows[flow]
            state = self._flows.get(flow)
            if state is None or _middle(state.hops).address != hop:
                continue
            flows[flow] = None
            self._by_middle[hop] = flows
            if not state.requested and not state.hearing and self._rank(flow) != _SPARE:
                return flow
        return None

    def _pop(self, now_ns: int) -> FlowKey | None:
        for ready in self._ready:
            while ready and ready[0][0] <= now_ns:
                _, number, flow = heapq.heappop(ready)
                if flow in self._flows and self._flows[flow].due == number:
                    return flow
        return None

    def answer(self, flow: FlowKey, ttl: int, address: str, now_ns: int) -> Learnt | None:
        """A hop answered; the path if it is complete with that."""
        state = self._flows.get(flow)
        if state is None:
            return None
        if state.ttl != ttl or not state.requested:
            self._answer_check(flow, state, ttl, address)
            return None
        state.hearing[ttl] = address
        return self._forward(flow, state, now_ns)

    def _answer_check(self, flow: FlowKey, state: _Flow, ttl: int, address: str) -> None:
        if ttl != state.checked:
            return
        state.checked = 0
        turned = _middle(state.hops) != (ttl, address)
        if turned and not state.requested and not state.hearing:
            self._schedule(flow, 0)

    def expire(self, now_ns: int) -> list[Learnt]:
        """Give up on what has not answered in time; the paths complete with that."""
        done = []
        while self._open and self._open[0][0] <= now_ns:
            _, question, flow = self._open.popleft()
            state = self._flows.get(flow)
            if state is None or state.requested != question:
                continue
            state.requested = 0
            if state.tries < TRIES:
                self._schedule(flow, now_ns)
            elif (learnt := self._forward(flow, state, now_ns)) is not None:
                done.append(learnt)
        return done

    def _rank(self, flow: FlowKey) -> int:
        if flow in self._followed:
            return _FOLLOWED
        return _SPARE if flow in self._spare else _PLANNED

    def _schedule(self, flow: FlowKey, due_ns: int) -> None:
        self._questions += 1
        self._flows[flow].due, self._flows[flow].due_ns = self._questions, due_ns
        heapq.heappush(self._ready[self._rank(flow)], (due_ns, self._questions, flow))

    def _forward(self, flow: FlowKey, state: _Flow, now_ns: int) -> Learnt | None:
        """On to the next hop, or done."""
        state.tries = state.requested = 0
        last = max(state.hearing, default=0)
        ends = self._lengths.get((flow.src, flow.dst), MAX_TTL) == last
        if not ends and state.ttl < MAX_TTL and state.ttl - last < SILENT_END:
            state.ttl += 1
            self._schedule(flow, _BEGUN)
            return None
        heard = tuple(state.hearing.get(ttl, "") for ttl in range(1, last + 1))
        if not ends:
            # Never less than it was: during an outage paths seem to end early.
            pair = (flow.src, flow.dst)
            known = self._lengths.get(pair, MAX_TTL)
            self._lengths[pair] = last if known == MAX_TTL else max(last, known)
        state.ttl, state.hearing, state.checked = 1, {}, 0
        left = _left(flow, state.whole, heard)
        spare = self._rank(flow) == _SPARE
        again_ns = SPARE_AGAIN_NS if spare else AGAIN_NS
        if state.hops is None:
            # Spread from then on: what has turned is found by whichever is due next.
            again_ns -= int(_SPREAD * again_ns * (self._questions * _GOLDEN % 1.0))
        partly = _is_part(heard, state.whole) and state.silences < SILENCES
        state.silences = state.silences + 1 if partly else 0
        soon = left or partly or state.doubted
        self._schedule(flow, now_ns + (DOUBT_NS if soon else again_ns))
        state.doubted = False
        state.learnt_ns = now_ns
        if not partly:
            state.whole = heard
        if not heard:
            return None
        before, state.hops = state.hops, heard
        if middle := _middle(heard).address:
            self._by_middle.setdefault(middle, {})[flow] = None
        if left:
            others = self._flows.items()
            self.doubt(
                [one for one, its in others if not left.isdisjoint(_hops_of(one, its.whole))],
                now_ns,
            )
        return Learnt(flow, heard, changed=before != heard, at_ns=state.began_ns)


class _Hop(NamedTuple):
    ttl: int
    address: str


def _middle(hops: tuple[str, ...] | None) -> _Hop:
    """The hop that a check asks; its address is empty if there is none."""
    if hops is None or len(hops) < MIN_CHECKED:
        return _Hop(0, "")
    place = len(hops) // 2
    return _Hop(place + 1, hops[place])


def _is_part(now: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    """Whether it is the same path, of which some did not answer."""
    if now == whole or len(now) > len(whole):
        return False
    return all(a in {"", b} for a, b in zip(now, whole, strict=False))


def _hops_of(flow: FlowKey, hops: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """From one device to the next, the sender first; silent ones are empty."""
    return pairwise((flow.src, *hops))


def _left(flow: FlowKey, before: tuple[str, ...], now: tuple[str, ...]) -> set[tuple[str, str]]:
    """Hops that a path has left for others: what merely does not answer is not left."""
    old, new = (flow.src, *before), (flow.src, *now)
    pairs = zip(pairwise(old), pairwise(new), strict=False)
    return {was for was, those in pairs if was != those and all((*was, *those))}
