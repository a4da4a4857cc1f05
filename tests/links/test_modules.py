"""Module EEPROMs: the three layouts, and every other sequence of bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.errors import WireError
from syntony.links.modules import LEAST, SPACING_NS, ModuleWatch, Trend, theil_sen
from syntony.links.optics import Eeprom, Lane, Module, ModuleIdentity, from_flat, parse


def page(size: int, fields: dict[int, bytes]) -> bytes:
    data = bytearray(size)
    for at, value in fields.items():
        data[at : at + len(value)] = value
    return bytes(data)


def u16(*values: int) -> bytes:
    return b"".join(value.to_bytes(2, "big", signed=value < 0) for value in values)


def sfp() -> bytes:
    identity = page(256, {0: b"\x03", 20: b"ACME".ljust(16), 40: b"SR", 68: b"S1", 92: b"\x60"})
    monitors = page(256, {0: u16(75 * 256), 34: u16(100), 96: u16(40 * 256 + 128, 33000),
                          100: u16(3000, 5000, 10000)})  # fmt: skip
    return identity + monitors


def qsfp(technology: int = 0x00) -> bytes:
    lower = {22: u16(-5 * 256), 26: u16(33000), 34: u16(10000, 5000, 1, 0), 42: u16(*[3000] * 4),
             50: u16(*[10000] * 4)}  # fmt: skip
    upper = {147: bytes([technology << 4]), 148: b"ACME", 168: b"Q28", 196: b"S2", 220: b"\x04"}
    base = page(256, {0: b"\x11"} | lower | upper)
    return base + bytes(256) + page(128, {0: u16(70 * 256), 50: u16(500)})


def cmis(flat: bool = False) -> Eeprom:
    base = page(256, {0: b"\x19", 2: b"\x80" if flat else b"\x00", 14: u16(55 * 256, 33000),
                      129: b"ACME", 148: b"OSFP-DR8", 166: b"S3"})  # fmt: skip
    return Eeprom(base, {
        0x01: page(128, {32: b"\x08"}),
        0x02: page(128, {0: u16(80 * 256), 66: u16(300)}),
        0x11: page(128, {26: u16(*[12000] * 8), 42: u16(*[20000] * 8), 58: u16(*[8000] * 8)}),
    })  # fmt: skip


def test_sfp() -> None:
    module = parse(from_flat(sfp()))
    assert module.identity == ("SFP", "ACME", "SR", "S1")
    assert module.temperature_c == 40.5
    assert module.temperature_alarm_c == 75
    (lane,) = module.lanes
    assert lane.bias_ma == pytest.approx(6.0)
    assert lane.rx_dbm == pytest.approx(0.0)
    assert module.rx_alarm_dbm == pytest.approx(-20.0)


def test_qsfp() -> None:
    module = parse(from_flat(qsfp()))
    assert module.temperature_c == -5
    assert [round(lane.rx_dbm or 0, 1) for lane in module.lanes] == [0.0, -3.0, -40.0, -40.0]
    assert module.temperature_alarm_c == 70
    assert module.rx_alarm_dbm == pytest.approx(-13.01, abs=0.01)


def test_copper_measures_nothing() -> None:
    module = parse(from_flat(qsfp(technology=0x0A)))
    assert module.lanes == ()
    assert module.temperature_c is None


def test_cmis() -> None:
    module = parse(cmis())
    assert module.identity.part == "OSFP-DR8"
    assert len(module.lanes) == 8
    assert module.lanes[7].bias_ma == pytest.approx(80.0)  # 20000 × 2 µA × 2
    assert module.rx_alarm_dbm == pytest.approx(-15.23, abs=0.01)
    assert parse(cmis(flat=True)).lanes == ()


def test_pages_that_were_not_read_leave_their_fields_unknown() -> None:
    module = parse(Eeprom(cmis().base, {}))
    assert module.temperature_c == 55
    assert module.lanes == ()
    assert module.rx_alarm_dbm is None


@given(st.binary(max_size=700), st.sampled_from([0x03, 0x0D, 0x11, 0x18, 0x19, 0x00, 0xFF]))
def test_any_bytes_are_read_or_refused(data: bytes, identifier: int) -> None:
    with contextlib.suppress(WireError):
        parse(from_flat(bytes([identifier]) + data))


def test_what_is_refused() -> None:
    with pytest.raises(WireError, match="ends after 0 of 256 bytes"):
        parse(from_flat(b""))
    with pytest.raises(WireError, match="0xff is not known"):
        parse(from_flat(b"\xff" * 256))


def test_a_darkening_receiver_is_foreseen() -> None:
    trend = Trend()
    for sample in range(4 * LEAST):
        wild = 6.0 if sample % 5 == 0 else 0.0
        trend.add(sample * SPACING_NS, -3.0 - 0.1 * sample * 0.25 + wild + 0.01 * (sample % 3))
    slope = trend.slope()
    assert slope is not None
    assert slope.per_hour == pytest.approx(-0.1, rel=0.1)
    assert slope.hours_to(-10.0) == pytest.approx(62, rel=0.1)
    assert slope.hours_to(0.0) is None


def test_noise_is_no_trend() -> None:
    samples = [(at * SPACING_NS, 40.0 + (at * 7919 % 13) / 13) for at in range(32)]
    assert not theil_sen(samples).significant


def test_too_few_samples_tell_nothing() -> None:
    trend = Trend()
    for sample in range(100):
        trend.add(sample * SPACING_NS // 100, 1.0)
    assert trend.slope() is None


def hot(temperature_c: float, serial: str = "S1") -> Module:
    identity = ModuleIdentity("OSFP", "ACME", "DR8", serial)
    return Module(identity, temperature_c, (Lane(-2.0, 80.0),), 75.0, -10.0)


def test_a_hot_module_is_told_once_and_when_it_is_well() -> None:
    watch = ModuleWatch()
    readings = [70.0, 76.0, 74.0, 77.0, 69.0]
    reported = [watch.take(at, "eth0", hot(reading)) for at, reading in enumerate(readings)]
    assert [len(notes) for notes in reported] == [1, 1, 0, 0, 1]
    assert (reported[0][0].before, reported[0][0].after) == ("", "well"), "a first reading"
    assert "airflow" in reported[1][0].remedy
    assert reported[4][0].after == "well"


def test_a_degrading_module_is_told_once_a_day() -> None:
    watch, reported = ModuleWatch(), []
    for sample in range(4 * 36):  # 36 hours, half a degree an hour
        at_ns = sample * SPACING_NS
        reported += watch.take(at_ns, "eth0", hot(50.0 + sample / 8 + 0.2 * (sample % 3)))
    assert [note.after for note in reported] == ["well", "degrading", "degrading"]
    assert "temperature" in reported[1].detail


def test_another_module_begins_anew() -> None:
    watch = ModuleWatch()
    watch.take(0, "eth0", hot(80.0))
    first, second = watch.take(1, "eth0", hot(80.0, serial="S2"))
    assert first.detail == "another module"
    assert second.after == "beyond limit"
    _, third = watch.take(2, "eth0", hot(60.0, serial="S3"))
    assert third.after == "well"
