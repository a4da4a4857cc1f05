"""The probe packet through the bindings: what goes in comes out, nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.io import probe_packet as wire

from syntony.errors import UsageError, WireError

KEY = (7, bytes(range(16)))
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)

requests = st.builds(
    wire.Packet,
    type=st.just(wire.REQUEST), key_id=st.just(7), dscp=st.integers(0, 63), src_nic=U32,
    dst_nic=U32, flow_id=U32, seq=U32, epoch=U64, flow_label=st.integers(0, 2**20 - 1),
)  # fmt: skip
replies = st.builds(
    wire.Packet,
    type=st.just(wire.REPLY), key_id=st.just(7), flags=st.integers(0, 3), dscp=st.integers(0, 63),
    src_nic=U32, dst_nic=U32, flow_id=U32, seq=U32, epoch=U64, count=U32, high_seq=U32,
    flow_label=st.integers(0, 2**20 - 1), first_seq=U32, bitmap=U64, t2_ns=I64,
    follow_seq=st.tuples(U32, U32), follow_t3_ns=st.tuples(I64, I64),
)  # fmt: skip


@given(st.one_of(requests, replies))
def test_a_packet_survives_the_wire(packet: wire.Packet) -> None:
    data = wire.encode(packet, KEY)
    assert len(data) == wire.PACKET_BYTES
    assert wire.decode(data, (KEY,)) == packet
    assert wire.decode(data, ((3, b"x" * 16), KEY)) == packet


@given(st.one_of(requests, replies), st.integers(0, wire.PACKET_BYTES * 8 - 1))
def test_a_flipped_bit_does_not(packet: wire.Packet, bit: int) -> None:
    data = bytearray(wire.encode(packet, KEY))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError):
        wire.decode(bytes(data), (KEY,))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match=r"not a probe packet|unknown key"):
        wire.decode(data, (KEY,))


def test_wrong_key_and_truncation_are_told_apart() -> None:
    data = wire.encode(
        wire.Packet(type=wire.REQUEST, src_nic=1, dst_nic=2, flow_id=3, seq=4, epoch=5), KEY
    )
    with pytest.raises(WireError, match="unknown key"):
        wire.decode(data, ((8, KEY[1]),))
    with pytest.raises(WireError, match="wrong tag"):
        wire.decode(data, ((7, b"y" * 16),))
    with pytest.raises(WireError, match="not a probe packet"):
        wire.decode(data[:-1], (KEY,))


def test_misfits_are_refused_before_the_wire() -> None:
    packet = wire.Packet(type=wire.REQUEST, src_nic=2**32, dst_nic=2, flow_id=3, seq=4, epoch=5)
    with pytest.raises(UsageError, match="does not fit"):
        wire.encode(packet, KEY)
    with pytest.raises(UsageError, match="16 bytes"):
        wire.decode(b"", ((1, b"short"),))
