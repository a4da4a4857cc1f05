"""A spine dies soon after the start, beside silent ones: is it seen, when, and as what?

Drawn per seed: 2 to 4 leaves and spines, 1 to 3 hosts at a leaf, up to two silent spines (fewer
than there are), hashing, a topology or none, up to 20 % of answers lost, packets lost for up to two
seconds while it dies, and the time of the death from 20 s on. Path learners, map and rules are the
real ones (`tests.controller.traced`).

* *answering*, *silent*: a spine that answers, or does not, dies. It should have one page of the
  rule `switch-down`, which names it, with or without cables, or the silent switch at its leaves.
* *limited*: a spine that answers dies while some or all of the others answer few.
* *beside*: one dies beside a switch that never answers.
* *filtered*: routes are distributed anew at the moment in which a spine stops answering. It is up:
  any page is false.
* *nothing*: no part dies; routes are distributed anew, spines begin or cease to answer all hosts or
  some, answers are limited for a while, hosts pause. Any page is false.
* *losses*: the same; answers are always limited at first, and spines lose everything for a second
  or two, which may page as loss of that spine only.
"""

from __future__ import annotations

import random
import sys
from typing import NamedTuple

import numpy as np
from bench.incidents import of_one_kind
from tests.controller.judged import Control
from tests.controller.probed import Probed

from syntony.controller.fabric_changes import FabricChangeService
from syntony.fabric.book import PathBook
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.graph import Cable, Device, make_topology
from syntony.fabric.learn import HopQuery
from syntony.fabric.names import OR, SILENT_AT, cable_name

KINDS = ("answering", "silent", "limited", "beside", "filtered", "nothing", "losses")
EARLIEST_S, LATEST_S, WATCHED_S = 20, 130, 90
MAX_LOST, MAX_BLACK_S = 0.2, 2
LOSES, LOSS = "loses", "-loss"
EVENTS = ("rehash", "answers none", "answers some", "answers", "limited", "pauses")


class Case(NamedTuple):
    """What became of one case."""

    page: str
    """The first of the death; empty: none."""
    after_s: float
    """Until that page."""
    others: tuple[str, ...]
    """Pages too many."""
    words: str


class Fabric(Probed):
    """See above."""

    def __init__(self, control: Control, seed: int) -> None:
        rng = random.Random(f"first {seed}")
        leaves, spines = rng.randint(2, 4), rng.randint(2, 4)
        super().__init__(
            control, seed, leaves, spines=spines, hosts=max(3, leaves * rng.randint(1, 3))
        )
        self.draw = rng
        self.silent = {*rng.sample(self.spines, rng.randint(0, min(2, spines - 1)))}
        self.lost = rng.choice([0.0, rng.uniform(0, MAX_LOST)])
        self.quiet: dict[str, set[str]] = {}
        """Spine → leaves whose hosts it does not answer."""
        self.limited: dict[str, float] = {}
        """Device → share of its answers that are lost."""
        self.paused: set[str] = set()
        planned = rng.random() < 0.5
        if planned:
            devices = [Device(name=n, addresses=(n,)) for n in {*self.leaf.values(), *self.spines}]
            cables = [Cable(a=a, b=b) for a in sorted({*self.leaf.values()}) for b in self.spines]
            self.book = PathBook(make_topology(devices, cables))
            self.service = FabricChangeService(self.book, None)
            self.watch = FaultLocator(self.book)
        self.shape += f", silent {sorted(self.silent)}, {self.lost:.0%} lost" + (
            ", planned" if planned else ""
        )

    def answer(self, ask: HopQuery) -> str:
        device = super().answer(ask)
        if device in self.limited and self.draw.random() < self.limited[device]:
            return ""
        return "" if self.leaf[ask.flow.src] in self.quiet.get(device, ()) else device

    def turning(self, nic: str, step: int) -> bool:  # noqa: ARG002
        return nic.partition("/")[0] not in self.paused


