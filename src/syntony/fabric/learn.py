"""Learn the path of each flow with TTL-limited packets of its exact 5-tuple. Pure.

Events go in, orders to send come out.

A hop answers with ICMP *time exceeded*. Such packets are not authenticated, so the sender of an
answer is only a claim, and an answer counts only if it quotes what only that packet carried.
Routers limit their rate of answers (Linux: one a second per destination by default). Packets are
therefore ordered one at a time, and a silent hop is *unknown*, never *absent*: hops behind it are
still traced.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable
from typing import NamedTuple

from syntony.fabric.hops import Hop, hidden_hops, hop_at, hops_of, is_part, left_hops, middle_hop
from syntony.fabric.path_ends import PathEnds
from syntony.model import MS, S

ANSWER_NS = 1 * S
"""An answer that takes longer counts as lost, like a probe (`PROBE_TIMEOUT_NS`)."""
RETRY_NS = 500 * MS
"""When a path is traced for the first time, a hop is asked again after this time; an answer to the
packet before counts all the same."""
TRIES = 3
"""Unanswered packets to one hop before it counts as unknown."""
MAX_TTL = 8
"""Maximum number of switches on a path: five on three tiers, up to seven with a routed border."""
SILENT_END = 2
"""This many silent hops in a row are taken as the end of the path: the remote host never
answers."""
INTERVAL_NS = 20 * MS
"""50 packets a second of 60 bytes: negligible for a link, little for a switch's control plane."""
FIRST_NS = 5 * MS
"""Minimum interval while paths are learnt for the first time: the first minute's faults can only be
named as far as paths are known."""
FLEET_NS = MS // 2
"""Minimum of all hosts together then: at `INTERVAL_NS` forty hosts send as much."""
BURST = 5
"""Maximum packets in a burst after a pause: below the six that a Linux router answers in a row."""
MAX_MISSED = 1 / 8
"""Share of answers for which a hop that does answer was asked more than once, above which devices
are taken to limit their answers: paths are then learnt at the usual rate …"""
MIN_MISSED = 8
"""… if there were so many of them."""
AGAIN_NS = 60 * S
"""A known path is traced again this often: routes change, switches restart."""
RETRACE_NS = 4 * S
"""A path that has changed is traced again after this time, because a short outage ends meanwhile. A
suspect path is traced again at most this often."""
MAX_SILENT_RETRACES = 5
"""A path with newly silent hops is traced again after the same time, but at most this many times in
a row: either the outage ends, or the hops no longer answer."""
CHECK_NS = 200 * MS
"""Interval of checks while nothing is being traced: one packet to the hop in the middle of a known
path, where paths between the same ends differ. Such hops take turns. A switch that died without
losing a probe is thus noticed within seconds, whatever the number of flows; and so is a path that
has left a switch that never answers, as those with a silent middle take one turn together."""
CHECKS = 3
"""Maximum checks at once, of those that became due since the last call."""
SILENT_CHECKS = 4
"""So many checks of one path without an answer in a row, …"""
SILENT_NS = 3 * S
"""… over at least this time, and all paths across the hop are traced: they may have moved to a
switch that never answers. Linux answers one a second, whatever the number of checks."""
SILENT_TRACES = 2
"""So many traces of one path in a row in which one hop is newly silent have the same effect."""
SILENT_AGAIN_NS = 20 * S
"""Minimum interval of this for one hop: switches that limit their answers would be asked all the
time."""
SPARE_AGAIN_NS = 600 * S
"""… and this often for spare paths, which no job uses yet: a path that is used is traced at
once."""
_GOLDEN = 0.6180339887
"""Multiples of the golden ratio, modulo 1, are evenly spread for any number of flows."""
_SPREAD = 5 / 6
"""Spread of the time until a path is traced for the second time, as a share of it."""
_FOLLOWED, _SPARE, _PLANNED = range(3)
"""Priorities: flows due in one are traced before those due in the next."""
_BEGUN = -1
"""Priority of a started trace over new ones: paths become known one after the other, not all at the
end, and one switch does not receive all packets at once."""


