"""Before the probes' word on a path is believed: what else this host knows of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from syntony.agent.steering.flows import FlowWatch
from syntony.agent.steering.liveness import LivenessSource
from syntony.traffic.health import Health, Pair, Progress
from syntony.traffic.silence import hushed, presumed


def weigh(health: Health, flows: FlowWatch, liveness: LivenessSource | None, now_ns: int) -> bool:
    """What the jobs' own data and the newest answers of all probes say, together; whether a pair
    is well again that was presumed dead."""
    back = liveness is not None and _presume(health, flows, liveness, now_ns)
    pending = health.pending(now_ns)
    if not pending:
        return back
    by_pair = _progress(health, flows, pending, now_ns)
    if not all(pair in by_pair for pair in pending):
        by_pair = _progress(health, flows, pending, now_ns, anew=True)
    for (nic, far), progress in by_pair.items():
        health.weigh(nic, far, progress, now_ns)
    if liveness is not None:
        health.answered(liveness.replies(), now_ns)
    return back


def _presume(health: Health, flows: FlowWatch, liveness: LivenessSource, now_ns: int) -> bool:
    """While a job's data wait, a pair's silence is looked at as a whole."""
    if not flows.waiting and not health.presuming:
        return False
    replies = liveness.replies()
    back = health.heard(replies, now_ns)
    answers = health.answers(replies)
    silent = hushed(answers, liveness.interval_ns, now_ns, health.patience_ns)
    if silent:
        health.presume(presumed(silent, _progress(health, flows, silent, now_ns)), now_ns)
    return back


def _progress(
    health: Health, flows: FlowWatch, pairs: Iterable[Pair], now_ns: int, *, anew: bool = False
) -> dict[Pair, list[Progress]]:
    remotes = health.aliases({far for _, far in pairs})
    found: dict[Pair, list[Progress]] = defaultdict(list)
    for each in flows.progress(remotes, now_ns, anew=anew):
        nic = health.nic_of(each.flow.local)
        if nic is not None:
            found[nic, health.probed(each.flow.remote)].append(each)
    return found
