"""Corroborates probe loss on a path with other evidence of this host before the path is declared
dead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from syntony.agent.steering.flows import FlowWatch
from syntony.agent.steering.liveness import LivenessSource
from syntony.traffic.health import Health
from syntony.traffic.pair_timeouts import PairTimeouts
from syntony.traffic.pairs import ConnectionProgress, Pair, Reply


class Corroborated(NamedTuple):
    """What `PathCorroboration.corroborate` found."""

    back: bool
    """Whether a pair that was presumed dead works again."""
    presumed: tuple[Pair, ...]
    """Pairs that are presumed dead because of their silence and of waiting data of jobs."""


class PathCorroboration:
    """Combines the progress of jobs' data with the newest answers of all probes."""

    def __init__(self, health: Health, flows: FlowWatch) -> None:
        self._health = health
        self._flows = flows
        self._pair_timeouts = PairTimeouts()

    def note_wakeup(self, late_ns: int, now_ns: int) -> None:
        """This process woke up late by this much; not late if negative."""
        self._pair_timeouts.late(late_ns, now_ns)

    def note_pause(self, now_ns: int) -> None:
        """Until now it was paused for so long that silence meanwhile proves nothing."""
        self._pair_timeouts.paused(now_ns)

    def corroborate(self, liveness: LivenessSource | None, now_ns: int) -> Corroborated:
        """The states of paths that are corroborated now."""
        corroborated = Corroborated(back=False, presumed=())
        if liveness is not None and (liveness.rung or self._health.needs_replies):
            corroborated = self._presume(liveness, now_ns)
        pending = self._health.pending_deaths(now_ns)
        if not pending:
            return corroborated
        by_pair = self._progress(pending, now_ns)
        if not all(pair in by_pair for pair in pending):
            by_pair = self._progress(pending, now_ns, anew=True)
        for (nic, far), progress in by_pair.items():
            self._health.corroborate(nic, far, progress, now_ns)
        for pair in pending:
            flows, since_ns = by_pair.get(pair, ()), self._health.since_ns(pair)
            if flows and since_ns is not None:
                self._health.keep_until(
                    pair, self._pair_timeouts.until_ns(pair, since_ns, flows, now_ns)
                )
        if liveness is not None:
            self._health.excuse_late_peers(_replies(liveness, now_ns), now_ns)
        return corroborated

    def _presume(self, liveness: LivenessSource, now_ns: int) -> Corroborated:
        """A pair's silence is evaluated as a whole once it is probed by a burst, and from then on
        every few ms, because the waiting time of data is known no better."""
        replies = _replies(liveness, now_ns)
        back = self._health.revive_answered(replies, now_ns)
        answers = self._health.answers(replies)
        silent = [pair for pair, its in answers.items() if its.silent and not its.dying]
        if not silent:
            return Corroborated(back, ())
        flows = self._progress(silent, now_ns)
        interval_ns, more_ns = liveness.interval_ns, self._health.timeout_ns
        dead = self._pair_timeouts.dead(answers, flows, interval_ns, now_ns, more_ns)
        self._health.presume_dead(dead, now_ns)
        return Corroborated(back, tuple(dead))

    def _progress(
        self, pairs: Iterable[Pair], now_ns: int, *, anew: bool = False
    ) -> dict[Pair, list[ConnectionProgress]]:
        health = self._health
        remotes = health.plan.aliases({far for _, far in pairs})
        found: dict[Pair, list[ConnectionProgress]] = defaultdict(list)
        for each in self._flows.progress(remotes, now_ns, anew=anew):
            nic = health.nic_of(each.flow.local)
            if nic is not None:
                found[nic, health.plan.probed(each.flow.remote)].append(each)
        return found


def _replies(liveness: LivenessSource, now_ns: int) -> dict[int, Reply]:
    """Replies of flows that were ever answered: for others the engine reports the first request."""
    return {
        each.flow_id: Reply(
            heard_ns=each.heard_ns,
            silent=each.suspect or each.unresponsive,
            unresponsive=each.unresponsive,
            rtt_ns=each.rtt_ns,
            steady_ns=each.steady_ns,
            gap_ns=each.gap_ns,
        )
        for each in liveness.look(now_ns)
        if each.rtt_ns
    }
