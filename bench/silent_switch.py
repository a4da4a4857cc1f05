"""A spine that answers no path trace dies and returns: when the map is right again, what is named.

Shape, placement, hashing, rates, times and faults are drawn per seed, and the seed is printed; path
learners, map, localisation and rules are the real ones (`tests.controller.probed`). The spine dies,
with packets lost for up to three seconds, and returns some time later. Then either

* *map*: nothing else happens, and nothing is probed. The map is right when no way lists a device
  that it does not cross.
* *hole*: some seconds later one of its links begins to lose every packet. For 25 s a name is
  *right* if it holds this link (a group at the link's leaf does), *vague* if it is the whole
  fabric, else *wrong*.

Its death has its page if one names the spine, or the switch that does not answer at its leaves.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from bench.fault_pairs import HOSTS, LOSS
from bench.incidents import of_one_kind
from tests.controller.judged import Control
from tests.controller.probed import Probed
from tests.controller.traced import PORTS, TARGET, World

from syntony.controller.containment import NameContainment
from syntony.fabric.book import Way, reply
from syntony.fabric.extra_probes import suspected
from syntony.fabric.learn import FlowKey
from syntony.fabric.names import ANY, GROUP, OR, SILENT_AT, ComponentKind, cable_name
from syntony.model.findings import Finding
from syntony.model.names import host_of

T = TypeVar("T", bound=World)
ANYWHERE = f"{ANY}{GROUP}{ANY}"
KINDS = ("map", "hole")
KNOWN_S, DEAD_S, MAP_S, HOLE_S = 130, (30, 75), 240, 25


class Case(NamedTuple):
    """One death and return."""

    died_s: float | None
    """Until the page of the death; None: none."""
    stale_s: tuple[int, ...]
    """For each way that was wrong after the return, until it was right again."""
    named: str
    """What was said of the hole: ``right``, ``vague``, ``wrong``, ``nothing``."""
    pages: tuple[str, ...]
    """Wrong ones, from the beginning."""
    found: tuple[str, ...]
    """Wrong findings after the return."""
    words: str


class Silent(Generic[T]):
    """A fabric with a spine that answers no traces, and the ways on the wrong switch."""

    def __init__(self, make: type[T], control: Control, seed: int) -> None:
        self.rng = random.Random(f"silent {seed}")
        self.fabric = make(control, seed, self.rng.randint(2, 4))
        self.spine = self.rng.choice(self.fabric.spines)
        self.fabric.silent = {self.spine}
        pairs = [(host.name, f"{peer}/rail0") for host in self.fabric.hosts for peer in host.peers]
        flows = [Way(*pair, 61_000 + port, TARGET) for pair in pairs for port in range(PORTS)]
        self.ways = [way for each in flows for way in (each, reply(each))]

    def wrong(self) -> set[Way]:
        """Ways that list a device that they do not cross."""
        fabric, switches = self.fabric, {*self.fabric.spines, *self.fabric.leaf.values()}
        return {
            way
            for way in self.ways
            if switches.intersection(fabric.book.components(way)) - {*self.crossed(way)}
        }

    def crossed(self, way: Way) -> list[str]:
        """The switches that a way really takes."""
        src, dst = host_of(way.src), host_of(way.dst)
        return self.fabric.hops(FlowKey("rail0", src, dst, way.sport, way.dport))

    def dies(self) -> float | None:
        """It dies; seconds to its page, if there is one."""
        fabric, control = self.fabric, self.fabric.control
        began_ns, pages = fabric.now_ns, len(control.pages())
        fabric.black = {self.spine}
        fabric.run(self.rng.randint(0, 3))
        fabric.black, fabric.dead = set(), {self.spine}
        fabric.run(self.rng.randint(*DEAD_S))
        for page, at_ns in zip(control.pages()[pages:], fabric.paged_ns[pages:], strict=False):
            if page.startswith("switch-down") and self.is_spine(page):
                return (at_ns - began_ns) / 1e9
        return None

    def is_spine(self, page: str) -> bool:
        """Whether a page names the spine, under its name or as what its leaves have in common."""
        names = page.partition(" ")[2].split(OR)
        return any(name == self.spine or name.startswith(SILENT_AT) for name in names)


def case(control: Control, kind: str, seed: int) -> Case:
    """One of `KINDS`."""
    return of_map(control, seed) if kind == "map" else of_hole(control, seed)


def of_map(control: Control, seed: int) -> Case:
    """The spine returns, and nothing else happens."""
    silent = Silent(World, control, seed)
    fabric = silent.fabric
    fabric.run(KNOWN_S)
    died_s = silent.dies()
    fabric.dead = set()
    stale: dict[Way, int] = {}
    quiet = 0
    for second in range(MAP_S):
        wrong = silent.wrong()
        stale |= dict.fromkeys(wrong, second + 1)
        quiet = 0 if wrong else quiet + 1
        if quiet > 130:
            break
        fabric.run(1)
    pages = _wrong_pages(silent, "")
    return Case(died_s, tuple(stale.values()), "", pages, (), fabric.shape)


def of_hole(control: Control, seed: int) -> Case:
    """The spine returns, and a link of it is a black hole some time later."""
    silent = Silent(Probed, control, seed)
    fabric, rng = silent.fabric, silent.rng
    fabric.run(KNOWN_S)
    died_s = silent.dies()
    fabric.dead = set()
    after_s = round(np.exp(rng.uniform(np.log(3), np.log(180))))
    fabric.run(after_s)
    leaf = rng.choice(sorted(set(fabric.leaf.values())))
    up, down = f"{leaf}->{silent.spine}", f"{silent.spine}->{leaf}"
    links = rng.choice([[up], [down], [up, down]])
    stale = len(silent.wrong())
    fabric.losses = dict.fromkeys(links, 1.0)
    found: Counter[str] = Counter()
    for _ in range(HOLE_S):
        fabric.run(1)
        found.update(OR.join(suspected(each)) for each in fabric.findings if _is_loss(each))
    verdicts = {_verdict(name, leaf, silent.spine) for name in found}
    pages = _wrong_pages(silent, leaf)
    named = next((each for each in ("right", "vague") if each in verdicts), "nothing")
    wrong = tuple(f"{name} {n} s" for name, n in found.items()
                  if _verdict(name, leaf, silent.spine) == "wrong")  # fmt: skip
    words = f"{fabric.shape}; {links} after {after_s} s, {stale} ways of {len(silent.ways)} stale"
    return Case(died_s, (), "wrong" if pages else named, pages, wrong, words)


def _is_loss(found: Finding) -> bool:
    return found.loss > 0 and found.kind != ComponentKind.REPLIES


def _verdict(subject: str, leaf: str, spine: str) -> str:
    """What a name says of the cable between a leaf and the spine."""
    part = cable_name(leaf, spine)
    names = subject.split(OR)
    if any(_holds(name, leaf, part, spine) for name in names):
        return "right"
    return "vague" if ANYWHERE in names else "wrong"


def _holds(name: str, leaf: str, part: str, spine: str) -> bool:
    if name in {part, spine, f"{leaf}->{spine}", f"{spine}->{leaf}"}:
        return True
    return GROUP in name and (NameContainment.holds(name, part) or leaf in name.split(GROUP))


def _wrong_pages(silent: Silent[T], leaf: str) -> tuple[str, ...]:
    """Pages that are neither of the death nor of the hole at this leaf."""
    found = []
    for page in silent.fabric.control.pages():
        rule, _, subject = page.partition(" ")
        dead = rule in LOSS | {"switch-down"} and (
            silent.is_spine(page)
            or any(
                _verdict(subject, each, silent.spine) != "wrong"
                for each in ({leaf} if leaf else set(silent.fabric.leaf.values()))
            )
        )
        if rule not in HOSTS and not dead:
            found.append(page)
    return tuple(found)


def _line(got: Case) -> str:
    stale = f"{max(got.stale_s)} s" if got.stale_s else ""
    return f"died {got.died_s}, {stale} {got.named} {got.pages} {got.found} ({got.words})"


def main() -> int:
    kind, cases = of_one_kind(__doc__, KINDS, case, _line)
    died = [each.died_s for each in cases if each.died_s is not None]
    print(f"{len(cases)} cases; the death had its page in {len(died)}, after {_quantiles(died)}")
    if kind == "map":
        whole = [max(each.stale_s, default=0) for each in cases]
        ways = [took for each in cases for took in each.stale_s]
        print(f"map right after {_quantiles(whole)}; each wrong way after {_quantiles(ways)}")
    print(f"named {dict(Counter(each.named for each in cases))}; wrong pages in "
          f"{sum(bool(each.pages) for each in cases)}, wrong findings in "
          f"{sum(bool(each.found) for each in cases)}")  # fmt: skip
    return 0


def _quantiles(seconds: list[float] | list[int]) -> str:
    if not seconds:
        return "-"
    p50, p95 = np.quantile(seconds, [0.5, 0.95])
    return f"{p50:.0f} s (median), {p95:.0f} s (p95), {max(seconds):.0f} s at most"


if __name__ == "__main__":
    sys.exit(main())
