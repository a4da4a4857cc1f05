"""Our side: `reflect` at the server, `probe` at the client. The very engine, window and tracker of
the agent; the clock of the client is read as a user would, extrapolated to now."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
from bench.peers.shaped import ADDRESS, CLIENT, INTERFACE, SERVER

from syntony.clock.windows import PairKey, PairWindows
from syntony.io.clocks import KernelClock, SyntheticClock
from syntony.io.probe import ProbeEngine, ProbeNic
from syntony.model import MS, Edge, S, SyntheticClockSpec
from syntony.wire.messages import ProbeFlow

KEY = (1, b"bench-probe-key!")
PORT = 8620
ESTIMATE_NS = 2 * S
"""As agents do."""
READ_NS = 100 * MS
NIC_ID = {SERVER: 1, CLIENT: 2}


def nic(node: str) -> ProbeNic:
    """The one NIC of a host."""
    return ProbeNic(name=INTERFACE[node], nic_id=NIC_ID[node], address=ADDRESS[node], port=PORT)


def reflect() -> None:
    """Until killed."""
    with ProbeEngine([nic(SERVER)], KernelClock("a")) as engine:
        engine.set_keys(KEY)
        engine.start()
        while True:
            time.sleep(1)


def probe(spec: SyntheticClockSpec, interval_ns: int, out: Path) -> None:
    """Until killed: a line of JSON per reading: monotonic ns, error ns, claimed 1-sigma ns."""
    clock = SyntheticClock("b", spec)
    flow = ProbeFlow(
        flow_id=1,
        src=INTERFACE[CLIENT],
        dst="a/va",
        dst_nic_id=NIC_ID[SERVER],
        dst_addr=ADDRESS[SERVER],
        dst_port=PORT,
        src_port=61_000,
        interval_ns=interval_ns,
    )
    windows = PairWindows()
    windows.plan({1: PairKey("b/vb", "a/va", "b", "a")})
    with ProbeEngine([nic(CLIENT)], clock) as engine, out.open("w", encoding="utf-8") as file:
        engine.set_keys(KEY)
        engine.start()
        engine.set_flows([flow])
        edge: Edge | None = None
        due_ns = time.monotonic_ns() + ESTIMATE_NS
        while True:
            windows.add(engine.drain())
            if time.monotonic_ns() >= due_ns:
                due_ns += ESTIMATE_NS
                fresh = windows.edges(clock.now_ns())
                edge = fresh[0] if fresh else edge
            if edge is not None:
                print(json.dumps(reading(edge, clock)), file=file, flush=True)
            time.sleep(READ_NS / S)


def reading(edge: Edge, clock: SyntheticClock) -> tuple[int, float, float, str]:
    """Now: monotonic ns, error of the estimate ns, 1-sigma ns, what the newest window was."""
    local_ns = clock.now_ns()
    since_ns = local_ns - edge.ref_ns
    theta_ns = edge.theta_ns + edge.drift_ppb * 1e-9 * since_ns
    true_ns = clock.unmap_ns(local_ns) - local_ns
    sigma_ns = float(np.hypot(edge.sigma_ns, edge.drift_sigma_ppb * 1e-9 * since_ns))
    return time.monotonic_ns(), theta_ns - true_ns, sigma_ns, edge.mode


if __name__ == "__main__":
    if sys.argv[1] == "reflect":
        reflect()
    else:
        probe(
            msgspec.json.decode(sys.argv[2], type=SyntheticClockSpec),
            int(sys.argv[3]),
            Path(sys.argv[4]),
        )
