"""Packets under other names: two hosts with two cables between them, in private namespaces."""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.io.namespace import PATIENCE_S, ip, run_alone
from tests.live import eventually

from syntony.errors import WireError
from syntony.io import detours, host_routes
from syntony.io.detours import DetourTable, parse_peer_path
from syntony.io.host_routes import PREFERENCE, HostRoutes
from syntony.io.netlink import NetlinkMessage, attribute
from syntony.model.paths import FourTuple
from syntony.traffic.events import WireReceived

OWN = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)
OTHER = OWN._replace(local="10.1.0.1", remote="10.1.0.2")
PORT = OWN._replace(local_port=61_007)


def mirrored(flow: FourTuple) -> FourTuple:
    return FourTuple(flow.remote, flow.remote_port, flow.local, flow.local_port)


def patiently() -> None:
    """Nothing is put back only because this test is late."""
    detours.DEAD_MAN_S = host_routes.DEAD_MAN_S = PATIENCE_S


def cables() -> None:
    patiently()
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
    ip("netns add far")
    for rail in (0, 1):
        ip(f"link add n{rail} type veth peer name f{rail} netns far")
        ip(f"addr add 10.{rail}.0.1/24 dev n{rail}")
        ip(f"-n far addr add 10.{rail}.0.2/24 dev f{rail}")
        ip(f"link set n{rail} up")
        ip(f"-n far link set f{rail} up")


def far_end() -> None:
    """Echoes; with an argument it knows of the detours, and on a line of stdin takes one itself."""
    patiently()
    table = DetourTable() if sys.argv[2:] else None
    if table is not None:
        table.beat()
        table.change(expected=[(mirrored(OWN), (mirrored(OTHER), mirrored(PORT)))])
    with socket.create_server(OWN[2:]) as listener:
        print(flush=True)
        peer, _ = listener.accept()
    with peer:
        while True:
            ready, _, _ = select.select([peer, sys.stdin], [], [])
            if sys.stdin in ready:
                if not sys.stdin.readline():
                    return
                if table is not None:
                    table.change(sent=[(mirrored(OWN), mirrored(OTHER))])
                print(flush=True)
            if peer in ready:
                peer.sendall(peer.recv(1 << 16))


