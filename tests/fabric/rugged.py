"""Faults that are not one even rate, on fabrics of two and three tiers, for grading localisation.

Written apart from `tests.fabric.foreign`, whose cases it shares only the form and the grading of.
Losses come in bursts that all paths meet at once, hit some flows only (by port), or large packets
only; hashing prefers some switches; some switches never answer a path learner; hosts pause, send
less and miss a packet or two; cables are doubled. All is drawn by the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.fabric.foreign import Case, Path, Shape

TEMPERS = ("plain", "bursts", "ports", "sizes")
"""What a loss depends on."""
Rates = NDArray[np.float64]


class Rugged(Case):
    """A case whose switches are called by any name."""

    def parallel(self) -> dict[str, int]:
        """Cables between switches that are doubled."""
        names = {name for path in self.paths for name in path.true if "--" in name}
        between = {name for name in names if "/" not in name and "#" not in name}
        return dict.fromkeys(between, self.shape.parallel) if self.shape.parallel > 1 else {}


class _Fabric(NamedTuple):
    nics: tuple[tuple[str, str], ...]
    """NIC and its leaf."""
    way: Callable[[str, str], list[str]]
    """Switches between two leaves, both included, drawn anew by each call."""


def draw(seed: int, *, faults: int | None = None, delay: bool = False) -> Rugged:
    """A fabric, what is learnt of its paths, its faults and one window of probes.

    Args:
        seed: of everything.
        faults: how many; None: one, or now and then two.
        delay: whether they delay packets rather than losing them.
    """
    rng, noise = random.Random(f"rugged {seed}"), np.random.default_rng(seed)
    doubled = rng.choice((1, 1, 2))
    fabric = _two_tiers(rng) if rng.random() < 0.7 else _three_tiers(rng)
    paths = _paths(fabric, doubled, rng)
    many = rng.choice((1, 1, 2)) if faults is None else faults
    sent = np.array([rng.randint(60, 600) for _ in paths], dtype=np.int64)
    risk = np.full(len(paths), rng.choice((0.0, 1e-6, 1e-5)))
    change_ns = noise.normal(0, rng.uniform(100, 600), len(paths))
    truths: list[str] = []
    kinds: list[str] = []
    for _ in range(many):
        kind = rng.choice(("link", "link", "cable", "switch", "nic"))
        truth = rng.choice(sorted(_of_kind(kind, paths) - {*truths}))
        truths.append(truth)
        kinds.append(kind)
        hit = _across(truth, paths, doubled, rng)
        if delay:
            late = np.exp(rng.uniform(np.log(20_000), np.log(2_000_000)))
            change_ns += hit * late * np.maximum(noise.normal(1, 0.1, len(paths)), 0.1)
        else:
            risk = 1 - (1 - risk) * (1 - hit * _rates(len(paths), rng, noise))
    lost = noise.binomial(sent, np.minimum(risk, 1.0))
    if rng.random() < 0.3:
        _pause(rng.choice(fabric.nics)[0], paths, sent, lost, rng)
    also = truths[1] if many > 1 else ""
    shape = Shape(len({leaf for _, leaf in fabric.nics}), 0, 0, 1, doubled)
    first = (kinds[0], truths[0]) if truths else ("", "")
    return Rugged(seed, shape, tuple(paths), *first, also, sent, lost, change_ns)


def _rates(paths: int, rng: random.Random, noise: np.random.Generator) -> Rates:
    """What each path would lose of the fault: losses that are no one rate."""
    rate = rng.choice((1.0, float(np.exp(rng.uniform(np.log(0.01), np.log(0.4))))))
    temper = rng.choice(TEMPERS)
    if temper == "bursts":
        # How much of the bursts each path's probes met: few long ones, or many short ones.
        bursts = rng.choice((2, 5, 20, 60))
        return np.asarray(np.minimum(rate * noise.gamma(bursts, 1 / bursts, paths), 1.0))
    if temper == "ports":
        return np.asarray(rate * (noise.random(paths) < rng.uniform(0.3, 0.9)))
    if temper == "sizes":
        return np.asarray(rate * noise.beta(2, rng.choice((1, 2)), paths))
    return np.full(paths, rate)


def _pause(
    nic: str,
    paths: list[Path],
    sent: NDArray[np.int64],
    lost: NDArray[np.int64],
    rng: random.Random,
) -> None:
    """A host stands still: it sends less, and one or two packets to it are lost unnoticed."""
    left = rng.uniform(0.1, 0.8)
    for number, path in enumerate(paths):
        if nic in (path.true[0], path.listed[-1]):
            sent[number] = max(int(sent[number] * left), 20)
            lost[number] = min(int(lost[number] * left), int(sent[number]))
    towards = [number for number, path in enumerate(paths) if path.listed[-1] == nic]
    for _ in range(rng.randint(0, 2)):
        number = rng.choice(towards)
        lost[number] = min(lost[number] + 1, sent[number])


def _uneven(names: list[str], rng: random.Random) -> Callable[[], str]:
    """Draws one of these; some are preferred."""
    weights = [rng.gammavariate(rng.choice((0.7, 3.0, 30.0)), 1) + 0.05 for _ in names]
    return lambda: rng.choices(names, weights)[0]


def _two_tiers(rng: random.Random) -> _Fabric:
    two = rng.random() < 0.3
    leaves = [f"leaf{n}" for n in range(2 if two else rng.randint(3, 6))]
    spine = _uneven([f"spine{n}" for n in range(2 if two else rng.randint(2, 5))], rng)
    nics = [(f"n{leaf[4:]}-{n}/rail0", leaf) for leaf in leaves for n in range(rng.randint(1, 4))]
    return _Fabric(tuple(nics), lambda a, b: [a] if a == b else [a, spine(), b])


def _three_tiers(rng: random.Random) -> _Fabric:
    pods, aggs = rng.randint(2, 3), rng.randint(2, 3)
    leaves = {f"leaf{pod}{n}": pod for pod in range(pods) for n in range(rng.randint(1, 3))}
    agg = {pod: _uneven([f"agg{pod}{n}" for n in range(aggs)], rng) for pod in range(pods)}
    # Planes: the nth aggregation switch of each pod reaches the cores of plane n.
    core = {n: _uneven([f"core{n}{m}" for m in range(rng.randint(1, 2))], rng) for n in range(aggs)}
    nics = [(f"n{leaf[4:]}-{n}/rail0", leaf) for leaf in leaves for n in range(rng.randint(1, 3))]

    def way(a: str, b: str) -> list[str]:
        if a == b:
            return [a]
        up = agg[leaves[a]]()
        if leaves[a] == leaves[b]:
            return [a, up, b]
        plane = int(up[-1])
        return [a, up, core[plane](), f"agg{leaves[b]}{plane}", b]

    return _Fabric(tuple(nics), way)


def _paths(fabric: _Fabric, doubled: int, rng: random.Random) -> list[Path]:
    ways = rng.randint(4, 8)
    switches = sorted({n for _, a in fabric.nics for _, b in fabric.nics for _ in range(20)
                       for n in fabric.way(a, b)})  # fmt: skip
    above = [name for name in switches if not name.startswith("leaf")]
    silent = {name for name in above if rng.random() < rng.choice((0.0, 0.0, 0.3))}
    unlearnt, unasked = rng.choice((0.0, 0.0, 0.3, 0.7)), rng.choice((0.0, 0.0, 0.2))
    found = []
    for src, near in fabric.nics:
        for dst, far in fabric.nics:
            for _ in range(ways if src != dst else 0):
                nodes = [src, *fabric.way(near, far), dst]
                mute = silent | ({*above} if rng.random() < unlearnt else set())
                true = _true(nodes, doubled, rng)
                if rng.random() < unasked:
                    found.append(Path(true, (src, f"{src}..{dst}", dst), "group"))
                else:
                    found.append(Path(true, _listed(nodes, mute), "full"))
    return found


def _true(nodes: list[str], doubled: int, rng: random.Random) -> tuple[str, ...]:
    true = list(nodes)
    for a, b in pairwise(nodes):
        cable = "--".join(sorted((a, b)))
        one = rng.randrange(1 if "/" in cable else doubled)
        true += [f"{a}->{b}", cable, f"{cable}#{one}"]
    return tuple(true)


def _listed(nodes: list[str], mute: set[str]) -> tuple[str, ...]:
    """What is learnt where these switches do not answer."""
    listed, last, gap = [nodes[0]], nodes[0], False
    for node in nodes[1:]:
        if node in mute:
            gap = True
            continue
        listed += [f"{last}..{node}" if gap else f"{last}->{node}", node]
        last, gap = node, False
    return tuple(listed)


def _of_kind(kind: str, paths: list[Path]) -> set[str]:
    """Components of this kind that paths cross; links and cables between switches."""
    names = {name for path in paths for name in path.true if "#" not in name}
    link = {name for name in names if "->" in name and "/" not in name}
    cable = {name for name in names if "--" in name and "/" not in name}
    plain = {name for name in names if "->" not in name and "--" not in name}
    nic = {name for name in plain if "/" in name}
    return {"link": link, "cable": cable, "nic": nic, "switch": plain - nic}[kind]


def _across(truth: str, paths: list[Path], doubled: int, rng: random.Random) -> NDArray[np.bool_]:
    """Which paths cross the faulty one; of doubled cables, one is faulty."""
    ends = truth.split("->" if "->" in truth else "--")
    wanted = {truth}
    if len(ends) == 2 and doubled > 1:
        wanted.add("--".join(sorted(ends)) + f"#{rng.randrange(doubled)}")
    return np.array([wanted <= {*path.true} for path in paths], dtype=np.bool_)
