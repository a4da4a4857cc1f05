"""Bandwidth floors, and the diagnosis of a pattern of good and low runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from syntony.audit.checks.nccl import SlowHost
from syntony.audit.hunt import Blamed, HuntOutcome
from syntony.audit.nccl.plan import Case
from syntony.audit.result import Result, Status, Suspect

LOW_SHARE = 0.9
"""Without a floor, a case is low below this share of the best case."""
SPREAD = 0.05
"""Of several runs of a case: (largest − smallest) / median. superbench's variance rule."""
TAIL = 1.2
"""p99 over p50 of the iterations: a straggling flow."""
MIN_NODES = 4
"""Two nodes take a special path (NVLSTree: 487 GB/s on two nodes of H100, 369 on four)."""


class Floor(NamedTuple):
    """The least bus bandwidth of a large all-reduce that is healthy."""

    device: str
    """Part of the device's name."""
    nodes: int
    """From so many nodes on."""
    gbytes: float
    source: str


FLOORS = (
    Floor("A100", 1, 228.0, "Azure node health checks, 8 GPUs"),
    Floor("A100", 2, 185.0, "OCI node checks, 2 nodes"),
    Floor("H100", 1, 460.0, "Azure node health checks, 8 GPUs"),
    Floor("H100", 2, 440.0, "OCI node checks, 2 nodes"),
    Floor("H100", 4, 340.0, "85 % of 8 × 400 Gb/s; 369 GB/s published for 4 nodes"),
    Floor("H200", 1, 431.0, "Azure node health checks, 8 GPUs"),
    Floor("H200", 2, 440.0, "OCI node checks, 2 nodes"),
    Floor("H200", 4, 340.0, "85 % of 8 × 400 Gb/s"),
    Floor("B200", 1, 800.0, "95 % of the 840 GB/s published for 8 GPUs"),
    Floor("B200", 2, 440.0, "OCI node checks, 2 nodes"),
    Floor("B200", 4, 340.0, "85 % of 8 × 400 Gb/s"),
    Floor("MI300X", 2, 350.0, "OCI node checks, 2 nodes"),
    Floor("MI300X", 4, 340.0, "85 % of 8 × 400 Gb/s"),
)
"""For nodes with eight GPUs and, beyond one node, eight 400 Gb/s NICs (A100: 16 of 100 Gb/s or 8 of
200). `--floor` is for all others."""


def floor_of(device: str, nodes: int) -> Floor | None:
    """The floor for this device and number of nodes; None if none is known."""
    known = [f for f in FLOORS if f.device in device and f.nodes <= nodes]
    best = max(known, key=lambda floor: floor.nodes, default=None)
    return None if best is None or (best.nodes == 1 and nodes > 1) else best


class CaseFigures(msgspec.Struct, frozen=True):
    """Results of the runs of one case."""

    busbw: float
    """Median of the runs, GB/s."""
    spread: float = 0.0


class NcclFinding(msgspec.Struct, frozen=True):
    """What a pattern means."""

    says: str
    suspect: Suspect
    remedy: str


def low_cases(seen: dict[Case, CaseFigures], floor: float | None) -> frozenset[Case]:
    """Cases below the floor or, without one, well below the best."""
    best = max((each.busbw for each in seen.values()), default=0.0)
    limit = LOW_SHARE * best if floor is None else floor
    return frozenset(case for case, each in seen.items() if each.busbw < limit)


class _Pattern(NamedTuple):
    """Numbers of queue pairs that were run and that are low, in either order."""

    flat: frozenset[int]
    hier: frozenset[int]
    low_flat: frozenset[int]
    low_hier: frozenset[int]
    sockets: bool
    direct: bool | None

    @property
    def all_low(self) -> bool:
        return self.low_flat == self.flat and self.low_hier == self.hier

    @property
    def only_few(self) -> bool:
        """The fewest queue pairs are low, the most are not."""
        low, qps = self.low_flat | self.low_hier, self.flat | self.hier
        return min(qps) in low and max(qps) not in low


class _Rule(NamedTuple):
    applies: Callable[[_Pattern], bool]
    verdict: NcclFinding


