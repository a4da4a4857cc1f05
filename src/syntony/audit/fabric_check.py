"""Checks of the fabric as a whole, and the run over all of them. Pure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from syntony.audit.cabling import Cabling
from syntony.audit.check import Check, Section
from syntony.audit.registry import every_check
from syntony.audit.result import Result, Status, Suspect

FABRIC = "fabric"
"""Subject of verdicts on the whole fabric."""
_BAD = {Status.FAIL, Status.WARN}


class FabricCheck(Check):
    """A check of how hosts and switches are cabled, with or without an expected file."""

    section = Section.TOPOLOGY
    reads = ("$ ibnetdiscover", "$ lldpctl -f json", "a topology file")
    suspect = Suspect.CABLE

    expected: Cabling | None = None
    """The expected cabling, if a file gives it."""

    @abstractmethod
    def test(self, fabric: Cabling) -> Iterator[Result]:
        """Verdicts that fail, are unknown or skipped; none means a pass."""

    def unknown(self, reason: str, subject: str = FABRIC) -> Result:
        """The result of a check for which nothing was reported."""
        return self.result(Status.UNKNOWN, subject, evidence=reason)

    def skip(self, reason: str) -> Result:
        """The result of a check that does not apply to this fabric."""
        return self.result(Status.SKIP, FABRIC, evidence=reason)


def fabric_checks() -> tuple[type[FabricCheck], ...]:
    return tuple(check for check in every_check() if issubclass(check, FabricCheck))


def audit_fabric(fabric: Cabling, expected: Cabling | None = None) -> tuple[Result, ...]:
    """Every check's verdicts; one that finds nothing wrong is one pass.

    Cabling that is in the expected file passes, whatever the majority has.
    """
    found: list[Result] = []
    for kind in fabric_checks():
        check = kind()
        check.expected = expected
        results = list(check.test(fabric))
        if expected is not None:
            wanted = {(r.subject, r.got) for r in kind().test(expected) if r.status in _BAD}
            results = [r for r in results if (r.subject, r.got) not in wanted]
        found += results or [check.result(Status.PASS, FABRIC, evidence=seen(fabric))]
    return tuple(found)


def unreadable(reason: str) -> tuple[Result, ...]:
    """The verdicts on a fabric that could not be read: all unknown."""
    return tuple(check().unknown(reason) for check in fabric_checks())


def seen(fabric: Cabling) -> str:
    """``542 NIC ports, 31 + 9 switches, 1090 cables``."""
    switches = " + ".join(str(len(tier)) for tier in fabric.tiers) or "0"
    cables = len(fabric.topology.cables)
    return f"{len(fabric.attachments)} NIC ports, {switches} switches, {cables} cables"
