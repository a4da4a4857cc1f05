"""Are flaps counted exactly and noticed soon? Our count against the truth, and what published rules
make of the same flaps.

    .venv/bin/python -m bench.flaps [--longest 60] [--seeds 200] [--json]

Live, in a network namespace of its own: a tap, whose events the kernel throttles as it does those
of a physical NIC, and a veth, whose events come at once, lose their carrier for 1 ms to `--longest`
seconds, an hour's worth of flaps in a few seconds each. Noticed is told from the instant before the
carrier was switched off to the instant the watch's event was in Python.

Replayed, an hour per seed at its true length: the rule "three flaps within the hour" on our count;
samples of the state each 30 s, two of them down at least 25 s apart for a drop (gpud); more than
two changes of the counter between two polls a second apart (NVSentinel); changes between scrapes of
the state 15 s apart (a Prometheus rule on node_exporter). The figure is the share of hours in which
the rule fires.
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench.detect_cost import TUNSETCARRIER, WORLD, open_tap

from syntony.io.carrier import CarrierWatch
from syntony.model import MS, S

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
IFREQ = struct.Struct("16sH22x")
OUTAGES_S = (0.001, 0.01, 0.1, 1.0, 5.0, 20.0, 60.0)
PER_HOUR = (3, 8, 20)
HOUR_S = 3_600.0
Switch = Callable[[bool], None]
Schedule = list[tuple[float, float]]
"""Beginnings and ends of outages, seconds."""


class Follower:
    """The watch as an agent drives it, on a thread of its own."""

    def __init__(self, nic: str) -> None:
        self._nic = nic
        self._watch = CarrierWatch([nic])
        self._ended = False
        self.noticed_ns: list[int] = []
        """When each loss was known, in order."""
        self._losses: int | None = None
        self._take()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        self._watch.close()

    def _run(self) -> None:
        while not self._ended:
            deadline_ns = self._watch.deadline_ns
            left_s = 0.1 if deadline_ns is None else (deadline_ns - time.monotonic_ns()) / S
            select.select([self._watch], [], [], max(0.0, min(left_s, 0.1)))
            self._take()

    def _take(self) -> None:
        for event in self._watch.poll(time.monotonic_ns()):
            if event.nic != self._nic:
                continue
            before = event.carrier_down_count if self._losses is None else self._losses
            more = event.carrier_down_count - before
            self._losses = event.carrier_down_count
            now_ns = time.monotonic_ns()
            self.noticed_ns += [now_ns] * more


def tap_switch() -> tuple[str, Switch]:
    tap = open_tap("tap0")

    def switch(on: bool) -> None:
        fcntl.ioctl(tap, TUNSETCARRIER, struct.pack("i", on))

    return "tap0", switch


def veth_switch() -> tuple[str, Switch]:
    """The far end's administrative state is the near one's carrier."""
    for words in ("link add v0 type veth peer name v1", "link set v0 up", "link set v1 up"):
        subprocess.run(["ip", *words.split()], check=True)
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def switch(on: bool) -> None:
        flags = IFREQ.unpack(fcntl.ioctl(control, SIOCGIFFLAGS, IFREQ.pack(b"v1", 0)))[1]
        flags = flags | IFF_UP if on else flags & ~IFF_UP
        fcntl.ioctl(control, SIOCSIFFLAGS, IFREQ.pack(b"v1", flags))

    return "v0", switch


def live(kind: str, outage_s: float, count: int, rng: random.Random) -> dict[str, Any]:
    nic, switch = LIVE[kind]
    switch(True)
    time.sleep(0.1)
    follower = Follower(nic)
    began_ns, downs = time.monotonic_ns(), []
    for _ in range(count):
        downs.append(time.monotonic_ns())
        switch(False)
        time.sleep(outage_s)
        switch(True)
        time.sleep(rng.uniform(0.03, 0.15))
    end_ns = time.monotonic_ns() + 2 * S
    while len(follower.noticed_ns) < count and time.monotonic_ns() < end_ns:
        time.sleep(0.01)
    follower.close()
    after = [(seen - down) / MS for seen, down in zip(follower.noticed_ns, downs, strict=False)]
    return {
        "device": kind,
        "outage_s": outage_s,
        "flaps": count,
        "counted": sum(at_ns >= began_ns for at_ns in follower.noticed_ns),
        "noticed_ms": [round(each, 2) for each in after],
    }


LIVE: dict[str, tuple[str, Switch]] = {}


def measured(longest_s: float, seed: int) -> list[dict[str, Any]]:
    """In a namespace of our own."""
    LIVE.update(tap=tap_switch(), veth=veth_switch())
    rng = random.Random(seed)
    rows = []
    for kind in LIVE:
        for outage_s in [each for each in OUTAGES_S if each <= longest_s]:
            for count in PER_HOUR if outage_s < 5 else PER_HOUR[:1]:
                rows.append(live(kind, outage_s, count, rng))  # noqa: PERF401 - three loops deep
    return rows


# --- the same flaps as rules see them -------------------------------------------------------------


def drawn(outage_s: float, count: int, rng: random.Random) -> Schedule:
    """Outages of one hour that do not overlap."""
    while True:
        begins = sorted(rng.uniform(0, HOUR_S - outage_s) for _ in range(count))
        if all(b - a > outage_s + 1 for a, b in itertools.pairwise(begins)):
            return [(begin, begin + outage_s) for begin in begins]


def ours(downs: Schedule, _: random.Random) -> bool:
    """The kernel's counter counts every loss, whenever it is read."""
    return len(downs) >= 3


