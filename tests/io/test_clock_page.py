"""The pages as Python writes and reads them."""

from __future__ import annotations

import gc
import math
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syntony import clock
from syntony.clock.served import LEAD_NS, SLEW_PPB, TimelinePiece
from syntony.clock.steps import ClockRate, Moment
from syntony.errors import MissingError, RemoteError, UsageError
from syntony.io import clock_page, fleet_clock, run_directory
from syntony.io.clock_page import (
    ClockBound,
    ClockBoundWriter,
    ClockPageReader,
    ClockPageWriter,
    Reading,
)
from syntony.io.clocks import KernelClock
from syntony.io.fleet_clock import FleetClock
from syntony.io.moments import disruption_marker, read_moment
from syntony.io.peers_file import FleetTimelines, write_peers
from syntony.model import MS, ClockState, S, Timeline

CLOCK = KernelClock("h0")


def line(node: str, ref_ns: int, offset_ns: float = 0.0) -> Timeline:
    return Timeline(
        node=node,
        ref_ns=ref_ns,
        offset_ns=offset_ns,
        drift_ppb=-1500.0,
        sigma_ns=20.0,
        drift_sigma_ppb=3.0,
        asymmetry_ns=7.0,
        state=ClockState.SYNCHRONIZED,
        component="h0",
    )


def piece(from_ns: int, offset_ns: float = 5e6, residual_ns: float = 0.0) -> TimelinePiece:
    known = msgspec.structs.replace(line("", from_ns - 2 * S, offset_ns), component="")
    return TimelinePiece(from_ns, known, residual_ns, SLEW_PPB, ClockState.SYNCHRONIZED, 3)


def publish(path: Path, *pieces: TimelinePiece, ahead_ns: int = 10 * S) -> ClockPageWriter:
    writer = ClockPageWriter(path, synthetic=False)
    for each in pieces:
        now = read_moment(CLOCK)
        void_ns = now.mono_ns + ahead_ns
        writer.write(each, now, ClockRate(tolerance_ppb=100.0), epoch=7, void_after_ns=void_ns)
    return writer


@settings(max_examples=50)
@given(st.floats(-1e9, 1e9), st.floats(-9e5, 9e5), st.integers(0, 1000 * S))
def test_c_and_python_say_the_same(offset_ns: float, residual_ns: float, later_ns: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        known = piece(1_700_000_000 * S, offset_ns, residual_ns)
        publish(Path(place, "clock"), known).close()
        local_ns = known.from_ns + later_ns
        reading = ClockPageReader(Path(place, "clock")).to_fleet(local_ns)
    assert reading.fleet_ns == known.to_fleet_ns(local_ns)
    assert reading.latest_ns is not None
    ahead_ns = reading.latest_ns - reading.fleet_ns
    assert ahead_ns == pytest.approx(known.bound_ns(local_ns), abs=2.5)
    assert (reading.status, reading.steps) == (ClockState.SYNCHRONIZED, 3)


def test_a_successor_finds_what_was_left(tmp_path: Path) -> None:
    known = piece(time.clock_gettime_ns(time.CLOCK_REALTIME), residual_ns=-44.5)
    publish(tmp_path / "clock", known).close()
    left = ClockPageWriter(tmp_path / "clock", synthetic=False).predecessor_state()
    assert left is not None
    assert (left.piece, left.epoch) == (known, 7)
    assert isinstance(left.seen, Moment)
    assert 0 < CLOCK.now_ns() - left.seen.local_ns < 60 * S
    other = ClockPageWriter(tmp_path / "clock", synthetic=True)
    assert other.predecessor_state() is None, "another kind of clock: nothing to go on from"


def test_the_public_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_directory.DIR_VARIABLE, str(tmp_path))
    fleet_clock.default.cache_clear()
    with pytest.raises(MissingError, match="needs a running agent"):
        clock.now()
    with pytest.raises(RemoteError, match=r"no fleet time after 0\.01 s"):
        clock.wait_until_bound(1, timeout_s=0.01)
    local_ns = CLOCK.now_ns()
    publish(tmp_path / "clock", piece(local_ns - 60 * S, offset_ns=5e6))
    reading = clock.now()
    assert reading.status is ClockState.SYNCHRONIZED
    assert reading.earliest_ns is not None
    assert reading.latest_ns is not None
    assert reading.earliest_ns < reading.fleet_ns < reading.latest_ns
    assert abs(reading.fleet_ns - CLOCK.now_ns() - 5 * MS) < S
    assert clock.wait_until_bound(10 * MS) is not None
    with pytest.raises(RemoteError, match="SYNCHRONIZED with a bound of"):
        clock.wait_until_bound(1, timeout_s=0.01)
    past = clock.to_fleet(local_ns - 30 * S)
    assert past.fleet_ns == pytest.approx(local_ns - 30 * S + 5 * MS, abs=1 * MS)
    with pytest.raises(MissingError, match="remembers nothing of that instant"):
        clock.to_fleet(local_ns - 61 * S)


