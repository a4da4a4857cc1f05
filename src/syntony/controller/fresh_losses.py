"""Losses that agents report before they become rows: the first sign of a fault, without a name.

Localisation names the fault when its second is complete. Until then it is known that packets are
lost, and between which NICs.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from syntony.mesh.fresh_losses import STEP_NS, second_of
from syntony.model import S
from syntony.model.findings import Finding
from syntony.model.names import host_of
from syntony.wire.fabric import Losing
from syntony.wire.probes import LossReport, PairLosses

_log = logging.getLogger(__name__)

KEPT_NS = 2 * S
"""Reports are used for so long."""
MIN_LOST, MIN_PATHS = 5, 3
"""At one NIC within `KEPT_NS`. At 2e-5 lost and 512 probes a second this happens to one of 131,072
NICs about once in a day."""
MAX_REPORTS = 256
"""Of one instant: enough to tell that packets are lost."""


class FreshLosses:
    """What agents have reported lately. All methods are called on the event loop."""

    def __init__(self) -> None:
        self._reports: dict[int, dict[str, LossReport]] = {}
        """By instant and host."""
        self._counted: dict[int, list[PairLosses]] = {}
        """Of each instant, while no more reports of it arrive."""
        self.losing: Losing | None = None
        """Losses that have no name yet."""

    def take(
        self, host: str, report: LossReport, fleet_ns: int | None,
        planned: Container[tuple[str, str]],
    ) -> None:  # fmt: skip
        """Take a report of a host's agent; what is not planned, or not of now, is ignored."""
        at_ns = report.at_ns
        if fleet_ns is None or abs(fleet_ns - at_ns) >= KEPT_NS or at_ns % STEP_NS:
            return
        if len(self._reports.get(at_ns, ())) >= MAX_REPORTS:
            return
        if all(host_of(p.src) == host and (p.src, p.dst) in planned for p in report.pairs):
            self._reports.setdefault(at_ns, {})[host] = report
            self._counted.pop(at_ns, None)

    def look(self, fleet_ns: int, findings: Iterable[Finding]) -> None:
        """Update `losing`: nothing while localisation names a component that loses packets."""
        if not self._reports and self.losing is None:
            return
        self._reports = {
            at_ns: each for at_ns, each in self._reports.items() if abs(fleet_ns - at_ns) < KEPT_NS
        }
        named = any(found.loss > 0 for found in findings)
        before, self.losing = self.losing, None if named else self._found()
        if self.losing is not None and before is None:
            _log.info(
                "probes lost, not named yet lost=%d paths=%d nics=%s",
                self.losing.lost, self.losing.paths, ",".join(self.losing.nics[:8]),
            )  # fmt: skip

    def _found(self) -> Losing | None:
        newest: dict[int, list[PairLosses]] = {}
        self._counted = {
            at_ns: self._counted.get(at_ns) or _explained_by_no_pause(reports.values())
            for at_ns, reports in sorted(self._reports.items())
        }
        for at_ns, pairs in self._counted.items():
            if sum(p.lost for p in pairs) >= sum(p.lost for p in newest.get(second_of(at_ns), ())):
                newest[second_of(at_ns)] = pairs
        lost: dict[str, int] = {}
        paths: dict[str, int] = {}
        for pair in (pair for pairs in newest.values() for pair in pairs):
            for nic in (pair.src, pair.dst):
                lost[nic] = lost.get(nic, 0) + pair.lost
                paths[nic] = paths.get(nic, 0) + pair.paths
        most = sorted(lost, key=lambda nic: (-lost[nic], nic))
        nics = tuple(nic for nic in most if lost[nic] >= MIN_LOST and paths[nic] >= MIN_PATHS)
        if not nics:
            return None
        return Losing(lost=sum(lost.values()) // 2, paths=sum(paths.values()) // 2, nics=nics)


def _explained_by_no_pause(reports: Iterable[LossReport]) -> list[PairLosses]:
    """The losses of reports of one instant at targets that answered somebody promptly."""
    reports = list(reports)
    prompt = {host for report in reports for host in report.prompt}
    return [pair for report in reports for pair in report.pairs if host_of(pair.dst) in prompt]
