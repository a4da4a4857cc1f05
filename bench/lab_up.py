"""How long `syntony lab up` takes: the command's own wall time, until every link and route is up.

python bench/lab_up.py [--hosts 8,16,32,64] [--repeat 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import NamedTuple

from tests.live import syntony

from syntony.lab.client import open_lab

NAME = "bench-up"


class Row(NamedTuple):
    """One size."""

    hosts: int
    namespaces: int
    links: int
    up_min_s: float
    up_median_s: float
    down_median_s: float


def timed(*words: str) -> float:
    """Wall time of one command line, which must succeed."""
    began_s = time.monotonic()
    done = syntony("lab", *words, "--name", NAME)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return time.monotonic() - began_s


def measure(hosts: int, repeat: int) -> Row:
    """Brings one size up and down `repeat` times."""
    ups, downs = [], []
    for _ in range(repeat):
        ups.append(timed("up", "--hosts", str(hosts), "--no-agents", "--detach"))
        status = open_lab(NAME).status()
        downs.append(timed("down"))
    nodes = len(status.hosts) + len(status.leaves) + len(status.spines) + 2
    return Row(
        hosts=hosts,
        namespaces=nodes,
        links=len(status.links),
        up_min_s=round(min(ups), 3),
        up_median_s=round(statistics.median(ups), 3),
        down_median_s=round(statistics.median(downs), 3),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="8,16,32,64")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [measure(int(hosts), args.repeat) for hosts in args.hosts.split(",")]
    if args.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    print("hosts  namespaces  links  up min  up median  down median   (seconds)")
    for r in rows:
        print(
            f"{r.hosts:5}  {r.namespaces:10}  {r.links:5}  {r.up_min_s:6.2f}  "
            f"{r.up_median_s:9.2f}  {r.down_median_s:11.2f}"
        )


if __name__ == "__main__":
    main()