def sampled(downs: Schedule, period_s: float, rng: random.Random) -> list[tuple[float, bool]]:
    """(instant, down) of each sample."""
    first_s = rng.uniform(0, period_s)
    instants = np.arange(first_s, HOUR_S, period_s)
    return [(at, any(a <= at < b for a, b in downs)) for at in instants.tolist()]


def gpud(downs: Schedule, rng: random.Random) -> bool:
    drops, first_s, long = 0, None, False
    for at_s, down in sampled(downs, 30.0, rng):
        if down:
            first_s = at_s if first_s is None else first_s
            long |= at_s - first_s >= 25
            continue
        drops += long
        first_s, long = None, False
    return drops >= 3


def nvsentinel(downs: Schedule, rng: random.Random) -> bool:
    changes = np.sort(np.array(downs).ravel())
    seen = np.searchsorted(changes, np.arange(rng.uniform(0, 1), HOUR_S, 1.0), side="right")
    return bool((np.diff(seen) > 2).any())


def prometheus(downs: Schedule, rng: random.Random) -> bool:
    states = [down for _, down in sampled(downs, 15.0, rng)]
    return sum(b and not a for a, b in itertools.pairwise(states)) >= 3


RULES = {"ours": ours, "gpud": gpud, "nvsentinel": nvsentinel, "scraped state": prometheus}


def replayed(seeds: int) -> list[dict[str, Any]]:
    rows = []
    for outage_s in OUTAGES_S:
        for count in PER_HOUR:
            fired = dict.fromkeys(RULES, 0)
            for seed in range(seeds):
                rng = random.Random(f"{outage_s} {count} {seed}")
                downs = drawn(outage_s, count, rng)
                for name, rule in RULES.items():
                    fired[name] += rule(downs, rng)
            shares = {name: round(hits / seeds, 3) for name, hits in fired.items()}
            rows.append({"outage_s": outage_s, "flaps_per_hour": count, **shares})
    return rows


def show(live_rows: list[dict[str, Any]], replay_rows: list[dict[str, Any]]) -> None:
    print("| device | outage | flaps | counted | noticed p50 | p99 |\n|---|---|---|---|---|---|")
    for kind in dict.fromkeys(row["device"] for row in live_rows):
        for outage_s in dict.fromkeys(row["outage_s"] for row in live_rows):
            rows = [r for r in live_rows if (r["device"], r["outage_s"]) == (kind, outage_s)]
            after = np.array([each for row in rows for each in row["noticed_ms"]])
            flaps, counted = (sum(row[key] for row in rows) for key in ("flaps", "counted"))
            p50, p99 = np.percentile(after, (50, 99)) if len(after) else (np.nan, np.nan)
            print(
                f"| {kind} | {outage_s:g} s | {flaps} | {counted} | {p50:.1f} ms | {p99:.1f} ms |"
            )
    print(f"\n| outage | flaps an hour | {' | '.join(RULES)} |\n|---|---|{'---|' * len(RULES)}")
    for row in replay_rows:
        cells = " | ".join(f"{row[name]:.1%}" for name in RULES)
        print(f"| {row['outage_s']:g} s | {row['flaps_per_hour']} | {cells} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=float, default=5.0, metavar="S", help="outage, live")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(measured(args.longest, 1)))
        return 0
    again = [sys.executable, "-m", "bench.flaps", "--inside", "--longest", str(args.longest)]
    done = subprocess.run(
        [*WORLD, "sh", *again], stdout=subprocess.PIPE, check=True, env=os.environ
    )
    live_rows, replay_rows = json.loads(done.stdout), replayed(args.seeds)
    if args.json:
        print(json.dumps({"live": live_rows, "replayed": replay_rows}, indent=2))
    else:
        show(live_rows, replay_rows)
    return 0 if all(row["counted"] == row["flaps"] for row in live_rows) else 1


if __name__ == "__main__":
    sys.exit(main())
