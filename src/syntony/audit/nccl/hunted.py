"""Verdicts on the hosts that a search by halves found. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syntony.audit.checks.nccl import SlowHost
from syntony.audit.hunt import Blamed, HuntOutcome
from syntony.audit.nccl.diagnosis import MIN_NODES
from syntony.audit.result import Result, Status, Suspect


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
