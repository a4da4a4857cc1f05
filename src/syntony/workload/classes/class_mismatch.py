"""RoCE version or class misconfigured: the job's packets wait, probes in another class do not."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from syntony.model import format_ns
from syntony.model.names import host_of
from syntony.workload.bundle import Floats
from syntony.workload.changed_links import known_mean, segments
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import median
from syntony.workload.probe_streams import ProbeStreams, TrafficClass, class_of, differ
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

RATIO = 5.0
"""Ratio of in-band to out-of-band delay for the same NICs, direction and time (taxonomy)."""
WAITS_AS_WELL = 0.4
"""Ratio of the delay of probes in the job's own class to that of its packets, from which they
wait as well."""
MOST = 0.8
"""Minimum share of a group's pairs that show it."""
CHANGED = 4.0
"""Minimum distance between the time since a class waits and the rest, in standard errors of its
mean: of one job's segments, of which fewer are tried than of all its links."""
ACTION = (
    "correct NCCL_IB_TC, NCCL_IB_SL, NCCL_IB_GID_INDEX or NCCL_IB_ROCE_VERSION_NUM of the job, or"
    " the switches' mapping of the class"
)


class _Pair(NamedTuple):
    """One direction between two NICs: delays in ns in band, out of band, of the slowest probes, and
    of probes in the job's own class; whether even the fastest of these wait while those of another
    class do not; that class, how the probes' class differs, flows."""

    in_band: float
    probed: float
    longest: float
    matched: float | None
    apart: bool
    kind: TrafficClass
    other: tuple[str, ...]
    flows: list[int]
    begin_ns: int
    last_ns: int
    """When that is."""

    @property
    def compared(self) -> bool:
        """Whether there are probes in another class."""
        return bool(self.other)

    @property
    def slow(self) -> bool:
        """Whether the job's packets wait and probes in another class do not, even those sent at the
        same time as the job's: otherwise the job's own bursts cause the queue. Such bursts delay
        probes of both classes, and only now and then."""
        waits = self.in_band > max(RATIO * self.probed, self.longest) or self.apart
        return waits and self.compared


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Jobs, or hosts of one, whose traffic class waits."""
    if facts.flows is None or facts.probes is None:
        return []
    by_job: dict[str, dict[tuple[str, str], _Pair]] = defaultdict(dict)
    for job, src, dst, pair in _pairs(facts):
        by_job[job][src, dst] = pair
    found = []
    for job, pairs in by_job.items():
        compared = [pair for pair in pairs.values() if pair.compared]
        slow = [pair for pair in compared if pair.slow]
        if not slow:
            continue
        most = len(compared) >= MOST * len(pairs)
        hosts = [] if most else _hosts(facts, pairs)
        if not hosts and len(slow) >= MOST * len(compared) and (
            len(compared) >= 2 or _confirmed(slow)
        ):  # fmt: skip
            found.append(_finding(facts, (job or facts.bundle.manifest.job,), slow, most or None))
            continue
        found += hosts or _hosts(facts, pairs)
    return found


def _hosts(facts: BundleFacts, pairs: dict[tuple[str, str], _Pair]) -> list[RuleFinding]:
    """Hosts with another class than most, and whose packets alone wait."""
    kinds = [pair.kind for pair in pairs.values()]
    usual = max(set(kinds), key=kinds.count)
    found = []
    for host in sorted({host_of(src) for src, _ in pairs}):
        own = [pair for (src, _), pair in pairs.items()
               if host_of(src) == host and pair.compared]  # fmt: skip
        slow = [pair for pair in own if pair.slow and pair.kind != usual]
        if slow and len(slow) >= MOST * len(own):
            found.append(_finding(facts, (host,), slow))
    return found


def _since(
    facts: BundleFacts, members: dict[tuple[str, str, str], list[int]]
) -> dict[tuple[str, TrafficClass], tuple[int, int]]:
    """When probes in a job's class began to need longer than those of another class between the
    same NICs, sent at the same time, by job and class: over all of its pairs, as a job's own bursts
    delay now these, now those."""
    flows, probes = facts.flows, facts.probes
    assert flows is not None  # noqa: S101 - asked before
    assert probes is not None  # noqa: S101 - asked before
    level = np.log(np.where(probes.delay > 0, probes.delay, np.nan))
    longer: dict[tuple[str, TrafficClass], list[Floats]] = defaultdict(list)
    for (job, src, dst), indices in members.items():
        kind = class_of(flows.table, int(flows.last_row[indices[0]]))
        same, other = _by_class(probes, src, dst, kind)
        if same and other:
            longer[job, kind].append(known_mean(level[same], 0) - known_mean(level[other], 0))
    found = {}
    for key, rows in longer.items():
        (score,), (first,), (end,) = segments(known_mean(np.array(rows), 0)[None, :])
        if score >= CHANGED:
            found[key] = probes.grid.instant(int(first)), probes.grid.instant(int(end))
    return found


def _by_class(
    probes: ProbeStreams, src: str, dst: str, kind: TrafficClass
) -> tuple[list[int], list[int]]:
    """The streams between two NICs: those of the class, and those of others."""
    streams = probes.streams.get((src, dst), [])
    other = [each for each in streams if differ(kind, probes.kind[each])]
    return [each for each in streams if each not in other], other


def _pairs(facts: BundleFacts) -> list[tuple[str, str, str, _Pair]]:
    """Each pair of NICs with flows and probes, over the time in which its flows are slowest."""
    flows, probes = facts.flows, facts.probes
    assert flows is not None  # noqa: S101 - asked before
    assert probes is not None  # noqa: S101 - asked before
    members: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, key in enumerate(zip(flows.jobs, flows.src, flows.dst, strict=True)):
        members[key].append(index)
    found, since, always = [], _since(facts, members), (facts.begin_ns, facts.end_ns)
    for (job, src, dst), indices in members.items():
        kind = class_of(flows.table, int(flows.last_row[indices[0]]))
        stretch = next((flows.late[each] for each in indices if each in flows.late), None)
        usual = always if stretch is None else facts.span(stretch)
        begin_ns, last_ns = since.get((job, kind), usual)
        part = flows.during(begin_ns, last_ns)
        in_band = float(median(flows.between_nics[indices][:, part]))
        same, other = _by_class(probes, src, dst, kind)
        probed = probes.level(other, begin_ns, last_ns) if other else None
        matched = probes.level(same, begin_ns, last_ns) if same else None
        if not np.isfinite(in_band):
            continue
        example = probes.kind[other[0]] if probed else kind
        longest = probes.longest(other, begin_ns, last_ns)
        own, theirs = (probes.fastest(each, begin_ns, last_ns) for each in (same, other))
        pair = _Pair(
            in_band, probed or in_band, longest, matched, own > RATIO * abs(theirs), kind,
            differ(kind, example), indices, begin_ns, last_ns,
        )  # fmt: skip
        found.append((job, src, dst, pair))
    return found


def _matched(slow: list[_Pair]) -> float:
    """Delay of probes in the job's own class, in ns; NaN if there are none."""
    matched = [pair.matched for pair in slow if pair.matched is not None]
    return float(np.median(matched)) if matched else float("nan")


