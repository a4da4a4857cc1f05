"""PCIe downgrade: a slot has fewer or slower lanes than possible.

For a NIC, all its flows are affected in both directions; for a GPU, its rank is behind.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from syntony.model.names import host_of
from syntony.workload.bundle import Floats
from syntony.workload.classes._weigh import weigh
from syntony.workload.classes.straggler import lag
from syntony.workload.device_tables import DeviceTable
from syntony.workload.facts import BundleFacts
from syntony.workload.flows import SLOW_RATE, Flows
from syntony.workload.grid import Flags, episodes, median
from syntony.workload.ranks import SlowRank
from syntony.workload.verdict import Evidence, FaultClass, RuleFinding, confidence

LOW = 0.9
"""Share of the bandwidth that a slot could have."""
LONG_FLUSH = 2.5
"""Ratio of the flush wait of the NIC's ranks to that of their peers."""
ACTION = (
    "reseat the card, check slot and riser, then `lspci -vv` (LnkSta against LnkCap) after a boot"
)


def find(facts: BundleFacts) -> list[RuleFinding]:
    """NICs and GPUs whose slot is slower than they, or their siblings, allow."""
    return [*_nics(facts), *_gpus(facts)]


def _nics(facts: BundleFacts) -> list[RuleFinding]:
    links = facts.links
    if links is None:
        return []
    speed, limit = _bandwidth(links)
    siblings = median(speed, axis=0)
    with np.errstate(invalid="ignore"):
        best = np.fmin(limit, siblings) if np.isfinite(limit).any() else siblings + 0 * speed
        low = speed < LOW * best
    found = []
    for row, stretch in episodes(low, np.isfinite(speed)).items():
        span = links.grid.instant(stretch.first), links.grid.instant(stretch.last + 1)
        part = slice(stretch.first, stretch.last + 1)
        share = float(
            median(speed[row, part]) / median(np.broadcast_to(best, speed.shape)[row, part])
        )
        finding = _judge(facts, links.names[row], span, share, stretch.share)
        if finding is not None:
            found.append(finding)
    return found


def _gpus(facts: BundleFacts) -> list[RuleFinding]:
    """GPUs of ranks that are behind. A GPU's lanes are slower while it is idle: their maximum
    counts."""
    ranks, gpus = facts.ranks, facts.gpus
    if ranks is None or gpus is None or not gpus.table.rows:
        return []
    speed, most = _bandwidth(gpus)
    limit = _most(most)
    found = []
    for slow in facts.late_ranks.values():
        gpu = ranks.gpu.get(slow.rank, "")
        row = gpus.index.get(gpu)
        if row is None:
            continue
        reached = _most(speed[:, gpus.during(slow.begin_ns, slow.last_ns)])
        best = np.fmin(limit[row], median(np.delete(reached, row)))
        if reached[row] < LOW * best:
            found.append(_gpu_finding(gpu, slow, float(reached[row] / best), ranks.host))
    return found


def _gpu_finding(gpu: str, slow: SlowRank, share: float, host: Mapping[int, str]) -> RuleFinding:
    return RuleFinding(
        fault=FaultClass.PCIE, subjects=(gpu,), onset_ns=slow.begin_ns, last_ns=slow.last_ns,
        confidence=confidence(slow.share, True),
        evidence=(_slot(share), lag(slow)),
        alternatives=(weigh(FaultClass.STRAGGLER, True, "its slot explains why rank"
                            f" {slow.rank} is behind"),),
        action=ACTION, ranks=frozenset({slow.rank}),
        hosts=frozenset({host.get(slow.rank, "")}),
    )  # fmt: skip


def _most(values: Floats) -> Floats:
    """Maximum of each row; NaN where nothing is known."""
    known = np.where(np.isfinite(values), values, -np.inf).max(axis=1, initial=-np.inf)
    most: Floats = np.where(known > -np.inf, known, np.nan)
    return most


def _slot(share: float) -> Evidence:
    return Evidence("pcie_gts, pcie_width", f"its slot runs at {share:.0%} of what it could",
                    share, 1.0)  # fmt: skip


