"""Flows held back by the kernel, and let go whoever dies: in private namespaces, with real TCP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.io.namespace import ip, run_alone
from tests.live import eventually

from syntony.errors import MissingError
from syntony.io.pacing import HANDLE, KernelPacing
from syntony.model.paths import FourTuple

pytestmark = pytest.mark.lab

SLOW_BPS = 8_000_000
SHAPED_BPS = 200_000_000
SECONDS = 1.0
_SINK = """
import socket, sys, threading
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
door = socket.create_server((sys.argv[1], 5000), family=family)
print(flush=True)
def drain(own):
    while own.recv(1 << 16): pass
while True:
    own, _ = door.accept()
    threading.Thread(target=drain, args=(own,), daemon=True).start()
"""


def qdiscs() -> str:
    words = ["tc", "qdisc", "show", "dev", "va"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def tc(words: str) -> None:
    subprocess.run(["tc", *words.split()], check=True)


@contextmanager
def peer(address: str) -> Iterator[None]:
    """A sink for TCP in a namespace of its own, at the other end of `va`."""
    ip("link add va type veth peer name vb")
    other = subprocess.Popen(["unshare", "-n", "sleep", "100"])
    inside = ["nsenter", "-t", str(other.pid), "-n"]
    try:
        # Until `unshare` has unshared, it is in our namespace.
        ours, its = Path("/proc/self/ns/net"), Path(f"/proc/{other.pid}/ns/net")
        eventually(lambda: its.readlink() != ours.readlink(), "a namespace")
        ip(f"link set vb netns {other.pid}")
        six = ":" in address
        for where, nic, own in ([], "va", "fd01::1/64" if six else "10.0.0.1/24"), (
            inside, "vb", f"{address}/64" if six else f"{address}/24"
        ):  # fmt: skip
            add = ["ip", "addr", "add", own, "dev", nic, *(["nodad"] if six else [])]
            subprocess.run([*where, *add], check=True)
            subprocess.run([*where, "ip", "link", "set", nic, "up"], check=True)
        sink = subprocess.Popen(
            [*inside, sys.executable, "-c", _SINK, address], stdout=subprocess.PIPE
        )
        try:
            assert sink.stdout is not None
            sink.stdout.readline()
            yield
        finally:
            sink.kill()
            sink.wait()
    finally:
        other.kill()
        other.wait()


def connected(address: str) -> socket.socket:
    return socket.create_connection((address, 5000), timeout=600)


def four(own: socket.socket) -> FourTuple:
    local, remote = own.getsockname(), own.getpeername()
    return FourTuple(local[0], local[1], remote[0], remote[1])


def acknowledged(own: socket.socket) -> int:
    """tcpi_bytes_acked, 120 bytes into struct tcp_info (linux/tcp.h)."""
    info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int.from_bytes(info[120:128], sys.byteorder)


def sent(socks: list[socket.socket]) -> list[float]:
    """Bits per second that each gets through when all send what they can."""
    stop = threading.Event()

    def push(own: socket.socket) -> None:
        while not stop.is_set():
            own.send(bytes(1 << 14))

    threads = [threading.Thread(target=push, args=(own,), daemon=True) for own in socks]
    for thread in threads:
        thread.start()
    before, began_s = [acknowledged(own) for own in socks], time.monotonic()
    time.sleep(SECONDS)
    took_s = time.monotonic() - began_s
    rates = [(acknowledged(s) - b) * 8 / took_s for s, b in zip(socks, before, strict=True)]
    stop.set()
    return rates


def one_of_two_is_slow(address: str, *, shaped: bool) -> None:
    with peer(address):
        if shaped:
            tc(f"qdisc add dev va root handle 1: tbf rate {SHAPED_BPS}bit burst 64kb latency 50ms")
        before = qdiscs()
        slow, free = connected(address), connected(address)
        pacing = KernelPacing(["va"])
        assert qdiscs() == before, "nothing before anybody is paced"
        pacing.set({("va", four(slow)): SLOW_BPS})
        assert HANDLE in qdiscs()
        rates = sent([slow, free])
        assert rates[0] <= 1.2 * SLOW_BPS, rates
        assert rates[1] >= 3 * rates[0], rates
        pacing.set({("va", four(slow)): 2 * SLOW_BPS, ("va", four(free)): SLOW_BPS})
        pacing.set({("va", four(free)): SLOW_BPS})
        pacing.set({})
        eventually(lambda: min(sent([slow, free])) > 1.2 * SLOW_BPS, "free again")
        pacing.close()
        assert pacing._watch is None
        assert HANDLE not in qdiscs()
        assert shaped or qdiscs() == before, "as it was"
        eventually(lambda: min(sent([slow, free])) > 1.2 * SLOW_BPS, "free without our queue too")
        if shaped:
            assert sum(sent([slow, free])) < SHAPED_BPS, "shaped as before"


def four_bytes() -> None:
    one_of_two_is_slow("10.0.0.2", shaped=False)


def below_a_token_bucket() -> None:
    one_of_two_is_slow("10.0.0.2", shaped=True)


def six() -> None:
    one_of_two_is_slow("fd01::2", shaped=False)


def a_killed_maker_lets_go() -> None:
    ip("link add va type veth peer name vb")
    ip("link set va up")
    text = (
        "from syntony.io.pacing import KernelPacing; import time\n"
        "from syntony.model.paths import FourTuple\n"
        "flow = ('va', FourTuple('10.0.0.1', 1, '10.0.0.2', 2))\n"
        "pacing = KernelPacing(['va']); pacing.set({flow: 10**6})\n"
        "print(flush=True); time.sleep(99)"
    )
    maker = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert maker.stdout is not None
    maker.stdout.readline()
    assert HANDLE in qdiscs()
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    eventually(lambda: HANDLE not in qdiscs(), "the queue of the dead is gone")


def what_an_operator_chose_is_left_alone() -> None:
    ip("link add va type veth peer name vb")
    ip("link set va up")
    tc("qdisc add dev va root handle 7: pfifo limit 100")
    before = qdiscs()
    with pytest.raises(MissingError, match="qdisc of its own"):
        KernelPacing(["va"]).set({("va", FourTuple("10.0.0.1", 1, "10.0.0.2", 2)): 10**6})
    assert qdiscs() == before


def after_a_killed_watchdog_the_next_one_starts_anew() -> None:
    ip("link add va type veth peer name vb")
    ip("link set va up")
    flow = ("va", FourTuple("10.0.0.1", 1, "10.0.0.2", 2))
    first = KernelPacing(["va"])
    first.set({flow: 10**6})
    assert first._watch is not None
    os.kill(first._watch.pid, signal.SIGKILL)
    first.close()
    assert HANDLE in qdiscs(), "nobody was left to take it away"
    second = KernelPacing(["va"])
    second.set({flow: 10**6})
    second.close()
    assert HANDLE not in qdiscs()


def a_second_nic_joins() -> None:
    for nic, other in (("va", "vb"), ("vc", "vd")):
        ip(f"link add {nic} type veth peer name {other}")
        ip(f"link set {nic} up")
    four = FourTuple("10.0.0.1", 1, "10.0.0.2", 2)
    pacing = KernelPacing(["va", "vc"])
    pacing.set({("va", four): 10**6})
    pacing.set({("va", four): 10**6, ("vc", four): 10**6})
    words = ["tc", "class", "show", "dev", "va"]
    classes = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert f"{HANDLE}10" in classes, "the first one has kept its class"
    pacing.close()
    assert HANDLE not in qdiscs()


@pytest.mark.parametrize(
    "scenario",
    [
        a_second_nic_joins,
        four_bytes,
        below_a_token_bucket,
        six,
        a_killed_maker_lets_go,
        what_an_operator_chose_is_left_alone,
        after_a_killed_watchdog_the_next_one_starts_anew,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_pacing(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
