"""Clos fabrics written without Syntony's own simulators, for grading localisation. Seeded.

Shapes, placements, path knowledge, faults and noise are drawn per seed. Every path is a list of
names as a path learner would report it: in full, with a silent spine, or with nothing known between
the two leaves or the two NICs.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FAULTS = ("leaf-up", "leaf-down", "cable", "spine", "leaf", "nic")


class Shape(NamedTuple):
    leaves: int
    spines: int
    hosts: int
    """Per leaf and rail."""
    rails: int
    parallel: int
    """Cables between a leaf and a spine."""


class Path(NamedTuple):
    """One direction of one probe flow."""

    true: tuple[str, ...]
    """Every component it really crosses, links by direction, cables once, parallel ones ``#n``."""
    listed: tuple[str, ...]
    """What is learnt of it."""
    known: str
    """``full``, ``partly``, ``leaves`` (a group between leaves), ``group`` (between NICs)."""


class Case(NamedTuple):
    """One window of one fabric."""

    seed: int
    shape: Shape
    paths: tuple[Path, ...]
    fault: str
    """Kind; empty for none."""
    truth: str
    """Name of the faulty component as a finding would call it; empty for none."""
    also: str
    """Another faulty component; empty for none."""
    sent: NDArray[np.int64]
    lost: NDArray[np.int64]
    change_ns: NDArray[np.float64]

    def parallel(self) -> dict[str, int]:
        """Cables between switches by the name that parallel ones share → how many there are."""
        names = {name for path in self.paths for name in path.true if "--" in name}
        fabric = {name for name in names if "spine" in name and "#" not in name}
        return dict.fromkeys(fabric, self.shape.parallel) if self.shape.parallel > 1 else {}


def shape_of(rng: random.Random) -> Shape:
    return Shape(
        leaves=rng.randint(2, 6),
        spines=rng.randint(2, 4),
        hosts=rng.randint(1, 4),
        rails=rng.choice((1, 1, 2)),
        parallel=rng.choice((1, 1, 1, 2)),
    )


def draw(
    seed: int,
    *,
    shape: Shape | None = None,
    known: float | None = None,
    fault: str | None = None,
    delay: bool = False,
    jitter: float = 0.0,
    also: str | None = "",
    uneven: float = 0.0,
    burst: float = 1.0,
) -> Case:
    """A fabric, what is learnt of its paths, a fault and one window of probes.

    Args:
        seed: of everything.
        shape: of the fabric; None: drawn.
        known: share of paths learnt in full; None: drawn from 0.2 to 1.
        fault: kind of `FAULTS`, empty for none; None: drawn.
        delay: whether the fault delays packets rather than losing them.
        jitter: share of paths whose delays vary by microseconds.
        also: kind of another fault, empty for none; None: drawn. ``part``: a link or cable of the
            faulty one, a switch.
        uneven: share of a delay, or of a loss, that differs from path to path, as in a queue or of
            bursts.
        burst: how many packets a path loses at a time, on average.
    """
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    shape = shape or shape_of(rng)
    share = rng.choice((1.0, rng.uniform(0.2, 0.9))) if known is None else known
    paths = tuple(_paths(shape, share, rng))
    kind = rng.choice(FAULTS) if fault is None else fault
    truth = _faulty(kind, paths, rng)
    hit = _hit(truth, kind, paths, shape, rng)
    sent = np.array([rng.randint(80, 500) for _ in paths], dtype=np.int64)
    loss = _some_loss(rng)
    background = rng.choice((0.0, 1e-6, 2e-5))
    risk = np.where(hit & (not delay), loss, background)
    late_ns = hit * (_some_delay(rng) if delay else 0.0)
    change_ns = noise.normal(0, rng.uniform(100, 800), len(paths)) + late_ns
    second = ""
    if also != "":
        other = also or rng.choice(FAULTS)
        second = _another(other, truth, paths, rng)
        struck = _hit(second, other, paths, shape, rng)
        risk = 1 - (1 - risk) * (1 - struck * (0.0 if delay else _some_loss(rng)))
        change_ns += struck * (_some_delay(rng) if delay else 0.0)
    if uneven:
        risk = np.minimum(1.0, risk * np.exp(noise.normal(0, uneven, len(paths))))
        late_ns = change_ns * (hit | bool(second))
        change_ns += late_ns * np.maximum(noise.normal(0, uneven, len(paths)), -0.9)
    shaky = noise.random(len(paths)) < jitter
    change_ns[shaky] += noise.laplace(0, 3_000, int(shaky.sum()))
    lost = noise.binomial(sent, risk)
    if burst > 1:
        times = noise.binomial(sent, risk / burst)
        more = noise.negative_binomial(np.maximum(times, 1), 1 / burst) * (times > 0)
        lost = np.where(risk < 1, np.minimum(sent, times + more), sent)
    return Case(seed, shape, paths, kind, truth, second, sent, lost, change_ns)


