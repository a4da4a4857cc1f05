"""Rows of jobs' flows: second by second, what agents told."""

from __future__ import annotations

import itertools
import math
import random

from syntony.controller.flow_table import FlowTable
from syntony.controller.job_flows import LATE_NS, JobFlowRecorder
from syntony.fabric.book import Way
from syntony.model import MS, S
from syntony.model.names import host_of
from syntony.traffic.classes import Classes
from syntony.wire.traffic import FlowsReport, FlowView

_windows = itertools.count(1)
T0 = 1_700_000_000 * S


class Recorder:
    def __init__(self) -> None:
        self.now_ns: int | None = T0
        self.table = FlowTable(None, Classes(()))
        self.table.nics({"10.0.0.1": "h0/rail0", "10.0.0.2": "h1/rail0"})
        self.recorder = JobFlowRecorder(lambda: self.now_ns, self.table)

    def report(self, at_ns: int, *flows: FlowView, host: str = "h0") -> None:
        self.now_ns = at_ns
        report = FlowsReport(at_ns=at_ns, flows=flows, outcomes=(), delays=(), join_port=8621)
        self.recorder.take(host, report)

    def rows(self, now_ns: int) -> list[dict[str, object]]:
        piece = self.recorder.step(now_ns)
        return [] if piece is None else list(piece.rows.to_pylist())


def view(**fields: object) -> FlowView:
    given = {
        "job": "night", "connection": "0a", "nic": "rail0", "local": "10.0.0.1",
        "local_port": 40_000, "remote": "10.0.0.2", "remote_port": 5_000, "dialled": True,
        "movable": True, "moving": False, "tx_bps": 100, "rx_bps": 0, "windows": next(_windows),
        "hops": (), "rtt_ns": 50, "retransmits": 4, **fields,
    }  # fmt: skip
    return FlowView(**given)  # type: ignore[arg-type]


