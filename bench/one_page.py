"""One cause, one page: what is told when something dies, pauses or comes back, on random fabrics.

Each round brings up a lab of another shape (hosts, rails, leaves, spines and addresses are drawn,
the seed is printed) with its real agents and the rules that come with Syntony, and breaks one
thing after the other: leaf, spine, host, NIC, rail, the controller (paused), the management
network, a cable by loss or delay, and two things at once. A page is one that went out to
receivers, whatever became of it; they are counted while the fault lasts and after it is over.
The right name is that of the part, an honest "A or B" with the part among them, the group that it
is in where paths are not learnt whole, or, of a leaf with one NIC at it, that NIC's port: which of
the two is dead cannot be seen from hosts.

The exit code is 1 if a name was wrong, a page missing or one too many.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from bench.localise_lab import Bench
from tests.live import LiveLab, live

from syntony.controller.client import ask
from syntony.controller.places import FLEET, Names
from syntony.errors import RemoteError
from syntony.fabric.changes import QUIET_NS
from syntony.fabric.names import GROUP, OR, cable_name
from syntony.lab.plan import LabPlan, Link, LinkKind, make_plan
from syntony.model import S
from syntony.wire.incidents import IncidentsQuery

PEERS = 4
LASTS_S, AFTER_S, QUIET_S = 30.0, 20.0, 300.0
"""How long each fault lasts, is watched when it is over, and may take to be forgotten."""
SWITCH = frozenset({"switch-down", "switch-loss"})
LOSS = frozenset({"link-loss", "ambiguous-loss"})
DELAYS_US = (50, 200, 1_000, 5_000)
Page = tuple[str, str]
"""Rule and subject."""
Options = dict[str, str]


class Cause(NamedTuple):
    """What is broken, and which part each page may name."""

    row: str
    orders: list[tuple[str, str, Options]]
    parts: dict[str, frozenset[str]]
    """Part to the rules that may page for it; each part is one page. Empty: nothing may page."""
    stands_for: Mapping[str, str] = {}
    """NIC whose dead port cannot be reported from a dead leaf → that leaf."""
    paused: bool = False
    """The controller is, from before until the end of `LASTS_S`."""


class Result(NamedTuple):
    """One cause's outcome."""

    round: int
    row: str
    seconds: float | None
    """Until every part had its page; None: never."""
    parts: int
    right: int
    wrong: tuple[str, ...]
    after: tuple[str, ...]
    """Paged when it was over."""


def shape(rng: random.Random) -> list[str]:
    """Options of a lab that two cores can carry."""
    hosts, rails = rng.choice([(3, 2), (4, 1), (4, 2), (5, 2), (6, 1), (4, 3)])
    return [
        "--hosts", str(hosts), "--rails", str(rails),
        "--leaves", str(rng.randint(2, min(3, hosts - 1))),
        "--spines", str(rng.randint(2, 3)), "--family", rng.choice(["ipv4", "ipv6"]),
        "--seed", str(rng.randrange(10_000)), "--mesh-peers", str(PEERS),
    ]  # fmt: skip


def causes(plan: LabPlan, rng: random.Random) -> list[Cause]:
    """One of each kind, in random order."""
    cable, other = rng.sample(plan.of_kind(LinkKind.FABRIC), 2)
    nic = rng.choice(plan.of_kind(LinkKind.RAIL))
    lone = _lone(plan)
    # A cable whose leaf has no other NIC is crossed by nothing once that one is dead.
    beside = [
        link.name for link in plan.of_kind(LinkKind.RAIL)
        if lone.get(link.name) not in {other.a.node, other.b.node}
    ]  # fmt: skip
    lost = rng.choice(beside)
    leaf, spine = rng.choice(sorted(plan.leaves)), rng.choice(sorted(plan.spines))
    host = rng.choice(sorted({link.name.partition("/")[0] for link in plan.of_kind(LinkKind.RAIL)}))
    down = [(link.name, "link-down") for link in plan.links if link.name.startswith(f"{host}/")]
    rail = rng.choice(sorted({name.partition("-")[0] for name in plan.leaves}))
    leaves = [name for name in sorted(plan.leaves) if name.partition("-")[0] == rail]
    management = [link.name for link in plan.links if link.name.endswith("/mgmt0")]
    late_us = rng.choice(DELAYS_US)
    silent = frozenset({"host-silent"})
    found = [
        Cause("leaf dies", [("switch-down", leaf, {})], {leaf: SWITCH}, lone),
        Cause("spine dies", [("switch-down", spine, {})], {spine: SWITCH}),
        Cause("host dies", [(kind, name, {}) for name, kind in down], {host: silent}),
        Cause("NIC dies", [("link-down", nic.name, {})], {nic.name: frozenset({"port-down"})}),
        Cause("rail dies", [("switch-down", name, {}) for name in leaves],
              dict.fromkeys(leaves, SWITCH), lone),
        Cause("controller paused", [], {}, paused=True),
        Cause("management network dies", [("link-down", name, {}) for name in management],
              {FLEET: frozenset({"fleet-silent"})}),
        Cause("agent hangs", [("agent-stop", host, {})], {host: silent}),
        Cause("cable loses 10 %", [("loss", cable.name, {"percent": "10"})], {_name(cable): LOSS}),
        Cause("cable slow", [("delay", cable.name, {"add": f"{late_us}us"})],
              {_name(cable): frozenset({"component-delay"})}),
        Cause("cable loses, NIC dies",
              [("loss", other.name, {"percent": "20"}), ("link-down", lost, {})],
              {_name(other): LOSS, lost: frozenset({"port-down"})}),
        Cause("controller paused, leaf dies", [("switch-down", leaf, {})], {leaf: SWITCH}, lone,
              paused=True),
    ]  # fmt: skip
    rng.shuffle(found)
    return found


