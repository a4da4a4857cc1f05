"""From a bundle to verdicts: runs every rule, then separates causes from symptoms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from syntony.model import HOUR_NS
from syntony.workload.bundle import Bundle, Gap
from syntony.workload.classes import EXPLAINS, QUEUES, RULES, _changed_link
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import SLOW_RATE
from syntony.workload.verdict import (
    ALIKE,
    ECHO,
    MOST_ALONE,
    Alternative,
    BlastRadius,
    Evidence,
    FaultClass,
    RuleFinding,
    Verdict,
)

OVERLAP = 0.5
"""Share of a finding's flows or ranks that a cause must affect to explain it."""
TIE = 0.05
"""Findings of two classes of the same flows or ranks whose confidences differ by less are
undetermined."""


SHARED = frozenset({FaultClass.INCAST, FaultClass.CONTENTION})
MIN_CONFIDENCE = 0.5
"""A finding with less confidence is a note, not a verdict."""


class Diagnosis(NamedTuple):
    """Verdicts, with the highest confidence first, and what could not be examined."""

    verdicts: tuple[Verdict, ...]
    gaps: tuple[Gap, ...]
    ended: str = ""
    """How the job ended, if that is no fault."""
    over: bool = False
    """Whether all its ranks have ended."""
    orderly: bool = False
    """… by themselves, without an error."""
    waits: tuple[Verdict, ...] = ()
    """Waits of which it is undetermined whether they are hangs: no verdicts, since the job may be
    well."""


def diagnose(bundle: Bundle) -> Diagnosis:
    """Diagnose a bundle. The same bundle gives the same verdicts."""
    facts = BundleFacts(bundle)
    found = _distinct(each for rule in RULES.values() for each in rule(facts))
    causes, follows = _causes(found)
    causes, usual = _exceptions(_ties(causes), facts.early_ns)
    known = [each for each in causes
             if each.fault is not FaultClass.CLOCK_FAULT and not _is_note(each)]  # fmt: skip
    if _changed_link.beside(known):
        changed = _changed_link.find(facts, known)
        causes = _distinct([
            *(each for each in causes
              if not any(_changed_link.replaces(link, each) for link in changed)),
            *changed,
        ])  # fmt: skip
    facts.gaps += usual
    facts.gaps += [_doubtful(each) for each in causes if each.confidence < MIN_CONFIDENCE]
    causes = [each for each in causes if not _is_note(each)]
    verdicts = [_verdict(facts, cause, follows.get(id(cause), ())) for cause in causes]
    verdicts.sort(key=lambda each: (-each.confidence, each.onset_ns, each.subjects))
    over = facts.processes is not None and facts.processes.all_ended
    orderly = facts.processes is not None and facts.processes.orderly
    waits = tuple(_verdict(facts, each, ()) for each in _distinct(facts.waits))
    return Diagnosis(tuple(verdicts), tuple(facts.gaps), facts.ended, over, orderly, waits)


def _distinct(found: Iterable[RuleFinding]) -> list[RuleFinding]:
    """One finding for each class and subject, of direct ones that with the highest confidence, else
    of all: a dead rank stops many communicators."""
    best: dict[tuple[FaultClass, tuple[str, ...]], RuleFinding] = {}
    for each in found:
        known = best.setdefault((each.fault, each.subjects), each)
        if (each.direct, each.confidence) > (known.direct, known.confidence):
            best[each.fault, each.subjects] = each
    return list(best.values())


def _is_note(finding: RuleFinding) -> bool:
    """Whether its evidence is too little for a verdict."""
    return finding.confidence < MIN_CONFIDENCE and finding.fault is not FaultClass.UNDETERMINED


def _doubtful(finding: RuleFinding) -> Gap:
    text = f"too little evidence for {finding.fault} {', '.join(finding.subjects[:3])}"
    return Gap("", f"{text}: {finding.evidence[0].text} (confidence {finding.confidence:.2f})")


def _causes(found: list[RuleFinding]) -> tuple[list[RuleFinding], dict[int, tuple[str, ...]]]:
    """Findings that no other explains, and what each explains."""
    causes: list[RuleFinding] = []
    follows: dict[int, tuple[str, ...]] = {}
    queues = [each for each in found if each.fault in QUEUES and each.confidence >= MIN_CONFIDENCE]
    worst = _worst(queues)
    order = {
        id(each): (_kept_waiting(each), each is not worst and each.fault in QUEUES,
                   _keeps_pace(each)) for each in found
    }  # fmt: skip
    found = sorted(found, key=lambda each: order[id(each)])
    root = worst
    """The finding that explains the worst queue also explains its echoes."""
    for each in found:
        cause = next((one for one in causes if _explains(one, each) or (
            one is root and worst is not None and _echoes(worst, each))
            or _starves(one, each)), None)  # fmt: skip
        if each is worst and cause is not None:
            root = cause
        if cause is None:
            causes.append(each)
        else:
            text = f"{each.fault} {', '.join(each.subjects[:3])}"
            follows[id(cause)] = (*follows.get(id(cause), ()), text)
    return causes, follows


