"""Classify messages of NIC drivers in the kernel log.

Patterns are of messages in the kernel's own sources (drivers/net/ethernet/mellanox/mlx5,
net/sched/sch_generic.c, drivers/pci) and in published captures.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from syntony.links.counters import Kind


class LogFinding(NamedTuple):
    """One line of the kernel log about a NIC or link."""

    kind: Kind
    device: str
    """PCI address or interface that the line names; empty if none."""
    meaning: str
    remedy: str
    text: str


class _Pattern(NamedTuple):
    expression: re.Pattern[str]
    kind: Kind
    meaning: str
    remedy: str


def _pattern(expression: str, kind: Kind, meaning: str, remedy: str) -> _Pattern:
    return _Pattern(re.compile(expression, re.IGNORECASE), kind, meaning, remedy)


_PATTERNS = (
    _pattern(r"module event.*cable unplugged|Cable unplugged", Kind.MODULE,
             "the cable was pulled out", "plug it in; check the latch"),
    _pattern(r"Port module event\[error\].*|module \d+, cable error", Kind.MODULE,
             "the module reports an error", "reseat the module; replace it if it comes back"),
    _pattern(r"High Temperature|over.?temperature", Kind.MODULE,
             "the module or the card is too hot", "check airflow and fans; clean the cage"),
    _pattern(r"insufficient power on the PCIe slot", Kind.HOST,
             "the slot gives the card too little power", "move the card, or connect its power"),
    _pattern(r"health poll failed|device's health compromised|fw assert|fatal error sensor",
             Kind.HOST, "the card's firmware has failed",
             "power-cycle the host; update the firmware"),
    _pattern(r"cmd(_work_handler|\[\d+\]).*(timeout|time.?out)|wait_func.*timeout", Kind.HOST,
             "the card's firmware does not answer commands",
             "power-cycle the host; update the firmware"),
    _pattern(r"NETDEV WATCHDOG: .*transmit queue \d+ timed out|TX timeout", Kind.HOST,
             "the card stopped sending", "reload the driver; update the firmware"),
    _pattern(r"limited by .* PCIe|available PCIe bandwidth, limited", Kind.HOST,
             "the slot is slower than the card", "move the card; check the riser"),
    _pattern(r"AER: .*(Uncorrect|Fatal)|PCIe Bus Error: severity=Uncorrect", Kind.HOST,
             "uncorrectable PCIe error", "reseat the card; check the riser"),
    _pattern(r"link is down|link down|lost carrier", Kind.FLAP,
             "the link went down", "look at the cable and at the far port"),
    _pattern(r"link is up|link up|link becomes ready", Kind.TRAFFIC,
             "the link came up", ""),
)  # fmt: skip
_PCI = re.compile(r"\b([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b", re.IGNORECASE)
_INTERFACE = re.compile(
    r"(?:WATCHDOG: |ADDRCONF\(NETDEV_\w+\): |^|\s)([a-z][a-z0-9_.@-]{1,14}):? "
    r"(?:\([a-z0-9_]+\)|NIC Link|link (?:is|down|up|becomes)|Lost carrier|: transmit)",
    re.IGNORECASE,
)
_DRIVERS = re.compile(
    r"mlx[45]|bnxt|ib_core|rdma|ionic|\bice\b|i40e|ixgbe|\bena\b|efa|qede|NETDEV WATCHDOG|pcieport|"
    r"PCIe|AER|IPv6: ADDRCONF|lost carrier",
    re.IGNORECASE,
)
MAX_LINE = 1024
"""A longer line is cut: the kernel's own records end at 976 bytes."""


def classify(line: str) -> LogFinding | None:
    """Classify one line of the kernel log; None if it is not about NICs and links."""
    text = line[:MAX_LINE].strip()
    if not _DRIVERS.search(text):
        return None
    for pattern in _PATTERNS:
        if pattern.expression.search(text):
            return LogFinding(pattern.kind, _device(text), pattern.meaning, pattern.remedy, text)
    return None


def _device(text: str) -> str:
    pci = _PCI.search(text)
    if pci:
        return pci[1].lower()
    interface = _INTERFACE.search(text)
    return interface[1] if interface else ""
