"""What an agent tells the processes of its host, with a clock that can be stepped."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cases import mostly_slow

from syntony.agent.clock_server import ClockServer
from syntony.agent.config import ClockConfig
from syntony.io.clocks import SyntheticClock, make_tape
from syntony.io.fleet_clock import FleetClock
from syntony.model import MS, ClockState, S, SyntheticClockSpec, Timeline

DRIFT_PPB = 20_000.0
OFFSET_NS = 3 * MS


def real_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


class Host:
    """A clock, its agent's server, and a truth: fleet time is the machine's CLOCK_REALTIME."""

    def __init__(self, place: Path) -> None:
        self.place = place
        make_tape(place / "tape")
        spec = SyntheticClockSpec(
            base_ns=real_ns(), offset_ns=OFFSET_NS, drift_ppb=DRIFT_PPB, tape=str(place / "tape")
        )
        self.clock = SyntheticClock("h0", spec)
        self.config = ClockConfig(dir=str(place), clockbound_dir=str(place / "cb"))
        self.server = ClockServer(self.config, self.clock)

    def solved(self, rate_ppb: float = 0.0) -> Timeline:
        now_ns = real_ns()
        local_ns = self.clock.map_ns(now_ns)
        fast = (DRIFT_PPB + rate_ppb) * 1e-9
        return Timeline(
            node="h0",
            ref_ns=local_ns,
            offset_ns=float(now_ns - local_ns),
            drift_ppb=-fast / (1 + fast) * 1e9,
            sigma_ns=50.0,
            drift_sigma_ppb=5.0,
            state=ClockState.SYNCHRONIZED,
            component="h0",
            epoch=self.server.epoch,
        )

    def step(self, by_ns: int) -> None:
        self.clock.adjust(real_ns(), step_ns=by_ns)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.server.close()


def synchronized(host: Host, rate_ppb: float = 0.0) -> FleetClock:
    host.server.take([host.solved(rate_ppb)])
    reader = FleetClock(host.place)
    end_s = time.monotonic() + 300
    while reader.now().status is not ClockState.SYNCHRONIZED:
        host.server.tick()
        assert time.monotonic() < end_s
    return reader


def check_truth(reader: FleetClock) -> None:
    before_ns, reading, after_ns = real_ns(), reader.now(), real_ns()
    assert reading.earliest_ns is not None
    assert reading.latest_ns is not None
    assert reading.earliest_ns <= after_ns
    assert reading.latest_ns >= before_ns


def test_the_page_tells_the_truth(host: Host) -> None:
    reader = synchronized(host)
    for _ in range(100):
        check_truth(reader)


@pytest.mark.parametrize("by_ns", [10 * MS, -10 * MS, S])
def test_no_reader_believes_a_stepped_clock(host: Host, by_ns: int) -> None:
    """The reader sees it first; the agent publishes nothing before it has looked."""
    reader = synchronized(host)
    old = host.solved()
    host.step(by_ns)
    assert reader.now().bound_ns is None
    if by_ns > 0:
        assert reader.to_fleet(host.clock.now_ns()).status is ClockState.DISRUPTED
    host.server.take([old])
    assert reader.now().bound_ns is None
    assert host.server.tick() is not None, "and says so once"
    assert host.server.tick() is None
    host.server.take([host.solved()])
    again = synchronized(host)
    check_truth(again)
    assert again.now().steps > 0


@pytest.mark.parametrize("by_ns", [3_000, 15_000, -19_000])
def test_small_steps_too(host: Host, by_ns: int) -> None:
    """Readings are as wide as a busy machine makes them: such a step may be seen a look later."""
    reader = synchronized(host)
    host.server.tick()
    host.step(by_ns)
    end_s = time.monotonic() + 300
    while reader.now().status is ClockState.SYNCHRONIZED:
        assert time.monotonic() < end_s
    assert reader.now().bound_ns is None
    while host.server.tick() is None:
        assert time.monotonic() < end_s
    host.server.take([host.solved()])
    check_truth(synchronized(host))


def test_steps_wake_who_waits_for_them(host: Host) -> None:
    clock = SyntheticClock("h0", host.clock.spec)
    waiting = threading.Thread(target=clock.wait_for_step, args=(60.0,))
    waiting.start()
    host.step(3_000)
    waiting.join(300)
    assert not waiting.is_alive()


@pytest.mark.parametrize("by_ppb", mostly_slow([20_000.0, 499_990.0, -499_990.0], [-499_990.0]))
def test_slews_are_followed_within_the_bound(host: Host, by_ppb: float) -> None:
    """Started and stopped, with a controller that takes a while to measure the clock anew.

    The fastest slew is 500 ppm: a little less, for stamps are whole nanoseconds.
    """
    reader = synchronized(host)
    looks_until(host, reader, 3.0)
    assert reader.now().status is ClockState.SYNCHRONIZED
    for rate_ppb in (by_ppb, 0.0):
        host.clock.adjust(real_ns(), rate_ppb=rate_ppb)
        looks_until(host, reader, 1.5)
        assert reader.now().status is ClockState.HOLDOVER
        host.server.take([host.solved(rate_ppb)])
        synchronized(host, rate_ppb)
        looks_until(host, reader, 1.0)
        assert host.server.disruptions == 0
    assert reader.now().steps == 0, "one continuous timeline"


def looks_until(host: Host, reader: FleetClock, seconds: float) -> None:
    """The agent looks five times a second, a program all the time, and it converts its stamps
    once more after each look: what a look finds holds of instants before it too."""
    end_s = time.monotonic() + seconds
    stamps: list[int] = []
    while time.monotonic() < end_s:
        host.server.tick()
        for true_ns in stamps:
            then = reader.to_fleet(host.clock.map_ns(true_ns))
            assert then.earliest_ns is not None
            assert then.latest_ns is not None
            assert then.earliest_ns <= true_ns <= then.latest_ns
        stamps.clear()
        for _ in range(50):
            stamps.append(real_ns())
            check_truth(reader)
            time.sleep(0.004)


def test_a_successor_notices_what_happened_meanwhile(host: Host) -> None:
    reader = synchronized(host)
    host.server.close()
    host.server = ClockServer(host.config, host.clock)
    assert reader.now().status is ClockState.SYNCHRONIZED, "it goes on"
    host.server.tick()
    assert reader.now().status is not ClockState.DISRUPTED
    host.server.close()
    host.step(10 * MS)
    host.server = ClockServer(host.config, host.clock)
    host.server.tick()
    assert reader.now().bound_ns is None


def test_a_successor_knows_how_the_clock_was_slewed_meanwhile(host: Host) -> None:
    """250 µs in half a second, and no more: by its first look it must be in the bound."""
    reader = synchronized(host)
    looks_until(host, reader, 3.0)
    host.server.close()
    host.clock.adjust(real_ns(), rate_ppb=500_000.0)
    time.sleep(0.5)
    host.clock.adjust(real_ns(), rate_ppb=0.0)
    stamp_ns = real_ns()
    check_truth(reader)
    host.server = ClockServer(host.config, host.clock)
    looks_until(host, reader, 1.0)
    then = reader.to_fleet(host.clock.map_ns(stamp_ns))
    assert then.earliest_ns is not None
    assert then.latest_ns is not None
    assert then.earliest_ns <= stamp_ns <= then.latest_ns
    assert then.latest_ns - then.earliest_ns > 400_000


def test_clock_bounds_clients_get_a_true_bound_of_a_clock_nobody_sets(host: Host) -> None:
    """Here CLOCK_REALTIME is the truth, so that any bound holds it; a shifted truth shows more."""
    shifted = msgspec.structs.replace(host.solved(), offset_ns=host.solved().offset_ns + 7 * MS)
    host.server.take([shifted])
    raw = (host.place / "cb" / "shm0").read_bytes()
    bound_ns = int.from_bytes(raw[48:56], "little")
    assert 7 * MS <= bound_ns < 8 * MS
    assert int.from_bytes(raw[68:72], "little") == 1


def test_without_a_place_to_write_the_agent_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    host = Host(tmp_path)
    server = ClockServer(ClockConfig(dir=str(tmp_path / "file" / "x")), host.clock)
    server.take([msgspec.structs.replace(host.solved(), epoch=server.epoch)])
    assert server.synchronized
    assert server.tick() is None
    server.close()
    host.server.close()


def test_a_step_of_fleet_time_is_taken_once(host: Host) -> None:
    host.server.take([host.solved()], step=0)
    first = host.server.served()
    assert first is not None
    moved = msgspec.structs.replace(host.solved(), offset_ns=host.solved().offset_ns + 50 * MS)
    for _ in range(2):
        host.server.take([moved], step=7)
        piece = host.server.served()
        assert piece is not None
        assert piece.steps == first.steps + 1
        assert piece.residual_ns == 0
    host.server.take([host.solved()], step=0)
    piece = host.server.served()
    assert piece is not None
    assert (piece.residual_ns, piece.steps) == (0, first.steps + 2), "too far to be slewed"


def test_clockbounds_own_client_reads_our_segment(host: Host) -> None:
    """A program of theirs that prints `earliest latest status` of the segment it is given."""
    client = os.environ.get("SYNTONY_CLOCKBOUND_CLIENT")
    if not client:
        pytest.skip(
            "needs ClockBound's client (SYNTONY_CLOCKBOUND_CLIENT names it: "
            "docs/reference/clock-page.md): it is NOT tested against our page"
        )
    synchronized(host)
    before_ns = real_ns()
    words = [client, str(host.place / "cb" / "shm")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    after_ns = real_ns()
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        earliest, latest, state = line.split()
        assert state == "Synchronized"
        low_ns, high_ns = (int(text.replace(".", "")) for text in (earliest, latest))
        assert low_ns <= after_ns
        assert high_ns >= before_ns
        assert high_ns - low_ns < 20 * MS
