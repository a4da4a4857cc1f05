"""Where a fault of the fifth generator is, and how bad."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.diagnosis.case import Unfit
from bench.diagnosis.programs import Fault

if TYPE_CHECKING:
    from bench.diagnosis.programs import Pair, Program

LATELY = 0.6
"""Only parts that a program still uses after this share of its time can break visibly."""


Place = Callable[["Program", "list[Pair]", random.Random], Fault]
"""Where a kind of fault is, in a job, of the pairs that send."""


def placed(healthy: Program, name: str, rng: random.Random) -> Fault:
    """A fault of a part that this run uses to its end. Raises `Unfit`: there is none."""
    pairs = _used(healthy)
    if not pairs:
        raise Unfit
    return PLACES[name](healthy, pairs, rng)


def _used(job: Program) -> list[Pair]:
    """Pairs that send in most windows after the onset, at the end as well."""
    windows: defaultdict[Pair, set[int]] = defaultdict(set)
    for name, window in job.sent:
        windows[job.flows[name][0]].add(window)
    first, last = int(job.onset // job.window) + 1, int(job.end // job.window)
    often = LATELY * (last - first)
    return sorted(
        pair
        for pair, some in windows.items()
        if sum(each in some for each in range(first, last)) >= often
    )


def _across(job: Program, pairs: list[Pair]) -> dict[str, list[Pair]]:
    across: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        for link in job.flows[job.flow(pair)][1]:
            across[link].append(pair)
    return across


def _rank(name: str, low: float, high: float) -> Place:
    def place(_job: Program, pairs: list[Pair], rng: random.Random) -> Fault:
        rank = rng.choice(sorted({each for pair in pairs for each in pair}))
        part = "GPU-" if name == "gpu-throttle" else "rank "
        return Fault(name, f"{part}{rank}", rank, size=rng.uniform(low, high))

    return place


def _host(name: str) -> Place:
    def place(job: Program, pairs: list[Pair], rng: random.Random) -> Fault:
        rank = rng.choice(sorted({each for pair in pairs for each in pair}))
        return Fault(name, job.nic(rank).partition("/")[0], rank)

    return place


def _nic(name: str) -> Place:
    def place(job: Program, pairs: list[Pair], rng: random.Random) -> Fault:
        rank = rng.choice(sorted({each for pair in pairs for each in pair}))
        size = rng.choice((-1, 1)) * rng.uniform(20, 200) * job.base
        return Fault(name, job.nic(rank), rank, size=size)

    return place


def _data(job: Program, _pairs: list[Pair], rng: random.Random) -> Fault:
    if job.kind == "inference":
        raise Unfit
    return Fault("data-stall", "llm", size=rng.uniform(0.6, 1.5))


def _hang(_job: Program, pairs: list[Pair], rng: random.Random) -> Fault:
    """A size: it does not come to the operation, and its process has ended or is stopped; none: it
    is stopped within one."""
    rank = rng.choice(sorted({each for pair in pairs for each in pair}))
    return Fault("hang", f"rank {rank}", rank, size=rng.choice((0.0, 1.0, 2.0)))


def _slow_flow(job: Program, pairs: list[Pair], rng: random.Random) -> Fault:
    pair = rng.choice([each for each in pairs if job.host(each[0]) != job.host(each[1])])
    return Fault("slow-flow", job.flow(pair), pair=pair, size=rng.uniform(3, 8))


def _inside(name: str, least: int) -> Place:
    """A link between switches that some of the flows cross."""

    def place(job: Program, pairs: list[Pair], rng: random.Random) -> Fault:
        across = _across(job, pairs)
        fit = sorted(link for link, some in across.items() if "/" not in link
                     and least <= len(some) <= 0.5 * len(pairs))  # fmt: skip
        if not fit:
            raise Unfit
        link = rng.choice(fit)
        size = rng.uniform(0.01, 0.05) if name == "bad-link" else rng.uniform(0.5, 0.8)
        return Fault(name, link, link=link, size=size)

    return place


def _incast(job: Program, pairs: list[Pair], rng: random.Random) -> Fault:
    across = _across(job, pairs)
    fit = sorted(
        link
        for link, some in across.items()
        if link.startswith("tor")
        and "/" in link
        and len(some) <= 0.5 * len(pairs)
        and len({src for src, _ in some}) >= 2
    )
    if not fit:
        raise Unfit
    link = rng.choice(fit)
    return Fault("incast", link.partition("->")[2], link=link, size=rng.uniform(0.5, 0.8))


def _receiver(_job: Program, pairs: list[Pair], rng: random.Random) -> Fault:
    """A rank with several senders: what holds up one flow may be that flow."""
    into = Counter(dst for _, dst in pairs)
    fit = sorted(rank for rank, senders in into.items() if senders >= 2)
    if not fit:
        raise Unfit
    rank = rng.choice(fit)
    return Fault("slow-receiver", f"rank {rank}", rank, size=rng.uniform(1.5, 3))


PLACES: dict[str, Place] = {
    "straggler": _rank("straggler", 1.4, 2.2), "gpu-throttle": _rank("gpu-throttle", 1.3, 2.0),
    "host-jitter": _host("host-jitter"), "data-stall": _data, "hang": _hang,
    "slow-flow": _slow_flow, "contention": _inside("contention", 2), "incast": _incast,
    "bad-link": _inside("bad-link", 1), "flapping": _nic("flapping"),
    "clock-fault": _nic("clock-fault"), "slow-receiver": _receiver,
}  # fmt: skip
