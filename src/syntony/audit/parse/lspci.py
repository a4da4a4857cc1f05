"""`lspci -Dvvv`: the registers that only root may read, and names."""

from __future__ import annotations

import re
from typing import NamedTuple

from syntony.audit.facts import UnreadableError

_HEAD = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+(.*)")
_LINK = re.compile(
    r"Speed\s+([\d.]+)GT/s(?:\s*\(([\w ]+)\))?,\s*Width\s+x(\d+)(?:\s*\(([\w ]+)\))?"
)
_MPS = re.compile(r"MaxPayload\s+(\d+)\s+bytes,\s*MaxReadReq\s+(\d+)\s+bytes")
_FLAGS = re.compile(r"(\w+)([+-])")


class LspciDevice(NamedTuple):
    """One device; a field is None if the text does not have it."""

    address: str
    """With its domain."""
    name: str
    max_payload: int | None
    max_read_request: int | None
    acs: frozenset[str] | None
    """What ACS does (``SrcValid``, ``ReqRedir``…); None without that capability."""
    denied: bool
    """``<access denied>``: lspci was not root."""
    link: tuple[float, int] | None
    """GT/s and lanes, now."""


def parse_lspci(text: str) -> tuple[LspciDevice, ...]:
    """Every device. Raises `UnreadableError`: there is none in the text."""
    devices: list[LspciDevice] = []
    block: list[str] = []
    for line in [*text.splitlines(), "\n"]:
        if line[:1].isspace() and line.strip():
            block.append(line)
            continue
        if block and (match := _HEAD.match(block[0])):
            devices.append(_device(match[1], match[2], block[1:]))
        block = [line] if line.strip() else []
    if not devices:
        raise UnreadableError("`lspci` reported no device")
    return tuple(devices)


def _device(address: str, name: str, lines: list[str]) -> LspciDevice:
    payload = reads = acs = link = None
    denied = False
    for line in lines:
        if match := _MPS.search(line):
            payload, reads = int(match[1][:6]), int(match[2][:6])
        elif "ACSCtl:" in line:
            acs = frozenset(flag for flag, sign in _FLAGS.findall(line) if sign == "+")
        elif "LnkSta:" in line and (match := _LINK.search(line)):
            link = _speed(match[1]), int(match[3][:3])
        denied = denied or "<access denied>" in line
    full = address if address.count(":") == 2 else f"0000:{address}"
    return LspciDevice(full, name, payload, reads, acs, denied, link)


def _speed(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,3}(\.\d{1,3})?", text) else 0.0
