"""Cabling audit and pair scheduling: how long they take.

    .venv/bin/python -m bench.audit_fabric [--captures DIR] [--quick] [--json]

Prints: parse and audit of the captured 4×NDR fabric (542 HCA ports, when captures are there), of a
generated SuperPOD-like fabric of 2,048 HCAs with four planted faults, all N−1 rounds of matchings
for 4,096 hosts, and rounds until a single bad host is named, worst of many draws. With simulated
InfiniBand (ibsim) the same is done by tests/audit/test_ibsim.py, discovery included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.audit.fabrics import Port, Wiring

from syntony.audit.cabling import Cabling
from syntony.audit.fabric_check import audit_fabric
from syntony.audit.hunt import PairHunt
from syntony.audit.pairs import matchings, rounds_of
from syntony.audit.result import Status
from syntony.fabric.ibnet import parse_subnet

ROUNDS = 5
HOSTS = 4096
DRAWS = 40


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Median processor seconds of several rounds (other work does not count), and the result."""
    took, result = [], None
    for _ in range(ROUNDS):
        start_s = time.process_time()
        result = work()
        took.append(time.process_time() - start_s)
    return statistics.median(took), result


def audit(text: str) -> dict[str, int]:
    """Number of findings by check."""
    reported = parse_subnet(text)
    results = audit_fabric(Cabling(reported.topology, reported.rates, reported.says))
    bad = [result.check for result in results if result.status in {Status.FAIL, Status.WARN}]
    return {check: bad.count(check) for check in sorted(set(bad))}


def superpod() -> str:
    """2,048 HCAs, 64 leaves, 32 spines; a rail swap, a port swap, a lost uplink, a dark NIC."""
    wiring = Wiring(groups=8, hosts=32, rails=8, spines=32, uplinks=1)
    wiring.swap(Port("leaf-03-05", 7), Port("leaf-06-05", 7))
    wiring.swap(Port("leaf-01-02", 3), Port("leaf-01-02", 4))
    wiring.cut(Port("leaf-02-07", 40))
    wiring.cut(Port("leaf-08-01", 31))
    return wiring.text()


def hunt_rounds(hosts: int, draws: int) -> int:
    """Rounds until one bad host of so many is named, the worst of the draws."""
    names = [f"h{number}" for number in range(hosts)]
    worst = 0
    for seed in range(draws):
        bad = random.Random(seed).choice(names)
        hunt = PairHunt(names, seed=seed)
        while pairs := hunt.next_round():
            hunt.report({pair: bad not in pair for pair in pairs})
        if [named.hosts for named in hunt.named()] != [(bad,)]:
            raise SystemExit(f"seed {seed}: {bad} is not what was named")
        worst = max(worst, hunt.rounds)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    default = os.environ.get("SYNTONY_CAPTURES", "../shared/data/captures")
    parser.add_argument("--captures", type=Path, default=Path(default))
    parser.add_argument("--quick", action="store_true", help="fewer draws")
    parser.add_argument("--json", action="store_true")
    requested = parser.parse_args()
    found: dict[str, Any] = {}
    captured = requested.captures / "topograph/example.out"
    if captured.is_file():
        text = captured.read_text()
        found["captured_s"], found["captured_findings"] = timed(lambda: audit(text))
    pod = superpod()
    found["superpod_s"], found["superpod_findings"] = timed(lambda: audit(pod))
    found["matchings_s"], plan = timed(lambda: matchings(HOSTS))
    found["matchings_rounds"] = rounds_of(HOSTS)
    found["hunt_rounds"] = hunt_rounds(HOSTS, 4 if requested.quick else DRAWS)
    found["hunt_limit"] = math.ceil(math.log2(HOSTS)) + 2
    del plan
    if requested.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:20} {value if not isinstance(value, float) else f'{value:.3f}'}")


if __name__ == "__main__":
    main()
