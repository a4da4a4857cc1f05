"""Every fault on a real fabric: its effect on real packets, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest
from tests.live import LiveLab, eventually, live, syntony

from syntony.errors import RemoteError, UsageError
from syntony.lab.relay import TUN_DEVICE
from syntony.model import MS, S

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab
SRC, DST = "h0/rail0", "h3/rail0"
SAME_LEAF = "h1/rail0"
needs_tun = pytest.mark.skipif(
    not os.access(TUN_DEVICE, os.R_OK | os.W_OK),
    reason=f"needs {TUN_DEVICE} (module tun, rights to open it): losses of carrier are NOT "
    "tested in a lab",
)


@pytest.fixture(scope="module")
def lab(able: None) -> Iterator[LiveLab]:
    options = ("--hosts", "4", "--convergence", "300ms")
    with live("t-faults", *options) as found:
        for host in ("h1", "h3"):
            found.serve_echo(host)
        for family in (4, 6):  # neighbours resolved: what follows measures faults
            found.pings(SRC, DST, family)
        yield found


@pytest.fixture(scope="module")
def as_built(lab: LiveLab) -> str:
    return lab.fabric_state()


@pytest.fixture(autouse=True)
def _restored(lab: LiveLab, as_built: str) -> Iterator[None]:
    """After every test the fabric is exactly as built: links, addresses, routes, rules, filters."""
    yield
    lab.clear()
    eventually(lambda: not lab.status().avoided, "routes back")
    eventually(lambda: lab.fabric_state() == as_built, "fabric as built")
    assert lab.pings(SRC, DST).got > 0


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("dst", [DST, SAME_LEAF, "h3/rail1", "h1/rail1", "h3/mgmt0"])
def test_packets_pass_between_rails_leaves_and_families(
    lab: LiveLab, family: int, dst: str
) -> None:
    src = "h0/mgmt0" if "mgmt" in dst else SRC
    assert lab.pings(src, dst, family, count=3).got == 3


def test_the_front_end_network_is_separate(lab: LiveLab) -> None:
    with pytest.raises(RemoteError, match="unreachable"):
        lab.run("leaf0-0", "ip", "route", "get", lab.addresses(4)["h3/mgmt0"])


@pytest.mark.parametrize("family", [4, 6])
def test_blackhole(lab: LiveLab, family: int) -> None:
    before_ns = time.monotonic_ns()
    fault = lab.inject("blackhole", DST)
    assert before_ns < fault.requested_ns < fault.since_ns < time.monotonic_ns()
    assert lab.pings(SRC, DST, family).got == 0
    assert lab.pings(SRC, SAME_LEAF, family).got == 5
    assert next(link for link in lab.status().links if link.name == DST).up


@pytest.mark.parametrize("direction", ["to", "from"])
def test_one_way_blackhole(lab: LiveLab, direction: str) -> None:
    """The echo's kernel sees the packets only if the way to it is open."""
    lab.inject("blackhole", DST, {"direction": direction})
    before = _received(lab, "h3")
    assert lab.pings(SRC, DST).got == 0
    assert _received(lab, "h3") - before == (5 if direction == "from" else 0)


def test_two_losses_add_up(lab: LiveLab) -> None:
    half = lab.inject("loss", DST, {"percent": "60", "direction": "to"})
    one = lab.pings(SRC, DST, count=24).got
    lab.inject("loss", DST, {"percent": "90", "direction": "to"})
    both = lab.pings(SRC, DST, count=24).got
    assert 1 <= one <= 21  # binomial(24, 0.4): outside with p < 1e-5
    assert both <= 8  # binomial(24, 0.04): beyond with p < 1e-6
    lab.clear(half.id)
    assert len(lab.status().faults) == 1


@needs_tun
@pytest.mark.parametrize("family", [4, 6])
def test_delays_add_up_and_end_in_any_order(lab: LiveLab, family: int) -> None:
    first = lab.inject("delay", DST, {"add": "20ms"})
    lab.inject("delay", DST, {"add": "10ms", "direction": "to"})
    assert lab.pings(SRC, DST, family).rtt_min_ns >= 50 * MS
    lab.clear(first.id)
    slow = lab.pings(SRC, DST, family)
    assert slow.got == 5
    assert slow.rtt_min_ns >= 10 * MS


