"""Before the probes' word on a path is believed: what else this host knows of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from syntony.agent.steering.flows import FlowWatch
from syntony.agent.steering.liveness import LivenessSource
from syntony.traffic.health import Health, Pair, Progress


def weigh(health: Health, flows: FlowWatch, liveness: LivenessSource | None, now_ns: int) -> None:
    """Of each pair whose death is to be decided now: how the jobs' own data on it get on, and when
    the peer's other NICs have answered."""
    pending = health.pending(now_ns)
    if not pending:
        return
    by_pair = _progress(health, flows, pending, now_ns)
    if not all(pair in by_pair for pair in pending):
        by_pair = _progress(health, flows, pending, now_ns, anew=True)
    for (nic, far), progress in by_pair.items():
        health.weigh(nic, far, progress, now_ns)
    if liveness is not None:
        health.answered(liveness.replies(), now_ns)


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
