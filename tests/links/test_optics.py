"""Every lane's light, bias and the module's limits, drawn at random and written down as the
standards place them: SFF-8472 (SFP), SFF-8636 (QSFP), CMIS 5.2."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.links.optics import Eeprom, Module, from_flat, parse

COUNT = st.integers(0, 0xFFFF)


class Memory:
    """An EEPROM's bytes; addresses as the standards give them, pages from 128 on."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def put(self, at: int, *values: int) -> None:
        for k, value in enumerate(values):
            self.data[at + 2 * k : at + 2 * k + 2] = (value & 0xFFFF).to_bytes(2, "big")

    def text(self, at: int, text: str) -> None:
        self.data[at : at + 16] = text.ljust(16).encode("latin-1")


def page(fields: dict[int, list[int]]) -> bytes:
    memory = Memory(256)
    for at, values in fields.items():
        memory.put(at, *values)
    return bytes(memory.data[128:])


def dbm(tenths_of_a_microwatt: int) -> float:
    """By definition: decibels of a milliwatt; darkness as ethtool prints it."""
    milliwatts = tenths_of_a_microwatt / 10_000
    return 10 * math.log10(milliwatts) if milliwatts else -40.0


@given(st.lists(COUNT, min_size=8, max_size=8), st.integers(-30, 90), st.integers(60, 90), COUNT)
def test_a_qsfps_lanes(counts: list[int], celsius: int, alarm_c: int, alarm: int) -> None:
    rx, bias = counts[:4], counts[4:]
    memory = Memory(256)
    memory.data[0], memory.data[147] = 0x11, 0x90  # an uncooled laser, the last before copper
    memory.put(22, celsius * 256)
    memory.put(34, *rx)
    memory.put(42, *bias)
    limits = page({128: [alarm_c * 256], 176: [alarm + 1, alarm, alarm + 2]})
    module = parse(Eeprom(bytes(memory.data), {0x03: limits}))
    assert [lane.rx_dbm for lane in module.lanes] == pytest.approx([dbm(n) for n in rx])
    assert [lane.bias_ma for lane in module.lanes] == pytest.approx([n * 0.002 for n in bias])
    assert (module.temperature_c, module.temperature_alarm_c) == (celsius, alarm_c)
    assert module.rx_alarm_dbm == pytest.approx(dbm(alarm))
    unknown = parse(Eeprom(bytes(memory.data), {0x03: limits[:-1]}))
    assert (unknown.temperature_alarm_c, unknown.rx_alarm_dbm) == (None, None)


@given(st.lists(COUNT, min_size=24, max_size=24), st.integers(0, 3), st.integers(60, 90), COUNT)
def test_a_cmis_modules_lanes(counts: list[int], scale: int, alarm_c: int, alarm: int) -> None:
    tx, bias, rx = counts[:8], counts[8:16], counts[16:]
    memory = Memory(256)
    memory.data[0], memory.data[2], memory.data[212] = 0x1E, 0x7F, 0x09
    memory.put(14, -3 * 256 + 64)
    monitors = page({154: tx, 170: bias, 186: rx})
    limits = page({128: [alarm_c * 256], 192: [alarm + 1, alarm, alarm + 2]})
    advertised = bytearray(128)
    advertised[160 - 128] = scale << 3 | 0xE7  # bits 4-3: the unit of bias, times 2 µA
    pages = {0x01: bytes(advertised), 0x02: limits, 0x11: monitors}
    module = parse(Eeprom(bytes(memory.data), pages))
    assert module.identity.kind == "QSFP+ CMIS"
    assert [lane.rx_dbm for lane in module.lanes] == pytest.approx([dbm(n) for n in rx])
    expected = [n * 0.002 * 2**scale for n in bias]
    assert [lane.bias_ma for lane in module.lanes] == pytest.approx(expected)
    assert (module.temperature_c, module.temperature_alarm_c) == (-2.75, alarm_c)
    assert module.rx_alarm_dbm == pytest.approx(dbm(alarm))
    without = parse(Eeprom(bytes(memory.data), {0x11: monitors}))
    assert {lane.bias_ma for lane in without.lanes} == {None}, "their unit is not known"


