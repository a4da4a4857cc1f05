"""Counters of RDMA devices as clocks: the arithmetic, graded by exact fractions.

The generator draws devices (bits, frequency, error, place of the counter) and works in rational
numbers of arbitrary size; `native/probe/verbs/ticks.c` works in 64 bits.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from tests.cases import drawn

from syntony.model import MS, S

SOURCE = Path(__file__).parents[2] / "native" / "probe" / "verbs" / "ticks.c"


class Reading(ctypes.Structure):
    _fields_ = (
        ("ticks", ctypes.c_uint64),
        ("raw_ns", ctypes.c_int64),
        ("doubt_ns", ctypes.c_int64),
    )


class Clock(ctypes.Structure):
    _fields_ = (
        ("mask", ctypes.c_uint64),
        ("khz", ctypes.c_int64),
        ("anchor_ns", ctypes.c_int64),
        ("anchor_ticks", ctypes.c_uint64),
        ("newest", Reading),
        ("base", Reading),
        ("total", ctypes.c_int64),
        ("base_total", ctypes.c_int64),
        ("ticks_per_ns", ctypes.c_double),
        ("measured", ctypes.c_int),
    )


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler (Debian: gcc): clocks of devices are NOT tested")
    library = tmp_path_factory.mktemp("ticks") / "ticks.so"
    words = ["cc", "-std=c11", "-O2", "-fPIC", "-shared", str(SOURCE), "-o", str(library), "-lm"]
    subprocess.run(words, check=True, timeout=600)
    loaded = ctypes.CDLL(str(library))
    loaded.syn_ticks_newest_ns.restype = loaded.syn_ticks_stamp_ns.restype = ctypes.c_int64
    return loaded


class Device:
    """Its truth: a counter of exact rate, cut to its bits."""

    def __init__(self, rng: random.Random) -> None:
        self.khz = rng.choice([1_000, 78_125, 125_000, 156_250, 427_000, 1_000_000, 9_999_999])
        narrowest = (8 * self.khz * 1_000).bit_length()
        self.bits = rng.choice([narrowest + 1, 40, 41, 48, 56, 63, 64])
        self.bits = max(self.bits, narrowest + 1)
        self.off = Fraction(rng.randrange(-300_000, 300_001), 10**9)
        self.start = rng.choice([0, 1, (1 << self.bits) - 1, rng.randrange(1 << self.bits)])
        self.raw_ns = rng.randrange(10**15)

    def total(self, raw_ns: int) -> int:
        """Ticks since `raw_ns` at the start."""
        return int((raw_ns - self.raw_ns) * (1 + self.off) * self.khz / 1_000_000 // 1)

    def ticks(self, raw_ns: int) -> int:
        return (self.start + self.total(raw_ns)) % (1 << self.bits)

    def reading(self, raw_ns: int, rng: random.Random) -> Reading:
        """With a raw instant that is off by no more than it says."""
        doubt_ns = rng.choice([1, 100, 1_500])
        return Reading(self.ticks(raw_ns), raw_ns + rng.randint(-doubt_ns, doubt_ns), doubt_ns)

    def __str__(self) -> str:
        return f"{self.bits} bits of {self.khz} kHz, {float(self.off) * 1e6:+.1f} ppm"


def begun(native: ctypes.CDLL, device: Device, anchor_ns: int, rng: random.Random) -> Clock:
    clock, fault = Clock(), ctypes.create_string_buffer(96)
    mask = ctypes.c_uint64((1 << device.bits) - 1)
    khz = ctypes.c_uint64(device.khz)
    assert native.syn_ticks_usable(mask, khz, fault), fault.value
    first = device.reading(device.raw_ns, rng)
    native.syn_ticks_begin(
        ctypes.byref(clock), mask, khz, ctypes.c_int64(anchor_ns), ctypes.byref(first)
    )
    return clock


def take(native: ctypes.CDLL, clock: Clock, reading: Reading) -> str:
    """What is wrong; empty: nothing."""
    fault = ctypes.create_string_buffer(96)
    taken = native.syn_ticks_take(ctypes.byref(clock), ctypes.byref(reading), fault)
    assert bool(taken) == (fault.value == b"")
    return fault.value.decode()


def stamp(native: ctypes.CDLL, clock: Clock, ticks: int, raw_ns: int) -> int:
    return int(
        native.syn_ticks_stamp_ns(
            ctypes.byref(clock), ctypes.c_uint64(ticks), ctypes.c_int64(raw_ns)
        )
    )


@pytest.mark.parametrize("draw", range(40))
def test_the_clock_says_what_exact_arithmetic_says(native: ctypes.CDLL, draw: int) -> None:
    rng = drawn(draw)
    device = Device(rng)
    print(device)
    anchor_ns = rng.choice([0, 1_795_000_000 * S, rng.randrange(2_000_000_000 * S)])
    clock = begun(native, device, anchor_ns, rng)
    pauses = [1 * MS, 100 * MS, 1 * S, 1 * S, 1 * S, 7 * S, 60 * S, 3_600 * S]
    raw_ns = device.raw_ns
    for number in range(60):
        # Rates are known to 1000 ppm at first: a counter that wraps every 8 s is read within
        # the hours only later.
        raw_ns += rng.choice(pauses if number > 10 else pauses[:5])
        assert take(native, clock, device.reading(raw_ns, rng)) == ""
        exact_ns = anchor_ns + Fraction(device.total(raw_ns) * 1_000_000, device.khz)
        assert abs(native.syn_ticks_newest_ns(ctypes.byref(clock)) - exact_ns) < 1
        for _ in range(5):
            now_ns = raw_ns + rng.randrange(1 * S)
            at_ns = now_ns - rng.choice([0, rng.randrange(1 * MS), rng.randrange(1_900 * MS)])
            exact_ns = anchor_ns + Fraction(device.total(at_ns) * 1_000_000, device.khz)
            found_ns = stamp(native, clock, device.ticks(at_ns), now_ns)
            if exact_ns > 1:
                assert abs(found_ns - exact_ns) <= 1, (found_ns, float(exact_ns))
    assert clock.measured


def test_a_first_reading_of_little_worth_is_not_what_the_rate_is_measured_from(
    native: ctypes.CDLL,
) -> None:
    """It would take 1,000 s."""
    rng = drawn(0)
    device = Device(rng)
    clock = begun(native, device, S, rng)
    clock.base.doubt_ns = clock.newest.doubt_ns = 5 * MS
    for number in range(1, 7):  # three may each be worth much more than the one before
        assert take(native, clock, device.reading(device.raw_ns + number * S, rng)) == ""
    assert clock.measured


@pytest.mark.parametrize("draw", range(20))
def test_a_jump_is_a_fault_and_changes_nothing(native: ctypes.CDLL, draw: int) -> None:
    rng = drawn(draw)
    device = Device(rng)
    print(device)
    clock = begun(native, device, S, rng)
    raw_ns = device.raw_ns
    for _ in range(20):
        raw_ns += 1 * S
        assert take(native, clock, device.reading(raw_ns, rng)) == ""
    assert clock.measured
    before = bytes(clock)
    raw_ns += 1 * S
    least_ns = 45 * 1_000 + 3 * 1_000_000 // device.khz
    by_ns = rng.choice([1, -1]) * rng.choice([least_ns, 1 * MS, 1 * S, 3 * S])
    reading = device.reading(raw_ns, rng)
    reading.ticks = device.ticks(raw_ns + by_ns)
    assert "jumped by " + ("+" if by_ns > 0 else "-") in take(native, clock, reading)
    assert bytes(clock) == before
    assert take(native, clock, device.reading(raw_ns, rng)) == ""


@pytest.mark.parametrize("draw", range(20))
def test_stamps_from_the_future_or_from_long_ago_are_none(native: ctypes.CDLL, draw: int) -> None:
    rng = drawn(draw)
    device = Device(rng)
    print(device)
    clock = begun(native, device, S, rng)
    raw_ns = device.raw_ns
    for _ in range(20):
        raw_ns += 1 * S
        assert take(native, clock, device.reading(raw_ns, rng)) == ""
    least_ns = 30 * 1_000 + 4 * 1_000_000 // device.khz
    for now_ns in (raw_ns, raw_ns + rng.randrange(1 * S)):
        assert stamp(native, clock, device.ticks(now_ns), now_ns)
        assert not stamp(native, clock, device.ticks(now_ns + least_ns), now_ns)
        assert not stamp(native, clock, device.ticks(now_ns + 1 * S), now_ns)
        assert not stamp(native, clock, device.ticks(now_ns - 2_001 * MS), now_ns)


@pytest.mark.parametrize("draw", range(20))
def test_a_frequency_that_is_not_the_named_one_is_a_fault(native: ctypes.CDLL, draw: int) -> None:
    """By more than 0.1 %, at once or once it can be told; by less it is but an error."""
    rng = drawn(draw)
    device = Device(rng)
    device.khz = 156_250
    device.bits = 48
    device.off = rng.choice([-1, 1]) * Fraction(rng.randrange(1_050, 900_000), 10**6)
    print(device)
    clock = begun(native, device, S, rng)
    raw_ns, faults = device.raw_ns + 2 * MS, set[str]()
    for _ in range(10):
        faults.add(take(native, clock, device.reading(raw_ns, rng)))
        raw_ns += 1 * S
    assert faults != {""}, "it was believed"


NAMED: dict[str, Callable[[int, int], bool]] = {
    "names a frequency": lambda _, khz: not 1_000 <= khz <= 10_000_000,
    "gaps": lambda mask, _: mask & (mask + 1) != 0,
    "wraps": lambda mask, khz: mask // max(khz, 1) < 8_000,
}


@pytest.mark.parametrize("draw", range(20))
def test_what_a_device_names_is_checked(native: ctypes.CDLL, draw: int) -> None:
    rng = drawn(draw)
    for _ in range(200):
        mask = rng.choice([(1 << rng.randrange(65)) - 1, rng.randrange(1 << 64)])
        khz = rng.choice([0, 1, 999, 1_000, 156_250, 10_000_000, 10_000_001, (1 << 64) - 1])
        fault = ctypes.create_string_buffer(96)
        usable = native.syn_ticks_usable(ctypes.c_uint64(mask), ctypes.c_uint64(khz), fault)
        wrong = [what for what, holds in NAMED.items() if holds(mask, khz)]
        assert bool(usable) == (not wrong), (mask, khz, fault.value)
        assert usable or any(what in fault.value.decode() for what in wrong)
