"""Faults in a live lab: which component the controller names, and how long after the injection.

Every kind of fault on links, NICs and whole switches, one at a time, on a lab with its real agents;
before each the fleet must be free of findings. Rows of the table are what was broken, columns what
was named. The clock starts when the fault is in force and stops when the right component is named.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from syntony.controller.client import ask_for
from syntony.errors import RemoteError
from syntony.fabric.names import cable_name, link_name
from syntony.lab.plan import LinkKind, Plan, make_plan
from syntony.lab.testing import LiveLab, live
from syntony.model.findings import Finding
from syntony.wire.messages import Findings, FindingsQuery, LearntPaths, PathsQuery

PATIENCE_S = 40.0
QUIET_S = 120.0
HOSTS, PEERS = 4, 6


class Case(NamedTuple):
    """One injection and its right answers."""

    row: str
    orders: list[tuple[str, str, dict[str, str]]]
    right: frozenset[str]


def cases(plan: Plan, rng: random.Random) -> list[Case]:
    """One of each kind, on targets drawn at random."""
    cable = rng.choice(plan.of_kind(LinkKind.FABRIC))
    nic = rng.choice(plan.of_kind(LinkKind.RAIL))
    spine = rng.choice(plan.spines)
    leaf, top = cable.a.node, cable.b.node
    below = nic.b.node
    spine_links = [link.name for link in plan.links_of(spine)]
    both = frozenset({cable_name(leaf, top)})
    five = {"percent": "5"}
    found = [
        Case("cable, black hole", [("blackhole", cable.name, {})], both),
        Case("cable, 5 %", [("loss", cable.name, five)], both),
        Case(
            "link up, black hole",
            [("blackhole", cable.name, {"direction": "from"})],
            frozenset({link_name(leaf, top)}),
        ),
        Case(
            "link down, 5 %",
            [("loss", cable.name, {**five, "direction": "to"})],
            frozenset({link_name(top, leaf)}),
        ),
        Case("NIC, black hole", [("blackhole", nic.name, {})], frozenset({nic.name})),
        Case("NIC, 5 %", [("loss", nic.name, five)], frozenset({nic.name})),
        Case(
            "NIC in, black hole",
            [("blackhole", nic.name, {"direction": "to"})],
            frozenset({link_name(below, nic.name)}),
        ),
        Case(
            "NIC out, 5 %",
            [("loss", nic.name, {**five, "direction": "from"})],
            frozenset({link_name(nic.name, below)}),
        ),
        Case("spine, black hole", [("blackhole", x, {}) for x in spine_links], frozenset({spine})),
        Case("spine, 5 %", [("loss", x, five) for x in spine_links], frozenset({spine})),
    ]
    rng.shuffle(found)
    return found


class Bench:
    """One running lab."""

    def __init__(self, lab: LiveLab) -> None:
        self._lab = lab
        self._target = f"unix:{lab.controller_socket}"

    def findings(self) -> tuple[Finding, ...] | None:
        try:
            answer = ask_for(self._target, FindingsQuery(), Findings)
        except RemoteError:
            return None
        return answer.findings if answer.ts_ns else None

    def learnt(self, wanted: int) -> bool:
        try:
            return len(ask_for(self._target, PathsQuery(), LearntPaths).paths) >= wanted
        except RemoteError:
            return False

    @staticmethod
    def until(true: Callable[[], bool], patience_s: float) -> bool:
        """Whether `true` comes to hold in time."""
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            if true():
                return True
            time.sleep(0.1)
        return False

    def run(self, case: Case) -> tuple[float | None, str]:
        """Seconds to the right name (None: never), and what was named at the end."""
        self._lab.clear()
        self.until(lambda: self.findings() == (), QUIET_S)
        for kind, target, options in case.orders:
            self._lab.inject(kind, target, options)
        began = time.monotonic()

        def named() -> bool:
            return bool({each.component for each in self.findings() or ()} & case.right)

        took = time.monotonic() - began if self.until(named, PATIENCE_S) else None
        last = self.findings() or ()
        return took, ", ".join(f"{each.kind} {each.component}" for each in last) or "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="of ten injections")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    took: list[float] = []
    table: Counter[tuple[str, str]] = Counter()
    options = ("--hosts", str(HOSTS), "--mesh-peers", str(PEERS))
    with live(f"bench-{os.getpid()}", *options, agents=True) as lab:
        bench = Bench(lab)
        plan = make_plan(lab.file().spec)
        wanted = 2 * len(plan.of_kind(LinkKind.RAIL)) * PEERS * 8
        if not bench.until(lambda: bench.learnt(wanted), 300):
            print("paths were never all learnt", file=sys.stderr)
        for _ in range(arguments.rounds):
            for case in cases(plan, rng):
                seconds, named = bench.run(case)
                took += [] if seconds is None else [seconds]
                table[case.row, "right" if seconds is not None else f"never; {named}"] += 1
                print(json.dumps([case.row, sorted(case.right), seconds, named]), flush=True)
    for (row, column), number in sorted(table.items()):
        print(f"{row:22} {column:30} {number}")
    if took:
        p50, p95 = np.quantile(took, [0.5, 0.95])
        print(f"named {len(took)} of {table.total()}; seconds p50 {p50:.1f}, p95 {p95:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
