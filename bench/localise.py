"""Which component is to blame, against published ways to say so, on simulated Clos fabrics.

512 NICs on 32 leaves and 16 spines (2,048 directional links), or three tiers; 1 to 5 faulty links
per seed, loss 0.1 to 5 % log-uniform on top of 1e-5 everywhere; 2 % of the hosts stall so that
replies are late. The same counts go to every method. A finding is right if it is the faulty
directional link; of round trips, where a NIC's two directions cannot be distinguished, its cable.

Methods: ours; 007's voting (Arzani et al. 2018); a vote normalised by exposure; greedy set cover
(deTector's PLL, Peng et al. 2017); a NetBouncer-like regularised fit (Tan et al. 2019). They are
written after the papers, and their thresholds set by hand: each might do better if tuned.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from bench.simulated.fabric import (
    Clos,
    Clos3,
    Counts,
    Fabric,
    draw_flows,
    prices,
    probe,
    round_trips,
)
from bench.tallies import tally_losses
from numpy.typing import NDArray

from syntony.fabric.locate import MIN_REPLIES_LOSS
from syntony.fabric.loss import LossSearch
from syntony.fabric.loss_search import STRICTNESS
from syntony.fabric.numbering import REPLIES_REBATE

PEERS, PORTS = 10, 8
NOISE = 1e-5
STALL = 1e-4
"""Of replies: most stalls are seen by the reflector itself and left out; a tenth is not."""
Floats = NDArray[np.float64]
Method = Callable[["Case"], list[int]]


class Case(NamedTuple):
    """One window."""

    fabric: Fabric
    counts: Counts
    bad: list[int]
    answering: NDArray[np.int64] | None
    """Of round trips: the NIC that answers, (paths,)."""

    @property
    def round_trip(self) -> bool:
        return self.answering is not None

    def matrix(self) -> tuple[sp.csc_array, Floats, Floats]:
        """Paths × directional links, sent, lost: what the other methods work on."""
        links = self.fabric.links
        used = self.counts.sent > 0
        crossings = self.counts.crossings[used]
        rows, columns = np.nonzero((crossings >= 0) & (crossings < links))
        ones = np.ones(len(rows))
        shape = (len(crossings), links)
        matrix = sp.csc_array((ones, (rows, crossings[rows, columns])), shape=shape)
        sent, lost = self.counts.sent[used], self.counts.lost[used]
        return matrix, sent.astype(np.float64), lost.astype(np.float64)


def ours(case: Case) -> list[int]:
    """As `syntony.fabric.candidates` numbers them: of round trips, what a NIC answers with is a
    candidate too, and told of only if it is bad (`locate.MIN_REPLIES_LOSS`)."""
    crossings, penalty, size = case.counts.crossings, prices(case.fabric), case.fabric.candidates
    if case.answering is not None:
        replies = (size + case.answering).astype(np.int32)
        crossings = np.concatenate((crossings, replies[:, None]), axis=1)
        penalty = np.append(penalty, np.full(case.fabric.nics, penalty[0] - REPLIES_REBATE))
        size += case.fabric.nics
    tally = tally_losses(crossings, case.counts.sent, case.counts.lost, size)
    return [
        found.candidate
        for found in LossSearch(tally, penalty).findings
        if found.candidate < case.fabric.candidates or found.loss >= MIN_REPLIES_LOSS
    ]


def voting(case: Case, share: float = 0.02) -> list[int]:
    """007: each lossy path votes 1/hops for its links; take the top one, drop its paths, repeat."""
    matrix, _, lost = case.matrix()
    bad = np.flatnonzero(lost > 0)
    if not len(bad):
        return []
    part = matrix[bad]
    weight = 1.0 / part.sum(axis=1)
    votes = part.T @ weight
    total = votes.sum()
    columns = part.tocsc()
    alive = np.ones(len(bad), dtype=np.bool_)
    found: list[int] = []
    while len(found) < 40:
        best = int(votes.argmax())
        if votes[best] < share * total:
            break
        found.append(best)
        rows = columns.indices[columns.indptr[best] : columns.indptr[best + 1]]
        rows = rows[alive[rows]]
        votes -= part[rows].T @ weight[rows]
        alive[rows] = False
        votes[best] = -1.0
    return found


def normalised(case: Case, sigmas: float = 8.0) -> list[int]:
    """A vote weighed against how many probes crossed the link, its paths dropped, repeated."""
    matrix, sent, lost = case.matrix()
    exposure, left = matrix.T @ sent, lost.copy()
    found: list[int] = []
    while len(found) < 40:
        wanted = exposure * max(left.sum() / sent.sum(), 1e-7)
        seen = matrix.T @ left
        excess = np.where(seen >= 3, (seen - wanted) / np.sqrt(wanted + 1e-9), -np.inf)
        excess[found] = -np.inf
        best = int(excess.argmax())
        if excess[best] < sigmas:
            break
        found.append(best)
        left[matrix.indices[matrix.indptr[best] : matrix.indptr[best + 1]]] = 0
    return found


def set_cover(case: Case, hit: float = 0.05) -> list[int]:
    """The fewest links that cover all lossy paths, of those with a share of lossy paths."""
    matrix, _, lost = case.matrix()
    bad = lost > 0
    paths = np.maximum(matrix.sum(axis=0), 1)
    able = (matrix.T @ bad.astype(np.float64)) / paths >= hit
    alive = bad.copy()
    found: list[int] = []
    while len(found) < 40:
        score = np.where(able, matrix.T @ alive.astype(np.float64), 0)
        score[found] = 0
        best = int(score.argmax())
        if score[best] < 3:
            break
        found.append(best)
        alive[matrix.indices[matrix.indptr[best] : matrix.indptr[best + 1]]] = False
    return found


def netbouncer(case: Case, weight: float = 1.0, floor: float = 5e-4) -> list[int]:
    """Coordinate descent on Σ(y - Πx)² + λΣx(1-x) over links that lossy paths cross."""
    matrix, sent, lost = case.matrix()
    came = 1 - lost / sent
    paths = np.maximum(matrix.sum(axis=0), 1)
    x = np.clip((matrix.T @ came) / paths, 1e-6, 1.0)
    suspects = np.flatnonzero(matrix.T @ (lost > 0).astype(np.float64))
    x[np.setdiff1d(np.arange(len(x)), suspects)] = 1.0
    product = np.exp(matrix @ np.log(x))
    for _ in range(12):
        before = x.copy()
        for link in suspects.tolist():
            rows = matrix.indices[matrix.indptr[link] : matrix.indptr[link + 1]]
            rest = product[rows] / x[link]
            a = float((rest * rest).sum()) - weight
            b = 2 * float((rest * came[rows]).sum()) - weight
            new = min(1.0, max(1e-6, b / (2 * a))) if a > 0 else 1.0
            product[rows], x[link] = rest * new, new
        if np.abs(x - before).max() < 1e-6:
            break
    return [int(link) for link in np.flatnonzero(x < 1 - floor)]


METHODS: dict[str, Method] = {
    "ours": ours,
    "007 voting": voting,
    "normalised vote": normalised,
    "set cover": set_cover,
    "NetBouncer-like": netbouncer,
}


class Scenario(NamedTuple):
    """What is simulated."""

    name: str
    fabric: Fabric
    pps: int = 50
    seconds: float = 60
    stale: float = 0.0
    round_trip: bool = False
    loss: float | None = None
    """Of every fault; None: 0.1 to 5 %, log-uniform."""
    faults: int | None = None


def draw(scenario: Scenario, seed: int) -> Case:
    fabric = scenario.fabric
    rng = np.random.default_rng(seed)
    faults = 1 + seed % 5 if scenario.faults is None else scenario.faults
    risk = np.full(fabric.links, NOISE)
    bad = rng.choice(fabric.links, faults, replace=False)
    drawn = np.exp(rng.uniform(np.log(1e-3), np.log(5e-2), faults))
    risk[bad] = np.minimum(risk[bad] + (drawn if scenario.loss is None else scenario.loss), 1.0)
    stalling = np.zeros(fabric.nics)
    stalling[rng.choice(fabric.nics, fabric.nics // 50, replace=False)] = STALL * (
        10 if scenario.round_trip else 1
    )
    flows = draw_flows(fabric, rng, peers=PEERS, ports=PORTS)
    counts = probe(
        fabric,
        flows,
        risk,
        rng,
        probes_per_flow=scenario.pps * scenario.seconds / (PEERS * PORTS),
        stale=scenario.stale,
        stalling=stalling,
    )
    if scenario.round_trip:
        return Case(fabric, round_trips(counts), bad.tolist(), flows.dst)
    return Case(fabric, counts, bad.tolist(), None)


def known_as(case: Case, found: int) -> int:
    """What can be told apart: of round trips, a NIC's link, its other direction and it are one."""
    kinds = case.fabric.kinds
    if case.round_trip:
        for name in ("nic-down", "nic"):
            kind = kinds[name]
            if kind.first <= found < kind.first + kind.size:
                return kinds["nic-up"].first + found - kind.first
    return found


