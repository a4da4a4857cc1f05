"""Host CPU jitter: pollers of one host are descheduled, or its threads wait for a core, unlike on
other hosts."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from syntony.model import format_ns
from syntony.model.names import host_of
from syntony.workload.bundle import Floats
from syntony.workload.classes._weigh import weigh
from syntony.workload.device_tables import DeviceTable
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import LIKE, Flows
from syntony.workload.grid import Episode, episode, episodes, median
from syntony.workload.verdict import (
    MOST_ALONE,
    Alternative,
    Evidence,
    FaultClass,
    RuleFinding,
    confidence,
)

TIMES = 3.0
"""Ratio of poll gap or run-queue delay to that of others (taxonomy)."""
MOST = 0.8
"""Minimum share of a host's flows that show it: a single queue pair is not evidence about the
host."""
OFTEN = 0.5
"""Maximum ratio of the share of windows in which flows of other hosts show it meanwhile."""
MIN_RUN = 0.01
"""Minimum share of a window that counts as run: CPU time is counted in steps of 10 ms, and a window
has 2 s."""
MIN_WAIT = 0.05
"""Minimum share of a window for which its threads wait for a core."""
ACTION = (
    "find who else runs on the job's cores (`pidstat -w`, cgroups, interrupts) and pin or evict it;"
    " if its own cgroup is limited (`nr_throttled` in `cpu.stat`), raise the limit"
)


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Hosts short of CPU while the others are not."""
    gaps = _poll_gaps(facts.flows) if facts.flows is not None else {}
    queues = _run_queues(facts)
    if facts.flows is not None:
        gaps = _of_one_end(facts.flows, gaps, queues.keys())
    if _all_starved(facts):
        gaps = {host: each for host, each in gaps.items() if host in queues}
    found = []
    for host in sorted(gaps.keys() | queues.keys()):
        finding = _judge(facts, host, gaps.get(host), queues.get(host))
        if finding is not None:
            found.append(finding)
    return found


def _of_one_end(
    flows: Flows, gaps: dict[str, tuple[int, int, float, float, float]], short: Collection[str]
) -> dict[str, tuple[int, int, float, float, float]]:
    """The gaps of hosts, of two that have the same flows only of one whose threads wait for a core:
    pollers of either may be away."""
    of = {host: flows.touching(host) for host in {host_of(nic) for nic in (*flows.src, *flows.dst)}}
    found = {}
    for host, gap in gaps.items():
        ends = [each for each, own in of.items() if (own == of[host]).all()]
        for each in ends if len(ends) == 1 else [each for each in ends if each in short]:
            found[each] = gap
    return found


