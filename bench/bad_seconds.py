"""What locating costs in bad seconds, and what it names: small fabrics whose links TCP saturates.

Each seed draws a fabric of two or three tiers with up to 16 hosts, its flows, how much of their
paths is learnt, and half a minute or more of losses: little everywhere, up to eight congested links
that lose in bursts and delay, hosts that pause, and in most cases one real fault among them. The
newest seconds are then located, the processor time of each is measured, and each name is graded
(`tests.fabric.outcomes`); congested links and pausing hosts may be named and need not be.

    python -m bench.bad_seconds --first 1 --seeds 70 --out new.jsonl
    python -m bench.bad_seconds --compare old.jsonl new.jsonl

The names do not depend on the machine. To compare with older code, run this file in its checkout.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.fabric import outcomes
from tests.fabric.varied import Drawn
from tests.fabric.varied import Way as DrawnWay

from syntony.fabric.book import PathBook, Way, reply
from syntony.fabric.fault_locator import FaultLocator
from syntony.fabric.history import SecondCounts

Floats = NDArray[np.float64]
LOCATED_S = 4
"""Of each drawn stretch, the newest seconds are located."""
PORT = 8620
PROBES = 10
"""Of a flow in a second."""


class Clos(NamedTuple):
    """A fabric without its cables: these follow from the routes."""

    homes: dict[str, str]
    """NIC → its leaf."""
    tops: dict[str, list[str]]
    """Switch → switches above it that it is cabled to."""

    def route(self, src: str, dst: str, rng: random.Random) -> list[str]:
        """Devices from one NIC to another, by a hash of the flow."""
        near, far = self.homes[src], self.homes[dst]
        if near == far:
            return [src, near, dst]
        up = rng.choice(self.tops[near])
        if up in self.tops[far]:
            return [src, near, up, far, dst]
        core = rng.choice(self.tops[up])
        down = next(name for name in self.tops[far] if core in self.tops[name])
        return [src, near, up, core, down, far, dst]


class Stretch(NamedTuple):
    """Drawn seconds of one fabric."""

    seed: int
    flows: tuple[Way, ...]
    hops: dict[Way, list[str]]
    """What is learnt of each way, one name per hop; nothing of a way that is missing."""
    true: tuple[tuple[str, ...], ...]
    """What each way really crosses: devices, links, cables; first all requests, then all
    replies."""
    fault: str
    """Empty for none."""
    congested: frozenset[str]
    """Links that lose in bursts, and hosts that pause."""
    seconds: tuple[SecondCounts, ...]
    heard: tuple[NDArray[np.int64], ...]
    """Requests that each pair's target received in each second."""


def clos(rng: random.Random) -> Clos:
    """Up to 16 hosts of one or two rails."""
    hosts, rails = rng.randint(4, 16), rng.choice((1, 1, 2))
    leaves = rng.randint(2, min(5, hosts))
    homes = {
        f"h{host}/rail{rail}": f"leaf{rail}-{host % leaves}"
        for host in range(hosts)
        for rail in range(rails)
    }
    names = sorted({*homes.values()})
    if rng.random() < 0.7:
        spines = [f"spine{number}" for number in range(rng.randint(2, 4))]
        return Clos(homes, dict.fromkeys(names, spines))
    planes, tops = rng.randint(2, 3), {}
    many = [rng.randint(1, 2) for _ in range(planes)]
    cores = [[f"core{plane}-{n}" for n in range(many[plane])] for plane in range(planes)]
    for leaf in names:
        pod = int(leaf.rpartition("-")[2]) % 2
        tops[leaf] = [f"agg{pod}-{plane}" for plane in range(planes)]
        tops |= {f"agg{pod}-{plane}": cores[plane] for plane in range(planes)}
    return Clos(homes, tops)


def draw(seed: int) -> Stretch:
    """A stretch of 12 to 75 s."""
    rng, noise = random.Random(f"bad {seed}"), np.random.default_rng([seed, 11])
    fabric = clos(rng)
    flows = _flows(fabric, rng)
    ways = [*flows, *map(reply, flows)]
    nodes = [fabric.route(way.src, way.dst, rng) for way in ways]
    true = tuple(_crossed(each) for each in nodes)
    switches = sorted(
        {*fabric.homes.values(), *(top for each in fabric.tops.values() for top in each)}
    )
    mute = {name for name in switches if rng.random() < rng.choice((0.0, 0.0, 0.3))}
    unlearnt = rng.choice((0.0, 0.0, 0.0, 0.1, 0.3))
    hops = {
        way: ["*" if node in mute else node for node in each[1:-1]]
        for way, each in zip(ways, nodes, strict=True)
        if rng.random() >= unlearnt
    }
    fault, congested = _fault(true, rng), _congested(true, rng)
    pausing = rng.sample(sorted(fabric.homes), rng.choice((0, 0, 1, 2)))
    seconds, heard = zip(*_seconds(flows, true, fault, congested, pausing, rng, noise), strict=True)
    excused = frozenset((*congested, *(nic.partition("/")[0] for nic in pausing)))
    return Stretch(seed, tuple(flows), hops, true, fault, excused, seconds, heard)


