"""Cross-stamps from kernel structures as drivers fill them; the tightest sample wins."""

from __future__ import annotations

import struct

import pytest

from syntony.errors import MissingError
from syntony.io.phc import CrossStamp, Phc, read_basic, read_extended, read_precise

ABSENT = 200


def moment(ns: int) -> bytes:
    return struct.pack("=qII", ns // 10**9, ns % 10**9, 0)


def header(samples: int) -> bytes:
    return struct.pack("=IIII", samples, 0, 0, 0)


def test_precise_is_one_instant() -> None:
    data = moment(5_000_000_007) + moment(9_000_000_001) + moment(1) + bytes(16)
    assert read_precise(data) == CrossStamp(5_000_000_007, 9_000_000_001, 1)


def test_extended_takes_the_tightest_triple() -> None:
    triples = [(1000, 50, 3000), (10_000, 60, 10_100), (20_000, 70, 21_000)]
    data = header(3) + b"".join(moment(ns) for triple in triples for ns in triple)
    assert read_extended(data.ljust(1216, b"\0")) == CrossStamp(60, 10_050, 50)


def test_basic_shares_the_outer_readings() -> None:
    data = header(2) + b"".join(moment(ns) for ns in (0, 500, 1000, 501, 1011))
    assert read_basic(data.ljust(832, b"\0")) == CrossStamp(501, 1005, 6)


def test_negative_time_is_read_right() -> None:
    data = struct.pack("=qII", -1, 999_999_999, 0) + moment(5) + bytes(32)
    assert read_precise(data).phc_ns == -1


def test_a_missing_device_is_one_clear_line() -> None:
    with pytest.raises(MissingError, match=f"/dev/ptp{ABSENT} cannot be opened"):
        Phc(ABSENT)
