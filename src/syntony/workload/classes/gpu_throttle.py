"""GPU throttle or ECC: a rank is behind, and its GPU reports the reason."""

from __future__ import annotations

import numpy as np

from syntony.workload.classes._weigh import weigh
from syntony.workload.classes.straggler import explained_by_work, lag
from syntony.workload.device_tables import GpuTable
from syntony.workload.facts import BundleFacts
from syntony.workload.grid import median_of
from syntony.workload.ranks import SlowRank
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

LOWER = 0.93
"""Ratio of the SM clock to the other GPUs' below which it is held back: boost differs by a few per
cent."""
BENIGN = frozenset(
    {"", "none", "gpu_idle", "applications_clocks_setting", "sw_power_cap", "sync_boost",
     "display_clock_setting"})  # fmt: skip
"""Reasons that do not slow a GPU by themselves; its clock decides then."""
ACTION = (
    "drain the GPU; check cooling and power; with Xid or ECC errors reset it, and return it if they"
    " come back"
)


def find(facts: BundleFacts) -> list[RuleFinding]:
    """GPUs of ranks that are behind."""
    ranks, gpus = facts.ranks, facts.gpus
    if ranks is None or gpus is None or not gpus.table.rows:
        return []
    found = []
    for slow in facts.late_ranks.values():
        gpu = ranks.gpu.get(slow.rank, "")
        evidence = _reported(gpus, gpu, slow) if gpu in gpus.index else []
        if evidence:
            found.append(_finding(facts, gpu, slow, evidence))
    return found


def _reported(gpus: GpuTable, gpu: str, slow: SlowRank) -> list[Evidence]:
    """What the device reports while its rank is behind and others' devices do not."""
    part, row = gpus.during(slow.begin_ns, slow.last_ns), gpus.index[gpu]
    evidence = []
    clock = gpus.column("sm_clock_mhz")
    others = np.delete(clock, row, axis=0)[:, part]
    own, usual = median_of(clock[row, part]), median_of(others)
    if own < LOWER * usual:
        evidence.append(Evidence("sm_clock_mhz", f"SM clock {own:.0f} MHz, the others' {usual:.0f}",
                                 own, usual))  # fmt: skip
    for name, text in (
        ("xid", "Xid {:.0f}"),
        ("ecc_errors", "{:.0f} ECC errors a window"),
        ("nvlink_errors", "{:.0f} NVLink errors a window"),
    ):
        values = gpus.column(name, "max")
        if _shown(values[row, part]) >= 0.3 and np.nanmedian(
            np.nan_to_num(np.delete(values, row, axis=0)[:, part])) == 0:  # fmt: skip
            top = float(np.nanmax(values[row, part]))
            evidence.append(Evidence(name, text.format(top), top, 0.0))
    evidence += _reasons(gpus, gpu, slow)
    return evidence


def _reasons(gpus: GpuTable, gpu: str, slow: SlowRank) -> list[Evidence]:
    table, codes = gpus.table, gpus.table.codes("throttle")
    at_ns = table.ints("at_ns")
    mine = table.codes("gpu").codes == gpus.index[gpu]
    during = mine & (at_ns >= slow.begin_ns - gpus.grid.width_ns) & (at_ns <= slow.last_ns)
    reported = [str(codes.at(int(row)) or "") for row in np.flatnonzero(during)]
    bad = [harmful for each in reported if (harmful := _harmful(each))]
    if not reported or len(bad) < 0.5 * len(reported):
        return []
    return [Evidence("throttle", f"throttled: {max(set(bad), key=bad.count)}")]


def _harmful(reasons: str) -> str:
    """Those reasons of a comma-separated list that slow a GPU by themselves."""
    named = (each.strip() for each in reasons.split(","))
    return ", ".join(each for each in named if each.lower() not in BENIGN)


def _shown(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float((np.nan_to_num(values) > 0).mean()) if len(values) else 0.0


def _finding(facts: BundleFacts, gpu: str, slow: SlowRank, evidence: list[Evidence]) -> RuleFinding:
    assert facts.ranks is not None  # noqa: S101 - a slow rank
    work = explained_by_work(facts, slow)
    return RuleFinding(
        fault=FaultClass.GPU_THROTTLE, subjects=(gpu,), onset_ns=slow.begin_ns,
        last_ns=slow.last_ns, confidence=confidence(slow.share, not work),
        evidence=(lag(slow), *evidence),
        alternatives=(
            weigh(FaultClass.STRAGGLER, True, "the device explains why rank"
                  f" {slow.rank} is behind"),
            weigh(FaultClass.HOST_JITTER, True, "no lack of CPU shows at the device"),
        ),
        action=ACTION, ranks=frozenset({slow.rank}),
        hosts=frozenset({facts.ranks.host.get(slow.rank, "")}),
    )  # fmt: skip
