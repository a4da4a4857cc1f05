"""Our side, one process at each end: the very engine, window, tracker and solve of the product.

    python -m bench.peers.probing END SPEC INTERVAL_NS OWN_EDGES OTHER_EDGES READINGS

As in a fleet, both ends probe, each at half the rate: a request and its answer are not sent by the
same code, and what that costs one direction of an end's probes, it costs the other direction of
the other end's. Each end writes the edges it has estimated to a file; the client solves for both
clocks and reads its own as a user would, extrapolated to now.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import msgspec
from bench.peers.shaped import ADDRESS, CLIENT, INTERFACE, SERVER

from syntony.clock.network import NetworkSolver
from syntony.clock.windows import PairKey, PairWindows
from syntony.io.clocks import ClockSource, KernelClock, SyntheticClock
from syntony.io.probe import ProbeEngine
from syntony.io.probe_records import PeerKeys, ProbeNic
from syntony.io.window_fit import fit_window
from syntony.model import MS, Edge, S, SyntheticClockSpec
from syntony.wire.probes import ProbeFlow

KEY = (1, b"bench-probe-key!")
PORT = 8620
ESTIMATE_NS = 2 * S
"""As agents do."""
READ_NS = 100 * MS
NIC_ID = {SERVER: 1, CLIENT: 2}
OTHER = {SERVER: CLIENT, CLIENT: SERVER}


def nic(node: str) -> ProbeNic:
    """The one NIC of a host."""
    return ProbeNic(name=INTERFACE[node], nic_id=NIC_ID[node], address=ADDRESS[node], port=PORT)


def flow(node: str, interval_ns: int) -> ProbeFlow:
    """To the other host, a pair of probes per interval."""
    there = OTHER[node]
    return ProbeFlow(
        flow_id=1,
        src=INTERFACE[node],
        dst=f"{there}/{INTERFACE[there]}",
        dst_nic_id=NIC_ID[there],
        dst_addr=ADDRESS[there],
        dst_port=PORT,
        src_port=61_000,
        interval_ns=interval_ns,
    )


def edges(node: str, clock: ClockSource, interval_ns: int, out: TextIO) -> Iterator[Edge | None]:
    """Ten times a second, the newest edge, which also goes to `out`; None before there is one."""
    there = OTHER[node]
    names = (f"{node}/{INTERFACE[node]}", f"{there}/{INTERFACE[there]}")
    windows = PairWindows(fit=fit_window)
    windows.plan({1: PairKey(*names, node, there)})
    with ProbeEngine([nic(node)], clock) as engine:
        engine.set_peers(dict.fromkeys(NIC_ID.values(), PeerKeys(KEY)))
        engine.start()
        engine.set_flows([flow(node, interval_ns)])
        newest: Edge | None = None
        due_ns = time.monotonic_ns() + ESTIMATE_NS
        while True:
            windows.add(engine.drain())
            if time.monotonic_ns() >= due_ns:
                due_ns += ESTIMATE_NS
                for newest in windows.edges(clock.now_ns()):
                    print(msgspec.json.encode(newest).decode(), file=out, flush=True)
            yield newest
            time.sleep(READ_NS / S)


def read(spec: SyntheticClockSpec, interval_ns: int, paths: tuple[Path, Path, Path]) -> None:
    """Until killed: a line of JSON per reading: monotonic ns, error ns, bound ns, modes."""
    clock = SyntheticClock(CLIENT, spec)
    solver = NetworkSolver()
    with paths[0].open("w") as own, paths[1].open() as other, paths[2].open("w") as readings:
        far: Edge | None = None
        known: tuple[Edge | None, Edge | None] = (None, None)
        for near in edges(CLIENT, clock, interval_ns, own):
            for line in other:
                far = msgspec.json.decode(line, type=Edge)
            if near is None or far is None:
                continue
            if known != (near, far):
                known = (near, far)
                solver.update([near, far], time.monotonic_ns())
            print(json.dumps(reading(solver, clock, known)), file=readings, flush=True)


def reading(
    solver: NetworkSolver, clock: SyntheticClock, known: tuple[Edge, Edge]
) -> tuple[int, int, float, str]:
    """Now: the client's fleet time less the server's at the same instant, and what was promised."""
    monotonic_ns = time.monotonic_ns()
    lines = {line.node: line for line in solver.solve(monotonic_ns)}
    local_ns = clock.now_ns()
    server_ns = lines[SERVER].to_fleet_ns(clock.unmap_ns(local_ns))
    error_ns = lines[CLIENT].to_fleet_ns(local_ns) - server_ns
    modes = "+".join(edge.mode for edge in known)
    return monotonic_ns, error_ns, lines[CLIENT].bound_ns(local_ns), modes


def main() -> None:
    """Until killed."""
    end, spec, interval_ns, *files = sys.argv[1:]
    own, other, readings = map(Path, files)
    if end == CLIENT:
        clock = msgspec.json.decode(spec, type=SyntheticClockSpec)
        read(clock, int(interval_ns), (own, other, readings))
        return
    with own.open("w", encoding="utf-8") as out:
        for _ in edges(SERVER, KernelClock(SERVER), int(interval_ns), out):
            pass


if __name__ == "__main__":
    main()
