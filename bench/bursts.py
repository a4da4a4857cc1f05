"""Losses of queues that are full in bursts, and of cables under and beside such queues.

Every case is a drawn minute (`tests.fabric.bursts`); named are the seeds that were told as the
other. Each verdict beside the one by the medians of seconds alone.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.fabric.bursts import Cause, judge

from syntony.fabric.overflow import Overflow

MIN_LOST = 10
"""Fewer lost probes open no incident."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=60)
    arguments = parser.parse_args()
    for cause in Cause:
        usual, now = Counter[Overflow](), Counter[Overflow]()
        opposite = Overflow.NONE if cause is Cause.QUEUE else Overflow.ALL
        wrong = []
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            case = judge(cause, seed)
            if case.lost < MIN_LOST:
                continue
            usual[case.usual.overflow] += 1
            now[case.verdict.overflow] += 1
            if case.verdict.overflow is opposite:
                wrong.append(seed)
        told = "; ".join(
            f"{name} " + ", ".join(f"{each.value or 'unknown'} {n}" for each, n in counts.items())
            for name, counts in (("medians", usual), ("now", now))
        )
        print(f"{cause.value:26} {told}" + (f"; wrong at {wrong}" if wrong else ""), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
