"""2 Node: what the board's own controller reports."""

from __future__ import annotations

import re
from collections.abc import Iterator

from syntony.audit.check import HostCheck, Section
from syntony.audit.facts import AbsentError, FactError, Facts, UnreadableError
from syntony.audit.result import ComparedValue, Result, Suspect

FREEIPMI = ("ipmi-sensors", "--output-sensor-state", "--comma-separated-output")
IPMITOOL = ("ipmitool", "sdr", "elist")
_CRITICAL = frozenset({"cr", "nr", "lcr", "lnr", "ucr", "unr"})
"""ipmitool's words for critical and non-recoverable; ``nc`` is not critical, ``ns`` no reading."""
_FAILED = re.compile(r"\b(?:AC lost|[Ff]ailure detected|Predictive failure|Drive Fault|"
                     r"Uncorrectable|Thermal Trip|Config Error)\b")  # fmt: skip


class Bmc(HostCheck):
    """The board's own controller reports nothing critical.

    Expected results: no sensor critical or beyond, by FreeIPMI's ipmi-sensors or by ipmitool;
    skipped where neither is installed or the board has no controller, unknown without permission.
    """

    id = "node.bmc"
    section = Section.NODE
    reads = (f"$ {' '.join(FREEIPMI)}", f"$ {' '.join(IPMITOOL)}")
    meaning = "a fan, a power supply or a temperature is critical"
    remedy = "look at the BMC's log; replace the part"
    suspect = Suspect.HOST

    def test(self, host: Facts) -> Iterator[Result | ComparedValue]:
        reasons = []
        for command, parse in ((FREEIPMI, freeipmi_sensors), (IPMITOOL, ipmitool_sensors)):
            try:
                sensors = parse(host.run(*command))
            except FactError as error:
                reasons.append(error)
                continue
            bad = [name for name, critical in sensors.items() if critical]
            yield self.verdict(not bad, host, ", ".join(bad) or f"{len(sensors)} sensors well",
                               "none critical", command[0])  # fmt: skip
            return
        unread = [error for error in reasons if not isinstance(error, AbsentError)]
        if unread:
            raise UnreadableError(str(unread[0]))
        yield self.skip(host, "neither ipmi-sensors (freeipmi-tools) nor ipmitool is installed")


def freeipmi_sensors(text: str) -> dict[str, bool]:
    """Sensor → whether it is critical. Raises `UnreadableError`."""
    rows = [line.split(",") for line in text.splitlines()]
    found = {row[1].strip(): row[3].strip() == "Critical" for row in rows
             if len(row) >= 5 and row[0].strip().isdigit()}  # fmt: skip
    if not found:
        raise UnreadableError("`ipmi-sensors` reported no sensor")
    return found


def ipmitool_sensors(text: str) -> dict[str, bool]:
    """The same of `ipmitool sdr elist`: name | number | status | entity | reading."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= 5 and cells[0] and re.fullmatch(r"[0-9A-Fa-f]{2}h", cells[1]):
            found[cells[0]] = cells[2].lower() in _CRITICAL or bool(_FAILED.search(cells[4]))
    if not found:
        raise UnreadableError("`ipmitool sdr elist` reported no sensor")
    return found
