"""Real connections over loopback, sampled; the kernel's filter; MPTCP where the kernel has it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.live import eventually

from syntony.errors import UsageError
from syntony.io.tcp_flows import SENDING_STATES, TcpFlows, local_filter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from syntony.model.paths import FlowSample

IPPROTO_MPTCP = 262
ADDRESSES = {4: "127.0.0.1", 6: "::1"}


class Pair:
    """A connection within this process."""

    def __init__(self, address: str, family: int, protocol: int = 0) -> None:
        with socket.socket(family, socket.SOCK_STREAM, protocol) as listener:
            listener.bind((address, 0))
            listener.listen()
            self.client = socket.socket(family, socket.SOCK_STREAM, protocol)
            self.client.connect(listener.getsockname())
            self.server, _ = listener.accept()

    @property
    def ports(self) -> tuple[int, int]:
        return self.client.getsockname()[1], self.client.getpeername()[1]

    def close(self) -> None:
        self.client.close()
        self.server.close()


def row_of(rows: NDArray[np.void], pair: Pair) -> NDArray[np.void]:
    local, remote = pair.ports
    ours: NDArray[np.bool_] = (rows["local_port"] == local) & (rows["remote_port"] == remote)
    return rows[ours].copy()


def sample_of(flows: TcpFlows, pair: Pair) -> FlowSample:
    (sample,) = flows.samples(row_of(flows.find(), pair), time.monotonic_ns())
    return sample


def inode_of(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


@pytest.fixture
def flows() -> Iterator[TcpFlows]:
    with TcpFlows() as opened:
        yield opened


@pytest.fixture(params=[4, 6])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    family = socket.AF_INET if request.param == 4 else socket.AF_INET6
    made = Pair(ADDRESSES[request.param], family)
    yield made
    made.close()


def test_a_connection_is_found_whole(flows: TcpFlows, pair: Pair) -> None:
    sample = sample_of(flows, pair)
    assert sample.flow.local == pair.client.getsockname()[0]
    assert sample.flow.remote == pair.client.getpeername()[0]
    assert (sample.flow.local_port, sample.flow.remote_port) == pair.ports
    assert sample.inode == inode_of(pair.client)
    assert (sample.token, sample.bytes_received, sample.backoff) == (0, 0, 0)


def test_bytes_and_acknowledgements_are_counted(flows: TcpFlows, pair: Pair) -> None:
    before = sample_of(flows, pair)
    pair.client.sendall(b"x" * 1000)
    assert len(pair.server.recv(1000, socket.MSG_WAITALL)) == 1000
    pair.server.sendall(b"y" * 300)
    eventually(lambda: sample_of(flows, pair).bytes_received == 300, "answer received")
    after = sample_of(flows, pair)
    assert after.bytes_acked - before.bytes_acked == 1000
    assert after.unacked == 0
    assert after.rtt_ns > 0


def test_the_class_is_that_which_the_socket_has_now(flows: TcpFlows, pair: Pair) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    if pair.client.family == socket.AF_INET:
        option = socket.IPPROTO_IP, socket.IP_TOS
    else:
        option = socket.IPPROTO_IPV6, socket.IPV6_TCLASS
    assert sample_of(flows, pair).dscp == 0
    rows = row_of(flows.find(), pair)
    for dscp in (*draw.sample(range(1, 64), 5), 63, 0):
        pair.client.setsockopt(*option, dscp << 2)
        assert sample_of(flows, pair).dscp == dscp
        flows.sample(rows)
        assert flows.samples(rows, 1)[0].dscp == dscp


def test_a_receiver_that_reads_nothing_leaves_data_unsent_not_unacknowledged(
    flows: TcpFlows, pair: Pair
) -> None:
    pair.client.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            pair.client.send(b"x" * 65536)
    eventually(lambda: sample_of(flows, pair).unacked == 0, "what fits acknowledged")
    sample = sample_of(flows, pair)
    limited_ns = sample.window_limited_ns
    eventually(lambda: sample_of(flows, pair).window_limited_ns > limited_ns, "its window is shut")
    assert sample.backoff == 0


def test_known_flows_are_sampled_in_place(flows: TcpFlows) -> None:
    pairs = [Pair("127.0.0.1", socket.AF_INET) for _ in range(50)]
    found = flows.find()
    rows = np.concatenate([row_of(found, pair) for pair in pairs])
    assert len(rows) == 50
    for pair in pairs:
        pair.client.sendall(b"x" * 10)
    before = rows.copy()
    flows.sample(rows)
    assert (rows["bytes_acked"] - before["bytes_acked"] <= 10).all()
    assert (rows["cookie"] == before["cookie"]).all()
    assert (rows["inode"] == before["inode"]).all()
    pairs[7].close()
    flows.sample(rows)
    assert (1 << int(rows["state"][7])) & SENDING_STATES == 0
    assert len(flows.samples(rows, 1)) == 49
    for pair in pairs:
        pair.close()


def test_another_connection_under_the_same_name_is_not_taken_for_the_first(
    flows: TcpFlows,
) -> None:
    pair = Pair("127.0.0.1", socket.AF_INET)
    rows = row_of(flows.find(), pair)
    rows["cookie"] += 1
    flows.sample(rows)
    assert rows["state"][0] == 0
    assert flows.samples(rows, 1) == []
    pair.close()


def test_the_kernel_filters_by_local_address(flows: TcpFlows) -> None:
    first, second = Pair("127.0.0.2", socket.AF_INET), Pair("127.0.0.3", socket.AF_INET)
    third = Pair("::1", socket.AF_INET6)
    # The clients' own addresses are the kernel's choice; the servers' are ours.
    wanted = {"127.0.0.2", "127.0.0.3"}
    locals_found = {s.flow.local for s in flows.samples(flows.find(wanted), 1)}
    assert locals_found == wanted
    only = {s.flow.local for s in flows.samples(flows.find(["127.0.0.3"]), 1)}
    assert only == {"127.0.0.3"}
    both = {s.flow.local for s in flows.samples(flows.find(["::1", "127.0.0.2"]), 1)}
    assert both == {"::1", "127.0.0.2"}
    for pair in (first, second, third):
        pair.close()


def test_an_ipv4_peer_of_a_dual_stack_socket_is_ipv4(flows: TcpFlows) -> None:
    pair = Pair("::ffff:127.0.0.4", socket.AF_INET6)
    (server,) = flows.samples(flows.find(["127.0.0.4"]), 1)
    assert server.flow.local == "127.0.0.4"
    rows = flows.find(["127.0.0.4"])
    flows.sample(rows)
    assert len(flows.samples(rows, 1)) == 1
    pair.server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 8 << 2)
    pair.server.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 26 << 2)
    flows.sample(rows)
    assert flows.samples(rows, 1)[0].dscp == 26
    pair.close()


def test_a_filter_needs_addresses() -> None:
    assert local_filter([]) == b""
    with pytest.raises(UsageError, match="'rail0' is not"):
        local_filter(["rail0"])


needs_mptcp = pytest.mark.skipif(
    not Path("/proc/sys/net/mptcp/enabled").exists()
    or Path("/proc/sys/net/mptcp/enabled").read_text().strip() != "1",
    reason="needs MPTCP (Linux 5.6 or newer, sysctl net.mptcp.enabled=1): its connections are "
    "NOT tested",
)


@needs_mptcp
def test_subflows_have_the_token_and_the_inode_of_their_connection(flows: TcpFlows) -> None:
    pair = Pair("127.0.0.1", socket.AF_INET, IPPROTO_MPTCP)
    pair.client.sendall(b"x")
    assert pair.server.recv(1) == b"x"
    pair.server.sendall(b"y")
    assert pair.client.recv(1) == b"y"
    client = sample_of(flows, pair)
    assert client.token != 0
    assert client.inode == inode_of(pair.client)
    owners = {int(owner["token"]): int(owner["inode"]) for owner in flows.owners()}
    assert owners[client.token] == inode_of(pair.client)
    assert inode_of(pair.server) in owners.values()
    rows = row_of(flows.find(), pair)
    flows.sample(rows)
    assert flows.samples(rows, 1)[0].token == client.token
    pair.client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 26 << 2)
    flows.sample(rows)
    assert flows.samples(rows, 1)[0].dscp == 26
    pair.close()
