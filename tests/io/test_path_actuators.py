"""Routes that come back, and routes that go away by themselves: in private namespaces."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest
from tests.io.namespace import ip, run_alone
from tests.live import eventually

from syntony.errors import MissingError
from syntony.io.host_routes import TABLE, HostRoutes
from syntony.io.routes import Routes

pytestmark = pytest.mark.lab

NEAR, FAR = "fd01::1", "fd01::99"


def said(words: str) -> list[str]:
    done = subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True)
    return sorted(done.stdout.splitlines())


def cable() -> None:
    ip("link add va type veth peer name vb")
    for nic in ("va", "vb"):
        ip(f"link set {nic} up")
    ip("addr add 10.0.0.1/24 dev va")
    ip(f"addr add {NEAR}/64 dev va nodad")
    eventually(lambda: "LOWER_UP" in " ".join(said("link show va")), "carrier")


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
    eventually(lambda: "LOWER_UP" in " ".join(said("link show va")), "carrier again")
    assert routes.restore(index) >= 5
    eventually(
        lambda: (routes.restore(index), state() == before)[1], f"{before} again, not {state()}"
    )
    assert routes.restore(index) == 0, "nothing is missing any more"


def a_killed_maker_takes_its_routes_along() -> None:
    cable()
    text = (
        "from syntony.io.host_routes import HostRoutes; import time; r = HostRoutes(); "
        "r.offer('10.9.9.9', ('10.0.0.1', '10.0.0.254'), 'va', 1); "
        "print(flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        maker.stdout.readline()
        assert (
            "via 10.0.0.254 dev va" in said("route get 10.9.9.9")[0] + said("route get 10.9.9.9")[1]
        )
        os.kill(maker.pid, signal.SIGKILL)
    eventually(lambda: not any(str(TABLE) in line for line in said("rule")), "the rule gone")
    eventually(
        lambda: not any(str(TABLE) in line for line in said("-6 rule")), "the IPv6 rule gone"
    )


def routes_of_last_resort_are_what_ip_shows() -> None:
    """By the gateway that packets take today, or by the neighbour itself; both families."""
    cable()
    ip("route add 10.7.0.0/16 via 10.0.0.254")
    ip("-6 route add fd07::/64 via fd01::fe")
    with closing(HostRoutes()) as routes:
        for remote, like, metric in (
            ("10.9.9.9", ("10.0.0.1", "10.7.0.9"), 1),
            ("10.9.9.8", ("10.0.0.1", "10.0.0.77"), 2),
            ("10.9.9.9", ("10.0.0.1", "10.0.0.77"), 1),  # in the place of the first
            ("10.9.9.9", ("10.0.0.1", "10.7.0.9"), 3),
            ("fd09::9", (NEAR, "fd07::9"), 4),
            ("fd09::8", (NEAR, "fd01::77"), 5),
        ):
            routes.offer(remote, like, "va", metric)
        shown = [
            (each["dst"], each["gateway"], each["dev"], each["metric"])
            for family in ("-4", "-6")
            for each in json.loads("".join(said(f"-json {family} route show table {TABLE}")))
        ]
        assert sorted(shown) == [
            ("10.9.9.8", "10.0.0.77", "va", 2),
            ("10.9.9.9", "10.0.0.254", "va", 3),
            ("10.9.9.9", "10.0.0.77", "va", 1),
            ("fd09::8", "fd01::77", "va", 5),
            ("fd09::9", "fd01::fe", "va", 4),
        ]
        with pytest.raises(MissingError, match="no route through nope"):
            routes.offer("10.9.9.9", ("10.0.0.1", "10.0.0.77"), "nope", 1)
        with pytest.raises(MissingError, match="refuses"):
            routes.offer("10.9.9.9", ("10.0.0.1", "10.200.0.1"), "va", 1)


@pytest.mark.parametrize(
    "scenario",
    [
        routes_of_last_resort_are_what_ip_shows,
        routes_come_back,
        a_killed_maker_takes_its_routes_along,
    ],
)
def test_alone(scenario: Callable[[], None]) -> None:
    run_alone(scenario)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