def _worst(queues: list[RuleFinding]) -> RuleFinding | None:
    """The queue of which others are echoes: that with the longest delays, unless flows that do not
    cross it wait further down, for one receiver. Congestion spreads against the traffic, from a
    full link to those that feed it; the traffic out of a full link cannot overfill the next one."""
    worst = max(queues, key=lambda each: each.excess_ns, default=None)
    if worst is None or worst.fault is not FaultClass.CONTENTION:
        return worst
    below = [
        each for each in queues
        if each.fault is FaultClass.INCAST and _overlap(each, worst) >= OVERLAP
        and each.flows - worst.flows and each.excess_ns >= ECHO * worst.excess_ns
    ]  # fmt: skip
    return max(below, key=lambda each: each.excess_ns, default=worst)


def _echoes(worst: RuleFinding, other: RuleFinding) -> bool:
    """Whether a queue is the effect of a far worse one on the same job's traffic."""
    together = other.onset_ns <= worst.last_ns and worst.onset_ns <= other.last_ns
    return other.fault in QUEUES and together and other.excess_ns < ECHO * worst.excess_ns


def _kept_waiting(finding: RuleFinding) -> bool:
    """Whether it is a flow with only a low rate: its packets, once sent, do not wait."""
    return finding.fault is FaultClass.SLOW_FLOW and finding.excess_ns <= 0


def _starves(cause: RuleFinding, other: RuleFinding) -> bool:
    """Whether a flow has less to send because another cause holds up its ring or tree, or is
    delayed by the resulting bursts without being slower."""
    together = other.onset_ns <= cause.last_ns and cause.onset_ns <= other.last_ns
    if not together or _kept_waiting(cause) or cause.confidence < MIN_CONFIDENCE:
        return False
    holds_up = cause.fault not in QUEUES | {FaultClass.CLOCK_FAULT}
    return _kept_waiting(other) or (holds_up and _keeps_pace(other))


def _keeps_pace(finding: RuleFinding) -> bool:
    """Whether it is a flow that is delayed but not slower than others, as far as known, so that a
    queue may delay it."""
    rates = [each for each in finding.evidence if each.signal == "rate_bps"]
    slower = any((each.value or 0.0) < SLOW_RATE * (each.baseline or 0.0) for each in rates)
    return finding.fault is FaultClass.SLOW_FLOW and not slower and not finding.direct


def _exceptions(causes: list[RuleFinding], early_ns: int) -> tuple[list[RuleFinding], list[Gap]]:
    """Findings without links at which flows have always waited, if they began to wait at others: a
    job's placement does not change. Without any if there are so many that none is an exception. A
    link that is known to have filled up does not need to stand out by delays."""
    shared = [each for each in causes if each.fault in SHARED and not each.direct
              and each.confidence >= MIN_CONFIDENCE]  # fmt: skip
    changed = [each for each in shared if each.onset_ns > early_ns]
    longest = max((each.excess_ns for each in changed), default=-1.0)
    kept = [each for each in shared if each in changed or each.excess_ns > longest]
    longest = max((each.excess_ns for each in kept), default=0.0)
    alike = [each for each in causes if each.fault in SHARED and each.excess_ns >= ALIKE * longest
             and (not changed or each.onset_ns > early_ns)]  # fmt: skip
    if max(len(kept), len(alike)) > MOST_ALONE:
        kept = []
    if len(kept) == len(shared):
        return causes, []
    others = len(shared) - len(kept)
    reason = f"flows wait at {others} links alike: none stands out"
    gap = Gap("flows", reason, "whether these are the cause, or the placement of the job")
    return [each for each in causes if each not in shared or each in kept], [gap]


def _explains(cause: RuleFinding, other: RuleFinding) -> bool:
    # A narrow queue overflows. Errors that a port counts have another cause.
    if other.fault is FaultClass.BAD_LINK and cause.fault is FaultClass.CLASS_MISMATCH:
        counted = any(each.signal == "symbol_errors" for each in other.evidence)
        return not counted and _overlap(cause, other) >= OVERLAP
    # A host that is short of CPU delays its other flows as well.
    if other.fault is FaultClass.SLOW_FLOW and cause.fault is FaultClass.HOST_JITTER and any(
        each.fault is cause.fault and each.excluded for each in other.alternatives
    ) and not _keeps_pace(other) and other.excess_ns > 0:  # fmt: skip
        return _overlap(other, cause) > OVERLAP
    return other.fault in EXPLAINS.get(cause.fault, ()) and _overlap(cause, other) >= OVERLAP


def _overlap(cause: RuleFinding, other: RuleFinding) -> float:
    """The share of the other's flows, else of its ranks, that the cause affects as well."""
    parts = [
        len(mine & theirs) / len(theirs)
        for mine, theirs in ((cause.flows, other.flows), (cause.ranks, other.ranks))
        if theirs
    ]
    return max(parts, default=0.0)


