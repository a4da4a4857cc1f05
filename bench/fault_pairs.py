"""Two faults at once on a simulated fabric, and what pages say of them, for `bench.incidents`.

Most kinds are two faults that are there together; of two cables of one spine between two leaves no
path tells which, nor that they are two. Two kinds are one fault that looks like another:
a lossy switch, which two of its links may look like, and hosts of a leaf that stop at once. Of each
fault: *alone* (a page names it and nothing else), *among* (a page names it and others that it says
cannot be distinguished, or a group that holds it), *noted* (in the evidence of a page of another
fault), *missed*. *Wrong* are pages of healthy parts and healthy parts in such evidence; *twice* are
further pages of the same fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
from tests.controller.judged import Control
from tests.controller.probed import Jam, Probed

from syntony.alerts.incidents import ChangeKind
from syntony.controller.containment import NameContainment
from syntony.fabric.names import GROUP, OR, cable_name, hosts_at, link_ends

KNOWN_S = 50
LOSS = frozenset({"link-loss", "nic-loss", "switch-loss", "ambiguous-loss", "switch-or-hosts"})
HOSTS = frozenset({"host-silent", "silent-together", "fleet-silent"})


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
    """A link loses; `pair` lets one or two hosts stand still every 15 s."""
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


def _cables_of_a_spine(fabric: Probed) -> list[Fault]:
    """Both cables of a spine between two leaves lose, or are pulled."""
    rng, spine = fabric.rng, fabric.rng.choice(fabric.spines)
    leaves = sorted({*fabric.leaf.values()})
    if rng.random() < 0.5:
        fabric.dead = {cable_name(leaf, spine) for leaf in leaves}
        rules = LOSS | {"cable-lost", "switch-down"}
        return [Fault(cable_name(leaf, spine), rules) for leaf in leaves]
    return [_loses(fabric, leaf, spine) for leaf in leaves]


PAIRS: dict[str, Callable[[Probed], list[Fault]]] = {
    "lossy link, dead spine": _link_and_spine,
    "two lossy links at one switch": _sharing_a_switch,
    "lossy switch": _lossy_switch,
    "lossy switch, lossy link of it": _switch_and_link,
    "lossy link, paused hosts": _link_and_paused,
    "dead leaf, congested uplink": _leaf_and_congestion,
    "hosts of a leaf stop": _hosts_stop,
    "silent spine: lossy cable, dead NIC": _cable_and_nic,
    "two leaves: both cables of a spine": _cables_of_a_spine,
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
    fabric = Probed(control, seed, 2 if kind.startswith("two leaves") else 0)
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
    lines = (line.partition(" loses another ") for line in evidence)
    suspects = {subject for subject, found, _ in lines if found}
    beside = {name for subject in suspects for name in subject.split(OR)}
    noted = {each.part for each in others if {each.part, *each.also} & beside}
    known = {name for each in faults for name in (each.part, *each.also)}
    wrong += [
        f"evidence {subject}" for subject in sorted(suspects) if known.isdisjoint(subject.split(OR))
    ]
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
