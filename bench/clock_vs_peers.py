"""Syntony's clocks beside chrony's and ptp4l's, on the same link at the same time.

    .venv/bin/python -m bench.clock_vs_peers [--full] [--json]

Two hosts with a switch between them, 100 Mb/s (tbf) at both of its ports, kernel software stamps.
All three run at once: chrony (interleaved), ptp4l (two-step, end to end) and our probe engine with
its windows, tracker and solve, probing from both ends as a fleet does. Each has a clock of its own
at the client, all on one oscillator, which drifts by 10 ppm and wanders by 3 ppb per √s, as in the
lab; the peers steer theirs, through a preloaded shim, ours is only estimated. The server's clock is
the machine's, so every error is known at every instant: the clock as read *now*, minus the
machine's.

*equal*: 128 stamped exchanges per second each. *default* (--full): as installed. Load is the UDP
payload in per cent of the link; daemons start on an idle link and run through all loads. Five
minutes; --full watches longer and adds an oscillator that is the machine's own (true offset 0, no
drift: holding still is always right) and the default rates, in 25 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench.peers import clocks, shaped
from bench.peers.clocks import DEFAULT, EQUAL, Rates

from syntony.errors import MissingError
from syntony.model import S, SyntheticClockSpec

LOADS = ((0, 0), (40, 0), (80, 0), (95, 0), (80, 80), (120, 0))
CONVERGE_S = {"equal": 25.0, "default": 90.0}
RECOVER_S = 6.0
"""Idle between two loads."""
BEGIN_S = 3.0
"""Of a load, not measured: queues fill and iperf3 finds its pace."""
READ_S = 0.1
SYSTEMS = ("chrony", "ptp4l", "syntony")


class Phase(NamedTuple):
    """What was read of every system under one load."""

    load: str
    errors: dict[str, list[float]]
    beyond: int
    """Of ours, errors beyond the bound that was reported with the reading."""
    modes: dict[str, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--full", action="store_true", help="default rates and drift as well")
    parser.add_argument("--seconds", type=float, help="watched per load (quick 25, full 45)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="directory for the daemons' logs")
    arguments = parser.parse_args()
    try:
        clocks.require_tools()
        code = shaped.in_private_world(["-m", "bench.clock_vs_peers", *sys.argv[1:]])
    except MissingError as error:
        print(f"clock_vs_peers: not measured: {error}", file=sys.stderr)
        return 0
    if code is not None:
        return code
    seconds = arguments.seconds or (45.0 if arguments.full else 25.0)
    base_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    quartz = SyntheticClockSpec(base_ns=base_ns, drift_ppb=10_000.0, wander_ppb=3.0, seed=1)
    runs = [(EQUAL, quartz)]
    if arguments.full:
        runs += [(EQUAL, SyntheticClockSpec(base_ns=base_ns)), (DEFAULT, quartz)]
    shaped.build()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.keep or Path(scratch)
        for number, (rates, spec) in enumerate(runs):
            place = work / str(number)
            place.mkdir(parents=True, exist_ok=True)
            for phase in run(place, rates, spec, seconds):
                rows += table_rows(rates, spec, phase)
                if not arguments.json:
                    show(rows[-len(SYSTEMS) :], header=len(rows) == len(SYSTEMS))
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        print(f"load average of the machine at the end: {os.getloadavg()[2]:.1f}")
    return 0


def run(work: Path, rates: Rates, spec: SyntheticClockSpec, seconds: float) -> Iterator[Phase]:
    """All loads, one after the other, with daemons that run through."""
    shim = clocks.build_shim(work)
    chrony = clocks.Chrony("chrony", work, shim, spec)
    ptp4l = clocks.Ptp4l("ptp4l", work, shim, spec)
    readings = work / "syntony.jsonl"
    running = clocks.start_ours(rates, spec, readings)
    running += chrony.run(rates) + ptp4l.run(rates)
    try:
        time.sleep(CONVERGE_S[rates.name])
        for load in LOADS:
            yield watch(load, chrony, ptp4l, readings, seconds)
    finally:
        shaped.stop(running)


def watch(
    load: tuple[int, int],
    chrony: clocks.Peer,
    ptp4l: clocks.Peer,
    readings: Path,
    seconds: float,
) -> Phase:
    """One load: every clock is read ten times a second."""
    errors: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    with shaped.load(*load):
        time.sleep(BEGIN_S)
        began_ns = time.monotonic_ns()
        while time.monotonic_ns() < began_ns + seconds * S:
            for peer in (chrony, ptp4l):
                errors[peer.name].append(peer.clock.error_ns())
            time.sleep(READ_S)
        ended_ns = time.monotonic_ns()
    time.sleep(RECOVER_S)
    lines = [json.loads(line) for line in readings.read_text(encoding="utf-8").splitlines()[:-1]]
    inside = [line for line in lines if began_ns <= line[0] < ended_ns]
    errors["syntony"] = [line[1] for line in inside]
    modes: dict[str, int] = {}
    for line in inside:
        modes[line[3]] = modes.get(line[3], 0) + 1
    beyond = sum(abs(line[1]) > line[2] for line in inside)
    return Phase(load_name(*load), errors, beyond, modes)


def load_name(forward: int, reverse: int) -> str:
    """For people."""
    if not forward:
        return "idle"
    return f"both {forward} %" if reverse else f"fwd {forward} %"


def table_rows(rates: Rates, spec: SyntheticClockSpec, phase: Phase) -> list[dict[str, Any]]:
    """One row per system; the ratio is p95 of the better peer to ours."""
    p95 = {name: quantile(values, 0.95) for name, values in phase.errors.items()}
    best = min(p95["chrony"], p95["ptp4l"])
    rows = []
    for name in SYSTEMS:
        values = phase.errors[name]
        row = {
            "rates": rates.name,
            "drift_ppb": spec.drift_ppb,
            "load": phase.load,
            "system": name,
            "readings": len(values),
            "p50_ns": quantile(values, 0.5),
            "p95_ns": p95[name],
            "max_ns": quantile(values, 1.0),
        }
        if name == "syntony":
            row |= {"peer_ratio": best / p95[name], "beyond_bound": phase.beyond}
            row["modes"] = phase.modes
        rows.append(row)
    return rows


def quantile(errors: list[float], share: float) -> float:
    """Of |error|; not a number where nothing was read."""
    return round(float(np.quantile(np.abs(errors), share)), 1) if errors else float("nan")


def show(rows: list[dict[str, Any]], *, header: bool) -> None:
    """Three lines of the table."""
    if header:
        print(f"{'rates':>8}{'drift ppm':>10}{'load':>11}  {'system':<8}{'n':>6}", end="")
        print("".join(f"{name:>14}" for name in ("p50 ns", "p95 ns", "max ns")), end="")
        print(f"{'best peer/ours':>16}{'> bound':>11}")
    for row in rows:
        print(f"{row['rates']:>8}{row['drift_ppb'] / 1e3:>10.0f}{row['load']:>11}", end="")
        print(f"  {row['system']:<8}{row['readings']:>6}", end="")
        print("".join(f"{row[name]:>14,.0f}" for name in ("p50_ns", "p95_ns", "max_ns")), end="")
        if row["system"] == "syntony":
            print(f"{row['peer_ratio']:>15.1f}×{row['beyond_bound']:>11}", end="")
        print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
