"""Failover where not everything is as it should be: no controller, no peer, no options, no NIC."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.fleet.failing import Fleet, await_true

pytestmark = pytest.mark.lab

NAME = "t-hostile"
STALL_S = 20.0
"""A job that had to wait for the fault's end, or for TCP's own timers, stood still for longer."""

_MPTCP = re.compile("flags:[MJ]")
_PATH = re.compile(r".*:(?P<near>\d+) > .*:(?P<far>\d+)")


@pytest.mark.slow
def test_a_spine_that_swallows_is_passed_by_on_the_same_nics(fleet: Fleet) -> None:
    def ways(spine: str) -> set[str]:
        """NICs whose subflow crosses the spine, on its way there or back."""
        conn = fleet.connections("spine").get("h0")
        return {
            nic
            for each in (conn.subflows if conn else ())
            if each.state == "up"
            for nic in ("rail0", "rail1")
            if f"/{nic}:" in each.path and spine in spines(fleet, nic, each.path)
        }

    with fleet.job("spine") as job:
        await_true(lambda: fleet.both("spine"), "a subflow over each rail")
        bad = next(spine for spine in ("spine0", "spine1") if ways(spine))
        for leaf in ("leaf0-0", "leaf1-0"):
            fleet.lab.inject("blackhole", f"{leaf}/{bad}")
        await_true(
            lambda: fleet.both("spine") and not ways(bad), "both rails, over the other spine"
        )
        fleet.lab.clear()
        account = job.steps()
    assert account["longest_s"] < STALL_S


def spines(fleet: Fleet, nic: str, path: str) -> set[str]:
    found = _PATH.fullmatch(path)
    assert found is not None, path
    near, far = int(found["near"]), int(found["far"])
    there = fleet.lab.paths(f"h0/{nic}", f"h2/{nic}", [near], far, proto="tcp")
    back = fleet.lab.paths(f"h2/{nic}", f"h0/{nic}", [far], near, proto="tcp")
    return {hop for answer in (*there, *back) for hop in answer.hops}


def test_nothing_of_it_needs_the_controller(fleet: Fleet) -> None:
    with fleet.job("alone") as job:
        await_true(lambda: fleet.both("alone"), "a subflow over each rail")
        with frozen_controller(fleet):
            fault = fleet.lab.inject("blackhole", "h0/rail0")
            await_true(lambda: not carried(fleet, "h0", "rail0"), "the dead NIC left")
            fleet.lab.clear(fault.id)
            await_true(lambda: carried(fleet, "h0", "rail0"), "and used again")
        account = job.steps()
        assert account["longest_s"] < STALL_S
        # What was done meanwhile is reported when there is someone to tell. A path that was asked
        # for as the NIC was left, and is answered once it is well, is no return.
        await_true(
            lambda: any(
                row.action == "create" and row.new_path.startswith("h0/rail0:")
                for row in fleet.log("alone")
            ),
            "the whole story",
            instead=lambda: fleet.log("alone"),
        )


@contextmanager
def frozen_controller(fleet: Fleet) -> Iterator[None]:
    (daemon,) = [each for each in fleet.lab.status().daemons if each.name == "controller"]
    fleet.lab.run("h0", "kill", "-STOP", str(daemon.pid))
    try:
        yield
    finally:
        fleet.lab.run("h0", "kill", "-CONT", str(daemon.pid))


def carried(fleet: Fleet, host: str, nic: str) -> bool:
    """Whether there is a subflow of MPTCP, of a connection or joined to one; no fallback."""
    return bool(_MPTCP.search(flows(fleet, host, nic)))


def flows(fleet: Fleet, host: str, nic: str) -> str:
    """Established connections from there, asked of the kernel itself."""
    address = fleet.lab.addresses(4)[f"{host}/{nic}"]
    return fleet.lab.run(host, "ss", "-tniH", "state", "established", "src", address)


def test_a_peer_without_an_agent_is_left_in_peace(fleet: Fleet) -> None:
    with without_agent(fleet, "h2"), fleet.job("peerless") as job:
        await_true(lambda: fleet.rails("peerless", "h0") == {"rail0"}, "the connection's own rail")
        fault = fleet.lab.inject("blackhole", "h0/rail0")
        # Retransmitted twice in vain: by now anything that were to be done would be done.
        await_true(lambda: "backoff:2" in flows(fleet, "h0", "rail0"), "the job's own patience")
        fleet.lab.clear(fault.id)
        account = job.steps()
    assert account["steps"] > 10
    assert not fleet.causes("peerless")


@contextmanager
def without_agent(fleet: Fleet, host: str) -> Iterator[None]:
    """As on a host where nobody has installed Syntony: the kernel manages its own paths."""
    managed = "net.mptcp.path_manager"
    kill = fleet.lab.inject("agent-kill", host)
    fleet.lab.run(host, "sysctl", "-q", "-w", f"{managed}=kernel")
    try:
        yield
    finally:
        fleet.lab.clear(kill.id)
        await_true(
            lambda: "userspace" in fleet.lab.run(host, "sysctl", "-n", managed), "the agent back"
        )


@pytest.mark.parametrize("where", ["syn", pytest.param("join", marks=pytest.mark.slow)])
def test_a_firewall_that_takes_the_options_off(fleet: Fleet, where: str) -> None:
    """On the first handshake: plain TCP, which runs untouched. On joins only: one path."""
    name = f"firewall-{where}"
    nic = "rail0" if where == "syn" else "rail1"
    with stripped(fleet, "h0", nic), fleet.job(name) as job:
        if where == "join":
            await_true(lambda: fleet.rails(name, "h0") == {"rail0"}, "the connection's own rail")
            await_true(lambda: "packets 0 " not in strip_table(fleet), "a join tried")
            assert fleet.rails(name, "h0") == {"rail0"}
        else:
            await_true(lambda: "bytes_acked" in flows(fleet, "h0", "rail0"), "the job's traffic")
            assert not carried(fleet, "h0", "rail0")
            assert fleet.connections(name) == {}
        account = job.steps()
    assert account["steps"] > 0


@contextmanager
def stripped(fleet: Fleet, host: str, nic: str) -> Iterator[None]:
    """A middlebox that replaces MPTCP's options by padding, as some do."""
    rules = (
        "add table inet strip; table inet strip { chain out { type filter hook output priority 0; "
        f"oifname {nic} tcp option mptcp exists counter reset tcp option mptcp; }} ; }}"
    )
    fleet.lab.run(host, "nft", rules)
    try:
        yield
    finally:
        fleet.lab.run(host, "nft", "delete", "table", "inet", "strip")