class FlowKey(NamedTuple):
    """A flow as switches see it, and the local NIC that it uses."""

    nic: str
    src: str
    dst: str
    sport: int
    dport: int
    proto: str = "udp"
    """``udp`` or ``tcp``: switches hash it too, so the same ports may take another path."""
    label: int = 0
    """IPv6 flow label, which some switches hash."""


class HopQuery(NamedTuple):
    """Send one packet of `flow` with this TTL."""

    flow: FlowKey
    ttl: int


class TracedPath(NamedTuple):
    """A flow's path as it is now known."""

    flow: FlowKey
    hops: tuple[str, ...]
    """Addresses of the hops, in order; empty for one that does not answer."""
    changed: bool
    """Whether it differs from what was known before."""
    at_ns: int
    """When its trace began, CLOCK_MONOTONIC: every hop has answered since."""


class _Flow:
    """The known hops of one flow, and the next hop to trace."""

    def __init__(self) -> None:
        self.hops: tuple[str, ...] | None = None
        self.answers: dict[int, str] = {}
        self.ttl = 1
        self.tries = 0
        self.began_ns = 0
        self.requested = 0
        """Number of the pending packet; 0 for none."""
        self.due = 0
        """Number of its place in the queue; older entries are invalid."""
        self.due_ns = 0
        self.learnt_ns = 0
        self.suspect = False
        """Whether it became suspect while it was being traced."""
        self.checked = 0
        """The hop that a check is probing; 0 for none."""
        self.whole: tuple[str, ...] = ()
        """The path as last known, including hops that have only been silent since, …"""
        self.silences = 0
        """… in this many traces in a row."""


