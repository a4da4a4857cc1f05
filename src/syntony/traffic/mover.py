"""Decide moves of flows from measurements; verify each, and undo those that did not help. Pure.

Sans IO. The mover acts where a flow suffers (one-way delay, or a rate below what it could get) and
placement knows better. It never has two moves of one flow under way, never judges by measurements
older than the move, lets a flow rest after each move (longer each time), and leaves a path that did
not help alone (longer each time): so it comes to rest whatever it is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from syntony.traffic.budget import Budget
from syntony.traffic.demand import Flow
from syntony.traffic.fair import Floats
from syntony.traffic.hold_down import HoldDown
from syntony.traffic.measurements import FreshMeasurements, Measurements
from syntony.traffic.model import Choice, Model
from syntony.traffic.moves import FlowMove, MoveCause, MovePolicy
from syntony.traffic.place import Placer, solve
from syntony.traffic.problem import DEAD
from syntony.traffic.trials import MoveTrial, TrialResult, group_moves, links_of, rates_since

URGENT = {MoveCause.DEAD, MoveCause.UNPLACED}
"""Causes that no rest and no doubt may delay."""


class Mover:
    """Decides for all flows that it is given. At most one decides for a fabric at a time."""

    def __init__(self, policy: MovePolicy | None = None, placer: Placer = solve) -> None:
        self.policy = policy or MovePolicy()
        self._placer = placer
        self._budget = Budget(self.policy.max_moves_per_s)
        self._paths: dict[str, str] = {}
        """Where flows are, or are going."""
        self._unordered: set[str] = set()
        """Flows that came to another path without an order since the last step."""
        self._came_ns: dict[str, int] = {}
        """… and when such flows came, known from the step after it."""
        self._model = Model(())
        self._trials: list[MoveTrial] = []
        self.judged: dict[str, TrialResult] = {}
        """Results of trials that ended in the last step, by flow: `HELPED`, `NO_GAIN`, or `UNKNOWN`
        if no measurement could evaluate them (as for an undo)."""
        self._rest: defaultdict[str, HoldDown] = defaultdict(HoldDown)
        self._untried: dict[str, int] = {}
        """Flow whose move was not carried out → when it is considered again."""
        self._bad: defaultdict[tuple[str, str], HoldDown] = defaultdict(HoldDown)

    @property
    def under_way(self) -> frozenset[str]:
        """Flows with a move that the actuator has not confirmed."""
        return frozenset(flow for trial in self._trials for flow in trial.waiting)

    @property
    def on_trial(self) -> frozenset[str]:
        """Flows whose last move is still on trial."""
        return frozenset(flow for trial in self._trials for flow in trial.moves)

    def update(self, flows: Sequence[Flow]) -> None:
        """All flows there are now. Those that are gone are forgotten, mid-move too; where a flow is
        is believed, except while it is being moved."""
        there = {flow.flow_id for flow in flows}
        for flow_id in self._paths.keys() - there:
            for trial in self._trials:
                trial.vanished(flow_id)
            self._rest.pop(flow_id, None)
            self._untried.pop(flow_id, None)
            self._came_ns.pop(flow_id, None)
        self._trials = [trial for trial in self._trials if trial.moves]
        self._bad = defaultdict(HoldDown, {k: v for k, v in self._bad.items() if k[0] in there})
        under_way = self.under_way
        now = {
            flow.flow_id: self._paths[flow.flow_id] if flow.flow_id in under_way else flow.path_id
            for flow in flows
        }
        self._unordered |= {flow for flow in there if self._paths.get(flow, now[flow]) != now[flow]}
        self._paths = now
        if not _same(flows, self._model.flows):
            self._model = Model(tuple(flows))

    def done(self, flow_id: str, now_ns: int, *, ok: bool, tried: bool = True) -> None:
        """Take the actuator's result of a move.

        Args:
            ok: it is on its new path.
            tried: False: nothing was done, so the path is not to blame and the flow needs no
                hold-down (a late order, a busy agent, no agent).
        """
        for trial in self._trials:
            if flow_id in trial.waiting:
                move = trial.moves[flow_id]
                trial.answered(flow_id, now_ns, ok=ok)
                self._paths[flow_id] = move.new if ok else move.old
                if not ok and tried:
                    self._bad[flow_id, move.new].failed(now_ns, self.policy)
                if tried:
                    self._rest[flow_id].failed(now_ns, self.policy)
                else:
                    self._untried[flow_id] = now_ns + self.policy.retry_ns

    def step(self, measured: Measurements, now_ns: int) -> tuple[FlowMove, ...]:
        """Moves to make now, given the newest measurements."""
        self._came_ns |= dict.fromkeys(self._unordered & self._paths.keys(), now_ns)
        self._unordered = set()
        if not self._paths:
            return ()
        self._model.learn_capacities(measured)
        self._give_up(now_ns)
        moves = self._judge(measured, now_ns)
        return (*moves, *self._decide(measured, now_ns))

    def _give_up(self, now_ns: int) -> None:
        for trial in self._trials:
            if trial.waiting and now_ns - trial.requested_ns > self.policy.act_ns:
                for flow_id in tuple(trial.waiting):
                    self.done(flow_id, now_ns, ok=False)

    def _judge(self, measured: Measurements, now_ns: int) -> list[FlowMove]:
        """End trials that can be evaluated; returns moves that undo those without effect."""
        ideal_bps = self._model.ideal_bps
        undone: list[FlowMove] = []
        going = []
        self.judged = {}
        for trial in self._trials:
            verdict = trial.judge(measured, ideal_bps, self.policy, now_ns)
            if verdict is TrialResult.WAIT:
                going.append(trial)
                continue
            self.judged |= dict.fromkeys(trial.moves, verdict)
            if verdict is TrialResult.NO_GAIN:
                undone += self._take_back(trial, now_ns)
        self._trials = going
        if undone:
            self._start(undone, measured, now_ns, undo=True)
        return undone

    def _take_back(self, trial: MoveTrial, now_ns: int) -> list[FlowMove]:
        moves = []
        for flow_id, move in trial.moves.items():
            self._bad[flow_id, move.new].failed(now_ns, self.policy)
            row = self._model.row(flow_id, move.old)
            if row != DEAD and self._model.alive(row) and self._budget.take(now_ns):
                moves.append(
                    FlowMove(
                        flow_id=flow_id,
                        job=move.job,
                        old=move.new,
                        new=move.old,
                        cause=MoveCause.UNDO,
                        evidence="no better for it or for those it left",
                        at_ns=now_ns,
                    )
                )
        return moves

    def _decide(self, measured: Measurements, now_ns: int) -> list[FlowMove]:
        model, policy = self._model, self.policy
        choice = model.choice(self._paths)
        fresh = FreshMeasurements(measured, now_ns, policy.stale_ns)
        background = model.background(fresh, policy, choice)
        reasons = model.suffering(fresh, policy, choice, background)
        on_trial = self.on_trial
        reasons = {flow: why for flow, why in reasons.items() if flow not in on_trial}
        if not reasons:
            return []
        better = self._placed(choice, background, reasons, measured, now_ns)
        moves = self._differences(choice, better, reasons, now_ns)
        flows = {flow.flow_id: flow for flow in model.flows}
        blocked = {link for trial in self._trials for link in trial.links}
        before, after = model.use(choice, background), model.use(better, background)
        taken: list[FlowMove] = []
        for group in sorted(group_moves(moves, flows), key=len):
            links = {link for move in group for link in links_of(move, flows[move.flow_id])}
            urgent = any(move.cause in URGENT for move in group)
            touched = model.on_links(links, choice) | {move.flow_id for move in group}
            if not urgent and (
                links & blocked
                or not touched & reasons.keys()
                or not model.worth(links, before, after, policy.gain)
            ):
                continue
            if not self._affordable(group, taken, now_ns):
                break
            taken += group
        self._start(taken, measured, now_ns)
        return taken

    def _affordable(self, group: list[FlowMove], taken: list[FlowMove], now_ns: int) -> bool:
        """A chain of moves is made as a whole, unless it exceeds the limit by itself."""
        room = self.policy.max_moves - len(taken)
        if len(group) > room and (taken or any(move.cause not in URGENT for move in group)):
            return len(group) > self.policy.max_moves and not taken and self._cut(group, now_ns)
        del group[max(0, room) :]
        return all(self._budget.take(now_ns) for _ in group)

    def _cut(self, group: list[FlowMove], now_ns: int) -> bool:
        """The first part of a plan that exceeds the limit: suffering flows first."""
        group.sort(key=lambda move: move.cause is MoveCause.ROOM)
        del group[self.policy.max_moves :]
        return all(self._budget.take(now_ns) for _ in group)

    def _placed(
        self,
        choice: Choice,
        background: Floats,
        reasons: dict[str, tuple[MoveCause, str]],
        measured: Measurements,
        now_ns: int,
    ) -> Choice:
        """Placement of the flows, given which may move and where to."""
        model, policy = self._model, self.policy
        held = self._held(reasons, now_ns)
        use = model.use(choice, background)
        vetoed = {
            (model.number[flow_id], model.row(flow_id, path_id))
            for (flow_id, path_id), delay in measured.delays.items()
            if flow_id in model.number
            and now_ns - delay.at_ns <= policy.stale_ns
            and delay.queue_ns >= policy.queue_ns
            and model.row(flow_id, path_id) != DEAD
            and bool((use[model.links(model.row(flow_id, path_id))] <= 1).all())
        }
        bad = {
            (model.number[flow_id], model.row(flow_id, path_id))
            for (flow_id, path_id), hold in self._bad.items()
            if now_ns < hold.until_ns and flow_id in model.number
        }
        barred = vetoed | bad

        def is_barred(number: int, row: int) -> bool:
            if row == choice[number]:
                return False
            return model.flows[number].flow_id in held or (number, row) in barred

        return self._placer(model.to_solve(background, is_barred), choice)

    def _held(self, reasons: dict[str, tuple[MoveCause, str]], now_ns: int) -> set[str]:
        """Flows that may not move now."""
        resting = {flow for flow, hold in self._rest.items() if now_ns < hold.until_ns}
        resting |= {flow for flow, until_ns in self._untried.items() if now_ns < until_ns}
        urgent = {flow for flow, (cause, _) in reasons.items() if cause in URGENT}
        return (resting - urgent) | self.on_trial

    def _differences(
        self,
        choice: Choice,
        better: Choice,
        reasons: dict[str, tuple[MoveCause, str]],
        now_ns: int,
    ) -> list[FlowMove]:
        moves = []
        for number in np.flatnonzero((better != choice) & (better != DEAD)).tolist():
            flow = self._model.flows[number]
            cause, evidence = reasons.get(flow.flow_id, (MoveCause.ROOM, "in others' way"))
            moves.append(
                FlowMove(
                    flow_id=flow.flow_id,
                    job=flow.job,
                    old=self._paths[flow.flow_id],
                    new=self._model.path(number, int(better[number])),
                    cause=cause,
                    evidence=evidence,
                    at_ns=now_ns,
                )
            )
        return moves

    def _start(
        self, moves: Iterable[FlowMove], measured: Measurements, now_ns: int, *, undo: bool = False
    ) -> None:
        """Start a trial: record the state before the moves."""
        moves = list(moves)
        flows = {flow.flow_id: flow for flow in self._model.flows}
        ideal_bps = self._model.ideal_bps
        before = self._model.choice(self._paths)
        for group in group_moves(moves, flows):
            links = frozenset().union(*(links_of(m, flows[m.flow_id]) for m in group))
            movers = {move.flow_id: move for move in group}
            watched = self._model.on_links(links, before) | movers.keys()
            came_ns = (self._came_ns.get(flow_id, 0) for flow_id in watched)
            fresh_ns = max(now_ns - self.policy.stale_ns, *came_ns)
            rates = rates_since(measured.rates, watched, ideal_bps, fresh_ns)
            queues = {
                m.flow_id: delay.queue_ns
                for m in group
                if (delay := measured.delays.get((m.flow_id, m.old)))
            }
            self._trials.append(
                MoveTrial(
                    moves=movers,
                    links=links,
                    before=rates,
                    all_measured=len(rates) == len(watched),
                    queues=queues,
                    requested_ns=now_ns,
                    waiting=set(movers),
                    undo=undo,
                )
            )
        for move in moves:
            self._paths[move.flow_id] = move.new


def _same(flows: Sequence[Flow], others: Sequence[Flow]) -> bool:
    """Whether two sets of flows differ only in their present paths."""
    if len(flows) != len(others):
        return False
    for one, other in zip(flows, others, strict=True):
        if one is other:
            continue
        moved = one.paths is other.paths or one.paths == other.paths
        reported = (one.flow_id, one.priority, one.weight, one.demand_bps)
        if not moved or reported != (other.flow_id, other.priority, other.weight, other.demand_bps):
            return False
    return True