def _flows(fabric: Clos, rng: random.Random) -> list[Way]:
    peers, ports = rng.randint(2, 8), rng.randint(2, 8)
    found = []
    for src in fabric.homes:
        rail = src.partition("/")[2]
        same = [nic for nic in fabric.homes if nic != src and nic.partition("/")[2] == rail]
        for dst in rng.sample(same, min(peers, len(same))):
            found += [Way(src, dst, 61_000 + port, PORT) for port in range(ports)]
    return found


def _crossed(nodes: list[str]) -> tuple[str, ...]:
    links = [(f"{a}->{b}", outcomes.cable_between(a, b)) for a, b in pairwise(nodes)]
    return (*nodes, *(name for both in links for name in both))


def _fault(true: tuple[tuple[str, ...], ...], rng: random.Random) -> str:
    kind = rng.choice(("", "link", "link", "cable", "cable", "switch", "nic"))
    names = Counter(name for each in true for name in each)
    able = [name for name, count in sorted(names.items()) if _kind(name) == kind and count > 4]
    return rng.choice(able) if kind else ""


def _kind(name: str) -> str:
    if outcomes.mark(name):
        return "" if "/" in name else {"->": "link", "--": "cable"}[outcomes.mark(name)]
    return "nic" if "/" in name else "switch"


def _congested(true: tuple[tuple[str, ...], ...], rng: random.Random) -> list[str]:
    links = sorted({name for each in true for name in each if "->" in name})
    between = [name for name in links if "/" not in name]
    many = rng.choice((0, 1, 2, 3, 4, 6, 8))
    pool = between if between and rng.random() < 0.6 else links
    return rng.sample(pool, min(many, len(pool)))


def _seconds(  # noqa: PLR0917
    flows: list[Way],
    true: tuple[tuple[str, ...], ...],
    fault: str,
    congested: list[str],
    pausing: list[str],
    rng: random.Random,
    noise: np.random.Generator,
) -> Iterator[tuple[SecondCounts, NDArray[np.int64]]]:
    """Counts and delays of each second, and what each pair's target received."""
    many, ways = (
        rng.choice((rng.randint(12, 40), rng.randint(12, 40), rng.randint(60, 75))),
        len(true),
    )
    across = {name: np.array([name in each for each in true]) for name in (fault, *congested)}
    fault_loss = rng.choice((1.0, math.exp(rng.uniform(math.log(0.01), math.log(0.5)))))
    since = many - rng.choice((1, 2, 3, 5, 10, 30))
    everywhere = math.exp(rng.uniform(math.log(1e-5), math.log(1e-2))) * noise.gamma(1.0, 1.0, ways)
    worst = [math.exp(rng.uniform(math.log(3e-3), math.log(0.2))) for _ in congested]
    often, uneven = rng.uniform(0.1, 1.0), rng.choice((50.0, 5.0, 1.0))
    burst, resolved = rng.choice((1.0, 1.0, 3.0)), rng.random() < 0.3
    pairs: dict[tuple[str, str], int] = {}
    pair = np.array([pairs.setdefault(way[:2], len(pairs)) for way in flows])
    base_ns = noise.uniform(5_000, 30_000, ways)
    stops = np.array([{way.src, way.dst} & {*pausing} != set() for way in flows])
    for second in range(many):
        good, late_ns = np.exp(-everywhere), base_ns + noise.normal(0, 200, ways)
        for name, most in zip(congested, worst, strict=True):
            full = across[name] * (noise.random() < often) * noise.random()
            good *= np.exp(-full * most * noise.gamma(uneven, 1 / uneven, ways))
            late_ns += full * 500_000 * noise.gamma(20, 1 / 20, ways)
        if fault and second >= since:
            good *= 1 - across[fault] * fault_loss
        sent = np.full(len(flows), PROBES)
        if pausing and noise.random() < 0.2:
            sent[stops] = noise.integers(2, PROBES, int(stops.sum()))
        lost = _lost(sent, 1 - good[: len(flows)], burst, noise)
        lost_back = _lost(sent - lost, 1 - good[len(flows) :], burst, noise)
        nothing = np.zeros_like(sent)
        gone = (lost, lost_back, nothing) if resolved else (nothing, nothing, lost + lost_back)
        back = sent - lost if resolved else sent - lost - lost_back
        counts = np.stack((sent, gone[0], back, gone[1], gone[2], nothing)).astype(np.int64)
        silent = lost + lost_back == sent
        delay_ns = np.where(silent, np.nan, late_ns.reshape(2, -1))
        yield (
            SecondCounts(counts, delay_ns, delay_ns * 1.2, np.full(len(flows), 60.0)),
            np.bincount(pair, sent - lost).astype(np.int64),
        )


