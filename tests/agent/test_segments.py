"""What an agent samples of jobs' segments: between real hosts, and piece by piece."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from syntony.agent import segments
from syntony.agent.segments import (
    MAX_BOUND_NS,
    MIN_SHIFT,
    PER_SECOND,
    HostClockState,
    SegmentSampler,
    sampled_bytes,
    shift_for,
)
from syntony.errors import MissingError
from syntony.io.clocks import KernelClock
from syntony.io.segment_tap import SEGMENT, packed
from syntony.lab.world import unshare_argv
from syntony.model import MS, ClockState, S, Timeline
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.segment_delays import NO_RECEIVER, STAMP
from syntony.wire.segments import MAX_SHIFT, MAX_STAMPS, SegmentsReport

SEED = random.randrange(1 << 32)
FLOW = FourTuple("10.0.0.1", 40_000, "10.0.0.2", 5_000)


def hosts(*words: str) -> list[dict[str, Any]]:
    """What `segment_hosts` prints."""
    try:
        argv = unshare_argv()
    except MissingError as error:
        pytest.skip(f"no private network here: {error}: segments between hosts are NOT tested")
    done = subprocess.run(
        [*argv, sys.executable, "-m", "tests.agent.segment_hosts", *words],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("ends", [("10.9.0.1", "10.9.0.2"), ("fd00::1", "fd00::2")])
def test_segments_between_two_hosts_are_measured(ends: tuple[str, str]) -> None:
    found = hosts(*ends)
    assert {tuple(each["flow"]) for each in found} == {(ends[0], 41_000, ends[1], 7_000)}
    delays = [delay for each in found for delay in each["delays_ns"]]
    # Both ways, each at least half of what it takes in a second: a busy host takes fewer.
    assert len(delays) >= PER_SECOND
    # A host short of time hands over some stamps after the other's report.
    assert 2 * sum(each["unmatched"] for each in found) <= len(delays)
    assert min(delays) > 0  # one clock, and it takes time
    assert min(delays) < MS


def test_a_host_that_does_not_report_leaves_a_reason() -> None:
    found = hosts("10.9.0.1", "10.9.0.2", "h1")
    assert {each["why"] for each in found} == {NO_RECEIVER}


# --- by hand


class FakeTap:
    """A NIC whose segments are given."""

    def __init__(self, nic: str) -> None:
        if nic == "gone":
            raise MissingError("no such NIC")
        self.rows: list[tuple[Any, ...]] = []
        self.missed = 0
        self.shifts: dict[int, int] = {}
        self.closed = False
        TAPS[nic] = self

    def sample(self, shifts: dict[int, int]) -> None:
        self.shifts = dict(shifts)

    def read(self) -> tuple[np.ndarray[Any, np.dtype[np.void]], int]:
        rows, self.rows, missed, self.missed = self.rows, [], self.missed, 0
        return np.array(rows, SEGMENT), missed

    def close(self) -> None:
        self.closed = True

    def left(self, at_ns: int, seq: int, payload: int, flow: FourTuple = FLOW) -> None:
        self._add(flow, at_ns, seq, payload, 1)

    def came(self, at_ns: int, seq: int, payload: int, flow: FourTuple = FLOW) -> None:
        self._add(flow.reverse, at_ns, seq, payload, 0)

    def _add(self, way: FourTuple, at_ns: int, seq: int, payload: int, outgoing: int) -> None:
        ends = (np.frombuffer(packed(each), np.uint8) for each in (way.local, way.remote))
        self.rows.append((*ends, way.local_port, way.remote_port, outgoing, at_ns, seq, payload))


TAPS: dict[str, FakeTap] = {}


class Host(KernelClock):
    """A sampler whose clock stands where it is put, half a second behind fleet time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__("h0")
        monkeypatch.setattr(segments, "SegmentTap", FakeTap)
        TAPS.clear()
        self.at_ns = 1_700_000_000 * S
        self.sampler = SegmentSampler(self)

    def now_ns(self) -> int:
        return self.at_ns

    def turn(self, *flows: ReportedFlow, **fields: Any) -> SegmentsReport | None:
        """A second later."""
        self.at_ns += S
        given: dict[str, Any] = {"continuity": (1, 0), "state": ClockState.SYNCHRONIZED, "step": 3}
        given |= fields
        sigma_ns = given.pop("sigma_ns", 10.0)
        line = Timeline(
            node="h0", ref_ns=self.at_ns, offset_ns=0.5 * S, drift_ppb=0.0, sigma_ns=sigma_ns,
            state=given["state"], reason=given.pop("reason", ""),
        )  # fmt: skip
        return self.sampler.report(flows, HostClockState(line, **given))

    def settled(self, *flows: ReportedFlow) -> SegmentsReport:
        """After a few turns."""
        for _ in range(3):
            self.turn(*flows)
        report = self.turn(*flows)
        assert report is not None
        return report


def job_flow(flow: FourTuple = FLOW, nic: str = "rail0", **fields: Any) -> ReportedFlow:
    given: dict[str, Any] = {
        "job": "night", "token": 0, "nic": nic, "flow": flow, "dialled": True, "movable": False,
        "moving": False, "tx_bps": 8 * PER_SECOND << 20, "rx_bps": 8 * PER_SECOND << 16,
        "windows": 3,
    }  # fmt: skip
    return ReportedFlow(**given | fields)


