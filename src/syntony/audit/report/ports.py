"""The table of ports: host × NIC, with the state of each layer up to carrying traffic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from syntony.audit.check import Section
from syntony.audit.checks.network import RailConnectivity
from syntony.audit.reach_judge import PORT_WORD
from syntony.audit.registry import every_check
from syntony.audit.report.summary import ORDER
from syntony.audit.result import Result, Status

COLUMNS = (Section.INITIALIZED, Section.ACTIVE, Section.GID, Section.CONNECTIVITY)
HEADINGS = ("Agent", "NIC", "Initialized", "Active", "GID Index", "Connectivity")
_GID_INDEX = "be.gid.index: "


class PortRow(NamedTuple):
    """One NIC of one host; a status is None where nothing was said."""

    host: str
    nic: str
    initialized: Status | None
    active: Status | None
    gid: Status | None
    connectivity: Status | None
    gid_index: str
    """The index that NCCL would choose; empty where there is none."""

    def cells(self) -> tuple[str, ...]:
        """The cells of a row, in the order of `HEADINGS`."""
        gid = f"{self.gid_index} {self.gid or ''}".strip() or "–"
        states = (self.initialized, self.active)
        return (self.host, self.nic, *(str(state or "–") for state in states), gid,
                str(self.connectivity or "–"))  # fmt: skip


def port_of(result: Result) -> tuple[str, str] | None:
    """Host and ``DEVICE:NUMBER`` of a verdict on a port; what else a check names is none."""
    host, slash, at = result.subject.partition("/")
    if result.check == RailConnectivity.id and result.evidence.startswith(PORT_WORD):
        at = result.evidence.removeprefix(PORT_WORD).partition(";")[0]
    return (host, at) if slash and ":" in at else None


def port_rows(results: Iterable[Result]) -> list[PortRow]:
    """A row for each NIC that a check of the back-end names, by host and name."""
    sections = {check.id: check.section for check in every_check()}
    worst: dict[tuple[str, str], dict[Section, Status]] = {}
    indexes: dict[tuple[str, str], str] = {}
    for result in results:
        section = sections.get(result.check)
        port = port_of(result)
        if section not in COLUMNS or port is None:
            continue
        seen = worst.setdefault(port, {})
        status = Status.FAIL if result.follows else result.status
        seen[section] = min(seen.get(section, Status.SKIP), status, key=ORDER.index)
        if result.evidence.startswith(_GID_INDEX):
            indexes[port] = result.got
    return [_row(place, seen, indexes.get(place, "")) for place, seen in sorted(worst.items())]


def _row(place: tuple[str, str], seen: dict[Section, Status], index: str) -> PortRow:
    return PortRow(
        *place,
        initialized=seen.get(Section.INITIALIZED),
        active=seen.get(Section.ACTIVE),
        gid=seen.get(Section.GID),
        connectivity=seen.get(Section.CONNECTIVITY),
        gid_index=index,
    )