class PathLearner:
    """Learns the paths of all flows of one host. Not thread-safe."""

    def __init__(self) -> None:
        self._next_ns = 0
        self._fast_ns = INTERVAL_NS
        """Interval of packets while paths are traced for the first time."""
        self._untraced = self._answers = self._missed = 0
        """Flows that have not been traced yet; since there are any, answers, and those that came
        only when asked for again."""
        self._flows: dict[FlowKey, _Flow] = {}
        self._planned: frozenset[FlowKey] = frozenset()
        self._followed: frozenset[FlowKey] = frozenset()
        self._spare: frozenset[FlowKey] = frozenset()
        self._ready: tuple[list[tuple[int, int, FlowKey]], ...] = ([], [], [])
        """By priority: (due, number, flow)."""
        self._open: list[tuple[int, int, FlowKey]] = []
        self._questions = 0
        self._by_middle: dict[str, dict[FlowKey, None]] = {}
        """Hop in the middle → the paths across it, by turns; the hops take turns, too. May have
        outdated entries."""
        self._check_ns = 0
        self._silent: dict[str, _Unanswered] = {}
        """Hop in the middle → the path that is checked until it is answered."""
        self._doubted_ns: dict[tuple[str, str], int] = {}
        """Successive hops, the second of which may have been left for a silent one, or is silent
        and was left → when all paths across them were traced for it, within `SILENT_AGAIN_NS`."""
        self._ends = PathEnds[FlowKey]()
        self._asides: deque[HopQuery] = deque()
        """Packets that ask once for a hop behind a known end."""

    def plan(self, flows: Iterable[FlowKey], fast_ns: int = INTERVAL_NS) -> None:
        """Set the flows to learn; the paths of those that stay are kept.

        Args:
            flows: in the order in which they are to be traced first.
            fast_ns: interval of packets while some were not traced yet and devices answer.
        """
        self._fast_ns = fast_ns
        self._planned = frozenset(wanted := list(dict.fromkeys(flows)))
        self._take([*self._followed, *self._spare, *wanted])

    def follow(self, flows: Iterable[FlowKey], spare: Iterable[FlowKey] = ()) -> None:
        """Set further flows, which are traced before those of the plan.

        Args:
            flows: in use by jobs; traced first.
            spare: alternatives for these.
        """
        before, self._followed = self._followed, frozenset(flows)
        before_spare, self._spare = self._spare, frozenset(wanted := list(dict.fromkeys(spare)))
        if before == self._followed and before_spare == self._spare:
            return
        for flow in self._followed & self._flows.keys() - before:
            if not self._flows[flow].requested:
                self._schedule(flow, 0)
        self._take([*self._followed, *wanted, *self._planned])

    def suspect(self, flows: Iterable[FlowKey], now_ns: int) -> None:
        """Mark paths as possibly outdated: they lose packets, or others that shared a hop with them
        have changed. They are traced at once, within the common rate."""
        for flow in flows:
            state = self._flows.get(flow)
            if state is None or state.hops is None:
                continue
            if state.requested or state.answers or state.ttl > 1:
                # Packets in flight may have been sent before the path became suspect.
                state.suspect = True
                continue
            due_ns = max(now_ns, state.learnt_ns + RETRACE_NS)
            if state.due_ns > due_ns:
                self._schedule(flow, due_ns)

    def hops(self, flow: FlowKey) -> tuple[str, ...] | None:
        """The path as last learnt; None: not yet known."""
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
        for flow in known.keys() - self._flows.keys():
            self._resume(flow)
        if not self._untraced:
            self._answers = self._missed = 0
        new = (flow for flow, state in self._flows.items() if not state.learnt_ns)
        self._untraced = sum(flow not in self._spare for flow in new)

    @property
    def interval_ns(self) -> int:
        """Present interval of packets."""
        limited = self._missed > max(MIN_MISSED, MAX_MISSED * self._answers)
        return INTERVAL_NS if limited or not self._untraced else self._fast_ns

    @property
    def waiting(self) -> bool:
        """Whether a packet is pending."""
        return bool(self._open)

    def next(self, now_ns: int) -> HopQuery | None:
        """The packet to send now, if any; call again until it returns None."""
        if now_ns < self._next_ns:
            return None
        query = self._asides.popleft() if self._asides else self._ask(now_ns)
        if query is not None:
            interval_ns = self.interval_ns
            earliest_ns = now_ns - (BURST - 1) * interval_ns
            self._next_ns = max(earliest_ns, self._next_ns) + interval_ns
        return query

    def _ask(self, now_ns: int) -> HopQuery | None:
        flow = self._pop(now_ns)
        if flow is None:
            return None
        state = self._flows[flow]
        if state.ttl == 1 and not state.tries:
            state.began_ns = now_ns
        state.tries += 1
        self._questions += 1
        state.requested = self._questions
        soon = state.hops is None and state.tries < TRIES
        wait_ns = RETRY_NS if soon else ANSWER_NS
        heapq.heappush(self._open, (now_ns + wait_ns, state.requested, flow))
        return HopQuery(flow, state.ttl)

    def checks(self, now_ns: int) -> list[HopQuery]:
        """Packets to send now, while nothing is being traced, to check whether known paths are
        unchanged. `answer` takes the answers; a single one that is missing proves nothing."""
        if now_ns < self._check_ns:
            return []
        asks: list[HopQuery] = []
        self._check_ns = max(now_ns - (CHECKS - 1) * CHECK_NS, self._check_ns)
        for hop in list(self._by_middle):
            if self._check_ns > now_ns:
                break
            flow = self._next_across(hop)
            if flow is None:
                continue
            self._check_ns += CHECK_NS
            state = self._flows[flow]
            state.checked = middle_hop(state.hops).ttl
            if hop and self._is_left(hop, flow, now_ns):
                self._schedule(flow, now_ns)
                self._doubt(hop_at(flow.src, state.hops or (), state.checked), now_ns)
                continue
            asks.append(HopQuery(flow, state.checked))
        return asks

    def _is_left(self, hop: str, flow: FlowKey, now_ns: int) -> bool:
        """Whether a path that is due to be checked was not answered for so long that it may have
        left the hop; counts one more check if not."""
        before = self._silent.get(hop)
        if before is None or before.flow != flow:
            before = _Unanswered(flow, now_ns, 0)
        if before.times >= SILENT_CHECKS and now_ns - before.since_ns >= SILENT_NS:
            del self._silent[hop]
            return True
        self._silent[hop] = before._replace(times=before.times + 1)
        return False

    def _next_across(self, hop: str) -> FlowKey | None:
        """The path across a hop whose last check was not answered, or that was checked least
        recently, and that is not being traced. The hop is then last in turn."""
        flows = self._by_middle.pop(hop)
        waiting = self._silent.get(hop)
        first = [waiting.flow] if waiting is not None and waiting.flow in flows else []
        for flow in (*first, *flows):
            flows.pop(flow, None)
            state = self._flows.get(flow)
            if state is None or (middle := middle_hop(state.hops)).address != hop or not middle.ttl:
                continue
            flows[flow] = None
            self._by_middle[hop] = flows
            if not state.requested and not state.answers and self._rank(flow) != _SPARE:
                return flow
        self._silent.pop(hop, None)
        return None

    def _doubt(self, hop: tuple[str, str], now_ns: int) -> None:
        """All paths across two successive hops may be outdated."""
        self._doubted_ns = {
            each: at for each, at in self._doubted_ns.items() if now_ns - at < SILENT_AGAIN_NS
        }
        if hop not in self._doubted_ns:
            self._doubted_ns[hop] = now_ns
            self._suspect_across({hop}, now_ns)

    def _suspect_across(self, left: Collection[tuple[str, str]], now_ns: int) -> None:
        flows = self._flows.items()
        self.suspect(
            [one for one, its in flows if any(hop in left for hop in hops_of(one.src, its.whole))],
            now_ns,
        )

    def _pop(self, now_ns: int) -> FlowKey | None:
        for ready in self._ready:
            while ready and ready[0][0] <= now_ns:
                _, number, flow = heapq.heappop(ready)
                if flow in self._flows and self._flows[flow].due == number:
                    return flow
        return None

    def answer(self, flow: FlowKey, ttl: int, address: str, now_ns: int) -> TracedPath | None:
        """A hop answered. Returns the path if this completes it."""
        state = self._flows.get(flow)
        if state is None:
            return None
        if state.ttl != ttl or not state.tries:
            self._answer_check(flow, state, ttl, address)
            return None
        self._answers += 1
        self._missed += state.tries > 1
        state.answers[ttl] = address
        return self._forward(flow, state, now_ns)

    def _answer_check(self, flow: FlowKey, state: _Flow, ttl: int, address: str) -> None:
        if ttl != state.checked:
            return
        state.checked = 0
        middle = middle_hop(state.hops)
        self._answered(flow, middle.address)
        if ttl > len(state.hops or ()):
            self._ends.drop((flow.src, flow.dst))
        turned = middle != (ttl, address)
        if turned and not state.requested and not state.answers:
            self._schedule(flow, 0)

    def _answered(self, flow: FlowKey, hop: str) -> None:
        """A path needs not be checked any longer."""
        if hop in self._silent and self._silent[hop].flow == flow:
            del self._silent[hop]

    def expire(self, now_ns: int) -> list[TracedPath]:
        """Time out pending packets. Returns the paths that this completes."""
        done = []
        while self._open and self._open[0][0] <= now_ns:
            _, question, flow = heapq.heappop(self._open)
            state = self._flows.get(flow)
            if state is None or state.requested != question:
                continue
            state.requested = 0
            self._missed += state.ttl == 1
            can_wait = state.answers and self._rank(flow) == _PLANNED
            if can_wait and self._ends.waits((flow.src, flow.dst), flow):
                continue
            if state.tries < TRIES:
                self._schedule(flow, _BEGUN)
            elif (learnt := self._forward(flow, state, now_ns)) is not None:
                done.append(learnt)
        return done

    def _resume(self, ended: FlowKey, now_ns: int = 0) -> None:
        """Continue with the flows that waited for this one, which has been traced or is gone."""
        for flow in self._ends.ended((ended.src, ended.dst), ended):
            state = self._flows.get(flow)
            if state is None or state.requested or not state.tries:
                continue
            if self._is_end(flow, state):
                # `expire` completes it without another packet.
                self._questions += 1
                state.tries, state.requested = TRIES, self._questions
                heapq.heappush(self._open, (now_ns, state.requested, flow))
            else:
                self._schedule(flow, _BEGUN)

    def _is_end(self, flow: FlowKey, state: _Flow) -> bool:
        last = max(state.answers, default=0)
        return self._ends.is_end((flow.src, flow.dst), Hop(last, state.answers.get(last, "")))

    def _rank(self, flow: FlowKey) -> int:
        if flow in self._followed:
            return _FOLLOWED
        return _SPARE if flow in self._spare else _PLANNED

    def _schedule(self, flow: FlowKey, due_ns: int) -> None:
        self._questions += 1
        self._flows[flow].due, self._flows[flow].due_ns = self._questions, due_ns
        heapq.heappush(self._ready[self._rank(flow)], (due_ns, self._questions, flow))

    def _forward(self, flow: FlowKey, state: _Flow, now_ns: int) -> TracedPath | None:
        """Continue with the next hop, or finish."""
        state.tries = state.requested = 0
        last = max(state.answers, default=0)
        ends = self._is_end(flow, state)
        if not ends and state.ttl < MAX_TTL and state.ttl - last < SILENT_END:
            state.ttl += 1
            self._schedule(flow, _BEGUN)
            return None
        hops = tuple(state.answers.get(ttl, "") for ttl in range(1, last + 1))
        if not ends and hops and self._ends.take((flow.src, flow.dst), hops):
            self._suspect_shorter(flow, last, now_ns)
        behind = 0
        if ends and state.ttl == last and self._ends.may_continue(last):
            self._asides.append(HopQuery(flow, behind := last + 1))
        state.ttl, state.answers, state.checked = 1, {}, behind
        self._untraced -= not state.learnt_ns and flow not in self._spare
        left = left_hops(flow.src, state.whole, hops)
        spare = self._rank(flow) == _SPARE
        again_ns = SPARE_AGAIN_NS if spare else AGAIN_NS
        if state.hops is None:
            # Evenly spread from here on, so that a change is found by the next path that is due.
            again_ns -= int(_SPREAD * again_ns * (self._questions * _GOLDEN % 1.0))
        partly = is_part(hops, state.whole) and state.silences < MAX_SILENT_RETRACES
        state.silences = state.silences + 1 if partly else 0
        soon = left or partly or state.suspect
        self._schedule(flow, now_ns + (RETRACE_NS if soon else again_ns))
        state.suspect = False
        state.learnt_ns = now_ns
        self._resume(flow, now_ns)
        if not partly:
            state.whole = hops
        if not hops:
            return None
        before, state.hops = state.hops, hops
        if (middle := middle_hop(hops)).ttl:
            self._by_middle.setdefault(middle.address, {})[flow] = None
            self._answered(flow, middle.address)
        newly_silent = state.silences == SILENT_TRACES
        hidden = hidden_hops(flow.src, state.whole, hops) if newly_silent else ()
        self._follow_up(left, hidden, now_ns)
        return TracedPath(flow, hops, changed=before != hops, at_ns=state.began_ns)

    def _suspect_shorter(self, flow: FlowKey, last: int, now_ns: int) -> None:
        """Trace paths between the same ends again that seemed to be shorter."""
        shorter = (
            each
            for each, its in self._flows.items()
            if (each.src, each.dst) == (flow.src, flow.dst) and len(its.hops or ()) < last
        )
        self.suspect(shorter, now_ns)

    def _follow_up(
        self, left: Collection[tuple[str, str]], hidden: Iterable[tuple[str, str]], now_ns: int
    ) -> None:
        """Trace other paths across hops that one has left, or that no longer answer it."""
        if seen := {hop for hop in left if hop[1]}:
            self._suspect_across(seen, now_ns)
        for hop in (*sorted({*left} - seen), *hidden):
            self._doubt(hop, now_ns)


class _Unanswered(NamedTuple):
    """Checks of one path without an answer, in a row."""

    flow: FlowKey
    since_ns: int
    """When the first was sent."""
    times: int