def test_offsets_between_clocks(tmp_path: Path) -> None:
    local_ns = CLOCK.now_ns()
    publish(tmp_path / "clock", piece(local_ns))
    lines = (line("h0", local_ns, 5e6), line("h1", local_ns, 2e6), line("h2", local_ns))
    lost = msgspec.structs.replace(lines[2], state=ClockState.DISRUPTED, reason="falseticker")
    apart = msgspec.structs.replace(line("h3", local_ns), component="h3")
    write_peers(tmp_path, FleetTimelines(host="h0", timelines=(*lines[:2], lost, apart)))
    host = FleetClock(tmp_path)
    found = host.offset("h0", "h1")
    assert found.offset_ns == pytest.approx(3e6, abs=1e4)
    assert found.bound_ns > 2 * 4 * 20
    assert host.offset("h1", "h0").offset_ns == pytest.approx(-3e6, abs=1e4)
    with pytest.raises(UsageError, match=r"no clock 'h9' .* h0, h1, h2, h3"):
        host.offset("h0", "h9")
    with pytest.raises(RemoteError, match="falseticker"):
        host.offset("h0", "h2")
    with pytest.raises(RemoteError, match="islands"):
        host.offset("h0", "h3")


def test_a_dead_agent_is_unknown(tmp_path: Path) -> None:
    publish(tmp_path / "clock", piece(CLOCK.now_ns() - S), ahead_ns=-1)
    reading = FleetClock(tmp_path).now()
    assert (reading.status, reading.bound_ns) == (ClockState.UNKNOWN, None)


def test_pieces_begin_when_they_say(tmp_path: Path) -> None:
    local_ns = CLOCK.now_ns()
    old, new = piece(local_ns - S, 100.0), piece(local_ns + LEAD_NS, 900.0)
    publish(tmp_path / "clock", old, new)
    host = FleetClock(tmp_path)
    for at_ns, known in ((local_ns + LEAD_NS - 1, old), (local_ns + LEAD_NS, new)):
        assert host.to_fleet(at_ns).fleet_ns == known.to_fleet_ns(at_ns)


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MissingError, match="cannot be written"):
        ClockPageWriter(tmp_path / "file" / "clock", synthetic=False)
    with pytest.raises(MissingError, match="cannot be written"):
        ClockBoundWriter(tmp_path / "file" / "shm0", 2)
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(MissingError, match="Protocol error"):
        ClockPageReader(tmp_path / "junk")


def test_version_1_of_clock_bound_has_no_word_for_disrupted(tmp_path: Path) -> None:
    bound = ClockBound(S, 2 * S, 3, 4, ClockState.DISRUPTED, 5)
    for name, version, at in (("shm", 1, 64), ("shm0", 2, 68)):
        ClockBoundWriter(tmp_path / name, version).write(bound)
        status = (tmp_path / name).read_bytes()[at : at + 4]
        assert int.from_bytes(status, "little") == (0 if version == 1 else 3)


def test_the_hypervisors_disruption_marker(tmp_path: Path) -> None:
    import struct

    page = tmp_path / "vmclock"
    assert disruption_marker(page) == 0
    page.write_bytes(struct.pack("<IIHBBIQ", 0x4B4C4356, 4096, 1, 1, 0, 2, 77) + bytes(100))
    assert disruption_marker(page) == 77
    page.write_bytes(b"VCLK")
    assert disruption_marker(page) == 0


def test_an_infinite_bound_is_none() -> None:
    known = piece(0)._replace(state=ClockState.DISRUPTED)
    assert known.bound_ns(5) == math.inf


def test_the_extension_says_what_cffi_says(tmp_path: Path) -> None:
    """In every state, without a reference too many or too few, and after its page is gone."""
    extension = clock_page._now_extension()
    if extension is None:
        pytest.skip(
            "needs Python's headers at the build (Debian: python3-dev; then make setup): the "
            "fast reader of the clock page is NOT tested"
        )
    local_ns = CLOCK.now_ns()
    for state in ClockState:
        writer = publish(tmp_path / "clock", piece(local_ns)._replace(state=state))
        reader = ClockPageReader(tmp_path / "clock")
        fast, slow = reader.read(), reader._read()
        assert isinstance(fast, Reading)
        assert isinstance(slow, Reading)
        assert type(fast) is Reading
        assert fast.status is slow.status is state
        assert (fast.steps, fast.bound_ns) == (3, slow.bound_ns)
        assert fast.fleet_ns <= slow.fleet_ns < fast.fleet_ns + S
        writer.close()
    before = sys.getrefcount(state)
    for _ in range(10_000):
        reader.read()
    assert abs(sys.getrefcount(state) - before) < 100
    read = reader.read
    del reader
    gc.collect()
    assert isinstance(read(), Reading), "the mapping lives as long as anyone who reads it"
    with pytest.raises(TypeError):
        extension.NowReader(0, 0, int, (), None)
    with pytest.raises(TypeError):
        extension.NowReader(0, 0, Reading, [], None)
