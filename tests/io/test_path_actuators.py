"""Routes that come back, routes and labels that go away by themselves: in private namespaces."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from tests.io.namespace import ip, run_alone

from syntony.io.flow_labels import LABELS, FlowLabels
from syntony.io.host_routes import PREFERENCE, TABLE, HostRoutes
from syntony.io.routes import Routes
from syntony.model.paths import FourTuple

pytestmark = pytest.mark.lab

NEAR, FAR = "fd01::1", "fd01::99"
PORT, PEER_PORT = 40_000, 5_000


def until(true: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.05)


def said(words: str) -> list[str]:
    done = subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True)
    return sorted(done.stdout.splitlines())


def cable() -> None:
    ip("link add va type veth peer name vb")
    for nic in ("va", "vb"):
        ip(f"link set {nic} up")
    ip("addr add 10.0.0.1/24 dev va")
    ip(f"addr add {NEAR}/64 dev va nodad")
    until(lambda: "LOWER_UP" in " ".join(said("link show va")), "carrier")


def routes_come_back() -> None:
    cable()
    ip("route add 10.1.0.0/16 via 10.0.0.254 dev va metric 7")
    ip("route add default via 10.0.0.254 dev va table 100")
    ip(f"-6 route add fd02::/16 via {FAR} dev va")
    ip(f"-6 route add default via {FAR} dev va table 100 src {NEAR}")
    ip("rule add from 10.0.0.1 table 100 pref 1000")

    def state() -> list[str]:
        known = said("route show table all") + said("-6 route show table all") + said("rule")
        own = ("fe80", "multicast", "ff00", "anycast")  # the kernel makes them by itself
        return [" ".join(line.split()) for line in known if not any(x in line for x in own)]

    before = state()
    routes = Routes()
    index = socket.if_nametoindex("va")
    routes.note([index])
    ip("link set va down")
    ip("link set va up")
    ip("rule del pref 1000")
    assert state() != before
    until(lambda: "LOWER_UP" in " ".join(said("link show va")), "carrier again")
    assert routes.restore(index) >= 5
    until(lambda: (routes.restore(index), state() == before)[1], f"{before} again, not {state()}")
    assert routes.restore(index) == 0, "nothing is missing any more"


def a_killed_maker_takes_its_routes_along() -> None:
    cable()
    text = (
        "from syntony.io.host_routes import HostRoutes; import time; r = HostRoutes(); "
        "r.move('10.9.9.9', '10.0.0.254', 'va', '10.0.0.1'); print(flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        maker.stdout.readline()
        assert (
            "via 10.0.0.254 dev va" in said("route get 10.9.9.9")[0] + said("route get 10.9.9.9")[1]
        )
        os.kill(maker.pid, signal.SIGKILL)
    until(lambda: not any(str(TABLE) in line for line in said("rule")), "the rule gone")
    until(lambda: not any(str(TABLE) in line for line in said("-6 rule")), "the IPv6 rule gone")


def routes_are_replaced_and_left() -> None:
    cable()
    routes = HostRoutes()
    routes.move("10.9.9.9", "10.0.0.254", "va", "10.0.0.1")
    routes.move("10.9.9.9", "10.0.0.253", "va", "10.0.0.1")
    routes.move("fd09::9", FAR, "va", NEAR)
    assert any("via 10.0.0.253" in line for line in said("route get 10.9.9.9"))
    assert any(f"via {FAR}" in line for line in said("-6 route get fd09::9"))
    routes.leave("10.9.9.9")
    routes.leave("10.9.9.9")
    assert not said(f"route show table {TABLE}")
    routes.close()
    assert not any(f"{PREFERENCE}:" in line for line in said("rule"))


def labels_change_and_fall_back_by_themselves() -> None:
    cable()
    ip(f"-6 neigh add {FAR} lladdr 02:00:00:00:00:99 dev va nud permanent")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD)) as wire:
        wire.bind(("vb", 0x86DD))
        wire.settimeout(10)

        def label() -> int:
            """Of the SYN of a connection that nobody answers."""
            with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((NEAR, PORT))
                sock.setblocking(False)
                sock.connect_ex((FAR, PEER_PORT))
                while True:
                    frame = wire.recv(2048)
                    if frame[20] == socket.IPPROTO_TCP and frame[12:14] == b"\x86\xdd":
                        return int.from_bytes(frame[14:18]) & 0xFFFFF

        own = label()
        assert own not in LABELS
        labels = FlowLabels(["va"], timeout_s=1)
        flow = FourTuple(NEAR, PORT, FAR, PEER_PORT)
        for draw in (3, 4, 3):
            labels.choose(flow, draw)
            assert label() == LABELS[draw]
        until(lambda: label() not in LABELS, "its own label, without anyone doing anything")
        labels.choose(flow, 1)
        labels.close()
        assert label() not in LABELS


@pytest.mark.parametrize(
    "scenario",
    [
        routes_come_back,
        a_killed_maker_takes_its_routes_along,
        routes_are_replaced_and_left,
        labels_change_and_fall_back_by_themselves,
    ],
)
def test_alone(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