def stamps(raw: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = np.frombuffer(raw, STAMP).tolist()
    return found


def test_bytes_are_told_by_number_in_fleet_time(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    before = host.settled(job_flow())
    tap, at_ns = TAPS["rail0"], host.at_ns
    tap.left(at_ns + 5, (3 << 20) - 10, 1_000)
    tap.left(at_ns + 6, (4 << 20) + 1, 1_000)  # one too far
    tap.came(at_ns + 7, (7 << 16) - 1, 2)
    tap.left(at_ns + 8, 5 << 20, 1, FLOW._replace(remote="10.0.0.9"))  # of nobody
    report = host.turn(job_flow())
    assert report is not None
    assert report.from_ns == before.at_ns
    assert report.at_ns == host.at_ns - segments.SETTLED_NS + S // 2
    assert (report.step, report.clock, report.sigma_ns) == (3, "", 10.0)
    assert 40 <= report.bound_ns <= MAX_BOUND_NS
    (flow,) = report.flows
    assert (FourTuple.of(flow), flow.job, flow.nic) == (FLOW, "night", "rail0")
    assert stamps(flow.sent) == [(at_ns + 5 + S // 2, 3 << 20)]
    assert stamps(flow.received) == [(at_ns + 7 + S // 2, 7 << 16)]
    assert (flow.shift, flow.sampled) == (20, 2)


def test_a_flow_is_told_of_from_its_first_whole_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    other = job_flow(FLOW._replace(local_port=40_001))
    host.settled(job_flow())
    seen = [host.turn(job_flow(), other) for _ in range(3)]
    assert [len(each.flows) for each in seen if each is not None] == [1, 1, 2]


def test_where_a_sample_was_lost_its_nic_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    far = job_flow(FLOW._replace(local="10.1.0.1"), nic="rail1")
    host.settled(job_flow(), far)
    TAPS["rail1"].missed = 7
    report = host.turn(job_flow(), far)
    assert report is not None
    assert ([each.nic for each in report.flows], report.lost) == (["rail0"], 7)


def test_finer_sampling_counts_from_the_next_interval_on(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.settled(job_flow())
    slow = job_flow(tx_bps=8 * PER_SECOND << 14)
    shifts = []
    for _ in range(3):
        report = host.turn(slow)
        assert report is not None
        shifts.append(report.flows[0].shift)
    assert shifts == [20, 20, 14]  # ordered; begun within the interval; whole


def test_a_burst_is_thinned_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.settled(job_flow())
    for place in range(4 * MAX_STAMPS):
        TAPS["rail0"].left(host.at_ns + place, place << 20, 1)
    report = host.turn(job_flow())
    assert report is not None
    (flow,) = report.flows
    assert (len(stamps(flow.sent)), flow.shift) == (MAX_STAMPS, 22)
    assert all(number % (1 << 22) == 0 for _, number in stamps(flow.sent))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"state": ClockState.DISRUPTED}, "DISRUPTED"),
        ({"state": ClockState.UNKNOWN, "reason": "no peer answers"}, "UNKNOWN: no peer answers"),
        ({"sigma_ns": float(MAX_BOUND_NS)}, "its error may be"),
    ],
)
def test_without_fleet_time_flows_are_named_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], why: str
) -> None:
    host = Host(monkeypatch)
    host.settled(job_flow())
    TAPS["rail0"].left(host.at_ns, 3 << 20, 1)
    report = host.turn(job_flow(), **fields)
    assert report is not None
    assert report.clock.startswith(why)
    assert [(each.sent, each.sampled) for each in report.flows] == [(b"", 1)]
    assert host.turn(job_flow()) is None  # the interval begins
    assert host.turn(job_flow()) is not None


def test_what_was_stamped_before_the_clock_stepped_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(monkeypatch)
    host.settled(job_flow())
    assert host.turn(job_flow(), continuity=(2, 0)) is None
    assert host.turn(job_flow(), continuity=(2, 0)) is not None


def test_nics_are_tapped_while_a_job_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    slow = job_flow(tx_bps=1, rx_bps=1)
    assert host.turn(slow) is None
    assert not TAPS
    bad = job_flow(FLOW._replace(local="10.1.0.1"), nic="gone")
    report = host.settled(job_flow(), bad)
    assert [each.nic for each in report.flows] == ["rail0"]
    tap = TAPS["rail0"]
    assert host.turn() is not None
    assert tap.closed
    assert host.turn() is None


def test_the_power_of_two_follows_the_rate_and_does_not_waver() -> None:
    for power in range(MIN_SHIFT, MAX_SHIFT):
        assert shift_for(8 * PER_SECOND << power, 0) == power
        for factor in (0.55, 1.9):
            assert shift_for(int((8 * PER_SECOND << power) * factor), power) == power
    assert shift_for(0, 20) == MIN_SHIFT
    assert shift_for(1 << 60, 20) == MAX_SHIFT


def test_sampled_bytes_are_those_of_a_slow_count() -> None:
    print("seed", SEED)
    rng = random.Random(SEED)
    for _ in range(50):
        shift = rng.randrange(MIN_SHIFT, 18)
        rows = np.zeros(rng.randrange(5), SEGMENT)
        expected = []
        for place in range(len(rows)):
            seq = rng.choice([rng.randrange(1 << 32), (1 << 32) - rng.randrange(1, 70_000)])
            size = rng.randrange(1, 1 << 17)
            rows[place]["seq"], rows[place]["payload"], rows[place]["real_ns"] = seq, size, place
            expected += [
                (place, number % (1 << 32))
                for number in range(seq, seq + size)
                if number % (1 << shift) == 0
            ]
        assert sampled_bytes(rows, shift).tolist() == expected