def compare(scenario: Scenario, seeds: int, methods: dict[str, Method]) -> None:
    right, wrong, missed, exact = (defaultdict[str, int](int) for _ in range(4))
    took: dict[str, list[float]] = defaultdict(list)
    for seed in range(seeds):
        case = draw(scenario, seed)
        truth = {known_as(case, bad) for bad in case.bad}
        for name, method in methods.items():
            began = time.process_time()
            found = {known_as(case, each) for each in method(case)}
            took[name].append(time.process_time() - began)
            right[name] += len(found & truth)
            wrong[name] += len(found - truth)
            missed[name] += len(truth - found)
            exact[name] += found == truth
    print(f"{scenario.name}: {seeds} seeds")
    for name in methods:
        precision = right[name] / max(1, right[name] + wrong[name])
        recall = right[name] / max(1, right[name] + missed[name])
        middle = 1000 * float(np.median(took[name]))
        print(
            f"  {name:16} precision {precision:.3f}  recall {recall:.3f}  "
            f"all and only {exact[name] / seeds:.2f}  {middle:7.1f} ms CPU"
        )
    sys.stdout.flush()


def time_to_name(seeds: int) -> None:
    """How long a window must be until one fault is named, and nothing else is."""
    fabric = Clos()
    print(f"shortest window that names the fault and nothing else in 95 % of {seeds} seeds")
    windows = (1, 2, 3, 5, 10, 15, 30, 60, 120, 300)
    for label, share in (("black hole", 1.0), ("5 %", 0.05), ("1 %", 0.01), ("0.1 %", 0.001)):
        for seconds in windows:
            scenario = Scenario("", fabric, seconds=seconds, loss=share, faults=1)
            cases = [draw(scenario, 5000 + seed) for seed in range(seeds)]
            named = [ours(case) == case.bad for case in cases]
            if np.mean(named) >= 0.95:
                print(f"  {label:10} {seconds:4d} s ({np.mean(named):.2f})")
                break
        else:
            print(f"  {label:10} not within {windows[-1]} s ({np.mean(named):.2f})")
        sys.stdout.flush()