@needs_tun
def test_delay_and_loss_compose(lab: LiveLab) -> None:
    lab.inject("delay", DST, {"add": "5ms"})
    lab.inject("loss", DST, {"percent": "50", "direction": "to"})
    found = lab.pings(SRC, DST, count=40)
    assert 3 <= found.got <= 37
    assert found.rtt_min_ns >= 10 * MS


@needs_tun
@pytest.mark.parametrize("family", [4, 6])
def test_a_slow_fabric_link_delays_only_what_crosses_it(lab: LiveLab, family: int) -> None:
    lab.inject("delay", "leaf0-0/spine0", {"add": "20ms", "direction": "from"})
    sports = range(40000, 40016)
    ways = {way.sport: way.spine for way in lab.paths(SRC, DST, sports, 7007, family=family)}
    assert set(ways.values()) == {"spine0", "spine1"}
    for sport in sports[:6]:
        late = lab.pings(SRC, DST, family, sport=sport).rtt_min_ns >= 20 * MS
        assert late is (ways[sport] == "spine0"), sport


@needs_tun
@pytest.mark.parametrize("family", [4, 6])
def test_the_oracle_looks_through_relays(lab: LiveLab, family: int) -> None:
    sports = range(41000, 41032)
    before = lab.paths(SRC, DST, sports, 7007, family=family)
    lab.inject("delay", SRC, {"add": "1ms"})
    lab.inject("delay", DST, {"add": "1ms"})
    assert lab.paths(SRC, DST, sports, 7007, family=family) == before


def test_a_spine_that_ipv6_packets_do_not_reach_is_unknown(lab: LiveLab) -> None:
    sports = range(42000, 42008)
    before = lab.paths(SRC, DST, sports, 7007, family=6)
    lab.inject("blackhole", "leaf0-0/spine0", {"direction": "from"})
    for was, now in zip(before, lab.paths(SRC, DST, sports, 7007, family=6), strict=True):
        spine = "?" if was.spine == "spine0" else "spine1"
        assert (now.sport, now.spine) == (was.sport, spine)
        assert now.hops == (*was.hops[:2], spine, *was.hops[3:])
    (near,) = lab.paths(SRC, SAME_LEAF, [42_000], 7007, family=6)
    assert near.spine is None


def test_rate_is_the_lowest_of_several(lab: LiveLab) -> None:
    slow = lab.inject("rate", DST, {"to": "5mbit"})
    lab.inject("rate", DST, {"to": "50mbit"})
    assert "rate 5Mbit" in lab.run("h3", "tc", "qdisc", "show", "dev", "rail0")
    assert "rate 5Mbit" in lab.run("leaf0-1", "tc", "qdisc", "show", "dev", "h3")
    lab.clear(slow.id)
    assert "rate 50Mbit" in lab.run("h3", "tc", "qdisc", "show", "dev", "rail0")


@pytest.mark.parametrize("side", ["host", "leaf"])
def test_link_down_and_its_routes_back(lab: LiveLab, side: str) -> None:
    first = lab.inject("link-down", DST, {"side": side})
    lab.inject("link-down", DST, {"side": side})
    assert lab.pings(SRC, DST, count=2).got == 0
    eventually(lambda: DST in _down(lab), "status says down")
    lab.clear(first.id)
    assert lab.pings(SRC, DST, count=2).got == 0
    lab.clear()
    eventually(lambda: lab.pings(SRC, DST).got == 5, "packets again")


@pytest.mark.parametrize(
    ("kind", "target"), [("switch-down", "spine0"), ("link-down", "leaf0-1/spine0")]
)
def test_routing_converges_around_what_loses_carrier(lab: LiveLab, kind: str, target: str) -> None:
    sports = range(42000, 42016)
    assert _spines(lab, sports) == {"spine0", "spine1"}
    lab.inject(kind, target)
    eventually(lambda: bool(lab.status().avoided), "converged")
    eventually(lambda: _spines(lab, sports) == {"spine1"}, "around spine0")
    for family in (4, 6):
        for sport in sports[:4]:
            assert lab.pings(SRC, DST, family, count=1, sport=sport).got == 1