def _poll_gaps(flows: Flows) -> dict[str, tuple[int, int, float, float, float]]:
    """Hosts whose flows are all polled late: begin, end, share, gap, usual gap."""
    gap = flows.column("poll_gap_ns", "max")
    usual = median(gap, axis=0)
    low = np.nan_to_num(np.nanquantile(gap, 0.25)) if np.isfinite(gap).any() else 0.0
    with np.errstate(invalid="ignore"):
        bad = gap > TIMES * np.minimum(usual, max(low, 1.0) * 2)
    late = episodes(bad, np.isfinite(gap))
    hosts = sorted({host_of(nic) for nic in (*flows.src, *flows.dst)})
    share = {host: float(np.mean([row in late for row in np.flatnonzero(flows.touching(host))]))
             for host in hosts if flows.touching(host).sum() >= 2}  # fmt: skip
    found = {}
    left = set(late)
    for host in sorted(share, key=lambda each: -share[each]):
        members = [int(row) for row in np.flatnonzero(flows.touching(host))]
        shown = [row for row in members if row in left]
        if share[host] < MOST or len(shown) < max(2, 0.5 * len(members)):
            continue
        left -= set(members)
        stretches = [late[row] for row in members if row in late]
        first = int(np.median([each.first for each in stretches]))
        last = int(np.median([each.last for each in stretches]))
        found[host] = (
            flows.grid.instant(first), flows.grid.instant(last + 1),
            float(np.median([each.share for each in stretches])),
            float(median(gap[members, first : last + 1])), float(low),
        )  # fmt: skip
    # Between hosts that are all short of CPU, gaps of pollers differ.
    found = {host: each for host, each in found.items() if each[3] > TIMES * each[4]}
    rest = ~np.any([flows.touching(host) for host in found], axis=0) if found else np.zeros(0, bool)
    for host, each in [*found.items()]:
        part = flows.during(each[0], each[1])
        if bad[rest, part].sum() > OFTEN * each[2] * np.isfinite(gap[rest, part]).sum():
            del found[host]  # they are away nearly as often elsewhere
    if len(found) > min(MOST_ALONE, max(1, len(hosts) // 3)):
        return {}  # all are equally short of CPU: no host stands out
    return found


def _all_starved(facts: BundleFacts) -> bool:
    """Whether threads wait for a core on most hosts. Gaps of pollers are then normal, and a host
    stands out only if its threads wait for longer than the others'."""
    if facts.hosts is None or not facts.hosts.table.rows:
        return False
    wait = _waits(facts.hosts)
    return bool(median(median(wait, axis=1)) > MIN_WAIT)


def _waits(hosts: DeviceTable) -> Floats:
    """Share of the time for which threads wait for a core, (hosts, windows)."""
    waits: Floats = hosts.column("runq_ns", "sum") / hosts.column("window_ns", "sum")
    return waits


def _delays(hosts: DeviceTable) -> Floats:
    """Time for which threads wait for a core, divided by the time for which they run, or by the
    window's length if the time for which they run is not recorded, (hosts, windows).

    Shares of the time cannot be compared: three times a third is all of it, and a rank for which
    the others wait is ready for a larger share. Per time that they run, threads wait for as long as
    others compete for their cores.
    """
    waits, runs = _waits(hosts), hosts.column("cpu_ns", "sum") / hosts.column("window_ns", "sum")
    if (np.isfinite(waits) & np.isnan(runs)).any():
        return waits
    delays: Floats = waits / np.maximum(runs, MIN_RUN)
    return delays


def _run_queues(facts: BundleFacts) -> dict[str, tuple[int, int, Episode, float, float]]:
    hosts = facts.hosts
    if hosts is None or not hosts.table.rows:
        return {}
    wait, delay = _waits(hosts), _delays(hosts)
    found = {}
    for row in range(len(hosts.names)):
        usual = median(np.delete(wait, row, axis=0), axis=0)
        others = median(np.delete(delay, row, axis=0), axis=0)
        with np.errstate(invalid="ignore"):
            bad = (delay[row] > TIMES * others) & (wait[row] > np.fmax(MIN_WAIT, LIKE * usual))
        stretch = episode(bad, np.isfinite(wait[row]))
        if stretch is not None and stretch.share >= 0.6:
            part = slice(stretch.first, stretch.last + 1)
            found[hosts.names[row]] = (
                hosts.grid.instant(stretch.first), hosts.grid.instant(stretch.last + 1), stretch,
                float(median(wait[row, part])), float(median(usual[part])),
            )  # fmt: skip
    return found


class _CoreWaits(NamedTuple):
    """Waits of a host's threads for a core in an interval, compared with those of other hosts."""

    own: float
    """Share of the interval for which they wait."""
    usual: float
    """The median of other hosts' shares."""
    ratio: float
    """Of its `_delays` to the median of other hosts'."""

    def exceed(self, times: float) -> bool:
        """Whether its delay is more than so many times the others', and its share larger than
        theirs: a thread that seldom runs waits for little of the time."""
        return self.own > max(MIN_WAIT, LIKE * self.usual) and self.ratio > times


def _core_waits(facts: BundleFacts, host: str, begin_ns: int, last_ns: int) -> _CoreWaits | None:
    """Those of a host in an interval; None: unknown."""
    if facts.hosts is None or host not in facts.hosts.index:
        return None
    part, place = facts.hosts.during(begin_ns, last_ns), facts.hosts.index[host]
    waits, delays = (median(each(facts.hosts)[:, part], axis=1) for each in (_waits, _delays))
    own, usual, delay, others = (
        float(each)
        for known in (waits, delays) for each in (known[place], median(np.delete(known, place)))
    )  # fmt: skip
    if not np.isfinite([own, usual, delay, others]).all():
        return None
    return _CoreWaits(own, usual, delay / max(others, 1e-9))


def is_short(facts: BundleFacts, host: str, begin_ns: int, last_ns: int) -> bool:
    """Whether a host's threads waited for a core then, unlike those of others, for however short a
    time."""
    waits = _core_waits(facts, host, begin_ns, last_ns)
    return waits is not None and waits.exceed(TIMES)


def weighed(facts: BundleFacts, host: str, begin_ns: int, last_ns: int) -> Alternative:
    """Whether this host's CPU may explain what lasted from `begin_ns` to `last_ns`."""
    waits = _core_waits(facts, host, begin_ns, last_ns)
    if waits is None:
        return weigh(FaultClass.HOST_JITTER, None, "", "its host's run queues at that time")
    text = (f"its host's threads wait for a core {waits.own:.0%} of the time, elsewhere"
            f" {waits.usual:.0%}")  # fmt: skip
    return weigh(FaultClass.HOST_JITTER, not waits.exceed(LIKE), text)


def _judge(
    facts: BundleFacts,
    host: str,
    gap: tuple[int, int, float, float, float] | None,
    queue: tuple[int, int, Episode, float, float] | None,
) -> RuleFinding | None:
    behind = frozenset(rank for rank in facts.ranks_on(host)
                       if facts.ranks is not None and rank in facts.ranks.slow)  # fmt: skip
    flows = facts.flows
    touching = frozenset() if flows is None else frozenset(
        int(each) for each in np.flatnonzero(flows.touching(host)))  # fmt: skip
    late = frozenset() if flows is None else touching & flows.late.keys()
    if gap is None and not (behind or late):
        return None  # a busy host that delays nothing
    begin_ns = min(each[0] for each in (gap, queue) if each is not None)
    last_ns = max(each[1] for each in (gap, queue) if each is not None)
    evidence = []
    if gap is not None:
        begin_ns, last_ns = gap[:2]
        evidence.append(Evidence("poll_gap_ns", "pollers of all its flows are away for"
                                 f" {format_ns(gap[3])}, elsewhere {format_ns(gap[4])}", gap[3],
                                 gap[4]))  # fmt: skip
    if queue is not None:
        text = f"its threads wait for a core {queue[3]:.0%} of the time, elsewhere {queue[4]:.1%}"
        evidence.append(Evidence("runq_ns", text, queue[3], queue[4]))
    if behind:
        evidence.append(Evidence("enqueue_ns", f"{len(behind)} of its ranks come late"))
    probes = _probes_normal(facts, host, begin_ns, last_ns)
    shown = gap[2] if gap is not None else queue[2].share if queue is not None else 0.0
    return RuleFinding(
        fault=FaultClass.HOST_JITTER, subjects=(host,), onset_ns=begin_ns, last_ns=last_ns,
        confidence=confidence(shown, None if queue is None else True, probes),
        evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.CONTENTION, probes, "probes to and from its NICs do not wait"
                  if probes else "probes to and from its NICs wait as well", "probes"),
            weigh(FaultClass.SLOW_FLOW, True, "it is all of its flows"),
            weigh(FaultClass.GPU_THROTTLE, True, "no GPU keeps its pollers and threads waiting"),
        ),
        action=ACTION, flows=touching if gap is not None else late,
        ranks=facts.ranks_on(host), hosts=frozenset({host}),
    )  # fmt: skip


def _probes_normal(facts: BundleFacts, host: str, begin_ns: int, last_ns: int) -> bool | None:
    probes = facts.probes
    if probes is None:
        return None
    rise = probes.risen(probes.touching([host]), begin_ns, last_ns)
    return None if rise is None else rise < 2.0
