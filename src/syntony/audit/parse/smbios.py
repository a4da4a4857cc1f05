"""`dmidecode -t 17`: the memory modules (SMBIOS type 17, DSP0134 §7.18)."""

from __future__ import annotations

import re
from typing import NamedTuple

from syntony.audit.facts import UnreadableError
from syntony.audit.parse.text import fields

_SIZE = re.compile(r"(\d{1,9})\s*(MB|GB|TB|MiB|GiB|TiB)")
_UNITS = {"M": 1, "G": 1024, "T": 1024 * 1024}


class MemorySocket(NamedTuple):
    """One memory socket, empty or with a module."""

    place: str
    megabytes: int
    """0: the socket is empty."""
    speed: str
    """As configured: ``4800 MT/s``."""
    part: str


def parse_memory(text: str) -> tuple[MemorySocket, ...]:
    """Every socket, empty ones too. Raises `UnreadableError`: no memory device is reported (no
    privilege, another language, cut off)."""
    blocks = re.split(r"^Handle 0x", text, flags=re.MULTILINE)
    devices = [block for block in blocks if re.search(r"^Memory Device\s*$", block, re.MULTILINE)]
    modules = []
    for block in devices:
        reported = fields(block)
        if "Size" not in reported:
            raise UnreadableError("`dmidecode -t 17` is cut off: a module without a size")
        modules.append(
            MemorySocket(
                reported.get("Locator", "?"),
                _megabytes(reported["Size"]),
                reported.get("Configured Memory Speed", reported.get("Configured Clock Speed", "")),
                reported.get("Part Number", ""),
            )
        )
    if not modules:
        raise UnreadableError("`dmidecode -t 17` reports no memory device")
    return tuple(modules)


def _megabytes(text: str) -> int:
    if text.startswith("No Module"):
        return 0
    match = _SIZE.match(text)
    if match is None:
        raise UnreadableError(f"`dmidecode -t 17`: a module of size {text[:40]!r}")
    return int(match[1]) * _UNITS[match[2][0]]
