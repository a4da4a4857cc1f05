"""Trials of moves: whether they were carried out, and whether they helped. Pure.

Moves that share links are one trial: a chain of moves helps as a whole or not at all.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from syntony.traffic.demand import Flow
from syntony.traffic.measurements import MeasuredRate, Measurements
from syntony.traffic.moves import FlowMove, MoveCause, MovePolicy


class TrialResult(enum.Enum):
    WAIT = "wait"
    HELPED = "helped"
    NO_GAIN = "no-gain"
    UNKNOWN = "unknown"
    """No measurement that would show it."""


@dataclass(slots=True)
class MoveTrial:
    """Moves ordered together, and the state of the flows that they affect from before."""

    moves: dict[str, FlowMove]
    """By flow, without those that failed or whose flow ended."""
    links: frozenset[str]
    """Of the old and the new paths."""
    before: dict[str, float]
    """Rates of the movers and of everybody else on those links, as a part of what each could get,
    by flow. The judgement is about these."""
    queues: dict[str, int]
    """Queueing delay of the movers before, ns."""
    requested_ns: int
    waiting: set[str] = field(default_factory=set)
    """Moved flows for which the actuator has not answered yet."""
    done_ns: int = 0
    """When the last of them was on its new path."""
    undo: bool = False
    """Takes a trial back: is not judged."""
    all_measured: bool = True
    """`before` has everybody on those links. If not, a move that makes nobody worse may have helped
    the others, whose hosts had not reported lately."""

    def answered(self, flow_id: str, now_ns: int, *, ok: bool) -> None:
        """The actuator's word on one mover."""
        if flow_id not in self.waiting:
            return
        self.waiting.discard(flow_id)
        self.done_ns = max(self.done_ns, now_ns)
        if not ok:
            self.moves.pop(flow_id, None)

    def vanished(self, flow_id: str) -> None:
        """A flow has ended: its move is dropped."""
        self.waiting.discard(flow_id)
        self.moves.pop(flow_id, None)
        self.before.pop(flow_id, None)

    def judge(
        self,
        measured: Measurements,
        ideal_bps: Mapping[str, float],
        policy: MovePolicy,
        now_ns: int,
    ) -> TrialResult:
        """Whether it helped.

        Args:
            ideal_bps: ideal rate of each flow.
            policy: how much is a help, and how long to wait.
        """
        if self.waiting:
            return TrialResult.WAIT
        if self.undo or not self.moves:
            return TrialResult.UNKNOWN
        from_ns = self.done_ns + policy.settle_ns
        after = rates_since(measured.rates, self.before, ideal_bps, from_ns)
        if set(self.moves) & set(self.before) <= set(after) and after:
            # Those that a mover was in the way of are measured by other hosts, a window later.
            if set(after) < set(self.before) and now_ns < from_ns + policy.settle_ns:
                return TrialResult.WAIT
            return self._by_rates(after, policy)
        queues = {
            flow_id: delay.queue_ns
            for flow_id, move in self.moves.items()
            if (delay := measured.delays.get((flow_id, move.new))) and delay.at_ns >= from_ns
        }
        if queues and not self.before and set(queues) >= set(self.queues):
            calmer = sum(queues.values()) <= sum(self.queues.values()) * (1 - policy.gain)
            return TrialResult.HELPED if calmer else TrialResult.NO_GAIN
        late = now_ns - self.done_ns > policy.judge_ns
        return TrialResult.UNKNOWN if late else TrialResult.WAIT

    def _by_rates(self, after: Mapping[str, float], policy: MovePolicy) -> TrialResult:
        """Minimum before mean, among those measured before and after."""
        both = [(self.before[flow], after[flow]) for flow in after]
        worst_before, worst_after = (min(column) for column in zip(*both, strict=True))
        all_before, all_after = (sum(column) for column in zip(*both, strict=True))
        if all(move.cause in {MoveCause.DEAD, MoveCause.UNPLACED} for move in self.moves.values()):
            return TrialResult.HELPED  # there was nothing to stay for
        if worst_after >= worst_before * (1 + policy.gain) and worst_after > worst_before:
            return TrialResult.HELPED
        no_worse = worst_after >= worst_before * (1 - policy.gain)
        more = all_after >= all_before * (1 + policy.gain / 2) and all_after > all_before
        if no_worse and more:
            return TrialResult.HELPED
        return TrialResult.UNKNOWN if no_worse and not self.all_measured else TrialResult.NO_GAIN


def rates_since(
    rates: Mapping[str, MeasuredRate],
    flows: Iterable[str],
    ideal_bps: Mapping[str, float],
    from_ns: int,
) -> dict[str, float]:
    """Rates measured since an instant, as shares of the ideal rates."""
    found = {}
    for flow_id in flows:
        rate = rates.get(flow_id)
        if rate is not None and rate.at_ns >= from_ns and ideal_bps.get(flow_id, 0) > 0:
            found[flow_id] = rate.bps / ideal_bps[flow_id]
    return found


def group_moves(moves: Sequence[FlowMove], flows: Mapping[str, Flow]) -> list[list[FlowMove]]:
    """Group moves that share a link of their old or new paths."""
    parent = list(range(len(moves)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    owner: dict[str, int] = {}
    for number, move in enumerate(moves):
        for link in links_of(move, flows[move.flow_id]):
            parent[root(number)] = root(owner.setdefault(link, number))
    groups: dict[int, list[FlowMove]] = {}
    for number, move in enumerate(moves):
        groups.setdefault(root(number), []).append(move)
    return list(groups.values())


def links_of(move: FlowMove, flow: Flow) -> set[str]:
    ways = [set(path.links) for path in flow.paths if path.path_id in {move.old, move.new}]
    if len(ways) < 2:
        return ways[0] if ways else set()
    return ways[0] ^ ways[1]
