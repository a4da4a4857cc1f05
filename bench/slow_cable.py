"""A cable becomes slow soon after another one is back, beside a spine that answers no path trace:
when it is named, and as what.

Shape, placement, hashing, rates, the delay (50 us to 5 ms) and times are drawn per seed, and the
seed is printed; path learners, map, localisation and rules are the real ones
(`tests.controller.probed`). Nothing else sends.

* *returned*: another cable was lost, and is back for 5 to 40 s.
* *alone*: nothing happened before.
* *nothing*: as *returned*, and no cable becomes slow: any page of a delay is false.
* *brief*: some links have a queue for 1 to 4 s, once or twice in a minute: the same.
"""

from __future__ import annotations

import random
import sys
from typing import NamedTuple

import numpy as np
from bench.incidents import of_one_kind
from bench.silent_switch import KNOWN_S
from tests.controller.judged import Control
from tests.controller.probed import Jam, Probed

from syntony.fabric.names import GROUP, OR, cable_name

KINDS = ("returned", "alone", "nothing", "brief")
WATCHED_S = 75
RULE = "component-delay"


class Case(NamedTuple):
    """One slow cable."""

    found_s: float
    """Until localisation named it, alone or among twins; NaN: it never did."""
    paged_s: float
    """Until the page that does."""
    named: str
    """``right``, ``twins`` or ``group`` of the first page."""
    wrong: tuple[str, ...]
    """Pages of delays that do not name it, or beyond the first."""
    words: str


def case(control: Control, kind: str, seed: int) -> Case:
    """One of `KINDS`."""
    rng = random.Random(f"slow {seed}")
    leaves = rng.randint(2, 3)
    fabric = Probed(control, seed, leaves, spines=rng.randint(2, 3), hosts=rng.randint(4, 6))
    fabric.silent = {*rng.sample(fabric.spines, rng.choice([0, 1, 1]))}
    cables = [(leaf, spine) for leaf in {*fabric.leaf.values()} for spine in fabric.spines]
    slow, lost = rng.sample(sorted(cables), 2)
    fabric.run(KNOWN_S)
    if kind in {"returned", "nothing"}:
        fabric.dead = {cable_name(*lost)}
        fabric.run(rng.randint(20, 60))
        fabric.dead = set()
        fabric.run(rng.randint(5, 40))
    before, began_ns = len(control.pages()), fabric.now_ns
    wait_ns = float(np.exp(rng.uniform(np.log(50_000), np.log(5_000_000))))
    part, ways = cable_name(*slow), rng.choice([1, 2, 2])
    links = [f"{a}->{b}" for a, b in (slow, slow[::-1])][:ways]
    found_s, until = np.nan, 0
    for second in range(WATCHED_S):
        if kind in {"returned", "alone"}:
            fabric.jams = {link: Jam(wait_ns, 0.0, ()) for link in links}
        elif kind == "brief" and second % 30 == 0:
            fabric.jams = {link: Jam(wait_ns, 0.0, ()) for link in links}
            until = second + rng.randint(1, 4)
        if kind == "brief" and second == until:
            fabric.jams = {}
        fabric.run(1)
        if np.isnan(found_s) and any(
            each.fault == "delay" and each.component in {part, *links} for each in fabric.findings
        ):
            found_s = (fabric.now_ns - began_ns) / 1e9
    late = [
        (page, (at_ns - began_ns) / 1e9)
        for page, at_ns in [*zip(control.pages(), fabric.paged_ns, strict=False)][before:]
        if page.startswith(RULE)
    ]
    fits = [_fit(page.partition(" ")[2], part, links) for page, _ in late]
    right = next((place for place, fit in enumerate(fits) if fit), None)
    if kind in {"nothing", "brief"}:
        right = None
    wrong = tuple(page for place, (page, _) in enumerate(late) if place != right)
    words = f"{fabric.shape}, silent {sorted(fabric.silent)}; {links} {wait_ns / 1e3:.0f} us"
    return Case(
        found_s,
        np.nan if right is None else late[right][1],
        "" if right is None else fits[right],
        wrong,
        words,
    )


def _fit(subject: str, part: str, links: list[str]) -> str:
    names = subject.split(OR)
    if {part, *links} & {*names}:
        return "right" if len(names) == 1 else "twins"
    ends = links[0].split("->")
    return (
        "group" if any(GROUP in each and {*each.split(GROUP)} & {*ends} for each in names) else ""
    )


def main() -> int:
    _, cases = of_one_kind(__doc__, KINDS, case, lambda got: (
        f"found {got.found_s:.0f} s, paged {got.paged_s:.0f} s {got.named} {got.wrong} "
        f"({got.words})"
    ))  # fmt: skip
    for name, values in (("found", [c.found_s for c in cases]),
                         ("paged", [c.paged_s for c in cases])):  # fmt: skip
        known = [each for each in values if not np.isnan(each)]
        took = np.quantile(known, [0.5, 0.95, 1]).round(1) if known else ()
        print(f"{name} {len(known)} of {len(cases)}, after (median, p95, most) {took} s")
    print(f"wrong or further pages in {sum(bool(each.wrong) for each in cases)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