def _lone(plan: LabPlan) -> dict[str, str]:
    """The NICs that are alone at their leaf → that leaf."""
    rails = plan.of_kind(LinkKind.RAIL)
    crowd = Counter(link.b.node for link in rails)
    return {link.name: link.b.node for link in rails if crowd[link.b.node] == 1}


def _name(cable: Link) -> str:
    return cable_name(cable.a.node, cable.b.node)


def fits(page: Page, cause: Cause) -> str | None:
    """The part that a page is right about, if any: also one of several suspects, and what is known
    of only as part of a group."""
    rule, subject = page
    if rule == "port-down" and cause.stands_for.get(subject) in cause.parts:
        return cause.stands_for[subject]
    names = subject.split(OR)
    groups = [name for name in names if GROUP in name]
    for part, rules in cause.parts.items():
        if rule in rules and (part in names or any(Names.holds(each, part) for each in groups)):
            return part
    return None


class Round:
    """One lab, one cause after the other."""

    def __init__(self, lab: LiveLab, number: int) -> None:
        self._lab, self._number, self._bench = lab, number, Bench(lab)
        self._target = f"unix:{lab.controller_socket}"

    def pages(self) -> set[tuple[int, int, Page]]:
        """All that ever went out, also what turned out to be another's evidence: the incident's
        number, and which of its pages."""
        try:
            answer = ask(self._target, IncidentsQuery(resolved=True))
        except RemoteError:
            return set()
        return {
            (each["number"], page, (each["rule"], each["subject"]))
            for each in answer.incidents
            for page in range(each["pages"])
        }

    def run(self, cause: Cause) -> Result:
        self._lab.clear()
        if not Bench.until(self._bench.quiet, QUIET_S):
            print(f"not quiet before {cause.row}: {sorted(self._bench.open())}", file=sys.stderr)
        before = self.pages()
        if cause.paused:
            self._lab.inject("controller-pause", "", for_ns=int(LASTS_S) * S)
        for kind, target, options in cause.orders:
            self._lab.inject(kind, target, options)
        began = time.monotonic()
        if cause.paused:
            time.sleep(LASTS_S)
        found: set[str] = set()
        took: float | None = None
        while time.monotonic() - began < LASTS_S * (2 if cause.paused else 1):
            found |= {part for *_, page in self.pages() - before if (part := fits(page, cause))}
            if took is None and len(found) == len(cause.parts):
                took = time.monotonic() - began
            time.sleep(0.2)
        during = self.pages()
        self._lab.clear()
        time.sleep(AFTER_S)
        return Result(
            round=self._number, row=cause.row, seconds=took, parts=len(cause.parts),
            right=sum(1 for *_, page in during - before if fits(page, cause)),
            wrong=_words(page for *_, page in during - before if not fits(page, cause)),
            after=_words(page for *_, page in self.pages() - during),
        )  # fmt: skip


def _words(pages: Iterable[Page]) -> tuple[str, ...]:
    return tuple(sorted(" ".join(page) for page in pages))


def is_right(result: Result) -> bool:
    """Every part paged once, nothing else, nothing afterwards."""
    return result.right == result.parts and not result.wrong and not result.after


def table(results: list[Result]) -> None:
    """A line for each kind of cause."""
    for row in sorted({each.row for each in results}):
        mine = [each for each in results if each.row == row]
        took = [each.seconds for each in mine if each.seconds is not None and each.parts]
        spread = f"p50 {np.median(took):5.1f} s, largest {max(took):5.1f} s" if took else ""
        per = [each.right + len(each.wrong) + len(each.after) for each in mine]
        expected = [each.parts for each in mine]
        print(
            f"{row:30} {sum(map(is_right, mine)):2} of {len(mine):2} right  "
            f"pages {sum(per):3} for {sum(expected):3} causes  {spread}"
        )
        for each in mine:
            for what, words in (("also", each.wrong), ("afterwards", each.after)):
                if words:
                    print(f"    round {each.round}: {what} {', '.join(words)}")
    print(f"{len(results)} causes, {sum(map(is_right, results))} told right")


def one_round(arguments: argparse.Namespace, number: int, tell: Callable[[Result], None]) -> None:
    rng = random.Random(f"{arguments.seed}/{number}")
    options = shape(rng)
    print(f"round {number}, seed {arguments.seed}: {' '.join(options)}", file=sys.stderr)
    with live(f"bench-{os.getpid()}", *options, agents=True) as lab:
        plan = make_plan(lab.file().spec)
        bench = Bench(lab)
        nics = len(plan.of_kind(LinkKind.RAIL))
        if not bench.until(lambda: bench.learnt(nics * 8), 180):
            print("paths were never all learnt", file=sys.stderr)
        time.sleep(QUIET_NS / S + 5)
        running = Round(lab, number)
        for cause in causes(plan, rng):
            if arguments.only in cause.row and time.monotonic() < arguments.end_s:
                tell(running.run(cause))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="labs, of twelve causes each")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--only", default="", help="part of a row's name")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    arguments = parser.parse_args()
    arguments.end_s = time.monotonic() + arguments.minutes * 60
    results: list[Result] = []
    # Ended from outside, the lab comes down and the table is printed all the same.
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def tell(result: Result) -> None:
        results.append(result)
        print(json.dumps(result._asdict()), flush=True)

    try:
        for number in range(arguments.rounds):
            if time.monotonic() < arguments.end_s:
                one_round(arguments, number, tell)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        table(results)
    return 0 if results and all(map(is_right, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