class Far:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.line()

    def line(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline()

    def take_the_detour(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.line()


@contextmanager
def far(*words: str) -> Iterator[tuple[Far, socket.socket]]:
    argv = ["ip", "netns", "exec", "far", sys.executable, "-m", "tests.io.test_detours", "far_end"]
    with subprocess.Popen([*argv, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:  # fmt: skip
        end = Far(process)
        with socket.socket() as sock:
            sock.bind(OWN[:2])
            sock.connect(OWN[2:])
            sock.settimeout(PATIENCE_S)
            yield end, sock
        assert process.stdin is not None
        process.stdin.close()


def echoed(sock: socket.socket, size: int = 300_000) -> None:
    """There and back, every byte; large enough for segments that the device would cut."""
    data = bytes(range(256)) * (size // 256)
    got = b""
    sock.setblocking(True)
    left = memoryview(data)
    while len(got) < len(data):
        readable, writable, _ = select.select([sock], [sock] if left else [], [], PATIENCE_S)
        assert readable or writable, "nothing moves"
        if writable:
            left = left[sock.send(left[: 1 << 14]) :]
        if readable:
            got += sock.recv(1 << 16)
    assert got == data


def sent(nic: str) -> int:
    return int(Path(f"/sys/class/net/{nic}/statistics/tx_bytes").read_text(encoding="ascii"))


def a_connection_takes_other_ways_and_the_peer_hears_of_it() -> None:
    cables()
    table = DetourTable()
    table.beat()
    table.change(expected=[(OWN, (OTHER, PORT))])
    with far("expecting") as (end, sock):
        echoed(sock)
        assert table.poll(1) == []
        for way, nic in ((OTHER, "n1"), (PORT, "n0"), (OWN, "n0"), (OTHER, "n1")):
            before = sent(nic)
            table.change(sent=[(OWN, way)])
            echoed(sock)
            assert sent(nic) - before > 300_000, way
        end.take_the_detour()
        echoed(sock)
        assert set(table.poll(2)) == {WireReceived(at_ns=2, wire=OTHER)}
        ip("link set n0 down")  # with it go all routes to the peer's own address
        routes = HostRoutes()
        routes.offer(OWN.remote, (OTHER.local, OTHER.remote), "n1", metric=1)
        table.beat()
        echoed(sock)
        routes.close()
    table.change(expected=[(OWN, ())])
    table.close()


def a_peer_that_knows_nothing_of_it_is_left_alone() -> None:
    cables()
    table = DetourTable()
    table.beat()
    table.change(expected=[(OWN, (OTHER,))])
    with far() as (_, sock):
        echoed(sock)
        table.change(sent=[(OWN, OTHER)])
        sock.sendall(b"x")  # its kernel answers with a reset
        assert not select.select([sock], [], [], 1)[0], "not reset, and not answered"
        table.change(sent=[(OWN, OWN)])
        assert sock.recv(1) == b"x", "answered as soon as it goes its own way"
    table.close()


def a_dead_man_puts_everything_back() -> None:
    cables()
    detours.DEAD_MAN_S = 2
    table = DetourTable()
    with far() as (_, sock):
        began_s = time.monotonic()
        table.change(expected=[(OWN, (OTHER,))], sent=[(OWN, OTHER)])
        table.beat()
        sock.sendall(b"x")
        assert sock.recv(1) == b"x", "the kernel put it back by itself"
        assert time.monotonic() - began_s > 0.3, "but not before"


def a_hung_maker_loses_its_rule_until_it_lives_again() -> None:
    cables()
    host_routes.DEAD_MAN_S = 1
    routes = HostRoutes()

    def there() -> bool:
        done = subprocess.run(["ip", "rule"], capture_output=True, text=True, check=True)
        return f"{PREFERENCE}:" in done.stdout

    def there_when_it_beats() -> bool:
        routes.beat()
        return there()

    eventually(there_when_it_beats, "the rule")
    eventually(lambda: not there(), "the rule gone")
    eventually(there_when_it_beats, "the rule back")
    routes.close()
    assert not there()


@pytest.mark.lab
@pytest.mark.parametrize(
    "scenario",
    [
        a_connection_takes_other_ways_and_the_peer_hears_of_it,
        a_peer_that_knows_nothing_of_it_is_left_alone,
        a_dead_man_puts_everything_back,
        a_hung_maker_loses_its_rule_until_it_lives_again,
    ],
)
def test_alone(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


def test_strict_reverse_path_filters_are_found(tmp_path: Path) -> None:
    for name, value in (("all", 0), ("eth0", 1), ("eth1", 2), ("eth2", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rp_filter").write_text(f"{value}\n")
    nics = ["eth0", "eth1", "eth2", "gone"]
    assert detours.strict_nics(nics, tmp_path) == ["eth0"]
    (tmp_path / "all" / "rp_filter").write_text("1\n")
    assert detours.strict_nics(nics, tmp_path) == ["eth0", "eth2", "gone"]


def logged(packet: bytes) -> NetlinkMessage:
    return NetlinkMessage(4 << 8, 0, 0, bytes(4) + attribute(9, packet))


def test_a_logged_packet_names_its_way() -> None:
    ports = struct.pack("!HH", OTHER.remote_port, OTHER.local_port)
    ipv4 = bytes([0x45, *bytes(8), 6, 0, 0]) + bytes([10, 1, 0, 2, 10, 1, 0, 1])
    assert parse_peer_path(logged(ipv4 + ports)) == OTHER
    far_end, near_end = (socket.inet_pton(socket.AF_INET6, f"fd00::{n}") for n in (2, 1))
    ipv6 = bytes([0x60, 0, 0, 0, 0, 0, 6, 64]) + far_end + near_end
    assert parse_peer_path(logged(ipv6 + ports)) == FourTuple("fd00::1", 40_000, "fd00::2", 5_000)
    assert parse_peer_path(NetlinkMessage(2, 0, 0, b"")) is None


@given(packet=st.binary(max_size=64))
def test_any_packet_is_understood_or_refused(packet: bytes) -> None:
    try:
        way = parse_peer_path(logged(packet))
    except WireError:
        return
    assert way is not None


if __name__ == "__main__":
    globals()[sys.argv[1]]()
