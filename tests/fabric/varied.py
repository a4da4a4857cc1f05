"""Drawn fabrics, path knowledge, hosts and faults, to be graded by `tests.fabric.outcomes`.

Shares no code with `tests.fabric.foreign` and `tests.fabric.rugged`. Fabrics have two or three
tiers, rails with their own leaves, dual-homed NICs, leaves that lack an uplink, parallel cables and
hashing with unequal weights. Each NIC probes a few others. Some ways are stale or not learnt, some
switches never answer, and round trips may not tell which direction broke. Hosts pause or report
losses that never were. All is drawn by the seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.fabric.outcomes import cable_between, cable_of, mark, place


class Way(NamedTuple):
    """What one path crosses."""

    true: frozenset[str]
    """Devices, links ``a->b``, cables ``a--b``, single ones of parallel cables ``a--b#1``."""
    listed: tuple[str, ...]
    """What is known of it."""
    ends: tuple[str, str]


class Drawn(NamedTuple):
    """One window of one fabric."""

    seed: int
    ways: tuple[Way, ...]
    parallel: Mapping[str, int]
    """Cables of which a topology says that there are several."""
    truths: tuple[str, ...]
    excused: frozenset[str]
    """Hosts that pause or lie: naming them is right, not naming them is no miss."""
    sent: NDArray[np.int64]
    lost: NDArray[np.int64]
    change_ns: NDArray[np.float64]


class _Fabric(NamedTuple):
    homes: Mapping[str, tuple[str, ...]]
    """NIC → its leaves: two where it is dual-homed."""
    up: Mapping[str, Mapping[str, float]]
    """Switch → switches of the next tier that it is cabled to → weight of the hash."""

    def route(self, src: str, dst: str, rng: random.Random) -> list[str]:
        near = rng.choice(self.homes[src])
        return [src, *self._over(near, rng.choice(self.homes[dst]), rng), dst]

    def _over(self, near: str, far: str, rng: random.Random) -> list[str]:
        if near == far:
            return [near]
        both = {top: weight for top, weight in self.up[near].items() if top in self.up[far]}
        if both:
            return [near, _picked(both, rng), far]
        tops = {
            up: weight
            for up, weight in self.up[near].items()
            if any({*self.up[up]} & {*self.up[down]} for down in self.up[far])
        }
        first = _picked(tops, rng)
        downs = {d: w for d, w in self.up[far].items() if {*self.up[first]} & {*self.up[d]}}
        last = _picked(downs, rng)
        return [near, *self._over(first, last, rng), far]


def draw(seed: int, *, faults: int | None = None, delay: bool = False) -> Drawn:
    """A fabric, what is known of its ways, its faults and one window of probes.

    Args:
        seed: of everything.
        faults: how many; None: one, or two in a quarter of the cases.
        delay: whether they delay packets rather than losing them.
    """
    rng, noise = random.Random(f"varied {seed}"), np.random.default_rng([seed, 3])
    fabric = _two_tiers(rng) if rng.random() < 0.6 else _three_tiers(rng)
    cables = [cable_between(low, top) for low, tops in fabric.up.items() for top in tops]
    several = dict.fromkeys(cables, 2) if rng.random() < 0.25 else {}
    ways = _ways(fabric, several, rng)
    few = rng.random() < 0.3
    sent = np.array([rng.randint(8, 40) if few else rng.randint(50, 800) for _ in ways])
    risk = np.full(len(ways), rng.choice((0.0, 1e-6, 1e-5, 1e-4)))
    change_ns = noise.normal(0, rng.uniform(50, 900), len(ways))
    truths: list[str] = []
    for _ in range(rng.choice((1, 1, 1, 2)) if faults is None else faults):
        truth, hit = _fault(ways, several, truths, rng)
        truths.append(truth)
        if delay:
            late = math.exp(rng.uniform(math.log(15_000), math.log(3_000_000)))
            change_ns += hit * late * noise.gamma(50, 1 / 50, len(ways))
        else:
            rate = rng.choice((1.0, math.exp(rng.uniform(math.log(0.004), math.log(0.6)))))
            spread = rng.choice((1e4, 1e4, 20.0, 4.0))
            each = np.minimum(rate * noise.gamma(spread, 1 / spread, len(ways)), 1.0)
            risk = 1 - (1 - risk) * (1 - hit * (1.0 if rate == 1 else each))
    excused = _strange_hosts(fabric, ways, sent, risk, rng) if rng.random() < 0.3 else frozenset()
    lost = noise.binomial(sent, np.minimum(risk, 1.0))
    known = several if rng.random() < 0.7 else {}
    return Drawn(seed, tuple(ways), known, tuple(truths), excused, sent, lost, change_ns)


