"""What sampling of segments costs: a packet that is sent, a sample, a flow at the controller.

    unshare -rn .venv/bin/python -m bench.segment_cost [--rounds 30] [--json]

In a private network with a pair of virtual NICs. Sending: UDP packets of 64 bytes from one thread
and a TCP stream in large segments, with and without a tap on the NIC that sends, in turns; UDP is
the worst case for each packet (a clone, and a filter that ends early). Sampling: the CPU time of
one report of 64 flows with 12 samples a second in each direction, through a real ring. Matching:
the controller's CPU time for one direction and second. Medians; ratios are of neighbouring rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

import msgspec
import numpy as np

from syntony.agent.segments import PER_SECOND, HostClockState, SegmentSampler
from syntony.io.clocks import KernelClock
from syntony.io.segment_filter import ports_word
from syntony.io.segment_tap import SegmentTap
from syntony.model import ClockState, S, Timeline
from syntony.model.paths import FourTuple
from syntony.traffic.flows import ReportedFlow
from syntony.traffic.segment_delays import STAMP, SegmentDelays
from syntony.wire.segments import SegmentFlow, SegmentsReport

PACKETS, STREAM_BYTES, FLOWS = 20_000, 256 << 20, 64
T0 = 1_700_000_000 * S


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def send_packets() -> float:
    """CPU ns of this thread for one packet, the kernel's work included."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("10.9.0.2", 9))
        piece = bytes(64)
        began = time.thread_time_ns()
        for _ in range(PACKETS):
            sender.send(piece)
        return (time.thread_time_ns() - began) / PACKETS


def in_turns(rounds: int, shifts: dict[int, int]) -> dict[str, float]:
    """ns for a packet without a tap, and what a tap adds."""
    plain, added = [], []
    for turn in range(rounds):
        taken = {}
        for tapped in (False, True) if turn % 2 else (True, False):
            tap = SegmentTap("va") if tapped else None
            if tap is not None:
                tap.sample(shifts)
            taken[tapped] = send_packets()
            if tap is not None:
                tap.close()
        plain.append(taken[False])
        added.append(taken[True] - taken[False])
    return {"packet_ns": statistics.median(plain), "tap_adds_ns": statistics.median(added)}


def stream(port: int) -> float:
    """CPU seconds of this process, both ends and the kernel's work for them, for a GiB."""
    server = socket.create_server(("127.0.0.1", port))

    def drain() -> None:
        connection, _ = server.accept()
        while connection.recv(1 << 20):
            pass

    thread = threading.Thread(target=drain)
    thread.start()
    began = time.process_time()
    with socket.create_connection(("127.0.0.1", port)) as sender:
        piece = bytes(1 << 20)
        for _ in range(STREAM_BYTES >> 20):
            sender.sendall(piece)
    thread.join()
    server.close()
    return (time.process_time() - began) * (1 << 30) / STREAM_BYTES


def streams(rounds: int) -> dict[str, float]:
    """A TCP stream over loopback, with and without a tap there that samples it."""
    plain, ratios = [], []
    for turn in range(rounds):
        taken = {}
        for tapped in (False, True) if turn % 2 else (True, False):
            tap = SegmentTap("lo") if tapped else None
            if tap is not None:
                tap.sample({ports_word(port, 7_000): 24 for port in range(32_768, 33_268)})
            taken[tapped] = stream(7_000)
            if tap is not None:
                tap.close()
        plain.append(taken[False])
        ratios.append(taken[True] / taken[False])
    return {
        "stream_cpu_s_per_gib": statistics.median(plain),
        "stream_ratio": statistics.median(ratios),
    }


def report_cost(rounds: int) -> float:
    """CPU µs of one report, for each sample in it."""
    line = Timeline(
        node="h", ref_ns=0, offset_ns=0.0, drift_ppb=0.0, sigma_ns=1.0,
        state=ClockState.SYNCHRONIZED,
    )  # fmt: skip
    sampler, machine = SegmentSampler(KernelClock("h")), KernelClock("h")
    flows, senders = [], []
    server = socket.create_server(("127.0.0.1", 7_000), backlog=FLOWS)
    for _ in range(FLOWS):
        sender = socket.create_connection(("127.0.0.1", 7_000))
        senders.append((sender, server.accept()[0]))
        flow = FourTuple("127.0.0.1", sender.getsockname()[1], "127.0.0.1", 7_000)
        flows.append(
            ReportedFlow(
                job="j", token=0, nic="lo", flow=flow, dialled=True, movable=False, moving=False,
                tx_bps=8 * PER_SECOND << 12, rx_bps=1_000_000, windows=9,
            )
        )  # fmt: skip
    took = []
    for turn in range(rounds + 3):
        for sender, receiver in senders:
            for _ in range(PER_SECOND):
                sender.sendall(bytes(4_096))
                receiver.recv(1 << 16)
        before = sampler.sampled
        fresh = msgspec.structs.replace(line, ref_ns=machine.now_ns())
        began = time.thread_time_ns()
        sampler.report(flows, HostClockState(fresh, ClockState.SYNCHRONIZED, (1, 0), 0))
        spent = time.thread_time_ns() - began
        if turn >= 3:
            took.append(spent / max(1, sampler.sampled - before) / 1e3)
    sampler.close()
    return statistics.median(took)


def match_cost(rounds: int) -> float:
    """CPU µs of one direction and second, both ends' stamps."""
    service, took = SegmentDelays(), []
    for second in range(rounds + 3):
        at_ns = T0 + second * S
        numbers = (np.arange(PER_SECOND) + second * PER_SECOND) << 20
        stamps = np.zeros(PER_SECOND, STAMP)
        stamps["at_ns"] = at_ns + np.arange(PER_SECOND) * 80_000_000
        stamps["number"] = numbers & 0xFFFFFFFF
        sent = stamps.tobytes()
        stamps["at_ns"] += 5_000
        came = stamps.tobytes()
        began = time.thread_time_ns()
        for host, near, far, raw in (
            ("h0", "10.0.0.1", "10.0.0.2", sent),
            ("h1", "10.0.0.2", "10.0.0.1", came),
        ):
            flows = tuple(
                SegmentFlow(
                    job="j", nic="rail0", local=near, local_port=port if host == "h0" else 5,
                    remote=far, remote_port=5 if host == "h0" else port,
                    sent=raw if host == "h0" else b"", received=b"" if host == "h0" else raw,
                    shift=20, sampled=PER_SECOND if host == "h0" else 0,
                )
                for port in range(1_000, 1_000 + FLOWS)
            )  # fmt: skip
            report = SegmentsReport(
                from_ns=at_ns, at_ns=at_ns + S, bound_ns=100, sigma_ns=1.0, step=0, flows=flows
            )
            service.take(host, report, at_ns + S)
        service.step(at_ns + S)
        took.append((time.thread_time_ns() - began) / FLOWS / 1e3)
    return statistics.median(took[3:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    ip("link set lo up")
    ip("link add va type veth peer name vb")
    ip("addr add 10.9.0.1/24 dev va")
    ip("link set va up")
    ip("link set vb up")
    ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:01 dev va")
    result: dict[str, float] = in_turns(arguments.rounds, {ports_word(1, 2): 20})
    result |= streams(max(5, arguments.rounds // 3))
    result["report_us_per_sample"] = report_cost(arguments.rounds)
    result["match_us_per_direction"] = match_cost(arguments.rounds)
    result["load"] = os.getloadavg()[0]
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:24} {value:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