def case(control: Control, kind: str, seed: int) -> Case:
    """One of `KINDS`."""
    fabric = Fabric(control, seed)
    if kind in {"nothing", "losses"}:
        return _nothing(fabric, lossy=kind == "losses")
    if kind == "filtered":
        return _filtered(fabric)
    if kind in {"silent", "beside"} and not fabric.silent:
        fabric.silent = {fabric.draw.choice(fabric.spines)}
    spine = fabric.draw.choice(
        [each for each in fabric.spines if (each in fabric.silent) == (kind == "silent")]
    )
    at_s = fabric.draw.randint(EARLIEST_S, LATEST_S)
    fabric.run(at_s)
    early, died_ns = control.pages(), fabric.now_ns
    if kind == "limited":
        _limit(fabric)
    fabric.black = {spine}
    fabric.run(fabric.draw.randint(0, MAX_BLACK_S))
    fabric.black, fabric.dead = set(), {spine}
    fabric.run(WATCHED_S)
    pages = [*zip(control.pages(), fabric.paged_ns, strict=False)][len(early) :]
    names = {spine, *(cable_name(leaf, spine) for leaf in fabric.leaf.values())}
    right = [page for page, _ in pages if _is_it(page, names, silent=kind == "silent")]
    others = [page for page, _ in pages if page not in right] + right[1:]
    after = next(((at - died_ns) / 1e9 for page, at in pages if page in right), np.nan)
    words = f"{fabric.shape}; {spine} at {at_s} s"
    return Case(right[0] if right else "", after, (*early, *others), words)


def _is_it(page: str, names: set[str], *, silent: bool) -> bool:
    rule, _, subject = page.partition(" ")
    if rule != "switch-down":
        return False
    return _names(page) <= names or (silent and subject.startswith(SILENT_AT))


def _filtered(fabric: Fabric) -> Case:
    spine = fabric.draw.choice([each for each in fabric.spines if each not in fabric.silent])
    at_s = fabric.draw.randint(EARLIEST_S, LATEST_S)
    fabric.run(at_s)
    fabric.salt += 1
    fabric.silent = fabric.silent | {spine}
    fabric.run(WATCHED_S)
    return Case("", np.nan, (*fabric.control.pages(),), f"{fabric.shape}; {spine} at {at_s} s")


def _nothing(fabric: Fabric, *, lossy: bool) -> Case:
    draw, events = fabric.draw, []
    kinds = (*EVENTS, LOSES, LOSES) if lossy else EVENTS
    if lossy or draw.random() < 0.5:
        events.append(_limit(fabric))
    fabric.run(draw.randint(EARLIEST_S, LATEST_S))
    fabric.limited = {}
    for _ in range(draw.randint(1, 3)):
        event, spine = draw.choice(kinds), draw.choice(fabric.spines)
        events.append(f"{event} {spine} at {fabric.now_ns // 10**9} s")
        _happen(fabric, event, spine)
        fabric.run(draw.randint(10, 90))
        fabric.paused, fabric.limited = set(), {}
    fabric.run(60)
    lost = {event.split()[1] for event in events if event.startswith(LOSES)}
    pages = (page for page in fabric.control.pages() if not (_names(page) & lost and LOSS in page))
    return Case("", np.nan, (*pages,), f"{fabric.shape}; {', '.join(events)}")


def _names(page: str) -> set[str]:
    return {*page.partition(" ")[2].split(OR)}


def _happen(fabric: Fabric, event: str, spine: str) -> None:
    draw, leaves = fabric.draw, sorted({*fabric.leaf.values()})
    if event == "rehash":
        fabric.salt += 1
    elif event == "answers none":
        fabric.silent |= {spine}
    elif event == "answers some":
        fabric.silent -= {spine}
        fabric.quiet[spine] = {*draw.sample(leaves, draw.randint(1, len(leaves) - 1))}
    elif event == "answers":
        fabric.silent -= {spine}
        fabric.quiet.pop(spine, None)
    elif event == "limited":
        _limit(fabric)
    elif event == LOSES:
        fabric.black = {spine}
        fabric.run(draw.randint(1, MAX_BLACK_S))
        fabric.black = set()
    else:
        names = sorted(fabric.leaf)
        fabric.paused = {*draw.sample(names, draw.randint(1, len(names)))}


def _limit(fabric: Fabric) -> str:
    """Some or all spines, or all switches, answer few."""
    draw = fabric.draw
    some = draw.sample(fabric.spines, draw.randint(1, len(fabric.spines)))
    devices = draw.choice([some, fabric.spines, [*fabric.spines, *sorted({*fabric.leaf.values()})]])
    share = draw.uniform(0.3, 0.95)
    fabric.limited = dict.fromkeys(devices, share)
    return f"{len(devices)} limited by {share:.0%}"


def main() -> int:
    _, cases = of_one_kind(__doc__, KINDS, case, lambda got: (
        f"{got.page} after {got.after_s:.0f} s {got.others} ({got.words})"
    ))  # fmt: skip
    seen = [each.after_s for each in cases if each.page]
    took = np.quantile(seen, [0.5, 0.95, 1]).round(1) if seen else ()
    false = sum(bool(each.others) for each in cases)
    print(f"{len(cases)} cases; seen {len(seen)}, after (median, p95, most) {took} s")
    print(f"pages too many in {false}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