def _bandwidth(devices: DeviceTable) -> tuple[Floats, Floats]:
    """Lanes times GT/s, or one of them if only that was recorded: now, and the maximum of slot and
    card, as far as the same value is known. (things, windows)."""
    now: Floats = np.full((len(devices.names), max(1, devices.grid.windows)), np.nan)
    limit = now.copy()
    for name in ("gts", "width"):
        own, most = devices.column(f"pcie_{name}"), devices.column(f"pcie_max_{name}")
        known, first = np.isfinite(own), np.isnan(now)
        limit = np.where(known, np.where(first, most, limit * most), limit)
        now = np.where(known, np.where(first, own, now * own), now)
    return now, limit


def _judge(
    facts: BundleFacts, nic: str, span: tuple[int, int], share: float, shown: float
) -> RuleFinding | None:
    flows, ranks = facts.flows, facts.ranks
    touching = frozenset() if flows is None else frozenset(
        int(each) for each in np.flatnonzero(flows.touching(nic)))  # fmt: skip
    slow_out = slow_in = None
    if flows is not None and touching:
        slow_out = _slow(flows, flows.leaving(nic), nic, span)
        slow_in = _slow(flows, flows.entering(nic), nic, span)
    flush = None
    if ranks is not None and flows is not None:
        own = {int(each) for each in flows.rank[flows.leaving(nic)] if np.isfinite(each)}
        ratios = [ranks.ratio_of_wait("flush_wait_ns", rank, *span) for rank in own]
        known = [each for each in ratios if each is not None]
        flush = max(known) if known else None
    long_flush = None if flush is None else flush > LONG_FLUSH
    both = None if slow_in is None or slow_out is None else slow_in and slow_out
    if not long_flush and not both:
        return None
    port = _port_speed(facts, nic, span)
    evidence = [_slot(share)]
    if long_flush and flush is not None:
        evidence.append(Evidence("flush_wait_ns", f"flushes take {flush:.1f} times its peers'",
                                 flush, 1.0))  # fmt: skip
    if both:
        evidence.append(Evidence("rate_bps", "its flows are slow both ways"))
    return RuleFinding(
        fault=FaultClass.PCIE, subjects=(nic,), onset_ns=span[0], last_ns=span[1],
        confidence=confidence(shown, long_flush, both), evidence=tuple(evidence),
        alternatives=(
            weigh(FaultClass.CONTENTION, both, "both directions are slow, not one" if both else
                  "its flows are not slow both ways", "rate_bps"),
            weigh(FaultClass.FLAPPING, port, "the port itself has its speed" if port else
                  "the port itself is slower than it should be", "speed_bps"),
        ),
        action=ACTION, flows=touching, hosts=frozenset({host_of(nic)}),
    )  # fmt: skip


def _port_speed(facts: BundleFacts, nic: str, span: tuple[int, int]) -> bool | None:
    """Whether the port runs at its nominal speed; None if not recorded."""
    links = facts.links
    assert links is not None  # noqa: S101 - a slot of one
    nominal = links.column("nominal_bps")
    part = links.column("speed_bps") / np.where(nominal > 0, nominal, np.nan)
    share = links.level(part, nic, *span)
    return None if share is None else share > 0.95


def _slow(flows: Flows, members: Flags, nic: str, span: tuple[int, int]) -> bool | None:
    """Whether most of these flows are slower than similar ones, or, in a job of which all flows
    cross this NIC, than before; None if nothing was recorded."""
    grid = flows.grid
    first = max(0, (span[0] - grid.begin_ns) // grid.width_ns)
    part = slice(first, max(first + 1, (span[1] - grid.begin_ns) // grid.width_ns))
    if not members.any():
        return None
    others = ~flows.touching(nic)
    own_rate, usual = (float(median(flows.rate[rows][:, part])) for rows in (members, others))
    if not others.any():
        usual = float(median(flows.rate[members][:, :first]))
    if np.isnan(own_rate) or np.isnan(usual):
        return None
    return own_rate < SLOW_RATE * usual * 1.2
