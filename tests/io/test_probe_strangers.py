"""Packets that nobody asked for, at a probe engine."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

import msgspec
import pytest
from tests.io import probe_packet as wire
from tests.io.test_probe_engine import KEY, PATIENCE_S, REMOTE, Pair
from tests.live import eventually
from tests.ports import free_udp_port

from syntony.model import S


class Stranger:
    """A plain socket talking to a reflector."""

    def __init__(self, stack: ExitStack) -> None:
        self.pair = Pair(stack)
        self.pair.up()
        self.socket = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.socket.bind(("127.0.0.1", 0))
        self.socket.connect(("127.0.0.1", self.pair.port))
        self.socket.settimeout(PATIENCE_S)

    def request(self, seq: int, **changes: int) -> bytes:
        plain = wire.Packet(
            type=wire.REQUEST, src_nic=9, dst_nic=REMOTE, flow_id=3, epoch=100, seq=seq
        )
        return wire.encode(msgspec.structs.replace(plain, **changes), KEY)

    def ask(self, data: bytes) -> wire.Packet:
        self.socket.send(data)
        reply = self.socket.recv(2000)
        assert len(reply) <= len(data)
        return wire.decode(reply, (KEY,))

    def counted(self, name: str, at_least: int = 1) -> None:
        eventually(lambda: getattr(self.pair.remote.counters(), name) >= at_least)


def test_a_reply_says_what_arrived(stack: ExitStack) -> None:
    stranger = Stranger(stack)
    first = stranger.ask(stranger.request(0))
    assert (first.type, first.seq, first.count, first.first_seq) == (wire.REPLY, 0, 1, 0)
    later = stranger.ask(stranger.request(3))
    assert (later.count, later.high_seq, later.bitmap) == (2, 3, 0b1001)
    assert later.follow_seq[0] == 0
    assert 0 < first.t2_ns <= later.follow_t3_ns[0] < later.t2_ns


def test_replays_and_past_epochs_are_ignored(stack: ExitStack) -> None:
    stranger = Stranger(stack)
    recorded = stranger.request(0)
    stranger.ask(recorded)
    stranger.ask(stranger.request(100))
    for data in (recorded, stranger.request(36), stranger.request(200, epoch=99)):
        stranger.socket.send(data)
    stranger.counted("replayed", 3)
    assert stranger.ask(stranger.request(101)).count == 3
    assert stranger.ask(stranger.request(0, epoch=101)).count == 1


def test_packets_for_others_are_ignored(stack: ExitStack) -> None:
    stranger = Stranger(stack)
    stranger.socket.send(stranger.request(0, dst_nic=77))
    stranger.counted("misdelivered")
    reply = wire.Packet(type=wire.REPLY, src_nic=REMOTE, dst_nic=9, flow_id=3, seq=0, epoch=100)
    stranger.socket.send(wire.encode(reply, KEY))
    stranger.counted("unsolicited")
    assert stranger.pair.remote.counters().replies == 0


def test_damaged_packets_are_ignored(stack: ExitStack) -> None:
    stranger = Stranger(stack)
    good = stranger.request(0)
    for data in (b"", good[:-1], good + b"\0", good * 2, b"\xff" * len(good)):
        stranger.socket.send(data)
    stranger.counted("malformed", 5)
    stranger.socket.send(good[:40] + b"\x01" + good[41:])
    stranger.counted("malformed", 6)
    stranger.socket.send(good[:-1] + bytes([good[-1] ^ 1]))
    stranger.counted("foreign")
    assert stranger.pair.remote.counters().received == 0
    assert stranger.ask(good).count == 1


@pytest.mark.parametrize("seed", [1])
def test_noise_leaves_the_reflector_answering(stack: ExitStack, seed: int) -> None:
    stranger = Stranger(stack)
    noise = random.Random(seed)
    for seq in range(40):
        for _ in range(50):
            data = bytearray(stranger.request(noise.randrange(2**32)))
            for _ in range(noise.randrange(4)):
                data[noise.randrange(len(data))] = noise.randrange(256)
            stranger.socket.send(data[: noise.choice([len(data), noise.randrange(len(data))])])
        stranger.socket.setblocking(False)
        try:
            while stranger.socket.recv(2000):
                pass
        except BlockingIOError:
            stranger.socket.settimeout(PATIENCE_S)
        assert stranger.ask(stranger.request(seq, flow_id=1000 + seq)).type == wire.REPLY


def test_a_reply_counts_once_and_only_for_its_probe(stack: ExitStack) -> None:
    """A stranger with the key answers the initiator: duplicates and inventions are counted."""
    stranger = Stranger(stack)
    pair = stranger.pair
    port = free_udp_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reflector:
        reflector.bind(("127.0.0.1", 0))
        reflector.settimeout(PATIENCE_S)
        flow = pair.flow(src_port=port, dst_port=reflector.getsockname()[1], interval_ns=2 * S)
        pair.local.set_flows([flow])
        request = wire.decode(reflector.recv(2000), (KEY,))

        def answer(**changes: int) -> None:
            packet = msgspec.structs.replace(request, type=wire.REPLY, **changes)
            reflector.sendto(wire.encode(packet, KEY), ("127.0.0.1", port))

        answer()
        eventually(lambda: pair.local.counters().received == 1)
        answer()
        eventually(lambda: pair.local.counters().replayed == 1)
        answer(seq=500)
        answer(epoch=request.epoch + 1)
        answer(flow_id=999)
        eventually(lambda: pair.local.counters().unsolicited == 3)
        answer(dst_nic=55)
        eventually(lambda: pair.local.counters().misdelivered == 1)
        assert pair.local.counters().received == 1
