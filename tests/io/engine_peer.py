"""One engine, or a pair, in a process of its own: prints its port, probes until its standard input
has a line, then prints what it recorded as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time

from tests.ports import free_udp_port

from syntony.io.clocks import KernelClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_key import Key
from syntony.io.probe_records import PeerKeys, ProbeNic
from syntony.model import MS
from syntony.wire.probes import ProbeFlow

KEY = (7, b"sixteen byte key")
REFLECTOR_ID, INITIATOR_ID = 2, 1
LAB_PORT = 8620


def everyone(sends: Key, accepts: Key | None = None) -> dict[int, PeerKeys]:
    """One key for all NICs of a test."""
    return dict.fromkeys(range(1, 200), PeerKeys(sends, accepts))


def engine(nic_id: int, port: int, timeout_ns: int) -> ProbeEngine:
    """Running, with a key, without flows."""
    nic = ProbeNic(name="lo", nic_id=nic_id, address="127.0.0.1", port=port)
    made = ProbeEngine([nic], KernelClock("h"), timeout_ns=timeout_ns)
    made.set_peers(everyone(KEY))
    made.start()
    return made


def flows_to(port: int) -> list[ProbeFlow]:
    """Two flows from one source port."""
    source = free_udp_port()
    return [
        ProbeFlow(
            flow_id=flow_id, src="lo", dst="b/lo", dst_nic_id=REFLECTOR_ID, dst_addr="127.0.0.1",
            dst_port=port, src_port=source, interval_ns=20 * MS,
        )
        for flow_id in (1, 2)
    ]  # fmt: skip


class Late(threading.Thread):
    """How long this process was not run, at most."""

    longest_ns = 0

    def run(self) -> None:
        last_ns = time.monotonic_ns()
        while True:
            time.sleep(0.005)
            now_ns = time.monotonic_ns()
            self.longest_ns = max(self.longest_ns, now_ns - last_ns)
            last_ns = now_ns


def main() -> None:
    """See above."""
    late = Late(daemon=True)
    late.start()
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=int, default=0)
    parser.add_argument("--both", action="store_true")
    parser.add_argument("--drop", default="")
    parser.add_argument("--timeout-ms", type=int, default=1000)
    requested = parser.parse_args()
    timeout_ns = requested.timeout_ms * MS
    if requested.both:
        other = engine(REFLECTOR_ID, LAB_PORT, timeout_ns)
    port = free_udp_port()
    mine = engine(
        INITIATOR_ID if requested.both or requested.to else REFLECTOR_ID, port, timeout_ns
    )
    if requested.both or requested.to:
        mine.set_flows(flows_to(LAB_PORT if requested.both else requested.to))
    if requested.drop:
        rule = f"add rule ip t in {requested.drop} numgen random mod 3 0 drop"
        subprocess.run(["nft", rule], check=True)
    print(port, flush=True)
    sys.stdin.readline()
    rows = [[int(row["seq"]), int(row["flags"])] for row in mine.drain()]
    reported = {"sent": mine.counters().sent, "late_ms": late.longest_ns // MS}
    print(json.dumps({"records": rows, "counters": reported}))
    mine.close()
    if requested.both:
        other.close()


if __name__ == "__main__":
    main()