def _some_loss(rng: random.Random) -> float:
    return float(rng.choice((1.0, np.exp(rng.uniform(np.log(0.005), np.log(0.2))))))


def _some_delay(rng: random.Random) -> float:
    return float(np.exp(rng.uniform(np.log(20_000), np.log(2_000_000))))


def _hit(
    truth: str, kind: str, paths: tuple[Path, ...], shape: Shape, rng: random.Random
) -> NDArray[np.bool_]:
    """Which paths cross the faulty one. Of parallel cables one is faulty."""
    hit = np.array([truth in path.true for path in paths], dtype=np.bool_)
    if kind in {"leaf-up", "leaf-down", "cable"} and shape.parallel > 1:
        bad = rng.randrange(shape.parallel)
        hit &= np.array([f"{_cable(truth)}#{bad}" in path.true for path in paths])
    return hit


def _another(kind: str, first: str, paths: tuple[Path, ...], rng: random.Random) -> str:
    """A second faulty component: any but the first, or a part of it."""
    if kind != "part":
        names = [name for name in _fitting(kind, paths) if name != first]
        return rng.choice(names or _fitting("nic", paths))
    names = [*_fitting("leaf-up", paths), *_fitting("leaf-down", paths), *_fitting("cable", paths)]
    return rng.choice([name for name in names if first in _cable(name).split("--")])


def _cable(name: str) -> str:
    """Of a link or cable; itself of anything else."""
    a, mark, b = name.partition("->" if "->" in name else "--")
    return "--".join(sorted((a, b))) if mark else name


def _paths(shape: Shape, share: float, rng: random.Random) -> list[Path]:
    nics = [
        (f"h{leaf}x{number}/rail{rail}", f"leaf{leaf}r{rail}", rail)
        for leaf in range(shape.leaves)
        for rail in range(shape.rails)
        for number in range(shape.hosts)
    ]
    ways = rng.randint(4, 8)
    less = rng.choice(("partly", "leaves", "group", "mixed"))
    found = []
    for src, near, rail in nics:
        for dst, far, other in nics:
            if src == dst or rail != other:
                continue
            for _ in range(ways):
                spine = f"spine{rng.randrange(shape.spines)}"
                hops = [near] if near == far else [near, spine, far]
                known = "full" if rng.random() < share else less
                if known == "mixed":
                    known = rng.choice(("partly", "leaves", "group"))
                found.append(_path([src, *hops, dst], known, shape.parallel, rng))
    return found


def _path(nodes: list[str], known: str, parallel: int, rng: random.Random) -> Path:
    true: list[str] = list(nodes)
    for a, b in pairwise(nodes):
        cable = "--".join(sorted((a, b)))
        many = parallel if "spine" in cable else 1
        true += [f"{a}->{b}", cable, f"{cable}#{rng.randrange(many)}"]
    if known == "group":
        return Path(tuple(true), (nodes[0], f"{nodes[0]}..{nodes[-1]}", nodes[-1]), known)
    listed = [nodes[0]]
    silent = known != "full" and len(nodes) == 5
    for a, b in pairwise(nodes):
        if silent and b.startswith("spine"):
            continue
        mark = ".." if silent and a.startswith("spine") else "->"
        listed += [f"{nodes[1] if mark == '..' else a}{mark}{b}", b]
    return Path(tuple(true), tuple(listed), "partly" if silent else "full")


