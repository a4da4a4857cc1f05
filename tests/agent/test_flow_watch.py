"""What is reported the connections that leave by our NICs: real ones, over loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.io.namespace import run_alone
from tests.live import eventually

from syntony.agent.steering.flows import ALL_NS, NONE_NS, SAMPLE_NS, FlowWatch
from syntony.model import MS
from syntony.model.paths import FlowSample
from syntony.traffic.pairs import ConnectionProgress

HERE = "127.0.0.1"
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket.create_server((HERE, 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        yield near, far


def inode(sock: socket.socket) -> int:
    return os.fstat(sock.fileno()).st_ino


def reported(watch: FlowWatch, now_ns: int) -> set[int]:
    return {each.inode for each in watch.poll(now_ns) if isinstance(each, FlowSample)}


def test_plain_connections_are_listed_and_only_the_managed_ones_looked_at(pair: Pair) -> None:
    near, far = pair
    watch = FlowWatch(lambda: [HERE], lambda: [inode(near)])
    now_ns = time.monotonic_ns()
    assert {inode(near), inode(far)} <= reported(watch, now_ns)
    (progress,) = watch.progress([HERE], now_ns)
    assert (progress.acked_ns, progress.waits_ns) == (0, 0), "nothing was sent yet"
    near.sendall(b"x")
    far.sendall(b"y")
    assert far.recv(1) + near.recv(1) == b"xy"
    now_ns = time.monotonic_ns()
    (progress,) = watch.progress([HERE], now_ns)
    assert progress.flow == (*near.getsockname(), *far.getsockname())
    assert 0 < progress.acked_ns <= now_ns
    assert progress.waits_ns == 0
    assert not watch.progress(["127.0.0.2"], now_ns)
    watch.close()


def test_plain_ones_are_left_out_where_nobody_manages_them(pair: Pair) -> None:
    near, _ = pair
    watch = FlowWatch(lambda: [HERE])
    assert inode(near) not in reported(watch, time.monotonic_ns() + ALL_NS)
    watch.close()


def test_with_nothing_to_look_at_often_it_waits_for_the_next_account(pair: Pair) -> None:
    near, _ = pair
    managed: list[int] = []
    watch = FlowWatch(lambda: [HERE], lambda: managed)
    now_ns = time.monotonic_ns()
    assert inode(near) in reported(watch, now_ns)
    assert watch.deadline_ns == now_ns + NONE_NS
    assert not watch.poll(now_ns + NONE_NS - 1)
    managed.append(inode(near))
    now_ns += NONE_NS - 1
    (progress,) = watch.progress([HERE], now_ns, anew=True)
    assert progress.waits_ns == 0, "that it was unknown is no silence"
    assert watch.deadline_ns == now_ns + SAMPLE_NS, "one was found meanwhile"
    watch.refresh()
    assert watch.poll(now_ns + SAMPLE_NS)
    assert watch.deadline_ns == now_ns + 2 * SAMPLE_NS
    watch.close()


def acknowledgements_stop() -> None:
    """A stream is cut: it hangs, and did not before however long it ran."""
    with socket.create_server((HERE, 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    watch = FlowWatch(lambda: [HERE], lambda: [inode(near)])
    watch.poll(time.monotonic_ns())
    for work, end in ((_fill, near), (_drain, far)):
        threading.Thread(target=work, args=(end,), daemon=True).start()

    def now() -> ConnectionProgress:
        (progress,) = watch.progress([HERE], time.monotonic_ns())
        return progress

    eventually(lambda: now().streams, "its acknowledgements come")
    port = far.getsockname()[1]
    rule = f"add rule ip t in tcp dport {port} drop"
    chain = "add table ip t; add chain ip t in { type filter hook input priority 0; }"
    subprocess.run(["nft", f"{chain}; {rule}"], check=True)
    cut_ns = time.monotonic_ns()
    eventually(lambda: now().hangs(), "it hangs")
    drained_ns = 100 * MS  # what had arrived before is read, and acknowledged with a wider window
    eventually(lambda: now().waits_ns > 2 * drained_ns, "and goes on to")
    seen = now()
    assert seen.acked_ns <= cut_ns + drained_ns
    assert 0 < seen.waits_ns <= time.monotonic_ns() - seen.acked_ns
    os._exit(0)  # its threads wait for ever


def _fill(sock: socket.socket) -> None:
    while True:  # however late anybody looks
        sock.sendall(bytes(1 << 20))


def _drain(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


@pytest.mark.lab
def test_a_stream_that_is_cut_hangs() -> None:
    run_alone(acknowledgements_stop)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
