"""The systems compared, each with a clock of its own at the client, read against the machine's."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
from bench.peers.shaped import ADDRESS, CLIENT, INTERFACE, SERVER, start

from syntony.errors import MissingError
from syntony.io.clocks import SyntheticClock
from syntony.model import S, SyntheticClockSpec

_STATE = struct.Struct("<Qqqd")
_SHIM = Path(__file__).with_name("clock_shim.c")
_NATIVE = Path(__file__).parents[2] / "native" / "common"
_CC = ("cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
HERE = Path(__file__).parents[2]


class Rates(NamedTuple):
    """Stamped exchanges per second (one packet there, one back), as powers of two for the peers."""

    name: str
    chrony_poll: int
    """log2 of seconds, both minpoll and maxpoll."""
    ptp_log: int
    """log2 of seconds between syncs, and between delay requests."""
    ptp_servo: str
    probe_pairs: float
    """Of ours, per second; a pair is two exchanges."""


EQUAL = Rates("equal", -7, -7, "linreg", 64.0)
"""ptp4l's default servo takes two minutes to begin at this rate; linreg adapts by itself."""
DEFAULT = Rates("default", 6, 0, "pi", 16.0)
"""chrony: 64 s with iburst; ptp4l: 1 s; ours: eight paths, a pair each every half second (half of
what a fleet sends, where each end does)."""


def require_tools() -> None:
    """Raises `MissingError` naming what to install."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    tools = ("chronyd", "ptp4l", "iperf3", "cc")
    missing = [tool for tool in tools if shutil.which(tool, path=path) is None]
    if missing:
        raise MissingError(
            f"{', '.join(missing)} not found; install with: sh deploy/system-packages.sh --bench"
        )


def build_shim(work: Path) -> Path:
    """The interposed clock as a shared object."""
    library = work / "clock_shim.so"
    sources = [str(_SHIM), str(_NATIVE / "syn_clock.c"), f"-I{_NATIVE}"]
    subprocess.run([*_CC, *sources, "-o", str(library), "-lm", "-ldl"], check=True)
    return library


class ShimmedClock:
    """The clock that one shimmed process sees and disciplines."""

    def __init__(self, path: Path, oscillator: SyntheticClock) -> None:
        self._oscillator = oscillator
        path.write_bytes(bytes(_STATE.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _STATE.size)

    def error_ns(self) -> float:
        """Its reading minus the machine's, now."""
        while True:
            before = _STATE.unpack(self._map[:])
            real_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            seq, base_osc_ns, base_ns, rate_ppb = _STATE.unpack(self._map[:])
            if before[0] == seq and seq % 2 == 0:
                break
        since_ns = self._oscillator.map_ns(real_ns) - base_osc_ns
        # Whole nanoseconds first: instants do not fit a float.
        return int(base_ns + since_ns - real_ns) + float(rate_ppb) * 1e-9 * int(since_ns)


class Peer:
    """chrony or ptp4l: a server on the machine's clock, a client that steers a clock of its own."""

    def __init__(self, name: str, work: Path, shim: Path, spec: SyntheticClockSpec) -> None:
        self.name = name
        self._work = work
        state = work / f"{name}.state"
        self.clock = ShimmedClock(state, SyntheticClock(name, spec))
        self._env = {
            **os.environ,
            "LD_PRELOAD": str(shim),
            "SHIM_STATE": str(state),
            "SHIM_OSCILLATOR": (f"{spec.base_ns}:{spec.drift_ppb}:{spec.wander_ppb}:{spec.seed}"),
        }

    def start(self, server: list[str], client: list[str]) -> list[subprocess.Popen[str]]:
        """Both daemons, logs beside their configurations."""
        out = (self._work / f"{self.name}.log").open("w", encoding="utf-8")
        return [
            start(SERVER, server, stdout=subprocess.DEVNULL),
            start(CLIENT, client, stdout=out, stderr=subprocess.STDOUT, env=self._env),
        ]

    def _file(self, name: str, text: str) -> str:
        path = self._work / name
        path.write_text(text, encoding="utf-8")
        return str(path)


class Chrony(Peer):
    """Interleaved mode: chrony's most precise one (chrony.conf(5), xleave)."""

    def run(self, rates: Rates) -> list[subprocess.Popen[str]]:
        """Start it."""
        poll = f"minpoll {rates.chrony_poll} maxpoll {rates.chrony_poll}"
        server = self._file("chrony-server.conf", _CHRONY_SERVER)
        client = self._file("chrony-client.conf", _CHRONY_CLIENT.format(poll=poll))
        return self.start(
            ["chronyd", "-x", "-d", "-u", "root", "-f", server],
            ["chronyd", "-d", "-u", "root", "-f", client],
        )


class Ptp4l(Peer):
    """Two-step, end to end, software stamps, its own servo."""

    def run(self, rates: Rates) -> list[subprocess.Popen[str]]:
        """Start it."""
        configs = {
            node: self._file(
                f"ptp-{node}.cfg", _PTP.format(rates=rates, run=f"/run/ptp-{node}", role=role)
            )
            for node, role in ((SERVER, "free_running 1"), (CLIENT, "slaveOnly 1"))
        }
        command = {
            node: ["ptp4l", "-f", config, "-i", INTERFACE[node], "-m", "-q"]
            for node, config in configs.items()
        }
        return self.start(command[SERVER], command[CLIENT])


def start_ours(
    rates: Rates, spec: SyntheticClockSpec, readings: Path
) -> list[subprocess.Popen[str]]:
    """The probe engine at both ends; what the client reads goes to `readings`, a line each."""
    edges = {node: readings.with_suffix(f".{node}.edges") for node in (SERVER, CLIENT)}
    log = readings.with_suffix(".log").open("w", encoding="utf-8")
    for path in edges.values():
        path.touch()
    # Both probe: together they exchange as much as the peers.
    numbers = (msgspec.json.encode(spec).decode(), str(round(2 * S / rates.probe_pairs)))
    return [
        start(
            node,
            [sys.executable, "-m", "bench.peers.probing", node, *numbers]
            + [str(path) for path in (edges[node], edges[other], readings)],
            cwd=HERE,
            stderr=log,
        )
        for node, other in ((SERVER, CLIENT), (CLIENT, SERVER))
    ]


_CHRONY_SERVER = f"""local stratum 1
allow {ADDRESS[CLIENT]}
cmdport 0
pidfile /run/chrony-server.pid
"""
_CHRONY_CLIENT = f"""server {ADDRESS[SERVER]} iburst xleave {{poll}}
makestep 0.0001 3
cmdport 0
pidfile /run/chrony-client.pid
"""
_PTP = """[global]
time_stamping software
network_transport L2
delay_mechanism E2E
{role}
clock_servo {rates.ptp_servo}
logSyncInterval {rates.ptp_log}
logMinDelayReqInterval {rates.ptp_log}
logAnnounceInterval 0
summary_interval 0
tx_timestamp_timeout 100
uds_address {run}
"""
