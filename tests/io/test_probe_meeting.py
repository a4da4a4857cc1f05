"""Questions where a NIC is over verbs: who may ask, and what an answer is worth."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from tests.io.probe_packet import PACKET_BYTES, Packet, decode, encode
from tests.live import eventually
from tests.ports import free_udp_port

from syntony.errors import WireError
from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import Endpoint, PeerKeys, ProbeNic
from syntony.model import S
from syntony.wire.probes import ProbeFlow

KEY = (1, b"sixteen byte key")
OTHER = (1, b"another key here")
ASK, TELL = 3, 4
OWN = Endpoint(2, 0x123456, bytes(range(16)), 0x789, infiniband=True)
QUIET_S = 0.3


@pytest.fixture
def reported() -> Iterator[tuple[ProbeEngine, int]]:
    """An engine that offers `OWN`, and its port."""
    port = free_udp_port()
    nic = ProbeNic(name="lo", nic_id=2, address="127.0.0.1", port=port)
    with ProbeEngine([nic], KernelClock("b")) as engine:
        engine.set_peers({1: PeerKeys(KEY)})
        engine.offer([OWN])
        engine.start()
        yield engine, port


def question(seq: int = 1, epoch: int = 7, dst: int = 2) -> Packet:
    return Packet(type=ASK, src_nic=1, dst_nic=dst, flow_id=0, seq=seq, epoch=epoch)


def answers(port: int, *packets: bytes) -> list[bytes]:
    """What comes back, until it is quiet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mine:
        mine.connect(("127.0.0.1", port))
        for packet in packets:
            mine.send(packet)
        mine.settimeout(QUIET_S)
        found = []
        while True:
            try:
                found.append(mine.recv(2048))
            except TimeoutError:
                return found


def test_a_question_is_answered_once_and_by_no_more_bytes(
    reported: tuple[ProbeEngine, int],
) -> None:
    engine, port = reported
    requested = encode(question(), KEY)
    (answer,) = answers(port, requested, requested)
    assert len(answer) == len(requested) == PACKET_BYTES
    assert answers(port, requested) == []
    assert engine.counters().replayed == 2
    packet = decode(answer, (KEY,))
    assert (packet.type, packet.seq, packet.epoch) == (TELL, 1, 7)
    assert answer[40:62] == OWN.gid + struct.pack(">IH", OWN.qpn, OWN.lid)
    assert len(answers(port, encode(question(seq=2), KEY))) == 1


@pytest.mark.parametrize("what", ["key", "nic", "epoch", "body", "stranger"])
def test_no_other_question_is_answered(reported: tuple[ProbeEngine, int], what: str) -> None:
    _, port = reported
    good = encode(question(seq=5), KEY)
    assert len(answers(port, good)) == 1
    bad = {
        "key": encode(question(seq=6), OTHER),
        "nic": encode(question(seq=6, dst=3), KEY),
        "epoch": encode(question(seq=6, epoch=6), KEY),
        "body": encode(question(seq=6), KEY)[:41] + b"\1" + encode(question(seq=6), KEY)[42:],
        "stranger": encode(Packet(type=ASK, src_nic=9, dst_nic=2, flow_id=0, seq=6, epoch=7), KEY),
    }
    assert answers(port, bad[what]) == []


def test_a_nic_without_verbs_says_so(reported: tuple[ProbeEngine, int]) -> None:
    engine, port = reported
    engine.offer([])
    (answer,) = answers(port, encode(question(), KEY))
    assert answer[40:62] == bytes(22)


def test_an_answer_counts_to_its_question_only() -> None:
    """A peer that answers with what it likes: forged, of another question, twice."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(600)
        nic = ProbeNic(name="lo", nic_id=1, address="127.0.0.1", port=free_udp_port())
        flow = ProbeFlow(
            flow_id=0, src="lo", dst="b/lo", dst_nic_id=2, dst_addr="127.0.0.1",
            dst_port=peer.getsockname()[1], src_port=61000, interval_ns=S,
        )  # fmt: skip
        with ProbeEngine([nic], KernelClock("a")) as engine:
            engine.set_peers({2: PeerKeys(KEY)})
            engine.start()
            engine.ask([flow])
            assert engine.reported(1) == [None]
            requested, address = peer.recvfrom(2048)
            question_of = decode(requested, (KEY,))
            assert question_of.type == ASK
            right = Packet(
                type=TELL, src_nic=1, dst_nic=2, flow_id=0, seq=question_of.seq,
                epoch=question_of.epoch,
            )  # fmt: skip
            forged = encode(right, OTHER)
            stale = encode(
                Packet(
                    type=TELL, src_nic=1, dst_nic=2, flow_id=0, seq=question_of.seq + 1,
                    epoch=question_of.epoch,
                ),
                KEY,
            )  # fmt: skip
            for wrong in (forged, stale):
                peer.sendto(wrong, address)
            eventually(lambda: engine.counters().unsolicited == 1, "the stale answer was read")
            assert engine.reported(1) == [None]
            peer.sendto(encode(right, KEY), address)
            eventually(lambda: engine.reported(1) != [None], "told")
            peer.sendto(encode(right, KEY), address)
            eventually(lambda: engine.counters().unsolicited == 2, "the second is none")
            (reported,) = engine.reported(1)
            assert reported == Endpoint(2, 0, bytes(16), 0, infiniband=False)


def test_questions_and_answers_have_no_room_for_more() -> None:
    for kind, first in ((ASK, 40), (TELL, 62)):
        packet = Packet(type=kind, src_nic=1, dst_nic=2, flow_id=0, seq=1, epoch=1)
        whole = encode(packet, KEY)
        assert decode(whole, (KEY,)).type == kind
        for at in (6, first, 95):
            with pytest.raises(WireError, match=r"not a probe packet|malformed"):
                decode(whole[:at] + b"\1" + whole[at + 1 :], (KEY,))
