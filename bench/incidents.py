"""Incidents on random simulated fabrics: after something returned, and of two faults at once.

Shape, placement, hashing, probe rate, faults and timing are drawn per seed, and the seed is
printed; path learners, map, localisation and rules are the real ones (`tests.controller.probed`).

Returns: a spine, a cable or a leaf dies and comes back, its routes converge up to 5 s late, leaf by
leaf; agents stand still for up to 20 s and the controller is restarted meanwhile. For a minute,
nothing but the part itself may be named as lossy; the part may be while it loses packets, and until
`OVER_S` later.

Pairs: two faults that are there together, and one that looks like another: a lossy switch, which
two of its links may look like, and hosts of a leaf that stop at once. Of each: *alone* (a page
names it and nothing else), *among* (a page names it and others that it says cannot be
distinguished, or a group that holds it), *noted* (in the evidence of a page of another fault),
*missed*. *Wrong* are pages of healthy parts and healthy parts in such evidence; *twice* are further
pages of the same fault.
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
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from tests.controller.judged import Control
from tests.controller.probed import Jam, Probed

from syntony.alerts.incidents import ChangeKind
from syntony.controller.containment import NameContainment
from syntony.fabric.extra_probes import suspected
from syntony.fabric.names import GROUP, OR, ComponentKind, cable_name, hosts_at, link_ends

T = TypeVar("T")
KNOWN_S = 50
WATCHED_S = 60
OVER_S = 16
LOSS = frozenset({"link-loss", "nic-loss", "switch-loss", "ambiguous-loss", "switch-or-hosts"})
HOSTS = frozenset({"host-silent", "silent-together", "fleet-silent"})


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


# --- two faults at once ---


class Fault(NamedTuple):
    """One fault, and how a page may call it."""

    part: str
    rules: frozenset[str]
    also: frozenset[str] = frozenset()
    """Other names that are as good: the NICs of hosts below a dead leaf with one host, …"""


class Pair(NamedTuple):
    """What was said of two faults."""

    alone: int
    among: int
    noted: int
    missed: tuple[str, ...]
    wrong: tuple[str, ...]
    twice: tuple[str, ...]
    seconds: tuple[float, ...]
    """To the page of each fault that was named."""
    faults: str


def _link_and_spine(fabric: Probed) -> list[Fault]:
    """A link loses, a spine that is not at it dies."""
    rng = fabric.rng
    leaf, (spine, dead) = _leaf(fabric), rng.sample(fabric.spines, 2)
    fabric.black = {dead}
    found = _loses(fabric, leaf, spine)
    fabric.run(rng.randint(0, 3))
    fabric.black, fabric.dead = set(), {dead}
    return [found, Fault(dead, frozenset({"switch-down", "switch-loss"}))]


def _sharing_a_switch(fabric: Probed) -> list[Fault]:
    """Two links of one leaf, or of one spine, lose."""
    rng = fabric.rng
    leaves = sorted(set(fabric.leaf.values()))
    if rng.random() < 0.5:
        leaf = _leaf(fabric)
        return [_loses(fabric, leaf, spine) for spine in rng.sample(fabric.spines, 2)]
    spine = rng.choice(fabric.spines)
    return [_loses(fabric, leaf, spine) for leaf in rng.sample(leaves, 2)]


def _lossy_switch(fabric: Probed) -> list[Fault]:
    """One fault, of which two links of the switch could be the cause as well."""
    part = fabric.rng.choice([_leaf(fabric), fabric.rng.choice(fabric.spines)])
    fabric.losses = {part: _share(fabric)}
    return [Fault(part, LOSS)]


def _switch_and_link(fabric: Probed) -> list[Fault]:
    """A switch loses, and one of its links loses as well."""
    leaf, spine = _leaf(fabric), fabric.rng.choice(fabric.spines)
    part = fabric.rng.choice([leaf, spine])
    fabric.losses = {part: _share(fabric)}
    return [Fault(part, LOSS), _loses(fabric, leaf, spine)]


def _link_and_paused(fabric: Probed) -> list[Fault]:
    """A link loses; one or two hosts stand still now and then (see `_pause`)."""
    return [_loses(fabric, _leaf(fabric), fabric.rng.choice(fabric.spines))]


def _leaf_and_congestion(fabric: Probed) -> list[Fault]:
    """A leaf dies; an uplink of another overflows under a job."""
    rng = fabric.rng
    dead, leaf = rng.sample(sorted(set(fabric.leaf.values())), 2)
    spine = rng.choice(fabric.spines)
    link = f"{leaf}->{spine}"
    pairs = tuple(
        sorted({
            (flow.src, flow.dst) for flow in fabric.flows
            if link in fabric.crossed(flow) and dead not in fabric.crossed(flow)
        })
    )  # fmt: skip
    wait_ns = float(np.exp(rng.uniform(np.log(150e3), np.log(2e6))))
    fabric.jams = {link: Jam(wait_ns, rng.choice([0.0, 0.002, 0.02]), pairs)}
    fabric.down = {dead}
    below = frozenset(nic for nic, home in fabric.control.homes.items() if home == dead)
    return [
        Fault(dead, frozenset({"switch-down", "switch-loss"}) | {"port-down"},
              below if len(below) == 1 else frozenset()),
        Fault(link, frozenset({"congestion"}), frozenset({cable_name(leaf, spine)})),
    ]  # fmt: skip


def _cable_and_nic(fabric: Probed) -> list[Fault]:
    """A cable of the silent spine loses in both directions, and a NIC elsewhere loses its
    carrier."""
    rng, spine, homes = fabric.rng, min(fabric.silent), fabric.control.homes
    crowded = sorted(leaf for leaf, hosts in Counter(homes.values()).items() if hosts > 1)
    near = rng.choice(crowded)
    leaf = rng.choice(sorted({*homes.values()} - {near}))
    nic = rng.choice(sorted(nic for nic, at in homes.items() if at == near))
    fabric.losses = dict.fromkeys((f"{leaf}->{spine}", f"{spine}->{leaf}"), 0.2)
    fabric.down = {nic}
    # The spine answers no traces: between two leaves all that is known is one group.
    others = sorted({*homes.values()} - {leaf})
    groups = {f"{one}..{two}" for each in others for one, two in ((leaf, each), (each, leaf))}
    return [
        Fault(cable_name(leaf, spine), LOSS, frozenset(groups)),
        Fault(nic, LOSS | {"port-down"}, frozenset({f"{near}->{nic}", f"{nic}->{near}"})),
    ]


def _hosts_stop(fabric: Probed) -> list[Fault]:
    """All hosts of a leaf stand still, within two seconds of one another."""
    rng, homes = fabric.rng, Counter(fabric.leaf.values())
    leaf = rng.choice(sorted(leaf for leaf, hosts in homes.items() if hosts > 1))
    for place, host in enumerate(sorted(host for host, at in fabric.leaf.items() if at == leaf)):
        fabric.run(rng.randint(0, 1) if 0 < place < 3 else 0)
        fabric.paused_until[host] = fabric.second + 60
    return [Fault(hosts_at(leaf), LOSS)]


PAIRS: dict[str, Callable[[Probed], list[Fault]]] = {
    "lossy link, dead spine": _link_and_spine,
    "two lossy links at one switch": _sharing_a_switch,
    "lossy switch": _lossy_switch,
    "lossy switch, lossy link of it": _switch_and_link,
    "lossy link, paused hosts": _link_and_paused,
    "dead leaf, congested uplink": _leaf_and_congestion,
    "hosts of a leaf stop": _hosts_stop,
    "silent spine: lossy cable, dead NIC": _cable_and_nic,
}


def _leaf(fabric: Probed) -> str:
    return fabric.rng.choice(sorted(set(fabric.leaf.values())))


def _share(fabric: Probed) -> float:
    """Of packets that are lost, 3 to 50 %."""
    return float(np.exp(fabric.rng.uniform(np.log(0.03), np.log(0.5))))


def _loses(fabric: Probed, leaf: str, spine: str) -> Fault:
    """One direction of a cable, or both, lose 3 to 50 %."""
    share = _share(fabric)
    up, down = f"{leaf}->{spine}", f"{spine}->{leaf}"
    hit = fabric.rng.choice([[up], [down], [up, down]])
    fabric.losses |= dict.fromkeys(hit, share)
    cable = cable_name(leaf, spine)
    also = {cable} if len(hit) == 1 else {up, down}
    return Fault(hit[0] if len(hit) == 1 else cable, LOSS, frozenset(also))


def pair(control: Control, kind: str, seed: int, seconds: int = 90) -> Pair:
    """Two faults, watched for so long."""
    fabric = Probed(control, seed)
    if kind.startswith("silent spine"):
        fabric.silent = {fabric.spines[0]}
    fabric.run(KNOWN_S)
    began = len(control.changes)
    faults = PAIRS[kind](fabric)
    began_ns = control.now_ns
    words = f"{fabric.shape}, {fabric.rate} probes; {[each.part for each in faults]}"
    words += f" {fabric.losses or ''} {fabric.jams or ''}"
    for second in range(seconds):
        if "paused" in kind and second % 15 == 3:
            for host in fabric.rng.sample(sorted(fabric.leaf), fabric.rng.randint(1, 2)):
                fabric.paused_until[host] = fabric.second + fabric.rng.randint(2, 20)
        fabric.run(1)
    pages = [
        (change.incident.rule, change.incident.subject, change.at_ns)
        for change in control.changes[began:] if change.kind is ChangeKind.PAGE
    ]  # fmt: skip
    paged = {subject for _, subject, _ in pages}
    evidence = [
        line for each in control.live_incidents() if each["subject"] in paged
        for line in each["evidence"]
    ]  # fmt: skip
    homes = fabric.leaf.values()
    going = {fabric.leaf[host] for host in fabric.leaf if host not in fabric.paused_until}
    paused = {*fabric.paused_until, *(hosts_at(leaf) for leaf in homes if leaf not in going)}
    return graded(faults, pages, began_ns, words, paused=paused, evidence=evidence)


def graded(
    faults: list[Fault],
    pages: list[tuple[str, str, int]],
    began_ns: int,
    words: str,
    *,
    paused: Collection[str] = (),
    evidence: Collection[str] = (),
) -> Pair:
    """Which fault each page is about, the first page of each deciding, and which of the others the
    evidence names as a part that loses more."""
    reported: dict[str, tuple[str, float]] = {}
    wrong, twice = [], []
    for rule, subject, at_ns in pages:
        if rule in HOSTS:
            if rule == "host-silent" and subject not in paused:
                wrong.append(f"{rule} {subject}")
            continue
        names = subject.split(OR)
        fits = [each for each in faults if rule in each.rules and _is_about(each, names)]
        fresh = [each for each in fits if each.part not in reported]
        if not fits and {*names} & {*paused}:
            continue
        if not fits:
            wrong.append(f"{rule} {subject}")
        elif not fresh:
            twice.append(f"{rule} {subject}")
        for each in fresh[:1] if len(names) == 1 else fresh:
            how = "alone" if names == [each.part] or {*names} <= each.also else "among"
            reported[each.part] = how, (at_ns - began_ns) / 1e9
    kinds = Counter(how for how, _ in reported.values())
    others = [each for each in faults if each.part not in reported]
    beside = {line.partition(" ")[0] for line in evidence if " loses another " in line}
    noted = {each.part for each in others if {each.part, *each.also} & beside}
    known = {name for each in faults for name in (each.part, *each.also)}
    wrong += [f"evidence {name}" for name in sorted(beside - known)]
    return Pair(
        kinds["alone"], kinds["among"], len(noted),
        tuple(each.part for each in others if each.part not in noted),
        tuple(wrong), tuple(twice), tuple(seconds for _, seconds in reported.values()), words,
    )  # fmt: skip


def _is_about(fault: Fault, names: list[str]) -> bool:
    if {fault.part, *fault.also} & {*names}:
        return True
    groups = [name for name in names if GROUP in name]
    # Between two leaves and across a spine that does not answer, a cable is a part of the group.
    leaf = min(link_ends(fault.part) or ("",))
    return any(
        NameContainment.holds(name, fault.part) or leaf in name.split(GROUP) for name in groups
    )


# --- tables ---


def _chosen(kinds: Iterable[str], arguments: argparse.Namespace) -> list[str]:
    return [kind for kind in kinds if arguments.only in kind]


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
    parser.add_argument("--cases", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--only", default="", help="part of a kind's name")
    arguments = parser.parse_args()
    logging.disable()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"seed {arguments.seed}, load {os.getloadavg()[0]:.0f}", flush=True)
    run = tabulate_returns if arguments.what == "returns" else tabulate_pairs
    return 1 if run(arguments) else 0


if __name__ == "__main__":
    sys.exit(main())