_MATRIX = (
    _Rule(
        lambda seen: seen.sockets,
        NcclFinding(
            "NCCL went over TCP sockets, not over RDMA",
            Suspect.CONFIG,
            "see why NET/IB found no device: NCCL_IB_DISABLE, NCCL_IB_HCA, drivers, GIDs",
        ),
    ),
    _Rule(
        lambda seen: seen.all_low and seen.direct is False,
        NcclFinding(
            "every case is low and no channel uses GPUDirect RDMA",
            Suspect.HOST,
            "load nvidia_peermem or use dma-buf; look at PCIe ACS and IOMMU (pcie.acs)",
        ),
    ),
    _Rule(
        lambda seen: seen.all_low,
        NcclFinding(
            "every case is low, in both orders: a host, its NICs, PCIe or a leaf",
            Suspect.HOST,
            "halve the fleet to find the host (--hunt); look at be.act.* and pcie.link there",
        ),
    ),
    _Rule(
        lambda seen: bool(seen.hier) and seen.low_flat == seen.flat and not seen.low_hier,
        NcclFinding(
            "flat order is low, hierarchy order is not: links between leaves and spines",
            Suspect.FABRIC,
            "look at be.topo.uplinks, at adaptive routing, and at switch counters",
        ),
    ),
    _Rule(
        lambda seen: seen.only_few,
        NcclFinding(
            "few queue pairs are low, more are not: flows collide on few paths (ECMP entropy)",
            Suspect.FABRIC,
            "raise NCCL_IB_QPS_PER_CONNECTION, use adaptive routing, or place flows",
        ),
    ),
    _Rule(
        lambda seen: bool(seen.low_hier) and not seen.low_flat,
        NcclFinding(
            "hierarchy order is low, flat order is not: the order is not the cabling's, "
            "or a leaf is slow",
            Suspect.SWITCH,
            "compare the order with be.topo.hier; look at the leaves' counters",
        ),
    ),
    _Rule(
        lambda _: True,
        NcclFinding(
            "some cases are low, in no known pattern",
            Suspect.FABRIC,
            "run again; hunt the host (--hunt); compare with one-way delays (probe matrix)",
        ),
    ),
)
"""The diagnosis matrix: the first rule that applies."""


def diagnose(
    cases: frozenset[Case],
    low: frozenset[Case],
    *,
    sockets: bool = False,
    direct: bool | None = None,
) -> NcclFinding | None:
    """Diagnose what the low cases have in common and the good ones do not.

    Args:
        cases: all that were run.
        low: those of them that are low.
        sockets: NCCL's log says that it used TCP.
        direct: whether the NICs reached GPU memory directly; None if the log does not say.

    Returns:
        None if nothing is low.
    """
    if not low:
        return None
    flat, hier, low_flat, low_hier = (
        frozenset(case.qps for case in which if case.ordered is ordered)
        for which in (cases, low)
        for ordered in (False, True)
    )
    seen = _Pattern(flat, hier, low_flat, low_hier, sockets, direct)
    return next(rule.verdict for rule in _MATRIX if rule.applies(seen))


def least_hosts(hosts: int) -> int:
    """Of a test within a fleet of so many: four where half of the fleet can lend them."""
    return MIN_NODES if hosts >= 2 * MIN_NODES else 2


def verdicts(named: Iterable[Blamed], rounds: int) -> Iterator[Result]:
    """A row for each host or set of hosts that is to blame."""
    check = SlowHost()
    for each in named:
        said = f"{rounds} rounds of halving"
        if each.blame is HuntOutcome.HOST:
            good = ", ".join(each.against)
            yield check.result(
                Status.FAIL, each.hosts[0], "low with every partner", "as the others",
                f"{said}; with {good}, which are good without it",
            )  # fmt: skip
        elif each.blame is HuntOutcome.PAIR:
            yield check.result(
                Status.FAIL, f"{each.hosts[0]}..{each.hosts[-1]}", "low together, good apart",
                "as the halves", f"{said}: {len(each.hosts)} hosts", suspect=Suspect.FABRIC,
                meaning="what is between the two halves: their leaves' uplinks, or a spine",
                remedy="look at be.topo.uplinks and the one-way delays between the halves",
            )  # fmt: skip
        else:
            yield check.result(
                Status.UNKNOWN, ", ".join(each.hosts[:8]),
                evidence=f"{said}: it could not be tested with anybody known to be good",
            )  # fmt: skip
