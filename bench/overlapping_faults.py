"""Two to five faults whose times overlap at random, on simulated fabrics, and the pages of them.

Of each fault: *missing* (it lasted for `CERTAIN_S` or more and no incident was about it) and
*twice* (it paged again without having been over). *Wrong* are pages of healthy parts, *open* the
incidents that are still open `OVER_S` after all faults.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.controller.judged import Control
from tests.controller.probed import Jam, Probed

from syntony.alerts.incidents import ChangeKind
from syntony.fabric.names import GROUP, OR, cable_name, hosts_at, link_ends
from syntony.model import S
from syntony.model.names import host_of

KNOWN_S, STARTS_S, OVER_S = 40, 30, 80
CERTAIN_S = 20
"""Every rule of these faults has found and paged for one by then."""
LATE_S = 15
"""A page may be about what was measured this long ago."""
LINKS = ("loss", "delay")
KINDS = (*LINKS, "flap", "port", "leaf", "spine", "host", "controller")


class Event(NamedTuple):
    """One fault; seconds since the beginning."""

    kind: str
    part: str
    first_s: int
    last_s: int


class Verdict(NamedTuple):
    """What was wrong with the pages of one sequence of faults."""

    wrong: tuple[str, ...]
    twice: tuple[str, ...]
    missing: tuple[str, ...]
    open: tuple[str, ...]
    events: tuple[Event, ...]


def drawn_events(fabric: Probed, rng: random.Random) -> tuple[Event, ...]:
    """Faults at different parts."""
    leaves, nics = sorted({*fabric.leaf.values()}), sorted(fabric.control.homes)
    found: dict[str, Event] = {}
    for _ in range(rng.randint(2, 5)):
        kind = rng.choice(KINDS)
        link = f"{rng.choice(leaves)}->{rng.choice(fabric.spines)}"
        part = {
            "loss": link, "delay": link, "flap": rng.choice(nics), "port": rng.choice(nics),
            "leaf": rng.choice(leaves), "spine": rng.choice(fabric.spines),
            "host": rng.choice(sorted(fabric.leaf)),
        }.get(kind, "")  # fmt: skip
        first_s = rng.randint(0, STARTS_S)
        length_s = rng.randint(2, 8) if kind == "controller" else rng.randint(5, 40)
        found[part] = Event(kind, part, first_s, first_s + length_s)
    return tuple(found.values())


def apply(fabric: Probed, events: tuple[Event, ...], second: int, shares: dict[str, float]) -> None:
    """Make the fabric what the faults of one second make of it."""
    now = [each for each in events if each.first_s <= second < each.last_s]
    parts = {kind: {each.part for each in now if each.kind == kind} for kind in KINDS}
    fabric.losses = {part: shares[part] for part in parts["loss"]}
    fabric.jams = {part: Jam(1e6 * shares[part], 0.0, ()) for part in parts["delay"]}
    fabric.down = parts["leaf"] | parts["port"]
    fabric.down |= {each.part for each in now if each.kind == "flap" and second % 4 < 2}
    late = {each.part for each in now if each.kind == "spine" and second < each.first_s + 2}
    fabric.black, fabric.dead = late, parts["spine"] - late
    for each in events:
        if each.kind == "host" and each.first_s == second:
            fabric.paused_until[each.part] = fabric.second + each.last_s - second
        if each.kind == "controller" and each.first_s == second:
            fabric.restart(each.last_s - second)


def names_of(event: Event, fabric: Probed) -> set[str]:
    """What a page of a fault may name: its part, or what stops with all of it."""
    ends = link_ends(event.part)
    if ends:
        return {event.part, cable_name(*ends), f"{ends[1]}->{ends[0]}"}
    homes, nics = fabric.control.homes, {event.part}
    if event.kind in {"host", "leaf"}:
        nics = {nic for nic, at in homes.items() if event.part in {host_of(nic), at}}
    found = {event.part, *nics, *map(host_of, nics)}
    for nic in nics & homes.keys():
        at = homes[nic]
        found |= {cable_name(nic, at), f"{nic}->{at}", f"{at}->{nic}"}
        if sum(home == at for home in homes.values()) == 1:
            found |= {at, hosts_at(at)}
    return found | ({hosts_at(event.part)} if event.kind == "leaf" else set())


def sequence(control: Control, seed: int) -> Verdict:
    """One sequence of faults, and what was paged until long after."""
    fabric, rng = Probed(control, seed), random.Random(f"overlapping {seed}")
    fabric.run(KNOWN_S)
    events = drawn_events(fabric, rng)
    shares = {each.part: rng.uniform(0.1, 0.6) for each in events}
    began_ns = control.now_ns
    for second in range(max(each.last_s for each in events) + OVER_S):
        apply(fabric, events, second, shares)
        fabric.run(1)
    seen = {name for each in control.changes for name in _said(each.incident.subject)}
    pages = [
        (change.incident.subject, (change.at_ns - began_ns) / S, change.incident.rule)
        for change in control.changes if change.kind is ChangeKind.PAGE
    ]  # fmt: skip
    return graded(fabric, events, pages, seen, tuple(sorted(control.live())))


def _said(subject: str) -> list[str]:
    return [*subject.split(OR)]


def graded(
    fabric: Probed,
    events: tuple[Event, ...],
    pages: list[tuple[str, float, str]],
    seen: set[str],
    left: tuple[str, ...],
) -> Verdict:
    """Compare pages (subject, second, rule) and everything that was named with the faults."""
    faults = [each for each in events if each.part]
    hosts = {host for host in fabric.leaf if any(host in names_of(e, fabric) for e in faults)}
    wrong, about = [], dict[Event, list[str]]()
    for subject, at_s, rule in pages:
        fits = [
            each for each in faults
            if each.first_s <= at_s <= each.last_s + LATE_S
            and (names_of(each, fabric) & {*_said(subject)} or GROUP in subject)
        ]  # fmt: skip
        several = rule in {"silent-together", "fleet-silent"} and hosts
        if not fits and not several:
            wrong.append(f"{rule} {subject} at {at_s:.0f} s")
        for each in fits[:1] if not several else ():
            about.setdefault(each, []).append(f"{rule} {subject} at {at_s:.0f} s")
    twice = [", ".join(of) for of in about.values() for _ in pairwise(of)]
    missing = [
        f"{each.kind} {each.part}" for each in faults
        if each.last_s - each.first_s >= CERTAIN_S and not names_of(each, fabric) & seen
        and not any(_hides(other, each, fabric) for other in faults if other is not each)
    ]  # fmt: skip
    return Verdict(tuple(wrong), tuple(twice), tuple(missing), left, events)


def _hides(other: Event, event: Event, fabric: Probed) -> bool:
    """Whether nothing crosses a part, or can be told of it, for most of the time of its fault."""
    both_s = min(other.last_s, event.last_s) - max(other.first_s, event.first_s)
    ends = {*(link_ends(event.part) or ()), event.part}
    near = ends & names_of(other, fabric) or fabric.control.homes.get(event.part) == other.part
    return bool(near) and event.last_s - event.first_s - both_s < CERTAIN_S


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--cases", type=int, default=20)
    arguments = parser.parse_args()
    logging.disable()
    counts: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.first + arguments.cases):
        with tempfile.TemporaryDirectory() as directory:
            control = Control(Path(directory))
            got = sequence(control, seed)
            control.close()
        bad = {name: len(getattr(got, name)) for name in ("wrong", "twice", "missing", "open")}
        counts += Counter(bad) + Counter(cases=1, faults=len(got.events))
        print(seed, got if any(bad.values()) else "right", flush=True)
    print(dict(counts))
    return 1 if counts["wrong"] + counts["missing"] + counts["open"] else 0


if __name__ == "__main__":
    sys.exit(main())
