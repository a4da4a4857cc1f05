"""What other hosts and switches see of a probe: class, flow label, size, source port."""

from __future__ import annotations

import socket
import struct

import pytest
from tests.io import probe_packet as wire
from tests.io.engine_peer import everyone
from tests.ports import free_udp_port

from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import ProbeNic
from syntony.model import MS
from syntony.wire.probes import ProbeFlow

KEY = (7, b"sixteen byte key")
NIC_ID, PEER_ID = 1, 9
IPV6_FLOWINFO = 11  # linux/in6.h
PATIENCE_S = 300.0
Seen = tuple[wire.Packet, int, int, int]
"""Packet, DSCP, flow label, sender's port."""


def listener(address: str) -> socket.socket:
    """A bound socket that reports class and label of what it receives."""
    six = ":" in address
    made = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 0))
    made.settimeout(PATIENCE_S)
    if six:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        made.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWINFO, 1)
    else:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    return made


def look(sock: socket.socket) -> Seen:
    data, controls, _, sender = sock.recvmsg(2000, 256)
    dscp = label = 0
    for _, kind, value in controls:
        if kind == IPV6_FLOWINFO:
            label = struct.unpack("!I", value)[0] & 0xFFFFF
        else:
            dscp = value[0] >> 2
    return wire.decode(data, (KEY,)), dscp, label, sender[1]


def engine(address: str, port: int) -> ProbeEngine:
    nic = ProbeNic(name="lo", nic_id=NIC_ID, address=address, port=port)
    made = ProbeEngine([nic], KernelClock("h"))
    made.set_peers(everyone(KEY))
    made.start()
    return made


@pytest.mark.parametrize(("address", "label"), [("127.0.0.1", 0), ("::1", 0xABCDE)])
def test_requests_carry_the_flows_class_label_and_port(address: str, label: int) -> None:
    """Three classes share one source port, and so one path."""
    with listener(address) as reflector, engine(address, free_udp_port(address)) as prober:
        port = free_udp_port(address)
        prober.set_flows(
            [
                ProbeFlow(
                    flow_id=dscp, src="lo", dst="x/y", dst_nic_id=PEER_ID, dst_addr=address,
                    dst_port=reflector.getsockname()[1], src_port=port, flow_label=label,
                    dscp=dscp, interval_ns=20 * MS,
                )
                for dscp in (0, 8, 46)
            ]
        )  # fmt: skip
        seen = [look(reflector) for _ in range(30)]
    assert {packet.flow_id for packet, *_ in seen} == {0, 8, 46}
    for packet, dscp, flow_label, sender in seen:
        assert (dscp, packet.dscp) == (packet.flow_id, packet.flow_id)
        assert (flow_label, packet.flow_label) == (label, label)
        assert sender == port


def test_a_pair_is_two_packets_in_order() -> None:
    with (
        listener("127.0.0.1") as reflector,
        engine("127.0.0.1", free_udp_port("127.0.0.1")) as prober,
    ):
        flow = ProbeFlow(
            flow_id=1, src="lo", dst="x/y", dst_nic_id=PEER_ID, dst_addr="127.0.0.1",
            dst_port=reflector.getsockname()[1], src_port=free_udp_port("127.0.0.1"),
            interval_ns=10 * MS,
        )  # fmt: skip
        prober.set_flows([flow])
        packets = [look(reflector)[0] for _ in range(20)]
    assert [packet.seq for packet in packets] == list(range(20))
    assert len({packet.epoch for packet in packets}) == 1


@pytest.mark.parametrize(("address", "label"), [("127.0.0.1", 0), ("::1", 0x12345)])
def test_replies_come_back_in_the_requests_class(address: str, label: int) -> None:
    port = free_udp_port(address)
    with listener(address) as initiator, engine(address, port):
        for seq, dscp in enumerate((46, 0, 63)):
            request = wire.Packet(
                type=wire.REQUEST, src_nic=PEER_ID, dst_nic=NIC_ID, flow_id=1, seq=seq, epoch=1,
                dscp=dscp, flow_label=label,
            )  # fmt: skip
            initiator.sendto(wire.encode(request, KEY), (address, port))
            reply, seen_dscp, seen_label, sender = look(initiator)
            assert (reply.type, reply.seq) == (wire.REPLY, seq)
            assert (seen_dscp, seen_label, sender) == (dscp, label, port)