def _faulty(kind: str, paths: tuple[Path, ...], rng: random.Random) -> str:
    """A component of this kind that some path crosses."""
    return rng.choice(_fitting(kind, paths)) if kind else ""


def _fitting(kind: str, paths: tuple[Path, ...]) -> list[str]:
    """Every component of this kind that some path crosses."""

    def fits(name: str) -> bool:
        link, cable, fabric = "->" in name, "--" in name, "spine" in name
        if "#" in name:
            return False
        if kind == "leaf-up":
            return link and fabric and name.startswith("leaf")
        if kind == "leaf-down":
            return link and fabric and name.startswith("spine")
        if kind == "cable":
            return cable and fabric
        if kind == "nic":
            return not link and not cable and "/" in name
        return not link and not cable and name.startswith(kind)

    return sorted({name for path in paths for name in path.true if fits(name)})


class Grade(NamedTuple):
    """How the findings of one case fare."""

    verdict: str
    """``right``; ``twin``: the fault is among what is told, and nothing else that another repair
    serves is reported as sure;
    ``vague``: a group that holds it; ``missed``; ``wrong``."""
    wrong: tuple[str, ...]
    """Told as sure, and not so."""
    doubled: int
    """Findings beyond the first."""


SURE = 0.7
"""Confidence beyond which one name among several is reported as the name."""


BEST_FIRST = ("right", "twin", "vague", "wrong")


def grade(case: Case, findings: list[tuple[str, float, tuple[str, ...]]]) -> Grade:
    """Findings: (component, confidence, alternatives). Of two faults the verdict is the worse."""
    if not case.truth:
        wrong = tuple(name for name, _, _ in findings)
        return Grade("wrong" if wrong else "right", wrong, 0)
    truths = [each for each in (case.truth, case.also) if each]
    told = {truth: [_verdict(case, truth, *each) for each in findings] for truth in truths}
    best = [min(each, key=BEST_FIRST.index) for each in zip(*told.values(), strict=True)]
    wrong = tuple(f[0] for f, verdict in zip(findings, best, strict=True) if verdict == "wrong")
    good = [min(each, key=BEST_FIRST.index, default="wrong") for each in told.values()]
    verdict = max(good, key=BEST_FIRST.index)
    verdict = "wrong" if wrong else "missed" if verdict == "wrong" else verdict
    return Grade(verdict, wrong, max(0, len(findings) - len(truths)))


def _verdict(case: Case, truth: str, name: str, confidence: float, others: tuple[str, ...]) -> str:
    if name == truth:
        return "right"
    if all(name in {_cable(each), each.partition("/")[0]} for each in (case.truth, case.also)):
        return "right"  # Both directions of a cable, both NICs of a host.
    if ".." in name and _holds(case, truth, name):
        return "vague"
    # Whoever looks at one direction of a cable looks at the cable.
    if truth in others and "--" in truth and _cable(name) == truth:
        return "twin"
    # Or what is not known one by one is a suspect, and it may be in there.
    groups = (each for each in others if ".." in each)
    among = _cable(truth) in {_cable(each) for each in others}
    if confidence <= SURE and (among or any(_holds(case, truth, each) for each in groups)):
        return "twin"
    return "wrong"


def _holds(case: Case, truth: str, group: str) -> bool:
    """Whether the fault is on most of the paths that list the group and lost anything."""
    a, _, b = group.partition("..")
    hit = [
        truth in path.true
        for path in case.paths
        for name in path.listed
        if ".." in name
        and a in {"*", name.partition("..")[0]}
        and b in {"*", name.partition("..")[2]}
    ]
    inside = truth not in {a, b} or "*" in {a, b}
    return inside and any(hit)