def false_alarms(windows: int) -> None:
    """Fault-free windows of every length, noise and stalling hosts as always."""
    fabric = Clos()
    found = 0
    for seed in range(windows):
        seconds = (1, 3, 10, 30, 60, 300)[seed % 6]
        case = draw(Scenario("", fabric, seconds=seconds, faults=0), 9000 + seed)
        tally = tally_losses(
            case.counts.crossings, case.counts.sent, case.counts.lost, fabric.candidates
        )
        # As online: six windows are looked at together.
        found += bool(LossSearch(tally, prices(fabric), threshold=STRICTNESS + np.log(6)).findings)
    print(f"false findings: {found} in {windows} fault-free windows of 1 s to 300 s")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--quiet-windows", type=int, default=1000)
    parser.add_argument("--only", default="", help="part of a scenario's name")
    arguments = parser.parse_args()
    clos = Clos()
    scenarios = (
        Scenario("one-way, 50 pps, 60 s", clos),
        Scenario("one-way, 50 pps, 30 s", clos, seconds=30),
        Scenario("one-way, 60 s, 5 % of paths stale", clos, stale=0.05),
        Scenario("one-way, 60 s, 20 % of paths stale", clos, stale=0.20),
        Scenario("three tiers, one-way, 60 s", Clos3()),
        Scenario("round trips, 60 s", clos, round_trip=True),
    )
    for scenario in scenarios:
        if arguments.only in scenario.name:
            compare(scenario, arguments.seeds, METHODS)
    if not arguments.only:
        time_to_name(max(20, arguments.seeds // 2))
        false_alarms(arguments.quiet_windows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