def _two_tiers(rng: random.Random) -> _Fabric:
    rails = rng.choice((1, 1, 2, 4))
    groups = rng.randint(2, 5)
    planes = rng.random() < 0.4
    up: dict[str, dict[str, float]] = {}
    for rail in range(rails):
        spines = [f"spine{n}{rail if planes else ''}" for n in range(rng.randint(2, 4))]
        spines = spines if planes or not up else sorted({s for tops in up.values() for s in tops})
        up |= {f"leaf{g}-{rail}": _tops(spines, rng) for g in range(groups)}
    hosts = [(f"h{g}{n}", g) for g in range(groups) for n in range(rng.randint(1, 3))]
    dual = groups > 2 and rng.random() < 0.15
    homes = {
        f"{host}/r{rail}": (f"leaf{g}-{rail}", f"leaf{(g + 1) % groups}-{rail}")[: 1 + dual]
        for host, g in hosts
        for rail in range(rails)
    }
    return _Fabric(homes, up)


def _three_tiers(rng: random.Random) -> _Fabric:
    pods, aggs = rng.randint(2, 3), rng.randint(2, 3)
    every = [f"core{m}" for m in range(rng.randint(2, 4))]
    planes = rng.random() < 0.5
    up: dict[str, dict[str, float]] = {}
    homes: dict[str, tuple[str, ...]] = {}
    for pod in range(pods):
        names = [f"agg{pod}-{n}" for n in range(aggs)]
        for n, name in enumerate(names):
            plane = [f"core{n}-{m}" for m in range(2)]
            up[name] = _tops(plane if planes else every, rng, spared=True)
        for n in range(rng.randint(1, 3)):
            up[f"leaf{pod}-{n}"] = _tops(names, rng)
            homes |= {f"h{pod}{n}{m}/r0": (f"leaf{pod}-{n}",) for m in range(rng.randint(1, 3))}
    return _Fabric(homes, up)


def _tops(names: Sequence[str], rng: random.Random, *, spared: bool = False) -> dict[str, float]:
    """Uplinks with the weights of the hash. Now and then one is missing, unless spared."""
    if not spared and len(names) > 2 and rng.random() < 0.15:
        names = rng.sample(names, len(names) - 1)
    return {name: rng.choice((1.0, 1.0, 1.0, 0.5, 2.0, 4.0)) for name in names}


def _picked(weights: Mapping[str, float], rng: random.Random) -> str:
    return rng.choices([*weights], [*weights.values()])[0]


