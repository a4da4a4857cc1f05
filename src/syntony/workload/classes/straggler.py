"""Straggler GPU: a rank takes longer by itself than its peers, and neither its work nor its host
explains it."""

from __future__ import annotations

import numpy as np

from syntony.model import S, format_ns
from syntony.workload.classes import host_jitter
from syntony.workload.classes._weigh import weigh
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import median
from syntony.workload.late_stages import unequal_stages
from syntony.workload.processes import STATES
from syntony.workload.ranks import Ranks, SlowRank
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

WAITS_LONG = 1.5
"""Ratio of its proxy's wait for the GPU to its peers', from which the GPU is late."""
ALONE_NS = 5 * S
"""… and minimum time for which a rank is late whose proxy does not wait: its process comes late
itself, and one of many ranks does so for a second by chance."""
EXPLAINED = 0.5
"""Minimum share of its lag that its work leaves unexplained."""
WAITS_FOR_DATA = 0.5
"""Share of its lag that may be waiting for data."""
OFTEN_HELD = 0.3
"""Minimum share of readings of its process in a state in which it does nothing."""
ACTION = (
    "run the GPU's health checks (`syntony audit run --only node`) and replace the rank if it stays"
    " behind"
)


def find(facts: BundleFacts) -> list[RuleFinding]:
    """Ranks for which the others wait."""
    ranks = facts.ranks
    if ranks is None:
        return []
    found = [_finding(facts, ranks, slow) for slow in facts.late_ranks.values()
             if not slow.other_work and not explained_by_work(facts, slow)
             and not _waits_for_data(facts, slow)
             and not _computes_as_others(facts, slow)
             and not host_jitter.is_short(facts, ranks.host.get(slow.rank, ""), slow.begin_ns,
                                          slow.last_ns)
             and (not slow.brief or _gpu_is_late(ranks, slow))]  # fmt: skip
    if not found:
        facts.gaps += unequal_stages(ranks, facts.steps)
    # Without recorded ends, a rank may be late because the previous operation released it late,
    # like others.
    return found if "done_ns" in ranks.table or len(found) == 1 else []


def explained_by_work(facts: BundleFacts, slow: SlowRank) -> bool:
    """Whether its additional work explains the additional time (ResiHP)."""
    steps = facts.steps
    work = steps.numbers("work")
    if not np.isfinite(work).any():
        return False
    own, other = _during(facts, slow)
    more = float(median(work[own])) / max(float(median(work[other])), 1e-9) - 1
    longer = slow.excess_ns / max(slow.usual_ns, 1.0)
    return bool(np.isfinite(more)) and longer - more < EXPLAINED * longer


def _waits_for_data(facts: BundleFacts, slow: SlowRank) -> bool:
    """Whether the rank's lag comes from its own data loader."""
    data = facts.steps.numbers("data_ns")
    own, other = _during(facts, slow)
    more = float(median(data[own]) - median(data[other]))
    return bool(np.isfinite(more)) and more > WAITS_FOR_DATA * slow.excess_ns


def _computes_as_others(facts: BundleFacts, slow: SlowRank) -> bool:
    """Whether its steps show that it computes no longer than its peers."""
    compute = facts.steps.numbers("compute_ns")
    own, other = _during(facts, slow)
    more = float(median(compute[own]) - median(compute[other]))
    return bool(np.isfinite(more)) and more < EXPLAINED * slow.excess_ns


def _during(
    facts: BundleFacts, slow: SlowRank
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.bool_]], ...]:
    """Rows of steps in the rank's episode: its own, and those of its peers."""
    steps = facts.steps
    inside = (steps.ints("begin_ns") <= slow.last_ns) & (steps.ints("end_ns") >= slow.begin_ns)
    rank = steps.ints("rank")
    return inside & (rank == slow.rank), inside & np.isin(rank, [*slow.peers])


def _wait_for_gpu(ranks: Ranks, slow: SlowRank) -> float | None:
    """Ratio of its proxy's wait for the GPU to its peers'; None: not recorded."""
    return ranks.ratio_of_wait("gpu_wait_ns", slow.rank, slow.begin_ns, slow.last_ns)


def _gpu_is_late(ranks: Ranks, slow: SlowRank) -> bool | None:
    gpu = _wait_for_gpu(ranks, slow)
    return None if gpu is None else gpu > WAITS_LONG


def _is_held(facts: BundleFacts, slow: SlowRank) -> list[Evidence]:
    """States in which its process does nothing and is found much more often than its peers."""
    found: list[Evidence] = []
    processes = facts.processes
    if processes is None:
        return found
    for state, text in STATES.items():
        own, *others = (processes.share(rank, state, slow.begin_ns, slow.last_ns)
                        for rank in (slow.rank, *slow.peers))  # fmt: skip
        usual = float(np.median([each for each in others if each is not None] or [0.0]))
        if own is not None and own > max(OFTEN_HELD, 2 * usual):
            found.append(Evidence("state", f"in {own:.0%} of readings its process is {text},"
                                  f" others' in {usual:.0%}", own, usual))  # fmt: skip
    return found


def lag(slow: SlowRank) -> Evidence:
    """How far a rank is behind."""
    if not slow.peers:
        return Evidence(
            "enqueue_ns", f"in {slow.late} of {slow.operations} steps it computes"
            f" {format_ns(slow.excess_ns)} longer than its usual {format_ns(slow.usual_ns)}, and"
            " the other stages do not", slow.usual_ns + slow.excess_ns, slow.usual_ns)  # fmt: skip
    return Evidence(
        "enqueue_ns", f"in {slow.late} of {slow.operations} operations it comes"
        f" {format_ns(slow.excess_ns)} after its peers, which take {format_ns(slow.usual_ns)} by"
        " themselves", slow.usual_ns + slow.excess_ns,
        slow.usual_ns)  # fmt: skip


def _finding(facts: BundleFacts, ranks: Ranks, slow: SlowRank) -> RuleFinding:
    gpu, late = _wait_for_gpu(ranks, slow), _gpu_is_late(ranks, slow)
    alone = late is False and slow.last_ns - slow.begin_ns >= ALONE_NS
    evidence = [lag(slow)]
    if late and gpu is not None:
        evidence.append(Evidence("gpu_wait_ns", f"its proxy waits {gpu:.1f} times as long for the"
                                 " GPU as others", gpu, 1.0))  # fmt: skip
    evidence += _is_held(facts, slow)
    work = bool(np.isfinite(facts.steps.numbers("work")).any())
    devices = facts.gpus is not None and ranks.gpu.get(slow.rank, "") in facts.gpus.index
    return RuleFinding(
        fault=FaultClass.STRAGGLER, subjects=(f"rank {slow.rank}",), onset_ns=slow.begin_ns,
        last_ns=slow.last_ns, confidence=confidence(slow.share, None if alone else late),
        evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.GPU_THROTTLE, True if devices else None,
                  "its GPU's clock is its peers', and it reports no error", "GPUs"),
            host_jitter.weighed(facts, ranks.host.get(slow.rank, ""), slow.begin_ns, slow.last_ns),
            weigh(FaultClass.DATA_STALL, True if work else None,
                  "it has no more work than its peers, nor waits for data", "work"),
        ),
        action=ACTION, ranks=frozenset({slow.rank}),
        hosts=frozenset({ranks.host.get(slow.rank, "")}),
    )  # fmt: skip