def _lost(
    sent: NDArray[np.int64], risk: Floats, burst: float, noise: np.random.Generator
) -> NDArray[np.int64]:
    """Packets lost, in bursts of this mean length."""
    dead = risk >= 1 - 1e-9
    times = noise.binomial(sent, np.where(dead, 0.0, risk / burst))
    more = (
        noise.negative_binomial(np.maximum(times, 1), 1 / burst) * (times > 0) if burst > 1 else 0
    )
    return np.where(dead, sent, np.minimum(sent, times + more))


class Located(NamedTuple):
    """One second's outcome."""

    seed: int
    second: int
    flows: int
    cpu_s: float
    names: tuple[str, ...]
    outcome: str
    """As `tests.fabric.outcomes.outcome`."""


def located(stretch: Stretch) -> Iterator[Located]:
    """The newest seconds, one by one."""
    book = PathBook()
    for way, hops in stretch.hops.items():
        book.learn(way, hops)
    watch = FaultLocator(book)
    case = graded(stretch, book)
    first = len(stretch.seconds) - LOCATED_S
    watch.begin(len(stretch.flows))
    for way in stretch.flows:
        watch.number(way)
    for number, (second, heard) in enumerate(zip(stretch.seconds, stretch.heard, strict=True)):
        watch.begin(len(stretch.flows))
        watch.take(second, heard)
        if number < first:
            continue
        began = time.process_time()
        found = watch.findings()
        spent = time.process_time() - began
        lossy = [each for each in found if each.loss]
        how = outcomes.outcome(case, lossy)
        names = tuple(sorted(f"{each.component} {each.confidence:.2f}" for each in lossy))
        yield Located(stretch.seed, number, len(stretch.flows), spent, names, how)


def graded(stretch: Stretch, book: PathBook) -> Drawn:
    """The case for `tests.fabric.outcomes`."""
    nothing = np.zeros(0, dtype=np.int64)
    ways = (*stretch.flows, *map(reply, stretch.flows))
    drawn = tuple(
        DrawnWay(frozenset(true), book.components(way), (way.src, way.dst))
        for way, true in zip(ways, stretch.true, strict=True)
    )
    truths = (stretch.fault,) if stretch.fault else ()
    return Drawn(stretch.seed, drawn, {}, truths, stretch.congested, nothing, nothing, np.zeros(0))


def summary(rows: list[Located]) -> str:
    """Processor time and outcomes of all seconds."""
    spent = np.array([row.cpu_s for row in rows])
    how = Counter(row.outcome for row in rows)
    worst = max(rows, key=lambda row: row.cpu_s)
    counts = ", ".join(f"{each} {how[each]}" for each in outcomes.OUTCOMES)
    return (
        f"{len(rows)} seconds: median {np.median(spent):.3f} s, p95 {np.quantile(spent, 0.95):.3f},"
        f" worst {worst.cpu_s:.3f} (seed {worst.seed}, second {worst.second}); {counts}"
    )


def _read(path: str) -> list[Located]:
    return [Located(**json.loads(line)) for line in Path(path).read_text().splitlines()]


def _compare(old: list[Located], new: list[Located]) -> None:
    before = {(row.seed, row.second): row for row in old}
    both = [(before[key], row) for row in new if (key := (row.seed, row.second)) in before]
    for one, other in both:
        if [*one.names] != [*other.names]:
            print(f"seed {one.seed} second {one.second}: {one.outcome} -> {other.outcome}")
            print(f"  old {' | '.join(one.names)}\n  new {' | '.join(other.names)}")
    for called, rows in zip(("old", "new"), zip(*both, strict=True), strict=True):
        print(f"{called}: {summary(list(rows))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=70)
    parser.add_argument("--out", default="", help="add results to this file")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="files of two runs")
    given = parser.parse_args()
    if given.compare:
        _compare(*map(_read, given.compare))
        return 0
    rows: list[Located] = []
    for seed in range(given.first, given.first + given.seeds):
        for row in located(draw(seed)):
            rows.append(row)
            print(f"seed {seed} second {row.second}: {row.cpu_s:.3f} s, {row.outcome}", flush=True)
            if given.out:
                with Path(given.out).open("a") as out:
                    print(json.dumps(row._asdict()), file=out)
    print(summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