def _ways(fabric: _Fabric, several: Mapping[str, int], rng: random.Random) -> list[Way]:
    nics = [*fabric.homes]
    peers, ports = rng.randint(2, 8), rng.randint(2, 8)
    above = {*fabric.up, *(top for tops in fabric.up.values() for top in tops)}
    above -= {home for homes in fabric.homes.values() for home in homes}
    silent = {s for s in sorted(above) if rng.random() < rng.choice((0.0, 0.0, 0.3))}
    stale, mute, unknown = (
        rng.choice((0.0, 0.0, 0.0, *shares)) for shares in ((0.02, 0.08), (0.2, 0.6), (0.1, 0.3))
    )
    trips = rng.random() < 0.2
    found: list[Way] = []

    def way(src: str, dst: str) -> Way:
        nodes = fabric.route(src, dst, rng)
        known = fabric.route(src, dst, rng) if rng.random() < stale else nodes
        quiet = silent | (above if rng.random() < mute else set())
        quiet = {*nodes, *known} if rng.random() < unknown else quiet
        return Way(_true(nodes, several, rng), _listed(known, quiet), (src, dst))

    for src in nics:
        rail = src.partition("/")[2]
        same = [dst for dst in nics if dst != src and dst.partition("/")[2] == rail]
        for dst in rng.sample(same, min(peers, len(same))):
            for _ in range(ports):
                there, back = way(src, dst), way(dst, src)
                both = Way(there.true | back.true, there.listed + back.listed, (src, src))
                found += [both] if trips else [there, back]
    return found


def _true(nodes: list[str], several: Mapping[str, int], rng: random.Random) -> frozenset[str]:
    true = {*nodes}
    for a, b in pairwise(nodes):
        cable = cable_between(a, b)
        one = rng.randrange(several.get(cable, 1))
        true |= {f"{a}->{b}", cable, f"{cable}#{one}"}
    return frozenset(true)


def _listed(nodes: list[str], quiet: Collection[str]) -> tuple[str, ...]:
    """What is learnt where these switches do not answer."""
    listed, last, gap = [nodes[0]], nodes[0], False
    for node in nodes[1:]:
        if node in quiet and node != nodes[-1]:
            gap = True
        else:
            listed += [f"{last}{'..' if gap else '->'}{node}", node]
            last, gap = node, False
    return tuple(listed)


def _fault(
    ways: Sequence[Way], several: Mapping[str, int], before: Collection[str], rng: random.Random
) -> tuple[str, NDArray[np.bool_]]:
    """A part that at least three ways cross, and which ways do. Of parallel cables one fails."""
    kind = rng.choice(("link", "link", "cable", "cable", "switch", "nic"))
    count: dict[str, int] = {}
    for way in ways:
        for name in way.true:
            count[name] = count.get(name, 0) + 1
    able = sorted(n for n, many in count.items() if many >= 3 and _kind(n) == kind)
    able = [n for n in able if not any(place(n) == place(each) for each in before)]
    truth = rng.choice(able)
    one = f"{cable_of(truth)}#{rng.randrange(several.get(cable_of(truth), 1))}"
    wanted = {truth} | ({one} if "-" in mark(truth) else set())
    return truth, np.array([wanted <= way.true for way in ways])


def _strange_hosts(
    fabric: _Fabric,
    ways: Sequence[Way],
    sent: NDArray[np.int64],
    risk: NDArray[np.float64],
    rng: random.Random,
) -> frozenset[str]:
    """One host stands still for a while and misses packets, or reports as lost what arrived."""
    nic = rng.choice([*fabric.homes])
    host, pauses = nic.partition("/")[0], rng.random() < 0.5
    rate, left = rng.uniform(0.0, 0.05), rng.uniform(0.2, 0.9)
    for number, way in enumerate(ways):
        if pauses and any(end.startswith(f"{host}/") for end in way.ends):
            sent[number] = max(int(sent[number] * left), 4)
        if host in {end.partition("/")[0] for end in way.true if "/" in end} and (
            pauses or way.ends[-1].startswith(f"{host}/")
        ):
            risk[number] = 1 - (1 - risk[number]) * (1 - rate)
    return frozenset({host})


def _kind(name: str) -> str:
    """Of a part between switches or of one by itself; empty for all else."""
    if "#" in name or (mark(name) and "/" in name):
        return ""
    return {"->": "link", "--": "cable"}.get(mark(name), "nic" if "/" in name else "switch")
