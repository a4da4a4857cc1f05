"""Names of faults on fabrics that Syntony's simulators did not draw, by path knowledge and shape.

Every case is drawn by its seed (`tests.fabric.foreign`); seeds that went wrong are printed. Twins
are right where they are reported as twins.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from tests.fabric import outcomes, varied
from tests.fabric.foreign import Case, Grade, Shape, draw, grade

from syntony.fabric.candidates import Listing
from syntony.fabric.locate import WindowCounts, locate
from syntony.fabric.numbering import make_candidates
from syntony.model.findings import Finding

SMALL = Shape(2, 2, 2, 1, 1)
PARALLEL = Shape(4, 3, 3, 1, 2)
LISTED = 40
"""Seeds named in each line."""


def graded(case: Case, *, delays: bool = False, topology: bool = True) -> tuple[Grade, int]:
    """Of one case, and the number of names reported, alternatives included. `topology`: how many
    parallel cables there are is known."""
    listing = Listing.of([path.listed for path in case.paths])
    candidates = make_candidates(listing, parallel=case.parallel() if topology else {})
    change = case.change_ns if delays else np.full(len(case.paths), np.nan)
    window = WindowCounts("now", case.sent, case.lost, change, np.full(len(change), 100.0))
    found = locate(candidates, [window])
    reported = [(each.component, each.confidence, each.alternatives) for each in found]
    return grade(case, reported), names_in(found)


def names_in(found: Sequence[Finding]) -> int:
    return sum(1 + len(each.alternatives) for each in found)


def tabulate(name: str, seeds: range, make: Callable[[int], Case], *, delays: bool = False) -> None:
    verdicts: Counter[str] = Counter()
    doubled, wrong, missed, names = [], [], [], 0
    for seed in seeds:
        case = make(seed)
        got, many = graded(case, delays=delays)
        names += many
        verdicts[got.verdict] += 1
        truth = " and ".join(each for each in (case.truth, case.also) if each)
        if got.doubled:
            doubled.append(str(seed))
        if got.wrong:
            wrong.append(f"{seed} ({truth}: {', '.join(got.wrong)})")
        if got.verdict == "missed":
            missed.append(f"{seed} ({truth})")
    kinds = ("right", "twin", "vague", "missed", "wrong")
    reported = "  ".join(f"{kind} {verdicts[kind]:3d}" for kind in kinds)
    print(
        f"{name:38} {reported}  doubled {len(doubled):3d}  of {len(seeds)}"
        f"  {names / len(seeds):.2f} names"
    )
    for what, which in (("wrong", wrong), ("missed", missed), ("doubled", doubled)):
        if which:
            print(f"    {what} at seeds {'; '.join(which[:LISTED])}")
    sys.stdout.flush()


def one_fault(seeds: range) -> None:
    for kind in ("leaf-up", "cable", "spine"):
        for known in (1.0, 0.5, 0.0):
            make = partial(draw, shape=SMALL, known=known, fault=kind)
            tabulate(f"2 leaves x 2 spines, {kind}, {known:.0%} full", seeds, make)
    tabulate("any shape, fully learnt", seeds, partial(draw, known=1.0))
    tabulate("any shape, partly learnt", seeds, draw)
    for uneven in (0.3, 0.5):
        make = partial(draw, uneven=uneven)
        tabulate(f"… losses differ by {uneven:.0%} by path", seeds, make)
    for burst in (3.0, 10.0):
        tabulate(f"… {burst:.0f} packets are lost at a time", seeds, partial(draw, burst=burst))
    for kind in ("leaf-up", "cable"):
        make = partial(draw, shape=PARALLEL, known=1.0, fault=kind)
        tabulate(f"one of two parallel cables, {kind}", seeds, make)
    tabulate("no fault", seeds, partial(draw, fault=""))
    tabulate("delay, partly learnt", seeds, partial(draw, delay=True), delays=True)
    for kind in ("leaf-up", "cable", "spine"):
        make = partial(draw, shape=SMALL, known=0.5, fault=kind, delay=True)
        tabulate(f"delay, 2 leaves x 2 spines, {kind}", seeds, make, delays=True)
        for uneven in (0.1, 0.3):
            even = partial(make, uneven=uneven)
            tabulate(f"… of which {uneven:.0%} differ by path", seeds, even, delays=True)
    tabulate(
        "no fault, 10 % of paths jitter", seeds,
        partial(draw, fault="", jitter=0.1), delays=True,
    )  # fmt: skip


def two_faults(seeds: range) -> None:
    tabulate("two faults, fully learnt", seeds, partial(draw, known=1.0, also=None))
    tabulate("two faults, partly learnt", seeds, partial(draw, also=None))
    for kind in ("spine", "leaf"):
        make = partial(draw, known=1.0, fault=kind, also="part")
        tabulate(f"{kind} and a part of it", seeds, make)
    for uneven in (0.0, 0.1):
        make = partial(draw, known=1.0, also=None, delay=True, uneven=uneven)
        tabulate(f"two delays, fully learnt, {uneven:.0%} uneven", seeds, make, delays=True)


def other_fabrics(seeds: range) -> None:
    """Of the third generator (`tests.fabric.varied`), by where an operator is sent."""
    kinds = (("losses", None, False), ("delays", None, True), ("no fault", 0, False))
    for name, faults, delay in kinds:
        found: dict[str, list[int]] = {outcome: [] for outcome in outcomes.OUTCOMES}
        names = 0
        for seed in seeds:
            case = varied.draw(seed, faults=faults, delay=delay)
            findings = outcomes.located(case, delays=delay)
            found[outcomes.outcome(case, findings)].append(seed)
            names += names_in(findings)
        counts = "  ".join(f"{outcome} {len(each):3d}" for outcome, each in found.items())
        print(
            f"{name:10} {counts}  {names / len(seeds):.2f} names"
            f"  astray or wrong: {found['astray']}, {found['wrong']}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--faults", choices=("one", "two", "both", "varied"), default="both")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.faults == "varied":
        other_fabrics(seeds)
    if arguments.faults in {"one", "both"}:
        one_fault(seeds)
    if arguments.faults in {"two", "both"}:
        two_faults(seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