@given(st.lists(COUNT, min_size=3, max_size=3), COUNT)
def test_an_sfps_lane(counts: list[int], alarm: int) -> None:
    base, monitors = Memory(256), Memory(256)
    base.data[0], base.data[92] = 0x03, 0x68
    base.text(20, "ACME")
    base.text(40, "SR")
    base.text(68, "S\x011\xff")
    monitors.put(0, 75 * 256)
    monitors.put(32, alarm + 1, alarm, alarm + 2)
    monitors.put(96, 41 * 256, 33_100, *counts)
    module = parse(from_flat(bytes(base.data + monitors.data)))
    assert module.identity == ("SFP", "ACME", "SR", "S 1")
    (lane,) = module.lanes
    bias, _, rx = counts
    assert (lane.bias_ma, lane.rx_dbm) == pytest.approx((bias * 0.002, dbm(rx)))
    assert module.rx_alarm_dbm == pytest.approx(dbm(alarm))
    assert (module.temperature_c, module.temperature_alarm_c) == (41, 75)


def measures_nothing(module: Module) -> bool:
    return (module.temperature_c, module.lanes, module.rx_alarm_dbm) == (None, (), None)


@pytest.mark.parametrize(
    ("diagnostics", "blind"), [(0x60, False), (0x70, True), (0x20, True), (0x50, True)]
)
def test_an_sfp_without_calibrated_monitoring_measures_nothing(
    diagnostics: int, blind: bool
) -> None:
    base = Memory(256)
    base.data[0], base.data[92] = 0x03, diagnostics
    assert measures_nothing(parse(from_flat(bytes(base.data) + bytes(256)))) == blind
    assert measures_nothing(parse(from_flat(bytes(base.data)))), "its second memory was not read"
    assert measures_nothing(parse(from_flat(bytes(base.data) + bytes(255))))


@pytest.mark.parametrize(("technology", "copper"), [(0x09, False), (0x0A, True), (0x0F, True)])
def test_copper_measures_nothing(technology: int, copper: bool) -> None:
    for identifier, at, value in ((0x0D, 147, technology << 4), (0x18, 212, technology)):
        memory = Memory(256)
        memory.data[0], memory.data[at] = identifier, value
        assert measures_nothing(parse(Eeprom(bytes(memory.data), {}))) == copper


@pytest.mark.parametrize(
    ("identifier", "kind"),
    [
        (0x0C, "QSFP"), (0x0D, "QSFP+"), (0x11, "QSFP28"), (0x18, "QSFP-DD"), (0x19, "OSFP"),
        (0x1F, "SFP-DD"), (0x20, "SFP+ CMIS"), (0x21, "CMIS"), (0x25, "CMIS"), (0x22, "CMIS"),
    ],
)  # fmt: skip
def test_types_by_their_identifier(identifier: int, kind: str) -> None:
    memory = Memory(256)
    memory.data[0] = identifier
    at = (148, 168, 196) if identifier < 0x18 else (129, 148, 166)
    for place, text in zip(at, ("VENDOR", "PART", "SERIAL"), strict=True):
        memory.text(place, text)
    assert parse(Eeprom(bytes(memory.data), {})).identity == (kind, "VENDOR", "PART", "SERIAL")


def test_flat_memory_is_cut_into_pages_of_128_bytes() -> None:
    base = bytes([0x18]) + bytes(255)
    upper = [bytes([number]) * 128 for number in (1, 2, 3)]
    assert from_flat(base + b"".join(upper)).pages == dict(zip((1, 2, 3), upper, strict=True))
    assert from_flat(base + upper[0] + upper[1][:-1]).pages == {1: upper[0]}
    assert from_flat(base).pages == {}
