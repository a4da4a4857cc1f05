"""What `bench.localise_lab` breaks: shapes of labs, faults, and what each may be called."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from syntony.controller.containment import FLEET, NameContainment
from syntony.fabric.names import GROUP, OR, cable_name, link_name, same_place
from syntony.lab.plan import LabPlan, Link, LinkKind

PEERS = 4
DELAYS_US = (50, 200, 1_000, 5_000)
SWITCH = frozenset({"switch-down", "switch-loss"})
LOSS = frozenset({"link-loss", "ambiguous-loss"})
NIC_LOSS = LOSS | {"nic-loss"}
DELAY, PORT = frozenset({"component-delay"}), frozenset({"port-down"})
SILENT = frozenset({"host-silent"})
Page = tuple[str, str]
"""Rule and subject."""
Options = dict[str, str]


class Case(NamedTuple):
    """What is broken, and which part each page may name."""

    row: str
    orders: list[tuple[str, str, Options]]
    parts: dict[str, frozenset[str]]
    """Part to the rules that may page for it; each part is one page. Empty: nothing may page."""
    stands_for: Mapping[str, str] = {}
    """NIC whose dead port cannot be told from a dead leaf → that leaf."""
    paused: bool = False
    """The controller is, from before the fault for `PAUSE_S`."""


def shape(rng: random.Random) -> list[str]:
    """Options of a lab that two cores can carry."""
    hosts, rails = rng.choice([(3, 2), (4, 1), (4, 2), (5, 2), (6, 1), (4, 3)])
    return [
        "--hosts", str(hosts), "--rails", str(rails),
        "--leaves", str(rng.randint(2, min(3, hosts - 1))),
        "--spines", str(rng.randint(2, 3)), "--family", rng.choice(["ipv4", "ipv6"]),
        "--seed", str(rng.randrange(10_000)), "--mesh-peers", str(PEERS),
    ]  # fmt: skip


def cases(plan: LabPlan, rng: random.Random) -> list[Case]:
    """One of each kind, on targets drawn at random."""
    cable, other = rng.sample(plan.of_kind(LinkKind.FABRIC), 2)
    nic = rng.choice(plan.of_kind(LinkKind.RAIL))
    spine = rng.choice(sorted(plan.spines))
    found = [*_deaths(plan, rng), *_of_cable(cable, rng), *_of_nic(nic, plan, rng)]
    found += _of_spine(spine, [link.name for link in plan.links_of(spine)])
    lone = _lone(plan)
    # A cable whose leaf has no other NIC is crossed by nothing once that one is dead.
    beside = [
        link.name for link in plan.of_kind(LinkKind.RAIL)
        if lone.get(link.name) not in {other.a.node, other.b.node}
    ]  # fmt: skip
    lost = rng.choice(beside)
    found += [
        Case("cable loses, NIC dies",
             [("loss", other.name, {"percent": "20"}), ("link-down", lost, {})],
             {_name(other): LOSS, lost: PORT}),
        Case("two cables lose",
             [("loss", each.name, {"percent": "10"}) for each in (cable, other)],
             {_name(cable): LOSS, _name(other): LOSS}),
    ]  # fmt: skip
    return found


def _deaths(plan: LabPlan, rng: random.Random) -> list[Case]:
    """Of switches, hosts and the management network; pauses."""
    lone = _lone(plan)
    leaf, spine = rng.choice(sorted(plan.leaves)), rng.choice(sorted(plan.spines))
    host = rng.choice(plan.hosts)
    down = [link.name for link in plan.links_of(host)]
    rail = rng.choice(sorted({name.partition("-")[0] for name in plan.leaves}))
    leaves = [name for name in sorted(plan.leaves) if name.partition("-")[0] == rail]
    management = [link.name for link in plan.of_kind(LinkKind.MGMT) if link.a.node in plan.hosts]
    return [
        Case("leaf dies", [("switch-down", leaf, {})], {leaf: SWITCH}, lone),
        Case("spine dies", [("switch-down", spine, {})], {spine: SWITCH | LOSS}),
        Case("host dies", [("link-down", name, {}) for name in down], {host: SILENT}),
        Case("rail dies", [("switch-down", name, {}) for name in leaves],
             dict.fromkeys(leaves, SWITCH), lone),
        Case("management network dies", [("link-down", name, {}) for name in management],
             {FLEET: frozenset({"fleet-silent"})}),
        Case("agent hangs", [("agent-stop", host, {})], {host: SILENT}),
        Case("host busy", [("cpu-hog", host, {"procs": "2"})], {}),
        Case("controller paused", [], {}, paused=True),
        Case("controller paused, leaf dies", [("switch-down", leaf, {})], {leaf: SWITCH}, lone,
             paused=True),
    ]  # fmt: skip


def _of_cable(cable: Link, rng: random.Random) -> list[Case]:
    leaf, top, both = cable.a.node, cable.b.node, {_name(cable): LOSS}
    up, down = {link_name(leaf, top): LOSS}, {link_name(top, leaf): LOSS}
    late = {"add": f"{rng.choice(DELAYS_US)}us"}
    return [
        Case("cable, black hole", [("blackhole", cable.name, {})], both),
        *(
            Case(f"cable, {percent} %", [("loss", cable.name, {"percent": percent})], both)
            for percent in ("10", "5", "1")
        ),
        Case("link up, black hole", [("blackhole", cable.name, {"direction": "from"})], up),
        Case("link down, 5 %", [("loss", cable.name, {"percent": "5", "direction": "to"})], down),
        Case("cable slow", [("delay", cable.name, late)], {_name(cable): DELAY}),
        # Where all paths across a spine took this cable, they cannot tell it from the spine.
        Case("cable pulled", [("link-down", cable.name, {})],
             {_name(cable): frozenset({"cable-lost", "switch-down"})}),
    ]  # fmt: skip


def _of_nic(nic: Link, plan: LabPlan, rng: random.Random) -> list[Case]:
    below, name = nic.b.node, nic.name
    flapping = rng.choice(plan.of_kind(LinkKind.RAIL)).name
    inward, outward = link_name(below, name), link_name(name, below)
    out = {"percent": "5", "direction": "from"}
    return [
        Case("NIC dies", [("link-down", name, {})], {name: PORT}),
        Case("leaf port dies", [("link-down", name, {"side": "leaf"})], {name: PORT}),
        Case("NIC, black hole", [("blackhole", name, {})], {name: NIC_LOSS}),
        Case("NIC, 5 %", [("loss", name, {"percent": "5"})], {name: NIC_LOSS}),
        Case("NIC in, black hole", [("blackhole", name, {"direction": "to"})], {inward: NIC_LOSS}),
        Case("NIC out, 5 %", [("loss", name, out)], {outward: NIC_LOSS}),
        Case("flap", [("flap", flapping, {"period": "600ms", "count": "4"})],
             {flapping: frozenset({"link-flaps", "link-flapping"})}),
    ]  # fmt: skip


def _of_spine(spine: str, links: Iterable[str]) -> list[Case]:
    return [
        # Between two leaves, all paths across a spine cross both of its cables.
        Case("spine, black hole", [("blackhole", name, {}) for name in links],
             {spine: SWITCH | LOSS}),
        Case("spine, 5 %", [("loss", name, {"percent": "5"}) for name in links],
             {spine: SWITCH | LOSS}),
    ]  # fmt: skip


def _lone(plan: LabPlan) -> dict[str, str]:
    """The NICs that are alone at their leaf → that leaf."""
    rails = plan.of_kind(LinkKind.RAIL)
    crowd = Counter(link.b.node for link in rails)
    return {link.name: link.b.node for link in rails if crowd[link.b.node] == 1}


def _name(cable: Link) -> str:
    return cable_name(cable.a.node, cable.b.node)


def fits(page: Page, case: Case) -> dict[str, str]:
    """The parts that a page is right about, and how: ``right``, ``twin`` (one of several suspects,
    which may be several parts), ``group``."""
    rule, subject = page
    if rule == "port-down" and case.stands_for.get(subject) in case.parts:
        return {case.stands_for[subject]: "twin"}
    found: dict[str, str] = {}
    names = subject.split(OR)
    groups = [name for name in names if GROUP in name]
    for part, rules in case.parts.items():
        if rule not in rules:
            continue
        if part in names:
            found[part] = "right" if subject == part else "twin"
        # Whoever is sent to a NIC or a cable for one of its directions is at the right place.
        elif len(names) == 1 and not groups and same_place((part, subject)):
            return {part: "twin"}
        elif any(NameContainment.holds(each, part) for each in groups):
            found.setdefault(part, "group")
    return found
