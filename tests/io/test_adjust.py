"""Steering real interfaces: a lab's clock, chronyd's socket, clock_adjtime's struct."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from syntony.agent.config import DisciplineConfig
from syntony.agent.discipline import Discipline
from syntony.errors import MissingError, UsageError
from syntony.io.adjust import (
    ADJ_FREQUENCY,
    ADJ_NANO,
    ADJ_SETOFFSET,
    ChronySocket,
    SystemClock,
    TapedClock,
    Timex,
    sock_sample,
)
from syntony.io.clocks import KernelClock, SyntheticClock, make_tape
from syntony.model import MS, ClockState, S, SyntheticClockSpec, Timeline


def real_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def test_a_labs_clock_takes_adjustments(tmp_path: Path) -> None:
    tape = tmp_path / "tape"
    make_tape(tape)
    spec = SyntheticClockSpec(base_ns=real_ns(), drift_ppb=30_000.0, tape=str(tape))
    clock, other = SyntheticClock("h0", spec), SyntheticClock("h0", spec)
    steered = TapedClock(clock)
    assert steered.rate_ppb() == 0.0
    steered.adjust(-30_000.0, 5 * MS)
    now_ns = real_ns() + S
    assert steered.rate_ppb() == -30_000.0
    assert other.rate_ppb(now_ns) == pytest.approx(0.0, abs=1.0), "every process sees it"
    assert other.map_ns(now_ns + 100 * S) - other.map_ns(now_ns) == pytest.approx(100 * S, abs=2)
    assert clock.map_ns(now_ns) == other.map_ns(now_ns)
    assert clock.map_ns(now_ns) - now_ns == pytest.approx(5 * MS, abs=MS)


def test_a_clock_without_a_tape(tmp_path: Path) -> None:
    bare = SyntheticClock("h0", SyntheticClockSpec(base_ns=real_ns()))
    with pytest.raises(UsageError, match="no tape"):
        bare.adjust(real_ns(), step_ns=1)
    (tmp_path / "short").touch()
    for name, reason in (("none", "No such file"), ("short", "Protocol error")):
        with pytest.raises(MissingError, match=reason):
            SyntheticClock("h0", SyntheticClockSpec(base_ns=1, tape=str(tmp_path / name)))


def test_timex_is_the_kernels() -> None:
    """sizeof(struct timex) on 64-bit Linux, and a reading that the kernel filled in."""
    assert ctypes.sizeof(Timex) == 208
    timex = Timex()
    assert ctypes.CDLL(None).clock_adjtime(time.CLOCK_REALTIME, ctypes.byref(timex)) >= 0
    assert timex.tick in range(9000, 11001)
    assert abs(timex.tv_sec - time.clock_gettime_ns(time.CLOCK_REALTIME) // S) <= 1


def test_a_device_that_cannot_be_set(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="cannot be set: No such file"):
        SystemClock(str(tmp_path / "ptp9"))


class SoftPhc:
    """clock_adjtime(2) of one NIC's clock, kept by this process: frequency, steps, refusals."""

    def __init__(self) -> None:
        self.local_ns = 0.0
        self.rate_ppb = 0.0
        self.refusal = 0
        self.clock_ids: set[int] = set()

    def clock_adjtime(self, clock_id: int, reference: object) -> int:
        if self.refusal:
            ctypes.set_errno(self.refusal)
            return -1
        self.clock_ids.add(clock_id)
        timex = reference._obj  # type: ignore[attr-defined]  # what byref points at
        assert isinstance(timex, Timex)
        if timex.modes & ADJ_FREQUENCY:
            self.rate_ppb = timex.freq * 1000 / 65536
        if timex.modes & ADJ_SETOFFSET:
            assert timex.modes & ADJ_NANO
            self.local_ns += timex.tv_sec * S + timex.tv_nsec
        timex.freq = round(self.rate_ppb * 65536 / 1000)
        return 0

    def run(self, seconds: float, drift_ppb: float) -> None:
        self.local_ns += seconds * S * (1 + (drift_ppb + self.rate_ppb) * 1e-9)


@pytest.fixture
def soft_phc(monkeypatch: pytest.MonkeyPatch) -> SoftPhc:
    made = SoftPhc()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: made)
    return made


