"""Two network namespaces, a TCP stream from one to the other, a sampler at each end: the delays of
its segments, as JSON. In a private network: `unshare -rn python -m tests.agent.segment_hosts`.

Usage: segment_hosts SOURCE SINK [HOST_THAT_DOES_NOT_REPORT]
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection

from syntony.agent.segments import HostClockState, SegmentSampler
from syntony.io.clocks import KernelClock
from syntony.model import ClockState, S, Timeline
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.segment_delays import SegmentDelays
from syntony.wire.segments import SegmentsReport

PORT, SOURCE_PORT, SECONDS, BPS = 7_000, 41_000, 7, 80_000_000
NEW_NETWORK = 0x40000000
CLOCK = KernelClock("h")


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def clock() -> HostClockState:
    """Fleet time is CLOCK_REALTIME."""
    line = Timeline(
        node="h", ref_ns=CLOCK.now_ns(), offset_ns=0.0, drift_ppb=0.0, sigma_ns=10.0,
        state=ClockState.SYNCHRONIZED,
    )  # fmt: skip
    return HostClockState(line, line.state, (1, 0), 0)


def sample(nic: str, flow: FourTuple, tx_bps: int, rx_bps: int) -> list[SegmentsReport]:
    """A report each second."""
    known = ReportedFlow(
        job="night", token=0, nic=nic, flow=flow, dialled=True, movable=False, moving=False,
        tx_bps=tx_bps, rx_bps=rx_bps, windows=9,
    )  # fmt: skip
    sampler = SegmentSampler(CLOCK)
    sampler.start()
    found = []
    for _ in range(SECONDS):
        made = sampler.report([known], clock())
        found += [made] if made is not None else []
        time.sleep(1)
    sampler.close()
    return found


def sink(pipe: Connection, source: str, address: str) -> None:
    """The receiving host, in a namespace of its own."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    pipe.send(os.getpid())
    pipe.recv()
    ip(f"addr add {address}/{_bits(address)} dev vb{_nodad(address)}")
    ip("link set vb up")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, PORT), family=family)

    def drain() -> None:
        connection, _ = server.accept()
        while connection.recv(1 << 20):
            pass

    threading.Thread(target=drain, daemon=True).start()
    pipe.send("listens")
    pipe.send(sample("vb", FourTuple(address, PORT, source, SOURCE_PORT), 1_000, BPS))


def _bits(address: str) -> int:
    return 64 if ":" in address else 24


def _nodad(address: str) -> str:
    return " nodad" if ":" in address else ""


def pump(connection: socket.socket, stop: threading.Event) -> None:
    piece = bytes(BPS // 8 // 100)
    while not stop.wait(0.01):
        connection.sendall(piece)


def main(source: str, address: str, *silent: str) -> None:
    here, there = multiprocessing.Pipe()
    host = multiprocessing.Process(target=sink, args=(there, source, address))
    host.start()
    ip(f"link add vb type veth peer name va netns {os.getpid()}")
    ip(f"link set vb netns {here.recv()}")
    ip("link set va up")
    ip(f"addr add {source}/{_bits(source)} dev va{_nodad(source)}")
    here.send("go")
    here.recv()
    connection = socket.create_connection((address, PORT), source_address=(source, SOURCE_PORT))
    stop = threading.Event()
    threading.Thread(target=pump, args=(connection, stop), daemon=True).start()
    flow = FourTuple(source, SOURCE_PORT, address, PORT)
    reported = {"h0": sample("va", flow, BPS, 1_000)}
    reported["h1"] = here.recv()
    stop.set()
    host.join()
    service = SegmentDelays()
    for name, reports in reported.items():
        for report in reports:
            if name not in silent:
                service.take(name, report, report.at_ns)
    found = service.step(CLOCK.now_ns() + 9 * S)
    print(json.dumps([each._asdict() for each in found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
