"""The filter lets through what carries a sampled byte, and headers are read as they are."""

from __future__ import annotations

import ipaddress
import random
import struct

import numpy as np
import pytest

from syntony.errors import MissingError
from syntony.io import segment_tap
from syntony.io.segment_filter import MAX_WORDS, SNAPLEN, ports_word, segment_filter
from syntony.io.segment_tap import SegmentTap, packed, segments_of
from syntony.wire.segments import MAX_SHIFT

SEED = random.randrange(1 << 32)
MASK = 0xFFFFFFFF


def run(  # noqa: C901, PLR0912, PLR0915 - one case for each instruction
    program: bytes, packet: bytes, protocol: int
) -> int:
    """What the kernel's interpreter does, by the manual (bpf(4)); as many bytes as pass."""
    code = list(struct.iter_unpack("=HBBI", program))
    a = x = at = 0
    memory: dict[int, int] = {}

    def load(place: int, size: int) -> int | None:
        piece = packet[place : place + size]
        return int.from_bytes(piece, "big") if len(piece) == size else None

    while True:
        operation, true, false, k = code[at]
        at += 1
        value: int | None = 0
        match operation:
            case 0x28 if k == 0xFFFFF000:
                value = a = protocol
            case 0x20 | 0x28 | 0x30:
                value = load(k, {0x20: 4, 0x28: 2, 0x30: 1}[operation])
                a = value or 0
            case 0x40 | 0x50:
                value = load(x + k, {0x40: 4, 0x50: 1}[operation])
                a = value or 0
            case 0x80:
                a = len(packet)
            case 0x60:
                a = memory[k]
            case 0x61:
                x = memory[k]
            case 0x01:
                x = k
            case 0xB1:
                value = load(k, 1)
                x = 4 * ((value or 0) & 0xF)
            case 0x02:
                memory[k] = a
            case 0x07:
                x = a
            case 0x0C:
                a = (a + x) & MASK
            case 0x1C:
                a = (a - x) & MASK
            case 0x14:
                a = (a - k) & MASK
            case 0x54:
                a &= k
            case 0x74:
                a >>= k
            case 0xAC:
                a ^= x
            case 0x05:
                at += k
            case 0x15:
                at += true if a == k else false
            case 0x35:
                at += true if a >= k else false
            case 0x45:
                at += true if a & k else false
            case 0x06:
                return int(k)
            case _:
                raise AssertionError(hex(operation))
        if value is None:
            return 0  # beyond the packet


class Packet:
    """One drawn at random: TCP, or nearly so."""

    def __init__(self, rng: random.Random, ports: list[tuple[int, int]]) -> None:
        self.six = rng.random() < 0.5
        bits = 128 if self.six else 32
        kind = ipaddress.IPv6Address if self.six else ipaddress.IPv4Address
        self.src, self.dst = (kind(rng.getrandbits(bits)) for _ in range(2))
        self.sport, self.dport = rng.choice(ports)
        if rng.random() < 0.2:
            self.sport = rng.randrange(1, 1 << 16)
        near = rng.randrange(16) << rng.choice([16, 20, 28])
        self.seq = (near + rng.randrange(-2_000, 2_000)) & MASK
        self.payload = rng.choice([0, 1, rng.randrange(1, 1_500), rng.randrange(1, 60_000)])
        self.flags = rng.choice([0x10, 0x18, 0x19, 0x02, 0x12, 0x14])
        self.protocol = 6 if rng.random() < 0.9 else 17
        self.fragment = 0 if self.six else rng.choice([0, 0, 0, 0x4000, 0x2000, 7])
        offset = rng.randrange(5, 16)
        tcp = struct.pack(
            ">HHIIBBHHH", self.sport, self.dport, self.seq, rng.getrandbits(32), offset << 4,
            self.flags, 1, 2, 3,
        )  # fmt: skip
        tcp += bytes(4 * offset - 20)
        if self.six:
            head = struct.pack(">IHBB", 6 << 28, len(tcp) + self.payload, self.protocol, 64)
        else:
            words = rng.randrange(5, 16)
            head = struct.pack(
                ">BBHHHBBH", 4 << 4 | words, 0, 4 * words + len(tcp) + self.payload, 9,
                self.fragment, 64, self.protocol, 0,
            )  # fmt: skip
        options = b"" if self.six else bytes(4 * (head[0] & 0xF) - 20)
        self.headers = head + self.src.packed + self.dst.packed + options + tcp
        self.ether = 0x86DD if self.six else 0x0800

    @property
    def carries(self) -> bool:
        return (
            self.protocol == 6
            and self.payload > 0
            and not self.flags & 0x06
            and not self.fragment & 0x3FFF
        )