def test_looks_of_a_second_become_one_row_when_it_is_over() -> None:
    recorder = Recorder()
    recorder.report(T0 + 1, view())
    recorder.report(T0 + S // 2, view(tx_bps=300, rtt_ns=70, retransmits=9))
    assert recorder.rows(T0 + 3 * S - 1) == []
    (row,) = recorder.rows(T0 + 3 * S)
    assert (row["ts_ns"], row["job"], row["tx_bps"], row["rtt_ns"]) == (T0, "night", 200.0, 60)
    assert (row["src"], row["dst"], row["sport"], row["dport"]) == (
        "h0/rail0", "h1/rail0", 40_000, 5_000)  # fmt: skip
    assert row["retransmits"] == 0  # since when, nobody knows
    assert recorder.rows(T0 + 4 * S) == []
    recorder.report(T0 + 3 * S, view(retransmits=12))
    assert recorder.rows(T0 + 6 * S)[0]["retransmits"] == 3
    recorder.report(T0 + 6 * S, view(retransmits=2))  # another connection took its ports
    assert recorder.rows(T0 + 9 * S)[0]["retransmits"] == 0


def test_the_class_is_the_newest_and_what_is_none_is_not_known() -> None:
    recorder = Recorder()
    recorder.report(T0 + 1, view(dscp=10))
    recorder.report(T0 + S // 2, view(dscp=26), *(
        view(local_port=port, dscp=dscp) for port, dscp in ((1, 63), (2, 64), (3, -1), (4, 1 << 40))
    ))  # fmt: skip
    recorder.report(T0 + S // 2, view(local_port=5))  # an agent of before
    found = {row["sport"]: row["dscp"] for row in recorder.rows(T0 + 3 * S)}
    assert (found[40_000], found[1]) == (26, 63)
    assert all(math.isnan(float(str(found[port]))) for port in (2, 3, 4, 5))


def test_waiting_for_the_receivers_window_is_of_a_second_and_not_known_at_first() -> None:
    recorder = Recorder()
    found = []
    for second, waited_ns in ((0, 5 * S), (3, 5 * S), (6, 5 * S + 30 * MS), (9, 0), (12, -1),
                              (15, 7 * S), (18, 99 * S)):  # fmt: skip
        recorder.report(T0 + second * S, view(window_limited_ns=waited_ns))
        (row,) = recorder.rows(T0 + (second + 3) * S)
        found.append(float(str(row["window_limited_ns"])))
    unknown = [math.isnan(each) for each in found]
    assert unknown == [True, False, False, True, True, True, False]  # began again; not known
    assert [found[1], found[2], found[6]] == [0, 10 * MS, S]  # over three seconds each


def test_both_ends_tell_of_what_they_send_and_links_are_named_where_known() -> None:
    recorder = Recorder()
    recorder.table.learn(Way("h0/rail0", "h1/rail0", 40_000, 5_000), ["10.9.0.1", "10.0.0.2"], T0)
    recorder.report(T0, view())
    back = view(local="10.0.0.2", local_port=5_000, remote="10.0.0.1", remote_port=40_000)
    recorder.report(T0, back, host="h1")
    there, back_row = recorder.rows(T0 + 3 * S)
    assert (there["src"], back_row["src"]) == ("h0/rail0", "h1/rail0")
    way = Way("h0/rail0", "h1/rail0", 40_000, 5_000)
    assert str(there["hops"]).split() == list(recorder.table.book.links(way)) != []
    assert back_row["hops"] == ""


def test_of_a_detour_the_links_at_its_ends_are_known() -> None:
    recorder = Recorder()
    way = Way("h0/rail0", "h1/rail0", 40_000, 5_000)
    recorder.table.learn(way, ["10.9.0.1", "10.9.0.2", "10.9.0.3", "10.0.0.2"], T0)
    recorder.now_ns = T0
    redrawn = (view(connection="redrawn-40000-5000"),)
    report = FlowsReport(at_ns=T0, flows=(), outcomes=(), delays=(), join_port=0, redrawn=redrawn)
    recorder.recorder.take("h0", report)
    (row,) = recorder.rows(T0 + 3 * S)
    links = recorder.table.book.links(way)
    assert len(links) > 2
    assert str(row["hops"]).split() == [links[0], links[-1]]


def test_what_cannot_be_placed_is_told_by_address_and_what_is_old_is_not_told() -> None:
    recorder = Recorder()
    recorder.report(T0, view(remote="10.7.7.7"), view(windows=0, local_port=1))
    (row,) = recorder.rows(T0 + 3 * S)
    assert (row["dst"], row["hops"]) == ("10.7.7.7", "")
    recorder.report(T0, view())  # its second was told
    assert recorder.rows(T0 + 4 * S) == []
    recorder.now_ns = None
    recorder.recorder.take(
        "h0", FlowsReport(at_ns=1, flows=(), outcomes=(), delays=(), join_port=1)
    )


def test_a_measurement_that_is_reported_again_is_no_second_one() -> None:
    recorder = Recorder()
    recorder.report(T0, view(windows=3))
    assert len(recorder.rows(T0 + 3 * S)) == 1
    for second in range(4, 70):
        recorder.report(T0 + second * S, view(windows=3))
        assert recorder.rows(T0 + (second + 3) * S) == []
    recorder.report(T0 + 73 * S, view(windows=4, tx_bps=7), view(windows=3, local_port=1))
    assert [row["tx_bps"] for row in recorder.rows(T0 + 76 * S)] == [100.0, 7.0]
    recorder.report(T0 + 77 * S, view(windows=1))  # another connection took its ports
    assert len(recorder.rows(T0 + 80 * S)) == 1


def test_a_second_is_stored_once_every_host_has_reported_the_next() -> None:
    recorder = Recorder()
    recorder.report(T0 + S // 2, view(), host="h0")
    recorder.report(T0 + S // 2, view(local="10.0.0.2"), host="h1")
    recorder.report(T0 + S, view(), host="h0")
    assert recorder.rows(T0 + S + 1) == []
    recorder.report(T0 + 3 * S // 2, view(local="10.0.0.2"), host="h1")
    assert [row["ts_ns"] for row in recorder.rows(T0 + 3 * S // 2)] == [T0, T0]


def test_nothing_that_comes_in_time_is_lost_and_nothing_waits_for_the_silent() -> None:
    """Hosts report every 0.4 s, each with its own delay; one falls silent, one comes later."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw, recorder = random.Random(seed), Recorder()
    delays = {f"h{host}": draw.randrange(10, 200) * MS for host in range(5)}
    silent, newcomer = draw.sample(sorted(delays), 2)
    gone_ns, come_ns = T0 + 6 * S, T0 + 12 * S
    delays[newcomer] = draw.randrange(1600, 1900) * MS  # the latest of all
    arrivals = sorted(
        (at_ns + delay_ns, at_ns, host)
        for host, delay_ns in delays.items()
        for at_ns in range(T0 + draw.randrange(400) * MS, T0 + 24 * S, 400 * MS)
        if (host != silent or at_ns < gone_ns) and (host != newcomer or at_ns > come_ns)
    )
    looks: dict[tuple[str, int], int] = {}
    stored: dict[tuple[str, int], int] = {}
    now_ns = T0
    while arrivals:
        now_ns += 100 * MS
        while arrivals and arrivals[0][0] <= now_ns:
            _, at_ns, host = arrivals.pop(0)
            recorder.report(at_ns, view(), host=host)
            known_ns = come_ns + LATE_NS if host == newcomer else T0 + LATE_NS
            if at_ns >= known_ns:
                looks[host, at_ns // S * S] = at_ns
        for row in recorder.rows(now_ns):
            host, second_ns = host_of(str(row["src"])), int(str(row["ts_ns"]))
            stored[host, second_ns] = now_ns - second_ns
    last_ns = max(second_ns for _, second_ns in stored)
    assert {key for key in looks if key[1] <= last_ns} <= stored.keys()
    assert max(stored.values()) <= LATE_NS + 100 * MS
    for (_, second_ns), after_ns in stored.items():
        changes = any(at - S <= second_ns < at + LATE_NS for at in (T0, gone_ns, come_ns))
        expected = {host for host in delays
                    if host != (silent if second_ns > gone_ns else newcomer)
                    and (host != newcomer or second_ns > come_ns)}  # fmt: skip
        if not changes:
            assert after_ns <= S + 400 * MS + max(delays[host] for host in expected) + 100 * MS