def strip_table(fleet: Fleet) -> str:
    return fleet.lab.run("h0", "nft", "list", "table", "inet", "strip")


@pytest.mark.slow
def test_an_address_taken_away_and_given_back(fleet: Fleet) -> None:
    address = fleet.lab.addresses(4)["h0/rail1"]
    words = re.search(rf"inet ({address}/\d+)", fleet.lab.run("h0", "ip", "addr", "show", "rail1"))
    assert words is not None
    before = fleet.lab.run("h0", "ip", "route", "show", "table", "all", "dev", "rail1")
    with fleet.job("address") as job:
        await_true(lambda: fleet.both("address"), "a subflow over each rail")
        fleet.lab.run("h0", "ip", "addr", "del", words[1], "dev", "rail1")
        await_true(lambda: fleet.only("address", "rail0"), "nothing from the address that is gone")
        fleet.lab.run("h0", "ip", "addr", "add", words[1], "dev", "rail1")
        give_back(fleet, before)
        await_true(lambda: fleet.both("address"), "both rails again")
        account = job.steps()
    assert account["longest_s"] < STALL_S


def give_back(fleet: Fleet, routes: str) -> None:
    """The kernel drops a NIC's routes with its address; anyone who gives it back gives them too."""
    have = fleet.lab.run("h0", "ip", "route", "show", "table", "all", "dev", "rail1").splitlines()
    for line in routes.splitlines():
        if line not in have and "proto kernel" not in line:
            fleet.lab.run("h0", "ip", "route", "replace", *line.split(), "dev", "rail1")


@pytest.mark.slow
def test_a_nic_renamed_under_a_job(fleet: Fleet) -> None:
    with fleet.job("renamed") as job:
        await_true(lambda: fleet.both("renamed"), "a subflow over each rail")
        fleet.lab.run("h0", "ip", "link", "set", "rail1", "name", "eth7")
        try:
            await_true(lambda: "eth7" in fleet.rails("renamed", "h0"), "known by its new name")
        finally:
            fleet.lab.run("h0", "ip", "link", "set", "eth7", "name", "rail1")
        await_true(lambda: fleet.both("renamed"), "known by its old name")
        account = job.steps()
    assert account["longest_s"] < STALL_S