def _confirmed(slow: list[_Pair]) -> bool | None:
    """Whether probes in the job's own class wait as well; None if there are none."""
    matched = _matched(slow)
    if np.isnan(matched):
        return None
    return matched > WAITS_AS_WELL * float(np.median([pair.in_band for pair in slow]))


def _finding(
    facts: BundleFacts, subjects: tuple[str, ...], slow: list[_Pair], most: bool | None = True
) -> RuleFinding:
    """`most`: most pairs could be compared; None: only some."""
    flows = facts.flows
    assert flows is not None  # noqa: S101 - slow pairs
    members = frozenset(each for pair in slow for each in pair.flows)
    late = members & flows.late.keys()
    begin_ns, last_ns, share = (
        facts.joint(late, flows.late) if late else
        (min(each.begin_ns for each in slow), max(each.last_ns for each in slow), 0.95)
    )  # fmt: skip
    kind = flows.delay_name(min(members), flows.late.get(min(members)))
    in_band = float(np.median([pair.in_band for pair in slow]))
    probed = float(np.median([pair.probed for pair in slow]))
    confirmed = _confirmed(slow)
    evidence = [
        Evidence("owd_p50_ns", f"in band {format_ns(in_band)} ({kind}), probes between the same"
                 f" NICs {format_ns(probed)}", in_band, probed),
        Evidence("tc, sl, dscp, gid_index, roce_version",
                 f"the job's packets: {'; '.join(slow[0].other)} of the probes"),
    ]  # fmt: skip
    if confirmed:
        evidence.append(Evidence("owd_p50_ns", "probes in the job's own class wait as well:"
                                 f" {format_ns(_matched(slow))}"))  # fmt: skip
    return RuleFinding(
        fault=FaultClass.CLASS_MISMATCH, subjects=subjects, onset_ns=begin_ns, last_ns=last_ns,
        confidence=confidence(share, confirmed, most), evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.HOST_JITTER, confirmed, "probes in the job's class are as slow"
                  if confirmed else "probes in the job's class are fast: look at the host",
                  "probes in the job's class"),
            weigh(FaultClass.CONTENTION, True, "it is all paths of the class, not those of a link"),
        ),
        action=ACTION, flows=members,
        hosts=frozenset(host_of(flows.src[each]) for each in members),
    )  # fmt: skip
