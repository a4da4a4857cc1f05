"""Incidents on random simulated fabrics: after something returned, and of two faults at once.

Shape, placement, hashing, probe rate, faults and timing are drawn per seed, and the seed is
printed; path learners, map, localisation and rules are the real ones (`tests.controller.probed`).

Returns: a spine, a cable or a leaf dies and comes back, its routes converge up to 5 s late, leaf by
leaf; agents stand still for up to 20 s and the controller is restarted meanwhile. For a minute,
nothing but the part itself may be named as lossy; the part may be while it loses packets, and until
`OVER_S` later.

Pairs: `bench.fault_pairs`.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from bench.fault_pairs import HOSTS, KNOWN_S, LOSS, PAIRS, pair
from tests.controller.judged import Control
from tests.controller.probed import Probed

from syntony.fabric.extra_probes import suspected
from syntony.fabric.names import GROUP, OR, ComponentKind, cable_name, hosts_at, link_ends

T = TypeVar("T")
WATCHED_S = 60
OVER_S = 16


def touches(name: str, part: str) -> bool:
    """Whether a component is a part, is at it, or is one of its directions."""
    ends = set(link_ends(name) or name.split(GROUP))
    of_part = link_ends(part)
    return name == part or (ends == {*of_part} if of_part else part in ends)


# --- what returns ---


class Return(NamedTuple):
    """What was said in the minute after one return."""

    found: tuple[str, ...]
    """Healthy parts that localisation named, each with for how many seconds."""
    opened: tuple[str, ...]
    """Incidents of losses elsewhere that nothing explained."""
    paged: tuple[str, ...]
    """Pages about healthy parts, from death to the end."""
    lasting: tuple[str, ...]
    """What is named at the part itself although it is well again."""
    timing: str

    @property
    def is_right(self) -> bool:
        return not (self.found or self.opened or self.paged or self.lasting)


class Minute:
    """The minute after a return, second by second.

    Args:
        part: what returned.
        over_s: from when it is well again and may not be named either.
    """

    def __init__(self, fabric: Probed, part: str, over_s: int) -> None:
        self._fabric, self._part, self._over_s = fabric, part, over_s
        self.found: Counter[str] = Counter()
        self.opened: set[str] = set()
        self.lasting: set[str] = set()

    def note(self, second: int) -> None:
        """What is said now."""
        for each in self._fabric.findings:
            if each.loss <= 0 or each.kind == ComponentKind.REPLIES:
                continue
            if not touches(each.component, self._part):
                self.found[each.component] += not self._is_about(OR.join(suspected(each)))
            elif second >= self._over_s:
                self.lasting.add(each.component)
        for incident in self._fabric.control.live_incidents():
            counts = incident["rule"] in LOSS and not incident["cause"]
            if counts and not self._is_about(incident["subject"]):
                self.opened.add(f"{incident['rule']} {incident['subject']}")

    def wrong_pages(self) -> tuple[str, ...]:
        """Pages about healthy parts, since the beginning."""
        pages = [page.partition(" ") for page in self._fabric.control.pages()]
        return tuple(
            f"{rule} {subject}"
            for rule, _, subject in pages
            if rule not in HOSTS and not self._is_about(subject)
        )

    def _is_about(self, subject: str) -> bool:
        homes = self._fabric.control.homes
        about = {self._part, *self._stopped()}
        return any(
            touches(name, part) or homes.get(name) == part
            for name in subject.split(OR)
            for part in about
        )

    def _stopped(self) -> set[str]:
        """All hosts at a leaf, where each of them stood still."""
        leaves = self._fabric.leaf
        going = {leaf for host, leaf in leaves.items() if host not in self._fabric.paused_until}
        return {hosts_at(leaf) for leaf in leaves.values() if leaf not in going}


def returns(control: Control, kind: str, seed: int) -> Return:
    """One part dies and comes back."""
    fabric = Probed(control, seed)
    rng = fabric.rng
    fabric.lost = rng.choice([0.0, 0.0, 0.05])
    fabric.run(KNOWN_S)
    leaf, spine = rng.choice(sorted(set(fabric.leaf.values()))), rng.choice(fabric.spines)
    part = {"spine": spine, "cable": cable_name(leaf, spine), "leaf": leaf}[kind]
    late_s = rng.randint(0, 5)
    _die(fabric, kind, leaf, spine, late_s)
    fabric.run(rng.randint(10, 60))
    back_s = _come_back(fabric, kind, leaf, spine, late_s)
    pauses = {
        host: (rng.randint(0, 10), rng.randint(2, 20))
        for host in rng.sample(sorted(fabric.leaf), rng.choice([0, 0, 1, 2]))
    }
    away = rng.choice([(), (), (rng.randint(0, 20), rng.randint(2, 8))])
    timing = f"{fabric.shape}; routes {late_s} s late; paused {pauses}; restart {away}"
    minute = Minute(fabric, part, late_s + OVER_S)
    for second in range(WATCHED_S):
        for host, (start, length) in pauses.items():
            if second == start:
                fabric.paused_until[host] = fabric.second + length
        for link in [link for link, end in back_s.items() if end <= second]:
            del back_s[link]
            fabric.losses.pop(link)
        if away and second == away[0]:
            fabric.restart(away[1])
        fabric.run(1)
        minute.note(second)
    names = tuple(f"{name} for {count} s" for name, count in minute.found.items() if count)
    opened, lasting = tuple(sorted(minute.opened)), tuple(sorted(minute.lasting))
    return Return(names, opened, minute.wrong_pages(), lasting, timing)


def _die(fabric: Probed, kind: str, leaf: str, spine: str, late_s: int) -> None:
    if kind == "leaf":
        fabric.down = {leaf}
        fabric.run(late_s)
        return
    links = {f"{leaf}->{spine}": 1.0, f"{spine}->{leaf}": 1.0}
    if kind == "spine":
        fabric.black = {spine}
    else:
        fabric.losses |= links
    fabric.run(late_s)
    fabric.dead = {spine} if kind == "spine" else {f"{leaf}--{spine}"}
    fabric.black, fabric.losses = set(), {}


def _come_back(fabric: Probed, kind: str, leaf: str, spine: str, late_s: int) -> dict[str, int]:
    """Links that lose everything at first → for how many seconds."""
    fabric.dead, fabric.down = set(), set()
    fabric.salt += fabric.rng.choice([0, 0, 1])
    leaves = sorted(set(fabric.leaf.values()))
    links = {
        "spine": [f"{spine}->{each}" for each in leaves],
        "cable": [f"{leaf}->{spine}", f"{spine}->{leaf}"],
        "leaf": [f"{each}->{leaf}" for each in fabric.spines],
    }[kind]
    back_s = {link: fabric.rng.randint(0, late_s) for link in links}
    back_s = {link: end for link, end in back_s.items() if end}
    fabric.losses = dict.fromkeys(back_s, 1.0)
    return back_s


# --- tables ---


def _chosen(kinds: Iterable[str], arguments: argparse.Namespace) -> list[str]:
    return [kind for kind in kinds if arguments.only in kind]


def drawn_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, with options for `outcomes`; only results are printed from here on."""
    parser.add_argument("--cases", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    arguments = parser.parse_args()
    logging.disable()
    print(f"seed {arguments.seed}, load {os.getloadavg()[0]:.0f}", flush=True)
    return arguments


def outcomes(
    run: Callable[[Control, str, int], T], kind: str, arguments: argparse.Namespace
) -> Iterator[tuple[int, T]]:
    """Seed and outcome of one case after the other; an interrupt ends the kind early."""
    for number in range(arguments.cases):
        seed = random.Random(f"{arguments.seed}/{kind}/{number}").randrange(1_000_000)
        with tempfile.TemporaryDirectory() as directory:
            control = Control(Path(directory))
            try:
                got = run(control, kind, seed)
            except KeyboardInterrupt:
                print(f"  {kind}: interrupted after {number} cases")
                return
            finally:
                control.close()
        yield seed, got


def of_one_kind(
    about: str | None, kinds: Sequence[str], run: Callable[[Control, str, int], T],
    line: Callable[[T], str],
) -> tuple[str, list[T]]:  # fmt: skip
    """The command line of a bench of cases of one kind, and their outcomes, a line for each."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n", 1)[0])
    parser.add_argument("kind", choices=kinds)
    arguments = drawn_options(parser)
    cases: list[T] = []
    for seed, got in outcomes(run, arguments.kind, arguments):
        cases.append(got)
        print(f"  seed {seed}: {line(got)}", flush=True)
    return arguments.kind, cases


def tabulate_returns(arguments: argparse.Namespace) -> int:
    failed = 0
    for kind in _chosen(("spine", "cable", "leaf"), arguments):
        counts: Counter[str] = Counter()
        for seed, got in outcomes(returns, kind, arguments):
            counts["cases"] += 1
            counts["right"] += got.is_right
            for name in ("found", "opened", "paged", "lasting"):
                counts[name] += bool(getattr(got, name))
            if not got.is_right:
                print(f"  {kind} seed {seed}: {got}", flush=True)
        failed += counts["cases"] - counts["right"]
        print(
            f"{kind:6} returns: {counts['right']} of {counts['cases']} right; healthy parts named "
            f"in {counts['found']}, incidents of them in {counts['opened']}, pages in "
            f"{counts['paged']}; the part named too long in {counts['lasting']}",
            flush=True,
        )
    return failed


def tabulate_pairs(arguments: argparse.Namespace) -> int:
    failed = 0
    for kind in _chosen(PAIRS, arguments):
        counts: Counter[str] = Counter()
        took: list[float] = []
        for seed, got in outcomes(pair, kind, arguments):
            counts["alone"] += got.alone
            counts["among"] += got.among
            counts["noted"] += got.noted
            took += got.seconds
            for name in ("missed", "wrong", "twice"):
                counts[name] += len(getattr(got, name))
            if got.missed or got.wrong or got.twice:
                print(f"  {kind} seed {seed}: {got}", flush=True)
        faults = sum(counts[name] for name in ("alone", "among", "noted", "missed"))
        failed += counts["missed"] + counts["wrong"]
        p50, p95 = np.quantile(took, [0.5, 0.95]) if took else (np.nan, np.nan)
        print(
            f"{kind:30} faults {faults:3}: alone {counts['alone']:3}  among {counts['among']:3}  "
            f"noted {counts['noted']:3}  missed {counts['missed']:3}; wrong {counts['wrong']:3}  "
            f"twice {counts['twice']:3}; p50 {p50:.0f} s, p95 {p95:.0f} s",
            flush=True,
        )
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=["returns", "pairs"])
    parser.add_argument("--only", default="", help="part of a kind's name")
    arguments = drawn_options(parser)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = tabulate_returns if arguments.what == "returns" else tabulate_pairs
    return 1 if run(arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
