"""Parse a module's EEPROM: temperature, voltage, optical power, bias, thresholds.

Sources: SFF-8472 rev 12.4 (SFP, page A2h), SFF-8636 rev 2.11 (QSFP28/56), CMIS 5.2 (QSFP-DD, OSFP).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from syntony.errors import WireError

_SFF_8472 = frozenset({0x03})
_SFF_8636 = frozenset({0x0C, 0x0D, 0x11})
_CMIS = frozenset({0x18, 0x19, 0x1E, 0x1F, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25})
"""SFF-8024 table 4-1: identifiers of the module types."""
_NAMES = {
    0x03: "SFP", 0x0C: "QSFP", 0x0D: "QSFP+", 0x11: "QSFP28", 0x18: "QSFP-DD", 0x19: "OSFP",
    0x1E: "QSFP+ CMIS", 0x1F: "SFP-DD", 0x20: "SFP+ CMIS",
}  # fmt: skip
_BASE, _PAGE = 256, 128
_COPPER = 0x0A
"""Media technologies from here on are copper cables, in SFF-8636 and CMIS alike."""
_UW_PER_COUNT = 0.1
_UA_PER_COUNT = 2.0
_FLOOR_DBM = -40.0
"""No light at all reads as this, as ``ethtool -m`` prints it."""


class Lane(NamedTuple):
    """One lane's light; None where the module does not measure it."""

    rx_dbm: float | None
    bias_ma: float | None


class ModuleIdentity(NamedTuple):
    kind: str
    vendor: str
    part: str
    serial: str


class Module(NamedTuple):
    """Measurements of a module; None for what it does not measure. Copper measures nothing."""

    identity: ModuleIdentity
    temperature_c: float | None
    lanes: tuple[Lane, ...]
    temperature_alarm_c: float | None
    rx_alarm_dbm: float | None
    """The module's own thresholds: too hot above, too dark below."""


class Eeprom(NamedTuple):
    base: bytes
    """The first 256 bytes: lower memory and upper page 00h; for SFP, all of A0h."""
    pages: Mapping[int, bytes]
    """Further upper pages, 128 bytes each, by number; for SFP, A2h (256 bytes) as 0xA2."""


def from_flat(data: bytes) -> Eeprom:
    """From the flat memory of the old ioctl (``ethtool -m X raw on``): upper pages in order, or,
    for SFP, A0h and then A2h."""
    if data[:1] and data[0] in _SFF_8472:
        return Eeprom(data[:_BASE], {0xA2: data[_BASE : 2 * _BASE]} if len(data) > _BASE else {})
    upper = range(_BASE, len(data) - _PAGE + 1, _PAGE)
    return Eeprom(data[:_BASE], {at // _PAGE - 1: data[at : at + _PAGE] for at in upper})


def parse(eeprom: Eeprom) -> Module:
    """A module from its EEPROM. Raises `WireError`: too short, or of a type that this does not
    know."""
    data = eeprom.base
    if len(data) < _BASE:
        raise WireError(f"module EEPROM ends after {len(data)} of {_BASE} bytes")
    identifier = data[0]
    if identifier in _SFF_8472:
        return _sfp(data, _page(eeprom, 0xA2, _BASE))
    if identifier in _SFF_8636:
        return _qsfp(data, _page(eeprom, 0x03))
    if identifier in _CMIS:
        return _cmis(data, eeprom)
    raise WireError(f"module type {identifier:#04x} is not known")


def _page(eeprom: Eeprom, number: int, size: int = _PAGE) -> bytes | None:
    page = eeprom.pages.get(number)
    return page if page is not None and len(page) >= size else None


def _sfp(data: bytes, monitors: bytes | None) -> Module:
    identity = _identity(data, vendor=20, part=40, serial=68)
    # Externally calibrated readings mean nothing without their constants: not known.
    monitored, external = data[92] & 0x40, data[92] & 0x10
    if monitors is None or not monitored or external:
        return _unmonitored(identity)
    lane = Lane(
        rx_dbm=_dbm(_u16(monitors, 104)),
        bias_ma=_milliamps(_u16(monitors, 100)),
    )
    return Module(
        identity,
        temperature_c=_celsius(monitors, 96),
        lanes=(lane,),
        temperature_alarm_c=_celsius(monitors, 0),
        rx_alarm_dbm=_dbm(_u16(monitors, 34)),
    )


def _qsfp(data: bytes, thresholds: bytes | None) -> Module:
    identity = _identity(data, vendor=148, part=168, serial=196)
    if data[147] >> 4 >= _COPPER:
        return _unmonitored(identity)
    lanes = tuple(
        Lane(
            rx_dbm=_dbm(_u16(data, 34 + 2 * lane)),
            bias_ma=_milliamps(_u16(data, 42 + 2 * lane)),
        )
        for lane in range(4)
    )
    return Module(
        identity,
        temperature_c=_celsius(data, 22),
        lanes=lanes,
        temperature_alarm_c=_celsius(thresholds, 0) if thresholds else None,
        rx_alarm_dbm=_dbm(_u16(thresholds, 50)) if thresholds else None,
    )


def _cmis(data: bytes, eeprom: Eeprom) -> Module:
    identity = _identity(data, vendor=129, part=148, serial=166)
    flat = bool(data[2] & 0x80)
    if flat or data[212] >= _COPPER:
        return _unmonitored(identity)
    thresholds, monitors = _page(eeprom, 0x02), _page(eeprom, 0x11)
    advertised = _page(eeprom, 0x01)
    scale = 1 << (advertised[32] >> 3 & 0x03) if advertised else None
    return Module(
        identity,
        temperature_c=_celsius(data, 14),
        lanes=_cmis_lanes(monitors, scale) if monitors else (),
        temperature_alarm_c=_celsius(thresholds, 0) if thresholds else None,
        rx_alarm_dbm=_dbm(_u16(thresholds, 66)) if thresholds else None,
    )


def _cmis_lanes(page: bytes, scale: int | None) -> tuple[Lane, ...]:
    return tuple(
        Lane(
            rx_dbm=_dbm(_u16(page, 58 + 2 * lane)),
            bias_ma=_milliamps(_u16(page, 42 + 2 * lane)) * scale if scale else None,
        )
        for lane in range(8)
    )


def _identity(data: bytes, *, vendor: int, part: int, serial: int) -> ModuleIdentity:
    kind = _NAMES.get(data[0], "CMIS")
    return ModuleIdentity(kind, _text(data, vendor), _text(data, part), _text(data, serial))


def _unmonitored(identity: ModuleIdentity) -> Module:
    return Module(identity, None, (), None, None)


def _text(data: bytes, start: int) -> str:
    raw = data[start : start + 16]
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else " " for byte in raw).strip()


def _u16(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2])


def _celsius(data: bytes, at: int) -> float:
    return int.from_bytes(data[at : at + 2], signed=True) / 256


def _dbm(count: int) -> float:
    """Optical power from tenths of a microwatt."""
    return 10 * math.log10(count * _UW_PER_COUNT * 1e-3) if count else _FLOOR_DBM


def _milliamps(count: int) -> float:
    return count * _UA_PER_COUNT * 1e-3
