"""Two engines over loopback: every stamp, every refusal, keys, plans and mistakes."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.io import probe_packet as wire
from tests.io.engine_peer import everyone
from tests.live import eventually
from tests.ports import free_udp_port

from syntony.errors import MissingError, UsageError
from syntony.io.clocks import ClockSource, KernelClock, SyntheticClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import PeerKeys, ProbeNic
from syntony.model import MS, S, SyntheticClockSpec
from syntony.model.probes import LOST, MISSING, ProbeFlag
from syntony.wire.probes import ProbeFlow

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY = (7, b"sixteen byte key")
OTHER_KEY = (8, b"another key here")
LOCAL, REMOTE = 1, 2
PATIENCE_S = 300.0
PATIENT_NS = 60 * S
"""No answer is lost because a thread waits for a core."""


class Pair:
    """An initiator and a reflector, each its own engine."""

    def __init__(self, stack: ExitStack, address: str = "127.0.0.1", **options: int) -> None:
        self.address, self.stack, self.options = address, stack, options
        self.clock: ClockSource = KernelClock("a")
        self.remote_clock: ClockSource = KernelClock("b")
        self.port = free_udp_port(address)

    def up(self) -> None:
        self.local = self.engine(LOCAL, free_udp_port(self.address), self.clock, self.options)
        self.remote = self.engine(REMOTE, self.port, self.remote_clock, {})

    def engine(
        self, nic_id: int, port: int, clock: ClockSource, options: dict[str, Any]
    ) -> ProbeEngine:
        nic = ProbeNic(name="lo", nic_id=nic_id, address=self.address, port=port)
        engine = self.stack.enter_context(ProbeEngine([nic], clock, **options))
        engine.set_peers(everyone(KEY))
        engine.start()
        return engine

    def flow(self, flow_id: int = 5, **changes: int) -> ProbeFlow:
        fields: dict[str, int] = {
            "dst_nic_id": REMOTE, "dst_port": self.port, "interval_ns": 5 * MS,
            "src_port": changes.pop("src_port", 0) or free_udp_port(self.address),
        } | changes  # fmt: skip
        return ProbeFlow(
            flow_id=flow_id, src="lo", dst="b/lo", dst_addr=self.address,
            dst_nic_id=fields.pop("dst_nic_id"), dst_port=fields.pop("dst_port"),
            src_port=fields.pop("src_port"), interval_ns=fields.pop("interval_ns"), **fields,
        )  # fmt: skip

    def records(self, count: int) -> NDArray[np.void]:
        kept: list[NDArray[np.void]] = []

        def enough() -> bool:
            kept.append(self.local.drain())
            return sum(len(rows) for rows in kept) >= count

        eventually(enough)
        return np.concatenate(kept)


@pytest.mark.parametrize(
    ("address", "changes"),
    [
        ("127.0.0.1", {}),
        ("127.0.0.1", {"dscp": 46}),
        ("::1", {}),
        ("::1", {"dscp": 8, "flow_label": 0xABCDE}),
    ],
)
def test_every_probe_has_its_four_stamps_in_order(
    stack: ExitStack, address: str, changes: dict[str, int]
) -> None:
    pair = Pair(stack, address)
    pair.up()
    pair.local.set_flows([pair.flow(**changes)])
    rows = pair.records(100)
    complete = rows[(rows["flags"] & int(MISSING)) == 0]
    assert len(complete) >= 50
    assert (complete["t1_ns"] >= complete["sent_ns"]).all()
    assert (complete["t2_ns"] >= complete["t1_ns"]).all()
    assert (complete["t3_ns"] >= complete["t2_ns"]).all()
    assert (complete["t4_ns"] >= complete["t3_ns"]).all()
    assert len(np.unique(rows["seq"])) == len(rows)
    assert set(rows["flow_id"]) == {5}
    assert (set(rows["nic_id"]), set(rows["dst_nic_id"])) == ({LOCAL}, {REMOTE})
    pair.local.set_flows([])
    eventually(lambda: pair.remote.counters().received == pair.local.counters().sent)
    assert pair.remote.counters().replies >= pair.local.counters().received >= len(complete)
    assert pair.remote.heard().tolist() == [(LOCAL, REMOTE, pair.local.counters().sent)]


def test_many_flows_of_one_nic_keep_their_rate_while_nobody_watches(stack: ExitStack) -> None:
    """400 pairs a second: more than one in each rest of 5 ms, fewer than count as load."""
    pair = Pair(stack)
    pair.up()
    pair.local.set_flows([pair.flow(number, interval_ns=20 * MS) for number in range(8)])

    def in_full() -> bool:
        before = pair.local.counters()
        time.sleep(0.5)
        after = pair.local.counters()
        sent = (after.sent - before.sent) // 2
        return sent > 100 and after.skipped - before.skipped < sent // 4

    eventually(in_full)


def test_who_watches_a_path_is_answered_at_once(stack: ExitStack) -> None:
    """Though the reflector watches nothing itself: resting, its answers would take 2.5 ms more."""
    pair = Pair(stack)
    pair.up()
    pair.local.watch([pair.flow(interval_ns=5 * MS)])
    eventually(lambda: 0 < pair.local.watched()[0].rtt_ns < MS)


def test_stamps_are_in_each_ends_own_clock(stack: ExitStack) -> None:
    pair = Pair(stack)
    now_ns = KernelClock("here").now_ns()
    local = SyntheticClock(
        "a", SyntheticClockSpec(base_ns=now_ns, offset_ns=-3 * S, drift_ppb=40_000, seed=1)
    )
    remote = SyntheticClock(
        "b", SyntheticClockSpec(base_ns=now_ns, offset_ns=7 * S, drift_ppb=-40_000, wander_ppb=5)
    )
    pair.clock, pair.remote_clock = local, remote
    pair.up()
    pair.local.set_flows([pair.flow()])
    rows = pair.records(40)
    for row in rows[rows["flags"] == 0]:
        sent, received = local.unmap_ns(int(row["t1_ns"])), remote.unmap_ns(int(row["t2_ns"]))
        replied, back = remote.unmap_ns(int(row["t3_ns"])), local.unmap_ns(int(row["t4_ns"]))
        assert now_ns < sent <= received + 1
        assert received <= replied + 1
        assert replied <= back + 1 < now_ns + 60 * S


def test_a_wrong_key_is_foreign_and_no_reply_comes(stack: ExitStack) -> None:
    pair = Pair(stack, timeout_ns=100 * MS)
    pair.up()
    pair.remote.set_peers(everyone((KEY[0], b"x" * 16)))
    pair.local.set_flows([pair.flow()])
    rows = pair.records(10)
    assert (rows["flags"] & int(ProbeFlag.LOST_UNKNOWN)).all()
    assert (rows["t1_ns"] != 0).sum() >= 8
    eventually(lambda: pair.remote.counters().foreign >= 10)  # its thread may wait for a core
    counters = pair.remote.counters()
    assert (counters.received, counters.replies) == (0, 0)
    assert len(pair.remote.heard()) == 0


def test_a_host_can_speak_for_its_own_nics_only(stack: ExitStack) -> None:
    """Host 77 has a key of its own; with it, it claims to be LOCAL, and to be nobody we know."""
    pair = Pair(stack)
    pair.up()
    pair.remote.set_peers({LOCAL: PeerKeys(KEY), 77: PeerKeys(OTHER_KEY)})
    for sequence, (src, key, answered) in enumerate(
        [(LOCAL, OTHER_KEY, False), (78, OTHER_KEY, False), (77, KEY, False), (77, OTHER_KEY, True)]
    ):
        packet = wire.Packet(
            type=wire.REQUEST, src_nic=src, dst_nic=REMOTE, flow_id=1, seq=sequence, epoch=5
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.settimeout(300 if answered else 0.2)
            stranger.sendto(wire.encode(packet, key), ("127.0.0.1", pair.port))
            if answered:
                assert wire.decode(stranger.recv(2000), (OTHER_KEY,)).seq == sequence
                continue
            with pytest.raises(TimeoutError):
                stranger.recv(2000)
    counters = pair.remote.counters()
    assert (counters.foreign, counters.received) == (3, 1)
    assert pair.remote.heard()["src_nic_id"].tolist() == [77]


def test_keys_roll_over_without_a_gap(stack: ExitStack) -> None:
    pair = Pair(stack, timeout_ns=PATIENT_NS)
    pair.up()
    pair.local.set_flows([pair.flow()])
    pair.records(20)
    pair.remote.set_peers(everyone(OTHER_KEY, KEY))
    pair.records(20)
    pair.local.set_peers(everyone(OTHER_KEY, KEY))
    rows = pair.records(40)
    assert not (rows["flags"] & int(LOST)).any()
    assert pair.remote.counters().foreign == pair.local.counters().foreign == 0


def test_a_plan_keeps_what_it_repeats(stack: ExitStack) -> None:
    pair = Pair(stack)
    pair.up()
    first, second = pair.flow(1), pair.flow(2)
    pair.local.set_flows([first])
    highest = int(pair.records(20)["seq"].max())
    pair.local.set_flows([second, first])
    rows = pair.records(40)
    assert rows[rows["flow_id"] == 1]["seq"].min() >= highest - 4
    assert rows[rows["flow_id"] == 2]["seq"].min() <= 1
    assert pair.remote.counters().replayed == 0


def test_a_returning_flow_is_no_replay(stack: ExitStack) -> None:
    pair = Pair(stack, timeout_ns=PATIENT_NS)
    pair.up()
    flow = pair.flow()
    for _ in range(3):
        pair.local.set_flows([flow])
        assert not (pair.records(10)["flags"] & int(LOST)).any()
        pair.local.set_flows([])
        time.sleep(0.02)
        pair.local.drain()
    assert pair.remote.counters().replayed == 0


def test_flows_share_a_source_port(stack: ExitStack) -> None:
    pair = Pair(stack, timeout_ns=PATIENT_NS)
    pair.up()
    port = free_udp_port()
    pair.local.set_flows([pair.flow(flow_id, src_port=port) for flow_id in range(20)])
    rows = pair.records(400)
    assert not (rows["flags"] & int(LOST)).any()
    assert set(rows["flow_id"]) == set(range(20))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": "eth9"}, "no NIC 'eth9'"),
        ({"dst_addr": "::1"}, "different IP versions"),
        ({"dst_addr": "localhost"}, "not an IPv4 or IPv6 address"),
        ({"interval_ns": 0}, "below 100 us"),
        ({"dscp": 64}, "DSCP"),
        ({"dscp": 300}, "out of range"),
        ({"src_port": 0}, "a port is 0"),
        ({"flow_id": 1}, "listed twice"),
    ],
)
def test_a_wrong_plan_changes_nothing(
    stack: ExitStack, changes: dict[str, int | str], message: str
) -> None:
    pair = Pair(stack, timeout_ns=PATIENT_NS)
    pair.up()
    good = pair.flow(1)
    pair.local.set_flows([good])
    pair.records(10)
    fields = {name: getattr(pair.flow(2), name) for name in ProbeFlow.__struct_fields__}
    with pytest.raises(UsageError, match=message):
        pair.local.set_flows([good, ProbeFlow(**(fields | changes))])
    rows = pair.records(10)
    assert not (rows["flags"] & int(LOST)).any()
    assert (rows["flow_id"] == 1).all()


def test_a_taken_source_port_changes_nothing_and_has_a_name(stack: ExitStack) -> None:
    pair = Pair(stack, timeout_ns=PATIENT_NS)
    pair.up()
    good = pair.flow(1)
    pair.local.set_flows([good])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
        squatter.bind(("127.0.0.1", 0))
        taken = squatter.getsockname()[1]
        with pytest.raises(MissingError, match=f"UDP port {taken} on 127.0.0.1 is in use"):
            pair.local.set_flows([good, pair.flow(2, src_port=taken)])
    assert not (pair.records(10)["flags"] & int(LOST)).any()


@pytest.mark.parametrize(
    ("nic", "error", "message"),
    [
        ({"name": "nosuchnic0"}, MissingError, "no network interface named nosuchnic0"),
        ({"address": "192.0.2.1"}, MissingError, "192.0.2.1 is not an address of this host"),
        ({"address": "300.1.1.1"}, UsageError, "not an IPv4 or IPv6 address"),
        ({"name": "x" * 16}, UsageError, "not an interface name"),
        ({"port": 0}, UsageError, "not a UDP port"),
        ({"stamping": "magic"}, UsageError, "stamping is auto"),
    ],
)
def test_a_wrong_nic_is_one_clear_line(
    nic: dict[str, str | int], error: type[Exception], message: str
) -> None:
    fields = {"name": "lo", "nic_id": 1, "address": "127.0.0.1", "port": free_udp_port()} | nic
    with pytest.raises(error, match=message):
        ProbeEngine([ProbeNic(**fields)], KernelClock("h"))  # type: ignore[arg-type]


def test_a_taken_reflector_port_is_one_clear_line() -> None:
    nic = ProbeNic(name="lo", nic_id=1, address="127.0.0.1", port=free_udp_port())
    with (
        ProbeEngine([nic], KernelClock("h")),
        pytest.raises(MissingError, match=f"UDP port {nic.port} on 127.0.0.1 is in use"),
    ):
        ProbeEngine([nic], KernelClock("h"))


@pytest.mark.parametrize("options", [{"ring_records": 1000}, {"timeout_ns": 0}, {"stall_ns": -1}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    nic = ProbeNic(name="lo", nic_id=1, address="127.0.0.1", port=free_udp_port())
    with pytest.raises(UsageError, match="out of range"):
        ProbeEngine([nic], KernelClock("h"), **options)


def test_a_closed_engine_says_so(stack: ExitStack) -> None:
    pair = Pair(stack)
    pair.up()
    pair.local.close()
    pair.local.close()
    for method in (pair.local.drain, pair.local.counters, pair.local.start, pair.local.heard):
        with pytest.raises(UsageError, match="closed"):
            method()


def test_stamping_falls_back_with_a_reason(stack: ExitStack) -> None:
    pair = Pair(stack)
    pair.up()
    (status,) = pair.local.nic_status()
    assert (status.name, status.nic_id, status.stamping) == ("lo", LOCAL, "kernel")
    assert "cannot stamp every packet in hardware" in status.reason
    assert status.phc_index is None


def test_what_the_kernel_refuses_is_a_record_of_its_own(stack: ExitStack) -> None:
    pair = Pair(stack, timeout_ns=PATIENT_NS)
    pair.up()
    flow = pair.flow()
    refused = {name: getattr(flow, name) for name in ProbeFlow.__struct_fields__} | {
        "dst_addr": "255.255.255.255"  # broadcast without SO_BROADCAST: EACCES
    }
    pair.local.set_flows([ProbeFlow(**refused)])
    rows = pair.records(6)
    assert (rows["flags"] & int(ProbeFlag.NOT_SENT)).all()
    assert not (rows["flags"] & int(LOST)).any()
    assert pair.local.counters().sent == 0
    assert pair.local.counters().send_errors >= 6


def test_stamps_stay_right_after_refused_sends(stack: ExitStack) -> None:
    """Good and refused flows share one socket, so every refusal restarts its stamp numbering."""
    pair = Pair(stack)
    pair.up()
    good = pair.flow(1)
    bad = {name: getattr(good, name) for name in ProbeFlow.__struct_fields__} | {
        "flow_id": 2, "dst_addr": "255.255.255.255",
    }  # fmt: skip
    pair.local.set_flows([good, ProbeFlow(**bad)])
    rows = pair.records(120)
    rows = rows[(rows["flow_id"] == 1) & (rows["t1_ns"] != 0)]
    assert len(rows) >= 40
    assert (rows["t1_ns"] >= rows["sent_ns"]).all()
    assert (rows["t1_ns"] <= rows["t2_ns"])[rows["t2_ns"] != 0].all()


def test_a_full_ring_is_counted(stack: ExitStack) -> None:
    pair = Pair(stack, ring_records=16)
    pair.up()
    pair.local.set_flows([pair.flow()])
    eventually(lambda: pair.local.counters().ring_dropped > 10)
    assert len(pair.local.drain()) == 16