def test_routing_does_not_notice_a_blackhole(lab: LiveLab) -> None:
    sports = range(42000, 42016)
    lab.inject("blackhole", "leaf0-0/spine0")
    ways = {way.spine: way.sport for way in lab.paths(SRC, DST, sports, 7007)}
    assert lab.pings(SRC, DST, count=2, sport=ways["spine0"]).got == 0
    assert lab.status().avoided == ()


def test_a_link_set_down_by_hand_counts_too(lab: LiveLab) -> None:
    lab.run("spine1", "ip", "link", "set", "leaf0-1", "down")
    eventually(lambda: lab.status().avoided == ("leaf0-1/spine1",), "converged")
    lab.run("spine1", "ip", "link", "set", "leaf0-1", "up")
    eventually(lambda: not lab.status().avoided, "restored")


def test_a_dead_leaf_takes_its_hosts_with_it(lab: LiveLab) -> None:
    lab.inject("switch-down", "leaf0-1")
    assert lab.pings(SRC, DST, count=2).got == 0
    assert lab.pings(SRC, "h3/rail1", count=2).got == 2
    eventually(lambda: {DST, "h2/rail0"} <= _down(lab), "status says down")


def test_flap_counts_and_ends_by_itself(lab: LiveLab) -> None:
    changes = "/sys/class/net/h3/carrier_down_count"
    before = int(lab.run("leaf0-1", "cat", changes))
    lab.inject("flap", DST, {"period": "200ms", "count": "3"})
    eventually(lambda: not lab.status().faults, "over")
    assert int(lab.run("leaf0-1", "cat", changes)) - before == 3


def test_cpu_hogs_run_and_end(lab: LiveLab) -> None:
    def pids() -> list[str]:
        return lab.run("h2", "ip", "netns", "pids", "h2").split()

    own = len(pids())
    lab.inject("cpu-hog", "h2", {"procs": "2"})
    assert len(pids()) == own + 2
    lab.clear()
    assert len(pids()) == own


def test_a_fault_ends_after_its_time(lab: LiveLab) -> None:
    started = lab.inject("blackhole", DST, for_ns=S // 5)
    assert started.left_ns is not None
    eventually(lambda: not lab.status().faults, "expired")
    assert lab.pings(SRC, DST).got == 5


def test_refused_orders_leave_nothing(lab: LiveLab) -> None:
    for kind, target in (("agent-kill", "h3"), ("agent-stop", "h3"), ("nonsense", "h3")):
        with pytest.raises(UsageError):
            lab.inject(kind, target)
    with pytest.raises(UsageError, match="no fault 999"):
        lab.clear(999)
    assert lab.status().faults == ()


def test_the_command_line_injects_lists_and_clears(lab: LiveLab) -> None:
    words = ("lab", "fault", "--name", lab.name)
    done = syntony(*words, "loss", DST, "--percent", "1", "--for", "60s", "--json")
    number = json.loads(done.stdout)["id"]
    listed = json.loads(syntony(*words, "--list", "--json").stdout)
    assert [(fault["id"], fault["kind"], fault["target"]) for fault in listed] == [
        (number, "loss", DST)
    ]
    assert json.loads(syntony(*words, "--clear", str(number), "--json").stdout) == [number]


def _down(lab: LiveLab) -> set[str]:
    return {link.name for link in lab.status().links if not link.up}


def _spines(lab: LiveLab, sports: range) -> set[str | None]:
    return {way.spine for way in lab.paths(SRC, DST, sports, 7007)}


def _received(lab: LiveLab, host: str) -> int:
    """UDP datagrams for the echo, both families (v4 counts on a dual-stack socket as v4)."""
    lines = lab.run(host, "cat", "/proc/net/snmp").splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp:"))
    return int(values[names.index("InDatagrams")])