def test_what_passes_is_what_carries_a_sampled_byte() -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    passed = 0
    for _ in range(3_000):
        count = rng.choice([1, 3, 250, MAX_WORDS])
        ports = [(rng.randrange(1, 1 << 16), rng.randrange(1, 1 << 16)) for _ in range(count)]
        shifts = {ports_word(*each): rng.choice([12, 16, 20, MAX_SHIFT]) for each in ports}
        packet = Packet(rng, ports[-3:])
        shift = shifts.get(ports_word(packet.sport, packet.dport))
        first = -(-packet.seq >> shift) << shift if shift is not None else MASK << 1
        wanted = packet.carries and first < packet.seq + packet.payload
        whole = packet.headers + bytes(packet.payload)
        found = run(segment_filter(shifts), whole, packet.ether)
        assert found == (SNAPLEN if wanted else 0), vars(packet)
        passed += wanted
    assert passed > 100


def test_nothing_passes_where_nothing_is_sampled_and_programs_stay_small() -> None:
    assert run(segment_filter({}), b"x" * 99, 0x0800) == 0
    words = {ports_word(each, 5_000): 12 + each % 17 for each in range(1, MAX_WORDS + 1)}
    assert len(segment_filter(words)) // 8 < 4_096


def frame(packet: Packet, *, outgoing: bool, cut: int = SNAPLEN) -> bytes:
    """As the kernel writes it (packet_mmap): tpacket2_hdr, sockaddr_ll, headers."""
    raw = packet.headers[:cut]
    head = struct.pack(
        "=IIIHHIIHH4x", 1, len(packet.headers) + packet.payload, len(raw), 80, 80, 1_700_000_000,
        7, 0, 0,
    )  # fmt: skip
    link = struct.pack("=HHIHBB8x", 17, 0, 3, 1, 4 if outgoing else 0, 6)
    made = head + link
    return (made + bytes(80 - len(made)) + raw).ljust(256, b"\xa5")


def test_headers_are_read_as_they_are() -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    packets = [Packet(rng, [(40_000, 5_000), (5_000, 40_000)]) for _ in range(500)]
    outgoing = [rng.random() < 0.5 for _ in packets]
    frames = [frame(each, outgoing=out) for each, out in zip(packets, outgoing, strict=True)]
    raw = np.frombuffer(b"".join(frames), np.uint8).reshape(-1, 256)
    expected = [
        (
            packed(str(each.src)), packed(str(each.dst)), each.sport, each.dport, int(out),
            1_700_000_000_000_000_007, each.seq, each.payload,
        )
        for each, out in zip(packets, outgoing, strict=True)
        if each.protocol == 6 and each.payload
    ]  # fmt: skip
    found = [
        (row["src"].tobytes(), row["dst"].tobytes(), *row.tolist()[2:]) for row in segments_of(raw)
    ]
    assert found == expected
    assert len(segments_of(raw[:0])) == 0


def test_a_length_that_the_header_cannot_say_is_the_packets() -> None:
    rng = random.Random(3)
    packet = Packet(rng, [(1, 2)])
    while packet.six or packet.protocol != 6:
        packet = Packet(rng, [(1, 2)])
    packet.payload = 200_000
    packet.headers = packet.headers[:2] + b"\0\0" + packet.headers[4:]
    raw = np.frombuffer(frame(packet, outgoing=True), np.uint8).reshape(1, 256)
    assert segments_of(raw)["payload"].tolist() == [200_000]


def test_rubbish_is_no_segment_and_no_error() -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    raw = np.frombuffer(rng.randbytes(256 * 2_000), np.uint8).reshape(-1, 256)
    found = segments_of(raw)
    assert (found["payload"] > 0).all()
    packet = Packet(rng, [(1, 2)])
    short = np.frombuffer(frame(packet, outgoing=True, cut=30), np.uint8).reshape(1, 256)
    assert len(segments_of(short)) == 0


def test_without_the_right_or_the_nic_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr("syntony.io.segment_tap.socket.socket", refuse)
        with pytest.raises(MissingError, match="CAP_NET_RAW"):
            SegmentTap("lo")
    try:
        segment_tap.packet_socket().close()
    except MissingError:
        pytest.skip("needs CAP_NET_RAW (root): a tap on an interface that is missing is NOT tested")
    with pytest.raises(MissingError, match="none0"):
        SegmentTap("none0")
