"""Records that a process wrote: every field may be anything."""

from __future__ import annotations

import random
from typing import Any

import pytest

from syntony.model import S
from syntony.traffic.process_flows import (
    AHEAD_NS,
    RECORD,
    Malformed,
    Mechanism,
    ProcessFlow,
    address_bytes,
    parse_flow,
)

NOW_NS = 100 * S
GOOD: dict[str, Any] = {
    "sequence": 4, "mechanism": 1, "state": 1, "number": 17,
    "local": address_bytes("10.0.0.1"), "remote": address_bytes("fe80::1"),
    "local_port": 49152, "remote_port": 4791, "nic": b"mlx5_0", "bytes_done": 1, "waiting": 2,
    "last_done_ns": NOW_NS, "outstanding": 3, "errors": 4, "last_error": 5, "reserved": 6,
}  # fmt: skip


def parse(**changed: Any) -> ProcessFlow | Malformed:
    return parse_flow(RECORD.pack(*(GOOD | changed).values()), NOW_NS)


def test_a_record_is_read_field_by_field() -> None:
    assert parse() == ProcessFlow(
        Mechanism.RDMA, 17, "mlx5_0", "10.0.0.1", 49152, "fe80::1", 4791, 1, 2, NOW_NS, 3, 4, 5,
        failed=False,
    )  # fmt: skip
    failed = parse(state=2, mechanism=3, local=bytes(16))
    assert isinstance(failed, ProcessFlow)
    assert (failed.failed, failed.mechanism, failed.local) == (True, Mechanism.MPTCP, "::")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"mechanism": 0}, Malformed.MECHANISM),
        ({"mechanism": 4}, Malformed.MECHANISM),
        ({"state": 0}, Malformed.STATE),
        ({"state": 3}, Malformed.STATE),
        ({"nic": b""}, Malformed.NIC),
        ({"nic": b"x" * 32}, Malformed.NIC),
        ({"nic": b"eth0\x1b[2J"}, Malformed.NIC),
        ({"nic": "ö".encode()}, Malformed.NIC),
        ({"local_port": 65536}, Malformed.PORT),
        ({"remote_port": 2**32 - 1}, Malformed.PORT),
        ({"last_done_ns": -1}, Malformed.TIME),
        ({"last_done_ns": NOW_NS + AHEAD_NS + 1}, Malformed.TIME),
    ],
)
def test_what_cannot_be_is_named(changed: dict[str, Any], why: Malformed) -> None:
    assert parse(**changed) is why


def test_limits_are_within() -> None:
    for changed in (
        {"nic": b"x" * 31},
        {"local_port": 65535},
        {"last_done_ns": NOW_NS + AHEAD_NS},
        {"last_done_ns": 0},
        {"bytes_done": 2**64 - 1},
    ):
        assert isinstance(parse(**changed), ProcessFlow), changed


def test_any_bytes_are_a_flow_or_a_reason() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    good, flows = RECORD.pack(*GOOD.values()), 0
    for _ in range(5_000):
        raw = bytearray(good if rng.random() < 0.9 else rng.randbytes(RECORD.size))
        for _ in range(rng.randrange(4)):
            raw[rng.randrange(RECORD.size)] = rng.randrange(256)
        found = parse_flow(bytes(raw), NOW_NS)
        if isinstance(found, ProcessFlow):
            flows += 1
            assert found.nic.isprintable()
            assert 0 <= found.last_done_ns <= NOW_NS + AHEAD_NS
    assert flows


def test_addresses_come_back() -> None:
    for address in ("10.1.2.3", "fd00::7"):
        found = parse(local=address_bytes(address))
        assert isinstance(found, ProcessFlow)
        assert found.local == address
    assert address_bytes("") == bytes(16)