def test_a_nics_clock_is_steered_to_fleet_time(soft_phc: SoftPhc, tmp_path: Path) -> None:
    """The agent's discipline over a device that keeps time by what clock_adjtime told it."""
    device = tmp_path / "ptp0"
    device.touch()
    config = DisciplineConfig(nic_clocks=True, step_ns=MS)
    discipline = Discipline(config, KernelClock("h0"), {"h0/rail0": str(device)})
    soft_phc.local_ns, fleet_ns, drift_ppb = 10.0 * S + 5 * MS, 10.0 * S, 12_000.0
    for _ in range(400):
        soft_phc.run(1.0, drift_ppb)
        fleet_ns += S
        line = Timeline(
            node="h0/rail0",
            ref_ns=round(soft_phc.local_ns),
            offset_ns=fleet_ns - soft_phc.local_ns,
            drift_ppb=-(drift_ppb + soft_phc.rate_ppb),
            sigma_ns=10.0,
            drift_sigma_ppb=1.0,
            state=ClockState.SYNCHRONIZED,
        )
        discipline.steer(line, round(soft_phc.local_ns))
    assert abs(fleet_ns - soft_phc.local_ns) < 1_000
    assert soft_phc.rate_ppb == pytest.approx(-drift_ppb, abs=20)
    (clock_id,) = soft_phc.clock_ids
    assert clock_id & 7 == 3, "a clock by its file descriptor (FD_TO_CLOCKID)"
    discipline.close()


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.EOPNOTSUPP, errno.EBUSY])
def test_a_nics_clock_that_refuses(soft_phc: SoftPhc, tmp_path: Path, refusal: int) -> None:
    """At the start that is one clear line; later the clock is left alone and probing goes on."""
    device = tmp_path / "ptp0"
    device.touch()
    soft_phc.refusal = refusal
    with pytest.raises(MissingError, match=f"{device} cannot be set: {os.strerror(refusal)}"):
        SystemClock(str(device))
    soft_phc.refusal = 0
    discipline = Discipline(
        DisciplineConfig(nic_clocks=True), KernelClock("h0"), {"h0/rail0": str(device)}
    )
    soft_phc.refusal = refusal
    line = Timeline(
        node="h0/rail0",
        ref_ns=S,
        offset_ns=5e6,
        drift_ppb=10_000.0,
        sigma_ns=10.0,
        state=ClockState.SYNCHRONIZED,
    )
    assert [discipline.steer(line, S + second * S) for second in range(3)] == [None] * 3
    assert soft_phc.rate_ppb == 0.0
    discipline.close()


def test_the_kernel_refuses_what_is_no_clock(tmp_path: Path) -> None:
    """The real clock_adjtime(2), by the descriptor of something that keeps no time."""
    (tmp_path / "ptp0").touch()
    with pytest.raises(MissingError, match="discipline needs CAP_SYS_TIME"):
        SystemClock(str(tmp_path / "ptp0"))


def test_samples_are_chronys(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    sink = ChronySocket(str(path))
    assert not sink.send(S, 1.0), "chronyd does not run"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as chronyd:
        chronyd.bind(str(path))
        assert sink.send(7 * S + 5000, -2.5e6)
        data = chronyd.recv(100)
    sink.close()
    assert data == sock_sample(7 * S + 5000, -2.5e6)
    seconds, micros, offset, pulse, leap, _, magic = struct.unpack("@qqdiiii", data)
    assert (seconds, micros, offset, pulse, leap, magic) == (7, 5, -0.0025, 0, 0, 0x534F434B)


@pytest.mark.slow
def test_chronyd_takes_our_samples(tmp_path: Path) -> None:
    """Debian's chronyd, which must not touch the clock (-x), reports what we tell it."""
    chronyd = shutil.which("chronyd", path=f"{os.environ['PATH']}:/usr/sbin")
    if chronyd is None or os.geteuid() != 0:
        pytest.skip(
            "needs chrony (sh deploy/system-packages.sh --slow) and root: chronyd with our "
            "samples is NOT tested"
        )
    sock, command = tmp_path / "refclock", tmp_path / "cmd"
    tmp_path.chmod(0o750)
    config = tmp_path / "chrony.conf"
    config.write_text(
        f"refclock SOCK {sock} poll 0 filter 4 refid SYNT\nport 0\ncmdport 0\n"
        f"bindcmdaddress {command}\npidfile {tmp_path}/pid\ndriftfile {tmp_path}/drift\n",
        encoding="ascii",
    )
    daemon = subprocess.Popen(
        [chronyd, "-d", "-x", "-u", "root", "-f", str(config)], stderr=subprocess.PIPE, text=True
    )
    stop = threading.Event()
    feed = threading.Thread(target=_feed, args=(str(sock), stop))
    feed.start()
    try:
        found = _until_reachable(command)
    finally:
        stop.set()
        feed.join()
        daemon.terminate()
        _, log = daemon.communicate(timeout=600)
    # mode,state,name,stratum,poll,reach,age,adjusted offset,measured offset,error
    fields = found.split(",")
    assert fields[:3] == ["#", fields[1], "SYNT"], log
    assert float(fields[8]) == pytest.approx(-0.005, abs=1e-4), "5 ms behind, as told"


def _feed(path: str, stop: threading.Event) -> None:
    sink = ChronySocket(path)
    while not stop.wait(0.2):
        sink.send(real_ns() // 1000 * 1000, 5e6)
    sink.close()


def _until_reachable(command: Path) -> str:
    end_s = time.monotonic() + 300
    while time.monotonic() < end_s:
        done = subprocess.run(
            ["chronyc", "-c", "-h", str(command), "sources"],
            capture_output=True,
            text=True,
            check=False,
        )
        line = done.stdout.strip()
        if line.startswith("#") and int(line.split(",")[5] or 0) > 0:
            return line
        time.sleep(0.5)
    raise AssertionError("chronyd never took a sample")