def _ties(causes: list[RuleFinding]) -> list[RuleFinding]:
    """Combine two classes with the same flows or ranks and equal confidence into one undetermined
    verdict."""
    left, result = list(causes), []
    while left:
        first = left.pop(0)
        rival = next((each for each in left if _tied(first, each)), None)
        if rival is None:
            result.append(first)
        else:
            left.remove(rival)
            result.append(_undetermined(first, rival))
    return result


def _tied(one: RuleFinding, other: RuleFinding) -> bool:
    if _excludes(one, other.fault) and _excludes(other, one.fault):
        return False  # two causes, each with evidence that the other does not produce
    same = min(_overlap(one, other), _overlap(other, one)) >= OVERLAP
    return one.fault != other.fault and same and abs(one.confidence - other.confidence) <= TIE


def _excludes(finding: RuleFinding, fault: FaultClass) -> bool:
    return any(each.fault is fault and each.excluded for each in finding.alternatives)


def _undetermined(one: RuleFinding, other: RuleFinding) -> RuleFinding:
    evidence: tuple[Evidence, ...] = (*one.evidence, *other.evidence)
    return msgspec.structs.replace(
        one, fault=FaultClass.UNDETERMINED,
        subjects=tuple(dict.fromkeys((*one.subjects, *other.subjects))),
        onset_ns=min(one.onset_ns, other.onset_ns), last_ns=max(one.last_ns, other.last_ns),
        confidence=round(min(one.confidence, other.confidence) / 2, 3), evidence=evidence,
        alternatives=tuple(
            Alternative(each.fault, excluded=False, reason=f"as likely: {each.evidence[0].text}")
            for each in (one, other)
        ) + one.alternatives,
        action=f"if {one.fault}: {one.action}; if {other.fault}: {other.action}",
        flows=one.flows | other.flows, ranks=one.ranks | other.ranks,
        hosts=one.hosts | other.hosts,
    )  # fmt: skip


def _verdict(facts: BundleFacts, finding: RuleFinding, follows: tuple[str, ...]) -> Verdict:
    """The finding, with its blast radius and whether it is over."""
    over = finding.last_ns < facts.end_ns - 0.15 * (facts.end_ns - facts.begin_ns)
    return Verdict(
        fault=finding.fault, subjects=finding.subjects, onset_ns=finding.onset_ns,
        end_ns=finding.last_ns if over else None, confidence=finding.confidence,
        evidence=finding.evidence, alternatives=finding.alternatives, action=finding.action,
        blast_radius=blast_radius(facts, finding), follows=follows,
    )  # fmt: skip


MIN_STEPS = 3
"""Minimum steps of a rank before the onset, and after it, for a comparison."""


def blast_radius(facts: BundleFacts, finding: RuleFinding) -> BlastRadius:
    """Jobs and ranks that wait for what the finding affects, and GPU time lost since its onset.

    A rank that shares a communicator with an affected one waits for it.
    """
    touched = finding.ranks | facts.ranks_of(finding.flows)
    waiting = _waiting(facts, touched)
    jobs = {facts.flows.jobs[each] for each in finding.flows} if facts.flows is not None else set()
    if facts.ranks is not None:
        jobs |= {comm.job for comm in facts.ranks.comms_of(touched)}
    slowdown, lost_ns = _cost(facts, finding, waiting)
    return BlastRadius(
        jobs=tuple(sorted(jobs - {""})) or ((facts.bundle.manifest.job,)
                                            if facts.bundle.manifest.job else ()),
        ranks=len(waiting), hosts=tuple(sorted(finding.hosts - {""})),
        gpu_hours=None if lost_ns is None else round(lost_ns / HOUR_NS, 6),
        slowdown=None if slowdown is None else round(slowdown, 3),
    )  # fmt: skip


def _waiting(facts: BundleFacts, touched: frozenset[int]) -> frozenset[int]:
    if facts.ranks is None or not touched:
        return touched
    members = {int(rank) for comm in facts.ranks.comms_of(touched) for rank in comm.ranks}
    return frozenset(members | touched)


def _cost(
    facts: BundleFacts, finding: RuleFinding, waiting: frozenset[int]
) -> tuple[float | None, float | None]:
    """Ratio of step time after to before, and time lost by all waiting ranks, in ns."""
    if finding.fault is FaultClass.HANG:
        return None, float(len(waiting) * max(0, facts.end_ns - finding.onset_ns))
    steps = facts.steps
    rank, begin, end = steps.ints("rank"), steps.ints("begin_ns"), steps.ints("end_ns")
    mine = np.isin(rank, list(waiting)) if waiting else np.ones(steps.rows, dtype=bool)
    length = (end - begin).astype(float)
    before, after = mine & (end <= finding.onset_ns), mine & (
        (begin >= finding.onset_ns) & (end <= finding.last_ns))  # fmt: skip
    members = max(1, len(np.unique(rank[mine]))) if mine.any() else 1
    if before.sum() < MIN_STEPS * members or after.sum() < MIN_STEPS * members:
        return None, None
    usual, now = float(np.median(length[before])), float(np.mean(length[after]))
    return now / max(usual, 1.0), max(0.0, float((length[after] - usual).sum()))
